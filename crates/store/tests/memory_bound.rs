//! The memory that a store counts never passes its bound by more than one item and two percent,
//! whatever is in flight: streamed SETs, zero-copy values, copies, transactions, scripts, and
//! writes of several threads at once.

mod common;

use common::memcached::say;
use common::{
    Random, Reply, clock_at, context_of, execute, is_sanitized, run, run_words, with_args,
    with_request,
};
use keyway_base::Part;
use keyway_command::Request;
use keyway_store::{Context, EvictionPolicy, Footprint, Store, StoreConfig, StreamedSet, Transfer};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

const START: u64 = 1_700_000_000_000;
const BOUND: u64 = 48 << 20;
/// Longest value that is written.
const LEN_MAX: usize = 1500 << 10;
const THREADS: usize = 3;
const KEYS: usize = 150;
/// Members of the collections that others are made out of, of 200 bytes each.
const SOURCE_LEN: usize = 4000;
/// Keys of values that are made out of others.
const MADE: usize = 40;
/// Largest number of zero-copy values that a client has at a time.
const ZERO_COPY_MAX: usize = 8;

fn context_at(now: u64) -> Context {
    context_of(0, now)
}

/// Shared state of all threads.
struct Bench {
    store: Arc<Store>,
    /// Length of the longest item that was written.
    longest: AtomicU64,
    /// Largest number of bytes counted.
    most: AtomicU64,
    value: Vec<u8>,
    /// Largest number of bytes counted inside a transaction, while other threads write.
    most_inside: AtomicU64,
    /// Values have an expiry.
    expires: bool,
}

/// A thread in the place of a few clients of a worker.
struct Clients<'b> {
    bench: &'b Bench,
    random: Random,
    now: u64,
    values: Vec<Part>,
    streamed_sets: Vec<(String, StreamedSet)>,
    refused: u64,
    done: u64,
}

