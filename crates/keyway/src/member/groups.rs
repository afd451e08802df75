//! The groups of servers that this process uses: the decided primaries that its pools obey, and what
//! its pools see of the servers.
//!
//! The main thread attaches the pools of each plan before a worker serves by it. The thread of the
//! fleet has the decisions.

use crate::plan::monotonic;
use keyway_base::Time;
use keyway_config::Config;
use keyway_fleet::{
    Decided, DecisionRefusal, Decisions, GroupSeen, PublishedGroups, RoleSeen, ServerSeen, Version,
};
use keyway_topology::{Endpoint, InfoReplication};
use keyway_worker::{DecidedPrimary, Plan, PoolPlan, SeenServer};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Age from which what a pool has seen is not reported: nobody asks its servers any more.
const SEEN_MAX: Duration = Duration::from_secs(3);

/// Longest time for which writes wait while a primary hands over. If control is gone by then, they go to
/// the primary that there is.
const HELD_MAX: Duration = Duration::from_secs(5);

/// A group whose primary the control plane decides.
struct Pool {
    name: String,
    served: Weak<PoolPlan>,
    /// Its number in the pool.
    group: u16,
    refresh: Duration,
    /// False if another pool has replaced it, and clients use it still.
    is_current: bool,
}

#[derive(Default)]
struct Inner {
    decisions: Decisions,
    pools: Vec<Pool>,
    plan: Weak<Plan>,
    /// Until when writes wait at most.
    held_until: Option<Time>,
}

/// The groups, shared by the main thread and that of the fleet.
#[derive(Clone, Default)]
pub struct Groups(Arc<Mutex<Inner>>);

impl Groups {
    /// Begins with the decisions of the disk.
    pub fn new(decisions: Decisions) -> Groups {
        Groups(Arc::new(Mutex::new(Inner { decisions, ..Inner::default() })))
    }

    /// Has the pools of a plan obey, before a worker serves by it. `config` has the same pools at the
    /// same positions.
    pub fn attach(&self, plan: &Arc<Plan>, config: &Config) {
        let mut inner = self.0.lock();
        inner.plan = Arc::downgrade(plan);
        inner.pools.retain_mut(|pool| {
            pool.is_current = false;
            pool.served.strong_count() > 0
        });
        for (index, (pool, served)) in config.pools.iter().zip(&plan.pools).enumerate() {
            if plan.retired(index as u16).is_some() {
                continue;
            }
            let weak = Arc::downgrade(served);
            for group in pool.controlled_groups() {
                let is_it = |known: &&mut Pool| {
                    Weak::ptr_eq(&known.served, &weak) && known.group == group.number
                };
                match inner.pools.iter_mut().find(is_it) {
                    Some(known) => known.is_current = true,
                    None => inner.pools.push(Pool {
                        name: group.name,
                        served: Weak::clone(&weak),
                        group: group.number,
                        refresh: group.refresh,
                        is_current: true,
                    }),
                }
            }
        }
        inner.obey(false);
    }

    /// Returns whether a pool of this process is a group.
    pub fn has_any(&self) -> bool {
        self.0.lock().pools.iter().any(|pool| pool.is_current)
    }

    /// Takes published decisions. Returns them for the disk if something is new. They count as soon
    /// as [`Groups::obey`] is called.
    ///
    /// # Errors
    /// Returns why they are refused. Nothing has changed then.
    pub fn take(&self, published: &PublishedGroups) -> Result<Option<Vec<u8>>, DecisionRefusal> {
        let mut inner = self.0.lock();
        let is_new = inner.decisions.take(published)?;
        Ok(is_new.then(|| inner.decisions.encode()))
    }

    /// Returns the version of the decisions.
    pub fn version(&self) -> Version {
        self.0.lock().decisions.version()
    }

    /// Has all pools obey the decisions. Writes wait while a primary hands over.
    pub fn obey(&self) {
        self.0.lock().obey(true);
    }

