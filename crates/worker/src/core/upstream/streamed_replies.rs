//! Large replies that are streamed to their clients.
//!
//! ```text
//!   server ──► link ──► output of the session, up to a window ──► client
//!               ▲                                   │
//!               └── not read while that is full ────┘
//! ```
//! Only the reply for which a client waits next is streamed: an early one has to be kept anyway.
//! Nothing else is written to the output in between, so that clients with pushes get their replies
//! whole. While a client takes no more, the link is not read, for at most [`HELD_MAX`] if others
//! wait behind it. That time is for all replies and clients of the link together. The rest of the
//! reply then waits in the session, within its hard limit. When all such rests exceed
//! `Limits::released_len_max`, clients that have taken nothing for [`STALLED_FOR`] are ended.
//!
//! From then on the client's requests use connections of their own ([`BULK`]), which it shares with
//! similar clients, until its replies are small again.

use crate::core::front::waits::reserved;
use crate::core::pools::BULK;
use crate::core::request::{ClientMut, ClientRef};
use crate::core::upstream::bypass::owes_late_write;
use crate::core::upstream::reply::SharedBlock;
use crate::core::upstream::state::Failed;
use crate::core::{Connection, ConnectionKey, Connections, Core, Plane};
use keyway_base::{BackendFault, Key, Slab, Time};
use keyway_proxy::tracking::{write_everything, write_redirected};
use keyway_proxy::{Held, Owner, Patience, Session, StreamedReply};
use keyway_resp::{Kind, Protocol};
use std::time::Duration;

/// Longest time for which others wait on a link behind replies whose clients do not take them. If
/// it were shorter, more of large replies would be kept in memory. If it were longer, slow clients
/// would delay all others on the connection.
const HELD_MAX: Duration = Duration::from_millis(100);

/// The same if all that share the connection ask for large values.
const BULK_HELD_MAX: Duration = Duration::from_secs(2);

/// Time after which a client that takes nothing may be disconnected to free memory. If it were
/// shorter, clients on slow networks would be ended. If it were longer, more memory would be kept
/// for clients that read nothing.
const STALLED_FOR: Duration = Duration::from_millis(500);

/// The same because of replies that arrived early. If it were shorter, clients that pause in a long
/// pipeline would be ended. If it were longer, more such replies would accumulate.
const EARLY_STALLED_FOR: Duration = Duration::from_secs(2);

/// Time between two sums of what clients do not take, while it is too much.
const SUMMED_EVERY: Duration = Duration::from_millis(10);

/// A time that is longer than until clients that take nothing are checked.
const LOOKED_AT_WITHIN: Duration = Duration::from_millis(250);

/// How long a client may take for the replies before one that was cut off.
const CUT_TOLD_WITHIN: Duration = Duration::from_secs(2);

/// Number of bytes of pushes to a client that are kept while a reply is streamed to it. More pushes
/// are replaced by one that reports that everything may have changed.
const BEHIND_LEN_MAX: usize = 64 << 10;

impl Core {
    /// Returns whether a link must not be read now, because the receiver of its reply takes no
    /// more.
    #[inline]
    pub(crate) fn is_held(&mut self, index: ConnectionKey) -> bool {
        self.links[index].link.is_streaming_reply() && self.hold_streamed_reply(index)
    }

