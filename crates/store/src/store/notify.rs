//! Notes events of keys.

use super::core::Store;
use super::events::{EVENTS_KEPT_MAX, KEPT_MASK, KeyEvent, Ready, SILENT};
use super::turn::Turn;
use super::waiters::Lane;
use keyway_base::KeyspaceEvents;
use std::sync::atomic::Ordering;

impl Store {
    /// Returns whether there ever is something to take, as things stand.
    #[inline]
    pub fn notifies(&self) -> bool {
        self.events.kept.load(Ordering::Relaxed) != 0
    }

    /// Begins or ends keeping every change of a key, whatever the configured classes are. A flush
    /// or an exchange of a whole database is not noted.
    pub fn watch_changes(&self, all: bool) {
        let all_classes = KeyspaceEvents::ALL.bits() | SILENT.bits();
        let classes = self.published().bits() | if all { all_classes } else { 0 };
        self.events.observe(|| {
            let ready = |kept: u64| Some(kept & !KEPT_MASK | u64::from(classes));
            let _ = self.events.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, ready);
        });
    }

    /// The classes that are to be published.
    pub fn published(&self) -> KeyspaceEvents {
        let notify = self.config().notify;
        if notify.is_off() { KeyspaceEvents::NONE } else { notify }
    }

    /// Moves the events that a worker's requests made to the end of `out`, in
    /// the order in which they happened to each key; with [`crate::NO_WORKER`], those
    /// of [`Store::tick`]. To be called after each request and each tick while
    /// [`Store::notifies`]: nothing bounds them otherwise.
    pub fn take_events(&self, worker: u16, out: &mut Vec<KeyEvent>) {
        let mut list = self.events.list(worker).lock();
        let before = out.len();
        out.extend(list.events.extract_if(.., |event| event.worker == worker));
        list.keys_len -= out[before..].iter().map(|event| event.key.len()).sum::<usize>();
        if list.events.capacity() > EVENTS_KEPT_MAX {
            list.events.shrink_to(EVENTS_KEPT_MAX);
        }
    }

    /// Bytes of what waits to be taken of a worker's requests, and of keys that
    /// may have something for who waits for them: a script makes it grow until
    /// its end.
    pub fn untaken_len(&self, worker: u16) -> usize {
        if !self.notifies() {
            return 0;
        }
        let events = {
            let list = self.events.list(worker).lock();
            list.events.len() * size_of::<KeyEvent>() + list.keys_len
        };
        let ready = self.events.ready.lock();
        events + ready.queue.len() * size_of::<Ready>() + ready.keys_len
    }

    /// Notes an event of a class, if it is asked for.
    #[inline]
    pub(crate) fn note_event(
        &self,
        turn: Turn,
        class: KeyspaceEvents,
        name: &'static str,
        key: &[u8],
    ) {
        if self.events.noted().contains(class) {
            self.keep_event(turn, turn.database, class, name, key);
        }
    }

    /// The same for a key whose database is known by the index of its space in shards.
    #[inline]
    pub(crate) fn note_event_at(
        &self,
        turn: Turn,
        space_index: usize,
        class: KeyspaceEvents,
        name: &'static str,
        key: &[u8],
    ) {
        if self.events.noted().contains(class) {
            self.keep_event(turn, self.database_at(space_index), class, name, key);
        }
    }

    /// Notes that keys of a database may all have something for who waits for
    /// them.
    pub(crate) fn note_all_ready(&self, turn: Turn, database: u32) {
        if self.events.waiting() > 0 {
            let keys = self.waiters.keys_of(database);
            for key in &keys {
                self.waiters.note_expiry(database, key);
                self.events.note_ready(turn.worker, database, key);
            }
        }
    }

    /// Returns whether what became of a key may be what somebody waits for.
    fn concerns_waiters(
        &self,
        database: u32,
        class: KeyspaceEvents,
        name: &str,
        key: &[u8],
    ) -> bool {
        match class {
            // A client that reads for a group is told that the stream is gone.
            KeyspaceEvents::EXPIRED | KeyspaceEvents::EVICTED => {
                self.waiters.has_in(database, Lane::Group, key)
            }
            KeyspaceEvents::STREAM if !matches!(name, "xadd" | "xgroup-destroy") => false,
            KeyspaceEvents::GENERIC if matches!(name, "expire" | "persist") => false,
            _ => self.waiters.has(database, key),
        }
    }

    #[cold]
    fn keep_event(
        &self,
        turn: Turn,
        database: u32,
        class: KeyspaceEvents,
        name: &'static str,
        key: &[u8],
    ) {
        let (_, shard) = self.locate(key);
        debug_assert!(self.lock_of(shard).is_guarded(), "{name} is noted with the shard locked");
        if self.events.has_watched() {
            self.watches.mark(database, key);
        }
        if self.events.waiting() > 0 {
            if class == KeyspaceEvents::GENERIC {
                self.waiters.note_expiry(database, key);
            }
            if self.concerns_waiters(database, class, name, key) {
                self.events.note_ready(turn.worker, database, key);
            }
        }
        self.push_event(turn, database, class, name, key);
        if self.effects.is_on() {
            self.note_effect(turn, database, class, key);
        }
    }

    /// Notes an event that is published and changes no key. Its class is [`KeyspaceEvents::MISS`],
    /// or [`KeyspaceEvents::NEW`], which comes before the change that made the key.
    #[inline]
    pub(crate) fn note_notice(
        &self,
        turn: Turn,
        class: KeyspaceEvents,
        name: &'static str,
        key: &[u8],
    ) {
        if self.events.noted().contains(class) {
            self.push_event(turn, turn.database, class, name, key);
        }
    }

    #[cold]
    fn push_event(
        &self,
        turn: Turn,
        database: u32,
        class: KeyspaceEvents,
        name: &'static str,
        key: &[u8],
    ) {
        if !self.events.kept().contains(class) {
            return;
        }
        let event = KeyEvent { database, class, name, key: key.into(), worker: turn.worker };
        let mut list = self.events.list(turn.worker).lock();
        list.keys_len += event.key.len();
        list.events.push(event);
    }
}