    /// Lets writes go on that have waited for too long, or that wait with nobody to end it if
    /// `is_over`.
    pub fn release(&self, is_over: bool) {
        let mut inner = self.0.lock();
        let is_due = inner.held_until.is_some_and(|until| until <= monotonic() || is_over);
        if is_due {
            inner.held_until = None;
            let served = inner.pools.iter().filter_map(|pool| pool.served.upgrade());
            served.for_each(|pool| pool.pause.set_handed_over(false));
        }
    }

    /// Returns the groups as the pools of this process see them.
    pub fn seen(&self) -> Vec<GroupSeen> {
        let inner = self.0.lock();
        let now = monotonic();
        let pools = inner.pools.iter().filter(|pool| pool.is_current);
        let seen = pools.filter_map(|pool| {
            let (at, servers) = pool.served.upgrade()?.kind.cluster()?.seen(pool.group)?;
            let epoch = inner.decisions.of(&pool.name).map_or(0, |decided| decided.epoch);
            let is_old = now.since(at) > SEEN_MAX.max(pool.refresh * 3);
            let servers = servers.into_iter().map(|server| server_seen(server, now)).collect();
            (!is_old).then(|| GroupSeen { pool: pool.name.clone(), epoch, servers })
        });
        seen.collect()
    }
}

impl Inner {
    fn obey(&mut self, holds: bool) {
        let mut has_changed = false;
        for pool in &self.pools {
            let Some(served) = pool.served.upgrade() else { continue };
            let Some(cluster) = served.kind.cluster() else { continue };
            let decided = self.decisions.of(&pool.name);
            let primary = decided.and_then(primary);
            let is_handed_over = primary.as_ref().is_some_and(|primary| primary.next.is_some());
            if !cluster.decide(pool.group, primary, monotonic()) {
                continue;
            }
            has_changed = true;
            // Otherwise the server would refuse a part of a client's pipeline.
            served.pause.set_handed_over(holds && self.is_handed_over(&pool.served));
            if is_handed_over && holds {
                self.held_until = Some(monotonic() + HELD_MAX);
            }
            if let Some(Decided { primary, epoch, next, .. }) = decided {
                tracing::info!(
                    pool = pool.name,
                    primary,
                    epoch,
                    next,
                    "control: the primary is decided"
                );
            }
        }
        if let Some(plan) = self.plan.upgrade().filter(|_| has_changed) {
            plan.wake_workers();
        }
    }
}

impl Inner {
    /// Returns whether the primary of a group of this pool hands over.
    fn is_handed_over(&self, served: &Weak<PoolPlan>) -> bool {
        let mut own = self.pools.iter().filter(|pool| Weak::ptr_eq(&pool.served, served));
        own.any(|pool| self.decisions.of(&pool.name).is_some_and(|it| it.next.is_some()))
    }
}

fn primary(decided: &Decided) -> Option<DecidedPrimary> {
    let next = decided.next.as_ref().and_then(|next| next.parse::<Endpoint>().ok());
    Some(DecidedPrimary { primary: decided.primary.parse().ok()?, next })
}

fn server_seen(server: SeenServer, now: Time) -> ServerSeen {
    ServerSeen {
        address: server.endpoint.to_string(),
        silent_ms: server.silent_since.map(|since| now.since(since).as_millis() as u64),
        role: server.role.as_ref().map(role_seen),
    }
}

/// Returns the role of a server for a report.
pub fn role_seen(told: &InfoReplication) -> RoleSeen {
    match &told.link {
        None => RoleSeen::Primary {
            offset: told.replication_offset,
            replicas: told.replicas.iter().filter(|replica| replica.is_online).count() as u64,
        },
        Some(link) => RoleSeen::Replica {
            of: link.primary.to_string(),
            offset: link.replication_offset.unwrap_or(told.replication_offset),
            is_linked: link.is_up,
            down_ms: link.down_seconds.map(|seconds| seconds.saturating_mul(1000)),
            is_syncing: link.is_syncing,
            priority: link.priority.unwrap_or(100),
        },
    }
}
