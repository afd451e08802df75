//! The health board: which servers are out of use, and why. It has one word for each backend,
//! shared by all workers.
//!
//! ```text
//!        failure             failures in a row = after_failures
//!   Up ─────────► Failing ──────────────────────────► Ejected ◄─────────┐
//!   ▲ ◄───────────   │ ▲                              │    ▲            │ failure
//!   │    success,    └─┘ failure                claim │    │ failed     │
//!   │    reachable                                    │    │            │
//!   │                                                 ▼    │            │
//!   └───────────────────────────────────────────── Rejoining            │
//!   │   rejoined (serve, flush)                       │ rejoined        │
//!   │                                                 ▼ (quarantine)    │
//!   └──────────────────────────────────────────── Quarantined ──────────┘
//!       quarantine ends, or an operator restores
//! ```
//!
//! A backend begins as `Unknown`, which is in use as `Up` is. Its first reply makes it `Up`. Its
//! first failure counts like that of a backend that is up. One worker asks it soon after the start,
//! so that the state does not last. An operator who restores a backend makes it `Unknown`.
//!
//! In a pool without ejection only `Unknown`, `Up` and `Failing` occur, unless an operator ejects a
//! backend. Such a backend is `Ejected` for the reason `Operator` and is never due, so it is not
//! probed until an operator restores it. There are two differences from twemproxy. A server comes
//! back because it answered a probe, not because time has passed. Requests for which every server
//! is ejected are refused for as long as that lasts; twemproxy refuses them until its retry time
//! and then lets real requests do the probing.
//!
//! Everything that decides a transition is in one atomic word, so a compare-and-swap is the whole
//! protocol and no ordering between variables is needed. There are two exceptions. The epoch tells
//! workers that a ring is out of date. The time of the latest counted failure makes one stall or
//! one mass disconnect count once, however many connections of however many workers it ends:
//! requests that began before that time say nothing new.

mod state;
mod word;

pub use state::{HealthState, StateChange};

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use keyway_base::Time;

use word::Word;

use crate::first_look::{FirstLook, LookStep};
use crate::strangers::Strangers;
use crate::{
    BackendId, CircuitBoard, Ejection, FailureReason, FailureTimes, GenerationCell, Pool,
    ReadBoard, Rejoin, Topology,
};

/// How long a claim to probe a backend lasts before another worker may take over, in milliseconds.
/// It covers a worker that stops in the middle of a probe. If it were shorter than a probe
/// (connect, handshake, empty the server), two workers would probe at once. If it were longer, a
/// sound server would stay out for longer after such a stop.
const CLAIM_LEN_MS: u64 = 60_000;

/// How long another server is preferred to one that cannot answer yet. If it were longer, a replica
/// that has its data would stay unused. Each earlier try costs one read a round trip.
const UNREADY: Duration = Duration::from_secs(1);

/// The right, and the duty, to probe one ejected backend. Its holder connects, shakes hands and
/// acts by [`RejoinClaim::policy`]. Then it hands the claim back through [`HealthBoard::rejoined`]
/// or [`HealthBoard::rejoin_failed`].
#[derive(Debug)]
#[must_use = "the backend stays out of use until the claim is handed back or has run out"]
pub struct RejoinClaim {
    backend: BackendId,
    policy: Rejoin,
    word: Word,
}

impl RejoinClaim {
    /// Returns the backend to probe.
    pub fn backend(&self) -> BackendId {
        self.backend
    }

    /// Returns the policy of its pool. With [`Rejoin::Flush`] the server must be emptied before the
    /// claim is handed back as a success.
    pub fn policy(&self) -> Rejoin {
        self.policy
    }
}

/// One backend's share of the board, on a cache line of its own: a failing
/// backend must not slow down the successes of its neighbours.
#[derive(Debug)]
#[repr(align(64))]
struct Cell {
    word: AtomicU64,
    /// The time at which the latest counted failure was noted. The worker that replaces it by a
    /// later time may count a failure.
    counted: AtomicU64,
    ejections: AtomicU64,
    rejoins: AtomicU64,
    ejection: Option<Ejection>,
    pool_index: u32,
    generation: GenerationCell,
    first_look: FirstLook,
}

impl Cell {
    fn new(topology: &Topology, id: BackendId) -> Cell {
        let backend = topology.backend(id);
        Cell {
            word: AtomicU64::new(Word::UNKNOWN.to_bits()),
            counted: AtomicU64::new(0),
            ejections: AtomicU64::new(0),
            rejoins: AtomicU64::new(0),
            ejection: backend.as_ref().and_then(|backend| backend.pool.ejection()),
            pool_index: backend.map_or(0, |backend| backend.pool_index as u32),
            generation: GenerationCell::default(),
            first_look: FirstLook::default(),
        }
    }

