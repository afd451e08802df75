//! No call holds a worker up: not growing to millions of items, not a million
//! that expire at once, not freeing what is huge. A test binary of its own, whose
//! tests run one after another: they read the clock.
//!
//! Calls are timed by what the thread itself takes of a processor: what else the
//! machine does is not the store's doing.
#![allow(clippy::disallowed_methods, reason = "what is tested is how long things take")]
#![allow(clippy::disallowed_types, reason = "tests in threads, not workers")]

mod common;

use common::{Random, clock_at, execute};
use keyway_store::{Store, StoreConfig};
use std::sync::Mutex;
use std::time::Duration;

const START: u64 = 1_700_000_000_000;
/// Elements of what is huge, and items that expire at once.
const ELEMENTS: usize = if cfg!(feature = "large") { 10_000_000 } else { 1_000_000 };
/// Items that a store grows to.
const ITEMS: usize = if cfg!(feature = "large") { 10_000_000 } else { 1_000_000 };
/// What a turn of a worker is taken to last, with a call of upkeep and without:
/// more than either does on any machine that is meant.
const TURN_WITH_TICK: Duration = Duration::from_micros(600);
const TURN_WITHOUT: Duration = Duration::from_micros(100);

/// One at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Processor time this thread has taken.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec to be written.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How long calls took, in buckets of a microsecond up to a hundred
/// milliseconds.
struct Times {
    counts: Vec<u32>,
    calls: u64,
    longest: Duration,
}

impl Times {
    fn new() -> Self {
        Self { counts: vec![0; 100_000], calls: 0, longest: Duration::ZERO }
    }

    fn time<R>(&mut self, call: impl FnOnce() -> R) -> R {
        let start = thread_time();
        let result = call();
        let took = thread_time() - start;
        let bucket = (took.as_micros() as usize).min(self.counts.len() - 1);
        self.counts[bucket] += 1;
        self.calls += 1;
        self.longest = self.longest.max(took);
        result
    }

    /// Microseconds that this share of calls do not exceed.
    fn quantile(&self, share: f64) -> usize {
        let wanted = (self.calls as f64 * share).ceil() as u64;
        let mut seen = 0;
        self.counts
            .iter()
            .take_while(|count| {
                seen += u64::from(**count);
                seen < wanted
            })
            .count()
    }

    /// Calls that took a millisecond or more.
    fn slow(&self) -> u64 {
        self.counts[1000..].iter().map(|count| u64::from(*count)).sum()
    }

    fn print(&self, what: &str) {
        println!(
            "{what:52} {:9} calls, p50 {} us, p99.9 {} us, p99.99 {} us, longest {:?}, {} of 1 ms or more",
            self.calls,
            self.quantile(0.5),
            self.quantile(0.999),
            self.quantile(0.9999),
            self.longest,
            self.slow()
        );
    }

    /// An interrupt or a page fault may hit a call or two; a store that stops
    /// for its own work does so every time.
    fn assert_steady(&self) {
        let allowed = 2 + self.calls / 50_000;
        assert!(self.slow() <= allowed, "{} calls took a millisecond or more", self.slow());
    }
}

fn run(store: &Store, millis: u64, words: &[&[u8]], out: &mut Vec<u8>) {
    out.clear();
    execute(store, 0, clock_at(millis), words, out);
}

#[test]
fn growing_to_millions_of_items_stops_no_request() {
    let _turn = TURN.lock();
    let store = Store::new(StoreConfig::default());
    let (mut times, mut out) = (Times::new(), Vec::new());
    for item in 0..ITEMS {
        let key = format!("key:{item:012}");
        times.time(|| run(&store, START, &[b"SET", key.as_bytes(), &[b'v'; 64]], &mut out));
    }
    times.print(&format!("growing to {ITEMS} items"));
    times.assert_steady();
    let mut times = Times::new();
    for item in 0..ITEMS {
        let key = format!("key:{item:012}");
        times.time(|| run(&store, START, &[b"DEL", key.as_bytes()], &mut out));
    }
    times.print("and back to none");
    times.assert_steady();
}

