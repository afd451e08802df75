//! Fields of hashes that expire: against a map of values with times, and in
//! the words that Redis 8.2 was seen to answer with.

mod common;

use common::{Random, Reply, clock_at, execute_in, run, run_words};
use keyway_base::KeyspaceEvents;
use keyway_resp::Protocol;
use keyway_store::{Context, EvictionPolicy, KeyEvent, NO_WORKER, Store, StoreConfig};
use std::collections::{BTreeMap, BTreeSet};

const START: u64 = 1_700_000_000_000;

/// A reply in one line: numbers, strings, `nil`, errors with their dash.
fn show(reply: &Reply) -> String {
    match reply {
        Reply::Simple(text) => text.clone(),
        Reply::Error(text) => format!("-{text}"),
        Reply::Integer(value) => value.to_string(),
        Reply::Bulk(Some(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Bulk(None) | Reply::Array(None) | Reply::Null => "nil".to_owned(),
        Reply::Array(Some(items)) | Reply::Map(items) | Reply::Set(items) => {
            format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(" "))
        }
        Reply::Double(text) => text.clone(),
    }
}

fn notifying() -> Store {
    let notify = KeyspaceEvents::parse("KEA").expect("letters of events");
    Store::new(StoreConfig { notify, ..StoreConfig::default() })
}

fn names(store: &Store, worker: u16) -> String {
    let mut events: Vec<KeyEvent> = Vec::new();
    store.take_events(worker, &mut events);
    events.iter().map(|event| event.name).collect::<Vec<_>>().join(" ")
}

/// The replies of redis-server 8.2.3, and the events that it publishes. A millisecond passes with
/// each request, and `@N` more with such a line.
const REPLIES: &str = include_str!("fields.txt");

#[test]
fn replies_and_events_are_those_of_redis_8() {
    let store = notifying();
    let mut millis = START;
    for line in REPLIES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(elapsed) = line.strip_prefix('@') {
            millis += elapsed.parse::<u64>().expect("milliseconds");
            continue;
        }
        millis += 1;
        let (request, rest) = line.split_once(" => ").expect("a line has a reply");
        let (reply, events) = rest.split_once(" | ").unwrap_or((rest, ""));
        assert_eq!(show(&run(&store, millis, request)), reply, "{request}");
        assert_eq!(names(&store, 0), events, "{request}");
    }
}

type Fields = BTreeMap<String, (String, Option<u64>)>;

/// The plain form of hashes whose fields expire.
#[derive(Default)]
struct Model {
    hashes: BTreeMap<String, Fields>,
    now: u64,
}

impl Model {
    fn forget(&mut self) {
        let now = self.now;
        for fields in self.hashes.values_mut() {
            fields.retain(|_, (_, time)| time.is_none_or(|time| time > now));
        }
        self.hashes.retain(|_, fields| !fields.is_empty());
    }

    fn field(&mut self, key: &str, field: &str) -> Option<&mut (String, Option<u64>)> {
        self.hashes.get_mut(key)?.get_mut(field)
    }

    fn entry(&mut self, key: &str, field: &str) -> &mut (String, Option<u64>) {
        self.hashes.entry(key.into()).or_default().entry(field.into()).or_default()
    }
}

const KEYS: [&str; 3] = ["a", "b", "c"];

fn value_of(random: &mut Random) -> String {
    let len = if random.once_in(30) { 70 } else { random.below(8) };
    "v".repeat(len) + &random.below(100).to_string()
}

