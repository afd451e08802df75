use crate::core::pools::BULK;
use crate::core::pools::servers::tracking::forget_caching;
use crate::core::upstream::streamed_requests::Begun;
use crate::core::{Connection, ConnectionKey, Connections, Core, Plane, reads_on};
use keyway_base::{BackendFault, Fault, Key, Sent, Time};
use keyway_command::Verb;
use keyway_proxy::WaitFor;
use keyway_proxy::{Busy, Owner, Session, write_fault};
use keyway_resp::{ParseLimits, Parsed, parse_request, reply};
use std::sync::Arc;
use std::time::Duration;

/// What became of a request.
pub(in crate::core) enum Step {
    /// It is on its way or answered.
    Started,
    /// A link it needs is full: it stays unparsed until there is room.
    Full(ConnectionKey),
    /// It stays unparsed until the replies to those before it are here.
    Wait,
    /// Too many requests are on their way over other pools: it stays unparsed until some have
    /// ended.
    Crowded,
}

/// The waiting time of the next request in a session's buffer, as far as it is known.
pub(in crate::core) struct NextRequest {
    /// It has not found any room missing so far.
    pub(in crate::core) is_new: bool,
    /// The first one in the buffer had found no room before.
    pub(in crate::core) was_full: bool,
    /// It was in the socket while others waited, and has not looked for room itself.
    is_from_socket: bool,
}

impl NextRequest {
    /// The one behind a request that was refused as it found no room in time.
    pub(in crate::core) const BEHIND_REFUSED: NextRequest =
        NextRequest { is_new: true, was_full: true, is_from_socket: false };

    /// The first request in the buffer of a session, whose socket is read now as it has room again if
    /// `is_reread`.
    pub(in crate::core) fn of(session: &Session, is_reread: bool) -> NextRequest {
        let was_full = session.full_since.is_some();
        NextRequest { is_new: !was_full, was_full, is_from_socket: was_full && is_reread }
    }
}

/// Time left to a request that goes to a server when its own time is over, or nearly so. A longer one
/// tells a client later that the server does not answer. A shorter one ends requests that the server
/// would have answered.
const LEFT: Duration = Duration::from_millis(50);

/// Input capacity kept once everything is parsed, in bytes.
const INPUT_KEPT_MAX: usize = 32 << 10;

impl Core {
    /// Takes bytes a client sent.
    pub fn on_client_bytes(&mut self, key: Key<Session>, bytes: &[u8]) {
        let Core { sessions, links, plane } = self;
        let Some(session) = sessions.get_mut(key) else { return };
        let clients = &plane.cells.pool(session.pool as usize).clients;
        clients.received_bytes.add(bytes.len() as u64);
        let mut busy = session.busy.take().unwrap_or_else(|| plane.clients.busy_pool.take());
        busy.hold.note_asked(plane.clock.now);
        let mut bytes = bytes;
        while !bytes.is_empty() {
            bytes = plane.take_input(links, key, session, &mut busy, bytes);
        }
        if !busy.unparsed().is_empty() {
            // A part of a request is a sign of life as well.
            session.identity.live.note_request(None, plane.clock.now);
        }
        plane.settle(key, session, busy);
    }

    /// Parses kept input of the sessions that have room again. Returns those
    /// whose socket may hold unread bytes, in `reread`.
    pub fn resume_sessions(&mut self, reread: &mut Vec<Key<Session>>) {
        let mut resumes = std::mem::take(&mut self.plane.clients.resuming);
        for key in resumes.drain(..) {
            let Core { sessions, links, plane } = self;
            let Some(session) = sessions.get_mut(key) else { continue };
            session.is_resuming = false;
            let Some(mut busy) = session.busy.take() else {
                // What it waited for came, and left, in the turn before.
                session.lift_fence();
                session.paused = false;
                if session.ended {
                    session.closing = true;
                    plane.mark_session_dirty(key, session);
                }
                if session.unread && !std::mem::replace(&mut session.is_reread, true) {
                    reread.push(key);
                }
                continue;
            };
            if session.paused {
                busy.input_needed = 0;
                plane.parse_kept(links, key, session, &mut busy);
                if session.sub_request.is_some() && busy.unparsed().is_empty() {
                    plane.note_unstalled(session);
                }
            }
            let may_read = session.unread && (!session.paused || reads_on(session, Some(&busy)));
            if may_read && !std::mem::replace(&mut session.is_reread, true) {
                reread.push(key);
            }
            plane.settle(key, session, busy);
        }
        if self.plane.clients.resuming.is_empty() {
            self.plane.clients.resuming = resumes;
        }
    }

