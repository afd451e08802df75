//! Finds the most requested keys of a pool, and those with large values. A few random requests are
//! examined after they were started, and all large ones.

use crate::core::Plane;
use crate::core::request::RequestBuffers;
use crate::{PoolPlan, Upstream};
use keyway_base::ByteRange;
use keyway_command::{Args, KeyFlags, Request, Verb};
use keyway_memcache as memcache;
use keyway_proxy::hot_keys::{Access, BigSight, Direction, KeyStats};
use keyway_proxy::{BigReply, Session};
use keyway_resp::{ParseLimits, Parsed, parse_request};
use std::sync::Arc;

/// Number of keys of one request that are counted. More would take time. If there are more, each
/// counted one represents several.
const KEYS_MAX: usize = 8;

/// A value that was seen: its key, and the request that has it or whose reply does.
#[derive(Clone, Copy)]
pub(in crate::core) struct Sight<'a> {
    key: &'a [u8],
    command: &'static str,
    direction: Direction,
}

impl<'a> Sight<'a> {
    /// Returns the sight of a value in a request.
    pub(in crate::core) fn of_request(key: &'a [u8], command: &'static str) -> Sight<'a> {
        Sight { key, command, direction: Direction::Request }
    }

    /// Returns the sight of a value in a reply.
    fn of_reply(key: &'a [u8], command: &'static str) -> Sight<'a> {
        Sight { key, command, direction: Direction::Reply }
    }
}

/// The counted keys of a request: each by its argument, with what is done with it.
#[derive(Default)]
struct Picked {
    keys: [(u32, bool); KEYS_MAX],
    len: usize,
    /// Number of keys that each represents.
    stands_for: f64,
}

impl Picked {
    fn of(request: &Request, random: u64) -> Picked {
        let mut count = 0usize;
        request.for_each_key(|_, _| count += 1);
        let step = count.div_ceil(KEYS_MAX).max(1);
        let (mut picked, mut nth) = (Picked::default(), random as usize % step);
        request.for_each_key(|index, flags| {
            if nth == 0 && picked.len < KEYS_MAX {
                picked.keys[picked.len] = (index as u32, !flags.contains(KeyFlags::RO));
                picked.len += 1;
                nth = step;
            }
            nth -= 1;
        });
        picked.stands_for = count as f64 / picked.len.max(1) as f64;
        picked
    }

    fn iter(&self) -> impl Iterator<Item = (usize, Access)> + '_ {
        let access = |writes| if writes { Access::Write } else { Access::Read };
        self.keys[..self.len].iter().map(move |&(index, writes)| (index as usize, access(writes)))
    }
}

impl Plane {
    fn unix_seconds(&self) -> u64 {
        self.clock.unix_micros / 1_000_000
    }

    /// Examines a request that was chosen, or that is large.
    #[cold]
    #[inline(never)]
    pub(in crate::core) fn note_request(
        &mut self,
        pools: &[Arc<PoolPlan>],
        session: &Session,
        frame: &[u8],
        ranges: &[ByteRange],
    ) {
        let random = self.next_random();
        let weight = self.observe.hot_keys.take_turn(random);
        let Ok(request) = Request::resolve(Args::new(frame, ranges)) else { return };
        let identity = &session.identity;
        let may = |user: &Arc<keyway_users::User>| user.judge(&request).is_ok();
        // The keys of a refused request do not count.
        if !identity.authenticated || !(identity.is_free || identity.user.as_ref().is_none_or(may))
        {
            return;
        }
        let key_stats = &pools[usize::from(session.pool)].key_stats;
        if let Some(weight) = weight {
            let picked = Picked::of(&request, random >> 32);
            let weight = weight * picked.stands_for;
            let keys =
                picked.iter().map(|(index, access)| (argument(&request, index), access, weight));
            key_stats.hot.note(self.worker(), self.clock.now, keys);
        }
        if frame.len() >= self.observe.hot_keys.big_from {
            self.note_big_request(key_stats, &request);
        }
    }