/// Does something to the store and the model alike; replies must be the same.
fn step(store: &Store, model: &mut Model, random: &mut Random, width: usize) {
    model.forget();
    let now = model.now;
    let (key, other) = (*random.pick(&KEYS), *random.pick(&KEYS));
    let field = format!("f{}", random.below(width));
    let wait = random.below(400) as u64;
    let at = now + wait;
    let (line, expected) = match random.below(16) {
        0..=2 => {
            let value = value_of(random);
            let is_new = model.field(key, &field).is_none();
            *model.entry(key, &field) = (value.clone(), None);
            (format!("HSET {key} {field} {value}"), u64::from(is_new).to_string())
        }
        3 => {
            let value = value_of(random);
            if wait > 0 {
                *model.entry(key, &field) = (value.clone(), Some(at));
            } else if let Some(fields) = model.hashes.get_mut(key) {
                fields.remove(&field);
            }
            (format!("HSETEX {key} PX {wait} FIELDS 1 {field} {value}"), "1".into())
        }
        4 => {
            let value = value_of(random);
            model.entry(key, &field).0 = value.clone();
            (format!("HSETEX {key} KEEPTTL FIELDS 1 {field} {value}"), "1".into())
        }
        5 => {
            let there = model.hashes.get_mut(key).and_then(|fields| fields.remove(&field));
            (format!("HDEL {key} {field}"), u64::from(there.is_some()).to_string())
        }
        6..=8 => {
            let answer = match model.field(key, &field) {
                None => "[-2]",
                Some(_) if wait == 0 => {
                    model.hashes.get_mut(key).unwrap().remove(&field);
                    "[2]"
                }
                Some(found) => {
                    found.1 = Some(at);
                    "[1]"
                }
            };
            (format!("HPEXPIRE {key} {wait} FIELDS 1 {field}"), answer.into())
        }
        9 => {
            let answer = match model.field(key, &field) {
                None => "[-2]",
                Some((_, None)) => "[-1]",
                Some((_, time)) => {
                    *time = None;
                    "[1]"
                }
            };
            (format!("HPERSIST {key} FIELDS 1 {field}"), answer.into())
        }
        10 => {
            let answer = match model.field(key, &field) {
                None => "nil".to_owned(),
                Some(found) => found.0.clone(),
            };
            if let Some(fields) = model.hashes.get_mut(key) {
                fields.remove(&field);
            }
            (format!("HGETDEL {key} FIELDS 1 {field}"), format!("[{answer}]"))
        }
        11 => {
            let there = model.hashes.contains_key(key);
            if there && key != other {
                let copy = model.hashes[key].clone();
                model.hashes.insert(other.into(), copy);
            }
            let copied = u64::from(there && key != other).to_string();
            let same = "-ERR source and destination objects are the same".to_owned();
            (format!("COPY {key} {other} REPLACE"), if key == other { same } else { copied })
        }
        12 => {
            let Some(fields) = model.hashes.remove(key) else { return };
            model.hashes.insert(other.into(), fields);
            (format!("RENAME {key} {other}"), "OK".into())
        }
        13 => {
            let Reply::Bulk(Some(payload)) = run(store, now, &format!("DUMP {key}")) else {
                assert!(!model.hashes.contains_key(key));
                return;
            };
            let words: [&[u8]; 5] = [b"RESTORE", other.as_bytes(), b"0", &payload, b"REPLACE"];
            assert_eq!(show(&run_words(store, now, &words)), "OK");
            let copy = model.hashes[key].clone();
            model.hashes.insert(other.into(), copy);
            return;
        }
        14 => {
            let answer = match model.field(key, &field) {
                None => "-2".to_owned(),
                Some((_, None)) => "-1".to_owned(),
                Some((_, Some(time))) => (*time - now).to_string(),
            };
            (format!("HPTTL {key} FIELDS 1 {field}"), format!("[{answer}]"))
        }
        _ => {
            if !random.once_in(20) {
                return;
            }
            let there = model.hashes.remove(key).is_some();
            (format!("DEL {key}"), u64::from(there).to_string())
        }
    };
    assert_eq!(show(&run(store, now, &line)), expected, "{line} at {now}");
}

