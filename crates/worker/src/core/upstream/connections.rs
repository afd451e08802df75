use crate::Upstream;
use crate::core::connection::next_generation;
use crate::core::pools::given::Given;
use crate::core::upstream::reply::{release_all, release_overdue, release_waiting};
use crate::core::upstream::state::Failed;
use crate::core::{Connection, ConnectionKey, Core, Plane};
use keyway_base::{BackendFault, Fault, Key, Sent};
use keyway_metrics::HealthLevel;
use keyway_net::{ConnectFault, Socket, TlsFault};
use keyway_proxy::{Internal, LinkOptions, LinkState, Owner};
use keyway_resp::Protocol;
use keyway_topology::{FailureReason, HealthState};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

impl Core {
    /// Begins the connections of pools with `preconnect`.
    pub(in crate::core) fn preconnect(&mut self, among: impl IntoIterator<Item = ConnectionKey>) {
        for index in among {
            // Connections for RESP3 wait until a client uses it.
            let connection = &self.links[index];
            let is_first = connection.link.protocol() == Protocol::Resp2 && !connection.is_beside();
            if is_first && is_preconnected(&self.plane, connection.server_id.pool) {
                self.links[index].is_connecting = true;
                self.plane.upstream.connects.push(index);
            }
        }
    }

    /// Follows the health board, once a turn.
    #[inline]
    pub(crate) fn refresh_health(&mut self) {
        self.follow_circuits();
        let epoch = self.plane.plan.health.epoch();
        if epoch != self.plane.upstream.health_epoch {
            self.plane.upstream.health_epoch = epoch;
            let plan = Arc::clone(&self.plane.plan);
            let mut changed = Vec::new();
            for (index, state) in self.plane.pools.iter_mut().enumerate() {
                if state.refresh(&plan, index) {
                    changed.push(index as u16);
                }
            }
            for pool in changed {
                self.end_displaced(pool);
                self.on_ring_changed(pool);
                self.watch_held(pool);
            }
            self.take_back_displaced();
            self.plane.pubsub.is_moving = true;
            // Requests that wait for a link may go elsewhere now.
            let Core { sessions, links, plane } = self;
            for slot in links.iter_mut() {
                release_all(sessions, plane, slot);
            }
        }
    }

    /// Returns whether a link that was to be connected must still be.
    pub(crate) fn wants_connection(&self, index: ConnectionKey) -> bool {
        let Some(connection) = self.links.get(index) else { return false };
        connection.is_connecting
            && matches!(connection.link.state(), LinkState::Idle | LinkState::Backoff { .. })
            && Plane::may_connect(&self.links, connection)
    }

    /// Marks a link as connecting.
    pub(crate) fn on_connecting(&mut self, index: ConnectionKey) {
        let options = self.options(index);
        let connection = &mut self.links[index];
        connection.link.on_connecting(&options, self.plane.clock.now);
        connection.is_starved = false;
        connection.attempted = self.plane.clock.now;
        let connection = &self.links[index];
        self.plane.note_deadline(connection.link.deadline(&options));
        let cells =
            self.plane.cells.backend(connection.server_id.pool, connection.server_id.server);
        cells.links_connecting.raise(1);
    }

    /// Notes that a connection is established.
    pub(crate) fn on_connected(&mut self, index: ConnectionKey, socket: Socket) {
        let options = self.options(index);
        let connection = &mut self.links[index];
        connection.is_connecting = false;
        connection.socket = Some(socket);
        connection.heard = self.plane.clock.now;
        connection.link.on_connected(&options, self.plane.clock.now);
        let Core { sessions, links, plane } = self;
        let connection = &mut links[index];
        plane.note_deadline(connection.link.deadline(&options));
        plane.note_reached(connection);
        if connection.link.state() == LinkState::Ready {
            plane.note_established(connection);
            plane.knock(connection);
            plane.look_at_generation(index, connection, true);
        }
        if connection.rejoining.is_some() {
            plane.send_probe(index, connection);
        }
        plane.mark_link_dirty(index, connection);
        // Requests before those of waiting sessions may have expired by now. Then nothing would be
        // sent that lets the sessions continue.
        release_waiting(sessions, plane, connection);
    }

    /// Notes that a connection could not be opened.
    pub(in crate::core) fn on_connect_failed(&mut self, index: ConnectionKey, fault: ConnectFault) {
        let server = self.links[index].server_id;
        let reason = self.plane.note_connect_fault(server, fault);
        self.plane.log_cannot_connect(server, &reason);
        self.links[index].is_starved = fault == ConnectFault::Exhausted;
        self.on_link_lost(index, BackendFault::Connect);
    }

