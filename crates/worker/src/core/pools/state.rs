//! The worker's state of each pool, by kind.

use crate::core::connection::Connection;
use crate::core::connection::Connections;
use crate::core::pools::cluster::{ClusterState, Hedging, Readers};
use crate::{DiscoveredPlan, Plan, PoolKind, Upstream};
use keyway_proxy::Budget;
use keyway_proxy::ConnectionKey;
use keyway_resp::Protocol;
use keyway_topology::{Ring, ServerId, ServerSet};

/// The lane of sessions with large replies. They share a connection to each server, which is made
/// when the first of them needs it.
pub(in crate::core) const BULK: u32 = u32::MAX;

/// The lane of sessions whose own connection is receiving a large reply for another session. They
/// share one connection to each server, made in the same way. See `upstream::bypass`.
pub(in crate::core) const BYPASS: u32 = u32::MAX - 1;

/// The state of a pool in this worker, one variant for each kind.
pub(in crate::core) enum PoolState {
    /// The pool has ended here, or has not begun.
    Ended,
    /// The store is shared and always there.
    Store,
    /// The pools that it leads to have the state.
    Routed,
    Sharded(ServersState),
    Memcached(ServersState),
    /// Only the worker asks sentinels. Clients ask none.
    Sentinels(ServersState),
    Cluster(FoundState),
    Replicated(FoundState),
    Slots(FoundState),
}

impl PoolState {
    pub(in crate::core) fn new(plan: &Plan, index: usize, links: &mut Connections) -> Self {
        if plan.retired(index as u16).is_some() {
            return PoolState::Ended;
        }
        let redis = &[Protocol::Resp2, Protocol::Resp3][..];
        let listed = |upstream: &Upstream, protocols: &[Protocol], links: &mut Connections| {
            let ring = build_ring(plan, index, &upstream.servers);
            ServersState::new(plan, index, upstream, protocols, false, ring, links)
        };
        let found = |found: &DiscoveredPlan, links: &mut Connections| {
            let cluster = ClusterState::new(&found.cluster);
            let ring = cluster.ring();
            FoundState {
                readers: cluster.readers(plan, index),
                hedging: cluster.hedging(),
                retries: cluster.retries(),
                cluster,
                servers: ServersState::new(plan, index, &found.upstream, redis, true, ring, links),
            }
        };
        match &plan.pools[index].kind {
            PoolKind::Store(_) => PoolState::Store,
            PoolKind::Routed(_) => PoolState::Routed,
            PoolKind::Sharded(plan) => PoolState::Sharded(listed(&plan.upstream, redis, links)),
            PoolKind::Memcached(plan) => {
                PoolState::Memcached(listed(&plan.upstream, &[Protocol::Resp2], links))
            }
            PoolKind::Sentinels(upstream) => PoolState::Sentinels(listed(upstream, redis, links)),
            PoolKind::Cluster(plan) => PoolState::Cluster(found(plan, links)),
            PoolKind::Replicated(plan) => PoolState::Replicated(found(plan, links)),
            PoolKind::Slots(plan) => PoolState::Slots(found(plan, links)),
        }
    }

    /// Returns the connections to the pool's servers, for kinds that have servers of their own.
    #[inline]
    pub(in crate::core) fn servers(&self) -> Option<&ServersState> {
        match self {
            PoolState::Sharded(servers)
            | PoolState::Memcached(servers)
            | PoolState::Sentinels(servers) => Some(servers),
            PoolState::Cluster(found) | PoolState::Replicated(found) | PoolState::Slots(found) => {
                Some(&found.servers)
            }
            PoolState::Ended | PoolState::Store | PoolState::Routed => None,
        }
    }

    /// Returns the same as [`PoolState::servers`], mutably.
    #[inline]
    pub(in crate::core) fn servers_mut(&mut self) -> Option<&mut ServersState> {
        match self {
            PoolState::Sharded(servers)
            | PoolState::Memcached(servers)
            | PoolState::Sentinels(servers) => Some(servers),
            PoolState::Cluster(found) | PoolState::Replicated(found) | PoolState::Slots(found) => {
                Some(&mut found.servers)
            }
            PoolState::Ended | PoolState::Store | PoolState::Routed => None,
        }
    }

    /// Returns the connections to the servers that the configuration lists, for kinds that do not
    /// discover theirs.
    pub(super) fn listed(&self) -> Option<&ServersState> {
        self.servers().filter(|_| self.found().is_none())
    }

    /// Returns the links that clients share, for kinds that have servers of their own.
    #[inline]
    pub(in crate::core) fn shared(&self) -> Option<SharedLinks> {
        self.servers().map(|servers| servers.shared)
    }

