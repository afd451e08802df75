//! Random work on a store.

use crate::common::memcached::{ask_in, context_at};
use crate::common::{Random, clock_at, execute_in, with_args};
use crate::lines::Lines;
use crate::shapes::{KEYS, STREAMS};
use keyway_command::Request;
use keyway_resp::Protocol;
use keyway_store::{Context, Footprint, MemcachedContext, Store, Waited, Waiter, Who};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub const DATABASES: u32 = 3;

/// Strings, and keys of any type. SOON ends while the clock of the test moves.
pub const OWN: [&str; 74] = [
    "set K V",
    "set K V",
    "set K I",
    "set K V nx",
    "set K V xx get",
    "set K V px SOON",
    "set K V ex 3",
    "set K V keepttl",
    "set K V xx keepttl",
    "set K V pxat PAST",
    "set K L",
    "setex K 2 V",
    "psetex K SOON V",
    "setnx K V",
    "getset K V",
    "getdel K",
    "getex K px SOON",
    "getex K persist",
    "getex K pxat PAST",
    "append K V",
    "setrange K 3 V",
    "incr K",
    "decrby K 7",
    "incrby K I",
    "incrbyfloat K 0.1",
    "incrbyfloat K 3.0e5",
    "mset K V K V K V",
    "msetnx K V K V",
    "setbit K 7 1",
    "bitop or K K K",
    "bitop not K K",
    "bitfield K set u8 8 200 incrby i16 0 77",
    "bitfield K get u8 0",
    "del K",
    "del K K K",
    "unlink K K",
    "expire K 2",
    "pexpire K SOON",
    "pexpire K SOON gt",
    "pexpire K SOON lt",
    "pexpireat K PAST",
    "expire K -1",
    "persist K",
    "rename K K",
    "renamenx K K",
    "copy K K replace",
    "copy K K",
    "copy K K db D replace",
    "move K D",
    "get K",
    "exists K K K",
    "swapdb D D",
    "flushdb",
    "restore K 0 PAYLOAD replace",
    "restore K SOON PAYLOAD replace",
    "restore K PAST PAYLOAD replace absttl",
    "rpush K V V V",
    "lpop K 2",
    "hset K F V F V",
    "hincrbyfloat K F 0.3",
    "hincrby K F 3",
    "sadd K V V V F F",
    "spop K",
    "spop K 3",
    "spop K 100",
    "zadd K I F I F",
    "zincrby K 0.1 F",
    "zpopmin K",
    "pfadd K V V",
    "pfcount K",
    "pfmerge K K K",
    "xadd K * F V",
    "xadd K maxlen ~ 3 * F V",
    "sort K alpha store K",
];

/// Hashes whose fields expire.
pub const FIELDS: [&str; 40] = [
    "hset K F V F V",
    "hset K F V F V F V",
    "hset K F I",
    "hset K PAIRS",
    "hsetnx K F V",
    "hdel K F F",
    "hincrby K F 3",
    "hincrbyfloat K F 0.1",
    "hexpire K 2 fields 2 F F",
    "hexpire K 0 fields 1 F",
    "hpexpire K SOON fields 1 F",
    "hpexpire K SOON fields 3 F F F",
    "hpexpire K SOON nx fields 3 F F F",
    "hpexpire K SOON gt fields 3 F F F",
    "hpexpire K SOON lt fields 3 F F F",
    "hpexpireat K PAST fields 1 F",
    "hpersist K fields 2 F F",
    "hgetdel K fields 2 F F",
    "hgetex K px SOON fields 2 F F",
    "hgetex K persist fields 2 F F",
    "hgetex K pxat PAST fields 1 F",
    "hgetex K fields 1 F",
    "hsetex K px SOON fields 2 F V F V",
    "hsetex K keepttl fields 2 F V F V",
    "hsetex K fnx px SOON fields 1 F V",
    "hsetex K fxx keepttl fields 1 F V",
    "hsetex K pxat PAST fields 1 F V",
    "hsetex K fields 1 F V",
    "hlen K",
    "hgetall K",
    "expire K 2",
    "pexpire K SOON",
    "persist K",
    "copy K K replace",
    "rename K K",
    "move K D",
    "set K V nx",
    "renamenx K K",
    "hrandfield K",
    "del K",
];

