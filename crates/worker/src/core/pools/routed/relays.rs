//! Relays: in what order they ask, and how many of them at once.
//!
//! ```text
//!  ask ──► later (a level is full) ──► behind (a stalled one) ──► relay ──► reply
//!                                                                   │
//!                                                stalled: its link is full, or paused
//! ```
//! One request may become many relays, and each of these, in a pool that leads on, many
//! more. So relays are counted by *level*, which is how many trips are above, and what
//! would be one too many waits. Relays wait for those of deeper levels alone, and the
//! deepest for servers, so there is always one that goes on.
//!
//! What a relay could not put on its link yet must not be overtaken by what the same
//! client asks of the same pool: that waits *behind* it.

use super::{Language, Whose, client_behind};
use crate::core::{Connection, Core, Plane};
use keyway_base::{Key, Time};
use keyway_proxy::course::{Relay, RelayFor, Trip};
use keyway_proxy::memcached::MemcachedClient;
use keyway_proxy::{Busy, Identity, Session};
use keyway_topology::DEPTH_MAX;
use std::collections::{BTreeMap, VecDeque};

/// Relays of one level before others wait. Larger lets nested pools take more memory;
/// smaller has requests wait that slow nobody.
const RELAYS_MAX: u32 = 32 << 10;

/// Bytes of requests that stalled relays of one level keep before others wait.
const STALLED_MAX: usize = 64 << 20;

/// Relays at rest that are kept: as many as a busy turn needs.
const RELAYS_KEPT_MAX: usize = 1024;

/// What a relay is to ask, in words of its own.
pub(super) struct Errand {
    pub(super) relay: RelayFor,
    pub(super) whose: Whose,
    /// The pool that is asked.
    pub(super) pool: u16,
    pub(super) bytes: Vec<u8>,
}

/// What is to be asked.
pub(super) enum Question {
    /// A part of a trip, of a station: it has the words.
    OfTrip {
        trip: Key<Box<Trip>>,
        part: u16,
        station: u8,
    },
    Own(Errand),
}

/// A question that waits, and the time since which it does.
type Queued = (Time, Question);

#[derive(Default)]
struct Level {
    relays: u32,
    /// Bytes that stalled relays keep.
    stalled: usize,
    /// Trips that are to begin.
    due: VecDeque<Key<Box<Trip>>>,
    /// What trips that have begun are to ask.
    later: VecDeque<Queued>,
}

impl Level {
    fn has_room(&self) -> bool {
        self.relays < RELAYS_MAX && self.stalled < STALLED_MAX
    }

    fn has_work(&self) -> bool {
        let has_any = !self.due.is_empty() || !self.later.is_empty();
        has_any && self.has_room()
    }
}

/// A client, and a pool that is asked on its behalf.
pub(super) type Path = (u64, u16);

/// What waits behind stalled relays.
#[derive(Default)]
struct Stall {
    relays: u32,
    /// Those of them that have sent what they are to ask.
    sent: u32,
    behind: VecDeque<Queued>,
}

/// What is to be asked, once it may be.
#[derive(Default)]
pub(super) struct Queues {
    levels: [Level; DEPTH_MAX],
    /// Trips that are due and questions for later, of all levels.
    queued: usize,
    stalls: BTreeMap<Path, Stall>,
    /// Those that may be over.
    freed: Vec<Path>,
}

impl Queues {
    pub(super) fn have_work(&self) -> bool {
        !self.freed.is_empty() || (self.queued > 0 && self.levels.iter().any(Level::has_work))
    }

    pub(super) fn add_due(&mut self, level: u8, trip: Key<Box<Trip>>) {
        self.queued += 1;
        self.level(level).due.push_back(trip);
    }

    fn level(&mut self, level: u8) -> &mut Level {
        // No pool leads over more than there are levels.
        &mut self.levels[usize::from(level).min(DEPTH_MAX - 1)]
    }

    fn end_relay(&mut self, relay: &Relay) {
        // Copies have bounds of their own.
        if !matches!(relay.errand, RelayFor::Shadow { .. }) {
            let level = self.level(relay.level);
            level.relays = level.relays.saturating_sub(1);
        }
    }

    pub(super) fn on_stalled(&mut self, path: Path, level: u8, len: u32) {
        self.level(level).stalled += len as usize;
        let stall = self.stalls.entry(path).or_default();
        stall.relays += 1;
        stall.sent += u32::from(len == 0);
    }

