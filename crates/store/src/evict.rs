//! Which items go when memory is short.
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

use crate::expiry::{Entry, due_second};
use crate::items::{FREQUENCY_MAX, Item, Marks, Position};
use crate::space::{Space, Upkeep};
use keyway_memory::Deque;
use keyway_memory::nodes::{self, Node};
use smallvec::SmallVec;

/// What to do when a write finds memory used up: the names are Redis's
/// `maxmemory-policy`, and one of our own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EvictionPolicy {
    /// `noeviction`: refuse the write.
    NoEviction,
    /// `allkeys-s3fifo`: S3-FIFO over all keys.
    #[default]
    AllKeysS3Fifo,
    /// `allkeys-lru`: keys not used lately.
    AllKeysLru,
    /// `allkeys-lfu`: keys used rarely.
    AllKeysLfu,
    /// `allkeys-random`: any key.
    AllKeysRandom,
    /// `volatile-lru`: keys with an expiry, not used lately.
    VolatileLru,
    /// `volatile-lfu`: keys with an expiry, used rarely.
    VolatileLfu,
    /// `volatile-random`: any key with an expiry.
    VolatileRandom,
    /// `volatile-ttl`: keys that expire soon.
    VolatileTtl,
}

impl EvictionPolicy {
    const ALL: [EvictionPolicy; 9] = [
        Self::NoEviction,
        Self::AllKeysS3Fifo,
        Self::AllKeysLru,
        Self::AllKeysLfu,
        Self::AllKeysRandom,
        Self::VolatileLru,
        Self::VolatileLfu,
        Self::VolatileRandom,
        Self::VolatileTtl,
    ];

    /// The name in configuration and in CONFIG GET.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoEviction => "noeviction",
            Self::AllKeysS3Fifo => "allkeys-s3fifo",
            Self::AllKeysLru => "allkeys-lru",
            Self::AllKeysLfu => "allkeys-lfu",
            Self::AllKeysRandom => "allkeys-random",
            Self::VolatileLru => "volatile-lru",
            Self::VolatileLfu => "volatile-lfu",
            Self::VolatileRandom => "volatile-random",
            Self::VolatileTtl => "volatile-ttl",
        }
    }

    /// The policy of that name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name().eq_ignore_ascii_case(name))
    }

    /// Whether OBJECT FREQ tells something.
    pub(crate) fn is_lfu(self) -> bool {
        matches!(self, Self::AllKeysLfu | Self::VolatileLfu)
    }

    fn only_volatile(self) -> bool {
        use EvictionPolicy::{VolatileLfu, VolatileLru, VolatileRandom, VolatileTtl};
        matches!(self, VolatileLru | VolatileLfu | VolatileRandom | VolatileTtl)
    }
}

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

/// New items on probation, and the ghosts of those evicted from there.
pub(crate) struct Queue {
    /// Hashes, oldest first. An entry whose item left or moved to main does no
    /// harm: it is skipped when it comes up.
    small: Deque<u32>,
    /// Something was evicted: memory is full, and the queue decides.
    pressed: bool,
    /// Fingerprints of evicted items, placed by hash, 0 when empty. The next
    /// ghost in the same place replaces it, so a ghost lives for about as many
    /// evictions as there are places.
    ghosts: Node<u16>,
}

fn fingerprint(hash: u32) -> u16 {
    ((hash >> 16) as u16).max(1)
}

impl Queue {
    fn new() -> Self {
        Self { small: Deque::default(), pressed: false, ghosts: nodes::empty() }
    }

    pub(crate) fn bytes(&self) -> usize {
        nodes::boxed_len::<Self>() + self.small.bytes() + nodes::bytes(&self.ghosts)
    }

    /// Moves what lies on sparse pages; how much.
    pub(crate) fn relocate(&mut self) -> u64 {
        self.small.relocate() + u64::from(nodes::relocate(&mut self.ghosts))
    }

    fn ghost_place(&self, hash: u32) -> usize {
        hash as usize & (self.ghosts.len() - 1)
    }

    fn add_ghost(&mut self, hash: u32, item_count: usize) {
        if self.ghosts.len() < item_count / 2 || self.ghosts.is_empty() {
            self.ghosts = nodes::empty();
            self.ghosts.resize(item_count.next_power_of_two(), 0);
        }
        let place = self.ghost_place(hash);
        self.ghosts[place] = fingerprint(hash);
    }

    fn take_ghost(&mut self, hash: u32) -> bool {
        if self.ghosts.is_empty() {
            return false;
        }
        let place = self.ghost_place(hash);
        let known = self.ghosts[place] == fingerprint(hash);
        if known {
            self.ghosts[place] = 0;
        }
        known
    }
}

impl Space {
    /// Where a new item starts: with its ghost known or the policy without
    /// probation in main, else in the small queue.
    pub(crate) fn admit(&mut self, hash: u32, policy: EvictionPolicy) -> Marks {
        let marks = Marks { frequency: 0, main: true, volatile: false };
        if policy != EvictionPolicy::AllKeysS3Fifo {
            // One use, or the hand would take an item no one had time to read.
            return Marks { frequency: 1, ..marks };
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

/// Whether an item is past its expiry.
#[inline]
pub(crate) fn is_expired(item: &Item<'_>, now_millis: u64) -> bool {
    item.expiry().is_some_and(|expiry| expiry <= now_millis)
}

/// Whether an item is past its expiry, or every field of it is.
pub(crate) fn is_gone(item: &Item<'_>, now_millis: u64) -> bool {
    is_expired(item, now_millis) || item.encoding().is_timed() && item.is_spent(now_millis)
}
