//! The number of bytes that the buffers of effects use, and its bound.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The bytes of all buffers.
#[derive(Default)]
pub(super) struct Account {
    held: AtomicUsize,
    /// Of these, the ones of units that are not told yet.
    open: AtomicUsize,
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

    /// Returns whether writers are to wait for a reader. Units that are open do not count: the
    /// reader gets them when they are told.
    pub(super) fn is_full(&self) -> bool {
        let open = self.open.load(Ordering::Relaxed);
        self.held().saturating_sub(open) > self.soft()
    }

    /// Notes that the buffer of a unit that is not told yet has another length.
    pub(super) fn change_open(&self, before: usize, after: usize) {
        if before != after {
            self.open.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
            self.change(before, after);
        }
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
