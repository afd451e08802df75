//! The ways to get an entry, and requests that need none.

use super::key::{Entry, Located};
use crate::collections::hash::Hash;
use crate::collections::{View, WrongType};
use crate::items::{Encoding, Item, Kind, Meta, Owned, SlotMut};
use crate::store::{KeyHint, Locked, Mode, Store, Turn};
use keyway_base::KeyspaceEvents;

/// The keyspace event that a change notes.
#[derive(Clone, Copy)]
pub(crate) struct Event {
    pub(crate) class: KeyspaceEvents,
    pub(crate) name: &'static str,
}

/// The outcome of a look at a key.
enum Found<'a> {
    Nothing,
    /// An item without expiry, and the index of its shard.
    Item(Item<'a>, usize),
    /// An item with an expiry.
    Entry(Entry<'a>),
}

/// The requests that a cache mostly gets, in fewer instructions than an
/// [`Entry`] takes.
impl Store {
    /// Lets `work` read the string of `key`; counts as [`Entry::read`] does.
    #[inline]
    pub(crate) fn read(
        &self,
        turn: Turn,
        key: &[u8],
        work: impl FnOnce(Option<Item<'_>>),
    ) -> Result<(), WrongType> {
        let note = |slot: &mut SlotMut<'_>| turn.note_read(self, slot);
        self.look_up(turn, key, note, |found| match found {
            Found::Item(item, _) if !item.encoding().is_text() => Err(WrongType),
            Found::Item(item, _) => {
                work(Some(item));
                Ok(())
            }
            Found::Nothing => {
                work(None);
                Ok(())
            }
            Found::Entry(mut entry) => {
                work(entry.read_text()?);
                Ok(())
            }
        })
    }

    /// Lets `work` read the hash of `key`; counts as [`Entry::read`] does.
    #[inline]
    pub(crate) fn read_hash<R>(
        &self,
        turn: Turn,
        key: &[u8],
        work: impl FnOnce(Option<Hash<'_>>) -> R,
    ) -> Result<R, WrongType> {
        let note = |slot: &mut SlotMut<'_>| turn.note_use(self, slot);
        self.look_up(turn, key, note, |found| match found {
            Found::Item(item, index) if item.encoding().kind() == Kind::Hash => {
                Ok(work(Some(Hash::of(item, self.means(index, turn.now_millis)))))
            }
            Found::Item(..) => Err(WrongType),
            Found::Nothing => Ok(work(None)),
            Found::Entry(mut entry) => Ok(work(entry.read_as()?)),
        })
    }

    /// Gives `work` what is found of `key`. Counts a miss, or a hit of an item without expiry, whose
    /// use `note` notes. Of an item with an expiry `work` gets the entry, and nothing is counted.
    #[inline]
    fn look_up<R>(
        &self,
        turn: Turn,
        key: &[u8],
        note: impl FnOnce(&mut SlotMut<'_>),
        work: impl FnOnce(Found<'_>) -> R,
    ) -> R {
        let (hash, index) = self.locate(key);
        let mut guard = self.shard(index);
        let shard = &mut *guard;
        let database = self.space_index(turn.database, key);
        let table = &mut shard.space(database).table;
        let Some(position) = table.find(hash, |item, _| item.key() == key) else {
            shard.counts.misses += 1;
            self.note_notice(turn, KeyspaceEvents::MISS, "keymiss", key);
            return work(Found::Nothing);
        };
        let mut slot = table.slot_mut(position);
        if !slot.marks().volatile {
            note(&mut slot);
            let result = work(Found::Item(slot.item(), index));
            shard.counts.hits += 1;
            return result;
        }
        let located = Located { shard, shard_index: index, database, hash };
        work(Found::Entry(Entry::at(self, located, turn, key, Some(position))))
    }

    /// Sets `key` to a string without expiry, with a memcached client's flags.
    #[inline]
    pub(crate) fn set(&self, turn: Turn, key: &[u8], value: &[u8], flags: u32) {
        let meta = Meta { flags, ..Meta::new(Encoding::Text, None) };
        let event = Event { class: KeyspaceEvents::STRING, name: "set" };
        let tell = || {
            if turn.is(Mode::TELLING) {
                self.effects.tell_command(turn.database, &[b"SET", key, value]);
            }
        };
        let overwrite = |item: &mut Owned, _| {
            let fits = item.overwrite(&meta, turn.access(), value);
            if fits {
                tell();
            }
            fits
        };
        self.overwrite(turn, key, event, overwrite, |mut entry| {
            entry.set_with(value, &meta);
            tell();
            entry.notify(event.class, event.name);
        });
    }

    /// Lets `overwrite` change an item of `key` in place, and notes `event`. It gets the index of
    /// the shard. If there is no item, or one with an expiry, or `overwrite` returns false,
    /// `otherwise` gets the entry, and its result is returned.
    #[inline]
    pub(crate) fn overwrite<R>(
        &self,
        turn: Turn,
        key: &[u8],
        event: Event,
        overwrite: impl FnOnce(&mut Owned, usize) -> bool,
        otherwise: impl FnOnce(Entry<'_>) -> R,
    ) -> Option<R> {
        let (hash, index) = self.locate(key);
        let mut guard = self.shard(index);
        let shard = &mut *guard;
        let database = self.space_index(turn.database, key);
        self.before_change(shard, index, database, hash, turn.now_millis);
        let table = &mut shard.space(database).table;
        let found = table.find(hash, |item, _| item.key() == key);
        if let Some(position) = found {
            let mut slot = table.slot_mut(position);
            if !slot.marks().volatile && slot.with_item(|item| overwrite(item, index)) {
                turn.note_use(self, &mut slot);
                shard.count_change();
                self.note_event(turn, event.class, event.name, key);
                return None;
            }
        }
        let located = Located { shard, shard_index: index, database, hash };
        Some(otherwise(Entry::at(self, located, turn, key, found)))
    }

    /// Locks `key`'s shard and lets `work` work on the key.
    #[inline]
    pub(crate) fn with_key<R>(
        &self,
        turn: Turn,
        key: &[u8],
        work: impl FnOnce(Entry<'_>) -> R,
    ) -> R {
        let (hash, index) = self.locate(key);
        let mut shard = self.shard(index);
        work(Entry::locate(self, &mut shard, index, turn, key, hash))
    }

    /// The same with the key's place known already.
    pub(crate) fn with_hinted<R>(
        &self,
        turn: Turn,
        key: &[u8],
        hint: KeyHint,
        work: impl FnOnce(Entry<'_>) -> R,
    ) -> R {
        let (hash, index) = hint.place();
        let mut shard = self.shard(index);
        work(Entry::locate(self, &mut shard, index, turn, key, hash))
    }
}

impl Locked<'_> {
    /// One of the keys that were locked.
    ///
    /// # Panics
    /// When the key's shard is not locked: callers pass the keys they locked.
    pub(crate) fn entry<'b>(&'b mut self, turn: Turn, key: &'b [u8]) -> Entry<'b> {
        let hash = self.store().hash(key);
        let (store, shard, shard_index) = self.shard_mut(hash);
        Entry::locate(store, shard, shard_index, turn, key, hash as u32)
    }
}
