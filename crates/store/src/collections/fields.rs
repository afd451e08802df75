use super::means::Means;
use crate::items::{Encoding, Item, Marks, Meta, Owned, Position, Table};
use keyway_memory::Memory;
use keyway_memory::steps_of_block;

/// Number of items of a bucket that random picks reach with the same chance.
const RANDOM_ITEMS: u64 = 16;
/// Number of buckets that are compacted at a time. It takes some ten microseconds.
const COMPACTED_BUCKETS: usize = 128;
/// Number of cursors of a walk. A cursor is a hash with its bits reversed.
const HASHES: u64 = 1 << 32;
const MARKS: Marks = Marks { frequency: 0, main: true, volatile: false };

/// The fields of a large hash with their values, or the members of a large set, whose values are
/// empty. The table is like that of the key space, and as compact.
pub(crate) struct Fields {
    table: Table,
    /// Bytes of the items.
    item_bytes: usize,
    /// The bucket to be compacted next. The table may have fewer buckets by then.
    compacted: u32,
}

impl Fields {
    pub(crate) const fn new() -> Self {
        Self { table: Table::new(), item_bytes: 0, compacted: 0 }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes() + self.item_bytes
    }

    #[inline]
    fn find(&self, means: Means<'_>, key: &[u8]) -> Option<Position> {
        self.table.find(means.hash(key), |item, _| item.key() == key)
    }

    /// Returns the item of a field, if there is one.
    #[inline]
    pub(crate) fn get(&self, means: Means<'_>, key: &[u8]) -> Option<Item<'_>> {
        self.find(means, key).map(|position| self.table.item(position))
    }

    /// Sets a field. Returns whether the field is new.
    pub(crate) fn set(&mut self, means: Means<'_>, key: &[u8], value: &[u8]) -> bool {
        self.put(means, key, value).0
    }

    /// Sets a field with its expiry, in milliseconds since the Unix epoch. `None` means that the
    /// field never expires. Returns whether the field is new.
    pub(super) fn set_until(
        &mut self,
        means: Means<'_>,
        key: &[u8],
        value: &[u8],
        expiry: Option<u64>,
    ) -> bool {
        self.put_with(means, key, value, &Meta::new(Encoding::Text, expiry)).0
    }

    /// Sets a field. Returns whether the field is new, and its item.
    pub(crate) fn put(&mut self, means: Means<'_>, key: &[u8], value: &[u8]) -> (bool, Item<'_>) {
        self.put_with(means, key, value, &Meta::new(Encoding::Text, None))
    }

    #[inline]
    fn put_with(
        &mut self,
        means: Means<'_>,
        key: &[u8],
        value: &[u8],
        meta: &Meta,
    ) -> (bool, Item<'_>) {
        let create = || {
            let memory = means.memory();
            Owned::create(memory, meta, 0, key, value, value.len())
        };
        let found = self.find(means, key);
        let position = match found {
            Some(position) => {
                let mut change = 0;
                self.table.with_item(position, |item| {
                    if !item.overwrite(meta, 0, value) {
                        let new = create();
                        change = new.block_bytes() as i64;
                        change -=
                            std::mem::replace(item, new).free_block(means.memory().heap) as i64;
                    }
                });
                self.item_bytes = self.item_bytes.wrapping_add_signed(change as isize);
                position
            }
            None => self.add(means, create()),
        };
        (found.is_none(), self.table.item(position))
    }

    /// Overwrites the value of a field in place. Returns false if there is no such field, or if its
    /// block does not suit the value.
    pub(crate) fn overwrite(&mut self, means: Means<'_>, key: &[u8], value: &[u8]) -> bool {
        let meta = Meta::new(Encoding::Text, None);
        let found = self.find(means, key);
        let overwrite = |item: &mut Owned| item.overwrite(&meta, 0, value);
        found.is_some_and(|position| self.table.with_item(position, overwrite))
    }

    /// Sets the expiry of an existing field. Nothing happens if there is no such field.
    pub(super) fn set_expiry(&mut self, means: Means<'_>, key: &[u8], expiry: Option<u64>) {
        let Some(position) = self.find(means, key) else { return };
        let memory = means.memory();
        let change = self.table.with_item(position, |item| {
            let (meta, value_len) = (item.item().meta(), item.item().value().len());
            item.reshape(memory, &Meta { expiry, ..meta }, value_len)
        });
        self.item_bytes = self.item_bytes.wrapping_add_signed(change as isize);
    }

    /// Removes a field with this hash value that expires at `time`. Returns whether there was one.
    pub(super) fn remove_expired(
        &mut self,
        means: Means<'_>,
        hash: u32,
        time: u64,
        gone: &mut dyn FnMut(&[u8]),
    ) -> bool {
        let found = self
            .table
            .find(hash, |item, _| item.expiry() == Some(time) && means.hash(item.key()) == hash);
        let Some(position) = found else { return false };
        let item = self.table.remove(means.memory(), position);
        gone(item.item().key());
        self.item_bytes -= item.free_block(means.memory().heap);
        true
    }

    /// Adds an item. The table must not have its key.
    fn add(&mut self, means: Means<'_>, item: Owned) -> Position {
        self.item_bytes += item.block_bytes();
        let hash = means.hash(item.item().key());
        self.table.insert(means.memory(), hash, item, MARKS, |key| means.hash(key))
    }

    /// Removes a field. Returns whether it existed.
    pub(crate) fn remove(&mut self, means: Means<'_>, key: &[u8]) -> bool {
        let Some(position) = self.find(means, key) else { return false };
        let item = self.table.remove(means.memory(), position);
        self.item_bytes -= item.free_block(means.memory().heap);
        true
    }

    /// Visits all items in an arbitrary order. This is faster than [`Fields::iter`], but cannot be
    /// stopped.
    #[inline]
    pub(crate) fn visit<'s>(&'s self, visit: impl FnMut(Item<'s>)) {
        self.table.visit(visit);
    }

    /// Returns all items in an arbitrary order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Item<'_>> + '_ {
        self.iter_from(0)
    }

