//! The requests of a client, and the replies that it expects.

use super::cached::Cached;
use super::channels::Told;
use super::stateful::Begun;
use crate::ledger::Circumstances;
use crate::network::Nanos;
use crate::wire::Value;

/// The request, as far as its reply is checked against it.
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

/// A request whose reply has not arrived.
pub(super) struct Expected {
    pub(super) ask: Ask,
    pub(super) asked_at: Nanos,
    /// The time at which the first request that waited for its reply then was asked. Messages about
    /// later changes come after that reply.
    pub(super) front_asked_at: Nanos,
    pub(super) database: usize,
    pub(super) circumstances: Vec<Circumstances>,
    /// True if the request gets no reply.
    pub(super) is_silent: bool,
    /// True if a replica may answer it.
    pub(super) may_be_stale: bool,
    /// Offset of its end among all bytes of its connection.
    pub(super) end: u64,
}
