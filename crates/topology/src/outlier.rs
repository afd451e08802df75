//! How fast the servers are that reads may go to, and which of them are not chosen because they are
//! much worse than the others.
//!
//! The estimate of a server is a peak-EWMA. It rises at once to the latency of a slow reply, and
//! falls towards the latency of later replies as time passes. One stall therefore shows at once and
//! is forgotten in about a second.
//!
//! Outliers are judged by periods of a second, each on its own. A period is bad for a server if its
//! replies took many times as long as the median of the others, or if too many of its requests
//! failed. After several bad periods in a row the server is left out. It comes back when its time
//! has passed. The next time is twice as long.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use keyway_base::Time;

use crate::strangers::Strangers;
use crate::{BackendId, FailureTimes, ReadFrom, Topology};

/// Time in which a steady stream of replies makes an estimate fall two thirds of the way to their
/// latency. Two replies this far apart make it fall half the way. If it were shorter, a slow server
/// would be forgotten before its next slow reply. If it were longer, reads would avoid a server
/// that is fast again.
const FALL: Duration = Duration::from_millis(250);

/// Longest latency that an estimate can hold, in microseconds: 16 s.
const ESTIMATE_MAX: u64 = (1 << 24) - 1;

/// Units of an estimate in one microsecond.
const PARTS: u64 = 256;

/// A server that was not read for this long gets one read, which shows how fast it is now.
const STALE: Duration = Duration::from_millis(100);

/// Length of a period.
pub const OUTLIER_PERIOD: Duration = Duration::from_secs(1);

/// Fewest requests in a period from which the server is judged.
const REQUESTS_MIN: u32 = 5;

/// A server is not slow if its replies take at most this much longer than the others'. Other
/// machines and busy workers easily cause an extra millisecond.
const SLOWER_MIN_MICROS: u32 = 1000;

/// The settings that decide when a server is left out of those that reads may go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outliers {
    /// Factor by which its replies take longer than the median of the others, 2 or more.
    pub times_slower: u32,
    /// Percentage of its requests that fail, 1 to 100.
    pub failures_percent: u8,
    /// Number of bad periods in a row after which it is left out, 1 to 60.
    pub after_periods: u8,
    /// Time for which it is left out the first time.
    pub out_for: Duration,
    /// Upper bound of that time, which doubles each time.
    pub out_for_max: Duration,
    /// Percentage of the servers with the same data that may be left out at once, 1 to 99.
    pub out_percent: u8,
}

/// The figures of one server in one period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadPeriod {
    /// Number of latency samples.
    pub samples: u32,
    /// Mean latency of the samples, in microseconds.
    pub mean_micros: u32,
    /// Requests that were answered.
    pub answered: u32,
    /// Requests that failed.
    pub failed: u32,
}

/// The reason why a server is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutlierReason {
    /// Its replies take many times as long as the others'.
    Slow = 0,
    /// Too many requests fail.
    Failures = 1,
}

impl OutlierReason {
    /// Returns the name in logs and lists.
    pub const fn label(self) -> &'static str {
        match self {
            OutlierReason::Slow => "slow",
            OutlierReason::Failures => "failures",
        }
    }
}

/// A server that was left out, or is back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutlierChange {
    /// The server.
    pub backend: BackendId,
    /// Time for which it is left out, and the reason; `None` if it is back.
    pub out: Option<(Duration, OutlierReason)>,
    /// Its figures in the latest period.
    pub period: ReadPeriod,
    /// The median latency of the others, in microseconds.
    pub others_micros: Option<u32>,
}

/// The verdict on a server in a period, compared with the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    Bad(OutlierReason),
    /// It had too few requests to be judged.
    Unknown,
}

/// Returns the median latency of all servers but the one at `at`; `None` if no other was read.
fn median_of_others(periods: &[ReadPeriod], at: usize) -> Option<u32> {
    let others = periods.iter().enumerate().filter(|&(index, _)| index != at);
    let mut means: Vec<u32> = others
        .filter(|(_, period)| period.samples >= REQUESTS_MIN)
        .map(|(_, period)| period.mean_micros)
        .collect();
    means.sort_unstable();
    // Of two in the middle the slower one is taken: in doubt no server is left out.
    means.get(means.len() / 2).copied()
}

