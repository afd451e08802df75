//! One request that takes several exchanges with servers.

use crate::memcached::{MemcachedJoin, WarmUpRead};
use crate::route_policy::RoutedRequest;
use crate::{Join, MultiStep, Session};
use keyway_base::{Key, Time};
use keyway_command::Counted;

/// One request that takes several exchanges with servers, from its first exchange to its reply.
/// Exchanges refer to it by its key ([`crate::Owner::Operation`]), which is stale once it has
/// ended.
#[derive(Debug)]
pub struct Operation {
    /// The destination of its reply.
    pub reply_to: ReplyTo,
    /// Its kind, with its state.
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

/// The destination of an operation's reply, and the metrics that count it.
#[derive(Clone, Copy, Debug)]
pub struct ReplyTo {
    /// The session. The key is stale once the client is gone.
    pub session: Key<Session>,
    /// Index of the reply in the session's [`crate::ReplyOrder`], or `None` if the client asked for
    /// no reply.
    pub reply: Option<u32>,
    /// When the request was parsed.
    pub started: Time,
    /// The class and the command under which metrics count it.
    pub counted: Counted,
    /// Index of the pool.
    pub pool: u16,
}

/// The kind of an operation. The boxes are returned to the pools from which they came.
#[derive(Debug)]
pub enum OperationKind {
    /// One request became a fragment for each of several servers.
    Join(Box<Join>),
    /// The request asks one server after the other, or one again.
    MultiStep(Box<MultiStep>),
    /// The reply to a client of memcached is merged from those of servers.
    MemcachedJoin(Box<MemcachedJoin>),
    /// Items are copied from an old pool for a request of a memcached client. The replies of
    /// servers are not the client's reply yet.
    WarmUpRead(Box<WarmUpRead>),
    /// A request that is led to other pools, which it asks by sub-requests. No exchange refers to
    /// it, and `pool` is the one that leads. It ends with its last sub-request, which may be after
    /// its reply.
    RoutedRequest(Box<RoutedRequest>),
}
