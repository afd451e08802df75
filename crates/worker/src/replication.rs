//! The role of a pool's store: what REPLICAOF changes and ROLE tells.

use keyway_topology::Endpoint;
use parking_lot::RwLock;
use std::sync::Arc;

/// A role that a client wants a store to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// A primary.
    Primary,
    /// The replica of a server.
    ReplicaOf {
        /// The server's host.
        host: String,
        /// Its port.
        port: u16,
    },
}

/// The reply to a client that wanted a role.
pub type RoleReply = Result<&'static str, String>;

/// The role of one store. The binary has the thread that follows a primary.
pub trait Replication: Send + Sync {
    /// Changes the role, on another thread. `done` is given the reply once the store has the role.
    fn change(&self, wish: Wish, done: Box<dyn FnOnce(RoleReply) + Send>);

    /// The figures of a replica; `None` for a primary.
    fn figures(&self) -> Option<ReplicaFigures>;
}

/// What a replica tells of its link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaFigures {
    /// The primary's host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Redis's word for how far the link is; `connected` once the stream comes.
    pub state: &'static str,
    /// Seconds since the last byte came; `None` before the first.
    pub last_io_seconds: Option<u64>,
    /// Seconds since the link went down; `None` while it is up.
    pub down_seconds: Option<u64>,
    /// The id of the history that the data is of.
    pub id: Option<String>,
    /// The offset of what was executed.
    pub offset: u64,
    /// Bytes of a snapshot that have come, while one comes.
    pub received: u64,
    /// Bytes of the snapshot, if the primary has told.
    pub len: Option<u64>,
    /// Snapshots that were taken whole.
    pub full_resyncs: u64,
    /// Links that went on where the one before had ended.
    pub partial_resyncs: u64,
    /// Links that ended or did not come about.
    pub failures: u64,
    /// Commands of the stream that were executed.
    pub applied: u64,
    /// Of these, the ones that failed.
    pub failed: u64,
}

impl ReplicaFigures {
    /// Of a replica that does not follow yet.
    pub fn waiting(primary: &Option<Endpoint>) -> Self {
        let (host, port) = match primary {
            Some(Endpoint::Tcp { host, port }) => (host.to_string(), *port),
            _ => (String::new(), 0),
        };
        Self { host, port, state: "connect", down_seconds: Some(0), ..Self::default() }
    }

    /// Returns whether the stream comes.
    pub fn is_up(&self) -> bool {
        self.state == "connected"
    }
}

/// Where a pool's role is, once the process has prepared it. Clones are of the same place.
#[derive(Clone, Default)]
pub struct RoleDoor(Arc<RwLock<Option<Arc<dyn Replication>>>>);

impl RoleDoor {
    /// Puts a role here.
    pub fn set(&self, role: Arc<dyn Replication>) {
        *self.0.write() = Some(role);
    }

    /// Returns the role.
    pub fn get(&self) -> Option<Arc<dyn Replication>> {
        self.0.read().clone()
    }
}
