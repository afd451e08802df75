//! Makes a worker follow the latest map of a cluster.

use crate::cluster::SlotsFollower;
use crate::core::clients::WaitOn;
use crate::core::pools::cluster::state::ClusterState;
use crate::core::pools::cluster::state::parts_of;
use crate::core::request::{ClientMut, RequestContext};
use crate::core::upstream::reply::release_all;
use crate::core::{Connection, ConnectionKey, Core, Plane};
use crate::pool_kind::address_of;
use keyway_command::Handling;
use keyway_net::Address;
use keyway_proxy::LinkState;
use keyway_resp::Protocol;
use keyway_topology::{ClusterMap, ReadFrom, ServerId};
use std::sync::Arc;

impl Core {
    /// Ends a pool in this worker. Requests that were to be sent again, or were held back, are
    /// refused. All else that is known of its cluster is forgotten.
    pub(in crate::core) fn end_cluster(&mut self, pool: u16) {
        self.give_up_retries(pool);
        self.give_up_held(pool);
        self.plane.cluster.forget(pool);
    }

    /// Follows the maps of the clusters, once a turn.
    #[inline]
    pub(crate) fn follow_clusters(&mut self) {
        if !self.plane.cluster.pools.is_empty() && self.plane.has_news_of_clusters() {
            self.follow_each();
        }
    }

    #[cold]
    fn follow_each(&mut self) {
        if self.has_heard_of_clusters() {
            self.hear_views();
        }
        self.follow_notices();
        self.look_at_fences();
        for at in 0..self.plane.cluster.pools.len() {
            let pool = self.plane.cluster.pools[at];
            let is_new = |state: &ClusterState| state.map.version() != state.shared.version();
            if self.plane.cluster_state(pool).is_some_and(is_new) {
                self.adopt_map(pool);
            }
        }
        self.release_named();
    }

    /// Adopts the latest map of a pool's cluster.
    #[cold]
    fn adopt_map(&mut self, pool: u16) {
        let Some(state) = self.plane.pools[usize::from(pool)].found_mut() else { return };
        let cluster = &mut state.cluster;
        let plan = &self.plane.plan;
        let latest = cluster.shared.map();
        let slots_before = cluster.slots.as_mut().and_then(SlotsFollower::adopt);
        let slots_now = cluster.slots.as_ref().map(|slots| Arc::clone(&slots.now().map));
        let has_moved = slots_before.as_ref().is_some_and(|it| Some(&it.map) != slots_now.as_ref());
        cluster.parts = Arc::new(parts_of(&latest));
        let before = std::mem::replace(&mut cluster.map, latest);
        let (map, ring) = (Arc::clone(&cluster.map), cluster.ring());
        state.readers = cluster.readers(plan, usize::from(pool));
        state.servers.set_ring(ring);
        self.note_tenants(pool, &before, &map);
        if let Some(before) = slots_before {
            self.follow_slots(pool, &before);
        }
        if map.places_keys_as(&before) && !has_moved {
            return;
        }
        self.hold_in_flight(pool);
        self.move_subscriptions(pool);
        let waiting = std::mem::take(&mut self.plane.cluster.waiting);
        let Core { sessions, links, plane } = self;
        for key in waiting {
            if let Some(session) = sessions.get_mut(key) {
                plane.wake(key, session);
            }
        }
        // Requests that wait for a link, or for a primary, may go elsewhere now.
        for connection in links.iter_mut().filter(|connection| connection.server_id.pool == pool) {
            release_all(sessions, plane, connection);
        }
        self.send_unsent_on(pool, &before, &map);
        self.move_waiting(pool);
    }

    /// Subscribes to names at the servers that have them now. Servers that work are as good as any
    /// other.
    fn move_subscriptions(&mut self, pool: u16) {
        let Core { links, plane, .. } = self;
        plane.pubsub.is_moving = true;
        let Some(state) = plane.pools[usize::from(pool)].found() else { return };
        let index_count = state.cluster.map.index_count();
        let is_ready = |server: &u16| {
            links[state.servers.link(*server, 0, Protocol::Resp2)].link.state() == LinkState::Ready
        };
        let working: Vec<u16> = (0..index_count as u16).filter(is_ready).collect();
        plane.avoid_no_more(pool, &working);
    }

