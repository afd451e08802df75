//! The end of a turn: the output of links and sessions is sent to their sockets.

use super::Worker;
use crate::Plan;
use crate::core::{Connection, ConnectionKey, Core};
use keyway_base::{BackendFault, Key};
use keyway_metrics::{CloseReason, Counter};
use keyway_net::{Io, Send, Socket};
use keyway_proxy::{Output, Session};
use std::io::IoSlice;
use std::time::Duration;

/// How long links' output is held while requests of clients keep arriving. If it were longer, no
/// more requests would be joined, because the clients then wait for their replies. If it were
/// shorter, fewer would be joined.
const LINKS_HELD_MAX: Duration = Duration::from_micros(100);

/// Number of clients in one turn from which more are expected in the next. A single one would pay
/// for the wait for others.
const HOLD_FROM: usize = 2;

/// Number of requests for each ready client up to which links' output is held. Deep pipelines fill
/// a segment by themselves.
const HOLD_DEPTH_MAX: u64 = 4;

/// Returns whether the server is a memcached server on TLS. Output to it is cut into records that
/// memcached reads whole.
fn needs_records(plan: &Plan, connection: &Connection) -> bool {
    let kind = &plan.pools[usize::from(connection.server_id.pool)].kind;
    kind.is_memcached() && kind.tls().is_some()
}

/// The time from which a reply counts as late: silence is measured in seconds.
const LATE: Duration = Duration::from_secs(1);

/// Number of bytes that are sent to one client before the others have their turn. A client that
/// reads as fast as the bytes are copied could take a hundred megabytes at once. With less, there
/// would be more turns. With more, the others would wait.
const SENT_PER_TURN_MAX: usize = 1 << 20;

/// Number of pieces that are sent at once.
const PIECES_MAX: usize = 64;

/// Sends the output of a client, or its first `len_max` bytes.
#[inline]
pub(super) fn send_output<I: Io>(
    io: &mut I,
    socket: Socket,
    output: &mut Output,
    len_max: usize,
    calls: &Counter,
) -> Send {
    if output.has_parts() {
        return send_pieces(io, socket, output, len_max, calls);
    }
    calls.add(1);
    let unsent = output.unsent();
    let sent = io.send(socket, &unsent[..unsent.len().min(len_max)]);
    if let Send::Taken(taken) = sent {
        output.advance(taken);
    }
    sent
}

#[inline(never)]
fn send_pieces<I: Io>(
    io: &mut I,
    socket: Socket,
    output: &mut Output,
    len_max: usize,
    calls: &Counter,
) -> Send {
    let mut all_taken = 0;
    while !output.is_empty() && all_taken < len_max {
        let mut pieces = [IoSlice::new(b""); PIECES_MAX];
        let count = output.pieces(&mut pieces, len_max - all_taken);
        let len: usize = pieces[..count].iter().map(|piece| piece.len()).sum();
        calls.add(1);
        match io.send_pieces(socket, &pieces[..count]) {
            Send::Taken(taken) => {
                output.advance(taken);
                all_taken += taken;
                if taken < len {
                    break;
                }
            }
            Send::Failed => return Send::Failed,
        }
    }
    Send::Taken(all_taken)
}

impl<I: Io> Worker<I> {
    /// Returns whether links' output waits for what the next turn adds to it. Each send wakes a
    /// server and brings a reply of its own, so a few large ones cost less. It waits only while
    /// every turn finds `ready` clients, which the next poll shows at once.
    pub(super) fn holds_links(&mut self, ready: usize) -> bool {
        let plane = &self.core.plane;
        let now = plane.clock.now;
        let is_deep = plane.batch > ready as u64 * HOLD_DEPTH_MAX;
        let holds = match self.links_held_until {
            _ if is_deep || plane.upstream.dirty_links.is_empty() => false,
            // There may be no next turn.
            _ if self.drain_deadline.is_some() => false,
            None => ready >= HOLD_FROM,
            Some(until) => ready > 0 && now < until,
        };
        if holds {
            self.links_held_until.get_or_insert(now + LINKS_HELD_MAX);
        } else {
            self.links_held_until = None;
        }
        holds
    }

