//! What a worker remembers of the clients of embedded stores.

use super::logs::Logs;
use super::tickets::Awaited;
use crate::PoolPlan;
use crate::handouts::Handout;
use crate::invalidations::{Client, Table, Told};
use indexmap::{IndexMap, IndexSet};
use keyway_base::{ByteRange, Key, Time};
use keyway_proxy::{Session, Share};
use keyway_script::Engine;
use keyway_store::{KeyEvent, KeyHint, Store, Waiter};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a worker has for the clients of embedded stores.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) tracking: StoreTracking,
    pub(crate) blocking: StoreBlocking,
    pub(in crate::core::pools::store) scripts: StoreScripts,
    pub(crate) awaited: Awaited,
    pub(crate) logs: Logs,
    /// When the clock was read last, for a request of a store or by a poll.
    pub(in crate::core) looked: Looked,
    pub(in crate::core) ahead: Scratch,
    /// What the request that is executed sets, if that is not among its arguments.
    pub(in crate::core) streamed_set: Option<Box<keyway_store::StreamedSet>>,
}

/// A pool of kind store, and its store.
#[derive(Clone, Copy)]
pub(in crate::core) struct StorePool<'a> {
    pub(in crate::core) pool: &'a PoolPlan,
    pub(in crate::core) store: &'a Arc<Store>,
}

/// What one worker knows of its clients that cache.
#[derive(Default)]
pub(crate) struct StoreTracking {
    /// The pools' tables, once they are needed.
    pub(in crate::core::pools::store) tables:
        IndexMap<u16, Arc<Table>, foldhash::fast::RandomState>,
    /// Clients of this worker that are in a table.
    pub(in crate::core::pools::store) trackers: Places,
    /// Where clients were found that are told in place of others. They may be
    /// gone.
    pub(in crate::core::pools::store) targets: Places,
    /// The keys that the request being served reads for a client that caches:
    /// their arguments, and whether it had not read them before.
    pub(in crate::core::pools::store) reads: Vec<(u32, bool)>,
    /// What became of keys by the request being served.
    pub(in crate::core::pools::store) events: Vec<KeyEvent>,
    /// By pool: keys that changed in this turn, where somebody is told of
    /// prefixes; with the client who changed each, if it was one and no other.
    pub(in crate::core::pools::store) changed: BTreeMap<u16, BTreeMap<Box<[u8]>, Option<Client>>>,
    /// By pool: everything has changed in this turn; with the client who alone
    /// has done it and has been told, if there is one.
    pub(in crate::core::pools::store) flushed: BTreeMap<u16, Option<Client>>,
    /// For clients of this worker, at the end of the turn.
    pub(in crate::core::pools::store) outbox: Vec<Told>,
    /// Sessions that were told something in this turn: they are sent that before writers are sent
    /// their replies.
    pub(in crate::core::pools::store) told: Vec<Key<Session>>,
    /// Other workers have put something into the inbox.
    pub(crate) has_mail: bool,
    /// This worker has taken the inbox, and is to acknowledge when its messages are sent.
    pub(crate) owes_word: bool,
    /// Clients who have missed something for want of room in their output, and
    /// whether it was redirected to them: they are told that everything has
    /// changed once there is room.
    pub(in crate::core::pools::store) late: IndexSet<(Client, bool), foldhash::fast::RandomState>,
}

impl StoreTracking {
    /// Returns whether there is something to do before the worker sleeps.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        let has_changes = !self.changed.is_empty() | !self.flushed.is_empty();
        self.has_mail | !self.outbox.is_empty() | has_changes
    }

    /// The sessions that were told something and have not been sent it.
    pub(crate) fn take_told(&mut self) -> Vec<Key<Session>> {
        std::mem::take(&mut self.told)
    }

    /// Number of clients that cache, and of messages for them.
    pub(in crate::core) fn len(&self) -> usize {
        self.trackers.len() + self.late.len() + self.outbox.len() + self.told.len()
    }

    /// Returns whether changes of keys may concern a client of this worker.
    pub(crate) fn is_tracker(&self, client: Client) -> bool {
        self.trackers.contains_key(&client)
    }
}

pub(in crate::core::pools::store) type Places =
    IndexMap<Client, Key<Session>, foldhash::fast::RandomState>;

/// What one worker knows of its clients that wait on a store.
#[derive(Default)]
pub(crate) struct StoreBlocking {
    pub(in crate::core::pools::store) waiting: IndexMap<u64, Waiting, foldhash::fast::RandomState>,
    /// When those are over that do not wait for ever.
    pub(in crate::core::pools::store) deadlines: BTreeSet<(Time, u64)>,
    /// Replies for clients of this worker.
    pub(in crate::core::pools::store) outbox: Vec<Handout>,
    /// Other workers have put something into the inbox.
    pub(crate) has_mail: bool,
}

impl StoreBlocking {
    /// Number of clients that block, and of replies to them.
    pub(in crate::core) fn len(&self) -> usize {
        self.waiting.len() + self.deadlines.len() + self.outbox.len()
    }

    /// Returns whether there is something to do before the worker sleeps.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.has_mail | !self.outbox.is_empty()
    }
}

/// A client that waits.
pub(in crate::core::pools::store) struct Waiting {
    pub(in crate::core::pools::store) session: Key<Session>,
    pub(in crate::core::pools::store) sequence: u32,
    pub(in crate::core::pools::store) waiter: Arc<Waiter>,
    pub(in crate::core::pools::store) deadline: Option<Time>,
    pub(in crate::core::pools::store) _share: Share,
}

/// When the clock was read last, and how many requests of the turn had been started by then.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::core) struct Looked {
    pub(in crate::core) at: Time,
    pub(in crate::core) requests: u64,
}

/// The engines of a worker, by pool.
#[derive(Default)]
pub(crate) struct StoreScripts {
    pub(in crate::core::pools::store) engines: IndexMap<u16, Engine, foldhash::fast::RandomState>,
    /// The reply of the last script, if an error, was counted when a command of it
    /// was answered so.
    pub(in crate::core::pools::store) is_counted: bool,
}

/// Room for looking ahead.
#[derive(Default)]
pub(in crate::core) struct Scratch {
    pub(in crate::core::pools::store) args: Vec<ByteRange>,
    pub(in crate::core::pools::store) hints: Vec<KeyHint>,
}

impl Scratch {
    /// Gives back room beyond `kept_max` arguments.
    pub(in crate::core) fn trim(&mut self, kept_max: usize) {
        if self.args.capacity() > kept_max {
            self.args = Vec::new();
        }
    }
}
