//! Fills the first child of a miss-then pool with a value that a later child has, unless the first
//! has a value by then. The worker first asks how long the value has left to live. The client's
//! reply waits for that, so that the client's next request comes behind the fill.

use crate::Plan;
use crate::core::pools::routed::state::Language;
use crate::core::pools::routed::state::Question;
use crate::core::pools::routed::state::UnsentSubRequest;
use crate::core::pools::routed::state::Whose;
use crate::core::pools::routed::state::routes_of;
use crate::core::{Core, Plane};
use keyway_base::{Fault, Key};
use keyway_command::Verb;
use keyway_memcache::{Dialect, Head, RequestFlags, Verb as Word, Wire, compose_request};
use keyway_proxy::Operation;
use keyway_proxy::route_policy::RouteTotals;
use keyway_proxy::route_policy::{RoutedRequest, Speech, SubRequestFor, memcached, redis};
use keyway_resp::{parse_integer, reply};
use keyway_topology::RoutedPool;
use std::sync::Arc;
use std::time::Duration;

/// Number of items of one part of a request that are filled in. Later requests fill in the others.
const FILLS_MAX: usize = 256;

/// The value to fill in, and the pool that takes it.
struct Target {
    first: u16,
    ttl_max: Duration,
}

fn target_of(plan: &Plan, pool: u16) -> Option<Target> {
    let RoutedPool::MissThen(pool) = &routes_of(plan, pool)?.pool else { return None };
    Some(Target { first: *pool.children.first()?, ttl_max: pool.fill_ttl_max? })
}

impl Core {
    /// Asks `child` for the remaining time of the items that it has found. Returns whether there
    /// are items to fill in.
    pub(super) fn ask_time_left(&mut self, key: Key<Operation>, part: u16, child: u16) -> bool {
        let plan = Arc::clone(&self.plane.plan);
        let Some((to, routed_request)) = self.plane.pending.entry_mut::<RoutedRequest>(key) else {
            return false;
        };
        let is_wanted = target_of(&plan, to.pool).is_some_and(|target| target.first != child);
        if !is_wanted {
            return false;
        }
        let mut found = found_keys(routed_request, part);
        found.truncate(FILLS_MAX);
        let questions: Vec<(u32, Vec<u8>)> = found
            .into_iter()
            .filter_map(|key| Some((key, question(routed_request, key)?)))
            .collect();
        routed_request.parts[usize::from(part)].asking = questions.len() as u32;
        routed_request.sub_requests += questions.len() as u32;
        let mut whose = Whose::of_routed_request(routed_request);
        if let Language::Memcached { wire, .. } = &mut whose.language {
            *wire = Wire::Text;
        }
        let is_any = !questions.is_empty();
        for (index, bytes) in questions {
            let sub_request = SubRequestFor::TimeLeft { routed_request: key, part, key: index };
            self.send(
                whose.level,
                Question::Own(UnsentSubRequest { sub_request, whose, pool: child, bytes }),
            );
        }
        is_any
    }

    /// Handles the remaining time of an item, as a child has told it.
    pub(super) fn on_time_left(
        &mut self,
        key: Key<Operation>,
        part: u16,
        index: u32,
        reply: &[u8],
        fault: Option<Fault>,
    ) {
        let plan = Arc::clone(&self.plane.plan);
        let Some((to, routed_request)) = self.plane.pending.entry_mut::<RoutedRequest>(key) else {
            return;
        };
        routed_request.sub_requests -= 1;
        let pool = to.pool;
        let state = &mut routed_request.parts[usize::from(part)];
        state.asking -= 1;
        let is_last = state.asking == 0;
        if let Some(target) = target_of(&plan, pool)
            && let Some(ttl) = time_to_live(routed_request, reply, fault, target.ttl_max)
            && let Some(bytes) = fill(routed_request, part, index, ttl)
        {
            let (sub_request, whose) =
                (SubRequestFor::Fill(pool), Whose::of_routed_request(routed_request));
            let purpose = UnsentSubRequest { sub_request, whose, pool: target.first, bytes };
            self.send(whose.level, Question::Own(purpose));
        }
        if is_last {
            self.finish_part(key);
        }
        self.forget_if_over(key);
    }
}

impl Plane {
    /// Counts the outcome of a fill.
    pub(super) fn note_fill(&self, pool: u16, reply: &[u8], fault: Option<Fault>) {
        let Some(routes) = routes_of(&self.plan, pool) else { return };
        /// The first byte of every binary reply.
        const PACKET: u8 = 0x81;
        let is_packet = reply.first() == Some(&PACKET) && reply.len() >= 8;
        let status = is_packet.then(|| u16::from_be_bytes([reply[6], reply[7]]));
        let is_stored = reply == b"+OK\r\n" || reply == b"STORED\r\n" || status == Some(0);
        // Another value was stored there first.
        let is_late = matches!(reply, b"$-1\r\n" | b"_\r\n" | b"NOT_STORED\r\n")
            || matches!(status, Some(2 | 5));
        if fault.is_none() && is_stored {
            RouteTotals::note(&routes.totals.fills);
        } else if fault.is_some() || !is_late {
            RouteTotals::note(&routes.totals.failed_fills);
        }
    }
}

