//! Long values that are taken from the store, and given to it, without a copy: what is shared
//! stays as it was, whatever becomes of its key, and its memory comes back with the last of
//! it; what is given counts like any other value.

mod common;

use common::{Random, Reply, clock_at, context_of, execute, run, run_words, with_args};
use keyway_base::Part;
use keyway_command::Request;
use keyway_store::{Context, EvictionPolicy, Store, StoreConfig, StreamedSet, Transfer};
use std::sync::Arc;

const START: u64 = 1_700_000_000_000;
/// Runs of the heap, and blocks that the global allocator maps by themselves.
const LENS: [usize; 6] = [100, 16 << 10, 40_000, 120_000, 140_000, 300_000];

/// The reply to `words`, and its zero-copy values.
fn ask(store: &Arc<Store>, now: u64, words: &[&[u8]]) -> (Vec<u8>, Vec<Part>) {
    ask_with(store, now, words, None)
}

/// The same with what a word stands for.
fn ask_with(
    store: &Arc<Store>,
    now: u64,
    words: &[&[u8]],
    streamed: Option<Box<StreamedSet>>,
) -> (Vec<u8>, Vec<Part>) {
    // Behind what others have had to say.
    let mut own = b"before".to_vec();
    let transfer = Transfer::new(store, streamed);
    with_args(words, |args| {
        let request = Request::resolve(args).expect("a command");
        store.execute_with(&request, context_at(now), Some(&transfer), &mut own);
    });
    joined(&own, transfer)
}

fn context_at(now: u64) -> Context {
    context_of(0, now)
}

/// Returns the reply behind `before` with the values in their positions, and its zero-copy values.
fn joined(own: &[u8], transfer: Transfer<'_>) -> (Vec<u8>, Vec<Part>) {
    let zero_copy = transfer.into_zero_copy().map_or_else(Vec::new, |zero_copy| *zero_copy);
    let (mut reply, mut from) = (Vec::new(), 6);
    for (at, part) in &zero_copy {
        reply.extend_from_slice(&own[from..*at]);
        reply.extend_from_slice(part.bytes());
        from = *at;
    }
    reply.extend_from_slice(&own[from..]);
    (reply, zero_copy.into_iter().map(|(_, part)| part).collect())
}

/// A value that came in pieces; none if it is too short.
fn streamed_set_of(store: &Arc<Store>, key: &[u8], value: &[u8]) -> Option<Box<StreamedSet>> {
    let mut streamed = StreamedSet::new(store, key, value.len())?;
    for piece in value.chunks(10_007) {
        assert!(
            streamed.extend(piece, context_at(START)).is_empty()
                && streamed.bytes().ends_with(piece)
        );
    }
    assert!(streamed.is_whole() && streamed.extend(b"more", context_at(START)) == b"more");
    Some(Box::new(streamed))
}

fn get(store: &Arc<Store>, key: &str) -> (Vec<u8>, Part) {
    let (reply, mut zero_copy) = ask(store, START, &[b"get", key.as_bytes()]);
    let Reply::Bulk(Some(value)) = Reply::read(&mut &reply[..]) else { panic!("no value") };
    (value, zero_copy.pop().expect("a zero-copy value"))
}

fn store_of(memory_max: u64) -> Arc<Store> {
    let policy = EvictionPolicy::AllKeysS3Fifo;
    let shards = Some(2);
    Arc::new(Store::new(StoreConfig { memory_max, policy, shards, ..StoreConfig::default() }))
}

