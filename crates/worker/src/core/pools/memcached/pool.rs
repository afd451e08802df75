//! Sends memcached requests to the servers of a pool. Where client and server use the same words
//! for a request, the reply goes through unchanged. All other requests are composed anew and
//! answered by a [`MemcachedJoin`].

use crate::PoolPlan;
use crate::core::Plane;
use crate::core::observe::counting;
use crate::core::pools::memcached::state::Call;
use crate::core::pools::memcached::state::PoolServers;
use crate::core::pools::memcached::state::Scratch;
use crate::core::request::Step;
use crate::core::{ConnectionKey, Connections};
use keyway_base::{Fault, Key, Slab};
use keyway_memcache::{
    Dialect, ErrorKind, Expect, Head, Outcome, Request, RequestFlags, Untranslatable, Verb,
    compose_request,
};
use keyway_metrics::Latency;
use keyway_proxy::OperationPart;
use keyway_proxy::memcached::{
    LOCK_PREFIX, MARKER_PREFIX, MemcachedJoin, Rule, wire_of, write_failure,
};
use keyway_proxy::{Operation, Owner, ReplyTo, Session};
use keyway_route::place;
use keyway_topology::{Distribution, SLOT_COUNT, ServerId, ServerSet, key_slot};
use std::sync::Arc;

const NO_FRAGMENT: u16 = u16::MAX;

/// Returns whether the reply of a server that speaks `to` can go to the client unchanged, when the
/// request is sent in the client's own words.
#[inline]
fn is_alike(request: &Request, bytes: &[u8], to: Dialect) -> bool {
    let head = &request.head;
    let is_known = match head.dialect {
        Dialect::Text => matches!(to, Dialect::Text | Dialect::Meta),
        Dialect::Meta => {
            to == Dialect::Meta && is_plain(bytes) && !echoes_decoded_key(&request.head)
        }
        // The opaque numbers are the client's, but quiet operations have no reply to wait for.
        Dialect::Binary => false,
    };
    is_known && !head.quiet
}

/// Returns whether a server could write a decoded key into its reply. memcached 1.6.18 does, line
/// ends included, for items that autovivification or a binary request made. The bytes behind such
/// a line end would be taken for the next reply on a connection that all clients share.
fn echoes_decoded_key(head: &Head) -> bool {
    let echoes = head.asked.has(RequestFlags::KEY) || head.verb == Verb::Debug;
    head.asked.has(RequestFlags::KEY_BASE64) && echoes
}

/// Returns whether a meta command's line means the same to every release of memcached. Releases
/// differ in what they take for a blank, the end of a line and a number.
fn is_plain(bytes: &[u8]) -> bool {
    let end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let is_number = |digits: &[u8], most: usize| {
        let digits = digits.strip_prefix(b"-").unwrap_or(digits);
        (1..=most).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit)
    };
    let stores = line.starts_with(b"ms ");
    line.split(|&byte| byte == b' ').enumerate().all(|(index, word)| {
        let is_printed = !word.is_empty() && word.iter().all(|&byte| byte > b' ' && byte != 127);
        is_printed
            && match (index, word[0]) {
                (0 | 1, _) => true,
                (2, _) if stores => is_number(word, 9),
                // The bounds are for numbers of 32 bits, for times and for numbers of 64 bits.
                (_, b'F' | b'S') => is_number(&word[1..], 9),
                (_, b'T' | b'N' | b'R') => is_number(&word[1..], 10),
                (_, b'C' | b'E' | b'J' | b'D') => is_number(&word[1..], 18),
                (_, b'M' | b'O') => true,
                _ => word.len() == 1,
            }
    })
}

/// Appends a request for which [`is_alike`] holds. A classic line is written anew, with numbers,
/// blanks and line ends that all releases of memcached read alike.
#[inline]
fn write_alike(
    out: &mut Vec<u8>,
    request: &Request,
    bytes: &[u8],
) -> Result<Expect, Untranslatable> {
    if request.is_canonical {
        out.extend_from_slice(bytes);
        return Ok(if request.head.verb.reads() { Expect::List } else { Expect::One });
    }
    if request.head.dialect == Dialect::Meta {
        out.extend_from_slice(bytes);
        return Ok(Expect::One);
    }
    let value = request.value.of(bytes);
    compose_request(out, Dialect::Text, &request.head, request.keys(bytes), value)
}

