//! Moving items to other pages changes nothing but where they lie.

mod common;

use common::{Random, clock_at, run, run_words};
use keyway_store::{Store, StoreConfig};
use std::collections::BTreeMap;

const START: u64 = 1_700_000_000_000;
const KEYS: usize = 4000;
/// Members of each large collection: more than fit a compact one.
const MEMBERS: usize = 200;

#[test]
fn what_is_left_after_most_was_deleted_is_moved_together_and_unchanged() {
    let store = Store::new(StoreConfig { shards: Some(64), ..StoreConfig::default() });
    let mut random = Random::new(11);
    let mut texts: BTreeMap<usize, String> = BTreeMap::new();
    for key in 0..200_000 {
        let value = format!("{key}:{}", "v".repeat(random.below(120)));
        let line = format!("set text:{key} {value} px {}", 10_000_000 + key);
        run(&store, START, &line);
        texts.insert(key, value);
    }
    for key in 0..KEYS {
        for part in 0..if key % 10 == 0 { MEMBERS } else { 20 } {
            let member = format!("member:{}:{part}", "m".repeat(part % 40));
            run(&store, START, &format!("zadd sorted:{key} {} {member}", part * 7 % MEMBERS));
            run(&store, START, &format!("hset hash:{key} {member} {part}"));
            run(&store, START, &format!("sadd set:{key} {member}"));
        }
    }
    let names = ["sorted", "hash", "set"];
    let read = |name: &str, key: usize| {
        let line = match name {
            "sorted" => format!("zrange sorted:{key} 0 -1 withscores"),
            "hash" => format!("hgetall hash:{key}"),
            _ => format!("smembers set:{key}"),
        };
        let mut all = run(&store, START, &line).strings();
        if name != "sorted" {
            all.sort();
        }
        all
    };
    let kept = |key: usize| key.is_multiple_of(20);
    let before: Vec<_> =
        (0..KEYS).filter(|key| kept(*key)).map(|key| names.map(|name| read(name, key))).collect();
    texts.retain(|key, _| kept(*key));
    for key in (0..200_000).filter(|key| !kept(*key)) {
        run(&store, START, &format!("del text:{key}"));
        if key < KEYS {
            run(&store, START, &format!("del sorted:{key} hash:{key} set:{key}"));
        }
    }
    let spread = store.stats();
    for tick in 0..300 {
        while store.tick(clock_at(START + tick)) {}
    }
    let together = store.stats();
    assert!(spread.memory_idle > 8 << 20, "{} bytes were idle", spread.memory_idle);
    assert!(
        together.memory_idle < spread.memory_idle / 2,
        "{} of {} bytes are idle still",
        together.memory_idle,
        spread.memory_idle
    );
    assert!(together.memory_used <= spread.memory_used);
    for (key, value) in &texts {
        let reply = run_words(&store, START, &[b"GET", format!("text:{key}").as_bytes()]);
        assert_eq!(reply, common::Reply::Bulk(Some(value.clone().into_bytes())));
        let left = run(&store, START, &format!("pttl text:{key}")).integer();
        assert_eq!(left, 10_000_000 + *key as i64);
    }
    let after: Vec<_> =
        (0..KEYS).filter(|key| kept(*key)).map(|key| names.map(|name| read(name, key))).collect();
    assert!(before == after, "collections are as they were");
    // The order of a sorted set still knows where its members are.
    for key in (0..KEYS).filter(|key| kept(*key)) {
        let member = format!("member:{}:{}", "m".repeat(3), 3);
        assert_eq!(run(&store, START, &format!("zrem sorted:{key} {member}")).integer(), 1);
        assert_eq!(
            run(&store, START, &format!("zscore sorted:{key} {member}")),
            common::Reply::Bulk(None)
        );
    }
}