    /// The client sends no more: its replies are still due.
    pub fn on_client_end(&mut self, key: Key<Session>) {
        let Core { sessions, links, plane } = self;
        let Some(session) = sessions.get_mut(key) else { return };
        if session.streaming.is_some() {
            let mut busy = session.busy.take();
            plane.cut_off_streaming(links, key, (session, busy.as_deref_mut()));
            session.busy = busy;
            session.closing = true;
        }
        // Requests that wait for room were received whole and are answered; a
        // request cut off by the end never will be whole.
        if !session.paused {
            session.closing = true;
        }
        session.unread = false;
        session.ended = true;
        plane.mark_session_dirty(key, session);
    }
}

impl Plane {
    fn settle(&mut self, key: Key<Session>, session: &mut Session, busy: Box<Busy>) {
        session.note_state();
        if !busy.output.is_empty() || busy.is_empty() || session.closing {
            session.busy = Some(busy);
            self.mark_session_dirty(key, session);
        } else {
            session.busy = Some(busy);
        }
    }

    /// Takes bytes of a client, or the first of them: returns the rest, to be taken next.
    fn take_input<'b>(
        &mut self,
        links: &mut Connections,
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
        bytes: &'b [u8],
    ) -> &'b [u8] {
        if session.streaming.is_some() {
            return self.stream_on(links, (key, session, busy), bytes);
        }
        let kept = busy.unparsed().len();
        if kept == 0 {
            let parsed = self.parse(links, key, session, busy, bytes);
            if parsed < bytes.len() {
                busy.keep_input(&bytes[parsed..]);
            }
            return &[];
        }
        // A request of which all but so much is kept is completed; what comes behind it is not
        // copied.
        let missing = busy.input_needed.saturating_sub(kept);
        let is_completed = !session.paused && (1..bytes.len()).contains(&missing);
        let (joined, rest) = bytes.split_at(if is_completed { missing } else { bytes.len() });
        busy.keep_input(joined);
        self.parse_kept(links, key, session, busy);
        if rest.is_empty() || busy.unparsed().is_empty() {
            return rest;
        }
        busy.keep_input(rest);
        if !session.paused {
            self.parse_kept(links, key, session, busy);
        }
        &[]
    }

    /// Parses what the session has kept.
    pub(in crate::core) fn parse_kept(
        &mut self,
        links: &mut Connections,
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
    ) {
        if busy.unparsed().len() < busy.input_needed {
            return;
        }
        let mut input = std::mem::take(&mut busy.input);
        let start = busy.parsed;
        busy.parsed = 0;
        let parsed = start + self.parse(links, key, session, busy, &input[start..]);
        debug_assert!(busy.input.is_empty());
        if parsed == input.len() {
            input.clear();
            if input.capacity() > INPUT_KEPT_MAX {
                input = Vec::new();
            }
        } else {
            busy.parsed = parsed;
        }
        busy.input = input;
        if session.ended && !session.paused {
            session.closing = true;
        }
    }

    /// Starts the requests in `bytes`, as many as there is room for. Returns
    /// how many bytes they took.
    pub(in crate::core) fn parse(
        &mut self,
        links: &mut Connections,
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
        bytes: &[u8],
    ) -> usize {
        if session.memcached.is_some() {
            return self.parse_memcached(links, key, session, busy, bytes);
        }
        let mut args = std::mem::take(&mut self.args);
        let mut inline = std::mem::take(&mut self.inline);
        let was_paused = std::mem::replace(&mut session.paused, false);
        // Not one by one: it is shared by the workers.
        let plan = Arc::clone(&self.plan);
        let pool = &plan.pools[session.pool as usize];
        self.choose_lane(links, (key, session), busy);
        let mut pos = 0;
        // Up to where the store knows which keys will come.
        let mut ahead = 0;
        let mut next = NextRequest::of(session, self.clients.rereading == Some(key));
        let may_have_waited = next.was_full || self.cluster.has_waiting();
        let (mut is_full, mut is_held_up, mut since) = (false, false, None);
        let waited = self.waited_in_vain(key);
        let led_from = std::mem::replace(&mut self.cluster.waited, waited);
        busy.input_needed = 0;
        self.last_verb = None;
        while pos < bytes.len() {
            if session.closing {
                pos = bytes.len();
                break;
            }
            let is_held = session.is_fenced(busy);
            if is_held || !busy.has_room(&self.plan.limits, session.reply_size) {
                // The client itself holds its request up now, for as long as it likes, unless the
                // worker keeps it from overtaking those before it.
                is_held_up = !is_held || !self.waits_in_order(session);
                if is_held_up {
                    next.is_new = true;
                } else if std::mem::take(&mut next.is_new) {
                    (session.full_since, is_full) = (Some(self.clock.now), true);
                }
                session.paused = true;
                break;
            }
            session.lift_fence();
            let limits = parse_limits(&self.plan.limits, session);
            let rest = &bytes[pos..];
            if pos > 0 && pos >= ahead {
                ahead = pos + self.look_ahead(session, rest, &limits);
            }
            let (consumed, frame) = match parse_request(rest, &limits, &mut args, &mut inline) {
                Ok(Parsed::Ready { consumed }) => (consumed, &rest[..consumed]),
                Ok(Parsed::Inline { consumed }) => (consumed, &inline[..]),
                Ok(Parsed::NeedMore { at_least }) => {
                    busy.input_needed = at_least;
                    if at_least < plan.limits.pass_len() {
                        break;
                    }
                    let part = (rest, at_least);
                    match self.begin_streaming(links, pool, (key, session, busy), part, &mut args) {
                        Begun::Yes => pos = bytes.len(),
                        Begun::Wait => session.paused = true,
                        Begun::No => {}
                    }
                    break;
                }
                Err(fault) => {
                    self.on_broken_frame(session, busy, |out| fault.write_error(out));
                    pos = bytes.len();
                    break;
                }
            };
            match self.dispatch(links, (&plan, pool), (key, session), busy, frame, &args) {
                Step::Started => {
                    if pos == 0 && may_have_waited {
                        since = self.waited_since((key, &*session));
                        if self.cluster.waited.is_some() {
                            self.end_wait_in_vain(key);
                        }
                    } else if next.was_full && since.is_none() {
                        since = waited_for_room(session);
                    }
                    pos += consumed;
                    next.is_new = true;
                    if self.observe.hot_keys.is_due(consumed) {
                        self.note_request((plan.pools.as_slice(), session), frame, &args);
                    }
                }
                Step::Wait => {
                    self.retract_shown(key);
                    session.paused = true;
                    break;
                }
                Step::Crowded => {
                    self.retract_shown(key);
                    if std::mem::take(&mut next.is_new) {
                        session.full_since = Some(self.clock.now);
                    }
                    if let Some(text) = self.crowded_too_long(session) {
                        self.refuse(session, busy, |out| reply::error(out, &text));
                        pos += consumed;
                        continue;
                    }
                    is_full = true;
                    self.wait_among_routed_requests(key, session);
                    session.paused = true;
                    break;
                }
                Step::Full(link) => {
                    self.retract_shown(key);
                    if self.waits_for_primary(links, link, (key, session)) {
                        session.paused = true;
                        break;
                    }
                    self.note_no_room(&links[link], session, &mut next);
                    if self.refuses_late(links, link, (key, session, busy)) {
                        pos += consumed;
                        next = NextRequest::BEHIND_REFUSED;
                        continue;
                    }
                    is_full = true;
                    session.paused = true;
                    if session.waits_for.is_none() {
                        session.waits_for = Some(WaitFor::Connection);
                        links[link].waiting.push(key);
                    }
                    break;
                }
            }
        }
        if let Some(since) = since {
            self.bring_waited(links, key, since);
        }
        // The first request has waited, also if it was refused and the next one has started.
        let has_waited = since.is_some() || !next.is_new || (next.was_full && pos > 0);
        let is_over = next.is_new || (pos > 0 && !is_full);
        self.settle_wait((key, session), is_over, has_waited && !is_held_up);
        self.cluster.waited = led_from;
        session.identity.live.note_request(self.last_verb, self.clock.now);
        // No use reading what cannot be started.
        session.paused |= session.is_fenced(busy);
        if session.paused && !was_paused {
            self.cells.pool(session.pool as usize).clients.pauses.add(1);
        }
        self.args = args;
        self.inline = inline;
        pos
    }

    /// Notes that the next request of a session finds no room on a link. If an earlier one of those
    /// in the buffer has waited, this one has waited as long, but no longer than the server has been
    /// silent: else each request of a pipeline would wait anew for a server that does not answer.
    #[cold]
    pub(in crate::core) fn note_no_room(
        &self,
        connection: &Connection,
        session: &mut Session,
        next: &mut NextRequest,
    ) {
        let is_from_socket = std::mem::take(&mut next.is_from_socket);
        if std::mem::take(&mut next.is_new) || is_from_socket {
            let since = session.full_since.filter(|_| next.was_full);
            let silent_since = connection.link.silent_since().unwrap_or(self.clock.now);
            let since = since.map_or(self.clock.now, |since| since.max(silent_since));
            session.full_since = Some(since);
        }
    }

    /// Returns whether the time of a request counts while it waits for the replies to those before
    /// it: they end within the timeout, as no client takes them slowly and none waits for longer.
    #[cold]
    pub(in crate::core) fn waits_in_order(&self, session: &Session) -> bool {
        let is_plain = !session.is_special() && session.passing.is_none() && session.lane != BULK;
        session.keeps_order() && is_plain && self.primary_wait(session.pool).is_none()
    }

    /// Notes whether the next request of a session has waited already. The time of one that was
    /// refused is not that of a request behind it, unless that was in the socket meanwhile.
    #[inline]
    pub(in crate::core) fn settle_wait(
        &self,
        (key, session): (Key<Session>, &mut Session),
        is_over: bool,
        has_waited: bool,
    ) {
        if session.full_since.is_some() || session.unread_since.is_some() {
            if is_over {
                let unread = session.unread_since.take();
                // All that is read from the socket now has been there as long.
                session.full_since = match self.clients.rereading == Some(key) {
                    true => session.full_since.filter(|_| has_waited),
                    false => unread.filter(|_| has_waited && session.unread),
                };
            } else if session.full_since == Some(self.clock.now) {
                // It is another request that waits now, and what is behind waits for that.
                session.unread_since = session.unread_since.map(|_| self.clock.now);
            }
        }
    }

    /// The time since which a request that is started now has waited, if it has: for room, for
    /// another connection, or for a server that owns its keys.
    #[cold]
    pub(in crate::core) fn waited_since(
        &mut self,
        (key, session): (Key<Session>, &Session),
    ) -> Option<Time> {
        self.end_wait_for_server(key).into_iter().chain(waited_for_room(session)).min()
    }

    /// Counts the time that the requests of a client which were sent now waited before. If their
    /// time is nearly over, a little is left to them ([`LEFT`]).
    #[cold]
    pub(in crate::core) fn bring_waited(
        &mut self,
        links: &mut Connections,
        key: Key<Session>,
        since: Time,
    ) {
        for connection in links.iter_mut() {
            let is_its = |owner: Owner| self.session_of(owner) == Some(key);
            let since = self.counts_from(connection.pool, since);
            if connection.link.backdate_last(is_its, (since, self.clock.now)) {
                let timeout = self.plan.pools[usize::from(connection.pool)].kind.timeout();
                self.note_deadline(timeout.map(|timeout| since + timeout));
            }
        }
    }

    /// The time from which the timeout of a request counts that was asked at `asked` and goes to a
    /// server now. At least [`LEFT`] is left to it.
    pub(in crate::core) fn counts_from(&self, pool: u16, asked: Time) -> Time {
        let Some(timeout) = self.plan.pools[usize::from(pool)].kind.timeout() else { return asked };
        asked.max(self.clock.now.before(timeout - reserved(timeout)))
    }

    /// Refuses a request that has found no room on a link within `timeout`. The requests behind it
    /// are refused as well if they find no room. Returns whether the request was refused. If not,
    /// the worker looks at the session again by then.
    #[cold]
    fn refuses_late(
        &mut self,
        links: &mut Connections,
        link: ConnectionKey,
        (key, session, busy): (Key<Session>, &mut Session, &mut Busy),
    ) -> bool {
        let connection = &mut links[link];
        let Some(fault) = self.lateness(connection, session) else { return false };
        session.note_fault(fault);
        let backend = self.describe_backend(connection.pool, connection.backend);
        match self.last_verb {
            // Its commands are dropped, as nothing of them was sent.
            Some(Verb::Exec) => self.end_transaction(links, key, session),
            _ => session.stateful.iter_mut().for_each(|stateful| stateful.refuse()),
        }
        forget_caching(session);
        self.answer(session, busy, |out| write_fault(fault, &backend, out));
        true
    }

    /// The fault of a request that has found no room on a link for as long as it may take. If that
    /// time is not over, the session is looked at again by then. A tracked client fills its own
    /// link itself: its requests wait as long as the server takes what is on it.
    #[cold]
    pub(in crate::core) fn lateness(
        &mut self,
        connection: &mut Connection,
        session: &Session,
    ) -> Option<Fault> {
        let options = self.link_options(connection.pool);
        let due =
            session.full_since.zip(options.timeout).map(|(since, timeout)| since + timeout)?;
        let due = match connection.link.at_work_until(options).filter(|_| connection.role.is_some())
        {
            Some(until) => due.max(until),
            None => due,
        };
        if self.clock.now < due {
            connection.waiting_due =
                Some(connection.waiting_due.map_or(due, |first| first.min(due)));
            self.note_deadline(Some(due));
            self.note_waiting_behind(connection);
            return None;
        }
        let cells = self.cells.pool(connection.pool.into()).backend(connection.backend.into());
        cells.errors.of(BackendFault::Timeout).add(1);
        Some(Fault::Backend { fault: BackendFault::Timeout, sent: Sent::No })
    }

    #[cold]
    pub(in crate::core) fn on_broken_frame(
        &mut self,
        session: &mut Session,
        busy: &mut Busy,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.cells.pool(session.pool as usize).refused.of(Fault::Client).add(1);
        let place = busy.order.reserve();
        let errors = &self.plan.pools[usize::from(session.pool)].errors;
        busy.order.complete(place, &mut busy.output, |out| errors.watch(out, write));
        session.closing = true;
        session.broken = true;
    }
}

/// The part of a timeout that is left to a request for its server, however long the request has
/// waited elsewhere: [`LEFT`], or half a shorter timeout.
pub(in crate::core) fn reserved(timeout: Duration) -> Duration {
    LEFT.min(timeout / 2)
}

/// The time since which a request that is started now has waited for room, if it has. A sub-request that
/// has waited behind another one only, and found room at once, goes to a server that answers: its
/// time begins now.
pub(in crate::core) fn waited_for_room(session: &Session) -> Option<Time> {
    let has_stalled = session.sub_request.is_none_or(|sub_request| sub_request.stalled.is_some());
    session.full_since.filter(|_| has_stalled)
}

#[inline]
fn parse_limits(limits: &keyway_base::Limits, session: &Session) -> ParseLimits {
    let limits = ParseLimits::of(limits);
    if session.identity.authenticated { limits } else { limits.unauthenticated() }
}
