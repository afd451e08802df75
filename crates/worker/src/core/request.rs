//! A request on its way through the rooms, and what became of it.

use super::ConnectionKey;
use keyway_base::Key;
use keyway_command::Request;
use keyway_proxy::{Busy, Session};

/// A request that is looked at, and the session that sent it.
pub(in crate::core) struct RequestContext<'a, 'r> {
    pub(in crate::core) key: Key<Session>,
    pub(in crate::core) session: &'a mut Session,
    pub(in crate::core) busy: &'a mut Busy,
    pub(in crate::core) request: &'a Request<'r>,
}

/// The outcome of an attempt to start a request.
pub(in crate::core) enum Step {
    /// It is on its way or answered.
    Started,
    /// A connection it needs is full: it stays unparsed until there is room.
    Full(ConnectionKey),
    /// It stays unparsed until the replies to those before it are here.
    Wait,
    /// Too many requests are on their way over other pools: it stays unparsed until some have
    /// ended.
    Crowded,
}
