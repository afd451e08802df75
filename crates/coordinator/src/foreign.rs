//! Entries that another system keeps in an engine, read once.

use crate::{EtcdSettings, Fault, FaultKind, ZooKeeperSettings, etcd, zookeeper};

/// The engine in which another system keeps entries, below `ROOT/CLUSTER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForeignEntries {
    /// etcd, by version 2 of its API, whose keys version 3 does not know. Users are not sent.
    EtcdV2(EtcdSettings),
    /// ZooKeeper.
    ZooKeeper(ZooKeeperSettings),
}

impl ForeignEntries {
    /// Returns all entries that have a value, with their names relative to `ROOT/CLUSTER`, such as
    /// `slots/slot-0000`. There are none if that path does not exist. They are not of one moment. Blocks
    /// the calling thread, which runs nothing asynchronous.
    ///
    /// # Errors
    /// Returns a fault if no server answers, the credentials do not suffice, or there is too much.
    pub fn read(&self) -> Result<Vec<(String, Vec<u8>)>, Fault> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| {
            Fault::new(FaultKind::Unreachable, "the system", "read", error.to_string())
        })?;
        runtime.block_on(async {
            match self {
                ForeignEntries::EtcdV2(settings) => etcd::read_v2(settings.clone()).await,
                ForeignEntries::ZooKeeper(settings) => zookeeper::read_tree(settings.clone()).await,
            }
        })
    }
}