fn judge(outliers: &Outliers, periods: &[ReadPeriod], at: usize) -> Verdict {
    let own = periods[at];
    let all = own.answered.saturating_add(own.failed);
    if all < REQUESTS_MIN {
        return Verdict::Unknown;
    }
    let percent = u64::from(outliers.failures_percent);
    if u64::from(own.failed) * 100 >= percent * u64::from(all) {
        return Verdict::Bad(OutlierReason::Failures);
    }
    let Some(others) = median_of_others(periods, at) else { return Verdict::Good };
    let is_slow = own.samples >= REQUESTS_MIN
        && own.mean_micros >= others.saturating_mul(outliers.times_slower)
        && own.mean_micros - others >= SLOWER_MIN_MICROS;
    if is_slow { Verdict::Bad(OutlierReason::Slow) } else { Verdict::Good }
}

/// A server's verdict in 64 bits: 1 for whether it is out, 1 for the reason, 6 for bad periods in a
/// row, 5 for times it was left out in a row, 40 for a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Word {
    out: Option<OutlierReason>,
    bad: u8,
    row: u8,
    /// A time in milliseconds: until when it is out, or since when it is back.
    due_ms: u64,
}

impl Word {
    const ROW_MAX: u8 = 31;
    const BAD_MAX: u8 = 63;

    fn to_bits(self) -> u64 {
        u64::from(self.out.is_some())
            | self.out.map_or(0, |reason| reason as u64) << 1
            | u64::from(self.bad) << 2
            | u64::from(self.row) << 8
            | self.due_ms << 13
    }

    fn from_bits(bits: u64) -> Word {
        let reason = match bits >> 1 & 1 {
            0 => OutlierReason::Slow,
            _ => OutlierReason::Failures,
        };
        Word {
            out: (bits & 1 == 1).then_some(reason),
            bad: (bits >> 2 & 0b11_1111) as u8,
            row: (bits >> 8 & 0b1_1111) as u8,
            due_ms: bits >> 13,
        }
    }
}

/// One server's figures, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Cell {
    /// The estimate: 32 bits for its units, 32 bits for the time at which it was made, in
    /// microseconds.
    estimate: AtomicU64,
    /// Time at which a worker last sent a read to see how fast it is, in milliseconds.
    tried_ms: AtomicU64,
    /// Sum of the samples of this period, in microseconds. Their number is in `samples`.
    sum_micros: AtomicU64,
    samples: AtomicU64,
    answered: AtomicU64,
    failed: AtomicU64,
    word: AtomicU64,
    outs: AtomicU64,
    /// True if each period is judged.
    is_judged: bool,
}

impl Cell {
    fn word(&self) -> Word {
        Word::from_bits(self.word.load(Relaxed))
    }

    fn take_period(&self) -> ReadPeriod {
        let take = |count: &AtomicU64| count.swap(0, Relaxed);
        let (sum, samples) = (take(&self.sum_micros), take(&self.samples));
        let short = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        ReadPeriod {
            samples: short(samples),
            mean_micros: short(sum / samples.max(1)),
            answered: short(take(&self.answered)),
            failed: short(take(&self.failed)),
        }
    }

    /// Takes one sample into the estimate. If two workers take samples at once, one may be lost.
    fn observe(&self, micros: u64, now: Time) {
        let bits = self.estimate.load(Relaxed);
        let (old, at) = (bits >> 32, bits as u32);
        let sample = micros.min(ESTIMATE_MAX) * PARTS;
        let now_micros = (now.0 / 1000) as u32;
        let passed = u64::from(now_micros.wrapping_sub(at));
        let fall = FALL.as_micros() as u64;
        let new = match old == 0 || sample >= old {
            true => sample,
            false => old - (old - sample) * passed / (passed + fall),
        };
        // A change too small to show is kept for the next sample.
        if new != old || sample == old {
            self.estimate.store(new.max(1) << 32 | u64::from(now_micros), Relaxed);
        }
    }
}

/// The figures of one pool's servers.
#[derive(Debug)]
struct PoolFigures {
    /// The settings for outliers, if they are left out.
    outliers: Option<Outliers>,
    /// The end of the current period, in milliseconds.
    next_ms: AtomicU64,
}

/// Figures of reads from every server of one topology, shared by the workers.
#[derive(Debug)]
pub struct ReadBoard {
    cells: Box<[(BackendId, Option<Arc<Cell>>)]>,
    pools: Box<[PoolFigures]>,
    strangers: Strangers,
}

impl ReadBoard {
    /// Creates an empty board. It has figures only for pools that read from the nearest server or
    /// leave out outliers.
    pub fn new(topology: &Topology) -> ReadBoard {
        ReadBoard::counting(topology, &Strangers::default())
    }

    pub(crate) fn counting(topology: &Topology, strangers: &Strangers) -> ReadBoard {
        let strangers = strangers.clone();
        let nothing = ReadBoard { cells: Box::default(), pools: Box::default(), strangers };
        nothing.succeeded_by(topology, |_| false)
    }

