//! The number of bytes that the buffers of effects use, and its bound.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes of all buffers.
#[derive(Default)]
pub(super) struct Account {
    held: AtomicUsize,
    /// Bytes that the buffers may take.
    room: AtomicUsize,
}

impl Account {
    #[inline]
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn room(&self) -> usize {
        self.room.load(Ordering::Relaxed)
    }

    /// Bytes from which on the oldest effects are dropped, or writers are to wait. The
    /// other half of the room is for what is written until then.
    pub(super) fn soft(&self) -> usize {
        self.room() / 2
    }

    pub(super) fn set_room(&self, room: usize) {
        self.room.store(room, Ordering::Relaxed);
    }

    /// Takes bytes for a buffer, if there is room for them.
    pub(super) fn try_take(&self, bytes: usize) -> bool {
        let before = self.held.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.room();
        if !fits {
            self.give(bytes);
        }
        fits
    }

    pub(super) fn give(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Notes that a small buffer has another length, whether or not there is room.
    pub(super) fn change(&self, before: usize, after: usize) {
        if after > before {
            self.held.fetch_add(after - before, Ordering::Relaxed);
        } else if before > after {
            self.give(before - after);
        }
    }
}