/// All of the store, read in one of many ways.
fn compare(store: &Store, model: &mut Model, random: &mut Random) {
    model.forget();
    let now = model.now;
    let keys = model.hashes.len() as i64;
    for key in KEYS {
        let empty = Fields::new();
        let fields = model.hashes.get(key).unwrap_or(&empty);
        let mut pairs: Vec<String> =
            fields.iter().map(|(field, (value, _))| format!("{field}={value}")).collect();
        pairs.sort();
        match random.below(6) {
            0 => assert_eq!(run(store, now, &format!("HLEN {key}")).integer(), fields.len() as i64),
            1 => assert_eq!(
                run(store, now, &format!("EXISTS {key}")).integer(),
                i64::from(!fields.is_empty())
            ),
            2 => {
                let found = run(store, now, &format!("HRANDFIELD {key} 3"));
                assert_eq!(found.strings().len(), fields.len().min(3));
            }
            3 => {
                let Reply::Array(Some(parts)) =
                    run(store, now, &format!("HSCAN {key} 0 COUNT 5000"))
                else {
                    panic!("no reply of HSCAN")
                };
                assert_eq!(parts[1].strings().len(), 2 * fields.len());
            }
            4 => {
                let first = |key: &&str| {
                    let found = model.hashes.get(*key).and_then(|fields| fields.get("f1"));
                    Reply::Bulk(found.map(|(value, _)| value.clone().into_bytes()))
                };
                let expected = KEYS.iter().map(first).collect();
                let found = run(store, now, "SORT list BY nosort GET *->f1");
                assert_eq!(found, Reply::Array(Some(expected)));
            }
            _ => {}
        }
        let flat = run(store, now, &format!("HGETALL {key}")).strings();
        let mut found: Vec<String> = flat
            .chunks(2)
            .map(|pair| {
                let [field, value] = [0, 1].map(|nth| String::from_utf8_lossy(&pair[nth]));
                format!("{field}={value}")
            })
            .collect();
        found.sort();
        assert_eq!(found, pairs, "{key} at {now}");
    }
    assert!(run(store, now, "DBSIZE").integer() >= keys);
}

#[test]
fn hashes_are_those_of_a_map_with_times() {
    for (seed, width) in [(1, 4), (2, 12), (3, 700), (4, 60), (5, 1500)] {
        let store = Store::new(StoreConfig { shards: Some(2), ..StoreConfig::default() });
        run(&store, START, "RPUSH list a b c");
        let (mut model, mut random) = (Model { now: START, ..Model::default() }, Random::new(seed));
        if width > 100 {
            for number in 0..width {
                *model.entry("a", &format!("f{number}")) = ("v".into(), None);
                run(&store, START, &format!("HSET a f{number} v"));
            }
        }
        for _ in 0..6000 {
            step(&store, &mut model, &mut random, width);
            if random.once_in(8) {
                compare(&store, &mut model, &mut random);
            }
            model.now += random.below(20) as u64;
            if random.once_in(40) {
                (0..5).for_each(|_| _ = store.tick(clock_at(model.now)));
            }
        }
    }
}

/// Memory of a store that holds nothing but an empty table.
fn settled(store: &Store, now: u64) -> u64 {
    for _ in 0..200 {
        while store.tick(clock_at(now)) {}
    }
    store.stats().memory_used
}

#[test]
fn what_expired_is_reclaimed_within_two_seconds_without_access_and_so_is_its_memory() {
    for fields in [20, 5000] {
        let store = Store::new(StoreConfig { shards: Some(1), ..StoreConfig::default() });
        run(&store, START, "HSET hash stays 1");
        run(&store, START, "HSET gone stays 1");
        run(&store, START, "DEL gone");
        let before = settled(&store, START);
        for number in 0..fields {
            run(
                &store,
                START,
                &format!("HSETEX hash PX {} FIELDS 1 f{number} value", 1 + number % 900),
            );
            run(
                &store,
                START,
                &format!("HSETEX gone PX {} FIELDS 1 f{number} value", 1 + number % 900),
            );
        }
        assert_eq!(run(&store, START, "HLEN hash").integer(), fields + 1);
        let full = store.stats().memory_used;
        for tick in 0..=20 {
            while store.tick(clock_at(START + 900 + tick * 100)) {}
        }
        let stats = store.stats();
        assert_eq!((stats.databases[0].items, stats.expired_fields), (1, 2 * fields as u64));
        assert_eq!(stats.expired, 0);
        assert!(stats.memory_used < full);
        // A table stays one, and the wheel was not there before.
        let kept = settled(&store, START + 3000) - before;
        assert!(kept < 24 << 10, "{kept} bytes of {fields} fields");
        assert_eq!(run(&store, START + 3000, "HLEN hash").integer(), 1);
    }
}

