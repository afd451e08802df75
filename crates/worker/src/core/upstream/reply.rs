use crate::core::observe::counting::Outcome;
use crate::core::upstream::heard::Heard;
use crate::core::{Connection, ConnectionKey, Core, Plane};
use keyway_base::{BackendFault, Block, Fault, Key, Limits, Part, Slab};
use keyway_command::Counted;
use keyway_metrics::Latency;
use keyway_proxy::OperationPart;
use keyway_proxy::memcached::write_text_failure;
use keyway_proxy::{Exchange, Internal, LinkState, Owner, Session, write_fault};
use keyway_resp::Kind;
use keyway_topology::ServerId;

impl Core {
    /// Handles bytes that a backend sent, without a block to hold parts of.
    #[cfg(test)]
    pub(in crate::core) fn on_backend_bytes(
        &mut self,
        index: ConnectionKey,
        bytes: &[u8],
    ) -> Result<(), BackendFault> {
        self.on_backend_block(index, bytes, None)
    }

    /// Handles bytes that a backend sent. If they are in a block, parts of it may be held.
    ///
    /// # Errors
    /// Returns an error if the backend violated the protocol or refused the handshake. The
    /// connection must then be closed.
    pub(crate) fn on_backend_block(
        &mut self,
        index: ConnectionKey,
        bytes: &[u8],
        block: Option<&Block>,
    ) -> Result<(), BackendFault> {
        let bytes = match self.links[index].link.is_streaming_reply() {
            false => bytes,
            true => {
                match self.pass_on(index, bytes, SharedBlock::of(block, &self.plane.plan.limits))? {
                    b"" => return Ok(()),
                    rest => rest,
                }
            }
        };
        let Core { sessions, links, plane } = self;
        let connection = &mut links[index];
        let server = connection.server_id;
        let cells = plane.cells.backend(server.pool, server.server);
        cells.received_bytes.add(bytes.len() as u64);
        let was_ready = connection.link.state() == LinkState::Ready;
        connection.heard = plane.clock.now;
        plane.note_latency(connection);
        let (limits, now) = (plane.plan.limits, plane.clock.now);
        let mut heard = Heard::new(index, connection, SharedBlock::of(block, &limits));
        let outcome = connection.link.handle_input(bytes, &limits, now, |exchange, kind, reply| {
            heard.take(plane, sessions, exchange, kind, reply);
        });
        outcome.map_err(|fault| plane.note_foreign(connection, fault))?;
        if heard.is_astray {
            // The reply belongs to another request, and so would all later ones.
            return Err(BackendFault::Protocol);
        }
        if let (Some(slow), Some(client)) = (connection.link.take_slow(), heard.slow_client) {
            plane.log_slow(server, slow, client);
            plane.await_written(sessions, client.reply);
        }
        if let Some(big) = connection.link.take_big() {
            plane.note_big_reply(server.pool, big);
        }
        if !was_ready {
            plane.after_handshake(index, connection);
        }
        plane.note_heard_of_health(index, connection, &heard);
        release_waiting(sessions, plane, connection);
        let redirected = connection.link.take_redirected();
        if connection.is_watched {
            plane.note_answers_of(connection, &mut heard, &redirected);
        }
        let (is_private, has_part) = (connection.is_private, connection.link.has_part());
        if !redirected.is_empty() {
            self.redirect_all(index, redirected);
        }
        if is_private {
            if !was_ready && self.links[index].link.state() == LinkState::Ready {
                self.on_tracking_ready(index);
            }
            self.on_private_reply(index, heard.client_id);
        }
        if has_part {
            self.try_streaming_reply(index);
        }
        Ok(())
    }

    #[cold]
    fn on_private_reply(&mut self, index: ConnectionKey, client_id: Option<Option<i64>>) {
        if let Some(id) = client_id {
            self.links[index].client_id = id;
            self.on_receiver_known(index, id);
            self.send_unblock(index);
        }
        let Core { sessions, links, plane } = self;
        plane.after_private_reply(sessions, links, index);
    }
}

/// Resumes sessions that waited for room on a link. If its primary is gone, they wait for that from
/// now on: such a wait has an end, and the worker handles the link meanwhile.
pub(in crate::core) fn release_waiting(
    sessions: &mut Slab<Session>,
    plane: &mut Plane,
    connection: &mut Connection,
) {
    if connection.waiting.is_empty() {
        return;
    }
    if plane.takes_more(connection)
        || (connection.waiting_due.is_none() && plane.is_gone(connection))
    {
        release_all(sessions, plane, connection);
    }
}

/// Does the same, and refuses a session's request that has waited for `timeout`.
pub(super) fn release_overdue(
    sessions: &mut Slab<Session>,
    plane: &mut Plane,
    connection: &mut Connection,
) {
    release_waiting(sessions, plane, connection);
    match connection.waiting_due {
        Some(due) if due <= plane.clock.now => release_all(sessions, plane, connection),
        due => plane.note_deadline(due),
    }
}