impl Clients<'_> {
    fn note(&mut self, reply: &[u8]) {
        self.refused += u64::from(reply.starts_with(b"-OOM"));
        self.done += u64::from(!reply.starts_with(b"-OOM"));
    }

    fn ask(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        execute(&self.bench.store, 0, clock_at(self.now), words, &mut out);
        self.note(&out);
        out
    }

    fn key(&mut self) -> String {
        format!("key:{}", self.random.below(KEYS))
    }

    /// A value of any size, each power of two as often as any other.
    fn value(&mut self) -> &'static [u8] {
        static ZEROS: [u8; LEN_MAX] = [b'v'; LEN_MAX];
        let top = 1 << (4 + self.random.below(18));
        &ZEROS[..(top / 2 + self.random.below(top)).min(LEN_MAX)]
    }

    fn note_len(&self, len: u64) {
        self.bench.longest.fetch_max(len, Ordering::Relaxed);
    }

    /// Sets a key to a value that comes in pieces, with other requests in between.
    fn go_on_with_streamed_sets(&mut self) {
        if self.streamed_sets.len() < 6 && self.random.once_in(2) {
            let (key, len) = (self.key(), 200_000 + self.random.below(LEN_MAX - 200_000));
            let streamed = StreamedSet::new(&self.bench.store, key.as_bytes(), len);
            self.streamed_sets.extend(streamed.map(|streamed| (key, streamed)));
        }
        let Some(pick) = self.streamed_sets.len().checked_sub(1) else { return };
        let pick = self.random.below(pick + 1);
        let len = 1 + self.random.below(400_000);
        let (_, streamed) = &mut self.streamed_sets[pick];
        streamed.extend(&self.bench.value[..len], context_at(self.now));
        if self.random.once_in(40) {
            self.streamed_sets.swap_remove(pick);
        } else if self.streamed_sets[pick].1.is_whole() {
            let (key, streamed) = self.streamed_sets.swap_remove(pick);
            let mut words: Vec<&[u8]> = vec![b"SET", key.as_bytes(), b"v"];
            words.extend_from_slice(if self.bench.expires { &[b"EX", b"1000"] } else { &[] });
            self.ask_with(&words, Some(Box::new(streamed)));
        }
    }

    fn ask_with(&mut self, words: &[&[u8]], streamed: Option<Box<StreamedSet>>) {
        let transfer = Transfer::new(&self.bench.store, streamed);
        let (mut out, context) = (Vec::new(), context_at(self.now));
        with_args(words, |args| {
            let request = Request::resolve(args).expect("a command");
            self.bench.store.execute_with(&request, context, Some(&transfer), &mut out);
        });
        self.note(&out);
        let zero_copy = transfer.into_zero_copy().unwrap_or_default();
        self.values.extend(zero_copy.into_iter().map(|(_, part)| part));
        while self.values.len() > ZERO_COPY_MAX {
            let pick = self.random.below(self.values.len());
            self.values.swap_remove(pick);
        }
    }

    fn step(&mut self) {
        let (key, other, value) = (self.key(), self.key(), self.value());
        let (name, target) = (key.as_bytes(), other.as_bytes());
        let store = &self.bench.store;
        match self.random.below(31) {
            30 => self.transact_on_values(),
            0..=7 if self.bench.expires => _ = self.ask(&[b"SETEX", name, b"1000", value]),
            0..=7 => _ = self.ask(&[b"SET", name, value]),
            8..=12 => self.go_on_with_streamed_sets(),
            13 | 14 => self.ask_with(&[b"GET", name], None),
            15 => {
                let reply = self.ask(&[b"APPEND", name, value]);
                if let Reply::Integer(len) = Reply::read(&mut &reply[..]) {
                    self.note_len(len as u64);
                    if len > LEN_MAX as i64 {
                        self.ask(&[b"DEL", name]);
                    }
                }
            }
            16 => {
                let at = self.random.below(LEN_MAX).to_string();
                self.ask(&[b"SETRANGE", name, at.as_bytes(), &value[..value.len().min(5000)]]);
            }
            17 => {
                self.note_item(&key);
                self.ask(&[b"COPY", name, target, b"REPLACE"]);
            }
            18 => {
                let field = self.random.below(20).to_string();
                self.ask(&[b"HSET", b"hash", field.as_bytes(), &value[..value.len() / 2]]);
            }
            19 => {
                self.ask(&[b"RPUSH", b"list", value, b"short"]);
                self.ask(&[b"LTRIM", b"list", b"-12", b"-1"]);
            }
            20 => _ = self.ask(&[b"SADD", b"set", &value[..value.len() / 4]]),
            21 => _ = self.ask(&[b"XADD", b"stream", b"MAXLEN", b"9", b"*", b"f", value]),
            22 => self.transact(&key, value),
            23 => self.run_script(&key, value),
            24 => {
                let text = String::from_utf8_lossy(&value[..value.len().min(900_000)]).into_owned();
                let verb = ["set", "append", "prepend"][self.random.below(3)];
                let line = format!("{verb} {other} 0 0 {}\r\n{text}\r\n", text.len());
                say(store, self.now, &line);
                self.note_item(&other);
            }
            25 => {
                self.note_item(&key);
                if let Reply::Bulk(Some(dump)) = run(store, self.now, &format!("dump {key}")) {
                    self.ask(&[b"RESTORE", target, b"0", &dump, b"REPLACE"]);
                }
            }
            26 | 27 => _ = self.ask(&[b"DEL", name, target]),
            28 if self.random.once_in(15) => _ = self.ask(&[b"FLUSHALL"]),
            _ if self.random.once_in(6) => _ = self.ask(&[b"DEL", b"set", b"hash"]),
            _ => {
                self.now += 10;
                _ = self.bench.store.tick(clock_at(self.now));
            }
        }
    }

    fn note_item(&self, key: &str) {
        let line = format!("memory usage {key}");
        if let Reply::Integer(len) = run(&self.bench.store, self.now, &line) {
            self.note_len(len as u64);
        }
    }

    /// Sets some keys in one transaction.
    fn transact(&mut self, key: &str, value: &[u8]) {
        let text = String::from_utf8_lossy(value).into_owned();
        let lines: Vec<_> = (0..3).map(|part| format!("set {key}{part} {text}")).collect();
        let mut footprint = Footprint::default();
        for line in &lines {
            with_request(line, |request| footprint.add(&self.bench.store, request));
        }
        let Ok(held) = self.bench.store.hold(footprint, context_at(self.now)) else { return };
        for line in &lines {
            let mut out = Vec::new();
            with_request(line, |request| held.execute(request, context_at(self.now), &mut out));
        }
    }

    /// Adds what is missing of the values that others are made out of.
    fn add_sources(&mut self) {
        for (source, verb) in [("source:set", "SADD"), ("source:zset", "ZADD")] {
            if !self.ask(&[b"EXISTS", source.as_bytes()]).starts_with(b":0") {
                continue;
            }
            let member = |number: usize| format!("{number:0200}");
            let members = (0..SOURCE_LEN).flat_map(|number| {
                let score = (verb == "ZADD").then(|| number.to_string());
                score.into_iter().chain([member(number)])
            });
            let words: Vec<_> =
                [verb, source].map(str::to_owned).into_iter().chain(members).collect();
            let words: Vec<_> = words.iter().map(String::as_bytes).collect();
            self.ask(&words);
            self.expire(source);
        }
        self.ask(&[b"SETRANGE", b"source:text", b"999999", b"x"]);
        self.expire("source:text");
    }

    fn expire(&mut self, key: &str) {
        if self.bench.expires {
            self.ask(&[b"EXPIRE", key.as_bytes(), b"1000"]);
        }
    }

    /// A command that makes a value out of others, or frees one.
    fn command_on_values(&mut self) -> String {
        let (one, other) = (self.random.below(MADE), self.random.below(MADE));
        let (one, other) = (format!("made:{one}"), format!("made:{other}"));
        match self.random.below(16) {
            0 => format!("sdiffstore {one} source:set nothing"),
            1 => format!("sunionstore {one} source:set nothing"),
            2 => format!("sinterstore {one} source:set source:set"),
            3 => format!("zunionstore {one} 2 source:zset nothing"),
            4 => format!("zinterstore {one} 2 source:zset source:set"),
            5 => format!("zdiffstore {one} 2 source:zset nothing"),
            6 => format!("zrangestore {one} source:zset 0 -1"),
            7 => format!("sort source:set by nosort store {one}"),
            8 => format!("georadius source:zset 0 0 30000 km store {one}"),
            9 => format!("geosearchstore {one} source:zset fromlonlat 0 0 bybox 40000 40000 km"),
            10 | 11 => format!("bitop not {one} source:text"),
            12 => format!("copy source:set {one} replace"),
            13 => format!("del {one}"),
            14 => format!("rename {one} {other}"),
            _ => format!("set {one} x"),
        }
    }

    /// Makes values out of others in one transaction, or in a script.
    fn transact_on_values(&mut self) {
        self.add_sources();
        let mut lines = Vec::new();
        for _ in 0..4 + self.random.below(30) {
            lines.push(self.command_on_values());
            if self.bench.expires {
                let words: Vec<_> = lines[lines.len() - 1].split(' ').collect();
                let made = words.into_iter().find(|word| word.starts_with("made:"));
                lines.extend(made.map(|key| format!("expire {key} 1000")));
            }
        }
        let keys: Vec<_> = (0..MADE).map(|number| format!("made:{number}")).collect();
        let bench = self.bench;
        let context = context_at(self.now);
        if self.random.once_in(4) {
            let Ok(script) = bench.store.begin_script() else { return };
            for (number, line) in lines.iter().enumerate() {
                let mut out = Vec::new();
                with_request(line, |request| {
                    script.execute(request, context, number > 0, &mut out)
                });
                self.note(&out);
            }
        } else {
            // The larger part of the transactions run beside others.
            let is_alone = self.random.once_in(3);
            let mut footprint = Footprint::default();
            if is_alone {
                footprint.add_all();
            }
            lines.iter().for_each(|line| {
                with_request(line, |request| footprint.add(&bench.store, request));
            });
            let Ok(held) = bench.store.hold(footprint, context) else { return };
            for line in &lines {
                let mut out = Vec::new();
                with_request(line, |request| held.execute(request, context, &mut out));
                self.note(&out);
                match is_alone {
                    true => self.look(),
                    false => self.look_inside(),
                }
            }
        }
        self.note_item("source:set");
        self.note_item("source:zset");
        keys.iter().for_each(|key| self.note_item(key));
        if self.random.once_in(2) {
            let words: Vec<_> =
                ["DEL"].into_iter().chain(keys.iter().map(String::as_str)).collect();
            let words: Vec<_> = words.into_iter().map(str::as_bytes).collect();
            self.ask(&words);
        }
    }

    /// Notes the bytes counted while other threads write, if no other thread holds shards.
    fn look_inside(&self) {
        if let Some(stats) = self.bench.store.stats_beside_script() {
            let used = stats.memory_used + stats.memory_idle;
            self.bench.most_inside.fetch_max(used, Ordering::Relaxed);
        }
    }

    /// Sets keys as a script does that must not stop half way.
    fn run_script(&mut self, key: &str, value: &[u8]) {
        let text = String::from_utf8_lossy(value).into_owned();
        let Ok(script) = self.bench.store.begin_script() else { return };
        for part in 0..40 {
            let line = format!("set {key}:{part} {text}");
            let mut out = Vec::new();
            let context = context_at(self.now);
            with_request(&line, |request| script.execute(request, context, part > 0, &mut out));
            if out.starts_with(b"-") {
                break;
            }
        }
    }

    /// Notes the bytes counted.
    fn look(&self) {
        let stats = self.bench.store.stats();
        let used = stats.memory_used + stats.memory_idle;
        self.bench.most.fetch_max(used, Ordering::Relaxed);
    }
}

