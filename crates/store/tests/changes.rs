//! While changes are watched, no key changes without being noted, whatever
//! command changes it and however it goes.

mod common;

use common::{Random, Reply, clock_at, execute_in, run};
use keyway_base::KeyspaceEvents;
use keyway_resp::Protocol;
use keyway_store::{Context, EvictionPolicy, KeyEvent, NO_WORKER, Store, StoreConfig};
use std::collections::{BTreeMap, BTreeSet};

const START: u64 = 1_700_000_000_000;
const WORKER: u16 = 7;
const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// A command on a HyperLogLog, or on positions.
fn sketch_line(random: &mut Random, key: &str, other: &str, number: usize) -> String {
    let many = |word: &str| -> String {
        (0..130).map(|nth| format!(" {}", word.replace('N', &(number + nth).to_string()))).collect()
    };
    match random.below(9) {
        0 => format!("PFADD {key} {number} {}", number % 7),
        1 => format!("PFADD {key}{}", many("N")),
        2 => format!("PFCOUNT {key}"),
        3 => format!("PFMERGE {key} {other}"),
        // About half of the registers are missing.
        4 => format!("SET {key} HYLL\u{1}{}_\u{7f}", "\0".repeat(11)),
        5 => format!("GEOADD {key} {number} {} m{number}", number % 5),
        6 => format!("GEOADD {key}{}", many("1 2 mN")),
        7 => format!("GEOSEARCHSTORE {key} {other} FROMLONLAT 5 2 BYRADIUS {number}00 km"),
        _ => format!("GEORADIUS {other} 5 2 {number}00 km STOREDIST {key}"),
    }
}

/// A command on when fields of a hash expire.
fn fields_line(random: &mut Random, key: &str, number: usize) -> String {
    let field = number % 5;
    match random.below(9) {
        0 => format!("HSETEX {key} PX {number} FIELDS 1 {field} {number}"),
        1 => format!("HSETEX {key} FNX PX 90 FIELDS 2 {field} x {number} y"),
        2 => format!("HSETEX {key} FXX KEEPTTL FIELDS 1 {field} {number}"),
        3 => format!("HPEXPIRE {key} {number} FIELDS 2 {field} 7"),
        4 => format!("HPEXPIRE {key} {number} GT FIELDS 1 {field}"),
        5 => format!("HPERSIST {key} FIELDS 2 {field} 3"),
        6 => format!("HGETEX {key} PX {number} FIELDS 1 {field}"),
        7 => format!("HGETEX {key} PERSIST FIELDS 1 {field}"),
        _ => format!("HGETDEL {key} FIELDS 1 {field}"),
    }
}

/// A command line on random keys.
fn any_line(random: &mut Random) -> String {
    let key = KEYS[random.below(KEYS.len())];
    let other = KEYS[random.below(KEYS.len())];
    let number = random.below(40);
    let options = ["", " NX", " XX", " GET", " KEEPTTL", " PX 40", " PXAT 1", " EXAT 1 GET"];
    let option = options[random.below(options.len())];
    let times = ["", " PERSIST", " PX 30", " EXAT 1"];
    let time = times[random.below(times.len())];
    if random.once_in(4) {
        return stream_line(random, key, number);
    }
    if random.once_in(9) {
        return fields_line(random, key, number);
    }
    if random.once_in(9) {
        return sketch_line(random, key, other, number);
    }
    if random.once_in(2) {
        return collection_line(random, key, other, number);
    }
    match random.below(32) {
        0..=3 => format!("SET {key} {number}{option}"),
        4 => format!("APPEND {key} x"),
        5 => format!("SETRANGE {key} {number} y"),
        6 => format!("SETBIT {key} {number} {}", number % 2),
        7 => format!("BITFIELD {key} SET u8 {number} {number} GET u8 0 INCRBY i4 2 {number}"),
        8 => format!("BITFIELD {key} OVERFLOW FAIL INCRBY u4 {number} 9"),
        9 => format!("BITOP XOR {key} {other} {key}"),
        10 => format!("BITOP NOT {key} {other}"),
        11 => format!("INCRBY {key} {number}"),
        12 => format!("INCRBYFLOAT {key} 0.5"),
        13 => format!("DECR {key}"),
        14 => format!("GETSET {key} {number}"),
        15 => format!("GETDEL {key}"),
        16 => format!("GETEX {key}{time}"),
        17 => format!("MSET {key} {number} {other} {number}"),
        18 => format!("MSETNX {key} {number} {other} {number}"),
        19 => format!("SETNX {key} {number}"),
        20 => format!("PSETEX {key} {} {number}", number + 1),
        21 => format!("DEL {key} {other}"),
        22 => format!("UNLINK {key}"),
        23 => format!("RENAME {key} {other}"),
        24 => format!("RENAMENX {key} {other}"),
        25 => format!("COPY {key} {other} REPLACE"),
        26 => format!("COPY {key} {key} DB 1"),
        27 => format!("MOVE {key} 1"),
        28 => format!("PEXPIRE {key} {}", number + 1),
        29 => format!("EXPIRE {key} -1"),
        30 => format!("PERSIST {key}"),
        _ => format!("GET {key}"),
    }
}

