use super::cut::Cut;
use super::policy::EvictionPolicy;
use super::quotas::Quotas;
use super::space::{Due, Space, Upkeep};
use keyway_memory::Memory;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// Items of flushed databases freed at a time: some ten microseconds.
const GARBAGE_STEP: usize = 128;
/// Items evicted from one shard before another's turn: more makes shards
/// uneven, less takes more locks per byte freed.
pub(crate) const VICTIMS_MAX: usize = 8;

/// Events in one shard since the store was made.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) expired: u64,
    /// Fields of hashes.
    pub(crate) expired_fields: u64,
    pub(crate) evicted: u64,
}

/// The part of a key that has expired.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gone {
    Whole,
    Fields,
}

/// One of the parts the key space is cut into by hash, with its own lock. Each
/// has a space per database, and as many more as there are quotas: what is
/// called a database here is the index of such a space.
pub(crate) struct Shard {
    pub(crate) counts: Counts,
    /// Number of changes of keys by requests.
    changes: Cell<u64>,
    /// Bytes of memory used.
    pub(crate) used: i64,
    /// Of `used`, what the store's sum does not know yet.
    pub(crate) unreported: i64,
    /// Numbers of values given so far.
    pub(crate) numbers: u64,
    /// State of a xorshift generator, never 0.
    random: u64,
    first: Space,
    others: Vec<Option<Box<Space>>>,
    /// Spaces of flushed databases, freed bit by bit.
    pub(super) garbage: Vec<Space>,
    /// Its progress with a snapshot.
    pub(super) cut: Cut,
    /// The bucket to be compacted next, and the index of its space.
    compacted: (u32, u32),
}

