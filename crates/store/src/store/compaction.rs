//! Keeps the memory of pages close to what is in use: when the sizes of values
//! change, slots of the old sizes are left free all over their pages, and only a
//! page that is empty can serve another size or go back to the system.
//!
//! Items are moved from sparse pages to fuller ones of the same slot length, a
//! few with each write that finds memory used up, and more in upkeep. They are
//! found by walking the tables, since a table is what must be told of the move;
//! one walk empties all sparse pages of its shards.
//!
//! Nodes of collections (`nodes.rs`) are moved with the items that they are part of.
//!
//! Idle memory in pages counts towards the bound on memory. A little of it is always there, because
//! a page of each slot length is filled at a time. So much is set aside. More of it makes the store
//! evict, but at most so much that moving items can catch up: random eviction empties no page.

use super::core::Store;
use crate::shards::EvictionPolicy;
use keyway_memory::nodes;
use std::sync::atomic::Ordering;

/// Items looked at by a write: some microseconds, and as much for each so many bytes
/// of it, which have the more items evicted, up to a few hundred microseconds.
const WRITE_VISITS: u32 = 64;
const BYTES_PER_WRITE: u64 = 2 << 10;
const WRITES_MAX: u64 = 16;
/// Empty pages a write returns to the system before that.
const WRITE_PAGES: usize = 1;
/// Items looked at by a round of upkeep: a few hundred microseconds.
const TICK_VISITS: u32 = 2000;

/// Part of the bound that is set aside for idle memory.
const RESERVED: i64 = 40;
/// Idle memory makes the store evict, up to five sixteenths of the bound. Less lets a store
/// of 16 MiB pass its bound: a quarter of it lies idle in pages that are just begun. More
/// would evict a third of the items where nothing can be moved. A store below 16 MiB would
/// evict most items for pages just begun, so its part falls to an eighth, and it may pass
/// its bound.
const COUNTED_SIXTEENTHS: i64 = 5;
const COUNTED_SMALL: i64 = 8;
const COUNTED_LESS: i64 = 11 << 20;
/// Without a bound, or below it, the part of all pages that may be idle.
const IDLE_SHARE: u64 = 8;
/// Part of the bound from which idle memory is looked for with more zeal, and
/// how much more.
const HASTE_FROM: i64 = 10;
const HASTE: usize = 4;
/// Idle memory nobody minds, in bytes.
const IDLE_MIN: i64 = 4 << 20;
/// A walk over all tables that moved fewer items than one in this many is not
/// repeated until more is idle.
const FRUITFUL: u64 = 64;
/// Rounds of upkeep after which a walk is tried again all the same.
const TRY_AGAIN_AFTER: u32 = 100;

/// Items to look at with a write of so many bytes.
pub(crate) fn visits_of(bytes: u64) -> u32 {
    WRITE_VISITS * (1 + bytes / BYTES_PER_WRITE).min(WRITES_MAX) as u32
}

impl Store {
    /// Bytes of idle memory that count towards the bound.
    #[inline]
    pub(crate) fn idle_counted(&self) -> i64 {
        let bound = self.config().memory_max as i64;
        let (counted_max, surplus) = match self.policy() {
            EvictionPolicy::NoEviction => (i64::MAX, 0),
            _ => {
                let counted_max = (bound - COUNTED_LESS).min(bound / 16 * COUNTED_SIXTEENTHS);
                (counted_max.max(bound / COUNTED_SMALL), self.resident.surplus())
            }
        };
        self.idle_bytes().clamp(self.idle_reserved(), counted_max) + surplus
    }

    /// Part of the memory bound that is set aside for idle memory, in bytes.
    #[inline]
    pub(crate) fn idle_reserved(&self) -> i64 {
        self.config().memory_max as i64 / RESERVED
    }

    /// Bytes of idle memory.
    #[inline]
    pub(crate) fn idle_bytes(&self) -> i64 {
        self.heap.idle_bytes() + self.resident.idle()
    }

    /// Looks at some items, if enough is idle; whether there is more to do.
    pub(crate) fn compact_if_worth(&self, visits: u32) -> bool {
        let bound = self.config().memory_max;
        let idle = self.idle_bytes();
        let allowed = match bound {
            0 => (self.heap.page_bytes() / IDLE_SHARE) as i64,
            bound => bound as i64 / RESERVED,
        };
        // Small stores have their share in pages that are just begun.
        let allowed = if bound == 0 { allowed.max(IDLE_MIN) } else { allowed };
        if idle <= allowed {
            return false;
        }
        // The more is idle, the more would be evicted for it.
        let haste = if bound != 0 && idle > bound as i64 / HASTE_FROM { HASTE } else { 1 };
        let pages = WRITE_PAGES * haste;
        // Pages that are empty already are to be had whatever there is to move.
        if self.heap.release_pages(pages) | nodes::heap().release_pages(pages) {
            return true;
        }
        if idle <= self.compaction.futile_up_to.load(Ordering::Relaxed) {
            return false;
        }
        self.compact(visits * haste as u32);
        true
    }

    /// A round of upkeep's share; whether there is more to do at once. After a
    /// walk over all tables that left as much idle as the one before, since what
    /// is moved may leave as much behind elsewhere, the next time is soon enough.
    pub(crate) fn compact_in_upkeep(&self) -> bool {
        let rounds = self.compaction.rounds.fetch_add(1, Ordering::Relaxed);
        if rounds.is_multiple_of(TRY_AGAIN_AFTER) {
            self.compaction.futile_up_to.store(0, Ordering::Relaxed);
        }
        self.compact_if_worth(TICK_VISITS)
            && !self.compaction.is_idling.swap(false, Ordering::Relaxed)
    }

    #[cold]
    fn compact(&self, visits: u32) {
        let walk = &self.compaction;
        let mut left = visits;
        let (mut moved, mut is_end) = (0, false);
        while left > 0 && !is_end {
            let turn = walk.turn.load(Ordering::Relaxed);
            let index = turn & (self.shard_count() - 1);
            let done = match self.shard_to_evict(index) {
                Some(mut shard) => shard.compact(self.memory_of(index), &mut left, &mut moved),
                None => true,
            };
            left = left.saturating_sub(1);
            if done {
                walk.turn.store(turn.wrapping_add(1), Ordering::Relaxed);
                is_end = index + 1 == self.shard_count();
            }
        }
        walk.visited.fetch_add(u64::from(visits - left), Ordering::Relaxed);
        walk.moved.fetch_add(moved, Ordering::Relaxed);
        if is_end {
            self.end_walk();
        }
    }

    /// Judges a walk over all tables.
    #[cold]
    fn end_walk(&self) {
        let walk = &self.compaction;
        let visited = walk.visited.swap(0, Ordering::Relaxed);
        let moved = walk.moved.swap(0, Ordering::Relaxed);
        let idle = self.idle_bytes();
        let before = walk.idle_before.swap(idle, Ordering::Relaxed);
        let is_idling = before - idle < idle / FRUITFUL as i64;
        walk.is_idling.store(is_idling, Ordering::Relaxed);
        let is_futile = moved * FRUITFUL < visited;
        let futile_up_to = if is_futile { idle + idle / 8 } else { 0 };
        walk.futile_up_to.store(futile_up_to, Ordering::Relaxed);
    }
}