    /// Takes over what is known of the same server from `old`, the cell of a pool that this pool
    /// replaces. A probe that is under way there does not count here: the probe is due again.
    fn inherit(&self, old: &Cell) {
        let mut word = Word::from_bits(old.word.load(Relaxed));
        if word.state == HealthState::Rejoining {
            word = Word { state: HealthState::Ejected, due_ms: 0, ..word };
        }
        let is_held = HealthBoard::is_held_word(word);
        if !word.state.is_usable() && self.ejection.is_none() && !is_held {
            word = Word { state: HealthState::Failing, due_ms: 0, ..word };
        }
        self.word.store(word.to_bits(), Relaxed);
        self.counted.store(old.counted.load(Relaxed), Relaxed);
        self.ejections.store(old.ejections.load(Relaxed), Relaxed);
        self.rejoins.store(old.rejoins.load(Relaxed), Relaxed);
    }
}

/// Returns whether a pool discovers its servers while it serves.
fn is_found_out(pool: &Pool) -> bool {
    pool.kind.discovery().is_some()
}

/// The health of every backend of one topology, shared by the workers.
///
/// A method that changes a state returns the change only to the caller that made it, so exactly one
/// caller logs it. Every method may be called from any worker at any time. A backend that is not on
/// the board, because its id belongs to another topology, counts as up, and nothing changes it.
/// topology, counts as up, and nothing changes it.
#[derive(Debug)]
pub struct HealthBoard {
    /// In the order of their indices.
    cells: Box<[(BackendId, Arc<Cell>)]>,
    /// The data generation of backends that are not on this board.
    nowhere: GenerationCell,
    strangers: Strangers,
    pool_epochs: Box<[Arc<AtomicU64>]>,
    epoch: Arc<AtomicU64>,
    circuits: CircuitBoard,
    reads: ReadBoard,
}

impl HealthBoard {
    /// Creates a board on which every backend of `topology` is unknown.
    pub fn new(topology: &Topology) -> HealthBoard {
        let new = |id| (id, Arc::new(Cell::new(topology, id)));
        let strangers = Strangers::default();
        HealthBoard {
            cells: topology.all_ids().map(new).collect(),
            nowhere: GenerationCell::default(),
            pool_epochs: topology.pools().iter().map(|_| Arc::default()).collect(),
            epoch: Arc::default(),
            circuits: CircuitBoard::counting(topology, &strangers),
            reads: ReadBoard::counting(topology, &strangers),
            strangers,
        }
    }

    /// Returns the board of the topology that succeeds this one. The backends of pools that are
    /// kept share their cells with this board, so that each sees the changes of the other. A pool
    /// that replaces another pool, whose index `heir_of` returns, copies what this board knows of
    /// the server at the same address.
    #[must_use]
    pub fn succeeded_by(
        &self,
        from: &Topology,
        to: &Topology,
        is_kept: impl Fn(usize) -> bool,
        heir_of: impl Fn(usize) -> Option<usize>,
    ) -> HealthBoard {
        let kept = |id| to.backend(id).is_some_and(|backend| is_kept(backend.pool_index));
        let cell = |id: BackendId| match kept(id) {
            true => (id, Arc::clone(&self.cells[id.index()].1)),
            false => (id, Arc::new(Cell::new(to, id))),
        };
        let cells: Box<[(BackendId, Arc<Cell>)]> = to.all_ids().map(cell).collect();
        for (id, cell) in cells.iter().filter(|(id, _)| !kept(*id)) {
            let Some(new) = to.backend(*id) else { continue };
            let Some(old_pool) = heir_of(new.pool_index) else { continue };
            // The server indices of a cluster belong to no server until one has been asked.
            if is_found_out(&from.pools()[old_pool]) || is_found_out(&to.pools()[new.pool_index]) {
                continue;
            }
            let servers = from.pools()[old_pool].servers();
            let at = servers.iter().position(|old| old.endpoint == new.server.endpoint);
            let Some(at) = at else { continue };
            let (_, old) = &self.cells[from.backend_id(old_pool, at).index()];
            cell.inherit(old);
        }
        let epoch = |index: usize| match is_kept(index) {
            true => Arc::clone(&self.pool_epochs[index]),
            false => Arc::default(),
        };
        HealthBoard {
            cells,
            nowhere: GenerationCell::default(),
            strangers: self.strangers.clone(),
            pool_epochs: (0..to.pools().len()).map(epoch).collect(),
            epoch: Arc::clone(&self.epoch),
            circuits: self.circuits.succeeded_by(to, kept),
            reads: self.reads.succeeded_by(to, kept),
        }
    }

