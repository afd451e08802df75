//! `flush_all`, at once or at a time to come.
//!
//! A flush to come is a time kept per database. The first memcached request
//! from then on does it before anything else, else the next tick: whatever was
//! stored before that time is gone for whoever asks later.

use super::Call;
use super::expiry::Deadline;
use crate::entry::Turn;
use crate::store::{Locked, Store};
use keyway_memcache::{Item, Outcome};
use keyway_memory::Lock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// No flush is to come.
const NEVER: u64 = u64::MAX;

/// The flushes to come.
pub(crate) struct Flushes {
    /// When the first of them is, in milliseconds since the Unix epoch.
    first: AtomicU64,
    /// One a database at most, and when.
    all: Lock<Vec<(u32, u64)>>,
    /// One was done that was asked for earlier.
    is_done: AtomicBool,
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
    fn set(&self, database: u32, at: Option<u64>) {
        let mut all = self.all.lock();
        all.retain(|(one, _)| *one != database);
        all.extend(at.map(|at| (database, at)));
        self.note_first(&all);
    }

    fn note_first(&self, all: &[(u32, u64)]) {
        let first = all.iter().map(|(_, at)| *at).min().unwrap_or(NEVER);
        self.first.store(first, Ordering::Relaxed);
    }

    /// Takes one that is due.
    fn take_due(&self, now_millis: u64) -> Option<u32> {
        let mut all = self.all.lock();
        let at = all.iter().position(|(_, at)| *at <= now_millis)?;
        let (database, _) = all.swap_remove(at);
        self.note_first(&all);
        Some(database)
    }
}

impl Store {
    /// Whether a flush is to be done before a request of this turn.
    #[inline]
    pub(crate) fn flush_is_due(&self, turn: Turn) -> bool {
        // Relaxed: who stored it has answered since, and whoever heard that
        // may only ask through a socket.
        turn.now_millis >= self.flushes.first.load(Ordering::Relaxed)
    }

    /// Does what flushes are due. The caller holds no shard, or all.
    #[cold]
    pub(crate) fn flush_due(&self, turn: Turn) {
        let mut locked = self.lock_all();
        // With all shards locked, nobody sees it taken and not done.
        while let Some(database) = self.flushes.take_due(turn.now_millis) {
            flush(self, &mut locked, database, turn);
            self.flushes.is_done.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a `flush_all` with a delay has emptied a database since this was
    /// last asked: who tells clients of changes is to tell all of them. To be
    /// asked after each tick.
    pub fn take_delayed_flush(&self) -> bool {
        let is_done = &self.flushes.is_done;
        is_done.load(Ordering::Relaxed) && is_done.swap(false, Ordering::Relaxed)
    }
}

/// Empties a database.
fn flush(store: &Store, locked: &mut Locked<'_>, database: u32, turn: Turn) {
    locked.mark_emptied(database, None, turn);
    locked.flush(database);
    store.note_all_ready(turn, database);
}

/// `flush_all`. One that was to come is forgotten.
pub(super) fn flush_all(call: &Call<'_>, out: &mut Vec<u8>) {
    let Call { store, turn, .. } = *call;
    let at = Deadline::of(call.head().expiry, turn.now_millis).expiry();
    store.flushes.set(turn.database, at);
    if at.is_none() {
        flush(store, &mut store.lock_all(), turn.database, turn);
    }
    call.tell(&[], &Outcome::Done(Item::default()), out);
}
