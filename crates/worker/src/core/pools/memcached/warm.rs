//! Pools that are warmed up from an old one: which requests concern it, and
//! the hauls ([`Haul`]) that bring items over, one exchange after the other.
//!
//! A read is sent to the new pool as ever; what it misses is brought over, and then it
//! is sent again. A write waits until all its client sent before is answered, has the
//! old pool seen to, and is sent then; its client's next request waits for it. Keys
//! whose server is the same in both pools go the ordinary way.

use super::pool::dialect_for;
use super::{Call, Plane, Step};
use crate::core::pending::multi_step::Due;
use crate::core::{Connection, LinkIndex};
use crate::{PoolPlan, WarmUpPlan};
use keyway_base::{BackendFault, Fault, Key, Sent, Slab, Time};
use keyway_command::Counted;
use keyway_memcache::{
    Dialect, Outcome, ParseLimits, Parsed, Request, Verb, Wire, compose_request, parse_request,
    write_end, write_reply,
};
use keyway_proxy::memcached::{Aim, Gather, Haul, Place, Terms, Warming, Warmth, warmth_of};
use keyway_proxy::{Owner, Session};
use keyway_topology::ServerSet;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Items of one request that are brought over at a time: each is held meanwhile.
const HAULS_AT_ONCE: usize = 16;
/// The same of all a worker's requests; those beyond wait for their turn.
const HAULS_MAX: usize = 64;

/// Requests of a worker that wait for items, before clients that have sent others are left
/// unread.
const WARMINGS_MAX: usize = 128;

/// How many items a worker brings over now, and which requests wait to bring more.
#[derive(Default)]
pub(super) struct Hauling {
    begun: usize,
    held_up: VecDeque<Key<Warming>>,
}

impl Hauling {
    /// Number of items on their way, and of requests that wait to bring more.
    pub(super) fn len(&self) -> usize {
        self.begun + self.held_up.len()
    }
}

/// What an old pool has to do with a request on its way to the new one.
pub(super) enum Warm {
    /// What it misses is brought over.
    Watched,
    /// The old pool was seen to.
    Resumed {
        /// The place of its reply.
        sequence: u32,
        /// When it was parsed.
        started: Time,
        /// The old pool had what it deletes.
        is_deleted: bool,
    },
}

impl Warm {
    /// Tells the gather that answers the request.
    pub(super) fn mark(&self, gather: &mut Gather, bytes: &[u8]) {
        match self {
            Warm::Watched => gather.watched = Some(bytes.to_vec()),
            Warm::Resumed { started, is_deleted, .. } => {
                gather.started = *started;
                gather.is_deleted = *is_deleted;
            }
        }
    }
}

impl super::State {
    /// Who waits for items that are brought over.
    pub(in crate::core) fn session_of_warming(&self, key: Key<Warming>) -> Option<Key<Session>> {
        Some(self.warmings.get(key)?.session)
    }
}

/// How it is with the old pool.
enum Old {
    /// The key's server is the same there.
    Same,
    /// Another server has it there.
    Server(u16),
    /// None of its servers is in use.
    Unusable,
}

fn warm_up_of(plan: &crate::Plan, pool: u16) -> Option<(&ServerSet, &WarmUpPlan)> {
    let kind = &plan.pools[usize::from(pool)].kind;
    Some((&kind.upstream()?.servers, kind.warm_up()?))
}

