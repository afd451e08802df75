use super::cut::CutDoor;
use super::expiry::{Entry, Wheel, due_second};
use super::queue::Queue;
use super::quotas::Quotas;
use crate::items::{Marks, Owned, Position, Table, Times};
use keyway_memory::Memory;
use keyway_memory::nodes::{self, NodeBox};
use smallvec::SmallVec;
use std::mem;

/// Stale entries in a wheel, beyond as many as there are items with an expiry,
/// before it is built anew. Smaller rebuilds often, larger wastes memory when
/// keys with an expiry are deleted and set again in a loop.
const STALE_MAX: usize = 256;
/// Buckets that one more entry has looked at while the wheel is built anew: some
/// microseconds. It is done before the old one has grown by much.
const REBUILT_BUCKETS: usize = 16;
/// Steps of a walk over the table: reversed hashes.
const HASHES: u64 = 1 << 32;

/// The part of one database in one shard: its items, their expiry, and the order of their eviction.
/// It takes next to nothing while empty.
pub(crate) struct Space {
    pub(crate) table: Table,
    pub(crate) wheel: Option<NodeBox<Wheel>>,
    /// The wheel that is to follow, while it is built.
    rebuilt: Option<NodeBox<Rebuilt>>,
    pub(crate) queue: Option<NodeBox<Queue>>,
    /// Items with an expiry.
    pub(crate) volatile: usize,
    /// Items marked as volatile: those, and hashes of which fields expire.
    timed: usize,
    /// The bucket at which the eviction policy's clock hand stands.
    pub(crate) hand: u32,
    /// Bytes of its items; counted where it is that of a quota.
    pub(crate) used: i64,
    /// The result of [`Space::bytes`] at the latest call of [`Space::growth`].
    accounted: usize,
}

/// A wheel without the entries of items that are gone. It is built bit by bit, as
/// a shard may have very many items, and nobody takes entries from it meanwhile.
struct Rebuilt {
    wheel: Wheel,
    /// The reversed hash that the walk over the table is at. Items that it has passed are in the
    /// wheel.
    reversed: u64,
}

/// The means that upkeep needs from the store.
pub(crate) struct Upkeep<'a, H> {
    pub(crate) memory: Memory<'a>,
    pub(crate) now_millis: u64,
    pub(crate) quotas: &'a Quotas,
    /// Where items go before they are removed, for a snapshot.
    pub(crate) door: CutDoor<'a>,
    /// Hashes keys as the tables do.
    pub(crate) hash_key: H,
}

impl<H> Upkeep<'_, H> {
    fn second(&self) -> u32 {
        (self.now_millis / 1000) as u32
    }
}

/// The result for an entry of the wheel.
pub(crate) enum Due {
    /// The item has expired: remove it.
    Expired(Position),
    /// Fields of the item have: remove them, and schedule it anew.
    Fields(Position),
    /// Nothing to do, now.
    Nothing,
}

impl Space {
    pub(crate) const fn new() -> Self {
        Self {
            table: Table::new(),
            wheel: None,
            rebuilt: None,
            queue: None,
            volatile: 0,
            timed: 0,
            hand: 0,
            used: 0,
            accounted: 0,
        }
    }

    /// Bytes of its items, counted one by one.
    pub(crate) fn recount(&mut self) -> usize {
        let buckets = 0..self.table.bucket_count();
        let items: Vec<Position> =
            buckets.flat_map(|bucket| self.table.positions(bucket)).collect();
        let bytes = |position| self.table.with_item(position, |item| item.bytes());
        items.into_iter().map(bytes).sum()
    }

