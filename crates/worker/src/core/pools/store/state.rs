//! The state that a worker keeps for the clients of embedded stores.

use super::introduced::Introduced;
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

/// The state of a worker for the clients of embedded stores.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) tracking: StoreTracking,
    pub(crate) blocking: StoreBlocking,
    pub(in crate::core::pools::store) scripts: StoreScripts,
    pub(crate) awaited: Awaited,
    pub(crate) logs: Logs,
    /// Clients that are about to become replicas.
    pub(crate) introduced: Introduced,
    /// The last reading of the clock, for a request of a store or by a poll.
    pub(in crate::core) looked: Looked,
    pub(in crate::core) ahead: Scratch,
    /// The value that the request being executed sets, if that is not among its arguments.
    pub(in crate::core) streamed_set: Option<Box<keyway_store::StreamedSet>>,
}

/// A pool of kind store, and its store.
#[derive(Clone, Copy)]
pub(in crate::core) struct StorePool<'a> {
    pub(in crate::core) pool: &'a PoolPlan,
    pub(in crate::core) store: &'a Arc<Store>,
}

/// The state of one worker for its clients that cache.
#[derive(Default)]
pub(crate) struct StoreTracking {
    /// The tables of the pools, each made when it is first needed.
    pub(in crate::core::pools::store) tables:
        IndexMap<u16, Arc<Table>, foldhash::fast::RandomState>,
    /// Clients of this worker that are in a table.
    pub(in crate::core::pools::store) trackers: SessionKeys,
    /// Sessions of clients that get the invalidations of others. They may be gone.
    pub(in crate::core::pools::store) targets: SessionKeys,
    /// Keys that the request being served reads for a client that caches: the index of the
    /// argument, and whether the client had not read the key before.
    pub(in crate::core::pools::store) reads: Vec<(u32, bool)>,
    /// Events of keys by the request being served.
    pub(in crate::core::pools::store) events: Vec<KeyEvent>,
    /// Keys that changed in this turn, for pools with clients that are told of prefixes. Each has the
    /// client that changed it, if no other did.
    pub(in crate::core::pools::store) changed: BTreeMap<u16, BTreeMap<Box<[u8]>, Option<Client>>>,
    /// Pools in which everything has changed in this turn. Each has the client that did it, if no
    /// other did and the client was told.
    pub(in crate::core::pools::store) flushed: BTreeMap<u16, Option<Client>>,
    /// Messages for clients of this worker. They are delivered at the end of the turn.
    pub(in crate::core::pools::store) outbox: Vec<Told>,
    /// Sessions that were told something in this turn. Their output is sent before the replies of
    /// writers.
    pub(in crate::core::pools::store) told: Vec<Key<Session>>,
    /// True if other workers have put something into the inbox.
    pub(crate) has_mail: bool,
    /// True if this worker has taken the inbox, and must acknowledge when its messages are sent.
    pub(crate) owes_word: bool,
    /// Clients that have missed a message for want of room in their output, and whether it was
    /// redirected to them. They are told that everything has changed once there is room.
    pub(in crate::core::pools::store) late: IndexSet<(Client, bool), foldhash::fast::RandomState>,
}

impl StoreTracking {
    /// Returns whether there is something to do before the worker sleeps.
    #[inline]
    pub(in crate::core) fn has_work(&self) -> bool {
        let has_changes = !self.changed.is_empty() | !self.flushed.is_empty();
        self.has_mail | !self.outbox.is_empty() | has_changes
    }

    /// Returns whether sessions were told something and were not sent it yet.
    #[inline]
    pub(crate) fn has_told(&self) -> bool {
        !self.told.is_empty()
    }

    /// Takes the sessions that were told something and were not sent it yet.
    pub(crate) fn take_told(&mut self) -> Vec<Key<Session>> {
        std::mem::take(&mut self.told)
    }

    /// Returns the number of clients that cache and of messages for them.
    pub(in crate::core) fn len(&self) -> usize {
        self.trackers.len() + self.late.len() + self.outbox.len() + self.told.len()
    }

    /// Returns whether changes of keys may concern a client of this worker.
    pub(crate) fn is_tracker(&self, client: Client) -> bool {
        self.trackers.contains_key(&client)
    }
}

pub(in crate::core::pools::store) type SessionKeys =
    IndexMap<Client, Key<Session>, foldhash::fast::RandomState>;

/// The state of one worker for its clients that wait on a store.
#[derive(Default)]
pub(crate) struct StoreBlocking {
    pub(in crate::core::pools::store) waiting: IndexMap<u64, Waiting, foldhash::fast::RandomState>,
    /// The times at which waits end, of those that have an end.
    pub(in crate::core::pools::store) deadlines: BTreeSet<(Time, u64)>,
    /// Replies for clients of this worker.
    pub(in crate::core::pools::store) outbox: Vec<Handout>,
    /// True if other workers have put something into the inbox.
    pub(crate) has_mail: bool,
}

impl StoreBlocking {
    /// Returns the number of clients that block and of replies to them.
    pub(in crate::core) fn len(&self) -> usize {
        self.waiting.len() + self.deadlines.len() + self.outbox.len()
    }

    /// Returns whether there is something to do before the worker sleeps.
    #[inline]
    pub(in crate::core) fn has_work(&self) -> bool {
        self.has_mail | !self.outbox.is_empty()
    }

    /// Answers a client that waits, in the next turn.
    pub(crate) fn answer(&mut self, handout: Handout) {
        self.outbox.push(handout);
    }
}

/// A client that waits.
pub(in crate::core::pools::store) struct Waiting {
    pub(in crate::core::pools::store) session: Key<Session>,
    pub(in crate::core::pools::store) sequence: u32,
    pub(in crate::core::pools::store) waiter: Arc<Waiter>,
    pub(in crate::core::pools::store) since: Time,
    pub(in crate::core::pools::store) deadline: Option<Time>,
    pub(in crate::core::pools::store) _share: Share,
}

/// A reading of the clock, and the number of requests of the turn that were started by then.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::core) struct Looked {
    pub(in crate::core) at: Time,
    pub(in crate::core) requests: u64,
}

/// The engines of a worker, by pool.
#[derive(Default)]
pub(crate) struct StoreScripts {
    pub(in crate::core::pools::store) engines: IndexMap<u16, Engine, foldhash::fast::RandomState>,
    /// True if the reply of the last script is an error that was counted when a command of the
    /// script got it.
    pub(in crate::core::pools::store) is_counted: bool,
}

/// Buffers for looking ahead.
#[derive(Default)]
pub(in crate::core) struct Scratch {
    pub(in crate::core::pools::store) args: Vec<ByteRange>,
    pub(in crate::core::pools::store) hints: Vec<KeyHint>,
}

impl Scratch {
    /// Frees memory for more than `kept_max` arguments.
    pub(in crate::core) fn trim(&mut self, kept_max: usize) {
        if self.args.capacity() > kept_max {
            self.args = Vec::new();
        }
    }
}
