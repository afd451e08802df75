//! A server's health as requests and probes show it, and its return after an ejection.

use crate::Upstream;
use crate::core::{Connection, ConnectionKey, Core, Plane};
use keyway_base::Time;
use keyway_memcache::Verb;
use keyway_proxy::{Internal, LinkState, Owner};
use keyway_resp::Protocol;
use keyway_topology::{BackendId, FailureReason, FailureTimes, HealthState, Rejoin};
use std::sync::Arc;

impl Core {
    /// Performs the upkeep of the pools' health, a few times a second: due backends are probed, and
    /// quarantines end.
    pub(crate) fn tend_health(&mut self) {
        let now = self.plane.clock.now;
        self.plane.log_overdue();
        self.try_failing();
        self.look_at_unknown();
        self.tend_generations();
        self.plane.tend_outliers();
        let health = Arc::clone(&self.plane.plan.health);
        if health.next_due().is_none_or(|due| due > now) {
            return;
        }
        while let Some(change) = health.end_quarantine(now) {
            self.plane.log_change(&change);
        }
        for id in health.due_for_rejoin(now).collect::<Vec<_>>() {
            let Some(found) = self.plane.plan.topology.backend(id) else { continue };
            if self.plane.plan.retired(found.pool_index as u16).is_some() {
                continue;
            }
            let Some(state) = self.plane.pools[found.pool_index].servers() else { continue };
            let usual = state.shared().probe_link(found.server_index);
            let ejection = self.plane.plan.topology.pools()[found.pool_index].ejection();
            let is_flushed = ejection.is_some_and(|it| it.rejoin == Rejoin::Flush);
            let index = self.clear_link(usual);
            let Core { links, plane, .. } = self;
            // An answer to an earlier question would be mistaken for one of this return, and an
            // earlier command could empty the server after it.
            let is_asked = |it: &Connection| it.rejoining.is_some() || owes_health(it);
            let is_emptied = || links.iter().any(|it| it.id == id && is_asked(it));
            if owes_health(&links[index]) || (is_flushed && is_emptied()) {
                continue;
            }
            let connection = &mut links[index];
            let Some(claim) = health.try_claim_rejoin(id, now) else { continue };
            connection.rejoining = Some(claim);
            match connection.link.state() {
                LinkState::Ready | LinkState::Handshaking { .. } => {
                    plane.send_probe(index, connection);
                    plane.mark_link_dirty(index, connection);
                }
                LinkState::Idle | LinkState::Backoff { .. } if !connection.is_connecting => {
                    connection.is_connecting = true;
                    plane.upstream.connects.push(index);
                }
                _ => {}
            }
        }
    }

    /// Tries failing backends that no request uses: a load balancer that checks `/readyz` may send
    /// no requests until they can be reached.
    fn try_failing(&mut self) {
        let Core { links, plane, .. } = self;
        let mut before = None;
        let shared = links.with_keys_mut().filter(|(_, connection)| !connection.is_private);
        for (index, connection) in shared {
            let is_first = before.replace(connection.id) != Some(connection.id);
            let is_failing = || plane.plan.health.state(connection.id) == HealthState::Failing;
            let now = plane.clock.now;
            let is_at_rest =
                connection.link.state() == LinkState::Ready && connection.link.in_flight() == 0;
            let is_due =
                now >= connection.next_try && (is_at_rest || connection.link.wants_connection(now));
            let is_first = is_first
                && connection.link.protocol() == Protocol::Resp2
                && !connection.is_beside();
            if is_first && is_due && !connection.is_connecting && is_failing() {
                connection.next_try =
                    now + plane.link_options(connection.server_id.pool).backoff_max;
                if is_at_rest {
                    plane.knock(connection);
                    plane.mark_link_dirty(index, connection);
                } else {
                    connection.is_connecting = true;
                    plane.upstream.connects.push(index);
                }
            }
        }
    }
}

impl Plane {
    /// Notes that a request was answered in time.
    #[inline]
    pub(super) fn note_success(&mut self, connection: &mut Connection) {
        if let Some(change) = self.plan.health.note_success(connection.id) {
            self.log_change(&change);
        }
        self.upstream.failures.get_mut(connection.id).note_spoken();
    }

    /// Returns since when the end of a connection says something about its server: a connection on
    /// which the server has `worked` was good until it last received something. Any other one is an
    /// attempt to connect.
    pub(in crate::core) fn began(&self, connection: &Connection, worked: bool) -> Time {
        let latest = if worked { connection.heard } else { connection.attempted };
        self.began_attempt(connection.server_id.pool, connection.id, latest)
    }

