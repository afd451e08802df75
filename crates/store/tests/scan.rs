//! A walk returns every key that was there throughout, whatever else happens.

mod common;

use common::{Random, Reply, run};
use keyway_store::{Store, StoreConfig};
use std::collections::BTreeSet;

const START: u64 = 1_700_000_000_000;

/// One step of a walk: the next cursor and the keys.
fn step(store: &Store, cursor: &str, options: &str) -> (String, Vec<Vec<u8>>) {
    let reply = run(store, START, &format!("scan {cursor}{options}"));
    let Reply::Array(Some(parts)) = reply else { panic!("no array: {reply:?}") };
    let Reply::Bulk(Some(next)) = &parts[0] else { panic!("no cursor: {parts:?}") };
    (String::from_utf8_lossy(next).into_owned(), parts[1].strings())
}

fn walk(store: &Store, options: &str, mut between: impl FnMut(usize)) -> BTreeSet<Vec<u8>> {
    let (mut cursor, mut found, mut steps) = ("0".to_string(), BTreeSet::new(), 0);
    loop {
        let (next, keys) = step(store, &cursor, options);
        found.extend(keys);
        if next == "0" {
            return found;
        }
        cursor = next;
        steps += 1;
        assert!(steps < 1_000_000, "a walk without end");
        between(steps);
    }
}

fn key(number: usize) -> Vec<u8> {
    format!("stay:{number}").into_bytes()
}

#[test]
fn every_key_there_throughout_is_returned_while_tables_grow_and_shrink() {
    for shards in [1, 8] {
        let store = Store::new(StoreConfig { shards: Some(shards), ..StoreConfig::default() });
        (0..1500).for_each(|number| drop(run(&store, START, &format!("set stay:{number} x"))));
        let mut random = Random::new(5);
        let mut added = 0;
        for options in ["", " count 1", " count 77"] {
            let found = walk(&store, options, |steps| {
                // Grows twentyfold, then shrinks again, and so on.
                for _ in 0..60 {
                    if steps / 400 % 2 == 0 {
                        run(&store, START, &format!("set go:{added} x"));
                        added += 1;
                    } else if added > 0 {
                        added -= 1;
                        run(&store, START, &format!("del go:{added}"));
                    }
                }
                if random.once_in(50) {
                    run(&store, START, &format!("append stay:{} y", random.below(1500)));
                }
            });
            assert!((0..1500).all(|number| found.contains(&key(number))), "{options}");
        }
    }
}

#[test]
fn a_walk_undisturbed_returns_every_key_once() {
    let store = Store::new(StoreConfig { shards: Some(4), ..StoreConfig::default() });
    (0..5000).for_each(|number| drop(run(&store, START, &format!("set stay:{number} x"))));
    let (mut cursor, mut seen) = ("0".to_string(), Vec::new());
    loop {
        let (next, keys) = step(&store, &cursor, " count 30");
        assert!(keys.len() < 90, "{} keys at once", keys.len());
        seen.extend(keys);
        if next == "0" {
            break;
        }
        cursor = next;
    }
    let unique: BTreeSet<&Vec<u8>> = seen.iter().collect();
    assert_eq!((seen.len(), unique.len()), (5000, 5000));
}

#[test]
fn a_pattern_and_a_type_filter_what_is_returned() {
    let store = Store::new(StoreConfig::default());
    (0..300).for_each(|number| drop(run(&store, START, &format!("set stay:{number} x"))));
    assert_eq!(walk(&store, " match stay:1?", |_| {}).len(), 10);
    assert_eq!(walk(&store, " type string", |_| {}).len(), 300);
    assert_eq!(walk(&store, " type hash", |_| {}).len(), 0);
}

#[test]
fn random_keys_come_from_everywhere() {
    let store = Store::new(StoreConfig::default());
    assert_eq!(run(&store, START, "randomkey"), Reply::Bulk(None));
    (0..20).for_each(|number| drop(run(&store, START, &format!("set stay:{number} x"))));
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..4000 {
        let Reply::Bulk(Some(key)) = run(&store, START, "randomkey") else { panic!("no key") };
        *counts.entry(key).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 20);
    assert!(counts.values().all(|count| (100..350).contains(count)), "{counts:?}");
}
