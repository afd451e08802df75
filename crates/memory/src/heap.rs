//! The heap: memory for items, as slots of pages in arenas, or as separate blocks.
//!
//! ```text
//!  Heap ── arena 0 ── class 72 ── page ─ page        one lock per arena
//!   │      arena 1 ── class 80 ── page               shard -> arena: many shards share one,
//!   │        …                                       or small caches would waste a page per
//!   └─ PageSource: regions from the system,          shard and class
//!      cold pages given back to it
//! ```
//! A block of up to [`SLOT_LEN_MAX`] bytes is a slot of a page (`pages.rs`, `arena.rs`). A longer
//! block is a run (`runs.rs`). The longest blocks come from the global allocator, which maps each
//! of them separately (`large.rs`).

mod arena;
mod large;
mod pages;

pub use large::{is_lent, is_mapped, large_bytes, large_capacity, lend};
pub use pages::{SLOT_LEN_MAX, slot_capacity};

use crate::discarded::Discarded;
use crate::lock::Lock;
use crate::runs::Runs;
use arena::Arena;
use large::large_len;
use pages::{PAGE_LEN, PageSource, class_of, page_of, slot_len};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, Ordering};

/// Number of bytes by which an arena's idle memory may change before the heap's sum is updated. If
/// it were smaller, cores would share a cache line more often.
const UNREPORTED_MAX: i64 = 16 << 10;

/// Returns the bytes that a block for `len` bytes really takes.
#[inline]
pub const fn block_len(len: usize) -> usize {
    if len <= SLOT_LEN_MAX { slot_len(class_of(len)) } else { large_len(len) }
}

/// All arenas of a store.
pub struct Heap {
    arenas: Box<[Lock<Arena>]>,
    source: Lock<PageSource>,
    runs: Lock<Runs>,
    /// Number of bytes in pages that no used slot takes, except for what arenas have not reported.
    idle: AtomicI64,
    /// Number of bytes of blocks that belong to no item: drafts, and lent blocks that their owner
    /// has freed. It includes `reserved`.
    outside: AtomicI64,
    /// Number of bytes that large writes in progress may still take.
    reserved: AtomicI64,
    /// What was allocated here and must be freed in steps.
    pub(crate) discarded: Discarded,
}

impl Heap {
    /// Creates a heap with `arena_count` arenas, which holds no memory yet.
    ///
    /// # Panics
    /// Panics if there are more than 65,535 arenas.
    pub fn new(arena_count: usize) -> Self {
        assert!(arena_count <= usize::from(u16::MAX));
        Self {
            arenas: (0..arena_count).map(|index| Lock::new(Arena::new(index as u16))).collect(),
            source: Lock::new(PageSource::new()),
            runs: Lock::new(Runs::new()),
            idle: AtomicI64::new(0),
            outside: AtomicI64::new(0),
            reserved: AtomicI64::new(0),
            discarded: Discarded::new(),
        }
    }

    /// Returns the discarded bytes that must still be freed.
    #[inline]
    pub fn discarded_bytes(&self) -> i64 {
        self.discarded.bytes()
    }

    /// Returns the bytes of held pages: what slots of all classes take, and what was not returned
    /// yet.
    pub fn page_bytes(&self) -> u64 {
        self.source.lock().held_bytes()
    }

    /// Returns the number of arenas.
    pub fn arena_count(&self) -> usize {
        self.arenas.len()
    }

    /// Returns the bytes of these pages that no used slot takes, except for what arenas have not
    /// reported.
    #[inline]
    pub fn idle_bytes(&self) -> i64 {
        self.idle.load(Ordering::Relaxed)
    }

    /// Returns the memory of up to `count` empty pages to the system, and whether there were as
    /// many. Each takes a system call, of tens of microseconds.
    pub fn release_pages(&self, count: usize) -> bool {
        for _ in 0..count {
            if !self.source.lock().release_one() {
                return false;
            }
            self.note_idle(-(PAGE_LEN as i64));
        }
        true
    }

    #[inline]
    fn report(&self, arena: &mut Arena) {
        if arena.unreported.abs() > UNREPORTED_MAX {
            self.idle.fetch_add(std::mem::take(&mut arena.unreported), Ordering::Relaxed);
        }
    }

    /// Returns whether a slot's page has few other used slots, and other pages have room for them.
    /// Then the slot's owner should move to a new slot. The page is set aside with the first slot
    /// for which this returns true.
    ///
    /// # Safety
    /// `slot` must come from [`Heap::slot`] of this heap and must not have been freed.
    pub unsafe fn is_sparse(&self, slot: NonNull<u8>) -> bool {
        let page = page_of(slot);
        // SAFETY: a live slot's page is live, and its arena does not change.
        let index = unsafe { (*page).arena };
        let mut arena = self.arenas[usize::from(index)].lock();
        // SAFETY: as above; the arena's lock is held.
        unsafe { arena.set_aside_if_sparse(page) }
    }

