//! Large replies that pass through to their clients as they come.
//!
//! ```text
//!   server ──► link ──► output of the session, up to a window ──► client
//!               ▲                                   │
//!               └── not read while that is full ────┘
//! ```
//! Only the reply that a client waits for next passes: an early one has to be kept
//! anyway. Nothing else goes into the output in between, so that clients who are
//! told things unasked get their replies whole. While a client takes no more the
//! link is not read, for [`HELD_MAX`] if others wait behind it. That time is for all replies and
//! clients of the link together. The rest of the reply then waits in the session, within its hard
//! bound. When all such rests come to more than `Limits::released_len_max`, clients that have taken
//! nothing for [`STALLED_FOR`] are ended.
//!
//! From then on the client has its requests sent by connections of their own
//! ([`BULK`]), which it shares with its like, until its replies are small again.

use crate::core::front::waits::reserved;
use crate::core::pools::BULK;
use crate::core::request::{ClientMut, ClientRef};
use crate::core::upstream::bypass::owes_late_write;
use crate::core::upstream::reply::Lent;
use crate::core::upstream::state::Failed;
use crate::core::{Connection, ConnectionKey, Connections, Core, Plane};
use keyway_base::{BackendFault, Key, Slab, Time};
use keyway_proxy::tracking::{write_everything, write_redirected};
use keyway_proxy::{Held, Owner, Patience, Session, StreamedReply};
use keyway_resp::{Kind, Protocol};
use std::time::Duration;

/// Longest time that others wait on a link behind replies whose clients do not take them. A shorter
/// time keeps more of large replies in memory. A longer time lets slow clients hold up all others
/// on the connection.
const HELD_MAX: Duration = Duration::from_millis(100);

/// The same where all that share the connection ask for large values.
const BULK_HELD_MAX: Duration = Duration::from_secs(2);

/// Time after which a client that takes nothing may be disconnected for want of memory. A shorter
/// time ends clients on slow networks. A longer time keeps more memory for clients that read
/// nothing.
const STALLED_FOR: Duration = Duration::from_millis(500);

/// The same for the sake of replies that came early. Shorter ends clients that pause in a long
/// pipeline; longer lets more of their kind pile up.
const EARLY_STALLED_FOR: Duration = Duration::from_secs(2);

/// Between two sums of what clients do not take, while it is too much.
const SUMMED_EVERY: Duration = Duration::from_millis(10);

/// Longer than it takes until clients that take nothing are looked at.
const LOOKED_AT_WITHIN: Duration = Duration::from_millis(250);

/// How long a client may take for the replies before one that was cut off.
const CUT_TOLD_WITHIN: Duration = Duration::from_secs(2);

/// What is kept of what a client is told unasked while a reply passes to it, in bytes; of more it
/// is told at once.
const BEHIND_LEN_MAX: usize = 64 << 10;

