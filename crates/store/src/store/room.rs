//! Makes room by evicting items, shard after shard, until a write fits.
//!
//! A script holds shards for as long as it runs. Eviction passes them over, because a write of
//! other keys must not wait for the script.

use super::compaction;
use super::core::Store;
use super::turn::Turn;
use crate::shards::{EvictionPolicy, Shard};
use keyway_base::KeyspaceEvents;
use keyway_command::Request;
use keyway_memory::SLOT_LEN_MAX;
use keyway_memory::nodes;
use keyway_memory::{Guard, Holder};
use std::cell::Cell;
use std::sync::atomic::Ordering;

/// Number of elements of discarded collections that are freed at a time while memory is short.
const DISCARDED_STEPS: u32 = 128;
/// Bytes that a write frees before it goes ahead even if memory is not below its bound yet, and the
/// number of further bytes for each byte of its own. Memory that is freed bit by bit leaves pages
/// half empty for long, so that one write would free megabytes and stand still meanwhile. The next
/// writes free the rest. If the number were smaller, the bound would be passed by more.
const FREED_LEN_MAX: i64 = 32 << 10;
const FREED_PER_BYTE: i64 = 16;
/// Largest number of elements of discarded collections that a write frees. They are in no cache. A
/// write frees one more for each `BYTES_PER_FREED` of its own bytes.
const FREED_STEPS_MAX: i64 = 3 * DISCARDED_STEPS as i64;
const BYTES_PER_FREED: i64 = 32;
/// Part of the bound by which memory may be above it when such a write goes ahead. A larger divisor
/// lets a write stand still for longer. A smaller one passes the bound by more.
const SLACK: i64 = 100;
/// Empty pages of 64 KiB that a write gives back at most while the store holds more than its
/// bound, and one more for so many bytes of its own. Each takes some microseconds. Fewer than
/// a write takes would let memory grow.
const RELEASED_MIN: u64 = 8;
const BYTES_PER_RELEASED: u64 = 32 << 10;
/// Part of the bound. When at least this much was deleted, small writes get more slack,
/// because most of what they use is idle memory. Idle memory is still counted in full.
const DELETED: i64 = 64;
/// In that case a store with a bound below this number of bytes gets a part of the difference as
/// more slack. Its pages that were just begun pass its bound by some percent. A larger number would
/// let larger stores pass their bounds.
const SMALL: i64 = 16 << 20;
const SMALL_SLACK: i64 = 32;
/// Length from which a write has its room reserved. The shorter writes that all workers make at
/// once take a few kilobytes each.
const RESERVED_FROM: u64 = 16 << 10;
/// Largest number of times that a write looks for idle memory before it is refused for that alone.
const COMPACTIONS_MAX: usize = 8;

/// A search for items to evict, shard after shard.
#[derive(Default)]
pub(crate) struct Search {
    /// Number of shards in a row without anything to evict.
    fruitless: usize,
    /// Number of those that another thread holds, and the index of the last of them.
    held: usize,
    held_last: usize,
}

impl Search {
    /// Notes the bytes, or items, that a shard has freed.
    pub(crate) fn note(&mut self, freed: u64) {
        if freed > 0 {
            *self = Self::default();
        } else {
            self.fruitless += 1;
        }
    }

    /// Notes a shard that another thread holds.
    pub(crate) fn note_held(&mut self, index: usize) {
        (self.held, self.held_last) = (self.held + 1, index);
        self.note(0);
    }
}