    /// Returns the circuits of the servers.
    #[inline]
    pub fn circuits(&self) -> &CircuitBoard {
        &self.circuits
    }

    /// Returns whether requests to this server may be refused for other reasons than its being out
    /// of reach, or whether their outcome is to be noted. Changes only with
    /// [`HealthBoard::pool_epoch`].
    pub fn watches(&self, backend: BackendId) -> bool {
        self.circuits.has(backend) || self.reads.has(backend) || self.is_held(backend)
    }

    /// Returns the figures of reads from the servers.
    #[inline]
    pub fn reads(&self) -> &ReadBoard {
        &self.reads
    }

    /// Returns the number of questions to this board, or to an earlier one, about a backend that it
    /// does not have. Each of them is a fault of the caller, which has kept an id of another
    /// topology.
    pub fn strangers(&self) -> u64 {
        self.strangers.count()
    }

    pub(crate) fn strangers_of_all(&self) -> Strangers {
        self.strangers.clone()
    }

    /// Returns the number of backends on the board.
    pub fn backend_count(&self) -> usize {
        self.cells.len()
    }

    /// Returns a number that grows whenever some backend becomes usable or ceases to be. A worker
    /// compares it once a turn. If it has grown, the worker looks at [`HealthBoard::pool_epoch`] of
    /// each pool.
    #[inline]
    pub fn epoch(&self) -> u64 {
        // ORDER: pairs with bump_epochs
        self.epoch.load(Acquire)
    }

    /// Returns a number that grows whenever a backend of this pool becomes usable or ceases to be.
    /// Read it before [`HealthBoard::is_usable`] when building a ring: a change in between then
    /// shows as an epoch newer than the ring's.
    pub fn pool_epoch(&self, pool_index: usize) -> u64 {
        // ORDER: pairs with bump_epochs
        self.pool_epochs.get(pool_index).map_or(0, |epoch| epoch.load(Acquire))
    }

    /// Returns whether requests go to the backend.
    #[inline]
    pub fn is_usable(&self, backend: BackendId) -> bool {
        self.state(backend).is_usable()
    }

    /// Returns whether the backend said within the last second that it cannot answer yet: it loads
    /// its data, or is a replica without its primary. Another server is better asked, if there is
    /// one.
    #[inline]
    pub fn is_unready(&self, backend: BackendId, now: Time) -> bool {
        let word = self.word(backend);
        word.state == HealthState::Failing && self.said_unready(backend, word, now)
    }

    #[cold]
    fn said_unready(&self, backend: BackendId, word: Word, now: Time) -> bool {
        let Some(cell) = self.cell(backend) else { return false };
        let said = Time(cell.counted.load(Relaxed));
        matches!(word.reason, Some(FailureReason::Loading | FailureReason::MasterDown))
            && now < said + UNREADY
    }

    /// Returns the state of the backend.
    pub fn state(&self, backend: BackendId) -> HealthState {
        self.word(backend).state
    }

    /// Returns its latest failure since it was last up.
    pub fn reason(&self, backend: BackendId) -> Option<FailureReason> {
        let word = self.word(backend);
        word.reason.filter(|_| !word.state.is_sound())
    }

    /// Returns its failures in a row, up to 100,000.
    pub fn failures(&self, backend: BackendId) -> u32 {
        self.word(backend).failures
    }

    /// Returns the time at which its state is due to end, as in [`StateChange::until`].
    pub fn until(&self, backend: BackendId) -> Option<Time> {
        self.word(backend).until()
    }

    /// Returns what is known of the generation of its data.
    pub fn generation(&self, backend: BackendId) -> &GenerationCell {
        self.cell(backend).map_or(&self.nowhere, |cell| &cell.generation)
    }

    /// Returns how many times it was ejected.
    pub fn ejections(&self, backend: BackendId) -> u64 {
        self.cell(backend).map_or(0, |cell| cell.ejections.load(Relaxed))
    }

    /// Returns how many times it came back into use after an ejection.
    pub fn rejoins(&self, backend: BackendId) -> u64 {
        self.cell(backend).map_or(0, |cell| cell.rejoins.load(Relaxed))
    }

