//! Entries for clients of other systems, which know nothing of revisions: the bytes stand under
//! their name as they were given.

use crate::{EtcdSettings, Fault, Key, Session, ZooKeeperSettings, etcd, zookeeper};
use std::time::Duration;

/// The engine that such clients ask. Its entries are `ROOT/CLUSTER/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registry {
    /// etcd: keys.
    Etcd(EtcdSettings),
    /// ZooKeeper: ephemeral nodes. With credentials, everybody may read them, and nobody else may
    /// change them.
    ZooKeeper(ZooKeeperSettings),
}

impl Registry {
    /// Puts `value` under a name without `/`, in place of what is there. The entry is deleted when
    /// the session ends. The session is also lost if somebody deletes the entry, or, in etcd,
    /// replaces it.
    ///
    /// An entry that another process has put there since is not deleted.
    ///
    /// # Errors
    /// Returns a fault if no server answers, the credentials do not suffice, or the name or the
    /// lease is invalid.
    pub async fn register(
        &self,
        name: &Key,
        value: &[u8],
        ttl: Duration,
    ) -> Result<Session, Fault> {
        if name.as_str().contains('/') {
            return Err(Fault::invalid(format!("{:?} is no name of an entry", name.as_str())));
        }
        match self {
            Registry::Etcd(settings) => etcd::register(settings.clone(), name, value, ttl).await,
            Registry::ZooKeeper(settings) => {
                zookeeper::register(settings.clone(), name, value, ttl).await
            }
        }
    }
}
