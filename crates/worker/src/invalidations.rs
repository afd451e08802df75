//! Who is to be told when a key of an embedded store changes: the one thing of
//! client-side caching that workers share.
//!
//! ```text
//!  worker 0: GET k of a client that caches ──► table: k ─► client 7
//!  worker 1: SET k ──► table: who has read k? (its entry is taken out)
//!                        └──► inbox of client 7's worker ──► client 7
//! ```
//! A reader is entered BEFORE its value is read, and a writer looks AFTER it
//! has written. Both hold the store's lock of the key in between, so of a read
//! and a write either the read gives what was written, or the writer finds the
//! reader: no copy stays stale. What a writer finds too much only costs a read.

use foldhash::fast::RandomState;
use indexmap::{IndexMap, IndexSet};
use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Parts of a table, each with a lock. Fewer let workers wait for each other
/// and a sweep hold a lock for longer, more cost memory where nobody tracks.
const PARTS: usize = 256;

/// Keys that one step of a sweep looks at, at least: some hundred microseconds.
const SWEEP_STEP: usize = 4096;

/// Bytes that may wait in one worker's inbox. More forgives longer stalls of a
/// worker; what finds no room has its client told that everything has changed.
const INBOX_LEN_MAX: usize = 16 << 20;

/// What a message takes in an inbox besides its bytes.
const MESSAGE_OVERHEAD: usize = 64;

/// A client, by its id.
pub(crate) type Client = u64;

/// Clients to be told of one key: mostly one or two.
pub(crate) type Readers = SmallVec<[Client; 2]>;

type Map<K, V> = IndexMap<K, V, RandomState>;

/// A message to a client about its cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// Whom it is for.
    pub(crate) client: Client,
    pub(crate) what: What,
}

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// These keys have changed: the push, composed for RESP3.
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
    /// Clients of which a message found no room, with whether it was
    /// redirected to them: they have missed something. As many as there are
    /// clients, at most.
    missed: IndexSet<(Client, bool)>,
}

/// Tables of the embedded stores and inboxes of the workers.
#[derive(Debug, Default)]
pub struct Invalidations {
    /// By the pool's position.
    tables: RwLock<Vec<Arc<Table>>>,
    /// By the worker's number.
    inboxes: RwLock<Vec<Arc<Mutex<Inbox>>>>,
}

impl Invalidations {
    /// The table of a pool.
    pub(crate) fn table(&self, pool: u16) -> Arc<Table> {
        nth_of(&self.tables, pool)
    }

    /// Leaves a message for a client of `worker`. Whether the worker is to be
    /// told that there is something.
    pub(crate) fn post(&self, worker: u16, told: Told) -> bool {
        nth_of(&self.inboxes, worker).lock().put(told)
    }

    /// Takes what waits for a worker's clients, and the clients that have
    /// missed something, with whether it was redirected to them.
    pub(crate) fn take(&self, worker: u16) -> (Vec<Told>, IndexSet<(Client, bool)>) {
        let inbox = nth_of(&self.inboxes, worker);
        let mut inbox = inbox.lock();
        inbox.len = 0;
        (std::mem::take(&mut inbox.messages), std::mem::take(&mut inbox.missed))
    }
}

