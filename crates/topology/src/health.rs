//! Who is out of use, and why: one word per backend, shared by all workers.
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
//! In a pool without ejection only `Unknown`, `Up` and `Failing` occur, unless an operator
//! ejects a backend: then it is `Ejected` for the reason `Operator` and due never,
//! so that no probe is made, until an operator restores it. The differences
//! from twemproxy: a server comes back because it answered a probe, not because
//! time has passed, and requests for which every server is ejected are refused
//! for as long as that lasts (twemproxy refuses them until its retry time and
//! then lets real requests do the probing).
//!
//! Everything that decides a transition lives in one atomic word, so a
//! compare-and-swap is the whole protocol and no ordering between variables is
//! needed. There are two exceptions: the epoch, by which workers learn that a
//! ring is out of date, and the moment of the latest failure that counted, by
//! which one stall or one mass disconnect counts once, however many connections
//! of however many workers it ends: what had begun before that moment says
//! nothing new.

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
    BackendId, CircuitBoard, Ejection, FailureReason, GenerationCell, Pool, ReadBoard, Rejoin,
    Topology,
};

/// How long a claim to probe a backend lasts before another worker may take
/// over, in milliseconds. It covers a worker that stops in the middle of a
/// probe. Shorter than a probe (connect, handshake, empty the server) would let
/// two workers at it; longer keeps a sound server out for longer after such a
/// stop.
const CLAIM_LEN_MS: u64 = 60_000;

/// How long a backend that cannot answer yet is left alone where another can. Longer leaves a
/// replica unused that has its data; each time it is asked before, one read pays for the way.
const UNREADY: Duration = Duration::from_secs(1);

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

/// One backend's share of the board, on a cache line of its own: a failing
/// backend must not slow down the successes of its neighbours.
#[derive(Debug)]
#[repr(align(64))]
struct Cell {
    word: AtomicU64,
    /// When the latest failure that counted was noted. Whoever replaces it by a
    /// later moment may count a failure.
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

    /// Goes on with what is known of the same server in a pool that this one's replaces. A
    /// probe that is under way there says nothing here: it is due again.
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

/// Whether the servers of a pool are found out while it serves.
fn is_found_out(pool: &Pool) -> bool {
    pool.kind.discovery().is_some()
}

/// The health of every backend of one topology, shared by the workers.
///
/// Methods that may change a state return the change if there was one and they
/// made it, so exactly one caller logs it. All of them may be called from any
/// worker at any time. A backend that the board does not have, because its id is of another
/// topology, counts as up, and nothing changes it.
#[derive(Debug)]
pub struct HealthBoard {
    /// In the order of their places.
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
    /// A board on which every backend of `topology` is unknown.
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

