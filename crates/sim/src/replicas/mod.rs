//! Stores that replicate to each other, on virtual time.
//!
//! ```text
//!  seed ─► Director: cuts, silence, roles that change, restarts; then peace, and the laws
//!             │
//!  Clients ─► Store + Standby ◄─► Feed, Follower ◄─► Links ◄─► Follower, Feed ◄─► Store + Standby
//!             └── all threads on a Stage: one at a time, in an order that the seed decides ──┘
//! ```
//! The stores, followers and feeds are the ones that ship, with their threads and their sockets. Time,
//! chance, the order of threads and the network are the simulator's ([`stage::Virtual`]).

mod clients;
mod digest;
mod director;
mod history;
mod laws;
mod links;
mod node;
mod stage;

use crate::random::Random;
use crate::run::Violation;
use crate::scenario::Driver;
use director::Director;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The result of a run of replicas without a violation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaReport {
    /// Writes of clients.
    pub writes: u64,
    /// Writes that a replica or a store that is loaded has refused.
    pub refused: u64,
    /// Reads that were checked, beside those at rest.
    pub reads: u64,
    /// Waits for a replica that ended with one.
    pub waits: u64,
    /// Snapshots that replicas took as a whole.
    pub full_resyncs: u64,
    /// Links that went on without one.
    pub partial_resyncs: u64,
    /// Links that ended.
    pub failures: u64,
    /// Connections that the network has cut.
    pub cuts: u64,
    /// Stores that were handed over.
    pub hand_overs: u64,
    /// Changes of role.
    pub turns: u64,
    /// Bytes that the links have carried.
    pub bytes: u64,
    /// Pairs of stores whose data was compared at rest.
    pub compared: u64,
    /// How often a thread has gone on.
    pub steps: u64,
    /// The virtual time that passed.
    pub virtual_time: Duration,
}

impl ReplicaReport {
    fn add(&mut self, other: &Self) {
        self.writes += other.writes;
        self.refused += other.refused;
        self.reads += other.reads;
        self.waits += other.waits;
        self.full_resyncs += other.full_resyncs;
        self.partial_resyncs += other.partial_resyncs;
        self.failures += other.failures;
        self.cuts += other.cuts;
        self.hand_overs += other.hand_overs;
        self.turns += other.turns;
        self.bytes += other.bytes;
        self.compared += other.compared;
        self.steps += other.steps;
        self.virtual_time += other.virtual_time;
    }
}

impl fmt::Display for ReplicaReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { writes, refused, reads, waits, full_resyncs, partial_resyncs, .. } = self;
        let Self { failures, cuts, hand_overs, turns, bytes, compared, steps, .. } = self;
        write!(
            f,
            "{writes} writes, {refused} refused, {reads} reads checked, {waits} waits for a replica, \
             {full_resyncs} full and {partial_resyncs} partial resyncs, {failures} links ended, \
             {cuts} of them cut, {turns} changes of role, {hand_overs} hand-overs, {bytes} bytes \
             carried, {compared} stores compared, {steps} steps, {:.1} s of virtual time",
            self.virtual_time.as_secs_f64()
        )
    }
}

/// Runs a seed of replicas. The same seed gives the same report. With `has_story` a violation tells
/// what happened before it.
///
/// # Errors
/// The law that the seed breaks. The threads of such a run stand still for good.
pub fn run_replicas(seed: u64, has_story: bool) -> Result<ReplicaReport, Violation> {
    let director = Director::new(Random::new(seed ^ 0x7265_706c_6963_6173), has_story);
    director.run().map_err(|(text, story)| Violation {
        seed,
        io: Driver::Epoll,
        kind: " --replicas".to_owned(),
        text,
        story,
    })
}

/// Runs `seeds` seeds of replicas from `from` on, on every core. Returns the sums, and the first
/// violations.
pub fn run_many_replicas(from: u64, seeds: u64) -> (ReplicaReport, Vec<Violation>) {
    let next = AtomicU64::new(from);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let run = || {
        let (mut total, mut violations) = (ReplicaReport::default(), Vec::new());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from + seeds || violations.len() >= crate::many::KEPT_MAX {
                return (total, violations);
            }
            match run_replicas(seed, false) {
                Ok(report) => total.add(&report),
                Err(violation) => violations.push(violation),
            }
        }
    };
    let parts: Vec<_> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        handles.into_iter().map(|handle| handle.join().expect("runs are caught")).collect()
    });
    let (mut total, mut violations) = (ReplicaReport::default(), Vec::new());
    for (part, found) in parts {
        total.add(&part);
        violations.extend(found);
    }
    violations.sort_by_key(|violation| violation.seed);
    (total, violations)
}
