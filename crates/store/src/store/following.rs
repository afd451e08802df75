//! Following a store: readers of its effects, and what changes by itself.

use super::core::Store;
use super::locked::Locked;
use super::turn::{Mode, Turn};
use crate::effects::{EffectLimits, Keeping, Lost};
use keyway_base::KeyspaceEvents;
use std::sync::Arc;

/// Effects are missing: the reader has to follow the store anew, from another cut.
///
/// This happens to a reader that keeps the newest effects only, when it is slower than the
/// writers for half of the room; and to all readers, when what is written between two reads
/// does not fit into the room, or when a write was in flight at the cut of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun;

/// A reader of a store's effects, until it is dropped. A log, a replica's connection and a
/// slot mover have one each.
///
/// The bytes are the stream that Redis sends to its replicas: commands as arrays of bulk
/// strings, SELECT where the database changes, and MULTI and EXEC around what is to be
/// executed as one. The stream of a reader begins with a SELECT.
pub struct EffectReader {
    store: Arc<Store>,
    number: u64,
    start: u64,
}

impl EffectReader {
    pub(super) fn new(store: &Arc<Store>, number: u64, start: u64) -> Self {
        Self { store: Arc::clone(store), number, start }
    }

    /// The offset at which the reader began.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Appends effects that the reader did not get yet to `out`, and returns how many bytes
    /// they are; none if there are none. They are whole units: a command, or MULTI to EXEC.
    /// One call gives about 64 KiB at most, or one unit if that is longer.
    ///
    /// A write whose reply a client has got is in what is read until this returns 0. To be
    /// called with no shard held.
    ///
    /// # Errors
    /// [`Overrun`] if effects are missing. The reader is of no more use then.
    pub fn read(&mut self, out: &mut Vec<u8>) -> Result<usize, Overrun> {
        self.store.effects.read(self.number, out).map_err(|Lost| Overrun)
    }

    /// The offset behind what the reader got. Offsets count the bytes of the stream since the
    /// store was made, so that readers of one store agree on them.
    ///
    /// # Errors
    /// [`Overrun`] as in [`EffectReader::read`].
    pub fn offset(&self) -> Result<u64, Overrun> {
        self.store.effects.position(self.number).map_err(|Lost| Overrun)
    }

    /// The number of units of which the reader has all, counted as [`Store::told`] counts
    /// them. It is up to date once [`EffectReader::read`] has returned 0.
    ///
    /// # Errors
    /// [`Overrun`] as in [`EffectReader::read`].
    pub fn told(&self) -> Result<u64, Overrun> {
        self.store.effects.told(self.number).map_err(|Lost| Overrun)
    }
}

impl Drop for EffectReader {
    fn drop(&mut self) {
        if self.store.effects.leave(self.number) {
            self.store.note_followers();
        }
    }
}

impl Store {
    /// Follows the store: the reader gets the effects of everything that is executed after
    /// the cut, and of nothing before it. `at_cut` is called at the cut, with all shards
    /// locked. A snapshot that begins there fits the stream exactly. `at_cut` must not use
    /// the store's keys.
    ///
    /// Waits for a script that runs. To be called with no shard held.
    pub fn follow(
        self: &Arc<Self>,
        limits: EffectLimits,
        keeping: Keeping,
        at_cut: impl FnOnce(u64),
    ) -> EffectReader {
        self.follow_at_cut(limits, keeping, |_, start| at_cut(start))
    }

