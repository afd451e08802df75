//! The cluster of a scenario, and what is known of it at the end.

use super::*;
use crate::cluster::{ClusterSim, INDEX_EMPTY, INDEX_KEPT, NOBODY, SLOTS};
use keyway_topology::ClusterMap;
use std::collections::BTreeSet;

/// Makes the servers of the first pool those of a cluster.
pub(super) fn build(
    scenario: &Scenario,
    plan: &Plan,
    (network, servers, ledger): (&mut Network, &mut Vec<Server>, &mut Ledger),
    random: &mut Random,
) -> Option<Box<ClusterSim>> {
    let kind = &plan.pools[0].kind;
    let (cluster, events) = (kind.cluster()?.settings(), scenario.cluster.clone()?);
    let pool = &kind.upstream()?.servers;
    servers.clear();
    for (index, member) in events.members.iter().enumerate() {
        network.names.insert(format!("{}:{}", member.host, member.port), index);
        network.attempts_max[index] = scenario.attempts_max(pool);
        let password = pool.options.password.as_ref().map(|password| password.expose());
        let wishes = (None, scenario.knows_hello[0]);
        let server = Server::new((index, 0), 0, password, scenario.service, wishes, random.fork());
        servers.push(server);
    }
    if let Some(PoolKind::Sentinels(upstream)) = plan.pools.get(1).map(|pool| &pool.kind) {
        let pool = &upstream.servers;
        for address in &upstream.addresses {
            let index = servers.len();
            network.names.insert(address.to_string(), index);
            network.attempts_max[index] = scenario.attempts_max(pool);
            let wishes = (None, true);
            let service = scenario.service;
            servers.push(Server::new((index, 1), 0, None, service, wishes, random.fork()));
        }
    }
    let settles = events.longest_gossip() + SECOND / 20;
    ledger.know_cluster(cluster.redirections_max, settles, events.groups, events.shares_slots);
    Some(Box::new(ClusterSim::new(events, servers, network, random.fork())))
}

/// The primary that the workers use for each number, as an index into the list of its primaries.
#[derive(Default)]
pub(super) struct Followed {
    version: u64,
    reigns: Vec<usize>,
    /// Number of primaries that there had been when the workers were checked.
    seen: usize,
    /// True if old news has led workers to a primary that is a replica again.
    is_astray: Vec<bool>,
}

impl Sim {
    /// Checks that no worker returns to a primary that was replaced, whatever a sentinel reports
    /// that has not heard of it.
    pub(super) fn check_reigns(&mut self) -> Result<(), String> {
        let Some(shared) = self.plan.pools[self.cluster_position()].kind.cluster() else {
            return Ok(());
        };
        let count = |cluster: &ClusterSim| cluster.reigns().iter().map(Vec::len).sum();
        let seen: usize = self.world.borrow().cluster.as_deref().map_or(0, count);
        let is_new = shared.version() != self.followed.version;
        if !is_new && seen == self.followed.seen {
            return Ok(());
        }
        let map = shared.map();
        (self.followed.version, self.followed.seen) = (map.version(), seen);
        let endpoint = |number: usize| {
            let node = map.node(usize::from(map.primary(number as u16)?))?;
            Some(node.endpoint.to_string())
        };
        let followed = (0..map.primaries().len()).map(endpoint).collect();
        let world = &mut *self.world.borrow_mut();
        world.ledger.note_followed(followed);
        let Some(cluster) = &world.cluster else { return Ok(()) };
        let groups = cluster.reigns().len();
        self.followed.reigns.resize(groups, 0);
        self.followed.is_astray.resize(groups, false);
        for (number, (reigns, at)) in
            cluster.reigns().iter().zip(&mut self.followed.reigns).enumerate()
        {
            let Some(known) = endpoint(number) else { continue };
            let is_it = |&primary: &u16| cluster.address(primary) == known;
            // Without sentinels no server knows which primary came first, and a few may be wrong
            // together.
            let first = if cluster.outvotes_relapses(number) { *at } else { 0 };
            let Some(later) = reigns[first..].iter().position(is_it) else {
                return Err(format!("{known} is gone back to as primary {number}: {reigns:?}"));
            };
            let has_moved = first + later != *at;
            *at = first + later;
            let is_real = reigns.last().is_some_and(is_it);
            let was_astray = &mut self.followed.is_astray[number];
            let is_astray = !is_real && (*was_astray || has_moved);
            if is_astray != *was_astray {
                *was_astray = is_astray;
                let slots = (number..SLOTS).step_by(groups);
                slots.for_each(|slot| world.ledger.on_dispute(slot as u16, is_astray));
            }
        }
        Ok(())
    }

