//! Circuits: a server is not asked for a while when too many of its requests have failed.
//!
//! ```text
//!            share of failures reached          open_for, doubled each time
//!   Closed ───────────────────────────► Open ──────────────────────────────► HalfOpen
//!     ▲                                  ▲                                     │   │
//!     │                                  └───────────── a request fails ───────┘   │
//!     └──────────────────────── `probes` requests are answered ────────────────────┘
//! ```
//!
//! A circuit decides whether a server is asked. It never decides where keys are. A server with an
//! open circuit keeps its keys, and requests for them fail at once; an ejected server loses them.
//! All workers share a circuit. Its state is one word, changed by compare-and-swap, as on the
//! health board. The counts of the window are words of their own: a count too many or too few
//! beside a change of state makes no difference.
//!
//! One stall counts as one event, however many requests it hits. A circuit therefore opens only if
//! the failures in its window began more than [`STALL_MAX`] apart.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use keyway_base::Time;

use crate::strangers::Strangers;
use crate::{BackendId, FailureReason, FailureTimes, Topology};

/// Longest time between the starts of requests that one stall may have hit, such as a fork, a slow
/// command, or a switch that learns a port. If it were longer, a dead server would be asked for
/// longer. If it were shorter, circuits would open for servers that are sound again before anybody
/// has looked.
const STALL_MAX: Duration = Duration::from_millis(200);

/// Parts of the window. Requests older than the window leave it one part at a time.
const SLICES: usize = 10;

/// The settings that decide when requests to a server are answered without asking it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circuit {
    /// Percentage of the window's requests that must have failed, 1 to 100.
    pub failures_percent: u8,
    /// The circuit does not open while the window holds fewer requests than this.
    pub requests_min: u32,
    /// Length of the window: older requests do not count.
    pub window: Duration,
    /// Time for which the server is not asked when the circuit first opens.
    pub open_for: Duration,
    /// Upper bound of that time, which doubles each time a probe fails.
    pub open_for_max: Duration,
    /// Number of requests that test whether the server answers again, 1 to 63.
    pub probes: u8,
}

/// The state of a server's circuit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum CircuitState {
    /// The server is asked.
    #[default]
    Closed = 0,
    /// A few requests are let through as probes.
    HalfOpen = 1,
    /// The server is not asked.
    Open = 2,
}

impl CircuitState {
    /// Returns the name in logs and lists.
    pub const fn label(self) -> &'static str {
        match self {
            CircuitState::Closed => "closed",
            CircuitState::HalfOpen => "half-open",
            CircuitState::Open => "open",
        }
    }
}

/// A change of a circuit's state, with what its log line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitChange {
    /// The server.
    pub backend: BackendId,
    /// The state before.
    pub from: CircuitState,
    /// The state now.
    pub to: CircuitState,
    /// The failure that opened it.
    pub reason: Option<FailureReason>,
    /// Requests in the window when the circuit opened, and how many of them had failed.
    pub counts: (u32, u32),
    /// How long the circuit stays open before the server is asked again.
    pub open_for: Duration,
}

/// A server's circuit, in 63 bits: 2 for the state, 4 for the reason, 5 for openings in a row, 6
/// for probes let through, 6 for probes answered, 40 for a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Word {
    state: CircuitState,
    reason: Option<FailureReason>,
    row: u8,
    passed: u8,
    answered: u8,
    /// A time in milliseconds, rounded up. Its meaning depends on the state: an open circuit lets
    /// probes through from then on, a half-open one forgets its probes then, and a closed one was
    /// closed then.
    due_ms: u64,
}

impl Word {
    const STATE: u64 = 0b11;
    const ROW_MAX: u8 = 31;
    const DUE_MAX: u64 = (1 << 40) - 1;

    fn to_bits(self) -> u64 {
        self.state as u64
            | self.reason.map_or(0, |reason| reason as u64) << 2
            | u64::from(self.row) << 6
            | u64::from(self.passed) << 11
            | u64::from(self.answered) << 17
            | self.due_ms << 23
    }

