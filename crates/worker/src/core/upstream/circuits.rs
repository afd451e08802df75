//! Requests that are refused without asking a server, the outcomes of requests, and the log lines
//! about circuits and outliers.

use crate::core::upstream::reply::release_all;
use crate::core::upstream::state::Failed;
use crate::core::{Connection, Core, Plane};
use keyway_base::{BackendFault, Fault, Sent, Time};
use keyway_proxy::Exchange;
use keyway_topology::{
    BackendId, CircuitChange, CircuitState, FailureReason, FailureTimes, HealthBoard, OutlierChange,
};
use std::time::Duration;

impl Core {
    /// Follows the circuits, once a turn: clients need not wait for a server that is no longer
    /// asked.
    #[inline]
    pub(super) fn follow_circuits(&mut self) {
        let epoch = self.plane.plan.health.circuits().epoch();
        if epoch != self.plane.upstream.circuit_epoch {
            self.plane.upstream.circuit_epoch = epoch;
            let Core { sessions, links, plane } = self;
            for slot in links.iter_mut().filter(|slot| slot.is_watched) {
                release_all(sessions, plane, slot);
            }
        }
    }

    /// Makes requests to the servers of a pool check whether an operator has ejected them.
    pub(super) fn watch_held(&mut self, pool: u16) {
        let health = &self.plane.plan.health;
        // Unused entries of another version still contain its indices.
        let is_of = |connection: &&mut Connection| {
            connection.server_id.pool == pool && !connection.is_free && !connection.is_spare
        };
        for connection in self.links.iter_mut().filter(is_of) {
            connection.is_watched = health.watches(connection.id);
        }
    }
}

impl Plane {
    /// Returns why a request to the server of a link fails at once, if it does, and counts that. If
    /// not, the request must be sent: it may be one of a few that find out whether the server
    /// answers again.
    #[inline]
    pub(in crate::core) fn refused(&self, connection: &Connection) -> Option<Fault> {
        let is_asked =
            (!connection.is_watched || self.is_asked_freely(connection)) && !connection.is_lost;
        if is_asked && !connection.link.is_down(self.clock.now) {
            return None;
        }
        let fault = self.refuse_or_try(connection);
        self.cluster.refused_in_vain.set(self.cluster.refused_in_vain.get() | fault.is_some());
        fault
    }

    #[cold]
    fn refuse_or_try(&self, connection: &Connection) -> Option<Fault> {
        let was_waited_for = connection.is_lost && self.cluster.waited.is_some();
        if connection.link.is_down(self.clock.now) || was_waited_for {
            return Some(self.note_refused(connection));
        }
        (!self.lets_through(connection)).then(|| self.note_not_asked(connection))
    }

    /// Returns whether neither a circuit nor an operator keeps requests from the server of a link.
    #[inline]
    fn is_asked_freely(&self, connection: &Connection) -> bool {
        let health = &self.plan.health;
        health.circuits().is_closed(connection.id) && !self.is_kept_from(connection)
    }

    /// Returns whether an operator has ejected a server whose keys no other has. In other pools the
    /// ring leaves it out, and earlier requests are answered.
    #[inline]
    pub(in crate::core) fn is_kept_from(&self, connection: &Connection) -> bool {
        self.plan.health.is_held(connection.id) && self.has_moving_homes(connection.server_id.pool)
    }

    /// Returns whether a request would be sent to a server. The check changes nothing.
    #[cold]
    pub(in crate::core) fn admits(&self, connection: &Connection) -> bool {
        !connection.is_watched
            || (self.plan.health.circuits().admits(connection.id, self.clock.now)
                && !self.is_kept_from(connection))
    }

    /// Decides whether a request is sent to a server.
    #[inline]
    pub(in crate::core) fn lets_through(&self, connection: &Connection) -> bool {
        if !connection.is_watched || self.is_asked_freely(connection) {
            return true;
        }
        if self.is_kept_from(connection) {
            return false;
        }
        let (passes, change) = self.plan.health.circuits().admit(connection.id, self.clock.now);
        if let Some(change) = change {
            self.log_circuit(&change);
        }
        passes
    }

    /// Returns whether clients have to wait for room on a link, or for its server. A client whose
    /// requests are refused at once does not wait.
    #[inline]
    pub(in crate::core) fn is_full(&self, connection: &Connection) -> bool {
        self.has_no_room(connection)
            || ((connection.is_lost | connection.is_watched) && self.is_gone(connection))
    }

    /// Does the same for requests that report on each server, whether it can be reached or not.
    #[inline]
    pub(in crate::core) fn has_no_room(&self, connection: &Connection) -> bool {
        !connection.link.has_room(self.link_options(connection.server_id.pool))
            && self.admits(connection)
    }

    #[cold]
    fn note_not_asked(&self, connection: &Connection) -> Fault {
        let fault = match self.is_kept_from(connection) {
            true => BackendFault::Ejected,
            false => BackendFault::CircuitOpen,
        };
        let cells = self.cells.backend(connection.server_id.pool, connection.server_id.server);
        cells.errors.of(fault).add(1);
        Fault::Backend { fault, sent: Sent::No }
    }

    /// Notes that requests to the server of a link were answered in time, `refused` of them with an
    /// error about the server and not about the request.
    #[inline]
    pub(super) fn note_answers(&self, connection: &Connection, count: usize, refused: Failed) {
        if !connection.is_watched {
            return;
        }
        self.note_failed(connection, refused, FailureReason::Loading);
        let count = (count as u32).saturating_sub(refused.count);
        let health = &self.plan.health;
        health.reads().note_answers(connection.id, count);
        if let Some(change) = health.circuits().note_answers(connection.id, count, self.clock.now) {
            self.log_circuit(&change);
        }
    }