/// Requests of memcached clients, and commands on the same keys. The first words say how a
/// request is made; `Lines` leaves lines alone in which there is `clock`.
pub const MEMCACHED: [&str; 46] = [
    "set K V",
    "set K L",
    "incr K",
    "append K V",
    "incrbyfloat K 0.1",
    "getex K px SOON",
    "copy K K replace",
    "rename K K",
    "hset K F V",
    "clock:m set K 0 0",
    "clock:m set K 7 0",
    "clock:m set K 7 3",
    "clock:m set K 0 -1",
    "clock:m set K 4294967295 2",
    "clock:m add K 3 0",
    "clock:m replace K 5 2",
    "clock:m append K 0 0",
    "clock:m prepend K 0 0",
    "clock:m ms K T0 F9",
    "clock:m ms K T2 F9 MA",
    "clock:m ms K I C1 F2",
    "clock:m ms K ME N3",
    "clock:m ms K MA N3 F4",
    "clock:number K",
    "clock:line incr K 3",
    "clock:line decr K 30000",
    "clock:line ma K N2 J7",
    "clock:line ma K MD D3 T2",
    "clock:line delete K",
    "clock:line touch K 2",
    "clock:line touch K 0",
    "clock:line touch K -1",
    "clock:line gat 2 K",
    "clock:line gat 0 K K K",
    "clock:line gat -1 K K",
    "clock:line gets K K",
    "clock:line md K",
    "clock:line md K I T2",
    "clock:line md K I",
    "clock:line md K x",
    "clock:line md K x I",
    "clock:line mg K v N3",
    "clock:line mg K v t R30",
    "clock:line mg K v c T2",
    "clock:line mg K v",
    "clock:line flush_all SOMETIMES",
];

/// One thread's work.
pub struct Worker<'s> {
    store: &'s Arc<Store>,
    clock: &'s AtomicU64,
    number: u16,
    random: Random,
    lines: Lines,
    pub history: Vec<String>,
    waiting: Vec<Arc<Waiter>>,
    /// True if it empties databases.
    pub flushes: bool,
}