    #[cold]
    fn hold_streamed_reply(&mut self, index: ConnectionKey) -> bool {
        let Core { sessions, links, plane } = self;
        let connection = &mut links[index];
        let window = plane.plan.limits.pass_len();
        let is_full = |session: &Session| {
            session.busy.as_ref().is_some_and(|busy| busy.output.len() >= window)
        };
        let patience = plane.patience(connection);
        let now = plane.clock.now;
        let client = streamed_client(connection).and_then(|client| sessions.get(client));
        if !client.is_some_and(is_full) {
            // The client has taken some, or is gone. The pause must end here: one that outlived its
            // reply would hold the next reply without a note in `held`, and nothing would wake the
            // link.
            if connection.link.is_held() {
                connection.link.let_go(patience.most, now);
                plane.upstream.streamed_replies.held.retain(|&held| held != index);
            }
            return false;
        }
        let was_held = connection.link.is_held();
        let Held::On(until) = connection.link.hold(patience, now) else { return false };
        if !was_held {
            // If no one waits now, another client may begin to wait.
            plane.note_deadline(Some(until.unwrap_or(now + patience.most)));
        }
        // A link may have been lost, and held again, since it was noted.
        if !plane.upstream.streamed_replies.held.contains(&index) {
            plane.upstream.streamed_replies.held.push(index);
        }
        true
    }

    /// Returns the number of bytes that wait beyond the window of a client that has asked for large
    /// values and has taken nothing for so long that it must have been checked.
    pub(in crate::core) fn stalled_output(&self, session: &Session, now: Time) -> usize {
        let since_look = |long| is_stalled_for(session, long + LOOKED_AT_WITHIN, now);
        if !gets_large_replies(session) || !since_look(STALLED_FOR) {
            return 0;
        }
        let window = self.plane.plan.limits.pass_len();
        beyond_window(session, window, since_look(EARLY_STALLED_FOR))
    }

    /// Counts what waits for a client of large values that takes nothing, however it arrived. If it
    /// is too much together with what waits for others, the sum is bounded.
    #[cold]
    pub(in crate::core) fn count_untaken(&mut self, key: Key<Session>) {
        let Core { sessions, plane, .. } = self;
        let limits = &plane.plan.limits;
        let Some(session) = sessions.get_mut(key) else { return };
        let len = beyond_window(session, limits.pass_len(), false) as u64;
        let Some(busy) = &mut session.busy else { return };
        let counted = std::mem::replace(&mut busy.counted, len);
        plane.upstream.streamed_replies.beyond += len.saturating_sub(counted);
        if plane.upstream.streamed_replies.beyond > limits.released_len_max() {
            plane.sum_beyond(sessions);
        }
    }

    /// Performs upkeep, a few times a second.
    pub(crate) fn tend_large(&mut self) {
        self.plane.release_held(&mut self.links);
        self.plane.tend_bulk(&self.links, &mut self.sessions);
        if !self.plane.upstream.streamed_replies.bulk.is_empty() {
            self.plane.bound_beyond(&mut self.sessions);
        }
    }

    /// Checks a held link to which requests have been added: others may wait now.
    #[cold]
    pub(crate) fn look_at_hold(&mut self, index: ConnectionKey) {
        if !self.plane.stays_held(index, &mut self.links[index]) {
            self.plane.upstream.streamed_replies.held.retain(|&held| held != index);
        }
    }

    /// Returns the next held link that must be read again.
    #[inline]
    pub(crate) fn next_freed(&mut self) -> Option<ConnectionKey> {
        self.plane.upstream.streamed_replies.freed.pop()
    }

