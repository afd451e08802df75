use super::ClientEntry;
use crate::tracking::Tracking;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// Every client of the process. Locked when clients come, go or name
/// themselves, never by a request for data.
#[derive(Debug, Default)]
pub struct ClientRegistry {
    /// Boxed: ids ascend, and a tree that grows at its end has nodes that are half empty.
    entries: Mutex<BTreeMap<u64, Box<ClientEntry>>>,
    /// Clients to be closed that may be on their way between two workers.
    killed: Mutex<BTreeSet<u64>>,
    /// Clients that wait in a blocking command.
    blocked: Mutex<BTreeSet<u64>>,
    /// Clients whose request waits for the end of a CLIENT PAUSE.
    paused: Mutex<BTreeSet<u64>>,
}

impl ClientRegistry {
    /// Adds a client under its id.
    pub fn insert(&self, id: u64, entry: ClientEntry) {
        self.entries.lock().insert(id, Box::new(entry));
    }

    /// Removes a client that left.
    pub fn remove(&self, id: u64) {
        self.entries.lock().remove(&id);
        self.killed.lock().remove(&id);
        self.blocked.lock().remove(&id);
        self.paused.lock().remove(&id);
    }

    /// Notes whether a client waits for the end of a CLIENT PAUSE.
    pub fn set_paused(&self, id: u64, is_paused: bool) {
        let mut paused = self.paused.lock();
        if is_paused {
            paused.insert(id);
        } else {
            paused.remove(&id);
        }
    }

    /// Notes that a client waits in a blocking command, or no longer.
    pub fn set_blocked(&self, id: u64, is_blocked: bool) {
        let mut blocked = self.blocked.lock();
        if is_blocked {
            blocked.insert(id);
        } else {
            blocked.remove(&id);
        }
    }

    /// Whether a client of `pool` waits in a blocking command; from then on it
    /// counts as one that does not.
    pub fn take_blocked(&self, id: u64, pool: u16) -> bool {
        self.entries.lock().get(&id).is_some_and(|entry| entry.pool == pool)
            && self.blocked.lock().remove(&id)
    }

    /// The clients that wait in blocking commands.
    pub fn blocked(&self) -> BTreeSet<u64> {
        self.blocked.lock().clone()
    }

    /// How many clients wait in commands that block.
    pub fn blocked_len(&self) -> usize {
        self.blocked.lock().len()
    }

    /// Notes what a client is told of keys that change.
    pub fn set_tracking(&self, id: u64, tracking: Option<&Tracking>) {
        self.update(id, |entry| entry.set_tracking(tracking));
    }

    /// Returns how many clients of `pool` wait, in blocking commands or for the end of a pause, and
    /// how many track keys.
    pub fn waiting_and_tracking(&self, pool: u16) -> (usize, usize) {
        let entries = self.entries.lock();
        let (blocked, paused) = (self.blocked.lock(), self.paused.lock());
        let is_ours = |id: &&u64| entries.get(id).is_some_and(|entry| entry.pool == pool);
        let tracking =
            entries.values().filter(|entry| entry.pool == pool && entry.tracking().is_some());
        (blocked.union(&paused).filter(is_ours).count(), tracking.count())
    }

    /// Whether `id` is a client of `pool`.
    pub fn is_of_pool(&self, id: u64, pool: u16) -> bool {
        self.entries.lock().get(&id).is_some_and(|entry| entry.pool == pool)
    }

    /// The worker that serves client `id`, if it is one of `pool`.
    pub fn worker_of(&self, id: u64, pool: u16) -> Option<u16> {
        let entries = self.entries.lock();
        entries.get(&id).filter(|entry| entry.pool == pool).map(|entry| entry.worker)
    }

    /// The worker that serves client `id`, if there is one.
    pub fn worker(&self, id: u64) -> Option<u16> {
        self.entries.lock().get(&id).map(|entry| entry.worker)
    }

    /// Marks clients as to be closed: a worker that takes one over looks here,
    /// since while it was handed over no worker had it to close.
    pub fn mark_killed(&self, ids: &[u64]) {
        let entries = self.entries.lock();
        let known = ids.iter().filter(|id| entries.contains_key(id));
        self.killed.lock().extend(known);
    }

    /// Whether a client is to be closed.
    pub fn is_killed(&self, id: u64) -> bool {
        self.killed.lock().contains(&id)
    }

    /// Number of clients.
    pub fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Changes a client's entry.
    pub fn update(&self, id: u64, change: impl FnOnce(&mut ClientEntry)) {
        if let Some(entry) = self.entries.lock().get_mut(&id) {
            change(entry);
        }
    }

    /// A copy of a client's entry.
    pub fn get(&self, id: u64) -> Option<ClientEntry> {
        self.entries.lock().get(&id).map(|entry| ClientEntry::clone(entry))
    }

    /// Visits every client in the order of their ids.
    pub fn for_each(&self, mut visit: impl FnMut(u64, &ClientEntry)) {
        for (&id, entry) in self.entries.lock().iter() {
            visit(id, entry);
        }
    }
}
