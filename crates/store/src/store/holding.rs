//! Shards held for one request that tells its effect.

use super::core::Store;
use keyway_memory::Holder;
use smallvec::SmallVec;

/// The indices of some shards.
pub(crate) type ShardIndices = SmallVec<[u32; 8]>;

/// Shards that a request holds until its effect has its ticket: until this is dropped.
pub(crate) struct Telling<'s> {
    store: &'s Store,
    shards: ShardIndices,
    holder: Holder,
}

impl Store {
    /// Holds these shards for a request that tells its effect. A thread that holds shards
    /// already is in a transaction or a script, which holds what the request needs, and tells
    /// all of its effects as one: nothing is done then.
    pub(crate) fn begin_telling(&self, mut shards: ShardIndices) -> Option<Telling<'_>> {
        if Holder::is_holding() {
            return None;
        }
        let holder = Holder::of_thread();
        if shards.len() > 1 {
            shards.sort_unstable();
            shards.dedup();
        }
        let mut turn = None;
        while let Err(count) = self.hold_ascending(&shards, holder) {
            // As `Store::lock_indices` does for a request that meets a script's shard.
            shards[..count].iter().for_each(|index| self.lock_of(*index as usize).release(holder));
            turn.get_or_insert_with(|| self.scripting.lock());
            self.lock_of(shards[count] as usize).wait_until_released();
        }
        holder.set_holding(true);
        Some(Telling { store: self, shards, holder })
    }

    /// Holds shards in ascending order.
    ///
    /// # Errors
    /// How many are held, if another thread holds the next one.
    fn hold_ascending(&self, shards: &[u32], holder: Holder) -> Result<(), usize> {
        for (count, index) in shards.iter().enumerate() {
            let lock = self.lock_of(*index as usize);
            // Nobody waits for a request that holds nothing yet.
            if count == 0 {
                lock.hold(holder);
            } else if !lock.hold_unless_held(holder) {
                return Err(count);
            }
        }
        Ok(())
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.store.effects.close_unit();
        self.holder.set_holding(false);
        for index in &self.shards {
            self.store.lock_of(*index as usize).release(self.holder);
        }
    }
}
