use super::pools::PoolState;
use super::reply::{release_all, release_waiting};
use super::{Core, LinkIndex, LinkSlot, Plane};
use crate::PoolKind;
use keyway_base::{BackendFault, Fault, Sent};
use keyway_metrics::HealthLevel;
use keyway_net::{ConnectFault, Socket};
use keyway_proxy::{Internal, LinkOptions, LinkState, Owner};
use keyway_resp::reply;
use keyway_topology::{FailureReason, HealthState, Rejoin, StateChange};
use std::sync::Arc;

impl Core {
    /// Begins the connections that pools with `preconnect` ask for.
    pub(super) fn preconnect(&mut self) {
        for index in 0..self.links.len() {
            let pool = &self.plane.plan.pools[self.links[index].pool as usize];
            if matches!(&pool.kind, PoolKind::Sharded { pool, .. } if pool.preconnect) {
                self.links[index].is_connecting = true;
                self.plane.connects.push(index);
            }
        }
    }

    /// Follows the health board, once a turn.
    #[inline]
    pub fn refresh_health(&mut self) {
        let epoch = self.plane.plan.health.epoch();
        if epoch != self.plane.health_epoch {
            self.plane.health_epoch = epoch;
            let plan = Arc::clone(&self.plane.plan);
            for (index, state) in self.plane.pools.iter_mut().enumerate() {
                state.refresh(&plan, index);
            }
            // Requests that wait for a link may go elsewhere now.
            let Core { sessions, links, plane } = self;
            for slot in links {
                release_all(sessions, plane, slot);
            }
        }
    }

    /// Marks a link as connecting.
    pub fn on_connecting(&mut self, index: LinkIndex) {
        let options = self.options(index);
        let slot = &mut self.links[index];
        slot.link.on_connecting(&options, self.plane.clock.now);
        let slot = &self.links[index];
        self.plane.note_deadline(slot.link.deadline(&options));
        let cells = self.plane.cells.pool(slot.pool as usize).backend(slot.backend as usize);
        cells.links_connecting.raise(1);
    }

    /// A connection stands.
    pub fn on_connected(&mut self, index: LinkIndex, socket: Socket) {
        let options = self.options(index);
        let slot = &mut self.links[index];
        slot.is_connecting = false;
        slot.socket = Some(socket);
        slot.link.on_connected(&options, self.plane.clock.now);
        let Core { links, plane, .. } = self;
        let slot = &mut links[index];
        plane.note_deadline(slot.link.deadline(&options));
        let cells = plane.cells.pool(slot.pool as usize).backend(slot.backend as usize);
        cells.links_connecting.lower(1);
        cells.links_ready.raise(1);
        match slot.was_connected {
            false => cells.connects.add(1),
            true => cells.reconnects.add(1),
        }
        slot.was_connected = true;
        if slot.rejoining.is_some() {
            plane.send_probe(slot);
        }
        plane.mark_link_dirty(index, slot);
    }

    /// A connection could not be made.
    pub fn on_connect_failed(&mut self, index: LinkIndex, fault: ConnectFault) {
        let slot = &self.links[index];
        let backend = self.plane.describe_backend(slot.pool, slot.backend);
        if slot.failures_logged == 0 {
            tracing::warn!(backend, reason = fault.text(), "cannot connect; trying again");
        }
        self.links[index].failures_logged += 1;
        self.links[index].lacks_descriptor = fault == ConnectFault::Exhausted;
        self.on_link_lost(index, BackendFault::Connect);
    }