/// Makes sessions that waited for a link decide again where their requests go.
#[cold]
pub(in crate::core) fn release_all(
    sessions: &mut Slab<Session>,
    plane: &mut Plane,
    connection: &mut Connection,
) {
    connection.waiting_due = None;
    for key in connection.waiting.drain(..) {
        if let Some(session) = sessions.get_mut(key) {
            plane.wake(key, session);
        }
    }
}

/// The read bytes, as far as parts of them may be held.
#[derive(Clone, Copy)]
pub(super) struct SharedBlock<'b> {
    block: Option<&'b Block>,
    /// Replies of at least this length are held.
    len_min: usize,
}

impl<'b> SharedBlock<'b> {
    pub(super) const NONE: SharedBlock<'static> = SharedBlock { block: None, len_min: usize::MAX };

    fn of(block: Option<&'b Block>, limits: &Limits) -> Self {
        match block {
            Some(_) => SharedBlock { block, len_min: limits.refer_len as usize },
            None => SharedBlock::NONE,
        }
    }
}

impl Plane {
    /// Returns the range of a reply in a block, if it is long and its session may have it without a
    /// copy: only its client reads it.
    #[cold]
    pub(super) fn part_for(
        &self,
        session: &Session,
        shared: SharedBlock<'_>,
        reply: &[u8],
    ) -> Option<Part> {
        let block = shared.block.filter(|_| reply.len() >= shared.len_min)?;
        let busy = session.busy.as_ref()?;
        let is_plain =
            session.sub_request.is_none() && session.tracking.is_none() && !session.is_monitor;
        let has_room = busy.parts_count() < self.plan.limits.parts_max(block.len());
        // A reply that waits for a client that takes no more must not pin much more than itself.
        let may_wait = !session.send_blocked || reply.len() >= block.len() / 4 * 3;
        if is_plain && has_room && may_wait { Part::of(block, reply) } else { None }
    }

    /// Completes a reply in a session without copying it.
    #[cold]
    fn complete_with(
        &mut self,
        key: Key<Session>,
        session: &mut Session,
        sequence: u32,
        part: Part,
    ) {
        let busy = session.busy.as_mut().expect("a session with requests in flight has buffers");
        let before = busy.undelivered();
        busy.order.complete_with(sequence, &mut busy.output, part);
        self.after_completion(key, session, sequence, before);
    }

    /// Passes a reply that was put aside to its owner.
    #[inline(never)]
    pub(in crate::core) fn deliver_aside(
        &mut self,
        sessions: &mut Slab<Session>,
        server: ServerId,
        exchange: &Exchange,
        kind: Kind,
        reply: &[u8],
    ) {
        self.deliver(sessions, server, exchange, kind, SharedBlock::NONE, reply);
    }

