//! Which clients must be told when a key of an embedded store changes: the only part of client-side
//! caching that workers share.
//!
//! ```text
//!  worker 0: GET k of a client that caches ──► table: k ─► client 7
//!  worker 1: SET k ──► table: who has read k? (its entry is taken out)
//!                        └──► inbox of client 7's worker ──► client 7
//! ```
//! A reader is entered BEFORE its value is read, and a writer looks AFTER it has written. Both hold
//! the store's lock of the key in between. So for a read and a write, either the read returns what
//! was written, or the writer finds the reader: no copy stays stale. If a writer finds too many
//! readers, that only costs a read.

use crate::readers::Readers;
use foldhash::fast::RandomState;
use indexmap::{IndexMap, IndexSet};
use keyway_base::Limits;
use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Number of parts of a table, each with a lock. With fewer, workers would wait for each other and
/// a sweep would hold a lock for longer. More would take memory if no client tracks.
const PARTS: usize = 256;

/// Smallest number of keys that one step of a sweep visits. It takes some hundred microseconds.
const SWEEP_STEP: usize = 4096;

/// Number of bytes that may wait in one worker's inbox. With more, longer stalls of a worker would
/// be tolerated. The client of a message that finds no room is told that everything has changed.
const INBOX_LEN_MAX: usize = 16 << 20;

/// Number of bytes that a message takes in an inbox besides its own.
const MESSAGE_OVERHEAD: usize = 64;

/// A client, by its id.
pub(crate) type Client = u64;

type Map<K, V> = IndexMap<K, V, RandomState>;

/// Number of bytes that a key takes besides its name and its readers.
const KEY_COST: usize = 128;

/// Length of the longest key name that is kept, in bytes. The reader of a key with a longer name is
/// told at once. With more, one read could evict more of the others' keys.
const NAME_LEN_MAX: usize = 64 << 10;

/// A message to a client about its cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// The client for which it is.
    pub(crate) client: Client,
    pub(crate) what: What,
}

/// The content of a message to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// These keys have changed: the push in RESP3.
    Changed(Arc<[u8]>),
    /// The same, for a client that is told in place of `tracker`.
    Redirected { tracker: Client, push: Arc<[u8]> },
    /// The client that is told in its place has left.
    Broken { target: Client },
}

/// Messages for one worker's clients.
#[derive(Debug, Default)]
struct Inbox {
    messages: Vec<Told>,
    len: usize,
    /// Clients of which a message found no room, with whether it was redirected to them: they have
    /// missed something. There are at most as many as clients.
    missed: IndexSet<(Client, bool)>,
    /// Numbers of messages since the start: posted here, taken by the worker, and sent to clients.
    posted: u64,
    taken: u64,
    delivered: u64,
    /// Workers that must be told once the posted messages, or the taken ones, were sent.
    waiters: BTreeSet<u16>,
    waiters_of_taken: BTreeSet<u16>,
}

/// Size of the tables of clients that cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tracked {
    /// Keys that a client has read.
    pub keys: usize,
    /// Pairs of a key and a client that has read it.
    pub items: usize,
    /// Prefixes that a client tracks.
    pub prefixes: usize,
}

/// Tables of the embedded stores and inboxes of the workers.
#[derive(Debug, Default)]
pub struct Invalidations {
    /// By the pool's index.
    tables: RwLock<Vec<Arc<Table>>>,
    /// By the worker's number.
    inboxes: RwLock<Vec<Arc<Mutex<Inbox>>>>,
}

impl Invalidations {
    /// Returns the table of a pool.
    pub(crate) fn table(&self, pool: u16) -> Arc<Table> {
        nth_of(&self.tables, pool)
    }

    /// Returns the table sizes of a pool's store, for INFO.
    pub fn tracked(&self, pool: u16) -> Tracked {
        let Some(table) = self.tables.read().get(usize::from(pool)).map(Arc::clone) else {
            return Tracked::default();
        };
        let prefixes = table.trackers.read().prefixes.values().map(|of_len| of_len.len()).sum();
        let items = table.parts.iter().map(|part| part.lock().items).sum();
        Tracked { keys: table.len(), items, prefixes }
    }

