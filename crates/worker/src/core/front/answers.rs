//! Replies that are known when the request is read, and errors that the client itself has caused.

use crate::PoolPlan;
use crate::core::Plane;
use crate::core::request::{RequestContext, Step};
use keyway_base::{Fault, Key};
use keyway_proxy::{Busy, Owner, ReplyMode, Session, write_crossslot};
use keyway_resp::reply;
use keyway_route::Route;

impl Plane {
    /// Returns whether the request that is being parsed must get no reply.
    #[inline]
    pub(in crate::core) fn is_silent(session: &Session) -> bool {
        session.identity.reply_mode != ReplyMode::On
    }

    #[inline]
    pub(in crate::core) fn end_skip(session: &mut Session) {
        if session.identity.reply_mode == ReplyMode::SkipNext {
            session.identity.reply_mode = ReplyMode::On;
        }
    }

    /// Returns the owner of the reply to a request of a client that wants none.
    #[cold]
    pub(in crate::core) fn unheard(
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
    ) -> Owner {
        busy.order.note_unheard(session.unheard);
        session.unheard += 1;
        Owner::Unheard(key)
    }

    /// Completes a reply that is known now.
    #[inline]
    pub(in crate::core) fn answer(
        &mut self,
        session: &mut Session,
        busy: &mut Busy,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let plan = &self.plan;
        let errors = &plan.pools[usize::from(session.pool)].errors;
        if Self::is_silent(session) {
            // A reply that is not sent is counted all the same.
            self.scratch.clear();
            errors.watch(&mut self.scratch, write);
            return Self::end_skip(session);
        }
        let reply_index = busy.order.reserve();
        busy.order.complete(reply_index, &mut busy.output, |out| errors.watch(out, write));
    }

    /// Like [`Plane::answer`], for a caller that counts its errors itself.
    #[inline]
    pub(in crate::core) fn answer_noted(
        &mut self,
        session: &mut Session,
        busy: &mut Busy,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        if Self::is_silent(session) {
            self.scratch.clear();
            write(&mut self.scratch);
            return Self::end_skip(session);
        }
        let reply_index = busy.order.reserve();
        busy.order.complete(reply_index, &mut busy.output, write);
    }

    pub(in crate::core) fn answer_locally(
        &mut self,
        incoming: &mut RequestContext,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.served(incoming.session.pool, incoming.request.command.counted());
        self.answer(incoming.session, incoming.busy, write);
    }

    /// Answers with an error that the client itself caused.
    #[cold]
    pub(in crate::core) fn refuse(
        &mut self,
        session: &mut Session,
        busy: &mut Busy,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.cells.pool(session.pool as usize).refused.of(Fault::Denied).add(1);
        self.answer(session, busy, write);
    }

    /// Answers a request with an error that its client caused. `text` begins with an error code.
    #[cold]
    pub(in crate::core) fn refuse_request(
        &mut self,
        incoming: &mut RequestContext,
        text: &str,
    ) -> Step {
        self.refuse(incoming.session, incoming.busy, |out| reply::error(out, text));
        Step::Started
    }

    #[cold]
    pub(in crate::core) fn refuse_route(
        &mut self,
        incoming: &mut RequestContext,
        pool: &PoolPlan,
        route: Route,
    ) -> Step {
        let name = incoming.request.command.name.replace('|', " ");
        match route {
            Route::CrossSlot(spread) => {
                let upstream = pool.kind.upstream();
                let tag = upstream.and_then(|it| it.servers.hash_tag).map(|tag| tag.to_string());
                self.refuse(incoming.session, incoming.busy, |out| {
                    write_crossslot(&name, spread, tag.as_deref(), out);
                });
                Step::Started
            }
            Route::Refused(reason) => {
                self.refuse_request(incoming, &format!("ERR '{name}' is refused: {reason}"))
            }
            Route::KeysUnknown(fault) => {
                let text = incoming.request.keys_error(fault);
                self.refuse_request(incoming, &text)
            }
            _ => self.answer_unrouted(incoming),
        }
    }

    /// Answers a request for whose keys there is no server.
    #[cold]
    pub(in crate::core) fn answer_unrouted(&mut self, incoming: &mut RequestContext) -> Step {
        let RequestContext { session, busy, request, .. } = incoming;
        self.started(session.pool, request.command.counted());
        session.note_fault(Fault::Unrouted);
        self.count_fault(session.pool, request.command.counted(), Fault::Unrouted);
        self.executed(session.pool, request.command.counted());
        self.request_view_for_unowned(session.pool);
        let mut told = Vec::new();
        self.write_unrouted(session.pool, Some(request), &mut told);
        self.answer(session, busy, |out| out.extend_from_slice(&told));
        Step::Started
    }
}
