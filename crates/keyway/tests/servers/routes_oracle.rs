//! Pools that lead to others answer like the one server behind them: the same requests go to a bare
//! memcached and through every kind, reply by reply.

use std::time::Duration;

use keyway_testkit::{
    Keyway, KeywayConfig, MEMCACHED_CAS_MIN, MemcachedClient, MemcachedEar, MemcachedServer,
    MemcachedStep, Pool, Random, any_memcached_binary, any_memcached_classic, any_memcached_meta,
    has_memcached, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

/// memcached 1.6.18 may answer so for numbers from 2^63 on: it depends on whether there is a minus
/// sign in the memory behind them, which holds earlier data.
const NOT_A_NUMBER: &str = "on-numeric";

/// Times that one sequence is repeated. A difference counts only if it occurs each time.
const TRIES: usize = 12;

const SPLIT: &str = "read-write-split";

/// Pools over `NAME-a` and `NAME-b`, which exist for each of them.
const KINDS: [(&str, &[(&str, &str)]); 7] = [
    ("prefix", &[("routes", "[{ prefix = \"k\", pool = \"A\" }]"), ("default", "\"A\"")]),
    ("failover", &[("children", "[\"A\"]"), ("gutter", "\"B\"")]),
    ("mirror", &[("children", "[\"B\", \"A\"]"), ("read_from", "\"A\"")]),
    ("shadow", &[("main", "\"A\""), ("shadow", "\"B\"")]),
    ("miss-then", &[("children", "[\"A\", \"B\"]")]),
    ("rate-limited", &[("child", "\"A\""), ("requests_per_second", "10000000")]),
    // Both children are one server.
    (SPLIT, &[("write", "\"A\""), ("read", "\"B\""), ("read_fallback", "true")]),
];

/// Returns a pool of that kind over the pools of its name.
fn routed(kind: &str) -> Pool {
    let (_, settings) = KINDS.iter().find(|(known, _)| *known == kind).expect("a known kind");
    settings.iter().fold(Pool::of_kind(kind, kind), |pool, (name, value)| {
        let named = |child: &str| format!("\"{kind}-{child}\"");
        pool.with(name, &value.replace("\"A\"", &named("a")).replace("\"B\"", &named("b")))
    })
}

struct Side {
    name: String,
    text: MemcachedClient,
    binary: MemcachedClient,
    ear: MemcachedEar,
}

impl Side {
    fn new(name: &str, connect: impl Fn() -> MemcachedClient) -> Side {
        let (text, binary) = (connect(), connect());
        Side { name: name.to_owned(), text, binary, ear: MemcachedEar::default() }
    }

    fn ask(&mut self, step: &MemcachedStep) -> (String, String) {
        let asked = step.bytes(&self.ear);
        let is_binary = asked[0] == 0x80;
        let client = if is_binary { &mut self.binary } else { &mut self.text };
        let said = client.ask(&asked);
        (asked.escape_ascii().to_string(), self.ear.hear(&said, is_binary, step.key()))
    }
}

/// Returns a random step about items, because these pools refuse to empty servers. Quiet reads that
/// change the expiry are left out: they return `T` and `R` in Keyway's own order, through any pool.
fn any_step(random: &mut Random) -> MemcachedStep {
    loop {
        let step = match random.below(3) {
            0 => MemcachedStep::Text(any_memcached_classic(random)),
            1 => MemcachedStep::Text(any_memcached_meta(random, false)),
            _ => any_memcached_binary(random),
        };
        let bytes = step.bytes(&MemcachedEar::default());
        let is_flush = bytes.windows(9).any(|word| word == b"flush_all")
            || (bytes[0] == 0x80 && matches!(bytes[1], 0x08 | 0x18));
        let has = |flag: &[u8]| bytes.windows(2).any(|word| word == flag);
        let is_reordered = bytes.starts_with(b"mg ") && has(b" R") && has(b" T");
        if !is_flush && !is_reordered {
            return step;
        }
    }
}

#[test]
fn memcached_sequences_are_answered_as_by_the_server_itself() {
    let _watch = watchdog(Duration::from_secs(300), "sequences of requests");
    if !has_memcached("pools that lead to others beside a real memcached") {
        return;
    }
    // While memcached's own thread looks at an item, a number is not changed in place.
    let start = || MemcachedServer::start_with(&["-o", "no_lru_maintainer,no_lru_crawler"]);
    let bare = start();
    let servers: Vec<[MemcachedServer; 2]> = KINDS.iter().map(|_| [start(), start()]).collect();
    // Their version numbers then are above those that clients give.
    let numbers = b"set k 0 0 1 noreply\r\nx\r\n".repeat(MEMCACHED_CAS_MIN as usize);
    servers.iter().flatten().chain([&bare]).for_each(|server| {
        server.client().ask(&numbers);
    });
    let mut pools: Vec<Pool> =
        KINDS.iter().map(|(kind, _)| routed(kind).spoken_to_in("memcached")).collect();
    for ((kind, _), pair) in KINDS.iter().zip(&servers) {
        let pair = if *kind == SPLIT { [&pair[0], &pair[0]] } else { [&pair[0], &pair[1]] };
        for (child, server) in ["a", "b"].iter().zip(pair) {
            pools.push(Pool::memcached(&format!("{kind}-{child}"), std::slice::from_ref(server)));
        }
    }
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    let mut controls: Vec<MemcachedClient> =
        servers.iter().flatten().chain([&bare]).map(MemcachedServer::client).collect();
    for (index, (kind, _)) in KINDS.iter().enumerate() {
        for seed in 0..10 {
            let mut play = || {
                controls.iter_mut().for_each(|server| {
                    assert_eq!(server.say("flush_all\r\n"), "OK\r\n");
                });
                let theirs = Side::new("bare", || bare.client());
                let ours = Side::new(kind, || keyway.memcached_client(index));
                play(theirs, ours, seed)
            };
            // The seconds of two servers do not begin together. A difference caused by that does
            // not occur the next time; on a slow machine it is more frequent.
            let differences: Vec<String> = (0..TRIES).map_while(|_| play().err()).collect();
            assert!(differences.len() < TRIES, "{}", differences.join("\n--\n"));
        }
    }
}

/// Sends both the same requests. Returns an error that tells the difference, if there is one.
fn play(mut theirs: Side, mut ours: Side, seed: u64) -> Result<(), String> {
    let mut random = Random::new(5000 + seed);
    let mut before = String::new();
    for index in 0..200 {
        let step = any_step(&mut random);
        let (asked, expected) = theirs.ask(&step);
        let (_, said) = ours.ask(&step);
        before = format!("{before}{asked} -> {expected}\n");
        if said != expected && (said.contains(NOT_A_NUMBER) || expected.contains(NOT_A_NUMBER)) {
            // The two servers differ from here on.
            return Ok(());
        }
        if said != expected {
            let tail = &before[before.len().saturating_sub(1500)..];
            let (name, said) = (&ours.name, said);
            return Err(format!("{name}, seed {seed}, step {index}: {said}, after\n{tail}"));
        }
    }
    Ok(())
}
