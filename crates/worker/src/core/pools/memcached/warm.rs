//! Pools that are warmed up from an old pool: the requests that concern it, and the item copies
//! ([`ItemCopy`]) that bring items over, one exchange after the other.
//!
//! A read is first sent to the new pool as ever. Items that it misses are brought over, and then it
//! is sent again. A write waits until all requests that its client sent before are answered. Then
//! the old pool is dealt with, and then the write is sent; its client's next request waits for it.
//! Requests for keys whose server is the same in both pools go the ordinary way.

use super::pool::dialect_for;
use crate::WarmUpPlan;
use crate::core::Plane;
use crate::core::pending::Due;
use crate::core::pools::memcached::state::Call;
use crate::core::pools::memcached::state::PoolServers;
use crate::core::pools::memcached::state::Warm;
use crate::core::pools::memcached::state::memcached_link;
use crate::core::pools::memcached::state::wire_of;
use crate::core::request::Step;
use crate::core::{Connection, ConnectionKey, Connections};
use keyway_base::{BackendFault, Fault, Key, Sent, Slab};
use keyway_command::Counted;
use keyway_memcache::{
    Dialect, ParseLimits, Parsed, Request, Verb, Wire, compose_request, parse_request,
};
use keyway_proxy::memcached::{
    Aim, ItemCopy, MemcachedJoin, Terms, WarmUpPool, WarmUpRead, Warmth, warmth_of,
};
use keyway_proxy::{Operation, Owner, ReplyTo, Session};
use keyway_topology::{ServerId, ServerSet};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The most items of one request that are brought over at a time. Each is held in memory meanwhile.
const ITEM_COPIES_AT_ONCE: usize = 16;
/// The most items of all requests of a worker that are brought over at a time. Further requests
/// wait for their turn.
const ITEM_COPIES_MAX: usize = 64;

/// The most requests of a worker that may wait for items. Beyond this, clients that have sent other
/// requests are left unread.
const WARM_UP_READS_MAX: usize = 128;