#[test]
fn what_is_lent_stays_as_it_was_and_every_reply_is_what_it_would_be() {
    let (store, twin) = (store_of(0), store_of(0));
    let empty = store.stats().memory_used;
    let mut random = Random::new(7);
    let mut held: Vec<(Part, Vec<u8>)> = Vec::new();
    let (mut zero_copy_count, mut streamed_sets, mut now) = (0, 0, START);
    for step in 0..if common::is_sanitized() { 2000 } else { 6000 } {
        let key = ["a", "b", "c"][random.below(3)].to_owned();
        let other = ["a", "b", "d"][random.below(3)];
        let letter = b'a' + (step % 26) as u8;
        let long = String::from_utf8(vec![letter; LENS[random.below(LENS.len())]]).expect("text");
        let at = random.below(20_000).to_string();
        now += random.below(40) as u64;
        let words: Vec<&str> = match random.below(32) {
            0..=5 => vec!["set", &key, &long],
            6 => vec!["set", &key, &long, "get", "px", "100"],
            24 => vec!["set", &key, &long, "nx", "ex", "100"],
            7 => vec!["append", &key, "some more"],
            8 => vec!["append", &key, &long],
            9 => vec!["setrange", &key, &at, "something else"],
            10 => vec!["setbit", &key, &at, "1"],
            11 => vec!["bitfield", &key, "set", "u8", &at, "77"],
            12 => vec!["del", &key],
            13 => vec!["getdel", &key],
            14 => vec!["getset", &key, &long],
            15 => vec!["getex", &key, "px", "50"],
            16 => vec!["getex", &key, "persist"],
            17 => vec!["expire", &key, "100"],
            18 => vec!["rename", &key, other],
            19 => vec!["copy", &key, other, "replace"],
            20 => vec!["getrange", &key, "5", "-5"],
            21 => vec!["mget", &key, other, &key, "none"],
            22 => vec!["bitop", "not", &key, other],
            23 if random.once_in(4) => vec!["flushall"],
            29 => vec!["sadd", &key, "not a string"],
            25 => vec!["incr", &key],
            _ => vec!["get", &key],
        };
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let is_given = words[0] == b"set" && random.below(2) == 0;
        let streamed = is_given.then(|| streamed_set_of(&store, words[1], words[2])).flatten();
        streamed_sets += usize::from(streamed.is_some());
        let (reply, zero_copy) = match streamed {
            None => ask(&store, now, &words),
            // Its first bytes stand for it.
            Some(streamed) => {
                let mut words = words.clone();
                words[2] = b"some";
                ask_with(&store, now, &words, Some(streamed))
            }
        };
        let mut plain = Vec::new();
        execute(&twin, 0, clock_at(now), &words, &mut plain);
        assert!(reply == plain, "step {step}: {:?} of {key}", String::from_utf8_lossy(words[0]));
        zero_copy_count += zero_copy.len();
        held.extend(
            zero_copy.into_iter().map(|part| (part.bytes().to_vec(), part)).map(|(b, p)| (p, b)),
        );
        while held.len() > 40 || (!held.is_empty() && random.once_in(3)) {
            let (part, bytes) = held.swap_remove(random.below(held.len()));
            assert!(part.bytes() == bytes, "step {step}: a zero-copy value has changed");
        }
        if random.once_in(20) {
            assert!(held.iter().all(|(part, bytes)| part.bytes() == bytes), "step {step}");
        }
        let _ = store.tick(clock_at(now));
    }
    assert!(
        zero_copy_count > 50 && streamed_sets > 30,
        "only {zero_copy_count} were shared, {streamed_sets} streamed"
    );
    run_words(&store, now, &[b"set", b"last", &[9; 200_000]]);
    held.push((get(&store, "last").1, vec![9; 200_000]));
    run(&store, now, "flushall");
    while store.tick(clock_at(now)) {}
    assert!(store.stats().memory_used > empty + 16_000, "a zero-copy value still takes memory");
    assert!(held.iter().all(|(part, bytes)| part.bytes() == bytes));
    held.clear();
    while store.tick(clock_at(now)) {}
    assert_eq!(store.stats().memory_used, empty, "it is given back");
}

#[test]
fn nothing_is_copied_that_is_read_only() {
    let store = store_of(0);
    run_words(&store, START, &[b"set", b"k", &[7; 300_000]]);
    let (_, first) = get(&store, "k");
    run(&store, START, "expire k 100");
    run(&store, START, "persist k");
    let (_, second) = get(&store, "k");
    assert_eq!(first.bytes().as_ptr(), second.bytes().as_ptr(), "an expiry moves nothing");
    run(&store, START, "setrange k 0 x");
    let (value, third) = get(&store, "k");
    assert_ne!(first.bytes().as_ptr(), third.bytes().as_ptr(), "who changes it changes a copy");
    assert_eq!((first.bytes()[0], value[0]), (7, b'x'));
    let before = third.bytes().as_ptr();
    drop((first, second, third));
    run(&store, START, "setrange k 0 y");
    let (value, last) = get(&store, "k");
    assert_eq!((last.bytes().as_ptr(), value[0]), (before, b'y'), "nobody has it: it is changed");
}

