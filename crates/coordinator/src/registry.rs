//! Entries for clients of other systems, which know nothing of revisions: the bytes stand under
//! their name as they were given.

use crate::{
    Coordinator, Etcd, EtcdSettings, Fault, Key, Session, Txn, ZooKeeperSettings, zookeeper,
};
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
    /// the session ends. ZooKeeper's session is also lost if somebody deletes the entry.
    ///
    /// An entry that another process has put there since is not deleted.
    ///
    /// # Errors
    /// Returns a fault if no server answers, the credentials do not suffice, or the name or the
    /// time is none.
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
            Registry::Etcd(settings) => {
                // Opened anew each time: a backup that was restored since is none of our business.
                let etcd = Etcd::open(settings.clone()).await?;
                let session = etcd.session(ttl).await?;
                match etcd.txn(Txn::new().put_bound(name, value, &session)).await {
                    Ok(_) => Ok(session),
                    Err(fault) => {
                        session.end().await;
                        Err(fault)
                    }
                }
            }
            Registry::ZooKeeper(settings) => {
                zookeeper::register(settings.clone(), name, value, ttl).await
            }
        }
    }
}