/// Returns the keys of a part whose items are complete in its reply.
fn found_keys(routed_request: &RoutedRequest, part: u16) -> Vec<u32> {
    let state = &routed_request.parts[usize::from(part)];
    match &routed_request.speech {
        Speech::Redis { command, .. } => match command.verb {
            Verb::Get if redis::bulk(&state.reply).is_some() => vec![0],
            Verb::Mget => {
                let misses = redis::misses(&state.reply).unwrap_or_default();
                let own = |index: usize| state.keys.get(index).copied().unwrap_or(index as u32);
                let found = misses.iter().enumerate().filter(|(_, is_missing)| !**is_missing);
                found.map(|(index, _)| own(index)).collect()
            }
            _ => Vec::new(),
        },
        Speech::Memcached { request, wire, .. } => {
            if !memcached::is_whole(&request.head) {
                return Vec::new();
            }
            if request.keys.len() == 1 {
                return memcached::items(&state.reply, *wire).next().map_or(vec![], |_| vec![0]);
            }
            let keys =
                state.keys.iter().map(|&key| request.key(&routed_request.bytes, key as usize));
            let misses = memcached::misses(&state.reply, keys);
            let found = state.keys.iter().zip(misses).filter(|(_, is_missing)| !is_missing);
            found.map(|(key, _)| *key).collect()
        }
    }
}

/// Returns the request that asks a child for the remaining time of an item.
fn question(routed_request: &RoutedRequest, key: u32) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match &routed_request.speech {
        Speech::Redis { args, .. } => {
            reply::array(&mut out, 2);
            reply::bulk(&mut out, b"PTTL");
            reply::bulk(&mut out, args.get(1 + key as usize)?.of(&routed_request.bytes));
        }
        Speech::Memcached { request, .. } => {
            let head = Head { dialect: Dialect::Meta, asked: RequestFlags::TTL, ..Head::default() };
            let name = std::iter::once(request.key(&routed_request.bytes, key as usize));
            compose_request(&mut out, Dialect::Meta, &head, name, b"").ok()?;
        }
    }
    Some(out)
}

/// Returns the time that an item has where it is filled in, or `None` if it is gone.
fn time_to_live(
    routed_request: &RoutedRequest,
    reply: &[u8],
    fault: Option<Fault>,
    max: Duration,
) -> Option<Duration> {
    if fault.is_some() {
        return None;
    }
    match &routed_request.speech {
        Speech::Redis { .. } => {
            let digits = reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
            match parse_integer(digits)? {
                -1 => Some(max),
                millis if millis > 0 => Some(max.min(Duration::from_millis(millis as u64))),
                _ => None,
            }
        }
        Speech::Memcached { .. } => match memcached::time_left(reply) {
            Some(-1) => Some(max),
            Some(seconds) if seconds > 0 => Some(max.min(Duration::from_secs(seconds as u64))),
            Some(_) => None,
            // The item is gone, or its server cannot tell its time.
            None => (!reply.starts_with(b"EN")).then_some(max),
        },
    }
}

/// Returns the request that stores an item in the first child if the child has none.
fn fill(routed_request: &RoutedRequest, part: u16, key: u32, ttl: Duration) -> Option<Vec<u8>> {
    let state = &routed_request.parts[usize::from(part)];
    let mut out = Vec::new();
    match &routed_request.speech {
        Speech::Redis { args, command, .. } => {
            let value = match command.verb {
                Verb::Get => redis::bulk(&state.reply)?,
                _ => {
                    let index = state.keys.iter().position(|own| *own == key);
                    let index = index.unwrap_or(key as usize);
                    let element = redis::elements(&state.reply)?.get(index)?.clone();
                    redis::bulk(&state.reply[element])?
                }
            };
            let millis = ttl.as_millis().max(1).to_string();
            let name = args.get(1 + key as usize)?.of(&routed_request.bytes);
            reply::array(&mut out, 6);
            for word in [b"SET", name, value, b"NX", b"PX", millis.as_bytes()] {
                reply::bulk(&mut out, word);
            }
        }
        Speech::Memcached { request, wire, .. } => {
            let name = request.key(&routed_request.bytes, key as usize);
            let mut items = memcached::items(&state.reply, *wire);
            let is_single = request.keys.len() == 1;
            let item = items.find(|item| is_single || item.key == name)?;
            let dialect = match wire {
                Wire::Text => Dialect::Text,
                Wire::Binary => Dialect::Binary,
            };
            let head = Head {
                verb: Word::Add,
                dialect,
                flags: item.flags,
                expiry: ttl.as_secs().max(1) as i64,
                ..Head::default()
            };
            compose_request(&mut out, dialect, &head, std::iter::once(name), item.value).ok()?;
        }
    }
    Some(out)
}
