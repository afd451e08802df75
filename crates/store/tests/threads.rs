//! Several threads on shared shards.

mod common;

use common::memcached::say;
use common::{Random, Reply, clock_at, run};
use keyway_store::{EvictionPolicy, Store, StoreConfig};

const START: u64 = 1_700_000_000_000;
const THREADS: usize = 4;
const ROUNDS: usize = 4000;

#[test]
fn no_increment_is_lost_and_pairs_are_never_seen_half_set() {
    let store = Store::new(StoreConfig { shards: Some(2), ..StoreConfig::default() });
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                let mut random = Random::new(thread as u64 + 1);
                for round in 0..ROUNDS {
                    run(store, START, &format!("incr counter:{}", random.below(3)));
                    run(
                        store,
                        START,
                        &format!("mset left {thread}:{round} right {thread}:{round}"),
                    );
                    let pair = run(store, START, "mget left right").strings();
                    assert_eq!(pair[0], pair[1]);
                    run(
                        store,
                        START,
                        &format!("renamenx ball:{} ball:{}", random.below(4), random.below(4)),
                    );
                    if round == 0 && thread == 0 {
                        run(store, START, "set ball:0 x");
                    }
                    let _ = store.tick(clock_at(START));
                }
            });
        }
    });
    let count = |key: usize| match run(&store, START, &format!("get counter:{key}")) {
        Reply::Bulk(Some(text)) => {
            String::from_utf8_lossy(&text).parse::<usize>().expect("a number")
        }
        other => panic!("no number: {other:?}"),
    };
    assert_eq!((0..3).map(count).sum::<usize>(), THREADS * ROUNDS);
    assert_eq!(run(&store, START, "exists ball:0 ball:1 ball:2 ball:3").integer(), 1);
}

#[test]
fn under_eviction_expiry_and_flushes_a_value_is_always_one_that_was_set() {
    let store = Store::new(StoreConfig {
        memory_max: 1 << 20,
        policy: EvictionPolicy::AllKeysS3Fifo,
        shards: Some(8),
        ..StoreConfig::default()
    });
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                let mut random = Random::new(thread as u64 + 77);
                for round in 0..ROUNDS * 4 {
                    let now = START + round as u64 * 3;
                    let key = random.below(4000);
                    let len = 1 + random.below(700);
                    let letter = ["a", "b", "c"][random.below(3)];
                    let line = match random.below(12) {
                        0..=3 => format!("set {key} {}", letter.repeat(len)),
                        4 => format!("set {key} {} px 900", letter.repeat(len)),
                        5 => format!("del {key} {}", key + 1),
                        6 => format!("pexpire {key} 500"),
                        7 if random.once_in(200) => "flushall".to_string(),
                        8 if random.once_in(50) => "swapdb 0 1".to_string(),
                        9 => format!("copy {key} {} replace", random.below(4000)),
                        _ => format!("get {key}"),
                    };
                    if let Reply::Bulk(Some(value)) = run(store, now, &line) {
                        assert!(value.iter().all(|byte| *byte == value[0]), "{value:?}");
                    }
                    if random.once_in(20) {
                        let _ = store.tick(clock_at(now));
                    }
                }
            });
        }
    });
    assert!(store.stats().memory_used <= 1 << 20);
    let keys = run(&store, START + 3_000_000, "keys *").strings().len();
    assert!(keys as u64 <= store.stats().databases[0].items);
}

#[test]
fn sorting_by_other_keys_sees_all_of_them_at_one_moment() {
    let store = Store::new(StoreConfig { shards: Some(8), ..StoreConfig::default() });
    run(&store, START, "rpush list 1 2 3");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let weights = match (thread + round) % 2 {
                        0 => "mset w1 1 w2 2 w3 3",
                        _ => "mset w1 3 w2 2 w3 1",
                    };
                    run(store, START, weights);
                    let sorted = run(store, START, "sort list by w* get # get w*").strings();
                    let line = sorted.join(&b' ');
                    assert!(line == b"1 1 2 2 3 3" || line == b"3 1 2 2 1 3", "{sorted:?}");
                    let count = run(store, START, "sort list by w* desc store sorted").integer();
                    assert_eq!(count, 3);
                }
            });
        }
    });
}

#[test]
fn compare_and_swap_loses_no_update_of_either_protocol() {
    const UPDATES: usize = 1000;
    let store = Store::new(StoreConfig { shards: Some(2), ..StoreConfig::default() });
    say(&store, START, "set k 0 0 1\r\n0\r\n");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                let mut updates = 0;
                while updates < UPDATES {
                    if thread == 0 {
                        run(store, START, "INCR k");
                        updates += 1;
                        continue;
                    }
                    let said = say(store, START, "gets k\r\n");
                    let words: Vec<&str> = said.split_ascii_whitespace().collect();
                    let (cas, value) = (words[4], words[5].parse::<u64>().unwrap() + 1);
                    let value = value.to_string();
                    let cas = format!("cas k 0 0 {} {cas}\r\n{value}\r\n", value.len());
                    updates += usize::from(say(store, START, &cas) == "STORED\r\n");
                }
            });
        }
    });
    let expected = (THREADS * UPDATES).to_string();
    assert_eq!(run(&store, START, "GET k"), Reply::Bulk(Some(expected.into_bytes())));
}