    /// Sends requests that were not sent yet to servers that serve no more to the servers that do.
    fn send_unsent_on(&mut self, pool: u16, before: &ClusterMap, map: &ClusterMap) {
        let has_slots = self.plane.has_slots(pool);
        for position in 0..self.links.len() {
            let index = self.links.key_at(position);
            let connection = &mut self.links[index];
            let server = usize::from(connection.server_id.server);
            let has_ended = before.is_serving(server) && !map.is_serving(server);
            // A server of a cluster redirects the requests that it got, and later requests must not
            // overtake those.
            let may_be_overtaken = has_slots && connection.link.state() == LinkState::Ready;
            // A request that waits on a lost link for its primary goes to the new owner of its keys.
            let is_left = has_ended || connection.is_lost;
            if connection.server_id.pool != pool
                || connection.is_private
                || !is_left
                || may_be_overtaken
            {
                continue;
            }
            let unsent = connection.link.take_unsent();
            self.send_again(index, unsent);
        }
    }

    /// Handles server indices that now belong to another server than before, or to none.
    fn note_tenants(&mut self, pool: u16, before: &ClusterMap, map: &ClusterMap) {
        let tenure = |map: &ClusterMap, index| map.node(index).map(|node| node.tenure);
        for index in 0..map.index_count() {
            let server = ServerId { pool, server: index as u16 };
            let (was, is) = (tenure(before, index), tenure(map, index));
            if was == is {
                continue;
            }
            if was.is_some() {
                let is_there = |connection: &Connection| {
                    connection.server_id == server
                        && !connection.is_free
                        && connection.link.state() != LinkState::Idle
                };
                let numbered = self.links.with_keys();
                let there = numbered.filter(|(_, connection)| is_there(connection));
                let leaving = there.map(|(index, connection)| (index, connection.generation));
                self.plane.cluster.leaving.extend(leaving);
            }
            self.plane.forget_failures(server);
            if is.is_some() {
                self.plane.cells.pool(usize::from(pool)).backend(index).restart();
            }
            let Some(state) = self.plane.cluster_state(pool) else { continue };
            let shared = Arc::clone(&state.shared);
            // All workers come here. What they know in common is about the new server from the
            // first one's visit on.
            if !shared.is_first_at(index, is.unwrap_or_else(|| map.version())) {
                continue;
            }
            shared.note_lag(index as u16, u64::MAX);
            let plan = &self.plane.plan;
            plan.pools[usize::from(pool)].notices.health.forget(index as u16);
            let id = plan.topology.id_of(server);
            let health = &plan.health;
            let mut is_ejected = false;
            let settle = |is_held: bool| match is_held {
                true => is_ejected = health.eject(id),
                false => drop(health.restore(id)),
            };
            shared.holds.settle(map.node(index).map(|node| &node.endpoint), settle);
            health.circuits().restart(id);
            health.reads().restart(id);
            if is_ejected {
                tracing::info!(
                    pool = self.plane.plan.pools[usize::from(pool)].name,
                    backend = self.plane.describe_backend(server),
                    "the server that has joined stays out of use: an operator ejected its address; \
                     `keyway ctl restore` brings it back"
                );
            }
        }
    }

    /// Returns the next link to a server that has left on which no reply is due any more. The link
    /// is to be closed.
    pub(crate) fn next_left(&mut self) -> Option<ConnectionKey> {
        let Core { links, plane, .. } = self;
        let leaving = &mut plane.cluster.leaving;
        leaving.retain(|&(key, generation)| {
            links.get(key).is_some_and(|connection| connection.generation == generation)
        });
        let at = leaving.iter().position(|&(index, _)| {
            let connection = &links[index];
            connection.link.live() == 0 || connection.link.state() != LinkState::Ready
        })?;
        Some(leaving.swap_remove(at).0)
    }

    /// Returns the address that a link is to be connected to, if there is one.
    pub(crate) fn address_of(&self, index: ConnectionKey) -> Option<Address> {
        let connection = &self.links[index];
        self.server_address(connection.server_id)
    }

    /// Returns the address of a server, if it has one.
    pub(crate) fn server_address(&self, server: ServerId) -> Option<Address> {
        self.plane.address(server)
    }
}

impl Plane {
    /// Returns whether there is an answer, a message or a map of a cluster that this worker has not
    /// looked at. It is asked in every turn.
    #[inline]
    fn has_news_of_clusters(&self) -> bool {
        let is_new = |state: &ClusterState| state.map.version() != state.shared.version();
        self.cluster.has_heard()
            || !self.cluster.named.held.is_empty()
            || !self.cluster.fences.is_empty()
            || self.cluster.pools.iter().any(|&pool| self.cluster_state(pool).is_some_and(is_new))
    }
}