    /// Notes that a connection was not secured after all: the server's error about our certificate
    /// arrives after the handshake.
    pub(crate) fn on_tls_fault(&mut self, index: ConnectionKey, fault: TlsFault) {
        let server = self.links[index].server_id;
        self.plane.on_tls_fault(server, fault);
    }

    /// Ends a connection: everything in flight on it is answered with an error. Returns its socket,
    /// to be closed.
    pub(in crate::core) fn on_link_lost(
        &mut self,
        index: ConnectionKey,
        fault: BackendFault,
    ) -> Option<Socket> {
        let redirected = self.links[index].link.take_redirected();
        self.redirect_all(index, redirected);
        let connection = &self.links[index];
        if connection.role.is_some() && connection.lease.is_some() {
            return self.on_tracking_lost(index, fault);
        }
        if connection.is_private {
            return self.on_private_lost(index, fault);
        }
        let options = self.options(index);
        let Core { sessions, links, plane } = self;
        let connection = &mut links[index];
        let server = connection.server_id;
        let state = connection.link.state();
        // Later reports about this connection, such as that it is established after all, are
        // outdated.
        connection.generation = next_generation(connection.generation);
        plane.end_counts(connection, state);
        plane.note_refusal(connection, fault);
        if !plane.has_left(connection) {
            plane.log_link_end(connection, state, fault);
        }
        // Only a connection that has worked is worth waiting for again. Otherwise, a server that
        // accepts and closes would be connected to without pause.
        let worked = connection.link.has_answered();
        let has_left = plane.has_left(connection);
        let keep_unsent = plane.keeps_unsent(connection, worked);
        let is_idle = state == LinkState::Ready && connection.link.in_flight() == 0;
        connection.is_connecting = false;
        connection.given = Given::default();
        let (mut lost, mut reads) = (Vec::new(), Vec::new());
        if keep_unsent && !worked {
            // They would keep earlier requests from being sent again.
            connection.link.take_back_questions(|exchange| lost.push((*exchange, Sent::No)));
        }
        connection.link.on_lost(keep_unsent, |one| match one.read {
            Some(request) => reads.push((one.exchange, one.sent, Box::from(request))),
            None => lost.push((one.exchange, one.sent)),
        });
        let gone = lost.iter().map(|(exchange, _)| exchange);
        plane.note_lost(
            connection,
            gone.chain(reads.iter().map(|(exchange, _, _)| exchange)),
            fault,
        );
        for (exchange, sent) in lost {
            let why = lost_with(fault, sent);
            plane.fail(sessions, server, &exchange, false, why);
        }
        if !has_left {
            // Otherwise its server no longer belongs to the cluster.
            plane.connect_again(index, connection, &options, worked, is_idle);
            plane.note_gone(index, connection);
        }
        // A client that asks for too much at once must not cause an ejection, and neither must the
        // end of an unused connection.
        let is_unused = is_idle && !worked && fault == BackendFault::Closed;
        if !matches!(fault, BackendFault::Reply(_)) && !is_unused && !has_left {
            plane.request_view(connection);
            let began = plane.began(connection, worked);
            plane.note_failure(connection, fault.into(), began);
        }
        if connection.rejoining.is_some() {
            plane.on_rejoin_failed(connection, fault.into());
        }
        release_waiting(sessions, plane, connection);
        let socket = connection.socket.take();
        self.repeat_reads(index, reads, fault);
        socket
    }