#[test]
fn a_value_outlives_its_store() {
    let store = store_of(0);
    run_words(&store, START, &[b"set", b"k", &[1; 200_000]]);
    run_words(&store, START, &[b"set", b"j", &[2; 50_000]]);
    let parts = [get(&store, "k").1, get(&store, "j").1];
    drop(store);
    assert!(parts[0].bytes().iter().all(|byte| *byte == 1));
    assert!(parts[1].bytes().iter().all(|byte| *byte == 2));
}

#[test]
fn what_is_lent_counts_towards_the_bound() {
    let store = store_of(8 << 20);
    let mut held = Vec::new();
    for round in 0..100u32 {
        let reply = run_words(&store, START, &[b"set", b"k", &vec![round as u8; 1 << 20]]);
        if matches!(reply, Reply::Error(_)) {
            assert!(round >= 4, "{round}");
            break;
        }
        // A client that reads none of it.
        held.push(get(&store, "k").1);
        assert!(held.len() < 9, "it goes beyond the bound");
    }
    held.clear();
    while store.tick(clock_at(START)) {}
    assert_eq!(run_words(&store, START, &[b"set", b"k", b"v"]), Reply::Simple("OK".into()));
}

#[test]
fn threads_that_change_it_and_threads_that_hold_it_do_not_meet() {
    let store = store_of(0);
    let empty = store.stats().memory_used;
    let rounds = if common::is_sanitized() { 300 } else { 2000 };
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let store = &store;
            scope.spawn(move || {
                let mut random = Random::new(thread + 1);
                let mut held: Vec<Part> = Vec::new();
                for _ in 0..rounds {
                    let letter = b'a' + random.below(26) as u8;
                    let long = vec![letter; LENS[1 + random.below(LENS.len() - 1)]];
                    match random.below(8) {
                        0 | 1 => drop(run_words(store, START, &[b"set", b"k", &long])),
                        2 => drop(run(store, START, "del k")),
                        // All of it, so that it is of one letter still.
                        3 => drop(run_words(
                            store,
                            START,
                            &[b"setrange", b"k", b"0", &[letter; 300_000]],
                        )),
                        _ => held.extend(ask(store, START, &[b"get", b"k"]).1),
                    }
                    if held.len() > 5 {
                        let part = held.swap_remove(random.below(held.len()));
                        let first = part.bytes()[0];
                        assert!(part.bytes().iter().all(|byte| *byte == first));
                    }
                    let _ = store.tick(clock_at(START));
                }
            });
        }
    });
    run(&store, START, "flushall");
    while store.tick(clock_at(START)) {}
    assert_eq!(store.stats().memory_used, empty);
}

#[test]
fn a_draft_is_for_one_key_and_for_long_values() {
    let store = store_of(0);
    assert!(StreamedSet::new(&store, b"k", 100_000).is_none(), "it is copied in no time");
    assert!(StreamedSet::new(&store, b"k", usize::MAX - 5).is_none());
    let value = vec![b'v'; 300_000];
    for (key, is_other) in [("k", false), ("other", true)] {
        let streamed = streamed_set_of(&store, b"k", &value);
        let (reply, _) = ask_with(&store, START, &[b"set", key.as_bytes(), b"vvv"], streamed);
        assert_eq!(reply, b"+OK\r\n");
        let (got, part) = get(&store, key);
        assert!(got == value, "of another key: {is_other}");
        assert_eq!(run(&store, START, &format!("strlen {key}")).integer(), 300_000);
        drop(part);
        let words = format!("setex {key} 100 short");
        assert_eq!(run(&store, START, &words), Reply::Simple("OK".into()));
    }
}