impl Plane {
    /// Starts a request for a pool that is warmed up.
    #[cold]
    #[inline(never)]
    pub(super) fn warm_memcached(
        &mut self,
        links: &mut [Connection],
        (pool, sharded, warm_up): (&PoolPlan, &ServerSet, &WarmUpPlan),
        to: Dialect,
        call: &mut Call<'_>,
    ) -> Step {
        if call.head().verb == Verb::Stats && call.asker().key == b"warm" {
            return self.tell_warm_up(warm_up, call);
        }
        let warmth = warmth_of(call.head());
        if warmth == Warmth::None || !warm_up.is_active(self.clock.now) {
            return self.send_memcached(links, (pool, sharded), to, call);
        }
        if warmth == Warmth::Read {
            if self.stays((sharded, warm_up), call) {
                return self.send_memcached(links, (pool, sharded), to, call);
            }
            // Too many wait already: it is sent alone, when it can be the next.
            if self.memcached.warmings.len() >= WARMINGS_MAX && !call.session.is_quiet(call.busy) {
                call.session.fence();
                return Step::Wait;
            }
            call.warm = Some(Warm::Watched);
            return self.send_memcached(links, (pool, sharded), to, call);
        }
        let Some((hauls, is_strict)) = self.hauls_of_write((sharded, warm_up), warmth, call) else {
            return self.send_memcached(links, (pool, sharded), to, call);
        };
        // What the client sent before comes first, and what it sends later last.
        if !call.session.is_quiet(call.busy) {
            call.session.fence();
            return Step::Wait;
        }
        for haul in &hauls {
            let link = self.memcached_link(warm_up.from, haul.from, call.session.lane);
            if self.is_full(&links[link]) {
                return Step::Full(link);
            }
        }
        self.count_memcached(call);
        call.session.fence();
        let wire = super::wire_of(call.head());
        let warming = Warming {
            session: call.key,
            sequence: call.reserve(),
            started: self.clock.now,
            counted: call.counted(),
            pool: call.session.pool,
            request: call.bytes.to_vec(),
            wire,
            hauls,
            missed: None,
            is_strict,
            is_due: true,
            is_held_up: false,
        };
        let key = self.memcached.warmings.insert(warming);
        self.pending.multi_step.due.push(Due::Warm(key));
        Step::Started
    }

    /// Whether the only key of a request has the same server in both pools.
    fn stays(&mut self, (sharded, warm_up): (&ServerSet, &WarmUpPlan), call: &Call<'_>) -> bool {
        if call.request.keys.len() != 1 {
            return false;
        }
        let key = call.asker().key;
        let to = self.server_of(call.session.pool, sharded, key);
        to.is_some_and(|to| matches!(self.old_place(warm_up, key, to), Old::Same))
    }

    /// What a write needs of the old pool; `None` when nothing. Whether it fails where
    /// that does comes with it.
    fn hauls_of_write(
        &mut self,
        (sharded, warm_up): (&ServerSet, &WarmUpPlan),
        warmth: Warmth,
        call: &Call<'_>,
    ) -> Option<(Vec<Haul>, bool)> {
        let (aim, is_strict) = match warmth {
            Warmth::Modify { is_needed } => (Aim::Modify, is_needed),
            Warmth::Clear => (Aim::Clear, true),
            Warmth::Flush => {
                let aim = Aim::Flush(call.head().expiry);
                let hauls: Vec<Haul> = self.servers_to_flush(warm_up, aim);
                return (!hauls.is_empty()).then_some((hauls, true));
            }
            Warmth::Read | Warmth::None => return None,
        };
        let key = call.asker().key;
        let to = self.server_of(call.session.pool, sharded, key)?;
        match self.old_place(warm_up, key, to) {
            Old::Server(from) => {
                Some((vec![Haul::new(aim, warm_up.terms, key, (from, to))], is_strict))
            }
            Old::Unusable => {
                warm_up.totals.note_unasked();
                None
            }
            Old::Same => None,
        }
    }

    /// The old servers in use that are none of the new pool's.
    fn servers_to_flush(&self, warm_up: &WarmUpPlan, aim: Aim) -> Vec<Haul> {
        let from = usize::from(warm_up.from);
        let (health, topology) = (&self.plan.health, &self.plan.topology);
        let servers = warm_up.same.iter().enumerate().filter(|(server, same)| {
            same.is_none() && health.is_usable(topology.backend_id(from, *server))
        });
        let haul = |(server, _)| Haul::new(aim, warm_up.terms, b"", (server as u16, 0));
        servers.map(haul).collect()
    }

    fn old_place(&mut self, warm_up: &WarmUpPlan, key: &[u8], to: u16) -> Old {
        let plan = Arc::clone(&self.plan);
        let Some(old) = plan.pools[usize::from(warm_up.from)].kind.upstream() else {
            return Old::Unusable;
        };
        match self.server_of(warm_up.from, &old.servers, key) {
            Some(from) if warm_up.same[usize::from(from)] == Some(to) => Old::Same,
            Some(from) => Old::Server(from),
            None => Old::Unusable,
        }
    }

