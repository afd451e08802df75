//! The same requests to the store and to a real memcached, text, meta and
//! binary on the same keys: byte for byte the same replies, but for the numbers
//! of values, which have to be told apart alike, and for times.
#![allow(clippy::disallowed_methods, reason = "a test waits for a real server")]

mod common;

use common::memcached::{LIMITS, ask};
use keyway_store::{Store, StoreConfig};
use keyway_testkit::{
    MEMCACHED_CAS_MIN, MEMCACHED_CLASSIC, MEMCACHED_META, MEMCACHED_META_RECENT, MemcachedClient,
    MemcachedEar, MemcachedServer, MemcachedStep, Random, any_memcached_binary,
    any_memcached_classic, any_memcached_meta, has_memcached, watchdog,
};
use std::time::{Duration, SystemTime};

struct Memcached {
    text: MemcachedClient,
    binary: MemcachedClient,
    /// It has the flags that came after the one of Debian 12: x, E, and s of ms.
    is_recent: bool,
    _server: MemcachedServer,
}

impl Memcached {
    /// `None` where there is none installed.
    fn start() -> Option<Memcached> {
        if !has_memcached("the comparison with a real memcached") {
            return None;
        }
        // While its own thread looks at an item, a number is not changed in place.
        let server = MemcachedServer::start_with(&["-o", "no_lru_maintainer,no_lru_crawler"]);
        let (mut text, binary) = (server.client(), server.client());
        let is_recent = text.say("ms version 1 s\r\n1\r\n") == "HD s1\r\n";
        // So that its numbers are above those that clients give.
        text.ask(&b"set k 0 0 1 noreply\r\nx\r\n".repeat(MEMCACHED_CAS_MIN as usize));
        Some(Memcached { text, binary, is_recent, _server: server })
    }

    /// Returns its replies to whole requests.
    fn ask(&mut self, stream: &[u8]) -> Vec<u8> {
        match stream[0] {
            0x80 => self.binary.ask(stream),
            _ => self.text.ask(stream),
        }
    }
}

fn now_millis() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Runs steps against both, one by one.
fn compare(memcached: &mut Memcached, name: &str, steps: impl Iterator<Item = MemcachedStep>) {
    let store = Store::new(StoreConfig { seed: 7, ..StoreConfig::default() });
    assert_eq!(memcached.ask(b"flush_all\r\n"), b"OK\r\n");
    let (mut theirs, mut ours) = (MemcachedEar::default(), MemcachedEar::default());
    let mut before = String::new();
    for (index, step) in steps.enumerate() {
        let (to_them, to_us) = (step.bytes(&theirs), step.bytes(&ours));
        let is_binary = to_us[0] == 0x80;
        let they_say = theirs.hear(&memcached.ask(&to_them), is_binary, step.key());
        let we_say = ours.hear(&ask(&store, now_millis(), &to_us), is_binary, step.key());
        before = format!("{before}{} -> {they_say}", to_us.escape_ascii());
        let tail = &before[before.char_indices().rev().nth(1500).map_or(0, |(at, _)| at)..];
        assert_eq!(we_say, they_say, "{name}, step {index}, after\n{tail}");
    }
}

fn lines(texts: &'static [&'static str]) -> impl Iterator<Item = MemcachedStep> {
    texts.iter().map(|text| MemcachedStep::Text((*text).to_owned()))
}

#[test]
fn classic_commands_are_answered_alike() {
    let _guard = watchdog(Duration::from_secs(60), "classic commands");
    let Some(mut memcached) = Memcached::start() else { return };
    compare(&mut memcached, "classic", lines(MEMCACHED_CLASSIC));
}

#[test]
fn meta_commands_are_answered_alike() {
    let _guard = watchdog(Duration::from_secs(60), "meta commands");
    let Some(mut memcached) = Memcached::start() else { return };
    compare(&mut memcached, "meta", lines(MEMCACHED_META));
    if memcached.is_recent {
        compare(&mut memcached, "recent meta", lines(MEMCACHED_META_RECENT));
    }
}

#[test]
fn any_sequence_on_the_same_keys_is_answered_alike() {
    let _guard = watchdog(Duration::from_secs(300), "sequences of requests");
    let Some(mut memcached) = Memcached::start() else { return };
    let is_recent = memcached.is_recent;
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let steps = (0..250).map(|_| match random.below(3) {
            0 => MemcachedStep::Text(any_memcached_classic(&mut random)),
            1 => MemcachedStep::Text(any_memcached_meta(&mut random, is_recent)),
            _ => any_memcached_binary(&mut random),
        });
        compare(&mut memcached, &format!("seed {seed}"), steps);
    }
}

#[test]
fn items_are_too_large_from_the_same_byte_on() {
    let _guard = watchdog(Duration::from_secs(60), "large items");
    let Some(mut memcached) = Memcached::start() else { return };
    let mut steps = Vec::new();
    let longest = (1 << 20) - 56 - 2 - 2;
    for len in [longest - 5, longest - 4, longest - 3, longest - 1, longest, longest + 1] {
        let value = "v".repeat(len);
        steps.push(MemcachedStep::Text("set k 0 0 1\r\nx\r\n".to_owned()));
        steps.push(MemcachedStep::Text(format!("set k 0 0 {len}\r\n{value}\r\n")));
        steps.push(MemcachedStep::Text("mg k s\r\n".to_owned()));
        steps.push(MemcachedStep::Text("append k 0 0 1\r\nx\r\n".to_owned()));
        steps.push(MemcachedStep::Text("mg k s\r\n".to_owned()));
        steps.push(MemcachedStep::Text(format!("set k 1 0 {len}\r\n{value}\r\n")));
        steps.push(MemcachedStep::Text(format!("add k 1 0 {len}\r\n{value}\r\n")));
        steps.push(MemcachedStep::Text("mg k s f\r\n".to_owned()));
    }
    assert!(longest < LIMITS.value_len_max as usize);
    compare(&mut memcached, "large", steps.into_iter());
}
