//! Trips: whom they ask, and what the replies lead to.

use super::redis::{PARTS_MAX, course_of, note_step};
use super::relays::{Errand, Question};
use super::{RouteTotals, Whose, routes_of};
use crate::core::{Core, Plane};
use crate::{Plan, RoutePlan};
use keyway_base::{Fault, Key, Slab, Time};
use keyway_command::{Args, Request, Verb};
use keyway_memcache::{Expect, compose_request};
use keyway_proxy::Session;
use keyway_proxy::course::{
    AskOrder, Course, Move, Nature, Part, RelayFor, Speech, Trip, Verdict, memcached, redis,
};
use keyway_resp::reply;
use keyway_topology::RoutedPool;
use std::sync::Arc;
use std::time::Duration;

/// A request for a child, with how its reply ends if it is not said in the client's own
/// words.
enum Said {
    AsItCame,
    Anew(Vec<u8>, Option<Expect>),
    /// It cannot be said.
    Nothing,
}

impl Core {
    /// Asks whom the parts of a trip ask first.
    pub(super) fn begin_trip(&mut self, key: Key<Box<Trip>>) {
        let parts = self.plane.routes.trips.get(key).map_or(0, |trip| trip.parts.len());
        (0..parts).for_each(|part| self.begin_part(key, part as u16));
    }

    fn begin_part(&mut self, key: Key<Box<Trip>>, part: u16) {
        let Some(trip) = self.plane.routes.trips.get_mut(key) else { return };
        let stations = trip.parts[usize::from(part)].course.start();
        stations.for_each(|station| self.ask(key, part, station));
    }

    /// Asks a child about a part of a trip, or will when it may.
    fn ask(&mut self, key: Key<Box<Trip>>, part: u16, station: u8) {
        let Some(trip) = self.plane.routes.trips.get_mut(key) else { return };
        trip.relays += 1;
        let level = trip.level;
        self.send(level, Question::OfTrip { trip: key, part, station });
    }

    pub(super) fn ask_now(&mut self, (key, part, station): (Key<Box<Trip>>, u16, u8), since: Time) {
        let plan = Arc::clone(&self.plane.plan);
        let now_unix = (self.plane.clock.unix_micros / 1_000_000) as i64;
        let Some(trip) = self.plane.routes.trips.get_mut(key) else { return };
        let child = trip.parts[usize::from(part)].course.child(station);
        let cap = cap_of(&plan, trip.pool, child);
        let whose = Whose::of_trip(trip);
        let said = say(trip, &trip.parts[usize::from(part)].keys, cap, now_unix);
        let relay = |core: &mut Core, expect, bytes: &[u8]| {
            let errand = RelayFor::Ask { trip: key, part, station, expect };
            core.relay(errand, (child, whose), since, bytes);
        };
        match said {
            Said::AsItCame => {
                let bytes = std::mem::take(&mut trip.bytes);
                relay(self, None, &bytes);
                if let Some(trip) = self.plane.routes.trips.get_mut(key) {
                    trip.bytes = bytes;
                }
            }
            Said::Anew(bytes, expect) => relay(self, expect, &bytes),
            Said::Nothing => {
                self.end_unasked(whose.level);
                self.on_asked(key, (part, station), None, b"", Some(Fault::Denied));
            }
        }
        if let Some(cap) = cap {
            self.cap_keys(key, part, child, cap);
        }
    }

    /// Has what a request of Redis wrote to a gutter expire.
    fn cap_keys(&mut self, key: Key<Box<Trip>>, part: u16, gutter: u16, cap: Duration) {
        let Some(trip) = self.plane.routes.trips.get(key) else { return };
        let Speech::Redis { args, .. } = &trip.speech else { return };
        let Ok(request) = Request::resolve(Args::new(&trip.bytes, args)) else { return };
        if redis::nature_of(&request) == Nature::Read {
            return;
        }
        let millis = cap.as_millis().to_string();
        let mut all = Vec::new();
        if request.keys(&mut all).is_err() {
            return;
        }
        let lot = &trip.parts[usize::from(part)].keys;
        let is_of_lot = |index: usize| lot.is_empty() || lot.contains(&(index as u32));
        let mut requests = Vec::new();
        for (_, at) in all.iter().enumerate().filter(|(index, _)| is_of_lot(*index)) {
            let mut out = Vec::new();
            reply::array(&mut out, 4);
            let words = [b"PEXPIRE", &request.args[*at as usize], millis.as_bytes(), b"LT"];
            words.iter().for_each(|word| reply::bulk(&mut out, word));
            requests.push(out);
        }
        let whose = Whose::of_trip(trip);
        for bytes in requests {
            let relay = RelayFor::Nobody;
            self.send(whose.level, Question::Own(Errand { relay, whose, pool: gutter, bytes }));
        }
    }