impl Core {
    /// Whether a link is not to be read now, as who gets what comes takes no more.
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
            // The client has taken some, or is gone. The pause must end here: one that outlived
            // its reply would hold the next reply without a note in `held`, and nobody would wake
            // the link.
            if connection.link.is_held() {
                connection.link.let_go(patience.most, now);
                plane.upstream.streamed_replies.held.retain(|&held| held != index);
            }
            return false;
        }
        let was_held = connection.link.is_held();
        let Held::On(until) = connection.link.hold(patience, now) else { return false };
        if !was_held {
            // If nobody waits now, another client may begin to wait.
            plane.note_deadline(Some(until.unwrap_or(now + patience.most)));
        }
        // A link may have been lost, and held anew, since it was noted.
        if !plane.upstream.streamed_replies.held.contains(&index) {
            plane.upstream.streamed_replies.held.push(index);
        }
        true
    }

    /// Bytes that wait beyond the window of a client that has asked for large values and has taken
    /// nothing for so long that it must have been looked at.
    pub(in crate::core) fn stalled_output(&self, session: &Session, now: Time) -> usize {
        let since_look = |long| is_stalled_for(session, long + LOOKED_AT_WITHIN, now);
        if !gets_large_replies(session) || !since_look(STALLED_FOR) {
            return 0;
        }
        let window = self.plane.plan.limits.pass_len();
        beyond_window(session, window, since_look(EARLY_STALLED_FOR))
    }

    /// Counts what waits for a client of large values that takes nothing, whichever way it came.
    /// If it is too much with what waits for others, the sum is bounded.
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

    /// Upkeep, a few times a second.
    pub fn tend_large(&mut self) {
        self.plane.release_held(&mut self.links);
        self.plane.tend_bulk(&self.links, &mut self.sessions);
        if !self.plane.upstream.streamed_replies.bulk.is_empty() {
            self.plane.bound_beyond(&mut self.sessions);
        }
    }

    /// Looks at a held link to which requests have come: others may wait now where none did.
    #[cold]
    pub(crate) fn look_at_hold(&mut self, index: ConnectionKey) {
        if !self.plane.stays_held(index, &mut self.links[index]) {
            self.plane.upstream.streamed_replies.held.retain(|&held| held != index);
        }
    }

    /// The link to be read on next, of those that were held.
    #[inline]
    pub(crate) fn next_freed(&mut self) -> Option<ConnectionKey> {
        self.plane.upstream.streamed_replies.freed.pop()
    }

    /// Hands on what came of a large reply. Returns what came behind it.
    ///
    /// # Errors
    /// When it does not end as it should.
    #[cold]
    pub(in crate::core::upstream) fn pass_on<'b>(
        &mut self,
        index: ConnectionKey,
        bytes: &'b [u8],
        lent: Lent<'_>,
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
            plane.append_streamed(key, session, passed.part, lent);
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

    /// Lets the reply pass through of which a part has come, if it is a large one and
    /// nobody is to look at it.
    #[cold]
    pub(in crate::core::upstream) fn try_streaming_reply(&mut self, index: ConnectionKey) {
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
            // Nobody is to have it.
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
        // What it may begin next could have something to say in between.
        session.fence();
        session.paused = true;
        if session.lane != BULK {
            if !stays {
                session.lane = BULK;
            }
            // A client that stays is looked after like the others.
            if !plane.upstream.streamed_replies.bulk.contains(&key) {
                plane.upstream.streamed_replies.bulk.push(key);
            }
        }
        plane.append_streamed(key, session, &part, Lent::NONE);
    }
}

/// Returns whether a session gets large replies, by the connections for those or, while it stays on
/// the connections of most, by them.
pub(in crate::core) fn gets_large_replies(session: &Session) -> bool {
    session.lane == BULK || session.streamed_reply.is_some()
}

/// The client that a reply passes through to, if any waits for it.
fn streamed_client(connection: &Connection) -> Option<Key<Session>> {
    match connection.link.streamed_owner() {
        Some(Owner::Session { session, .. }) => Some(session),
        _ => None,
    }
}

/// Whether a reply may pass through to a session: it is the next to leave, and
/// nothing can come in between.
fn may_pass(session: &Session, sequence: u32) -> bool {
    let is_told_things = session.subscriptions.is_some()
        || session.is_monitor
        || session.tracking.is_some()
        || session.sub_request.is_some();
    let is_next = session.busy.as_ref().is_some_and(|busy| busy.order.is_next(sequence));
    is_next && !is_told_things
}

/// Returns whether a client has taken nothing for so long.
fn is_stalled_for(session: &Session, long: Duration, now: Time) -> bool {
    session.send_blocked && now.since(session.blocked_since) >= long
}

/// Bytes that wait for a client beyond a window, with or without replies that came early.
fn beyond_window(session: &Session, window: usize, with_early: bool) -> usize {
    let Some(busy) = &session.busy else { return 0 };
    let len = if with_early { busy.undelivered() } else { busy.output.len() };
    len.saturating_sub(window)
}