    /// Whether what is asked on a path waits for what was sent before.
    pub(super) fn has_sent(&self, path: Path) -> bool {
        self.stalls.get(&path).is_some_and(|stall| stall.sent > 0)
    }

    pub(super) fn are_stalled(&self) -> bool {
        !self.stalls.is_empty()
    }

    /// A relay's request is on its way, or it has ended.
    fn on_freed(&mut self, path: Path, level: u8, len: u32) {
        let level = self.level(level);
        level.stalled = level.stalled.saturating_sub(len as usize);
        let Some(stall) = self.stalls.get_mut(&path) else { return };
        stall.relays -= 1;
        stall.sent -= u32::from(len == 0);
        if stall.relays == 0 {
            self.freed.push(path);
        }
    }

    /// The waiting questions that have words of their own.
    pub(super) fn errands(&self) -> impl Iterator<Item = &Errand> {
        let later = self.levels.iter().flat_map(|level| &level.later);
        let behind = self.stalls.values().flat_map(|stall| &stall.behind);
        later.chain(behind).filter_map(|(_, question)| match question {
            Question::Own(errand) => Some(errand),
            Question::OfTrip { .. } => None,
        })
    }

    /// Number of waiting questions, stalled paths and relays.
    pub(super) fn len(&self) -> usize {
        let of_level = |level: &Level| level.relays as usize + level.stalled;
        self.queued + self.stalls.len() + self.levels.iter().map(of_level).sum::<usize>()
    }

    /// What is to be asked next on a path on which nothing is stalled.
    fn next_behind(&mut self, path: Path) -> Option<Queued> {
        let stall = self.stalls.get_mut(&path).filter(|stall| stall.relays == 0)?;
        let next = stall.behind.pop_front();
        if next.is_none() {
            self.stalls.remove(&path);
        }
        next
    }
}

impl Plane {
    /// Notes that what a relay was to send is on its way, where that had to wait.
    #[cold]
    pub(in crate::core) fn note_unstalled(&mut self, session: &mut Session) {
        let pool = session.pool;
        let Some(relay) = &mut session.relay else { return };
        if let Some(len) = relay.stalled.take() {
            let path = (relay.client.to_bits(), pool);
            self.routes.queues.on_freed(path, relay.level, len);
        }
    }

    /// Parses the one request of a relay. Returns how many bytes have to wait.
    fn feed_relay(
        &mut self,
        links: &mut Vec<Connection>,
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
        bytes: &[u8],
    ) -> usize {
        let parsed = self.parse(links, key, session, busy, bytes);
        if parsed < bytes.len() {
            busy.keep_input(&bytes[parsed..]);
            session.paused = true;
        }
        bytes.len() - parsed
    }
}

impl Core {
    /// Lets trips begin and go on, until all wait for servers.
    #[cold]
    pub(crate) fn continue_routes(&mut self) {
        self.resume_relays();
        while self.plane.routes.has_work() {
            while let Some(path) = self.plane.routes.queues.freed.pop() {
                while let Some(queued) = self.plane.routes.queues.next_behind(path) {
                    self.put(queued);
                }
            }
            (0..DEPTH_MAX as u8).for_each(|level| self.continue_level(level));
            while let Some(copy) = self.plane.routes.copies.pop_front() {
                self.put_in_order((self.plane.clock.now, Question::Own(copy)));
            }
            if let Some(key) = self.plane.routes.dirty.pop_front() {
                self.finish_relay(key);
            }
        }
        if !self.plane.routes.waiting.is_empty() && self.plane.routes.has_drained() {
            for (key, _) in std::mem::take(&mut self.plane.routes.waiting) {
                if let Some(session) = self.sessions.get_mut(key) {
                    self.plane.wake(key, session);
                }
            }
        }
    }

    /// Asks what had to wait until a level has room, then lets others begin.
    fn continue_level(&mut self, at: u8) {
        loop {
            let level = self.plane.routes.queues.level(at);
            if !level.has_room() {
                return;
            }
            if let Some(queued) = level.later.pop_front() {
                level.relays += 1;
                self.plane.routes.queues.queued -= 1;
                if let (_, Question::Own(errand)) = &queued {
                    self.plane.routes.held -= errand.bytes.len();
                }
                self.put_in_order(queued);
            } else if let Some(trip) = level.due.pop_front() {
                self.plane.routes.queues.queued -= 1;
                self.begin_trip(trip);
            } else {
                return;
            }
        }
    }