    /// Returns the number of keys with readers, and of clients that may be readers.
    #[allow(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        let tables = self.tables.read();
        tables.iter().map(|table| table.len() + table.everybody().len()).sum()
    }

    /// Leaves a message for a client of `worker`. Returns whether the worker must be woken.
    pub(crate) fn post(&self, worker: u16, told: Told) -> bool {
        nth_of(&self.inboxes, worker).lock().put(told)
    }

    /// Like [`Invalidations::post`], for a message that `from` awaits. Also returns the message's
    /// number.
    pub(crate) fn post_awaited(&self, worker: u16, told: Told, from: u16) -> (bool, u64) {
        let inbox = nth_of(&self.inboxes, worker);
        let mut inbox = inbox.lock();
        inbox.waiters.insert(from);
        let wakes = inbox.put(told);
        (wakes, inbox.posted)
    }

    /// Returns whether a message was sent to its client.
    pub(crate) fn is_delivered(&self, worker: u16, number: u64) -> bool {
        nth_of(&self.inboxes, worker).lock().delivered >= number
    }

    /// Notes that the messages which a worker has taken were sent. Returns the workers that await
    /// them.
    pub(crate) fn acknowledge(&self, worker: u16) -> BTreeSet<u16> {
        let inbox = nth_of(&self.inboxes, worker);
        let mut inbox = inbox.lock();
        inbox.delivered = inbox.taken;
        std::mem::take(&mut inbox.waiters_of_taken)
    }

    /// Notes that a client of `worker` has missed a redirected message. Returns whether the worker
    /// must be woken.
    pub(crate) fn miss(&self, worker: u16, client: Client) -> bool {
        let inbox = nth_of(&self.inboxes, worker);
        let mut inbox = inbox.lock();
        let was_empty = inbox.is_empty();
        inbox.missed.insert((client, true));
        was_empty
    }

    /// Takes the messages for a worker's clients, and the clients that have missed something, with
    /// whether it was redirected to them.
    pub(crate) fn take(&self, worker: u16) -> (Vec<Told>, IndexSet<(Client, bool)>) {
        let inbox = nth_of(&self.inboxes, worker);
        let mut inbox = inbox.lock();
        inbox.len = 0;
        inbox.taken = inbox.posted;
        let waiters = std::mem::take(&mut inbox.waiters);
        inbox.waiters_of_taken.extend(waiters);
        (std::mem::take(&mut inbox.messages), std::mem::take(&mut inbox.missed))
    }
}

/// Returns element `index` of a list that grows on demand.
fn nth_of<T: Default>(list: &RwLock<Vec<Arc<T>>>, index: u16) -> Arc<T> {
    let index = usize::from(index);
    if let Some(found) = list.read().get(index) {
        return Arc::clone(found);
    }
    let mut list = list.write();
    if list.len() <= index {
        list.resize_with(index + 1, Arc::default);
    }
    Arc::clone(&list[index])
}

impl Inbox {
    fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.missed.is_empty()
    }

    fn put(&mut self, told: Told) -> bool {
        let was_empty = self.is_empty();
        self.posted += 1;
        let (push_len, is_redirected) = match &told.what {
            What::Changed(push) => (push.len(), false),
            What::Redirected { push, .. } => (push.len(), true),
            What::Broken { .. } => (0, false),
        };
        let len = push_len + MESSAGE_OVERHEAD;
        if self.len + len > INBOX_LEN_MAX {
            self.missed.insert((told.client, is_redirected));
        } else {
            self.len += len;
            self.messages.push(told);
        }
        was_empty
    }
}

/// Keys, each with the clients that have read it.
#[derive(Debug, Default)]
struct Part {
    keys: Map<Box<[u8]>, Readers>,
    /// Approximate number of bytes that they take.
    bytes: usize,
    /// Number of pairs of a key and a client that has read it.
    items: usize,
}