#[test]
fn memory_is_what_it_was_once_all_is_gone() {
    let store = Store::new(StoreConfig { shards: Some(1), ..StoreConfig::default() });
    run(&store, START, "SET k v PX 10");
    let before = settled(&store, START + 5000);
    let mut random = Random::new(77);
    let mut now = START + 5000;
    for round in 0..3000 {
        let (key, field) = (random.below(4), random.below(700));
        let wait = random.below(3000);
        let line = match random.below(7) {
            0 => format!("HSET {key} {field} {round}"),
            1 => format!("HPEXPIRE {key} {wait} FIELDS 1 {field}"),
            2 => format!("HPERSIST {key} FIELDS 1 {field}"),
            3 => format!("HGETDEL {key} FIELDS 1 {field}"),
            4 => format!("HGETEX {key} PX {wait} FIELDS 1 {field}"),
            5 => format!("COPY {key} {} REPLACE", random.below(4)),
            _ => format!(
                "HSETEX {key} PX {wait} FIELDS 2 {field} {round} x {}",
                "y".repeat(wait / 20)
            ),
        };
        run(&store, now, &line);
        now += random.below(3) as u64;
    }
    (0..4).for_each(|key| _ = run(&store, now, &format!("DEL {key}")));
    let after = settled(&store, now + 4_000_000);
    // The table, the wheel and the queues keep some memory for later.
    assert!(after < before + 4096, "{before} before, {after} after");
}

#[test]
fn setting_times_forever_takes_no_memory() {
    for fields in [3, 600] {
        let store = Store::new(StoreConfig { shards: Some(1), ..StoreConfig::default() });
        (0..fields).for_each(|number| _ = run(&store, START, &format!("HSET h f{number} v")));
        run(&store, START, "HEXPIRE h 9999 FIELDS 1 f0");
        let before = store.stats().memory_used;
        for round in 0..30_000u64 {
            run(&store, START + round, &format!("HEXPIRE h {} FIELDS 1 f1", 100_000 - round));
            run(&store, START + round, "HPERSIST h FIELDS 1 f1");
        }
        let grown = store.stats().memory_used - before;
        assert!(grown < 16 << 10, "{grown} bytes with {fields} fields");
    }
}

#[test]
fn who_only_ticks_hears_what_became_of_fields() {
    let store = notifying();
    run(&store, START, "HSET part a 1 b 2");
    run(&store, START, "HPEXPIRE part 100 FIELDS 1 a");
    run(&store, START, "HSETEX whole PX 100 FIELDS 1 a 1");
    names(&store, 0);
    for tick in 0..20 {
        while store.tick(clock_at(START + 100 + tick * 100)) {}
    }
    let mut events: Vec<KeyEvent> = Vec::new();
    store.take_events(NO_WORKER, &mut events);
    let of = |key: &str| -> Vec<&str> {
        let of_key = events.iter().filter(|event| &*event.key == key.as_bytes());
        of_key.map(|event| event.name).collect()
    };
    assert_eq!(of("part"), ["hexpired"]);
    assert_eq!(of("whole"), ["hexpired", "del"]);
}

#[test]
fn a_spent_hash_is_not_seen_by_what_looks_at_no_key() {
    let store = Store::new(StoreConfig { shards: Some(4), ..StoreConfig::default() });
    run(&store, START, "HSETEX small PX 10 FIELDS 1 a 1");
    run(&store, START, &format!("HSETEX large PX 10 FIELDS 1 a {}", "x".repeat(100)));
    let then = START + 10;
    assert_eq!(show(&run(&store, then, "KEYS *")), "[]");
    assert_eq!(show(&run(&store, then, "SCAN 0 COUNT 100000")), "[0 []]");
    assert_eq!(show(&run(&store, then, "RANDOMKEY")), "nil");
    assert_eq!(show(&run(&store, then, "GET small")), "nil");
    assert_eq!(show(&run(&store, then, "SET large text")), "OK");
    assert_eq!(show(&run(&store, then, "LPUSH small x")), "1");
}

#[test]
fn a_policy_for_keys_with_an_expiry_takes_no_hash_for_its_fields() {
    for policy in [
        EvictionPolicy::VolatileTtl,
        EvictionPolicy::VolatileLru,
        EvictionPolicy::VolatileLfu,
        EvictionPolicy::VolatileRandom,
    ] {
        let store = Store::new(StoreConfig {
            memory_max: 3 << 20,
            policy,
            shards: Some(1),
            ..StoreConfig::default()
        });
        for number in 0..500 {
            run(&store, START, &format!("HSETEX hash:{number} EX 100 FIELDS 1 f v"));
        }
        let value = "x".repeat(1000);
        for number in 0..6000 {
            let reply = run(&store, START, &format!("SET key:{number} {value} EX 1000"));
            assert_eq!(show(&reply), "OK", "{policy:?} {number}");
        }
        let stats = store.stats();
        assert!(stats.evicted > 1000);
        for number in 0..500 {
            assert_eq!(run(&store, START, &format!("EXISTS hash:{number}")).integer(), 1);
        }
    }
}