#[test]
fn what_has_come_of_a_draft_is_counted_and_no_more() {
    let store = store_of(24 << 20);
    let empty = store.stats().memory_used;
    let mut streamed = StreamedSet::new(&store, b"k", 5 << 20).expect("a streamed");
    assert_eq!(store.stats().memory_used, empty, "nothing has come of it");
    streamed.extend(&vec![1; 3 << 20], context_at(START));
    assert_eq!(store.stats().memory_used, empty + (3 << 20));
    // It is in the way of others.
    run_words(&store, START, &[b"set", b"a", &vec![2; 11 << 20]]);
    run_words(&store, START, &[b"set", b"b", &vec![2; 11 << 20]]);
    assert_eq!(run(&store, START, "exists a b").integer(), 1);
    drop(streamed);
    while store.tick(clock_at(START)) {}
    run_words(&store, START, &[b"set", b"c", &vec![2; 11 << 20]]);
    assert_eq!(run(&store, START, "exists a b c").integer(), 2, "and not any more");
    // One that is whole makes room for itself like any value.
    let streamed = streamed_set_of(&store, b"k", &vec![3; 5 << 20]);
    let (reply, _) = ask_with(&store, START, &[b"set", b"k", b"3"], streamed);
    assert_eq!(reply, b"+OK\r\n");
    while store.tick(clock_at(START)) {}
    assert!(store.stats().memory_used <= 24 << 20);
    assert_eq!(run(&store, START, "strlen k").integer(), 5 << 20);
}

#[test]
fn a_draft_is_refused_as_soon_as_there_is_no_room_for_what_came() {
    let policy = EvictionPolicy::VolatileLru;
    let config = StoreConfig { memory_max: 24 << 20, policy, ..StoreConfig::default() };
    let store = Arc::new(Store::new(config));
    run_words(&store, START, &[b"set", b"a", &vec![2; 18 << 20]]);
    let before = store.stats().memory_used;
    let mut streamed = StreamedSet::new(&store, b"k", 6 << 20).expect("a streamed");
    for piece in vec![3; 6 << 20].chunks(100_000) {
        assert!(streamed.extend(piece, context_at(START)).is_empty());
        assert!(store.stats().memory_used < 25 << 20);
    }
    assert!(streamed.is_refused() && streamed.is_whole() && streamed.bytes().is_empty());
    while store.tick(clock_at(START)) {}
    assert_eq!(store.stats().memory_used, before, "nothing of it is kept");
    let streamed = Some(Box::new(streamed));
    let (reply, _) = ask_with(&store, START, &[b"set", b"k", b"3"], streamed);
    assert!(reply.starts_with(b"-OOM "), "{}", reply.escape_ascii());
    assert_eq!(run(&store, START, "exists a k").integer(), 1);
}

#[test]
fn a_store_that_evicts_nothing_begins_no_draft_that_it_has_no_room_for() {
    let policy = EvictionPolicy::NoEviction;
    let config = StoreConfig { memory_max: 24 << 20, policy, ..StoreConfig::default() };
    let store = Arc::new(Store::new(config));
    run_words(&store, START, &[b"set", b"a", &vec![2; 14 << 20]]);
    let streamed_sets: Vec<_> =
        (0..9).filter_map(|_| StreamedSet::new(&store, b"k", 2 << 20)).collect();
    assert_eq!(streamed_sets.len(), 3, "ten less what is set aside");
}

#[test]
fn a_quota_bounds_what_is_given_as_well() {
    let quota = keyway_store::QuotaConfig {
        prefix: b"q:".to_vec().into(),
        memory_max: 1 << 20,
        items_max: 0,
    };
    let policy = EvictionPolicy::NoEviction;
    let config = StoreConfig { policy, shards: Some(2), ..StoreConfig::default() };
    let store = Arc::new(Store::with_quotas(config, vec![quota]));
    for (len, fits) in [(600_000, true), (2 << 20, false)] {
        let streamed = streamed_set_of(&store, b"q:k", &vec![3; len]);
        let (reply, _) = ask_with(&store, START, &[b"set", b"q:k", b"3"], streamed);
        assert_eq!(reply == b"+OK\r\n", fits, "{}", String::from_utf8_lossy(&reply));
    }
    assert_eq!(run(&store, START, "strlen q:k").integer(), 600_000);
}

