//! A coordinator: entries with revisions, sessions with leases, transactions, and a past that can
//! come back.

use keyway_base::Time;
use keyway_fleet::{Fact, KeyChange, When, Write};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The lease of every session.
pub(super) const LEASE: Duration = Duration::from_secs(2);
/// For how long the owner counts on it.
pub(super) const USABLE: Duration = Duration::from_millis(1600);

/// A value with the session that it is bound to; `None` if the key is to be deleted.
type Value = Option<(Vec<u8>, Option<u64>)>;

#[derive(Clone, Debug)]
struct Entry {
    fact: Fact,
    session: Option<u64>,
}

/// The coordinator.
#[derive(Clone, Debug, Default)]
pub(super) struct Engine {
    revision: u64,
    entries: BTreeMap<String, Entry>,
    sessions: BTreeMap<u64, Time>,
    /// The changes of each revision.
    history: BTreeMap<u64, Vec<KeyChange>>,
    next_session: u64,
}

impl Engine {
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn value(&self, key: &str) -> Option<&[u8]> {
        self.entries.get(key).map(|entry| &*entry.fact.value)
    }

    pub fn begin(&mut self, now: Time) -> u64 {
        self.next_session += 1;
        self.sessions.insert(self.next_session, now + LEASE);
        self.next_session
    }

    /// Renews a session. Returns false if it is over.
    pub fn renew(&mut self, session: u64, now: Time) -> bool {
        self.expire(now);
        match self.sessions.get_mut(&session) {
            Some(until) => {
                *until = now + LEASE;
                true
            }
            None => false,
        }
    }

    pub fn end(&mut self, session: u64) {
        self.sessions.remove(&session);
        self.delete_orphans();
    }

    pub fn expire(&mut self, now: Time) {
        let before = self.sessions.len();
        self.sessions.retain(|_, until| *until > now);
        if self.sessions.len() < before {
            self.delete_orphans();
        }
    }

    fn delete_orphans(&mut self) {
        let alive: BTreeSet<u64> = self.sessions.keys().copied().collect();
        let is_orphan = |entry: &Entry| entry.session.is_some_and(|one| !alive.contains(&one));
        let found = self.entries.iter().filter(|(_, entry)| is_orphan(entry));
        let keys: Vec<String> = found.map(|(key, _)| key.clone()).collect();
        if !keys.is_empty() {
            self.commit(keys.into_iter().map(|key| (key, None)).collect());
        }
    }

    fn commit(&mut self, changes: Vec<(String, Value)>) {
        self.revision += 1;
        let modified = self.revision;
        let mut told = Vec::new();
        for (key, value) in changes {
            let fact = value.map(|(value, session)| {
                let fact = Fact { value: value.into(), modified };
                self.entries.insert(key.clone(), Entry { fact: fact.clone(), session });
                fact
            });
            if fact.is_none() {
                self.entries.remove(&key);
            }
            told.push(KeyChange { key, fact });
        }
        self.history.insert(modified, told);
    }

    /// Executes a transaction. Returns the revision if its comparisons hold, and `None` otherwise.
    pub fn execute(&mut self, write: &Write, session: u64, now: Time) -> Option<u64> {
        self.expire(now);
        let holds = |when: &When| match when {
            When::Absent(key) => !self.entries.contains_key(key),
            When::Modified(key, revision) => {
                self.entries.get(key).is_some_and(|entry| entry.fact.modified == *revision)
            }
        };
        let needs_session = !write.put_bound.is_empty();
        if !write.when.iter().all(holds) || (needs_session && !self.sessions.contains_key(&session))
        {
            return None;
        }
        let mut changes = Vec::new();
        for (key, value) in &write.put {
            changes.push((key.clone(), Some((value.clone(), None))));
        }
        for (key, value) in &write.put_bound {
            changes.push((key.clone(), Some((value.clone(), Some(session)))));
        }
        changes.extend(write.delete.iter().map(|key| (key.clone(), None)));
        self.commit(changes);
        Some(self.revision)
    }

    pub fn list(&self) -> (u64, BTreeMap<String, Fact>) {
        let facts = self.entries.iter().map(|(key, entry)| (key.clone(), entry.fact.clone()));
        (self.revision, facts.collect())
    }

    /// Returns the next revision after this one, with its changes.
    pub fn after(&self, revision: u64) -> Option<(u64, Vec<KeyChange>)> {
        let (revision, changes) = self.history.range(revision + 1..).next()?;
        Some((*revision, changes.clone()))
    }

    /// Comes back as an operator restores a backup: entries of then, and no session.
    pub fn restore(&mut self, backup: &Engine) {
        let next_session = self.next_session;
        *self = backup.clone();
        self.next_session = next_session;
        self.sessions.clear();
        self.delete_orphans();
    }
}