    /// Moves the content of `slot` to another slot, frees the old one, and returns the new one.
    ///
    /// # Safety
    /// The conditions of [`Heap::free_slot`] apply.
    pub unsafe fn relocate(&self, arena: usize, slot: NonNull<u8>) -> NonNull<u8> {
        // SAFETY: by contract; both slots have `capacity` bytes.
        unsafe {
            let capacity = slot_capacity(slot);
            let moved = self.slot(arena, capacity);
            moved.copy_from_nonoverlapping(slot, capacity);
            self.free_slot(slot);
            moved
        }
    }

    /// Returns a slot of at least `len` bytes, which must not exceed [`SLOT_LEN_MAX`]. It is
    /// aligned to 8, and its content is undefined.
    #[inline]
    pub fn slot(&self, arena: usize, len: usize) -> NonNull<u8> {
        debug_assert!(len <= SLOT_LEN_MAX);
        let class = class_of(len);
        let mut arena = self.arenas[arena].lock();
        if arena.partial[class].is_null() {
            arena.add_page(class, &self.source);
        }
        let slot = arena.take_slot(class);
        self.report(&mut arena);
        slot
    }

    /// Frees a slot. Returns its length in bytes.
    ///
    /// # Safety
    /// `slot` must come from [`Heap::slot`] of this heap and must not be used again.
    #[inline]
    pub unsafe fn free_slot(&self, slot: NonNull<u8>) -> usize {
        let page = page_of(slot);
        // SAFETY: a live slot's page is live, and its class and arena do not
        // change while it has a slot in use.
        let (index, len) = unsafe { ((*page).arena, (*page).slot_len) };
        let mut arena = self.arenas[usize::from(index)].lock();
        // SAFETY: as above; the arena's lock is held.
        if unsafe { arena.put_slot(page, slot) } {
            arena.retire(page, &self.source);
        }
        self.report(&mut arena);
        len as usize
    }

    /// Returns the bytes of blocks that belong to no item: the received part of drafts, lent blocks
    /// that their owner has freed, and reserved bytes.
    #[inline]
    pub fn outside_bytes(&self) -> i64 {
        self.outside.load(Ordering::Relaxed)
    }

    /// Returns the same without the reserved bytes: those of existing blocks.
    pub fn outside_held(&self) -> i64 {
        self.outside_bytes() - self.reserved.load(Ordering::Relaxed)
    }

    /// Adds a change to the reserved bytes.
    pub fn note_reserved(&self, change: i64) {
        self.note_outside(change);
        self.reserved.fetch_add(change, Ordering::Relaxed);
    }

    /// Adds a change to the bytes of blocks that belong to no item.
    #[inline]
    pub fn note_outside(&self, change: i64) {
        self.outside.fetch_add(change, Ordering::Relaxed);
    }

    #[inline]
    fn note_idle(&self, change: i64) {
        if change != 0 {
            self.idle.fetch_add(change, Ordering::Relaxed);
        }
    }

    /// Returns the memory for structures that shrink. Any arena will do.
    pub fn memory(&self) -> Memory<'_> {
        Memory { heap: self, arena: 0 }
    }
}

/// The source of a structure's memory: one arena of a heap.
#[derive(Clone, Copy)]
pub struct Memory<'a> {
    /// The heap.
    pub heap: &'a Heap,
    /// The index of the arena, below [`Heap::arena_count`].
    pub arena: usize,
}

#[cfg(test)]
mod invariants;

#[cfg(test)]
mod tests {
    use super::arena::SPARE_PAGES_MAX;
    use super::*;

    #[test]
    fn slots_in_use_never_overlap() {
        let heap = Heap::new(2);
        let mut live: Vec<(NonNull<u8>, usize, u8)> = Vec::new();
        let mut state = 1u64;
        let steps = if cfg!(miri) { 600 } else { 60_000 };
        for step in 0..steps {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let pick = (state >> 33) as usize;
            // The heap grows for two thirds of the steps, and then shrinks.
            let grow =
                if step < steps / 3 * 2 { !pick.is_multiple_of(3) } else { pick.is_multiple_of(4) };
            if grow {
                let len = [24, 88, 100, 700, 7168][pick % 5];
                let slot = heap.slot(pick % 2, len);
                let mark = pick as u8;
                // SAFETY: the slot has at least `len` bytes.
                unsafe { slot.write_bytes(mark, len) };
                live.push((slot, len, mark));
            } else if !live.is_empty() {
                let (slot, len, mark) = live.swap_remove(pick % live.len());
                // SAFETY: the slot is live and was filled to `len`.
                unsafe {
                    let bytes = std::slice::from_raw_parts(slot.as_ptr(), len);
                    assert!(bytes.iter().all(|byte| *byte == mark));
                    assert_eq!(heap.free_slot(slot), block_len(len));
                }
            }
        }
        for (slot, _, _) in live {
            // SAFETY: the slot is live.
            unsafe { heap.free_slot(slot) };
        }
        while heap.release_pages(1) {}
        assert!(heap.page_bytes() <= (2 * SPARE_PAGES_MAX * PAGE_LEN) as u64);
    }
}
