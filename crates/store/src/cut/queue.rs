//! Items that change before the walk of a snapshot has come to them.

use super::pieces::Pieces;
use keyway_memory::Lock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What waits for the file of the snapshot that is being written. It is bounded: where the disk is
/// so slow that more would wait, the snapshot is given up.
///
/// It has cache lines of its own, as workers write here and read what lies beside it.
#[repr(align(128))]
pub(crate) struct Queue {
    waiting: Lock<Pieces>,
    /// Bytes of what waits, of marks of cells, and of values finished in a hurry.
    bytes: AtomicU64,
    bytes_max: AtomicU64,
    /// The most they were, in this snapshot.
    peak: AtomicU64,
    has_overflowed: AtomicBool,
    /// True if nobody wants the snapshot any more; it has overflowed then, too.
    is_given_up: AtomicBool,
    /// The database of each space of a shard, at the cut.
    databases: Lock<Vec<u32>>,
}

impl Queue {
    pub(crate) const fn new() -> Self {
        Self {
            waiting: Lock::new(Pieces::new()),
            bytes: AtomicU64::new(0),
            bytes_max: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            has_overflowed: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
            databases: Lock::new(Vec::new()),
        }
    }

    /// Begins anew, with a bound in bytes and the database of each space.
    pub(crate) fn open(&self, bytes_max: u64, databases: Vec<u32>) {
        *self.databases.lock() = databases;
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        self.peak.store(self.bytes(), Ordering::Relaxed);
        self.has_overflowed.store(false, Ordering::Relaxed);
        self.is_given_up.store(false, Ordering::Relaxed);
    }

    /// The database that a space had at the cut.
    pub(crate) fn database_at(&self, space_index: usize) -> u32 {
        self.databases.lock().get(space_index).copied().unwrap_or_default()
    }

    /// Puts pieces at the end.
    pub(crate) fn push(&self, pieces: Pieces) {
        self.charge(pieces.len() as u64);
        self.waiting.lock().append(pieces);
    }

    /// Takes all that waits. The caller gives its bytes back to [`Queue::release`] once it has
    /// written them.
    pub(crate) fn take(&self) -> Pieces {
        std::mem::take(&mut *self.waiting.lock())
    }

    /// Counts bytes that are held for the snapshot.
    pub(crate) fn charge(&self, bytes: u64) {
        let now = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(now, Ordering::Relaxed);
        if now > self.bytes_max.load(Ordering::Relaxed) {
            self.has_overflowed.store(true, Ordering::Relaxed);
        }
    }

    /// Counts bytes that are held no more.
    pub(crate) fn release(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns whether more had to wait than may.
    pub(crate) fn has_overflowed(&self) -> bool {
        self.has_overflowed.load(Ordering::Relaxed)
    }

    /// Has nothing more be held.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
        self.has_overflowed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    /// Returns whether something waits.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.lock().is_empty()
    }

    /// The bound on what may wait.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Bytes that are held.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The most bytes that were held, in the latest snapshot.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}
