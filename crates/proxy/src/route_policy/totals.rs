use keyway_metrics::RouteFigures;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The totals of a pool that leads to others, over all workers.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "each is explained where it is told, in RouteFigures")]
pub struct RouteTotals {
    pub failovers: AtomicU64,
    pub child_failures: AtomicU64,
    pub lookups: AtomicU64,
    pub fills: AtomicU64,
    pub failed_fills: AtomicU64,
    pub shadowed: AtomicU64,
    pub shadow_drops: AtomicU64,
    pub rate_limited: AtomicU64,
}

impl RouteTotals {
    /// Counts one more.
    pub fn note(count: &AtomicU64) {
        count.fetch_add(1, Relaxed);
    }

    /// Returns the counts so far.
    pub fn figures(&self) -> RouteFigures {
        RouteFigures {
            failovers: self.failovers.load(Relaxed),
            child_failures: self.child_failures.load(Relaxed),
            lookups: self.lookups.load(Relaxed),
            fills: self.fills.load(Relaxed),
            failed_fills: self.failed_fills.load(Relaxed),
            shadowed: self.shadowed.load(Relaxed),
            shadow_drops: self.shadow_drops.load(Relaxed),
            rate_limited: self.rate_limited.load(Relaxed),
        }
    }
}