    fn from_bits(bits: u64) -> Word {
        let state = match bits & Word::STATE {
            0 => CircuitState::Closed,
            1 => CircuitState::HalfOpen,
            _ => CircuitState::Open,
        };
        let reason = (bits >> 2 & 0b1111) as usize;
        Word {
            state,
            reason: reason.checked_sub(1).and_then(|index| FailureReason::ALL.get(index)).copied(),
            row: (bits >> 6 & 0b1_1111) as u8,
            passed: (bits >> 11 & 0b11_1111) as u8,
            answered: (bits >> 17 & 0b11_1111) as u8,
            due_ms: bits >> 23,
        }
    }

    fn due_after(now: Time, span: Duration) -> u64 {
        (now + span).0.div_ceil(1_000_000).min(Word::DUE_MAX)
    }

    fn is_due(self, now: Time) -> bool {
        self.due_ms <= now.as_millis()
    }

    /// Returns whether a request may go through now. It is a probe unless the circuit is closed.
    fn admits(self, now: Time, probes: u8) -> bool {
        match self.state {
            CircuitState::Closed => true,
            CircuitState::HalfOpen => self.passed < probes || self.is_due(now),
            CircuitState::Open => self.is_due(now),
        }
    }
}

/// Counts of one slice of time, in 64 bits: 16 for the slice's number, 24 for answered requests and
/// 24 for failed ones. Both counts are halved when one is full, which keeps the share as it is.
#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    number: u16,
    answered: u32,
    failed: u32,
}

impl Slice {
    const COUNT_MAX: u32 = (1 << 24) - 1;

    fn to_bits(self) -> u64 {
        u64::from(self.number) | u64::from(self.answered) << 16 | u64::from(self.failed) << 40
    }

    fn from_bits(bits: u64) -> Slice {
        Slice {
            number: bits as u16,
            answered: (bits >> 16) as u32 & Slice::COUNT_MAX,
            failed: (bits >> 40) as u32,
        }
    }

    fn plus(self, number: u16, answered: u32, failed: u32) -> Slice {
        let old = if self.number == number { self } else { Slice::default() };
        let mut sum = (old.answered.saturating_add(answered), old.failed.saturating_add(failed));
        while sum.0.max(sum.1) > Slice::COUNT_MAX {
            sum = (sum.0 / 2, sum.1 / 2);
        }
        Slice { number, answered: sum.0, failed: sum.1 }
    }
}

/// One server's circuit, on cache lines of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Cell {
    word: AtomicU64,
    /// Start of the first failure that is counted now, in nanoseconds; 0 for none.
    stalled: AtomicU64,
    /// Time at which the circuit became half-open, in nanoseconds. Requests that began earlier are
    /// ignored.
    tried: AtomicU64,
    opens: AtomicU64,
    slice_nanos: u64,
    circuit: Circuit,
    slices: [AtomicU64; SLICES],
}

impl Cell {
    fn new(circuit: Circuit) -> Cell {
        let slice_nanos = u64::try_from(circuit.window.as_nanos()).unwrap_or(u64::MAX);
        Cell {
            word: AtomicU64::new(0),
            stalled: AtomicU64::new(0),
            tried: AtomicU64::new(0),
            opens: AtomicU64::new(0),
            slice_nanos: (slice_nanos / SLICES as u64).max(1),
            circuit,
            slices: Default::default(),
        }
    }

    fn word(&self) -> Word {
        Word::from_bits(self.word.load(Relaxed))
    }

    fn swap(&self, before: Word, after: Word) -> bool {
        let (before, after) = (before.to_bits(), after.to_bits());
        self.word.compare_exchange(before, after, Relaxed, Relaxed).is_ok()
    }

