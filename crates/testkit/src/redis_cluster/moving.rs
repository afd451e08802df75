//! A slot on its way from one primary to another.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::client::{Client, encode};
use crate::value::Value;

/// How long MIGRATE may take, in milliseconds.
const MIGRATE_MS: &str = "5000";

/// How long what a node said before may be under way, at most.
const ON_THE_WIRE_MS: u64 = 30;

/// A slot being moved, step by step: SETSLOT IMPORTING and MIGRATING, then
/// MIGRATE of its keys, then SETSLOT NODE. Dropped half-way it leaves the slot as
/// it is.
#[derive(Debug)]
pub struct SlotMove {
    source: Client,
    source_id: String,
    target: Client,
    target_id: String,
    target_address: SocketAddr,
    /// The other primaries, which are told at the end.
    others: Vec<Client>,
    password: Option<String>,
    moved_at_ms: Arc<AtomicU64>,
    slot: u16,
}

impl SlotMove {
    pub(super) fn new(
        (source, source_id): (Client, String),
        (target, target_id, target_address): (Client, String, SocketAddr),
        others: Vec<Client>,
        password: Option<String>,
        moved_at_ms: Arc<AtomicU64>,
    ) -> SlotMove {
        SlotMove {
            source,
            source_id,
            target,
            target_id,
            target_address,
            others,
            password,
            moved_at_ms,
            slot: 0,
        }
    }

    /// From now on the source answers ASK for keys of `slot` it has not.
    pub(super) fn begin(&mut self, slot: u16) {
        self.slot = slot;
        let importing = format!("CLUSTER SETSLOT {slot} IMPORTING {}", self.source_id);
        expect_ok(&mut self.target, &importing);
        let migrating = format!("CLUSTER SETSLOT {slot} MIGRATING {}", self.target_id);
        expect_ok(&mut self.source, &migrating);
    }

    /// The slot.
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// Moves up to `count` keys and returns how many were there to be moved; 0
    /// when the source has none.
    ///
    /// # Panics
    /// When one cannot be moved.
    pub fn move_keys(&mut self, count: usize) -> usize {
        let words = format!("CLUSTER GETKEYSINSLOT {} {count}", self.slot);
        let reply = self.source.words(&words);
        let keys: Vec<&[u8]> = reply.array().iter().map(Value::bytes).collect();
        if keys.is_empty() {
            return 0;
        }
        let (host, port) = (self.target_address.ip().to_string(), self.target_address.port());
        let port = port.to_string();
        let mut words: Vec<&[u8]> = vec![b"MIGRATE", host.as_bytes(), port.as_bytes(), b"", b"0"];
        words.push(MIGRATE_MS.as_bytes());
        if let Some(password) = &self.password {
            words.extend([&b"AUTH"[..], password.as_bytes()]);
        }
        words.push(b"KEYS");
        words.extend(&keys);
        self.source.send(&encode(&words));
        let reply = self.source.reply();
        // NOKEY: all of them expired or were deleted meanwhile.
        let is_done = reply == Value::simple("OK") || reply == Value::simple("NOKEY");
        assert!(is_done, "MIGRATE of slot {}: {reply:?}", self.slot);
        keys.len()
    }

    /// The slot is the target's: it is told first, then the source, then the
    /// other primaries, so that one of the two answers for it at any time. No
    /// key may be left behind.
    ///
    /// # Panics
    /// When the source has keys left.
    pub fn finish(&mut self) {
        let words = format!("CLUSTER SETSLOT {} NODE {}", self.slot, self.target_id);
        expect_ok(&mut self.target, &words);
        // One that hears from others first that its last slot is gone is a replica by now.
        let reply = self.source.words(&words);
        let is_replica = reply.error_text().contains("only with masters");
        assert!(reply == Value::simple("OK") || is_replica, "{words}: {reply:?}");
        for other in &mut self.others {
            expect_ok(other, &words);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
        self.moved_at_ms.store(now.as_millis() as u64 + ON_THE_WIRE_MS, Ordering::Relaxed);
    }

    /// The slot stays the source's; keys that were moved stay moved.
    pub fn cancel(mut self) {
        let words = format!("CLUSTER SETSLOT {} STABLE", self.slot);
        expect_ok(&mut self.source, &words);
        expect_ok(&mut self.target, &words);
    }
}

fn expect_ok(client: &mut Client, words: &str) {
    assert_eq!(client.words(words), Value::simple("OK"), "{words}");
}
