//! Laws of the store's memcached requests beyond memcached's replies: time, the same keys as Redis
//! clients see them, and the clients that are told of changes.

mod common;

use common::memcached::{ask, ask_in, context_at, each_request, say};
use common::{Random, Reply, run, run_words};
use keyway_store::{
    EvictionPolicy, Footprint, Mark, MemcachedContext, QuotaConfig, Store, StoreConfig,
};
use keyway_testkit::memcached_packet as packet;
use std::collections::BTreeMap;
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;

fn store() -> Store {
    Store::new(StoreConfig { seed: 3, ..StoreConfig::default() })
}

/// The number that `gets` tells.
fn number(store: &Store, key: &str) -> u64 {
    let said = say(store, NOW, &format!("gets {key}\r\n"));
    let line = said.lines().next().unwrap();
    line.split(' ').nth(4).unwrap_or_else(|| panic!("no number: {said}")).parse().unwrap()
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(Some(text.as_bytes().to_vec()))
}

#[test]
fn what_either_kind_of_client_writes_the_other_reads() {
    let store = store();
    run(&store, NOW, "SET redis value");
    assert_eq!(say(&store, NOW, "get redis\r\n"), "VALUE redis 0 5\r\nvalue\r\nEND\r\n");
    say(&store, NOW, "set plain 0 0 1\r\na\r\nset flags 9 100 2\r\nbc\r\n");
    assert_eq!(run(&store, NOW, "GET plain"), bulk("a"));
    assert_eq!(run(&store, NOW, "TTL plain"), Reply::Integer(-1));
    assert_eq!(run(&store, NOW, "GET flags"), bulk("bc"));
    assert_eq!(run(&store, NOW, "PTTL flags"), Reply::Integer(100_000));
    run(&store, NOW, "EXPIRE flags 30");
    assert_eq!(say(&store, NOW, "mg flags f t\r\n"), "HD f9 t30\r\n");
    run(&store, NOW, "APPEND flags d");
    assert_eq!(say(&store, NOW, "get flags\r\n"), "VALUE flags 9 3\r\nbcd\r\nEND\r\n");
    run(&store, NOW, "RENAME flags other");
    assert_eq!(say(&store, NOW, "get flags other\r\n"), "VALUE other 9 3\r\nbcd\r\nEND\r\n");
    run(&store, NOW, "SET other new");
    assert_eq!(say(&store, NOW, "get other\r\n"), "VALUE other 0 3\r\nnew\r\nEND\r\n");
}

#[test]
fn a_value_has_one_number_and_every_change_gives_another() {
    let store = store();
    run(&store, NOW, "SET k 10");
    let mut seen = vec![number(&store, "k")];
    assert_eq!(number(&store, "k"), seen[0], "reading changes nothing");
    run(&store, NOW, "EXPIRE k 100");
    run(&store, NOW, "GET k");
    say(&store, NOW, "touch k 50\r\n");
    assert_eq!(number(&store, "k"), seen[0], "the value is the same");
    for line in [
        "SET k 10",
        "SET k 10",
        "INCR k",
        "APPEND k 1",
        "SETRANGE k 0 2",
        "SETBIT k 3 1",
        "SETBIT k 3 1",
        "INCRBYFLOAT k 1.5",
        "GETSET k 1",
        "BITFIELD k SET u8 0 65",
        "PFADD h a",
        "SET k 5 KEEPTTL",
        "MSET k 5",
        "DEL k",
        "SETEX k 100 5",
    ] {
        run(&store, NOW, line);
        if line == "DEL k" {
            run(&store, NOW, "SET k 5");
        }
        let next = number(&store, "k");
        assert!(!seen.contains(&next) || line == "PFADD h a", "{line} kept {next}");
        seen.push(next);
    }
    run(&store, NOW, "PFADD h b");
    let sketch = number(&store, "h");
    run(&store, NOW, "PFADD h c");
    assert_ne!(number(&store, "h"), sketch);
    for request in [
        "set k 0 0 1\r\n5\r\n",
        "incr k 1\r\n",
        "incr k 1000\r\n",
        "decr k 1000\r\n",
        "append k 0 0 1\r\n1\r\n",
        "prepend k 0 0 1\r\n1\r\n",
        "replace k 0 0 1\r\n5\r\n",
        "md k I\r\n",
    ] {
        say(&store, NOW, request);
        let next = number(&store, "k");
        assert!(!seen.contains(&next), "{request} kept {next}");
        assert!(next > *seen.last().unwrap(), "numbers of a key grow");
        seen.push(next);
    }
}

