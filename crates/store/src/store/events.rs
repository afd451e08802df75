//! Events of keys. The worker publishes them and tells clients that keep copies.
//!
//! Every path by which a key changes notes it here, within the class that Redis's keyspace events
//! give it, with the key's shard locked. A class that no client asks for costs one branch. Events
//! are kept until the worker that made them takes them, right after the request; watched keys are
//! marked at once ([`super::watches`]), and keys that a client waits for are noted as ready
//! ([`super::waiters`]).

use keyway_base::KeyspaceEvents;
use keyway_memory::Lock;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};

/// Something that became of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEvent {
    /// The key's database, as clients number it.
    pub database: u32,
    /// The class of the event.
    pub class: KeyspaceEvents,
    /// Redis's name for it, such as `set` or `expired`.
    pub name: &'static str,
    /// The key.
    pub key: Box<[u8]>,
    /// The worker whose request caused it.
    pub(super) worker: u16,
}

impl KeyEvent {
    /// Returns whether the event changes no key. Such an event is published, but clients that cache
    /// are not told.
    pub fn is_notice(&self) -> bool {
        matches!(self.class, KeyspaceEvents::NEW | KeyspaceEvents::MISS)
    }
}

/// The worker of events of [`crate::Store::tick`].
pub const NO_WORKER: u16 = u16::MAX;

/// Of changes that Redis publishes no event of, but which end what clients keep
/// of a key: noted only while changes are watched.
pub(crate) const SILENT: KeyspaceEvents = KeyspaceEvents::from_bits(1 << 15);

/// Lists of events. Workers beyond share one, and wait for each other's lock.
const LISTS: usize = 64;

/// Events that a list keeps room for once they are taken. More come of scripts
/// and of what expires at once.
pub(super) const EVENTS_KEPT_MAX: usize = 1024;

/// Bits of `Events::kept` that are classes.
const KEPT_BITS: u32 = 16;
pub(super) const KEPT_MASK: u64 = (1 << KEPT_BITS) - 1;

/// The worker that is to see to a key, its database, and the key.
pub(super) type Ready = (u16, u32, Box<[u8]>);

/// Events nobody took yet, and which are noted.
pub(crate) struct Events {
    /// Classes that are noted: those kept, or all while somebody observes keys.
    noted: AtomicU16,
    /// In the low 16 bits, classes of which events are kept: the configured
    /// ones, or all while every change is. Above, how many keys are ready.
    pub(super) kept: AtomicU64,
    /// Commands that wait for keys.
    waiting: AtomicUsize,
    /// Keys that somebody waits for and that may have something now.
    pub(super) ready: Lock<ReadyKeys>,
    /// Keys that are watched for transactions.
    watched: AtomicUsize,
    /// True if a reader follows the store.
    is_followed: AtomicBool,
    /// Held while what is noted changes.
    order: Lock<()>,
    lists: Box<[Lock<List>]>,
}

/// Events of some workers.
#[derive(Default)]
pub(super) struct List {
    pub(super) events: Vec<KeyEvent>,
    /// Bytes of their keys.
    pub(super) keys_len: usize,
}

/// Keys that may have something, the oldest first.
#[derive(Default)]
pub(super) struct ReadyKeys {
    pub(super) queue: VecDeque<Ready>,
    /// Bytes of them.
    pub(super) keys_len: usize,
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
            is_followed: AtomicBool::new(false),
            order: Lock::new(()),
            lists,
        }
    }

    /// Changes who wants to know of events, and so which are noted. The loads
    /// elsewhere are relaxed: see [`Events::noted`].
    pub(super) fn observe(&self, change: impl FnOnce()) {
        let _order = self.order.lock();
        change();
        let is_followed = self.is_followed.load(Ordering::Relaxed);
        let is_observed = self.has_watched() || self.waiting() > 0 || is_followed;
        let noted = match is_observed {
            true => KeyspaceEvents::ALL.bits() | SILENT.bits() | self.kept().bits(),
            false => self.kept().bits(),
        };
        self.noted.store(noted, Ordering::Relaxed);
    }

    /// Notes whether somebody follows the store, which is asked for again each time.
    pub(super) fn observe_followers(&self, is_followed: impl FnOnce() -> bool) {
        self.observe(|| self.is_followed.store(is_followed(), Ordering::Relaxed));
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

    /// Returns the number of commands that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(super) fn kept(&self) -> KeyspaceEvents {
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

    /// Returns whether any key is watched.
    pub(crate) fn has_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lists.len() * size_of::<Lock<List>>()
    }

    /// Returns the classes that are noted. The load is relaxed: a client that reads a key after the
    /// classes were changed holds its shard's lock after that, and a client that changes the key
    /// later holds it later still.
    #[inline]
    pub(super) fn noted(&self) -> KeyspaceEvents {
        KeyspaceEvents::from_bits(self.noted.load(Ordering::Relaxed))
    }

    pub(super) fn list(&self, worker: u16) -> &Lock<List> {
        &self.lists[usize::from(worker) % self.lists.len()]
    }
}