    /// Fails requests that have waited too long. Links that are dead as a whole are added to
    /// `dead`.
    pub(crate) fn handle_timeouts(&mut self, dead: &mut Vec<(ConnectionKey, BackendFault)>) {
        let now = self.plane.clock.now;
        self.plane.next_deadline = None;
        self.plane.release_held(&mut self.links);
        for position in 0..self.links.len() {
            let index = self.links.key_at(position);
            if self.links[index].link.in_flight() == 0
                && self.links[index].waiting.is_empty()
                && matches!(self.links[index].link.state(), LinkState::Idle | LinkState::Ready)
            {
                continue;
            }
            let options = self.options(index);
            let Core { sessions, links, plane } = self;
            let connection = &mut links[index];
            let server = connection.server_id;
            let (mut expired, mut has_expired, mut probe_expired) = (None, false, false);
            let mut failed = Failed::default();
            let ready = connection.link.state() == LinkState::Ready;
            let (is_own, is_blocking) = (connection.role.is_some(), connection.link.is_blocking);
            connection.forget_late();
            let is_at_work = ready && connection.link.is_at_work(&options, now);
            let is_held = !ready && connection.is_lost;
            let outcome = connection.link.handle_timeout(&options, now, |exchange| {
                match exchange.owner {
                    Owner::Internal(
                        Internal::Select
                        | Internal::Load
                        | Internal::Multi
                        | Internal::ClientId
                        | Internal::Mode,
                    ) => return,
                    // It concerns a single connection, and ends with it.
                    Owner::Unheard(key) if is_own && key == Key::NONE => return,
                    Owner::Internal(_) => probe_expired = true,
                    _ => {}
                }
                let sent = if ready { Sent::Maybe } else { Sent::No };
                let fault = if is_held { BackendFault::Connect } else { BackendFault::Timeout };
                let fault = Fault::Backend { fault, sent };
                if is_held {
                    plane.note_in_vain(server.pool);
                    plane.cluster.waited = Some(now.since(exchange.asked()));
                }
                if ready {
                    plane.note_late(sessions, exchange, &mut connection.late_of);
                }
                plane.fail(sessions, server, exchange, is_blocking, fault);
                plane.cluster.waited = None;
                has_expired = true;
                // The request may have waited behind other clients' requests, or on another link.
                let had_time = options.timeout.is_some_and(|it| now >= exchange.started + it);
                if had_time && !is_at_work {
                    expired = expired.max(Some(exchange.started));
                    failed.add(exchange);
                }
            });
            connection.settle_late();
            plane.note_failed(connection, failed, FailureReason::Timeout);
            if has_expired && connection.is_private {
                plane.on_private_expired(sessions, index, connection, is_blocking);
            }
            if let Some(began) = expired {
                plane.request_view(connection);
                plane.note_failure(connection, FailureReason::Timeout, began);
            }
            if probe_expired {
                plane.on_probe_expired(connection);
            }
            release_overdue(sessions, plane, connection);
            plane.look_after_gone(sessions, index, connection);
            match outcome {
                Ok(()) => plane.note_deadline(connection.link.deadline(&options)),
                Err(fault) => dead.push((index, fault)),
            }
        }
    }

    /// Updates the gauges, a few times a second.
    pub(crate) fn publish_gauges(&mut self) {
        self.plane.publish_pubsub_gauges();
        let Core { links, plane, .. } = self;
        // Requests in flight and unsent bytes of each server. There are many private links, so all
        // are visited once.
        let mut sums = std::mem::take(&mut plane.upstream.gauge_sums);
        sums.clear();
        sums.resize(plane.plan.topology.backend_count(), (0, 0));
        for connection in links.iter().filter(|connection| !connection.is_free) {
            let sum = &mut sums[connection.id.index()];
            sum.0 += connection.link.live() as u64;
            sum.1 += connection.link.unsent_len() as u64;
        }
        for pool in 0..plane.plan.pools.len() {
            if plane.plan.retired(pool as u16).is_some() {
                continue;
            }
            for backend in 0..plane.plan.topology.pools()[pool].servers().len() {
                let cells = plane.cells.pool(pool).backend(backend);
                let id = plane.plan.topology.backend_id(pool, backend);
                cells.set_health(health_level(plane.plan.health.state(id)));
                let (in_flight, unsent) = sums[id.index()];
                cells.in_flight.set(in_flight);
                cells.unsent_bytes.set(unsent);
                plane.publish_circuit(pool, backend, id);
            }
        }
        plane.upstream.gauge_sums = sums;
    }

    fn options(&self, index: ConnectionKey) -> Arc<LinkOptions> {
        Arc::clone(self.plane.link_options(self.links[index].server_id.pool))
    }
}

fn is_preconnected(plane: &Plane, pool: u16) -> bool {
    let upstream = plane.plan.pools[pool as usize].kind.upstream();
    upstream.is_some_and(|upstream| upstream.servers.options.preconnect)
}

/// Returns why the exchanges of a lost connection fail.
pub(in crate::core) fn lost_with(fault: BackendFault, sent: Sent) -> Fault {
    let sent = if fault == BackendFault::Full { Sent::No } else { sent };
    Fault::Backend { fault, sent }
}

fn health_level(state: HealthState) -> HealthLevel {
    match state {
        HealthState::Unknown => HealthLevel::Unknown,
        HealthState::Up => HealthLevel::Healthy,
        HealthState::Failing => HealthLevel::Failing,
        HealthState::Ejected | HealthState::Rejoining => HealthLevel::Ejected,
        HealthState::Quarantined => HealthLevel::Quarantined,
    }
}

