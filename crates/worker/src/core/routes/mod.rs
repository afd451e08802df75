//! Requests to pools that lead to other pools.
//!
//! What needs no reply to be decided (a prefix, a token, whether there is to be a copy)
//! only chooses the pool, and the request goes on there as any other ([`Destination`]).
//! What does is a [`Trip`]: its client's place is reserved, and at the end of the turn it
//! begins to ask. Whoever is asked is asked by a *relay*, a session without a client,
//! whose pool is the one that is asked: so splitting, joining, translating and the texts
//! of errors are what a client of that pool would get, and that pool may itself lead on.
//! A relay brings one request and is then at rest, for the next.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `mod` | choosing; relays; what a turn does about trips |
//! | `redis` | requests of Redis clients; those of memcached are in `memcached::routes` |
//! | `trip` | asking, and what replies lead to |
//! | `fill` | what one child has is stored in the first |

mod fill;
mod redis;
mod trip;

pub(super) use redis::{PARTS_MAX, course_of};

use super::input::Step;
use super::{Core, LinkSlot, Plane};
use crate::{Plan, PoolKind, RoutePlan};
use keyway_base::{Fault, Key, Slab, Time};
use keyway_memcache::Wire;
use keyway_proxy::course::{Part, Relay, RelayFor, RouteTotals, Speech, Trip};
use keyway_proxy::memcached::MemcachedClient;
use keyway_proxy::{Busy, Identity, Session};
use keyway_resp::Protocol;
use keyway_topology::RoutedPool;
use std::collections::VecDeque;

/// Bytes of requests that trips of one worker hold before clients wait. Larger lets
/// slow children hold more memory; smaller stops clients of fast ones.
const HELD_MAX: usize = 64 << 20;

/// Trips of one worker before clients wait.
const TRIPS_MAX: usize = 32 << 10;

/// Bytes of copies on their way to shadows before more are dropped.
const SHADOWS_HELD_MAX: usize = 16 << 20;

/// Relays at rest that are kept: as many as a busy turn needs.
const RELAYS_KEPT_MAX: usize = 1024;

/// What a worker needs for pools that lead to others.
#[derive(Default)]
pub(crate) struct State {
    trips: Slab<Box<Trip>>,
    /// Bytes that trips hold.
    held: usize,
    /// Trips that are to begin.
    due: VecDeque<Key<Box<Trip>>>,
    /// Relays that may have their reply.
    dirty: VecDeque<Key<Session>>,
    /// Relays at rest.
    free: Vec<Session>,
    /// Relays on their way.
    relays: usize,
    /// Clients that wait for trips to end.
    waiting: Vec<Key<Session>>,
    /// Copies that are to be sent.
    copies: VecDeque<Copy>,
    /// Copies of each pool on their way, by its position.
    shadows: Vec<u32>,
    shadows_held: usize,
    /// Pools on the way of the request that is looked at.
    passed: Vec<u16>,
    /// Of these, those that are to copy it.
    copying: Vec<u16>,
    /// Positions of its keys.
    keys: Vec<u32>,
}

/// A request for a shadow.
struct Copy {
    pool: u16,
    shadow: u16,
    lane: u32,
    language: Language,
    bytes: Vec<u8>,
}

/// The parts of a request, and of each key its part and its place there; no places
/// where it goes whole.
pub(super) type Lots = (Vec<Part>, Vec<(u16, u32)>);

/// What a relay speaks.
#[derive(Clone, Copy)]
pub(super) enum Language {
    Redis(Protocol),
    Memcached { wire: Wire, item_len_max: u32 },
}

impl Language {
    fn of_trip(trip: &Trip) -> Language {
        match trip.speech {
            Speech::Redis { protocol, .. } => Language::Redis(protocol),
            Speech::Memcached { wire, item_len_max, .. } => {
                Language::Memcached { wire, item_len_max }
            }
        }
    }
}

/// Where a request goes.
pub(super) enum Destination {
    /// To a store or servers, at once.
    Leaf(u16),
    /// Over the children of this pool.
    Over(u16),
    /// Nowhere: this pool has no place for its key.
    NoPrefix(u16),
    /// Nowhere: too many come to this pool.
    Limited(u16),
}

impl State {
    /// A relay has output or is at its end.
    pub(super) fn on_relay_dirty(&mut self, key: Key<Session>) {
        self.dirty.push_back(key);
    }

    /// Whether [`Core::continue_routes`] has something to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.due.is_empty() || !self.dirty.is_empty() || !self.copies.is_empty()
    }

    /// Whether another request may be held.
    pub(super) fn has_room(&self) -> bool {
        self.held < HELD_MAX && self.trips.len() < TRIPS_MAX
    }

    fn has_drained(&self) -> bool {
        self.held <= HELD_MAX / 2 && self.trips.len() <= TRIPS_MAX / 2
    }

    /// Adds a trip, to begin at the end of the turn.
    pub(super) fn add(&mut self, trip: Trip) {
        self.held += trip.held();
        let key = self.trips.insert(Box::new(trip));
        self.due.push_back(key);
    }
}

