//! Quotas: what keys of a prefix take is counted exactly, kept within its
//! bounds at their own expense, and at nobody else's.

mod common;

use common::{Random, Reply, clock_at, execute_in, run};
use keyway_resp::Protocol;
use keyway_store::{
    AfterRead, Context, EvictionPolicy, QuotaConfig, QuotaStats, Store, StoreConfig,
};
use std::collections::{BTreeMap, BTreeSet};

const START: u64 = 1_700_000_000_000;

fn quota(prefix: &str, memory_max: u64, items_max: u64) -> QuotaConfig {
    QuotaConfig { prefix: prefix.as_bytes().into(), memory_max, items_max }
}

fn store_with(policy: EvictionPolicy, quotas: Vec<QuotaConfig>) -> Store {
    Store::with_quotas(StoreConfig { policy, shards: Some(4), ..StoreConfig::default() }, quotas)
}

fn stats_of(store: &Store, prefix: &str) -> QuotaStats {
    let all = store.stats().quotas;
    all.into_iter().find(|quota| *quota.config.prefix == *prefix.as_bytes()).expect("a quota")
}

fn keys(store: &Store, millis: u64, pattern: &str) -> BTreeSet<String> {
    let found = run(store, millis, &format!("KEYS {pattern}")).strings();
    found.into_iter().map(|key| String::from_utf8_lossy(&key).into_owned()).collect()
}

const POLICIES: [EvictionPolicy; 5] = [
    EvictionPolicy::AllKeysS3Fifo,
    EvictionPolicy::AllKeysLru,
    EvictionPolicy::AllKeysLfu,
    EvictionPolicy::AllKeysRandom,
    EvictionPolicy::VolatileTtl,
];

#[test]
fn a_small_quota_holds_as_much_however_long_its_keys_change() {
    let store = Store::with_quotas(
        StoreConfig { shards: Some(1024), ..StoreConfig::default() },
        vec![quota("a", 64 << 10, 0)],
    );
    let mut held = Vec::new();
    for number in 0..40_000 {
        let line = format!("SET a{number} {}", "x".repeat(100));
        assert_eq!(run(&store, START, &line), Reply::Simple("OK".into()), "{number}");
        if number % 8000 == 7999 {
            held.push(stats_of(&store, "a").items);
        }
    }
    assert!(held.iter().all(|items| *items > 400), "{held:?}");
    store.recount_quotas();
}

#[test]
fn a_quota_takes_room_from_its_own_keys_only() {
    for policy in POLICIES {
        let quotas = vec![quota("session:", 200_000, 0), quota("s", 0, 50)];
        let store = store_with(policy, quotas);
        for number in 0..500 {
            run(&store, START, &format!("SET other:{number} {}", "x".repeat(100)));
            run(&store, START, &format!("SET s{} 1 EX 1000", number % 40));
        }
        for number in 0..5000 {
            let line = format!("SET session:{number} {} EX 1000", "x".repeat(number % 300));
            assert_eq!(run(&store, START, &line), Reply::Simple("OK".into()), "{policy:?}");
            assert!(stats_of(&store, "session:").memory_used <= 200_000);
        }
        let session = stats_of(&store, "session:");
        assert!(session.memory_used > 150_000, "{policy:?} {session:?}");
        assert!(session.evicted > 3000);
        assert_eq!(session.items, keys(&store, START, "session:*").len() as u64);
        assert_eq!(keys(&store, START, "other:*").len(), 500);
        // The longest prefix counts.
        assert_eq!((stats_of(&store, "s").items, stats_of(&store, "s").evicted), (40, 0));
        assert_eq!(store.stats().evicted, session.evicted);
    }
}

#[test]
fn a_quota_of_items_lets_so_many_be_there() {
    let store = store_with(EvictionPolicy::AllKeysS3Fifo, vec![quota("a:", 0, 10)]);
    for number in 0..100 {
        run(&store, START, &format!("MSET a:{number} 1 b:{number} 2 a:x{number} 3"));
        assert!(stats_of(&store, "a:").items <= 10);
        assert_eq!(keys(&store, START, "a:*").len() as u64, stats_of(&store, "a:").items);
    }
    assert_eq!(stats_of(&store, "a:").items, 10);
    assert_eq!(keys(&store, START, "b:*").len(), 100);
    // Items that are there already need no room.
    let before = keys(&store, START, "a:*");
    for key in &before {
        run(&store, START, &format!("SET {key} again"));
    }
    assert_eq!(keys(&store, START, "a:*"), before);
}

