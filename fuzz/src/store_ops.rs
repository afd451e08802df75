//! Any commands on the embedded store, on virtual time and with little memory:
//! each gets exactly one reply, those that wait once they are served or not at
//! all, those of a transaction one each; and what is flushed is gone.

use crate::Choices;
use crate::invariants::{compose, one_reply_in, shown};
use keyway_base::{Clock, Time};
use keyway_command::{Args, COMMANDS, Command, Handling, Request, store_serves};
use keyway_resp::{Protocol, parse_integer};
use keyway_store::{AfterRead, Context, EvictionPolicy, Footprint, QuotaConfig, Store};
use keyway_store::{StoreConfig, Waited, Waiter, Who};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Commands the store serves, subcommands included.
static SERVED: LazyLock<Vec<&'static Command>> = LazyLock::new(|| {
    let all = COMMANDS.iter().flat_map(|command| [command].into_iter().chain(command.subcommands));
    let serves =
        |command: &&Command| store_serves(command.verb) || command.handling == Handling::Block;
    all.filter(serves).filter(|command| command.subcommands.is_empty()).collect()
});

/// Commands that words drawn at random seldom make: `K` stands for a key, `N`
/// for a number, `I` for an id, `V` for any value.
const SHAPES: [&str; 45] = [
    "xadd K * V V",
    "xadd K I V V V V",
    "xadd K maxlen ~ N * V V",
    "xadd K nomkstream minid = I N-* V V",
    "xdel K I I",
    "xtrim K maxlen N",
    "xtrim K minid ~ I limit N",
    "xrange K I + count N",
    "xrevrange K + I",
    "xsetid K I entriesadded N maxdeletedid I",
    "xread count N streams K K I I",
    "xread block 0 streams K K $ I",
    "xread block N streams K $",
    "xgroup create K g I mkstream entriesread N",
    "xgroup create K h $ mkstream",
    "xgroup setid K g I",
    "xgroup destroy K g",
    "xgroup createconsumer K g a",
    "xgroup delconsumer K g a",
    "xreadgroup group g a count N streams K >",
    "xreadgroup group g b block 0 streams K >",
    "xreadgroup group h a noack block N streams K K > >",
    "xreadgroup group g a streams K I",
    "xack K g I I",
    "xpending K g idle N - + N a",
    "xclaim K g b 0 I I idle N retrycount N force",
    "xautoclaim K g a 0 I count N justid",
    "xinfo stream K full count N",
    "xinfo groups K",
    "xinfo consumers K g",
    "blpop K K N",
    "blmove K K left right 0",
    "bzmpop 0 2 K K min count N",
    "zadd K N V N V",
    "zrange K N N byscore withscores limit N N",
    "zunionstore K 2 K K weights N N aggregate max",
    "zrangestore K K N N",
    "geoadd K N N V",
    "geosearch K fromlonlat N N byradius N km asc withdist",
    "pfadd K V V V",
    "pfmerge K K K",
    "sort K by nosort get # store K",
    "linsert K before V V",
    "lpos K V rank N maxlen N",
    "memory usage K samples N",
];

const POLICIES: [&str; 9] = [
    "noeviction",
    "allkeys-s3fifo",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
];

/// Options and numbers that commands look for.
const WORDS: [&str; 60] = [
    "FIELDS",
    "FNX",
    "FXX",
    "5",
    "EX",
    "PX",
    "EXAT",
    "PXAT",
    "NX",
    "XX",
    "GT",
    "LT",
    "GET",
    "KEEPTTL",
    "PERSIST",
    "REPLACE",
    "DB",
    "MATCH",
    "COUNT",
    "TYPE",
    "string",
    "ASYNC",
    "SYNC",
    "LEN",
    "IDX",
    "MINMATCHLEN",
    "WITHMATCHLEN",
    "SET",
    "INCRBY",
    "OVERFLOW",
    "WRAP",
    "SAT",
    "FAIL",
    "u8",
    "i64",
    "u63",
    "i5",
    "#1",
    "AND",
    "NOT",
    "XOR",
    "BIT",
    "BYTE",
    "*",
    "[^a]?",
    "0",
    "1",
    "-1",
    "2",
    "7",
    "100",
    "1000",
    "4096",
    "60000",
    "3.5",
    "-inf",
    "4294967295",
    "536870911",
    "9223372036854775807",
    "-9223372036854775808",
];

