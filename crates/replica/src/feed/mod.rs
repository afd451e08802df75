//! A primary's side of replication with sockets and threads: it feeds replicas (redis-server,
//! Valkey, Keyway) from a [`Source`].
//!
//! ```text
//!  a client's PSYNC ──► Feed::attach ──► a thread for each replica
//!                                          │  Source::resume, or Source::begin
//!                                          ▼
//!                      +CONTINUE │ +FULLRESYNC, snapshot ──► stream of commands ──► replica
//!                                          ▲                                           │
//!                       Feed::replicas ◄── acknowledged offsets ◄── REPLCONF ACK ──────┘
//! ```
//! All replicas read one stream, each at its own place. A replica that is too slow loses its place
//! and its connection; writers never wait for one. While there are replicas, and for some time
//! after the last has left, the feed itself reads the stream, so that a replica that comes back
//! finds what it missed.
//!
//! Knows no store and interprets no command but REPLCONF. Read first: [`Source`], [`Feed`].

mod introduction;
mod outlet;
mod registry;
mod session;
mod settings;
mod source;

pub use registry::Stage;
pub use session::{Parting, random_id};
pub use settings::FeedSettings;
pub use source::{Beginning, Snapshot, SnapshotStep, Source, SourceError, Stream, StreamLost};

use crate::system::{System, Thread, real};
use crate::wake::Wake;
use keyway_rdb::replication::{History, ReplicaProfile, ReplicationId, Request};
use outlet::Outlet;
use parking_lot::Mutex;
use registry::Shown;
use rustix::fd::OwnedFd;
use session::Session;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two rounds of upkeep. Longer keeps more of the stream in memory.
const ROUND: Duration = Duration::from_millis(100);

/// Feeds replicas until [`Feed::end`]. A feed that is only dropped ends as well, but nobody waits for
/// its threads then: whoever drops it last may be a thread that must not wait.
pub struct Feed {
    shared: Arc<Shared>,
    /// Keeps the stream, and sends signs of life.
    keeper: Mutex<Option<Thread>>,
    wake: Arc<Wake>,
}

struct Shared {
    system: Arc<dyn System>,
    source: Arc<dyn Source>,
    lineage: Arc<Mutex<Lineage>>,
    settings: FeedSettings,
    started_at: Instant,
    state: Mutex<State>,
}

/// The names of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// Its name from here on.
    pub id: ReplicationId,
    /// The name that it had up to an offset, and that offset.
    pub second: Option<(ReplicationId, u64)>,
}

impl Lineage {
    /// Returns the history at an offset.
    fn at(&self, offset: u64) -> History {
        let history = History::new(self.id, offset, offset);
        self.second.map_or(history, |(id, limit)| history.with_second(id, limit))
    }
}

#[derive(Default)]
struct State {
    replicas: Vec<Attached>,
    /// Threads of replicas that have left.
    ended: Vec<Thread>,
    number: u64,
    /// Keeps the stream for replicas that may come back.
    anchor: Option<Box<dyn Stream>>,
    /// True if the anchor stays though no replica is there.
    is_kept: bool,
    is_ending: bool,
}

struct Attached {
    number: u64,
    peer: String,
    port: Option<u16>,
    shown: Arc<Shown>,
    wake: Arc<Wake>,
    thread: Option<Thread>,
}

/// Facts about a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// The address that it has announced, or else that of its connection, without port.
    pub address: String,
    /// The port on which it serves its own clients, if it has announced one.
    pub port: Option<u16>,
    /// How far it has come.
    pub stage: Stage,
    /// The offset that it has acknowledged.
    pub acknowledged: u64,
    /// The time since it last acknowledged anything.
    pub lag: Duration,
    /// Bytes of memory for what is on its way to it, beside the stream that all replicas share.
    pub buffered: u64,
}

/// The reason why a replica is not taken in.
#[derive(Debug)]
pub enum AttachError {
    /// There are as many as there may be.
    Full {
        /// The bound.
        replicas_max: usize,
    },
    /// The feed ends.
    Ending,
    /// The system gives no thread or no descriptor.
    System(std::io::Error),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { replicas_max } => write!(f, "there are {replicas_max} replicas already"),
            Self::Ending => f.write_str("this server is no primary any longer"),
            Self::System(error) => write!(f, "no thread for a replica: {error}"),
        }
    }
}

impl std::error::Error for AttachError {}

/// A replica that wants to be fed.
pub struct Candidate {
    /// Its connection. It must not block.
    pub socket: OwnedFd,
    /// The address of the connection's other end, without port.
    pub peer: String,
    /// The facts that it has announced.
    pub profile: ReplicaProfile,
    /// Its PSYNC.
    pub request: Request,
}