/// The plan of a pool that leads to others.
fn routes_of(plan: &Plan, pool: u16) -> Option<&RoutePlan> {
    match &plan.pools[usize::from(pool)].kind {
        PoolKind::Routed(routes) => Some(routes),
        _ => None,
    }
}

impl Plane {
    /// Follows a request with these keys, one at least, from a pool on. Tokens are taken
    /// on the way: what is not started then gives them back ([`Plane::turn_back`]), what
    /// is goes through [`Plane::note_passed`].
    pub(super) fn destination<'k>(
        &mut self,
        plan: &Plan,
        pool: u16,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
    ) -> Destination {
        self.routes.passed.clear();
        self.routes.copying.clear();
        let mut at = pool;
        while let Some(routes) = routes_of(plan, at) {
            self.routes.passed.push(at);
            at = match &routes.pool {
                RoutedPool::Prefix(prefix) => {
                    let mut children = keys.clone().map(|key| prefix.pick(key));
                    let first = children.next().flatten();
                    let is_one = children.all(|child| child == first);
                    let mut all = keys.clone().map(|key| prefix.pick(key));
                    match first {
                        Some(child) if is_one => child,
                        _ if all.any(|child| child.is_none()) => return Destination::NoPrefix(at),
                        _ => return Destination::Over(at),
                    }
                }
                RoutedPool::RateLimited(limited) => {
                    let bucket = routes.bucket.as_ref();
                    if bucket.is_some_and(|bucket| !bucket.try_take(self.clock.now)) {
                        RouteTotals::note(&routes.totals.rate_limited);
                        self.routes.passed.pop();
                        return Destination::Limited(at);
                    }
                    limited.child
                }
                RoutedPool::Shadow(shadow) => {
                    let random = self.next_random();
                    if keys.clone().next().is_some_and(|key| shadow.takes(key, random)) {
                        self.routes.copying.push(at);
                    }
                    shadow.main
                }
                RoutedPool::Failover(_) | RoutedPool::Mirror(_) | RoutedPool::MissThen(_) => {
                    return Destination::Over(at);
                }
            };
        }
        Destination::Leaf(at)
    }

    /// A request was not started, and will come again.
    #[cold]
    pub(super) fn turn_back(&mut self, plan: &Plan) {
        for &pool in &self.routes.passed {
            if let Some(bucket) = routes_of(plan, pool).and_then(|routes| routes.bucket.as_ref()) {
                bucket.give_back();
            }
        }
    }

    /// A request was started: it is counted by every pool that led it, and copied.
    pub(super) fn note_passed(
        &mut self,
        plan: &Plan,
        class: u8,
        whose: (u32, Language),
        bytes: &[u8],
    ) {
        for &pool in &self.routes.passed {
            self.cells.pool(usize::from(pool)).class(usize::from(class)).requests.add(1);
        }
        if !self.routes.copying.is_empty() {
            self.copy_to_shadows(plan, whose, bytes);
        }
    }

    #[cold]
    fn copy_to_shadows(&mut self, plan: &Plan, (lane, language): (u32, Language), bytes: &[u8]) {
        let state = &mut self.routes;
        state.shadows.resize(plan.pools.len(), 0);
        for &pool in &state.copying {
            let Some(routes) = routes_of(plan, pool) else { continue };
            let RoutedPool::Shadow(shadow) = &routes.pool else { continue };
            let in_flight = &mut state.shadows[usize::from(pool)];
            let is_full = *in_flight >= shadow.in_flight_max
                || state.shadows_held + bytes.len() > SHADOWS_HELD_MAX;
            if is_full {
                RouteTotals::note(&routes.totals.shadow_drops);
                continue;
            }
            RouteTotals::note(&routes.totals.shadowed);
            *in_flight += 1;
            state.shadows_held += bytes.len();
            state.copies.push_back(Copy {
                pool,
                shadow: shadow.shadow,
                lane,
                language,
                bytes: bytes.to_vec(),
            });
        }
    }

    /// Whether a request may begin a trip now; if not, its session goes on later.
    pub(super) fn may_travel(
        &mut self,
        routes: &RoutePlan,
        (key, session, busy): (Key<Session>, &mut Session, &Busy),
        is_read: bool,
    ) -> Option<Step> {
        // What a child fills in, or an old pool is asked for first, must not overtake
        // what its client sent before, nor be overtaken.
        let takes_steps = routes.has_fill || routes.has_warm_up;
        if takes_steps && !is_read && !session.is_quiet(busy) {
            session.barrier = true;
            return Some(Step::Wait);
        }
        // A relay is part of a trip that has its room.
        if session.relay.is_none() && !self.routes.has_room() {
            self.routes.waiting.push(key);
            session.waits_for_link = true;
            return Some(Step::Wait);
        }
        session.barrier |= takes_steps && !is_read && routes.has_warm_up;
        None
    }
}

impl Core {
    /// The sessions that have a client.
    pub(crate) fn client_keys(&self) -> Vec<Key<Session>> {
        let mut keys = self.sessions.keys();
        keys.retain(|key| self.session(*key).is_some_and(|session| session.relay.is_none()));
        keys
    }