    /// Returns all items in an arbitrary order. The number `start` decides which item is the first.
    pub(crate) fn iter_from(&self, start: u64) -> impl Iterator<Item = Item<'_>> + '_ {
        let count = self.table.bucket_count();
        let first = (start % count.max(1) as u64) as usize;
        (first..count)
            .chain(0..first)
            .flat_map(|bucket| self.table.positions(bucket))
            .map(|position| self.table.item(position))
    }

    /// Returns a random item. All items have the same chance, except those of very full buckets.
    /// The table must not be empty.
    pub(crate) fn random(&self, mut random: impl FnMut() -> u64) -> Option<Item<'_>> {
        if self.len() == 0 {
            return None;
        }
        loop {
            let number = random();
            let bucket = (number >> 8) as usize % self.table.bucket_count();
            let nth = (number % RANDOM_ITEMS) as usize;
            let found = self.table.positions(bucket).nth(nth);
            if let Some(position) = found {
                return Some(self.table.item(position));
            }
        }
    }

    /// Visits `count` items from the cursor on, or a few more. Returns the next cursor, which is 0
    /// at the end. A walk visits every item that exists throughout, even if the table grows or
    /// shrinks meanwhile.
    pub(crate) fn scan<'s>(
        &'s self,
        cursor: u64,
        count: u64,
        mut visit: impl FnMut(Item<'s>),
    ) -> u64 {
        if self.len() == 0 {
            return 0;
        }
        let (mut reversed, mut seen) = (cursor, 0);
        while reversed < HASHES && seen < count {
            let bucket = self.table.bucket_of((reversed as u32).reverse_bits());
            for position in self.table.positions(bucket) {
                visit(self.table.item(position));
                seen += 1;
            }
            reversed = self.table.span(bucket).end;
        }
        if reversed < HASHES { reversed } else { 0 }
    }

    /// Has `relocate` move the items on sparse pages, see [`super::Boxed::compact`]. The call
    /// starts where the last one stopped. It ends after one look at every item, or when no `visits`
    /// are left.
    pub(crate) fn compact(
        &mut self,
        memory: Memory<'_>,
        visits: &mut u32,
        moved: &mut u64,
        mut relocate: impl FnMut(&mut Owned),
    ) {
        let count = self.table.bucket_count();
        for _ in 0..count.min(COMPACTED_BUCKETS) {
            if *visits == 0 {
                return;
            }
            let bucket = self.compacted as usize % count;
            self.compacted = bucket as u32 + 1;
            // An empty bucket counts as a visit too.
            *visits -= 1;
            self.table.compact(memory, bucket, moved, |item, moved| {
                *visits = visits.saturating_sub(1);
                if item.is_on_sparse_page(memory.heap) {
                    *moved += 1;
                    relocate(item);
                }
            });
        }
    }

    pub(crate) fn duplicate(&self, means: Means<'_>) -> Self {
        let mut copy = Self::new();
        for item in self.iter() {
            copy.add(means, copy_of(means, &item));
        }
        copy
    }

    /// Frees up to `steps` items. Returns whether no item is left.
    pub(crate) fn free_some(&mut self, memory: Memory<'_>, steps: &mut u32) -> bool {
        while *steps > 0 {
            let freed = match self.table.pop(memory) {
                Some(item) => item.free_block(memory.heap),
                None if self.table.pop_overflow(memory) => 0,
                None => return true,
            };
            self.item_bytes -= freed;
            *steps = steps.saturating_sub(1 + steps_of_block(freed));
        }
        false
    }
}

