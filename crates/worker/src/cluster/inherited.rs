//! A pool that a reload has replaced by another one with the same servers: the new pool continues
//! with what was discovered. Otherwise requests would fail until a server is asked, and a sentinel
//! that has missed a fail-over would be believed again.

use super::Cluster;
use crate::Plan;
use keyway_topology::Endpoint;
use std::sync::atomic::Ordering::{Relaxed, Release};

impl Plan {
    /// Lets pools continue with what the pools in `old` that they replace knew of the same servers.
    /// `heir_of` returns the index of the pool that the one at an index replaces. It must be called
    /// before any worker follows this plan.
    pub fn follow_maps(&self, old: &Plan, heir_of: impl Fn(usize) -> Option<usize>) {
        for pool in 0..self.pools.len() {
            let Some(before) = heir_of(pool) else { continue };
            let (Some(new), Some(was)) = (self.cluster(pool), old.cluster(before)) else {
                continue;
            };
            // A server reports other ports to clients with TLS.
            let has_tls = |plan: &Plan, pool: usize| plan.pools[pool].kind.tls().is_some();
            let is_alike = has_tls(self, pool) == has_tls(old, before)
                && self.sentinels_of(new) == old.sentinels_of(was);
            if is_alike && new.finds_out_as(was) {
                new.inherit(was);
            }
        }
    }

    /// Returns the addresses of the sentinels that a cluster asks, if it asks any.
    fn sentinels_of(&self, cluster: &Cluster) -> Vec<Endpoint> {
        let Some(name) = cluster.sentinels() else { return Vec::new() };
        let pool = self.topology.pools().iter().find(|pool| pool.name == name);
        let servers = pool.into_iter().flat_map(|pool| pool.servers());
        servers.map(|server| server.endpoint.clone()).collect()
    }
}

impl Cluster {
    /// Returns whether both ask the same servers about the same primaries, and have the same number
    /// of indices.
    fn finds_out_as(&self, other: &Cluster) -> bool {
        let (own, its) = (&self.settings, &other.settings);
        own.seeds == its.seeds
            && own.nodes_max == its.nodes_max
            && self.source == other.source
            && self.lags.len() == other.lags.len()
    }

    /// Continues with what another one knows. Servers are asked again at once.
    fn inherit(&self, old: &Cluster) {
        let known = old.map.lock();
        *self.map.lock() = (*known).clone();
        self.version.store(known.version(), Release);
        self.logged.lock().clone_from(&old.logged.lock());
        self.stale_views.lock().clone_from(&old.stale_views.lock());
        drop(known);
        self.redundancy.lock().inherit(&old.redundancy.lock());
        self.histories.lock().clone_from(&old.histories.lock());
        self.lags_asked.store(old.lags_asked.load(Relaxed), Relaxed);
        for (own, its) in self.lags.iter().zip(&old.lags) {
            own.store(its.load(Relaxed), Relaxed);
        }
        for (own, its) in self.lags_told.iter().zip(&old.lags_told) {
            own.store(its.load(Relaxed), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Speaker, ViewUpdate};
    use super::*;
    use keyway_base::Time;
    use keyway_topology::{Discovery, GroupView, PrimarySource, ReplicatedPool};

    fn endpoint(port: u16) -> Endpoint {
        Endpoint::Tcp { host: "h".into(), port }
    }

    fn cluster(seed: u16) -> Cluster {
        let source = PrimarySource::Sentinels {
            pool: "pool/sentinels".to_owned(),
            primaries: vec!["main".to_owned()],
        };
        let discovery = Discovery::new(vec![endpoint(seed)], 4);
        Cluster::of_primaries(&ReplicatedPool::new(source, discovery))
    }

    fn told(port: u16, epoch: u64) -> GroupView {
        let replicas = Vec::new();
        GroupView { group: 0, primary: endpoint(port), epoch: Some(epoch), replicas }
    }

    #[test]
    fn a_pool_that_replaces_another_knows_its_primaries_and_believes_no_earlier_epoch() {
        let late = Speaker { server: 0, of: 3, times: 2 };
        let (old, new) = (cluster(1), cluster(1));
        assert!(matches!(old.learn_group(&told(1, 5), late, Time(1)), ViewUpdate::New(_)));
        assert!(matches!(old.learn_group(&told(2, 6), late, Time(2)), ViewUpdate::New(_)));
        assert!(new.finds_out_as(&old) && !new.map().is_known());
        new.inherit(&old);
        assert!(matches!(new.learn_group(&told(1, 5), late, Time(3)), ViewUpdate::Stale));
        let map = new.map();
        assert_eq!((new.version(), map.version()), (old.version(), old.version()));
        let primary = map.primary(0).and_then(|server| map.node(usize::from(server)));
        assert_eq!(primary.map(|node| &node.endpoint), Some(&endpoint(2)));
        assert!(matches!(new.learn_group(&told(2, 6), late, Time(3)), ViewUpdate::Same));
    }

    #[test]
    fn a_pool_that_asks_other_servers_asks_them_first() {
        assert!(!cluster(1).finds_out_as(&cluster(2)));
    }
}
