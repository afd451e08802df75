//! What others may know of a follower.

use crate::fault::LinkFault;
use crate::system::System;
use crate::target::Position;
use keyway_rdb::replication::ReplicationId;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How far a follower is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No connection; the next try comes after a pause.
    Connect,
    /// The host is looked up and the connection made.
    Connecting,
    /// The handshake, and the primary's time to make its snapshot.
    Handshake,
    /// The snapshot is on its way.
    Transfer {
        /// Bytes that have come.
        received: u64,
        /// Bytes there are, if the primary has announced them.
        len: Option<u64>,
    },
    /// The stream of commands.
    Online,
    /// The follower has ended.
    Stopped,
}

/// A follower at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// How far it is.
    pub state: State,
    /// The id of the history that the target's data is of; `None` without such
    /// data, as before and during the first snapshot.
    pub id: Option<ReplicationId>,
    /// The offset of what the target has applied.
    pub offset: u64,
    /// Time since the last byte from the primary; `None` before the first.
    pub since_last_io: Option<Duration>,
    /// Time since the link went down; `None` while it is online.
    pub down_for: Option<Duration>,
    /// Why the latest link ended: kept after the next one is online, so that it
    /// can be read.
    pub reason: Option<LinkFault>,
    /// Snapshots that were taken as a whole.
    pub full_resyncs: u64,
    /// Links that went on from where the one before had ended.
    pub partial_resyncs: u64,
    /// Links that ended, tries that did not connect among them.
    pub failures: u64,
}

/// The status as the follower's thread writes it.
pub(crate) struct Board {
    system: Arc<dyn System>,
    began: Instant,
    rare: Mutex<Rare>,
    /// Written often, and read with [`Rare`]; the follower's thread alone writes.
    offset: AtomicU64,
    received: AtomicU64,
    /// Milliseconds since `began`, plus one; 0 before the first byte.
    last_io: AtomicU64,
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Board").field(&self.rare).finish()
    }
}

#[derive(Debug)]
struct Rare {
    state: State,
    id: Option<ReplicationId>,
    down_since: Option<Instant>,
    reason: Option<LinkFault>,
    full_resyncs: u64,
    partial_resyncs: u64,
    failures: u64,
}

impl Board {
    pub(crate) fn new(position: Option<Position>, system: &Arc<dyn System>) -> Self {
        let began = system.now();
        let rare = Rare {
            state: State::Connecting,
            id: position.map(|position| position.id),
            down_since: Some(began),
            reason: None,
            full_resyncs: 0,
            partial_resyncs: 0,
            failures: 0,
        };
        Self {
            system: Arc::clone(system),
            began,
            rare: Mutex::new(rare),
            offset: AtomicU64::new(position.map_or(0, |position| position.offset)),
            received: AtomicU64::new(0),
            last_io: AtomicU64::new(0),
        }
    }

    pub(crate) fn read(&self) -> Status {
        let rare = self.rare.lock();
        let now = self.system.now();
        let last_io = self.last_io.load(Ordering::Relaxed);
        let last_io = (last_io > 0).then(|| self.began + Duration::from_millis(last_io - 1));
        let since = |then: Instant| now.saturating_duration_since(then);
        let state = match rare.state {
            State::Transfer { len, .. } => {
                State::Transfer { received: self.received.load(Ordering::Relaxed), len }
            }
            other => other,
        };
        Status {
            state,
            id: rare.id,
            offset: self.offset.load(Ordering::Relaxed),
            since_last_io: last_io.map(since),
            down_for: rare.down_since.map(since),
            reason: rare.reason.clone(),
            full_resyncs: rare.full_resyncs,
            partial_resyncs: rare.partial_resyncs,
            failures: rare.failures,
        }
    }

    pub(crate) fn set_state(&self, state: State) {
        self.rare.lock().state = state;
    }

    /// A snapshot begins.
    pub(crate) fn transfer(&self, len: Option<u64>) {
        self.received.store(0, Ordering::Relaxed);
        self.set_state(State::Transfer { received: 0, len });
    }

    pub(crate) fn received(&self, len: u64) {
        self.received.store(len, Ordering::Relaxed);
    }

    /// What the data is of now.
    pub(crate) fn position(&self, position: Option<Position>) {
        let mut rare = self.rare.lock();
        rare.id = position.map(|position| position.id);
        self.offset.store(position.map_or(0, |position| position.offset), Ordering::Relaxed);
    }

    /// The same history, further on.
    pub(crate) fn offset(&self, offset: u64) {
        self.offset.store(offset, Ordering::Relaxed);
    }

    /// Returns whether no stream has come yet.
    pub(crate) fn is_first(&self) -> bool {
        let rare = self.rare.lock();
        rare.full_resyncs + rare.partial_resyncs == 0
    }

    /// Bytes came.
    pub(crate) fn heard(&self, now: Instant) {
        let millis = now.saturating_duration_since(self.began).as_millis() as u64;
        self.last_io.store(millis + 1, Ordering::Relaxed);
    }

    /// The stream goes on, after a snapshot or without one.
    pub(crate) fn online(&self, after_snapshot: bool) {
        let mut rare = self.rare.lock();
        rare.state = State::Online;
        rare.down_since = None;
        match after_snapshot {
            true => rare.full_resyncs += 1,
            false => rare.partial_resyncs += 1,
        }
    }

    /// The link has ended.
    pub(crate) fn down(&self, fault: LinkFault) {
        let mut rare = self.rare.lock();
        rare.state = State::Connect;
        rare.down_since.get_or_insert_with(|| self.system.now());
        rare.reason = Some(fault);
        rare.failures += 1;
    }

    pub(crate) fn stopped(&self) {
        let mut rare = self.rare.lock();
        rare.state = State::Stopped;
        rare.down_since.get_or_insert_with(|| self.system.now());
    }
}