    /// Examines the values of a request for each of its keys: the arguments up to the next key.
    #[cold]
    fn note_big_request(&self, key_stats: &KeyStats, request: &Request) {
        let mut before: Option<(usize, bool)> = None;
        let tell = |(key, writes): (usize, bool), end: usize| {
            let bytes: usize = (key + 1..end).map(|index| argument(request, index).len()).sum();
            if writes && bytes >= self.observe.hot_keys.big_from {
                key_stats.big.note(&BigSight {
                    key: argument(request, key),
                    bytes: bytes as u64,
                    command: request.command.name,
                    direction: Direction::Request,
                    unix_seconds: self.unix_seconds(),
                });
            }
        };
        request.for_each_key(|index, flags| {
            let this = (index, !flags.contains(KeyFlags::RO));
            if let Some(key) = before.replace(this) {
                tell(key, index.max(key.0 + 1));
            }
        });
        if let Some(key) = before {
            tell(key, request.args.len());
        }
    }

    /// Does the same for a request of a client of memcached.
    #[cold]
    #[inline(never)]
    pub(in crate::core) fn note_memcached(
        &mut self,
        pool: &PoolPlan,
        session: &Session,
        request: &memcache::Request,
        bytes: &[u8],
    ) {
        let random = self.next_random();
        let weight = self.observe.hot_keys.take_turn(random);
        let verb = request.head.verb;
        let Some(command) = command_of(verb) else { return };
        if request.keys.is_empty()
            || !crate::core::pools::memcached::was_let(session, request, bytes)
        {
            return;
        }
        if let Some(weight) = weight {
            let access = if crate::core::pools::memcached::writes(verb) {
                Access::Write
            } else {
                Access::Read
            };
            let count = request.keys.len();
            let step = count.div_ceil(KEYS_MAX);
            let picked = request.keys(bytes).skip((random >> 32) as usize % step).step_by(step);
            let picked = picked.take(KEYS_MAX);
            let weight = weight * count as f64 / picked.len() as f64;
            let keys = picked.map(|key| (key, access, weight));
            pool.key_stats.hot.note(self.worker(), self.clock.now, keys);
        }
        let value = request.value.of(bytes).len();
        if verb.stores() && value >= self.observe.hot_keys.big_from {
            let sight = Sight::of_request(request.key(bytes, 0), command);
            self.note_sight(&pool.key_stats, sight, value);
        }
    }

    fn note_sight(
        &self,
        key_stats: &KeyStats,
        Sight { key, command, direction }: Sight<'_>,
        bytes: usize,
    ) {
        let (bytes, unix_seconds) = (bytes as u64, self.unix_seconds());
        key_stats.big.note(&BigSight { key, bytes, command, direction, unix_seconds });
    }

    /// Notes a value, if it is large.
    pub(in crate::core) fn note_large(&self, key_stats: &KeyStats, sight: Sight<'_>, len: usize) {
        if len >= self.observe.hot_keys.big_from {
            self.note_sight(key_stats, sight, len);
        }
    }

    /// Notes a large reply of an embedded store.
    #[cold]
    #[inline(never)]
    pub(in crate::core) fn note_stored_reply(
        &self,
        key_stats: &KeyStats,
        request: &Request,
        len: usize,
    ) {
        if len < self.observe.hot_keys.big_from {
            return;
        }
        let mut keys = (0, 0);
        request.for_each_key(|index, _| keys = (keys.0 + 1, index));
        // With several keys it is not known whose value is large.
        if let (1, key) = keys {
            let sight = Sight::of_reply(argument(request, key), request.command.name);
            self.note_sight(key_stats, sight, len);
        }
    }

    /// Notes a large item of an embedded store, which a client of memcached has read.
    #[cold]
    #[inline(never)]
    pub(in crate::core) fn note_large_item(
        &self,
        pool: u16,
        request: &memcache::Request,
        bytes: &[u8],
        len: usize,
    ) {
        if len < self.observe.hot_keys.big_from {
            return;
        }
        if let (Some(command), 1) = (command_of(request.head.verb), request.keys.len()) {
            let sight = Sight::of_reply(request.key(bytes, 0), command);
            self.note_sight(&self.plan.pools[usize::from(pool)].key_stats, sight, len);
        }
    }

