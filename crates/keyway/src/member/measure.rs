//! The requests of this process during a rollout.

use keyway_fleet::Measured;
use keyway_metrics::{PoolsTotals, Registry};
use std::sync::Arc;

/// The pools that documents may replace, in the counts of the workers.
#[derive(Clone)]
pub(super) struct Counted {
    pub registry: Arc<Registry>,
    pub pools: Vec<String>,
}

impl Counted {
    fn totals(&self) -> PoolsTotals {
        self.registry.totals_of(|pool| !pool.is_retired && self.pools.contains(&pool.name))
    }
}

/// The counts at which a rollout began.
#[derive(Default)]
pub(super) struct Base {
    of: Option<(u64, u64)>,
    totals: Option<PoolsTotals>,
}

impl Base {
    /// Counts requests since the first call with this rollout and this revision.
    pub fn measure(
        &mut self,
        counted: Option<&Counted>,
        (rollout, revision): (u64, u64),
    ) -> Measured {
        let now = counted.map(Counted::totals);
        // A pool that was removed meanwhile takes its counts with it: they begin anew.
        let is_less = now
            .as_ref()
            .zip(self.totals.as_ref())
            .is_some_and(|(now, base)| now.requests < base.requests || now.errors < base.errors);
        if self.of != Some((rollout, revision)) || is_less {
            *self = Base { of: Some((rollout, revision)), totals: now.clone() };
        }
        let mut measured = Measured { rollout, revision, ..Measured::default() };
        if let Some((now, base)) = now.zip(self.totals.as_ref()) {
            measured.requests = now.requests.saturating_sub(base.requests);
            measured.errors = now.errors.saturating_sub(base.errors);
            let p99 = now.reply_latency.after(&base.reply_latency).quantile(0.99);
            measured.p99_micros = p99.map_or(0, |seconds| (seconds * 1e6) as u64);
        }
        measured
    }
}
