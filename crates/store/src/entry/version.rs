use super::key::Entry;
use crate::items::{Item, Meta};
use crate::store::Store;

/// Low bits of a number that tell its shard.
const SHARD_BITS: u32 = 16;

/// The state that memcached keeps of an item besides its value.
///
/// A value has a number once somebody has asked for it, and loses it when it is
/// changed. Numbers are given by a count of the shard, with the shard's index
/// below, so that none is given twice in a store: neither to a value that comes
/// later, nor to one that is moved to another key.
impl Entry<'_> {
    /// The string or collection as it lies there, without counting anything.
    #[inline]
    pub(crate) fn look(&mut self) -> Option<Item<'_>> {
        self.any_item()
    }

    /// A number that no value has or had.
    pub(crate) fn next_cas(&mut self) -> u64 {
        self.shard.numbers += 1;
        self.shard.numbers << SHARD_BITS | self.shard_index as u64
    }

    /// The number of the value, which gets one if it has none; 0 without an item.
    pub(crate) fn cas(&mut self) -> u64 {
        let Some(meta) = self.any_item().map(|item| item.meta()) else { return 0 };
        if meta.cas != 0 {
            return meta.cas;
        }
        let cas = self.next_cas();
        self.set_meta(&Meta { cas, ..meta });
        cas
    }

    /// Sets the key to a string.
    #[inline]
    pub(crate) fn put(&mut self, value: &[u8], meta: &Meta) {
        self.set_with(value, meta);
    }

    /// Gives the item, if there is one, another meta with the value it has.
    pub(crate) fn set_meta(&mut self, meta: &Meta) {
        let Some(item) = self.any_item() else { return };
        let (old, value_len) = (item.meta(), item.value().len());
        if old != *meta {
            self.reshape(meta, value_len);
        }
    }

    /// Notes a use of the item that does not read it.
    pub(crate) fn touch(&mut self) {
        if let Some(position) = self.position {
            self.note_use(position);
        }
    }

    /// Notes a use of the item that reads it, without counting a hit.
    pub(crate) fn mark_read(&mut self) {
        if let Some(position) = self.position {
            self.note_read(position);
        }
    }
}

impl Store {
    /// Of a value's number, the count that it was given by.
    pub(crate) fn count_of_number(number: u64) -> u64 {
        number >> SHARD_BITS
    }

    /// The greatest count by which a value's number was given.
    pub fn numbers_max(&self) -> u64 {
        (0..self.shard_count()).map(|index| self.shard(index).numbers).max().unwrap_or_default()
    }

    /// Has the numbers of values that are given from now on be above those of a count.
    pub fn raise_numbers(&self, count: u64) {
        // One that no file should have would leave no numbers.
        let count = count.min(u64::MAX >> (SHARD_BITS + 1));
        for index in 0..self.shard_count() {
            let mut shard = self.shard(index);
            shard.numbers = shard.numbers.max(count);
        }
    }
}
