//! Who is out of use, and why: one word per backend, shared by all workers.
//!
//! ```text
//!        failure             failures in a row = after_failures
//!   Up ─────────► Failing ──────────────────────────► Ejected ◄─────────┐
//!   ▲ ◄───────────   │ ▲                              │    ▲            │ failure
//!   │    success     └─┘ failure                claim │    │ failed     │
//!   │                                                 ▼    │            │
//!   └───────────────────────────────────────────── Rejoining            │
//!   │   rejoined (serve, flush)                       │ rejoined        │
//!   │                                                 ▼ (quarantine)    │
//!   └──────────────────────────────────────────── Quarantined ──────────┘
//!       quarantine ends, or an operator restores
//! ```
//!
//! In a pool without ejection only `Up` and `Failing` occur. The differences
//! from twemproxy: a server comes back because it answered a probe, not because
//! time has passed, and requests for which every server is ejected are refused
//! for as long as that lasts (twemproxy refuses them until its retry time and
//! then lets real requests do the probing).
//!
//! Everything that decides a transition lives in one atomic word, so a
//! compare-and-swap is the whole protocol and no ordering between variables is
//! needed. The one exception is the epoch, by which workers learn that a ring
//! is out of date.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use keyway_base::{BackendFault, Time};

use crate::{BackendId, Ejection, Rejoin, Topology};

/// How long a claim to probe a backend lasts before another worker may take
/// over, in milliseconds. It covers a worker that stops in the middle of a
/// probe. Shorter than a probe (connect, handshake, empty the server) would let
/// two workers at it; longer keeps a sound server out for longer after such a
/// stop.
const CLAIM_LEN_MS: u64 = 60_000;

/// Why a backend failed, by its latest failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FailureReason {
    /// Refused, unreachable, or not connected in time.
    Connect = 1,
    /// No reply in time.
    Timeout = 2,
    /// It closed or reset the connection.
    Closed = 3,
    /// It answers `-LOADING`: its data set is not in memory yet.
    Loading = 4,
    /// It answers `-MASTERDOWN`: a replica without its primary.
    MasterDown = 5,
    /// It answers `-READONLY` to a write: a replica.
    ReadOnly = 6,
    /// It sent what is not its protocol.
    Protocol = 7,
    /// It refused our password or database.
    Handshake = 8,
}

impl FailureReason {
    /// Every reason.
    pub const ALL: [FailureReason; 8] = [
        FailureReason::Connect,
        FailureReason::Timeout,
        FailureReason::Closed,
        FailureReason::Loading,
        FailureReason::MasterDown,
        FailureReason::ReadOnly,
        FailureReason::Protocol,
        FailureReason::Handshake,
    ];

    /// The name in logs and metric labels.
    pub const fn label(self) -> &'static str {
        match self {
            FailureReason::Connect => "connect",
            FailureReason::Timeout => "timeout",
            FailureReason::Closed => "closed",
            FailureReason::Loading => "loading",
            FailureReason::MasterDown => "masterdown",
            FailureReason::ReadOnly => "readonly",
            FailureReason::Protocol => "protocol",
            FailureReason::Handshake => "handshake",
        }
    }
}

impl From<BackendFault> for FailureReason {
    fn from(fault: BackendFault) -> Self {
        match fault {
            BackendFault::Connect => FailureReason::Connect,
            BackendFault::Timeout => FailureReason::Timeout,
            BackendFault::Closed => FailureReason::Closed,
            BackendFault::Protocol => FailureReason::Protocol,
            BackendFault::Handshake => FailureReason::Handshake,
        }
    }
}

/// Where a backend stands. Requests go to it in [`HealthState::Up`] and
/// [`HealthState::Failing`] only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum HealthState {
    /// Its latest request succeeded, or none was made yet.
    #[default]
    Up = 0,
    /// Its latest request failed, but not yet as many in a row as eject it.
    Failing = 1,
    /// Out of use until a probe succeeds.
    Ejected = 2,
    /// Out of use, and one worker is probing it.
    Rejoining = 3,
    /// It answers again but is kept out of use for what it may still hold.
    Quarantined = 4,
}