    pub(super) fn flush_links(&mut self) {
        self.core.plane.upstream.full_links.clear();
        let mut dirty = std::mem::take(&mut self.core.plane.upstream.dirty_links);
        for index in dirty.drain(..) {
            self.flush_link(index);
        }
        if self.core.plane.upstream.dirty_links.is_empty() {
            self.core.plane.upstream.dirty_links = dirty;
        }
    }

    /// Sends output that is already large: a buffer that stays small stays in the processor's
    /// cache.
    #[cold]
    pub(super) fn send_full_links(&mut self) {
        while let Some(index) = self.core.plane.upstream.full_links.pop() {
            if self.core.links.get(index).is_some() {
                self.send_link(index);
            }
        }
    }

    fn flush_link(&mut self, index: ConnectionKey) {
        let Some(connection) = self.core.links.get_mut(index) else { return };
        connection.link.is_dirty = false;
        if connection.link.is_held() {
            self.core.look_at_hold(index);
        }
        self.send_link(index);
    }

    fn send_link(&mut self, index: ConnectionKey) {
        if self.core.links[index].link.is_of_memcached() {
            return self.send_to_memcached(index);
        }
        self.send_some(index, usize::MAX);
    }

    #[inline(never)]
    fn send_to_memcached(&mut self, index: ConnectionKey) {
        let connection = &self.core.links[index];
        if !needs_records(&self.plan, connection) {
            self.send_some(index, usize::MAX);
            return;
        }
        if connection.link.send_blocked {
            return;
        }
        let mut cut = connection.link.first_record();
        loop {
            let len = self.core.links[index].link.next_record(&mut cut);
            if len == 0 || !self.send_some(index, len) {
                return;
            }
        }
    }

    /// Sends the output of a link, up to `len_max` bytes. Returns whether the socket took all of
    /// it.
    #[inline]
    fn send_some(&mut self, index: ConnectionKey, len_max: usize) -> bool {
        let connection = &mut self.core.links[index];
        let (Some(socket), false) = (connection.socket, connection.link.send_blocked) else {
            return false;
        };
        let unsent = connection.link.unsent();
        if unsent.is_empty() {
            return false;
        }
        let unsent = &unsent[..unsent.len().min(len_max)];
        let len = unsent.len();
        self.core.plane.cells.send_calls.add(1);
        match self.io.send(socket, unsent) {
            Send::Taken(taken) => {
                connection.link.advance(taken);
                connection.link.send_blocked = taken < len;
                if taken > 0 && (taken < len || connection.takes_large) {
                    connection.link.note_progress(self.core.plane.clock.now);
                }
                let server = connection.server_id;
                let cells = self.core.plane.cells.backend(server.pool, server.server);
                cells.sent_bytes.add(taken as u64);
                self.core.release_waiting(index);
                taken == len
            }
            Send::Failed => {
                self.lose_link(index, BackendFault::Closed);
                false
            }
        }
    }

    pub(super) fn flush_sessions(&mut self) {
        let logs = &self.core.plane.store.logs;
        let has_output = !self.core.plane.clients.dirty.is_empty() || !self.held.is_empty();
        let waits_for_logs = logs.has_any() && has_output;
        if waits_for_logs {
            self.settle_logs();
            self.core.plane.store.logs.set_settled(true);
        }
        self.flush_dirty();
        if waits_for_logs {
            self.core.plane.store.logs.set_settled(false);
        }
    }