    /// Returns the board of the topology that succeeds this one. Servers that are kept share their
    /// figures with this board.
    pub(crate) fn succeeded_by(
        &self,
        topology: &Topology,
        is_kept: impl Fn(BackendId) -> bool,
    ) -> ReadBoard {
        let new = |pool: &crate::Pool| {
            let reads = pool.reads()?;
            let is_judged = reads.outliers.is_some();
            let is_nearest = reads.from == ReadFrom::Nearest || reads.is_nearest_for_some;
            (is_judged || is_nearest).then(|| Arc::new(Cell { is_judged, ..Cell::default() }))
        };
        let cell = |id: BackendId| match is_kept(id) {
            true => self.cells[id.index()].1.clone(),
            false => topology.backend(id).and_then(|backend| new(backend.pool)),
        };
        let figures = |pool: &crate::Pool| PoolFigures {
            outliers: pool.reads().and_then(|reads| reads.outliers),
            next_ms: AtomicU64::new(0),
        };
        ReadBoard {
            cells: topology.all_ids().map(|id| (id, cell(id))).collect(),
            pools: topology.pools().iter().map(figures).collect(),
            strangers: self.strangers.clone(),
        }
    }

    /// Returns whether figures of the server are kept.
    pub fn has(&self, backend: BackendId) -> bool {
        self.cell(backend).is_some()
    }

    /// Returns the estimated latency of a reply, in microseconds; 0 if nothing is known.
    #[inline]
    pub fn estimate_micros(&self, backend: BackendId) -> u32 {
        let parts = self.cell(backend).map_or(0, |cell| cell.estimate.load(Relaxed) >> 32);
        (parts / PARTS) as u32
    }

    /// Returns the cost of one more request to the server, of which `in_flight` are on the way. The
    /// lowest is best. Sixteen requests are answered about as fast as one. Beyond that they wait
    /// for one another.
    #[inline]
    pub fn cost(&self, backend: BackendId, in_flight: usize) -> u64 {
        const TOGETHER: u64 = 16;
        let estimate = u64::from(self.estimate_micros(backend).max(1));
        estimate.saturating_mul(TOGETHER + in_flight as u64)
    }

    /// Notes a reply that came after `micros`.
    #[inline]
    pub fn note_latency(&self, backend: BackendId, micros: u64, now: Time) {
        let Some(cell) = self.cell(backend) else { return };
        cell.observe(micros, now);
        if cell.is_judged {
            cell.sum_micros.fetch_add(micros.min(ESTIMATE_MAX), Relaxed);
            cell.samples.fetch_add(1, Relaxed);
        }
    }

    /// Notes that `count` requests were answered in time.
    #[inline]
    pub fn note_answers(&self, backend: BackendId, count: u32) {
        if let Some(cell) = self.cell(backend).filter(|cell| cell.is_judged) {
            cell.answered.fetch_add(u64::from(count), Relaxed);
        }
    }

    /// Notes that `count` requests have failed by `now`, the latest of which began at `began`. The
    /// time that they took counts as a latency as well.
    #[cold]
    pub fn note_failures(&self, backend: BackendId, count: u32, times: FailureTimes) {
        let FailureTimes { began, now } = times;
        let Some(cell) = self.cell(backend).filter(|_| count > 0) else { return };
        cell.failed.fetch_add(u64::from(count), Relaxed);
        cell.observe(now.since(began).as_micros() as u64, now);
    }

    /// Returns whether the caller is to send the server one read, because no worker has read from
    /// it lately. Of several callers one gets `true`.
    pub fn claim_try(&self, backend: BackendId, now: Time) -> bool {
        let Some(cell) = self.cell(backend) else { return false };
        let (now_ms, stale) = (now.as_millis(), STALE.as_millis() as u64);
        let at_micros = cell.estimate.load(Relaxed) as u32;
        let since_ms = u64::from(((now.0 / 1000) as u32).wrapping_sub(at_micros)) / 1000;
        let tried = cell.tried_ms.load(Relaxed);
        since_ms >= stale
            && now_ms >= tried.saturating_add(stale)
            && cell.tried_ms.compare_exchange(tried, now_ms, Relaxed, Relaxed).is_ok()
    }

    /// Returns whether the server is left out.
    #[inline]
    pub fn is_out(&self, backend: BackendId, now: Time) -> bool {
        self.cell(backend).is_some_and(|cell| {
            let bits = cell.word.load(Relaxed);
            bits & 1 == 1 && Word::from_bits(bits).due_ms > now.as_millis()
        })
    }

    /// Returns why it is left out, if it is.
    pub fn reason(&self, backend: BackendId) -> Option<OutlierReason> {
        self.cell(backend)?.word().out
    }

