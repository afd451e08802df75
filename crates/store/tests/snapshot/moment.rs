//! A snapshot is of the moment of its cut, whatever happens while it is written.

use crate::START;
use crate::common::snapshots::{Contents, begin, contents, enable, finish, load, step};
use crate::common::{Random, clock_at, execute, run};
use keyway_store::{EvictionPolicy, QuotaConfig, Store, StoreConfig};
use proptest::prelude::*;
use std::sync::Arc;

const DATABASES: u32 = 3;
/// Later than any request, earlier than expiries that are set for long.
const END: u64 = START + 500_000;

/// One random request.
fn change(store: &Store, random: &mut Random, millis: u64) {
    let key = format!("{}:{}", random.pick(&["a", "b"]), random.below(60));
    let other = format!("a:{}", random.below(60));
    let nth = random.below(1_500);
    let until = START + random.below(200) as u64 * 10;
    let line = match random.below(46) {
        0..6 => format!("SET {key} value:{nth}"),
        6..8 => format!("SET {key} {}", "long".repeat(nth * 20)),
        8 => format!("SET {key} 1 PXAT {until}"),
        9 => format!("APPEND {key} more:{nth}"),
        10 => format!("SETRANGE {key} {nth} x"),
        11..14 => format!("DEL {key}"),
        14 => format!("RENAME {key} {other}"),
        15 => format!("COPY {key} {other} REPLACE"),
        16 => format!("MOVE {key} 1"),
        17 => format!("PEXPIREAT {key} {until}"),
        18 => format!("PEXPIREAT {key} {}", END + 100_000),
        19 => format!("PERSIST {key}"),
        20..23 => format!("RPUSH list:{} {}", random.below(3), "element ".repeat(60)),
        23 => format!("LPOP list:{}", random.below(3)),
        24..28 => format!("SADD set:{} m:{nth} {nth} n:{nth}", random.below(3)),
        28 => format!("SREM set:{} m:{nth}", random.below(3)),
        29..33 => format!("HSET hash:{} f:{nth} v g:{nth} w", random.below(3)),
        33 => format!("HDEL hash:{} f:{nth}", random.below(3)),
        34 => {
            format!("HPEXPIREAT hash:{} {} FIELDS 1 f:{nth}", random.below(3), END + 100_000)
        }
        35..38 => format!("ZADD zset:{} {nth} m:{nth} {nth} n:{nth}", random.below(3)),
        38 => format!("ZREM zset:{} m:{nth}", random.below(3)),
        39 => format!("XADD stream * field {nth}"),
        40 => "XTRIM stream MAXLEN 5".to_owned(),
        41 => format!("BITOP NOT {key} {other}"),
        42 => format!("MSET {key} {nth} {other} {nth}"),
        43 if random.once_in(20) => "FLUSHDB".to_owned(),
        44 if random.once_in(10) => "SWAPDB 0 1".to_owned(),
        45 if random.once_in(40) => "FLUSHALL".to_owned(),
        _ => format!("INCR counter:{}", random.below(5)),
    };
    let words: Vec<&[u8]> = line.trim_end().split(' ').map(str::as_bytes).collect();
    let database = if random.once_in(6) { random.below(3) as u32 } else { 0 };
    execute(store, database, clock_at(millis), &words, &mut Vec::new());
}

/// What was held at the cut, and has not expired by the end.
fn lasting(mut all: Contents) -> Contents {
    all.retain(|_, known| known.expiry() == -1 || known.expiry() > END as i64);
    all
}