#[test]
fn without_eviction_a_write_beyond_a_quota_is_refused() {
    let store =
        store_with(EvictionPolicy::NoEviction, vec![quota("a:", 0, 3), quota("big:", 50_000, 0)]);
    let refused = |prefix: &str| {
        let text = "OOM command not allowed when the quota of keys 'P*' is used up.";
        Reply::Error(text.replace('P', prefix))
    };
    for number in 0..3 {
        run(&store, START, &format!("SET a:{number} 1"));
    }
    assert_eq!(run(&store, START, "SET a:new 1"), refused("a:"));
    assert_eq!(run(&store, START, "MSET other 1 a:0 2"), Reply::Simple("OK".into()));
    assert_eq!(run(&store, START, "MSET other 2 a:4 2"), refused("a:"));
    assert_eq!(run(&store, START, "GET other"), Reply::Bulk(Some(b"1".to_vec())));
    assert_eq!(run(&store, START, "DEL a:1").integer(), 1);
    assert_eq!(run(&store, START, "SADD a:new x").integer(), 1);
    assert_eq!(stats_of(&store, "a:").refused, 2);
    let value = "x".repeat(30_000);
    assert_eq!(run(&store, START, &format!("SET big:1 {value}")), Reply::Simple("OK".into()));
    assert_eq!(run(&store, START, &format!("SET big:2 {value}")), refused("big:"));
    assert_eq!(run(&store, START, &format!("APPEND big:1 {value}")), refused("big:"));
    assert_eq!(run(&store, START, "STRLEN big:1").integer(), 30_000);
    assert_eq!(run(&store, START, "DEL big:1").integer(), 1);
    assert_eq!(run(&store, START, &format!("SET big:2 {value}")), Reply::Simple("OK".into()));
}

#[test]
fn a_value_that_never_fits_evicts_nothing() {
    let store = store_with(EvictionPolicy::AllKeysLru, vec![quota("a:", 20_000, 0)]);
    run(&store, START, "SET a:1 x");
    let reply = run(&store, START, &format!("SET a:2 {}", "x".repeat(30_000)));
    assert!(matches!(reply, Reply::Error(text) if text.starts_with("OOM ")));
    assert_eq!(run(&store, START, "EXISTS a:1").integer(), 1);
}

const PREFIXES: [&str; 4] = ["a:", "a:b:", "zz", ""];

fn any_line(random: &mut Random) -> String {
    let mut key = || {
        let prefix = *random.pick(&PREFIXES);
        format!("{prefix}{}", random.below(30))
    };
    let (key, other) = (key(), key());
    let number = random.below(100);
    let long = "v".repeat(random.below(400));
    match random.below(24) {
        0..=2 => format!("SET {key} {long}x"),
        3 => format!("SET {key} {number} PX {}", 1 + random.below(2000)),
        4 => format!("DEL {key} {other}"),
        5 => format!("APPEND {key} {long}y"),
        6 => format!("HSET {key} f{number} {long}z"),
        7 => format!("HSETEX {key} PX {} FIELDS 1 f{number} {long}z", 1 + random.below(900)),
        8 => format!("HDEL {key} f{number}"),
        9 => format!("RPUSH {key} {long}e e e"),
        10 => format!("LPOP {key} 2"),
        11 => format!("LMOVE {key} {other} LEFT RIGHT"),
        12 => format!("SADD {key} m{number} {number}"),
        13 => format!("SUNIONSTORE {key} {key} {other}"),
        14 => format!("ZADD {key} {number} m{number}"),
        15 => format!("RENAME {key} {other}"),
        16 => format!("COPY {key} {other} REPLACE"),
        17 => format!("COPY {key} {other} DB 1 REPLACE"),
        18 => format!("MOVE {key} 2"),
        19 => format!("PEXPIRE {key} {}", random.below(3000)),
        20 => format!("PERSIST {key}"),
        21 if random.once_in(40) => "FLUSHDB".to_owned(),
        22 if random.once_in(10) => "SWAPDB 0 1".to_owned(),
        23 if random.once_in(60) => "FLUSHALL".to_owned(),
        _ => format!("MSET {key} {number} {other} {long}w"),
    }
}

#[test]
fn counts_are_those_of_a_recount_after_any_mix() {
    for (seed, policy) in (1..).zip(POLICIES.into_iter().chain([EvictionPolicy::NoEviction])) {
        let quotas = vec![quota("a:", 30_000, 0), quota("a:b:", 0, 12), quota("zz", 60_000, 25)];
        let config = StoreConfig {
            policy,
            shards: Some(2),
            databases: 3,
            memory_max: if seed % 2 == 0 { 1 << 20 } else { 0 },
            ..StoreConfig::default()
        };
        let store = Store::with_quotas(config, quotas);
        let (mut random, mut now) = (Random::new(seed), START);
        for round in 0..4000 {
            let line = any_line(&mut random);
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let context = Context {
                database: random.below(3) as u32,
                clock: clock_at(now),
                protocol: Protocol::Resp2,
                worker: 0,
            };
            execute_in(&store, context, &words, &mut Vec::new());
            now += random.below(30) as u64;
            if random.once_in(10) {
                let _ = store.tick(clock_at(now));
            }
            if round % 20 == 0 {
                store.recount_quotas();
                if policy != EvictionPolicy::NoEviction && policy != EvictionPolicy::VolatileTtl {
                    assert!(stats_of(&store, "a:").memory_used <= 30_000);
                    assert!(stats_of(&store, "a:b:").items <= 12);
                    assert!(stats_of(&store, "zz").items <= 25);
                }
            }
        }
        run(&store, now, "FLUSHALL");
        store.recount_quotas();
        for quota in store.stats().quotas {
            assert_eq!((quota.memory_used, quota.items), (0, 0));
        }
    }
}

