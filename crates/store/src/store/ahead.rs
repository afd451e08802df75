use super::core::Store;
use crate::items::{Table, prefetch};

/// Where a key will be looked for.
#[derive(Clone, Copy, Debug)]
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
        let first_space = self.first_space(database);
        for step in [Table::prefetch, Table::prefetch_item] {
            for hint in hints {
                if let Some(mut shard) = self.try_shard(hint.shard as usize)
                    && let Some(space) = shard.existing_space(first_space + usize::from(hint.quota))
                {
                    step(&space.table, hint.hash);
                }
            }
        }
    }
}
