//! Decides where a request goes: pure functions from a request, a pool and the servers in use to a
//! [`Route`].
//!
//! The crate does no I/O and keeps no state. Read first: [`Route`] and [`route`].
#![forbid(unsafe_code)]

mod scan_cursor;
mod scan_parts;

pub use scan_cursor::{CursorFault, ScanCursor, ServersInUse};
pub use scan_parts::{ScanParts, Walk};

use keyway_command::{Across, Handling, Join, KeysFault, Request, Split};
use keyway_topology::{Ring, ServerSet};
use std::fmt;

/// What must be done with a request to a sharded pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Send it whole to the server at this index.
    One(u16),
    /// Split it into one fragment for each server. [`place`] returns the server of each key.
    Split(Split),
    /// Send it whole to every server in use, and merge the replies.
    Everywhere(Join),
    /// It concerns the servers together, in its own way. [`route_script`] decides where
    /// [`Across::Run`] goes.
    Across(Across),
    /// It is about channels. A channel belongs to the server of a key of its name.
    PubSub,
    /// Send it whole to the server at this index, where it may wait.
    Block(u16),
    /// It begins, ends or guards a transaction.
    Transaction,
    /// It is about the keys of whose changes the client is told.
    Tracking,
    /// Keyway itself answers it.
    Local,
    /// Refuse it with an error that ends in this reason.
    Refused(&'static str),
    /// Its keys are on several servers, or have several slots, and it cannot be split.
    CrossSlot(Spread),
    /// Its arguments do not say which keys it has.
    KeysUnknown(KeysFault),
    /// No server of the pool is in use.
    Unrouted,
}

/// The number of servers or slots of the keys of one request, 2 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Servers, where keys have no slots.
    Servers(usize),
    /// Slots.
    Slots(usize),
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spread::Servers(count) => write!(f, "live on {count} servers"),
            Spread::Slots(count) => write!(f, "have {count} slots"),
        }
    }
}

/// Why [`route_whole`] refuses a request without keys.
pub const NO_KEY: &str = "the request names no key, which would tell its server in the pool";

/// Returns the server of a key, or `None` if none is in use. `random` matters only in pools that
/// distribute randomly.
#[inline]
pub fn place(pool: &ServerSet, ring: &Ring, key: &[u8], random: u32) -> Option<u16> {
    ring.pick(pool.hash_key(key), random)
}

/// Decides where a request goes. `keys` is scratch space for the indices of its keys.
#[inline(always)]
#[allow(clippy::inline_always, reason = "once per request, called from one place")]
pub fn route(
    request: &Request,
    pool: &ServerSet,
    ring: &Ring,
    random: u32,
    keys: &mut Vec<u32>,
) -> Route {
    match request.handling() {
        Handling::Forward if request.command.only_key > 0 => {
            route_by(request, request.command.only_key, pool, ring, random)
        }
        Handling::Forward => route_whole(request, pool, ring, random, keys),
        Handling::Split(split) => Route::Split(split),
        Handling::Everywhere(join) => Route::Everywhere(join),
        Handling::Across(across) => Route::Across(across),
        Handling::PubSub => Route::PubSub,
        Handling::Block => match route_whole(request, pool, ring, random, keys) {
            Route::One(server) => Route::Block(server),
            other => other,
        },
        Handling::Transaction => Route::Transaction,
        Handling::Tracking => Route::Tracking,
        Handling::Local => Route::Local,
        Handling::Refused(reason) => Route::Refused(reason),
    }
}

/// Decides where a script or function runs: on the server of its keys, or, without keys, on the
/// first one in use. `keys` is scratch space for the indices of its keys.
pub fn route_script(
    request: &Request,
    pool: &ServerSet,
    ring: &Ring,
    first_in_use: Option<u16>,
    keys: &mut Vec<u32>,
) -> Route {
    if request.args.get(2) == Some(b"0") {
        return first_in_use.map_or(Route::Unrouted, Route::One);
    }
    route_whole(request, pool, ring, 0, keys)
}

/// Decides where a request goes that must not be split: to the one server that has all its keys,
/// whatever its command's handling.
#[inline]
pub fn route_whole(
    request: &Request,
    pool: &ServerSet,
    ring: &Ring,
    random: u32,
    keys: &mut Vec<u32>,
) -> Route {
    let only_key = request.command.only_key;
    if only_key > 0 {
        return route_by(request, only_key, pool, ring, random);
    }
    keys.clear();
    if let Err(fault) = request.keys(keys) {
        return Route::KeysUnknown(fault);
    }
    let mut first = None;
    for &index in keys.iter() {
        let Some(key) = request.args.get(index as usize) else { continue };
        let hash = pool.hash_key(key);
        let Some(server) = ring.pick(hash, random) else { return Route::Unrouted };
        // Keys that share a server today may have two tomorrow, if their slots are not the same.
        let home = ring.slot_of(hash).unwrap_or(server);
        if first.get_or_insert((server, home)).1 != home {
            return Route::CrossSlot(spread(request, pool, ring, random, keys));
        }
    }
    match first {
        Some((server, _)) => Route::One(server),
        None => Route::Refused(NO_KEY),
    }
}

