//! When reads are sent to a second server, and which of them were.

use keyway_base::{Slab, Time};
use keyway_metrics::Recent;
use keyway_proxy::{Budget, Hedge};
use keyway_topology::{HedgeAfter, HedgePolicy};
use std::time::Duration;

/// So many in that time may be sent twice however few reads there are.
pub(super) const BUDGET_LEAST: u64 = 1;

/// The time of which the reads count that a share may be of. Longer would let a server
/// that begins to be slow bring more at once to the others.
pub(super) const BUDGET_WINDOW: Duration = Duration::from_secs(1);

/// When this worker sends reads of a pool to a second server.
pub(in crate::core) struct Hedging {
    pub(in crate::core::pools::cluster) after: HedgeAfter,
    /// How long that is now.
    pub(in crate::core::pools::cluster) wait: Duration,
    /// Reads so far.
    pub(in crate::core::pools::cluster) reads: u64,
    pub(in crate::core::pools::cluster) budget: Budget,
    pub(in crate::core::pools::cluster) recent: Recent,
    pub(in crate::core::pools::cluster) measured: Time,
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

/// What this worker knows of all such reads.
#[derive(Default)]
pub(super) struct HedgesState {
    pub(in crate::core::pools::cluster) hedges: Slab<Hedge>,
    /// When the next read may be due.
    pub(in crate::core::pools::cluster) next: Option<Time>,
    /// Room for a request.
    pub(in crate::core::pools::cluster) request: Vec<u8>,
}

impl HedgesState {
    #[inline]
    pub(in crate::core::pools::cluster) fn note_due(&mut self, at: Time) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}
