//! Clients that cache what they read of the embedded store: no cache stays stale.

use crate::tracking_store::{SOON, invalidated};
use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, Random, Value, encode_words, wait_until, watchdog,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

/// A client with a cache, like those of client libraries.
struct Cache {
    client: Client,
    values: BTreeMap<Vec<u8>, Value>,
    hits: u64,
}

impl Cache {
    fn new(mut client: Client, mode: &str) -> Cache {
        client.words("HELLO 3");
        assert_eq!(client.words(&format!("CLIENT TRACKING ON{mode}")), Value::simple("OK"));
        Cache { client, values: BTreeMap::new(), hits: 0 }
    }

    fn on_push(&mut self, value: &Value) -> bool {
        match invalidated(value) {
            None => return false,
            Some(None) => self.values.clear(),
            Some(Some(keys)) => keys.iter().for_each(|key| drop(self.values.remove(key))),
        }
        true
    }

    fn get(&mut self, key: &str) {
        if self.values.contains_key(key.as_bytes()) {
            self.hits += 1;
            return;
        }
        self.client.send(&encode_words(&format!("GET {key}")));
        loop {
            let value = self.client.reply();
            if !self.on_push(&value) {
                self.values.insert(key.as_bytes().to_vec(), value);
                return;
            }
        }
    }

    fn drain(&mut self) {
        self.client.send(&encode_words("PING"));
        loop {
            let value = self.client.reply();
            if value == Value::simple("PONG") {
                return;
            }
            assert!(self.on_push(&value), "{value:?}");
        }
    }

    /// Waits until every value in the cache is the store's.
    fn expect_fresh(&mut self, truth: &mut Client) {
        truth.words("HELLO 3");
        wait_until("no cached value is stale", SOON, || {
            self.drain();
            self.values.iter().all(|(key, value)| truth.command(&[&b"GET"[..], key]) == *value)
        });
    }
}

#[test]
fn no_cache_stays_stale_however_many_write() {
    let _watch = watchdog(Duration::from_secs(120), "caches");
    let config = KeywayConfig::new(vec![Pool::store("local").with("databases", "2")])
        .with_server("workers", "3")
        .with_tables("[limits]\ntracking_keys_max = 20\n");
    let keyway = Keyway::start(KEYWAY, config);
    let is_over = AtomicBool::new(false);
    let key_of = |random: &mut Random| format!("k{}", random.below(40));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|nth| {
                let mut client = keyway.client(0);
                scope.spawn(move || {
                    let mut random = Random::new(nth + 1);
                    for round in 0..4000 {
                        let key = key_of(&mut random);
                        let line = match random.below(12) {
                            0 => format!("DEL {key}"),
                            1 => format!("SET {key} {nth}:{round} PX {}", 1 + random.below(5)),
                            2 => format!("APPEND {key} x"),
                            3 => format!("RENAME {key} {}", key_of(&mut random)),
                            4 => format!("GETEX {key} PX {}", 1 + random.below(3)),
                            5 => format!("MSET {key} {round} {} {round}", key_of(&mut random)),
                            6 => format!("COPY {key} {} REPLACE", key_of(&mut random)),
                            7 => format!("SETBIT {key} 3 {}", round % 2),
                            8 if random.below(100) == 0 => "FLUSHALL".to_owned(),
                            _ => format!("SET {key} {nth}:{round}"),
                        };
                        client.words(&line);
                    }
                })
            })
            .collect();
        for (nth, mode) in ["", " NOLOOP", " BCAST", " BCAST PREFIX k1 PREFIX k2 PREFIX k3"]
            .into_iter()
            .cycle()
            .take(8)
            .enumerate()
        {
            let (keyway, is_over) = (&keyway, &is_over);
            scope.spawn(move || {
                let mut cache = Cache::new(keyway.client(0), mode);
                let mut random = Random::new(nth as u64 + 99);
                let covered =
                    |key: &str| !mode.contains("PREFIX") || !"0456789".contains(&key[1..2]);
                while !is_over.load(Ordering::Relaxed) {
                    (0..20)
                        .map(|_| key_of(&mut random))
                        .filter(|key| covered(key))
                        .for_each(|key| cache.get(&key));
                    cache.drain();
                }
                cache.expect_fresh(&mut keyway.client(0));
                assert!(cache.hits > 0);
            });
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn who_does_not_read_is_told_that_everything_has_changed() {
    let _watch = watchdog(Duration::from_secs(60), "a slow client");
    let config = KeywayConfig::new(vec![Pool::store("local")])
        .with_server("workers", "2")
        .with_tables("[limits]\nsession_output_len_soft = \"64KiB\"\n");
    let keyway = Keyway::start(KEYWAY, config);
    let mut slow = keyway.client(0);
    slow.shrink_receive_buffer(4 << 10);
    slow.words("HELLO 3");
    assert_eq!(slow.words("CLIENT TRACKING ON BCAST"), Value::simple("OK"));
    let mut writer = keyway.client(0);
    let name = "n".repeat(1000);
    let (rounds, total) = (200, 20_000);
    for round in 0..rounds {
        let lines: Vec<String> =
            (0..total / rounds).map(|nth| format!("SET {name}{round}:{nth} 1")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        writer.pipeline(&lines);
    }
    writer.words("SET last 1");
    let (mut keys, mut everything) = (0, 0);
    loop {
        match invalidated(&slow.reply()).expect("an invalidation") {
            Some(told) if told.iter().any(|key| key == b"last") => break,
            Some(told) => keys += told.len(),
            None => {
                everything += 1;
                writer.words("SET last 1");
            }
        }
    }
    assert!(everything > 0 && keys < total, "{everything} {keys}");
}

#[test]
fn who_leaves_is_forgotten_and_who_stays_is_told() {
    let _watch = watchdog(Duration::from_secs(60), "leaving");
    let config = KeywayConfig::new(vec![Pool::store("local")]).with_server("workers", "2");
    let keyway = Keyway::start(KEYWAY, config);
    let mut writer = keyway.client(0);
    let mut stays = Cache::new(keyway.client(0), "");
    for round in 0..50 {
        let mut leaves = Cache::new(keyway.client(0), ["", " BCAST", " OPTOUT"][round % 3]);
        (0..20).for_each(|key| leaves.get(&format!("k{key}")));
        stays.get(&format!("k{}", round % 20));
        drop(leaves);
        writer.words(&format!("SET k{} {round}", round % 20));
        stays.expect_fresh(&mut writer);
    }
    assert!(stays.values.is_empty());
}
