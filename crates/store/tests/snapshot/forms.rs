//! Every type, small and large, and what files are refused.

use crate::START;
use crate::common::memcached::say;
use crate::common::snapshots::{contents, load, save};
use crate::common::{Random, clock_at, run};
use keyway_store::{EvictionPolicy, LoadError, QuotaConfig, Store, StoreConfig};
use std::sync::Arc;

fn store(config: StoreConfig) -> Arc<Store> {
    Arc::new(Store::new(StoreConfig { shards: Some(4), databases: 3, ..config }))
}

fn plain() -> Arc<Store> {
    store(StoreConfig::default())
}

/// Puts values of every type and size into a store.
fn fill(store: &Store) {
    let ask = |line: String| {
        let reply = run(store, START, &line);
        assert!(!matches!(reply, crate::common::Reply::Error(_)), "{line}: {reply:?}");
    };
    for (key, value) in [("int", "12345"), ("neg", "-7"), ("text", "hello"), ("e", "1e5")] {
        ask(format!("SET {key} {value}"));
    }
    ask(format!("SET long {}", "x".repeat(9_000)));
    ask(format!("SET longer {}", "y".repeat(200_000)));
    ask("APPEND raw a".into());
    for size in [3_u32, 200, 5_000] {
        for nth in 0..size {
            ask(format!("RPUSH list:{size} element:{nth}"));
            ask(format!("SADD set:{size} member:{nth}"));
            ask(format!("SADD ints:{size} {}", u64::from(nth) * 1_000_003));
            ask(format!("HSET hash:{size} field:{nth} value:{nth}"));
            ask(format!("HSET timed:{size} field:{nth} value:{nth}"));
            ask(format!("ZADD zset:{size} {}.5 member:{nth}", (nth * 7) % 50));
            ask(format!("XADD stream:{size} {}-{nth} name value:{nth} n{nth} 1", nth + 1));
        }
        ask(format!("HPEXPIREAT timed:{size} {} FIELDS 2 field:0 field:1", START + 900_000));
        ask(format!("HPEXPIREAT timed:{size} {} FIELDS 1 field:2", START + 800_000));
        ask(format!("XGROUP CREATE stream:{size} group 0"));
        ask(format!("XREADGROUP GROUP group one COUNT 2 STREAMS stream:{size} >"));
        ask(format!("XREADGROUP GROUP group two COUNT 1 STREAMS stream:{size} >"));
        ask(format!("XDEL stream:{size} 2-1"));
        ask(format!("XGROUP CREATE stream:{size} other $"));
    }
    ask("ZADD infinite inf a -inf b 0 c".into());
    ask(format!("SET soon 1 PXAT {}", START + 1_000));
    ask(format!("SET later 1 PXAT {}", START + 1_000_000));
    ask(format!("PEXPIREAT list:200 {}", START + 1_000_000));
    ask("COPY text text DB 1".into());
    ask("COPY zset:200 zset:200 DB 2".into());
}

#[test]
fn every_type_is_read_back_as_it_was_written() {
    let source = plain();
    fill(&source);
    let file = save(&source, START);
    let expected = contents(&source, 3, START);
    assert!(expected.len() > 30);
    for piece in [1 << 20, 4096, 7] {
        let target = plain();
        let loaded = load(&target, START, &file, piece).expect("a whole file");
        assert_eq!(loaded, (expected.len() as u64, 0));
        assert_eq!(contents(&target, 3, START), expected, "in pieces of {piece}");
        // A value that was read is written again as it was.
        let again = plain();
        load(&again, START, &save(&target, START), 4096).expect("a whole file");
        assert_eq!(contents(&again, 3, START), expected);
    }
}

#[test]
fn what_has_expired_is_left_out_by_who_writes_and_by_who_reads() {
    let source = plain();
    fill(&source);
    let file = save(&source, START);
    let later = START + 2_000;
    let target = plain();
    let (keys, expired) = load(&target, later, &file, 4096).expect("a whole file");
    assert_eq!(expired, 1);
    assert_eq!(contents(&target, 3, later), contents(&source, 3, later));
    assert_eq!(contents(&target, 3, later).len() as u64, keys);
    let (_, expired) = load(&plain(), later, &save(&source, later), 4096).expect("a whole file");
    assert_eq!(expired, 0);
}

#[test]
fn a_file_that_is_cut_or_damaged_anywhere_is_refused() {
    let source = plain();
    for nth in 0..40 {
        run(&source, START, &format!("SET key:{nth} value:{nth}"));
        run(&source, START, &format!("RPUSH list element:{nth}"));
    }
    let file = save(&source, START);
    load(&plain(), START, &file, 64).expect("a whole file");
    for len in 0..file.len() {
        let refused = load(&plain(), START, &file[..len], 64);
        assert!(matches!(refused, Err(LoadError::File(_))), "{len} bytes: {refused:?}");
    }
    let mut random = Random::new(7);
    for _ in 0..500 {
        let mut damaged = file.clone();
        let at = random.below(file.len() - 8);
        damaged[at] ^= 1 << random.below(8);
        assert!(load(&plain(), START, &damaged, 64).is_err(), "byte {at}");
    }
}

