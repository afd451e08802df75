//! Routed requests: the children that they ask, and the effects of the replies.

use super::redis::{PARTS_MAX, note_step, route_policy_of};
use crate::core::observe::counting::Outcome;
use crate::core::pools::routed::state::Question;
use crate::core::pools::routed::state::UnsentSubRequest;
use crate::core::pools::routed::state::Whose;
use crate::core::pools::routed::state::routes_of;
use crate::core::{Core, Plane};
use crate::{Plan, RoutePlan};
use keyway_base::{Fault, Key, Slab, Time};
use keyway_command::{Args, Request, Verb};
use keyway_memcache::{Expect, compose_request};
use keyway_metrics::Latency;
use keyway_proxy::route_policy::RouteTotals;
use keyway_proxy::route_policy::{
    AskOrder, KeyOwner, Move, Nature, Part, RoutePolicy, RoutedRequest, Speech, SubRequestFor,
    Verdict, memcached, redis,
};
use keyway_proxy::{Operation, ReplyTo, Session};
use keyway_resp::reply;
use keyway_topology::RoutedPool;
use std::sync::Arc;
use std::time::Duration;

/// A request for a child, with the end of its reply if it is not in the client's own words.
enum Said {
    AsItCame,
    Anew(Vec<u8>, Option<Expect>),
    /// The request cannot be expressed.
    Nothing,
}

impl Core {
    /// Sends the first questions of all parts of a routed request.
    // Inlined, it takes registers from the loop over all levels: 120 instructions per request.
    #[inline(never)]
    pub(super) fn begin_routed_request(&mut self, key: Key<Operation>) {
        let parts = self
            .plane
            .pending
            .get::<RoutedRequest>(key)
            .map_or(0, |routed_request| routed_request.parts.len());
        (0..parts).for_each(|part| self.begin_part(key, part as u16));
    }

    fn begin_part(&mut self, key: Key<Operation>, part: u16) {
        let Some(routed_request) = self.plane.pending.get_mut::<RoutedRequest>(key) else { return };
        let stations = routed_request.parts[usize::from(part)].route_policy.start();
        stations.for_each(|station| self.ask(key, part, station));
    }

    /// Asks a child about a part of a routed request, or queues the question.
    fn ask(&mut self, key: Key<Operation>, part: u16, station: u8) {
        let Some(routed_request) = self.plane.pending.get_mut::<RoutedRequest>(key) else { return };
        routed_request.sub_requests += 1;
        let level = routed_request.level;
        self.send(level, Question::OfRoutedRequest { routed_request: key, part, station });
    }

    pub(super) fn ask_now(&mut self, key: Key<Operation>, part: u16, station: u8, since: Time) {
        let plan = Arc::clone(&self.plane.plan);
        let now_unix = (self.plane.clock.unix_micros / 1_000_000) as i64;
        let Some((to, routed_request)) = self.plane.pending.entry_mut::<RoutedRequest>(key) else {
            return;
        };
        let child = routed_request.parts[usize::from(part)].route_policy.child(station);
        let cap = cap_of(&plan, to.pool, child);
        let whose = Whose::of_routed_request(routed_request);
        let said =
            say(routed_request, &routed_request.parts[usize::from(part)].keys, cap, now_unix);
        let sub_request = |core: &mut Core, expect, bytes: &[u8]| {
            let purpose = SubRequestFor::Ask { routed_request: key, part, station, expect };
            core.sub_request(purpose, child, whose, since, bytes);
        };
        match said {
            Said::AsItCame => {
                let bytes = std::mem::take(&mut routed_request.bytes);
                sub_request(self, None, &bytes);
                if let Some(routed_request) = self.plane.pending.get_mut::<RoutedRequest>(key) {
                    routed_request.bytes = bytes;
                }
            }
            Said::Anew(bytes, expect) => sub_request(self, expect, &bytes),
            Said::Nothing => {
                self.end_unasked(whose.level);
                self.on_asked(key, part, station, None, b"", Some(Fault::Denied));
            }
        }
        if let Some(cap) = cap {
            self.cap_keys(key, part, child, cap);
        }
    }

