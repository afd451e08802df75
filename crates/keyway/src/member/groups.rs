//! The groups of servers that this process uses: the decided primaries that its pools obey, and what
//! its pools see of the servers.
//!
//! The main thread attaches the pools of each plan before a worker serves by it. The thread of the
//! fleet has the decisions.

use crate::plan::monotonic;
use keyway_base::Time;
use keyway_config::{Config, PoolConfig};
use keyway_fleet::{
    Decided, DecisionRefusal, Decisions, GroupSeen, PublishedGroups, RoleSeen, ServerSeen,
    SlotsSeen, Version,
};
use keyway_topology::{Endpoint, InfoReplication};
use keyway_worker::{DecidedPrimary, DrainedHook, ObeyedSlots, Plan, PoolPlan, SeenServer};
use parking_lot::Mutex;
use std::collections::BTreeMap;
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

/// A pool whose slots the control plane may move.
struct SlottedPool {
    name: String,
    served: Weak<PoolPlan>,
}

#[derive(Default)]
struct Inner {
    decisions: Decisions,
    pools: Vec<Pool>,
    /// The pools whose slots may move, those of before too while clients use them.
    slotted: Vec<SlottedPool>,
    /// The epochs of the maps on the disk, by pool.
    saved: BTreeMap<String, u64>,
    /// Wakes the thread of the fleet.
    hook: Option<DrainedHook>,
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
        let mut inner = Inner { decisions, ..Inner::default() };
        inner.note_saved();
        Groups(Arc::new(Mutex::new(inner)))
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
            inner.attach_slots(pool, served);
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

    /// Notes that the decisions are on the disk.
    pub fn note_saved(&self) {
        self.0.lock().note_saved();
    }

    /// Has this called when the workers have drained a fence of slots.
    pub fn on_drained(&self, hook: DrainedHook) {
        let mut inner = self.0.lock();
        let served = inner.slotted.iter().filter_map(|pool| pool.served.upgrade());
        for cluster in served.filter_map(|it| it.kind.cluster().cloned()) {
            cluster.on_drained(Arc::clone(&hook));
        }
        inner.hook = Some(hook);
    }

    /// Returns the maps of slots that this process obeys, as far as they are on its disk.
    pub fn seen_slots(&self) -> Vec<SlotsSeen> {
        self.0.lock().seen_slots()
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
        inner.end_fences();
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
        has_changed |= self.obey_slots();
        if let Some(plan) = self.plan.upgrade().filter(|_| has_changed) {
            plan.wake_workers();
        }
    }

    fn attach_slots(&mut self, pool: &PoolConfig, served: &Arc<PoolPlan>) {
        self.slotted.retain(|known| known.served.strong_count() > 0);
        let is_known = |known: &SlottedPool| Weak::ptr_eq(&known.served, &Arc::downgrade(served));
        let Some(cluster) = served.kind.cluster().filter(|it| it.slots_epoch().is_some()) else {
            return;
        };
        if pool.controlled_groups().is_empty() || self.slotted.iter().any(is_known) {
            return;
        }
        if let Some(hook) = &self.hook {
            cluster.on_drained(Arc::clone(hook));
        }
        let (name, served) = (pool.name.clone(), Arc::downgrade(served));
        self.slotted.push(SlottedPool { name, served });
    }

    /// Has pools obey the maps of slots. Returns whether something has changed.
    fn obey_slots(&self) -> bool {
        let mut has_changed = false;
        for pool in &self.slotted {
            let Some(published) = self.decisions.slots_of(&pool.name) else { continue };
            let Some(served) = pool.served.upgrade() else { continue };
            let Some(cluster) = served.kind.cluster() else { continue };
            let owners = published.owners.iter();
            let obeyed = ObeyedSlots {
                epoch: published.epoch,
                owners: owners.map(|(group, own)| (group.clone(), own.ranges().to_vec())).collect(),
                fenced: published.fenced.ranges().to_vec(),
            };
            // Workers look at a fence only while this is set.
            if !obeyed.fenced.is_empty() {
                served.pause.set_fenced(true);
            }
            if cluster.obey_slots(&obeyed, monotonic()) {
                has_changed = true;
                let fenced = published.fenced.to_string();
                tracing::info!(
                    pool = pool.name,
                    epoch = published.epoch,
                    fenced,
                    "control: the map of slots has changed"
                );
            }
        }
        has_changed
    }

    fn note_saved(&mut self) {
        let epochs = self.decisions.all_slots().map(|slots| (slots.pool.clone(), slots.epoch));
        self.saved = epochs.collect();
    }

    /// Workers need not look for fences any more where there is none.
    fn end_fences(&self) {
        for served in self.slotted.iter().filter_map(|pool| pool.served.upgrade()) {
            let may_hold = served.kind.cluster().is_some_and(|cluster| cluster.may_hold_slots());
            if served.pause.is_fenced() && !may_hold {
                served.pause.set_fenced(false);
            }
        }
    }

    fn seen_slots(&self) -> Vec<SlotsSeen> {
        let mut seen: BTreeMap<&str, SlotsSeen> = BTreeMap::new();
        for pool in &self.slotted {
            let Some(served) = pool.served.upgrade() else { continue };
            let epoch = served.kind.cluster().and_then(|cluster| cluster.slots_epoch());
            let Some((epoch, is_drained)) = epoch else { continue };
            let epoch = epoch.min(self.saved.get(&pool.name).copied().unwrap_or(0));
            let first = SlotsSeen { pool: pool.name.clone(), epoch, is_drained };
            let all = seen.entry(&pool.name).or_insert(first);
            (all.epoch, all.is_drained) = (all.epoch.min(epoch), all.is_drained && is_drained);
        }
        seen.into_values().collect()
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
