//! Helpers for the tests of pools of kind cluster.

#![allow(dead_code, reason = "each of the tests takes its part of it")]
#![allow(clippy::disallowed_methods, reason = "a load runs for a while and stamps what it meets")]

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisCluster, Value, cluster_slot, encode_words,
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

/// Returns a pool of a cluster of which these servers are known.
pub fn cluster_pool(seeds: &[SocketAddr]) -> Pool {
    let seeds: Vec<String> = seeds.iter().map(|seed| format!("\"{seed}\"")).collect();
    Pool::of_kind("main", "cluster").with("servers", &format!("[{}]", seeds.join(", ")))
}

/// Starts Keyway in front of a cluster, of which its first two servers are known.
pub fn serve(cluster: &RedisCluster, settings: &[(&str, &str)], workers: usize) -> Keyway {
    let mut pool = cluster_pool(&cluster.addresses()[..2]);
    for (name, value) in settings {
        pool = pool.with(name, value);
    }
    let config = KeywayConfig::new(vec![pool]).with_server("workers", &workers.to_string());
    Keyway::start(KEYWAY, config)
}

/// Returns a hash tag of `slot`.
pub fn tag_of(slot: u16) -> String {
    let mut tags = (0..).map(|number| format!("t{number}"));
    tags.find(|tag| cluster_slot(tag.as_bytes()) == slot).expect("every slot has keys")
}

/// Returns a key of `slot`, one of many.
pub fn key_of(slot: u16, name: &str) -> String {
    format!("{{{}}}{name}", tag_of(slot))
}

/// Returns the warnings in the log.
pub fn warnings(keyway: &Keyway) -> Vec<String> {
    let log = keyway.process().log();
    let is_odd = |line: &&str| line.contains("WARN") || line.contains("ERROR");
    log.lines().filter(is_odd).map(str::to_owned).collect()
}

/// Clients that send requests without pause, and check every reply.
pub struct Load {
    is_over: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Seen>>,
}

/// The results of a load.
#[derive(Debug, Default)]
pub struct Seen {
    /// Number of replies.
    pub replies: u64,
    /// Errors, with the time since the load began.
    pub errors: Vec<(Duration, String)>,
    /// Replies that must not occur.
    pub wrong: Vec<String>,
    /// Most acknowledged increments that were lost, of keys that a replica had not acknowledged.
    pub lost: u64,
    /// Most acknowledged increments that were lost, of keys that a replica had acknowledged in
    /// every round.
    pub lost_acknowledged: u64,
}

impl Seen {
    /// Expects that nothing was refused, lost or wrong.
    pub fn expect_clean(&self, least: u64) {
        assert!(self.wrong.is_empty(), "{:?}", &self.wrong[..self.wrong.len().min(5)]);
        let errors = self.errors.len();
        assert_eq!(errors, 0, "{:?}", &self.errors[..errors.min(8)]);
        assert_eq!((self.lost, self.lost_acknowledged), (0, 0));
        assert!(self.replies >= least, "{} replies only", self.replies);
    }

    /// Returns the time of the last error.
    pub fn last_error(&self) -> Duration {
        self.errors.iter().map(|(at, _)| *at).max().unwrap_or_default()
    }

    fn add(&mut self, other: Seen) {
        self.replies += other.replies;
        self.errors.extend(other.errors);
        self.wrong.extend(other.wrong);
        self.lost += other.lost;
        self.lost_acknowledged += other.lost_acknowledged;
    }
}

/// Number of keys of each client of a load.
const KEYS: usize = 24;

/// The script of a load. It returns what INCR would return.
const SCRIPT: &str = "return redis.call('INCR', KEYS[1])";

