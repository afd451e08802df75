//! Requests to pools that lead to other pools.
//!
//! What needs no reply to be decided (a prefix, a token, whether there is to be a copy)
//! only chooses the pool, and the request goes on there as any other ([`Destination`]).
//! What does is a [`RoutedRequest`]: its reply index is reserved, and at the end of the turn it
//! begins to ask. Whoever is asked is asked by a *sub-request*, a session without a client,
//! whose pool is the one that is asked: so splitting, joining, translating and the texts
//! of errors are what a client of that pool would get, and that pool may itself lead on.
//! A sub-request brings one request and is then at rest, for the next.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `mod` | choosing; what a turn does about routed requests |
//! | `sub_requests` | who asks, in what order, and how many at once |
//! | `behind` | what is sent next stays behind what is on its way |
//! | `redis` | requests of Redis clients; those of memcached are in `memcached::routes` |
//! | `retired` | what keeps a pool that a reload has replaced |
//! | `split` | reads and writes that go different ways |
//! | `routed_request` | asking, and what replies lead to |
//! | `fill` | what one child has is stored in the first |

mod behind;
mod fill;
mod redis;
mod retired;
mod routed_request;
mod split;
mod sub_requests;

pub(in crate::core) use redis::{PARTS_MAX, route_policy_of};
pub(in crate::core) use retired::reports_to;
pub(in crate::core) use split::Wants;

use crate::core::request::Step;
use crate::core::{Core, Plane};
use crate::{Plan, PoolKind, RoutePlan};
use keyway_base::{BackendFault, Fault, Key, Sent, Time};
use keyway_command::Counted;
use keyway_memcache::Wire;
use keyway_proxy::route_policy::{Part, RouteTotals, RoutedRequest, Speech, SubRequestFor};
use keyway_proxy::{Busy, ReplyTo, Session, WaitFor};
use keyway_resp::Protocol;
use keyway_topology::RoutedPool;
use std::collections::VecDeque;
use std::time::Duration;
use sub_requests::{Queues, UnsentSubRequest};

/// Bytes of requests that routed requests of one worker hold before clients wait. Larger lets
/// slow children hold more memory; smaller stops clients of fast ones.
const HELD_MAX: usize = 64 << 20;

/// Routed requests of one worker before clients wait.
const ROUTED_REQUESTS_MAX: usize = 32 << 10;

/// Bytes of copies on their way to shadows before more are dropped.
const SHADOWS_HELD_MAX: usize = 16 << 20;

/// What a worker needs for pools that lead to others.
#[derive(Default)]
pub(crate) struct State {
    /// Bytes that routed requests hold.
    held: usize,
    /// What is to be asked, once it may be.
    queues: Queues,
    /// Sub-requests that may have their reply.
    dirty: VecDeque<Key<Session>>,
    /// Sub-requests at rest.
    free: Vec<Session>,
    /// Sub-requests on their way.
    sub_requests: usize,
    /// Clients that wait for routed requests to end, and until when; each is there once at most.
    waiting: Vec<(Key<Session>, Time)>,
    /// Copies that are to be sent.
    copies: VecDeque<UnsentSubRequest>,
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

/// The parts of a request, and of each key its part and its place there; no places
/// where it goes whole.
pub(in crate::core::pools::routed) type Lots = (Vec<Part>, Vec<(u16, u32)>);

/// What a sub-request speaks.
#[derive(Clone, Copy)]
pub(in crate::core) enum Language {
    Redis(Protocol),
    Memcached { wire: Wire, item_len_max: u32 },
}

impl Language {
    fn of_routed_request(routed_request: &RoutedRequest) -> Language {
        match routed_request.speech {
            Speech::Redis { protocol, .. } => Language::Redis(protocol),
            Speech::Memcached { wire, item_len_max, .. } => {
                Language::Memcached { wire, item_len_max }
            }
        }
    }
}

/// On whose behalf is asked.
#[derive(Clone, Copy)]
pub(in crate::core) struct Whose {
    /// The client.
    pub(in crate::core::pools::routed) client: Key<Session>,
    /// How many routed requests are above.
    pub(in crate::core::pools::routed) level: u8,
    /// Which of the connections to a server it takes.
    pub(in crate::core::pools::routed) lane: u32,
    pub(in crate::core::pools::routed) language: Language,
}

impl Whose {
    /// Those of a session, which may be a sub-request itself.
    pub(in crate::core) fn of(key: Key<Session>, session: &Session, language: Language) -> Whose {
        let (client, level) = above(key, session);
        Whose { client, level, lane: session.lane, language }
    }