    /// Notes a large reply of a server.
    #[cold]
    #[inline(never)]
    pub(in crate::core) fn note_big_reply(&mut self, pool: u16, big: &BigReply) {
        let plan = Arc::clone(&self.plan.pools[usize::from(pool)]);
        let Some(Upstream { options, .. }) = plan.kind.upstream() else { return };
        if (big.whole as usize) < self.observe.hot_keys.big_from {
            return;
        }
        if options.memcached.is_some() {
            return self.note_big_item(pool, big);
        }
        let limits = ParseLimits::of(&self.plan.limits);
        let mut buffers = self.buffers.take().unwrap_or_default();
        let RequestBuffers { args, inline } = &mut *buffers;
        let parsed = parse_request(&big.request, &limits, args, inline);
        if matches!(parsed, Ok(Parsed::Ready { .. }))
            && let Ok(request) = Request::resolve(Args::new(&big.request, args))
        {
            // For other commands, an element is a part of one key's value.
            let (index, elements, bytes) = match request.command.verb {
                Verb::Mget => (big.index, big.elements, big.bytes),
                _ => (0, 1, big.whole),
            };
            if let Some(key) = key_of(&request, index, elements) {
                let sight = Sight::of_reply(argument(&request, key), request.command.name);
                self.note_large(&plan.key_stats, sight, bytes as usize);
            }
        }
        self.buffers = Some(buffers);
    }

    fn note_big_item(&mut self, pool: u16, big: &BigReply) {
        let Some(&first) = big.request.first() else { return };
        let limits = memcache::ParseLimits::of(&self.plan.limits, u32::MAX);
        let mut request = std::mem::take(&mut self.observe.hot_keys.item);
        let wire = memcache::Wire::of(first);
        let parsed = memcache::parse_request(&big.request, wire, &limits, &mut request);
        if matches!(parsed, memcache::Parsed::Ready { .. }) {
            self.note_large_item(pool, &request, &big.request, big.whole as usize);
        }
        self.observe.hot_keys.item = request;
    }
}

/// Returns an argument. If arguments are wrong, there may be fewer than are said to be keys.
fn argument<'a>(request: &Request<'a>, index: usize) -> &'a [u8] {
    request.args.get(index).unwrap_or_default()
}

/// Returns the argument with the key of an element of a reply. With one key, all elements belong to
/// it.
fn key_of(request: &Request, element: u32, elements: u32) -> Option<usize> {
    let (mut count, mut found) = (0, None);
    let mut last = None;
    request.for_each_key(|index, _| {
        last = Some(index);
        if count == element {
            found = last;
        }
        count += 1;
    });
    match count {
        1 => last,
        count if count == elements => found,
        _ => None,
    }
}

/// Returns the name of a command of memcached about keys.
pub(in crate::core) fn command_of(verb: memcache::Verb) -> Option<&'static str> {
    use memcache::Verb::*;
    Some(match verb {
        Get => "get",
        GetTouch => "gat",
        Set => "set",
        Add => "add",
        Replace => "replace",
        Append => "append",
        Prepend => "prepend",
        Cas => "cas",
        Delete => "delete",
        Incr => "incr",
        Decr => "decr",
        Touch => "touch",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::core::observe::state::Noting;
    use keyway_base::Limits;

    #[test]
    fn one_request_in_so_many_is_looked_at_and_none_if_that_is_turned_off() {
        let limits = Limits { hot_keys_every: 50, ..Limits::default() };
        let (mut noting, mut state, mut looked) = (Noting::new(&limits), 5u64, 0);
        for _ in 0..100_000 {
            if noting.is_due(20) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                looked += u32::from(noting.take_turn(state >> 16) == Some(50.0));
            }
        }
        assert!((1900..2100).contains(&looked), "{looked}");
        assert!(noting.is_due(64 << 10) && noting.take_turn(1).is_none(), "only as it is large");
        let limits = Limits { hot_keys_every: 0, big_values_from: 0, ..Limits::default() };
        let mut noting = Noting::new(&limits);
        noting.left = 1;
        assert!(noting.is_due(1 << 30) && noting.take_turn(1).is_none() && !noting.is_due(1 << 30));
    }
}
