//! Slow requests, for SLOWLOG.

use super::Plane;
use crate::PoolKind;
use keyway_base::{Key, Slab, Time};
use keyway_command::lookup;
use keyway_proxy::{Owner, Session, Slow, SlowEntry, shown_args};
use std::sync::Arc;
use std::time::Duration;

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

    /// Adds a slow request to its pool's log, and at level `debug` tells of it under the same
    /// name: of ten in a second at most.
    #[cold]
    pub(super) fn log_slow(
        &mut self,
        (pool, backend): (u16, u16),
        slow: Slow,
        client: Option<u64>,
    ) {
        let plan = Arc::clone(&self.plan);
        let PoolKind::Sharded { slow_log, .. } = &plan.pools[pool as usize].kind else {
            return;
        };
        let entry = client.and_then(|id| self.plan.clients.get(id));
        let (addr, name) =
            entry.map_or_else(Default::default, |entry| (entry.addr.to_string(), entry.name));
        let entry = SlowEntry {
            id: 0,
            unix_seconds: self.clock.unix_micros / 1_000_000,
            micros: slow.took.as_micros() as u64,
            args: shown_args(&slow.request),
            addr,
            name,
            trace: self.next_random(),
            server: self.name_backend(pool, backend).label,
            queue_micros: slow.queued.as_micros() as u64,
            receive_micros: self.clock.now.since(slow.answered).as_micros() as u64,
        };
        let is_told = tracing::enabled!(tracing::Level::DEBUG);
        if let Some(left_out) = is_told.then(|| self.slow_lines.take(self.clock.now)).flatten() {
            let left_out = Some(left_out).filter(|count| *count > 0);
            tracing::debug!(
                trace = format!("{:016x}", entry.trace),
                pool = plan.pools[pool as usize].name,
                backend = entry.server,
                command = command_name(&entry.args),
                queue_us = entry.queue_micros,
                server_us = entry.micros,
                receive_us = entry.receive_micros,
                left_out,
                "slow request"
            );
        }
        slow_log.add(entry);
    }
}

/// What a command is called, if it is one that is known: what a client made up has no place in
/// the log.
fn command_name(args: &[Vec<u8>]) -> &'static str {
    args.first().and_then(|name| lookup(name)).map_or("unknown", |command| command.name)
}

/// Lines on slow requests in one second of one worker. More would let a slow server fill the
/// log.
const LINES_MAX: u32 = 10;

/// How many lines on slow requests there were in this second.
#[derive(Debug, Default)]
pub(super) struct SlowLines {
    since: Time,
    count: u32,
    left_out: u64,
}

impl SlowLines {
    /// Whether there may be another line now, which then tells how many were left out
    /// before it.
    fn take(&mut self, now: Time) -> Option<u64> {
        if now >= self.since + Duration::from_secs(1) {
            (self.since, self.count) = (now, 0);
        }
        if self.count == LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.count += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_those_left_out_counted() {
        let mut lines = SlowLines::default();
        let at = |millis: u64| Time(millis * 1_000_000);
        let told: Vec<_> = (0..100).filter_map(|nth| lines.take(at(5000 + nth))).collect();
        assert_eq!(told, [0; LINES_MAX as usize]);
        assert_eq!(lines.take(at(6000)), Some(90));
        assert_eq!(lines.take(at(6001)), Some(0));
    }
}