/// The server of a key in the old pool.
enum Old {
    /// On the same server as the new pool.
    Same,
    /// On another server, with this index.
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
        links: &mut Connections,
        at: PoolServers<'_>,
        warm_up: &WarmUpPlan,
        to: Dialect,
        call: &mut Call<'_>,
    ) -> Step {
        if call.head().verb == Verb::Stats && call.asker().key == b"warm" {
            return self.tell_warm_up(warm_up, call);
        }
        let warmth = warmth_of(call.head());
        if warmth == Warmth::None || !warm_up.is_active(self.clock.now) {
            return self.send_memcached(links, at, to, call);
        }
        if warmth == Warmth::Read {
            if self.stays(at.servers, warm_up, call) {
                return self.send_memcached(links, at, to, call);
            }
            // Too many requests wait already. This one waits until its client has no other request
            // on its way.
            if self.pending.count::<WarmUpRead>() >= WARM_UP_READS_MAX
                && !call.session.is_quiet(call.busy)
            {
                call.session.fence();
                return Step::Wait;
            }
            call.warm = Some(Warm::Watched);
            return self.send_memcached(links, at, to, call);
        }
        let Some((item_copies, is_strict)) =
            self.item_copies_of_write(at.servers, warm_up, warmth, call)
        else {
            return self.send_memcached(links, at, to, call);
        };
        // The requests that the client sent before come first, and those that it sends later come
        // last.
        if !call.session.is_quiet(call.busy) {
            call.session.fence();
            return Step::Wait;
        }
        let Some(old) = self.pools[usize::from(warm_up.from)].shared() else {
            return self.send_memcached(links, at, to, call);
        };
        for item_copy in &item_copies {
            let link = memcached_link(&old, item_copy.from, call.session.lane);
            if self.is_full(&links[link]) {
                return Step::Full(link);
            }
        }
        self.count_memcached(call);
        call.session.fence();
        let wire = wire_of(call.head());
        let to_client = call.reply_to(self.clock.now);
        let warm_up_read = WarmUpRead {
            request: call.bytes.to_vec(),
            wire,
            item_copies,
            missed: None,
            is_strict,
            is_due: true,
            is_held_up: false,
        };
        let key = self.pending.begin(to_client, Box::new(warm_up_read));
        self.pending.add_due(Due::Next(key));
        Step::Started
    }

    /// Returns whether the only key of a request has the same server in both pools.
    fn stays(&mut self, sharded: &ServerSet, warm_up: &WarmUpPlan, call: &Call<'_>) -> bool {
        if call.request.keys.len() != 1 {
            return false;
        }
        let key = call.asker().key;
        let to = self.server_of(call.session.pool, sharded, key);
        to.is_some_and(|to| matches!(self.old_server(warm_up, key, to), Old::Same))
    }

    /// Returns the item copies that a write needs from the old pool, with whether the write fails
    /// where they fail. Returns `None` when it needs none.
    fn item_copies_of_write(
        &mut self,
        sharded: &ServerSet,
        warm_up: &WarmUpPlan,
        warmth: Warmth,
        call: &Call<'_>,
    ) -> Option<(Vec<ItemCopy>, bool)> {
        let (aim, is_strict) = match warmth {
            Warmth::Modify { is_needed } => (Aim::Modify, is_needed),
            Warmth::Clear => (Aim::Clear, true),
            Warmth::Flush => {
                let aim = Aim::Flush(call.head().expiry);
                let item_copies: Vec<ItemCopy> = self.servers_to_flush(warm_up, aim);
                return (!item_copies.is_empty()).then_some((item_copies, true));
            }
            Warmth::Read | Warmth::None => return None,
        };
        let key = call.asker().key;
        let to = self.server_of(call.session.pool, sharded, key)?;
        match self.old_server(warm_up, key, to) {
            Old::Server(from) => {
                Some((vec![ItemCopy::new(aim, warm_up.terms, key, from, to)], is_strict))
            }
            Old::Unusable => {
                warm_up.totals.note_unasked();
                None
            }
            Old::Same => None,
        }
    }

    /// Returns copies that flush the old servers in use that the new pool does not have.
    fn servers_to_flush(&self, warm_up: &WarmUpPlan, aim: Aim) -> Vec<ItemCopy> {
        let from = usize::from(warm_up.from);
        let (health, topology) = (&self.plan.health, &self.plan.topology);
        let servers = warm_up.same.iter().enumerate().filter(|(server, same)| {
            same.is_none() && health.is_usable(topology.backend_id(from, *server))
        });
        let item_copy = |(server, _)| ItemCopy::new(aim, warm_up.terms, b"", server as u16, 0);
        servers.map(item_copy).collect()
    }

    fn old_server(&mut self, warm_up: &WarmUpPlan, key: &[u8], to: u16) -> Old {
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

    /// Looks at the replies to a read. Items that the read missed are brought over first. When
    /// there is nothing to bring over, the memcached join is returned to be answered.
    #[cold]
    pub(super) fn warm_read(
        &mut self,
        sessions: &Slab<Session>,
        to_client: ReplyTo,
        memcached_join: Box<MemcachedJoin>,
        request: Vec<u8>,
    ) -> Option<Box<MemcachedJoin>> {
        let plan = Arc::clone(&self.plan);
        let Some((sharded, warm_up)) = warm_up_of(&plan, to_client.pool) else {
            return Some(memcached_join);
        };
        let (Some(session), Some(misses)) =
            (sessions.get(to_client.session), memcached_join.misses())
        else {
            return Some(memcached_join);
        };
        let (mut item_copies, mut hits) = (Vec::new(), 0);
        let mut seen = BTreeSet::new();
        for (key, is_missed) in memcached_join.keys().zip(misses) {
            // An item that is asked for twice is brought over once.
            if is_missed && !seen.insert(key) {
                continue;
            }
            let Some(to) = self.server_of(to_client.pool, sharded, key) else { continue };
            match self.old_server(warm_up, key, to) {
                Old::Server(_) if !is_missed => hits += 1,
                Old::Server(from) => {
                    item_copies.push(ItemCopy::new(Aim::Read, warm_up.terms, key, from, to));
                }
                Old::Unusable if is_missed => warm_up.totals.note_unasked(),
                Old::Unusable | Old::Same => {}
            }
        }
        if hits > 0 {
            warm_up.totals.note_new_hits(hits);
        }
        if item_copies.is_empty() {
            return Some(memcached_join);
        }
        let wire = session.memcached.and_then(|client| client.wire).unwrap_or(Wire::Text);
        let warm_up_read = WarmUpRead {
            request,
            wire,
            item_copies,
            missed: Some(memcached_join),
            is_strict: false,
            is_due: true,
            is_held_up: false,
        };
        let key = self.pending.begin(to_client, Box::new(warm_up_read));
        self.pending.add_due(Due::Next(key));
        None
    }

    /// Returns whether items are on their way to or from a pool that is being ended.
    #[cold]
    pub(in crate::core) fn is_warming_up(&self, pool: u16) -> bool {
        let is_of = |other: u16| {
            let from = warm_up_of(&self.plan, other).map(|(_, warm_up)| warm_up.from);
            other == pool || from == Some(pool)
        };
        self.pending.all::<WarmUpRead>().any(|(to_client, _)| is_of(to_client.pool))
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

    /// Takes the outcome of an item copy's last request.
    #[cold]
    pub(in crate::core) fn on_item_copy_outcome(
        &mut self,
        key: Key<Operation>,
        item_copy: u32,
        outcome: Result<&[u8], Fault>,
    ) {
        let unix_secs = (self.clock.unix_micros / 1_000_000) as i64;
        let Some(warm_up_read) = self.pending.get_mut::<WarmUpRead>(key) else { return };
        let Some(item_copy) = warm_up_read.item_copies.get_mut(item_copy as usize) else { return };
        match outcome {
            Ok(reply) => item_copy.on_reply(reply, unix_secs),
            Err(fault) => item_copy.on_fault(fault),
        }
        if !std::mem::replace(&mut warm_up_read.is_due, true) {
            self.pending.add_due(Due::Next(key));
        }
    }

    /// Sends the next requests of a request's item copies, or the request itself when the copies
    /// are over.
    #[cold]
    pub(in crate::core) fn continue_warm_up_read(
        &mut self,
        sessions: &mut Slab<Session>,
        links: &mut Connections,
        key: Key<Operation>,
    ) {
        let plan = Arc::clone(&self.plan);
        let Some(to_client) = self.pending.reply_to(key) else { return };
        let Some(warm_up_read) = self.pending.get_mut::<WarmUpRead>(key) else { return };
        warm_up_read.is_due = false;
        let ReplyTo { pool, session, counted, .. } = to_client;
        let Some((_, warm_up)) = warm_up_of(&plan, pool) else { return };
        let mut item_copies = std::mem::take(&mut warm_up_read.item_copies);
        let [old, new] = [warm_up.from, pool].map(|pool| self.pools[usize::from(pool)].shared());
        let mut on_their_way = 0;
        for (index, item_copy) in item_copies.iter_mut().enumerate() {
            if item_copy.end().is_some() {
                continue;
            }
            on_their_way += 1;
            if on_their_way > ITEM_COPIES_AT_ONCE {
                break;
            }
            if !item_copy.is_begun {
                if self.memcached.copying.begun == ITEM_COPIES_MAX {
                    self.hold_up(key);
                    break;
                }
                self.memcached.copying.begun += 1;
                item_copy.is_begun = true;
            }
            while let Some(next_pool) = item_copy.next_pool() {
                let (shared, server) = match next_pool {
                    WarmUpPool::Old => (&old, item_copy.from),
                    WarmUpPool::New => (&new, item_copy.to),
                };
                let Some(shared) = shared else {
                    item_copy.on_fault(Fault::Unrouted);
                    break;
                };
                let link = memcached_link(shared, server, session.index());
                let owner = Owner::Operation { operation: key, part: index as u32 };
                self.send_item_copy(links, link, item_copy, owner, counted);
            }
        }
        for item_copy in item_copies.iter_mut().filter(|item_copy| item_copy.end().is_some()) {
            self.memcached.copying.begun -= usize::from(std::mem::take(&mut item_copy.is_begun));
            item_copy.forget_value();
        }
        self.go_on_held_up();
        let Some(warm_up_read) = self.pending.get_mut::<WarmUpRead>(key) else { return };
        warm_up_read.item_copies = item_copies;
        if warm_up_read.is_over()
            && let Some((_, warm_up_read)) = self.pending.end::<WarmUpRead>(key)
        {
            warm_up_read.item_copies.iter().for_each(|item_copy| warm_up.totals.note(item_copy));
            self.finish_warm_up_read(sessions, links, to_client, warm_up_read);
        }
    }

    /// Lets a request wait until other requests have brought their items over.
    fn hold_up(&mut self, key: Key<Operation>) {
        if let Some(warm_up_read) = self.pending.get_mut::<WarmUpRead>(key)
            && !std::mem::replace(&mut warm_up_read.is_held_up, true)
        {
            self.memcached.copying.held_up.push_back(key);
        }
    }

    /// Lets the next waiting request go on, if there is room. That request lets the one after it go
    /// on.
    fn go_on_held_up(&mut self) {
        let copying = &mut self.memcached.copying;
        while copying.begun < ITEM_COPIES_MAX
            && let Some(key) = copying.held_up.pop_front()
        {
            let Some(warm_up_read) = self.pending.get_mut::<WarmUpRead>(key) else { continue };
            warm_up_read.is_held_up = false;
            if !std::mem::replace(&mut warm_up_read.is_due, true) {
                return self.pending.add_due(Due::Next(key));
            }
        }
    }

    /// Returns whether as many requests as a link has room for have had no reply in time. Item copies do not
    /// wait for room: without this, those to a silent server would pile up, as each one gives way to
    /// the next when its time is up.
    fn owes_many(&self, connection: &Connection) -> bool {
        let late = connection.link.in_flight() - connection.link.live();
        late >= self.link_options(connection.server_id.pool).in_flight_max as usize
    }

    fn send_item_copy(
        &mut self,
        links: &mut Connections,
        index: ConnectionKey,
        item_copy: &mut ItemCopy,
        owner: Owner,
        counted: Counted,
    ) {
        let connection = &mut links[index];
        if let Some(fault) = self.refused(connection) {
            return item_copy.on_fault(fault);
        }
        if item_copy.is_looking_up() && self.owes_many(connection) {
            return item_copy
                .on_fault(Fault::Backend { fault: BackendFault::Timeout, sent: Sent::No });
        }
        self.prepare_link(index, connection, 0);
        let out = connection.link.request_buf();
        let start = out.len();
        let Some(expect) = item_copy.compose(out) else { return };
        let len = out.len() - start;
        connection.link.enqueue(owner, counted, len, self.clock.now);
        connection.link.set_expect(expect);
        self.note_unsent(index, connection);
    }

    /// Answers a request whose item copies are over, or sends it now.
    fn finish_warm_up_read(
        &mut self,
        sessions: &mut Slab<Session>,
        links: &mut Connections,
        to_client: ReplyTo,
        mut warm_up_read: Box<WarmUpRead>,
    ) {
        let Some(session) = sessions.get_mut(to_client.session) else {
            return self.finish_unheard(links, to_client, &warm_up_read);
        };
        if !warm_up_read.has_news()
            && let Some(memcached_join) = warm_up_read.missed.take()
        {
            return self.answer_memcached_join(sessions, to_client, memcached_join);
        }
        let Some(mut busy) = session.busy.take() else { return };
        let plan = Arc::clone(&self.plan);
        let mut request = Request::default();
        let len_max = session.memcached.map_or(0, |client| client.item_len_max);
        let limits = ParseLimits::of(&plan.limits, len_max);
        let parsed = parse_request(&warm_up_read.request, warm_up_read.wire, &limits, &mut request);
        debug_assert!(matches!(parsed, Parsed::Ready { .. }), "it was parsed before");
        let warm = Warm::Resumed { to_client, is_deleted: warm_up_read.has_deleted() };
        // The request may have come through another pool.
        let own = std::mem::replace(&mut session.pool, to_client.pool);
        let mut call = Call {
            key: to_client.session,
            session,
            busy: &mut busy,
            request: &request,
            bytes: &warm_up_read.request,
            warm: Some(warm),
        };
        self.resume_warmed(links, to_client, &warm_up_read, &mut call);
        session.pool = own;
        session.busy = Some(busy);
        self.mark_session_dirty(to_client.session, session);
        if session.paused && session.waits_for.is_none() {
            self.mark_session_resuming(to_client.session, session);
        }
    }

    /// Sends a write whose client has left, because it was received whole.
    fn finish_unheard(
        &mut self,
        links: &mut Connections,
        to_client: ReplyTo,
        warm_up_read: &WarmUpRead,
    ) {
        let plan = Arc::clone(&self.plan);
        let Some((sharded, warm_up)) = warm_up_of(&plan, to_client.pool) else { return };
        let mut request = Request::default();
        let limits = ParseLimits::of(&plan.limits, u32::MAX);
        let bytes = &warm_up_read.request[..];
        let parsed = parse_request(bytes, warm_up_read.wire, &limits, &mut request);
        let is_whole = matches!(parsed, Parsed::Ready { .. });
        if !is_whole || request.keys.len() != 1 || warm_up_read.missed.is_some() {
            return;
        }
        let to = self.server_of(to_client.pool, sharded, request.key(bytes, 0));
        let shared = self.pools[usize::from(to_client.pool)].shared();
        let (Some(to), Some(shared), None) = (to, shared, warm_up_read.refusal()) else { return };
        let index = memcached_link(&shared, to, to_client.session.index());
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
        connection.link.enqueue(Owner::Unheard(Key::NONE), to_client.counted, len, self.clock.now);
        connection.link.set_expect(expect);
        self.note_unsent(index, connection);
    }

    fn resume_warmed(
        &mut self,
        links: &mut Connections,
        to_client: ReplyTo,
        warm_up_read: &WarmUpRead,
        call: &mut Call<'_>,
    ) {
        let plan = Arc::clone(&self.plan);
        let pool = &plan.pools[usize::from(to_client.pool)];
        let Some((servers, warm_up)) = warm_up_of(&plan, to_client.pool) else { return };
        let shared = self.pools[usize::from(to_client.pool)].shared();
        match (warm_up_read.refusal(), shared) {
            (Some((backend, fault)), _) => {
                let text = self.describe_backend(ServerId { pool: warm_up.from, server: backend });
                self.count_fault(to_client.pool, to_client.counted, fault);
                self.tell_failure(call, fault, &text);
            }
            (None, None) => self.tell_failure(call, Fault::Unrouted, &pool.name),
            (None, Some(shared)) => {
                let Terms { new, .. } = warm_up.terms;
                let at = PoolServers { pool, servers, shared };
                let step = self.send_memcached(links, at, new, call);
                debug_assert!(matches!(step, Step::Started), "it has its reply index");
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
        call.tell_stats(&lines);
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
        let send_all = |core: &mut Core, index: ConnectionKey| {
            let link = &mut core.links[index].link;
            link.advance(link.unsent().len());
        };
        let client = client(&mut core);
        let links = [0, 1]
            .map(|pool: usize| core.plane.pools[pool].shared().unwrap())
            .map(|shared| memcached_link(&shared, 0, client.index()));
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
            core.continue_operations();
            send_all(&mut core, old);
            pass_to(&mut core, round * 200 + 100);
            core.continue_operations();
        }
        assert_eq!(output(&core, client).matches("END").count(), 40 * 8, "all are told of a miss");
        let in_flight = core.links[old].link.in_flight();
        assert!(
            (IN_FLIGHT_MAX..=IN_FLIGHT_MAX + ITEM_COPIES_MAX).contains(&in_flight),
            "{in_flight}"
        );
    }
}