#[test]
fn what_the_store_has_no_place_for_is_refused_with_what_to_do() {
    let source = plain();
    run(&source, START, "SET a 1");
    run(&source, START, "COPY a a DB 2");
    let file = save(&source, START);
    let narrow = Arc::new(Store::new(StoreConfig { databases: 2, ..StoreConfig::default() }));
    let refused = load(&narrow, START, &file, 64).expect_err("no database 2");
    assert!(refused.to_string().contains("raise `databases`"), "{refused}");
    let big = plain();
    for nth in 0..20_000 {
        run(&big, START, &format!("SET key:{nth} {}", "v".repeat(100)));
    }
    let file = save(&big, START);
    let policy = EvictionPolicy::NoEviction;
    let small = store(StoreConfig { memory_max: 1 << 20, policy, ..StoreConfig::default() });
    let refused = load(&small, START, &file, 4096).expect_err("no room");
    assert!(refused.to_string().contains("raise `memory_max`"), "{refused}");
    let policy = EvictionPolicy::AllKeysLru;
    let evicting = store(StoreConfig { memory_max: 1 << 20, policy, ..StoreConfig::default() });
    load(&evicting, START, &file, 4096).expect("others give way");
    assert!(evicting.stats().evicted > 0);
}

#[test]
fn what_memcached_clients_know_survives_and_no_number_is_given_twice() {
    let source = plain();
    say(
        &source,
        START,
        "set plain 42 0 5\r\nhello\r\nset other 0 0 1\r\n1\r\nset stale 7 100 1\r\nx\r\n",
    );
    let with_number = say(&source, START, "gets plain stale\r\n");
    assert_eq!(say(&source, START, "md stale I T100\r\n"), "HD\r\n");
    let stale = say(&source, START, "mg stale v c f N100\r\n");
    let file = save(&source, START);
    let target = plain();
    load(&target, START, &file, 64).expect("a whole file");
    assert_eq!(
        say(&target, START, "gets plain\r\n"),
        with_number.split_inclusive("\r\n").take(2).collect::<String>() + "END\r\n"
    );
    // It is stale, and somebody was told to fill it.
    assert!(stale.contains(" W") && stale.contains(" X"), "{stale}");
    let told = say(&target, START, "mg stale v c f\r\n");
    assert!(told.contains(" X") && told.contains(" Z"), "{told}");
    let number = |text: &str| -> u64 {
        let words: Vec<&str> = text.lines().next().expect("a line").split(' ').collect();
        words[4].parse().expect("a number")
    };
    let old = number(&with_number);
    let new = number(&say(&target, START, "gets other\r\n"));
    assert!(new >> 16 > old >> 16, "{new} is behind {old}");
    assert_eq!(say(&target, START, &format!("cas plain 1 0 1 {new}\r\ny\r\n")), "EXISTS\r\n");
    assert_eq!(say(&target, START, &format!("cas plain 1 0 1 {old}\r\ny\r\n")), "STORED\r\n");
}

#[test]
fn a_flush_to_come_comes_after_a_restart() {
    let source = plain();
    say(&source, START, "set a 0 0 1\r\n1\r\nflush_all 10\r\n");
    let file = save(&source, START);
    let target = plain();
    load(&target, START + 2_000, &file, 64).expect("a whole file");
    assert_eq!(say(&target, START + 2_000, "get a\r\n"), "VALUE a 0 1\r\n1\r\nEND\r\n");
    assert_eq!(say(&target, START + 11_000, "get a\r\n"), "END\r\n");
}

#[test]
fn quotas_hold_for_keys_that_were_loaded() {
    let source = plain();
    for nth in 0..300 {
        run(&source, START, &format!("SET user:{nth} 1"));
        run(&source, START, &format!("SET other:{nth} 1"));
    }
    let quota = QuotaConfig { prefix: (*b"user:").into(), memory_max: 0, items_max: 100 };
    let config = StoreConfig { shards: Some(4), databases: 3, ..StoreConfig::default() };
    let target = Arc::new(Store::with_quotas(config, vec![quota]));
    load(&target, START, &save(&source, START), 4096).expect("a whole file");
    let stats = target.stats();
    assert_eq!(stats.quotas[0].items, 100);
    assert_eq!(stats.databases[0].items, 400);
    target.recount_quotas();
    // Keys of quotas lie elsewhere in memory, and are written as others.
    let again = plain();
    load(&again, START, &save(&target, START), 4096).expect("a whole file");
    assert_eq!(contents(&again, 3, START), contents(&target, 3, START));
}

#[test]
fn a_snapshot_that_is_not_whole_leaves_the_store_as_it_was() {
    let store = plain();
    fill(&store);
    let before = contents(&store, 3, START);
    crate::common::snapshots::enable(&store, START);
    let mut file = Vec::new();
    let mut saving = crate::common::snapshots::begin(&store, START);
    for _ in 0..20 {
        crate::common::snapshots::step(&mut saving, START, &mut file);
    }
    run(&store, START, "SADD set:5000 more");
    run(&store, START, "SREM set:5000 more");
    saving.fail("the disk is full".to_owned(), clock_at(START));
    let status = store.snapshot_status();
    assert!(status.last_failed && status.failure == "the disk is full" && !status.is_saving);
    assert_eq!(status.buffered, 0);
    assert_eq!(contents(&store, 3, START), before);
    let target = plain();
    load(&target, START, &save(&store, START), 4096).expect("a whole file");
    assert_eq!(contents(&target, 3, START), before);
    assert!(!store.snapshot_status().last_failed);
}
