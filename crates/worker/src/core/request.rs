//! A request on its way through the rooms, and its result.

use super::ConnectionKey;
use crate::{Plan, PoolPlan};
use keyway_base::Key;
use keyway_command::Request;
use keyway_proxy::{Busy, Session};

/// A session and its key.
#[derive(Clone, Copy)]
pub(in crate::core) struct ClientRef<'a> {
    pub(in crate::core) key: Key<Session>,
    pub(in crate::core) session: &'a Session,
}

/// A session, mutably, and its key.
pub(in crate::core) struct ClientMut<'a> {
    pub(in crate::core) key: Key<Session>,
    pub(in crate::core) session: &'a mut Session,
}

/// A session that has requests in flight, with its key and its buffers.
pub(in crate::core) struct BusyClient<'a> {
    pub(in crate::core) key: Key<Session>,
    pub(in crate::core) session: &'a mut Session,
    pub(in crate::core) busy: &'a mut Busy,
}

/// A request that is about to start, and the session that has sent it.
pub(in crate::core) struct RequestContext<'a, 'r> {
    pub(in crate::core) key: Key<Session>,
    pub(in crate::core) session: &'a mut Session,
    pub(in crate::core) busy: &'a mut Busy,
    pub(in crate::core) request: &'a Request<'r>,
}

impl ClientMut<'_> {
    /// Lends the client on.
    #[inline]
    pub(in crate::core) fn reborrow(&mut self) -> ClientMut<'_> {
        ClientMut { key: self.key, session: self.session }
    }
}

impl RequestContext<'_, '_> {
    /// Returns the client that has sent the request.
    #[inline]
    pub(in crate::core) fn client(&mut self) -> ClientMut<'_> {
        ClientMut { key: self.key, session: self.session }
    }
}

/// A pool of a plan, and that plan.
#[derive(Clone, Copy)]
pub(in crate::core) struct PoolInPlan<'a> {
    pub(in crate::core) plan: &'a Plan,
    pub(in crate::core) pool: &'a PoolPlan,
}

/// Identifies one reply of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) struct ReplyIndex {
    /// The session. The key is stale once the client is gone.
    pub(in crate::core) session: Key<Session>,
    /// Index of the reply in the session's order of replies.
    pub(in crate::core) reply: u32,
}

/// The result of an attempt to start a request.
pub(in crate::core) enum Step {
    /// It is in flight or answered.
    Started,
    /// A connection that it needs is full: it stays unparsed until there is room.
    Full(ConnectionKey),
    /// It stays unparsed until earlier replies have arrived.
    Wait,
    /// Too many requests are led to other pools: it stays unparsed until some have ended.
    Crowded,
}
