//! A small store keeps to its bound on memory while lists grow through all lengths of nodes.
//! Its pages that are just begun take a large part of it. Nodes of all stores of a process
//! share their pages, so this has a process of its own.

mod common;

use common::{Random, Reply, at_once, clock_at, execute, is_sanitized, run};
use keyway_store::{EvictionPolicy, Store, StoreConfig};

const START: u64 = 1_700_000_000_000;
/// Elements of a push.
const PUSHED: usize = 20;
const LISTS: usize = 2000;
const STRINGS: usize = 200_000;
/// Requests for each MiB of the bound: the store is full long before the last.
const STEPS: usize = 2500;
const STEPS_SANITIZED: usize = 20;

/// Pushes short elements to many lists and sets small values. The most bytes that the store
/// counted, the length of the longest list, and how many requests were refused.
fn push_and_set(store: &Store, steps: usize, seed: u64) -> (u64, u64, u64) {
    let mut random = Random::new(seed);
    let value = [b'v'; 2048];
    let (mut most, mut longest, mut refused, mut now) = (0, 0, 0, START);
    for step in 0..steps {
        let top = 1 << (4 + random.below(7));
        let len = top + random.below(top);
        let mut out = Vec::new();
        if random.once_in(2) {
            let key = format!("l{}", random.below(LISTS));
            let mut words: Vec<&[u8]> = vec![b"RPUSH", key.as_bytes()];
            words.extend([&value[..len / PUSHED + 1]; PUSHED]);
            execute(store, 0, clock_at(now), &words, &mut out);
            if let Reply::Integer(len) = run(store, now, &format!("memory usage {key}")) {
                longest = longest.max(len as u64);
            }
        } else {
            let key = format!("k{}", random.below(STRINGS));
            execute(store, 0, clock_at(now), &[b"SET", key.as_bytes(), &value[..len]], &mut out);
        }
        refused += u64::from(out.starts_with(b"-OOM"));
        if step % 1000 == 0 {
            now += 10;
            _ = store.tick(clock_at(now));
        }
        if step % 32 == 0 {
            let stats = store.stats();
            most = most.max(stats.memory_used + stats.memory_idle);
        }
    }
    (most, longest, refused)
}

#[test]
fn lists_that_grow_keep_small_stores_to_their_bound() {
    let cases = [
        (16, "noeviction", 1),
        (16, "volatile-lru", 1),
        (16, "allkeys-lru", 1),
        (32, "noeviction", 1),
        (32, "noeviction", 2),
        (32, "volatile-lru", 1),
        (32, "allkeys-lru", 2),
        (48, "noeviction", 1),
        (48, "allkeys-lru", 1),
        (128, "noeviction", 1),
    ];
    let steps_per_mebibyte = if is_sanitized() { STEPS_SANITIZED } else { STEPS };
    for (mebibytes, name, threads) in cases {
        let bound = (mebibytes as u64) << 20;
        let policy = EvictionPolicy::from_name(name).expect("a policy");
        let config = StoreConfig { memory_max: bound, policy, ..StoreConfig::default() };
        let store = Store::new(config);
        let steps = mebibytes * steps_per_mebibyte / usize::from(threads);
        let all = at_once(threads, |thread| push_and_set(&store, steps, 7 + u64::from(thread)));
        let most = all.iter().map(|it| it.0).max().unwrap_or_default();
        let longest = all.iter().map(|it| it.1).max().unwrap_or_default();
        let refused: u64 = all.iter().map(|it| it.2).sum();
        let stats = store.stats();
        let percent = |bytes: u64| bytes as f64 * 100.0 / bound as f64;
        println!(
            "{mebibytes:3} MiB {name:12} {threads} threads: {:.1} % at most, used {:.1} %, idle \
             {:.1} %, longest {longest}, {refused} refused",
            percent(most),
            percent(stats.memory_used),
            percent(stats.memory_idle)
        );
        assert!(most <= bound + bound / 50 + longest, "{mebibytes} MiB, {name}: {most} bytes");
        // Idle memory takes no more than what a few pages of each length need.
        let is_filled = stats.memory_used > bound / 10 * 6 && most > bound / 10 * 9;
        assert!(is_sanitized() || is_filled, "{mebibytes} MiB, {name}: {}", stats.memory_used);
    }
}
