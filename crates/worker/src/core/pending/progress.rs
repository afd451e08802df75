//! The progress of operations: answers of servers, the next steps, and the replies to clients.

use crate::core::pending::operations::Due;
use crate::core::pending::operations::OfKind;
use crate::core::pools::given::Given;
use crate::core::request::RequestContext;
use crate::core::{Core, Plane};
use keyway_base::{Fault, Key, Slab};
use keyway_proxy::OperationPart;
use keyway_proxy::{Busy, Join, Operation, OperationKind, ReplyTo, Session};
use keyway_resp::Kind;
use keyway_topology::ServerId;

impl Core {
    /// Performs the next steps of the operations that have one, once a turn, before the links'
    /// output is sent.
    pub(in crate::core) fn continue_operations(&mut self) {
        let mut due = std::mem::take(&mut self.plane.pending.due);
        for due in due.drain(..) {
            match due {
                Due::Next(key) => self.continue_operation(key),
                Due::Scripts(key) => {
                    let _ = self.links.get_mut(key).map(|it| it.given.forget_scripts());
                }
                Due::Loads(key) => {
                    let _ = self.links.get_mut(key).map(|it| it.given = Given::default());
                }
            }
        }
        if self.plane.pending.due.is_empty() {
            self.plane.pending.due = due;
        }
    }

    fn continue_operation(&mut self, key: Key<Operation>) {
        let Core { sessions, links, plane } = self;
        let Some(operation) = plane.pending.operations.slab.get(key) else { return };
        match operation.kind {
            // A server that a WAIT has asked is lost, so it fails whatever the others answer.
            OperationKind::Join(_) => plane.end_wait(sessions, links, key),
            OperationKind::MultiStep(_) => plane.ask_again(sessions, links, key),
            OperationKind::WarmUpRead(_) => plane.continue_warm_up_read(sessions, links, key),
            OperationKind::MemcachedJoin(_) | OperationKind::RoutedRequest(_) => {}
        }
    }

    /// Returns whether an operation waits for [`Core::continue_operations`].
    #[inline]
    pub(in crate::core) fn has_operations_due(&self) -> bool {
        self.plane.pending.has_due()
    }
}

impl Plane {
    /// Reserves the reply of a request that is about to be sent.
    #[inline]
    pub(in crate::core) fn reply_to_request(&self, incoming: &mut RequestContext) -> ReplyTo {
        let RequestContext { key, session, busy, request } = incoming;
        let reply = match Self::is_silent(session) {
            false => Some(busy.order.reserve()),
            true => {
                Self::unheard(*key, session, busy);
                None
            }
        };
        Self::end_skip(session);
        ReplyTo {
            session: *key,
            reply,
            started: self.clock.now,
            counted: request.command.counted(),
            pool: session.pool,
        }
    }

    /// Passes a server's reply to a part of an operation to it.
    #[inline]
    pub(in crate::core) fn on_operation_reply(
        &mut self,
        sessions: &mut Slab<Session>,
        OperationPart { operation: key, part }: OperationPart,
        kind: Kind,
        reply: &[u8],
    ) {
        let Some(operation) = self.pending.operations.slab.get_mut(key) else { return };
        match &mut operation.kind {
            OperationKind::Join(join) if join.tells_keys() => {
                let server = join.server_of(part as u16);
                self.on_keys(sessions, key, (part as u16, server), kind, reply);
            }
            OperationKind::Join(join) => {
                if join.on_reply(part as u16, kind, reply) {
                    self.finish_join(sessions, key);
                }
            }
            OperationKind::MultiStep(multi_step) => {
                let next = multi_step.on_reply(kind, reply);
                self.after_multi_step_reply(sessions, key, kind, reply, next);
            }
            OperationKind::MemcachedJoin(memcached_join) => {
                if memcached_join.on_reply(part as u16, reply) {
                    self.finish_memcached_join(sessions, key);
                }
            }
            OperationKind::WarmUpRead(_) => self.on_item_copy_outcome(key, part, Ok(reply)),
            OperationKind::RoutedRequest(_) => debug_assert!(false, "it asks by sub-requests"),
        }
    }

    /// Passes the keys that a server has to the join that asked for them.
    fn on_keys(
        &mut self,
        sessions: &mut Slab<Session>,
        key: Key<Operation>,
        (part, server): (u16, Option<u16>),
        kind: Kind,
        reply: &[u8],
    ) {
        let pool = self.pending.reply_to(key).map_or(0, |to| to.pool);
        let keys = server.map_or(reply.into(), |server| self.own_keys(pool, server, reply));
        let join = self.pending.get_mut::<Join>(key);
        if join.is_some_and(|join| join.on_reply(part, kind, &keys)) {
            self.finish_join(sessions, key);
        }
    }

    /// Handles that a server does not answer its part of an operation.
    #[cold]
    pub(in crate::core) fn on_operation_fault(
        &mut self,
        sessions: &mut Slab<Session>,
        server: ServerId,
        OperationPart { operation: key, part }: OperationPart,
        fault: Fault,
    ) {
        let Some(operation) = self.pending.operations.slab.get_mut(key) else { return };
        match &mut operation.kind {
            OperationKind::Join(join) => {
                if join.on_fault(part as u16, fault) {
                    self.finish_join(sessions, key);
                } else if join.is_waiting {
                    self.pending.add_due(Due::Next(key));
                }
            }
            OperationKind::MultiStep(_) => {
                self.on_multi_step_fault(sessions, server, key, fault);
            }
            OperationKind::MemcachedJoin(memcached_join) => {
                if memcached_join.on_fault(part as u16, fault) {
                    self.finish_memcached_join(sessions, key);
                }
            }
            OperationKind::WarmUpRead(_) => self.on_item_copy_outcome(key, part, Err(fault)),
            OperationKind::RoutedRequest(_) => debug_assert!(false, "it asks by sub-requests"),
        }
    }

    /// Answers the client of an operation that has ended. Returns whether there was a client.
    #[inline]
    pub(in crate::core) fn answer_operation(
        &mut self,
        sessions: &mut Slab<Session>,
        to: ReplyTo,
        fault: Option<Fault>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let Some(reply) = to.reply else {
            self.end_unheard(sessions, to.session);
            return false;
        };
        let Some(session) = sessions.get_mut(to.session) else { return false };
        if let Some(fault) = fault {
            session.note_fault(fault);
        }
        self.complete(to.session, session, reply, write);
        true
    }

    /// Does the same for one that ends while its session is being parsed.
    pub(in crate::core) fn answer_operation_now(
        &self,
        session: &mut Session,
        busy: &mut Busy,
        to: ReplyTo,
        fault: Option<Fault>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let Some(reply) = to.reply else {
            session.unheard -= 1;
            return false;
        };
        if let Some(fault) = fault {
            session.note_fault(fault);
        }
        let errors = &self.plan.pools[usize::from(session.pool)].errors;
        busy.order.complete(reply, &mut busy.output, |out| errors.watch(out, write));
        true
    }

    /// Lets an operation that has not ended answer its client.
    #[inline]
    pub(in crate::core) fn with_unended<T: OfKind>(
        &mut self,
        key: Key<Operation>,
        answer: impl FnOnce(&mut Plane, ReplyTo, &T),
    ) {
        // An answer changes no operation.
        let slab = std::mem::take(&mut self.pending.operations.slab);
        if let Some(Operation { reply_to, kind }) = slab.get(key)
            && let Some(this) = T::of(kind)
        {
            answer(self, *reply_to, this);
        }
        self.pending.operations.slab = slab;
    }
}