/// Returns whether a key is that of the pool's marker or of its lock. A client that wrote it would
/// cause a flush, or have stale values served.
#[inline]
fn is_reserved(key: &[u8], pool: &str) -> bool {
    let is_own = |prefix: &str| key.strip_prefix(prefix.as_bytes()) == Some(pool.as_bytes());
    key.first() == Some(&b'k') && (is_own(MARKER_PREFIX) || is_own(LOCK_PREFIX))
}

/// A server of a pool, with the best dialect that it knows.
#[derive(Clone, Copy)]
struct Destination<'a> {
    pool: &'a PoolPlan,
    server: u16,
    dialect: Dialect,
    /// The link of the client to the server.
    link: ConnectionKey,
}

impl<'a> Destination<'a> {
    /// The server at an index of a pool, for one client.
    #[inline]
    fn new(at: &PoolServers<'a>, server: u16, dialect: Dialect, call: &Call<'_>) -> Self {
        let link = at.link(server, call.session.lane);
        Destination { pool: at.pool, server, dialect, link }
    }
}

/// Returns the dialect in which a request is sent to a server that knows `to`.
pub(super) fn dialect_for(request: &Request, to: Dialect) -> Dialect {
    // Several keys fit on one classic line, where the meta protocol needs a command for each.
    let many = request.keys.len() > 1 && request.head.verb.reads();
    match (to, request.head.dialect) {
        (Dialect::Meta, _) if many => Dialect::Text,
        (Dialect::Meta, Dialect::Text) => Dialect::Text,
        _ => to,
    }
}

impl Plane {
    /// Sends a request to the servers of its pool.
    pub(super) fn send_memcached(
        &mut self,
        links: &mut Connections,
        at: PoolServers<'_>,
        to: Dialect,
        call: &mut Call<'_>,
    ) -> Step {
        match call.head().verb {
            verb if super::writes(verb) && is_reserved(call.asker().key, &at.pool.name) => {
                self.count_memcached(call);
                self.deny_memcached(
                    call,
                    "this key is Keyway's own: it says what the server holds",
                );
                Step::Started
            }
            Verb::Stats => {
                let rule = if call.request.keys.is_empty() { Rule::Sums } else { Rule::Each };
                self.send_to_all(links, at, to, call, rule)
            }
            Verb::FlushAll => self.send_to_all(links, at, to, call, Rule::All),
            _ if call.request.keys.len() > 1 => self.send_items(links, at, to, call),
            _ => match self.server_of(call.session.pool, at.servers, call.asker().key) {
                Some(server) => {
                    self.send_to_one(links, Destination::new(&at, server, to, call), call)
                }
                None => self.tell_unrouted(at.pool, call),
            },
        }
    }

    /// Returns a random number for pools that place keys at random, and 0 for other pools.
    #[inline]
    fn random_for(&mut self, sharded: &ServerSet) -> u64 {
        match sharded.distribution {
            Distribution::Random => self.next_random(),
            _ => 0,
        }
    }

    #[inline]
    pub(super) fn server_of(&mut self, pool: u16, sharded: &ServerSet, key: &[u8]) -> Option<u16> {
        let random = (self.random_for(sharded) >> 32) as u32;
        let state = self.pools[usize::from(pool)].servers()?;
        place(sharded, state.ring(), key, random)
    }

    /// Sends a whole request to one server.
    #[inline]
    fn send_to_one(
        &mut self,
        links: &mut Connections,
        to: Destination<'_>,
        call: &mut Call<'_>,
    ) -> Step {
        let Destination { pool, dialect, link: index, .. } = to;
        let connection = &mut links[index];
        if !call.is_resumed() && self.is_full(connection) {
            return Step::Full(index);
        }
        self.count_memcached(call);
        if let Some(fault) = self.refused(connection) {
            let backend = self.describe_backend(connection.server_id);
            self.count_fault(call.session.pool, call.counted(), fault);
            self.executed(call.session.pool, call.counted());
            self.tell_failure(call, fault, &backend);
            return Step::Started;
        }
        let is_redis = self.is_redis(connection.server_id.pool);
        if call.warm.is_some() || is_redis || !is_alike(call.request, call.bytes, dialect) {
            return self.send_composed(links, to, call);
        }
        self.prepare_link(index, connection, 0);
        let out = connection.link.request_buf();
        let start = out.len();
        let expect = match write_alike(out, call.request, call.bytes) {
            Ok(expect) => expect,
            Err(fault) => {
                self.deny_memcached(call, &untranslatable(fault, Dialect::Text, &pool.name));
                return Step::Started;
            }
        };
        let len = connection.link.request_buf().len() - start;
        let owner = Owner::Session { session: call.key, sequence: call.busy.order.reserve() };
        connection.link.enqueue(owner, call.counted(), len, self.clock.now);
        connection.link.set_expect(expect);
        self.note_unsent(index, connection);
        Step::Started
    }

