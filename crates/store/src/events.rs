//! What became of keys, for whoever publishes it or tells those who keep
//! copies.
//!
//! Every path by which a key changes notes it here, within the class that
//! Redis's keyspace events give it. A class that nobody asks for costs one
//! branch. Events are kept until the worker that made them takes them, right
//! after the request.

use crate::entry::Turn;
use crate::lock::Lock;
use crate::store::Store;
use keyway_base::KeyspaceEvents;
use std::sync::atomic::{AtomicU16, Ordering};

/// Something that became of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEvent {
    /// The key's database, as clients number it.
    pub database: u32,
    /// What kind of event it is.
    pub class: KeyspaceEvents,
    /// Redis's name for it, such as `set` or `expired`.
    pub name: &'static str,
    /// The key.
    pub key: Box<[u8]>,
    /// Whose request it was.
    worker: u16,
}

/// Who makes the events of [`Store::tick`].
pub const NO_WORKER: u16 = u16::MAX;

/// Of changes that Redis publishes no event of, but which end what clients keep
/// of a key: noted only while changes are watched.
pub(crate) const SILENT: KeyspaceEvents = KeyspaceEvents::from_bits(1 << 15);

/// Lists of events. Workers beyond share one, and wait for each other's lock.
const LISTS: usize = 64;

/// Events nobody took yet, and which are noted.
pub(crate) struct Events {
    /// Classes that are noted: the configured ones, or all while changes are
    /// watched.
    noted: AtomicU16,
    lists: Box<[Lock<Vec<KeyEvent>>]>,
}

impl Events {
    pub(crate) fn new(classes: KeyspaceEvents) -> Self {
        let lists = (0..LISTS).map(|_| Lock::new(Vec::new())).collect();
        Self { noted: AtomicU16::new(classes.bits()), lists }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lists.len() * size_of::<Lock<Vec<KeyEvent>>>()
    }

    /// Which classes are noted. The load is relaxed: a client that reads a key
    /// after the classes were changed holds its shard's lock after that, and
    /// whoever changes the key later holds it later still.
    #[inline]
    fn noted(&self) -> KeyspaceEvents {
        KeyspaceEvents::from_bits(self.noted.load(Ordering::Relaxed))
    }

    fn list(&self, worker: u16) -> &Lock<Vec<KeyEvent>> {
        &self.lists[usize::from(worker) % self.lists.len()]
    }
}

impl Store {
    /// Whether there ever are events, as things stand.
    #[inline]
    pub fn notifies(&self) -> bool {
        self.events.noted() != KeyspaceEvents::NONE
    }

    /// Begins or ends noting every change of a key, whatever the configured
    /// classes are. What is flushed or exchanged as a whole is not noted.
    pub fn watch_changes(&self, all: bool) {
        let all_classes = KeyspaceEvents::ALL.bits() | SILENT.bits();
        let classes = if all { all_classes } else { self.published().bits() };
        self.events.noted.store(classes, Ordering::Relaxed);
    }

    /// The classes that are to be published.
    pub fn published(&self) -> KeyspaceEvents {
        let notify = self.config().notify;
        if notify.is_off() { KeyspaceEvents::NONE } else { notify }
    }

    /// Moves the events that a worker's requests made to the end of `out`, in
    /// the order in which they happened to each key; with [`NO_WORKER`], those
    /// of [`Store::tick`]. To be called after each request and each tick while
    /// [`Store::notifies`]: nothing bounds them otherwise.
    pub fn take_events(&self, worker: u16, out: &mut Vec<KeyEvent>) {
        let mut list = self.events.list(worker).lock();
        out.extend(list.extract_if(.., |event| event.worker == worker));
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

    /// The same for a key whose database is known by its place in shards.
    #[inline]
    pub(crate) fn note_event_at(
        &self,
        (turn, place): (Turn, usize),
        class: KeyspaceEvents,
        name: &'static str,
        key: &[u8],
    ) {
        if self.events.noted().contains(class) {
            let database = (0..self.database_count()).find(|index| self.place_of(*index) == place);
            self.keep_event(turn, database.unwrap_or_default(), class, name, key);
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
        let event = KeyEvent { database, class, name, key: key.into(), worker: turn.worker };
        self.events.list(turn.worker).lock().push(event);
    }
}
