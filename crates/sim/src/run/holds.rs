//! An operator ejects servers by hand between reloads, and restores them.
//!
//! A server that was ejected by hand stays ejected over reloads, by its address, for as long as its
//! pool has it, until it is restored. It gets no requests meanwhile.

use super::*;
use crate::network::MILLI;
use keyway_topology::{BackendId, Pool, PoolKind as TopologyKind};
use std::collections::BTreeSet;

/// Of a hundred seeds with reloads, the number that have an operator.
const SHARE: u64 = 50;
/// How long requests may fail because keys have moved.
const UNREST: Nanos = SECOND;

/// The acts of an operator.
pub(super) struct Holds {
    random: Random,
    next_at: Nanos,
    /// Indices in the scenario of the pools whose servers are ejected.
    pools: Vec<usize>,
    /// The names of the pools and the addresses of the servers that are ejected.
    held: BTreeSet<(String, String)>,
}

impl Holds {
    /// Draws what `seed` decides, for a seed with reloads.
    pub(super) fn draw(seed: u64, options: &Options, scenario: &Scenario) -> Option<Self> {
        let mut random = Random::new(seed ^ 0x686f_6c64);
        let is_drawn = random.percent(SHARE);
        let is_plain = scenario.cluster.is_none() && !options.routes && !options.warm_up;
        if !options.holds.unwrap_or(is_drawn) || !is_plain || scenario.has_mutes {
            return None;
        }
        let pools = scenario.topology.pools().iter().enumerate();
        let pools = pools.filter(|(_, pool)| may_hold(pool)).map(|(index, _)| index).collect();
        let next_at = SECOND + random.below(SECOND);
        Some(Self { random, next_at, pools, held: BTreeSet::new() })
    }

    /// Returns the scenario's pools whose servers may be ejected.
    pub(super) fn pools(&self) -> &[usize] {
        &self.pools
    }

    /// Keeps the servers that stay ejected in the next version of the settings.
    pub(super) fn follow(&mut self, plan: &Plan) {
        let pools = plan.topology.pools();
        let lists = |(name, address): &(String, String)| {
            let pool = pools.iter().find(|pool| pool.name == *name);
            pool.is_some_and(|pool| addresses(pool).contains(address))
        };
        self.held.retain(lists);
    }
}

/// Returns whether servers of a pool may be ejected. Others have their keys meanwhile, and a server
/// that returns may have its old data.
fn may_hold(pool: &Pool) -> bool {
    let is_listed = matches!(pool.kind, TopologyKind::Sharded(_) | TopologyKind::Memcached(_));
    let is_flushed = pool.ejection().is_some_and(|it| it.rejoin == Rejoin::Flush);
    is_listed && !is_flushed && pool.servers().len() > 1
}

fn addresses(pool: &Pool) -> Vec<String> {
    pool.servers().iter().map(|server| server.endpoint.to_string()).collect()
}

impl Sim {
    /// Lets the operator act, if it is time. With `is_over`, all servers are restored.
    pub(super) fn hold_servers(&mut self, (holds, own): (&mut Holds, &[usize]), is_over: bool) {
        let now = self.now();
        let followers = self.plan.followers.load(Ordering::Acquire);
        // The operator's commands apply only to the current settings.
        let is_followed = self.plan.generation == 1 || followers == self.seats.len();
        if now < holds.next_at || !is_followed {
            return;
        }
        if is_over {
            for (name, address) in std::mem::take(&mut holds.held) {
                self.restore(own, &name, &address);
            }
            holds.next_at = Nanos::MAX;
            return;
        }
        holds.next_at = now + holds.random.scaled(5 * MILLI, 800 * MILLI);
        let plan = Arc::clone(&self.plan);
        let pools = plan.topology.pools();
        let may_be = |&position: &usize| {
            let is_chosen = holds.pools.iter().any(|&pool| own[pool] == position);
            let is_neighbour = !own.contains(&position);
            let is_live = plan.retired(position as u16).is_none();
            is_live && may_hold(&pools[position]) && (is_chosen || is_neighbour)
        };
        let positions: Vec<usize> = (0..pools.len()).filter(may_be).collect();
        if positions.is_empty() {
            return;
        }
        let position = holds.random.pick(&positions);
        let (name, all) = (pools[position].name.clone(), addresses(&pools[position]));
        let address = all[holds.random.index(all.len())].clone();
        let place = (name.clone(), address.clone());
        let held = holds.held.iter().filter(|(pool, _)| *pool == name).count();
        if holds.held.remove(&place) {
            self.restore(own, &name, &address);
        } else if held + 1 < all.len() {
            let id = id_of(&plan, &name, &address).expect("a server that is listed");
            plan.eject(id);
            self.note_hold(own, (position, &address), true);
            holds.held.insert(place);
        }
    }

    fn restore(&mut self, own: &[usize], name: &str, address: &str) {
        let plan = Arc::clone(&self.plan);
        let Some(id) = id_of(&plan, name, address) else { return };
        plan.restore(id);
        let position = plan.topology.backend(id).expect("a server of the plan").pool_index;
        self.note_hold(own, (position, address), false);
    }

    /// Notes a hold in the ledger.
    fn note_hold(&mut self, own: &[usize], (position, address): (usize, &str), is_held: bool) {
        let World { network, ledger, .. } = &mut *self.world.borrow_mut();
        let now = network.now;
        network.tell(|| format!("by hand: {address} is out of use: {is_held}"));
        let Some(pool) = own.iter().position(|&own| own == position) else { return };
        let listed = addresses(&self.scenario.topology.pools()[pool]);
        let Some(at) = listed.iter().position(|it| it == address) else { return };
        ledger.on_hold((pool, at), is_held, (now, now + UNREST));
    }

    /// Checks that the servers that an operator has ejected are out of use, and no others by hand.
    pub(super) fn check_holds(&self) -> Result<(), String> {
        let Some(holds) = self.reloads.as_deref().and_then(|reloads| reloads.holds.as_ref()) else {
            return Ok(());
        };
        let held: BTreeSet<_> = self.plan.held_servers().into_iter().collect();
        match held == holds.held {
            true => Ok(()),
            false => {
                let wanted = &holds.held;
                Err(format!("ejected by hand are {held:?}, and should be {wanted:?}"))
            }
        }
    }
}

/// Returns a server of the current settings by its pool's name and its address.
fn id_of(plan: &Plan, name: &str, address: &str) -> Option<BackendId> {
    let pools = plan.topology.pools();
    let position = pools.iter().position(|pool| pool.name == name)?;
    let at = addresses(&pools[position]).iter().position(|it| it == address)?;
    Some(plan.topology.backend_id(position, at))
}
