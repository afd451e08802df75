//! The state that a worker holds about clients that are told which keys have changed.

use crate::core::ConnectionKey;
use keyway_base::{BackendFault, Key, Time};
use keyway_proxy::Session;
use std::collections::{BTreeMap, BTreeSet};

/// The tracked sessions of a worker.
#[derive(Default)]
pub(crate) struct State {
    /// Sessions with links of their own, by the bits of their keys.
    pub(in crate::core::pools::servers::tracking) tracked: BTreeSet<u64>,
    /// The argument of `CLIENT CACHING` for the request that is being started.
    pub(in crate::core) caching: Option<&'static str>,
    /// Sessions that are to forget all keys, and to do so once more when the replies now on their
    /// way have come.
    pub(in crate::core::pools::servers::tracking) forgets: Vec<(Key<Session>, bool)>,
    /// Other workers may have put something into the inbox.
    pub(crate) has_mail: bool,
    /// The sessions to which the messages of other clients are redirected, by client id.
    pub(in crate::core::pools::servers::tracking) targets: BTreeMap<u64, Key<Session>>,
    /// Links that end because another did, with their generation.
    pub(in crate::core::pools::servers::tracking) losses: Vec<(ConnectionKey, u32, BackendFault)>,
    /// When links on which nothing moves are asked for a sign.
    pub(in crate::core::pools::servers::tracking) next_ping: Time,
}

impl State {
    /// Has a session told at the end of the turn that everything may have
    /// changed; with `twice`, again when what it has asked for is answered.
    pub(in crate::core::pools::servers::tracking) fn forget(
        &mut self,
        key: Key<Session>,
        twice: bool,
    ) {
        self.forgets.push((key, twice));
    }

    /// Number of sessions that are to be told something.
    pub(in crate::core) fn untold(&self) -> usize {
        self.forgets.len() + self.losses.len()
    }

    /// How many sessions have links of their own.
    pub(in crate::core) fn tracked_len(&self) -> usize {
        self.tracked.len()
    }

    /// Returns whether there is something to do before the worker sleeps.
    pub(crate) fn has_work(&self) -> bool {
        self.has_mail || !self.forgets.is_empty() || !self.losses.is_empty()
    }
}
