//! Clients that a turn is to look at, and why.

use keyway_base::Key;
use keyway_proxy::local::Unblock;
use keyway_proxy::{BusyPool, Session};
use std::collections::BTreeSet;

/// The clients that a worker is to look at.
#[derive(Default)]
pub(crate) struct State {
    /// Sessions with output to send, or at their end.
    pub(crate) dirty: Vec<Key<Session>>,
    /// Sessions whose kept input can be parsed again.
    pub(crate) resuming: Vec<Key<Session>>,
    /// Clients whose next request a pause holds back.
    pub(in crate::core) held_back: Vec<(Key<Session>, u16)>,
    /// Clients whose login is being looked at.
    pub(in crate::core) logins: Vec<Key<Session>>,
    /// Clients to close, found by CLIENT KILL; they may be other workers'.
    pub(crate) kills: BTreeSet<u64>,
    /// Blocking commands to be ended, of clients of any worker.
    pub(crate) unblocks: Vec<Unblock>,
    /// The session whose socket is read again: what is there has waited in it.
    pub(in crate::core) rereading: Option<Key<Session>>,
    pub(in crate::core) busy_pool: BusyPool,
}