    /// Sends a request to one server in another dialect than the client's.
    fn send_composed(
        &mut self,
        links: &mut Connections,
        Destination { pool, server, dialect, link: index }: Destination<'_>,
        call: &mut Call<'_>,
    ) -> Step {
        let connection = &mut links[index];
        let to = dialect_for(call.request, dialect);
        self.prepare_link(index, connection, 0);
        let (keys, value) = (call.request.keys(call.bytes), call.request.value.of(call.bytes));
        let put = match self.put(connection, to, call, keys, value) {
            Ok(put) => put,
            Err(fault) => {
                self.deny_memcached(call, &untranslatable(fault, to, &pool.name));
                return Step::Started;
            }
        };
        let (to_client, mut memcached_join) = self.begin_memcached_join(call, Rule::One);
        let fragment = memcached_join.add_fragment(server, wire_of(to));
        put.mark(&mut memcached_join, fragment);
        let operation = self.pending.begin(to_client, memcached_join);
        let owner = Owner::Operation { operation, part: fragment.into() };
        let connection = &mut links[index];
        connection.link.enqueue(owner, call.counted(), put.len, self.clock.now);
        connection.link.set_expect(put.expect);
        self.note_unsent(index, connection);
        Step::Started
    }

    fn begin_memcached_join(
        &mut self,
        call: &mut Call<'_>,
        rule: Rule,
    ) -> (ReplyTo, Box<MemcachedJoin>) {
        let mut memcached_join = self.memcached.joins_free.take();
        memcached_join.restart(call.request, call.bytes, rule);
        if let Some(warm) = &call.warm {
            warm.mark(&mut memcached_join, call.bytes);
        }
        (call.reply_to(self.clock.now), memcached_join)
    }

    /// Sends a request for many items to the servers that have them.
    fn send_items(
        &mut self,
        links: &mut Connections,
        at: PoolServers<'_>,
        to: Dialect,
        call: &mut Call<'_>,
    ) -> Step {
        let mut scratch = std::mem::take(&mut self.memcached.scratch);
        let step = self.send_items_with(&mut scratch, links, at, to, call);
        self.memcached.scratch = scratch;
        step
    }

    fn send_items_with(
        &mut self,
        scratch: &mut Scratch,
        links: &mut Connections,
        at: PoolServers<'_>,
        to: Dialect,
        call: &mut Call<'_>,
    ) -> Step {
        if !self.place_items(scratch, at.servers, call) {
            return self.tell_unrouted(at.pool, call);
        }
        if let [server] = scratch.servers[..] {
            return self.send_to_one(links, Destination::new(&at, server, to, call), call);
        }
        for &server in &scratch.servers {
            let link = at.link(server, call.session.lane);
            if !call.is_resumed() && self.is_full(&links[link]) {
                return Step::Full(link);
            }
        }
        self.count_memcached(call);
        let (to_client, mut memcached_join) = self.begin_memcached_join(call, Rule::Items);
        let to = dialect_for(call.request, to);
        for &server in &scratch.servers {
            memcached_join.add_fragment(server, wire_of(to));
        }
        memcached_join.set_owners(&scratch.owners);
        let key = self.pending.begin(to_client, memcached_join);
        self.send_shares(scratch, links, at, to, call, key);
        Step::Started
    }

    /// Determines which keys go together, and to which server. Returns whether all have a server.
    fn place_items(&mut self, scratch: &mut Scratch, sharded: &ServerSet, call: &Call<'_>) -> bool {
        // A cluster takes the keys of one slot together and no others.
        let by_slot = self.has_slots(call.session.pool);
        scratch.owners.clear();
        scratch.servers.clear();
        scratch.fragments.clear();
        let groups = if by_slot { SLOT_COUNT } else { sharded.servers.len() };
        scratch.fragments.resize(groups, NO_FRAGMENT);
        let mut random = self.random_for(sharded);
        let Some(state) = self.pools[usize::from(call.session.pool)].servers() else {
            return false;
        };
        let (bytes, keys) = call.request.key_ranges(call.bytes);
        for key in keys {
            let key = key.of(bytes);
            let chance = (random >> 32) as u32;
            let Some(server) = place(sharded, state.ring(), key, chance) else { return false };
            random = after(random);
            let group = if by_slot { key_slot(key) } else { server };
            let fragment = &mut scratch.fragments[usize::from(group)];
            if *fragment == NO_FRAGMENT {
                *fragment = scratch.servers.len() as u16;
                scratch.servers.push(server);
            }
            scratch.owners.push(*fragment);
        }
        true
    }