const DATABASES: u32 = 3;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let store = store(&mut choices);
    let mut clock = Clock { now: Time(0), unix_micros: 1_700_000_000_000_000 };
    let mut waiting = Waiting::default();
    while !choices.is_over() {
        match choices.below(16) {
            0 => {
                let span = choices.span();
                clock.now = clock.now + span;
                clock.unix_micros += span.as_micros() as u64;
            }
            1 => {
                let _ = store.tick(clock);
            }
            2 => {
                let lines: Vec<_> = (0..choices.below(5)).map(|_| line(&mut choices)).collect();
                execute_as_one(&store, &lines, context(&mut choices, clock));
            }
            3 => waiting.cancel(&store, choices.below(8)),
            4 => {
                let line = line(&mut choices);
                waiting.begin(&store, &line, context(&mut choices, clock));
            }
            _ => {
                let line = line(&mut choices);
                execute(&store, &line, context(&mut choices, clock));
            }
        }
        waiting.serve(&store, clock);
    }
    while !waiting.waiters.is_empty() {
        waiting.cancel(&store, 0);
    }
    assert_eq!(store.waiting_len(), 0);
    store.recount_quotas();
    flushing_leaves_nothing(&store, clock);
    store.recount_quotas();
}

fn context(choices: &mut Choices, clock: Clock) -> Context {
    let choice = choices.below(2 * (DATABASES as usize + 1)) as u32;
    let database = choice % (DATABASES + 1);
    let protocol = if choice <= DATABASES { Protocol::Resp2 } else { Protocol::Resp3 };
    Context { database, clock, protocol, worker: 0 }
}

/// Commands that wait, each with its protocol.
#[derive(Default)]
struct Waiting {
    waiters: Vec<(Arc<Waiter>, Protocol)>,
    begun: u64,
}

impl Waiting {
    /// Begins a command that may wait; another one is not begun.
    fn begin(&mut self, store: &Store, line: &[Vec<u8>], context: Context) {
        let (buf, ranges) = compose(line);
        let Ok(request) = Request::resolve(Args::new(&buf, &ranges)) else { return };
        let waits = request.handling() == Handling::Block;
        if !waits || context.database >= DATABASES || self.waiters.len() >= 8 {
            return;
        }
        self.begun += 1;
        let who = Who { client: self.begun, worker: 0, is_noloop: false };
        let mut out = Vec::new();
        match store.attempt_or_wait(&request, context, who, &mut out) {
            Waited::Waits(waiter, _) => {
                assert!(out.is_empty(), "a reply to a command that waits");
                self.waiters.push((waiter, context.protocol));
            }
            Waited::Answered => drop(one_reply_in(context.protocol, &out)),
        }
    }

    fn serve(&mut self, store: &Store, clock: Clock) {
        store.serve_ready(0, clock, |waiter, reply| {
            let at = self.waiters.iter().position(|(one, _)| Arc::ptr_eq(one, waiter));
            let (_, protocol) = self.waiters.remove(at.expect("served once"));
            one_reply_in(protocol, &reply);
        });
        store.take_events(0, &mut Vec::new());
        assert_eq!(store.waiting_len(), self.waiters.len());
    }

    fn cancel(&mut self, store: &Store, nth: usize) {
        if nth < self.waiters.len() {
            let (waiter, _) = self.waiters.remove(nth);
            assert!(store.cancel(&waiter) && !store.cancel(&waiter));
        }
    }
}

/// Executes commands as a transaction.
fn execute_as_one(store: &Store, lines: &[Vec<Vec<u8>>], context: Context) {
    let composed: Vec<_> = lines.iter().map(|line| compose(line)).collect();
    let requests = || {
        let requests = composed.iter().map(|(buf, ranges)| Args::new(buf, ranges));
        requests.filter_map(|args| Request::resolve(args).ok())
    };
    let mut footprint = Footprint::default();
    // What takes long would stop the fuzzer.
    let is_quick = |request: &Request<'_>| request.command.name != "lcs";
    requests().filter(is_quick).for_each(|request| footprint.add(store, &request));
    let Ok(held) = store.hold(footprint, context) else { return };
    for request in requests().filter(is_quick) {
        let mut out = Vec::new();
        held.execute(&request, context, &mut out);
        one_reply_in(context.protocol, &out);
    }
}

fn store(choices: &mut Choices) -> Store {
    let policy = EvictionPolicy::from_name(choices.pick(&POLICIES)).expect("a policy there is");
    let config = StoreConfig {
        memory_max: choices.pick(&[1 << 20, 64 << 10, 4 << 20, 1]),
        policy,
        databases: DATABASES,
        shards: Some(choices.pick(&[1, 2, 16])),
        seed: 7,
        after_read: choices.pick(&[None, Some(AfterRead { span_millis: 500, below_percent: 60 })]),
        ..StoreConfig::default()
    };
    let quota = |prefix: &[u8], memory_max, items_max| QuotaConfig {
        prefix: prefix.into(),
        memory_max,
        items_max,
    };
    // Of keys that are `k` and a number.
    let quotas = match choices.below(3) {
        0 => Vec::new(),
        1 => vec![quota(b"k1", 20_000, 0)],
        _ => vec![quota(b"k", 0, 5), quota(b"k1", 5000, 2), quota(b"k10", 1, 0)],
    };
    Store::with_quotas(config, quotas)
}