impl HealthState {
    /// Whether requests go to a backend in this state.
    #[inline]
    pub const fn is_usable(self) -> bool {
        matches!(self, HealthState::Up | HealthState::Failing)
    }

    /// The name in logs and metric labels.
    pub const fn label(self) -> &'static str {
        match self {
            HealthState::Up => "up",
            HealthState::Failing => "failing",
            HealthState::Ejected => "ejected",
            HealthState::Rejoining => "rejoining",
            HealthState::Quarantined => "quarantined",
        }
    }
}

/// A backend went from one state to another: what the log line of it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// Which backend.
    pub backend: BackendId,
    /// Its state before.
    pub from: HealthState,
    /// Its state now.
    pub to: HealthState,
    /// Its latest failure since it was last up.
    pub reason: Option<FailureReason>,
    /// Its failures in a row, up to 100,000.
    pub failures: u32,
    /// When the state is due to end: for an ejected backend the next probe, for
    /// a quarantined one the end of the quarantine. `None` when nothing but an
    /// event ends it.
    pub until: Option<Time>,
}

/// The right, and the duty, to probe one ejected backend: connect, shake hands,
/// and do as [`RejoinClaim::policy`] says; then hand the claim back through
/// [`HealthBoard::rejoined`] or [`HealthBoard::rejoin_failed`].
#[derive(Debug)]
#[must_use = "the backend stays out of use until the claim is handed back or has run out"]
pub struct RejoinClaim {
    backend: BackendId,
    policy: Rejoin,
    word: Word,
}

impl RejoinClaim {
    /// The backend to probe.
    pub fn backend(&self) -> BackendId {
        self.backend
    }

    /// What its pool wants: with [`Rejoin::Flush`] the server must be emptied
    /// before the claim is handed back as a success.
    pub fn policy(&self) -> Rejoin {
        self.policy
    }
}

/// All that is decided about a backend, in 64 bits: 3 of state, 4 of reason, 17
/// of failures, 40 of the moment the state is due to end. A backend that is up
/// is all zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Word {
    state: HealthState,
    reason: Option<FailureReason>,
    failures: u32,
    /// Whole milliseconds on the clock of [`Time`], rounded up.
    due_ms: u64,
}

impl Word {
    const FAILURES_MAX: u32 = 100_000;
    const FAILURES_BITS: u32 = 17;
    const DUE_BITS: u32 = 40;
    /// Not due before an operator acts.
    const NEVER: u64 = (1 << Word::DUE_BITS) - 1;

    fn to_bits(self) -> u64 {
        let reason = self.reason.map_or(0, |reason| reason as u64);
        self.state as u64
            | reason << 3
            | u64::from(self.failures) << 7
            | self.due_ms << (7 + Word::FAILURES_BITS)
    }

    fn from_bits(bits: u64) -> Word {
        let state = match bits & 0b111 {
            0 => HealthState::Up,
            1 => HealthState::Failing,
            2 => HealthState::Ejected,
            3 => HealthState::Rejoining,
            _ => HealthState::Quarantined,
        };
        let reason = (bits >> 3 & 0b1111) as usize;
        Word {
            state,
            reason: reason.checked_sub(1).and_then(|index| FailureReason::ALL.get(index)).copied(),
            failures: (bits >> 7) as u32 & ((1 << Word::FAILURES_BITS) - 1),
            due_ms: bits >> (7 + Word::FAILURES_BITS),
        }
    }

    /// `span` after `now` in whole milliseconds, never early.
    fn due_after(now: Time, span: Duration) -> u64 {
        (now + span).0.div_ceil(1_000_000).min(Word::NEVER)
    }

    fn is_due(self, now: Time) -> bool {
        self.due_ms != Word::NEVER && self.due_ms <= now.as_millis()
    }