    /// A child has answered, or will not.
    pub(super) fn on_asked(
        &mut self,
        key: Key<Box<Trip>>,
        (part, station): (u16, u8),
        expect: Option<Expect>,
        reply: &[u8],
        fault: Option<Fault>,
    ) {
        let plan = Arc::clone(&self.plane.plan);
        let Some(trip) = self.plane.routes.trips.get_mut(key) else { return };
        trip.relays -= 1;
        let Some(routes) = routes_of(&plan, trip.pool) else { return };
        let (own, mut verdict) = (trip.pool, verdict_of(trip, part, reply, fault));
        let child = trip.parts[usize::from(part)].course.child(station);
        if verdict.is_failed() {
            RouteTotals::note(&routes.totals.child_failures);
            self.plane.tell_of_child(&plan, routes, (own, child));
        }
        let is_gone = self.is_gone(key);
        let Some(trip) = self.plane.routes.trips.get_mut(key) else { return };
        if is_gone {
            trip.parts.iter_mut().for_each(|part| part.course.abandon());
        } else if verdict.is_failed() && takes_apart(trip, routes) {
            note_step(routes);
            return self.take_apart(key, routes);
        }
        let mut added = None;
        if verdict == Verdict::Good && !is_gone {
            (verdict, added) = look_further(trip, part, station, reply);
        }
        let place = &mut trip.parts[usize::from(part)];
        let next = place.course.on_verdict(station, verdict);
        if place.course.is_best(station) {
            place.reply.clear();
            place.reply.extend_from_slice(reply);
            place.fault = fault;
            place.expect = expect;
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

    fn is_gone(&self, key: Key<Box<Trip>>) -> bool {
        let trip = self.plane.routes.trips.get(key);
        trip.is_none_or(|trip| self.sessions.get(trip.session).is_none())
    }

    /// Where a request goes on elsewhere, its client's next one waits: it would be there
    /// first.
    fn hold_client_of(&mut self, key: Key<Box<Trip>>, routes: &RoutePlan) {
        if matches!(routes.pool, RoutedPool::MissThen(_)) {
            return;
        }
        if let Some(trip) = self.plane.routes.trips.get(key) {
            let client = trip.client;
            self.hold_client(client);
        }
    }

    /// Asks for each key of a request by itself.
    fn take_apart(&mut self, key: Key<Box<Trip>>, routes: &RoutePlan) {
        let Some(trip) = self.plane.routes.trips.get_mut(key) else { return };
        let count = key_count(trip);
        let course = course_of(routes, Nature::Read);
        trip.parts.clear();
        trip.parts.extend((0..count).map(|index| Part::new(course.clone(), vec![index as u32])));
        trip.owners = (0..count).map(|index| (index as u16, 0)).collect();
        trip.parts_left = count as u16;
        self.recount(key);
        self.hold_client_of(key, routes);
        self.begin_trip(key);
    }

    /// A part has its reply: the last one is told.
    pub(super) fn finish_part(&mut self, key: Key<Box<Trip>>) {
        let Some(trip) = self.plane.routes.trips.get_mut(key) else { return };
        trip.parts_left -= 1;
        if trip.parts_left > 0 || std::mem::replace(&mut trip.is_told, true) {
            return;
        }
        let trips = std::mem::take(&mut self.plane.routes.trips);
        if let Some(trip) = trips.get(key) {
            self.plane.tell_client(&mut self.sessions, trip);
        }
        self.plane.routes.trips = trips;
    }

    /// Nobody it asked has yet to answer, and its client was told.
    pub(super) fn forget_if_over(&mut self, key: Key<Box<Trip>>) {
        let state = &mut self.plane.routes;
        let Some(trip) = state.trips.get(key) else { return };
        if trip.is_told && trip.relays == 0 {
            state.held -= trip.counted;
            state.trips.remove(key);
        }
    }

    /// What a trip holds has changed.
    fn recount(&mut self, key: Key<Box<Trip>>) {
        let state = &mut self.plane.routes;
        let mut trips = std::mem::take(&mut state.trips);
        if let Some(trip) = trips.get_mut(key) {
            state.count_held(trip);
        }
        state.trips = trips;
    }
}

impl Plane {
    fn tell_client(&mut self, sessions: &mut Slab<Session>, trip: &Trip) {
        let Some(place) = trip.place else { return self.end_unheard(sessions, trip.session) };
        let Some(session) = sessions.get_mut(trip.session) else { return };
        let fault = trip.fault();
        Self::note_fault_of(session, fault);
        let mut is_error = false;
        self.complete(trip.session, session, place, |out| {
            let start = out.len();
            trip.write(out);
            is_error = out.get(start) == Some(&b'-');
        });
        let cells = self.request_cells(trip.pool, trip.counted_as);
        cells.latency(trip.started, self.clock.now);
        match fault {
            Some(fault @ (Fault::Backend { .. } | Fault::Unrouted)) => cells.fault(fault),
            _ if is_error => cells.error_reply(),
            _ => {}
        }
    }

    /// Writes to the log, at most once a minute, that a child fails.
    #[cold]
    fn tell_of_child(&self, plan: &Plan, routes: &RoutePlan, (pool, child): (u16, u16)) {
        if routes.trouble.is_due(self.clock.now) {
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
}

/// How long what is written to that child may live.
fn cap_of(plan: &Plan, pool: u16, child: u16) -> Option<Duration> {
    match &routes_of(plan, pool)?.pool {
        RoutedPool::Failover(failover) => {
            failover.gutter.filter(|gutter| gutter.pool == child).map(|gutter| gutter.ttl_max)
        }
        _ => None,
    }
}

/// Keys that may be asked for by themselves.
fn key_count(trip: &Trip) -> usize {
    match &trip.speech {
        Speech::Redis { args, cut, .. } => cut.map_or(1, |(stride, _)| (args.len() - 1) / stride),
        Speech::Memcached { request, .. } => request.keys.len(),
    }
}

fn verdict_of(trip: &Trip, part: u16, reply: &[u8], fault: Option<Fault>) -> Verdict {
    match &trip.speech {
        Speech::Redis { command, .. } => {
            let nature = trip.parts[usize::from(part)].course.nature();
            redis::verdict_of(command.verb, nature, reply, fault)
        }
        Speech::Memcached { request, wire, .. } => {
            memcached::verdict_of(&request.head, reply, *wire, fault)
        }
    }
}

/// Whether a read of many keys, which failed, goes on with each of them by itself: only
/// those of the server that failed are to be asked for elsewhere.
fn takes_apart(trip: &Trip, routes: &RoutePlan) -> bool {
    let is_read = trip.parts[0].course.nature() == Nature::Read;
    let many = (2..=PARTS_MAX).contains(&key_count(trip));
    let goes_on = matches!(routes.pool, RoutedPool::Failover(_) | RoutedPool::ReadWriteSplit(_));
    goes_on && trip.owners.is_empty() && is_read && many
}

/// Looks for missing keys among those that were asked for together. If all are, the child
/// had nothing; some are a part of their own, to be asked for further on.
fn look_further(trip: &mut Trip, part: u16, station: u8, reply: &[u8]) -> (Verdict, Option<u16>) {
    let place = &trip.parts[usize::from(part)];
    if place.course.way() != AskOrder::UntilFound {
        return (Verdict::Good, None);
    }
    let misses = match &trip.speech {
        Speech::Redis { command, .. } if command.verb == Verb::Mget => redis::misses(reply),
        Speech::Memcached { request, .. } if place.keys.len() > 1 => {
            let keys = place.keys.iter().map(|&key| request.key(&trip.bytes, key as usize));
            Some(memcached::misses(reply, keys))
        }
        _ => None,
    };
    let Some(misses) = misses else { return (Verdict::Good, None) };
    if misses.iter().all(|is_missing| *is_missing) {
        return (Verdict::Missed, None);
    }
    let missing = place.keys.iter().zip(&misses).filter(|(_, is_missing)| **is_missing);
    let missing: Vec<u32> = missing.map(|(key, _)| *key).collect();
    let behind = place.course.behind(station);
    if missing.is_empty() || behind.is_empty() {
        return (Verdict::Good, None);
    }
    let course =
        Course::new(AskOrder::UntilFound, Nature::Read, behind.iter().copied()).after_miss();
    let added = trip.parts.len() as u16;
    for (index, key) in missing.iter().enumerate() {
        trip.owners[*key as usize] = (added, index as u32);
    }
    let mut rest = Part::new(course, missing);
    match &trip.speech {
        Speech::Redis { protocol, .. } => {
            reply::array(&mut rest.reply, rest.keys.len());
            (0..rest.keys.len()).for_each(|_| protocol.null(&mut rest.reply));
        }
        Speech::Memcached { .. } => rest.reply.extend_from_slice(b"END\r\n"),
    }
    trip.parts.push(rest);
    trip.parts_left += 1;
    (Verdict::Good, Some(added))
}

/// The request for a child: with these keys alone, or all if there are none.
fn say(trip: &Trip, keys: &[u32], cap: Option<Duration>, now_unix: i64) -> Said {
    let is_whole = keys.is_empty() || keys.len() == key_count(trip);
    match &trip.speech {
        Speech::Redis { .. } if is_whole => Said::AsItCame,
        Speech::Redis { command, args, cut, .. } => {
            let stride = cut.map_or(1, |(stride, _)| stride);
            let mut out = Vec::new();
            reply::array(&mut out, 1 + keys.len() * stride);
            reply::bulk(&mut out, command.name.as_bytes());
            for key in keys {
                let first = 1 + *key as usize * stride;
                for arg in &args[first..first + stride] {
                    reply::bulk(&mut out, arg.of(&trip.bytes));
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
            let keys = lot.iter().map(|&key| request.key(&trip.bytes, key as usize));
            let mut out = Vec::new();
            let value = request.value.of(&trip.bytes);
            match compose_request(&mut out, head.dialect, &head, keys, value) {
                Ok(expect) => Said::Anew(out, Some(expect)),
                Err(_) => Said::Nothing,
            }
        }
    }
}