    /// Makes the keys expire that a Redis request wrote to a gutter.
    fn cap_keys(&mut self, key: Key<Operation>, part: u16, gutter: u16, cap: Duration) {
        let Some(routed_request) = self.plane.pending.get::<RoutedRequest>(key) else { return };
        let Speech::Redis { args, .. } = &routed_request.speech else { return };
        let Ok(request) = Request::resolve(Args::new(&routed_request.bytes, args)) else { return };
        if redis::nature_of(&request) == Nature::Read {
            return;
        }
        let millis = cap.as_millis().to_string();
        let mut all = Vec::new();
        if request.keys(&mut all).is_err() {
            return;
        }
        let lot = &routed_request.parts[usize::from(part)].keys;
        let is_of_lot = |index: usize| lot.is_empty() || lot.contains(&(index as u32));
        let mut requests = Vec::new();
        for (_, at) in all.iter().enumerate().filter(|(index, _)| is_of_lot(*index)) {
            let mut out = Vec::new();
            reply::array(&mut out, 4);
            let words = [b"PEXPIRE", &request.args[*at as usize], millis.as_bytes(), b"LT"];
            words.iter().for_each(|word| reply::bulk(&mut out, word));
            requests.push(out);
        }
        let whose = Whose::of_routed_request(routed_request);
        for bytes in requests {
            let sub_request = SubRequestFor::Nobody;
            self.send(
                whose.level,
                Question::Own(UnsentSubRequest { sub_request, whose, pool: gutter, bytes }),
            );
        }
    }

    /// Handles that a child has answered, or will not answer.
    pub(super) fn on_asked(
        &mut self,
        key: Key<Operation>,
        part: u16,
        station: u8,
        expect: Option<Expect>,
        reply: &[u8],
        fault: Option<Fault>,
    ) {
        let plan = Arc::clone(&self.plane.plan);
        let Some((to, routed_request)) = self.plane.pending.entry_mut::<RoutedRequest>(key) else {
            return;
        };
        routed_request.sub_requests -= 1;
        let Some(routes) = routes_of(&plan, to.pool) else { return };
        let mut verdict = verdict_of(routed_request, part, reply, fault);
        let child = routed_request.parts[usize::from(part)].route_policy.child(station);
        if verdict.is_failed() {
            RouteTotals::note(&routes.totals.child_failures);
            tell_of_child(self.plane.clock.now, &plan, routes, to.pool, child);
        }
        let is_gone = self.sessions.get(to.session).is_none();
        if is_gone {
            routed_request.parts.iter_mut().for_each(|part| part.route_policy.abandon());
        } else if verdict.is_failed() && takes_apart(routed_request, routes) {
            note_step(routes);
            return self.take_apart(key, routes);
        }
        let mut added = None;
        if verdict == Verdict::Good && !is_gone {
            (verdict, added) = look_further(routed_request, part, station, reply);
        }
        let state = &mut routed_request.parts[usize::from(part)];
        let next = state.route_policy.on_verdict(station, verdict);
        if state.route_policy.is_best(station) {
            state.reply.clear();
            state.reply.extend_from_slice(reply);
            state.fault = fault;
            state.expect = expect;
        }
        match next {
            Move::Ask(station) => {
                note_step(routes);
                self.hold_client_of(key, routes);
                self.ask(key, part, station);
            }
            Move::Answer => {
                let may_fill = verdict == Verdict::Good && !is_gone;
                if !(may_fill && self.ask_time_left(key, part, child)) {
                    self.finish_part(key);
                }
            }
            Move::Wait => {}
        }
        if let Some(added) = added {
            self.recount(key);
            note_step(routes);
            self.begin_part(key, added);
        }
        self.forget_if_over(key);
    }

    /// Holds the client back if a request goes on at another child. Otherwise the client's next
    /// request would arrive there first.
    fn hold_client_of(&mut self, key: Key<Operation>, routes: &RoutePlan) {
        if matches!(routes.pool, RoutedPool::MissThen(_)) {
            return;
        }
        if let Some(routed_request) = self.plane.pending.get::<RoutedRequest>(key) {
            let client = routed_request.client;
            self.hold_client(client);
        }
    }

    /// Divides a request into one part for each key.
    fn take_apart(&mut self, key: Key<Operation>, routes: &RoutePlan) {
        let Some(routed_request) = self.plane.pending.get_mut::<RoutedRequest>(key) else { return };
        let count = key_count(routed_request);
        let route_policy = route_policy_of(routes, Nature::Read);
        routed_request.parts.clear();
        routed_request
            .parts
            .extend((0..count).map(|index| Part::new(route_policy.clone(), vec![index as u32])));
        routed_request.owners = (0..count).map(|index| KeyOwner::new(index as u16, 0)).collect();
        routed_request.parts_left = count as u16;
        self.recount(key);
        self.hold_client_of(key, routes);
        self.begin_routed_request(key);
    }

