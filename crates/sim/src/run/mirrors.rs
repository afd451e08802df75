//! The children of mirrors, at rest.

use super::*;
use std::collections::BTreeMap;

impl Sim {
    /// Checks that what no failure has hindered is the same in all children of a mirror.
    pub(super) fn check_mirrors(&mut self) {
        let World { ledger, servers, .. } = &mut *self.world.borrow_mut();
        let is_hindered = !self.scenario.faults.is_empty() || self.seats.len() > 1;
        // Requests in flight of a client that has left may arrive after requests that it sent again.
        if is_hindered || !self.scenario.clients.iter().all(|habits| habits.stays()) {
            return;
        }
        for pool in 0..self.scenario.topology.pools().len() {
            let Some(children) = ledger.mirrored(pool) else { continue };
            let asked: Vec<usize> = self.scenario.clients.iter().map(|it| it.pool).collect();
            if asked.iter().any(|asked| children.contains(asked)) {
                continue;
            }
            let held = |child: &usize| -> BTreeMap<Vec<u8>, Vec<u8>> {
                let own = ledger.servers_of(*child);
                own.into_iter().flat_map(|server| servers[server].items(0)).collect()
            };
            let held: Vec<_> = children.iter().map(held).collect();
            self.mirrored += held[0].len() as u64;
            if held.windows(2).any(|pair| pair[0] != pair[1]) {
                return ledger.fail(|| format!("the children of pool {pool} differ at rest"));
            }
        }
    }
}