fn the_file_is_of_its_cut(store: &Arc<Store>, seed: u64, evicts: bool) {
    let mut random = Random::new(seed);
    let mut millis = START;
    enable(store, millis);
    for _ in 0..random.below(2_500) {
        change(store, &mut random, millis);
    }
    for _ in 0..2 {
        let expected = lasting(contents(store, DATABASES, millis));
        let mut saving = begin(store, millis);
        let (mut file, mut more) = (Vec::new(), true);
        let pace = 1 + random.below(30);
        while more {
            for _ in 0..random.below(pace) {
                change(store, &mut random, millis);
            }
            millis += random.below(3) as u64;
            if random.once_in(4) {
                let _ = store.tick(clock_at(millis));
            }
            more = step(&mut saving, millis, &mut file);
        }
        saving.commit(clock_at(millis));
        assert_eq!(store.snapshot_status().buffered, 0);
        let target =
            Arc::new(Store::new(StoreConfig { databases: DATABASES, ..StoreConfig::default() }));
        load(&target, END, &file, 5_000).expect("a whole file");
        let loaded = contents(&target, DATABASES, END);
        for (key, value) in &expected {
            assert_eq!(loaded.get(key), Some(value), "{key:?}");
        }
        let is_new = |key: &&(u32, Vec<u8>)| !expected.contains_key(*key);
        assert_eq!(loaded.keys().find(is_new), None);
        if evicts {
            assert!(store.stats().evicted > 0);
        }
    }
    store.recount_quotas();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn whatever_changes_meanwhile_the_file_is_of_its_cut(seed: u64, shards in 0..4u32) {
        let config = StoreConfig {
            shards: Some(1 << shards),
            databases: DATABASES,
            ..StoreConfig::default()
        };
        let quota = QuotaConfig { prefix: (*b"b:").into(), memory_max: 0, items_max: 40 };
        let quotas = if seed.is_multiple_of(2) { vec![quota] } else { Vec::new() };
        the_file_is_of_its_cut(&Arc::new(Store::with_quotas(config, quotas)), seed, false);
    }
}

#[test]
fn what_is_evicted_meanwhile_is_in_the_file() {
    for (seed, policy) in [
        EvictionPolicy::AllKeysS3Fifo,
        EvictionPolicy::AllKeysLru,
        EvictionPolicy::AllKeysLfu,
        EvictionPolicy::VolatileTtl,
        EvictionPolicy::AllKeysRandom,
    ]
    .into_iter()
    .enumerate()
    {
        let config = StoreConfig {
            memory_max: 1 << 20,
            policy,
            shards: Some(4),
            databases: DATABASES,
            ..StoreConfig::default()
        };
        let store = Arc::new(Store::new(config));
        enable(&store, START);
        let mut nth = 0;
        let mut fill = |count: usize| {
            for _ in 0..count {
                nth += 1;
                let until = END + 100_000;
                run(&store, START, &format!("SET key:{nth} {} PXAT {until}", "v".repeat(200)));
            }
        };
        fill(20_000);
        assert!(store.stats().evicted > 0);
        let expected = contents(&store, DATABASES, START);
        let evicted = store.stats().evicted;
        let mut saving = begin(&store, START);
        let mut file = Vec::new();
        for _ in 0..30 {
            fill(200);
            step(&mut saving, START, &mut file);
        }
        finish(saving, START, &mut file);
        assert!(store.stats().evicted > evicted + expected.len() as u64);
        let target =
            Arc::new(Store::new(StoreConfig { databases: DATABASES, ..StoreConfig::default() }));
        load(&target, START, &file, 5_000).expect("a whole file");
        assert!(contents(&target, DATABASES, START) == expected, "{policy:?}, seed {seed}");
    }
}

