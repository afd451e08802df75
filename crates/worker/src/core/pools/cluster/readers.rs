//! Chooses the server for a read, where replicas may be read.

use super::ClusterState;
use crate::Plan;
use crate::core::pools::FoundState;
use crate::core::pools::cluster::replicas::Look;
use crate::core::pools::cluster::replicas::Reader;
use crate::core::pools::cluster::replicas::Readers;
use crate::core::pools::cluster::replicas::ReplicaStatus;
use crate::core::pools::cluster::replicas::USERS;
use crate::core::request::RequestContext;
use crate::core::{Connection, ConnectionKey, Connections, Plane};
use keyway_base::Time;
use keyway_command::{Flags, Request, Verb};
use keyway_proxy::{Busy, Session};
use keyway_topology::{BackendId, ReadFrom};
use std::time::Duration;

/// The current facts about a pool's servers.
pub(super) struct LookOf<'l> {
    pub(super) plan: &'l Plan,
    pub(super) state: &'l FoundState,
    pub(super) links: &'l Connections,
    pub(super) pool: u16,
    pub(super) primary: u16,
    pub(super) lane: u32,
    pub(super) now: Time,
    pub(super) lag_max: Option<Duration>,
    /// The status of a server that said of late that it cannot answer yet.
    pub(super) unready: ReplicaStatus,
}

impl LookOf<'_> {
    #[inline]
    fn slot(&self, server: u16) -> &Connection {
        &self.links[self.state.servers.link(server, self.lane, keyway_resp::Protocol::Resp2)]
    }

    #[inline]
    fn id(&self, server: u16) -> BackendId {
        self.plan.topology.backend_id(usize::from(self.pool), usize::from(server))
    }

    /// Returns whether a replica's data is not too old.
    fn is_near(&self, server: u16, max: Duration) -> bool {
        server == self.primary || self.state.cluster.shared.is_within(server, max)
    }
}

impl Look for LookOf<'_> {
    #[inline]
    fn status(&self, server: u16) -> ReplicaStatus {
        let (health, id, connection) = (&self.plan.health, self.id(server), self.slot(server));
        let is_fit = health.is_usable(id)
            && !connection.link.is_down(self.now)
            && self.lag_max.is_none_or(|max| self.is_near(server, max));
        match is_fit {
            false => ReplicaStatus::Unfit,
            true if health.is_unready(id, self.now) => self.unready,
            true if !connection.is_watched => ReplicaStatus::In,
            true if !health.circuits().admits(id, self.now) => ReplicaStatus::Unfit,
            true if health.reads().is_out(id, self.now) => ReplicaStatus::Out,
            true => ReplicaStatus::In,
        }
    }

    #[inline]
    fn cost(&self, server: u16) -> u64 {
        self.plan.health.reads().cost(self.id(server), self.slot(server).link.live())
    }

    fn claim_try(&self, server: u16) -> bool {
        self.plan.health.reads().claim_try(self.id(server), self.now)
    }
}

impl Plane {
    /// Returns whether a request may be answered by a replica. Notes a request that writes.
    #[inline]
    pub(in crate::core) fn reads_replicas(&self, incoming: &mut RequestContext) -> bool {
        match self.pools[usize::from(incoming.session.pool)].readers() {
            Some(readers) => may_read(readers, incoming, self.clock.now),
            None => false,
        }
    }

    /// Notes that a session has sent a request that may write, in another way than ordinary
    /// requests.
    #[inline]
    pub(in crate::core) fn note_write(&self, session: &mut Session, busy: &Busy) {
        if let Some(readers) = self.pools[usize::from(session.pool)].readers() {
            session.identity.wrote_at = self.clock.now;
            if let Some(pin) = readers.policy.pin_after_write {
                session.identity.pin_for(pin, busy.order.next_index(), self.clock.now);
            }
        }
    }

    /// Returns the server for a read that the server at `primary` could answer as well.
    pub(in crate::core) fn reader_of(
        &mut self,
        links: &Connections,
        session: &Session,
        primary: u16,
    ) -> Reader {
        let (now, pool) = (self.clock.now, session.pool);
        let Plane { pools, plan, .. } = self;
        let Some(state) = pools[usize::from(pool)].found_mut() else {
            return Reader::Primary;
        };
        let Some(mut readers) = state.readers.take() else { return Reader::Primary };
        let lag_max = readers.policy.lag_max;
        let lane = session.lane;
        let unready = readers.of(chooser_of(session)).unready();
        let look = LookOf { plan, state, links, pool, primary, lane, now, lag_max, unready };
        let reader = readers.of_mut(chooser_of(session)).pick(primary, &look);
        state.readers = Some(readers);
        let chosen = match reader {
            Reader::Primary => primary,
            Reader::At(server) => server,
            Reader::None => return reader,
        };
        let cells = self.cells.backend(pool, chosen);
        cells.reads_chosen.add(1);
        reader
    }

    /// Sets the mode of a link for the next request: the server is to answer from its copies of
    /// other servers' slots, or only for its own slots.
    pub(in crate::core) fn set_reading(
        &mut self,
        links: &mut Connections,
        index: ConnectionKey,
        reads: bool,
    ) {
        let connection = &mut links[index];
        let has_room = connection.link.has_room(self.link_options(connection.server_id.pool));
        if has_room
            && !connection.link.is_down(self.clock.now)
            && self.knows_modes(connection.server_id.pool)
        {
            connection.link.read_replica(reads, self.clock.now);
        }
    }

    /// Returns whether replicas of a pool answer reads only when they are told to.
    fn knows_modes(&self, pool: u16) -> bool {
        self.cluster_state(pool).is_some_and(ClusterState::has_slots)
    }
}

/// Returns the number of the settings that count for a session: those of its user if it has some,
/// otherwise those of its listener. A sub-request has none.
pub(super) fn chooser_of(session: &Session) -> u16 {
    if session.sub_request.is_some() {
        return u16::MAX;
    }
    let of_user = session.identity.user.as_ref().and_then(|user| user.reads());
    of_user.map_or(session.listener, |at| USERS + at)
}

/// Returns whether the request of a session may be answered by a replica.
fn may_read(readers: &Readers, incoming: &mut RequestContext, now: Time) -> bool {
    let Request { command, .. } = incoming.request;
    if !command.flags.contains(Flags::READONLY) {
        if command.flags.contains(Flags::WRITE) {
            incoming.session.identity.wrote_at = now;
            if let Some(pin) = readers.policy.pin_after_write {
                incoming.session.identity.pin_for(pin, incoming.busy.order.next_index(), now);
            }
        }
        return false;
    }
    // A cursor is valid only at the server that gave it.
    if matches!(command.verb, Verb::Hscan | Verb::Sscan | Verb::Zscan) {
        return false;
    }
    let readers = readers.of(chooser_of(incoming.session));
    if readers.policy.from == ReadFrom::Primary {
        return false;
    }
    // A read under WATCH has to see the data that EXEC will find.
    let watches =
        incoming.session.stateful.as_ref().is_some_and(|stateful| stateful.watch.is_some());
    let is_for_primary =
        watches || readers.policy.primary_commands.iter().any(|name| **name == *command.name);
    now >= incoming.session.identity.reads_primary_until && !is_for_primary
}