    fn until(self) -> Option<Time> {
        let timed = matches!(
            self.state,
            HealthState::Ejected | HealthState::Rejoining | HealthState::Quarantined
        );
        (timed && self.due_ms != Word::NEVER).then(|| Time(self.due_ms * 1_000_000))
    }

    /// After one more failure; `None` when it makes no difference.
    fn after_failure(
        self,
        reason: FailureReason,
        now: Time,
        ejection: Option<Ejection>,
    ) -> Option<Word> {
        let failures = (self.failures + 1).min(Word::FAILURES_MAX);
        let failing =
            Word { state: HealthState::Failing, reason: Some(reason), failures, due_ms: 0 };
        match (self.state, ejection) {
            // Late echoes of what ejected it.
            (HealthState::Ejected | HealthState::Rejoining, _) => None,
            (HealthState::Up | HealthState::Failing, None) => Some(failing),
            (HealthState::Up | HealthState::Failing, Some(ejection))
                if failures < ejection.after_failures.min(Word::FAILURES_MAX) =>
            {
                Some(failing)
            }
            (_, ejection) => {
                let span = ejection.map_or(Duration::ZERO, |ejection| ejection.for_);
                let due_ms = Word::due_after(now, span);
                Some(Word { state: HealthState::Ejected, due_ms, ..failing })
            }
        }
    }
}

/// One backend's share of the board, on a cache line of its own: a failing
/// backend must not slow down the successes of its neighbours.
#[derive(Debug)]
#[repr(align(64))]
struct Cell {
    word: AtomicU64,
    ejections: AtomicU64,
    rejoins: AtomicU64,
    ejection: Option<Ejection>,
    pool_index: u32,
}

/// The health of every backend of one topology, shared by the workers.
///
/// Methods that may change a state return the change if there was one and they
/// made it, so exactly one caller logs it. All of them may be called from any
/// worker at any time.
#[derive(Debug)]
pub struct HealthBoard {
    cells: Box<[Cell]>,
    pool_epochs: Box<[AtomicU64]>,
    epoch: AtomicU64,
}

impl HealthBoard {
    /// A board on which every backend of `topology` is up.
    pub fn new(topology: &Topology) -> HealthBoard {
        let cells = topology
            .pools()
            .iter()
            .zip(0..)
            .flat_map(|(pool, pool_index)| {
                pool.servers().iter().map(move |_| Cell {
                    word: AtomicU64::new(0),
                    ejections: AtomicU64::new(0),
                    rejoins: AtomicU64::new(0),
                    ejection: pool.ejection(),
                    pool_index,
                })
            })
            .collect();
        let pool_epochs = topology.pools().iter().map(|_| AtomicU64::new(0)).collect();
        HealthBoard { cells, pool_epochs, epoch: AtomicU64::new(0) }
    }

    /// Number of backends on the board.
    pub fn backend_count(&self) -> usize {
        self.cells.len()
    }

    /// Grows whenever some backend becomes usable or ceases to be. A worker
    /// compares it once a turn, and looks at [`HealthBoard::pool_epoch`] of
    /// each pool when it has grown.
    #[inline]
    pub fn epoch(&self) -> u64 {
        // ORDER: pairs with bump_epochs
        self.epoch.load(Acquire)
    }

    /// Grows whenever a backend of this pool becomes usable or ceases to be.
    /// Read it before [`HealthBoard::is_usable`] when building a ring: a change
    /// in between then shows as an epoch newer than the ring's.
    pub fn pool_epoch(&self, pool_index: usize) -> u64 {
        // ORDER: pairs with bump_epochs
        self.pool_epochs[pool_index].load(Acquire)
    }

    /// Whether requests go to the backend.
    #[inline]
    pub fn is_usable(&self, backend: BackendId) -> bool {
        self.state(backend).is_usable()
    }

    /// Where the backend stands.
    pub fn state(&self, backend: BackendId) -> HealthState {
        self.word(backend).state
    }