    /// Counts requests that have ended.
    #[inline]
    fn count(&self, now: Time, answered: u32, failed: u32) {
        let number = now.0 / self.slice_nanos;
        let slice = &self.slices[(number % SLICES as u64) as usize];
        let plus =
            |bits| Some(Slice::from_bits(bits).plus(number as u16, answered, failed).to_bits());
        let _ = slice.fetch_update(Relaxed, Relaxed, plus);
    }

    /// Returns the number of requests in the window, and how many of them failed.
    fn counts(&self, now: Time) -> (u32, u32) {
        let number = (now.0 / self.slice_nanos) as u16;
        let slices = self.slices.iter().map(|slice| Slice::from_bits(slice.load(Relaxed)));
        let inside = slices.filter(|slice| number.wrapping_sub(slice.number) < SLICES as u16);
        inside.fold((0, 0), |(all, failed), slice| {
            (all + slice.answered + slice.failed, failed + slice.failed)
        })
    }

    fn forget(&self) {
        self.slices.iter().for_each(|slice| slice.store(0, Relaxed));
        self.stalled.store(0, Relaxed);
    }

    /// Returns whether failures have gone on for longer than one stall takes. The failures noted
    /// now began at `began`.
    fn outlasts_a_stall(&self, began: Time) -> bool {
        let first = self.stalled.load(Relaxed);
        if first == 0 || began.since(Time(first)) > self.circuit.window {
            self.stalled.store(began.0.max(1), Relaxed);
            return false;
        }
        began > Time(first) + STALL_MAX
    }

    /// Returns how long the circuit stays open when it opens for the `row`th time in a row.
    fn open_for(&self, row: u8) -> Duration {
        let doubled = 2u32.saturating_pow(u32::from(row.saturating_sub(1)));
        self.circuit.open_for.saturating_mul(doubled).min(self.circuit.open_for_max)
    }
}

/// The circuits of every server of one topology, shared by the workers. As on the
/// [`HealthBoard`](crate::HealthBoard), only the caller that makes a change is told of it.
#[derive(Debug)]
pub struct CircuitBoard {
    cells: Box<[(BackendId, Option<Arc<Cell>>)]>,
    has_any: bool,
    epoch: Arc<AtomicU64>,
    strangers: Strangers,
}

/// The settings by which a circuit opens.
struct Opening {
    /// The state before.
    word: Word,
    reason: FailureReason,
    /// Requests in the window.
    all: u32,
    /// Requests in the window that failed.
    failed: u32,
}

impl CircuitBoard {
    /// Creates closed circuits for the servers of all pools that have circuits.
    pub fn new(topology: &Topology) -> CircuitBoard {
        CircuitBoard::counting(topology, &Strangers::default())
    }

    pub(crate) fn counting(topology: &Topology, strangers: &Strangers) -> CircuitBoard {
        let nothing = CircuitBoard {
            cells: Box::default(),
            has_any: false,
            epoch: Arc::default(),
            strangers: strangers.clone(),
        };
        nothing.succeeded_by(topology, |_| false)
    }

    /// Returns the board of the topology that succeeds this one. Servers that are kept share their
    /// circuits with this board.
    pub(crate) fn succeeded_by(
        &self,
        topology: &Topology,
        is_kept: impl Fn(BackendId) -> bool,
    ) -> CircuitBoard {
        let cell = |id: BackendId| match is_kept(id) {
            true => self.cells[id.index()].1.clone(),
            false => {
                let circuit = topology.backend(id).and_then(|backend| backend.pool.circuit());
                circuit.map(|circuit| Arc::new(Cell::new(circuit)))
            }
        };
        let cells: Box<[_]> = topology.all_ids().map(|id| (id, cell(id))).collect();
        let has_any = cells.iter().any(|(_, cell)| cell.is_some());
        let strangers = self.strangers.clone();
        CircuitBoard { cells, has_any, epoch: Arc::clone(&self.epoch), strangers }
    }