/// Returns the route for the key in this argument.
#[inline]
fn route_by(request: &Request, key: u8, pool: &ServerSet, ring: &Ring, random: u32) -> Route {
    let key = &request.args[usize::from(key)];
    place(pool, ring, key, random).map_or(Route::Unrouted, Route::One)
}

/// Returns how many servers have the keys, or how many slots they have. It is used only for the
/// error text.
#[cold]
fn spread(request: &Request, pool: &ServerSet, ring: &Ring, random: u32, keys: &[u32]) -> Spread {
    let keys = keys.iter().filter_map(|&index| request.args.get(index as usize));
    let hashes: Vec<u32> = keys.map(|key| pool.hash_key(key)).collect();
    let count = |mut homes: Vec<u16>| {
        homes.sort_unstable();
        homes.dedup();
        homes.len()
    };
    match hashes.iter().map(|&hash| ring.slot_of(hash)).collect() {
        Some(slots) => Spread::Slots(count(slots)),
        None => {
            let servers = hashes.iter().filter_map(|&hash| ring.pick(hash, random));
            Spread::Servers(count(servers.collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::ByteRange;
    use keyway_command::Args;
    use keyway_topology::{HashTag, Server, SlotMap, SlotSpace};
    use std::sync::Arc;

    /// Routes a request of words with a space between.
    fn route_words(line: &str, pool: &ServerSet, ring: &Ring) -> Route {
        let mut ranges = Vec::new();
        let mut start = 0;
        for word in line.split(' ') {
            ranges.push(ByteRange::new(start, start + word.len()));
            start += word.len() + 1;
        }
        let request = Request::resolve(Args::new(line.as_bytes(), &ranges)).unwrap();
        route(&request, pool, ring, 0, &mut Vec::new())
    }

    fn routed(line: &str, tag: Option<HashTag>, live: impl Fn(usize) -> bool) -> Route {
        let servers = ["a:1", "b:1", "c:1"].map(|text| Server::parse(text).unwrap());
        let mut pool = ServerSet::new(servers.to_vec());
        pool.hash_tag = tag;
        let ring = pool.ring(live);
        route_words(line, &pool, &ring)
    }

    #[test]
    fn keys_on_one_server_are_routed_and_on_several_refused() {
        assert!(matches!(routed("get k", None, |_| true), Route::One(_)));
        let many = "sinter k1 k2 k3 k4 k5 k6 k7 k8 k9 k10 k11 k12";
        assert!(matches!(routed(many, None, |_| true), Route::CrossSlot(Spread::Servers(2..=3))));
        let tagged = "sinter {t}1 {t}2 {t}3 {t}4 {t}5";
        let one = routed(tagged, Some(HashTag::BRACES), |_| true);
        assert_eq!(one, routed("get t", Some(HashTag::BRACES), |_| true));
        assert_eq!(routed("sinter k k", None, |_| true), routed("get k", None, |_| true));
    }

    #[test]
    fn keys_of_one_server_with_two_slots_are_refused_where_slots_may_move() {
        let mut map = SlotMap::new(SlotSpace::Codis);
        map.give(0, 1023, 0).unwrap();
        let mut pool = ServerSet::new(vec![Server::parse("a:1").unwrap(); 2]);
        (pool.hash, pool.hash_tag) = (map.space().hash(), Some(map.space().hash_tag()));
        let ring = Ring::of_groups(Arc::new(map), [1].into());
        let route = |line: &str| route_words(line, &pool, &ring);
        assert_eq!(route("get foo"), Route::One(1));
        assert_eq!(route("sinter {t}1 {t}2"), Route::One(1));
        assert_eq!(route("sinter x{}1 y{}2"), Route::One(1), "an empty tag is one");
        assert_eq!(route("sinter a b a"), Route::CrossSlot(Spread::Slots(2)));
        assert_eq!(route("blpop a b 0"), Route::CrossSlot(Spread::Slots(2)));
        assert!(matches!(route("mget a b"), Route::Split(_)));
    }

    #[test]
    fn what_may_wait_goes_where_its_keys_are() {
        let Route::One(server) = routed("get k", None, |_| true) else { panic!("one key") };
        assert_eq!(routed("blpop k 0", None, |_| true), Route::Block(server));
        assert_eq!(routed("xread block 0 streams k 0", None, |_| true), Route::Block(server));
        assert_eq!(routed("xread streams k 0", None, |_| true), Route::One(server));
        assert!(matches!(
            routed("blpop k1 k2 k3 k4 k5 k6 k7 k8 k9 k10 k11 k12 0", None, |_| true),
            Route::CrossSlot(_)
        ));
    }

    #[test]
    fn servers_out_of_use_get_nothing() {
        assert_eq!(routed("get k", None, |index| index == 1), Route::One(1));
        assert_eq!(routed("get k", None, |_| false), Route::Unrouted);
        assert_eq!(routed("sinter a b", None, |_| false), Route::Unrouted);
    }

    #[test]
    fn what_has_no_key_is_never_sent_to_some_server() {
        assert_eq!(routed("ping", None, |_| true), Route::Local);
        assert!(matches!(routed("mget a b", None, |_| true), Route::Split(_)));
        assert_eq!(routed("dbsize", None, |_| true), Route::Everywhere(Join::Sum));
        assert_eq!(routed("multi", None, |_| true), Route::Transaction);
        assert_eq!(routed("eval return1 0", None, |_| true), Route::Across(Across::Run));
    }
}
