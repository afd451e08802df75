//! Servers of a cluster that an operator holds out of use, by their addresses.

use keyway_topology::Endpoint;
use parking_lot::Mutex;
use std::collections::BTreeSet;

/// Largest number of addresses that a pool remembers. A pool has fewer than 65,536 indices, so it
/// never has as many held servers at once. With more, an operator's script could fill memory with
/// servers that are gone.
pub(crate) const HELD_MAX: usize = 65_536;

/// The addresses of the servers of one pool that an operator has ejected. An address stays until
/// the operator restores it, even while no server of the pool has it.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<BTreeSet<Endpoint>>);

impl Holds {
    /// Calls `settle` with whether the server at an address must be out of use. No operator changes
    /// that before `settle` has returned, so the board never keeps an older answer.
    pub(crate) fn settle(&self, endpoint: Option<&Endpoint>, settle: impl FnOnce(bool)) {
        let held = self.0.lock();
        settle(endpoint.is_some_and(|endpoint| held.contains(endpoint)));
    }

    /// Notes an operator's decision about an address, and lets `follow` apply it to an index.
    /// Returns whether it is new, for the address or according to `follow`.
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
