//! What was written, and what a read may show of it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::LoadShape;

/// What a value says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nothing wrong with it.
    Right,
    /// Older than what was acknowledged.
    Stale,
    /// A write without an answer came into effect after a later one.
    Late,
    /// Nobody wrote this here.
    Wrong,
}

/// Every key, by number: its versions so far. A key's writer is one client, so
/// there are no two writes of it at once.
#[derive(Debug)]
pub(super) struct Ledger {
    prefix: String,
    filler: String,
    keys: Vec<Versions>,
    /// Writes, by key and version, that failed: they may be executed or not, at
    /// any time.
    unanswered: Mutex<BTreeSet<(usize, u64)>>,
    replies: AtomicU64,
    errors: AtomicU64,
}

#[derive(Debug, Default)]
struct Versions {
    sent: AtomicU64,
    acknowledged: AtomicU64,
}

impl Ledger {
    pub fn new(shape: &LoadShape) -> Ledger {
        let count = shape.clients * shape.keys_each;
        Ledger {
            prefix: shape.prefix.clone(),
            filler: "x".repeat(shape.value_len),
            keys: (0..count).map(|_| Versions::default()).collect(),
            unanswered: Mutex::default(),
            replies: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        }
    }

    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    pub fn name(&self, key: usize) -> String {
        format!("{}:{key}", self.prefix)
    }

    /// The value of a version; it names its key, so that no reply can stand
    /// for another's.
    pub fn value(&self, key: usize, version: u64) -> String {
        format!("{}={version}={}", self.name(key), self.filler)
    }

    /// The next version of `key` is about to be sent.
    pub fn send(&self, key: usize) -> u64 {
        self.keys[key].sent.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn acknowledge(&self, key: usize, version: u64) {
        self.keys[key].acknowledged.fetch_max(version, Ordering::SeqCst);
    }

    /// Nobody knows whether this write was executed.
    pub fn give_up(&self, key: usize, version: u64) {
        let mut unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        unanswered.insert((key, version));
    }

    /// The oldest version that a read of `key` may show if it is sent now.
    pub fn oldest(&self, key: usize) -> u64 {
        self.keys[key].acknowledged.load(Ordering::SeqCst)
    }

    /// Judges a value, none for a key that is not there, of a read sent when
    /// `oldest` was the oldest it might show.
    pub fn judge(&self, key: usize, oldest: u64, value: Option<&[u8]>) -> Seen {
        let newest = self.keys[key].sent.load(Ordering::SeqCst);
        let Some(value) = value else {
            return if oldest == 0 { Seen::Right } else { Seen::Stale };
        };
        let Some(version) = self.version_in(key, value) else { return Seen::Wrong };
        let unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        match version {
            version if version > newest => Seen::Wrong,
            version if version >= oldest => Seen::Right,
            version if unanswered.contains(&(key, version)) => Seen::Late,
            _ => Seen::Stale,
        }
    }

    /// The version in a whole value of `key`.
    fn version_in(&self, key: usize, value: &[u8]) -> Option<u64> {
        let text = std::str::from_utf8(value).ok()?;
        let rest = text.strip_prefix(&self.name(key))?.strip_prefix('=')?;
        let (version, filler) = rest.split_once('=')?;
        let version = version.parse().ok()?;
        (filler == self.filler && version > 0).then_some(version)
    }

    pub fn count_reply(&self) {
        self.replies.fetch_add(1, Ordering::Relaxed);
    }

    pub fn reply_count(&self) -> u64 {
        self.replies.load(Ordering::Relaxed)
    }

    pub fn count_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    pub fn error_count(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }
}

/// A number that one client increments.
#[derive(Debug, Default)]
pub(super) struct Counter {
    /// The last number it was answered.
    last: i64,
    /// Increments since then that may have been executed.
    unanswered: i64,
}

impl Counter {
    /// An increment failed.
    pub fn give_up(&mut self) {
        self.unanswered += 1;
    }

    /// An increment was answered by `number`; whether that is more than it can
    /// be, or less.
    pub fn judge(&mut self, number: i64) -> Option<Miscount> {
        let least = self.last + 1;
        let most = least + self.unanswered;
        let is_within = (least..=most).contains(&number);
        let judged = match number {
            _ if is_within => None,
            number if number > most => Some(Miscount::TooMany),
            _ => Some(Miscount::TooFew),
        };
        // One that failed may still be executed later.
        self.unanswered = if is_within { most - number } else { self.unanswered };
        self.last = number;
        judged
    }
}

/// How a counter is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Miscount {
    TooMany,
    TooFew,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        let shape = LoadShape { clients: 1, keys_each: 2, value_len: 3, ..LoadShape::default() };
        Ledger::new(&shape)
    }

    #[test]
    fn a_read_shows_what_was_acknowledged_or_sent_since() {
        let ledger = ledger();
        let judge =
            |oldest, version| ledger.judge(0, oldest, Some(ledger.value(0, version).as_bytes()));
        assert_eq!(ledger.judge(0, 0, None), Seen::Right);
        assert_eq!(judge(0, 1), Seen::Wrong);
        for version in 1..=3 {
            assert_eq!(ledger.send(0), version);
        }
        ledger.acknowledge(0, 2);
        assert_eq!(ledger.oldest(0), 2);
        assert_eq!(
            (judge(2, 2), judge(2, 3), judge(2, 4)),
            (Seen::Right, Seen::Right, Seen::Wrong)
        );
        assert_eq!((judge(2, 1), ledger.judge(0, 2, None)), (Seen::Stale, Seen::Stale));
        ledger.give_up(0, 1);
        assert_eq!(judge(2, 1), Seen::Late);
        for value in ["", "load:0", "load:0=2=", "load:0=2=xxxx", "load:1=2=xxx", "load:0=0=xxx"] {
            assert_eq!(ledger.judge(0, 0, Some(value.as_bytes())), Seen::Wrong, "{value}");
        }
    }

    #[test]
    fn a_counter_counts_each_increment_once() {
        let mut counter = Counter::default();
        assert_eq!((counter.judge(1), counter.judge(2)), (None, None));
        assert_eq!(counter.judge(4), Some(Miscount::TooMany));
        assert_eq!(counter.judge(4), Some(Miscount::TooFew));
        // One that failed counts or does not, now or later.
        counter.give_up();
        assert_eq!((counter.judge(5), counter.judge(7)), (None, None));
        assert_eq!(counter.judge(9), Some(Miscount::TooMany));
    }
}
