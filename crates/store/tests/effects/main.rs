//! The law of effects: applied in their order, the effects of a store make a second store,
//! and a real redis-server 7, hold the same keys with the same values and the same ends.
//!
//! The work is random: commands of all types in several databases, transactions, scripts,
//! commands that wait, requests of memcached clients, a clock that moves, eviction, and
//! several threads.

#[path = "../common/mod.rs"]
mod common;
mod digest;
mod follower;
#[path = "../collections/lines.rs"]
mod lines;
#[path = "../collections/shapes.rs"]
mod shapes;
mod work;

use common::redis::{Redis, unix_millis};
use common::{Random, Reply, at_once, clock_at};
use follower::Follower;
use keyway_store::{EffectLimits, EvictionPolicy, Keeping, Overrun, Store, StoreConfig};
use shapes::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use work::{DATABASES, OWN, Worker};

const LIMITS: EffectLimits = EffectLimits { room: 64 << 20, history: 0 };
/// The store's clock is ahead of the server's: nothing ends there by itself.
const AHEAD_MILLIS: u64 = 400 * 24 * 3_600_000;

fn config() -> StoreConfig {
    StoreConfig { databases: DATABASES, shards: Some(8), ..StoreConfig::default() }
}

fn follow(store: &Arc<Store>, redis: Option<Redis>) -> Follower {
    let reader = store.follow(LIMITS, Keeping::All, |_| ());
    Follower::new(reader, Store::new(config()), redis)
}

/// Random work of one family of commands, followed by a store and a server.
fn follow_family(family: &'static [&'static str], seed: u64, count: usize) {
    let store = Arc::new(Store::new(config()));
    let mut follower = follow(&store, Some(Redis::start(DATABASES)));
    let clock = AtomicU64::new(unix_millis() + AHEAD_MILLIS);
    let mut worker = Worker::new(&store, &clock, 0, seed, family);
    for round in 0..count / 100 {
        (0..100).for_each(|_| worker.step());
        follower.follow(&worker.history);
        if round % 10 == 9 {
            follower.check(&store, clock.load(Ordering::Relaxed), &worker.history);
        }
    }
    follower.check(&store, clock.load(Ordering::Relaxed), &worker.history);
    drop(follower);
    assert_eq!(store.effects_len(), 0, "nothing is kept that nobody reads");
}

#[test]
fn strings_and_keys() {
    follow_family(&OWN, 20_270_101, 40_000);
}

#[test]
fn hashes() {
    follow_family(&HASHES, 20_270_102, 20_000);
}

#[test]
fn lists() {
    follow_family(&LISTS, 20_270_103, 20_000);
}

#[test]
fn sets() {
    follow_family(&SETS, 20_270_104, 20_000);
}

#[test]
fn sorted_sets() {
    follow_family(&SORTED, 20_270_105, 20_000);
    follow_family(&LEXICAL, 20_270_106, 5_000);
}

#[test]
fn streams() {
    follow_family(&STREAMS, 20_270_107, 40_000);
}

#[test]
fn sketches() {
    follow_family(&SKETCHES, 20_270_108, 6_000);
}

#[test]
fn places() {
    follow_family(&PLACES, 20_270_109, 20_000);
}

#[test]
fn sorting() {
    follow_family(&SORTING, 20_270_110, 20_000);
}

/// Redis 7.0 knows no fields that expire.
#[test]
fn fields_that_expire_and_memcached_clients() {
    for (family, seed) in [(&work::FIELDS[..], 1), (&work::MEMCACHED[..], 2)] {
        let store = Arc::new(Store::new(config()));
        let mut follower = follow(&store, None);
        let clock = AtomicU64::new(unix_millis() + AHEAD_MILLIS);
        let family: &'static [&'static str] = family;
        let mut worker = Worker::new(&store, &clock, 0, 20_270_200 + seed, family);
        for _ in 0..400 {
            (0..100).for_each(|_| worker.step());
            follower.follow(&worker.history);
            follower.check(&store, clock.load(Ordering::Relaxed), &worker.history);
        }
    }
}

/// Several threads work while the effects are read.
fn follow_threads(store: &Arc<Store>, redis: Option<Redis>, seed: u64, steps: usize) {
    const THREADS: u16 = 4;
    let mut follower = follow(store, redis);
    let clock = AtomicU64::new(unix_millis() + AHEAD_MILLIS);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (clock, done) = (&clock, &is_done);
        scope.spawn(move || {
            at_once(THREADS, |thread| {
                let families: [&'static [&'static str]; 4] = [&OWN, &LISTS, &SETS, &HASHES];
                let family = families[usize::from(thread) % families.len()];
                let mut worker =
                    Worker::new(store, clock, thread, seed + u64::from(thread), family);
                for _ in 0..steps {
                    worker.step();
                    // The log's worker does the same.
                    while store.effects_are_full() {
                        std::thread::yield_now();
                    }
                }
            });
            done.store(true, Ordering::Relaxed);
        });
        while !is_done.load(Ordering::Relaxed) {
            follower.follow(&[]);
        }
    });
    follower.follow(&[]);
    follower.check(store, clock.load(Ordering::Relaxed), &[]);
}

#[test]
fn threads_with_a_server_behind() {
    let store = Arc::new(Store::new(config()));
    follow_threads(&store, Some(Redis::start(DATABASES)), 20_270_300, 8_000);
}

