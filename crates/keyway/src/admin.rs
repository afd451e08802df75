//! What the admin listener asks of the process.

use crate::serve::wall_clock;
use keyway_control::{AdminState, BackendStanding, BackendStatus, PoolStatus, ScriptKill};
use keyway_metrics::Registry;
use keyway_script::Kill;
use keyway_topology::{BackendId, FailureReason, HealthState};
use keyway_worker::{Plan, PoolKind, Standing, backend_state};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The process, as the admin listener sees it.
pub struct Process {
    /// Exchanged when the settings change.
    current: RwLock<Current>,
    draining: AtomicBool,
    /// The state of each backend when last looked at, and since when.
    seen: Mutex<Vec<Seen>>,
}

/// The settings in force, and what is counted by them.
#[derive(Clone)]
pub struct Current {
    plan: Arc<Plan>,
    registry: Arc<Registry>,
}

/// A backend's state and its begin.
#[derive(Clone, Copy)]
pub struct Seen {
    state: &'static str,
    /// Which of the servers that had its place one after the other it is.
    tenure: Option<u64>,
    since_unix_seconds: u64,
}

impl Process {
    /// A process that serves.
    pub fn new(plan: Arc<Plan>, registry: Arc<Registry>) -> Self {
        let now = Seen {
            state: HealthState::Up.label(),
            tenure: None,
            since_unix_seconds: unix_seconds(),
        };
        let seen = Mutex::new(vec![now; plan.health.backend_count()]);
        let current = RwLock::new(Current { plan, registry });
        Self { current, draining: AtomicBool::new(false), seen }
    }

    /// Tells of other settings from here on. Backends of pools that are the same go on as
    /// they were seen.
    pub fn follow(&self, plan: &Arc<Plan>, registry: &Arc<Registry>) {
        let mut seen = self.seen.lock();
        let mut current = self.current.write();
        let now = Seen {
            state: HealthState::Up.label(),
            tenure: None,
            since_unix_seconds: unix_seconds(),
        };
        let mut next = vec![now; plan.health.backend_count()];
        let pools = plan.pools.iter().zip(&current.plan.pools).enumerate();
        for (index, _) in pools.filter(|(_, (new, old))| Arc::ptr_eq(new, old)) {
            for id in plan.topology.backend_ids(index) {
                next[id.index()] = seen[id.index()];
            }
        }
        *seen = next;
        *current = Current { plan: Arc::clone(plan), registry: Arc::clone(registry) };
    }

    fn current(&self) -> Current {
        self.current.read().clone()
    }

    /// Notes which backends changed state. What happens between two calls and
    /// is over by the second is not seen here; the log has it.
    pub fn observe(&self) -> Vec<Seen> {
        let mut seen = self.seen.lock();
        let current = self.current();
        for id in current.live_pools().flat_map(|pool| current.plan.topology.backend_ids(pool)) {
            let (state, tenure) = (current.state(id).0, current.standing(id).map(|it| it.tenure));
            let known = &mut seen[id.index()];
            if known.state != state || known.tenure != tenure {
                *known = Seen { state, tenure, since_unix_seconds: unix_seconds() };
            }
        }
        seen.clone()
    }

    /// Notes what is told of the last seconds; about twice a second.
    pub fn note_passing(&self, elapsed: Duration) {
        self.observe();
        self.current().plan.facts.observe(elapsed);
    }

    /// Notes that the process is going down.
    pub fn set_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}

impl Current {
    /// Positions of the pools that no reload has removed or replaced.
    fn live_pools(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.plan.pools.len()).filter(|&pool| self.plan.retired(pool as u16).is_none())
    }

    fn pool_index(&self, name: &str) -> Option<usize> {
        self.live_pools().find(|&pool| self.plan.pools[pool].name == name)
    }

    fn names(&self) -> String {
        let names: Vec<_> =
            self.live_pools().map(|pool| self.plan.pools[pool].name.as_str()).collect();
        names.join(", ")
    }

    /// How a backend is, and why: of several states the one that keeps most requests away.
    fn state(&self, id: BackendId) -> (&'static str, Option<&'static str>) {
        backend_state(&self.plan, id)
    }

    /// What a backend does, where that is found out.
    fn standing(&self, id: BackendId) -> Option<Standing> {
        let backend = self.plan.topology.backend(id)?;
        match &self.plan.pools[backend.pool_index].kind {
            PoolKind::Sharded { cluster: Some(cluster), .. } => {
                cluster.standing(backend.server_index)
            }
            _ => None,
        }
    }

    fn status(&self, name: String, id: BackendId, seen: &[Seen]) -> BackendStatus {
        let address = self.plan.topology.backend(id).and_then(|backend| {
            self.plan.pools[backend.pool_index].kind.address(backend.server_index)
        });
        let seen = seen[id.index()];
        BackendStatus {
            name,
            address: address.map(|address| address.to_string()).unwrap_or_default(),
            state: seen.state,
            reason: self.state(id).1,
            since_unix_seconds: seen.since_unix_seconds,
            standing: self.standing(id).map(|standing| BackendStanding {
                role: standing.role,
                of: standing.of,
                slots: standing.slots,
                zone: standing.zone,
                lag_millis: standing.lag_millis,
            }),
        }
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
        let kind = &self.plan.pools[pool].kind;
        let numbered = self.plan.topology.backend_ids(pool).enumerate();
        let there = numbered.filter(|(server, _)| kind.has_server(*server));
        there.map(|(server, id)| (kind.label(server), id)).collect()
    }
}