/// A command on a collection, which may be small or large.
fn collection_line(random: &mut Random, key: &str, other: &str, number: usize) -> String {
    let many = |word: &str| -> String {
        (number..number + 130)
            .map(|nth| format!(" {}", word.replace('N', &nth.to_string())))
            .collect()
    };
    match random.below(35) {
        0 => format!("HSET {key} f{number} {number}"),
        1 => format!("HSET {key}{}", many("fN N")),
        2 => format!("HSETNX {key} f{number} 1"),
        3 => format!("HDEL {key} f{number} f{}", number + 1),
        4 => format!("HDEL {key}{}", many("fN")),
        5 => format!("HINCRBY {key} f{number} {}", number % 2),
        6 => format!("HINCRBYFLOAT {key} f{number} 0.5"),
        7 => format!("RPUSH {key} {number} {number}"),
        8 => format!("LPUSH {key}{}", many("element:N:of:a:list")),
        9 => format!("LPUSHX {key} {number}"),
        10 => format!("LPOP {key}"),
        11 => format!("RPOP {key} {number}"),
        12 => format!("LSET {key} {number} x"),
        13 => format!("LINSERT {key} BEFORE {number} y"),
        14 => format!("LREM {key} 1 {number}"),
        15 => format!("LTRIM {key} 1 {number}"),
        16 => format!("LMOVE {key} {other} LEFT RIGHT"),
        17 => format!("LMPOP 2 {key} {other} RIGHT COUNT 2"),
        18 => format!("SADD {key} {number} {}", number % 5),
        19 => format!("SADD {key}{}", many("mN")),
        20 => format!("SREM {key} {number} m{number}"),
        21 => format!("SPOP {key} {number}"),
        22 => format!("SMOVE {key} {other} {number}"),
        23 => format!("SUNIONSTORE {key} {other} {key}"),
        24 => format!("SDIFFSTORE {key} {other} {key}"),
        25 => format!("ZADD {key} {number} m{number}"),
        26 => format!("ZADD {key} GT CH {number} m{} 1 x", number + 1),
        27 => format!("ZADD {key}{}", many("N mN")),
        28 => format!("ZINCRBY {key} {} m{number}", number % 2),
        29 => format!("ZREM {key} m{number} m{}", number + 1),
        30 => format!("ZPOPMAX {key} {number}"),
        31 => format!("ZREMRANGEBYSCORE {key} {number} {}", number + 3),
        32 => format!("ZRANGESTORE {key} {other} 0 {number}"),
        33 => format!("SORT {key} ALPHA GET # GET {other}* LIMIT 0 {number} STORE {other}"),
        _ => format!("ZUNIONSTORE {key} 2 {other} {key}"),
    }
}

/// A command on a stream.
fn stream_line(random: &mut Random, key: &str, number: usize) -> String {
    let group = ["g", "h"][number % 2];
    match random.below(18) {
        0 | 1 => format!("XADD {key} * f{number} {number}"),
        2 => format!("XADD {key} MAXLEN {number} * f {number}"),
        3 => format!("XADD {key} {number}-* f {number}"),
        4 => format!("XADD {key} NOMKSTREAM MINID {} * f {number}", START + number as u64),
        5 => format!("XDEL {key} {number} {number}-1 {}", START + number as u64),
        6 => format!("XTRIM {key} MAXLEN ~ {number}"),
        7 => format!("XTRIM {key} MAXLEN {}", number / 4),
        8 => format!("XTRIM {key} MINID {}", START + number as u64),
        9 => format!("XSETID {key} {} ENTRIESADDED 1000", START * 2),
        10 => format!("XGROUP CREATE {key} {group} 0 MKSTREAM"),
        11 => format!("XGROUP DESTROY {key} {group}"),
        12 => format!("XGROUP SETID {key} {group} {number}"),
        13 => format!("XGROUP CREATECONSUMER {key} {group} {number}"),
        14 => format!("XREADGROUP GROUP {group} {number} COUNT 2 STREAMS {key} >"),
        15 => format!("XACK {key} {group} {number} {}", START + number as u64),
        16 => format!("XCLAIM {key} {group} alice 0 {} FORCE", START + number as u64),
        _ => format!("XAUTOCLAIM {key} {group} bob 0 0"),
    }
}

fn ask(store: &Store, (database, millis, worker): (u32, u64, u16), line: &str) -> Reply {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let mut out = Vec::new();
    let clock = clock_at(millis);
    execute_in(
        store,
        Context { database, clock, protocol: Protocol::Resp2, worker },
        &words,
        &mut out,
    );
    Reply::read(&mut &out[..])
}

