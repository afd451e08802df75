//! Commands on collections, family by family: the store and a real
//! redis-server 7, fed the same random command lines, must give the same
//! replies and publish the same keyspace events.
//!
//! Left out of the comparison: the order of elements that have none, and which
//! elements a random pick takes.

mod agreement;
#[path = "../common/mod.rs"]
mod common;
mod lines;
mod shapes;

use agreement::{agree, lower, show, show_reply};
use common::redis::{Redis, unix_millis};
use common::{Random, Reply, clock_at, execute_in};
use keyway_base::KeyspaceEvents;
use keyway_resp::Protocol;
use keyway_store::{Context, Store, StoreConfig};
use lines::Lines;
use shapes::*;

const COMMANDS: usize = 120_000;
const BATCH: usize = 100;
const DATABASES: u32 = 2;

struct Pair {
    redis: Redis,
    listener: Redis,
    store: Store,
    protocol: Protocol,
    history: Vec<String>,
    /// True if there was a SORT, which has the server store small sorted sets
    /// as large ones.
    has_sorted: bool,
}

impl Pair {
    fn start(protocol: Protocol) -> Self {
        let mut redis = Redis::start(DATABASES);
        let number = protocol.number().to_string().into_bytes();
        redis.send(&[vec![b"hello".to_vec(), number]]);
        redis.read_reply(&mut Vec::new());
        let mut listener = redis.connect();
        listener.send(&[vec![b"psubscribe".to_vec(), b"*".to_vec()]]);
        listener.read_reply(&mut Vec::new());
        let store = Store::new(StoreConfig {
            databases: DATABASES,
            shards: Some(4),
            notify: KeyspaceEvents::parse("AE").expect("letters"),
            ..StoreConfig::default()
        });
        Self { redis, listener, store, protocol, history: Vec::new(), has_sorted: false }
    }

    fn ours(&self, words: &[&[u8]]) -> Vec<u8> {
        let mut reply = Vec::new();
        let clock = clock_at(unix_millis());
        let context = Context { database: 0, clock, protocol: self.protocol, worker: 0 };
        execute_in(&self.store, context, words, &mut reply);
        reply
    }

    fn batch(&mut self, lines: &mut Lines) {
        let batch: Vec<Vec<Vec<u8>>> = (0..BATCH).map(|_| lines.next()).collect();
        self.redis.send(&batch);
        for words in &batch {
            let mut theirs = Vec::new();
            self.redis.read_reply(&mut theirs);
            let refs: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let ours = self.ours(&refs);
            self.history.push(show(words));
            self.has_sorted |= lower(&words[0]) == "sort" || lower(&words[0]) == "sort_ro";
            if ours == theirs {
                continue;
            }
            let key = refs.get(1).copied().unwrap_or_default();
            let encoding = self.ours(&[b"object", b"encoding", key]);
            let is_table = encoding.ends_with(b"hashtable\r\n");
            if !agree(words, is_table, &ours, &theirs) && !self.is_resized(&refs) {
                self.fail(words, &show_reply(&ours), &show_reply(&theirs));
            }
        }
        let theirs = self.their_events();
        let mut events = Vec::new();
        self.store.take_events(0, &mut events);
        let ours: Vec<String> = events
            .into_iter()
            .map(|event| {
                let key = String::from_utf8_lossy(&event.key).into_owned();
                format!("__keyevent@{}__:{} {key}", event.database, event.name)
            })
            .collect();
        if ours != theirs {
            let at = ours.iter().zip(&theirs).take_while(|(one, other)| one == other).count();
            let part = |events: &[String]| {
                events[at.saturating_sub(2)..].iter().take(6).cloned().collect::<Vec<_>>()
            };
            let last = batch.last().expect("a line").clone();
            self.fail(&last, &format!("{:?}", part(&ours)), &format!("{:?}", part(&theirs)));
        }
    }

    /// Returns whether a command shows how a sorted set is stored that may have been
    /// sorted.
    fn is_resized(&self, words: &[&[u8]]) -> bool {
        let key = match lower(words[0]).as_str() {
            "object" => words.get(2),
            "dump" => words.get(1),
            _ => None,
        };
        let is_sorted = |key| self.ours(&[b"type", key]) == b"+zset\r\n";
        self.has_sorted && key.is_some_and(|key| is_sorted(key))
    }

    /// The events of a batch, up to a marker behind it.
    fn their_events(&mut self) -> Vec<String> {
        let marker = ["publish", "marker", "x"].map(|word| word.as_bytes().to_vec());
        self.redis.send(&[marker.to_vec()]);
        self.redis.read_reply(&mut Vec::new());
        let mut events = Vec::new();
        loop {
            let mut message = Vec::new();
            self.listener.read_reply(&mut message);
            let parts = Reply::read(&mut &message[..]).strings();
            let text = |index: usize| String::from_utf8_lossy(&parts[index]).into_owned();
            if text(2) == "marker" {
                return events;
            }
            events.push(format!("{} {}", text(2), text(3)));
        }
    }

    fn fail(&self, words: &[Vec<u8>], ours: &str, theirs: &str) -> ! {
        let key = format!("{:?} ", words.get(1).map_or(String::new(), |word| lower(word)));
        let about = self.history.iter().rev().filter(|line| line.contains(&key)).take(25);
        let recent: Vec<String> =
            about.map(|line| line.chars().take(300).collect::<String>()).collect();
        let recent: Vec<&str> = recent.iter().rev().map(String::as_str).collect();
        panic!(
            "after {} commands\n{}\nours:   {ours}\ntheirs: {theirs}",
            self.history.len(),
            recent.join("\n")
        );
    }
}

fn compare(family: &'static [&'static str], seed: u64) {
    compare_some(family, seed, COMMANDS);
}

fn compare_some(family: &'static [&'static str], seed: u64, commands: usize) {
    for (protocol, commands) in [(Protocol::Resp2, commands), (Protocol::Resp3, commands / 3)] {
        let mut pair = Pair::start(protocol);
        // A stream is made by many lines, which are to meet.
        let keys = if *family == STREAMS { 3 } else { KEYS.len() };
        let (random, queue) = (Random::new(seed), Vec::new());
        let mut lines = Lines { random, family, queue, newest: 10, keys };
        (0..commands / BATCH).for_each(|_| pair.batch(&mut lines));
    }
}

#[test]
fn sketches_are_those_of_redis() {
    // Each may take Redis a millisecond.
    compare_some(&SKETCHES, 20_260_406, COMMANDS / 8);
}

#[test]
fn places_are_those_of_redis() {
    compare(&PLACES, 20_260_407);
}

#[test]
fn hashes_are_those_of_redis() {
    compare(&HASHES, 20_260_401);
}

#[test]
fn lists_are_those_of_redis() {
    compare(&LISTS, 20_260_402);
}

#[test]
fn sets_are_those_of_redis() {
    compare(&SETS, 20_260_403);
}

#[test]
fn sorted_sets_are_those_of_redis() {
    compare(&SORTED, 20_260_404);
}

#[test]
fn streams_are_those_of_redis() {
    compare(&STREAMS, 20_260_406);
}

#[test]
fn ranges_of_bytes_are_those_of_redis() {
    compare(&LEXICAL, 20_260_405);
}

#[test]
fn sorting_is_that_of_redis() {
    compare(&SORTING, 20_260_406);
}
