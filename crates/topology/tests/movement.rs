//! Tests how many keys move when a server is added or removed: about its share, and no others
//! unless the distribution moves more.

use keyway_topology::{Distribution, Hash, Server, ServerSet};

const KEYS: usize = 20_000;
const SIZES: [usize; 5] = [3, 5, 8, 10, 16];

const CONSISTENT: [Distribution; 6] = [
    Distribution::Ketama,
    Distribution::KetamaLibmemcached,
    Distribution::KetamaWeightedLibmemcached,
    Distribution::PhpMemcacheConsistent,
    Distribution::Rendezvous,
    Distribution::Maglev,
];

fn server(nth: usize) -> Server {
    Server::parse(&format!("10.0.{}.{}:11211", nth / 200, nth % 200 + 1)).unwrap()
}

/// Returns the index of each key's server.
fn servers_of_keys(distribution: Distribution, servers: &[usize]) -> Vec<usize> {
    let list = servers.iter().map(|&nth| server(nth)).collect();
    let mut pool = ServerSet::new(list);
    pool.distribution = distribution;
    pool.hash = distribution.default_hash();
    let ring = pool.ring(|_| true);
    let server = |nth: usize| {
        let key = format!("session:{:08x}:{nth}", nth.wrapping_mul(0x9e37_79b9));
        servers[usize::from(ring.pick(pool.hash_key(key.as_bytes()), 0).unwrap())]
    };
    (0..KEYS).map(server).collect()
}

/// Returns the share of all keys that moved, and the share that moved between servers that were
/// there before and after.
fn moved(before: &[usize], after: &[usize], changed: usize) -> (f64, f64) {
    let pairs = || before.iter().zip(after).filter(|(before, after)| before != after);
    let needless = pairs().filter(|&(&before, &after)| before != changed && after != changed);
    (pairs().count() as f64 / KEYS as f64, needless.count() as f64 / KEYS as f64)
}

/// Returns the means over several changes of a pool of `size`: removing each of its servers, and
/// adding each of as many others.
fn means(distribution: Distribution, size: usize) -> [(f64, f64); 2] {
    let all: Vec<usize> = (0..size).collect();
    let before = servers_of_keys(distribution, &all);
    let mean = |results: Vec<(f64, f64)>| {
        let sum = results.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (sum.0 / results.len() as f64, sum.1 / results.len() as f64)
    };
    let removed = (0..size).map(|gone| {
        let rest: Vec<usize> = all.iter().copied().filter(|&nth| nth != gone).collect();
        moved(&before, &servers_of_keys(distribution, &rest), gone)
    });
    let added = (0..size).map(|nth| {
        let new = 1000 + nth;
        let more: Vec<usize> = all.iter().copied().chain([new]).collect();
        moved(&before, &servers_of_keys(distribution, &more), new)
    });
    [mean(removed.collect()), mean(added.collect())]
}

#[test]
fn adding_or_removing_one_of_n_servers_moves_one_nth_of_the_keys() {
    for distribution in CONSISTENT {
        for size in SIZES {
            let [removed, added] = means(distribution, size);
            for (what, (moved, _), due) in
                [("removed", removed, 1.0 / size as f64), ("added", added, 1.0 / (size + 1) as f64)]
            {
                println!("{} {what} of {size}: {moved:.4} for {due:.4}", distribution.name());
                assert!(
                    (moved - due).abs() <= 0.2 * due,
                    "{distribution:?}, {what}, {size} servers: {moved} for {due}"
                );
            }
        }
    }
}

/// Maglev fills one table for all, so a change also moves a few other keys: here up to a tenth of
/// those that have to move.
#[test]
fn no_key_moves_between_servers_that_stay_but_with_maglev() {
    for distribution in CONSISTENT {
        for size in SIZES {
            for (moved, needless) in means(distribution, size) {
                if distribution == Distribution::Maglev {
                    println!("maglev, {size}: {needless:.4} of {moved:.4} needlessly");
                    assert!(needless <= 0.1 * moved, "{size} servers: {needless} of {moved}");
                } else {
                    assert_eq!(needless, 0.0, "{distribution:?}, {size} servers");
                }
            }
        }
    }
}

/// The spread of shares over ten equal servers, in hundredths of the due share.
#[test]
fn rendezvous_and_maglev_share_out_evenly() {
    for (distribution, tolerance) in [(Distribution::Rendezvous, 0.1), (Distribution::Maglev, 0.1)]
    {
        let chosen = servers_of_keys(distribution, &(0..10).collect::<Vec<_>>());
        for server in 0..10 {
            let share = chosen.iter().filter(|&&index| index == server).count() as f64;
            let due = KEYS as f64 / 10.0;
            assert!((share - due).abs() < tolerance * due, "{distribution:?}: {share} of {due}");
        }
    }
}

/// A weight is a share: the share of keys is within 5 % of it.
#[test]
fn weights_are_shares_with_rendezvous_and_maglev() {
    let weights = [1u32, 2, 3, 4];
    for distribution in [Distribution::Rendezvous, Distribution::Maglev] {
        let lines = weights.map(|weight| format!("h{weight}:1:{weight}"));
        let servers = lines.iter().map(|line| Server::parse(line).unwrap()).collect();
        let mut pool = ServerSet::new(servers);
        pool.distribution = distribution;
        let ring = pool.ring(|_| true);
        let mut counts = [0u32; 4];
        for nth in 0..100_000 {
            let key = format!("key:{nth}");
            counts[usize::from(ring.pick(pool.hash_key(key.as_bytes()), 0).unwrap())] += 1;
        }
        for (count, weight) in counts.into_iter().zip(weights) {
            let due = f64::from(weight) * 10_000.0;
            assert!((f64::from(count) - due).abs() < 0.05 * due, "{distribution:?} {counts:?}");
        }
    }
}

/// Returns the greatest relative difference between the share of one of five servers and their
/// mean, for numbered keys: 0.5 means half as many keys more, or less.
fn farthest_off(distribution: Distribution, hash: Hash) -> f64 {
    let line = |name| format!("127.0.0.1:{}:1 {name}", 7000 + u32::from(name));
    let servers = ('a'..='e').map(|name| Server::parse(&line(name)).unwrap()).collect();
    let mut pool = ServerSet::new(servers);
    (pool.distribution, pool.hash) = (distribution, hash);
    let ring = pool.ring(|_| true);
    let mut counts = [0.0; 5];
    for nth in 0..10_000 {
        let key = format!("key:{nth}");
        counts[usize::from(ring.pick(pool.hash_key(key.as_bytes()), 0).unwrap())] += 1.0;
    }
    counts.iter().map(|count: &f64| (count / 2_000.0 - 1.0).abs()).fold(0.0, f64::max)
}

/// docs/placement.md states this.
#[test]
fn shares_of_numbered_keys_depend_on_the_hash_with_ketama_alone() {
    let spreading = [Hash::Murmur, Hash::Md5, Hash::Fnv1a32];
    for hash in spreading {
        let off = farthest_off(Distribution::Ketama, hash);
        assert!(off < 0.25, "{hash:?}: {off}");
    }
    let off = farthest_off(Distribution::Ketama, Hash::Fnv1a64);
    assert!((0.4..0.6).contains(&off), "{off}");
    assert!(farthest_off(Distribution::Ketama, Hash::Crc32) > 3.9, "one server has all");
    for hash in spreading.into_iter().chain([Hash::Fnv1a64, Hash::Crc32]) {
        let off = farthest_off(Distribution::Rendezvous, hash);
        assert!(off < 0.1, "{hash:?}: {off}");
    }
}
