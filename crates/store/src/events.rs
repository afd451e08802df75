//! What became of keys, for whoever publishes it or tells those who keep
//! copies.
//!
//! Every path by which a key changes notes it here, within the class that
//! Redis's keyspace events give it, with the key's shard locked. A class that
//! nobody asks for costs one branch. Events are kept until the worker that made
//! them takes them, right after the request; keys that are watched are marked
//! at once ([`crate::watches`]).

use crate::entry::Turn;
use crate::lock::Lock;
use crate::store::Store;
use keyway_base::KeyspaceEvents;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

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

/// Lists of events. Workers beyond share one, and wait for each other's lock.
const LISTS: usize = 64;

/// Events nobody took yet, and which are noted.
pub(crate) struct Events {
    /// Classes that are noted: those kept, or all while somebody observes keys.
    noted: AtomicU16,
    /// Classes of which events are kept: the configured ones, or all while every
    /// change is.
    kept: AtomicU16,
    /// Keys that are watched for transactions.
    watched: AtomicUsize,
    /// Held while what is noted changes.
    order: Lock<()>,
    lists: Box<[Lock<Vec<KeyEvent>>]>,
}

impl Events {
    pub(crate) fn new(classes: KeyspaceEvents) -> Self {
        let lists = (0..LISTS).map(|_| Lock::new(Vec::new())).collect();
        Self {
            noted: AtomicU16::new(classes.bits()),
            kept: AtomicU16::new(classes.bits()),
            watched: AtomicUsize::new(0),
            order: Lock::new(()),
            lists,
        }
    }

    /// Changes who wants to know of events, and so which are noted. The loads
    /// elsewhere are relaxed: see [`Events::noted`].
    fn observe(&self, change: impl FnOnce()) {
        let _order = self.order.lock();
        change();
        let is_observed = self.watched.load(Ordering::Relaxed) > 0;
        let noted = match is_observed {
            true => KeyspaceEvents::ALL.bits(),
            false => self.kept.load(Ordering::Relaxed),
        };
        self.noted.store(noted, Ordering::Relaxed);
    }

    /// Counts keys that are watched from now on, or with `-1` no more.
    pub(crate) fn count_watched(&self, change: isize) {
        self.observe(|| {
            let watched = self.watched.load(Ordering::Relaxed);
            self.watched.store(watched.saturating_add_signed(change), Ordering::Relaxed);
        });
    }

    /// Whether any key is watched.
    pub(crate) fn has_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed) > 0
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
    /// Whether there ever is something to take, as things stand.
    #[inline]
    pub fn notifies(&self) -> bool {
        self.events.kept.load(Ordering::Relaxed) != 0
    }

    /// Begins or ends keeping every change of a key, whatever the configured
    /// classes are. What is flushed or exchanged as a whole is not noted.
    pub fn watch_changes(&self, all: bool) {
        let classes = if all { KeyspaceEvents::ALL } else { self.published() };
        self.events.observe(|| self.events.kept.store(classes.bits(), Ordering::Relaxed));
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
        let (_, shard) = self.locate(key);
        debug_assert!(self.lock_of(shard).is_guarded(), "{name} is noted with the shard locked");
        if self.events.has_watched() {
            self.watches.mark(database, key);
        }
        if !KeyspaceEvents::from_bits(self.events.kept.load(Ordering::Relaxed)).contains(class) {
            return;
        }
        let event = KeyEvent { database, class, name, key: key.into(), worker: turn.worker };
        self.events.list(turn.worker).lock().push(event);
    }
}
