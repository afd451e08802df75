//! Minutes of mixed load on the embedded store and on a pool of four redis-servers, with clients
//! that vanish and servers that are killed, stopped and restarted. Every reply is checked. At the
//! end memory, descriptors, clients and links are back at their earlier counts. `make soak` runs it
//! for `KEYWAY_SOAK_MINUTES` (10).

#![allow(clippy::disallowed_methods, reason = "it runs for a time that is told from outside")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, Random, RedisServer, ReplyFault, Value, encode_words,
    fd_count, resident_bytes, wait_for, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const STORE: usize = 0;
const POOL: usize = 1;
const SERVERS: usize = 4;
const WORKERS: usize = 2;
const CLIENTS_EACH: usize = 6;
/// Longest time until everything is at rest at the end.
const BOUND: Duration = Duration::from_secs(60);
/// Most memory left besides what was there when warm, in bytes: buffers kept for later clients, and
/// what the allocator does not give back.
const SLACK: u64 = 96 << 20;

/// State that all threads share.
#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    requests: [AtomicU64; 2],
    /// Number of error replies about a server that was gone.
    told_of_faults: AtomicU64,
    faults: AtomicU64,
    gone: AtomicU64,
}

/// The values of a client's own keys, as far as it knows.
#[derive(Default)]
struct Known {
    text: Option<String>,
    counter: i64,
    hash: BTreeMap<String, String>,
    list: VecDeque<String>,
    set: BTreeSet<String>,
    sorted: BTreeMap<String, i64>,
    entries: i64,
}

/// A client with keys of its own, which change after each fault.
struct User<'a> {
    keyway: &'a Keyway,
    shared: &'a Shared,
    pool: usize,
    nth: usize,
    life: u64,
    client: Client,
    random: Random,
    known: Known,
    next: u64,
}

/// Panics because a reply is wrong.
fn violated(line: &str, expected: &str, found: &Value) -> ! {
    panic!("{line}: {expected} was to come, not {found:?}");
}

impl<'a> User<'a> {
    fn new(keyway: &'a Keyway, shared: &'a Shared, pool: usize, nth: usize) -> Self {
        let client = keyway.client(pool);
        let random = Random::new(nth as u64);
        let known = Known::default();
        Self { keyway, shared, pool, nth, life: 0, client, random, known, next: 0 }
    }

    /// Starts again with other keys. The state of the earlier keys is unknown, and they are
    /// removed.
    fn begin_again(&mut self) {
        let names = ["mark", "text", "counter", "hash", "list", "set", "sorted", "stream"];
        let keys: Vec<String> = names.iter().map(|name| self.key(name)).collect();
        self.life += 1;
        self.known = Known::default();
        self.client.words(&format!("UNLINK {}", keys.join(" ")));
    }

    /// Leaves without a word, with requests whose replies it does not read, and comes back.
    fn vanish(&mut self) {
        let key = self.key("list");
        let line = match self.random.below(3) {
            0 => format!("BLPOP {key}-none 0"),
            1 => format!("RPUSH {key} x"),
            _ => "MULTI".to_owned(),
        };
        let _ = self.client.try_send(&encode_words(&line));
        self.client = self.keyway.client(self.pool);
        self.shared.gone.fetch_add(1, Ordering::Relaxed);
        self.begin_again();
    }

    /// Returns the name of a key. All keys of a user are on one server.
    fn key(&self, name: &str) -> String {
        format!("{{{}:{}}}{name}", self.nth, self.life)
    }

    fn fresh(&mut self) -> String {
        self.next += 1;
        let len = [0, 0, 0, 40, 400, 9000][self.random.below(6)];
        format!("{}-{}{}", self.nth, self.next, "v".repeat(len))
    }

    /// Returns the replies to lines sent at once; `None` if a server was gone and their outcome is
    /// unknown.
    fn ask(&mut self, lines: &[String]) -> Option<Vec<Value>> {
        let bytes: Vec<u8> = lines.iter().flat_map(|line| encode_words(line)).collect();
        self.client.send(&bytes);
        let mut replies = Vec::new();
        for line in lines {
            match self.client.try_reply() {
                Ok(reply) => replies.push(reply),
                Err(fault @ (ReplyFault::Closed | ReplyFault::Late | ReplyFault::Garbage(_))) => {
                    panic!("{line}: no reply: {fault}")
                }
            }
        }
        self.shared.requests[self.pool].fetch_add(lines.len() as u64, Ordering::Relaxed);
        let is_fault = |reply: &Value| {
            let text = reply.error_text();
            !text.is_empty() && !text.starts_with("WRONGTYPE") && !text.starts_with("ERR wrong")
        };
        if self.pool == POOL && replies.iter().any(is_fault) {
            self.shared.told_of_faults.fetch_add(1, Ordering::Relaxed);
            self.begin_again();
            return None;
        }
        Some(replies)
    }