    /// Forwards a received part of a large reply. Returns the bytes after it.
    ///
    /// # Errors
    /// Returns an error if the reply does not end as it should.
    #[cold]
    pub(super) fn pass_on<'b>(
        &mut self,
        index: ConnectionKey,
        bytes: &'b [u8],
        shared: SharedBlock<'_>,
    ) -> Result<&'b [u8], BackendFault> {
        let Core { sessions, links, plane } = self;
        let connection = &mut links[index];
        let server = connection.server_id;
        let owner = connection.link.streamed_owner();
        let passed = connection.link.pass(bytes, plane.clock.now)?;
        connection.heard = plane.clock.now;
        let cells = plane.cells.pool(server.pool.into()).backend(server.server.into());
        cells.received_bytes.add(passed.part.len() as u64);
        if let Some(Owner::Session { session: key, .. }) = owner
            && let Some(session) = sessions.get_mut(key)
        {
            plane.append_streamed(key, session, passed.part, shared);
        }
        let Some(exchange) = passed.answered else { return Ok(passed.rest) };
        let slow_client = exchange.is_slow.then(|| plane.slow_client(sessions, exchange.owner));
        plane.deliver_aside(sessions, server, &exchange, Kind::Bulk, b"");
        if let Owner::Session { session, .. } = exchange.owner
            && let Some(session) = sessions.get_mut(session)
        {
            session.streamed_reply = None;
        }
        if let (Some(slow), Some(client)) = (connection.link.take_slow(), slow_client) {
            plane.log_slow(server, slow, client);
            plane.await_written(sessions, client.reply);
        }
        if let Some(big) = connection.link.take_big() {
            plane.note_big_reply(server.pool, big);
        }
        if exchange.owner != Owner::None {
            plane.note_success(connection);
        }
        if connection.is_watched {
            plane.note_answers(connection, 1, Failed::default());
        }
        crate::core::upstream::reply::release_waiting(sessions, plane, connection);
        if connection.is_private {
            plane.after_private_reply(sessions, links, index);
        }
        Ok(passed.rest)
    }

    /// Starts to stream the reply of which a part has arrived, if it is a large one and no code has
    /// to read it.
    #[cold]
    pub(super) fn try_streaming_reply(&mut self, index: ConnectionKey) {
        self.begin_streamed_reply(index);
        let Core { links, plane, .. } = self;
        let connection = &mut links[index];
        if connection.link.take_sooner() {
            plane.note_deadline(
                connection.link.deadline(plane.link_options(connection.server_id.pool)),
            );
        }
    }

    fn begin_streamed_reply(&mut self, index: ConnectionKey) {
        let Core { sessions, links, plane } = self;
        let connection = &mut links[index];
        let len_min = plane.plan.limits.pass_len();
        plane.note_blocked(index, connection);
        let Some(owner) = connection.link.large_reply(len_min) else { return };
        let (key, sequence) = match owner {
            // The reply has no owner.
            Owner::None => return drop(connection.link.begin_streamed_reply()),
            Owner::Session { session, sequence } => (session, sequence),
            _ => return,
        };
        let Some(session) = sessions.get_mut(key) else {
            return drop(connection.link.begin_streamed_reply());
        };
        if !may_pass(session, sequence) {
            return;
        }
        let (part, len) = connection.link.begin_streamed_reply();
        session.reply_size.note(len);
        let stays = owes_late_write(links, ClientMut { key, session });
        let streamed = StreamedReply { link: index, sequence, cut_at: None };
        session.streamed_reply = Some(Box::new(streamed));
        // A request that it begins next could produce a reply in between.
        session.fence();
        session.paused = true;
        if session.lane != BULK {
            if !stays {
                session.lane = BULK;
            }
            // A client that stays is handled like the others.
            if !plane.upstream.streamed_replies.bulk.contains(&key) {
                plane.upstream.streamed_replies.bulk.push(key);
            }
        }
        plane.append_streamed(key, session, &part, SharedBlock::NONE);
    }
}

/// Returns whether a session gets large replies, on the connections for those or, while it stays on
/// the normal connections, on them.
pub(in crate::core) fn gets_large_replies(session: &Session) -> bool {
    session.lane == BULK || session.streamed_reply.is_some()
}

/// Returns the client to which a reply is streamed, if any waits for it.
fn streamed_client(connection: &Connection) -> Option<Key<Session>> {
    match connection.link.streamed_owner() {
        Some(Owner::Session { session, .. }) => Some(session),
        _ => None,
    }
}

/// Returns whether a reply may be streamed to a session: it is the next one to leave, and nothing
/// can be inserted.
fn may_pass(session: &Session, sequence: u32) -> bool {
    let is_told_things = session.subscriptions.is_some()
        || session.is_monitor
        || session.tracking.is_some()
        || session.sub_request.is_some();
    let is_next = session.busy.as_ref().is_some_and(|busy| busy.order.is_next(sequence));
    is_next && !is_told_things
}