    /// Notes that a request was answered. Costs one load while nothing is wrong. Ignored for a
    /// backend that is out of use, because only a probe brings it back.
    #[inline]
    pub fn note_success(&self, backend: BackendId) -> Option<StateChange> {
        if self.cell(backend)?.word.load(Relaxed) == 0 {
            return None;
        }
        self.note_recovery(backend)
    }

    #[cold]
    fn note_recovery(&self, backend: BackendId) -> Option<StateChange> {
        self.update(backend, |word| word.state.is_usable().then(Word::default))
    }

    /// Notes that a failing or unknown backend has answered, though not yet a client's request: it
    /// is up. After failures the count goes on, so the next failure is one more in the same row.
    /// Otherwise a server that takes connections and fails all requests would never be ejected.
    #[cold]
    pub fn note_reachable(&self, backend: BackendId) -> Option<StateChange> {
        let up = |word: Word| Word { state: HealthState::Up, ..word };
        let is_news =
            |word: Word| matches!(word.state, HealthState::Failing | HealthState::Unknown);
        self.update(backend, |word| is_news(word).then(|| up(word)))
    }

    /// Notes that a request or a connection that began at `began` failed at `now`. It counts only
    /// if it began no earlier than the latest counted failure of this backend. So failures in a row
    /// are successive tries, and not one event that hit many requests. Ejects the backend if its
    /// pool ejects and this is one failure in a row too many. A quarantined backend that fails is
    /// ejected again.
    #[cold]
    pub fn note_failure(
        &self,
        backend: BackendId,
        reason: FailureReason,
        FailureTimes { began, now }: FailureTimes,
    ) -> Option<StateChange> {
        let cell = self.cell(backend)?;
        let is_out = matches!(self.state(backend), HealthState::Ejected | HealthState::Rejoining);
        let is_new = |counted: u64| (!is_out && began.0 >= counted).then_some(now.0.max(counted));
        // If many workers note failures at once, only the first counts: it stores a time that is
        // later than the start of the other failures.
        cell.counted.fetch_update(Relaxed, Relaxed, is_new).ok()?;
        self.update(backend, |word| word.after_failure(reason, now, cell.ejection))
    }