    /// Returns how many times it was left out.
    pub fn outs(&self, backend: BackendId) -> u64 {
        self.cell(backend).map_or(0, |cell| cell.outs.load(Relaxed))
    }

    /// Returns whether the caller is to judge the latest period of a pool. Exactly one worker gets
    /// `true` for each period, and calls [`ReadBoard::judge`] for its servers.
    pub fn claim_period(&self, pool_index: usize, now: Time) -> bool {
        let pool = &self.pools[pool_index];
        let (now_ms, period) = (now.as_millis(), OUTLIER_PERIOD.as_millis() as u64);
        let next = pool.next_ms.load(Relaxed);
        pool.outliers.is_some()
            && now_ms >= next
            && pool.next_ms.compare_exchange(next, now_ms + period, Relaxed, Relaxed).is_ok()
    }

    /// Judges the latest period of servers that have the same data, and leaves out the outliers.
    /// Servers for which `is_fit` does not hold, such as servers that are down, do not count as
    /// remaining.
    pub fn judge(
        &self,
        pool_index: usize,
        servers: &[BackendId],
        is_fit: impl Fn(BackendId) -> bool,
        now: Time,
    ) -> Vec<OutlierChange> {
        let Some(outliers) = self.pools[pool_index].outliers else { return Vec::new() };
        let of = |&backend: &BackendId| Some((backend, self.cell(backend)?));
        let cells: Vec<(BackendId, &Cell)> = servers.iter().filter_map(of).collect();
        let periods: Vec<ReadPeriod> = cells.iter().map(|(_, cell)| cell.take_period()).collect();
        let mut changes = Vec::new();
        for (at, &(backend, cell)) in cells.iter().enumerate() {
            let word = cell.word();
            let is_over = word.out.is_some() && word.due_ms <= now.as_millis();
            let (period, others_micros) = (periods[at], median_of_others(&periods, at));
            if is_over {
                let after = Word { out: None, bad: 0, due_ms: now.as_millis(), ..word };
                cell.word.store(after.to_bits(), Relaxed);
                changes.push(OutlierChange { backend, out: None, period, others_micros });
            } else if word.out.is_none() {
                let verdict = judge(&outliers, &periods, at);
                let may_leave = || {
                    let out = |backend| self.is_out(backend, now);
                    let left = cells
                        .iter()
                        .filter(|&&(other, _)| other != backend && is_fit(other) && !out(other));
                    let count = cells.iter().filter(|&&(other, _)| out(other)).count() + 1;
                    let most = cells.len() * usize::from(outliers.out_percent) / 100;
                    count <= most && left.count() > 0
                };
                let (after, out) = after_period(&outliers, word, verdict, may_leave, now);
                cell.word.store(after.to_bits(), Relaxed);
                if out.is_some() {
                    cell.outs.fetch_add(1, Relaxed);
                    changes.push(OutlierChange { backend, out, period, others_micros });
                }
            }
        }
        changes
    }

    /// Forgets what is known of a server, because another server has taken its index.
    pub fn restart(&self, backend: BackendId) {
        let Some(cell) = self.cell(backend) else { return };
        let _ = cell.take_period();
        cell.estimate.store(0, Relaxed);
        cell.word.store(0, Relaxed);
    }

    #[inline]
    fn cell(&self, backend: BackendId) -> Option<&Cell> {
        self.strangers.find(&self.cells, backend)?.as_deref()
    }
}

/// Returns the verdict on a server in use after a period.
fn after_period(
    outliers: &Outliers,
    word: Word,
    verdict: Verdict,
    may_leave: impl Fn() -> bool,
    now: Time,
) -> (Word, Option<(Duration, OutlierReason)>) {
    let reason = match verdict {
        Verdict::Unknown => return (word, None),
        Verdict::Good => return (Word { bad: 0, ..word }, None),
        Verdict::Bad(reason) => reason,
    };
    let bad = (word.bad + 1).min(Word::BAD_MAX);
    if bad < outliers.after_periods || !may_leave() {
        return (Word { bad, ..word }, None);
    }
    // A server that was in use for long starts anew.
    let out_for_max = outliers.out_for_max;
    let is_anew = now.as_millis() > word.due_ms.saturating_add(out_for_max.as_millis() as u64);
    let row = if is_anew { 1 } else { (word.row + 1).min(Word::ROW_MAX) };
    let doubled = 2u32.saturating_pow(u32::from(row - 1));
    let out_for = outliers.out_for.saturating_mul(doubled).min(out_for_max);
    let due_ms = (now + out_for).as_millis();
    (Word { out: Some(reason), bad: 0, row, due_ms }, Some((out_for, reason)))
}

#[cfg(test)]
mod tests;
