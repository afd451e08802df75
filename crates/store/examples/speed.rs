//! Processor time per request within the store: no parsing of frames, no I/O.
//! Time of the thread, not of the wall, so that other processes do not count
//! beyond what they do to the caches.
//!
//! `cargo run --release -p keyway-store --example speed [items [requests]]`
#![allow(clippy::print_stdout, reason = "an example prints what it measures")]

use keyway_base::{ByteRange, Clock, Time};
use keyway_command::{Args, Command, Request, lookup};
use keyway_memcache::{ParseLimits, Parsed, Wire, parse_request};
use keyway_resp::Protocol;
use keyway_store::{Context, EvictionPolicy, MemcachedContext, Store, StoreConfig};

const KEY_LEN: usize = 16;
const CLOCK: Clock = Clock { now: Time(0), unix_micros: 1_700_000_000_000_000 };

/// Nanoseconds of processor time this thread has taken.
fn thread_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec to be written.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A request whose key is written anew each time.
struct Template {
    command: &'static Command,
    buf: Vec<u8>,
    ranges: Vec<ByteRange>,
}

impl Template {
    fn new(name: &'static str, tail: &[&[u8]]) -> Self {
        let key = [b'0'; KEY_LEN];
        let mut template = Self {
            command: lookup(name.as_bytes()).expect("a command"),
            buf: vec![],
            ranges: vec![],
        };
        for word in [name.as_bytes(), &key[..]].iter().chain(tail) {
            let start = template.buf.len();
            template.buf.extend_from_slice(word);
            template.ranges.push(ByteRange::new(start, template.buf.len()));
        }
        template
    }

    fn run(&mut self, store: &Store, key: u64, out: &mut Vec<u8>) {
        let range = self.ranges.get(1).copied().unwrap_or_default();
        let digits = &mut self.buf[range.start as usize..range.end as usize];
        let mut rest = key;
        for digit in digits.iter_mut().rev() {
            *digit = b'a' + (rest & 15) as u8;
            rest >>= 4;
        }
        let request = Request { command: self.command, args: Args::new(&self.buf, &self.ranges) };
        out.clear();
        store.execute(
            &request,
            Context { database: 0, clock: CLOCK, protocol: Protocol::Resp2, worker: 0 },
            out,
        );
    }
}

/// The same of a memcached client.
struct Memcached {
    bytes: Vec<u8>,
    key_at: usize,
    request: keyway_memcache::Request,
}

impl Memcached {
    fn new(text: &str) -> Self {
        let bytes = text.replace("KEY", &"0".repeat(KEY_LEN)).into_bytes();
        let key_at = text.find("KEY").expect("a key");
        let mut request = keyway_memcache::Request::default();
        let limits =
            ParseLimits { value_len_max: 1 << 20, keys_max: 1000, keys_line_len_max: 1 << 20 };
        let parsed = parse_request(&bytes, Wire::Text, &limits, &mut request);
        assert_eq!(parsed, Parsed::Ready { consumed: bytes.len() });
        Self { bytes, key_at, request }
    }

    fn run(&mut self, store: &Store, key: u64, out: &mut Vec<u8>) {
        let mut rest = key;
        for digit in self.bytes[self.key_at..self.key_at + KEY_LEN].iter_mut().rev() {
            *digit = b'a' + (rest & 15) as u8;
            rest >>= 4;
        }
        out.clear();
        let context =
            MemcachedContext { database: 0, clock: CLOCK, worker: 0, item_len_max: 1 << 20 };
        assert!(store.execute_memcached(&self.request, &self.bytes, context, out));
    }
}

fn measure_memcached(store: &Store, requests: u64, out: &mut Vec<u8>) {
    let value = "v".repeat(64);
    for (label, text) in [
        ("get, 1,000 keys", "get KEY\r\n".to_owned()),
        ("set in place, 1,000 keys", format!("set KEY 0 0 64\r\n{value}\r\n")),
        ("set with flags, 1,000 keys", format!("set KEY 7 0 64\r\n{value}\r\n")),
        ("gets, 1,000 keys", "gets KEY\r\n".to_owned()),
        ("mg v, 1,000 keys", "mg KEY v\r\n".to_owned()),
        ("mg v f t c, 1,000 keys", "mg KEY v f t c\r\n".to_owned()),
    ] {
        let mut request = Memcached::new(&text);
        measure(label, requests, |random| request.run(store, random % 1000, out));
    }
    let hundred = |word: &str| format!("{word} KEY{}\r\n", " aaaaaaaaaaaaaaab".repeat(99));
    let mut request = Memcached::new(&hundred("get"));
    measure("get of 100 keys", requests / 100, |random| request.run(store, random % 1000, out));
}