    /// Its latest failure since it was last up.
    pub fn reason(&self, backend: BackendId) -> Option<FailureReason> {
        self.word(backend).reason
    }

    /// Its failures in a row, up to 100,000.
    pub fn failures(&self, backend: BackendId) -> u32 {
        self.word(backend).failures
    }

    /// When its state is due to end, as in [`StateChange::until`].
    pub fn until(&self, backend: BackendId) -> Option<Time> {
        self.word(backend).until()
    }

    /// How often it was ejected.
    pub fn ejections(&self, backend: BackendId) -> u64 {
        self.cells[backend.index()].ejections.load(Relaxed)
    }

    /// How often it came back into use after an ejection.
    pub fn rejoins(&self, backend: BackendId) -> u64 {
        self.cells[backend.index()].rejoins.load(Relaxed)
    }

    /// A request was answered. Costs one load while nothing is wrong. Says
    /// nothing about a backend that is out of use: that is the probe's to say.
    #[inline]
    pub fn note_success(&self, backend: BackendId) -> Option<StateChange> {
        if self.cells[backend.index()].word.load(Relaxed) == 0 {
            return None;
        }
        self.note_recovery(backend)
    }

    #[cold]
    fn note_recovery(&self, backend: BackendId) -> Option<StateChange> {
        self.update(backend, |word| (word.state == HealthState::Failing).then(Word::default))
    }

    /// A request or a connection failed at `now`. Ejects the backend when its
    /// pool does so and this is one failure in a row too many. A quarantined
    /// backend that fails is ejected again.
    #[cold]
    pub fn note_failure(
        &self,
        backend: BackendId,
        reason: FailureReason,
        now: Time,
    ) -> Option<StateChange> {
        let ejection = self.cells[backend.index()].ejection;
        self.update(backend, |word| word.after_failure(reason, now, ejection))
    }

