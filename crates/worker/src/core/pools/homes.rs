//! The homes of keys, by the kind of their pool. A key's *home* is the part of its place that stays
//! when it moves to another server.

use crate::Upstream;
use crate::core::Plane;
use crate::core::pools::cluster::ClusterState;
use crate::core::pools::state::Homes;
use keyway_topology::{SLOT_COUNT, ServerId};

impl Plane {
    /// Returns what this worker knows of a pool that is a cluster.
    #[inline]
    pub(in crate::core) fn cluster_state(&self, pool: u16) -> Option<&ClusterState> {
        Some(&self.pools[usize::from(pool)].found()?.cluster)
    }

    /// Returns whether the servers of a pool are a Redis Cluster, which itself says who has which
    /// slot.
    pub(in crate::core) fn has_slots(&self, pool: u16) -> bool {
        matches!(self.pools[usize::from(pool)].homes(), Homes::Slots(_))
    }

    /// Returns the slot of a key in a Redis Cluster, or `None` in other pools.
    pub(in crate::core) fn slot_of(&self, pool: u16, key: &[u8]) -> Option<u16> {
        let slot = self.hash_of(pool, key)? as usize % SLOT_COUNT;
        self.has_slots(pool).then_some(slot as u16)
    }

    /// Returns the hash of a key, for pools that have servers.
    fn hash_of(&self, pool: u16, key: &[u8]) -> Option<u32> {
        let Upstream { servers, .. } = self.plan.pools[usize::from(pool)].kind.upstream()?;
        Some(servers.hash_key(key))
    }

    /// Returns the home of a key: its slot or, where keys have none, the number of the primary that it
    /// belongs to. Returns `None` for pools whose servers are listed.
    pub(in crate::core) fn moving_home_of(&self, pool: u16, key: &[u8]) -> Option<u16> {
        match self.pools[usize::from(pool)].homes() {
            Homes::Servers => None,
            Homes::Slots(_) => self.slot_of(pool, key),
            Homes::Primaries(found) => found.servers.ring().primary_of(self.hash_of(pool, key)?, 0),
            Homes::Groups(found) => found.servers.ring().slot_of(self.hash_of(pool, key)?),
        }
    }

    /// Returns the server that has this home now, or `home` itself for pools whose servers are
    /// listed.
    pub(super) fn server_of_home(&self, pool: u16, home: u16) -> Option<u16> {
        match self.pools[usize::from(pool)].homes() {
            Homes::Servers => Some(home),
            Homes::Slots(found) => found.cluster.map.owners().of(home),
            Homes::Primaries(found) => found.cluster.map.primary(home),
            Homes::Groups(found) => found.servers.ring().server_of_slot(home),
        }
    }

    /// Returns whether a server is in its pool, with slots or without. Listed servers always are.
    pub(in crate::core) fn is_member(&self, server: ServerId) -> bool {
        match self.pools[usize::from(server.pool)].homes() {
            Homes::Servers => true,
            Homes::Slots(found) | Homes::Primaries(found) | Homes::Groups(found) => {
                let node = found.cluster.map.node(usize::from(server.server));
                node.is_some_and(|node| node.absent_since.is_none())
            }
        }
    }

    /// Returns whether keys of a pool may move to other servers, as the servers say themselves.
    #[inline]
    pub(in crate::core) fn has_moving_homes(&self, pool: u16) -> bool {
        !matches!(self.pools[usize::from(pool)].homes(), Homes::Servers)
    }

    /// Returns whether requests go to a server: it is not out of use and, in a cluster, has slots.
    pub(in crate::core) fn is_server_used(&self, pool: u16, server: usize) -> bool {
        let id = self.plan.topology.backend_id(usize::from(pool), server);
        let is_serving = |state: &ClusterState| state.map.is_serving(server);
        self.plan.health.is_usable(id) && self.cluster_state(pool).is_none_or(is_serving)
    }

    /// Returns whether servers of a pool that have keys are not asked because there is no room for
    /// them among the pool's servers.
    pub(in crate::core) fn leaves_out(&self, pool: u16) -> bool {
        self.cluster_state(pool).is_some_and(|state| state.map.count_without_index() > 0)
    }
}