impl AdminState for Process {
    fn metrics(&self, out: &mut String) {
        self.current().registry.write_prometheus(out);
    }

    fn draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    // Neither circuits nor outliers count here: requests of clients find out when a circuit may
    // close again, and a balancer that goes by this would send none. Of servers that are left
    // out as outliers one that can be read always stays.
    fn not_ready(&self) -> Vec<String> {
        let current = self.current();
        let topology = &current.plan.topology;
        current
            .live_pools()
            .filter_map(|index| {
                let pool = &current.plan.pools[index];
                let totals = current.registry.backend_totals(index);
                let kind = &pool.kind;
                // Without sentinels what is known goes on being served.
                if matches!(kind, PoolKind::Sharded { pool, .. } if pool.is_sentinels) {
                    return None;
                }
                if let PoolKind::Sharded { cluster: Some(cluster), .. } = kind
                    && let Some(why) = cluster.unserved(&pool.name)
                {
                    return Some(format!("pool {:?}: {why}", pool.name));
                }
                let ids = topology.backend_ids(index).zip(totals).enumerate();
                let there = ids.filter(|(server, _)| kind.has_server(*server));
                let mut backends = there.map(|(_, backend)| backend).peekable();
                backends.peek()?;
                backends
                    .all(|(id, totals)| current.is_down(id, totals.links_ready))
                    .then(|| format!("pool {:?}: every backend is out of use or down", pool.name))
            })
            .collect()
    }

    fn pools(&self) -> Vec<PoolStatus> {
        let seen = self.observe();
        let current = self.current();
        current
            .live_pools()
            .map(|index| PoolStatus {
                name: current.plan.pools[index].name.clone(),
                kind: current.plan.pools[index].kind.name(),
                backends: current
                    .backends(index)
                    .into_iter()
                    // One that a reload has brought since is told of the next time.
                    .filter(|(_, id)| id.index() < seen.len())
                    .map(|(name, id)| current.status(name, id, &seen))
                    .collect(),
            })
            .collect()
    }

    fn kill_script(&self, pool: &str) -> Result<ScriptKill, String> {
        let current = self.current();
        let plan = &current.plan;
        let is_store = |index: usize| matches!(plan.pools[index].kind, PoolKind::Store(_));
        let Some(index) = current.pool_index(pool).filter(|index| is_store(*index)) else {
            let stores = current.live_pools().filter(|&index| is_store(index));
            let names: Vec<_> = stores.map(|index| plan.pools[index].name.as_str()).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(format!("no embedded store {pool:?}; there are: {names}"));
        };
        let killed = plan.pools[index].scripts.kill_any();
        if killed == Kill::Killed {
            tracing::info!(pool, "a script ends on an operator's word");
        }
        Ok(match killed {
            Kill::Killed => ScriptKill::Ends,
            Kill::Unkillable => ScriptKill::HasWritten,
            Kill::NotBusy | Kill::OtherKind => ScriptKill::NoneRuns,
        })
    }

    fn restore_backend(&self, pool: &str, backend: &str) -> Result<bool, String> {
        let current = self.current();
        let Some(index) = current.pool_index(pool) else {
            return Err(format!("no pool {pool:?}; there are: {}", current.names()));
        };
        let backends = current.backends(index);
        if backends.is_empty() {
            let why = match &current.plan.pools[index].kind {
                PoolKind::Routed(_) => "leads to other pools: name one with servers",
                _ => "is an embedded store: it has no backends",
            };
            return Err(format!("pool {pool:?} {why}"));
        }
        let Some((_, id)) = backends.iter().find(|(name, _)| name == backend) else {
            let names: Vec<_> = backends.iter().map(|(name, _)| name.as_str()).collect();
            return Err(format!("no backend {backend:?}; there are: {}", names.join(", ")));
        };
        let was_open = current.plan.health.circuits().restart(*id);
        if was_open {
            tracing::info!(pool, backend, "asked again on an operator's word");
        }
        if current.plan.health.is_usable(*id) {
            return Ok(was_open);
        }
        let was_out = current.plan.health.restore(*id).is_some();
        if was_out {
            tracing::info!(pool, backend, "back in use on an operator's word");
        }
        Ok(was_out)
    }
}

fn unix_seconds() -> u64 {
    wall_clock().unix_micros / 1_000_000
}