fn measure(label: &str, count: u64, mut work: impl FnMut(u64)) {
    let mut random = 88_172_645_463_325_252u64;
    let start = thread_nanos();
    let mut slowest = 0;
    for _ in 0..count {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        work(random);
    }
    let mean = (thread_nanos() - start) as f64 / count as f64;
    // The slowest one is measured apart, lest reading the clock be measured.
    for _ in 0..count.min(1_000_000) {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let start = thread_nanos();
        work(random >> 20);
        slowest = slowest.max(thread_nanos() - start);
    }
    println!("{label:<44} {mean:>7.1} ns   slowest of a million {:>6} us", slowest / 1000);
}

fn main() {
    let items: u64 =
        std::env::args().nth(1).and_then(|items| items.parse().ok()).unwrap_or(10_000_000);
    let requests: u64 =
        std::env::args().nth(2).and_then(|count| count.parse().ok()).unwrap_or(10_000_000);
    let value = [b'v'; 64];
    let mut out = Vec::with_capacity(4096);
    let (mut get, mut set) = (Template::new("get", &[]), Template::new("set", &[&value]));
    let mut setex = Template::new("setex", &[b"1000", &value]);
    let mut ping_like = Template::new("strlen", &[]);

    let store = Store::new(StoreConfig::default());
    for key in 0..1000 {
        set.run(&store, key, &mut out);
    }
    measure("GET, 1,000 keys", requests, |random| get.run(&store, random % 1000, &mut out));
    let others = [&b"aaaaaaaaaaaaaaab"[..]; 99];
    let mut mget = Template::new("mget", &others);
    measure("MGET of 100 keys", requests / 100, |random| mget.run(&store, random % 1000, &mut out));
    measure("STRLEN, 1,000 keys", requests, |random| {
        ping_like.run(&store, random % 1000, &mut out)
    });
    measure("SET in place, 1,000 keys", requests, |random| {
        set.run(&store, random % 1000, &mut out)
    });
    measure_memcached(&store, requests, &mut out);
    measure("GET of missing keys", requests, |random| get.run(&store, random | 1 << 62, &mut out));
    drop(store);

    let store = Store::new(StoreConfig::default());
    let (start, mut slowest) = (thread_nanos(), 0);
    for key in 0..items {
        let one = thread_nanos();
        set.run(&store, key, &mut out);
        slowest = slowest.max(thread_nanos() - one);
    }
    let mean = (thread_nanos() - start) as f64 / items as f64;
    println!("SET of {items} new keys: {mean:.1} ns each, the slowest {} us", slowest / 1000);
    measure("GET, all keys", requests, |random| get.run(&store, random % items, &mut out));
    measure("SET in place, all keys", requests, |random| set.run(&store, random % items, &mut out));
    measure("SETEX, all keys", requests, |random| setex.run(&store, random % items, &mut out));
    let start = thread_nanos();
    let mut flush = Template::new("flushall", &[]);
    flush.ranges.truncate(1);
    flush.run(&store, 0, &mut out);
    println!("FLUSHALL: {} us", (thread_nanos() - start) / 1000);
    let (mut ticks, mut slowest) = (0, 0);
    loop {
        let start = thread_nanos();
        let more = store.tick(CLOCK);
        slowest = slowest.max((thread_nanos() - start) / 1000);
        ticks += 1;
        if !more && store.stats().memory_used < 1 << 20 {
            break;
        }
    }
    println!("  memory freed in {ticks} ticks, the slowest {slowest} us");
    drop(store);

    let config = StoreConfig {
        memory_max: 256 << 20,
        policy: EvictionPolicy::AllKeysS3Fifo,
        ..StoreConfig::default()
    };
    let store = Store::new(config);
    for key in 0..4_000_000 {
        set.run(&store, key, &mut out);
    }
    measure("SET of new keys with eviction", requests, |random| set.run(&store, random, &mut out));
    let stats = store.stats();
    println!(
        "  {} MiB used of {} MiB, {} evicted",
        stats.memory_used >> 20,
        stats.memory_max >> 20,
        stats.evicted
    );
}