/// Returns whether a client has taken nothing for this time.
fn is_stalled_for(session: &Session, long: Duration, now: Time) -> bool {
    session.send_blocked && now.since(session.blocked_since) >= long
}

/// Returns the number of bytes that wait for a client beyond a window, with or without replies that
/// arrived early.
fn beyond_window(session: &Session, window: usize, with_early: bool) -> usize {
    let Some(busy) = &session.busy else { return 0 };
    let len = if with_early { busy.undelivered() } else { busy.output.len() };
    len.saturating_sub(window)
}

/// Returns whether nothing more is to be sent to a client whose large reply was cut off. The
/// replies before it are whole, and so are sent first. But a client that takes nothing is not
/// waited for.
pub(in crate::core) fn is_at_cut(session: &Session, now: Time) -> bool {
    let Some(cut_at) = session.streamed_reply.as_ref().and_then(|streamed| streamed.cut_at) else {
        return false;
    };
    let is_told = session.busy.as_ref().is_none_or(|busy| busy.output.is_empty());
    is_told || now.since(cut_at) >= CUT_TOLD_WITHIN
}

impl Connection {
    /// Returns whether the link is not read because of that session.
    fn is_held_for(&self, key: Key<Session>) -> bool {
        let owner = self.link.streamed_owner();
        let is_its = matches!(owner, Some(Owner::Session { session, .. }) if session == key);
        is_its && self.link.is_held()
    }

    /// Returns whether others than the receiver of the streamed reply wait for room on this link.
    fn has_others(&self) -> bool {
        let own = match self.link.streamed_owner() {
            Some(Owner::Session { session, .. }) => Some(session),
            _ => None,
        };
        self.waiting.iter().any(|&key| Some(key) != own)
    }
}

impl Plane {
    fn append_streamed(
        &mut self,
        key: Key<Session>,
        session: &mut Session,
        bytes: &[u8],
        shared: SharedBlock<'_>,
    ) {
        let part = self.part_for(session, shared, bytes);
        if let Some(busy) = &mut session.busy {
            match part {
                Some(part) => busy.output.append(part),
                None => busy.output.buf().extend_from_slice(bytes),
            }
            self.mark_session_dirty(key, session);
        }
    }

    /// Ends a client whose reply failed after a part of it had been sent: it would mistake any
    /// error for the rest. Returns whether there was such a part.
    #[cold]
    pub(super) fn cut_short(
        &mut self,
        key: Key<Session>,
        session: &mut Session,
        sequence: u32,
    ) -> bool {
        let Some(streamed) = session.streamed_reply.as_mut().filter(|it| it.sequence == sequence)
        else {
            return false;
        };
        streamed.cut_at = Some(self.clock.now);
        session.closing = true;
        self.mark_session_dirty(key, session);
        true
    }

    /// Notes that a client has taken some of what is streamed to it: the link is read again, if
    /// there is room.
    #[cold]
    pub(in crate::core) fn read_on(
        &mut self,
        links: &mut Connections,
        ClientRef { key, session }: ClientRef<'_>,
    ) {
        let Some(streamed) = &session.streamed_reply else { return };
        let window = self.plan.limits.pass_len();
        let has_room = session.busy.as_ref().is_none_or(|busy| busy.output.len() <= window / 2);
        let Some(connection) = links.get_mut(streamed.link) else { return };
        if has_room && connection.is_held_for(key) {
            let most = self.patience(connection).most;
            connection.link.let_go(most, self.clock.now);
            self.free_link(streamed.link);
        }
    }