    /// Whether there is any.
    pub(crate) fn has_clients(&self) -> bool {
        self.sessions.len() > self.plane.routes.relays
    }

    /// Lets trips begin and go on, until all wait for servers.
    #[cold]
    pub(crate) fn continue_routes(&mut self) {
        self.resume_relays();
        while self.plane.routes.has_work() {
            while let Some(trip) = self.plane.routes.due.pop_front() {
                self.begin_trip(trip);
            }
            while let Some(copy) = self.plane.routes.copies.pop_front() {
                let len = copy.bytes.len() as u32;
                let errand = RelayFor::Shadow { pool: copy.pool, len };
                self.relay(errand, copy.shadow, copy.lane, copy.language, &copy.bytes);
            }
            if let Some(key) = self.plane.routes.dirty.pop_front() {
                self.finish_relay(key);
            }
        }
        if !self.plane.routes.waiting.is_empty() && self.plane.routes.has_drained() {
            for key in std::mem::take(&mut self.plane.routes.waiting) {
                if let Some(session) = self.sessions.get_mut(key) {
                    session.waits_for_link = false;
                    self.plane.mark_session_resuming(key, session);
                }
            }
        }
    }

    /// Relays that have room again go first: what a client sent later is behind them.
    fn resume_relays(&mut self) {
        if self.plane.routes.relays == 0 || self.plane.resumes.is_empty() {
            return;
        }
        let (sessions, plane) = (&self.sessions, &mut self.plane);
        let is_relay =
            |key: &Key<Session>| sessions.get(*key).is_some_and(|session| session.relay.is_some());
        let resumes = std::mem::take(&mut plane.resumes);
        let (relays, clients): (Vec<_>, Vec<_>) = resumes.into_iter().partition(is_relay);
        plane.resumes = relays;
        self.resume_sessions(&mut Vec::new());
        self.plane.resumes.extend(clients);
    }

    /// Sends a request to a pool, as a client of it would.
    fn relay(&mut self, errand: RelayFor, pool: u16, lane: u32, language: Language, bytes: &[u8]) {
        let mut session = self.plane.routes.free.pop().unwrap_or_else(|| {
            let identity = Identity { addr: "keyway".into(), ..Identity::new(0, true, Time(0)) };
            Session::new(0, 0, identity)
        });
        session.pool = pool;
        session.lane = lane;
        session.relay = Some(Relay { errand, fault: None });
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
        let mut busy = plane.busy_pool.take();
        plane.feed_relay(links, key, session, &mut busy, bytes);
        session.busy = Some(busy);
        plane.mark_session_dirty(key, session);
        if session.paused {
            // What its client sends next would find room on the link before it.
            self.hold_client(key);
        }
    }

    /// Has the client on whose behalf a session asks wait with its next request until its
    /// others are answered.
    #[cold]
    fn hold_client(&mut self, mut key: Key<Session>) {
        while let Some(session) = self.sessions.get_mut(key) {
            match session.relay.map(|relay| relay.errand) {
                None => {
                    session.barrier = true;
                    return;
                }
                Some(RelayFor::Ask { trip, .. }) => {
                    let Some(trip) = self.plane.routes.trips.get(trip) else { return };
                    key = trip.session;
                }
                Some(_) => return,
            }
        }
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
        self.plane.routes.relays -= 1;
        let mut busy = session.busy.take().unwrap_or_default();
        if let Some(relay) = session.relay.take() {
            self.on_relayed(&relay, busy.output.unsent());
        }
        let len = busy.output.len();
        busy.output.advance(len);
        if busy.is_empty() {
            self.plane.busy_pool.give(busy);
        }
        self.keep_relay(session);
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

impl Plane {
    /// Parses the one request of a relay.
    fn feed_relay(
        &mut self,
        links: &mut Vec<LinkSlot>,
        key: Key<Session>,
        session: &mut Session,
        busy: &mut Busy,
        bytes: &[u8],
    ) {
        let parsed = self.parse(links, key, session, busy, bytes);
        if parsed < bytes.len() {
            busy.keep_input(&bytes[parsed..]);
            session.paused = true;
        }
    }

    /// The parts of a request whose keys go to these pools, one way each: with the place
    /// of each key.
    pub(super) fn parts_by(
        children: impl Iterator<Item = u16>,
        make: impl Fn(u16) -> keyway_proxy::course::Course,
    ) -> Lots {
        let (mut parts, mut owners) = (Vec::<Part>::new(), Vec::new());
        let mut places = std::collections::BTreeMap::new();
        for (index, child) in children.enumerate() {
            let part = *places.entry(child).or_insert_with(|| {
                parts.push(Part::new(make(child), Vec::new()));
                parts.len() as u16 - 1
            });
            let keys = &mut parts[usize::from(part)].keys;
            owners.push((part, keys.len() as u32));
            keys.push(index as u32);
        }
        (parts, owners)
    }

    fn note_fault_of(session: &mut Session, fault: Option<Fault>) {
        if let Some(fault) = fault {
            session.note_fault(fault);
        }
    }
}
