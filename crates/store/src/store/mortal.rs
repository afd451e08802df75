//! Streams that expire while somebody reads them for a group: who waits is told
//! that they are gone, and upkeep alone would come by late.
//!
//! A key is noted when somebody begins to wait for it and when it may have got
//! another expiry. Upkeep looks at the keys that are due, and nobody at the
//! others.

use keyway_memory::Lock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys that one call of upkeep looks at. Fewer tell late of streams that expire
/// together; each is a look-up with its shard locked.
const CHECKS_MAX: usize = 1000;

/// Nothing is due.
const NEVER: u64 = u64::MAX;

/// A key and its database.
pub(crate) type DatabaseKey = (u32, Box<[u8]>);

/// The keys, and when each is to be looked at. Each has somebody who reads it
/// for a group.
pub(crate) struct Mortal {
    keys: Lock<Keys>,
    /// When the first is due, in milliseconds since the Unix epoch. Only where
    /// the lock is held it is exact.
    first: AtomicU64,
}

#[derive(Default)]
struct Keys {
    due: BTreeSet<(u64, DatabaseKey)>,
    of: BTreeMap<DatabaseKey, u64>,
}

impl Keys {
    fn set(&mut self, key: DatabaseKey, due: Option<u64>) {
        if let Some(before) = self.of.remove(&key) {
            self.due.remove(&(before, key.clone()));
        }
        if let Some(due) = due {
            self.of.insert(key.clone(), due);
            self.due.insert((due, key));
        }
    }

    fn pop(&mut self, now_millis: u64) -> Option<DatabaseKey> {
        let (due, _) = self.due.first()?;
        if *due > now_millis {
            return None;
        }
        let (_, key) = self.due.pop_first()?;
        self.of.remove(&key);
        Some(key)
    }
}

impl Mortal {
    pub(crate) fn new() -> Self {
        Self { keys: Lock::new(Keys::default()), first: AtomicU64::new(NEVER) }
    }

    fn change<R>(&self, change: impl FnOnce(&mut Keys) -> R) -> R {
        let mut keys = self.keys.lock();
        let result = change(&mut keys);
        let first = keys.due.first().map_or(NEVER, |(due, _)| *due);
        self.first.store(first, Ordering::Relaxed);
        result
    }

    /// Has a key looked at `due`, in milliseconds since the Unix epoch; `None` for
    /// never.
    pub(crate) fn set(&self, database: u32, key: &[u8], due: Option<u64>) {
        self.change(|keys| keys.set((database, key.into()), due));
    }

    pub(crate) fn take_due(&self, now_millis: u64) -> Vec<DatabaseKey> {
        if self.first.load(Ordering::Relaxed) > now_millis {
            return Vec::new();
        }
        self.change(|keys| std::iter::from_fn(|| keys.pop(now_millis)).take(CHECKS_MAX).collect())
    }

    /// Keys that are noted, for tests.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.keys.lock().of.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_due_once_and_at_its_latest_time() {
        let mortal = Mortal::new();
        mortal.set(0, b"a", Some(5));
        mortal.set(0, b"b", Some(7));
        mortal.set(1, b"a", Some(6));
        mortal.set(0, b"a", Some(9));
        assert_eq!(mortal.take_due(5), []);
        let of = |database: u32, key: &[u8]| (database, Box::from(key));
        assert_eq!(mortal.take_due(8), [of(1, b"a"), of(0, b"b")]);
        assert_eq!(mortal.len(), 1);
        mortal.set(0, b"a", None);
        assert_eq!(mortal.take_due(100), []);
        assert_eq!((mortal.len(), mortal.first.load(Ordering::Relaxed)), (0, NEVER));
    }
}
