//! The state of a store's snapshots: whether one is being written or loaded, and the result of the
//! latest.
//!
//! ```text
//!  idle ─► scheduled ─► cut ─► writing ─► idle
//!            (by who holds shards, and cannot cut)
//!  idle ─► for a log ─► idle
//! ```
//! A worker or the thread of snapshots makes the cut; the thread writes. The store itself has
//! neither thread nor file.

use super::history::HistoryPlace;
use super::waiters::Waiter;
use crate::cut::{Pieces, Queue};
use keyway_memory::{Heap, Lock};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub(super) const IDLE: u8 = 0;
pub(super) const SCHEDULED: u8 = 1;
pub(super) const CUT: u8 = 2;
pub(super) const WRITING: u8 = 3;
/// The snapshot is the base of a log. Nobody else writes it.
pub(super) const FOR_LOG: u8 = 4;

/// The state of a store's snapshots.
pub(crate) struct Snapshots {
    /// Items that change before they were written.
    pub(crate) queue: Queue,
    pub(super) phase: AtomicU8,
    /// Another one is to follow the one that is being written.
    pub(super) again: AtomicBool,
    /// See [`super::core::Store::reserve_snapshot`].
    pub(super) is_reserved: AtomicBool,
    pub(super) wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
    pub(super) buffer_max: AtomicU64,
    /// Figures; those of the cut that is being written beside those of the last file.
    pub(super) cut_at: AtomicU64,
    pub(super) cut_changes: AtomicU64,
    pub(super) cut_place: Lock<Option<HistoryPlace>>,
    pub(super) saved_at: AtomicU64,
    pub(super) saved_changes: AtomicU64,
    pub(super) saved_len: AtomicU64,
    pub(super) saved_millis: AtomicI64,
    pub(super) written: AtomicU64,
    pub(super) saves: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) last_failed: AtomicBool,
    pub(super) failure: Lock<String>,
    /// The clients that wait for the end of the snapshot that is being written, and those whose
    /// snapshot has ended.
    pub(super) waiting: Lock<Vec<Arc<Waiter>>>,
    pub(super) saved: Lock<Vec<Arc<Waiter>>>,
    pub(super) load_began: AtomicU64,
    pub(super) load_read: AtomicU64,
    pub(super) load_len: AtomicU64,
    pub(super) load_keys: AtomicU64,
    pub(super) load_expired: AtomicU64,
}

/// Figures about snapshots. Times are in seconds since the Unix epoch, 0 for never.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotStatus {
    /// True if the store has a file for snapshots.
    pub is_on: bool,
    /// True if one is being written.
    pub is_saving: bool,
    /// True if another is to follow, or to begin.
    pub is_scheduled: bool,
    /// When the one that is being written was begun.
    pub began: u64,
    /// Bytes of it that are written.
    pub written: u64,
    /// Bytes that it holds in memory now.
    pub buffered: u64,
    /// The most that it, or the last one, held in memory.
    pub buffered_peak: u64,
    /// When the last whole snapshot was made; when the process started, without one.
    pub saved_at: u64,
    /// Changes of keys until then.
    pub saved_changes: u64,
    /// Its length, in bytes.
    pub saved_len: u64,
    /// The time that the latest snapshot took, in milliseconds. -1 before the first one.
    pub saved_millis: i64,
    /// Snapshots that were written whole.
    pub saves: u64,
    /// Snapshots that failed.
    pub failures: u64,
    /// True if the last one failed.
    pub last_failed: bool,
    /// Why the latest that failed did.
    pub failure: String,
    /// True if the store is being loaded.
    pub is_loading: bool,
    /// When loading began.
    pub load_began: u64,
    /// Bytes of the file that were read.
    pub load_read: u64,
    /// The length of the file.
    pub load_len: u64,
    /// Keys that were loaded, and those left out as they had expired.
    pub load_keys: u64,
    /// Keys that were left out as they had expired.
    pub load_expired: u64,
}

/// Why no snapshot is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotRefusal {
    /// The store has no file for them.
    Off,
    /// One is being written.
    Running,
}

impl SnapshotRefusal {
    /// Returns the error text for a client, including the error code.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Off => {
                "ERR this pool has no file for snapshots; `snapshot` in its configuration sets one"
            }
            Self::Running => "ERR Background save already in progress",
        }
    }
}

impl Snapshots {
    pub(crate) fn new() -> Self {
        Self {
            queue: Queue::new(),
            phase: AtomicU8::new(IDLE),
            again: AtomicBool::new(false),
            is_reserved: AtomicBool::new(false),
            wake: OnceLock::new(),
            buffer_max: AtomicU64::new(0),
            cut_at: AtomicU64::new(0),
            cut_changes: AtomicU64::new(0),
            cut_place: Lock::new(None),
            saved_at: AtomicU64::new(0),
            saved_changes: AtomicU64::new(0),
            saved_len: AtomicU64::new(0),
            saved_millis: AtomicI64::new(-1),
            written: AtomicU64::new(0),
            saves: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            last_failed: AtomicBool::new(false),
            failure: Lock::new(String::new()),
            waiting: Lock::new(Vec::new()),
            saved: Lock::new(Vec::new()),
            load_began: AtomicU64::new(0),
            load_read: AtomicU64::new(0),
            load_len: AtomicU64::new(0),
            load_keys: AtomicU64::new(0),
            load_expired: AtomicU64::new(0),
        }
    }

    /// Gives back the shared values of pieces that nobody writes.
    pub(crate) fn discard(&self, pieces: Pieces, heap: &Heap) {
        for piece in pieces.into_parts() {
            piece.end(heap);
        }
    }

    pub(super) fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    pub(super) fn advance(&self, from: u8, to: u8) -> bool {
        // ORDER: AcqRel pairs with itself: who takes a cut sees what it left behind.
        self.phase.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}