    /// Returns the index of the cluster's pool in the current settings.
    fn cluster_position(&self) -> usize {
        self.reloads.as_ref().map_or(0, |reloads| reloads.position_of(0))
    }

    fn cluster_map(&self) -> Option<Arc<ClusterMap>> {
        self.plan.pools[self.cluster_position()].kind.cluster().map(|cluster| cluster.map())
    }

    /// Returns the largest age of a view of the cluster.
    fn refresh(&self) -> Nanos {
        let cluster = self.plan.pools[self.cluster_position()].kind.cluster();
        cluster.map_or(0, |cluster| cluster.settings().refresh.as_nanos() as Nanos)
    }

    /// Compares the map with the cluster. The error names the first slot that differs.
    fn check_map(&self) -> Result<(), String> {
        let Some(map) = self.cluster_map() else { return Ok(()) };
        let world = self.world.borrow();
        let Some(cluster) = &world.cluster else { return Ok(()) };
        for (slot, &owner) in cluster.owners().iter().enumerate() {
            let index = match map.primaries().len() {
                0 => map.owners().of(slot as u16),
                count => map.primary((slot % count) as u16),
            };
            let known = index.and_then(|index| map.node(usize::from(index)));
            let known = known.map(|node| node.endpoint.to_string());
            let is_so = owner != NOBODY && known == Some(cluster.address(owner));
            if !is_so {
                let real = cluster.address(owner);
                return Err(format!("slot {slot} is of {real} and not of {known:?}"));
            }
        }
        Ok(())
    }

    /// Checks that the map is that of the cluster, and that nothing is left of servers that have
    /// left.
    pub(super) fn check_cluster(&mut self) -> Result<(), String> {
        if self.cluster_map().is_none() {
            return Ok(());
        }
        let is_crowded = self.world.borrow().cluster.as_ref().is_some_and(|it| it.was_crowded());
        let kept = if is_crowded { INDEX_KEPT + INDEX_EMPTY } else { INDEX_KEPT };
        if self.reloads.is_some() || is_crowded {
            // A pool that has just been replaced continues with the map of the one before, and no
            // client may ask it for anything. Its view is as old as a refresh allows. A server that
            // was left out may have slots.
            let waits = if is_crowded { kept } else { SECOND };
            let until = self.now() + 2 * self.refresh() + waits;
            self.run_until(|sim, now| now >= until || sim.check_map().is_ok())?;
        }
        self.check_map()?;
        let until = self.now() + kept + 2 * self.refresh();
        self.run_until(|_, now| now >= until)?;
        let Some(map) = self.cluster_map() else { return Ok(()) };
        let world = self.world.borrow();
        let Some(cluster) = &world.cluster else { return Ok(()) };
        let known: BTreeSet<String> =
            map.nodes().map(|(_, node)| node.endpoint.to_string()).collect();
        // Not every server reports primaries without slots.
        let (real, serving) = (cluster.addresses(false), cluster.addresses(true));
        if !known.is_subset(&real) || !known.is_superset(&serving) {
            return Err(format!("server indices for {known:?}, and the cluster has {real:?}"));
        }
        for server in cluster.gone() {
            let count = world.servers[server].connections();
            if count > 0 {
                return Err(format!("{count} connections to server {server}, which has left"));
            }
        }
        Ok(())
    }

    /// Returns the number of questions about the cluster that may be in flight at any time: those
    /// of each worker. Their answers arrive in many small pieces.
    pub(super) fn cluster_questions(&self) -> usize {
        let asks = self.world.borrow().cluster.is_some();
        let plan = self.scenario.cluster.as_ref();
        let of_sentinels = plan.map_or(0, |plan| 3 * plan.groups * plan.sentinels);
        if asks { 4 * self.scenario.server_count() + 24 + of_sentinels } else { 0 }
    }
}