#[test]
fn two_values_never_have_the_same_number() {
    let store = store();
    let mut random = Random::new(11);
    let mut values: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    const KEYS: [&str; 4] = ["a", "b", "c", "d"];
    for _ in 0..20_000 {
        let (key, other) = (*random.pick(&KEYS), *random.pick(&KEYS));
        let number = random.below(300);
        let line = match random.below(26) {
            0 => format!("SET {key} {number}"),
            1 => format!("SET {key} {number} XX KEEPTTL"),
            2 => format!("APPEND {key} {number}"),
            3 => format!("INCRBY {key} {number}"),
            4 => format!("SETRANGE {key} {} {number}", number % 7),
            5 => format!("SETBIT {key} {} {}", number % 64, number % 2),
            6 => format!("BITFIELD {key} INCRBY u8 {} {number}", number % 32),
            7 => format!("BITOP NOT {key} {other}"),
            8 => format!("RENAME {key} {other}"),
            9 => format!("COPY {key} {other} REPLACE"),
            10 => format!("DEL {key}"),
            11 => format!("GETEX {key} EX {}", number + 1),
            12 => format!("PERSIST {key}"),
            13 => format!("MSET {key} {number} {other} {number}"),
            14 => format!("PFADD {key} {number}"),
            15 => format!("PFMERGE {key} {other}"),
            16 => format!("INCRBYFLOAT {key} {number}"),
            17 => format!("GETDEL {key}"),
            18 => format!("RPUSH {key} {number}"),
            _ => String::new(),
        };
        if line.is_empty() {
            let text = number.to_string();
            let request = match random.below(8) {
                0 => format!("set {key} 1 0 {}\r\n{text}\r\n", text.len()),
                1 => format!("append {key} 1 0 {}\r\n{text}\r\n", text.len()),
                2 => format!("prepend {key} 1 0 {}\r\n{text}\r\n", text.len()),
                3 => format!("incr {key} {text}\r\n"),
                4 => format!("decr {key} {text}\r\n"),
                5 => format!("touch {key} {text}\r\n"),
                6 => format!("md {key} I\r\n"),
                _ => format!("delete {key}\r\n"),
            };
            say(&store, NOW, &request);
        } else {
            run(&store, NOW, &line);
        }
        for key in KEYS {
            let said = ask(&store, NOW, format!("gets {key}\r\n").as_bytes());
            if !said.starts_with(b"VALUE") {
                continue;
            }
            let end = said.iter().position(|byte| *byte == b'\r').unwrap();
            let line = String::from_utf8_lossy(&said[..end]).into_owned();
            let cas = line.split(' ').nth(4).unwrap().parse().unwrap();
            let value = said[end..].to_vec();
            let first = values.entry(cas).or_insert_with(|| value.clone());
            assert_eq!(first, &value, "{cas} of {key} after {line}");
        }
    }
}

#[test]
fn a_number_is_good_for_one_change_whoever_makes_it() {
    let store = store();
    say(&store, NOW, "set k 1 0 1\r\na\r\n");
    let number_before = number(&store, "k");
    run(&store, NOW, "SET k b");
    let cas = format!("cas k 1 0 1 {number_before}\r\nc\r\n");
    assert_eq!(say(&store, NOW, &cas), "EXISTS\r\n");
    let cas = format!("cas k 1 0 1 {}\r\nc\r\n", number(&store, "k"));
    assert_eq!(say(&store, NOW, &cas), "STORED\r\n");
    assert_eq!(say(&store, NOW, &cas), "EXISTS\r\n");
}

#[test]
fn items_of_which_nobody_asks_the_number_take_no_more_memory() {
    let memory = |of: fn(&Store, u32)| {
        let store = store();
        (0..10_000).for_each(|key| of(&store, key));
        store.stats().memory_used
    };
    let by_redis = memory(|store, key| _ = run(store, NOW, &format!("SET key:{key} value")));
    let by_memcached = memory(|store, key| {
        say(store, NOW, &format!("set key:{key} 0 0 5\r\nvalue\r\n"));
        say(store, NOW, &format!("get key:{key}\r\n"));
    });
    assert_eq!(by_memcached, by_redis);
}

