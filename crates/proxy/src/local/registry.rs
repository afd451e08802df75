use super::ClientEntry;
use crate::tracking::Tracking;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// Every client of the process. It is locked when clients connect, leave or set their names, and
/// never by a request for data.
#[derive(Debug, Default)]
pub struct ClientRegistry {
    /// They are boxed: ids ascend, and a tree that grows at its end has half-empty nodes.
    entries: Mutex<BTreeMap<u64, Box<ClientEntry>>>,
    /// Clients to be closed that may be in a handover between two workers.
    killed: Mutex<BTreeSet<u64>>,
    /// Clients that wait in a blocking command.
    blocked: Mutex<BTreeSet<u64>>,
    /// Clients whose request waits for the end of a CLIENT PAUSE.
    paused: Mutex<BTreeSet<u64>>,
}

impl ClientRegistry {
    /// Adds a client with its id.
    pub fn insert(&self, id: u64, entry: ClientEntry) {
        self.entries.lock().insert(id, Box::new(entry));
    }

    /// Removes a client that has left.
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

    /// Notes whether a client waits in a blocking command.
    pub fn set_blocked(&self, id: u64, is_blocked: bool) {
        let mut blocked = self.blocked.lock();
        if is_blocked {
            blocked.insert(id);
        } else {
            blocked.remove(&id);
        }
    }

    /// Returns whether a client of `pool` waits in a blocking command. From then on it no longer
    /// counts as waiting.
    pub fn take_blocked(&self, id: u64, pool: u16) -> bool {
        self.entries.lock().get(&id).is_some_and(|entry| entry.pool == pool)
            && self.blocked.lock().remove(&id)
    }

    /// Returns the clients that wait in blocking commands.
    pub fn blocked(&self) -> BTreeSet<u64> {
        self.blocked.lock().clone()
    }

    /// Returns the number of clients that wait in blocking commands.
    pub fn blocked_len(&self) -> usize {
        self.blocked.lock().len()
    }

    /// Notes a client's tracking.
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

    /// Returns whether `id` is a client of `pool`.
    pub fn is_of_pool(&self, id: u64, pool: u16) -> bool {
        self.entries.lock().get(&id).is_some_and(|entry| entry.pool == pool)
    }

    /// Returns the worker that serves client `id`, if it is one of `pool`.
    pub fn worker_of(&self, id: u64, pool: u16) -> Option<u16> {
        let entries = self.entries.lock();
        entries.get(&id).filter(|entry| entry.pool == pool).map(|entry| entry.worker)
    }

    /// Returns the worker that serves client `id`, if there is one.
    pub fn worker(&self, id: u64) -> Option<u16> {
        self.entries.lock().get(&id).map(|entry| entry.worker)
    }

    /// Marks clients as to be closed. A worker that takes a client over checks the marks, because
    /// during a handover no worker could close it.
    pub fn mark_killed(&self, ids: &[u64]) {
        let entries = self.entries.lock();
        let known = ids.iter().filter(|id| entries.contains_key(id));
        self.killed.lock().extend(known);
    }

    /// Returns whether a client is to be closed.
    pub fn is_killed(&self, id: u64) -> bool {
        self.killed.lock().contains(&id)
    }

    /// Returns the number of clients.
    pub fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Returns whether there are no clients.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Changes a client's entry.
    pub fn update(&self, id: u64, change: impl FnOnce(&mut ClientEntry)) {
        if let Some(entry) = self.entries.lock().get_mut(&id) {
            change(entry);
        }
    }

    /// Returns a copy of a client's entry.
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