    /// As [`Store::follow`]; `at_cut` also gets the locked shards.
    pub(crate) fn follow_at_cut(
        self: &Arc<Self>,
        limits: EffectLimits,
        keeping: Keeping,
        at_cut: impl FnOnce(&mut Locked<'_>, u64),
    ) -> EffectReader {
        // Before the cut, so that few writes are in flight that know of no reader.
        let _expected = self.expect_follower(limits);
        let _order = self.effects.relay_order();
        let mut locked = self.lock_all();
        let (number, start) = self.effects.cut(limits, keeping);
        at_cut(&mut locked, start);
        drop(locked);
        self.note_followers();
        EffectReader { store: Arc::clone(self), number, start }
    }

    /// Follows the store from what is executed next on, if somebody follows it already.
    pub fn follow_on(self: &Arc<Self>, keeping: Keeping) -> Option<EffectReader> {
        self.follow_end(keeping)
    }

    /// Adds a command that changes nothing, such as PING, to what all readers get. While the store is
    /// held nothing is added: another process has the end of the stream.
    pub fn tell_followers(&self, words: &[&[u8]]) {
        if self.effects.is_on() && !self.is_held() {
            self.effects.tell_alone(0, words.iter().copied());
        }
    }

    /// The number of units that were told since the store was made. It includes those of this
    /// thread.
    #[inline]
    pub fn told(&self) -> u64 {
        self.effects.next_ticket()
    }

    /// Follows the store from an offset at which another reader was, if the effects from
    /// there on are still kept.
    pub fn follow_from(self: &Arc<Self>, offset: u64, keeping: Keeping) -> Option<EffectReader> {
        let number = self.effects.join_at(offset, keeping)?;
        Some(EffectReader { store: Arc::clone(self), number, start: offset })
    }

    /// Returns whether a reader that keeps all effects is so late that no more writes are to
    /// be executed. A worker then leaves its clients unread until there is room. A write that
    /// is executed all the same is told, however long it is.
    #[inline]
    pub fn effects_are_full(&self) -> bool {
        self.has_followers() && self.effects.is_full()
    }

    /// Returns whether what this thread's script has written so far is longer than all the room
    /// of the effects: it is to write no more.
    #[inline]
    pub fn effects_are_long(&self) -> bool {
        self.effects.is_unit_long()
    }

    /// How often the buffers of effects took more than their room, for a long value or a long
    /// transaction, since the store was made.
    pub fn effects_beyond(&self) -> u64 {
        self.effects.beyond()
    }

    /// Bytes of the buffers of effects. They are among the bytes that the store uses.
    pub fn effects_len(&self) -> usize {
        self.effects.held()
    }

    /// Does `work`, which changes something beside the keys by a command such as FUNCTION LOAD,
    /// and says whether it did. The command is told then. Such commands are told in the order
    /// in which their work was done. If a reader makes its cut meanwhile, all readers are
    /// [`Overrun`]: nobody can say on which side of the cut the change is.
    pub fn tell_beside(&self, words: &[&[u8]], work: impl FnOnce() -> bool) {
        let is_in_time = self.effects.tell_beside(words, work);
        if !is_in_time {
            self.lose_followers_if_cut();
        }
    }

    /// Has events noted while there is a reader.
    pub(super) fn note_followers(&self) {
        self.events.observe_followers(|| self.effects.is_on());
    }

    /// Tells a change that comes with no command, or beside one. The shard of the key is
    /// locked. If this thread holds it, the change is part of the thread's unit.
    #[cold]
    pub(crate) fn tell_of_key(&self, database: u32, key: &[u8], words: &[&[u8]]) {
        let (_, shard) = self.locate(key);
        if self.lock_of(shard).is_held() {
            self.effects.with_unit(|unit| unit.push(database, words.iter().copied()));
        } else {
            self.effects.tell_alone(database, words.iter().copied());
        }
    }

    /// Tells the same with all shards locked.
    #[cold]
    pub(crate) fn tell_of_all(&self, database: u32, words: &[&[u8]]) {
        if self.lock_of(0).is_held() {
            self.effects.with_unit(|unit| unit.push(database, words.iter().copied()));
        } else {
            self.effects.tell_alone(database, words.iter().copied());
        }
    }

    /// Notes for readers of effects what became of a key: this is the hook of all changes. An
    /// expiry or an eviction is told at once, any other change by the command that makes it. A
    /// change by a command that knew of no reader would be missing.
    #[cold]
    pub(super) fn note_effect(&self, turn: Turn, database: u32, class: KeyspaceEvents, key: &[u8]) {
        if matches!(class, KeyspaceEvents::EXPIRED | KeyspaceEvents::EVICTED) {
            self.tell_of_key(database, key, &[b"DEL", key]);
        } else if turn.is(Mode::ASIDE) || turn.is(Mode::TELLING) {
            // The caller tells it.
        } else if turn.is(Mode::TOLD) {
            self.effects.with_unit(|unit| unit.set_changed(true));
        } else {
            self.lose_followers_if_cut();
        }
    }

    /// Loses all readers, as a change was not told, unless they have no cut yet.
    #[cold]
    pub(crate) fn lose_followers_if_cut(&self) {
        if self.effects.is_cut() {
            self.effects.overrun();
            self.note_followers();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Context, StoreConfig};
    use keyway_base::Clock;
    use keyway_resp::Protocol;

    const LIMITS: EffectLimits = EffectLimits { room: 1 << 20, history: 0 };

    fn turn() -> Turn {
        let clock = Clock::default();
        Turn::of(Context { database: 0, clock, protocol: Protocol::default(), worker: 0 })
    }

    #[test]
    fn a_write_that_knew_of_no_reader_at_the_cut_loses_all_readers() {
        let store = Arc::new(Store::new(StoreConfig::default()));
        let expected = store.expect_follower(LIMITS);
        // There is no cut yet that it could be missing after.
        store.set(turn(), b"early", b"v", 0);
        let mut reader = store.follow(LIMITS, Keeping::All, |_| ());
        drop(expected);
        assert_eq!(reader.read(&mut Vec::new()), Ok(0));
        store.set(turn(), b"late", b"v", 0);
        assert_eq!(reader.read(&mut Vec::new()), Err(Overrun));
        assert_eq!(reader.offset(), Err(Overrun));
        drop(reader);
        assert!(!store.notifies() && store.effects_len() == 0);
        let mut reader = store.follow(LIMITS, Keeping::All, |_| ());
        assert_eq!(reader.read(&mut Vec::new()), Ok(0));
    }

    #[test]
    fn the_buffers_are_among_the_bytes_that_the_store_uses() {
        let store = Arc::new(Store::new(StoreConfig::default()));
        let before = store.stats().memory_used;
        let reader = store.follow(LIMITS, Keeping::All, |_| ());
        for _ in 0..1000 {
            store.tell_beside(&[b"FUNCTION", b"FLUSH"], || true);
        }
        let held = store.effects_len() as u64;
        assert!(held > 30_000);
        assert_eq!(store.stats().memory_used, before + held);
        drop(reader);
        assert_eq!(store.stats().memory_used, before);
    }
}