    /// The board of the topology that follows: what is known of the backends of pools that
    /// are kept is shared with this one, whoever changes it. Those of a pool that goes on
    /// with the servers of another, at the position that `heir_of` says, begin with what is
    /// known of the one at the same address here.
    #[must_use]
    pub fn succeeded_by(
        &self,
        (from, to): (&Topology, &Topology),
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
            // Places in a cluster are nobody's until it is asked who is there.
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

    /// Which servers are not asked for a while.
    #[inline]
    pub fn circuits(&self) -> &CircuitBoard {
        &self.circuits
    }

    /// Whether requests to this server may be refused by more than its being out of reach, or
    /// how they went is to be told. Changes with [`HealthBoard::pool_epoch`] only.
    pub fn watches(&self, backend: BackendId) -> bool {
        self.circuits.has(backend) || self.reads.has(backend) || self.is_held(backend)
    }

    /// What reads have shown of the servers they may go to.
    #[inline]
    pub fn reads(&self) -> &ReadBoard {
        &self.reads
    }

    /// Number of questions to this board, or to one before it, about a backend that it does not have.
    /// Each time is a fault of the one that asked: it has kept an id of another topology.
    pub fn strangers(&self) -> u64 {
        self.strangers.count()
    }

    pub(crate) fn strangers_of_all(&self) -> Strangers {
        self.strangers.clone()
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
        self.pool_epochs.get(pool_index).map_or(0, |epoch| epoch.load(Acquire))
    }

    /// Whether requests go to the backend.
    #[inline]
    pub fn is_usable(&self, backend: BackendId) -> bool {
        self.state(backend).is_usable()
    }

    /// Whether the backend said within the last second that it cannot answer yet: it loads its
    /// data, or is a replica without its primary. Another is better asked, if there is one.
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

    /// Where the backend stands.
    pub fn state(&self, backend: BackendId) -> HealthState {
        self.word(backend).state
    }

    /// Its latest failure since it was last up.
    pub fn reason(&self, backend: BackendId) -> Option<FailureReason> {
        let word = self.word(backend);
        word.reason.filter(|_| !word.state.is_sound())
    }

    /// Its failures in a row, up to 100,000.
    pub fn failures(&self, backend: BackendId) -> u32 {
        self.word(backend).failures
    }

    /// When its state is due to end, as in [`StateChange::until`].
    pub fn until(&self, backend: BackendId) -> Option<Time> {
        self.word(backend).until()
    }

    /// What is known of the generation of its data.
    pub fn generation(&self, backend: BackendId) -> &GenerationCell {
        self.cell(backend).map_or(&self.nowhere, |cell| &cell.generation)
    }

    /// How often it was ejected.
    pub fn ejections(&self, backend: BackendId) -> u64 {
        self.cell(backend).map_or(0, |cell| cell.ejections.load(Relaxed))
    }

    /// How often it came back into use after an ejection.
    pub fn rejoins(&self, backend: BackendId) -> u64 {
        self.cell(backend).map_or(0, |cell| cell.rejoins.load(Relaxed))
    }

    /// A request was answered. Costs one load while nothing is wrong. Says
    /// nothing about a backend that is out of use: that is the probe's to say.
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

    /// A request or a connection that began at `began` failed at `now`. It counts
    /// only if it began no earlier than the latest failure of this backend that
    /// counted: failures in a row are successive tries, and not one event that
    /// many were hit by. Ejects the backend when its pool does so and this is one
    /// failure in a row too many. A quarantined backend that fails is ejected
    /// again.
    #[cold]
    pub fn note_failure(
        &self,
        backend: BackendId,
        reason: FailureReason,
        (began, now): (Time, Time),
    ) -> Option<StateChange> {
        let cell = self.cell(backend)?;
        let is_out = matches!(self.state(backend), HealthState::Ejected | HealthState::Rejoining);
        let is_new = |counted: u64| (!is_out && began.0 >= counted).then_some(now.0.max(counted));
        // Of many workers at once the first alone counts: the moment that it
        // leaves is later than what the others have seen begin.
        cell.counted.fetch_update(Relaxed, Relaxed, is_new).ok()?;
        self.update(backend, |word| word.after_failure(reason, now, cell.ejection))
    }

    /// The unknown backends.
    pub fn unknown(&self) -> impl Iterator<Item = BackendId> + '_ {
        self.backends().filter(|&backend| self.state(backend) == HealthState::Unknown)
    }

    /// Returns the caller's step at `now` for an unknown backend. One worker asks it after a pause
    /// of `spread`, and it has `patience` to answer.
    pub fn first_look(
        &self,
        backend: BackendId,
        now: Time,
        (spread, patience): (Duration, Duration),
    ) -> LookStep {
        self.cell(backend)
            .map_or(LookStep::Wait, |cell| cell.first_look.step(now, spread, patience))
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
        let policy = self.cell(backend)?.ejection?.rejoin;
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
        let span = self.cell(claim.backend)?.ejection?.for_;
        let after = Word {
            state: HealthState::Ejected,
            reason: Some(reason),
            failures: (claim.word.failures + 1).min(Word::FAILURES_MAX),
            due_ms: Word::due_after(now, span.max(Word::EJECTION_MIN)),
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

    /// Takes a backend out of use on an operator's word, whatever its state and whether
    /// its pool ejects or not, until [`HealthBoard::restore`]. Returns whether it was not so
    /// already. A claim in the hands of a worker is void.
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

    /// Whether an operator has taken the backend out of use.
    #[inline]
    pub fn is_held(&self, backend: BackendId) -> bool {
        Self::is_held_word(self.word(backend))
    }

    fn is_held_word(word: Word) -> bool {
        word.state == HealthState::Ejected
            && word.reason == Some(FailureReason::Operator)
            && word.due_ms == Word::NEVER
    }

    /// Puts a backend back into use, by an operator's command or because another backend has come
    /// to its place. Its state is unknown, and a worker's claim on it is void.
    pub fn restore(&self, backend: BackendId) -> Option<StateChange> {
        self.cell(backend)?.first_look.restart();
        self.update(backend, |_| Some(Word::UNKNOWN))
    }

    /// The ids that the board answers to, in the order of their places.
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
        self.cell(backend)?;
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
        // ORDER: pairs with pool_epoch: whoever sees the new epoch sees the new state
        if let Some(epoch) = self.pool_epochs.get(pool_index as usize) {
            epoch.fetch_add(1, Release);
        }
        // ORDER: pairs with epoch: whoever sees it sees the pool's new epoch too
        self.epoch.fetch_add(1, Release);
    }

    fn change(backend: BackendId, before: Word, after: Word) -> Option<StateChange> {
        if before.state == after.state {
            return None;
        }
        // A backend that is up again is told apart by what had been wrong.
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