#[test]
fn a_small_part_of_a_block_is_copied() {
    let store = store_of(0);
    run_words(&store, START, &[b"set", b"k", &[7; 300_000]]);
    for (end, is_shared) in [("99999", false), ("199999", true)] {
        let (reply, zero_copy) = ask(&store, START, &[b"getrange", b"k", b"0", end.as_bytes()]);
        assert_eq!(zero_copy.len(), usize::from(is_shared), "who waits for little holds little");
        assert!(reply.ends_with(b"\x07\x07\r\n"));
    }
}

#[test]
fn streamed_sets_are_few_and_announce_no_more_than_a_part_of_the_bound() {
    let store = store_of(0);
    let mut streamed_sets: Vec<StreamedSet> =
        (0..100).filter_map(|_| StreamedSet::new(&store, b"k", 1 << 20)).collect();
    assert_eq!(streamed_sets.len(), 64);
    streamed_sets.truncate(60);
    assert!(StreamedSet::new(&store, b"k", 512 << 20).is_some(), "one that has left makes room");
    let store = store_of(64 << 20);
    let streamed_sets: Vec<StreamedSet> =
        (0..100).filter_map(|_| StreamedSet::new(&store, b"k", 3 << 20)).collect();
    assert_eq!(streamed_sets.len(), 5, "a quarter of what the store may take");
    let empty = store.stats().memory_used;
    let mut streamed_sets = streamed_sets;
    streamed_sets[0].extend(&[1; 100_000], context_at(START));
    drop(streamed_sets);
    assert!(store.stats().memory_used <= empty, "what never came is not to be freed");
    assert!(
        StreamedSet::new(&store, b"k", 16 << 20).is_some()
            && StreamedSet::new(&store, b"k", 17 << 20).is_none()
    );
}

#[test]
fn clients_of_memcached_are_told_the_same_without_copies() {
    let store = store_of(0);
    for (key, len) in [("a", 5), ("b", 8_000), ("c", 140_000), ("d", 900_000)] {
        run_words(&store, START, &[b"set", key.as_bytes(), &vec![key.as_bytes()[0]; len]]);
    }
    run(&store, START, "rpush list x");
    let quiet = |key: u8| {
        let head = [0x80, 0x09, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0];
        [&head[..], &[key]].concat()
    };
    let get_key = |key: u8| [&[0x80, 0x0c], &quiet(key)[2..]].concat();
    let lines: Vec<(Vec<u8>, usize)> = vec![
        (b"get a\r\n".to_vec(), 0),
        (b"get b\r\n".to_vec(), 1),
        (b"gets b c\r\n".to_vec(), 2),
        (b"get d none a b d\r\n".to_vec(), 3),
        (b"get b list d\r\n".to_vec(), 0),
        (b"mg b v f k\r\n".to_vec(), 1),
        (b"mg c s t\r\n".to_vec(), 0),
        (b"mg c v q O123\r\n".to_vec(), 1),
        (b"mg d v c\r\n".to_vec(), 1),
        (b"mg list v\r\n".to_vec(), 0),
        (b"mg none v\r\n".to_vec(), 0),
        (quiet(b'c'), 1),
        (get_key(b'd'), 1),
        (quiet(b'a'), 0),
        (quiet(b'x'), 0),
    ];
    let context = common::memcached::context_at(START);
    for (line, zero_copy_count) in lines {
        let plain = common::memcached::ask(&store, START, &line);
        common::memcached::each_request(&line, &mut Vec::new(), |request, bytes, _| {
            let mut own = b"before".to_vec();
            let transfer = Transfer::new(&store, None);
            assert!(store.execute_memcached_with(
                request,
                bytes,
                context,
                Some(&transfer),
                &mut own
            ));
            let (reply, zero_copy) = joined(&own, transfer);
            assert!(reply == plain, "{}", line.escape_ascii());
            assert_eq!(zero_copy.len(), zero_copy_count, "{}", line.escape_ascii());
        });
    }
}