    /// Looks at the replies to a read. What it missed is brought over first, unless there
    /// is nothing to bring: then the gather is given back to be answered.
    #[cold]
    pub(super) fn warm_read(
        &mut self,
        sessions: &Slab<Session>,
        gather: Box<Gather>,
        request: Vec<u8>,
    ) -> Option<Box<Gather>> {
        let plan = Arc::clone(&self.plan);
        let Some((sharded, warm_up)) = warm_up_of(&plan, gather.pool) else { return Some(gather) };
        let owner = gather.session.filter(|&owner| sessions.get(owner).is_some());
        let (Some(session), Some(misses)) = (owner, gather.misses()) else { return Some(gather) };
        let (mut hauls, mut hits) = (Vec::new(), 0);
        let mut seen = BTreeSet::new();
        for (key, is_missed) in gather.keys().zip(misses) {
            // One that is asked for twice is brought over once.
            if is_missed && !seen.insert(key) {
                continue;
            }
            let Some(to) = self.server_of(gather.pool, sharded, key) else { continue };
            match self.old_place(warm_up, key, to) {
                Old::Server(_) if !is_missed => hits += 1,
                Old::Server(from) => {
                    hauls.push(Haul::new(Aim::Read, warm_up.terms, key, (from, to)));
                }
                Old::Unusable if is_missed => warm_up.totals.note_unasked(),
                Old::Unusable | Old::Same => {}
            }
        }
        if hits > 0 {
            warm_up.totals.note_new_hits(hits);
        }
        if hauls.is_empty() {
            return Some(gather);
        }
        let wire = sessions.get(session).and_then(|one| one.memcached?.wire).unwrap_or(Wire::Text);
        let warming = Warming {
            session,
            sequence: gather.sequence,
            started: gather.started,
            counted: gather.counted,
            pool: gather.pool,
            request,
            wire,
            hauls,
            missed: Some(gather),
            is_strict: false,
            is_due: true,
            is_held_up: false,
        };
        let key = self.memcached.warmings.insert(warming);
        self.pending.multi_step.due.push(Due::Warm(key));
        None
    }

    /// Returns whether items are on their way to or from a pool that is being ended.
    #[cold]
    pub(in crate::core) fn is_warming(&self, pool: u16) -> bool {
        let is_of = |other: u16| {
            let from = warm_up_of(&self.plan, other).map(|(_, warm_up)| warm_up.from);
            other == pool || from == Some(pool)
        };
        self.memcached.warmings.iter().any(|(_, warming)| is_of(warming.pool))
    }

    /// Returns whether a pool that has not ended here is warmed up from this one, and may still ask
    /// it for items.
    #[cold]
    pub(in crate::core) fn warms_up(&self, pool: u16) -> bool {
        let is_from = |other: u16| {
            warm_up_of(&self.plan, other).is_some_and(|(_, warm_up)| warm_up.from == pool)
        };
        let mut pools = 0..self.plan.pools.len() as u16;
        pools.any(|other| !self.ended.contains(&other) && is_from(other))
    }

    /// Takes what came of a haul's last request.
    #[cold]
    pub(in crate::core) fn on_warming_reply(
        &mut self,
        key: Key<Warming>,
        haul: u32,
        outcome: Result<&[u8], Fault>,
    ) {
        let unix_secs = (self.clock.unix_micros / 1_000_000) as i64;
        let Some(warming) = self.memcached.warmings.get_mut(key) else { return };
        let Some(haul) = warming.hauls.get_mut(haul as usize) else { return };
        match outcome {
            Ok(reply) => haul.on_reply(reply, unix_secs),
            Err(fault) => haul.on_fault(fault),
        }
        if !std::mem::replace(&mut warming.is_due, true) {
            self.pending.multi_step.due.push(Due::Warm(key));
        }
    }