    /// Notes that requests to the server of a link have failed.
    #[inline]
    pub(super) fn note_failed(
        &self,
        connection: &Connection,
        failed: Failed,
        reason: FailureReason,
    ) {
        // A failure because of a lack of resources on this side says nothing about the server.
        let is_our_own = connection.is_starved && reason == FailureReason::Connect;
        if !connection.is_watched || failed.count == 0 || is_our_own {
            return;
        }
        let Failed { count, began } = failed;
        let health = &self.plan.health;
        let times = FailureTimes { began, now: self.clock.now };
        health.reads().note_failures(connection.id, count, times);
        if let Some(change) = health.circuits().note_failures(connection.id, count, reason, times) {
            let cells = self.cells.backend(connection.server_id.pool, connection.server_id.server);
            cells.circuit_opens.add(1);
            self.log_circuit(&change);
        }
    }

    /// Notes that requests were lost with their connection.
    pub(super) fn note_lost<'e>(
        &self,
        connection: &Connection,
        lost: impl Iterator<Item = &'e Exchange>,
        fault: BackendFault,
    ) {
        // It is not the server's fault if a client asks for too much at once, and a server that has
        // left its cluster is not asked any more.
        if connection.is_watched
            && !matches!(fault, BackendFault::Reply(_))
            && !self.has_left(connection)
        {
            let mut failed = Failed::default();
            lost.for_each(|exchange| failed.add(exchange));
            self.note_failed(connection, failed, fault.into());
        }
    }

    /// Notes how long a server has taken, if one of several is chosen.
    #[inline]
    pub(super) fn note_latency(&self, connection: &Connection) {
        // A request on a private link waits as it was asked to.
        if !connection.is_watched || connection.is_private {
            return;
        }
        if let Some(began) = connection.link.owes_since() {
            let micros = self.clock.now.since(began).as_micros() as u64;
            self.plan.health.reads().note_latency(connection.id, micros, self.clock.now);
        }
    }

    /// Excludes outliers from the servers for reads, once a second, and readmits them.
    pub(super) fn tend_outliers(&mut self) {
        let now = self.clock.now;
        for (index, state) in self.pools.iter().enumerate() {
            let Some(readers) = state.readers() else { continue };
            let board = self.plan.health.reads();
            if !board.claim_period(index, now) {
                continue;
            }
            for servers in readers.sets() {
                let id = |server: u16| self.plan.topology.backend_id(index, usize::from(server));
                let ids: Vec<BackendId> = servers.into_iter().map(id).collect();
                let is_fit = |id| is_asked(&self.plan.health, id, now);
                for change in board.judge(index, &ids, is_fit, now) {
                    self.on_outlier(&change);
                }
            }
        }
    }

    /// Updates the gauges of one server.
    pub(super) fn publish_circuit(&self, pool: usize, backend: usize, id: BackendId) {
        let health = &self.plan.health;
        if health.watches(id) {
            let cells = self.cells.pool(pool).backend(backend);
            cells.circuit.set(health.circuits().state(id) as u64);
            cells.outlier.set(u64::from(health.reads().is_out(id, self.clock.now)));
            cells.read_micros.set(u64::from(health.reads().estimate_micros(id)));
        }
    }

    #[cold]
    fn on_outlier(&self, change: &OutlierChange) {
        let Some(found) = self.plan.topology.backend(change.backend) else { return };
        let name = self.name_backend(found.server_id());
        let (pool, backend, address) = (name.pool, &*name.label, name.address.as_deref());
        let Some((out_for, reason)) = change.out else {
            tracing::info!(pool, backend, address, "reads may go to it again");
            return;
        };
        self.cells.pool(found.pool_index).backend(found.server_index).outliers.add(1);
        let (period, others_micros) = (change.period, change.others_micros);
        tracing::warn!(
            pool,
            backend,
            address,
            reason = reason.label(),
            micros = period.mean_micros,
            others_micros,
            answered = period.answered,
            failed = period.failed,
            "an outlier: no reads go to it for {}",
            seconds(out_for)
        );
    }

    #[cold]
    fn log_circuit(&self, change: &CircuitChange) {
        let Some(found) = self.plan.topology.backend(change.backend) else { return };
        let name = self.name_backend(found.server_id());
        let (pool, backend, address) = (name.pool, &*name.label, name.address.as_deref());
        let (from, to) = (change.from.label(), change.to.label());
        let reason = change.reason.map(FailureReason::label);
        let (requests, failed) = change.counts;
        match (change.from, change.to) {
            (CircuitState::Closed, CircuitState::Open) => tracing::warn!(
                target: "keyway::event::circuit",
                pool,
                backend,
                address,
                from,
                to,
                reason,
                requests,
                failed,
                "circuit opened: requests fail at once for {}",
                seconds(change.open_for)
            ),
            (_, CircuitState::Open) => tracing::warn!(
                target: "keyway::event::circuit",
                pool,
                backend,
                address,
                from,
                to,
                reason,
                "circuit opened again: requests fail at once for {}",
                seconds(change.open_for)
            ),
            (_, CircuitState::HalfOpen) => {
                tracing::info!(target: "keyway::event::circuit", pool, backend, address, from, to, "circuit half-open: trying it");
            }
            (_, CircuitState::Closed) => {
                tracing::info!(target: "keyway::event::circuit", pool, backend, address, from, to, "circuit closed: it answers");
            }
        }
    }
}

/// Returns whether requests go to a server now.
fn is_asked(health: &HealthBoard, id: BackendId, now: Time) -> bool {
    health.is_usable(id) && health.circuits().admits(id, now)
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_millis() as f64 / 1000.0)
}