    /// Relays that have room again go first: what a client sent later is behind them.
    fn resume_relays(&mut self) {
        if self.plane.routes.relays == 0 || self.plane.clients.resuming.is_empty() {
            return;
        }
        let (sessions, plane) = (&self.sessions, &mut self.plane);
        let is_relay =
            |key: &Key<Session>| sessions.get(*key).is_some_and(|session| session.relay.is_some());
        let resumes = std::mem::take(&mut plane.clients.resuming);
        let (relays, clients): (Vec<_>, Vec<_>) = resumes.into_iter().partition(is_relay);
        plane.clients.resuming = relays;
        self.resume_sessions(&mut Vec::new());
        self.plane.clients.resuming.extend(clients);
    }

    /// Asks, or keeps the question until its level has room.
    pub(super) fn send(&mut self, level: u8, question: Question) {
        let now = self.plane.clock.now;
        let state = &mut self.plane.routes;
        let at = state.queues.level(level);
        if at.later.is_empty() && at.has_room() {
            at.relays += 1;
            return self.put_in_order((now, question));
        }
        if let Question::Own(errand) = &question {
            state.held += errand.bytes.len();
        }
        at.later.push_back((now, question));
        state.queues.queued += 1;
    }

    /// Asks behind what its client has asked the same pool before.
    fn put_in_order(&mut self, (since, question): Queued) {
        let state = &mut self.plane.routes;
        if state.queues.stalls.is_empty() {
            return self.put((since, question));
        }
        let path = match &question {
            Question::Own(errand) => Some((errand.whose.client.to_bits(), errand.pool)),
            Question::OfTrip { trip, part, station } => state.trips.get(*trip).map(|trip| {
                let course = &trip.parts[usize::from(*part)].course;
                (trip.client.to_bits(), course.child(*station))
            }),
        };
        match path.and_then(|path| state.queues.stalls.get_mut(&path)) {
            Some(stall) => stall.behind.push_back((since, question)),
            None => self.put((since, question)),
        }
    }

    fn put(&mut self, (since, question): Queued) {
        match question {
            Question::OfTrip { trip, part, station } => {
                self.ask_now((trip, part, station), since);
            }
            Question::Own(Errand { relay, whose, pool, bytes }) => {
                self.relay(relay, (pool, whose), since, &bytes);
            }
        }
    }

    /// Sends a request to a pool, as a client of it would. If the request finds no room at once, its
    /// time counts from `since`, so it is refused together with the stalled relay before it.
    pub(super) fn relay(
        &mut self,
        errand: RelayFor,
        (pool, whose): (u16, Whose),
        since: Time,
        bytes: &[u8],
    ) {
        let mut session = self.plane.routes.free.pop().unwrap_or_else(|| {
            let identity = Identity { addr: "keyway".into(), ..Identity::new(0, true, Time(0)) };
            Session::new(0, 0, identity)
        });
        let Whose { client, level, lane, language } = whose;
        session.pool = pool;
        session.lane = lane;
        session.relay = Some(Relay::new(errand, client, level));
        session.full_since = (since < self.plane.clock.now).then_some(since);
        let of_client = self.sessions.get(client).map(|it| it.identity.reads_primary_until);
        session.identity.reads_primary_until = of_client.unwrap_or_default();
        (session.identity.wrote_at, session.identity.pin_due) = (Time::default(), None);
        if let Some(behind) = self.sessions.get_mut(client_behind(client)) {
            behind.relays += 1;
        }
        match language {
            Language::Redis(protocol) => {
                session.identity.protocol = protocol;
                session.memcached = None;
            }
            Language::Memcached { wire, item_len_max } => {
                let client = MemcachedClient { wire: Some(wire), skip: 0, item_len_max };
                session.memcached = Some(client);
            }
        }
        self.plane.routes.relays += 1;
        let key = self.sessions.insert(session);
        let Core { sessions, links, plane } = self;
        let Some(session) = sessions.get_mut(key) else { return };
        let mut busy = plane.clients.busy_pool.take();
        let left = plane.feed_relay(links, key, session, &mut busy, bytes);
        session.busy = Some(busy);
        plane.mark_session_dirty(key, session);
        let (pinned_until, wrote_at) =
            (session.identity.reads_primary_until, session.identity.wrote_at);
        if left > 0 {
            if let Some(relay) = &mut session.relay {
                relay.stalled = Some(left as u32);
            }
            let path = (client.to_bits(), pool);
            plane.routes.queues.on_stalled(path, level, left as u32);
            // What its client sends next and needs no relay is not to be there before it.
            self.hold_client(client);
        }
        self.note_written(client, pinned_until, wrote_at);
    }