    /// Sends what the hauls of a request ask next, and the request when they are over.
    #[cold]
    pub(in crate::core) fn continue_warming(
        &mut self,
        sessions: &mut Slab<Session>,
        links: &mut [Connection],
        key: Key<Warming>,
    ) {
        let plan = Arc::clone(&self.plan);
        let Some(warming) = self.memcached.warmings.get_mut(key) else { return };
        warming.is_due = false;
        let (pool, owner, counted) = (warming.pool, warming.session, warming.counted);
        let Some((_, warm_up)) = warm_up_of(&plan, pool) else { return };
        let mut hauls = std::mem::take(&mut warming.hauls);
        let mut on_their_way = 0;
        for (index, haul) in hauls.iter_mut().enumerate() {
            if haul.end().is_some() {
                continue;
            }
            on_their_way += 1;
            if on_their_way > HAULS_AT_ONCE {
                break;
            }
            if !haul.is_begun {
                if self.memcached.hauling.begun == HAULS_MAX {
                    self.hold_up(key);
                    break;
                }
                self.memcached.hauling.begun += 1;
                haul.is_begun = true;
            }
            while let Some(place) = haul.place() {
                let link = match place {
                    Place::Old => self.memcached_link(warm_up.from, haul.from, owner.index()),
                    Place::New => self.memcached_link(pool, haul.to, owner.index()),
                };
                let owner = Owner::Warming { warming: key, haul: index as u32 };
                self.send_haul((links, link), haul, (owner, counted));
            }
        }
        for haul in hauls.iter_mut().filter(|haul| haul.end().is_some()) {
            self.memcached.hauling.begun -= usize::from(std::mem::take(&mut haul.is_begun));
            haul.forget_value();
        }
        self.go_on_held_up();
        let Some(warming) = self.memcached.warmings.get_mut(key) else { return };
        warming.hauls = hauls;
        if warming.is_over()
            && let Some(warming) = self.memcached.warmings.remove(key)
        {
            warming.hauls.iter().for_each(|haul| warm_up.totals.note(haul));
            self.finish_warming(sessions, links, warming);
        }
    }

    /// Lets a request wait until others have brought their items over.
    fn hold_up(&mut self, key: Key<Warming>) {
        if let Some(warming) = self.memcached.warmings.get_mut(key)
            && !std::mem::replace(&mut warming.is_held_up, true)
        {
            self.memcached.hauling.held_up.push_back(key);
        }
    }

    /// Lets the next of them go on, if there is room; whoever it is sees to the one after.
    fn go_on_held_up(&mut self) {
        let super::State { hauling, warmings, .. } = &mut self.memcached;
        while hauling.begun < HAULS_MAX
            && let Some(key) = hauling.held_up.pop_front()
        {
            let Some(warming) = warmings.get_mut(key) else { continue };
            warming.is_held_up = false;
            if !std::mem::replace(&mut warming.is_due, true) {
                return self.pending.multi_step.due.push(Due::Warm(key));
            }
        }
    }

    /// Returns whether as many requests as a link has room for have had no reply in time. Hauls do not
    /// wait for room: without this, those to a silent server would pile up, as each one gives way to
    /// the next when its time is up.
    fn owes_many(&self, connection: &Connection) -> bool {
        let late = connection.link.in_flight() - connection.link.live();
        late >= self.link_options(connection.pool).in_flight_max as usize
    }

    fn send_haul(
        &mut self,
        (links, index): (&mut [Connection], LinkIndex),
        haul: &mut Haul,
        (owner, counted): (Owner, Counted),
    ) {
        let connection = &mut links[index];
        if let Some(fault) = self.refused(connection) {
            return haul.on_fault(fault);
        }
        if haul.is_looking_up() && self.owes_many(connection) {
            return haul.on_fault(Fault::Backend { fault: BackendFault::Timeout, sent: Sent::No });
        }
        self.prepare_link(index, connection, 0);
        let out = connection.link.request_buf();
        let start = out.len();
        let Some(expect) = haul.compose(out) else { return };
        let len = out.len() - start;
        connection.link.enqueue(owner, counted, len, self.clock.now);
        connection.link.set_expect(expect);
        self.note_unsent(index, connection);
    }