impl Plane {
    /// Returns the address of a server, if it has one.
    fn address(&self, server: ServerId) -> Option<Address> {
        match self.cluster_state(server.pool) {
            Some(state) => Some(address_of(&state.map.node(usize::from(server.server))?.endpoint)),
            None => {
                self.plan.pools[usize::from(server.pool)].kind.address(usize::from(server.server))
            }
        }
    }

    /// Returns whether a request has to wait because no server has told yet which server has which
    /// slot, and one may soon.
    #[inline]
    pub(in crate::core) fn awaits_map(&mut self, incoming: &mut RequestContext) -> bool {
        let state = self.cluster_state(incoming.session.pool);
        state.is_some_and(|state| !state.map.is_known())
            && incoming.request.handling() != Handling::Local
            && self.wait_for_map(incoming.client())
    }

    /// Does the same as [`Self::awaits_map`] for any request of a session.
    #[inline]
    pub(in crate::core::pools) fn awaits_map_for(
        &mut self,
        ClientMut { key, session }: ClientMut<'_>,
    ) -> bool {
        let state = self.cluster_state(session.pool);
        state.is_some_and(|state| !state.map.is_known())
            && self.wait_for_map(ClientMut { key, session })
    }

    #[cold]
    fn wait_for_map(&mut self, ClientMut { key, session }: ClientMut<'_>) -> bool {
        let Some(state) = self.cluster_state(session.pool) else { return false };
        if !state.shared.may_be_known_soon(self.clock.now)
            && self.primary_wait(session.pool).is_none()
        {
            return false;
        }
        // This client waits no longer than any request may take.
        let until = self.waits_until(key, session.pool);
        if until <= self.clock.now || self.cluster.waited.is_some() {
            return false;
        }
        self.wait_for(ClientMut { key, session }, WaitOn::Owner(until));
        true
    }

    /// Returns the error text for a request that has no server, or `None` for a pool whose servers
    /// are listed.
    #[cold]
    pub(in crate::core::pools) fn unknown_server(
        &self,
        pool: u16,
        is_left_out: bool,
    ) -> Option<String> {
        let state = self.cluster_state(pool)?;
        self.cluster.refused_in_vain.set(true);
        let name = &self.plan.pools[usize::from(pool)].name;
        let why = state.shared.reason_in(name);
        let readers = self.pools[usize::from(pool)].readers();
        let reads_replicas_only =
            readers.is_some_and(|readers| readers.any(|from| *from == ReadFrom::Replica));
        if is_left_out {
            let (left_out, what) = (
                state.map.count_without_index(),
                if state.has_slots() { "slots" } else { "primaries" },
            );
            return Some(format!(
                "ERR nodes_max in [pool.{name}] is too small: {left_out} of its {what} are at servers \
                 for which there is no place, and which are not asked; set nodes_max higher"
            ));
        }
        let said = match (state.map.is_known(), state.has_slots()) {
            (false, true) => {
                format!("ERR no server of {name} tells who has which slot of its cluster: {why}")
            }
            (false, false) => format!("ERR nobody tells who is the primary in {name}: {why}"),
            (true, _) if reads_replicas_only => format!(
                "ERR the key has no server in [pool.{name}], or no replica of it may be read now"
            ),
            (true, true) => "CLUSTERDOWN Hash slot not served".to_owned(),
            (true, false) if state.shared.slot_map().is_some() => {
                let groups = (0..).zip(state.shared.primaries());
                let lacking = groups.filter(|&(group, _)| state.map.primary(group).is_none());
                let lacking: Vec<&str> = lacking.map(|(_, name)| name.as_str()).collect();
                let word = if lacking.len() == 1 { "group" } else { "groups" };
                let lacking = lacking.join(", ");
                format!(
                    "ERR the primary of {word} {lacking} in [pool.{name}] is not known now: {why}"
                )
            }
            (true, false) => {
                format!(
                    "ERR who is the primary of the key in [pool.{name}] is not known now: {why}"
                )
            }
        };
        Some(match self.cluster.waited {
            Some(waited) => format!("{said} ({})", Self::waited_words(waited)),
            None => said,
        })
    }

    /// Returns whether a lost or failed connection belongs to a server that has left its cluster,
    /// so that nothing is logged about it.
    pub(in crate::core) fn has_left(&self, connection: &Connection) -> bool {
        if self.plan.retired(connection.server_id.pool).is_some() {
            return true;
        }
        let is_gone = |state: &ClusterState| {
            state.map.node(usize::from(connection.server_id.server)).is_none()
        };
        self.cluster_state(connection.server_id.pool).is_some_and(is_gone)
    }
}