/// Lets threads send random requests for a while. Returns how many were refused and done.
fn run_with(policy: EvictionPolicy, expires: bool, seed: u64) -> (u64, u64) {
    let config =
        StoreConfig { memory_max: BOUND, policy, shards: Some(64), ..StoreConfig::default() };
    let bench = Bench {
        store: Arc::new(Store::new(config)),
        longest: AtomicU64::new(LEN_MAX as u64),
        most: AtomicU64::new(0),
        most_inside: AtomicU64::new(0),
        value: vec![b'd'; 500_000],
        expires,
    };
    let steps = if is_sanitized() { 100 } else { 400 };
    let meet = Barrier::new(THREADS);
    let counts = common::at_once(THREADS as u16, |thread| {
        let random = Random::new(seed * 100 + u64::from(thread));
        let (values, streamed_sets) = (Vec::new(), Vec::new());
        let mut clients = Clients {
            bench: &bench,
            random,
            now: START,
            values,
            streamed_sets,
            refused: 0,
            done: 0,
        };
        for step in 0..steps {
            clients.step();
            if step % 4 == 0 {
                // No thread writes while one looks.
                meet.wait();
                if thread == 0 {
                    clients.look();
                }
                meet.wait();
            }
        }
        (clients.refused, clients.done)
    });
    let (most, longest) = (bench.most.into_inner(), bench.longest.into_inner());
    let most_inside = bench.most_inside.into_inner();
    // One item that is being written.
    let bound = BOUND + BOUND / 50 + longest;
    println!(
        "{:16} {:+6.1} % at most, {:+6.1} % beside others, longest {longest}, {counts:?}",
        policy.name(),
        (most as f64 / BOUND as f64 - 1.0) * 100.0,
        (most_inside as f64 / BOUND as f64 - 1.0) * 100.0
    );
    assert!(most <= bound, "{}: {most} bytes of {BOUND}, longest {longest}", policy.name());
    // Each thread may be about to write an item.
    let bound = bound + (THREADS as u64 - 1) * longest;
    assert!(most_inside <= bound, "{}: {most_inside} bytes of {BOUND}", policy.name());
    let (refused, done) = counts.into_iter().unzip::<u64, u64, Vec<_>, Vec<_>>();
    (refused.iter().sum(), done.iter().sum())
}