    /// Sends one request, whose reply must be `expected`. A server that was killed comes back
    /// empty: then all of the keys are gone.
    fn expect(&mut self, line: String, expected: &Value) {
        let Some(replies) = self.ask(std::slice::from_ref(&line)) else { return };
        if replies[0] == *expected {
            return;
        }
        if self.pool == STORE || !self.has_lost_all() {
            violated(&line, &format!("{expected:?}"), &replies[0]);
        }
        self.begin_again();
    }

    /// Returns whether the server of the keys was restarted since they were made: then their mark
    /// is gone.
    fn has_lost_all(&mut self) -> bool {
        let line = format!("EXISTS {}", self.key("mark"));
        self.ask(&[line]).is_none_or(|replies| replies[0] == Value::Integer(0))
    }

    fn step(&mut self) {
        if self.random.below(400) == 0 {
            return self.vanish();
        }
        let life = self.life;
        if self.known.entries == 0 && self.known.counter == 0 && self.known.text.is_none() {
            let line = format!("SET {} 1 EX 3600", self.key("mark"));
            self.expect(line, &Value::simple("OK"));
        }
        if life == self.life {
            match self.random.below(8) {
                0 => self.texts(),
                1 => self.counters(),
                2 => self.hashes(),
                3 => self.lists(),
                4 => self.sets(),
                5 => self.sorted_sets(),
                6 => self.streams(),
                _ => self.transactions(),
            }
        }
    }

    fn texts(&mut self) {
        let key = self.key("text");
        match self.random.below(4) {
            0 => {
                let value = self.fresh();
                self.known.text = Some(value.clone());
                self.expect(format!("SET {key} {value} PX 3600000"), &Value::simple("OK"));
            }
            1 => {
                let was_there = self.known.text.take().is_some();
                self.expect(format!("DEL {key}"), &Value::Integer(was_there.into()));
            }
            _ => {
                let value = self.known.text.as_ref().map_or(Value::Nil, Value::bulk);
                self.expect(format!("GET {key}"), &value);
            }
        }
    }

    fn counters(&mut self) {
        let key = self.key("counter");
        self.known.counter += 1;
        let sum = self.known.counter;
        self.expect(format!("INCR {key}"), &Value::Integer(sum));
    }

    fn hashes(&mut self) {
        let key = self.key("hash");
        let field = format!("f{}", self.random.below(200));
        match self.random.below(4) {
            0 | 1 => {
                let value = self.fresh();
                let is_new = self.known.hash.insert(field.clone(), value.clone()).is_none();
                self.expect(format!("HSET {key} {field} {value}"), &Value::Integer(is_new.into()));
            }
            2 => {
                let was_there = self.known.hash.remove(&field).is_some();
                self.expect(format!("HDEL {key} {field}"), &Value::Integer(was_there.into()));
            }
            _ => {
                let value = self.known.hash.get(&field).map_or(Value::Nil, Value::bulk);
                self.expect(format!("HGET {key} {field}"), &value);
            }
        }
    }

    fn lists(&mut self) {
        let key = self.key("list");
        match self.random.below(4) {
            0 | 1 => {
                let value = self.fresh();
                self.known.list.push_back(value.clone());
                let len = self.known.list.len() as i64;
                self.expect(format!("RPUSH {key} {value}"), &Value::Integer(len));
            }
            2 => {
                let value = self.known.list.pop_front().map_or(Value::Nil, Value::bulk);
                self.expect(format!("LPOP {key}"), &value);
            }
            _ => match self.known.list.pop_front() {
                Some(value) => {
                    let pair = vec![Value::bulk(&key), Value::bulk(value)];
                    self.expect(format!("BLPOP {key} 5"), &Value::Array(pair));
                }
                None => self.expect(format!("BLPOP {key} 0.01"), &Value::NilArray),
            },
        }
    }

