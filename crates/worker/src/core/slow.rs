//! Slow requests, for SLOWLOG.

use super::Plane;
use crate::PoolKind;
use keyway_base::{Key, Slab};
use keyway_proxy::{Owner, Session, Slow, SlowEntry, shown_args};

impl Plane {
    /// The id of the client that waits for a reply; `None` when there is none
    /// any more.
    #[cold]
    pub(super) fn client_of(&self, sessions: &Slab<Session>, owner: Owner) -> Option<u64> {
        Some(sessions.get(self.session_of(owner)?)?.identity.id)
    }

    /// The session that waits for a reply, or for a request to be over.
    pub(super) fn session_of(&self, owner: Owner) -> Option<Key<Session>> {
        match owner {
            Owner::Session { session, .. } | Owner::Unheard(session) => Some(session),
            Owner::Join { join, .. } => Some(self.joins.get(join)?.session),
            Owner::Errand(errand) => self.across.session_of(errand),
            Owner::Gather { gather, .. } => self.memcached.session_of_gather(gather),
            Owner::Warming { warming, .. } => self.memcached.session_of_warming(warming),
            Owner::Hedged { hedge, .. } => self.session_of(self.cluster.owner_of(hedge)?),
            Owner::Internal(_) | Owner::None => None,
        }
    }

    /// Adds a slow request to its pool's log.
    #[cold]
    pub(super) fn log_slow(&mut self, pool: u16, slow: Slow, client: Option<u64>) {
        let PoolKind::Sharded { slow_log, .. } = &self.plan.pools[pool as usize].kind else {
            return;
        };
        let entry = client.and_then(|id| self.plan.clients.get(id));
        let (addr, name) =
            entry.map_or_else(Default::default, |entry| (entry.addr.to_string(), entry.name));
        slow_log.add(SlowEntry {
            id: 0,
            unix_seconds: self.clock.unix_micros / 1_000_000,
            micros: slow.took.as_micros() as u64,
            args: shown_args(&slow.request),
            addr,
            name,
        });
    }
}