impl Store {
    /// Locks a shard to evict from. Returns `None` if another thread holds it. A thread that holds
    /// other shards does not wait.
    pub(crate) fn shard_to_evict(&self, index: usize) -> Option<Guard<'_, Shard>> {
        let lock = self.lock_of(index);
        if Holder::is_holding() { lock.try_lock_or_held() } else { lock.lock_unless_held() }
    }

    /// Returns whether to look at one more shard. If all were searched in vain, it returns true
    /// only if most of them could not be locked. It then waits for one of those.
    pub(crate) fn searches_on(&self, search: &mut Search) -> bool {
        if search.fruitless <= self.shard_count() {
            return true;
        }
        if search.held <= self.shard_count() / 2 || Holder::is_holding() {
            return false;
        }
        if self.scripting.wait_for_holder(self.lock_of(search.held_last)).is_err() {
            return false;
        }
        *search = Search::default();
        true
    }

    /// Evicts until `extra` bytes fit below the bound on memory. Returns whether they fit. The
    /// caller must not have locked a shard. Shards that its transaction holds may be evicted from.
    #[inline]
    pub(crate) fn make_room(&self, extra: u64, turn: Turn) -> bool {
        self.make_room_beside(extra, 0, turn)
    }

    /// Makes room as [`Store::make_room`] does. `reserved` bytes of `extra` were reserved before.
    #[inline]
    pub(crate) fn make_room_beside(&self, extra: u64, reserved: u64, turn: Turn) -> bool {
        if self.config.memory_max == 0 {
            return true;
        }
        let bound = self.bound();
        if extra > bound as u64 {
            return false;
        }
        let bound = bound - extra as i64 + reserved as i64;
        // This is at least as much as each comparison below counts.
        let idle = self.idle_bytes().max(self.idle_reserved()) + self.resident.surplus();
        if self.used_bytes() + self.gone() + idle <= bound {
            return true;
        }
        self.make_room_below(bound, extra, turn)
    }

    #[inline(never)]
    fn make_room_below(&self, bound: i64, extra: u64, turn: Turn) -> bool {
        let is_made = self.taken() <= bound || {
            self.compact_if_worth(compaction::visits_of(extra));
            self.evict_down_to(bound, extra as i64, turn)
        };
        if is_made && self.held() > bound {
            self.release_idle(bound, extra);
        }
        is_made
    }

    /// Returns the bound on memory without the bytes that shards may not have reported.
    #[inline]
    fn bound(&self) -> i64 {
        let unreported = self.unreported_max as u64 * self.shard_count() as u64;
        self.config.memory_max.saturating_sub(unreported) as i64
    }

    /// Makes room for a write of `len` bytes. The room of a large write is reserved before it is
    /// taken, so that other workers see it. Otherwise several such writes would pass the bound
    /// together.
    #[inline]
    pub(crate) fn reserve(&self, len: u64, turn: Turn) -> Option<Reserved<'_>> {
        let bytes = if self.config.memory_max == 0 { 0 } else { reserved_len(len) };
        let room = Reserved { store: self, bytes: Cell::new(bytes) };
        if bytes > 0 {
            self.heap.note_reserved(bytes as i64);
        }
        self.make_room_beside(len, bytes, turn).then_some(room)
    }

    /// As [`Store::reserve`], for a caller that has shards locked. Eviction passes over these, and
    /// waits for no other shard.
    pub(crate) fn reserve_beside_locked(&self, len: u64, turn: Turn) -> Option<Reserved<'_>> {
        let (holder, is_holding) = (Holder::of_thread(), Holder::is_holding());
        holder.set_holding(true);
        let room = self.reserve(len, turn);
        holder.set_holding(is_holding);
        room
    }

    /// Returns whether streamed SETs that announced this number of bytes may begin. A store that
    /// evicts makes room for them as they come. Another one frees what was discarded before: under
    /// fast writes of long values that may be most of its memory.
    pub(crate) fn has_room_to_announce(&self, announced: u64) -> bool {
        if self.config.memory_max == 0 || self.policy() != EvictionPolicy::NoEviction {
            return true;
        }
        let with = |taken: i64| taken.saturating_add_unsigned(announced) <= self.bound();
        let fits = || with(self.taken());
        // Without this, all of it would be freed at once for a value that does not fit anyway.
        if with(self.taken() - self.discarded_bytes()) {
            self.free_discarded_until(fits);
        }
        fits()
    }

    /// Returns whether a write of `len` bytes that must not be refused may go ahead without room.
    /// Memory is then a little above its bound.
    pub(crate) fn may_exceed(&self, len: u64) -> bool {
        let over_max = self.config.memory_max as i64 / SLACK;
        self.held().saturating_add_unsigned(len) <= self.bound() + over_max
    }

    /// Returns whether the store has taken more than its bound and a sixteenth of it. A replica
    /// evicts nothing, so only this shows that its primary has more than the replica may hold.
    pub fn is_over_full(&self) -> bool {
        self.is_over_full_with(0)
    }

    /// Returns the same as [`Store::is_over_full`] after `len` more bytes.
    pub fn is_over_full_with(&self, len: u64) -> bool {
        self.config.memory_max != 0
            && self.held().saturating_add_unsigned(len)
                > (self.config.memory_max + self.config.memory_max / 16) as i64
    }

    /// Returns the bytes that shards have reported, the bytes that are still to be freed, those
    /// that only shared replies use, and the counted part of idle memory.
    #[inline]
    fn taken(&self) -> i64 {
        self.used_bytes() + self.gone() + self.idle_counted()
    }

    /// Returns the bytes taken with all idle memory. A store that evicts counts only a part of the
    /// idle memory, because eviction does not help against the rest.
    #[inline]
    fn held(&self) -> i64 {
        self.used_bytes() + self.gone() + self.idle_bytes()
    }

    /// Gives back idle memory until the store holds no more than `bound`. A write of `extra` bytes
    /// gives back more than it takes, but does not stand still for all that others left.
    #[cold]
    fn release_idle(&self, bound: i64, extra: u64) {
        for _ in 0..RELEASED_MIN + extra / BYTES_PER_RELEASED {
            if self.held() <= bound {
                return;
            }
            if !(self.heap.release_pages(1) | nodes::heap().release_pages(1)) {
                self.compact_if_worth(compaction::visits_of(extra));
                return;
            }
        }
    }

    /// Returns the bytes that belong to no item: those still to be freed, shared, in streamed SETs,
    /// reserved, or of effects.
    #[inline]
    fn gone(&self) -> i64 {
        self.discarded_bytes() + self.heap.outside_bytes() + self.effects.held() as i64
    }

    /// Returns the bytes that are still to be freed: those of this store, and the long nodes of all
    /// stores.
    #[inline]
    fn discarded_bytes(&self) -> i64 {
        self.heap.discarded_bytes() + nodes::heap().discarded_bytes()
    }

    /// Frees up to `steps` discarded elements. Returns whether some are left.
    pub(crate) fn free_discarded(&self, steps: &mut u32) -> bool {
        self.heap.free_discarded(steps) | nodes::heap().free_discarded(steps)
    }

    /// Frees what was discarded and gives empty pages back, until `extra` bytes fit or nothing of
    /// that is left. Upkeep does this in steps, but it does not run inside a transaction or a
    /// script, where one command after the other may discard a large value.
    #[inline]
    pub(crate) fn free_unused(&self, extra: u64) {
        if self.config.memory_max != 0 && self.lacks(extra) {
            self.free_until_fits(extra);
        }
    }

    #[cold]
    fn free_until_fits(&self, extra: u64) {
        self.free_discarded_until(|| !self.lacks(extra));
        while self.lacks(extra) && self.idle_bytes() > self.idle_reserved() {
            if !(self.heap.release_pages(1) | nodes::heap().release_pages(1)) {
                break;
            }
        }
    }

    /// Frees what was discarded until `fits`, or until nothing of it is left.
    fn free_discarded_until(&self, fits: impl Fn() -> bool) {
        while !fits() {
            let discarded = self.discarded_bytes();
            self.free_discarded(&mut { DISCARDED_STEPS });
            // Another thread may be about to free the last of it.
            if self.discarded_bytes() == discarded {
                return;
            }
        }
    }

    /// Returns whether memory, including idle memory, would be above its bound with `extra` bytes
    /// more.
    #[inline]
    fn lacks(&self, extra: u64) -> bool {
        self.held().saturating_add_unsigned(extra) > self.bound()
    }

    /// Evicts until no more than `bound` is taken, for a write of `extra` bytes. Returns whether
    /// the write may go ahead.
    #[cold]
    fn evict_down_to(&self, bound: i64, extra: i64, turn: Turn) -> bool {
        let mut search = Search::default();
        let mut freed_max = FREED_LEN_MAX + FREED_PER_BYTE * extra;
        let mut steps = FREED_STEPS_MAX + extra / BYTES_PER_FREED;
        self.resident.look();
        // A replica holds what its primary holds.
        let policy = match self.is_replica() {
            true => EvictionPolicy::NoEviction,
            false => self.policy(),
        };
        while self.searches_on(&mut search) {
            let wanted = self.taken() - bound;
            if wanted <= 0 {
                return true;
            }
            if (freed_max <= 0 || steps <= 0) && self.is_near(bound) {
                return true;
            }
            // Discarded collections go first.
            let discarded = self.discarded_bytes();
            if self.free_discarded(&mut { DISCARDED_STEPS }) {
                freed_max -= discarded - self.discarded_bytes();
                steps -= i64::from(DISCARDED_STEPS);
                continue;
            }
            let index = self.evict_turn.fetch_add(1, Ordering::Relaxed) & (self.shard_count() - 1);
            // Without eviction, only memory of flushed databases can be had.
            let flushed = self.due_of(index).load(Ordering::Relaxed) == 0;
            if policy == EvictionPolicy::NoEviction && !flushed {
                search.note(0);
                continue;
            }
            let Some(mut shard) = self.shard_to_evict(index) else {
                search.note_held(index);
                continue;
            };
            let gone = |space_index: usize, key: &[u8]| {
                self.note_event_at(turn, space_index, KeyspaceEvents::EVICTED, "evicted", key);
            };
            let freed = shard.evict(&self.upkeep(index, turn), policy, wanted, gone);
            self.charge(&mut shard, -freed);
            freed_max -= freed;
            search.note(freed as u64);
            if self.config.heeds_resident {
                let counted = || self.counted();
                self.resident.note_evicted(freed.max(0) as u64, &self.config, counted);
            }
        }
        self.fits_beside_idle(bound, extra)
    }

    /// Returns whether memory is so little above `bound` that a write may go ahead before its
    /// evicted bytes are freed. Eviction does not help against idle memory.
    fn is_near(&self, bound: i64) -> bool {
        let least = self.used_bytes() + self.gone() + self.idle_reserved();
        least <= bound + self.config.memory_max as i64 / SLACK
    }

    /// Returns whether a write fits below `bound` with nothing left to evict. A small write may use
    /// idle memory, so it fits while pages hold a little more than the bound. A large write takes
    /// memory of its own.
    fn fits_beside_idle(&self, bound: i64, extra: i64) -> bool {
        let whole = self.config.memory_max as i64;
        for _ in 0..COMPACTIONS_MAX {
            let least = self.used_bytes() + self.gone();
            // After large deletions most of the room is idle memory on partial pages.
            let has_deleted = least + self.idle_reserved() + whole / DELETED <= bound;
            let slack = match (extra as usize, has_deleted) {
                (0..=SLOT_LEN_MAX, true) => {
                    3 * whole / SLACK / 2 + (SMALL - whole).max(0) / SMALL_SLACK
                }
                (0..=SLOT_LEN_MAX, false) => whole / SLACK,
                _ => 0,
            };
            if least + self.idle_reserved() > bound {
                return false;
            }
            if least + self.idle_bytes() <= bound + slack {
                return true;
            }
            // Only idle memory is in the way.
            if !self.compact_if_worth(compaction::visits_of(extra as u64)) {
                return false;
            }
            self.resident.look();
        }
        false
    }
}