    /// The backends that are due for a probe, each of which some worker should
    /// [claim](HealthBoard::try_claim_rejoin).
    pub fn due_for_rejoin(&self, now: Time) -> impl Iterator<Item = BackendId> + '_ {
        self.backends().filter(move |&backend| Self::is_claimable(self.word(backend), now))
    }

    /// When the next probe or end of a quarantine is due; `None` when nothing
    /// is pending.
    pub fn next_due(&self) -> Option<Time> {
        self.backends().filter_map(|backend| self.until(backend)).min()
    }

    /// Takes on the probe of a backend that is due. Exactly one caller gets it;
    /// it lapses after a minute, lest a worker that stopped keeps the backend
    /// out for good.
    pub fn try_claim_rejoin(&self, backend: BackendId, now: Time) -> Option<RejoinClaim> {
        let policy = self.cells[backend.index()].ejection?.rejoin;
        let before = self.word(backend);
        if !Self::is_claimable(before, now) {
            return None;
        }
        let due_ms = now.as_millis().saturating_add(CLAIM_LEN_MS).min(Word::NEVER);
        let word = Word { state: HealthState::Rejoining, due_ms, ..before };
        self.swap(backend, before, word).then_some(RejoinClaim { backend, policy, word })
    }

    /// The probe succeeded: the backend is back in use, or quarantined if that
    /// is the policy. `None` if the claim had lapsed and another worker took
    /// over.
    pub fn rejoined(&self, claim: RejoinClaim, now: Time) -> Option<StateChange> {
        let after = match claim.policy {
            Rejoin::Serve | Rejoin::Flush => Word::default(),
            Rejoin::Quarantine(span) => Word {
                state: HealthState::Quarantined,
                due_ms: span.map_or(Word::NEVER, |span| Word::due_after(now, span)),
                ..claim.word
            },
        };
        self.settle(claim, after)
    }

    /// The probe failed: the backend is out for another ejection time. `None`
    /// if the claim had lapsed and another worker took over.
    pub fn rejoin_failed(
        &self,
        claim: RejoinClaim,
        reason: FailureReason,
        now: Time,
    ) -> Option<StateChange> {
        let span = self.cells[claim.backend.index()].ejection?.for_;
        let after = Word {
            state: HealthState::Ejected,
            reason: Some(reason),
            failures: (claim.word.failures + 1).min(Word::FAILURES_MAX),
            due_ms: Word::due_after(now, span),
        };
        self.settle(claim, after)
    }

    /// Ends one quarantine that is over by `now`; to be called until it returns
    /// `None`.
    pub fn end_quarantine(&self, now: Time) -> Option<StateChange> {
        let over = |word: Word| word.state == HealthState::Quarantined && word.is_due(now);
        self.backends()
            .find_map(|backend| self.update(backend, |word| over(word).then(Word::default)))
    }

    /// Puts a backend back into use on an operator's word, whatever its state.
    /// A claim in the hands of a worker is void.
    pub fn restore(&self, backend: BackendId) -> Option<StateChange> {
        self.update(backend, |_| Some(Word::default()))
    }

    fn backends(&self) -> impl Iterator<Item = BackendId> + use<> {
        (0..self.cells.len() as u32).map(BackendId)
    }

    fn word(&self, backend: BackendId) -> Word {
        Word::from_bits(self.cells[backend.index()].word.load(Relaxed))
    }

    /// Ejected for long enough, or claimed by a worker that never came back.
    fn is_claimable(word: Word, now: Time) -> bool {
        matches!(word.state, HealthState::Ejected | HealthState::Rejoining) && word.is_due(now)
    }

    /// Ends a claim, unless it has passed to someone else.
    fn settle(&self, claim: RejoinClaim, after: Word) -> Option<StateChange> {
        let RejoinClaim { backend, word, .. } = claim;
        self.swap(backend, word, after).then(|| Self::change(backend, word, after)).flatten()
    }

    /// Applies `next` to the backend's word until it holds or declines.
    fn update(
        &self,
        backend: BackendId,
        next: impl Fn(Word) -> Option<Word>,
    ) -> Option<StateChange> {
        loop {
            let before = self.word(backend);
            let after = next(before)?;
            if self.swap(backend, before, after) {
                return Self::change(backend, before, after);
            }
        }
    }

    /// Replaces the word if it is still `before`, and keeps the counters and
    /// epochs in step.
    fn swap(&self, backend: BackendId, before: Word, after: Word) -> bool {
        let cell = &self.cells[backend.index()];
        let swapped =
            cell.word.compare_exchange(before.to_bits(), after.to_bits(), Relaxed, Relaxed);
        if swapped.is_err() {
            return false;
        }
        let in_use_again = !before.state.is_usable() && after.state.is_usable();
        let out_of_use = before.state.is_usable() && !after.state.is_usable();
        let ejected_again =
            before.state == HealthState::Quarantined && after.state == HealthState::Ejected;
        if out_of_use || ejected_again {
            cell.ejections.fetch_add(1, Relaxed);
        }
        if in_use_again {
            cell.rejoins.fetch_add(1, Relaxed);
        }
        if out_of_use || in_use_again {
            self.bump_epochs(cell.pool_index);
        }
        true
    }

    fn bump_epochs(&self, pool_index: u32) {
        // ORDER: pairs with pool_epoch: whoever sees the new epoch sees the new state
        self.pool_epochs[pool_index as usize].fetch_add(1, Release);
        // ORDER: pairs with epoch: whoever sees it sees the pool's new epoch too
        self.epoch.fetch_add(1, Release);
    }

    fn change(backend: BackendId, before: Word, after: Word) -> Option<StateChange> {
        if before.state == after.state {
            return None;
        }
        // A backend that is up again is told apart by what had been wrong.
        let told = if after.state == HealthState::Up { before } else { after };
        Some(StateChange {
            backend,
            from: before.state,
            to: after.state,
            reason: told.reason,
            failures: told.failures,
            until: after.until(),
        })
    }
}
