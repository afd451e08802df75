//! The same requests go to a bare memcached, to the store and through pools of one server. The
//! replies must be equal byte for byte, except for version numbers of values, which must be equal
//! or different alike, and times.

use std::time::Duration;

use keyway_testkit::{
    Keyway, KeywayConfig, MEMCACHED_CAS_MIN, MEMCACHED_CLASSIC, MEMCACHED_META, MemcachedClient,
    MemcachedEar, MemcachedServer, MemcachedStep, Pool, Random, any_memcached_binary,
    any_memcached_classic, any_memcached_meta, has_memcached, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

/// The connections of each kind to one system.
struct Side {
    name: &'static str,
    text: MemcachedClient,
    binary: MemcachedClient,
    ear: MemcachedEar,
}

impl Side {
    fn new(name: &'static str, connect: impl Fn() -> MemcachedClient) -> Side {
        let (text, binary) = (connect(), connect());
        Side { name, text, binary, ear: MemcachedEar::default() }
    }

    fn ask(&mut self, step: &MemcachedStep) -> (String, String) {
        let asked = step.bytes(&self.ear);
        let is_binary = asked[0] == 0x80;
        let client = if is_binary { &mut self.binary } else { &mut self.text };
        let said = client.ask(&asked);
        (asked.escape_ascii().to_string(), self.ear.hear(&said, is_binary, step.key()))
    }
}

struct Setup {
    keyway: Keyway,
    bare: MemcachedServer,
    _server: [MemcachedServer; 3],
}

const POOLS: [&str; 3] = ["meta", "text", "binary"];

/// Starts the systems. Returns `None` without memcached.
fn setup() -> Option<Setup> {
    if !has_memcached("the comparison with a real memcached") {
        return None;
    }
    // While memcached's own thread looks at an item, a number is not changed in place.
    let start = || MemcachedServer::start_with(&["-o", "no_lru_maintainer,no_lru_crawler"]);
    let (bare, servers) = (start(), [start(), start(), start()]);
    // Their version numbers then are above those that clients give.
    let numbers = b"set k 0 0 1 noreply\r\nx\r\n".repeat(MEMCACHED_CAS_MIN as usize);
    let mut pools = vec![Pool::store("store").spoken_to_in("memcached")];
    for (server, protocol) in servers.iter().zip(POOLS) {
        server.client().ask(&numbers);
        let pool = Pool::memcached(protocol, std::slice::from_ref(server));
        let pool = pool.with("server_protocol", &format!("{protocol:?}"));
        pools.push(pool.with("allow_flush", "true"));
    }
    bare.client().ask(&numbers);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    Some(Setup { keyway, bare, _server: servers })
}

/// Runs steps against the bare server and these, one by one.
fn compare(setup: &Setup, systems: &[usize], what: &str, steps: &[MemcachedStep]) {
    const NAMES: [&str; 4] = ["store", "meta", "text", "binary"];
    let mut bare = Side::new("bare", || setup.bare.client());
    let mut ours: Vec<Side> = systems
        .iter()
        .map(|&system| Side::new(NAMES[system], || setup.keyway.memcached_client(system)))
        .collect();
    for side in ours.iter_mut().chain([&mut bare]) {
        assert_eq!(side.text.say("flush_all\r\n"), "OK\r\n", "{}", side.name);
    }
    let mut before = String::new();
    for (index, step) in steps.iter().enumerate() {
        let (asked, theirs) = bare.ask(step);
        before = format!("{before}{asked} -> {theirs}");
        for side in &mut ours {
            let (_, said) = side.ask(step);
            let tail = &before[before.len().saturating_sub(1500)..];
            assert_eq!(said, theirs, "{}, {what}, step {index}, after\n{tail}", side.name);
        }
    }
}

fn lines(texts: &[&str]) -> Vec<MemcachedStep> {
    texts.iter().map(|text| MemcachedStep::Text((*text).to_owned())).collect()
}

#[test]
fn classic_commands_are_answered_as_by_the_server_itself() {
    let _watch = watchdog(Duration::from_secs(60), "classic commands");
    let Some(setup) = setup() else { return };
    compare(&setup, &[0, 1], "classic", &lines(MEMCACHED_CLASSIC));
    let plain: Vec<&str> =
        MEMCACHED_CLASSIC.iter().copied().filter(|line| !line.starts_with('m')).collect();
    compare(&setup, &[2], "classic", &lines(&plain));
}

#[test]
fn meta_commands_are_answered_as_by_the_server_itself() {
    let _watch = watchdog(Duration::from_secs(60), "meta commands");
    let Some(setup) = setup() else { return };
    compare(&setup, &[0, 1], "meta", &lines(MEMCACHED_META));
}

#[test]
fn any_sequence_of_any_protocol_is_answered_as_by_the_server_itself() {
    let _watch = watchdog(Duration::from_secs(300), "sequences of requests");
    let Some(setup) = setup() else { return };
    for seed in 0..20 {
        let mut random = Random::new(1000 + seed);
        let steps: Vec<MemcachedStep> = (0..200)
            .map(|_| match random.below(3) {
                0 => MemcachedStep::Text(any_memcached_classic(&mut random)),
                1 => MemcachedStep::Text(any_memcached_meta(&mut random, false)),
                _ => any_memcached_binary(&mut random),
            })
            .collect();
        compare(&setup, &[0, 1], &format!("seed {seed}"), &steps);
    }
}

#[test]
fn classic_sequences_are_answered_alike_whatever_the_servers_are_asked_in() {
    let _watch = watchdog(Duration::from_secs(300), "classic sequences");
    let Some(setup) = setup() else { return };
    for seed in 0..20 {
        let mut random = Random::new(2000 + seed);
        let mut step = || MemcachedStep::Text(any_memcached_classic(&mut random));
        let steps: Vec<MemcachedStep> = (0..200).map(|_| step()).collect();
        compare(&setup, &[0, 1, 2, 3], &format!("seed {seed}"), &steps);
    }
}

#[test]
fn packets_are_answered_alike_by_binary_servers() {
    let _watch = watchdog(Duration::from_secs(300), "sequences of packets");
    let Some(setup) = setup() else { return };
    for seed in 0..20 {
        let mut random = Random::new(3000 + seed);
        let steps: Vec<MemcachedStep> =
            (0..200).map(|_| any_memcached_binary(&mut random)).collect();
        compare(&setup, &[0, 3], &format!("seed {seed}"), &steps);
    }
}