#[test]
fn walks_find_every_key_once_whatever_its_quota() {
    let store =
        store_with(EvictionPolicy::AllKeysS3Fifo, vec![quota("a", 0, 0), quota("ab", 1 << 20, 0)]);
    let mut all = BTreeSet::new();
    for number in 0..300 {
        let key = format!("{}{number}", ["a", "ab", "b"][number % 3]);
        run(&store, START, &format!("SET {key} {number}"));
        all.insert(key);
    }
    assert_eq!(keys(&store, START, "*"), all);
    assert_eq!(run(&store, START, "DBSIZE").integer(), 300);
    let (mut cursor, mut seen) = ("0".to_owned(), BTreeMap::new());
    loop {
        let Reply::Array(Some(parts)) = run(&store, START, &format!("SCAN {cursor} COUNT 7"))
        else {
            panic!("no reply of SCAN")
        };
        for key in parts[1].strings() {
            *seen.entry(String::from_utf8_lossy(&key).into_owned()).or_insert(0) += 1;
        }
        let Reply::Bulk(Some(next)) = &parts[0] else { panic!("no cursor") };
        cursor = String::from_utf8_lossy(next).into_owned();
        if cursor == "0" {
            break;
        }
    }
    assert!(seen.keys().eq(all.iter()) && seen.values().all(|times| *times == 1));
    let picked: BTreeSet<u8> = (0..300)
        .map(|_| match run(&store, START, "RANDOMKEY") {
            Reply::Bulk(Some(key)) => *key.get(1).unwrap_or(&0),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(picked.contains(&b'b') && picked.len() > 3);
    run(&store, START, "SWAPDB 0 5");
    assert_eq!(run(&store, START, "DBSIZE").integer(), 0);
    run(&store, START, "SWAPDB 5 0");
    assert_eq!(run(&store, START, "GET ab1"), Reply::Bulk(Some(b"1".to_vec())));
    run(&store, START, "FLUSHDB");
    assert_eq!(run(&store, START, "DBSIZE").integer(), 0);
    assert_eq!(keys(&store, START, "*"), BTreeSet::new());
}

#[test]
fn a_read_puts_an_expiry_off_once_little_time_is_left() {
    let after_read = Some(AfterRead { span_millis: 10_000, below_percent: 50 });
    let store = Store::new(StoreConfig { after_read, ..StoreConfig::default() });
    let left = |millis: u64, key: &str| run(&store, millis, &format!("PTTL {key}")).integer();
    run(&store, START, "SET k v PX 8000");
    run(&store, START, "SET never v");
    run(&store, START, "SET later v PX 60000");
    run(&store, START, "HSET h f v");
    run(&store, START, "PEXPIRE h 8000");
    for key in ["k", "never", "later"] {
        run(&store, START, &format!("GET {key}"));
    }
    assert_eq!([left(START, "k"), left(START, "never"), left(START, "later")], [8000, -1, 60_000]);
    // Not by what looks at the key alone.
    let then = START + 3001;
    for line in ["EXISTS k", "TYPE k", "TTL k", "OBJECT ENCODING k", "DUMP k", "SCAN 0", "KEYS *"] {
        run(&store, then, line);
        assert_eq!(left(then, "k"), 4999, "{line}");
    }
    run(&store, START + 3000, "GET k");
    assert_eq!(left(START + 3000, "k"), 5000);
    for (key, line) in [("k", "GET k"), ("h", "HGET h f")] {
        run(&store, then, line);
        assert_eq!(left(then, key), 10_000, "{line}");
    }
    run(&store, then + 9999, "MGET k never");
    assert_eq!(left(then + 9999, "k"), 10_000);
    assert_eq!(run(&store, then + 19_999, "GET k"), Reply::Bulk(None));
    // A write moves nothing by itself.
    run(&store, START, "SET w 1 PX 100");
    run(&store, START, "INCR w");
    assert_eq!(left(START, "w"), 100);
    let mut now = START;
    run(&store, now, "SET forever v PX 9000");
    for _ in 0..50 {
        now += 6000;
        while store.tick(clock_at(now)) {}
        assert_eq!(run(&store, now, "GET forever"), Reply::Bulk(Some(b"v".to_vec())));
    }
}