#[test]
fn only_keys_with_an_expiry_of_their_own_count_as_volatile() {
    let store = Store::new(StoreConfig::default());
    let volatile = || store.stats().databases[0].volatile;
    run(&store, START, "HSETEX h EX 10 FIELDS 1 a 1");
    assert_eq!(volatile(), 0);
    run(&store, START, "EXPIRE h 100");
    assert_eq!(volatile(), 1);
    run(&store, START, "PERSIST h");
    assert_eq!(volatile(), 0);
    run(&store, START, "EXPIRE h 5");
    run(&store, START, "HPERSIST h FIELDS 1 a");
    assert_eq!(volatile(), 1);
    run(&store, START, "SET h text");
    assert_eq!(volatile(), 0);
    assert_eq!(run(&store, START + 20_000, "EXISTS h").integer(), 1);
}

#[test]
fn databases_that_are_moved_and_exchanged_keep_their_times() {
    let store = notifying();
    let ask = |database: u32, millis: u64, line: &str| {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let context =
            Context { database, clock: clock_at(millis), protocol: Protocol::Resp3, worker: 0 };
        let mut out = Vec::new();
        execute_in(&store, context, &words, &mut out);
        show(&Reply::read(&mut &out[..]))
    };
    ask(0, START, "HSET moved a 1 b 2");
    ask(0, START, "HPEXPIRE moved 500 FIELDS 1 a");
    assert_eq!(ask(0, START, "MOVE moved 1"), "1");
    assert_eq!(ask(1, START + 100, "HPTTL moved FIELDS 2 a b"), "[400 -1]");
    assert_eq!(ask(0, START, "SWAPDB 1 3"), "OK");
    names(&store, 0);
    for tick in 0..25 {
        while store.tick(clock_at(START + 500 + tick * 100)) {}
    }
    let mut events: Vec<KeyEvent> = Vec::new();
    store.take_events(NO_WORKER, &mut events);
    let told: Vec<_> = events.iter().map(|event| (event.database, event.name)).collect();
    assert_eq!(told, [(3, "hexpired")]);
    assert_eq!(ask(3, START + 600, "HGETALL moved"), "[b 2]");
}

#[test]
fn a_dump_is_what_redis_8_makes_of_it_and_takes() {
    let store = Store::new(StoreConfig::default());
    run(&store, START, "HSET small f v g 2");
    run(&store, START, "HPEXPIREAT small 70368744177663 FIELDS 1 f");
    // As redis-server 8.2.3 answered, with its `rdbcompression` off.
    let small = b"\x19\xff\xff\xff\xff\xff?\x00\x00\x1e\x1e\x00\x00\x00\x06\x00\x81f\x02\x81v\x02\
        \xf4\xff\xff\xff\xff\xff?\x00\x00\t\x81g\x02\x02\x01\x00\x01\xff\x0c\x00\xe2b\xb1\xe3\xed2,9";
    assert_eq!(run(&store, START, "DUMP small"), Reply::Bulk(Some(small.to_vec())));
    run(&store, START, "HSET large xx yy");
    run(&store, START, "HPEXPIREAT large 70368744177663 FIELDS 1 xx");
    run(&store, START, &format!("HSET large xx {} a 1", "a".repeat(80)));
    run(&store, START, "HPEXPIREAT large 70368744177663 FIELDS 1 a");
    // As it answered with compression, which is read and not written.
    let large = b"\x18\xff\xff\xff\xff\xff?\x00\x00\x02\x00\x02xx\xc3\t@R\x01aa\xe0E\x00\x01aa\
        \x01\x01a\xc0\x01\x0c\x00\xff}\x8e<p\x8e\xd2,";
    let words: [&[u8]; 4] = [b"RESTORE", b"theirs", b"0", large];
    assert_eq!(show(&run_words(&store, START, &words)), "OK");
    assert_eq!(
        show(&run(&store, START, "HPEXPIRETIME theirs FIELDS 2 xx a")),
        "[-1 70368744177663]"
    );
    assert_eq!(run(&store, START, "HSTRLEN theirs xx").integer(), 82);
    let Reply::Bulk(Some(ours)) = run(&store, START, "DUMP large") else { panic!("a payload") };
    assert_eq!((ours[0], &ours[1..9]), (24, &large[1..9]));
    run(&store, START, "HPERSIST small FIELDS 1 f");
    let Reply::Bulk(Some(plain)) = run(&store, START, "DUMP small") else { panic!("a payload") };
    assert_eq!((plain[0], plain[plain.len() - 10]), (16, 10));
}