    /// Drops what is streamed to a client that is gone.
    #[inline]
    pub(in crate::core) fn end_streamed_reply(
        &mut self,
        links: &mut Connections,
        ClientRef { key, session }: ClientRef<'_>,
    ) {
        let Some(streamed) = &session.streamed_reply else { return };
        self.upstream.streamed_replies.behind.retain(|(whose, _)| *whose != key);
        let Some(connection) = links.get_mut(streamed.link) else { return };
        if connection.is_held_for(key) {
            let most = self.patience(connection).most;
            connection.link.let_go(most, self.clock.now);
            self.free_link(streamed.link);
        }
    }

    /// Keeps pushes to a client until the reply that is streamed to it has been sent.
    #[cold]
    pub(in crate::core) fn keep_behind(
        &mut self,
        key: Key<Session>,
        protocol: Protocol,
        push: &[u8],
    ) {
        let behind = &mut self.upstream.streamed_replies.behind;
        let at = behind.iter().position(|(whose, _)| *whose == key).unwrap_or_else(|| {
            behind.push((key, Vec::new()));
            behind.len() - 1
        });
        let kept = &mut behind[at].1;
        if kept.len() + push.len() <= BEHIND_LEN_MAX {
            return write_redirected(kept, protocol, push);
        }
        kept.clear();
        let mut everything = Vec::new();
        write_everything(&mut everything);
        write_redirected(kept, protocol, &everything);
    }

    /// Handles the end of a streamed reply: kept pushes are sent now.
    #[cold]
    pub(super) fn end_reply(&mut self, key: Key<Session>, session: &mut Session) {
        session.streamed_reply = None;
        let Some(at) =
            self.upstream.streamed_replies.behind.iter().position(|(whose, _)| *whose == key)
        else {
            return;
        };
        let (_, kept) = self.upstream.streamed_replies.behind.swap_remove(at);
        let busy = session.busy.get_or_insert_with(|| self.clients.busy_pool.take());
        busy.output.buf().extend_from_slice(&kept);
        self.mark_session_dirty(key, session);
    }

    fn free_link(&mut self, index: ConnectionKey) {
        self.upstream.streamed_replies.held.retain(|&held| held != index);
        self.upstream.streamed_replies.freed.push(index);
    }

    /// Reads the links again behind which others have waited for long enough, a few times a second,
    /// and before anything times out.
    pub(super) fn release_held(&mut self, links: &mut Connections) {
        let mut held = std::mem::take(&mut self.upstream.streamed_replies.held);
        held.retain(|&key| links.get_mut(key).is_some_and(|it| self.stays_held(key, it)));
        self.upstream.streamed_replies.held = held;
    }

    /// Returns whether a link stays held. If others wait, it is checked again when they have waited
    /// for long enough. If none does, it is checked when requests are added to it
    /// ([`Core::look_at_hold`], [`Plane::note_waiting_behind`]).
    fn stays_held(&mut self, index: ConnectionKey, connection: &mut Connection) -> bool {
        let patience = self.patience(connection);
        match connection.link.look_at_hold(patience, self.clock.now) {
            Held::On(until) => {
                self.note_deadline(until);
                true
            }
            Held::Over => {
                self.upstream.streamed_replies.freed.push(index);
                false
            }
            // Its connection is lost.
            Held::None => false,
        }
    }

    /// Notes that a session begins to wait for room on a link. If the link is held, the next turn
    /// checks it.
    pub(in crate::core) fn note_waiting_behind(&mut self, connection: &Connection) {
        if connection.link.is_held() {
            self.note_deadline(Some(self.clock.now));
        }
    }

    /// Returns the longest time for which a link may be held. It is at most half of `timeout`: the
    /// rest is for the server. It is shorter for others that have waited elsewhere: as much is left
    /// to them as to a request whose time is over.
    fn patience(&self, connection: &Connection) -> Patience {
        let most =
            if connection.is_bulk || connection.is_private { BULK_HELD_MAX } else { HELD_MAX };
        let timeout = self.link_options(connection.server_id.pool).timeout;
        let most = timeout.map_or(most, |timeout| most.min(timeout / 2));
        let room_since = || {
            let due = connection.waiting_due.zip(timeout);
            due.map_or(self.clock.now, |(due, timeout)| due.before(timeout))
        };
        Patience {
            most,
            others_within: timeout.map(|timeout| timeout - reserved(timeout)),
            others_since: connection.has_others().then(room_since),
        }
    }

