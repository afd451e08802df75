use super::cluster::{ClusterState, Hedging, Readers};
use super::links::next_generation;
use super::scripts::Given;
use super::{LinkIndex, LinkSlot};
use crate::{Plan, PoolKind, Upstream};
use keyway_base::Time;
use keyway_proxy::{Budget, Link};
use keyway_resp::Protocol;
use keyway_topology::{BackendId, Ring, ServerSet};
use std::ops::Range;

/// The lane of sessions whose replies are large: they share a connection to each
/// server, which is made when the first of them needs it.
pub(super) const BULK: u32 = u32::MAX;

/// The lane of sessions whose own connection has a large reply to bring to another: one to each
/// server, made likewise. See `detour.rs`.
pub(super) const DETOUR: u32 = u32::MAX - 1;

/// What this worker knows of a pool.
pub(super) enum PoolState {
    /// Nothing: the store is shared and always there, and other pools see to theirs.
    None,
    /// Which links lead to its servers, and the ring over those in use.
    Servers(ServersState),
}

pub(super) struct ServersState {
    /// Who its servers are, where that is found out.
    pub(super) cluster: Option<ClusterState>,
    /// Who is read instead of a primary; only where replicas are.
    pub(super) readers: Option<Box<Readers>>,
    /// When reads are sent to a second server; only where they are.
    pub(super) hedging: Option<Box<Hedging>>,
    /// What may be sent again; only where that is bounded.
    pub(super) retries: Option<Box<Budget>>,
    /// Ring over the servers in use, as of `health_epoch`.
    pub(super) ring: Ring,
    pub(super) health_epoch: u64,
    /// First link of server 0; each server has `connections` in a row. Behind
    /// those of all servers come as many again, for clients that speak RESP3.
    first_link: LinkIndex,
    pub(super) connections: usize,
    /// From a link to the one for RESP3 in the same place.
    to_resp3: usize,
    /// First link for large values; each server has one, and one for RESP3 behind those of all.
    first_bulk: LinkIndex,
    /// First link around large values; likewise.
    first_detour: LinkIndex,
    /// Idle private links of each server.
    pub(super) idle: Vec<Vec<LinkIndex>>,
}

impl PoolState {
    pub(super) fn new(plan: &Plan, index: usize, links: &mut Vec<LinkSlot>) -> Self {
        let kind = &plan.pools[index].kind;
        let Some(Upstream { servers: pool, .. }) = kind.upstream() else { return PoolState::None };
        let cluster = kind.cluster();
        if plan.retired(index as u16).is_some() {
            return PoolState::None;
        }
        let mut own = Vec::new();
        let connections = usize::from(pool.options.server_connections.max(1));
        let to_resp3 = pool.servers.len() * connections;
        let protocols: &[Protocol] = match kind {
            PoolKind::Memcached(_) => &[Protocol::Resp2],
            PoolKind::Sharded(_)
            | PoolKind::Cluster(_)
            | PoolKind::Replicated(_)
            | PoolKind::Sentinels(_) => &[Protocol::Resp2, Protocol::Resp3],
            PoolKind::Store(_) | PoolKind::Routed(_) => &[],
        };
        for &protocol in protocols {
            for backend in 0..pool.servers.len() {
                let id = plan.topology.backend_id(index, backend);
                let place = (index as u16, backend as u16);
                let slot = || {
                    LinkSlot::new(place, id, protocol)
                        .following(cluster.is_some())
                        .watched(plan.health.watches(id))
                };
                own.extend((0..connections).map(|_| slot()));
            }
        }
        let shared = own.len();
        let beside = protocols.len() * pool.servers.len();
        for is_detour in [false, true] {
            for at in 0..beside {
                let like: &LinkSlot = &own[at * connections];
                let (place, protocol) = ((like.pool, like.backend), like.link.protocol());
                let slot = LinkSlot::new(place, like.id, protocol)
                    .following(cluster.is_some())
                    .watched(like.is_watched);
                own.push(LinkSlot { is_bulk: !is_detour, is_detour, ..slot });
            }
        }
        let first_link = room_for(links, own);
        let health_epoch = plan.health.pool_epoch(index);
        let cluster = cluster.map(ClusterState::new);
        let ring = match &cluster {
            Some(cluster) => cluster.ring(),
            None => build_ring(plan, index, pool),
        };
        let idle = vec![Vec::new(); pool.servers.len()];
        PoolState::Servers(ServersState {
            readers: cluster.as_ref().and_then(|cluster| cluster.readers(plan, index)),
            hedging: cluster.as_ref().and_then(ClusterState::hedging),
            retries: cluster.as_ref().and_then(ClusterState::retries),
            cluster,
            ring,
            health_epoch,
            first_link,
            connections,
            to_resp3,
            first_bulk: first_link + shared,
            first_detour: first_link + shared + beside,
            idle,
        })
    }

