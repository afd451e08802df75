//! Chooses the items to evict when memory is short.
//!
//! ```text
//!  new item ─► small queue (a tenth) ─┬─ used twice or more ─► main
//!       ▲                             └─ else evicted, its hash kept as a ghost
//!       └── but straight to main when its ghost is still known
//!  main: a clock hand over the table takes one use off each item it passes,
//!        and evicts what has none left
//! ```
//! This is S3-FIFO per shard, with its main queue walked in the order of the
//! table instead of the order of arrival: two bits per item and no list. The
//! other policies are the same hand with other rules:
//!
//! | policy | rule |
//! | --- | --- |
//! | `allkeys-s3fifo` | as drawn |
//! | `*-lru` | the hand takes all uses off at once: used since its last round or not |
//! | `*-lfu` | the hand takes one use off per round |
//! | `*-random` | any item |
//! | `volatile-ttl` | the item that the shard's expiry wheel has first |
//! | `volatile-*` | only items with an expiry |

use super::expiry::{Entry, due_second};
use super::policy::EvictionPolicy;
use super::queue::Queue;
use super::space::{Space, Upkeep};
use crate::items::{FREQUENCY_MAX, Item, Marks, Position};
use keyway_memory::nodes;
use smallvec::SmallVec;

/// Part of a shard's items in the small queue: one in this many. Fewer on
/// probation lets scans push out the working set later, more evicts new
/// favourites before their second use.
const SMALL_SHARE: usize = 10;
/// Uses after which an item on probation moves to main.
const PROMOTED_FROM: u8 = 2;

/// Entries of the small queue beyond the number of items, all of deleted
/// items, before some are dropped.
const STALE_MAX: usize = 64;

/// Hashes without an expiry, but with fields that have one, that `volatile-ttl`
/// passes on its way to an item to evict; beyond, any with an expiry will do.
const PASSED_MAX: usize = 64;

impl Space {
    /// Where a new item starts: with its ghost known or the policy without
    /// probation in main, else in the small queue.
    pub(crate) fn admit(&mut self, hash: u32, policy: EvictionPolicy) -> Marks {
        let marks = Self::admit_loaded(policy);
        if policy != EvictionPolicy::AllKeysS3Fifo {
            return marks;
        }
        let item_count = self.table.len();
        let queue = self.queue_mut();
        if queue.take_ghost(hash) {
            return marks;
        }
        queue.small.push_back(hash);
        let waiting_max =
            if queue.pressed { item_count + STALE_MAX } else { item_count / SMALL_SHARE + 1 };
        if queue.small.len() > waiting_max {
            self.graduate();
        }
        Marks { main: false, ..marks }
    }

    /// The marks of an item of a file: it starts in main, for it has been on probation before.
    pub(crate) fn admit_loaded(policy: EvictionPolicy) -> Marks {
        // One use, or the hand would take an item no one had time to read.
        let frequency = u8::from(policy != EvictionPolicy::AllKeysS3Fifo);
        Marks { frequency, main: true, volatile: false }
    }

    /// Lets the oldest item on probation into main, its uses kept. While
    /// nothing was ever evicted this keeps the queue short, and what goes to
    /// main now is judged there as the queue would have judged it; afterwards
    /// it only keeps entries of deleted items from piling up.
    fn graduate(&mut self) {
        if let Some((_, position)) = self.pop_small() {
            let marks = self.table.marks(position);
            self.table.set_marks(position, Marks { main: true, ..marks });
        }
    }

    /// The oldest item on probation, taken out of the queue.
    fn pop_small(&mut self) -> Option<(u32, Position)> {
        let queue = self.queue.as_mut()?;
        while let Some(hash) = queue.small.pop_front() {
            if let Some(position) = self.table.find(hash, |_, marks| !marks.main) {
                return Some((hash, position));
            }
        }
        None
    }

    /// The item to evict next under `policy`; `None` when there is none.
    pub(crate) fn victim(
        &mut self,
        policy: EvictionPolicy,
        random: u64,
        upkeep: &Upkeep<'_, impl Fn(&[u8]) -> u32>,
    ) -> Option<Position> {
        if self.table.len() == 0 || policy.only_volatile() && self.volatile == 0 {
            return None;
        }
        match policy {
            EvictionPolicy::NoEviction => None,
            EvictionPolicy::AllKeysS3Fifo => self.s3_fifo_victim(),
            EvictionPolicy::AllKeysRandom | EvictionPolicy::VolatileRandom => {
                self.hand = random as u32;
                self.sweep_for(policy, |_| 0)
            }
            EvictionPolicy::AllKeysLru | EvictionPolicy::VolatileLru => {
                self.sweep_for(policy, |uses| uses.min(1))
            }
            EvictionPolicy::AllKeysLfu | EvictionPolicy::VolatileLfu => {
                self.sweep_for(policy, |uses| uses)
            }
            EvictionPolicy::VolatileTtl => self.nearest_expiry(upkeep),
        }
    }

