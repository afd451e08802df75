//! The roles of the servers of a pool that discovers them, for reports.

use crate::{Cluster, Plan};
use keyway_metrics::{BackendRole, ClusterFigures};
use keyway_topology::{
    BackendId, CircuitState, ClusterMap, FailureReason, KnownNode, KnownRole, NodeHealth,
};
use std::sync::atomic::Ordering::Relaxed;

/// The role of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// `primary`, `replica`, or `none` while it has no keys.
    pub role: &'static str,
    /// The primary that it copies. With Sentinel, the name of its primary. In a pool of groups, the
    /// name of its group.
    pub of: Option<String>,
    /// Number of its slots, where keys have slots.
    pub slots: Option<u16>,
    /// Its availability zone.
    pub zone: Option<String>,
    /// How far it is behind its primary, in milliseconds, if that is known.
    pub lag_millis: Option<u64>,
    /// Distinguishes it from earlier servers with its index.
    pub tenure: u64,
}

impl Cluster {
    /// Returns the role of the server at an index, or `None` if there is none.
    pub fn status(&self, server: usize) -> Option<ServerStatus> {
        let map = self.map();
        let node = map.node(server)?;
        let role = role(&map, server, node);
        Some(ServerStatus {
            role,
            of: self.primary_of(&map, node, role),
            slots: self.slots_of(&map, server),
            zone: node.zone.as_deref().map(str::to_owned),
            lag_millis: self.lag_millis(server).filter(|_| role == REPLICA),
            tenure: node.tenure,
        })
    }

    /// Returns the number of slots of the server at an index, if keys have slots.
    fn slots_of(&self, map: &ClusterMap, server: usize) -> Option<u16> {
        let Some(slots) = self.slot_map() else {
            return self.has_slots().then(|| map.owned_by(server));
        };
        let group = map.node(server).filter(|_| map.is_serving(server)).and_then(|it| it.group);
        Some(group.map_or(0, |group| slots.count_of(group)))
    }

    /// Returns what its cluster or the sentinels report about a failed server at an index, or about
    /// a replica that they no longer name.
    pub fn told_down(&self, server: usize) -> Option<&'static str> {
        told_down(self.map().node(server)?)
    }

    /// Returns why no request can be served in the pool of this name, whatever its key, or `None`
    /// if some can.
    pub fn unserved(&self, pool: &str) -> Option<String> {
        let map = self.map();
        if (0..map.index_count()).any(|server| map.is_serving(server)) {
            return None;
        }
        let what = match self.has_slots() {
            true => "nobody has told who has which slot",
            false => "nobody has told who is the primary",
        };
        let named = self.primaries().iter().filter(|_| self.sentinels().is_some());
        let names: Vec<&str> = named.map(String::as_str).collect();
        let what = match &names[..] {
            [] => what.to_owned(),
            names => format!("{what} ({})", names.join(", ")),
        };
        Some(match map.count_without_index() {
            0 => format!("{what}: {}", self.reason_in(pool)),
            _ => "nodes_max leaves no place for the servers that have the keys".to_owned(),
        })
    }

    /// Returns its totals, and its servers. Servers for which `is_down` is true cannot be reached.
    pub fn figures(&self, is_down: impl Fn(usize) -> bool) -> ClusterFigures {
        let map = self.map();
        let is_reachable = |server: &usize| {
            let is_sound = |node: &KnownNode| node.health != NodeHealth::Failed;
            map.is_serving(*server) && map.node(*server).is_some_and(is_sound) && !is_down(*server)
        };
        let reachable = || (0..map.index_count()).filter(is_reachable);
        let has_slots = self.has_slots() || self.slot_map().is_some();
        let slots = |server| self.slots_of(&map, server).map_or(0, u64::from);
        let reachable_slots = has_slots.then(|| reachable().map(slots).sum());
        let name = |server| Some(map.node(server)?.endpoint.to_string());
        let totals = &self.totals;
        ClusterFigures {
            backends: (0..map.index_count()).map(name).collect(),
            roles: (0..map.index_count()).map(|server| self.role(&map, server)).collect(),
            down: (0..map.index_count()).map(|at| map.node(at).and_then(told_down)).collect(),
            moved: totals.moved.load(Relaxed),
            asked: totals.asked.load(Relaxed),
            retried: totals.retried.load(Relaxed),
            retries_refused: totals.retries_refused.load(Relaxed),
            hedged: totals.hedged.load(Relaxed),
            hedges_won: totals.hedges_won.load(Relaxed),
            hedges_refused: totals.hedges_refused.load(Relaxed),
            given_up: totals.given_up.load(Relaxed),
            primary_waiting: totals.primary_waiting.load(Relaxed),
            primary_waits: totals.primary_waits.load(Relaxed),
            primary_waits_over: totals.primary_waits_over.load(Relaxed),
            views: totals.views.load(Relaxed),
            unanswered: totals.unanswered.load(Relaxed),
            stale: totals.stale.load(Relaxed),
            notices: totals.notices.load(Relaxed),
            slots: match self.slot_map() {
                Some(slots) => Some(u64::from(slots.given_count())),
                None => self.has_slots().then(|| map.owners().owned_count() as u64),
            },
            reachable_slots,
            reachable_primaries: reachable().count() as u64,
            unreplicated_shards: self.unreplicated_count(),
        }
    }

    fn role(&self, map: &ClusterMap, server: usize) -> Option<BackendRole> {
        let node = map.node(server)?;
        let role = role(map, server, node);
        Some(BackendRole { role, of: self.primary_of(map, node, role).unwrap_or_default() })
    }

    fn primary_of(&self, map: &ClusterMap, node: &KnownNode, role: &str) -> Option<String> {
        if self.sentinels().is_some() || self.slot_map().is_some() {
            return self.primaries().get(usize::from(node.group?)).cloned();
        }
        match node.role {
            KnownRole::Replica { of: Some(primary) } if role == REPLICA => {
                Some(map.node(usize::from(primary))?.endpoint.to_string())
            }
            _ => None,
        }
    }
}

