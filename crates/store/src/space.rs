use crate::evict::{Queue, is_expired};
use crate::expiry::{Entry, Wheel, due_second};
use crate::item::Owned;
use crate::lines::Memory;
use crate::table::{Marks, Position, Table};
use smallvec::SmallVec;

/// Stale entries in a wheel, beyond as many as there are items with an expiry,
/// before it is built anew. Smaller rebuilds often, larger wastes memory when
/// keys with an expiry are deleted and set again in a loop.
const STALE_MAX: usize = 256;

/// What one shard holds of one database: its items, when they expire, and in
/// which order they are evicted. Takes next to nothing while empty.
pub(crate) struct Space {
    pub(crate) table: Table,
    pub(crate) wheel: Option<Box<Wheel>>,
    pub(crate) queue: Option<Box<Queue>>,
    /// Items with an expiry.
    pub(crate) volatile: usize,
    /// The bucket at which the eviction policy's clock hand stands.
    pub(crate) hand: u32,
    /// What [`Space::bytes`] was when last asked by [`Space::growth`].
    accounted: usize,
}

/// What upkeep needs from the store.
pub(crate) struct Upkeep<'a, H> {
    pub(crate) memory: Memory<'a>,
    pub(crate) now_millis: u64,
    /// Hashes keys as the tables do.
    pub(crate) hash_key: H,
}

impl<H> Upkeep<'_, H> {
    fn second(&self) -> u32 {
        (self.now_millis / 1000) as u32
    }
}

/// What became of an entry of the wheel.
pub(crate) enum Due {
    /// The item has expired: remove it.
    Expired(Position),
    /// Nothing to do, now.
    Nothing,
}

impl Space {
    pub(crate) const fn new() -> Self {
        Self { table: Table::new(), wheel: None, queue: None, volatile: 0, hand: 0, accounted: 0 }
    }

    /// Bytes it takes, without its items.
    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes()
            + self.wheel.as_ref().map_or(0, |wheel| wheel.bytes())
            + self.queue.as_ref().map_or(0, |queue| queue.bytes())
    }

    /// Whether it takes no memory.
    pub(crate) fn is_pristine(&self) -> bool {
        self.bytes() == 0
    }

    /// By how many bytes it grew since last asked, items not counted.
    #[inline]
    pub(crate) fn growth(&mut self) -> i64 {
        let bytes = self.bytes();
        bytes as i64 - std::mem::replace(&mut self.accounted, bytes) as i64
    }

    /// Notes that the expiry of the item at `position` changed. The second to
    /// look at the wheel at, if it may be sooner than before.
    pub(crate) fn set_expiry(
        &mut self,
        position: Position,
        hash: u32,
        (old, new): (Option<u64>, Option<u64>),
        upkeep: &Upkeep<'_, impl Fn(&[u8]) -> u32>,
    ) -> Option<u32> {
        if old.is_some() != new.is_some() {
            let marks = self.table.marks(position);
            self.table.set_marks(position, Marks { volatile: new.is_some(), ..marks });
            if new.is_some() { self.volatile += 1 } else { self.volatile -= 1 }
        }
        let second = due_second(new?);
        // An entry that comes up early finds the item alive and waits on.
        if old.is_some_and(|old| due_second(old) <= second) {
            return None;
        }
        let wheel = self.wheel.get_or_insert_with(|| Box::new(Wheel::new(upkeep.second())));
        wheel.add(upkeep.memory, Entry { hash, second });
        if wheel.len() > 2 * self.volatile + STALE_MAX {
            self.rebuild_wheel(upkeep);
        }
        Some(second)
    }

    /// Drops the entries of items that are gone, by making all anew.
    #[cold]
    fn rebuild_wheel(&mut self, upkeep: &Upkeep<'_, impl Fn(&[u8]) -> u32>) {
        let mut wheel = Box::new(Wheel::new(upkeep.second()));
        for bucket in 0..self.table.bucket_count() {
            for position in self.table.positions(bucket) {
                if let Some(expiry) = self.table.item(position).expiry() {
                    let hash = (upkeep.hash_key)(self.table.item(position).key());
                    wheel.add(upkeep.memory, Entry { hash, second: due_second(expiry) });
                }
            }
        }
        if let Some(mut old) = self.wheel.replace(wheel) {
            old.clear(upkeep.memory);
        }
    }

    /// Takes the next entry due off the wheel; `None` when there is none or
    /// `steps` are used up.
    pub(crate) fn next_due(
        &mut self,
        upkeep: &Upkeep<'_, impl Fn(&[u8]) -> u32>,
        steps: &mut u32,
    ) -> Option<Due> {
        let wheel = self.wheel.as_mut()?;
        let entry = wheel.pop_due(upkeep.memory, upkeep.second(), steps)?;
        let mut later: SmallVec<[Entry; 2]> = SmallVec::new();
        let expired = self.table.find(entry.hash, |item, marks| {
            if !marks.volatile || (upkeep.hash_key)(item.key()) != entry.hash {
                return false;
            }
            if !is_expired(item, upkeep.now_millis) {
                let second = item.expiry().map_or(u32::MAX, due_second);
                later.push(Entry { hash: entry.hash, second });
                return false;
            }
            true
        });
        if let Some(position) = expired {
            // Another item of the same hash has an entry of its own.
            return Some(Due::Expired(position));
        }
        later.into_iter().for_each(|entry| wheel.add(upkeep.memory, entry));
        Some(Due::Nothing)
    }

    /// Takes an item out of the books and the table.
    #[inline]
    pub(crate) fn remove(&mut self, memory: Memory<'_>, position: Position) -> Owned {
        if self.table.marks(position).volatile {
            self.volatile -= 1;
        }
        self.table.remove(memory, position)
    }

    /// Moves what lies on sparse pages of the items of a bucket, counting
    /// `visits` down and `moved` up.
    pub(crate) fn compact(
        &mut self,
        memory: Memory<'_>,
        bucket: usize,
        visits: &mut u32,
        moved: &mut u64,
    ) {
        if let Some(wheel) = &mut self.wheel {
            *moved += u64::from(wheel.compact(memory, bucket));
        }
        self.table.compact(memory, bucket, moved, |item, moved| {
            *visits = visits.saturating_sub(1);
            if let Some(boxed) = item.boxed_mut() {
                boxed.compact(memory, bucket, visits, moved);
            }
            if item.is_on_sparse_page(memory.heap) {
                item.relocate(memory.heap, memory.arena);
                *moved += 1;
            }
        });
    }

    /// Drops what it knows besides its items.
    pub(crate) fn forget(&mut self, memory: Memory<'_>) {
        if let Some(mut wheel) = self.wheel.take() {
            wheel.clear(memory);
        }
        self.queue = None;
    }

    /// Frees up to `count` items of a space that is no longer used; the bytes
    /// they took, and whether it is empty.
    pub(crate) fn free_some(&mut self, memory: Memory<'_>, count: usize) -> (usize, bool) {
        let mut freed = 0;
        for _ in 0..count {
            match self.table.pop(memory) {
                Some(item) => freed += item.release(memory.heap),
                None => return (freed, true),
            }
        }
        (freed, false)
    }
}