    /// Returns the discovered servers, for kinds that discover theirs while they serve.
    #[inline]
    pub(super) fn found(&self) -> Option<&FoundState> {
        match self {
            PoolState::Cluster(found) | PoolState::Replicated(found) | PoolState::Slots(found) => {
                Some(found)
            }
            PoolState::Ended
            | PoolState::Store
            | PoolState::Routed
            | PoolState::Sharded(_)
            | PoolState::Memcached(_)
            | PoolState::Sentinels(_) => None,
        }
    }

    /// Returns the same as [`PoolState::found`], mutably.
    #[inline]
    pub(in crate::core) fn found_mut(&mut self) -> Option<&mut FoundState> {
        match self {
            PoolState::Cluster(found) | PoolState::Replicated(found) | PoolState::Slots(found) => {
                Some(found)
            }
            PoolState::Ended
            | PoolState::Store
            | PoolState::Routed
            | PoolState::Sharded(_)
            | PoolState::Memcached(_)
            | PoolState::Sentinels(_) => None,
        }
    }

    /// Returns where the keys of the pool are at home.
    #[inline]
    pub(super) fn homes(&self) -> Homes<'_> {
        match self {
            PoolState::Cluster(found) => Homes::Slots(found),
            PoolState::Replicated(found) => Homes::Primaries(found),
            PoolState::Slots(found) => Homes::Groups(found),
            PoolState::Ended
            | PoolState::Store
            | PoolState::Routed
            | PoolState::Sharded(_)
            | PoolState::Memcached(_)
            | PoolState::Sentinels(_) => Homes::Servers,
        }
    }

    /// Returns the choice of replicas for reads, or `None` if no replica is read.
    #[inline]
    pub(in crate::core) fn readers(&self) -> Option<&Readers> {
        self.found()?.readers.as_deref()
    }

    /// Returns the shared links to the first `servers` servers.
    pub(in crate::core) fn links(
        &self,
        servers: usize,
    ) -> impl Iterator<Item = ConnectionKey> + use<> {
        let row = self.shared().map(|shared| (shared.first_link, servers * shared.connections));
        // Links for RESP3 wait until a client speaks it.
        row.into_iter().flat_map(|(first, count)| (0..count).map(move |n| first.behind(n)))
    }

    /// Follows the health board: rebuilds the ring if the usable servers have changed. Returns
    /// whether it did.
    pub(in crate::core) fn refresh(&mut self, plan: &Plan, index: usize) -> bool {
        let listed = plan.pools[index].kind.listed();
        let Some(state) = self.servers_mut() else { return false };
        let epoch = plan.health.pool_epoch(index);
        if epoch == std::mem::replace(&mut state.health_epoch, epoch) {
            return false;
        }
        if let Some(servers) = listed {
            state.ring = build_ring(plan, index, servers);
        }
        true
    }
}