    /// Returns whether the server has a circuit.
    pub fn has(&self, backend: BackendId) -> bool {
        self.cell(backend).is_some()
    }

    /// Returns a number that grows whenever a circuit opens or is forgotten; it is always 0 if no
    /// pool has circuits. A worker compares it once a turn, because clients that wait for such a
    /// server need not wait any longer.
    #[inline]
    pub fn epoch(&self) -> u64 {
        // ORDER: pairs with the additions in open and restart
        if self.has_any { self.epoch.load(Acquire) } else { 0 }
    }

    /// Returns the state of a server's circuit; closed if it has none. An open circuit that is due
    /// for a probe counts as open until a request probes it.
    pub fn state(&self, backend: BackendId) -> CircuitState {
        self.cell(backend).map_or(CircuitState::Closed, |cell| cell.word().state)
    }

    /// Returns the latest failure of a server whose circuit is not closed.
    pub fn reason(&self, backend: BackendId) -> Option<FailureReason> {
        let word = self.cell(backend)?.word();
        word.reason.filter(|_| word.state != CircuitState::Closed)
    }

    /// Returns how many times a server's circuit has opened.
    pub fn opens(&self, backend: BackendId) -> u64 {
        self.cell(backend).map_or(0, |cell| cell.opens.load(Relaxed))
    }

    /// Returns whether the server's circuit is closed, so that it is asked as usual.
    #[inline]
    pub fn is_closed(&self, backend: BackendId) -> bool {
        self.cell(backend).is_none_or(|cell| cell.word.load(Relaxed) & Word::STATE == 0)
    }

    /// Returns whether a request would be let through. Asking changes nothing.
    #[inline]
    pub fn admits(&self, backend: BackendId, now: Time) -> bool {
        self.is_closed(backend)
            || self.cell(backend).is_none_or(|cell| cell.word().admits(now, cell.circuit.probes))
    }

    /// Decides whether a request is let through. Callers look at [`CircuitBoard::is_closed`] first.
    /// A request that is let through while the circuit is not closed is a probe, and must be sent.
    #[cold]
    pub fn admit(&self, backend: BackendId, now: Time) -> (bool, Option<CircuitChange>) {
        let Some(cell) = self.cell(backend) else { return (true, None) };
        loop {
            let word = cell.word();
            if !word.admits(now, cell.circuit.probes) {
                return (false, None);
            }
            let after = match word.state {
                CircuitState::Closed => return (true, None),
                CircuitState::HalfOpen if !word.is_due(now) => {
                    Word { passed: word.passed + 1, ..word }
                }
                // This is the first probe, or the earlier ones are forgotten.
                CircuitState::HalfOpen | CircuitState::Open => Word {
                    state: CircuitState::HalfOpen,
                    passed: 1,
                    answered: 0,
                    due_ms: Word::due_after(now, cell.circuit.open_for),
                    ..word
                },
            };
            if !cell.swap(word, after) {
                continue;
            }
            if word.state == CircuitState::HalfOpen {
                return (true, None);
            }
            cell.tried.store(now.0, Relaxed);
            return (true, Some(Self::change(backend, cell, word, after, (0, 0))));
        }
    }

    /// Notes that `count` requests were answered in time.
    #[inline]
    pub fn note_answers(&self, backend: BackendId, count: u32, now: Time) -> Option<CircuitChange> {
        let cell = self.cell(backend)?;
        if cell.word.load(Relaxed) & Word::STATE != 0 {
            return self.note_probes(backend, cell, count, now);
        }
        if count > 0 {
            cell.count(now, count, 0);
        }
        None
    }