    fn of_routed_request(routed_request: &RoutedRequest) -> Whose {
        let language = Language::of_routed_request(routed_request);
        Whose {
            client: routed_request.client,
            level: routed_request.level,
            lane: routed_request.lane,
            language,
        }
    }
}

/// Who stands for a client where its copies are sent: they keep their order among each
/// other, and nobody waits for them.
fn shadow_of(client: Key<Session>) -> Key<Session> {
    // No slab hands out a key with this bit.
    Key::from_bits(client.to_bits() | 1 << 63)
}

/// The client that one that may stand for it does stand for.
pub(in crate::core) fn client_behind(client: Key<Session>) -> Key<Session> {
    Key::from_bits(client.to_bits() & !(1 << 63))
}

/// The client on whose behalf a session asks, and the routed requests above.
pub(in crate::core) fn above(key: Key<Session>, session: &Session) -> (Key<Session>, u8) {
    session.sub_request.map_or((key, 0), |sub_request| (sub_request.client, sub_request.level + 1))
}

/// Where a request goes.
pub(in crate::core) enum Destination {
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
    /// A sub-request has output or is at its end.
    pub(in crate::core) fn on_sub_request_dirty(&mut self, key: Key<Session>) {
        self.dirty.push_back(key);
    }

    /// Whether [`Core::continue_routes`] has something to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.dirty.is_empty() || !self.copies.is_empty() || self.queues.have_work()
    }

    /// Bytes that routed requests and copies hold.
    pub(in crate::core) fn held(&self) -> usize {
        self.held + self.shadows_held + self.shadows.iter().sum::<u32>() as usize
    }

    /// Number of questions that are still to be asked, and of clients that wait for room.
    pub(in crate::core) fn queued(&self) -> usize {
        self.queues.len() + self.dirty.len() + self.copies.len() + self.waiting.len()
    }

    /// Number of sub-requests on their way.
    pub(in crate::core) fn sub_requests(&self) -> usize {
        self.sub_requests
    }

    /// Counts what a routed request holds now.
    fn count_held(&mut self, routed_request: &mut RoutedRequest) {
        let held = routed_request.held();
        self.held = self.held + held - std::mem::replace(&mut routed_request.counted, held);
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
    /// Adds a routed request, to begin at the end of the turn.
    pub(in crate::core) fn add_routed_request(
        &mut self,
        to: ReplyTo,
        mut routed_request: RoutedRequest,
    ) {
        let level = routed_request.level;
        self.routes.count_held(&mut routed_request);
        let key = self.pending.begin(to, Box::new(routed_request));
        self.routes.queues.add_due(level, key);
    }

    /// Whether another routed request may be held.
    fn has_room_for_routed(&self) -> bool {
        self.routes.held < HELD_MAX && self.pending.count::<RoutedRequest>() < ROUTED_REQUESTS_MAX
    }

    /// Whether clients may go on that have waited for such room.
    fn has_drained(&self) -> bool {
        let count = self.pending.count::<RoutedRequest>();
        self.routes.held <= HELD_MAX / 2 && count <= ROUTED_REQUESTS_MAX / 2
    }

    /// Follows a request with these keys, one at least, from a pool on. Tokens are taken
    /// on the way: what is not started then, or is not sent on, gives them back
    /// ([`Plane::turn_back`]); what is started goes through [`Plane::note_passed`].
    pub(in crate::core) fn destination<'k>(
        &mut self,
        plan: &Plan,
        pool: u16,
        wants: &mut Wants<'_>,
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
                RoutedPool::ReadWriteSplit(split) => {
                    let is_read = wants.is_read_by(split, self.clock.now);
                    if is_read && split.read_fallback {
                        return Destination::Over(at);
                    }
                    if is_read { split.read } else { split.write }
                }
                RoutedPool::Failover(_) | RoutedPool::Mirror(_) | RoutedPool::MissThen(_) => {
                    return Destination::Over(at);
                }
            };
        }
        Destination::Leaf(at)
    }

    /// A request was not started, and will come again, or it was answered here.
    #[cold]
    pub(in crate::core) fn turn_back(&mut self, plan: &Plan) {
        for &pool in &self.routes.passed {
            if let Some(bucket) = routes_of(plan, pool).and_then(|routes| routes.bucket.as_ref()) {
                bucket.give_back();
            }
        }
    }

    /// A request was started: it is counted by every pool that led it, and copied.
    pub(in crate::core) fn note_passed(
        &mut self,
        plan: &Plan,
        counted: Counted,
        whose: Whose,
        bytes: &[u8],
    ) {
        for &pool in &self.routes.passed {
            self.request_cells(pool, counted).call();
        }
        if !self.routes.copying.is_empty() {
            self.copy_to_shadows(plan, whose, bytes);
        }
    }

    #[cold]
    fn copy_to_shadows(&mut self, plan: &Plan, whose: Whose, bytes: &[u8]) {
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
            state.copies.push_back(UnsentSubRequest {
                sub_request: SubRequestFor::Shadow { pool, len: bytes.len() as u32 },
                whose: Whose { client: shadow_of(whose.client), ..whose },
                pool: shadow.shadow,
                bytes: bytes.to_vec(),
            });
        }
    }

    /// Whether a request may begin a routed request now; if not, its session goes on later.
    pub(in crate::core) fn may_travel(
        &mut self,
        routes: &RoutePlan,
        (session, busy): (&mut Session, &Busy),
        (is_read, is_many): (bool, bool),
    ) -> Option<Step> {
        // What is looked up or filled in, or an old pool is asked for first, must not
        // overtake what its client sent before, nor be overtaken.
        let takes_steps = routes.looks_up || routes.has_warm_up;
        if !is_read && (takes_steps || session.reads_many) {
            if !session.is_quiet(busy) {
                session.fence();
                return Some(Step::Wait);
            }
            session.reads_many = false;
        }
        // A sub-request is part of a routed request that has its room.
        if session.sub_request.is_none() && !self.has_room_for_routed() {
            return Some(Step::Crowded);
        }
        session.reads_many |= is_read && is_many;
        if takes_steps && !is_read && routes.has_warm_up {
            session.fence();
        }
        None
    }
}