    /// Returns the unknown backends.
    pub fn unknown(&self) -> impl Iterator<Item = BackendId> + '_ {
        self.backends().filter(|&backend| self.state(backend) == HealthState::Unknown)
    }

    /// Returns the caller's step at `now` for an unknown backend. One worker asks it after a pause
    /// of `spread`, and it has `patience` to answer.
    pub fn first_look(
        &self,
        backend: BackendId,
        now: Time,
        spread: Duration,
        patience: Duration,
    ) -> LookStep {
        self.cell(backend)
            .map_or(LookStep::Wait, |cell| cell.first_look.step(now, spread, patience))
    }

    /// Returns the backends that are due for a probe. Some worker should
    /// [claim](HealthBoard::try_claim_rejoin) each of them.
    pub fn due_for_rejoin(&self, now: Time) -> impl Iterator<Item = BackendId> + '_ {
        self.backends().filter(move |&backend| Self::is_claimable(self.word(backend), now))
    }

    /// Returns the time at which the next probe or the next end of a quarantine is due; `None` if
    /// nothing is pending.
    pub fn next_due(&self) -> Option<Time> {
        self.backends().filter_map(|backend| self.until(backend)).min()
    }

    /// Claims the probe of a backend that is due. Exactly one caller gets it. The claim lapses
    /// after a minute, so that a worker that stopped does not keep the backend out for good.
    pub fn try_claim_rejoin(&self, backend: BackendId, now: Time) -> Option<RejoinClaim> {
        let policy = self.cell(backend)?.ejection?.rejoin;
        let before = self.word(backend);
        if !Self::is_claimable(before, now) {
            return None;
        }
        let due_ms = now.as_millis().saturating_add(CLAIM_LEN_MS).min(Word::NEVER);
        let word = Word { state: HealthState::Rejoining, due_ms, ..before };
        self.swap(backend, before, word).then_some(RejoinClaim { backend, policy, word })
    }

    /// Notes that the probe succeeded. The backend is back in use, or is quarantined if that is the
    /// policy. Returns `None` if the claim had lapsed and another worker took over.
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

    /// Notes that the probe failed. The backend is out for another ejection time. Returns `None` if
    /// the claim had lapsed and another worker took over.
    pub fn rejoin_failed(
        &self,
        claim: RejoinClaim,
        reason: FailureReason,
        now: Time,
    ) -> Option<StateChange> {
        let span = self.cell(claim.backend)?.ejection?.for_;
        let after = Word {
            state: HealthState::Ejected,
            reason: Some(reason),
            failures: (claim.word.failures + 1).min(Word::FAILURES_MAX),
            due_ms: Word::due_after(now, span.max(Word::EJECTION_MIN)),
        };
        self.settle(claim, after)
    }

    /// Ends one quarantine that is over by `now`. To be called until it returns `None`.
    pub fn end_quarantine(&self, now: Time) -> Option<StateChange> {
        let over = |word: Word| word.state == HealthState::Quarantined && word.is_due(now);
        self.backends()
            .find_map(|backend| self.update(backend, |word| over(word).then(Word::default)))
    }

    /// Takes a backend out of use by an operator's command, until [`HealthBoard::restore`]. Its
    /// state and its pool's settings do not matter. Returns whether this changed anything. A claim
    /// that a worker holds becomes void.
    pub fn eject(&self, backend: BackendId) -> bool {
        if self.cell(backend).is_none() {
            return false;
        }
        loop {
            let before = self.word(backend);
            if Self::is_held_word(before) {
                return false;
            }
            let after = Word {
                state: HealthState::Ejected,
                reason: Some(FailureReason::Operator),
                failures: before.failures,
                due_ms: Word::NEVER,
            };
            if self.swap(backend, before, after) {
                return true;
            }
        }
    }

    /// Returns whether an operator has taken the backend out of use.
    #[inline]
    pub fn is_held(&self, backend: BackendId) -> bool {
        Self::is_held_word(self.word(backend))
    }

    fn is_held_word(word: Word) -> bool {
        word.state == HealthState::Ejected
            && word.reason == Some(FailureReason::Operator)
            && word.due_ms == Word::NEVER
    }

    /// Puts a backend back into use, by an operator's command or because another server has taken
    /// its index. Its state is unknown, and a worker's claim on it is void.
    pub fn restore(&self, backend: BackendId) -> Option<StateChange> {
        self.cell(backend)?.first_look.restart();
        self.update(backend, |_| Some(Word::UNKNOWN))
    }

    /// Returns the ids of the backends on the board, in the order of their indices.
    pub fn backends(&self) -> impl Iterator<Item = BackendId> + '_ {
        self.cells.iter().map(|(id, _)| *id)
    }

    #[inline]
    fn cell(&self, backend: BackendId) -> Option<&Cell> {
        self.strangers.find(&self.cells, backend).map(|cell| &**cell)
    }

    fn word(&self, backend: BackendId) -> Word {
        self.cell(backend)
            .map_or_else(Word::default, |cell| Word::from_bits(cell.word.load(Relaxed)))
    }

    /// Returns whether the backend was ejected for long enough, or was claimed by a worker that did
    /// not hand the claim back in time.
    fn is_claimable(word: Word, now: Time) -> bool {
        matches!(word.state, HealthState::Ejected | HealthState::Rejoining) && word.is_due(now)
    }

    /// Ends a claim, unless another worker has taken over.
    fn settle(&self, claim: RejoinClaim, after: Word) -> Option<StateChange> {
        let RejoinClaim { backend, word, .. } = claim;
        self.swap(backend, word, after).then(|| Self::change(backend, word, after)).flatten()
    }

    /// Applies `next` to the backend's word, again if another worker changes it meanwhile, until it
    /// is stored or `next` returns `None`.
    fn update(
        &self,
        backend: BackendId,
        next: impl Fn(Word) -> Option<Word>,
    ) -> Option<StateChange> {
        self.cell(backend)?;
        loop {
            let before = self.word(backend);
            let after = next(before)?;
            if self.swap(backend, before, after) {
                return Self::change(backend, before, after);
            }
        }
    }

    /// Replaces the word if it is still `before`. Keeps the counters and epochs in step.
    fn swap(&self, backend: BackendId, before: Word, after: Word) -> bool {
        let Some(cell) = self.cell(backend) else { return false };
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
        // ORDER: pairs with pool_epoch: a worker that sees the new epoch sees the new state
        if let Some(epoch) = self.pool_epochs.get(pool_index as usize) {
            epoch.fetch_add(1, Release);
        }
        // ORDER: pairs with epoch: a worker that sees it sees the pool's new epoch too
        self.epoch.fetch_add(1, Release);
    }

    fn change(backend: BackendId, before: Word, after: Word) -> Option<StateChange> {
        if before.state == after.state {
            return None;
        }
        // The change to a sound state tells what had been wrong before.
        let told = if after.state.is_sound() { before } else { after };
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

#[cfg(test)]
mod invariants;

#[cfg(test)]
mod tests;