impl Shard {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            counts: Counts::default(),
            changes: Cell::new(0),
            used: 0,
            unreported: 0,
            numbers: 0,
            random: seed | 1,
            first: Space::new(),
            others: Vec::new(),
            garbage: Vec::new(),
            cut: Cut::None,
            compacted: (0, 0),
        }
    }

    /// The space of a database, made when there is none.
    #[inline]
    pub(crate) fn space(&mut self, database: usize) -> &mut Space {
        if database == 0 { &mut self.first } else { self.other_space(database) }
    }

    fn other_space(&mut self, database: usize) -> &mut Space {
        if self.others.len() < database {
            self.others.resize_with(database, || None);
        }
        self.others[database - 1].get_or_insert_with(|| Box::new(Space::new()))
    }

    /// The space of a database, if it ever was used.
    pub(crate) fn existing_space(&mut self, database: usize) -> Option<&mut Space> {
        match database.checked_sub(1) {
            None => Some(&mut self.first),
            Some(index) => self.others.get_mut(index)?.as_deref_mut(),
        }
    }

    /// As [`Shard::existing_space`], to read.
    pub(crate) fn space_to_read(&self, database: usize) -> Option<&Space> {
        match database.checked_sub(1) {
            None => Some(&self.first),
            Some(index) => self.others.get(index)?.as_deref(),
        }
    }

    /// Counts a change of a key. The caller holds the shard's lock.
    #[inline]
    pub(crate) fn count_change(&self) {
        self.changes.set(self.changes.get() + 1);
    }

    /// Number of changes.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.get()
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Takes a space that takes memory, with an empty one in its place.
    pub(super) fn take_space(&mut self, database: usize, quotas: &Quotas) -> Option<Space> {
        let space = self.existing_space(database)?;
        if space.is_pristine() {
            return None;
        }
        let (used, items) = (space.used, space.table.len() as i64);
        space.book(quotas, database, -used, -items);
        Some(std::mem::replace(space, Space::new()))
    }

    /// Frees some memory of flushed databases; the bytes freed.
    fn free_garbage(&mut self, memory: Memory<'_>) -> i64 {
        let Some(space) = self.garbage.last_mut() else { return 0 };
        let (freed, empty) = space.free_some(memory, GARBAGE_STEP);
        let mut freed = freed as i64;
        if empty && let Some(mut space) = self.garbage.pop() {
            space.forget(memory);
            freed -= space.growth();
        }
        freed
    }

    /// Moves items from sparse pages to others. `visits` counts down with each item that is
    /// examined. Returns whether the shard is done. The next call then begins anew.
    pub(crate) fn compact(
        &mut self,
        memory: Memory<'_>,
        visits: &mut u32,
        moved: &mut u64,
    ) -> bool {
        let (mut bucket, mut database) = self.compacted;
        while *visits > 0 {
            let Some(space) = self.existing_space(database as usize) else {
                database += 1;
                if database as usize >= self.database_count() {
                    self.compacted = (0, 0);
                    return true;
                }
                continue;
            };
            if bucket as usize >= space.table.bucket_count() {
                (bucket, database) = (0, database + 1);
                if database as usize >= self.database_count() {
                    self.compacted = (0, 0);
                    return true;
                }
                continue;
            }
            *visits -= 1;
            space.compact(memory, bucket as usize, visits, moved);
            bucket += 1;
        }
        self.compacted = (bucket, database);
        false
    }

    pub(super) fn database_count(&self) -> usize {
        1 + self.others.len()
    }

    /// Frees what expired or was flushed, in up to `steps` steps; the bytes
    /// freed. Sets `due` to the second at which to come again, 0 for at once.
    /// `gone` is told of each key that expired, with the index of its space, and
    /// of those of which only fields did, which it leaves as they are.
    pub(crate) fn tidy<H: Fn(&[u8]) -> u32>(
        &mut self,
        upkeep: &Upkeep<'_, H>,
        steps: &mut u32,
        due: &AtomicU32,
        mut gone: impl FnMut(usize, &[u8], Gone),
    ) -> i64 {
        let mut freed = 0;
        while *steps > 0 && !self.garbage.is_empty() {
            freed += self.free_garbage(upkeep.memory);
            *steps = steps.saturating_sub(GARBAGE_STEP as u32);
        }
        let mut next = if self.garbage.is_empty() { u32::MAX } else { 0 };
        let mut walk = if self.cut.is_none() { None } else { self.take_walk(&upkeep.door) };
        for database in 0..self.database_count() {
            let Some(space) = self.existing_space(database) else { continue };
            let (mut expired, freed_before) = (0, freed);
            while let Some(found) = space.next_due(upkeep, steps) {
                match found {
                    Due::Expired(position) => {
                        if let Some(walk) = &mut walk {
                            let hash = (upkeep.hash_key)(space.table.item(position).key());
                            walk.before_expiry(&space.table, database, hash, &upkeep.door);
                        }
                        let item = space.remove(upkeep.memory, position);
                        gone(database, item.item().key(), Gone::Whole);
                        freed += item.release(upkeep.memory.heap) as i64;
                        expired += 1;
                    }
                    Due::Fields(position) => {
                        gone(database, space.table.item(position).key(), Gone::Fields);
                    }
                    Due::Nothing => {}
                }
            }
            space.book(upkeep.quotas, database, freed_before - freed, -(expired as i64));
            freed -= space.growth();
            next = next.min(
                space.wheel.as_ref().and_then(|wheel| wheel.next_second()).unwrap_or(u32::MAX),
            );
            self.counts.expired += expired;
        }
        if let Some(walk) = walk {
            self.cut = Cut::Walked(walk);
        }
        due.store(next, Ordering::Relaxed);
        freed
    }

    /// Evicts items until `wanted` bytes are free or other shards should have
    /// their turn; the bytes freed. `gone` is told of each key evicted, with the
    /// index of its space.
    pub(crate) fn evict<H: Fn(&[u8]) -> u32>(
        &mut self,
        upkeep: &Upkeep<'_, H>,
        policy: EvictionPolicy,
        wanted: i64,
        gone: impl Fn(usize, &[u8]),
    ) -> i64 {
        let mut freed = self.free_garbage(upkeep.memory);
        if policy == EvictionPolicy::NoEviction {
            return freed;
        }
        let database_count = self.database_count();
        let start = self.random() as usize;
        for turn in 0..VICTIMS_MAX + database_count - 1 {
            if freed >= wanted {
                break;
            }
            let mut database = (start + turn) % database_count;
            if !upkeep.quotas.is_empty() {
                database = self.space_of_any_item().unwrap_or(database);
            }
            freed += self.evict_from(database, upkeep, policy, &gone).unwrap_or(0);
        }
        freed
    }

    /// The index of a space, by the number of items in it: of quotas many may
    /// have few.
    fn space_of_any_item(&mut self) -> Option<usize> {
        let len = |shard: &Self, index: usize| {
            shard.space_to_read(index).map_or(0, |space| space.table.len() as u64)
        };
        let total: u64 = (0..self.database_count()).map(|index| len(self, index)).sum();
        let mut skip = self.random() % total.max(1);
        (0..self.database_count()).find(|index| {
            let here = len(self, *index);
            let is_it = skip < here;
            skip = skip.saturating_sub(here);
            is_it
        })
    }

    /// Evicts an item of one space; the bytes freed, `None` without a victim.
    pub(crate) fn evict_from<H: Fn(&[u8]) -> u32>(
        &mut self,
        database: usize,
        upkeep: &Upkeep<'_, H>,
        policy: EvictionPolicy,
        gone: impl Fn(usize, &[u8]),
    ) -> Option<i64> {
        let random = self.random();
        let space = self.existing_space(database)?;
        let victim = space.victim(policy, random, upkeep)?;
        if !self.cut.is_none() {
            let space = self.existing_space(database)?;
            let hash = (upkeep.hash_key)(space.table.item(victim).key());
            self.before_change(database, hash, || upkeep.door);
        }
        let space = self.existing_space(database)?;
        let item = space.remove(upkeep.memory, victim);
        gone(database, item.item().key());
        let freed = item.release(upkeep.memory.heap) as i64;
        space.book(upkeep.quotas, database, -freed, -1);
        let freed = freed - space.growth();
        self.counts.evicted += 1;
        Some(freed)
    }

    /// Frees every item, before the shard is dropped.
    pub(crate) fn clear(&mut self, memory: Memory<'_>, quotas: &Quotas) {
        for database in 0..self.database_count() {
            let space = self.take_space(database, quotas);
            self.garbage.extend(space);
        }
        while !self.garbage.is_empty() {
            self.free_garbage(memory);
        }
    }
}
