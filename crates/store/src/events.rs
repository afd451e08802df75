//! What became of keys, for whoever publishes it or tells those who keep
//! copies.
//!
//! Every path by which a key changes notes it here, within the class that
//! Redis's keyspace events give it, with the key's shard locked. A class that
//! nobody asks for costs one branch. Events are kept until the worker that made
//! them takes them, right after the request; keys that are watched are marked
//! at once ([`crate::watches`]), those that somebody waits for are noted as ready
//! ([`crate::waiters`]).

use crate::entry::Turn;
use crate::store::Store;
use crate::waiters::Lane;
use keyway_base::KeyspaceEvents;
use keyway_memory::Lock;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering};

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

impl KeyEvent {
    /// Returns whether the event changes no key. Such an event is published, but clients that cache
    /// are not told.
    pub fn is_notice(&self) -> bool {
        matches!(self.class, KeyspaceEvents::NEW | KeyspaceEvents::MISS)
    }
}

/// Who makes the events of [`Store::tick`].
pub const NO_WORKER: u16 = u16::MAX;

/// Of changes that Redis publishes no event of, but which end what clients keep
/// of a key: noted only while changes are watched.
pub(crate) const SILENT: KeyspaceEvents = KeyspaceEvents::from_bits(1 << 15);

/// Lists of events. Workers beyond share one, and wait for each other's lock.
const LISTS: usize = 64;

/// Events that a list keeps room for once they are taken. More come of scripts
/// and of what expires at once.
const EVENTS_KEPT_MAX: usize = 1024;

/// Bits of `Events::kept` that are classes.
const KEPT_BITS: u32 = 16;
const KEPT_MASK: u64 = (1 << KEPT_BITS) - 1;

/// The worker that is to see to a key, its database, and the key.
type Ready = (u16, u32, Box<[u8]>);

/// Events nobody took yet, and which are noted.
pub(crate) struct Events {
    /// Classes that are noted: those kept, or all while somebody observes keys.
    noted: AtomicU16,
    /// In the low 16 bits, classes of which events are kept: the configured
    /// ones, or all while every change is. Above, how many keys are ready.
    kept: AtomicU64,
    /// Commands that wait for keys.
    waiting: AtomicUsize,
    /// Keys that somebody waits for and that may have something now.
    ready: Lock<ReadyKeys>,
    /// Keys that are watched for transactions.
    watched: AtomicUsize,
    /// Held while what is noted changes.
    order: Lock<()>,
    lists: Box<[Lock<List>]>,
}

/// Events of some workers.
#[derive(Default)]
struct List {
    events: Vec<KeyEvent>,
    /// Bytes of their keys.
    keys_len: usize,
}

/// Keys that may have something, the oldest first.
#[derive(Default)]
struct ReadyKeys {
    queue: VecDeque<Ready>,
    /// Bytes of them.
    keys_len: usize,
    /// Keys, with their databases, for which nobody could be served, as a script
    /// holds something that is needed for that.
    put_off: BTreeSet<(u32, Box<[u8]>)>,
}

impl Events {
    pub(crate) fn new(classes: KeyspaceEvents) -> Self {
        let lists = (0..LISTS).map(|_| Lock::new(List::default())).collect();
        Self {
            noted: AtomicU16::new(classes.bits()),
            kept: AtomicU64::new(u64::from(classes.bits())),
            waiting: AtomicUsize::new(0),
            ready: Lock::new(ReadyKeys::default()),
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
        let is_observed = self.has_watched() || self.waiting() > 0;
        let noted = match is_observed {
            true => KeyspaceEvents::ALL.bits() | SILENT.bits() | self.kept().bits(),
            false => self.kept().bits(),
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

    /// Counts a command that waits from now on, or with `-1` no more.
    pub(crate) fn count_waiting(&self, change: isize) {
        self.observe(|| {
            let waiting = self.waiting.load(Ordering::Relaxed);
            self.waiting.store(waiting.saturating_add_signed(change), Ordering::Relaxed);
        });
    }

    /// How many commands wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn kept(&self) -> KeyspaceEvents {
        KeyspaceEvents::from_bits(self.kept.load(Ordering::Relaxed) as u16)
    }

    /// Notes that a key may have something for who waits for it.
    pub(crate) fn note_ready(&self, worker: u16, database: u32, key: &[u8]) {
        let mut ready = self.ready.lock();
        ready.keys_len += key.len();
        ready.queue.push_back((worker, database, key.into()));
        self.kept.fetch_add(1 << KEPT_BITS, Ordering::Relaxed);
    }

    /// A key that a worker's requests have made ready, or anybody's upkeep.
    pub(crate) fn take_ready(&self, worker: u16) -> Option<(u32, Box<[u8]>)> {
        if self.kept.load(Ordering::Relaxed) >> KEPT_BITS == 0 {
            return None;
        }
        let mut ready = self.ready.lock();
        let at = ready.queue.iter().position(|(one, ..)| [worker, NO_WORKER].contains(one))?;
        let (_, database, key) = ready.queue.remove(at)?;
        ready.keys_len -= key.len();
        self.kept.fetch_sub(1 << KEPT_BITS, Ordering::Relaxed);
        Some((database, key))
    }

    /// Keeps a ready key until [`Events::resume`].
    pub(crate) fn put_off(&self, database: u32, key: Box<[u8]>) {
        self.ready.lock().put_off.insert((database, key));
    }

    /// Makes the keys that were put off ready again, for any worker.
    pub(crate) fn resume(&self) {
        if self.waiting() == 0 {
            return;
        }
        let mut ready = self.ready.lock();
        let put_off = std::mem::take(&mut ready.put_off);
        self.kept.fetch_add((put_off.len() as u64) << KEPT_BITS, Ordering::Relaxed);
        for (database, key) in put_off {
            ready.keys_len += key.len();
            ready.queue.push_back((NO_WORKER, database, key));
        }
    }

    /// Whether any key is watched.
    pub(crate) fn has_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lists.len() * size_of::<Lock<List>>()
    }

    /// Which classes are noted. The load is relaxed: a client that reads a key
    /// after the classes were changed holds its shard's lock after that, and
    /// whoever changes the key later holds it later still.
    #[inline]
    fn noted(&self) -> KeyspaceEvents {
        KeyspaceEvents::from_bits(self.noted.load(Ordering::Relaxed))
    }

    fn list(&self, worker: u16) -> &Lock<List> {
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
    /// the order in which they happened to each key; with [`NO_WORKER`], those
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
            self.keep_event(turn, self.database_at(place), class, name, key);
        }
    }

    /// Notes that keys of a database may all have something for who waits for
    /// them.
    pub(crate) fn note_all_ready(&self, turn: Turn, database: u32) {
        if self.events.waiting() > 0 {
            let keys = self.waiters.keys_of(database);
            for key in &keys {
                self.note_expiry(database, key);
                self.events.note_ready(turn.worker, database, key);
            }
        }
    }

    /// Whether what became of a key may be what somebody waits for.
    fn concerns_waiters(
        &self,
        database: u32,
        class: KeyspaceEvents,
        name: &str,
        key: &[u8],
    ) -> bool {
        match class {
            // Who reads for a group is told that the stream is gone.
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
                self.note_expiry(database, key);
            }
            if self.concerns_waiters(database, class, name, key) {
                self.events.note_ready(turn.worker, database, key);
            }
        }
        self.push_event(turn, database, class, name, key);
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
