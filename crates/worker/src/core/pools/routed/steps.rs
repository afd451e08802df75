//! The beginning, the steps and the end of requests to pools of pools.

use crate::core::clients::WaitOn;
use crate::core::pools::routed::state::Wants;
use crate::core::pools::routed::state::{
    Destination, HELD_MAX, Lots, ROUTED_REQUESTS_MAX, SHADOWS_HELD_MAX, UnsentSubRequest, Whose,
    routes_of, shadow_of,
};
use crate::core::request::{ClientMut, Step};
use crate::core::{Core, Plane};
use crate::{Plan, PoolKind, RoutePlan};
use keyway_base::{BackendFault, Fault, Key, Sent};
use keyway_command::Counted;
use keyway_proxy::route_policy::{KeyOwner, Part, RouteTotals, RoutedRequest, SubRequestFor};
use keyway_proxy::{Busy, ReplyTo, Session};
use keyway_topology::RoutedPool;
use std::time::Duration;

impl Plane {
    /// Adds a routed request, which begins at the end of the turn.
    pub(in crate::core::pools) fn add_routed_request(
        &mut self,
        to: ReplyTo,
        mut routed_request: RoutedRequest,
    ) {
        let level = routed_request.level;
        self.routes.count_held(&mut routed_request);
        let key = self.pending.begin(to, Box::new(routed_request));
        self.routes.queues.add_due(level, key);
    }

    /// Returns whether another routed request may be held.
    fn has_room_for_routed(&self) -> bool {
        self.routes.held < HELD_MAX && self.pending.count::<RoutedRequest>() < ROUTED_REQUESTS_MAX
    }

    /// Returns whether there is room again for clients that wait.
    pub(super) fn has_drained(&self) -> bool {
        let count = self.pending.count::<RoutedRequest>();
        self.routes.held <= HELD_MAX / 2 && count <= ROUTED_REQUESTS_MAX / 2
    }

    /// Follows a request with at least one key from a pool to the pool that handles it. Takes
    /// tokens on the way. A request that is not started or sent on gives them back
    /// ([`Plane::turn_back`]). A request that is started goes through [`Plane::note_passed`].
    pub(in crate::core::pools) fn destination<'k>(
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

    /// Handles that a request was not started and will come again, or was answered here.
    #[cold]
    pub(in crate::core::pools) fn turn_back(&mut self, plan: &Plan) {
        for &pool in &self.routes.passed {
            if let Some(bucket) = routes_of(plan, pool).and_then(|routes| routes.bucket.as_ref()) {
                bucket.give_back();
            }
        }
    }

    /// Counts a started request in every pool that led it, and copies it.
    pub(in crate::core::pools) fn note_passed(
        &mut self,
        plan: &Plan,
        counted: Counted,
        whose: Whose,
        bytes: &[u8],
    ) {
        for &pool in &self.routes.passed {
            self.observe.started(pool, counted);
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

    /// Returns `None` if a request may begin a routed request now. Otherwise its session goes on
    /// later.
    pub(in crate::core::pools) fn may_travel(
        &mut self,
        routes: &RoutePlan,
        session: &mut Session,
        busy: &Busy,
        is_read: bool,
        is_many: bool,
    ) -> Option<Step> {
        // A request that is looked up or filled in, or for which an old pool is asked first, must
        // not overtake what its client sent before, nor be overtaken.
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
    /// Makes a client wait until there is room for another routed request, at most for the time
    /// that its request may take.
    #[cold]
    pub(in crate::core) fn wait_among_routed_requests(
        &mut self,
        key: Key<Session>,
        session: &mut Session,
    ) {
        if session.waits_for.is_some() {
            return;
        }
        let since = session.full_since.unwrap_or(self.clock.now);
        let until = self.longest_timeout(session.pool).map(|timeout| since + timeout);
        self.wait_for(ClientMut { key, session }, WaitOn::Routes(until));
    }

    /// Returns the error for a client whose request has waited too long for room among routed
    /// requests.
    #[cold]
    pub(in crate::core) fn crowded_too_long(&self, session: &mut Session) -> Option<String> {
        let timeout = self.longest_timeout(session.pool)?;
        if self.clock.now < session.full_since? + timeout {
            return None;
        }
        session.note_fault(Fault::Backend { fault: BackendFault::Timeout, sent: Sent::No });
        let pool = &self.plan.pools[usize::from(session.pool)].name;
        Some(format!(
            "ERR too many requests of [pool.{pool}] are on their order, and there was no room within \
             {timeout:?}; the request was not sent; try it again later"
        ))
    }

    /// Returns the longest `timeout` of the servers that a pool leads to, or `None` if none of them
    /// has one.
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
    /// Resumes clients that have waited too long for routed requests to end.
    pub(in crate::core) fn release_crowded(&mut self) {
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

    /// Returns the sessions that have a client.
    pub(crate) fn client_keys(&self) -> Vec<Key<Session>> {
        let mut keys = self.sessions.keys();
        keys.retain(|key| self.session(*key).is_some_and(|session| session.sub_request.is_none()));
        keys
    }

    /// Returns whether any session has a client. The sessions of sub-requests have none.
    pub(crate) fn has_clients(&self) -> bool {
        self.sessions.len() > self.plane.routes.sub_requests
    }
}

impl Plane {
    /// Divides a request whose keys go to `children` into parts, one for each child. Returns them
    /// with the part and the index of each key.
    pub(in crate::core::pools) fn parts_by(
        children: impl Iterator<Item = u16>,
        make: impl Fn(u16) -> keyway_proxy::route_policy::RoutePolicy,
    ) -> Lots {
        let (mut parts, mut owners) = (Vec::<Part>::new(), Vec::new());
        let mut part_of = std::collections::BTreeMap::new();
        for (index, child) in children.enumerate() {
            let part = *part_of.entry(child).or_insert_with(|| {
                parts.push(Part::new(make(child), Vec::new()));
                parts.len() as u16 - 1
            });
            let keys = &mut parts[usize::from(part)].keys;
            owners.push(KeyOwner::new(part, keys.len() as u32));
            keys.push(index as u32);
        }
        (parts, owners)
    }
}