/// The options of a link that leads nowhere: it accepts no request, and does not reconnect.
static NO_SERVERS: LazyLock<Arc<LinkOptions>> = LazyLock::new(|| {
    Arc::new(LinkOptions {
        password: None,
        memcached: None,
        database: 0,
        databases: 1,
        timeout: None,
        connect_timeout: Duration::ZERO,
        backoff_min: Duration::from_secs(3600),
        backoff_max: Duration::from_secs(3600),
        in_flight_max: 0,
        output_len_max: 0,
        slower_than: Duration::MAX,
    })
});

impl Plane {
    /// Returns whether requests that were not sent on a lost connection wait for the next one.
    fn keeps_unsent(&self, connection: &Connection, worked: bool) -> bool {
        // A request that relies on a script which was loaded through it, or on another database
        // than the first, must not use another connection.
        (worked || self.holds_unsent(connection))
            && self.plan.pools[usize::from(connection.server_id.pool)].databases <= 1
            && connection.given.is_empty()
            && !self.has_left(connection)
            && !self.is_held_back(connection)
    }

    /// Reconnects a lost connection: after a pause if it never worked, at once if requests wait for
    /// it or if it must always be connected.
    fn connect_again(
        &mut self,
        index: ConnectionKey,
        connection: &mut Connection,
        options: &LinkOptions,
        worked: bool,
        is_idle: bool,
    ) {
        if !worked && !is_idle {
            let jitter = self.next_random();
            connection.link.on_backoff(options, self.clock.now, jitter);
            return;
        }
        let is_wanted = worked && is_preconnected(self, connection.server_id.pool);
        if is_wanted || connection.link.in_flight() > 0 {
            connection.is_connecting = true;
            self.upstream.connects.push(index);
        }
    }

    /// Returns how links of a pool connect and wait.
    #[inline]
    pub(in crate::core) fn link_options(&self, pool: u16) -> &Arc<LinkOptions> {
        match self.plan.pools[usize::from(pool)].kind.upstream() {
            Some(Upstream { options, .. }) => options,
            // This is a link of a pool that has ended, whose index now belongs to a pool without
            // servers.
            None => &NO_SERVERS,
        }
    }

    /// Handles a reply to the handshake. If it was the last, waiting requests are sent, and their
    /// timeouts are this connection's.
    #[cold]
    pub(super) fn after_handshake(&mut self, index: ConnectionKey, connection: &mut Connection) {
        if connection.link.state() != LinkState::Ready {
            // The answered part may have been the first one.
            return self.mark_link_dirty(index, connection);
        }
        self.note_established(connection);
        self.knock(connection);
        self.look_at_generation(index, connection, true);
        let deadline = connection.link.deadline(self.link_options(connection.server_id.pool));
        self.note_deadline(deadline);
        self.mark_link_dirty(index, connection);
    }

    /// Notes that a link accepts requests from here on.
    fn note_established(&mut self, connection: &mut Connection) {
        let cells = self.cells.backend(connection.server_id.pool, connection.server_id.server);
        cells.links_connecting.lower(1);
        cells.links_ready.raise(1);
        cells.connects.add(1);
        cells.reconnects.add(u64::from(connection.was_connected));
        connection.is_lost = false;
        connection.link.begin_held(self.clock.now);
        let failures = self.upstream.failures.get_mut(connection.id);
        (failures.refusal, failures.tls) = (None, None);
        connection.was_connected = true;
        connection.is_counted_ready = true;
    }

    /// Refuses a request at once, because its server cannot be reached: the attempt to connect has
    /// failed, and was counted. Returns the fault.
    #[cold]
    pub(super) fn note_refused(&self, connection: &Connection) -> Fault {
        let cells = self.cells.backend(connection.server_id.pool, connection.server_id.server);
        let refusal = &self.upstream.failures.get(connection.id).refusal;
        let fault = refusal.as_ref().map_or(BackendFault::Connect, |(fault, _)| *fault);
        cells.errors.of(fault).add(1);
        Fault::Backend { fault, sent: Sent::No }
    }

    /// Notes that a link no longer accepts requests, if it did.
    pub(in crate::core) fn end_counts(&self, connection: &mut Connection, state: LinkState) {
        let cells = self.cells.backend(connection.server_id.pool, connection.server_id.server);
        if std::mem::take(&mut connection.is_counted_ready) {
            cells.links_ready.lower(1);
        } else if !matches!(state, LinkState::Idle | LinkState::Backoff { .. }) {
            cells.links_connecting.lower(1);
        }
    }
}