/// A command on when a field of a hash expires, which chance would hardly
/// compose.
fn fields_line(choices: &mut Choices) -> Vec<Vec<u8>> {
    let (key, field) = (choices.below(12), choices.below(700));
    let millis = choices.below(3000);
    let value = "v".repeat(choices.below(80));
    let line = match choices.below(8) {
        0..=2 => format!("HSETEX k{key} PX {millis} FIELDS 1 f{field} {value}v"),
        3 => format!("HPEXPIRE k{key} {millis} FIELDS 1 f{field}"),
        4 => format!("HGETEX k{key} PX {millis} FIELDS 1 f{field}"),
        5 => format!("HPERSIST k{key} FIELDS 1 f{field}"),
        6 => format!("HGETDEL k{key} FIELDS 1 f{field}"),
        _ => format!("HSET k{key} f{field} {value}v"),
    };
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn line(choices: &mut Choices) -> Vec<Vec<u8>> {
    match choices.below(8) {
        0 | 1 => return fields_line(choices),
        2..=4 => return shaped(choices),
        _ => {}
    }
    let command = SERVED[choices.below(256) % SERVED.len()];
    let mut line: Vec<Vec<u8>> =
        command.name.split('|').map(|word| word.as_bytes().to_vec()).collect();
    let count = choices.below(8);
    for _ in 0..count {
        line.push(match choices.below(8) {
            0..=2 => format!("k{}", choices.below(12)).into_bytes(),
            3 | 4 => choices.pick(&WORDS).as_bytes().to_vec(),
            5 => choices.below(1 << 16).to_string().into_bytes(),
            6 => choices.bytes(24).to_vec(),
            _ => choices.bytes(8).repeat(choices.below(1 << 12)),
        });
    }
    line
}

fn shaped(choices: &mut Choices) -> Vec<Vec<u8>> {
    let shape = choices.pick(&SHAPES);
    let number = |choices: &mut Choices| choices.below(40).to_string();
    let fill = |word: &str, choices: &mut Choices| match word {
        "K" => format!("k{}", choices.below(6)).into_bytes(),
        "N" => number(choices).into_bytes(),
        "I" => format!("{}-{}", number(choices), choices.below(3)).into_bytes(),
        "N-*" => format!("{}-*", number(choices)).into_bytes(),
        "V" => match choices.below(8) {
            0 => choices.bytes(8).repeat(choices.below(1 << 9)),
            1 => choices.bytes(24).to_vec(),
            _ => number(choices).into_bytes(),
        },
        word => word.as_bytes().to_vec(),
    };
    shape.split(' ').map(|word| fill(word, choices)).collect()
}

/// Executes a command; returns its reply, if it is a request at all.
fn execute(store: &Store, line: &[Vec<u8>], context: Context) -> Option<Vec<u8>> {
    if line[0] == b"lcs" && line.len() > 2 && is_slow(store, &line[1..3], context) {
        return None;
    }
    let (buf, ranges) = compose(line);
    let request = Request::resolve(Args::new(&buf, &ranges)).ok()?;
    let mut out = b"before".to_vec();
    store.execute(&request, context, &mut out);
    let reply = out.strip_prefix(b"before").unwrap_or_else(|| {
        panic!("{:?} changed what was there", shown(&buf));
    });
    one_reply_in(context.protocol, reply);
    Some(reply.to_vec())
}

/// Whether the product of two strings' lengths, which is what an LCS takes,
/// would stop the fuzzer: up to seconds under its instruments.
fn is_slow(store: &Store, keys: &[Vec<u8>], context: Context) -> bool {
    let len = |key: &Vec<u8>| {
        let reply = execute(store, &[b"strlen".to_vec(), key.clone()], context);
        let digits = reply.as_deref().and_then(|reply| reply.strip_prefix(b":"));
        digits.and_then(|line| parse_integer(line.trim_ascii_end())).unwrap_or_default()
    };
    keys.iter().map(len).product::<i64>() > 1 << 20
}

fn flushing_leaves_nothing(store: &Store, mut clock: Clock) {
    execute(
        store,
        &[b"FLUSHALL".to_vec()],
        Context { database: 0, clock, protocol: Protocol::Resp2, worker: 0 },
    );
    for _ in 0..20 {
        clock.now = clock.now + Duration::from_millis(100);
        clock.unix_micros += 100_000;
        let _ = store.tick(clock);
    }
    let stats = store.stats();
    assert!(stats.databases.iter().all(|database| database.items == 0 && database.volatile == 0));
}
