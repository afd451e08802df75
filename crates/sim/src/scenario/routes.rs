//! Pools that lead to others, in front of two or three pools with servers.

use super::{Options, sharded, speak_memcached};
use crate::random::Random;
use keyway_memcache::Dialect;
use keyway_topology::{
    FailoverPool, MirrorPool, MissThenPool, Pool, PoolKind, PrefixPool, RoutedPool, ShadowBy,
    ShadowPool, Wait,
};
use std::time::Duration;

/// Draws pools with servers, and last the pool that clients use.
pub(super) fn routed(random: &mut Random, calm: bool, options: &Options) -> Vec<Pool> {
    let mut pools: Vec<Pool> = (0..3).map(|index| leaf(random, index, calm, options)).collect();
    let failover =
        |children: Vec<u16>| RoutedPool::Failover(FailoverPool { children, gutter: None });
    let wait = random.pick(&[Wait::All, Wait::All, Wait::First]);
    let mirror = |children| RoutedPool::Mirror(MirrorPool { children, read_from: 0, wait });
    let kind = match random.below(7) {
        0 => failover(vec![0, 1]),
        1 => failover(vec![0, 1, 2]),
        2 => mirror(vec![0, 1, 2]),
        3 => {
            let fill_ttl_max = random.percent(50).then_some(Duration::from_secs(60));
            RoutedPool::MissThen(MissThenPool { children: vec![0, 1], fill_ttl_max })
        }
        4 => RoutedPool::Shadow(ShadowPool {
            main: 0,
            shadow: 1,
            percent: 70,
            by: ShadowBy::Key,
            in_flight_max: random.scaled(1, 1024) as u32,
        }),
        5 => RoutedPool::Prefix(PrefixPool::new(prefixes(), Some(1))),
        _ => {
            pools.push(pool("middle", failover(vec![0, 1])));
            mirror(vec![3, 2])
        }
    };
    pools.push(pool("top", kind));
    pools
}

fn pool(name: &str, kind: RoutedPool) -> Pool {
    Pool { name: name.to_owned(), kind: PoolKind::Routed(kind) }
}

/// Returns prefixes of some keys of each client.
fn prefixes() -> Vec<(Box<[u8]>, u16)> {
    let owners = (0..16).flat_map(|client| (1..4).map(move |nth| format!("c{client}g{nth}")));
    let names = owners.flat_map(|owner| [format!("k0:{owner}:1"), format!("k0:{{{owner}}}:1")]);
    names.map(|name| (name.into_bytes().into(), 0)).collect()
}

fn leaf(random: &mut Random, index: u64, calm: bool, options: &Options) -> Pool {
    let mut sharded = sharded(random, index, calm, options);
    // Each key has one server, and its requests have one connection.
    let settings = &mut sharded.options;
    (settings.ejection, settings.circuit, settings.server_connections) = (None, None, 1);
    let mut pool = Pool { name: format!("pool{index}"), kind: PoolKind::Sharded(sharded) };
    speak_memcached(&mut pool, random);
    if let PoolKind::Memcached(memcached) = &mut pool.kind {
        memcached.dialect = Dialect::Text;
    }
    pool
}
