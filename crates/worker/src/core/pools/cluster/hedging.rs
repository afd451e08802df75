//! The settings and the state of hedging: reads that are sent to a second server.

use keyway_base::{Slab, Time};
use keyway_metrics::Recent;
use keyway_proxy::{Budget, Hedge};
use keyway_topology::{HedgeAfter, HedgePolicy};
use std::time::Duration;

/// Number of reads that may be sent twice in the window, however few reads there are.
pub(super) const BUDGET_LEAST: u64 = 1;

/// The time whose reads count for the share that may be sent twice. With a longer time, a server
/// that becomes slow would bring more reads at once to the others.
pub(super) const BUDGET_WINDOW: Duration = Duration::from_secs(1);

/// The hedging of a pool's reads by this worker.
pub(in crate::core) struct Hedging {
    pub(super) after: HedgeAfter,
    /// Time after which a read is sent to a second server now.
    pub(super) wait: Duration,
    /// Number of reads so far.
    pub(super) reads: u64,
    pub(super) budget: Budget,
    pub(super) recent: Recent,
    pub(super) measured: Time,
}

impl Hedging {
    pub(super) fn new(policy: &HedgePolicy) -> Option<Box<Hedging>> {
        let wait = match policy.after {
            HedgeAfter::Fixed(wait) | HedgeAfter::P99 { max: wait, .. } => wait,
        };
        Some(Box::new(Hedging {
            after: policy.after,
            wait,
            reads: 0,
            budget: Budget::new(policy.budget_percent, BUDGET_WINDOW, BUDGET_LEAST),
            recent: Recent::default(),
            measured: Time(0),
        }))
    }
}

/// The state of this worker for all reads that may be sent twice.
#[derive(Default)]
pub(super) struct HedgesState {
    pub(super) hedges: Slab<Hedge>,
    /// The time at which the next read may be due.
    pub(super) next: Option<Time>,
    /// Buffer for a request.
    pub(super) request: Vec<u8>,
}

impl HedgesState {
    #[inline]
    pub(super) fn note_due(&mut self, at: Time) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// Frees a buffer that holds more than `kept_max` bytes.
    pub(super) fn trim(&mut self, kept_max: usize) {
        if self.request.capacity() > kept_max {
            self.request = Vec::new();
        }
    }
}