/// Whether nothing more is to be said to a client whose large reply was cut off: the replies before
/// it are whole, and so are told first, but one that takes nothing is not waited for.
pub(in crate::core) fn is_at_cut(session: &Session, now: Time) -> bool {
    let Some(cut_at) = session.streamed_reply.as_ref().and_then(|streamed| streamed.cut_at) else {
        return false;
    };
    let is_told = session.busy.as_ref().is_none_or(|busy| busy.output.is_empty());
    is_told || now.since(cut_at) >= CUT_TOLD_WITHIN
}

impl Connection {
    /// Whether it is not read on for that session.
    fn is_held_for(&self, key: Key<Session>) -> bool {
        let owner = self.link.streamed_owner();
        let is_its = matches!(owner, Some(Owner::Session { session, .. }) if session == key);
        is_its && self.link.is_held()
    }

    /// Whether others than who gets what passes wait for room on this link.
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
        lent: Lent<'_>,
    ) {
        let part = self.part_for(session, lent, bytes);
        if let Some(busy) = &mut session.busy {
            match part {
                Some(part) => busy.output.append(part),
                None => busy.output.buf().extend_from_slice(bytes),
            }
            self.mark_session_dirty(key, session);
        }
    }

    /// Ends a client whose reply failed when a part of it had left: what it would be
    /// told now it would take for the rest. Returns whether it was so.
    #[cold]
    pub(in crate::core::upstream) fn cut_short(
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

    /// A client has taken some of what passes through to it: the link is read on, if
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

    /// What passes to a client that is gone goes nowhere.
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

    /// Keeps what a client is told unasked until the reply has left that passes to it.
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

    /// A reply that passed has left: what was kept behind it goes now.
    #[cold]
    pub(in crate::core) fn end_reply(&mut self, key: Key<Session>, session: &mut Session) {
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

    /// Has the links read on behind which others have waited for long enough; a few
    /// times a second, and before anything times out.
    pub(in crate::core::upstream) fn release_held(&mut self, links: &mut Connections) {
        let mut held = std::mem::take(&mut self.upstream.streamed_replies.held);
        held.retain(|&key| links.get_mut(key).is_some_and(|it| self.stays_held(key, it)));
        self.upstream.streamed_replies.held = held;
    }

    /// Returns whether a link stays held. If others wait, it is looked at again when they have
    /// waited for long enough. If none does, it is looked at when requests come to it
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

    /// A session begins to wait for room on a link. If the link is held, the next turn looks at
    /// it.
    pub(in crate::core) fn note_waiting_behind(&mut self, connection: &Connection) {
        if connection.link.is_held() {
            self.note_deadline(Some(self.clock.now));
        }
    }

    /// Longest time that a link may be held. It is half of `timeout` at most: the rest is for the
    /// server. For others that have waited elsewhere it is shorter: as much is left to them as to a
    /// request whose time is over.
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

    /// Sums what waits for clients that do not take it. Replies that came early count once their
    /// client has taken nothing for [`EARLY_STALLED_FOR`]. While the sum is too large, the client
    /// is ended that has taken nothing for longest: the sum would grow as long as others wait
    /// behind replies.
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
            // Every client has taken something of late.
            self.upstream.streamed_replies.next_sum = now + SUMMED_EVERY;
        }
    }

    /// Lets sessions whose replies are small again have the connections of most.
    pub(in crate::core::upstream) fn tend_bulk(
        &mut self,
        links: &Connections,
        sessions: &mut Slab<Session>,
    ) {
        let small = self.plan.limits.pass_len() / 8;
        let mut bulk = std::mem::take(&mut self.upstream.streamed_replies.bulk);
        bulk.retain(|&key| {
            let Some(session) = sessions.get_mut(key) else { return false };
            if session.streamed_reply.as_ref().is_some_and(|streamed| streamed.cut_at.is_some()) {
                // It may have had time enough.
                self.mark_session_dirty(key, session);
                return true;
            }
            let is_quiet = session.busy.as_ref().is_none_or(|busy| session.is_quiet(busy));
            if is_quiet && session.streamed_reply.is_some() {
                // Of one whose end the framer has found.
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