/// The homes of a pool's keys.
pub(super) enum Homes<'a> {
    /// Their servers, which are listed, or none.
    Servers,
    /// Slots, which move between servers.
    Slots(&'a FoundState),
    /// Primaries, each of which may be another server later.
    Primaries(&'a FoundState),
    /// Slots of groups, each of which may have another primary later.
    Groups(&'a FoundState),
}

/// The connections to servers, and the ring that tells where keys are.
pub(in crate::core) struct ServersState {
    /// Ring over the servers in use, as of `health_epoch`. If the servers are discovered, it is
    /// made of their answers.
    pub(super) ring: Ring,
    pub(super) health_epoch: u64,
    pub(super) shared: SharedLinks,
    /// Idle private links of each server.
    pub(super) idle: Vec<Vec<ConnectionKey>>,
}

impl ServersState {
    /// Makes the links to the servers of a pool, for clients that speak `protocols`. If it
    /// `follows` redirections, requests that were sent there may be sent elsewhere.
    fn new(
        plan: &Plan,
        index: usize,
        upstream: &Upstream,
        protocols: &[Protocol],
        follows: bool,
        ring: Ring,
        links: &mut Connections,
    ) -> Self {
        let count = upstream.servers.servers.len();
        let connections = usize::from(upstream.servers.options.server_connections.max(1));
        let connection = |server: usize, protocol: Protocol| {
            let id = plan.topology.backend_id(index, server);
            let server = ServerId { pool: index as u16, server: server as u16 };
            Connection::new(server, id, protocol)
                .following(follows)
                .watched(plan.health.watches(id))
        };
        let each = || protocols.iter().flat_map(|&it| (0..count).map(move |server| (server, it)));
        let mut own: Vec<Connection> = each()
            .flat_map(|(server, protocol)| {
                (0..connections).map(move |_| connection(server, protocol))
            })
            .collect();
        let (shared, beside) = (own.len(), protocols.len() * count);
        for is_bypass in [false, true] {
            own.extend(each().map(|(server, protocol)| Connection {
                is_bulk: !is_bypass,
                is_bypass,
                ..connection(server, protocol)
            }));
        }
        let first_link = links.add_row(own);
        ServersState {
            ring,
            health_epoch: plan.health.pool_epoch(index),
            shared: SharedLinks {
                first_link,
                connections,
                to_resp3: count * connections,
                first_bulk: first_link.behind(shared),
                first_bypass: first_link.behind(shared + beside),
            },
            idle: vec![Vec::new(); count],
        }
    }

    /// Returns the ring, which tells the server of a key.
    #[inline]
    pub(in crate::core) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Takes another ring, because servers have said that keys have moved.
    pub(super) fn set_ring(&mut self, ring: Ring) {
        self.ring = ring;
    }

    /// Returns the version of the health board of which the usable servers are known.
    pub(super) fn health_epoch(&self) -> u64 {
        self.health_epoch
    }

    /// Returns the links that clients share.
    #[inline]
    pub(in crate::core) fn shared(&self) -> &SharedLinks {
        &self.shared
    }

    /// Returns the link to a server for a session of a lane that speaks `protocol`. See
    /// [`SharedLinks::link`].
    #[inline]
    pub(in crate::core) fn link(
        &self,
        server: u16,
        lane: u32,
        protocol: Protocol,
    ) -> ConnectionKey {
        self.shared.link(server, lane, protocol)
    }

    /// Returns the idle private links to a server.
    #[inline]
    pub(in crate::core) fn idle_mut(&mut self, server: u16) -> &mut Vec<ConnectionKey> {
        &mut self.idle[usize::from(server)]
    }
}

/// The links that clients share to the servers of a pool, by their positions. A pool that has a
/// value of this type has servers.
#[derive(Clone, Copy)]
pub(in crate::core) struct SharedLinks {
    /// First link of server 0. Each server has `connections` links in a row. Behind the links of
    /// all servers come as many again for clients that speak RESP3.
    first_link: ConnectionKey,
    connections: usize,
    /// Distance from a link to the one for RESP3 with the same server and lane.
    to_resp3: usize,
    /// First link for large values. Each server has one, and behind those of all servers there is
    /// one each for RESP3.
    first_bulk: ConnectionKey,
    /// First link of the lane `BYPASS`, in the same order.
    first_bypass: ConnectionKey,
}

impl SharedLinks {
    /// Returns the number of connections that clients share to each server, for each protocol.
    pub(in crate::core) fn connections(&self) -> usize {
        self.connections
    }

    /// Returns the link to a server for a session of a lane that speaks `protocol`. It is always
    /// the same one, so that a client's requests to one server keep their order.
    #[inline]
    pub(in crate::core) fn link(
        &self,
        server: u16,
        lane: u32,
        protocol: Protocol,
    ) -> ConnectionKey {
        if lane >= BYPASS {
            return self.link_beside(server, lane, protocol);
        }
        let lane = if self.connections == 1 { 0 } else { lane as usize % self.connections };
        let index = usize::from(server) * self.connections + lane;
        let is_resp3 = protocol == Protocol::Resp3;
        self.first_link.behind(if is_resp3 { index + self.to_resp3 } else { index })
    }

    #[cold]
    fn link_beside(&self, server: u16, lane: u32, protocol: Protocol) -> ConnectionKey {
        let servers = self.to_resp3 / self.connections;
        let first = if lane == BULK { self.first_bulk } else { self.first_bypass };
        let index = usize::from(server);
        first.behind(if protocol == Protocol::Resp3 { index + servers } else { index })
    }

    /// Returns the link that finds out whether a server answers again.
    pub(in crate::core) fn probe_link(&self, server: usize) -> ConnectionKey {
        self.first_link.behind(server * self.connections)
    }
}

/// The connections and the state of a pool that discovers its servers while it serves.
pub(in crate::core) struct FoundState {
    pub(in crate::core) servers: ServersState,
    /// The known servers.
    pub(in crate::core) cluster: ClusterState,
    /// The choice of replicas for reads, if replicas are read.
    pub(in crate::core) readers: Option<Box<Readers>>,
    /// The hedging of reads, if it is switched on.
    pub(in crate::core) hedging: Option<Box<Hedging>>,
    /// The bound on requests that are sent again, if there is one.
    pub(in crate::core) retries: Option<Box<Budget>>,
}

fn build_ring(plan: &Plan, index: usize, pool: &ServerSet) -> Ring {
    pool.ring(|server| plan.health.is_usable(plan.topology.backend_id(index, server)))
}