    /// Returns the time from which a current failure counts, last tried or received at `latest`. It
    /// counts together with the latest failure if it follows sooner than a single link, after as
    /// many failures, would have tried again. So many links take as long as one does. Of
    /// connections that end together, some with unread replies, only the first one counts.
    pub(in crate::core) fn began_attempt(&self, pool: u16, id: BackendId, latest: Time) -> Time {
        let options = self.link_options(pool);
        let doublings = self.plan.health.failures(id).saturating_sub(1).min(16);
        let pause = (options.backoff_min * 2u32.pow(doublings)).min(options.backoff_max);
        let shortest = pause.max(options.backoff_min) / 2;
        Time(latest.0.saturating_sub(u64::try_from(shortest.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Notes that something that began at `began` has failed, because of the server.
    #[cold]
    pub(in crate::core) fn note_failure(
        &mut self,
        connection: &mut Connection,
        reason: FailureReason,
        began: Time,
    ) {
        let is_our_own = connection.is_starved && reason == FailureReason::Connect;
        if connection.rejoining.is_some() || is_our_own {
            return;
        }
        if let Some(change) = self.plan.health.note_failure(
            connection.id,
            reason,
            FailureTimes { began, now: self.clock.now },
        ) {
            if change.to == HealthState::Ejected {
                let cells =
                    self.cells.backend(connection.server_id.pool, connection.server_id.server);
                cells.ejections.add(1);
                if change.from.is_usable() {
                    let cell = self.plan.health.generation(connection.id);
                    cell.note_ejected(self.clock.unix_millis());
                }
            }
            self.log_change(&change);
        }
    }

    /// Asks an ejected backend whether it is usable, after emptying it if that is the policy.
    pub(super) fn send_probe(&mut self, index: ConnectionKey, connection: &mut Connection) {
        let Some(claim) = &connection.rejoining else { return };
        let is_flushed = claim.policy() == Rejoin::Flush;
        if is_flushed && self.try_begin_return(index, connection) {
            return;
        }
        if is_flushed {
            self.ask_about(connection, Internal::Flush);
        }
        self.ask_about(connection, Internal::Probe);
        if let Some(Upstream { options, .. }) =
            self.plan.pools[usize::from(connection.server_id.pool)].kind.upstream()
        {
            let deadline = connection.link.deadline(options);
            self.note_deadline(deadline);
        }
    }

    /// Asks a backend on an established connection whether it answers: a failing backend, or an
    /// unknown one that this worker must ask. A PING does not show that a backend refuses writes.
    pub(super) fn knock(&mut self, connection: &mut Connection) {
        let health = &self.plan.health;
        let is_told = match health.state(connection.id) {
            HealthState::Failing => health.reason(connection.id) != Some(FailureReason::ReadOnly),
            HealthState::Unknown => connection.is_to_knock,
            _ => false,
        };
        connection.is_to_knock = false;
        // The requests in flight will show it.
        let is_busy = connection.link.in_flight() > 0 || connection.rejoining.is_some();
        if !is_told || is_busy || connection.is_private {
            return;
        }
        self.ask_about(connection, Internal::Probe);
        self.note_deadline(connection.link.deadline(self.link_options(connection.server_id.pool)));
    }

    /// Notes that a backend has answered a question of [`Plane::send_probe`] or [`Plane::knock`].
    pub(super) fn on_probed(&mut self, connection: &mut Connection) {
        if connection.rejoining.is_some() {
            return self.on_rejoined(connection);
        }
        if let Some(change) = self.plan.health.note_reachable(connection.id) {
            self.log_change(&change);
        }
    }

    /// Handles a probe of [`Plane::send_probe`] or [`Plane::knock`] that the backend has not
    /// answered in time.
    #[cold]
    pub(super) fn on_probe_expired(&mut self, connection: &mut Connection) {
        if self.plan.health.state(connection.id) == HealthState::Unknown {
            self.note_failure(connection, FailureReason::Timeout, self.clock.now);
        }
        self.on_rejoin_failed(connection, FailureReason::Timeout);
    }

    pub(in crate::core) fn on_rejoined(&mut self, connection: &mut Connection) {
        self.end_return(connection.id);
        let Some(claim) = connection.rejoining.take() else { return };
        if let Some(change) = self.plan.health.rejoined(claim, self.clock.now) {
            self.log_change(&change);
        }
    }

    pub(in crate::core) fn on_rejoin_failed(
        &mut self,
        connection: &mut Connection,
        reason: FailureReason,
    ) {
        self.end_return(connection.id);
        let Some(claim) = connection.rejoining.take() else { return };
        if let Some(change) = self.plan.health.rejoin_failed(claim, reason, self.clock.now) {
            self.log_change(&change);
        }
    }
}

impl Plane {
    /// Asks a server whether it is alive, or empties it.
    fn ask_about(&self, connection: &mut Connection, which: Internal) {
        let is_flush = which == Internal::Flush;
        if let Some(memcached) = &self.link_options(connection.server_id.pool).memcached {
            let verb = if is_flush { Verb::FlushAll } else { Verb::Version };
            return connection.link.ask_memcached(memcached.dialect, verb, which, self.clock.now);
        }
        let name =
            if is_flush { self.flush_command(connection.server_id.pool.into()) } else { "PING" };
        connection.link.enqueue_own(Owner::Internal(which), &[name.as_bytes()], self.clock.now);
    }
}

/// Returns whether a server owes an answer to a question about its health or to a step of its
/// return, or any answer whose time was up, which may be one of those. The debt ends with the
/// connection.
fn owes_health(connection: &Connection) -> bool {
    [Internal::Probe, Internal::Flush, Internal::Return]
        .into_iter()
        .any(|it| connection.link.owes(it))
}