#[test]
fn early_forms_are_read_and_broken_ones_refused() {
    let store = Store::new(StoreConfig::default());
    let restore = |value: &[u8]| {
        let mut payload = value.to_vec();
        keyway_rdb::payload::seal(&mut payload);
        let words: [&[u8]; 5] = [b"RESTORE", b"k", b"0", &payload, b"REPLACE"];
        show(&run_words(&store, START, &words))
    };
    // Count, then time, field and value.
    assert_eq!(
        restore(b"\x16\x02\x81\x00\x00\x02\x00\x00\x00\x00\x00\x01a\x011\x00\x01b\x012"),
        "OK"
    );
    assert_eq!(show(&run(&store, START, "HPEXPIRETIME k FIELDS 2 a b")), "[2199023255552 -1]");
    let listpack = b"\x17\x1c\x1c\x00\x00\x00\x06\x00\x81f\x02\x81v\x02\
        \xf4\xff\xff\xff\xff\xff?\x00\x00\t\x81g\x02\x02\x01\x00\x01\xff";
    let mut early = listpack.to_vec();
    early[1..6].copy_from_slice(&[0x1e, 0x1e, 0, 0, 0]);
    assert_eq!(restore(&early), "OK");
    assert_eq!(show(&run(&store, START, "HPEXPIRETIME k FIELDS 2 f g")), "[70368744177663 -1]");
    // The same type in Valkey 9's version: field, value, and time in eight bytes.
    let mut valkey = b"\x16\x02\x01a\x011\xff\xff\xff\xff\xff?\0\0\x01b\x012".to_vec();
    valkey.extend_from_slice(&[0xff; 8]);
    keyway_rdb::payload::seal_as(keyway_rdb::Version::Valkey80, &mut valkey);
    let words: [&[u8]; 5] = [b"RESTORE", b"k", b"0", &valkey, b"REPLACE"];
    assert_eq!(show(&run_words(&store, START, &words)), "OK");
    assert_eq!(show(&run(&store, START, "HPEXPIRETIME k FIELDS 2 a b")), "[70368744177663 -1]");
    // A time that has passed: nothing is left.
    assert_eq!(restore(b"\x16\x01\x05\x01a\x011"), "OK");
    assert_eq!(run(&store, START, "EXISTS k").integer(), 0);
    let bad = "-ERR Bad data format";
    assert_eq!(restore(b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02\x01a\x011"), bad);
    assert_eq!(
        restore(b"\x18\x01\x00\x00\x00\x00\x00\x00\x00\x02\x02\x01a\x011\x00\x01a\x012"),
        bad
    );
    assert_eq!(restore(b"\x16\x00"), bad);
    assert_eq!(restore(b"\x19\x01\x00"), bad);
}

/// A hash of so many fields that expire after a second, beside what `others`
/// adds.
fn expiring(store: &Store, count: usize, others: &[&str]) {
    for first in (0..count).step_by(100) {
        let last = count.min(first + 100);
        let names: Vec<String> = (first..last).map(|field| format!("f{field}")).collect();
        let pairs: Vec<String> = names.iter().map(|name| format!("{name} value")).collect();
        run(store, START, &format!("hsetex h px 1000 fields {} {}", names.len(), pairs.join(" ")));
    }
    for line in others {
        run(store, START, line);
    }
}

#[test]
fn fields_that_have_expired_are_hidden_while_they_are_there_and_go_bit_by_bit() {
    const COUNT: usize = 3000;
    for other in ["hset h stays value", "hsetex h px 9000 fields 1 stays value"] {
        let store = Store::new(StoreConfig::default());
        expiring(&store, COUNT, &[other]);
        let now = START + 1000;
        for (line, expected) in [
            ("hget h stays", "value"),
            ("hget h f7", "nil"),
            ("hmget h f8 stays", "[nil value]"),
            ("hexists h f9", "0"),
            ("hstrlen h f9", "0"),
            ("hpttl h fields 1 f10", "[-2]"),
            ("hpersist h fields 1 f11", "[-2]"),
            ("hpexpire h 5000 fields 1 f11", "[-2]"),
            ("hgetex h persist fields 1 f12", "[nil]"),
            ("hdel h f13 f14", "0"),
            ("hgetdel h fields 1 f15", "[nil]"),
            ("hsetex h fxx px 5 fields 1 f16 value", "0"),
            ("hset h f2990 new", "1"),
            ("hsetnx h f2991 new", "1"),
            ("hincrby h f2992 5", "5"),
            ("exists h", "1"),
            ("type h", "hash"),
        ] {
            assert_eq!(show(&run(&store, now, line)), expected, "{line}");
        }
        let removed = store.stats().expired_fields;
        assert!((1..1000).contains(&removed), "{removed} fields were removed by a few requests");
        assert_eq!(show(&run(&store, now, "hlen h")), "4");
        let mut left = run(&store, now, "hkeys h").strings();
        left.sort();
        assert_eq!(left.concat(), b"f2990f2991f2992stays");
    }
}

#[test]
fn random_fields_are_those_that_are_shown_however_many_are_hidden() {
    let many: Vec<String> = (0..6000).map(|nth| format!("s{nth} value")).collect();
    let many: Vec<String> =
        many.chunks(500).map(|part| format!("hset h {}", part.join(" "))).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let cases = [
        (20_000, &["hset h s0 value s1 value s2 value"][..], 3),
        (20_000, &["hsetex h px 9000 fields 2 s0 value s1 value"], 2),
        (20_000, &many, 6000),
        (500, &many, 6000),
    ];
    for (hidden, others, shown) in cases {
        let store = Store::new(StoreConfig::default());
        expiring(&store, hidden, others);
        let now = START + 1000;
        let fields = |line: &str| run(&store, now, line).strings();
        let mut seen = BTreeSet::new();
        for count in [1, 2, 40, 1500, 7000, 100_000] {
            let all = fields(&format!("hrandfield h {count}"));
            let distinct = BTreeSet::from_iter(all.iter().cloned());
            assert_eq!((all.len(), distinct.len()), (count.min(shown), count.min(shown)));
            let again = fields(&format!("hrandfield h -{count} withvalues"));
            assert_eq!(again.len(), 2 * count);
            assert!(again.chunks(2).all(|pair| pair[1] == *b"value"));
            seen.extend(distinct);
            seen.extend(again.into_iter().step_by(2));
            seen.insert(show(&run(&store, now, "hrandfield h")).into_bytes());
        }
        assert!(seen.iter().all(|field| field.starts_with(b"s")), "{hidden} are hidden");
        assert_eq!(seen.len(), shown);
    }
}

#[test]
fn upkeep_removes_hidden_fields_that_nobody_asks_for() {
    let store = Store::new(StoreConfig::default());
    expiring(&store, 3000, &["hset h stays value"]);
    let now = START + 1000;
    assert_eq!(show(&run(&store, now, "hget h f7")), "nil");
    for tick in 0..100 {
        while store.tick(clock_at(now + 1000 + 100 * tick)) {}
    }
    assert_eq!(store.stats().expired_fields, 3000);
}

#[test]
fn a_hash_is_gone_with_its_last_field_whatever_was_removed_before() {
    for end in ["hdel h late", "hpexpire h 500 fields 1 late"] {
        let store = notifying();
        expiring(&store, 1000, &["hsetex h px 9000 fields 1 late value", end]);
        names(&store, 0);
        assert_eq!(show(&run(&store, START + 1000, "exists h")), "0", "{end}");
        assert_eq!(names(&store, 0), "hexpired del");
        assert_eq!(show(&run(&store, START + 1000, "hlen h")), "0", "{end}");
    }
    let store = notifying();
    expiring(&store, 1000, &["hset h stays value"]);
    assert_eq!(show(&run(&store, START + 1000, "hdel h stays")), "1");
    assert_eq!(show(&run(&store, START + 1000, "exists h")), "0", "all others had expired");
}
