//! What a client has asked for, and what it knows of the reply that is to come.

use super::cached::Cached;
use super::channels::Told;
use super::stateful::Begun;
use crate::ledger::Circumstances;
use crate::network::Nanos;
use crate::wire::Value;

/// What a request asks for, as far as its reply is checked by it.
pub(super) enum Ask {
    Exactly(Value),
    Set { key: usize, write: u64 },
    Get { key: usize },
    Increment { counter: usize },
    SetMany { keys: Vec<usize>, writes: Vec<u64> },
    GetMany { keys: Vec<usize> },
    Delete { keys: Vec<usize> },
    Exists { keys: Vec<usize> },
    Refused { contains: Vec<u8> },
    AtMost(i64),
    Crossing { keys: Vec<usize> },
    Begun(Begun),
    Told(Told),
    Cached(Cached),
    BrokenFrame,
}

/// A request whose reply is still to come.
pub(super) struct Expected {
    pub(super) ask: Ask,
    pub(super) asked_at: Nanos,
    /// When the first request was asked that waited for its reply then: what the client is told
    /// of later changes stands behind that reply.
    pub(super) front_asked_at: Nanos,
    pub(super) database: usize,
    pub(super) circumstances: Vec<Circumstances>,
    /// It asked not to be answered.
    pub(super) is_silent: bool,
    /// A replica may answer it.
    pub(super) may_be_stale: bool,
    /// Where it ends among all bytes of its connection.
    pub(super) end: u64,
}