impl Feed {
    /// Begins a feed. `id` names the history: another run of the same server needs another.
    ///
    /// # Errors
    /// When the system gives no thread or no descriptor.
    pub fn start(
        source: Arc<dyn Source>,
        id: ReplicationId,
        settings: FeedSettings,
    ) -> std::io::Result<Self> {
        Self::start_in(&real(), source, id, settings)
    }

    /// As [`Feed::start`], on another system.
    ///
    /// # Errors
    /// When the system gives no thread or no descriptor.
    pub fn start_in(
        system: &Arc<dyn System>,
        source: Arc<dyn Source>,
        id: ReplicationId,
        settings: FeedSettings,
    ) -> std::io::Result<Self> {
        let (started_at, state) = (system.now(), Mutex::new(State::default()));
        let lineage = Arc::new(Mutex::new(Lineage { id, second: None }));
        let wake = Arc::new(Wake::new(system)?);
        let system = Arc::clone(system);
        let shared = Arc::new(Shared { system, source, lineage, settings, started_at, state });
        let (kept, awake) = (Arc::clone(&shared), Arc::clone(&wake));
        let keep = Box::new(move || kept.keep(&awake));
        let keeper = shared.system.spawn("keyway-feed".to_owned(), keep)?;
        Ok(Self { shared, keeper: Mutex::new(Some(keeper)), wake })
    }

    /// Returns the name of the history.
    pub fn id(&self) -> ReplicationId {
        self.shared.lineage.lock().id
    }

    /// Gives the history another name, as the server has become a primary, or has another one.
    /// Replicas are cut off, and learn the name when they come back.
    pub fn rename(&self, lineage: Lineage) {
        let state = self.shared.state.lock();
        *self.shared.lineage.lock() = lineage;
        for replica in &state.replicas {
            replica.shown.rename();
            replica.wake.stop();
        }
    }

    /// Keeps the stream from where this reader is, also while there is no replica.
    pub fn keep(&self, stream: Box<dyn Stream>) {
        let mut state = self.shared.state.lock();
        (state.anchor, state.is_kept) = (Some(stream), true);
    }

    /// Returns whether the stream is kept for replicas, which are here or may come back.
    pub fn keeps_stream(&self) -> bool {
        let state = self.shared.state.lock();
        state.anchor.is_some() || !state.replicas.is_empty()
    }

    /// Keeps the stream for some time after the last replica has left, as from the start.
    pub fn keep_while_used(&self) {
        self.shared.state.lock().is_kept = false;
    }

    /// Takes a replica in: its thread answers the PSYNC and feeds it.
    ///
    /// # Errors
    /// [`AttachError`]. The socket is closed then.
    pub fn attach(&self, candidate: Candidate) -> Result<(), AttachError> {
        self.attach_with(candidate, Vec::new())
    }

    /// As [`Feed::attach`], of a replica whose bytes `said` were read behind its PSYNC.
    ///
    /// # Errors
    /// [`AttachError`]. The socket is closed then.
    pub fn attach_with(&self, candidate: Candidate, said: Vec<u8>) -> Result<(), AttachError> {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        if state.is_ending {
            return Err(AttachError::Ending);
        }
        let replicas_max = shared.settings.replicas_max;
        if state.replicas.len() >= replicas_max {
            return Err(AttachError::Full { replicas_max });
        }
        state.number += 1;
        let number = state.number;
        let wake = Arc::new(Wake::new(&shared.system).map_err(AttachError::System)?);
        let shown = Arc::new(Shown::default());
        let announced = candidate.profile.address();
        let peer = announced.map_or(candidate.peer, |text| String::from_utf8_lossy(text).into());
        let port = candidate.profile.listening_port();
        let placed = Arc::clone(shared);
        let session = Session {
            source: Arc::clone(&shared.source),
            placed: Box::new(move || placed.anchor()),
            lineage: Arc::clone(&shared.lineage),
            settings: shared.settings,
            is_old: candidate.request.is_old(),
            outlet: Outlet::new(candidate.socket, said),
            profile: candidate.profile,
            wake: Arc::clone(&wake),
            shown: Arc::clone(&shown),
            started_at: shared.started_at,
            heard_at: shared.system.now(),
        };
        let (feed, request) = (Arc::clone(shared), candidate.request);
        let run = Box::new(move || {
            let parting = session.run(&request);
            feed.part(number, &parting);
        });
        // The thread takes itself out, and waits for this lock to do it.
        let thread = shared.system.spawn(format!("keyway-feed-{number}"), run);
        let thread = thread.map_err(AttachError::System)?;
        state.replicas.push(Attached { number, peer, port, shown, wake, thread: Some(thread) });
        Ok(())
    }

