//! Flushes that memcached clients asked for at a time to come: see
//! `requests/flushing.rs`.

use keyway_memory::Lock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// No flush is to come.
const NEVER: u64 = u64::MAX;

/// The flushes to come.
pub(crate) struct Flushes {
    /// When the first of them is, in milliseconds since the Unix epoch.
    pub(crate) first: AtomicU64,
    /// One a database at most, and when.
    all: Lock<Vec<(u32, u64)>>,
    /// One was done that was asked for earlier.
    pub(crate) is_done: AtomicBool,
}

impl Flushes {
    pub(crate) const fn new() -> Self {
        Self {
            first: AtomicU64::new(NEVER),
            all: Lock::new(Vec::new()),
            is_done: AtomicBool::new(false),
        }
    }

    /// Puts a flush of a database in the place of any other that is to come.
    pub(crate) fn set(&self, database: u32, at: Option<u64>) {
        let mut all = self.all.lock();
        all.retain(|(one, _)| *one != database);
        all.extend(at.map(|at| (database, at)));
        self.note_first(&all);
    }

    /// The flushes to come: of which database, and when.
    pub(crate) fn all(&self) -> Vec<(u32, u64)> {
        self.all.lock().clone()
    }

    fn note_first(&self, all: &[(u32, u64)]) {
        let first = all.iter().map(|(_, at)| *at).min().unwrap_or(NEVER);
        self.first.store(first, Ordering::Relaxed);
    }

    /// Takes one that is due.
    pub(crate) fn take_due(&self, now_millis: u64) -> Option<u32> {
        let mut all = self.all.lock();
        let at = all.iter().position(|(_, at)| *at <= now_millis)?;
        let (database, _) = all.swap_remove(at);
        self.note_first(&all);
        Some(database)
    }
}
