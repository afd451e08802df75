//! Servers that an operator has taken out of use: what is said of them goes on when the settings
//! change.
//!
//! The board says it by places, and a server that is found out has no place until somebody is
//! asked. So its pool remembers it by address as well, and whoever gives it a place takes it out
//! of use there.

use crate::{Cluster, Plan, PoolKind};
use keyway_topology::{BackendId, Endpoint};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Those of one pool, and which of the servers that had the place one after the other is meant;
/// `None` until it has one.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<BTreeMap<Endpoint, Option<u64>>>);

impl Holds {
    /// Whether who has come to a place with this tenure is to be out of use there.
    pub(crate) fn has(&self, endpoint: &Endpoint, tenure: u64) -> bool {
        let mut holds = self.0.lock();
        match holds.get_mut(endpoint) {
            None => false,
            Some(known) if known.is_none_or(|known| known == tenure) => {
                *known = Some(tenure);
                true
            }
            // It has left meanwhile.
            Some(_) => {
                holds.remove(endpoint);
                false
            }
        }
    }

    fn set(&self, endpoint: &Endpoint, tenure: Option<u64>, is_held: bool) {
        let mut holds = self.0.lock();
        match is_held {
            true => drop(holds.insert(endpoint.clone(), tenure)),
            false => drop(holds.remove(endpoint)),
        }
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        self.0.lock().keys().cloned().collect()
    }
}

impl Plan {
    /// Takes a server out of use on an operator's word, as
    /// [`HealthBoard::eject`](keyway_topology::HealthBoard::eject) does.
    pub fn eject(&self, id: BackendId) -> bool {
        self.note_hold(id, true);
        self.health.eject(id)
    }

    /// Puts it back into use. Returns whether it was out.
    pub fn restore(&self, id: BackendId) -> bool {
        self.note_hold(id, false);
        self.health.restore(id).is_some()
    }

    /// The servers that an operator has ejected: the pool's name and the address of each.
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

    /// Ejects a server that the previous process had ejected by hand. Returns whether the pool
    /// exists and, if its servers are listed, has this server.
    pub fn hold(&self, pool: &str, address: &str) -> bool {
        let Ok(endpoint) = address.parse::<Endpoint>() else { return false };
        let mut named = self.topology.pools().iter().enumerate();
        let Some((index, pool)) = named.find(|(_, known)| known.name == pool) else { return false };
        if let Some(cluster) = self.cluster(index) {
            // A worker that gives the server a place ejects it there.
            cluster.holds.set(&endpoint, None, true);
            let place = cluster.map().place_of(&endpoint);
            if let Some(place) = place {
                self.health.eject(self.topology.backend_id(index, usize::from(place)));
            }
            return true;
        }
        let ids = self.topology.backend_ids(index).zip(pool.servers());
        let there: Vec<BackendId> =
            ids.filter(|(_, server)| server.endpoint == endpoint).map(|(id, _)| id).collect();
        for id in &there {
            self.health.eject(*id);
        }
        !there.is_empty()
    }

    fn note_hold(&self, id: BackendId, is_held: bool) {
        let Some(backend) = self.topology.backend(id) else { return };
        let Some(cluster) = self.cluster(backend.pool_index) else { return };
        if let Some(node) = cluster.map().node(backend.server_index) {
            cluster.holds.set(&node.endpoint, Some(node.tenure), is_held);
        }
    }

    fn cluster(&self, pool: usize) -> Option<&Cluster> {
        match &self.pools[pool].kind {
            PoolKind::Sharded { cluster, .. } => cluster.as_deref(),
            _ => None,
        }
    }

    /// Says of the servers of pools that take the place of others in `old`, at the positions that
    /// `heir_of` tells, what an operator has said of them there. To be called again when
    /// nobody can say anything there any more.
    pub fn follow_holds(&self, old: &Plan, heir_of: impl Fn(usize) -> Option<usize>) {
        for pool in 0..self.pools.len() {
            let Some(before) = heir_of(pool) else { continue };
            match (self.cluster(pool), old.cluster(before)) {
                (Some(_), Some(_)) => self.follow_found(pool, (old, before)),
                (None, None) => self.follow_listed(pool, (old, before)),
                _ => {}
            }
        }
    }

    fn follow_listed(&self, pool: usize, (old, before): (&Plan, usize)) {
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

    fn follow_found(&self, pool: usize, (old, before): (&Plan, usize)) {
        let (Some(new), Some(old)) = (self.cluster(pool), old.cluster(before)) else { return };
        let (held, known) = (old.holds.endpoints(), new.holds.endpoints());
        let map = new.map();
        let put = |endpoint: &Endpoint, is_held: bool| {
            let place = map.place_of(endpoint);
            let tenure = place.and_then(|place| Some(map.node(usize::from(place))?.tenure));
            new.holds.set(endpoint, tenure, is_held);
            if let Some(place) = place {
                let id = self.topology.backend_id(pool, usize::from(place));
                match is_held {
                    true => drop(self.health.eject(id)),
                    false => drop(self.health.restore(id)),
                }
            }
        };
        held.iter().filter(|it| !known.contains(it)).for_each(|it| put(it, true));
        known.iter().filter(|it| !held.contains(it)).for_each(|it| put(it, false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_back_after_it_has_left_is_in_use() {
        let holds = Holds::default();
        let endpoint = |port| Endpoint::Tcp { host: "h".into(), port };
        assert!(!holds.has(&endpoint(1), 1));
        holds.set(&endpoint(1), None, true);
        assert!(holds.has(&endpoint(1), 4) && holds.has(&endpoint(1), 4), "by each worker");
        assert!(!holds.has(&endpoint(2), 4));
        assert!(!holds.has(&endpoint(1), 9) && holds.endpoints().is_empty());
        holds.set(&endpoint(1), Some(9), true);
        holds.set(&endpoint(1), None, false);
        assert!(!holds.has(&endpoint(1), 9));
    }
}