    fn queue_mut(&mut self) -> &mut Queue {
        self.queue.get_or_insert_with(|| nodes::boxed(Queue::new()))
    }

    fn s3_fifo_victim(&mut self) -> Option<Position> {
        self.queue_mut().pressed = true;
        loop {
            let waiting = self.queue.as_ref().map_or(0, |queue| queue.small.len());
            if waiting <= self.table.len() / SMALL_SHARE
                && let Some(position) = self.sweep(|marks| !marks.main, |_| true, |uses| uses)
            {
                return Some(position);
            }
            let Some((hash, position)) = self.pop_small() else {
                // Neither here nor there: an item on probation whose entry
                // stood for another of the same hash.
                return self.sweep(|_| false, |_| true, |_| 0);
            };
            let marks = self.table.marks(position);
            if marks.frequency >= PROMOTED_FROM {
                let promoted = Marks { frequency: 0, main: true, ..marks };
                self.table.set_marks(position, promoted);
                continue;
            }
            let item_count = self.table.len();
            self.queue_mut().add_ghost(hash, item_count);
            return Some(position);
        }
    }

    /// As [`Space::sweep`], over the items that a policy evicts.
    fn sweep_for(&mut self, policy: EvictionPolicy, clip: impl Fn(u8) -> u8) -> Option<Position> {
        if !policy.only_volatile() {
            return self.sweep(|_| false, |_| true, clip);
        }
        // The mark is also that of hashes of which only fields expire.
        let expires = |item: &Item<'_>| item.expiry().is_some();
        self.sweep(|marks| !marks.volatile, expires, clip)
    }

    /// Moves the hand to the next item that has no uses left, taking one use
    /// off each it passes, after `clip`; items to `skip` are not judged, and
    /// only one that `suits` is taken.
    fn sweep(
        &mut self,
        skip: impl Fn(Marks) -> bool,
        suits: impl Fn(&Item<'_>) -> bool,
        clip: impl Fn(u8) -> u8,
    ) -> Option<Position> {
        let bucket_count = self.table.bucket_count();
        let rounds = usize::from(FREQUENCY_MAX) + 1;
        for _ in 0..=rounds * bucket_count {
            let bucket = self.hand as usize % bucket_count;
            let positions: SmallVec<[Position; 16]> = self.table.positions(bucket).collect();
            for position in positions {
                let marks = self.table.marks(position);
                if skip(marks) {
                    continue;
                }
                let uses = clip(marks.frequency);
                if uses > 0 {
                    self.table.set_marks(position, Marks { frequency: uses - 1, ..marks });
                } else if suits(&self.table.item(position)) {
                    return Some(position);
                }
            }
            self.hand = bucket as u32 + 1;
        }
        None
    }

    fn nearest_expiry(&mut self, upkeep: &Upkeep<'_, impl Fn(&[u8]) -> u32>) -> Option<Position> {
        // Hashes of which only fields expire, to be put back.
        let mut passed: SmallVec<[Entry; 8]> = SmallVec::new();
        let found = self.pop_nearest_expiry(upkeep, &mut passed);
        if let Some(wheel) = self.wheel.as_mut() {
            passed.into_iter().for_each(|entry| wheel.add(upkeep.memory, entry));
        }
        // However many of these there are, an item with an expiry is found.
        found.or_else(|| self.sweep_for(EvictionPolicy::VolatileTtl, |_| 0))
    }

    fn pop_nearest_expiry(
        &mut self,
        upkeep: &Upkeep<'_, impl Fn(&[u8]) -> u32>,
        passed: &mut SmallVec<[Entry; 8]>,
    ) -> Option<Position> {
        while passed.len() < PASSED_MAX {
            let entry = self.wheel.as_mut()?.pop_nearest()?;
            let found = self.table.find(entry.hash, |item, marks| {
                marks.volatile && (upkeep.hash_key)(item.key()) == entry.hash
            });
            let Some(position) = found else { continue };
            let times = self.table.item(position).times();
            let Some(first) = times.first().map(due_second) else { continue };
            if times.expiry.is_none() {
                passed.push(Entry { hash: entry.hash, second: first });
            } else if first > entry.second {
                // Its expiry was moved: it waits for its new turn.
                let wheel = self.wheel.as_mut()?;
                wheel.add(upkeep.memory, Entry { hash: entry.hash, second: first });
            } else {
                return Some(position);
            }
        }
        None
    }
}