    /// Sends each server its share of the keys.
    fn send_shares(
        &mut self,
        scratch: &mut Scratch,
        links: &mut Connections,
        at: PoolServers<'_>,
        to: Dialect,
        call: &mut Call<'_>,
        operation: Key<Operation>,
    ) {
        let mut is_last = false;
        for (fragment, &server) in (0..).zip(&scratch.servers) {
            scratch.positions.clear();
            let owners = scratch.owners.iter().enumerate();
            let own = owners.filter(|(_, owner)| **owner == fragment);
            scratch.positions.extend(own.map(|(position, _)| position as u32));
            let keys = scratch.positions.iter();
            let keys = keys.map(|&position| call.request.key(call.bytes, position as usize));
            let part = OperationPart { operation, part: fragment.into() };
            let to = Destination::new(&at, server, to, call);
            is_last |= self.send_fragment(links, to, call, keys, part);
        }
        if is_last {
            self.finish_memcached_join_now(operation, call);
        }
    }

    /// Sends a whole request to every server in use.
    fn send_to_all(
        &mut self,
        links: &mut Connections,
        at: PoolServers<'_>,
        to: Dialect,
        call: &mut Call<'_>,
        rule: Rule,
    ) -> Step {
        let plan = Arc::clone(&self.plan);
        let index = usize::from(call.session.pool);
        let used = |server: &usize| self.is_server_used(call.session.pool, *server);
        let count = at.servers.servers.len();
        let (servers, rest): (Vec<usize>, Vec<usize>) = (0..count).partition(used);
        if servers.is_empty() || self.leaves_out(call.session.pool) {
            return self.tell_unrouted(at.pool, call);
        }
        for &server in &servers {
            let link = at.link(server as u16, call.session.lane);
            if !call.is_resumed() && self.is_full(&links[link]) {
                return Step::Full(link);
            }
        }
        self.count_memcached(call);
        let (to_client, mut memcached_join) = self.begin_memcached_join(call, rule);
        // The first word `servers` is for Keyway: it asks for each server's figures by themselves.
        let is_ours = rule == Rule::Each && call.request.key(call.bytes, 0) == b"servers";
        if is_ours || rule == Rule::Sums {
            // In a cluster all servers that have slots are asked.
            for server in rest.into_iter().filter(|_| at.pool.kind.cluster().is_none()) {
                let state = plan.health.state(plan.topology.backend_id(index, server));
                memcached_join.add_out(server as u16, state.label());
            }
        }
        for &server in &servers {
            memcached_join.add_fragment(server as u16, wire_of(to));
        }
        let key = self.pending.begin(to_client, memcached_join);
        let mut is_last = false;
        for (fragment, &server) in servers.iter().enumerate() {
            let words = usize::from(is_ours)..call.request.keys.len();
            let words = words.map(|word| call.request.key(call.bytes, word));
            let part = OperationPart { operation: key, part: fragment as u32 };
            let to = Destination::new(&at, server as u16, to, call);
            is_last |= self.send_fragment(links, to, call, words, part);
        }
        if is_last {
            self.finish_memcached_join_now(key, call);
        }
        Step::Started
    }