    /// Answers a request whose hauls are over, or sends it at last.
    fn finish_warming(
        &mut self,
        sessions: &mut Slab<Session>,
        links: &mut [Connection],
        mut warming: Warming,
    ) {
        let Some(session) = sessions.get_mut(warming.session) else {
            return self.finish_unheard(links, &warming);
        };
        if !warming.has_news()
            && let Some(gather) = warming.missed.take()
        {
            self.note_gather(&gather);
            if let Some(fault) = gather.fault() {
                session.note_fault(fault);
            }
            let mut told = Vec::new();
            self.write_gather(&gather, &mut told);
            self.complete(warming.session, session, gather.sequence, |out| {
                out.extend_from_slice(&told);
            });
            return self.memcached.free.give(gather);
        }
        let Some(mut busy) = session.busy.take() else { return };
        let plan = Arc::clone(&self.plan);
        let mut request = Request::default();
        let len_max = session.memcached.map_or(0, |client| client.item_len_max);
        let limits = ParseLimits::of(&plan.limits, len_max);
        let parsed = parse_request(&warming.request, warming.wire, &limits, &mut request);
        debug_assert!(matches!(parsed, Parsed::Ready { .. }), "it was parsed before");
        let warm = Warm::Resumed {
            sequence: warming.sequence,
            started: warming.started,
            is_deleted: warming.has_deleted(),
        };
        // Another pool may have led here.
        let own = std::mem::replace(&mut session.pool, warming.pool);
        let mut call = Call {
            key: warming.session,
            session,
            busy: &mut busy,
            request: &request,
            bytes: &warming.request,
            warm: Some(warm),
        };
        self.resume_warmed(links, &warming, &mut call);
        session.pool = own;
        session.busy = Some(busy);
        self.mark_session_dirty(warming.session, session);
        if session.paused && session.waits_for.is_none() {
            self.mark_session_resuming(warming.session, session);
        }
    }

    /// Sends a write whose client has left: it was received whole.
    fn finish_unheard(&mut self, links: &mut [Connection], warming: &Warming) {
        let plan = Arc::clone(&self.plan);
        let Some((sharded, warm_up)) = warm_up_of(&plan, warming.pool) else { return };
        let mut request = Request::default();
        let limits = ParseLimits::of(&plan.limits, u32::MAX);
        let bytes = &warming.request[..];
        let parsed = parse_request(bytes, warming.wire, &limits, &mut request);
        let is_whole = matches!(parsed, Parsed::Ready { .. });
        if !is_whole || request.keys.len() != 1 || warming.missed.is_some() {
            return;
        }
        let to = self.server_of(warming.pool, sharded, request.key(bytes, 0));
        let (Some(to), None) = (to, warming.refusal()) else { return };
        let index = self.memcached_link(warming.pool, to, warming.session.index());
        let connection = &mut links[index];
        if connection.link.is_down(self.clock.now) || !self.lets_through(connection) {
            return;
        }
        self.prepare_link(index, connection, 0);
        let out = connection.link.request_buf();
        let start = out.len();
        let value = request.value.of(bytes);
        let words = dialect_for(&request, warm_up.terms.new);
        let composed = compose_request(out, words, &request.head, request.keys(bytes), value);
        let Ok(expect) = composed else { return };
        let len = out.len() - start;
        connection.link.enqueue(Owner::Unheard(Key::NONE), warming.counted, len, self.clock.now);
        connection.link.set_expect(expect);
        self.note_unsent(index, connection);
    }

    fn resume_warmed(&mut self, links: &mut [Connection], warming: &Warming, call: &mut Call<'_>) {
        let plan = Arc::clone(&self.plan);
        let pool = &plan.pools[usize::from(warming.pool)];
        let Some((sharded, warm_up)) = warm_up_of(&plan, warming.pool) else { return };
        match warming.refusal() {
            Some((backend, fault)) => {
                let text = self.describe_backend(warm_up.from, backend);
                self.count_fault(warming.pool, warming.counted, fault);
                self.tell_failure(call, fault, &text);
            }
            None => {
                let Terms { new, .. } = warm_up.terms;
                let step = self.send_memcached(links, (pool, sharded), new, call);
                debug_assert!(matches!(step, Step::Started), "it has its place");
            }
        }
    }