/// Element `index` of a list that grows as it is asked for.
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
    fn put(&mut self, told: Told) -> bool {
        let was_empty = self.messages.is_empty() && self.missed.is_empty();
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

/// Who has read which key of one store, and who is told of which prefixes.
#[derive(Debug)]
pub(crate) struct Table {
    parts: Box<[Mutex<Map<Box<[u8]>, Readers>>]>,
    /// Keys in all parts.
    len: AtomicUsize,
    trackers: RwLock<Trackers>,
    /// Whether there are prefixes: a hint, read without the lock.
    has_prefixes: AtomicBool,
    /// Parts that may name clients who have left.
    unswept: AtomicUsize,
    /// The part whose turn it is to be swept.
    sweep_turn: AtomicUsize,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Trackers {
    /// Every client that may be named in the table, and its worker.
    workers: Map<Client, u16>,
    /// By length, then prefix: who is told of keys that begin with it.
    prefixes: BTreeMap<usize, Map<Box<[u8]>, Vec<Client>>>,
}

/// What entering a reader came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Entered {
    /// The client was not there before.
    pub(crate) is_new: bool,
    /// Keys given up for want of room: their readers are to be told.
    pub(crate) given_up: Vec<(Box<[u8]>, Readers)>,
}

/// Keys that changed and begin with a prefix, with the clients to be told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broadcast<'a> {
    /// In their order, each with the client who changed it last, if any did.
    pub(crate) keys: Vec<(&'a [u8], Option<Client>)>,
    /// Whom to tell, with their workers.
    pub(crate) clients: Vec<(Client, u16)>,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            len: AtomicUsize::new(0),
            trackers: RwLock::default(),
            has_prefixes: AtomicBool::new(false),
            unswept: AtomicUsize::new(0),
            sweep_turn: AtomicUsize::new(0),
            hasher: RandomState::default(),
        }
    }
}

impl Table {
    /// Adds a client that may read; no harm if it is there already. `watch` is
    /// called if nobody was there before.
    pub(crate) fn join(&self, client: Client, worker: u16, watch: impl FnOnce()) {
        let mut trackers = self.trackers.write();
        if trackers.workers.is_empty() {
            watch();
        }
        trackers.workers.insert(client, worker);
    }

    /// Forgets a client: what names it in the table is swept bit by bit, or at
    /// once if it was the last. `unwatch` is called then.
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