    /// Sends a request with these keys to a server, for a memcached join. Returns whether the join
    /// is complete because no server can be asked.
    fn send_fragment<'k>(
        &mut self,
        links: &mut Connections,
        Destination { pool, dialect: to, link: index, .. }: Destination<'_>,
        call: &Call<'_>,
        keys: impl ExactSizeIterator<Item = &'k [u8]> + Clone,
        OperationPart { operation, part }: OperationPart,
    ) -> bool {
        let (connection, fragment) = (&mut links[index], part as u16);
        if let Some(fault) = self.refused(connection) {
            let memcached_join = self.pending.get_mut::<MemcachedJoin>(operation);
            return memcached_join
                .is_some_and(|memcached_join| memcached_join.on_fault(fragment, fault));
        }
        self.prepare_link(index, connection, 0);
        let composed = self.put(connection, to, call, keys, b"");
        let Some(memcached_join) = self.pending.get_mut::<MemcachedJoin>(operation) else {
            return false;
        };
        let put = match composed {
            Ok(put) => put,
            Err(fault) => {
                return memcached_join.on_refused(fragment, &untranslatable(fault, to, &pool.name));
            }
        };
        put.mark(memcached_join, fragment);
        let owner = Owner::Operation { operation, part };
        connection.link.enqueue(owner, call.counted(), put.len, self.clock.now);
        connection.link.set_expect(put.expect);
        self.note_unsent(index, connection);
        false
    }

    #[cold]
    pub(super) fn tell_unrouted(&mut self, pool: &PoolPlan, call: &mut Call<'_>) -> Step {
        for at in 0..call.request.keys.len() {
            let slot = self.slot_of(call.session.pool, call.request.key(call.bytes, at));
            if slot.is_some_and(|slot| self.awaits_owner_of(call.client(), slot)) {
                return Step::Wait;
            }
        }
        self.count_memcached(call);
        self.count_fault(call.session.pool, call.counted(), Fault::Unrouted);
        self.executed(call.session.pool, call.counted());
        self.request_view_for_unowned(call.session.pool);
        let is_left_out = self.leaves_out(call.session.pool);
        match self.unknown_server(call.session.pool, is_left_out) {
            Some(text) => self.tell_unknown(call, &text),
            None => self.tell_failure(call, Fault::Unrouted, &pool.name),
        }
        Step::Started
    }

    /// Answers with the reason why no server has a key. `text` begins with an error code of Redis,
    /// which is left out.
    #[cold]
    fn tell_unknown(&mut self, call: &mut Call<'_>, text: &str) {
        call.session.note_fault(Fault::Unrouted);
        let words = text.split_once(' ').map_or(text, |(_, words)| words);
        let error = Outcome::Error { kind: ErrorKind::Server, text: words.as_bytes() };
        self.tell_memcached(call, &error);
    }

    #[cold]
    pub(super) fn tell_failure(&mut self, call: &mut Call<'_>, fault: Fault, backend: &str) {
        call.session.note_fault(fault);
        let reply_index = call.reserve();
        let asker = call.asker();
        let mut told = Vec::new();
        write_failure(&mut told, &asker, fault, backend);
        call.busy
            .order
            .complete(reply_index, &mut call.busy.output, |out| out.extend_from_slice(&told));
    }

    /// Answers a request whose last part has arrived.
    pub(in crate::core) fn finish_memcached_join(
        &mut self,
        sessions: &mut Slab<Session>,
        key: Key<Operation>,
    ) {
        let Some((to, mut memcached_join)) = self.pending.end::<MemcachedJoin>(key) else { return };
        if let Some(request) = memcached_join.watched.take() {
            match self.warm_read(sessions, to, memcached_join, request) {
                Some(answered) => memcached_join = answered,
                None => return,
            }
        }
        self.answer_memcached_join(sessions, to, memcached_join);
    }

    /// Answers a request with the servers' replies.
    pub(super) fn answer_memcached_join(
        &mut self,
        sessions: &mut Slab<Session>,
        to: ReplyTo,
        memcached_join: Box<MemcachedJoin>,
    ) {
        let fault = memcached_join.fault();
        let is_answered = if fault.is_none() {
            let plan = Arc::clone(&self.plan);
            let servers = plan.topology.pools()[usize::from(to.pool)].servers();
            let name = |backend| servers[usize::from(backend)].label().into_owned();
            self.answer_operation(sessions, to, None, |out| memcached_join.write(out, name, name))
        } else {
            let mut told = Vec::new();
            self.write_memcached_join(to.pool, &memcached_join, &mut told);
            self.answer_operation(sessions, to, fault, |out| out.extend_from_slice(&told))
        };
        if is_answered {
            self.note_memcached_join(to, fault);
        }
        self.memcached.joins_free.give(memcached_join);
    }

    /// Does the same as [`Self::finish_memcached_join`] while requests of the session are being
    /// parsed.
    #[cold]
    fn finish_memcached_join_now(&mut self, key: Key<Operation>, call: &mut Call<'_>) {
        let Some((to, memcached_join)) = self.pending.end::<MemcachedJoin>(key) else { return };
        let fault = memcached_join.fault();
        self.answer_operation_now(&mut *call.session, &mut *call.busy, to, fault, |out| {
            self.write_memcached_join(to.pool, &memcached_join, out);
        });
        self.note_memcached_join(to, fault);
        self.memcached.joins_free.give(memcached_join);
    }

    fn write_memcached_join(&self, pool: u16, memcached_join: &MemcachedJoin, out: &mut Vec<u8>) {
        let servers = self.plan.topology.pools()[usize::from(pool)].servers();
        memcached_join.write(
            out,
            |backend| servers[usize::from(backend)].label().into_owned(),
            |backend| self.describe_backend(ServerId { pool, server: backend }),
        );
    }

    fn note_memcached_join(&self, to: ReplyTo, fault: Option<Fault>) {
        let latency = Latency::between(to.started, self.clock.now);
        self.replied(to.pool, to.counted, Some(latency), counting::Outcome::of_fault(fault));
    }
}

