//! Keys that clients watch until they run a transaction.
//!
//! A client has one mark for all of its keys, and the table says whose marks a
//! change of a key sets. A key is entered, and a change of it noted, with its
//! shard locked, and a transaction looks at its mark while it holds the shards
//! of its keys: so whatever has changed a key before then has set the mark.

use keyway_memory::Lock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Parts of the table, each with its own lock. Fewer let workers wait for each
/// other.
const STRIPES: usize = 64;

/// Set once a key that a client watches has changed.
pub type Mark = Arc<AtomicBool>;

/// By key: the marks that a change sets, with their databases.
type Stripe = BTreeMap<Box<[u8]>, Vec<(u32, Mark)>>;

pub(crate) struct Watches {
    stripes: Box<[Lock<Stripe>]>,
}

impl Watches {
    pub(crate) fn new() -> Self {
        Self { stripes: (0..STRIPES).map(|_| Lock::new(Stripe::new())).collect() }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.stripes.len() * size_of::<Lock<Stripe>>()
    }

    fn stripe(&self, key: &[u8]) -> &Lock<Stripe> {
        let sum = key.iter().fold(key.len(), |sum, byte| sum.wrapping_mul(31) + usize::from(*byte));
        &self.stripes[sum % self.stripes.len()]
    }

    pub(crate) fn enter(&self, database: u32, key: &[u8], mark: &Mark) {
        let mut stripe = self.stripe(key).lock();
        stripe.entry(key.into()).or_default().push((database, Arc::clone(mark)));
    }

    pub(crate) fn remove(&self, database: u32, key: &[u8], mark: &Mark) {
        let mut stripe = self.stripe(key).lock();
        let Some(marks) = stripe.get_mut(key) else { return };
        let is_it = |(one, other): &(u32, Mark)| *one == database && Arc::ptr_eq(other, mark);
        if let Some(at) = marks.iter().position(is_it) {
            marks.swap_remove(at);
        }
        if marks.is_empty() {
            stripe.remove(key);
        }
    }

    /// Notes that a key has changed. Each watcher is told once.
    pub(crate) fn mark(&self, database: u32, key: &[u8]) {
        let mut stripe = self.stripe(key).lock();
        let Some(marks) = stripe.get_mut(key) else { return };
        // Its lock orders it: who looks holds the key's shard as well.
        marks.extract_if(.., |(one, _)| *one == database).for_each(|(_, mark)| {
            mark.store(true, Ordering::Relaxed);
        });
        if marks.is_empty() {
            stripe.remove(key);
        }
    }

    /// Notes that the watched keys of a database have changed that `has_changed`
    /// says.
    pub(crate) fn mark_database(&self, database: u32, has_changed: impl Fn(&[u8]) -> bool) {
        for stripe in &self.stripes {
            let stripe = stripe.lock();
            let watched = stripe.iter().flat_map(|(key, marks)| {
                marks.iter().filter(|(one, _)| *one == database).map(move |(_, mark)| (key, mark))
            });
            for (key, mark) in watched {
                if has_changed(key) {
                    mark.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    /// Keys that are in the table, each once for every client.
    pub(crate) fn len(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.lock().values().map(Vec::len).sum::<usize>()).sum()
    }
}