#[test]
fn used_memory_keeps_to_its_bound_whatever_is_in_flight() {
    let seed = std::process::id().into();
    println!("seed {seed}");
    let policies = [
        ("noeviction", false),
        ("volatile-lru", false),
        ("volatile-ttl", true),
        ("volatile-lfu", true),
        ("allkeys-s3fifo", false),
        ("allkeys-lru", true),
        ("allkeys-lfu", false),
        ("allkeys-random", false),
    ];
    let mut refused_in_all = 0;
    for (name, expires) in policies {
        let policy = EvictionPolicy::from_name(name).expect("a policy");
        let (refused, done) = run_with(policy, expires, seed);
        // Most writes find room; how many depends on how the threads meet.
        assert!(done * 3 > refused, "{name}: {done} done, {refused} refused");
        refused_in_all += refused;
    }
    assert!(refused_in_all > 20, "{refused_in_all} refused");
}

/// Several threads write large values, most of which have no room.
#[test]
fn large_values_that_are_refused_let_no_others_in() {
    for name in ["noeviction", "volatile-lru"] {
        let policy = EvictionPolicy::from_name(name).expect("a policy");
        let config = StoreConfig { memory_max: BOUND, policy, ..StoreConfig::default() };
        let store = Arc::new(Store::new(config));
        let value = vec![b'v'; LEN_MAX];
        let most = common::at_once(3, |thread| {
            let mut random = Random::new(u64::from(thread) + 5);
            let mut most = 0;
            for number in 0..400 {
                let key = format!("{thread}:{number}");
                let value = &value[..100_000 + random.below(LEN_MAX - 100_000)];
                match StreamedSet::new(&store, key.as_bytes(), value.len()) {
                    None => _ = run_words(&store, START, &[b"SET", key.as_bytes(), value]),
                    Some(mut streamed) => {
                        for piece in value.chunks(60_000) {
                            streamed.extend(piece, context_at(START));
                        }
                        with_request(&format!("set {key} v"), |request| {
                            let transfer = Transfer::new(&store, Some(Box::new(streamed)));
                            let context = context_at(START);
                            store.execute_with(request, context, Some(&transfer), &mut Vec::new());
                        });
                    }
                }
                let stats = store.stats();
                most = most.max(stats.memory_used + stats.memory_idle);
            }
            most
        });
        let most = most.into_iter().max().unwrap_or_default();
        assert!(most <= BOUND + BOUND / 50 + LEN_MAX as u64, "{name}: {most}");
        while store.tick(clock_at(START)) {}
        let used = store.stats().memory_used;
        assert!(used > BOUND * 3 / 4 && used <= BOUND, "{name}: {used} at rest");
    }
}
