use super::edit::Editor;
use super::key::Entry;
use crate::collections::timed::{self, Timed};
use crate::collections::{Boxed, blob};
use crate::items::{Encoding, Item};
use crate::shards::{Gone, Shard, WheelEntry, due_second};
use crate::store::{Mode, Store, Turn};
use keyway_base::KeyspaceEvents;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

/// Fields that have expired which a request removes: some ten microseconds. The rest is left to upkeep.
const READ_STEPS: u32 = 16;

/// Items a write may touch to keep its shard tidy: under a microsecond each.
const WRITE_STEPS: u32 = 8;

impl Entry<'_> {
    /// Removes a few of the fields that have expired; the others are hidden from
    /// whoever looks. All of them when there is no other, for then the key is
    /// not there either: that frees it as any deleted hash. A replica removes none: its
    /// primary does.
    #[inline]
    pub(super) fn drop_some_hidden(&mut self) {
        let now_millis = self.turn.now_millis;
        let is_replica = self.store.is_replica();
        if let Some(item) = self.timed_item() {
            if is_replica {
                if item.is_spent(now_millis) {
                    self.position = None;
                }
                return;
            }
            let lasts = item.is_sure_to_last(now_millis);
            self.drop_fields(&mut { if lasts { READ_STEPS } else { u32::MAX } });
        }
    }

    #[inline]
    fn timed_item(&mut self) -> Option<Item<'_>> {
        self.any_item().filter(|item| item.encoding().is_timed())
    }

    /// Removes the fields of a timed hash that have expired, while `steps` are
    /// left; the hash itself when none is left of it. One whose fields have
    /// all expired takes no more than any deleted hash.
    #[cold]
    pub(super) fn drop_fields(&mut self, steps: &mut u32) {
        let turn = self.turn;
        self.turn = turn.with(Mode::ASIDE);
        self.drop_fields_aside(steps);
        self.turn = turn;
    }

    fn drop_fields_aside(&mut self, steps: &mut u32) {
        let now_millis = self.turn.now_millis;
        let Some(item) = self.any_item() else { return };
        if item.first_field().is_none_or(|earliest| earliest > now_millis) {
            return;
        }
        if item.is_spent(now_millis) {
            let count = item.boxed().map_or_else(|| blob::count(item.value()), Boxed::len);
            self.shard.counts.expired_fields += count as u64;
            self.notify(KeyspaceEvents::HASH, "hexpired");
            return self.remove_spent();
        }
        let is_followed = self.store.effects.is_on();
        let mut names: Vec<Box<[u8]>> = Vec::new();
        let gone = &mut |field: &[u8]| {
            if is_followed {
                names.push(field.into());
            }
        };
        let removed = drop_expired(&mut Editor::of(self), now_millis, steps, gone);
        if removed > 0 {
            self.shard.counts.expired_fields += removed as u64;
            self.notify(KeyspaceEvents::HASH, "hexpired");
        }
        if self.any_item().is_some_and(|item| item.is_empty_collection()) {
            self.remove_spent();
        } else if !names.is_empty() {
            let words: [&[u8]; 2] = [b"HDEL", self.key];
            let words: Vec<&[u8]> =
                words.into_iter().chain(names.iter().map(|name| &**name)).collect();
            self.store.tell_of_key(self.turn.database, self.key, &words);
        }
    }

    /// Removes a hash of which no field is left.
    fn remove_spent(&mut self) {
        self.remove();
        self.notify(KeyspaceEvents::GENERIC, "del");
        if self.store.effects.is_on() {
            self.store.tell_of_key(self.turn.database, self.key, &[b"DEL", self.key]);
        }
    }
}

/// Removes the fields that have expired, while `steps` are left, and tells `gone` of each; how
/// many.
fn drop_expired(
    editor: &mut Editor<'_, '_>,
    now_millis: u64,
    steps: &mut u32,
    gone: &mut dyn FnMut(&[u8]),
) -> usize {
    editor.with_times(|editor| {
        let drop_some =
            |timed: &mut Timed, means| timed.drop_expired(means, now_millis, steps, &mut *gone);
        if let Some(removed) = editor.with(Boxed::timed_mut, drop_some) {
            return removed;
        }
        let (kept, removed) = timed::without_expired(editor.blob(), now_millis, gone);
        *steps = steps.saturating_sub(blob::count(editor.blob()) as u32);
        if removed > 0 {
            editor.store(Encoding::HashTimed, &kept);
        }
        removed
    })
}

impl Store {
    /// A write's share of its shard's upkeep.
    #[inline]
    pub(crate) fn tidy_if_due(&self, shard: &mut Shard, shard_index: usize, turn: Turn) {
        let second = (turn.now_millis / 1000) as u32;
        if self.due_of(shard_index).load(Ordering::Relaxed) <= second {
            let mut steps = WRITE_STEPS;
            self.tidy(shard, shard_index, turn, &mut steps);
        }
    }

    #[cold]
    pub(crate) fn tidy(&self, shard: &mut Shard, shard_index: usize, turn: Turn, steps: &mut u32) {
        let mut partly: SmallVec<[(usize, Box<[u8]>); 1]> = SmallVec::new();
        let gone = |space_index: usize, key: &[u8], what: Gone| match what {
            Gone::Whole => {
                self.note_event_at(turn, space_index, KeyspaceEvents::EXPIRED, "expired", key);
            }
            Gone::Fields => partly.push((space_index, key.into())),
        };
        let due = self.due_of(shard_index);
        let freed = shard.tidy(&self.upkeep(shard_index, turn), steps, due, gone);
        self.charge(shard, -freed);
        for (space_index, key) in partly {
            // Of the last one something is done in any case.
            *steps = (*steps).max(WRITE_STEPS);
            let turn = Turn { database: self.database_at(space_index), ..turn };
            self.drop_fields(shard, shard_index, turn, &key, steps);
        }
    }

    /// Removes fields of a key that have expired, which the wheel of its space
    /// has come by for. `turn` is about the key's database.
    fn drop_fields(
        &self,
        shard: &mut Shard,
        shard_index: usize,
        turn: Turn,
        key: &[u8],
        steps: &mut u32,
    ) {
        let (hash, _) = self.locate(key);
        let database = self.space_index(turn.database, key);
        let position = shard.space(database).table.find(hash, |item, _| item.key() == key);
        let mut entry =
            Entry { store: self, shard, shard_index, database, key, hash, turn, position };
        entry.drop_fields(steps);
        // The entry that was due is used up.
        if let Some(first) = entry.times().first() {
            let upkeep = self.upkeep(shard_index, turn);
            let second = due_second(first);
            entry.space().schedule(WheelEntry { hash, second }, &upkeep);
            entry.charge(0);
            self.come_by(shard_index, second);
        }
    }
}