impl Plane {
    /// Has a client wait until there is room for another routed request, or for as long as its request may
    /// take.
    #[cold]
    pub(in crate::core) fn wait_among_routed_requests(
        &mut self,
        key: Key<Session>,
        session: &mut Session,
    ) {
        if session.waits_for.is_some() {
            return;
        }
        session.waits_for = Some(WaitFor::Routes);
        let since = session.full_since.unwrap_or(self.clock.now);
        let until = self.longest_timeout(session.pool).map(|timeout| since + timeout);
        self.note_deadline(until);
        self.routes.waiting.push((key, until.unwrap_or(Time(u64::MAX))));
    }

    /// The error for a client whose request has waited for room among routed requests as long as it may.
    #[cold]
    pub(in crate::core) fn crowded_too_long(&self, session: &mut Session) -> Option<String> {
        let timeout = self.longest_timeout(session.pool)?;
        if self.clock.now < session.full_since? + timeout {
            return None;
        }
        session.note_fault(Fault::Backend { fault: BackendFault::Timeout, sent: Sent::No });
        let pool = &self.plan.pools[usize::from(session.pool)].name;
        Some(format!(
            "ERR too many requests of [pool.{pool}] are on their way, and there was no room within \
             {timeout:?}; the request was not sent; try it again later"
        ))
    }

    /// The longest `timeout` of the servers that a pool leads to; `None` if none of them has any.
    fn longest_timeout(&self, pool: u16) -> Option<Duration> {
        match &self.plan.pools[usize::from(pool)].kind {
            PoolKind::Routed(routes) => {
                let children = routes.pool.children();
                children.into_iter().filter_map(|child| self.longest_timeout(child)).max()
            }
            kind => kind.timeout(),
        }
    }
}

impl Core {
    /// Clients that have waited for routed requests to end for as long as they may look again.
    pub(crate) fn release_crowded(&mut self) {
        if self.plane.routes.waiting.is_empty() {
            return;
        }
        let Core { sessions, plane, .. } = self;
        let now = plane.clock.now;
        let mut waiting = std::mem::take(&mut plane.routes.waiting);
        waiting.retain(|&(key, until)| {
            let Some(session) = sessions.get_mut(key) else { return false };
            if now < until {
                plane.note_deadline(Some(until));
                return true;
            }
            plane.wake(key, session);
            false
        });
        plane.routes.waiting = waiting;
    }

    /// The sessions that have a client.
    pub(crate) fn client_keys(&self) -> Vec<Key<Session>> {
        let mut keys = self.sessions.keys();
        keys.retain(|key| self.session(*key).is_some_and(|session| session.sub_request.is_none()));
        keys
    }

    /// Whether there is any.
    pub(crate) fn has_clients(&self) -> bool {
        self.sessions.len() > self.plane.routes.sub_requests
    }
}

impl Plane {
    /// The parts of a request whose keys go to these pools, one way each: with the place
    /// of each key.
    pub(in crate::core) fn parts_by(
        children: impl Iterator<Item = u16>,
        make: impl Fn(u16) -> keyway_proxy::route_policy::RoutePolicy,
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
}