/// Returns the bytes of a request's arguments.
#[inline]
pub(crate) fn args_len(request: &Request<'_>) -> u64 {
    request.args.ranges().iter().map(|range| range.len() as u64).sum()
}

/// Returns the bytes to reserve for a write of `len` bytes. A small write reserves none, because it
/// is done before other workers notice it.
#[inline]
pub(crate) fn reserved_len(len: u64) -> u64 {
    if len < RESERVED_FROM { 0 } else { len }
}

/// The reserved room of a write in progress. A drop gives it back.
pub(crate) struct Reserved<'s> {
    store: &'s Store,
    bytes: Cell<u64>,
}

impl<'s> Reserved<'s> {
    /// Returns a reservation of no bytes.
    pub(crate) fn nothing(store: &'s Store) -> Self {
        Self { store, bytes: Cell::new(0) }
    }

    /// Gives back up to `bytes` bytes of the room. They were used, or are not needed.
    #[inline]
    pub(crate) fn release(&self, bytes: u64) {
        let bytes = bytes.min(self.bytes.get());
        if bytes > 0 {
            self.bytes.set(self.bytes.get() - bytes);
            self.store.heap.note_reserved(-(bytes as i64));
        }
    }
}

impl Drop for Reserved<'_> {
    #[inline]
    fn drop(&mut self) {
        self.release(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Context, StoreConfig};
    use keyway_base::Clock;
    use keyway_resp::Protocol;
    use std::sync::mpsc;
    use std::time::Duration;

    const WATCHDOG: Duration = Duration::from_secs(20);
    const BOUND: u64 = 4 << 20;

    fn turn() -> Turn {
        let clock = Clock::default();
        Turn::of(Context { database: 0, clock, protocol: Protocol::default(), worker: 0 })
    }

    fn full_store() -> Store {
        let policy = EvictionPolicy::from_name("allkeys-lru").expect("a policy");
        let config =
            StoreConfig { memory_max: BOUND, policy, shards: Some(16), ..StoreConfig::default() };
        let store = Store::new(config);
        for key in 0..40_000 {
            assert!(store.make_room(200, turn()));
            store.set(turn(), format!("key:{key}").as_bytes(), &[b'v'; 200], 0);
        }
        assert!(store.stats().evicted > 1000);
        store
    }

    /// Long values that were replaced wait to be freed, in steps. A streamed SET is not refused for
    /// them.
    #[test]
    fn an_announced_value_has_the_room_of_what_was_replaced() {
        let policy = EvictionPolicy::NoEviction;
        let config = StoreConfig { memory_max: 64 << 20, policy, ..StoreConfig::default() };
        let store = Store::new(config);
        let value = vec![b'v'; 5 << 20];
        for nth in 0..11 {
            // A value of the same length takes the place of the one before.
            store.set(turn(), b"long", &value[..(4 << 20) + (nth << 16)], 0);
        }
        let discarded = store.discarded_bytes();
        assert!(discarded >= 40 << 20, "{discarded}");
        assert!(store.has_room_to_announce(32 << 20));
        assert!(store.discarded_bytes() < discarded, "as much was freed as it lacked");
        assert!(!store.has_room_to_announce(62 << 20), "the value that is there stays");
    }

    #[test]
    fn who_evicts_does_not_wait_for_a_shard_that_a_script_holds() {
        let store = full_store();
        let holder = Holder::of_thread();
        let held = [3, 7];
        held.iter().for_each(|index| store.lock_of(*index).hold(holder));
        let (done, is_done) = mpsc::channel();
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                let keys = (0..20_000).map(|key| format!("other:{key}"));
                for key in keys.filter(|key| !held.contains(&store.locate(key.as_bytes()).1)) {
                    assert!(store.make_room(200, turn()));
                    store.set(turn(), key.as_bytes(), &[b'v'; 200], 0);
                    _ = store.compact_in_upkeep();
                }
                _ = done.send(());
            });
            let result = is_done.recv_timeout(WATCHDOG);
            held.iter().for_each(|index| store.lock_of(*index).release(holder));
            result
        });
        assert_eq!(result, Ok(()), "writes of other keys stood still");
    }

    #[test]
    fn when_all_is_held_a_write_waits_and_is_not_refused() {
        let store = full_store();
        let holder = Holder::of_thread();
        (0..16).for_each(|index| store.lock_of(index).hold(holder));
        let (done, is_done) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| done.send(store.make_room(BOUND / 2, turn())));
            let early = is_done.recv_timeout(Duration::from_millis(50));
            (0..16).for_each(|index| store.lock_of(index).release(holder));
            assert!(early.is_err(), "there was nothing to evict: {early:?}");
            assert_eq!(is_done.recv_timeout(WATCHDOG), Ok(true));
        });
    }
}