#[test]
fn a_million_items_that_expire_at_once_are_gone_within_two_seconds() {
    let _turn = TURN.lock();
    let store = Store::new(StoreConfig::default());
    let (mut times, mut out) = (Times::new(), Vec::new());
    let empty = store.stats();
    for item in 0..ELEMENTS.min(1_000_000) {
        let key = format!("key:{item:012}");
        run(&store, START, &[b"SET", key.as_bytes(), &[b'v'; 64], b"PX", b"5000"], &mut out);
    }
    run(&store, START, &[b"SET", b"other", b"value"], &mut out);
    let full = store.stats();
    // A worker with one request a turn, and upkeep when it is due or has more.
    let mut random = Random::new(3);
    let mut passed = Duration::ZERO;
    let (mut next, mut more, mut busy) = (Duration::ZERO, false, Duration::ZERO);
    loop {
        let millis = START + 5000 + passed.as_millis() as u64;
        times.time(|| {
            let is_due = more || passed >= next;
            if is_due {
                more = store.tick(clock_at(millis));
                next = if more { next } else { passed + Duration::from_millis(100) };
            }
            let key = format!("key:{:012}", random.below(1_000_000));
            run(&store, millis, &[b"GET", key.as_bytes()], &mut out);
            passed += if is_due { TURN_WITH_TICK } else { TURN_WITHOUT };
        });
        if more {
            busy = passed;
        }
        if store.stats().databases[0].items == 1 || passed > Duration::from_secs(20) {
            break;
        }
    }
    times.print("requests while a million items expire");
    println!(
        "gone after {passed:?}, the last busy upkeep at {busy:?}; {:.1} MiB of {:.1} MiB left",
        (store.stats().memory_used - empty.memory_used) as f64 / f64::from(1 << 20),
        (full.memory_used - empty.memory_used) as f64 / f64::from(1 << 20),
    );
    assert!(passed <= Duration::from_secs(2), "{passed:?}");
    assert!(store.stats().memory_used < full.memory_used / 8);
    times.assert_steady();
}

/// Fills `key` with a collection of [`ELEMENTS`].
fn fill(store: &Store, command: &str, key: &[u8], out: &mut Vec<u8>) {
    let mut element = 0;
    while element < ELEMENTS {
        let numbers: Vec<String> =
            (element..ELEMENTS.min(element + 100)).map(|it| format!("element:{it}")).collect();
        let mut words: Vec<&[u8]> = vec![command.as_bytes(), key];
        for number in &numbers {
            match command {
                "ZADD" => words.extend([&number.as_bytes()[8..], number.as_bytes()]),
                "HSET" => words.extend([number.as_bytes(), b"value"]),
                _ => words.push(number.as_bytes()),
            }
        }
        run(store, START, &words, out);
        element += 100;
    }
}

#[test]
fn freeing_what_is_huge_stops_nobody() {
    let _turn = TURN.lock();
    let store = Store::new(StoreConfig::default());
    let mut out = Vec::new();
    let empty = store.stats().memory_used;
    for command in ["RPUSH", "SADD", "HSET", "ZADD"] {
        for end in ["DEL", "UNLINK", "SET", "RENAME", "EXPIRE", "FLUSHALL"] {
            fill(&store, command, b"huge", &mut out);
            let mut times = Times::new();
            let mut millis = START;
            let words: &[&[u8]] = match end {
                "SET" => &[b"SET", b"huge", b"value"],
                "RENAME" => {
                    run(&store, START, &[b"SET", b"other", b"value"], &mut out);
                    &[b"RENAME", b"other", b"huge"]
                }
                "EXPIRE" => &[b"PEXPIRE", b"huge", b"100"],
                "FLUSHALL" => &[b"FLUSHALL"],
                _ => &[end.as_bytes(), b"huge"],
            };
            times.time(|| run(&store, millis, words, &mut out));
            let mut ticks = 0;
            while store.stats().memory_used > empty + (256 << 10) && ticks < 100_000 {
                ticks += 1;
                millis += 100;
                times.time(|| store.tick(clock_at(millis)));
            }
            times.print(&format!("{command} of {ELEMENTS}, then {end}"));
            assert!(ticks < 100_000, "memory is freed");
            times.assert_steady();
            run(&store, START, &[b"FLUSHALL"], &mut out);
        }
    }
}

#[test]
fn fields_that_expire_at_once_stop_nobody_who_asks_for_one() {
    let _turn = TURN.lock();
    let store = Store::new(StoreConfig::default());
    let mut out = Vec::new();
    let expiry = (START + 1000).to_string();
    for first in (0..ELEMENTS).step_by(100) {
        let names: Vec<String> = (first..first + 100).map(|it| format!("element:{it}")).collect();
        let count = names.len().to_string();
        let mut words: Vec<&[u8]> =
            vec![b"HSETEX", b"huge", b"PXAT", expiry.as_bytes(), b"FIELDS", count.as_bytes()];
        words.extend(names.iter().flat_map(|name| [name.as_bytes(), b"value"]));
        run(&store, START, &words, &mut out);
    }
    run(&store, START, &[b"HSET", b"huge", b"stays", b"value"], &mut out);
    let mut times = Times::new();
    for field in 0..1000 {
        times.time(|| run(&store, START + 1000, &[b"HGET", b"huge", b"stays"], &mut out));
        assert_eq!(out, b"$5\r\nvalue\r\n");
        let field = format!("element:{field}");
        times
            .time(|| run(&store, START + 1000, &[b"HEXISTS", b"huge", field.as_bytes()], &mut out));
        assert_eq!(out, b":0\r\n");
        let words: [&[u8]; 4] = [b"HSET", b"huge", field.as_bytes(), b"again"];
        times.time(|| run(&store, START + 1000, &words, &mut out));
        assert_eq!(out, b":1\r\n");
    }
    times.print(&format!("single fields while {ELEMENTS} others have expired"));
    times.assert_steady();
}