/// Returns the random number for the next key, so that one draw serves all keys. This is Knuth's
/// generator, whose upper half is the better one.
#[inline]
fn after(random: u64) -> u64 {
    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1)
}

/// Returns the error text for a request that a server's protocol cannot express.
fn untranslatable(fault: Untranslatable, to: Dialect, pool: &str) -> String {
    let what = match fault {
        Untranslatable::Key => "has no way to write this key".to_owned(),
        Untranslatable::Line => "takes no line this long: ask for fewer keys at a time".to_owned(),
        Untranslatable::Request => format!(
            "cannot say this; write server_protocol = \"meta\" in [pool.{pool}] if its servers are \
             of memcached 1.6 or later"
        ),
    };
    let protocol = match to {
        Dialect::Text => "text",
        Dialect::Meta => "meta",
        Dialect::Binary => "binary",
    };
    format!("the servers' protocol ({protocol}) {what}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::Limits;
    use keyway_memcache::{ParseLimits, Parsed, Wire, parse_request};

    fn parsed(bytes: &[u8]) -> Request {
        let mut request = Request::default();
        let limits = ParseLimits::of(&Limits::default(), 1 << 20);
        let outcome = parse_request(bytes, Wire::Text, &limits, &mut request);
        assert_eq!(outcome, Parsed::Ready { consumed: bytes.len() }, "{}", bytes.escape_ascii());
        request
    }

    #[test]
    fn classic_lines_are_written_as_every_release_reads_them() {
        for (said, sent) in [
            (&b" set k 0 0 9\r\nflush_all\r\n"[..], &b"set k 0 0 9\r\nflush_all\r\n"[..]),
            (b"set k +5 007 +9\r\nflush_all\r\n", b"set k 5 7 9\r\nflush_all\r\n"),
            (b"get  a   b \n", b"get a b\r\n"),
            (b"touch k 0010\n", b"touch k 10\r\n"),
        ] {
            let (request, mut out) = (parsed(said), Vec::new());
            assert!(is_alike(&request, said, Dialect::Text));
            write_alike(&mut out, &request, said).unwrap();
            assert_eq!(out.escape_ascii().to_string(), sent.escape_ascii().to_string());
        }
    }

    #[test]
    fn a_line_longer_than_a_server_takes_is_not_sent() {
        let said = [b"gat 0".to_vec(), b" k".repeat(2000), b"\r\n".to_vec()].concat();
        let (request, mut out) = (parsed(&said), Vec::new());
        assert_eq!(write_alike(&mut out, &request, &said), Err(Untranslatable::Line));
        assert!(out.is_empty());
    }

    #[test]
    fn meta_lines_go_through_only_where_every_release_reads_them_alike() {
        for plain in
            [&b"mg k v t O7\r\n"[..], b"ms k 2 T-1 F7 MA\r\nab\r\n", b"mn\r\n", b"ma k D18\r\n"]
        {
            assert!(is_plain(plain), "{}", plain.escape_ascii());
        }
        for other in [
            &b" mg k v\r\n"[..],
            b"mg  k v\r\n",
            b"mg k v\0 q\r\n",
            b"mg k v\t\r\n",
            b"ms k +2\r\nab\r\n",
            b"ms k 2 F4294967305\r\nab\r\n",
            b"mg k T+1\r\n",
        ] {
            assert!(!is_plain(other), "{}", other.escape_ascii());
        }
    }
}