    /// What a relay has written its client has.
    fn note_written(&mut self, client: Key<Session>, until: Time, wrote_at: Time) {
        if until.max(wrote_at) > Time::default()
            && let Some(session) = self.sessions.get_mut(client)
        {
            session.identity.pin(until);
            session.identity.wrote_at = session.identity.wrote_at.max(wrote_at);
        }
    }

    /// Has a client wait with its next request until its others are answered.
    #[cold]
    pub(super) fn hold_client(&mut self, client: Key<Session>) {
        if let Some(session) = self.sessions.get_mut(client) {
            session.fence();
        }
    }

    /// A relay that was to ask has nothing to say.
    pub(super) fn end_unasked(&mut self, level: u8) {
        let level = self.plane.routes.queues.level(level);
        level.relays = level.relays.saturating_sub(1);
    }

    /// Hands a relay's reply over, if it has it.
    fn finish_relay(&mut self, key: Key<Session>) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.is_dirty = false;
        let is_waiting = session.busy.as_ref().is_some_and(|busy| {
            !busy.order.is_empty() || (!session.closing && !busy.unparsed().is_empty())
        });
        if is_waiting || session.unheard > 0 {
            return;
        }
        let Some(mut session) = self.sessions.remove(key) else { return };
        self.plane.note_unstalled(&mut session);
        self.plane.forget_wait(key);
        self.plane.routes.relays -= 1;
        let mut busy = session.busy.take().unwrap_or_default();
        if let Some(relay) = session.relay.take() {
            self.plane.routes.queues.end_relay(&relay);
            self.note_relay_over(relay.client);
            let Identity { reads_primary_until, wrote_at, .. } = session.identity;
            self.note_written(relay.client, reads_primary_until, wrote_at);
            self.on_relayed(&relay, busy.output.unsent());
        }
        let len = busy.output.len();
        busy.output.advance(len);
        if busy.is_empty() {
            self.plane.clients.busy_pool.give(busy);
        }
        self.keep_relay(session);
    }

    /// Has what a relay could not send asked anew, before all that waits behind it.
    pub(super) fn withdraw(&mut self, key: Key<Session>) {
        let Some(mut session) = self.sessions.remove(key) else { return };
        self.plane.note_unstalled(&mut session);
        self.plane.forget_wait(key);
        let Some(Relay { errand, client, level, .. }) = session.relay.take() else { return };
        self.plane.routes.relays -= 1;
        self.note_relay_over(client);
        let language = match session.memcached {
            Some(MemcachedClient { wire: Some(wire), item_len_max, .. }) => {
                Language::Memcached { wire, item_len_max }
            }
            _ => Language::Redis(session.identity.protocol),
        };
        let bytes = session.busy.take().unwrap_or_default().unparsed().to_vec();
        let whose = Whose { client, level, lane: session.lane, language };
        let again = Question::Own(Errand { relay: errand, whose, pool: session.pool, bytes });
        let since = session.full_since.unwrap_or(self.plane.clock.now);
        let path = (client.to_bits(), session.pool);
        self.plane.routes.queues.stalls.entry(path).or_default().behind.push_front((since, again));
        self.keep_relay(session);
    }

    fn note_relay_over(&mut self, client: Key<Session>) {
        if let Some(behind) = self.sessions.get_mut(client_behind(client)) {
            behind.relays = behind.relays.saturating_sub(1);
        }
    }

    fn keep_relay(&mut self, session: Session) {
        if self.plane.routes.free.len() < RELAYS_KEPT_MAX {
            let fresh = Session::new(0, 0, session.identity);
            self.plane.routes.free.push(fresh);
        }
    }

    fn on_relayed(&mut self, relay: &Relay, reply: &[u8]) {
        match relay.errand {
            RelayFor::Ask { trip, part, station, expect } => {
                self.on_asked(trip, (part, station), expect, reply, relay.fault);
            }
            RelayFor::TimeLeft { trip, part, key } => {
                self.on_time_left(trip, part, key, reply, relay.fault);
            }
            RelayFor::Fill(pool) => self.plane.note_fill(pool, reply, relay.fault),
            RelayFor::Shadow { pool, len } => {
                let state = &mut self.plane.routes;
                state.shadows_held = state.shadows_held.saturating_sub(len as usize);
                if let Some(in_flight) = state.shadows.get_mut(usize::from(pool)) {
                    *in_flight = in_flight.saturating_sub(1);
                }
            }
            RelayFor::Nobody => {}
        }
    }
}

#[cfg(test)]
mod laws;