    /// A connection is over: everything in flight on it is answered with an
    /// error. Returns its socket, to be closed.
    pub fn on_link_lost(&mut self, index: LinkIndex, fault: BackendFault) -> Option<Socket> {
        let options = self.options(index);
        let Core { sessions, links, plane } = self;
        let slot = &mut links[index];
        let (pool, backend) = (slot.pool, slot.backend);
        let state = slot.link.state();
        // What is still said of this connection, such as that it stands after
        // all, is about the past.
        slot.generation = next_generation(slot.generation);
        plane.note_link_end(slot, state, fault);
        // Only a connection that worked is worth waiting for again, or a
        // server that accepts and closes would be connected to without pause.
        let worked = slot.link.has_answered();
        let keep_unsent = worked && plane.plan.pools[pool as usize].databases <= 1;
        let is_idle = state == LinkState::Ready && slot.link.in_flight() == 0;
        slot.is_connecting = false;
        let mut lost = Vec::new();
        slot.link.on_lost(keep_unsent, |one| lost.push(one));
        for one in lost {
            let fault = Fault::Backend { fault, sent: one.sent };
            plane.fail(sessions, (pool, backend), &one.exchange, fault);
        }
        if !worked && !is_idle {
            let jitter = plane.next_random();
            slot.link.on_backoff(&options, plane.clock.now, jitter);
        } else if slot.link.in_flight() > 0 || (worked && is_preconnected(plane, pool)) {
            slot.is_connecting = true;
            plane.connects.push(index);
        }
        plane.note_failure(index, slot, failure_reason(fault));
        if slot.rejoining.is_some() {
            plane.on_rejoin_failed(slot, failure_reason(fault));
        }
        release_waiting(sessions, plane, slot);
        slot.socket.take()
    }

    /// Fails what waited too long. Links that are dead as a whole go to
    /// `dead`.
    pub fn handle_timeouts(&mut self, dead: &mut Vec<(LinkIndex, BackendFault)>) {
        let now = self.plane.clock.now;
        self.plane.next_deadline = None;
        for index in 0..self.links.len() {
            if self.links[index].link.in_flight() == 0
                && matches!(self.links[index].link.state(), LinkState::Idle | LinkState::Ready)
            {
                continue;
            }
            let options = self.options(index);
            let Core { sessions, links, plane } = self;
            let slot = &mut links[index];
            let (pool, backend) = (slot.pool, slot.backend);
            let (mut expired, mut probe_expired) = (0u32, false);
            let ready = slot.link.state() == LinkState::Ready;
            let outcome = slot.link.handle_timeout(&options, now, |exchange| {
                match exchange.owner {
                    Owner::Internal(Internal::Select) => return,
                    Owner::Internal(_) => probe_expired = true,
                    _ => {}
                }
                let sent = if ready { Sent::Maybe } else { Sent::No };
                let fault = Fault::Backend { fault: BackendFault::Timeout, sent };
                plane.fail(sessions, (pool, backend), exchange, fault);
                expired += 1;
            });
            if expired > 0 {
                let cells = plane.cells.pool(pool as usize).backend(backend as usize);
                cells.errors.of(BackendFault::Timeout).add(u64::from(expired));
                for _ in 0..expired {
                    plane.note_failure(index, slot, FailureReason::Timeout);
                }
            }
            if probe_expired {
                plane.on_rejoin_failed(slot, FailureReason::Timeout);
            }
            match outcome {
                Ok(()) => plane.note_deadline(slot.link.deadline(&options)),
                Err(fault) => dead.push((index, fault)),
            }
        }
    }

    /// Upkeep of the pools' health, a few times a second: backends that are
    /// due are probed, quarantines end.
    pub fn tend_health(&mut self) {
        let now = self.plane.clock.now;
        let health = Arc::clone(&self.plane.plan.health);
        if health.next_due().is_none_or(|due| due > now) {
            return;
        }
        while let Some(change) = health.end_quarantine(now) {
            self.plane.log_change(&change);
        }
        for id in health.due_for_rejoin(now).collect::<Vec<_>>() {
            let Some(claim) = health.try_claim_rejoin(id, now) else { continue };
            let Some(place) = self.plane.plan.topology.backend(id) else { continue };
            let PoolState::Sharded(state) = &self.plane.pools[place.pool_index] else { continue };
            let index = state.probe_link(place.server_index);
            let Core { links, plane, .. } = self;
            let slot = &mut links[index];
            slot.rejoining = Some(claim);
            match slot.link.state() {
                LinkState::Ready | LinkState::Handshaking { .. } => {
                    plane.send_probe(slot);
                    plane.mark_link_dirty(index, slot);
                }
                LinkState::Idle | LinkState::Backoff { .. } if !slot.is_connecting => {
                    slot.is_connecting = true;
                    plane.connects.push(index);
                }
                _ => {}
            }
        }
    }