    /// Tells a client of keys with `added` prefixes, and no longer of those
    /// with `removed` ones.
    pub(crate) fn change_prefixes<'a>(
        &self,
        client: Client,
        removed: impl Iterator<Item = &'a [u8]>,
        added: impl Iterator<Item = &'a [u8]>,
    ) {
        let mut trackers = self.trackers.write();
        let prefixes = &mut trackers.prefixes;
        for prefix in removed {
            let Some(of_len) = prefixes.get_mut(&prefix.len()) else { continue };
            let Some(clients) = of_len.get_mut(prefix) else { continue };
            clients.retain(|other| *other != client);
            if clients.is_empty() {
                of_len.swap_remove(prefix);
            }
        }
        for prefix in added {
            let of_len = prefixes.entry(prefix.len()).or_default();
            let clients = of_len.entry(prefix.into()).or_default();
            if !clients.contains(&client) {
                clients.push(client);
            }
        }
        prefixes.retain(|_, of_len| !of_len.is_empty());
        self.has_prefixes.store(!prefixes.is_empty(), Ordering::Relaxed);
    }

    /// Whether anybody is told of keys by their prefixes.
    #[inline]
    pub(crate) fn has_prefixes(&self) -> bool {
        self.has_prefixes.load(Ordering::Relaxed)
    }

    /// Keys of which somebody is to be told.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    fn part(&self, key: &[u8]) -> &Mutex<Map<Box<[u8]>, Readers>> {
        &self.parts[(self.hasher.hash_one(key) >> 32) as usize % PARTS]
    }

    /// Enters a client that is about to read `key`. With more than `keys_max`
    /// keys then (0 for no bound), others are given up, chosen by `random`.
    pub(crate) fn enter(
        &self,
        client: Client,
        key: &[u8],
        (keys_max, random): (usize, u64),
    ) -> Entered {
        let mut entered = Entered::default();
        {
            let mut part = self.part(key).lock();
            if let Some(readers) = part.get_mut(key) {
                entered.is_new = !readers.contains(&client);
                if entered.is_new {
                    readers.push(client);
                }
                return entered;
            }
            part.insert(key.into(), SmallVec::from_slice(&[client]));
            self.len.fetch_add(1, Ordering::Relaxed);
        }
        entered.is_new = true;
        while keys_max != 0 && self.len() > keys_max {
            let Some(given_up) = self.take_any(random) else { break };
            entered.given_up.push(given_up);
        }
        entered
    }

    /// Takes out a key chosen by `random`.
    #[cold]
    fn take_any(&self, random: u64) -> Option<(Box<[u8]>, Readers)> {
        for offset in 0..PARTS {
            let mut part = self.parts[(random as usize + offset) % PARTS].lock();
            if !part.is_empty() {
                let index = (random >> 32) as usize % part.len();
                self.len.fetch_sub(1, Ordering::Relaxed);
                return part.swap_remove_index(index);
            }
        }
        None
    }

    /// Takes out who has read `key`; `keep`, who reads it now, stays entered.
    pub(crate) fn take(&self, key: &[u8], keep: Option<Client>) -> Readers {
        let mut part = self.part(key).lock();
        if let Some(keep) = keep
            && let Some(readers) = part.get_mut(key)
            && readers.contains(&keep)
        {
            return std::mem::replace(readers, SmallVec::from_slice(&[keep]));
        }
        let taken = part.swap_remove(key);
        if taken.is_some() {
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
        taken.unwrap_or_default()
    }

    /// Takes out every key. Everybody is to be told then, so this comes before
    /// asking who that is: who reads in between is told as well.
    pub(crate) fn clear(&self) {
        for part in &self.parts {
            let mut part = part.lock();
            self.len.fetch_sub(part.len(), Ordering::Relaxed);
            *part = Map::default();
        }
    }

    /// Everybody, with their workers.
    pub(crate) fn everybody(&self) -> Vec<(Client, u16)> {
        self.trackers.read().workers.iter().map(|(client, worker)| (*client, *worker)).collect()
    }

    /// Those of `readers` that are still there, with their workers.
    pub(crate) fn present(&self, readers: &[Client]) -> SmallVec<[(Client, u16); 2]> {
        if readers.is_empty() {
            return SmallVec::new();
        }
        let trackers = self.trackers.read();
        let worker_of = |client: &Client| Some((*client, *trackers.workers.get(client)?));
        readers.iter().filter_map(worker_of).collect()
    }

    /// Which of the `changed` keys are to be told to whom, a prefix after the
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
                let worker_of = |client: &Client| Some((*client, *trackers.workers.get(client)?));
                let broadcast = found.entry(prefix).or_insert_with(|| Broadcast {
                    keys: Vec::new(),
                    clients: clients.iter().filter_map(worker_of).collect(),
                });
                broadcast.keys.push((key, *changer));
            }
        }
        found.into_values().collect()
    }

    /// Goes on forgetting who has left, for a bounded time; whether there is
    /// more to do.
    pub(crate) fn sweep(&self) -> bool {
        let mut seen = 0;
        while seen < SWEEP_STEP {
            let next = |left: usize| left.checked_sub(1);
            if self.unswept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_err() {
                return false;
            }
            let index = self.sweep_turn.fetch_add(1, Ordering::Relaxed) % PARTS;
            // Always in this order, here and where everybody leaves.
            let trackers = self.trackers.read();
            let mut part = self.parts[index].lock();
            let before = part.len();
            seen += 1 + before;
            part.retain(|_, readers| {
                readers.retain(|client| trackers.workers.contains_key(client));
                !readers.is_empty()
            });
            self.len.fetch_sub(before - part.len(), Ordering::Relaxed);
        }
        true
    }

    /// Everything that is kept, for tests: keys with their readers, trackers,
    /// prefixes.
    #[cfg(test)]
    fn kept(&self) -> (BTreeMap<Box<[u8]>, BTreeSet<Client>>, usize, usize) {
        let mut keys = BTreeMap::new();
        for part in &self.parts {
            for (key, readers) in part.lock().iter() {
                keys.insert(key.clone(), readers.iter().copied().collect());
            }
        }
        let trackers = self.trackers.read();
        (keys, trackers.workers.len(), trackers.prefixes.values().map(Map::len).sum())
    }
}
