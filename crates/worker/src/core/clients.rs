//! Clients that a turn must handle, and why.

use keyway_base::Key;
use keyway_proxy::local::Unblock;
use keyway_proxy::{BusyPool, Session};
use std::collections::BTreeSet;

/// The clients that a worker must handle.
#[derive(Default)]
pub(crate) struct State {
    /// Sessions with output to send, or at their end.
    pub(crate) dirty: Vec<Key<Session>>,
    /// Sessions whose kept input can be parsed again.
    pub(crate) resuming: Vec<Key<Session>>,
    /// Clients whose next request a pause holds back.
    pub(super) held_back: Vec<(Key<Session>, u16)>,
    /// Clients whose login is being checked.
    pub(super) logins: Vec<Key<Session>>,
    /// Clients to close, found by CLIENT KILL. They may belong to other workers.
    pub(crate) kills: BTreeSet<u64>,
    /// Blocking commands to end, of clients of any worker.
    pub(crate) unblocks: Vec<Unblock>,
    /// The session whose socket is read again: bytes have waited there.
    pub(super) rereading: Option<Key<Session>>,
    pub(super) busy_pool: BusyPool,
}