    /// Brings the gauges up to date, a few times a second.
    pub fn publish_gauges(&self) {
        for pool in 0..self.plane.plan.pools.len() {
            let backends = self.plane.plan.topology.pools()[pool].servers().len();
            for backend in 0..backends {
                let cells = self.plane.cells.pool(pool).backend(backend);
                let id = self.plane.plan.topology.backend_id(pool, backend);
                cells.set_health(health_level(self.plane.plan.health.state(id)));
                let of = |slot: &&LinkSlot| slot.id == id;
                let slots = || self.links.iter().filter(of);
                cells.in_flight.set(slots().map(|slot| slot.link.live() as u64).sum());
                cells.unsent_bytes.set(slots().map(|slot| slot.link.unsent_len() as u64).sum());
            }
        }
    }

    fn options(&self, index: LinkIndex) -> Arc<LinkOptions> {
        let pool = self.links[index].pool as usize;
        let PoolKind::Sharded { options, .. } = &self.plane.plan.pools[pool].kind else {
            unreachable!("only sharded pools have links");
        };
        Arc::clone(options)
    }
}

/// Generations fit into a token beside the link's position.
fn next_generation(generation: u32) -> u32 {
    (generation + 1) & 0x3fff_ffff
}

fn is_preconnected(plane: &Plane, pool: u16) -> bool {
    matches!(&plane.plan.pools[pool as usize].kind,
        PoolKind::Sharded { pool, .. } if pool.preconnect)
}

fn failure_reason(fault: BackendFault) -> FailureReason {
    match fault {
        BackendFault::Connect => FailureReason::Connect,
        BackendFault::Timeout => FailureReason::Timeout,
        BackendFault::Closed => FailureReason::Closed,
        BackendFault::Protocol => FailureReason::Protocol,
        BackendFault::Handshake => FailureReason::Handshake,
    }
}

fn health_level(state: HealthState) -> HealthLevel {
    match state {
        HealthState::Up => HealthLevel::Healthy,
        HealthState::Failing => HealthLevel::Failing,
        HealthState::Ejected | HealthState::Rejoining => HealthLevel::Ejected,
        HealthState::Quarantined => HealthLevel::Quarantined,
    }
}

impl Plane {
    #[inline]
    pub(super) fn note_success(&mut self, slot: &mut LinkSlot) {
        if let Some(change) = self.plan.health.note_success(slot.id) {
            self.log_change(&change);
        }
        slot.failures_logged = 0;
    }

    #[cold]
    pub(super) fn note_failure(
        &mut self,
        _index: LinkIndex,
        slot: &mut LinkSlot,
        reason: FailureReason,
    ) {
        // A want of our own says nothing of the server: to eject it, and
        // perhaps to empty it on its return, would spread the damage.
        let is_own_want = slot.lacks_descriptor && reason == FailureReason::Connect;
        if slot.rejoining.is_some() || is_own_want {
            return;
        }
        if let Some(change) = self.plan.health.note_failure(slot.id, reason, self.clock.now) {
            if change.to == HealthState::Ejected {
                let cells = self.cells.pool(slot.pool as usize).backend(slot.backend as usize);
                cells.ejections.add(1);
            }
            self.log_change(&change);
        }
    }

    /// A reply to the handshake came: if it was the last, requests that waited
    /// for it go out, and their timeouts are this connection's.
    #[cold]
    pub(super) fn after_handshake(&mut self, index: LinkIndex, slot: &mut LinkSlot) {
        if slot.link.state() != LinkState::Ready {
            return;
        }
        if let PoolKind::Sharded { options, .. } = &self.plan.pools[slot.pool as usize].kind {
            let deadline = slot.link.deadline(options);
            self.note_deadline(deadline);
        }
        self.mark_link_dirty(index, slot);
    }

