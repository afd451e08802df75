//! Servers that an operator has taken out of use. They stay out of use when the settings change.
//!
//! The board has servers by index, and a discovered server has no index until a server is asked. So
//! its pool remembers it by address as well, and a worker that gives the server an index takes it
//! out of use there.

use crate::{Cluster, Plan, Retired};
use keyway_topology::{BackendId, Endpoint};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Plan {
    /// Takes a server out of use by an operator's command, like
    /// [`HealthBoard::eject`](keyway_topology::HealthBoard::eject). It is also out of use for
    /// clients that are still in a replaced version of the pool. Returns whether it was in use.
    pub fn eject(&self, id: BackendId) -> bool {
        let is_new = match self.found_at(id) {
            Some((cluster, endpoint)) => {
                cluster.holds.set(&endpoint, true, || self.health.eject(id))
            }
            None => self.health.eject(id),
        };
        self.tell_replaced(id, true);
        is_new
    }

    /// Puts it back into use, for clients of replaced versions too. Returns whether it was out of
    /// use.
    pub fn restore(&self, id: BackendId) -> bool {
        let restore = || self.health.restore(id).is_some();
        let was_out = match self.found_at(id) {
            Some((cluster, endpoint)) => cluster.holds.set(&endpoint, false, restore),
            None => restore(),
        };
        self.tell_replaced(id, false);
        was_out
    }

    /// Applies an operator's decision about a server to the replaced versions of its pool that have
    /// not ended.
    fn tell_replaced(&self, id: BackendId, is_held: bool) {
        let Some(backend) = self.topology.backend(id) else { return };
        let endpoint = match self.found_at(id) {
            Some((_, endpoint)) => Some(endpoint),
            None => {
                let servers = self.topology.pools()[backend.pool_index].servers();
                servers.get(backend.server_index).map(|server| server.endpoint.clone())
            }
        };
        let Some(endpoint) = endpoint else { return };
        for pool in self.replaced_versions(backend.pool_index) {
            match self.cluster(pool) {
                Some(cluster) => _ = self.put_found(pool, cluster, &endpoint, is_held),
                None => {
                    for id in self.listed_at(pool, &endpoint) {
                        match is_held {
                            true => _ = self.health.eject(id),
                            false if self.health.is_held(id) => _ = self.health.restore(id),
                            false => {}
                        }
                    }
                }
            }
        }
    }

    /// Returns the indices of the earlier pools with a pool's name that have not ended.
    fn replaced_versions(&self, pool: usize) -> impl Iterator<Item = usize> {
        let pools = self.topology.pools();
        let name = &pools[pool].name;
        let is_of = move |it: &&Retired| {
            let is_left = it.left.load(Ordering::Acquire) > 0;
            is_left && pools[usize::from(it.pool)].name == Retired::name_of(name, it.generation)
        };
        self.retired.iter().filter(is_of).map(|it| usize::from(it.pool))
    }

    /// Returns the servers with an address in a pool whose servers are listed.
    fn listed_at(&self, pool: usize, endpoint: &Endpoint) -> Vec<BackendId> {
        let servers = self.topology.pools()[pool].servers();
        let ids = self.topology.backend_ids(pool).zip(servers);
        ids.filter(|(_, server)| server.endpoint == *endpoint).map(|(id, _)| id).collect()
    }

    /// Restores the server at an address that an operator has ejected and that may have left its
    /// cluster since: it is in use when it returns. Returns whether the pool held it.
    pub fn restore_absent(&self, pool: usize, address: &str) -> bool {
        let Ok(endpoint) = address.parse::<Endpoint>() else { return false };
        let mut was_held = false;
        for version in self.replaced_versions(pool).chain([pool]) {
            let Some(cluster) = self.cluster(version) else { continue };
            was_held = self.put_found(version, cluster, &endpoint, false);
        }
        was_held
    }

    /// Returns the servers that an operator has ejected: the pool's name and the address of each.
    pub fn held_servers(&self) -> Vec<(String, String)> {
        let mut held = Vec::new();
        for (index, pool) in self.topology.pools().iter().enumerate() {
            if self.retired(index as u16).is_some() {
                continue;
            }
            let endpoints: Vec<Endpoint> = match self.cluster(index) {
                Some(cluster) => cluster.holds.endpoints(),
                None => {
                    let ids = self.topology.backend_ids(index).zip(pool.servers());
                    let out = ids.filter(|(id, _)| self.health.is_held(*id));
                    out.map(|(_, server)| server.endpoint.clone()).collect()
                }
            };
            held.extend(endpoints.iter().map(|it| (pool.name.clone(), it.to_string())));
        }
        held
    }

    /// Returns the addresses of the servers of a pool that an operator has ejected and that have no
    /// index in it now, because it does not have them. They are out of use when they return.
    pub fn held_away(&self, pool: usize) -> Vec<String> {
        let Some(cluster) = self.cluster(pool) else { return Vec::new() };
        let (mut held, map) = (cluster.holds.endpoints(), cluster.map());
        held.retain(|endpoint| map.index_of(endpoint).is_none());
        held.iter().map(Endpoint::to_string).collect()
    }

    /// Ejects a server that the previous process had ejected by hand. Returns whether the pool
    /// exists and, if its servers are listed, has this server.
    pub fn hold(&self, pool: &str, address: &str) -> bool {
        let Ok(endpoint) = address.parse::<Endpoint>() else { return false };
        let mut named = self.topology.pools().iter().enumerate();
        let Some((index, _)) = named.find(|(_, known)| known.name == pool) else { return false };
        if let Some(cluster) = self.cluster(index) {
            self.put_found(index, cluster, &endpoint, true);
            return true;
        }
        let there = self.listed_at(index, &endpoint);
        for id in &there {
            self.health.eject(*id);
        }
        !there.is_empty()
    }

    /// Returns the shards that have lost their replicas: the pool's name and the address of the
    /// primary.
    pub fn unreplicated_shards(&self) -> Vec<(String, String)> {
        let mut shards = Vec::new();
        for (index, pool) in self.topology.pools().iter().enumerate() {
            let Some(cluster) = self.cluster(index) else { continue };
            if self.retired(index as u16).is_none() {
                let primaries = cluster.unreplicated_primaries();
                shards.extend(primaries.iter().map(|it| (pool.name.clone(), it.to_string())));
            }
        }
        shards
    }

    /// Notes that a shard had a replica when the previous process served, by the address of its
    /// primary. Servers that have left the pool since then change nothing.
    pub fn expect_replicas(&self, pool: &str, primary: &str) {
        let Ok(primary) = primary.parse::<Endpoint>() else { return };
        let index = self.topology.pools().iter().position(|known| known.name == pool);
        if let Some(cluster) = index.and_then(|index| self.cluster(index)) {
            cluster.expect_replicas(primary);
        }
    }

    /// Returns the cluster of a backend and its address, if servers are discovered.
    fn found_at(&self, id: BackendId) -> Option<(&Cluster, Endpoint)> {
        let backend = self.topology.backend(id)?;
        let cluster = self.cluster(backend.pool_index)?;
        let endpoint = cluster.map().node(backend.server_index)?.endpoint.clone();
        Some((cluster, endpoint))
    }

    /// Holds or restores the server at an address, at its index if it has one. A worker that gives
    /// the server an index later settles it there. Returns whether that changes anything.
    fn put_found(
        &self,
        pool: usize,
        cluster: &Cluster,
        endpoint: &Endpoint,
        is_held: bool,
    ) -> bool {
        let at = |server: u16| self.topology.backend_id(pool, usize::from(server));
        cluster.holds.set(endpoint, is_held, || match cluster.map().index_of(endpoint).map(at) {
            Some(id) if is_held => self.health.eject(id),
            Some(id) if self.health.is_held(id) => self.health.restore(id).is_some(),
            _ => false,
        })
    }

    pub(crate) fn cluster(&self, pool: usize) -> Option<&Cluster> {
        self.pools[pool].kind.cluster().map(Arc::as_ref)
    }

    /// Applies the operator's decisions for the pools in `old` to the pools that replace them,
    /// whose indices `heir_of` returns. It must be called again when no more decisions can be made
    /// there.
    pub fn follow_holds(&self, old: &Plan, heir_of: impl Fn(usize) -> Option<usize>) {
        for pool in 0..self.pools.len() {
            let Some(before) = heir_of(pool) else { continue };
            match (self.cluster(pool), old.cluster(before)) {
                (Some(_), Some(_)) => self.follow_found(pool, old, before),
                (None, None) => self.follow_listed(pool, old, before),
                _ => {}
            }
        }
    }

    fn follow_listed(&self, pool: usize, old: &Plan, before: usize) {
        let servers = |plan: &Plan, pool: usize| plan.topology.pools()[pool].servers().to_vec();
        let known = servers(old, before);
        for (id, server) in self.topology.backend_ids(pool).zip(servers(self, pool)) {
            let at = known.iter().position(|it| it.endpoint == server.endpoint);
            let Some(at) = at else { continue };
            let was_held = old.health.is_held(old.topology.backend_id(before, at));
            match (was_held, self.health.is_held(id)) {
                (true, false) => drop(self.health.eject(id)),
                (false, true) => drop(self.health.restore(id)),
                _ => {}
            }
        }
    }

    fn follow_found(&self, pool: usize, old: &Plan, before: usize) {
        let (Some(new), Some(old)) = (self.cluster(pool), old.cluster(before)) else { return };
        let (held, known) = (old.holds.endpoints(), new.holds.endpoints());
        let put = |endpoint: &Endpoint, is_held| _ = self.put_found(pool, new, endpoint, is_held);
        held.iter().filter(|it| !known.contains(it)).for_each(|it| put(it, true));
        known.iter().filter(|it| !held.contains(it)).for_each(|it| put(it, false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held_servers::Holds;

    #[test]
    fn an_address_stays_held_until_an_operator_restores_it() {
        let holds = Holds::default();
        let endpoint = |port| Endpoint::Tcp { host: "h".into(), port };
        let is_held = |port: Option<u16>| {
            let mut told = None;
            holds.settle(port.map(endpoint).as_ref(), |is_held| told = Some(is_held));
            told.expect("it is settled")
        };
        assert!(!is_held(Some(1)));
        assert!(holds.set(&endpoint(1), true, || false));
        assert!(!holds.set(&endpoint(1), true, || false), "it was held already");
        for _ in 0..3 {
            assert!(is_held(Some(1)), "however often it leaves and comes back");
            assert!(!is_held(None) && !is_held(Some(2)), "an index is free, or of another server");
        }
        assert_eq!(holds.endpoints(), [endpoint(1)]);
        assert!(holds.set(&endpoint(1), false, || false) && !is_held(Some(1)));
        assert!(!holds.set(&endpoint(1), false, || false));
        assert!(holds.set(&endpoint(1), false, || true), "an index was out of use");
    }
}