    /// Bounds what waits for clients that do not take it, unless that was done a moment ago.
    #[cold]
    fn sum_beyond(&mut self, sessions: &mut Slab<Session>) {
        if self.clock.now >= self.upstream.streamed_replies.next_sum {
            self.bound_beyond(sessions);
        }
    }

    /// Sums what waits for clients that do not take it. Replies that arrived early count once their
    /// client has taken nothing for [`EARLY_STALLED_FOR`]. While the sum is too large, the client
    /// that has taken nothing for longest is ended: otherwise the sum would grow for as long as
    /// others wait behind replies.
    #[cold]
    fn bound_beyond(&mut self, sessions: &mut Slab<Session>) {
        let now = self.clock.now;
        let limits = self.plan.limits;
        let beyond = |session: &Session| {
            let is_early_counted = is_stalled_for(session, EARLY_STALLED_FOR, now);
            beyond_window(session, limits.pass_len(), is_early_counted) as u64
        };
        let there = |key: &Key<Session>| Some((*key, sessions.get(*key)?));
        let mut waiting: Vec<_> = (self.upstream.streamed_replies.bulk.iter().filter_map(there))
            .map(|(key, session)| (session.blocked_since, key, beyond(session)))
            .filter(|&(_, _, len)| len > 0)
            .collect();
        for &key in &self.upstream.streamed_replies.bulk {
            let session = sessions.get_mut(key);
            if let Some(busy) = session.and_then(|session| session.busy.as_mut()) {
                busy.counted = busy.output.len().saturating_sub(limits.pass_len()) as u64;
            }
        }
        self.upstream.streamed_replies.beyond = waiting.iter().map(|&(_, _, len)| len).sum();
        if self.upstream.streamed_replies.beyond <= limits.released_len_max() {
            return;
        }
        waiting.sort_unstable_by_key(|&(since, _, _)| since);
        for (_, key, len) in waiting {
            let Some(session) = sessions.get_mut(key) else { continue };
            if is_stalled_for(session, STALLED_FOR, now)
                && self.upstream.streamed_replies.beyond > limits.released_len_max()
            {
                self.upstream.streamed_replies.beyond -= len;
                session.is_cut = true;
                self.mark_session_dirty(key, session);
            }
        }
        if self.upstream.streamed_replies.beyond > limits.released_len_max() {
            // Every client has taken something recently.
            self.upstream.streamed_replies.next_sum = now + SUMMED_EVERY;
        }
    }

    /// Returns sessions whose replies are small again to the normal connections.
    fn tend_bulk(&mut self, links: &Connections, sessions: &mut Slab<Session>) {
        let small = self.plan.limits.pass_len() / 8;
        let mut bulk = std::mem::take(&mut self.upstream.streamed_replies.bulk);
        bulk.retain(|&key| {
            let Some(session) = sessions.get_mut(key) else { return false };
            if session.streamed_reply.as_ref().is_some_and(|streamed| streamed.cut_at.is_some()) {
                // It may have had enough time.
                self.mark_session_dirty(key, session);
                return true;
            }
            let is_quiet = session.busy.as_ref().is_none_or(|busy| session.is_quiet(busy));
            if is_quiet && session.streamed_reply.is_some() {
                // The framer has found the end of this reply.
                self.end_reply(key, session);
            }
            let is_over = is_quiet && !session.is_special();
            let is_small = session.reply_size.largest() < small;
            if is_over && is_small && !owes_late_write(links, ClientMut { key, session }) {
                session.lane = key.index();
                return false;
            }
            true
        });
        self.upstream.streamed_replies.bulk = bulk;
    }
}

#[cfg(test)]
mod tests;
