//! The state of a worker for clients that track keys.

use keyway_base::{BackendFault, Key, Time};
use keyway_proxy::ConnectionKey;
use keyway_proxy::Session;
use std::collections::{BTreeMap, BTreeSet};

/// The tracked sessions of a worker.
#[derive(Default)]
pub(crate) struct State {
    /// Sessions with links of their own, by the bits of their keys.
    pub(super) tracked: BTreeSet<u64>,
    /// The argument of `CLIENT CACHING` for the request that is being started.
    pub(in crate::core) caching: Option<&'static str>,
    /// Sessions that must forget all keys, and whether to do so once more when the replies now in
    /// flight have arrived.
    pub(super) forgets: Vec<(Key<Session>, bool)>,
    /// True if other workers may have put something into the inbox.
    pub(crate) has_mail: bool,
    /// The sessions to which the messages of other clients are redirected, by client id.
    pub(super) targets: BTreeMap<u64, Key<Session>>,
    /// Links that end because another link did, with their generation.
    pub(super) losses: Vec<(ConnectionKey, u32, BackendFault)>,
    /// The next time at which idle links are asked for a sign.
    pub(super) next_ping: Time,
}

impl State {
    /// Tells a session at the end of the turn that everything may have changed. With `twice`, it is
    /// told again when its requests in flight are answered.
    pub(super) fn forget(&mut self, key: Key<Session>, twice: bool) {
        self.forgets.push((key, twice));
    }

    /// Returns the number of sessions that must be told something.
    pub(in crate::core) fn untold(&self) -> usize {
        self.forgets.len() + self.losses.len()
    }

    /// Returns the number of sessions with links of their own.
    pub(in crate::core) fn tracked_len(&self) -> usize {
        self.tracked.len()
    }

    /// Returns whether there is something to do before the worker sleeps.
    pub(crate) fn has_work(&self) -> bool {
        self.has_mail || !self.forgets.is_empty() || !self.losses.is_empty()
    }
}

/// The purpose of a link that a session has as long as it is tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Role {
    /// The session's requests go on it. Invalidations come on it, or on `receiver` if there is one.
    Requests {
        /// The link for invalidations.
        receiver: Option<ConnectionKey>,
    },
    /// The session's invalidations come on it, because its requests go on a link with RESP2.
    Receiver {
        /// The link for the session's requests.
        of: ConnectionKey,
    },
}