type Contents = BTreeMap<(u32, &'static str), (Reply, Reply)>;

/// Values and expiries, which what has expired leaves as it is read.
fn contents(store: &Store, millis: u64) -> Contents {
    let mut contents = Contents::new();
    for database in 0..2 {
        for key in KEYS {
            let place = (database, millis, WORKER);
            let kind = ask(store, place, &format!("TYPE {key}"));
            let command = match &kind {
                Reply::Simple(kind) => match kind.as_str() {
                    "hash" => format!("HGETALL {key}"),
                    "list" => format!("LRANGE {key} 0 -1"),
                    "set" => format!("SMEMBERS {key}"),
                    "zset" => format!("ZRANGE {key} 0 -1 WITHSCORES"),
                    "stream" => format!("XRANGE {key} - +"),
                    _ => format!("GET {key}"),
                },
                other => panic!("{other:?}"),
            };
            let mut value = ask(store, place, &command);
            if kind == Reply::Simple("stream".into()) {
                // A delivery to a consumer is no change of the stream, as in Redis.
                let about = ask(store, place, &format!("XINFO STREAM {key}"));
                value = Reply::Array(Some(vec![value, about]));
            }
            if kind == Reply::Simple("hash".into()) {
                let times = format!("HPEXPIRETIME {key} FIELDS 6 0 1 2 3 4 7");
                value = Reply::Array(Some(vec![value, ask(store, place, &times)]));
            }
            let expiry = ask(store, place, &format!("PEXPIRETIME {key}"));
            contents.insert((database, key), (value, expiry));
        }
    }
    contents
}

fn taken(store: &Store) -> Vec<KeyEvent> {
    let mut events = Vec::new();
    store.take_events(WORKER, &mut events);
    store.take_events(NO_WORKER, &mut events);
    events
}

#[test]
fn no_key_changes_without_being_noted() {
    for seed in 1..40 {
        let store = Store::new(StoreConfig { seed, shards: Some(2), ..StoreConfig::default() });
        assert!(!store.notifies());
        store.watch_changes(true);
        let mut random = Random::new(seed);
        let mut millis = START;
        let mut before = contents(&store, millis);
        for _ in 0..400 {
            millis += random.below(12) as u64;
            let line = any_line(&mut random);
            ask(&store, (random.below(2) as u32, millis, WORKER), &line);
            if random.below(10) == 0 {
                let _ = store.tick(clock_at(millis));
            }
            let after = contents(&store, millis);
            let noted: BTreeSet<(u32, Box<[u8]>)> =
                taken(&store).into_iter().map(|event| (event.database, event.key)).collect();
            for (place, value) in &after {
                let is_noted = noted.contains(&(place.0, place.1.as_bytes().into()));
                assert!(is_noted || before[place] == *value, "{line} changed {place:?}");
            }
            before = after;
        }
    }
}

#[test]
fn what_is_evicted_is_noted_for_the_worker_that_needed_room() {
    let store = Store::new(StoreConfig {
        memory_max: 1 << 20,
        policy: EvictionPolicy::AllKeysLru,
        shards: Some(4),
        ..StoreConfig::default()
    });
    store.watch_changes(true);
    let value = "x".repeat(2000);
    for number in 0..2000 {
        ask(&store, (0, START, WORKER), &format!("SET k{number} {value}"));
    }
    let mut others = Vec::new();
    store.take_events(WORKER + 64, &mut others);
    assert!(others.is_empty(), "of a worker whose events lie in the same list");
    let events = taken(&store);
    let evicted = events.iter().filter(|event| event.class == KeyspaceEvents::EVICTED).count();
    assert_eq!(evicted as u64, store.stats().evicted);
    assert_eq!(evicted as i64, 2000 - run(&store, START, "DBSIZE").integer());
}

#[test]
fn only_what_is_published_is_noted_again_once_nobody_watches() {
    let notify = KeyspaceEvents::parse("Kx").unwrap();
    let store = Store::new(StoreConfig { notify, ..StoreConfig::default() });
    for (watches, noted) in [(false, 0), (true, 1), (false, 0)] {
        store.watch_changes(watches);
        ask(&store, (0, START, WORKER), "SET a 1");
        assert_eq!(taken(&store).len(), noted);
        assert!(store.notifies() && store.published() == notify);
    }
}

#[test]
fn a_hash_restored_whose_fields_have_expired_takes_the_key_away() {
    let notify = KeyspaceEvents::parse("KA").unwrap();
    let store = Store::new(StoreConfig { notify, ..StoreConfig::default() });
    // Count, then time, field and value.
    let mut payload = b"\x16\x01\x05\x01a\x011".to_vec();
    keyway_rdb::payload::seal(&mut payload);
    let named = || {
        let mut events = Vec::new();
        store.take_events(0, &mut events);
        events.iter().map(|event| event.name.to_owned()).collect::<Vec<_>>()
    };
    let restore = |key: &[u8]| {
        let words: [&[u8]; 5] = [b"RESTORE", key, b"0", &payload, b"REPLACE"];
        assert_eq!(common::run_words(&store, START, &words), Reply::Simple("OK".into()));
        named()
    };
    assert_eq!(restore(b"new"), Vec::<String>::new());
    run(&store, START, "SET old v");
    assert_eq!(named(), ["set"]);
    assert_eq!(restore(b"old"), ["del"]);
    assert_eq!(run(&store, START, "EXISTS old").integer(), 0);
}
