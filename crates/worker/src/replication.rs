//! The role of a pool's store: what REPLICAOF changes and ROLE tells, and its replicas.

use keyway_rdb::replication::{ReplicaProfile, Request};
use keyway_topology::Endpoint;
use parking_lot::RwLock;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

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

    /// The figures of the store as the primary of replicas. A replica has them, too.
    fn feed(&self) -> FeedFigures;

    /// Feeds a client as a replica from here on. A refusal is sent to it.
    fn attach(&self, link: ReplicaLink);

    /// Waits until replicas have acknowledged everything that was executed so far.
    fn wait(&self, wait: ReplicaWait);

    /// The number of replicas that have acknowledged everything that was executed so far.
    fn acknowledged(&self) -> u64;

    /// Begins to hand over to a replica, or gives that up, on another thread.
    fn fail_over(&self, failover: Failover, done: Box<dyn FnOnce(RoleReply) + Send>);
}

/// A client that becomes a replica. It is no client of a worker any more.
pub struct ReplicaLink {
    /// Its connection, which does not block.
    pub socket: OwnedFd,
    /// The address of the connection's other end, without port.
    pub peer: String,
    /// The facts that it has announced.
    pub profile: ReplicaProfile,
    /// Its PSYNC or SYNC.
    pub request: Request,
    /// The bytes behind that which were read.
    pub said: Vec<u8>,
}

/// A WAIT.
pub struct ReplicaWait {
    /// The number of replicas that it waits for.
    pub count: u64,
    /// How long it waits; `None` for ever.
    pub timeout: Option<Duration>,
    /// Returns whether the client waits no longer.
    pub is_over: Box<dyn Fn() -> bool + Send>,
    /// Is given the number of replicas, or the text of an error.
    pub done: Box<dyn FnOnce(Result<u64, String>) + Send>,
}

/// A FAILOVER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failover {
    /// Hand over.
    Begin {
        /// The replica; `None` for the first that has everything.
        to: Option<(String, u16)>,
        /// How long to wait until the replica has everything; `None` for ever.
        timeout: Option<Duration>,
        /// True if the replica takes over in any case once that time is over.
        is_forced: bool,
    },
    /// Stay the primary.
    Abort,
}

/// The facts about a store as the primary of replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedFigures {
    /// The id of the history that the data is of.
    pub id: String,
    /// Its id before, and the offset up to which that was its id.
    pub second: Option<(String, u64)>,
    /// The offset of the data.
    pub offset: u64,
    /// The offset from which on the stream is kept; `None` if none of it is.
    pub kept_from: Option<u64>,
    /// Bytes of the stream that are kept for replicas that come back.
    pub history: u64,
    /// Bytes that the stream may take in memory.
    pub room: u64,
    /// Bytes that the stream takes, among those that the store uses. A log reads the same stream.
    pub stream_bytes: u64,
    /// Bytes on their way to replicas and to the next process of an upgrade, beside the store's.
    pub unsent_bytes: u64,
    /// The replicas, in the order in which they came.
    pub replicas: Vec<FedReplica>,
    /// The number of replicas without which no write is served; 0 for any.
    pub replicas_min: u64,
    /// The longest silence of a replica that counts for that.
    pub lag_max: Duration,
    /// The number of those there are.
    pub replicas_good: u64,
    /// The word for sentinels on whether to promote this store.
    pub priority: u32,
    /// Redis's word for how far a FAILOVER is.
    pub failover: &'static str,
    /// Replicas that were taken in since the process started.
    pub attached: u64,
    /// Replicas that were cut off because they were slower than the writes.
    pub cut_off: u64,
}

/// The facts about a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FedReplica {
    /// Its address, without port.
    pub address: String,
    /// The port on which it serves its own clients; 0 if it has told none.
    pub port: u16,
    /// Redis's word for how far it is.
    pub state: &'static str,
    /// The offset that it has acknowledged.
    pub offset: u64,
    /// Seconds since it last acknowledged anything.
    pub lag_seconds: u64,
}

/// The figures that a replica reports about its link.
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
    /// Why the latest link ended, or did not come about; `None` while the link is up.
    pub down_reason: Option<String>,
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

impl FedReplica {
    /// Returns whether it follows.
    pub fn is_online(&self) -> bool {
        self.state == "online"
    }
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