    fn sets(&mut self) {
        let key = self.key("set");
        let member = self.random.below(700).to_string();
        match self.random.below(3) {
            0 => {
                let is_new = self.known.set.insert(member.clone());
                self.expect(format!("SADD {key} {member}"), &Value::Integer(is_new.into()));
            }
            1 => {
                let was_there = self.known.set.remove(&member);
                self.expect(format!("SREM {key} {member}"), &Value::Integer(was_there.into()));
            }
            _ => {
                let len = self.known.set.len() as i64;
                self.expect(format!("SCARD {key}"), &Value::Integer(len));
            }
        }
    }

    fn sorted_sets(&mut self) {
        let key = self.key("sorted");
        let member = format!("m{}", self.random.below(300));
        match self.random.below(3) {
            0 => {
                let score = self.random.below(1000) as i64;
                let is_new = self.known.sorted.insert(member.clone(), score).is_none();
                self.expect(format!("ZADD {key} {score} {member}"), &Value::Integer(is_new.into()));
            }
            1 => {
                let score = self.known.sorted.get(&member);
                let score = score.map_or(Value::Nil, |score| Value::bulk(score.to_string()));
                self.expect(format!("ZSCORE {key} {member}"), &score);
            }
            _ => {
                let count = self.known.sorted.values().filter(|score| **score < 500).count();
                let line = format!("ZCOUNT {key} -inf (500");
                self.expect(line, &Value::Integer(count as i64));
            }
        }
    }

    fn streams(&mut self) {
        let key = self.key("stream");
        self.known.entries += 1;
        let id = format!("{}-1", self.known.entries);
        let value = self.fresh();
        self.expect(format!("XADD {key} MAXLEN ~ 500 {id} f {value}"), &Value::bulk(&id));
        if self.random.below(3) == 0 && self.known.entries > 0 {
            let before = self.known.entries - 1;
            let entry = Value::Array(vec![
                Value::bulk(format!("{}-1", self.known.entries)),
                Value::Array(vec![Value::bulk("f"), Value::bulk(value)]),
            ]);
            let streams = vec![Value::bulk(&key), Value::Array(vec![entry])];
            let line = format!("XREAD BLOCK 5000 STREAMS {key} {before}-1");
            self.expect(line, &Value::Array(vec![Value::Array(streams)]));
        }
    }

    /// Changes several keys at once, of which no client sees a part.
    fn transactions(&mut self) {
        let (key, hash) = (self.key("counter"), self.key("sorted"));
        let lines =
            ["MULTI".to_owned(), format!("INCR {key}"), format!("ZCARD {hash}"), "EXEC".into()];
        self.known.counter += 1;
        let all = Value::Array(vec![
            Value::Integer(self.known.counter),
            Value::Integer(self.known.sorted.len() as i64),
        ]);
        let Some(replies) = self.ask(&lines) else { return };
        if replies[3] != all {
            if self.pool == STORE || !self.has_lost_all() {
                violated(&lines.join(" | "), &format!("{all:?}"), &replies[3]);
            }
            self.begin_again();
        }
    }
}

