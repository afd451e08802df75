use super::core::Store;
use crate::items::{Table, prefetch};

/// The share of the bound that tables may take before there are keys.
const EXPECTED_SHARE: u64 = 16;
/// Bytes of a table for each item, with some to spare.
const EXPECTED_BYTES: u64 = 10;

/// Where a key will be looked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyHint {
    hash: u32,
    shard: u16,
    quota: u16,
}

impl Store {
    /// Where `key` will be looked for.
    #[inline]
    pub fn hint(&self, key: &[u8]) -> KeyHint {
        let (hash, shard) = self.locate(key);
        prefetch(self.shard_address(shard));
        KeyHint { hash, shard: shard as u16, quota: self.quota_of(key) as u16 }
    }

    /// Hints to the processor that these keys are about to be used. A key at
    /// random costs two reads from memory, one behind the other; those of many
    /// keys overlap. Changes nothing, and passes over shards in use.
    pub fn prefetch(&self, database: u32, hints: &[KeyHint]) {
        for step in [Table::prefetch, Table::prefetch_item] {
            self.prefetch_by(database, hints, step);
        }
    }

    /// The same for keys that are about to be made.
    pub(crate) fn prefetch_buckets(&self, database: u32, hints: &[KeyHint]) {
        self.prefetch_by(database, hints, Table::prefetch);
    }

    /// Prepares an empty database for so many keys. A file may claim any number of them: this takes
    /// 16 KiB for each shard at most, and a small part of the store's bound.
    pub(crate) fn expect_keys(&self, database: u32, keys: u64) {
        let bound = self.config().memory_max / EXPECTED_SHARE;
        let each = keys / self.shard_count() as u64;
        let takes = keys.saturating_mul(EXPECTED_BYTES);
        if !self.quotas.is_empty() || bound > 0 && takes > bound {
            return;
        }
        for index in 0..self.shard_count() {
            let memory = self.memory_of(index);
            let mut shard = self.shard(index);
            let space = shard.space(self.first_space(database));
            space.table.expect(memory, usize::try_from(each).unwrap_or(usize::MAX));
            let growth = space.growth();
            self.charge(&mut shard, growth);
        }
    }

    #[inline]
    fn prefetch_by(&self, database: u32, hints: &[KeyHint], step: impl Fn(&Table, u32)) {
        let first_space = self.first_space(database);
        for hint in hints {
            if let Some(mut shard) = self.try_shard(hint.shard as usize)
                && let Some(space) = shard.existing_space(first_space + usize::from(hint.quota))
            {
                step(&space.table, hint.hash);
            }
        }
    }
}

impl KeyHint {
    /// The part of the key's hash that tables use, and the index of its shard.
    pub(crate) fn place(self) -> (u32, usize) {
        (self.hash, self.shard.into())
    }
}
