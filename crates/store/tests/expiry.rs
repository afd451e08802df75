//! Expired items go by themselves, and soon.

mod common;

use common::{Reply, clock_at, run};
use keyway_store::{Store, StoreConfig};

const START: u64 = 1_700_000_000_000;

fn items(store: &Store) -> u64 {
    store.stats().databases[0].items
}

#[test]
fn what_expired_is_reclaimed_within_two_seconds_without_access() {
    let store = Store::new(StoreConfig::default());
    let mut expiries = Vec::new();
    for number in 0..20_000u64 {
        let millis = 1 + number * number % 90_000;
        run(&store, START, &format!("set key:{number} value px {millis}"));
        expiries.push(millis);
    }
    for tick in 0..1000u64 {
        let elapsed = tick * 100;
        // A worker calls again at once when there is more to do.
        while store.tick(clock_at(START + elapsed)) {}
        let overdue = expiries.iter().filter(|expiry| **expiry + 2000 <= elapsed).count();
        assert!(items(&store) <= (expiries.len() - overdue) as u64, "after {elapsed} ms");
        let alive = expiries.iter().filter(|expiry| **expiry > elapsed).count();
        assert!(items(&store) >= alive as u64, "after {elapsed} ms");
    }
    assert_eq!(items(&store), 0);
    assert_eq!(store.stats().expired, 20_000);
}

#[test]
fn an_expiry_counts_to_the_millisecond() {
    let store = Store::new(StoreConfig::default());
    run(&store, START, "set key value px 1500");
    assert_eq!(run(&store, START + 1499, "get key"), Reply::Bulk(Some(b"value".to_vec())));
    assert_eq!(run(&store, START + 1499, "pttl key").integer(), 1);
    assert_eq!(run(&store, START + 1500, "get key"), Reply::Bulk(None));
    assert_eq!(store.stats().expired, 1);
}

#[test]
fn an_expiry_moved_away_does_not_strike_at_its_old_time() {
    let store = Store::new(StoreConfig { shards: Some(1), ..StoreConfig::default() });
    run(&store, START, "set later value px 1500");
    run(&store, START, "pexpire later 9500");
    run(&store, START, "set never value px 1500");
    run(&store, START, "persist never");
    run(&store, START, "set sooner value px 90000");
    run(&store, START, "pexpire sooner 2500");
    for (elapsed, left) in [(2000, 3), (4000, 2), (9000, 2), (12_000, 1), (200_000, 1)] {
        (0..10).for_each(|_| _ = store.tick(clock_at(START + elapsed)));
        assert_eq!(items(&store), left, "after {elapsed} ms");
    }
}

#[test]
fn what_is_alive_expires_in_time_while_entries_of_others_are_cleared_away() {
    let store = Store::new(StoreConfig { shards: Some(1), ..StoreConfig::default() });
    for key in 0..3000u64 {
        run(&store, START, &format!("set key:{key} value px {}", 50_000 + key));
    }
    let before = store.stats().memory_used;
    // Each leaves an entry behind, so that all are made anew several times, while
    // keys come, get other times, and the table grows and shrinks.
    for round in 0..60_000u64 {
        run(&store, START, &format!("set other value px {}", 100_000 + round));
        run(&store, START, "del other");
        match (round % 7, 3000 + round / 7) {
            (0, key) => run(&store, START, &format!("set key:{key} value px 60000")),
            (1, key) => run(&store, START, &format!("pexpire key:{key} {}", 40_000 + round % 999)),
            (2, key) if key > 6000 => run(&store, START, &format!("del key:{}", key - 3000)),
            _ => continue,
        };
    }
    assert!(store.stats().memory_used < 3 * before, "{} bytes", store.stats().memory_used);
    let count = items(&store);
    for (elapsed, is_over) in [(39_000, false), (62_000, true)] {
        (0..100).for_each(|_| _ = store.tick(clock_at(START + elapsed)));
        assert_eq!(items(&store), if is_over { 0 } else { count }, "after {elapsed} ms");
    }
}

#[test]
fn refreshing_an_expiry_forever_takes_no_memory() {
    let store = Store::new(StoreConfig { shards: Some(1), ..StoreConfig::default() });
    run(&store, START, "set key value");
    let before = store.stats().memory_used;
    for round in 0..50_000u64 {
        run(&store, START + round, &format!("expire key {}", 100_000 - round));
        run(&store, START + round, "persist key");
        run(&store, START + round, &format!("set other value ex {}", 1000 + round));
        run(&store, START + round, "del other");
    }
    let grown = store.stats().memory_used - before;
    assert!(grown < 16 << 10, "{grown} bytes");
}