impl<'s> Worker<'s> {
    pub fn new(
        store: &'s Arc<Store>,
        clock: &'s AtomicU64,
        number: u16,
        seed: u64,
        family: &'static [&'static str],
    ) -> Self {
        let keys = if *family == STREAMS { 3 } else { KEYS.len() };
        let (random, queue) = (Random::new(seed), Vec::new());
        let lines = Lines { random, family, queue, newest: 10, keys };
        let random = Random::new(seed + 1);
        let (history, waiting) = (Vec::new(), Vec::new());
        Self { store, clock, number, random, lines, history, waiting, flushes: true }
    }

    fn context(&mut self) -> Context {
        let protocol = if self.random.once_in(2) { Protocol::Resp3 } else { Protocol::Resp2 };
        // Mostly the first one: keys are to meet.
        let database = [0, 0, 0, 1, 2][self.random.below(5)];
        let clock = clock_at(self.clock.load(Ordering::Relaxed));
        Context { database, clock, protocol, worker: self.number }
    }

    /// A command, with the words that only this test has.
    fn line(&mut self) -> Vec<Vec<u8>> {
        let now = self.clock.load(Ordering::Relaxed);
        let mut words = self.lines.next();
        for word in &mut words {
            match &word[..] {
                b"SOON" => *word = (1 + self.random.below(4000)).to_string().into_bytes(),
                b"PAST" => *word = (now - 1000).to_string().into_bytes(),
                b"D" => *word = self.random.below(DATABASES as usize).to_string().into_bytes(),
                _ => {}
            }
        }
        // Counts that no stream can reach wrap.
        let is_count = words.iter().position(|word| word == b"entriesread");
        if let Some(count) = is_count.and_then(|at| words.get_mut(at + 1)) {
            *count = b"5".to_vec();
        }
        if words[0].starts_with(b"flush") && !(self.flushes && self.random.once_in(20)) {
            return self.line();
        }
        words
    }

    fn note(&mut self, database: u32, words: &[Vec<u8>]) {
        let shown: String = words.iter().map(|word| format!("{} ", word.escape_ascii())).collect();
        let shown: String = shown.chars().take(300).collect();
        self.history.push(format!("[{database}] {shown}"));
        if self.history.len() > 20_000 {
            self.history.drain(..10_000);
        }
    }

    /// One step: mostly a command.
    pub fn step(&mut self) {
        if self.random.once_in(30) {
            let millis = [1, 50, 700, 2500][self.random.below(4)];
            self.clock.fetch_add(millis, Ordering::Relaxed);
        }
        match self.random.below(60) {
            0 => drop(self.store.tick(clock_at(self.clock.load(Ordering::Relaxed)))),
            1..4 => self.transaction(),
            4..7 => self.script(),
            7..9 => self.wait(),
            _ => {
                let context = self.context();
                let words = self.line();
                self.run(context, &words);
            }
        }
        if self.store.notifies() {
            let clock = clock_at(self.clock.load(Ordering::Relaxed));
            self.store.serve_ready(self.number, clock, |_, _| ());
        }
        if self.waiting.len() > 4 {
            self.store.cancel(&self.waiting.remove(0));
        }
    }

    fn run(&mut self, context: Context, words: &[Vec<u8>]) {
        self.note(context.database, words);
        if [&b"clock:m"[..], b"clock:line", b"clock:number"].contains(&&words[0][..]) {
            return self.run_memcached(context, words);
        }
        let refs: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        execute_in(self.store, context, &refs, &mut Vec::new());
    }

    fn run_memcached(&mut self, context: Context, words: &[Vec<u8>]) {
        let mut line = words[1..].join(&b' ');
        if line.ends_with(b"SOMETIMES") {
            let delay = ["0", "2"][self.random.below(2)];
            line = match self.random.once_in(20) {
                true => format!("flush_all {delay}").into_bytes(),
                false => b"get a".to_vec(),
            };
        }
        let number = self.random.below(20_000).to_string();
        match &words[0][..] {
            b"clock:m" => {
                let value = vec![b'v'; [0, 3, 100][self.random.below(3)]];
                let len = value.len().to_string();
                let is_meta = line.starts_with(b"ms ");
                if is_meta {
                    let at = line.iter().enumerate().filter(|(_, byte)| **byte == b' ').nth(1);
                    let at = at.map_or(line.len(), |(at, _)| at);
                    line.splice(at..at, format!(" {len}").into_bytes());
                } else {
                    line.extend_from_slice(format!(" {len}").as_bytes());
                }
                line.extend_from_slice(b"\r\n");
                line.extend_from_slice(&value);
            }
            b"clock:number" => {
                let key = &words[1];
                line = [b"set ", &key[..], b" 6 0 "].concat();
                line.extend_from_slice(format!("{}\r\n{number}", number.len()).as_bytes());
            }
            _ => {}
        }
        line.extend_from_slice(b"\r\n");
        let Context { database, worker, clock, .. } = context;
        let context = MemcachedContext { database, worker, clock, ..context_at(0) };
        ask_in(self.store, context, &line);
    }

    /// Commands that can be part of something larger.
    fn part(&mut self) -> Vec<Vec<u8>> {
        loop {
            let words = self.line();
            let refs: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let is_one = with_args(&refs, |args| {
                Request::resolve(args).is_ok_and(|request| self.store.serves(request.command.verb))
            });
            if is_one {
                return words;
            }
        }
    }

    fn transaction(&mut self) {
        let context = self.context();
        let count = 1 + self.random.below(4);
        let parts: Vec<Vec<Vec<u8>>> = (0..count).map(|_| self.part()).collect();
        let mut footprint = Footprint::default();
        for words in &parts {
            let refs: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            with_args(&refs, |args| {
                let request = Request::resolve(args).expect("a request");
                footprint.add(self.store, &request);
            });
        }
        let Ok(held) = self.store.hold(footprint, context) else { return };
        for (nth, words) in parts.iter().enumerate() {
            self.note(context.database, words);
            let database =
                if nth == 2 { (context.database + 1) % DATABASES } else { context.database };
            let context = Context { database, ..context };
            let refs: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            with_args(&refs, |args| {
                let request = Request::resolve(args).expect("a request");
                held.execute(&request, context, &mut Vec::new());
            });
        }
    }

    fn script(&mut self) {
        let context = self.context();
        let count = 1 + self.random.below(4);
        let parts: Vec<Vec<Vec<u8>>> = (0..count).map(|_| self.part()).collect();
        let Ok(script) = self.store.begin_script() else { return };
        for words in &parts {
            self.note(context.database, words);
            let refs: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            with_args(&refs, |args| {
                let request = Request::resolve(args).expect("a request");
                script.execute(&request, context, true, &mut Vec::new());
            });
        }
    }

    /// A command that waits for an element.
    fn wait(&mut self) {
        let context = self.context();
        let keys = [KEYS[self.random.below(KEYS.len())], KEYS[self.random.below(KEYS.len())]];
        let shape = *self.random.pick(&[
            "blpop K K 0",
            "brpop K K 0",
            "blmove K K left right 0",
            "brpoplpush K K 0",
            "blmpop 0 2 K K left count 2",
            "bzpopmin K K 0",
            "bzmpop 0 2 K K max count 3",
            "xreadgroup group g alice block 0 streams K >",
        ]);
        let mut names = keys.iter();
        let words: Vec<Vec<u8>> = shape
            .split(' ')
            .map(|word| if word == "K" { names.next().expect("two keys") } else { word })
            .map(|word| word.as_bytes().to_vec())
            .collect();
        self.note(context.database, &words);
        let who = Who { client: 1, worker: self.number, is_noloop: false };
        let refs: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let waited = with_args(&refs, |args| {
            let request = Request::resolve(args).expect("a request");
            self.store.attempt_or_wait(&request, context, who, &mut Vec::new())
        });
        if let Waited::Waits(waiter, _) = waited {
            self.waiting.push(waiter);
        }
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        for waiter in &self.waiting {
            self.store.cancel(waiter);
        }
    }
}
