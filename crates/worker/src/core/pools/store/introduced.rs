//! Clients that have announced that they are replicas, and those that become one in this turn.

use indexmap::IndexMap;
use keyway_base::Key;
use keyway_proxy::Session;
use keyway_rdb::replication::{ReplicaProfile, Request};

/// Clients of a worker that are about to become replicas.
#[derive(Default)]
pub(crate) struct Introduced {
    /// The facts that clients have announced, by client.
    profiles: IndexMap<u64, Box<ReplicaProfile>, foldhash::fast::RandomState>,
    /// Clients whose sockets are to be handed over.
    pub(crate) departing: Vec<Departing>,
}

/// A client whose socket is to be handed over once its replies are sent.
#[derive(Clone, Copy)]
pub(crate) struct Departing {
    pub(crate) session: Key<Session>,
    pub(crate) client: u64,
    pub(crate) request: Request,
}

impl Introduced {
    /// Returns whether there is a client to hand over.
    #[inline]
    pub(crate) fn has_departing(&self) -> bool {
        !self.departing.is_empty()
    }

    /// Returns whether a client has announced anything.
    #[inline]
    pub(crate) fn has(&self, client: u64) -> bool {
        !self.profiles.is_empty() && self.profiles.contains_key(&client)
    }

    /// Returns the facts that a client has announced, to be added to.
    pub(super) fn profile(&mut self, client: u64) -> &mut ReplicaProfile {
        self.profiles.entry(client).or_default()
    }

    /// Takes the facts that a client has announced.
    pub(crate) fn take(&mut self, client: u64) -> ReplicaProfile {
        self.profiles.swap_remove(&client).map_or_else(ReplicaProfile::default, |it| *it)
    }

    /// Forgets a client that has left.
    #[inline]
    pub(in crate::core) fn forget(&mut self, client: u64) {
        if !self.profiles.is_empty() {
            self.profiles.swap_remove(&client);
        }
    }

    /// Returns the number of clients.
    pub(in crate::core) fn len(&self) -> usize {
        self.profiles.len() + self.departing.len()
    }
}
