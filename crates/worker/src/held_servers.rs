//! Servers of a cluster that an operator holds out of use, by their addresses.

use keyway_topology::Endpoint;
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// Most addresses that a pool remembers. A pool of fewer than 65,536 places never has as many
/// servers held at once; more would let an operator's script fill memory with servers that are gone.
pub(crate) const HELD_MAX: usize = 65_536;

/// The addresses of the servers of one pool that an operator has ejected. An address stays until
/// the operator restores it, also while no server of the pool has it.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<BTreeSet<Endpoint>>);

impl Holds {
    /// Calls `settle` with whether the server at an address is to be out of use. No operator
    /// changes that before `settle` has returned, so the board never keeps an older answer.
    pub(crate) fn settle(&self, endpoint: Option<&Endpoint>, settle: impl FnOnce(bool)) {
        let held = self.0.lock();
        settle(endpoint.is_some_and(|endpoint| held.contains(endpoint)));
    }

    /// Notes what an operator has said of an address, and has `follow` say it of a place. Returns
    /// whether that is new, of the address or by what `follow` returns.
    pub(crate) fn set(
        &self,
        endpoint: &Endpoint,
        is_held: bool,
        follow: impl FnOnce() -> bool,
    ) -> bool {
        let mut held = self.0.lock();
        let is_new = match is_held {
            true => held.len() < HELD_MAX && held.insert(endpoint.clone()),
            false => held.remove(endpoint),
        };
        follow() || is_new
    }

    pub(crate) fn endpoints(&self) -> Vec<Endpoint> {
        self.0.lock().iter().cloned().collect()
    }
}