#[test]
fn threads_that_evict() {
    let policy = EvictionPolicy::AllKeysS3Fifo;
    let config = StoreConfig { memory_max: 16 << 20, policy, ..config() };
    let store = Arc::new(Store::new(config));
    let mut random = Random::new(7);
    let clock = unix_millis() + AHEAD_MILLIS;
    let mut set_some = |store: &Store, count: usize, keys: usize| {
        for _ in 0..count {
            let key = format!("key:{}", random.below(keys));
            let words: [&[u8]; 3] = [b"set", key.as_bytes(), &[b'v'; 300]];
            common::execute(store, 0, clock_at(clock), &words, &mut Vec::new());
        }
    };
    let mut follower = follow(&store, Some(Redis::start(DATABASES)));
    for _ in 0..120 {
        set_some(&store, 1000, 400_000);
        follower.follow(&[]);
    }
    assert!(store.stats().evicted > 1000, "{:?}", store.stats());
    assert!(store.stats().memory_used <= 17 << 20);
    follower.check(&store, clock, &[]);
    // The same with more threads, from no keys on.
    common::run(&store, clock, "flushall");
    drop(follower);
    assert_eq!(store.effects_len(), 0);
    let before = store.stats().evicted;
    let mut follower = follow(&store, None);
    let (clock, is_done) = (AtomicU64::new(clock), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (clock, is_done, store) = (&clock, &is_done, &store);
        scope.spawn(move || {
            set_some(store, 100_000, 400_000);
            is_done.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            let mut worker = Worker::new(store, clock, 1, 20_270_400, &OWN);
            worker.flushes = false;
            while !is_done.load(Ordering::Relaxed) {
                worker.step();
            }
        });
        while !is_done.load(Ordering::Relaxed) {
            follower.follow(&[]);
        }
    });
    assert!(store.stats().evicted > before + 1000, "{:?}", store.stats());
    follower.check(&store, clock.load(Ordering::Relaxed), &[]);
}

/// Each thread sets its key to the next number. A late reader gets all numbers from its cut on, and
/// none that was set before it came.
#[test]
fn a_reader_that_comes_late_gets_everything_after_its_cut_and_nothing_before() {
    const THREADS: u16 = 3;
    let store = Arc::new(Store::new(config()));
    let (now, is_done) = (unix_millis(), AtomicBool::new(false));
    let value = |key: &str| {
        let words: [&[u8]; 2] = [b"get", key.as_bytes()];
        let mut out = Vec::new();
        common::execute(&store, 0, clock_at(now), &words, &mut out);
        match Reply::read(&mut &out[..]) {
            Reply::Bulk(Some(text)) => String::from_utf8_lossy(&text).parse().expect("a number"),
            _ => 0u64,
        }
    };
    let keys: Vec<String> = (0..THREADS).map(|thread| format!("key:{thread}")).collect();
    std::thread::scope(|scope| {
        for key in &keys {
            let (store, is_done) = (&store, &is_done);
            scope.spawn(move || {
                for number in 1u64.. {
                    let number = number.to_string();
                    let words: [&[u8]; 3] = [b"set", key.as_bytes(), number.as_bytes()];
                    common::execute(store, 0, clock_at(now), &words, &mut Vec::new());
                    if is_done.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        for _ in 0..200 {
            let before: Vec<u64> = keys.iter().map(|key| value(key)).collect();
            let mut reader = store.follow(LIMITS, Keeping::Newest, |_| ());
            let after: Vec<u64> = keys.iter().map(|key| value(key)).collect();
            let mut bytes = Vec::new();
            let read = (0..5).try_for_each(|_| reader.read(&mut bytes).map(drop));
            // A write was in flight at the cut.
            if read == Err(Overrun) {
                continue;
            }
            let mut next: Vec<Option<u64>> = vec![None; keys.len()];
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let words = Reply::read(&mut rest).strings();
                if words[0] == b"SELECT" {
                    continue;
                }
                let at = keys.iter().position(|key| key.as_bytes() == words[1]).expect("a key");
                let number: u64 = String::from_utf8_lossy(&words[2]).parse().expect("a number");
                match next[at] {
                    None => assert!(number > before[at] && number <= after[at] + 1, "{words:?}"),
                    Some(next) => assert_eq!(number, next),
                }
                next[at] = Some(number + 1);
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert_eq!(store.effects_len(), 0);
}

/// A change of functions is told beside the keys, by the owner of the functions.
#[test]
fn a_command_beside_the_keys_is_told_if_it_was_done() {
    let store = Arc::new(Store::new(config()));
    store.tell_beside(&[b"FUNCTION", b"FLUSH"], || true);
    let mut reader = store.follow(LIMITS, Keeping::All, |_| ());
    store.tell_beside(&[b"FUNCTION", b"DELETE", b"none"], || false);
    store.tell_beside(&[b"FUNCTION", b"DELETE", b"one"], || true);
    let mut bytes = Vec::new();
    while reader.read(&mut bytes).expect("nothing is lost") > 0 {}
    let mut rest = &bytes[..];
    assert_eq!(Reply::read(&mut rest).strings()[0], b"SELECT");
    assert_eq!(Reply::read(&mut rest).strings(), [&b"FUNCTION"[..], b"DELETE", b"one"]);
    assert!(rest.is_empty());
    // Nobody can say whether a reader has what is changed at its cut.
    store.tell_beside(&[b"FUNCTION", b"FLUSH"], || {
        drop(store.follow(LIMITS, Keeping::All, |_| ()));
        true
    });
    assert_eq!(reader.read(&mut bytes), Err(Overrun));
}