/// Kills, stops and restarts servers until the run ends.
fn hurt(servers: &mut [RedisServer], shared: &Shared) {
    let mut random = Random::new(7);
    while !shared.is_over.load(Ordering::Relaxed) {
        let pause = Duration::from_millis(500 + random.below(2500) as u64);
        rest(pause, shared);
        let server = &mut servers[random.below(SERVERS)];
        match random.below(3) {
            0 => {
                server.kill();
                rest(Duration::from_millis(random.below(1500) as u64), shared);
                server.restart();
            }
            1 => server.restart(),
            _ => {
                server.process().pause();
                rest(Duration::from_millis(random.below(2500) as u64), shared);
                server.process().resume();
            }
        }
        shared.faults.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits between faults.
fn rest(span: Duration, shared: &Shared) {
    let begun = Instant::now();
    wait_until("the next fault", span + BOUND, || {
        begun.elapsed() >= span || shared.is_over.load(Ordering::Relaxed)
    });
}

fn clients_of(server: &RedisServer) -> usize {
    let list = server.client().words("CLIENT LIST").text();
    list.lines().filter(|line| !line.contains("cmd=client")).count()
}

#[test]
#[ignore = "takes minutes: make soak"]
fn nothing_is_wrong_lost_or_left_over_after_minutes_of_load_and_faults() {
    let minutes: f64 = std::env::var("KEYWAY_SOAK_MINUTES")
        .map_or(10.0, |text| text.parse().expect("KEYWAY_SOAK_MINUTES is a number"));
    let span = Duration::from_secs_f64(60.0 * minutes);
    let _watch = watchdog(span + 5 * BOUND, "soak");
    let mut servers = RedisServer::start_many(SERVERS);
    let main = Pool::over("main", &servers).with("timeout", "\"1s\"").with("hash_tag", "\"{}\"");
    let config = KeywayConfig::new(vec![Pool::store("local"), main])
        .with_server("workers", &WORKERS.to_string());
    let keyway = Keyway::start(KEYWAY, config);
    let pid = keyway.process().pid();
    let used = || keyway.metrics().sum("keyway_store_memory_bytes", &[]);
    let used_empty = used();
    let shared = Shared::default();
    let (mut warm, mut fds) = (0, 0);
    std::thread::scope(|scope| {
        for pool in [STORE, POOL] {
            for nth in 0..CLIENTS_EACH {
                let (keyway, shared) = (&keyway, &shared);
                scope.spawn(move || {
                    // A thread that fails ends the run.
                    let _end = EndAll(shared);
                    let mut user = User::new(keyway, shared, pool, pool * CLIENTS_EACH + nth);
                    while !shared.is_over.load(Ordering::Relaxed) {
                        user.step();
                    }
                });
            }
        }
        let (servers, shared) = (&mut servers, &shared);
        scope.spawn(move || hurt(servers, shared));
        rest(span.mul_f64(0.2), shared);
        (warm, fds) = (resident_bytes(pid), fd_count(pid));
        rest(span.mul_f64(0.8), shared);
        shared.is_over.store(true, Ordering::Relaxed);
    });
    count_back(&keyway, &servers, (used_empty, warm, fds));
    let number = |one: &AtomicU64| one.load(Ordering::Relaxed);
    println!(
        "soak: {minutes} minutes, {} requests on the store and {} on the pool, {} clients vanished, \
         {} faults of servers, of which {} replies told; every reply was right, and memory, \
         descriptors, clients and links are back",
        number(&shared.requests[STORE]),
        number(&shared.requests[POOL]),
        number(&shared.gone),
        number(&shared.faults),
        number(&shared.told_of_faults),
    );
}

/// Ends the run when a thread fails.
struct EndAll<'a>(&'a Shared);

impl Drop for EndAll<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

fn count_back(keyway: &Keyway, servers: &[RedisServer], was: (f64, u64, usize)) {
    let (used_empty, warm, fds) = was;
    let pid = keyway.process().pid();
    let mut client = keyway.client(STORE);
    wait_until("every client is gone", BOUND, || {
        client.words("CLIENT LIST").text().lines().count() == 1
            && client.words("INFO clients").text().contains("blocked_clients:0")
    });
    client.words("FLUSHALL");
    wait_until("the store's memory is back", BOUND, || {
        let used = keyway.metrics().sum("keyway_store_memory_bytes", &[]);
        used <= used_empty + 65536.0
    });
    let begun = Instant::now();
    wait_until("what was held is given back to the system", BOUND, || {
        let resident = resident_bytes(pid);
        let is_late = begun.elapsed() > BOUND / 2;
        assert!(
            !is_late || resident <= warm + SLACK,
            "{warm} bytes when warm, {resident} in the end; {}",
            keyway.metrics().text()
        );
        resident <= warm + SLACK
    });
    assert!(fd_count(pid) <= fds, "{fds} descriptors under load, {} in the end", fd_count(pid));
    let mut pooled = keyway.client(POOL);
    for nth in 0..SERVERS * 8 {
        let key = format!("end{nth}");
        wait_for("an answer of each server", BOUND, || {
            (pooled.words(&format!("SET {key} 1")) == Value::simple("OK")).then_some(())
        });
    }
    // Private links are kept for later clients: there are no more than were needed at once.
    let links_max = WORKERS * (1 + CLIENTS_EACH);
    for server in servers {
        let links = clients_of(server);
        assert!(links <= links_max, "{links} links to a server, {links_max} at most needed");
    }
    let log = keyway.process().log();
    assert!(!log.contains("panicked"), "{log}");
}