    #[cold]
    fn note_probes(
        &self,
        backend: BackendId,
        cell: &Cell,
        count: u32,
        now: Time,
    ) -> Option<CircuitChange> {
        loop {
            let word = cell.word();
            // An open circuit still gets replies to requests that were sent before.
            if word.state != CircuitState::HalfOpen {
                return None;
            }
            let heard = u32::from(word.answered).saturating_add(count);
            let answered = heard.min(u32::from(word.passed)) as u8;
            let after = match answered >= cell.circuit.probes {
                false => Word { answered, ..word },
                true => Word {
                    state: CircuitState::Closed,
                    row: word.row,
                    due_ms: Word::due_after(now, Duration::ZERO),
                    ..Word::default()
                },
            };
            if !cell.swap(word, after) {
                continue;
            }
            if after.state == CircuitState::HalfOpen {
                return None;
            }
            cell.forget();
            return Some(Self::change(backend, cell, word, after, (0, 0)));
        }
    }

    /// Notes that `count` requests have failed by `now`. The latest of them began at `began`.
    #[cold]
    pub fn note_failures(
        &self,
        backend: BackendId,
        count: u32,
        reason: FailureReason,
        FailureTimes { began, now }: FailureTimes,
    ) -> Option<CircuitChange> {
        let cell = self.cell(backend)?;
        let word = cell.word();
        match word.state {
            _ if count == 0 => None,
            CircuitState::Open => None,
            CircuitState::HalfOpen if began.0 < cell.tried.load(Relaxed) => None,
            CircuitState::HalfOpen => {
                self.open(backend, cell, Opening { word, reason, all: 0, failed: 0 }, now)
            }
            CircuitState::Closed => {
                cell.count(now, 0, count);
                if !cell.outlasts_a_stall(began) {
                    return None;
                }
                let (all, failed) = cell.counts(now);
                let share = u64::from(failed) * 100;
                let is_reached = all >= cell.circuit.requests_min
                    && share >= u64::from(cell.circuit.failures_percent) * u64::from(all);
                if is_reached {
                    self.open(backend, cell, Opening { word, reason, all, failed }, now)
                } else {
                    None
                }
            }
        }
    }

    fn open(
        &self,
        backend: BackendId,
        cell: &Cell,
        Opening { word, reason, all, failed }: Opening,
        now: Time,
    ) -> Option<CircuitChange> {
        // A circuit that was closed for long starts anew.
        let open_for_max = cell.circuit.open_for_max.as_millis() as u64;
        let is_anew = word.state == CircuitState::Closed
            && now.as_millis() > word.due_ms.saturating_add(open_for_max);
        let row = if is_anew { 1 } else { (word.row + 1).min(Word::ROW_MAX) };
        let after = Word {
            state: CircuitState::Open,
            reason: Some(reason),
            row,
            passed: 0,
            answered: 0,
            due_ms: Word::due_after(now, cell.open_for(row)),
        };
        if !cell.swap(word, after) {
            return None;
        }
        cell.forget();
        cell.opens.fetch_add(1, Relaxed);
        // ORDER: pairs with epoch
        self.epoch.fetch_add(1, Release);
        Some(Self::change(backend, cell, word, after, (all, failed)))
    }

    /// Forgets what is known of a server, because another server has taken its index or an operator
    /// says so. Returns whether its circuit was not closed.
    pub fn restart(&self, backend: BackendId) -> bool {
        let Some(cell) = self.cell(backend) else { return false };
        let before = cell.word.swap(0, Relaxed);
        cell.forget();
        // ORDER: pairs with epoch
        self.epoch.fetch_add(1, Release);
        before & Word::STATE != 0
    }

    #[inline]
    fn cell(&self, backend: BackendId) -> Option<&Cell> {
        self.strangers.find(&self.cells, backend)?.as_deref()
    }

    fn change(
        backend: BackendId,
        cell: &Cell,
        before: Word,
        after: Word,
        counts: (u32, u32),
    ) -> CircuitChange {
        CircuitChange {
            backend,
            from: before.state,
            to: after.state,
            reason: after.reason.or(before.reason),
            counts,
            open_for: cell.open_for(after.row),
        }
    }
}

#[cfg(test)]
mod tests;