/// Returns the approximate number of bytes that a key takes.
fn cost_of(key: &[u8], readers: &Readers) -> usize {
    KEY_COST + key.len() + readers.cost()
}

/// Returns the keys with their readers, for tests.
#[cfg(test)]
type Kept = BTreeMap<Box<[u8]>, BTreeSet<Client>>;

/// Which clients have read which keys of one store, and which are told of which prefixes.
#[derive(Debug)]
pub(crate) struct Table {
    parts: Box<[Mutex<Part>]>,
    /// Number of keys in all parts.
    len: AtomicUsize,
    /// Approximate number of bytes that they take.
    bytes: AtomicUsize,
    trackers: RwLock<Trackers>,
    /// True if there are prefixes. This is a hint, read without the lock.
    has_prefixes: AtomicBool,
    /// Number of parts that may contain clients that have left.
    unswept: AtomicUsize,
    /// The part that is swept next.
    sweep_turn: AtomicUsize,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Trackers {
    /// Every client that may be in the table, with its worker.
    workers: Map<Client, u16>,
    /// The clients that track prefixes. They are not told of keys that they read before.
    broadcast: IndexSet<Client, RandomState>,
    /// The clients that are told of keys with a prefix, by the prefix's length and then by the
    /// prefix.
    prefixes: BTreeMap<usize, Map<Box<[u8]>, Readers>>,
}

/// The result of entering a reader.
#[derive(Debug, Default)]
pub(crate) struct Entered {
    /// True if the client is new.
    pub(crate) is_new: bool,
    /// Keys that were evicted for lack of room. Their readers must be told.
    pub(crate) given_up: Vec<(Box<[u8]>, Readers)>,
}

/// Keys that changed and have a tracked prefix, with the clients to be told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broadcast<'a> {
    /// In their order, each with the client that alone changed it, if one did.
    pub(crate) keys: Vec<(&'a [u8], Option<Client>)>,
    /// The clients to be told, with their workers.
    pub(crate) clients: Vec<(Client, u16)>,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            len: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            trackers: RwLock::default(),
            has_prefixes: AtomicBool::new(false),
            unswept: AtomicUsize::new(0),
            sweep_turn: AtomicUsize::new(0),
            hasher: RandomState::default(),
        }
    }
}

impl Table {
    /// Adds a client that may read. It may already be there. `watch` is called if it is the first
    /// one.
    pub(crate) fn join(&self, client: Client, worker: u16, watch: impl FnOnce()) {
        let mut trackers = self.trackers.write();
        if trackers.workers.is_empty() {
            watch();
        }
        trackers.workers.insert(client, worker);
    }

    /// Removes a client. Its entries in the table are swept gradually, or at once if it was the
    /// last one. `unwatch` is then called.
    pub(crate) fn leave(&self, client: Client, unwatch: impl FnOnce()) {
        let mut trackers = self.trackers.write();
        if trackers.workers.swap_remove(&client).is_none() {
            return;
        }
        if trackers.workers.is_empty() {
            unwatch();
            self.clear();
        } else {
            self.unswept.store(self.parts.len(), Ordering::Relaxed);
        }
    }

    /// Tells a client of keys with the `new` prefixes, and no longer of those that only have `old`
    /// ones.
    pub(crate) fn change_prefixes(
        &self,
        client: Client,
        old: &BTreeSet<Vec<u8>>,
        new: &BTreeSet<Vec<u8>>,
    ) {
        if old == new {
            return;
        }
        let trackers = &mut *self.trackers.write();
        match new.is_empty() {
            true => trackers.broadcast.swap_remove(&client),
            false => trackers.broadcast.insert(client),
        };
        let prefixes = &mut trackers.prefixes;
        for prefix in old.difference(new) {
            let Some(of_len) = prefixes.get_mut(&prefix.len()) else { continue };
            let Some(clients) = of_len.get_mut(&**prefix) else { continue };
            clients.remove(client);
            if clients.is_empty() {
                of_len.swap_remove(&**prefix);
            }
        }
        for prefix in new.difference(old) {
            let of_len = prefixes.entry(prefix.len()).or_default();
            of_len.entry(prefix.as_slice().into()).or_default().insert(client);
        }
        prefixes.retain(|_, of_len| !of_len.is_empty());
        self.has_prefixes.store(!prefixes.is_empty(), Ordering::Relaxed);
    }