/// Returns the state of a backend, and its reason: of several states the one that keeps most
/// requests away.
pub fn backend_state(plan: &Plan, id: BackendId) -> (&'static str, Option<&'static str>) {
    let health = &plan.health;
    let (circuits, reads) = (health.circuits(), health.reads());
    let state = health.state(id);
    if !state.is_usable() {
        return (state.label(), health.reason(id).map(FailureReason::label));
    }
    if circuits.state(id) != CircuitState::Closed {
        let label = match circuits.state(id) {
            CircuitState::HalfOpen => "circuit-half-open",
            _ => "circuit-open",
        };
        return (label, circuits.reason(id).map(FailureReason::label));
    }
    if let Some(told) = told_of(plan, id) {
        return (told, health.reason(id).map(FailureReason::label));
    }
    match reads.reason(id) {
        Some(reason) => ("outlier", Some(reason.label())),
        None if state.is_sound() && has_lost_replicas(plan, id) => ("no-replica", None),
        None => (state.label(), health.reason(id).map(FailureReason::label)),
    }
}

fn has_lost_replicas(plan: &Plan, id: BackendId) -> bool {
    cluster_of(plan, id).is_some_and(|(cluster, server)| cluster.has_lost_replicas(server))
}

fn told_of(plan: &Plan, id: BackendId) -> Option<&'static str> {
    let (cluster, server) = cluster_of(plan, id)?;
    cluster.told_down(server)
}

/// Returns the cluster of a server, and the server's index there.
fn cluster_of(plan: &Plan, id: BackendId) -> Option<(&Cluster, usize)> {
    let backend = plan.topology.backend(id)?;
    Some((plan.pools[backend.pool_index].kind.cluster()?, backend.server_index))
}

fn told_down(node: &KnownNode) -> Option<&'static str> {
    let is_replica = matches!(node.role, KnownRole::Replica { .. });
    match node.health {
        NodeHealth::Failed => Some("failed"),
        _ => (is_replica && node.absent_since.is_some()).then_some("absent"),
    }
}

const REPLICA: &str = "replica";

fn role(map: &ClusterMap, server: usize, node: &KnownNode) -> &'static str {
    match node.role {
        KnownRole::Replica { .. } => REPLICA,
        // A primary without slots or keys serves nothing.
        KnownRole::Primary if map.is_serving(server) => "primary",
        KnownRole::Primary if map.primaries().is_empty() => "primary",
        KnownRole::Primary | KnownRole::Seed => "none",
    }
}