fn copy_of(means: Means<'_>, item: &Item<'_>) -> Owned {
    let (memory, value) = (means.memory(), item.value());
    let meta = Meta::new(Encoding::Text, item.expiry());
    Owned::create(memory, &meta, 0, item.key(), value, value.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::items::Hasher;
    use keyway_memory::Heap;

    #[test]
    fn compacting_looks_at_no_more_than_it_may_and_comes_to_everything_in_turn() {
        const FIELDS: usize = 5000;
        const VISITS: u32 = 64;
        let (heap, hasher) = (Heap::new(1), Hasher::new(0));
        let means = Means { heap: &heap, hasher: &hasher, arena: 0, now_millis: 0 };
        let mut fields = Fields::new();
        for field in 0..FIELDS {
            fields.set(means, format!("field:{field}").as_bytes(), b"value");
        }
        let count = fields.table.bucket_count();
        let (mut calls, mut cursor) = (0, 0);
        while cursor < count {
            let (mut visits, mut moved) = (VISITS, 0);
            fields.compact(means.memory(), &mut visits, &mut moved, |_| {});
            let next = fields.compacted as usize;
            assert!(next > cursor && next - cursor <= VISITS as usize, "from {cursor} to {next}");
            assert_eq!(visits, 0, "it goes on for as long as it may");
            (calls, cursor) = (calls + 1, next);
            assert!(calls <= FIELDS, "no end after {calls} calls");
            if count - cursor < VISITS as usize {
                break;
            }
        }
        // The last bucket of a call may have more items than visits are left.
        let items_max = 16;
        assert!(calls * (VISITS as usize + items_max) > FIELDS / 2, "{calls} calls were enough");
        while !fields.free_some(means.memory(), &mut { u32::MAX }) {}
    }

    #[test]
    fn compacting_without_visits_does_nothing() {
        let (heap, hasher) = (Heap::new(1), Hasher::new(0));
        let means = Means { heap: &heap, hasher: &hasher, arena: 0, now_millis: 0 };
        let mut fields = Fields::new();
        fields.set(means, b"field", b"value");
        fields.compact(means.memory(), &mut 0, &mut 0, |_| {});
        assert_eq!(fields.compacted, 0);
        while !fields.free_some(means.memory(), &mut { u32::MAX }) {}
    }
}