    /// Returns whether any client is told of keys by their prefixes.
    #[inline]
    pub(crate) fn has_prefixes(&self) -> bool {
        self.has_prefixes.load(Ordering::Relaxed)
    }

    /// Returns the number of keys with readers.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Returns the approximate number of bytes that these keys take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn part(&self, key: &[u8]) -> &Mutex<Part> {
        &self.parts[(self.hasher.hash_one(key) >> 32) as usize % PARTS]
    }

    /// Enters a client that is about to read `key`. If there are then more than `keys_max` keys, or
    /// if the keys take more than that many average keys may, others are evicted, chosen by
    /// `random`.
    pub(crate) fn enter(
        &self,
        client: Client,
        key: &[u8],
        keys_max: usize,
        random: u64,
    ) -> Entered {
        if key.len() > NAME_LEN_MAX {
            let given_up = vec![(key.into(), Readers::of(client))];
            return Entered { is_new: true, given_up };
        }
        let mut entered = Entered::default();
        {
            let part = &mut *self.part(key).lock();
            let more = match part.keys.get_mut(key) {
                Some(readers) => {
                    let before = readers.cost();
                    entered.is_new = readers.insert(client);
                    readers.cost() - before
                }
                None => {
                    entered.is_new = true;
                    let readers = Readers::of(client);
                    let cost = cost_of(key, &readers);
                    part.keys.insert(key.into(), readers);
                    self.len.fetch_add(1, Ordering::Relaxed);
                    cost
                }
            };
            part.bytes += more;
            part.items += usize::from(entered.is_new);
            self.bytes.fetch_add(more, Ordering::Relaxed);
        }
        let bytes_max = keys_max.saturating_mul(Limits::TRACKING_KEY_LEN);
        while entered.is_new && (self.len() > keys_max || self.bytes() > bytes_max) {
            let Some(given_up) = self.take_any(random) else { break };
            entered.given_up.push(given_up);
        }
        entered
    }

    /// Removes a key chosen by `random`.
    #[cold]
    fn take_any(&self, random: u64) -> Option<(Box<[u8]>, Readers)> {
        for offset in 0..PARTS {
            let part = &mut *self.parts[(random as usize + offset) % PARTS].lock();
            if !part.keys.is_empty() {
                let index = (random >> 32) as usize % part.keys.len();
                let (key, readers) = part.keys.swap_remove_index(index)?;
                part.items -= readers.len();
                self.note_taken(part, 1, cost_of(&key, &readers));
                return Some((key, readers));
            }
        }
        None
    }

    /// Counts what has been removed from a part.
    fn note_taken(&self, part: &mut Part, keys: usize, bytes: usize) {
        part.bytes -= bytes;
        self.len.fetch_sub(keys, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Removes the readers of `key`. `keep`, which reads it now, stays.
    pub(crate) fn take(&self, key: &[u8], keep: Option<Client>) -> Readers {
        let part = &mut *self.part(key).lock();
        if let Some(keep) = keep
            && let Some(readers) = part.keys.get_mut(key)
            && readers.contains(keep)
        {
            let taken = std::mem::replace(readers, Readers::of(keep));
            let less = taken.cost() - readers.cost();
            part.items -= taken.len() - 1;
            self.note_taken(part, 0, less);
            return taken;
        }
        let Some(readers) = part.keys.swap_remove(key) else { return Readers::default() };
        part.items -= readers.len();
        self.note_taken(part, 1, cost_of(key, &readers));
        readers
    }

    /// Removes every key. All clients must be told then, so this is called before they are listed:
    /// one that reads in between is told as well.
    pub(crate) fn clear(&self) {
        for part in &self.parts {
            let mut part = part.lock();
            let (keys, bytes) = (part.keys.len(), part.bytes);
            self.note_taken(&mut part, keys, bytes);
            *part = Part::default();
        }
    }

    /// Returns all clients, with their workers.
    pub(crate) fn everybody(&self) -> Vec<(Client, u16)> {
        self.trackers.read().workers.iter().map(|(client, worker)| (*client, *worker)).collect()
    }

    /// Returns the clients of `readers` to be told, with their workers. Clients that have left, or
    /// that track prefixes, are left out.
    pub(crate) fn present(&self, readers: &Readers) -> SmallVec<[(Client, u16); 2]> {
        if readers.is_empty() {
            return SmallVec::new();
        }
        let trackers = self.trackers.read();
        let worker_of = |client| Some((client, *trackers.workers.get(&client)?));
        let hears = |client: &Client| !trackers.broadcast.contains(client);
        readers.iter().filter(hears).filter_map(worker_of).collect()
    }

    /// Returns which of the `changed` keys must be told to which clients, one prefix after the
    /// other in their order.
    pub(crate) fn broadcasts<'a>(
        &self,
        changed: &'a BTreeMap<Box<[u8]>, Option<Client>>,
    ) -> Vec<Broadcast<'a>> {
        let trackers = self.trackers.read();
        let mut found: BTreeMap<&[u8], Broadcast<'a>> = BTreeMap::new();
        for (key, changer) in changed {
            for (len, prefixes) in trackers.prefixes.range(..=key.len()) {
                let Some((prefix, clients)) = prefixes.get_key_value(&key[..*len]) else {
                    continue;
                };
                let worker_of = |client| Some((client, *trackers.workers.get(&client)?));
                let broadcast = found.entry(prefix).or_insert_with(|| Broadcast {
                    keys: Vec::new(),
                    clients: clients.iter().filter_map(worker_of).collect(),
                });
                broadcast.keys.push((key, *changer));
            }
        }
        found.into_values().collect()
    }

    /// Continues to remove clients that have left, for a bounded time. Returns whether there is
    /// more to do.
    pub(crate) fn sweep(&self) -> bool {
        let mut seen = 0;
        while seen < SWEEP_STEP {
            let next = |left: usize| left.checked_sub(1);
            if self.unswept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_err() {
                return false;
            }
            let index = self.sweep_turn.fetch_add(1, Ordering::Relaxed) % PARTS;
            // The locks are always taken in this order, here and when the last client leaves.
            let trackers = self.trackers.read();
            let part = &mut *self.parts[index].lock();
            let (before, mut bytes, mut items) = (part.keys.len(), 0, 0);
            seen += 1 + before;
            part.keys.retain(|key, readers| {
                let cost = readers.cost();
                items += readers.len();
                readers.retain(|client| trackers.workers.contains_key(&client));
                items -= readers.len();
                let is_kept = !readers.is_empty();
                bytes += cost - readers.cost() + if is_kept { 0 } else { cost_of(key, readers) };
                is_kept
            });
            let keys = before - part.keys.len();
            part.items -= items;
            self.note_taken(part, keys, bytes);
        }
        true
    }

    /// Returns everything that is kept, for tests: keys with their readers, trackers, prefixes.
    #[cfg(test)]
    fn kept(&self) -> (Kept, usize, usize) {
        let mut keys = BTreeMap::new();
        for part in &self.parts {
            let part = part.lock();
            let costs = part.keys.iter().map(|(key, readers)| cost_of(key, readers));
            assert_eq!(part.bytes, costs.sum());
            for (key, readers) in &part.keys {
                keys.insert(key.clone(), readers.iter().collect());
            }
        }
        let trackers = self.trackers.read();
        (keys, trackers.workers.len(), trackers.prefixes.values().map(Map::len).sum())
    }
}

#[cfg(test)]
mod tests;
