//! Several shards locked at once.

use super::core::Store;
use super::turn::Turn;
use crate::collections::{Means, View, WrongType};
use crate::items::{Item, Table};
use crate::shards::{Shard, Space};
use keyway_memory::{Guard, Holder};
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

impl Store {
    /// Locks the shards of all `keys`, always in the same order, so that two
    /// requests never wait for each other.
    pub(crate) fn lock_keys<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> Locked<'_> {
        let mut indices: SmallVec<[u32; 16]> =
            keys.map(|key| self.shard_of(self.hash(key)) as u32).collect();
        indices.sort_unstable();
        indices.dedup();
        self.lock_indices(indices, None)
    }

    /// Locks every shard.
    pub(crate) fn lock_all(&self) -> Locked<'_> {
        let indices: SmallVec<[u32; 16]> = (0..self.shard_count() as u32).collect();
        // With so many, there would always be one that some script holds.
        let turn = (!Holder::is_holding()).then(|| self.scripting.lock());
        self.lock_indices(indices, turn)
    }

    /// Locks these shards, in ascending order. A script holds shards in any
    /// order: who meets one of them lets go of all others and begins again, the
    /// next time with no script beside it.
    fn lock_indices<'a>(
        &'a self,
        indices: SmallVec<[u32; 16]>,
        mut turn: Option<Guard<'a, ()>>,
    ) -> Locked<'a> {
        let mut guards = SmallVec::with_capacity(indices.len());
        'again: loop {
            for index in &indices {
                let lock = self.lock_of(*index as usize);
                #[cfg(debug_assertions)]
                assert!(
                    !Holder::is_holding() || lock.is_held(),
                    "a transaction holds all it needs"
                );
                // Nobody waits for who has none yet.
                let guard = match guards.is_empty() {
                    true => Some(lock.lock()),
                    false => lock.lock_unless_held(),
                };
                let Some(guard) = guard else {
                    guards.clear();
                    turn.get_or_insert_with(|| self.scripting.lock());
                    lock.wait_until_released();
                    continue 'again;
                };
                guards.push(guard);
            }
            return Locked { store: self, indices, guards };
        }
    }

    /// Exchanges the spaces of two databases, with `locked` all shards.
    pub(crate) fn swap_databases(&self, _locked: &Locked<'_>, one: u32, other: u32) {
        let (one, other) = (&self.first_spaces[one as usize], &self.first_spaces[other as usize]);
        let first = one.load(Ordering::Relaxed);
        one.store(other.load(Ordering::Relaxed), Ordering::Relaxed);
        other.store(first, Ordering::Relaxed);
    }
}

/// Several shards locked at once.
pub(crate) struct Locked<'a> {
    store: &'a Store,
    /// Ascending.
    indices: SmallVec<[u32; 16]>,
    /// Of the shards in `indices`, in the same order.
    guards: SmallVec<[Guard<'a, Shard>; 16]>,
}

impl Locked<'_> {
    pub(crate) fn store(&self) -> &Store {
        self.store
    }

    /// Returns whether a key of a locked shard is there; with `now_millis`, and has not
    /// expired.
    pub(crate) fn contains(&self, database: u32, key: &[u8], now_millis: Option<u64>) -> bool {
        let (hash, index) = self.store.locate(key);
        let Ok(at) = self.indices.binary_search(&(index as u32)) else { return false };
        let space = self.guards[at].space_to_read(self.store.space_index(database, key));
        let is_live = |space: &Space| {
            let position = space.table.find(hash, |item, _| item.key() == key)?;
            let item = space.table.item(position);
            Some(!now_millis.is_some_and(|now| item.is_gone(now)))
        };
        space.and_then(is_live).unwrap_or(false)
    }

    /// The store, and the shard of a key's hash with its index.
    ///
    /// # Panics
    /// When it is not locked: callers pass the keys they locked.
    pub(crate) fn shard_mut(&mut self, hash: u64) -> (&Store, &mut Shard, usize) {
        let index = self.store.shard_of(hash);
        let at = self.indices.binary_search(&(index as u32));
        (self.store, &mut self.guards[at.expect("the key's shard is locked")], index)
    }

    /// The collections of keys that were locked, all at once: nothing is
    /// removed or counted here.
    pub(crate) fn look_at<'b, V: View<'b>>(
        &'b self,
        turn: Turn,
        key: &[u8],
    ) -> Result<Option<V>, WrongType> {
        match self.item(turn, key) {
            None => Ok(None),
            Some((item, means)) if item.encoding().kind() == V::KIND => {
                Ok(Some(V::of(item, means)))
            }
            Some(_) => Err(WrongType),
        }
    }

    /// As [`Locked::look_at`], of a string; none if it is no string.
    pub(crate) fn text(&self, turn: Turn, key: &[u8]) -> Option<&[u8]> {
        let (item, _) = self.item(turn, key)?;
        item.encoding().is_text().then(|| item.value())
    }

    fn item(&self, turn: Turn, key: &[u8]) -> Option<(Item<'_>, Means<'_>)> {
        let (hash, index) = self.store.locate(key);
        let at = self.indices.binary_search(&(index as u32));
        let shard: &Shard = &self.guards[at.expect("the key's shard is locked")];
        let means = self.store.means(index, turn.now_millis);
        let space = shard.space_to_read(self.store.space_index(turn.database, key))?;
        let position = space.table.find(hash, |item, _| item.key() == key)?;
        let item = space.table.item(position);
        (!item.is_gone(turn.now_millis)).then_some((item, means))
    }

    /// Hints to the processor which cache lines the keys' items are in.
    pub(crate) fn prefetch<'b>(
        &mut self,
        turn: Turn,
        keys: impl Iterator<Item = &'b [u8]> + Clone,
    ) {
        for step in [Table::prefetch, Table::prefetch_item] {
            for key in keys.clone() {
                let hash = self.store.hash(key);
                let index = self.store.shard_of(hash) as u32;
                if let Ok(at) = self.indices.binary_search(&index) {
                    let space_index = self.store.space_index(turn.database, key);
                    step(&self.guards[at].space(space_index).table, hash as u32);
                }
            }
        }
    }

    /// Has all locked shards keep what they hold now for a snapshot; the number of changes until
    /// now.
    pub(super) fn begin_cut(&mut self) -> u64 {
        let store = self.store;
        let mut changes = 0;
        for shard in &mut self.guards {
            store.snapshots.discard(shard.begin_cut(&store.snapshots.queue), &store.heap);
            changes += shard.changes();
        }
        changes
    }

    /// Returns whether most of what could be evicted lies in these shards.
    pub(crate) fn has_most(&self) -> bool {
        self.indices.len() * 2 > self.store.shard_count()
    }

    /// Empties a database of all locked shards.
    pub(crate) fn flush(&mut self, database: u32, turn: Turn) {
        for (index, shard) in self.indices.iter().zip(&mut self.guards) {
            let door = self.store.cut_door(*index as usize, turn.now_millis);
            for space_index in self.store.space_indices(database) {
                if shard.flush(space_index, &self.store.quotas, &door) {
                    self.store.come_by(*index as usize, 0);
                }
            }
        }
    }

    /// Notes what emptying a database, with all shards locked, changes; if it
    /// then gets the keys of another one, what that changes.
    pub(crate) fn mark_emptied(&self, database: u32, refilled_from: Option<u32>, turn: Turn) {
        if self.store().events.has_watched() {
            self.store().watches.mark_database(database, |key| {
                self.contains(database, key, None)
                    || refilled_from
                        .is_some_and(|other| self.contains(other, key, Some(turn.now_millis)))
            });
        }
    }
}