    /// Returns what is known of each replica, in the order in which they came.
    pub fn replicas(&self) -> Vec<ReplicaStatus> {
        let now = self.shared.millis();
        let state = self.shared.state.lock();
        let status = |replica: &Attached| ReplicaStatus {
            address: replica.peer.clone(),
            port: replica.port,
            stage: replica.shown.stage(),
            acknowledged: replica.shown.acknowledged(),
            lag: Duration::from_millis(now.saturating_sub(replica.shown.acknowledged_at())),
            buffered: replica.shown.buffered(),
        };
        state.replicas.iter().map(status).collect()
    }

    /// Returns how many replicas have acknowledged an offset.
    pub fn acknowledged(&self, offset: u64) -> usize {
        let state = self.shared.state.lock();
        let has = |replica: &&Attached| {
            replica.shown.stage() == Stage::Online && replica.shown.acknowledged() >= offset
        };
        state.replicas.iter().filter(has).count()
    }

    /// Returns how many replicas follow and have acknowledged something within `lag`.
    pub fn following(&self, lag: Duration) -> usize {
        let now = self.shared.millis();
        let state = self.shared.state.lock();
        let is_good = |replica: &&Attached| {
            let since = now.saturating_sub(replica.shown.acknowledged_at());
            replica.shown.stage() == Stage::Online && u128::from(since) <= lag.as_millis()
        };
        state.replicas.iter().filter(is_good).count()
    }

    /// Asks all replicas for their offsets.
    pub fn ask_for_offsets(&self) {
        self.shared.source.tell(&[b"REPLCONF", b"GETACK", b"*"]);
    }

    /// Ends the feed and the connections of all replicas. Waits for their threads, which may be at a
    /// snapshot or wait for clients: this is for a thread that may wait.
    pub fn end(&self) {
        let mut threads = self.stop();
        threads.extend(self.keeper.lock().take());
        for thread in threads {
            // A panic of such a thread was told when it happened.
            let _ = thread.join();
        }
    }

    /// Tells all threads to end, and takes no replica any more. Returns those of replicas.
    fn stop(&self) -> Vec<Thread> {
        self.wake.stop();
        let mut state = self.shared.state.lock();
        state.is_ending = true;
        state.anchor = None;
        state.replicas.iter().for_each(|replica| replica.wake.stop());
        let mut threads = std::mem::take(&mut state.ended);
        threads.extend(state.replicas.iter_mut().filter_map(|replica| replica.thread.take()));
        threads
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        drop(self.stop());
    }
}

impl Shared {
    /// Milliseconds since the feed began.
    fn millis(&self) -> u64 {
        millis_between(self.started_at, self.system.now())
    }

    /// Takes a replica out.
    fn part(&self, number: u64, parting: &Parting) {
        let mut state = self.state.lock();
        let Some(index) = state.replicas.iter().position(|replica| replica.number == number) else {
            return;
        };
        let replica = state.replicas.remove(index);
        state.ended.extend(replica.thread);
        drop(state);
        self.source.on_parting(&replica.peer, parting);
    }

    /// Keeps the stream from here on for a replica that may come back, however soon it leaves.
    fn anchor(&self) {
        let mut state = self.state.lock();
        if state.anchor.is_none() && !state.is_ending {
            state.anchor = self.source.anchor();
        }
    }

    /// Keeps the stream for replicas that may come back, and sends signs of life.
    fn keep(&self, wake: &Wake) {
        let (mut pinged_at, mut fed_at) = (self.system.now(), self.system.now());
        loop {
            let now = self.system.now();
            if !wake.sleep_until(now + ROUND) {
                return;
            }
            let mut state = self.state.lock();
            let ended = std::mem::take(&mut state.ended);
            let is_feeding = !state.replicas.is_empty();
            if is_feeding {
                fed_at = now;
            }
            let ttl = self.settings.backlog_ttl;
            let is_kept = state.is_kept || now.saturating_duration_since(fed_at) <= ttl;
            if !is_kept || state.anchor.as_mut().is_some_and(|anchor| anchor.skip().is_err()) {
                state.anchor = None;
            }
            if is_feeding && state.anchor.is_none() {
                state.anchor = self.source.anchor();
            }
            drop(state);
            for thread in ended {
                let _ = thread.join();
            }
            let since = now.saturating_duration_since(pinged_at);
            if is_feeding && since >= self.settings.ping_period {
                self.source.tell(&[b"PING"]);
                pinged_at = now;
            }
        }
    }
}

/// Milliseconds from a time to another.
fn millis_between(start: Instant, end: Instant) -> u64 {
    end.saturating_duration_since(start).as_millis().try_into().unwrap_or(u64::MAX)
}
