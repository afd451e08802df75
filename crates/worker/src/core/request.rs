//! A request on its way through the rooms, and its result.

use crate::{Plan, PoolPlan};
use keyway_base::{ByteRange, Key};
use keyway_command::Request;
use keyway_proxy::{Busy, ConnectionKey, Session};

/// The buffers with which a worker reads a request.
#[derive(Default)]
pub(super) struct RequestBuffers {
    /// The ranges of the arguments in the request.
    pub(super) args: Vec<ByteRange>,
    /// The wire form of a request that came as a line.
    pub(super) inline: Vec<u8>,
}

impl RequestBuffers {
    /// Frees what has room for more than `kept_max` elements.
    pub(super) fn trim(&mut self, kept_max: usize) {
        if self.args.capacity() > kept_max {
            self.args = Vec::new();
        }
        if self.inline.capacity() > kept_max {
            self.inline = Vec::new();
        }
    }
}

/// A session and its key.
#[derive(Clone, Copy)]
pub(super) struct ClientRef<'a> {
    pub(super) key: Key<Session>,
    pub(super) session: &'a Session,
}

/// A session, mutably, and its key.
pub(super) struct ClientMut<'a> {
    pub(super) key: Key<Session>,
    pub(super) session: &'a mut Session,
}

/// A session that has requests in flight, with its key and its buffers.
pub(super) struct BusyClient<'a> {
    pub(super) key: Key<Session>,
    pub(super) session: &'a mut Session,
    pub(super) busy: &'a mut Busy,
}

/// A request that is about to start, and the session that has sent it.
pub(super) struct RequestContext<'a, 'r> {
    pub(super) key: Key<Session>,
    pub(super) session: &'a mut Session,
    pub(super) busy: &'a mut Busy,
    pub(super) request: &'a Request<'r>,
}

impl ClientMut<'_> {
    /// Lends the client on.
    #[inline]
    pub(super) fn reborrow(&mut self) -> ClientMut<'_> {
        ClientMut { key: self.key, session: self.session }
    }
}

impl RequestContext<'_, '_> {
    /// Returns the client that has sent the request.
    #[inline]
    pub(super) fn client(&mut self) -> ClientMut<'_> {
        ClientMut { key: self.key, session: self.session }
    }

    /// Returns the same client with another request in place of this one.
    pub(super) fn with<'a, 'r>(&'a mut self, request: &'a Request<'r>) -> RequestContext<'a, 'r> {
        RequestContext { key: self.key, session: self.session, busy: self.busy, request }
    }
}

/// A pool of a plan, and that plan.
#[derive(Clone, Copy)]
pub(super) struct PoolInPlan<'a> {
    pub(super) plan: &'a Plan,
    pub(super) pool: &'a PoolPlan,
}

/// Identifies one reply of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplyIndex {
    /// The session. The key is stale once the client is gone.
    pub(super) session: Key<Session>,
    /// Index of the reply in the session's order of replies.
    pub(super) reply: u32,
}

/// The result of an attempt to start a request.
pub(super) enum Step {
    /// It is in flight or answered.
    Started,
    /// A connection that it needs is full: it stays unparsed until there is room.
    Full(ConnectionKey),
    /// It stays unparsed until earlier replies have arrived.
    Wait,
    /// Too many requests are led to other pools: it stays unparsed until some have ended.
    Crowded,
}