    fn flush_dirty(&mut self) {
        if self.core.plane.store.tracking.has_told() {
            for key in self.core.plane.store.tracking.take_told() {
                self.flush_session(key);
            }
        }
        if self.core.plane.clients.dirty.is_empty() && self.held.is_empty() {
            return;
        }
        let mut dirty = std::mem::take(&mut self.core.plane.clients.dirty);
        if !self.held.is_empty() {
            dirty.append(&mut self.held);
        }
        let now = self.core.clock().now;
        for &key in &dirty {
            let Core { sessions, plane, .. } = &mut self.core;
            let session = sessions.get_mut(key);
            match session.and_then(|session| plane.held_until(session, now)) {
                Some(until) => {
                    let is_first = self.held.is_empty();
                    self.held_until = if is_first { until } else { self.held_until.min(until) };
                    self.held.push(key);
                }
                None => self.flush_session(key),
            }
        }
        if self.core.plane.clients.dirty.is_empty() {
            dirty.clear();
            self.core.plane.clients.dirty = dirty;
        }
    }

    /// Closes a client that has left while it waits, with its missing replies: it may have closed
    /// only its own side.
    #[cold]
    pub(super) fn part_with(&mut self, key: Key<Session>) {
        self.flush_up_to(key, usize::MAX);
        self.close_client(key, CloseReason::Left);
    }

    #[inline]
    pub(super) fn flush_session(&mut self, key: Key<Session>) {
        self.flush_up_to(key, SENT_PER_TURN_MAX);
    }

    #[inline]
    fn flush_up_to(&mut self, key: Key<Session>, len_max: usize) {
        if self.core.plane.store.logs.are_due() {
            self.settle_logs();
        }
        let Some(session) = self.core.sessions.get_mut(key) else { return };
        let Some(&Some(client)) = self.clients.get(key.index() as usize) else { return };
        session.is_dirty = false;
        if session.tracking.is_some() {
            self.core.plane.release_pushes(key, session);
        }
        if session.has_unwritten {
            self.core.plane.mark_unwritten(key, session);
        }
        let mut has_more = false;
        if let (Some(busy), false) = (&mut session.busy, session.send_blocked) {
            let len = busy.output.len();
            busy.hold.end();
            if len > 0 {
                let now = self.core.plane.clock.now;
                if busy.hold.took(now) >= LATE {
                    // The client has waited, which is no silence of its own.
                    session.identity.live.note_request(None, now);
                }
                let calls = &self.core.plane.cells.send_calls;
                let output = &mut busy.output;
                match send_output(&mut self.io, client.socket, output, len_max, calls) {
                    Send::Taken(taken) => {
                        session.send_blocked = taken < len.min(len_max);
                        if session.send_blocked {
                            session.blocked_since = self.core.plane.clock.now;
                        }
                        has_more = !session.send_blocked && taken < len;
                        let cells = self.core.plane.cells.pool(session.pool as usize);
                        cells.clients.sent_bytes.add(taken as u64);
                        if session.has_unwritten {
                            let now = self.io.clock().now;
                            session.has_unwritten = self.core.plane.note_written(key, taken, now);
                        }
                    }
                    Send::Failed => return self.close_broken(key, client.socket),
                }
            }
        }
        if has_more {
            self.core.plane.mark_session_dirty(key, session);
        }
        if let Some(reason) = self.core.after_flush(key) {
            if reason == CloseReason::Limit {
                self.log_overgrown(key);
            }
            self.close_client(key, reason);
        }
    }

    #[cold]
    fn log_overgrown(&self, key: Key<Session>) {
        let Some(session) = self.core.session(key) else { return };
        if !self.plan.notices.overgrown.is_due(self.core.clock().now) {
            return;
        }
        let pool = &self.plan.pools[usize::from(session.pool)].name;
        let client = &*session.identity.addr;
        let undelivered = session.busy.as_ref().map_or(0, |busy| busy.undelivered());
        if session.is_cut {
            let most = self.plan.limits.released_len_max();
            tracing::warn!(
                pool,
                client,
                undelivered,
                most,
                "client disconnected: it reads none of its large replies, others wait behind them, \
                 and more than `most` waits for such clients of a worker; told at most once a minute, \
                 and counted in keyway_client_closed_connections_total"
            );
            return;
        }
        tracing::warn!(
            pool,
            client,
            undelivered,
            "client disconnected: it does not read, and more than session_output_len_hard waits \
             for it; told at most once a minute, and counted in keyway_client_closed_connections_total"
        );
    }
}