#[test]
fn items_expire_at_their_time_and_not_before() {
    let store = store();
    let absolute = NOW / 1000 + 60 * 60 * 24 * 60;
    say(&store, NOW, &format!("set a 0 10 1\r\nx\r\nset b 0 {absolute} 1\r\nx\r\n"));
    assert_eq!(say(&store, NOW + 9_999, "get a\r\n"), "VALUE a 0 1\r\nx\r\nEND\r\n");
    assert_eq!(say(&store, NOW + 9_999, "mg a t\r\n"), "HD t1\r\n");
    assert_eq!(say(&store, NOW + 10_000, "get a\r\n"), "END\r\n");
    assert_eq!(say(&store, NOW + 10_000, "add a 0 -1 1\r\ny\r\nget a\r\n"), "STORED\r\nEND\r\n");
    assert_eq!(say(&store, absolute * 1000 - 1, "mg b v t\r\n"), "VA 1 t1\r\nx\r\n");
    assert_eq!(say(&store, absolute * 1000, "mg b v t\r\n"), "EN\r\n");
}

#[test]
fn one_client_is_told_to_fill_an_item_that_expires_soon() {
    let store = store();
    say(&store, NOW, "ms k 1 T100\r\nx\r\n");
    assert_eq!(say(&store, NOW + 40_000, "mg k R50\r\n"), "HD\r\n");
    assert_eq!(say(&store, NOW + 60_000, "mg k R50\r\n"), "HD W\r\n");
    assert_eq!(say(&store, NOW + 60_000, "mg k R50\r\n"), "HD Z\r\n");
    say(&store, NOW + 60_000, "ms k 1 T100\r\ny\r\n");
    assert_eq!(say(&store, NOW + 60_000, "mg k R50 v\r\n"), "VA 1\r\ny\r\n");
}

#[test]
fn the_last_access_is_told_in_seconds() {
    let store = store();
    say(&store, NOW, "set k 0 0 1\r\nx\r\n");
    assert_eq!(say(&store, NOW + 7_000, "mg k l h u\r\n"), "HD l7 h0\r\n");
    assert_eq!(say(&store, NOW + 7_000, "mg k l h\r\n"), "HD l7 h0\r\n");
    assert_eq!(say(&store, NOW + 9_000, "mg k l h\r\n"), "HD l2 h1\r\n");
    assert!(say(&store, NOW + 12_000, "me k\r\n").starts_with("ME k exp=-1 la=3 cas="));
}

#[test]
fn a_flush_to_come_takes_what_is_older_for_every_client() {
    let store = store();
    say(&store, NOW, "set a 0 0 1\r\nx\r\nflush_all 10\r\nset b 0 0 1\r\nx\r\n");
    let both = "VALUE a 0 1\r\nx\r\nVALUE b 0 1\r\nx\r\nEND\r\n";
    assert_eq!(say(&store, NOW + 9_999, "get a b\r\n"), both);
    assert_eq!(say(&store, NOW + 10_000, "get a b\r\n"), "END\r\n");
    say(&store, NOW + 10_000, "set a 0 0 1\r\nx\r\n");
    assert_eq!(say(&store, NOW + 30_000, "get a\r\n"), "VALUE a 0 1\r\nx\r\nEND\r\n");
    assert!(store.take_delayed_flush());
    assert!(!store.take_delayed_flush());

    say(&store, NOW, "flush_all 10\r\n");
    let _ = store.tick(common::clock_at(NOW + 9_999));
    assert_eq!(run(&store, NOW, "DBSIZE"), Reply::Integer(1));
    let _ = store.tick(common::clock_at(NOW + 10_000));
    assert_eq!(run(&store, NOW, "DBSIZE"), Reply::Integer(0));
    assert!(store.take_delayed_flush());
}