    /// Handles that a part has its reply. The last part completes the client's reply.
    pub(super) fn finish_part(&mut self, key: Key<Operation>) {
        let Some(routed_request) = self.plane.pending.get_mut::<RoutedRequest>(key) else { return };
        routed_request.parts_left -= 1;
        if routed_request.parts_left > 0 || std::mem::replace(&mut routed_request.is_told, true) {
            return;
        }
        let Core { sessions, plane, .. } = self;
        plane.with_unended(key, |plane, to, routed_request| {
            plane.tell_client(sessions, to, routed_request);
        });
    }

    /// Forgets a routed request whose sub-requests have all ended and whose client has its reply.
    pub(super) fn forget_if_over(&mut self, key: Key<Operation>) {
        let Some(routed_request) = self.plane.pending.get::<RoutedRequest>(key) else { return };
        if routed_request.is_told && routed_request.sub_requests == 0 {
            self.plane.routes.held -= routed_request.counted;
            self.plane.pending.end::<RoutedRequest>(key);
        }
    }

    /// Counts anew the bytes that a routed request holds.
    fn recount(&mut self, key: Key<Operation>) {
        let Plane { routes, pending, .. } = &mut self.plane;
        if let Some(routed_request) = pending.get_mut::<RoutedRequest>(key) {
            routes.count_held(routed_request);
        }
    }
}

impl Plane {
    fn tell_client(
        &mut self,
        sessions: &mut Slab<Session>,
        to: ReplyTo,
        routed_request: &RoutedRequest,
    ) {
        let (fault, mut is_error) = (routed_request.fault(), false);
        let is_answered = self.answer_operation(sessions, to, fault, |out| {
            let start = out.len();
            routed_request.write(out);
            is_error = out.get(start) == Some(&b'-');
        });
        if !is_answered {
            return;
        }
        let outcome = match fault {
            Some(fault @ (Fault::Backend { .. } | Fault::Unrouted)) => Outcome::Fault(fault),
            _ if is_error => Outcome::Error,
            _ => Outcome::Reply,
        };
        let latency = Latency::between(to.started, self.clock.now);
        self.replied(to.pool, to.counted, Some(latency), outcome);
    }
}

/// Writes to the log, at most once a minute, that a child fails.
#[cold]
fn tell_of_child(now: Time, plan: &Plan, routes: &RoutePlan, pool: u16, child: u16) {
    if routes.failure_notice.is_due(now) {
        let pool = &plan.pools[usize::from(pool)].name;
        let child = &plan.pools[usize::from(child)].name;
        let kind = routes.pool.kind();
        tracing::warn!(
            pool,
            kind,
            child,
            "a child could not serve a request; told at most once a minute, and counted in \
             keyway_route_child_failures_total"
        );
    }
}

/// Returns the longest time that keys written to a child may live.
fn cap_of(plan: &Plan, pool: u16, child: u16) -> Option<Duration> {
    match &routes_of(plan, pool)?.pool {
        RoutedPool::Failover(failover) => {
            failover.gutter.filter(|gutter| gutter.pool == child).map(|gutter| gutter.ttl_max)
        }
        _ => None,
    }
}

/// Returns the number of keys that may be asked for by themselves.
fn key_count(routed_request: &RoutedRequest) -> usize {
    match &routed_request.speech {
        Speech::Redis { args, cut, .. } => cut.map_or(1, |(stride, _)| (args.len() - 1) / stride),
        Speech::Memcached { request, .. } => request.keys.len(),
    }
}

fn verdict_of(
    routed_request: &RoutedRequest,
    part: u16,
    reply: &[u8],
    fault: Option<Fault>,
) -> Verdict {
    match &routed_request.speech {
        Speech::Redis { command, .. } => {
            let nature = routed_request.parts[usize::from(part)].route_policy.nature();
            redis::verdict_of(command.verb, nature, reply, fault)
        }
        Speech::Memcached { request, wire, .. } => {
            memcached::verdict_of(&request.head, reply, *wire, fault)
        }
    }
}

