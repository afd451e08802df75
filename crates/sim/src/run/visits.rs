//! Clients that leave in the middle of a request, and what they must not leave behind.

use super::*;
use crate::scenario::START;
use crate::visitor::{Place, Tongue, Visitor};
use keyway_memcache::Dialect;
use keyway_topology::{Pool, PoolKind as TopologyKind};
use std::collections::BTreeSet;

/// Visitors start within this span.
const VISITS_WITHIN: Nanos = 4 * SECOND;

/// Returns what visitors of a pool find there.
fn place(scenario: &Scenario, index: usize, pool: &Pool) -> Place {
    let tongue = match &pool.kind {
        TopologyKind::Store => Tongue::Redis { is_store: true, hears: true, tracks: true },
        // No scenario leads to anything but servers that use the text protocol.
        TopologyKind::Routed(_) => Tongue::Memcached { all: true },
        TopologyKind::Memcached(pool) => Tongue::Memcached { all: pool.dialect == Dialect::Text },
        TopologyKind::Sharded(_)
        | TopologyKind::Cluster(_)
        | TopologyKind::Replicated(_)
        | TopologyKind::Slots(_)
        | TopologyKind::Sentinels(_) => {
            let hears = scenario.cluster.is_none();
            Tongue::Redis { is_store: false, hears, tracks: hears && scenario.knows_hello[index] }
        }
    };
    let password = scenario.passwords[index].clone();
    Place { listener: index as u16, tongue, password, value_len: scenario.value_len_max }
}

/// Creates the visitors of a run. They have a sequence of their own: everything else is drawn as
/// without them.
pub(super) fn visitors(scenario: &Scenario, seed: u64, first: usize) -> Vec<Visitor> {
    let mut random = Random::new(seed ^ 0x7669_7369_746f_7273);
    let pools = scenario.topology.pools();
    // Some pools have no clients: those of sentinels.
    let asked: BTreeSet<usize> = scenario.clients.iter().map(|habits| habits.pool).collect();
    let asked: Vec<usize> = asked.into_iter().collect();
    (0..scenario.visitors)
        .map(|nth| {
            let pool = random.pick(&asked);
            Visitor::new(first + nth, place(scenario, pool, &pools[pool]), random.fork())
        })
        .collect()
}

/// Schedules when each of them comes.
pub(super) fn wake(network: &mut Network, seed: u64, visitors: std::ops::Range<usize>) {
    let mut random = Random::new(seed ^ 0x7761_6b65_7570);
    for index in visitors {
        network.wake_client(index, START + random.below(VISITS_WITHIN));
    }
}

impl Sim {
    /// Checks that no visitor waits too long for the end of its connection.
    pub(super) fn check_visitors(&self) -> Result<(), String> {
        let world = self.world.borrow();
        let now = world.network.now;
        let waits = |visitor: &&Visitor| {
            let since = visitor.waiting_since();
            since.is_some_and(|since| now > since.max(self.calm_from) + PATIENCE)
        };
        match world.visitors.iter().position(|visitor| waits(&visitor)) {
            None => Ok(()),
            Some(nth) => {
                let left: Vec<_> = (0..self.seats.len()).map(|at| self.leftovers(at)).collect();
                Err(format!("visitor {nth} has ended and is not left: {left:?}"))
            }
        }
    }

    fn leftovers(&self, index: usize) -> Option<keyway_worker::Leftovers> {
        Some(self.seats[index].worker.as_ref()?.leftovers())
    }

    /// Checks that nothing is left of clients in any worker when every client has left.
    pub(super) fn check_leftovers(&self) -> Result<(), String> {
        for index in 0..self.seats.len() {
            let left = self.leftovers(index).filter(|left| !left.is_empty());
            if let Some(left) = left {
                return Err(format!("worker {index} has something left of nobody: {left:?}"));
            }
        }
        self.check_shared_leftovers()
    }

    /// Checks the same for what workers share.
    pub(super) fn check_shared_leftovers(&self) -> Result<(), String> {
        let plan = &self.plan;
        let stores = plan.pools.iter().filter_map(|pool| match &pool.kind {
            PoolKind::Store(store) => Some(store.waiting_len() + store.watched_len()),
            _ => None,
        });
        let at_listeners = plan.listeners.iter().map(|it| it.access.tally.connected() as usize);
        // Indices of the current plan: reloads move pools. One that has ended has no client.
        let pools = 0..plan.pools.len();
        let counted = pools.map(|pool| self.registry.pool_totals(pool).clients_connected as usize);
        let left = [
            ("clients listed", plan.clients.len()),
            ("clients blocked", plan.clients.blocked_len()),
            ("clients at listeners", at_listeners.sum()),
            ("clients counted", counted.sum()),
            ("bytes of transactions", plan.transactions.taken() as usize),
            ("names subscribed to", plan.channels.len()),
            ("readers of stores", plan.invalidations.len()),
            ("waiters and watches of stores", stores.sum()),
            ("questions about servers of another plan", plan.health.strangers() as usize),
        ];
        match left.iter().find(|(_, count)| *count > 0) {
            Some((what, count)) => Err(format!("{count} {what}, of nobody")),
            None => Ok(()),
        }
    }
}
