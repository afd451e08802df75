//! Log lines about the backends' health.

use crate::Plan;
use crate::core::Plane;
use crate::flaps::Flap;
use keyway_topology::{FailureReason, HealthState, Rejoin, ServerId, StateChange};

/// The name of a backend in the log: the same everywhere, and as in metrics.
pub(in crate::core) struct BackendName<'p> {
    pub(in crate::core) pool: &'p str,
    pub(in crate::core) label: String,
    /// `None` if the name is the address.
    pub(in crate::core) address: Option<String>,
}

impl Plane {
    /// Returns the name of a backend in the log.
    #[cold]
    pub(in crate::core) fn name_backend(&self, server: ServerId) -> BackendName<'_> {
        let plan = &self.plan.pools[usize::from(server.pool)];
        let label = plan.kind.label(usize::from(server.server));
        let address =
            plan.kind.address(usize::from(server.server)).map(|address| address.to_string());
        let address = address.filter(|address| *address != label);
        BackendName { pool: &plan.name, label, address }
    }

    /// Writes the lines that were held back, a few times a second.
    pub(super) fn log_overdue(&self) {
        let Plan { pools, health, topology, .. } = &*self.plan;
        for (pool, plan) in pools.iter().enumerate() {
            // The pool that has replaced this one logs its servers.
            if self.plan.retired(pool as u16).is_some() {
                continue;
            }
            let state = |server| health.state(topology.backend_id(pool, usize::from(server)));
            for flap in plan.notices.health.overdue(self.clock.now, state) {
                self.log_flap(pool as u16, &flap);
            }
        }
    }

    /// Writes the line for a change of health.
    #[cold]
    pub(in crate::core) fn log_change(&self, change: &StateChange) {
        // It is expected, and no news, that every server comes up at the start.
        if change.from == HealthState::Unknown && change.to == HealthState::Up {
            return;
        }
        let Some(found) = self.plan.topology.backend(change.backend) else { return };
        let server = found.server_id();
        let log = &self.plan.pools[found.pool_index].notices.health;
        if change.from.is_usable() && change.to.is_usable() {
            if let Some(flap) = log.on_flap(server.server, change, self.clock.now) {
                self.log_flap(server.pool, &flap);
            }
            return;
        }
        log.on_told(server.server, change, self.clock.now);
        let name = self.name_backend(server);
        let BackendName { pool, label, address } = &name;
        let (backend, address) = (&**label, address.as_deref());
        let (from, to) = (change.from.label(), change.to.label());
        let reason = change.reason.map_or("", FailureReason::label);
        if change.to == HealthState::Up {
            let policy = found.pool.ejection().map(|ejection| ejection.rejoin);
            match policy {
                Some(Rejoin::Serve) => tracing::warn!(
                    target: "keyway::event::server",
                    pool,
                    backend,
                    address,
                    from,
                    to,
                    "back in use; it may serve values from before its ejection (rejoin = \"serve\")"
                ),
                Some(Rejoin::Flush) => tracing::warn!(
                    target: "keyway::event::server",
                    pool,
                    backend,
                    address,
                    from,
                    to,
                    "back in use; {} (rejoin = \"flush\")",
                    self.describe_cleaned(found.pool_index)
                ),
                _ => {
                    tracing::info!(target: "keyway::event::server", pool, backend, address, from, to, "back in use")
                }
            }
        } else {
            let failures = change.failures;
            tracing::warn!(target: "keyway::event::server", pool, backend, address, from, to, reason, failures, "health changed");
        }
    }

    /// Returns the command that empties a server of the pool before it is used again.
    pub(in crate::core) fn flush_command(&self, pool: usize) -> &'static str {
        if self.plan.pools[pool].kind.is_memcached() {
            return "flush_all";
        }
        if self.plan.pools[pool].databases > 1 { "FLUSHALL" } else { "FLUSHDB" }
    }

    #[cold]
    fn log_flap(&self, pool: u16, flap: &Flap) {
        let name = self.name_backend(ServerId { pool, server: flap.server });
        let BackendName { pool, label, address } = &name;
        let (backend, address) = (&**label, address.as_deref());
        let (from, to) = (flap.from.label(), flap.to.label());
        let what = flap.reason.map(FailureReason::label);
        let left_out = (flap.left_out > 0).then_some(flap.left_out);
        if flap.to == HealthState::Up {
            let after = what;
            tracing::info!(target: "keyway::event::server", pool, backend, address, from, to, after, left_out, "health changed");
        } else {
            let reason = what;
            tracing::warn!(target: "keyway::event::server", pool, backend, address, from, to, reason, left_out, "health changed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flaps::HealthLog;
    use keyway_base::Time;
    use keyway_topology::{Epoch, Pool, PoolKind, Server, ServerSet, Topology};

    const SERVER: u16 = 3;

    fn at(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    fn change(to: HealthState) -> StateChange {
        let from = if to == HealthState::Up { HealthState::Failing } else { HealthState::Up };
        let reason = Some(FailureReason::Timeout);
        let kind = PoolKind::Sharded(ServerSet::new(vec![Server::parse("h:1").unwrap()]));
        let topology = Topology::new(Epoch(1), vec![Pool { name: "pool".into(), kind }]);
        StateChange {
            backend: topology.backend_id(0, 0),
            from,
            to,
            reason,
            failures: 1,
            until: None,
        }
    }

    #[test]
    fn a_server_that_gets_an_index_is_told_of_no_change_of_the_one_before() {
        let log = HealthLog::default();
        for (to, millis) in [(HealthState::Failing, 0), (HealthState::Up, 10)] {
            log.on_flap(SERVER, &change(to), at(millis));
        }
        log.forget(SERVER);
        let first = log.on_flap(SERVER, &change(HealthState::Failing), at(20));
        assert_eq!(first.map(|flap| flap.left_out), Some(0), "it is told at once");
    }

    #[test]
    fn a_backend_that_flaps_gets_a_line_a_second_and_the_last_one_is_true() {
        let log = HealthLog::default();
        let mut lines = 0;
        for nth in 0..1000 {
            let to = if nth % 2 == 0 { HealthState::Failing } else { HealthState::Up };
            lines += u32::from(log.on_flap(SERVER, &change(to), at(nth * 3)).is_some());
        }
        assert_eq!(lines, 3, "in as many seconds");
        let up = |_| HealthState::Up;
        assert_eq!(log.overdue(at(3000), up), [], "not before its time");
        let last = log.overdue(at(4000), up);
        assert_eq!((last[0].from, last[0].to), (HealthState::Failing, HealthState::Up));
        assert!(last[0].left_out > 300, "{last:?}");
        assert_eq!(log.overdue(at(9000), up), [], "told once");
    }

    #[test]
    fn changes_a_second_apart_are_all_told() {
        let log = HealthLog::default();
        for (millis, to) in [(0, HealthState::Failing), (1000, HealthState::Up)] {
            let flap = log.on_flap(SERVER, &change(to), at(millis)).unwrap();
            assert_eq!((flap.to, flap.left_out), (to, 0));
        }
    }

    #[test]
    fn the_log_of_a_pool_that_replaces_another_goes_on_for_the_servers_that_stay() {
        let (old, new) = (HealthLog::default(), HealthLog::default());
        for server in [0, 2] {
            assert!(old.on_flap(server, &change(HealthState::Failing), at(0)).is_some());
            assert!(old.on_flap(server, &change(HealthState::Up), at(5)).is_none());
        }
        // The server at index 2 is at index 0 now, and the one at index 0 is gone.
        new.inherit(&old, |server| (server == 2).then_some(0));
        assert!(new.on_flap(0, &change(HealthState::Failing), at(10)).is_none(), "within a second");
        assert!(new.on_flap(2, &change(HealthState::Failing), at(10)).is_some(), "another server");
        let told = new.overdue(at(2000), |_| HealthState::Up);
        assert_eq!(told.iter().map(|flap| flap.server).collect::<Vec<_>>(), [0]);
        let told = old.overdue(at(2000), |_| HealthState::Up);
        assert_eq!(told.iter().map(|flap| flap.server).collect::<Vec<_>>(), [0, 2]);
    }
}
