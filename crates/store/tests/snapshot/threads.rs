//! Threads write while a snapshot is made: of each of them it has what was done up to one moment,
//! and of what was done as one, all or nothing.

use crate::START;
use crate::common::snapshots::{Contents, begin, contents, enable, finish, load};
use crate::common::{Random, Reply, clock_at, context_of, run, with_request};
use keyway_store::{Footprint, Store, StoreConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const THREADS: u64 = 3;
const KEYS: usize = 300;
const SNAPSHOTS: usize = 6;

/// The request that a thread makes as its `nth`, by a model of its own: the same each time.
fn request(thread: u64, nth: u64) -> String {
    let mut random = Random::new(thread << 32 | nth);
    let key = random.below(KEYS);
    match random.below(8) {
        0..4 => format!("SET {thread}:{key} value:{nth}:{}", "v".repeat(random.below(300))),
        4 => format!("DEL {thread}:{key}"),
        5 => format!("SADD {thread}:set member:{nth}"),
        6 => format!("HSET {thread}:hash field:{} {nth}", random.below(2_000)),
        _ => format!("RPUSH {thread}:list {nth}"),
    }
}

/// Executes lines as one.
fn transact(store: &Store, lines: &[String]) {
    let mut footprint = Footprint::default();
    lines.iter().for_each(|line| with_request(line, |request| footprint.add(store, request)));
    let held = store.hold(footprint, context_of(0, START)).expect("no script runs");
    let mut out = Vec::new();
    for line in lines {
        with_request(line, |request| held.execute(request, context_of(0, START), &mut out));
    }
}

/// Executes a thread's `nth` request, with its number in another key as one.
fn apply(store: &Store, thread: u64, nth: u64) {
    let count = format!("SET {thread}:count {nth}");
    if nth.is_multiple_of(3) {
        // One request over two shards, or more.
        run(
            store,
            START,
            &format!("MSET {thread}:count {nth} {thread}:left {nth} {thread}:right {nth}"),
        );
    } else {
        transact(store, &[request(thread, nth), count]);
    }
}

fn of_thread(all: &Contents, thread: u64) -> Contents {
    let prefix = format!("{thread}:").into_bytes();
    let own = all.iter().filter(|((_, key), _)| key.starts_with(&prefix));
    own.map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[test]
fn each_file_has_what_every_thread_had_done_by_one_moment() {
    let config = StoreConfig { shards: Some(8), databases: 1, ..StoreConfig::default() };
    let store = Arc::new(Store::new(config));
    enable(&store, START);
    let is_over = AtomicBool::new(false);
    let begun = AtomicU64::new(0);
    let files = std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, is_over, begun) = (&store, &is_over, &begun);
            scope.spawn(move || {
                let mut nth = 0;
                while !is_over.load(Ordering::Relaxed) {
                    nth += 1;
                    apply(store, thread, nth);
                    begun.fetch_add(1, Ordering::Relaxed);
                    let _ = store.tick(clock_at(START));
                }
            });
        }
        let snapshot = |_| {
            let mut file = Vec::new();
            finish(begin(&store, START), START, &mut file);
            file
        };
        // On a busy machine the files could be written before a thread has begun.
        while begun.load(Ordering::Relaxed) < 101 * THREADS {
            std::thread::yield_now();
        }
        let files: Vec<Vec<u8>> = (0..SNAPSHOTS).map(snapshot).collect();
        is_over.store(true, Ordering::Relaxed);
        files
    });
    // One model of each thread, which goes on from file to file.
    let model = Arc::new(Store::new(config));
    let mut done = [0; THREADS as usize];
    for file in files {
        let loaded = Arc::new(Store::new(config));
        load(&loaded, START, &file, 10_000).expect("a whole file");
        let all = contents(&loaded, 1, START);
        for thread in 0..THREADS {
            let count = match run(&loaded, START, &format!("GET {thread}:count")) {
                Reply::Bulk(Some(text)) => String::from_utf8(text).expect("digits").parse(),
                _ => Ok(0),
            };
            let count: u64 = count.expect("a number");
            let done = &mut done[thread as usize];
            assert!(count >= *done, "a later file is of an earlier moment");
            (*done + 1..=count).for_each(|nth| apply(&model, thread, nth));
            *done = count;
        }
        let expected = contents(&model, 1, START);
        for thread in 0..THREADS {
            assert!(of_thread(&all, thread) == of_thread(&expected, thread), "thread {thread}");
        }
    }
    assert!(done.iter().any(|count| *count > 100), "nothing was done meanwhile: {done:?}");
}