    /// Its shared links to so many servers.
    pub(super) fn links(&self, servers: usize) -> Range<LinkIndex> {
        match self {
            PoolState::None => 0..0,
            PoolState::Servers(state) => {
                let count = servers * state.connections;
                // Those for RESP3 wait until a client speaks it.
                state.first_link..state.first_link + count
            }
        }
    }

    /// Follows the health board: rebuilds the ring if who may be used changed.
    /// Returns whether it did.
    pub(super) fn refresh(&mut self, plan: &Plan, index: usize) -> bool {
        let (PoolState::Servers(state), Some(Upstream { servers: pool, .. })) =
            (self, plan.pools[index].kind.upstream())
        else {
            return false;
        };
        let epoch = plan.health.pool_epoch(index);
        let has_changed = epoch != state.health_epoch;
        if has_changed {
            state.health_epoch = epoch;
            if state.cluster.is_none() {
                state.ring = build_ring(plan, index, pool);
            }
        }
        has_changed
    }
}

/// Puts a pool's links in a row among the others, where another pool's were if they fit.
fn room_for(links: &mut Vec<LinkSlot>, own: Vec<LinkSlot>) -> LinkIndex {
    let mut first = 0;
    while let Some(row) = links.get(first..first + own.len()) {
        match row.iter().rposition(|slot| !slot.is_spare) {
            None => break,
            Some(taken) => first += taken + 1,
        }
    }
    if first + own.len() > links.len() {
        // Those that stand at the end begin the row.
        let at_end = links.iter().rev().take_while(|slot| slot.is_spare).count();
        first = links.len() - at_end;
    }
    for (index, mut slot) in (first..).zip(own) {
        match links.get_mut(index) {
            Some(place) => {
                slot.generation = next_generation(place.generation);
                *place = slot;
            }
            None => links.push(slot),
        }
    }
    first
}

fn build_ring(plan: &Plan, index: usize, pool: &ServerSet) -> Ring {
    pool.ring(|server| plan.health.is_usable(plan.topology.backend_id(index, server)))
}

impl ServersState {
    /// The link of a server for a session of that lane that speaks `protocol`: always
    /// the same one, so that a client's requests to one server keep their order.
    #[inline]
    pub(super) fn link(&self, server: u16, lane: u32, protocol: Protocol) -> LinkIndex {
        if lane >= DETOUR {
            return self.link_beside(server, lane, protocol);
        }
        let lane = if self.connections == 1 { 0 } else { lane as usize % self.connections };
        let index = self.first_link + usize::from(server) * self.connections + lane;
        if protocol == Protocol::Resp3 { index + self.to_resp3 } else { index }
    }

    #[cold]
    fn link_beside(&self, server: u16, lane: u32, protocol: Protocol) -> LinkIndex {
        let servers = self.to_resp3 / self.connections;
        let first = if lane == BULK { self.first_bulk } else { self.first_detour };
        let index = first + usize::from(server);
        if protocol == Protocol::Resp3 { index + servers } else { index }
    }

    /// The link that finds out whether a server answers again.
    pub(super) fn probe_link(&self, server: usize) -> LinkIndex {
        self.first_link + server * self.connections
    }
}

impl LinkSlot {
    /// The same, whose requests may be sent elsewhere by its server.
    pub(super) fn following(mut self, follows: bool) -> Self {
        if follows {
            self.link.follow_redirections();
        }
        self
    }

    /// The same, of whose requests it is noted how they went.
    pub(super) fn watched(mut self, is_watched: bool) -> Self {
        self.is_watched = is_watched;
        self
    }

    /// Whether it lies beside the links that sessions have for most requests.
    pub(super) fn is_beside(&self) -> bool {
        self.is_bulk || self.is_detour
    }

    pub(super) fn new((pool, backend): (u16, u16), id: BackendId, protocol: Protocol) -> Self {
        Self {
            link: Link::new(protocol),
            pool,
            backend,
            id,
            socket: None,
            generation: 1,
            waiting: Vec::new(),
            waiting_due: None,
            is_lost: false,
            is_connecting: false,
            rejoining: None,
            is_counted_ready: false,
            was_connected: false,
            is_starved: false,
            next_try: Time(0),
            is_to_knock: false,
            given: Given::default(),
            attempted: Time(0),
            heard: Time(0),
            is_private: false,
            is_free: false,
            lease: None,
            awaited_keys: Vec::new(),
            awaits_retry: false,
            client_id: None,
            unblock: None,
            role: None,
            is_watched: false,
            is_spare: false,
            is_bulk: false,
            is_detour: false,
            is_streamed: false,
            takes_large: false,
            hedged_until: Time(0),
        }
    }
}
