use super::transaction::{QueueBudget, Share};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of bytes that a watched key takes besides its own bytes, here and where changes are
/// noted.
const KEY_OVERHEAD: usize = 192;

/// Keys of the embedded store that a client watches.
#[derive(Debug)]
pub struct WatchedKeys {
    /// Set, by any worker, once one of them has changed.
    pub mark: Arc<AtomicBool>,
    /// The keys with their databases.
    keys: BTreeSet<(u32, Box<[u8]>)>,
    share: Share,
}

impl WatchedKeys {
    /// Creates an empty set. Its keys will be counted against `budget`.
    pub fn new(budget: &Arc<QueueBudget>) -> Self {
        Self { mark: Arc::default(), keys: BTreeSet::new(), share: Share::new(budget) }
    }

    /// Adds a key, unless it exists. Returns whether it is new, or `None` if there is no room for
    /// it.
    pub fn add(&mut self, database: u32, key: &[u8]) -> Option<bool> {
        let key = (database, Box::from(key));
        if self.keys.contains(&key) {
            return Some(false);
        }
        // Both tables have a copy of it.
        self.share.grow(2 * key.1.len() + KEY_OVERHEAD).then(|| self.keys.insert(key))
    }

    /// Returns each key with its database.
    pub fn keys(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.keys.iter().map(|(database, key)| (*database, &**key))
    }

    /// Returns whether one of them has changed. For a decision, the keys' shards must be held.
    pub fn has_changed(&self) -> bool {
        self.mark.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_watched_once_for_each_database_and_paid_for() {
        let budget = Arc::new(QueueBudget::new(1000));
        let mut watched = WatchedKeys::new(&budget);
        assert_eq!(
            [0, 0, 1].map(|database| watched.add(database, b"k")),
            [true, false, true].map(Some)
        );
        assert_eq!(watched.keys().collect::<Vec<_>>(), [(0, &b"k"[..]), (1, b"k")]);
        assert_eq!(watched.add(0, &[b'x'; 1000]), None);
        // The key counts in two tables, and for each database.
        assert_eq!(budget.taken(), 2 * (2 + KEY_OVERHEAD as u64));
        assert_eq!(watched.add(0, b"longer"), Some(true));
        assert_eq!(budget.taken(), 2 + 2 + 2 * 6 + 3 * KEY_OVERHEAD as u64);
        drop(watched);
        assert_eq!(budget.taken(), 0);
    }
}
