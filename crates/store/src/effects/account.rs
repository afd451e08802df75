//! How many bytes the buffers of effects take, and may take.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The bytes of all buffers.
#[derive(Default)]
pub(super) struct Account {
    held: AtomicUsize,
    /// Bytes that the buffers may take, unless a reader must not lose anything.
    room: AtomicUsize,
    /// How often bytes were taken beyond the room.
    beyond: AtomicU64,
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
    /// other half of the room is for requests that are executed already.
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

    /// Takes bytes for a buffer although there is no room for them.
    pub(super) fn take_beyond(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        self.beyond.fetch_add(1, Ordering::Relaxed);
    }

    /// How often bytes were taken beyond the room.
    pub(super) fn beyond(&self) -> u64 {
        self.beyond.load(Ordering::Relaxed)
    }

    /// Returns whether buffers that nobody needs are to be freed.
    pub(super) fn is_short(&self) -> bool {
        self.held() > self.soft()
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