#[test]
fn a_large_collection_that_changes_while_it_is_written_is_of_the_cut() {
    let collections = [
        ("SADD set m:{}", "SADD set another", 20_000),
        ("HSET hash f:{} v", "HDEL hash f:3", 20_000),
        ("ZADD zset {} m", "ZADD zset 5 another", 1),
        ("RPUSH list {}", "LPOP list", 20_000),
        ("XADD stream {}-1 a b", "XDEL stream 7-1", 20_000),
    ];
    for (fill, change, count) in collections {
        for steps in [0, 1, 2, 3, 10, 60] {
            let config =
                StoreConfig { shards: Some(1), databases: DATABASES, ..StoreConfig::default() };
            let store = Arc::new(Store::new(config));
            enable(&store, START);
            (1..=count).for_each(|nth| {
                run(&store, START, &fill.replace("{}", &nth.to_string()));
            });
            if fill.starts_with("ZADD") {
                (0..20_000)
                    .for_each(|nth| _ = run(&store, START, &format!("ZADD zset {nth} m:{nth}")));
            }
            run(&store, START, "SET small 1");
            let expected = contents(&store, DATABASES, START);
            let mut saving = begin(&store, START);
            let mut file = Vec::new();
            (0..steps).for_each(|_| _ = step(&mut saving, START, &mut file));
            run(&store, START, "SET small 2");
            run(&store, START, change);
            run(&store, START, "SET large new");
            finish(saving, START, &mut file);
            let target = Arc::new(Store::new(config));
            load(&target, START, &file, 5_000).expect("a whole file");
            assert!(
                contents(&target, DATABASES, START) == expected,
                "{change} after {steps} steps"
            );
        }
    }
}

#[test]
fn a_snapshot_that_would_hold_too_much_is_given_up_and_the_store_goes_on() {
    let config = StoreConfig { shards: Some(4), ..StoreConfig::default() };
    let store = Arc::new(Store::new(config));
    store.enable_snapshots(100_000, clock_at(START), || {});
    for nth in 0..20_000 {
        run(&store, START, &format!("SET key:{nth} {}", "v".repeat(100)));
    }
    let mut saving = begin(&store, START);
    for nth in 0..20_000 {
        run(&store, START, &format!("SET key:{nth} new"));
    }
    let held = store.snapshot_status().buffered_peak;
    assert!(held < 120_000, "{held} bytes were held");
    let refused =
        saving.next(clock_at(START), &mut Vec::new).err().expect("too much was to be held");
    assert!(refused.to_string().contains("raise `buffer`"), "{refused}");
    saving.fail(refused.to_string(), clock_at(START));
    assert_eq!(store.snapshot_status().buffered, 0);
    assert_eq!(run(&store, START, "GET key:7"), crate::common::Reply::Bulk(Some(b"new".to_vec())));
    store.set_snapshot_buffer(64 << 20);
    let expected = contents(&store, 1, START);
    let mut file = Vec::new();
    finish(begin(&store, START), START, &mut file);
    let target = Arc::new(Store::new(config));
    load(&target, START, &file, 5_000).expect("a whole file");
    assert!(contents(&target, 1, START) == expected);
}

#[test]
fn a_snapshot_that_nobody_wants_holds_nothing_of_what_is_removed() {
    let config = StoreConfig { shards: Some(4), ..StoreConfig::default() };
    let store = Arc::new(Store::new(config));
    store.enable_snapshots(64 << 20, clock_at(START), || {});
    store.give_up_snapshot();
    for nth in 0..20_000 {
        run(&store, START, &format!("SET key:{nth} {}", "v".repeat(100)));
    }
    let mut saving = begin(&store, START);
    assert!(store.is_saving());
    store.give_up_snapshot();
    let refused = saving.next(clock_at(START), &mut Vec::new).err().expect("it is given up");
    assert!(refused.to_string().contains("resync"), "{refused}");
    for nth in 0..20_000 {
        run(&store, START, &format!("DEL key:{nth}"));
    }
    assert!(store.snapshot_status().buffered < 10_000);
    saving.fail(refused.to_string(), clock_at(START));
    assert!(!store.is_saving());
    assert_eq!(store.snapshot_status().buffered, 0);
    // The next one is whole.
    run(&store, START, "SET key new");
    let mut file = Vec::new();
    finish(begin(&store, START), START, &mut file);
    let target = Arc::new(Store::new(config));
    load(&target, START, &file, 5_000).expect("a whole file");
    assert!(contents(&target, 1, START) == contents(&store, 1, START));
}
