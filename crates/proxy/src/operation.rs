//! One request that takes several exchanges with servers.

use crate::memcached::{MemcachedJoin, WarmUpRead};
use crate::route_policy::RoutedRequest;
use crate::{Join, MultiStep, Session};
use keyway_base::{Key, Time};
use keyway_command::Counted;

/// One request that takes several exchanges with servers, from its first exchange to its reply.
/// Exchanges name it by its key ([`crate::Owner::Operation`]), which is stale once it has ended.
#[derive(Debug)]
pub struct Operation {
    /// Whose reply it becomes.
    pub reply_to: ReplyTo,
    /// What it takes, and what is known of that so far.
    pub kind: OperationKind,
}

/// Names a part of an operation, which one exchange has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationPart {
    /// The operation; stale once it has ended.
    pub operation: Key<Operation>,
    /// Index of the fragment of a join, or of the item copy of a warm-up read.
    pub part: u32,
}

/// Whose reply an operation becomes, and what that reply is counted as.
#[derive(Clone, Copy, Debug)]
pub struct ReplyTo {
    /// The session; stale once the client is gone.
    pub session: Key<Session>,
    /// Index of the reply in the session's [`crate::ReplyOrder`]; `None` when the client asked for
    /// no reply.
    pub reply: Option<u32>,
    /// When the request was parsed.
    pub started: Time,
    /// The class and the command that metrics count it under.
    pub counted: Counted,
    /// Position of the pool.
    pub pool: u16,
}

/// What an operation takes. The boxes go back to the pools they were taken from.
#[derive(Debug)]
pub enum OperationKind {
    /// One request became a fragment for each of several servers.
    Join(Box<Join>),
    /// It asks one server after the other, or one again.
    MultiStep(Box<MultiStep>),
    /// The reply to a client of memcached is put together from those of servers.
    MemcachedJoin(Box<MemcachedJoin>),
    /// A request of a client of memcached for which items are brought over from an old pool. What
    /// was asked of servers is not its reply yet.
    WarmUpRead(Box<WarmUpRead>),
    /// A request that goes over other pools, which it asks by sub-requests: no exchange names it,
    /// and `pool` is the one that leads it. It ends with the last of whom it has asked, which may
    /// be after its reply.
    RoutedRequest(Box<RoutedRequest>),
}