    /// Passes a backend's reply to its owner.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "once per reply, called from one place beside the above"
    )]
    pub(super) fn deliver(
        &mut self,
        sessions: &mut Slab<Session>,
        server: ServerId,
        exchange: &Exchange,
        kind: Kind,
        shared: SharedBlock<'_>,
        reply: &[u8],
    ) {
        let cells = self.cells.backend(server.pool, server.server);
        let is_counted = !matches!(exchange.owner, Owner::None | Owner::Internal(_));
        if kind == Kind::Error && is_counted {
            cells.error_replies.add(1);
        }
        match exchange.owner {
            Owner::Session { session: key, sequence } => {
                let latency = Latency::between(exchange.started, self.clock.now);
                cells.latency.add(latency, 1);
                let Some(session) = sessions.get_mut(key) else {
                    return cells.unclaimed_replies.add(1);
                };
                self.replied(server.pool, exchange.counted, Some(latency), Outcome::of_reply(kind));
                if reply.len() >= shared.len_min
                    && kind != Kind::Error
                    && let Some(part) = self.part_for(session, shared, reply)
                {
                    return self.complete_with(key, session, sequence, part);
                }
                self.complete(key, session, sequence, |out| out.extend_from_slice(reply));
            }
            Owner::Operation { operation, part } => {
                cells.latency.record(exchange.started, self.clock.now);
                self.on_operation_reply(sessions, OperationPart { operation, part }, kind, reply);
            }
            Owner::Unheard(session) => {
                cells.latency.record(exchange.started, self.clock.now);
                self.end_unheard(sessions, session);
            }
            Owner::Hedged { .. } => {
                self.on_hedged_reply(sessions, server, exchange, kind, reply);
            }
            Owner::None => cells.late_replies.add(1),
            Owner::Internal(Internal::Unasked) => cells.unasked_pushes.add(1),
            Owner::Internal(_) => {}
        }
    }

    /// Counts the reply to a command that waited as it was asked to. Its duration does not count as
    /// latency. `counted` is `None` for a part of a request: the whole request is counted.
    #[cold]
    pub(super) fn deliver_waited(&self, server: ServerId, counted: Option<Counted>, kind: Kind) {
        if kind == Kind::Error {
            self.cells.backend(server.pool, server.server).error_replies.add(1);
            if let Some(counted) = counted {
                self.replied(server.pool, counted, None, Outcome::Error);
            }
        }
    }

    /// Completes a reply in a session.
    #[inline]
    pub(in crate::core) fn complete(
        &mut self,
        key: Key<Session>,
        session: &mut Session,
        sequence: u32,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let busy = session.busy.as_mut().expect("a session with requests in flight has buffers");
        let before = busy.undelivered();
        let errors = &self.plan.pools[usize::from(session.pool)].errors;
        busy.order.complete(sequence, &mut busy.output, |out| errors.watch(out, write));
        self.after_completion(key, session, sequence, before);
    }

    /// Handles the state of a session after a reply was completed. `before` bytes were undelivered
    /// until then.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "once per reply: a call costs 3 % of its instructions")]
    fn after_completion(
        &mut self,
        key: Key<Session>,
        session: &mut Session,
        sequence: u32,
        before: usize,
    ) {
        let busy = session.busy.as_mut().expect("a session with requests in flight has buffers");
        session.reply_size.note(busy.undelivered().saturating_sub(before));
        if session.identity.pin_due.is_some() {
            let is_last = busy.order.is_empty() && session.unheard == 0;
            session.identity.on_reply(sequence, is_last, self.clock.now);
        }
        // An empty reply may be the last one. A session at its end is then closed, and a session at
        // rest returns its buffers.
        let has_to_do = !busy.output.is_empty() || session.closing || busy.is_empty();
        if has_to_do || session.sub_request.is_some() || session.is_overgrown(&self.plan.limits) {
            self.mark_session_dirty(key, session);
        }
        if session.paused && session.waits_for.is_none() {
            self.mark_session_resuming(key, session);
        }
        if session.streamed_reply.as_ref().is_some_and(|streamed| streamed.sequence == sequence) {
            self.end_reply(key, session);
        }
    }

    /// Notes that a request without a reply is over. Its session may wait for that.
    #[cold]
    pub(in crate::core) fn end_unheard(&mut self, sessions: &mut Slab<Session>, key: Key<Session>) {
        let Some(session) = sessions.get_mut(key) else { return };
        session.unheard -= 1;
        session.identity.pin_anew(self.clock.now);
        if session.unheard > 0 {
            return;
        }
        if session.paused && session.waits_for.is_none() {
            self.mark_session_resuming(key, session);
        }
        if session.busy.is_some() && session.is_at_rest() {
            // Its buffers can go.
            self.mark_session_dirty(key, session);
        }
    }

    /// Answers an exchange that gets no reply from its backend. For a command that waits as it was
    /// asked to (`is_blocking`), the duration does not count as latency.
    #[cold]
    pub(in crate::core) fn fail(
        &mut self,
        sessions: &mut Slab<Session>,
        server: ServerId,
        exchange: &Exchange,
        is_blocking: bool,
        fault: Fault,
    ) {
        let is_counted = !matches!(exchange.owner, Owner::None | Owner::Internal(_));
        if let (true, Fault::Backend { fault, .. }) = (is_counted, fault) {
            self.cells.backend(server.pool, server.server).errors.of(fault).add(1);
        }
        let is_timeout = matches!(fault, Fault::Backend { fault: BackendFault::Timeout, .. });
        let Some(exchange) = &self.settle_hedge(exchange, is_timeout) else { return };
        match exchange.owner {
            Owner::Session { session: key, sequence } => {
                let Some(session) = sessions.get_mut(key) else { return };
                if session.streamed_reply.is_some() && self.cut_short(key, session, sequence) {
                    return self.count_fault(server.pool, exchange.counted, fault);
                }
                let latency =
                    (!is_blocking).then(|| Latency::between(exchange.started, self.clock.now));
                self.replied(server.pool, exchange.counted, latency, Outcome::Fault(fault));
                session.note_fault(fault);
                let text = self.describe_backend(server);
                let speaks_memcached = session.memcached.is_some();
                self.complete(key, session, sequence, |out| match speaks_memcached {
                    true => write_text_failure(out, fault, &text),
                    false => write_fault(fault, &text, out),
                });
            }
            Owner::Operation { operation, part } => {
                self.on_operation_fault(sessions, server, OperationPart { operation, part }, fault);
            }
            Owner::Unheard(session) => self.end_unheard(sessions, session),
            Owner::Internal(Internal::Cluster(number)) => {
                self.miss_of_cluster(server, number, fault);
            }
            Owner::Internal(Internal::Names) => self.cluster.note_unnamed(server),
            Owner::Internal(_) | Owner::Hedged { .. } | Owner::None => {}
        }
    }
}
