//! What the admin listener asks of the process.

use keyway_control::AdminState;
use keyway_metrics::Registry;
use keyway_topology::{BackendId, FailureReason, HealthState};
use keyway_worker::Plan;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The process, as the admin listener sees it.
pub struct Process {
    plan: Arc<Plan>,
    registry: Arc<Registry>,
    draining: AtomicBool,
}

impl Process {
    /// A process that serves.
    pub fn new(plan: Arc<Plan>, registry: Arc<Registry>) -> Self {
        Self { plan, registry, draining: AtomicBool::new(false) }
    }

    /// Notes that the process is going down.
    pub fn set_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Whether requests for a backend fail at once: it is out of use, or it
    /// failed and no link leads to it. Failing alone is not enough, as the next
    /// request may succeed; nor is one connection closed, which servers do to
    /// those at rest.
    fn is_down(&self, backend: BackendId, links_ready: u64) -> bool {
        let health = &self.plan.health;
        let is_closed_once =
            health.reason(backend) == Some(FailureReason::Closed) && health.failures(backend) == 1;
        match health.state(backend) {
            HealthState::Up => false,
            HealthState::Failing => links_ready == 0 && !is_closed_once,
            HealthState::Ejected | HealthState::Rejoining | HealthState::Quarantined => true,
        }
    }

    /// Backends of a pool with their names.
    fn backends(&self, pool: usize) -> Vec<(String, BackendId)> {
        let topology = &self.plan.topology;
        let ids = topology.backend_ids(pool);
        ids.filter_map(|id| Some((topology.backend(id)?.server.label().into_owned(), id))).collect()
    }
}

impl AdminState for Process {
    fn metrics(&self, out: &mut String) {
        self.registry.write_prometheus(out);
    }

    fn draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    fn not_ready(&self) -> Vec<String> {
        let topology = &self.plan.topology;
        let pools = topology.pools().iter().enumerate();
        pools
            .filter_map(|(index, pool)| {
                let totals = self.registry.backend_totals(index);
                let mut backends = topology.backend_ids(index).zip(totals).peekable();
                backends.peek()?;
                backends
                    .all(|(id, totals)| self.is_down(id, totals.links_ready))
                    .then(|| format!("pool {:?}: every backend is out of use or down", pool.name))
            })
            .collect()
    }

    fn restore_backend(&self, pool: &str, backend: &str) -> Result<(), String> {
        let topology = &self.plan.topology;
        let Some(index) = topology.pool_index(pool) else {
            let names: Vec<_> = topology.pools().iter().map(|pool| pool.name.as_str()).collect();
            return Err(format!("no pool {pool:?}; there are: {}", names.join(", ")));
        };
        let backends = self.backends(index);
        let Some((_, id)) = backends.iter().find(|(name, _)| name == backend) else {
            let names: Vec<_> = backends.iter().map(|(name, _)| name.as_str()).collect();
            return Err(format!("no backend {backend:?}; there are: {}", names.join(", ")));
        };
        if self.plan.health.restore(*id).is_some() {
            tracing::info!(pool, backend, "back in use on an operator's word");
        }
        Ok(())
    }
}
