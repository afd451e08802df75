//! The first look at servers that have neither answered nor failed. One worker asks each of them,
//! soon after the start or after a reload that adds it. Requests do not wait for the answer.

use crate::core::{ConnectionKey, Core, Plane};
use keyway_proxy::LinkState;
use keyway_topology::{BackendId, FailureReason, LookStep};
use std::sync::Arc;
use std::time::Duration;

/// A worker asks an unknown server after a random delay of at most this time. A longer delay tells
/// later which servers are dead. With a shorter one, proxies of a site that start together ask
/// together.
const SPREAD: Duration = Duration::from_millis(500);

/// Time that an unknown server has to answer, at least. The sum of the pool's `connect_timeout` and
/// `timeout` counts if it is longer.
const PATIENCE_MIN: Duration = Duration::from_secs(3);

/// Servers that a worker asks in one round of upkeep. More would connect in one burst.
const ASKED_MAX: usize = 64;

impl Core {
    /// Asks unknown servers, ten times a second.
    pub(super) fn look_at_unknown(&mut self) {
        let health = Arc::clone(&self.plane.plan.health);
        let mut asked = 0;
        for id in health.unknown() {
            let Some(index) = self.plane.unknown_link(id) else { continue };
            let patience = self.plane.patience_with(self.links[index].server_id.pool);
            let spread =
                SPREAD.mul_f64((self.plane.next_random() >> 11) as f64 / (1u64 << 53) as f64);
            match health.first_look(id, self.plane.clock.now, spread, patience) {
                LookStep::Wait => {}
                LookStep::Ask => {
                    self.ask_unknown(index);
                    asked += 1;
                    if asked == ASKED_MAX {
                        return;
                    }
                }
                LookStep::GiveUp => self.give_up_unknown(index),
            }
        }
    }

    fn ask_unknown(&mut self, index: ConnectionKey) {
        let Core { links, plane, .. } = self;
        let connection = &mut links[index];
        connection.is_to_knock = true;
        match connection.link.state() {
            LinkState::Ready => {
                plane.knock(connection);
                plane.mark_link_dirty(index, connection);
            }
            LinkState::Idle | LinkState::Backoff { .. } if !connection.is_connecting => {
                connection.is_connecting = true;
                plane.upstream.connects.push(index);
            }
            // The link asks when the connection stands.
            _ => {}
        }
    }

    /// Handles that the worker that asked has no answer. That worker hangs, or the server does not
    /// answer.
    #[cold]
    fn give_up_unknown(&mut self, index: ConnectionKey) {
        let Core { links, plane, .. } = self;
        let slot = &mut links[index];
        // A shortage in this process says nothing about the server: another round begins.
        if !slot.is_starved {
            let now = plane.clock.now;
            plane.note_failure(slot, FailureReason::Timeout, now);
        }
    }
}

impl Plane {
    /// Returns the link on which an unknown server is asked, or `None` while its pool has no server
    /// at that index.
    fn unknown_link(&self, id: BackendId) -> Option<ConnectionKey> {
        let found = self.plan.topology.backend(id)?;
        let pool = found.pool_index as u16;
        let is_there = self
            .cluster_state(pool)
            .is_none_or(|state| state.map.node(found.server_index).is_some());
        if !is_there || self.plan.retired(pool).is_some() {
            return None;
        }
        Some(self.pools[found.pool_index].shared()?.probe_link(found.server_index))
    }

    fn patience_with(&self, pool: u16) -> Duration {
        let options = self.link_options(pool);
        PATIENCE_MIN.max(options.connect_timeout + options.timeout.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tests::{connected_core_with, core_with, pass_to};
    use keyway_net::ConnectFault;
    use keyway_topology::{HealthState, ServerOptions};

    fn unknown(mut core: Core) -> Core {
        let health = &core.plane.plan.health;
        assert!(health.restore(core.links[0].id).is_some());
        core.tend_health();
        assert_eq!(state(&core), HealthState::Unknown);
        core
    }

    fn state(core: &Core) -> HealthState {
        core.plane.plan.health.state(core.links[0].id)
    }

    /// Lets time pass with upkeep, as in a worker, until the server is asked. Returns the time.
    fn ask(core: &mut Core) -> u64 {
        let is_asked = |core: &Core| {
            core.links[0].link.in_flight() > 0
                || core.plane.upstream.connects.contains(&core.links.key_at(0))
        };
        let asked = (1..=6).map(|round| round * 100).find(|&millis| {
            pass_to(core, millis);
            core.tend_health();
            is_asked(core)
        });
        asked.expect("it is asked within the spread")
    }

    fn short(pool: &mut ServerOptions) {
        pool.timeout = Duration::from_millis(200);
    }

    #[test]
    fn an_unknown_server_is_asked_once_and_is_up_when_it_answers() {
        let mut core = unknown(connected_core_with(short));
        let asked = ask(&mut core);
        for millis in [asked + 10, asked + 100] {
            pass_to(&mut core, millis);
            core.tend_health();
        }
        assert_eq!(core.links[0].link.in_flight(), 1);
        core.on_backend_bytes(core.links.key_at(0), b"+PONG\r\n").unwrap();
        assert_eq!(state(&core), HealthState::Up);
        assert!(core.links[0].link.in_flight() == 0 && core.plane.upstream.connects.is_empty());
    }

    #[test]
    fn an_unknown_server_fails_that_does_not_answer_in_time() {
        let mut core = unknown(connected_core_with(short));
        let asked = ask(&mut core);
        pass_to(&mut core, asked + 250);
        assert_eq!(state(&core), HealthState::Failing);
        // It also does not happen after any time if requests have no timeout.
        let mut core = unknown(connected_core_with(|pool| pool.timeout = Duration::MAX));
        let asked = ask(&mut core);
        for millis in [asked + 2900, asked + 30_000] {
            let is_early = millis < asked + 3000;
            pass_to(&mut core, millis);
            core.tend_health();
            assert_eq!(state(&core) == HealthState::Unknown, is_early, "{millis}");
        }
        assert_eq!(state(&core), HealthState::Failing);
    }

    #[test]
    fn an_unknown_server_that_nobody_asked_for_is_connected_to() {
        let mut core = unknown(core_with(short));
        ask(&mut core);
        core.on_connecting(core.links.key_at(0));
        core.on_connect_failed(core.links.key_at(0), ConnectFault::Refused);
        assert_eq!(state(&core), HealthState::Failing);
        // A connection is not an answer yet.
        let mut core = unknown(core_with(short));
        ask(&mut core);
        core.on_connecting(core.links.key_at(0));
        core.on_connected(core.links.key_at(0), keyway_net::Socket(1));
        assert_eq!(state(&core), HealthState::Unknown);
        assert_eq!(core.links[0].link.in_flight(), 1);
        core.on_backend_bytes(core.links.key_at(0), b"+PONG\r\n").unwrap();
        assert_eq!(state(&core), HealthState::Up);
    }

    #[test]
    fn a_request_tells_as_well_as_a_probe() {
        let mut core = unknown(connected_core_with(short));
        let client = crate::core::tests::client(&mut core);
        core.on_client_bytes(client, b"GET a\r\n");
        core.on_backend_bytes(core.links.key_at(0), b"$-1\r\n").unwrap();
        assert_eq!(state(&core), HealthState::Up);
    }
}