    /// Answers `stats warm`.
    fn tell_warm_up(&mut self, warm_up: &WarmUpPlan, call: &mut Call<'_>) -> Step {
        self.count_memcached(call);
        let is_active = warm_up.is_active(self.clock.now);
        let figures = warm_up.totals.figures(is_active);
        let reads = figures.new_hits + figures.lookups;
        let share = figures.new_hits as f64 * 100.0 / reads.max(1) as f64;
        let left = warm_up.until.map(|until| until.since(self.clock.now).as_secs());
        let lines = [
            ("warm_from", self.plan.pools[usize::from(warm_up.from)].name.clone()),
            ("warm_active", u8::from(is_active).to_string()),
            ("warm_seconds_left", left.map_or_else(|| "-1".to_owned(), |left| left.to_string())),
            ("warm_new_hits", figures.new_hits.to_string()),
            ("warm_lookups", figures.lookups.to_string()),
            ("warm_old_hits", figures.old_hits.to_string()),
            ("warm_fills", figures.fills.to_string()),
            ("warm_failed_fills", figures.failed_fills.to_string()),
            ("warm_withdrawn_fills", figures.withdrawn_fills.to_string()),
            ("warm_stranded_fills", figures.stranded_fills.to_string()),
            ("warm_old_errors", figures.old_errors.to_string()),
            ("warm_share_percent", format!("{share:.1}")),
        ];
        let asker = call.asker();
        let mut told = Vec::new();
        for (name, value) in &lines {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            write_reply(&mut told, &asker, &Outcome::Stat { name, value });
        }
        write_end(&mut told, call.head());
        let place = call.reserve();
        call.busy.order.complete(place, &mut call.busy.output, |out| out.extend_from_slice(&told));
        Step::Started
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Core;
    use crate::core::tests::{client, output, pass_to, plan_of};
    use keyway_net::Socket;
    use keyway_topology::{MemcachedPool, Pool, PoolKind, Server, WarmUp};
    use std::time::Duration;

    #[test]
    fn lookups_at_a_silent_old_server_do_not_pile_up() {
        const IN_FLIGHT_MAX: usize = 16;
        let pool = |name: &str, port, warm_up| {
            let server = Server::parse(&format!("127.0.0.1:{port}:1")).unwrap();
            let mut servers = ServerSet::new(vec![server]);
            servers.options.timeout = Duration::from_millis(100);
            servers.options.link_in_flight_max = IN_FLIGHT_MAX as u32;
            let dialect = Dialect::Text;
            let pool = MemcachedPool { servers, dialect, user: None, warm_up };
            Pool { name: name.to_owned(), kind: PoolKind::Memcached(pool) }
        };
        let (from, ttl_max) = ("old".to_owned(), Duration::from_secs(3600));
        let warm_up = Some(WarmUp { from, ttl_max, lasts: None });
        let (mut plan, cells) = plan_of(vec![pool("new", 1, warm_up), pool("old", 2, None)]);
        Arc::get_mut(&mut plan).unwrap().listeners[0].memcached = Some(1 << 20);
        let mut core = Core::new(plan, cells, 1);
        let send_all = |core: &mut Core, index: LinkIndex| {
            let link = &mut core.links[index].link;
            link.advance(link.unsent().len());
        };
        let client = client(&mut core);
        let links = [0, 1].map(|pool| core.plane.memcached_link(pool, 0, client.index()));
        for (socket, index) in (1..).zip(links) {
            core.on_connecting(index);
            core.on_connected(index, Socket(socket));
            send_all(&mut core, index);
            core.on_backend_bytes(index, b"VERSION 1.6.18\r\n").unwrap();
        }
        let [new, old] = links;
        for round in 0..40 {
            pass_to(&mut core, round * 200);
            core.on_client_bytes(client, b"get k\r\n".repeat(8).as_slice());
            send_all(&mut core, new);
            core.on_backend_bytes(new, b"END\r\n".repeat(8).as_slice()).unwrap();
            core.continue_errands();
            send_all(&mut core, old);
            pass_to(&mut core, round * 200 + 100);
            core.continue_errands();
        }
        assert_eq!(output(&core, client).matches("END").count(), 40 * 8, "all are told of a miss");
        let in_flight = core.links[old].link.in_flight();
        assert!((IN_FLIGHT_MAX..=IN_FLIGHT_MAX + HAULS_MAX).contains(&in_flight), "{in_flight}");
    }
}
