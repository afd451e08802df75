use crate::run::{Report, Violation, run_seed};
use crate::scenario::{Driver, Options};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// The result of many runs.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Number of seeds run.
    pub seeds: u64,
    /// Sums over all runs without a violation.
    pub total: Report,
    /// The violations by seed. Only the first few are kept.
    pub violations: Vec<Violation>,
    /// Number of violations.
    pub violation_count: usize,
}

/// Number of violations that are kept for the report.
pub(crate) const KEPT_MAX: usize = 12;

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { replies, excused, faults, turns, virtual_time, .. } = self.total;
        let Report { redirected, refused, hedged, retried, .. } = self.total;
        let Report { holds, bounded, filled, refused_for_room, gone, .. } = self.total;
        let Report { commits, deliveries, entries, messages, invalidations, reloads, .. } =
            self.total;
        write!(
            f,
            "{} seeds, {} violations: {replies} replies checked, {excused} of them errors that \
             one of {faults} faults explains, {commits} transactions, {deliveries} elements and \
             {entries} entries of streams delivered, {messages} messages told, {invalidations} invalidations, \
             {redirected} redirects, {refused} refusals, {hedged} hedges, {retried} retries, \
             {reloads} reloads, {holds} ejections by hand, {bounded} stores with a bound, of which {filled} were full, \
             {refused_for_room} refusals for want of room, {gone} keys gone, {turns} turns, {:.0} s of virtual time",
            self.seeds,
            self.violation_count,
            virtual_time.as_secs_f64()
        )
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.story {
            writeln!(f, "  {line}")?;
        }
        write!(
            f,
            "seed {}: {}\n  replay: cargo run --release -p keyway-sim -- --story --seeds 1{} --io {} --from {}",
            self.seed, self.text, self.kind, self.io, self.seed
        )
    }
}

/// Runs `seeds` seeds starting at `from`, on every core.
pub fn run_many(from: u64, seeds: u64) -> Summary {
    run_many_of(from, seeds, &Options::default())
}

/// Like [`run_many`], with options.
pub fn run_many_of(from: u64, seeds: u64, options: &Options) -> Summary {
    let next = AtomicU64::new(from);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let parts: Vec<Summary> = std::thread::scope(|scope| {
        let run = || {
            let mut part = Summary::default();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= from + seeds {
                    return part;
                }
                part.add(run_caught(seed, options));
            }
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        handles.into_iter().map(|handle| handle.join().expect("runs are caught")).collect()
    });
    let mut summary = Summary::default();
    for part in parts {
        summary.join(part);
    }
    summary.violations.sort_by_key(|violation| violation.seed);
    summary.violations.truncate(KEPT_MAX);
    summary
}

/// Runs a seed. A panic of the code under test is a violation as well.
fn run_caught(seed: u64, options: &Options) -> Result<Report, Violation> {
    let outcome = catch_unwind(AssertUnwindSafe(|| run_seed(seed, options)));
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let text = format!("panicked: {}", text.unwrap_or_default());
        let io = Driver::of(seed, options);
        Err(Violation { seed, io, kind: options.kind_words(), text, story: Vec::new() })
    })
}

impl Summary {
    fn add(&mut self, outcome: Result<Report, Violation>) {
        self.seeds += 1;
        match outcome {
            Ok(report) => self.total.add(&report),
            Err(violation) => {
                self.violation_count += 1;
                if self.violations.len() < KEPT_MAX {
                    self.violations.push(violation);
                }
            }
        }
    }

    fn join(&mut self, other: Summary) {
        self.seeds += other.seeds;
        self.violation_count += other.violation_count;
        self.total.add(&other.total);
        self.violations.extend(other.violations);
    }
}

impl Report {
    fn add(&mut self, other: &Report) {
        self.replies += other.replies;
        self.excused += other.excused;
        self.faults += other.faults;
        self.turns += other.turns;
        self.virtual_time = self.virtual_time.saturating_add(other.virtual_time);
        self.commits += other.commits;
        self.deliveries += other.deliveries;
        self.entries += other.entries;
        self.messages += other.messages;
        self.invalidations += other.invalidations;
        self.moves += other.moves;
        self.mirrored += other.mirrored;
        self.led_on += other.led_on;
        self.redirected += other.redirected;
        self.hedged += other.hedged;
        self.retried += other.retried;
        self.refused += other.refused;
        self.reloads += other.reloads;
        self.holds += other.holds;
        self.bounded += other.bounded;
        self.filled += other.filled;
        self.refused_for_room += other.refused_for_room;
        self.gone += other.gone;
        self.ring.add(&other.ring);
        self.digest ^= other.digest;
    }
}
