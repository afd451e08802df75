//! Sums over all workers, for INFO and the dashboard.

use crate::cells::HealthLevel;
use crate::histogram::Snapshot;

/// The totals of all workers for one pool, for INFO and the dashboard.
#[derive(Clone, Debug)]
pub struct PoolTotals {
    /// Requests accepted for serving.
    pub requests: u64,
    /// Requests answered with an error of Keyway's own.
    pub errors: u64,
    /// Requests refused before routing.
    pub refused: u64,
    /// Clients connected now.
    pub clients_connected: u64,
    /// Clients accepted since the start.
    pub clients_accepted: u64,
    /// Bytes read from clients.
    pub received_bytes: u64,
    /// Bytes written to clients.
    pub sent_bytes: u64,
    /// Requests of memcached clients.
    pub memcached: MemcachedTotals,
    /// Reply latency of all command classes, in seconds.
    pub reply_latency: Snapshot,
}

/// The totals of all workers over several pools.
#[derive(Clone, Debug)]
pub struct PoolsTotals {
    /// Requests accepted for serving.
    pub requests: u64,
    /// Requests answered with an error of Keyway's own.
    pub errors: u64,
    /// Reply latency of all command classes, in seconds.
    pub reply_latency: Snapshot,
}

/// Requests of memcached clients on a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemcachedTotals {
    /// Requests to store a value.
    pub sets: u64,
    /// Requests of these that stored it.
    pub stored: u64,
    /// Requests to change an expiry, with or without reading the value.
    pub touches: u64,
    /// Requests to empty the store.
    pub flushes: u64,
}

/// The totals of one command of a pool, over all workers.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommandTotals {
    /// Requests accepted for serving.
    pub calls: u64,
    /// Requests answered with an error, of Keyway, the store or a backend.
    pub errors: u64,
    /// Requests whose latency was measured.
    pub replies: u64,
    /// Sum of their latencies, in seconds.
    pub reply_seconds: f64,
    /// Time of turns, divided evenly among the requests that were answered in each, in seconds.
    pub worked_seconds: f64,
}

/// Requests of a command class by latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyShares {
    /// Requests whose latency was measured.
    pub requests: u64,
    /// Requests of these above each of [`LatencyShares::OVER_MILLIS`].
    pub over: [u64; LatencyShares::COUNT],
}

impl LatencyShares {
    const COUNT: usize = 3;
    /// The bounds, in milliseconds. They are powers of two, so that they are bounds of the
    /// histogram's buckets and the counts are exact.
    pub const OVER_MILLIS: [u32; Self::COUNT] = [1, 8, 64];

    pub(crate) fn of(latencies: &Snapshot) -> Self {
        let steps_log2 = |millis: u32| 10 + millis.ilog2();
        let over = Self::OVER_MILLIS.map(|millis| latencies.above(steps_log2(millis)));
        Self { requests: latencies.count(), over }
    }

    /// Returns the requests that were added since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let over = std::array::from_fn(|at| self.over[at].saturating_sub(earlier.over[at]));
        Self { requests: self.requests.saturating_sub(earlier.requests), over }
    }

    /// Returns the percentage of requests above each bound; 0 if there are no requests.
    pub fn percent(&self) -> [f64; Self::COUNT] {
        self.over.map(|over| over as f64 * 100.0 / self.requests.max(1) as f64)
    }
}

/// The totals of all workers for one backend of a pool.
#[derive(Clone, Copy, Debug)]
pub struct BackendTotals {
    /// Requests and fragments queued for it.
    pub requests: u64,
    /// Requests and fragments that got no usable reply.
    pub errors: u64,
    /// Its replies that were errors.
    pub error_replies: u64,
    /// Requests and fragments waiting for their reply now.
    pub in_flight: u64,
    /// Links that take requests now.
    pub links_ready: u64,
    /// Times it was taken out of use.
    pub ejections: u64,
    /// Replies whose latency was measured.
    pub replies: u64,
    /// Sum of their latencies, in seconds.
    pub reply_seconds: f64,
    /// How usable it is found.
    pub health: HealthLevel,
    /// True if its circuit is not closed: it gets no requests, or only probes.
    pub has_open_circuit: bool,
    /// True if it is left out of the servers that reads may go to.
    pub is_outlier: bool,
    /// The state that its cluster, or the sentinels, report, if they report that it is down.
    pub told_down: Option<&'static str>,
}

impl BackendTotals {
    /// Returns the word for its state, as in INFO. If several states apply, it is the one that
    /// keeps most requests away.
    pub fn state(&self) -> &'static str {
        match self.health {
            HealthLevel::Ejected | HealthLevel::Quarantined => self.health.label(),
            _ if self.has_open_circuit => "circuit-open",
            usable => match self.told_down {
                Some(told) => told,
                None if self.is_outlier => "outlier",
                None => usable.label(),
            },
        }
    }
}