    /// Bytes it takes, without its items.
    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes()
            + self.wheel.as_ref().map_or(0, |wheel| wheel.bytes())
            + self
                .rebuilt
                .as_ref()
                .map_or(0, |it| nodes::boxed_len::<Rebuilt>() + it.wheel.heap_bytes())
            + self.queue.as_ref().map_or(0, |queue| queue.bytes())
    }

    /// Returns whether it takes no memory.
    pub(crate) fn is_pristine(&self) -> bool {
        self.bytes() == 0
    }

    /// By how many bytes it grew since last asked, items not counted.
    #[inline]
    pub(crate) fn growth(&mut self) -> i64 {
        let bytes = self.bytes();
        bytes as i64 - mem::replace(&mut self.accounted, bytes) as i64
    }

    /// Books a change of its items, as a space of that index in a locked shard.
    #[inline]
    pub(crate) fn book(&mut self, quotas: &Quotas, index: usize, bytes: i64, items: i64) {
        if !quotas.is_empty() && quotas.book(index, bytes, items) {
            self.used += bytes;
        }
    }

    /// Notes that the times of the item at `position` changed. The second to
    /// look at the wheel at, if it may be sooner than before.
    pub(crate) fn set_times(
        &mut self,
        position: Position,
        hash: u32,
        old: Times,
        new: Times,
        upkeep: &Upkeep<'_, impl Fn(&[u8]) -> u32>,
    ) -> Option<u32> {
        match (old.expiry.is_some(), new.expiry.is_some()) {
            (false, true) => self.volatile += 1,
            (true, false) => self.volatile -= 1,
            _ => {}
        }
        let (marks, first) = (self.table.marks(position), new.first());
        if marks.volatile != first.is_some() {
            self.table.set_marks(position, Marks { volatile: first.is_some(), ..marks });
            if first.is_some() { self.timed += 1 } else { self.timed -= 1 }
        }
        let second = due_second(first?);
        // An entry that comes up early finds the item alive and waits on.
        if old.first().is_some_and(|old| due_second(old) <= second) {
            return None;
        }
        self.schedule(Entry { hash, second }, upkeep);
        Some(second)
    }

    /// Has an item looked at, though nothing changed.
    pub(crate) fn schedule(&mut self, entry: Entry, upkeep: &Upkeep<'_, impl Fn(&[u8]) -> u32>) {
        let wheel = self.wheel.get_or_insert_with(|| nodes::boxed(Wheel::new(upkeep.second())));
        wheel.add(upkeep.memory, entry);
        if self.rebuilt.is_some() || wheel.len() > 2 * self.timed + STALE_MAX {
            self.rebuild_wheel(entry, upkeep);
        }
    }

    /// A step towards a wheel without the entries of items that are gone. One that
    /// was just added belongs to both wheels: the walk may have passed its item. The
    /// walk goes by reversed hashes, so that it misses nothing while the table
    /// grows and shrinks; an item that it meets twice has two entries.
    #[cold]
    fn rebuild_wheel(&mut self, added: Entry, upkeep: &Upkeep<'_, impl Fn(&[u8]) -> u32>) {
        let begin = || nodes::boxed(Rebuilt { wheel: Wheel::new(upkeep.second()), reversed: 0 });
        let rebuilt = self.rebuilt.get_or_insert_with(begin);
        rebuilt.wheel.add(upkeep.memory, added);
        for _ in 0..REBUILT_BUCKETS {
            if rebuilt.reversed >= HASHES || self.table.len() == 0 {
                return self.end_rebuild(upkeep.memory);
            }
            let bucket = self.table.bucket_of((rebuilt.reversed as u32).reverse_bits());
            for position in self.table.positions(bucket) {
                if !self.table.marks(position).volatile {
                    continue;
                }
                let item = self.table.item(position);
                if let Some(first) = item.times().first() {
                    let hash = (upkeep.hash_key)(item.key());
                    let entry = Entry { hash, second: due_second(first) };
                    rebuilt.wheel.add(upkeep.memory, entry);
                }
            }
            rebuilt.reversed = self.table.span(bucket).end;
        }
    }

    fn end_rebuild(&mut self, memory: Memory<'_>) {
        if let (Some(rebuilt), Some(wheel)) = (self.rebuilt.take(), &mut self.wheel) {
            let mut old = mem::replace(&mut **wheel, NodeBox::into_inner(rebuilt).wheel);
            old.clear(memory);
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
        let due = self.table.find(entry.hash, |item, marks| {
            if !marks.volatile || (upkeep.hash_key)(item.key()) != entry.hash {
                return false;
            }
            let Some(first) = item.times().first() else { return false };
            if first > upkeep.now_millis {
                later.push(Entry { hash: entry.hash, second: due_second(first) });
                return false;
            }
            true
        });
        if let Some(position) = due {
            // Another item of the same hash has an entry of its own.
            let has_expired = self.table.item(position).is_expired(upkeep.now_millis);
            return Some(if has_expired { Due::Expired(position) } else { Due::Fields(position) });
        }
        later.into_iter().for_each(|entry| wheel.add(upkeep.memory, entry));
        Some(Due::Nothing)
    }

    /// Takes an item out of the books and the table.
    #[inline]
    pub(crate) fn remove(&mut self, memory: Memory<'_>, position: Position) -> Owned {
        if self.table.marks(position).volatile {
            self.timed -= 1;
            if self.table.item(position).expiry().is_some() {
                self.volatile -= 1;
            }
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
        if bucket == 0
            && let Some(queue) = &mut self.queue
        {
            *moved += queue.relocate();
        }
        self.table.compact(memory, bucket, moved, |item, moved| {
            *visits = visits.saturating_sub(1);
            if let Some(boxed) = item.boxed_mut() {
                boxed.compact(memory, visits, moved);
                *moved += u64::from(item.relocate_boxed());
            }
            if item.is_on_sparse_page(memory.heap) {
                item.relocate(memory);
                *moved += 1;
            }
        });
    }

    /// Drops what it knows besides its items.
    pub(crate) fn forget(&mut self, memory: Memory<'_>) {
        if let Some(mut wheel) = self.wheel.take() {
            wheel.clear(memory);
        }
        if let Some(mut rebuilt) = self.rebuilt.take() {
            rebuilt.wheel.clear(memory);
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
                None if self.table.pop_overflow(memory) => {}
                None => return (freed, true),
            }
        }
        (freed, false)
    }
}