    fn note_link_end(&mut self, slot: &mut LinkSlot, state: LinkState, fault: BackendFault) {
        let cells = self.cells.pool(slot.pool as usize).backend(slot.backend as usize);
        match state {
            LinkState::Connecting { .. } => cells.links_connecting.lower(1),
            LinkState::Handshaking { .. } | LinkState::Ready => cells.links_ready.lower(1),
            LinkState::Idle | LinkState::Backoff { .. } => {}
        }
        cells.errors.of(fault).add(1);
        let in_flight = slot.link.in_flight();
        if fault != BackendFault::Connect && (in_flight > 0 || fault != BackendFault::Closed) {
            let backend = self.describe_backend(slot.pool, slot.backend);
            let what = match fault {
                BackendFault::Closed => "the backend closed the connection",
                BackendFault::Timeout => "the backend has been silent for too long",
                BackendFault::Protocol => "the backend answered something that is not RESP",
                BackendFault::Handshake => "the backend refused the password or database",
                BackendFault::Connect => "connecting failed",
            };
            if slot.failures_logged == 0 {
                tracing::warn!(backend, in_flight, "connection lost: {what}");
            }
            slot.failures_logged += 1;
        }
    }

    /// Asks an ejected backend whether it is fit for use, after emptying it if
    /// that is the policy.
    fn send_probe(&mut self, slot: &mut LinkSlot) {
        let Some(claim) = &slot.rejoining else { return };
        let now = self.clock.now;
        if claim.policy() == Rejoin::Flush {
            let databases = self.plan.pools[slot.pool as usize].databases;
            let name: &[u8] = if databases > 1 { b"FLUSHALL" } else { b"FLUSHDB" };
            ask(slot, name, Internal::Flush, now);
        }
        ask(slot, b"PING", Internal::Probe, now);
        if let PoolKind::Sharded { options, .. } = &self.plan.pools[slot.pool as usize].kind {
            let deadline = slot.link.deadline(options);
            self.note_deadline(deadline);
        }
    }

    pub(super) fn on_rejoined(&mut self, slot: &mut LinkSlot) {
        let Some(claim) = slot.rejoining.take() else { return };
        if let Some(change) = self.plan.health.rejoined(claim, self.clock.now) {
            self.log_change(&change);
        }
    }

    pub(super) fn on_rejoin_failed(&mut self, slot: &mut LinkSlot, reason: FailureReason) {
        let Some(claim) = slot.rejoining.take() else { return };
        if let Some(change) = self.plan.health.rejoin_failed(claim, reason, self.clock.now) {
            self.log_change(&change);
        }
    }

    #[cold]
    fn log_change(&self, change: &StateChange) {
        let Some(place) = self.plan.topology.backend(change.backend) else { return };
        let backend = self.describe_backend(place.pool_index as u16, place.server_index as u16);
        let (from, to) = (change.from.label(), change.to.label());
        let reason = change.reason.map_or("", FailureReason::label);
        let pool = &*place.pool.name;
        if change.to == HealthState::Up && change.from != HealthState::Failing {
            let policy = place.pool.ejection().map(|ejection| ejection.rejoin);
            if policy == Some(Rejoin::Serve) {
                tracing::warn!(
                    pool,
                    backend,
                    from,
                    to,
                    "back in use; it may serve values from before its ejection (rejoin = \"serve\")"
                );
            } else {
                tracing::info!(pool, backend, from, to, "back in use");
            }
        } else if change.to.is_usable() {
            tracing::info!(pool, backend, from, to, reason, "health changed");
        } else {
            tracing::warn!(
                pool,
                backend,
                from,
                to,
                reason,
                failures = change.failures,
                "health changed"
            );
        }
    }
}

fn ask(slot: &mut LinkSlot, name: &[u8], which: Internal, now: keyway_base::Time) {
    let out = slot.link.request_buf();
    let start = out.len();
    reply::array(out, 1);
    reply::bulk(out, name);
    let len = out.len() - start;
    slot.link.enqueue(Owner::Internal(which), 0, len, now);
}