impl Load {
    /// Starts `count` clients of the pool at `address`. Some of them wait until `replicas` replicas
    /// of each server have acknowledged their writes.
    pub fn start(address: SocketAddr, count: usize, replicas: Option<u32>) -> Load {
        let (is_over, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let began = Instant::now();
        // Each client has keys of its own.
        static NAMES: AtomicUsize = AtomicUsize::new(0);
        let first = NAMES.fetch_add(count, Ordering::Relaxed);
        let clients = (first..first + count)
            .map(|number| {
                let (is_over, asked) = (Arc::clone(&is_over), Arc::clone(&asked));
                std::thread::spawn(move || {
                    let mut checker = Checker::new((address, replicas), number, began);
                    while !is_over.load(Ordering::Relaxed) {
                        checker.round();
                        asked.store(asked.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    }
                    checker.seen
                })
            })
            .collect();
        Load { is_over, asked, clients }
    }

    /// Returns the approximate number of rounds so far.
    pub fn rounds(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Waits for this many more rounds.
    pub fn go_on(&self, rounds: u64) {
        let until = self.rounds() + rounds;
        keyway_testkit::wait_until("the load goes on", Duration::from_secs(30), || {
            self.rounds() >= until
        });
    }

    /// Ends the load and returns its results.
    pub fn end(self) -> Seen {
        self.is_over.store(true, Ordering::Relaxed);
        let mut seen = Seen::default();
        for client in self.clients {
            seen.add(client.join().expect("a client of the load"));
        }
        seen
    }
}

/// The bounds of a key's value.
#[derive(Clone, Copy, Default)]
struct Known {
    least: i64,
    most: i64,
}

struct Checker {
    address: SocketAddr,
    client: Client,
    began: Instant,
    round: u64,
    keys: Vec<String>,
    known: Vec<Known>,
    sha: String,
    /// Number of replicas that must acknowledge its writes, if any.
    waits: Option<u32>,
    acknowledged: Vec<i64>,
    seen: Seen,
}

impl Checker {
    fn new(
        (address, replicas): (SocketAddr, Option<u32>),
        number: usize,
        began: Instant,
    ) -> Checker {
        // Keys come in pairs of one slot, and the slots are spread over all.
        let name = |nth: usize| format!("{{load:{number}:{}}}{}", nth / 2, nth % 2);
        let mut client = Client::connect(address);
        let sha = client.command(&["SCRIPT", "LOAD", SCRIPT]);
        Checker {
            address,
            client,
            began,
            round: 0,
            keys: (0..KEYS).map(name).collect(),
            known: vec![Known::default(); KEYS],
            sha: sha.text(),
            waits: replicas.filter(|_| number % 3 == 2),
            acknowledged: vec![0; KEYS],
            seen: Seen::default(),
        }
    }

    fn round(&mut self) {
        self.round += 1;
        match self.round % 6 {
            0 => self.transaction(),
            1 => self.read_all(),
            2 => self.script(),
            3 => self.queue(),
            _ => self.pipeline(),
        }
    }

    /// Returns the replies to `count` requests that were sent; `None` if the connection fails.
    fn replies(&mut self, bytes: &[u8], count: usize) -> Option<Vec<Value>> {
        self.client.send(bytes);
        let mut replies = Vec::with_capacity(count);
        for _ in 0..count {
            match self.client.try_reply() {
                Ok(reply) => replies.push(reply),
                Err(fault) => {
                    self.wrong(format!("{count} requests, {} replies: {fault}", replies.len()));
                    self.client = Client::connect(self.address);
                    return None;
                }
            }
        }
        self.seen.replies += count as u64;
        Some(replies)
    }

    fn wrong(&mut self, what: String) {
        let at = self.began.elapsed();
        self.seen.wrong.push(format!("{at:?}: {what}"));
    }

    fn error(&mut self, reply: &Value) {
        self.seen.errors.push((self.began.elapsed(), reply.error_text()));
    }

    /// Notes the value that an increment or a read of a key returned.
    fn note(&mut self, key: usize, reply: &Value, added: i64) {
        let Known { least, most } = self.known[key];
        let value = match reply {
            Value::Integer(value) => *value,
            Value::Bulk(text) => String::from_utf8_lossy(text).parse().unwrap_or(-1),
            Value::Nil => 0,
            Value::Error(_) => {
                self.error(reply);
                // The increment may have been executed.
                self.known[key].most += added;
                return;
            }
            other => return self.wrong(format!("{}: {other:?}", self.keys[key])),
        };
        let (least, most) = (least + added, most + added);
        if value > most {
            self.wrong(format!("{}: {value} is more than {most}", self.keys[key]));
        }
        if value < least {
            self.seen.lost += (least - value) as u64;
            if value < self.acknowledged[key] {
                self.seen.lost_acknowledged += (self.acknowledged[key] - value) as u64;
                self.acknowledged[key] = 0;
            }
        }
        self.known[key] = Known { least: value, most: value };
    }

    /// Sends INCR of one key after the other, each twice, in one pipeline.
    fn pipeline(&mut self) {
        let mut bytes = Vec::new();
        for key in self.keys.iter().flat_map(|key| [key, key]) {
            bytes.extend(encode_words(&format!("INCR {key}")));
        }
        let Some(replies) = self.replies(&bytes, 2 * KEYS) else { return };
        for (at, reply) in replies.iter().enumerate() {
            self.note(at / 2, reply, 1);
        }
        if let Some(replicas) = self.waits {
            self.wait(replicas, replies.iter().any(Value::is_error));
        }
    }

    /// Waits until replicas of every server have acknowledged the writes.
    fn wait(&mut self, replicas: u32, was_refused: bool) {
        let words = format!("WAIT {replicas} 500");
        let Some(replies) = self.replies(&encode_words(&words), 1) else { return };
        match &replies[0] {
            Value::Integer(1..) if !was_refused => {
                for (acknowledged, known) in self.acknowledged.iter_mut().zip(&self.known) {
                    *acknowledged = known.least;
                }
            }
            Value::Integer(_) => {}
            other => {
                let other = other.clone();
                self.error(&other);
            }
        }
    }

    fn read_all(&mut self) {
        let words = format!("MGET {}", self.keys.join(" "));
        let Some(replies) = self.replies(&encode_words(&words), 1) else { return };
        match &replies[0] {
            Value::Array(values) if values.len() == KEYS => {
                for (key, value) in values.iter().enumerate() {
                    self.note(key, value, 0);
                }
            }
            error @ Value::Error(_) => self.error(&error.clone()),
            other => self.wrong(format!("MGET: {other:?}")),
        }
    }

    fn script(&mut self) {
        let key = (self.round as usize / 6) % KEYS;
        let words = format!("EVALSHA {} 1 {}", self.sha, self.keys[key]);
        let bytes = [encode_words(&words), encode_words("PING")].concat();
        let Some(replies) = self.replies(&bytes, 2) else { return };
        self.note(key, &replies[0], 1);
    }

    /// Increments both keys of a slot in a transaction, which must happen whole or not at all.
    fn transaction(&mut self) {
        let pair = (self.round as usize / 6) % (KEYS / 2);
        let (one, two) = (2 * pair, 2 * pair + 1);
        let lines = format!("MULTI\nINCR {}\nINCR {}\nEXEC", self.keys[one], self.keys[two]);
        let bytes: Vec<u8> = lines.lines().flat_map(encode_words).collect();
        let Some(replies) = self.replies(&bytes, 4) else { return };
        match &replies[3] {
            Value::Array(values) if values.len() == 2 => {
                self.note(one, &values[0], 1);
                self.note(two, &values[1], 1);
            }
            error @ Value::Error(_) => {
                self.error(&error.clone());
                self.known[one].most += 1;
                self.known[two].most += 1;
            }
            other => self.wrong(format!("EXEC: {other:?}")),
        }
    }

    /// Pushes an element and pops it by a command that may block.
    fn queue(&mut self) {
        let list = format!("{}:list", self.keys[(self.round as usize / 6) % KEYS]);
        let value = self.round.to_string();
        let lines = format!("DEL {list}\nRPUSH {list} {value}\nBLPOP {list} 1");
        let bytes: Vec<u8> = lines.lines().flat_map(encode_words).collect();
        let Some(replies) = self.replies(&bytes, 3) else { return };
        let is_refused = replies.iter().any(Value::is_error);
        for reply in replies.iter().filter(|reply| reply.is_error()) {
            self.error(reply);
        }
        let popped = Value::Array(vec![Value::bulk(&list), Value::bulk(&value)]);
        if !is_refused && replies[2] != popped {
            self.wrong(format!("BLPOP {list}: {:?} for {value}", replies[2]));
        }
    }
}