/// Returns whether a failed read of many keys goes on with each key by itself. Only the keys of the
/// failed server are asked for elsewhere.
fn takes_apart(routed_request: &RoutedRequest, routes: &RoutePlan) -> bool {
    let is_read = routed_request.parts[0].route_policy.nature() == Nature::Read;
    let many = (2..=PARTS_MAX).contains(&key_count(routed_request));
    let goes_on = matches!(routes.pool, RoutedPool::Failover(_) | RoutedPool::ReadWriteSplit(_));
    goes_on && routed_request.owners.is_empty() && is_read && many
}

/// Finds the missing keys among those that were asked for together. If all are missing, the child
/// had nothing. If some are missing, they become a part of their own and are asked for at the next
/// child.
fn look_further(
    routed_request: &mut RoutedRequest,
    part: u16,
    station: u8,
    reply: &[u8],
) -> (Verdict, Option<u16>) {
    let state = &routed_request.parts[usize::from(part)];
    if state.route_policy.order() != AskOrder::UntilFound {
        return (Verdict::Good, None);
    }
    let misses = match &routed_request.speech {
        Speech::Redis { command, .. } if command.verb == Verb::Mget => redis::misses(reply),
        Speech::Memcached { request, .. } if state.keys.len() > 1 => {
            let keys =
                state.keys.iter().map(|&key| request.key(&routed_request.bytes, key as usize));
            Some(memcached::misses(reply, keys))
        }
        _ => None,
    };
    let Some(misses) = misses else { return (Verdict::Good, None) };
    if misses.iter().all(|is_missing| *is_missing) {
        return (Verdict::Missed, None);
    }
    let missing = state.keys.iter().zip(&misses).filter(|(_, is_missing)| **is_missing);
    let missing: Vec<u32> = missing.map(|(key, _)| *key).collect();
    let behind = state.route_policy.behind(station);
    if missing.is_empty() || behind.is_empty() {
        return (Verdict::Good, None);
    }
    let route_policy =
        RoutePolicy::new(AskOrder::UntilFound, Nature::Read, behind.iter().copied()).after_miss();
    let added = routed_request.parts.len() as u16;
    for (index, key) in missing.iter().enumerate() {
        routed_request.owners[*key as usize] = KeyOwner::new(added, index as u32);
    }
    let mut rest = Part::new(route_policy, missing);
    match &routed_request.speech {
        Speech::Redis { protocol, .. } => {
            reply::array(&mut rest.reply, rest.keys.len());
            (0..rest.keys.len()).for_each(|_| protocol.null(&mut rest.reply));
        }
        Speech::Memcached { .. } => rest.reply.extend_from_slice(b"END\r\n"),
    }
    routed_request.parts.push(rest);
    routed_request.parts_left += 1;
    (Verdict::Good, Some(added))
}

/// Returns the request for a child, with `keys` alone. If there are none, it has all keys.
fn say(routed_request: &RoutedRequest, keys: &[u32], cap: Option<Duration>, now_unix: i64) -> Said {
    let is_whole = keys.is_empty() || keys.len() == key_count(routed_request);
    match &routed_request.speech {
        Speech::Redis { .. } if is_whole => Said::AsItCame,
        Speech::Redis { command, args, cut, .. } => {
            let stride = cut.map_or(1, |(stride, _)| stride);
            let mut out = Vec::new();
            reply::array(&mut out, 1 + keys.len() * stride);
            reply::bulk(&mut out, command.name.as_bytes());
            for key in keys {
                let first = 1 + *key as usize * stride;
                for arg in &args[first..first + stride] {
                    reply::bulk(&mut out, arg.of(&routed_request.bytes));
                }
            }
            Said::Anew(out, None)
        }
        Speech::Memcached { request, .. } => {
            if is_whole && cap.is_none() && !request.head.quiet {
                return Said::AsItCame;
            }
            let head = match cap {
                Some(cap) => memcached::capped(&request.head, cap.as_secs(), now_unix),
                None => request.head,
            };
            let all: Vec<u32>;
            let lot = match keys.is_empty() {
                false => keys,
                true => {
                    all = (0..request.keys.len() as u32).collect();
                    &all
                }
            };
            let keys = lot.iter().map(|&key| request.key(&routed_request.bytes, key as usize));
            let mut out = Vec::new();
            let value = request.value.of(&routed_request.bytes);
            match compose_request(&mut out, head.dialect, &head, keys, value) {
                Ok(expect) => Said::Anew(out, Some(expect)),
                Err(_) => Said::Nothing,
            }
        }
    }
}