#[test]
fn a_flush_at_once_forgets_the_one_to_come_and_leaves_other_databases() {
    let store = store();
    let other = MemcachedContext { database: 5, ..context_at(NOW) };
    ask_in(&store, other, b"set a 0 0 1\r\nx\r\n");
    say(&store, NOW, "set a 0 0 1\r\nx\r\nflush_all 10\r\nflush_all\r\nset b 0 0 1\r\nx\r\n");
    assert_eq!(say(&store, NOW + 20_000, "get a b\r\n"), "VALUE b 0 1\r\nx\r\nEND\r\n");
    assert_eq!(ask_in(&store, other, b"get a\r\n"), b"VALUE a 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn values_of_other_types_are_named_not_read_and_can_be_set() {
    let store = store();
    for (line, name) in [
        ("HSET k a 1", "hash"),
        ("RPUSH k a", "list"),
        ("SADD k a", "set"),
        ("ZADD k 1 a", "sorted set"),
        ("XADD k * a 1", "stream"),
    ] {
        run(&store, NOW, line);
        let error = format!(
            "SERVER_ERROR key holds a Redis {name}: use Redis commands for it, or set it anew\r\n"
        );
        for request in [
            "get k\r\n",
            "get none k none\r\n",
            "gets k\r\n",
            "gat 1 k\r\n",
            "mg k v\r\n",
            "append k 0 0 1\r\nx\r\n",
            "incr k 1\r\n",
            "ma k\r\n",
            "md k I\r\n",
        ] {
            assert_eq!(say(&store, NOW, request), error, "{request}");
        }
        let binary = ask(&store, NOW, &packet(0, 0, &[], b"k", &[]));
        assert_eq!(&binary[6..8], [0, 0x86], "a status of its own");
        assert_eq!(say(&store, NOW, "add k 0 0 1\r\nx\r\n"), "NOT_STORED\r\n");
        assert_eq!(say(&store, NOW, "cas k 0 0 1 5\r\nx\r\n"), "EXISTS\r\n");
        assert_eq!(say(&store, NOW, "touch k 100\r\n"), "TOUCHED\r\n");
        assert_eq!(run(&store, NOW, "TTL k"), Reply::Integer(100));
        assert_eq!(say(&store, NOW, "set k 3 0 1\r\nx\r\n"), "STORED\r\n");
        assert_eq!(say(&store, NOW, "get k\r\n"), "VALUE k 3 1\r\nx\r\nEND\r\n");
        run(&store, NOW, "DEL k");
        run(&store, NOW, line);
        assert_eq!(say(&store, NOW, "delete k\r\n"), "DELETED\r\n");
    }
}

#[test]
fn many_keys_are_read_in_their_order() {
    let store = store();
    let mut expected = String::new();
    let mut request = "get".to_owned();
    for key in 0..100 {
        request += &format!(" key:{key}");
        if key % 3 != 0 {
            say(&store, NOW, &format!("set key:{key} {key} 0 2\r\n{:02}\r\n", key % 50));
            expected += &format!("VALUE key:{key} {key} 2\r\n{:02}\r\n", key % 50);
        }
    }
    assert_eq!(say(&store, NOW, &format!("{request}\r\n")), format!("{expected}END\r\n"));
}

#[test]
fn requests_that_are_not_about_items_are_left_alone() {
    let store = store();
    for request in
        ["version\r\n", "mn\r\n", "stats\r\n", "verbosity 1\r\n", "quit\r\n", "shutdown\r\n"]
    {
        each_request(request.as_bytes(), &mut Vec::new(), |request, bytes, out| {
            assert!(!store.execute_memcached(request, bytes, context_at(NOW), out));
            assert!(out.is_empty());
        });
    }
}

/// Returns the names of the events of keys.
fn events(store: &Store, stream: &str) -> Vec<String> {
    say(store, NOW, stream);
    let mut events = Vec::new();
    store.take_events(0, &mut events);
    let named = |event: &keyway_store::KeyEvent| {
        format!("{} {}", event.name, String::from_utf8_lossy(&event.key))
    };
    events.iter().map(named).collect()
}

#[test]
fn changes_are_told_as_those_of_redis_requests_are() {
    let store = store();
    store.watch_changes(true);
    let said = |stream| events(&store, stream);
    assert_eq!(said("set a 0 0 1\r\nx\r\n"), ["set a"]);
    assert_eq!(said("set a 1 9 1\r\nx\r\n"), ["set a", "expire a"]);
    assert_eq!(said("add a 1 9 1\r\nx\r\n"), [""; 0]);
    assert_eq!(said("append a 1 9 1\r\nx\r\n"), ["append a"]);
    assert_eq!(said("prepend a 1 9 1\r\nx\r\n"), ["set a"]);
    assert_eq!(said("get a\r\ngets a\r\nmg a v\r\n"), [""; 0]);
    assert_eq!(
        said("touch a 0\r\ntouch a 5\r\ngat 7 a\r\n"),
        ["persist a", "expire a", "expire a"]
    );
    assert_eq!(
        said("set n 0 0 1\r\n1\r\nincr n 1\r\ndecr n 1\r\n"),
        ["set n", "incrby n", "incrby n"]
    );
    assert_eq!(said("delete a\r\ndelete a\r\n"), ["del a"]);
    assert_eq!(said("mg w N9\r\nma m N9\r\n"), ["set w", "expire w", "set m", "expire m"]);
    assert_eq!(said("set w 0 -1 1\r\nx\r\n"), ["set w", "expired w"]);
}

#[test]
fn watched_keys_are_marked_by_memcached_writes() {
    let store = store();
    run(&store, NOW, "SET k 1");
    for request in
        ["set k 0 0 1\r\n1\r\n", "incr k 1\r\n", "touch k 5\r\n", "delete k\r\n", "flush_all\r\n"]
    {
        if request == "flush_all\r\n" {
            run(&store, NOW, "SET k 1");
        }
        let mark = Mark::default();
        store.watch(b"k", context_at(NOW).into(), &mark);
        assert!(!mark.load(std::sync::atomic::Ordering::Relaxed));
        say(&store, NOW, request);
        assert!(mark.load(std::sync::atomic::Ordering::Relaxed), "{request}");
        store.unwatch(0, b"k", &mark);
    }
}

#[test]
fn requests_beside_a_script_hold_what_they_need() {
    let store = Arc::new(store());
    say(&store, NOW, "set k 1 0 1\r\nx\r\nflush_all 5\r\n");
    let held = |millis: u64, stream: &str| {
        let mut out = Vec::new();
        each_request(stream.as_bytes(), &mut out, |request, bytes, out| {
            let context = context_at(millis);
            let mut footprint = Footprint::default();
            footprint.add_memcached(&store, request, bytes, context);
            let held = store.hold(footprint, context.into()).expect("nothing in the way");
            assert!(held.execute_memcached(request, bytes, context, out));
        });
        String::from_utf8(out).unwrap()
    };
    assert_eq!(held(NOW, "get k none k\r\n"), "VALUE k 1 1\r\nx\r\nVALUE k 1 1\r\nx\r\nEND\r\n");
    assert_eq!(held(NOW, "set n 1 0 1\r\n1\r\nincr n 5\r\n"), "STORED\r\n6\r\n");
    assert_eq!(held(NOW + 5_000, "get k\r\n"), "END\r\n");
    assert_eq!(held(NOW, "set k 1 0 1\r\nx\r\nflush_all\r\nget k\r\n"), "STORED\r\nOK\r\nEND\r\n");
}

#[test]
fn a_full_store_refuses_or_evicts_as_it_does_for_redis() {
    let bound = 4 << 20;
    let value = "v".repeat(10_000);
    for policy in [EvictionPolicy::NoEviction, EvictionPolicy::AllKeysLru] {
        let config =
            StoreConfig { memory_max: bound, policy, shards: Some(16), ..StoreConfig::default() };
        let store = Store::new(config);
        let set = |key: usize| say(&store, NOW, &format!("set key:{key} 0 0 10000\r\n{value}\r\n"));
        let refused = (0..1000).filter(|key| {
            let said = set(*key);
            assert!(
                ["STORED\r\n", "SERVER_ERROR out of memory storing object\r\n"].contains(&&*said)
            );
            said != "STORED\r\n"
        });
        let refused = refused.count();
        assert_eq!(refused > 0, policy == EvictionPolicy::NoEviction, "{refused} by {policy:?}");
        assert_eq!(store.stats().evicted > 0, policy == EvictionPolicy::AllKeysLru);
        if refused > 0 {
            assert_eq!(set(0), "SERVER_ERROR out of memory storing object\r\n");
            assert_eq!(say(&store, NOW, "get key:0\r\n"), "END\r\n", "it would be out of date");
        }
    }
}

#[test]
fn quotas_hold_for_memcached_writes() {
    let quota = QuotaConfig { prefix: (*b"q:").into(), items_max: 10, memory_max: 0 };
    let policy = EvictionPolicy::AllKeysLru;
    let store = Store::with_quotas(StoreConfig { policy, ..StoreConfig::default() }, vec![quota]);
    for key in 0..100 {
        assert_eq!(say(&store, NOW, &format!("set q:{key} 0 0 1\r\nx\r\n")), "STORED\r\n");
    }
    assert!(store.stats().quotas[0].items <= 10);
    store.recount_quotas();
}

#[test]
fn a_database_that_is_not_there_is_said_to_be() {
    let store = store();
    let context = MemcachedContext { database: 99, ..context_at(NOW) };
    let said = ask_in(&store, context, b"get k\r\n");
    assert_eq!(said, b"SERVER_ERROR there is no such database\r\n");
}

#[test]
fn any_key_and_value_passes_between_protocols() {
    let store = store();
    let key: Vec<u8> = (0..=255).filter(|byte| *byte % 2 == 0).collect();
    let value: Vec<u8> = (0..=255).collect();
    let set = packet(1, 0, &[0, 0, 0, 7, 0, 0, 0, 0], &key, &value);
    assert_eq!(ask(&store, NOW, &set).len(), 24);
    assert_eq!(run_words(&store, NOW, &[b"GET", &key]), Reply::Bulk(Some(value.clone())));
    assert!(ask(&store, NOW, &packet(0, 0, &[], &key, &[])).ends_with(&value));
}
