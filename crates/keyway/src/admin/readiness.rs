//! Finds the pools that can serve, for `/readyz`.
//!
//! A pool that a listener or a user names must be able to serve. A pool that only other pools lead
//! to counts through them: its failure is a reason not to be ready if requests to a pool above it
//! fail.

use super::Current;
use keyway_log::LogState;
use keyway_topology::{BackendId, FailureReason, RoutedPool};
use keyway_worker::PoolKind;

/// Which pools of a process can serve.
pub(super) struct Readiness<'c> {
    current: &'c Current,
    /// For each pool, the reason why it cannot serve; `None` if it can.
    faults: Vec<Option<String>>,
    /// For each pool, whether it is a reason for the process not to be ready.
    is_reason: Vec<bool>,
}

impl<'c> Readiness<'c> {
    pub(super) fn of(current: &'c Current) -> Self {
        let count = current.plan.pools.len();
        let mut all = Self { current, faults: vec![None; count], is_reason: vec![false; count] };
        let mut is_judged = vec![false; count];
        for pool in current.live_pools() {
            all.judge(pool, &mut is_judged);
        }
        for pool in current.entered_pools() {
            all.blame(usize::from(pool));
        }
        all
    }

    /// Returns a line for each reason why the process is not ready.
    pub(super) fn reasons(&self) -> Vec<String> {
        let lines = self.current.live_pools().filter(|&pool| self.is_reason[pool]);
        lines.filter_map(|pool| self.faults[pool].clone()).collect()
    }

    /// Returns a line for each further pool that cannot serve, or has failing servers.
    pub(super) fn failing(&self) -> Vec<String> {
        let current = self.current;
        let others = current.live_pools().filter(|&pool| !self.is_reason[pool]);
        others
            .filter_map(|pool| {
                if let Some(fault) = &self.faults[pool] {
                    return Some(fault.clone());
                }
                let (failing, count) = (current.failing(pool), current.backends(pool).len());
                if failing.is_empty() {
                    return None;
                }
                let (name, why) = (&current.plan.pools[pool].name, current.describe(&failing));
                let failing = failing.len();
                Some(format!(
                    "pool {name:?}: {failing} of {count} servers failing or out of use{why}"
                ))
            })
            .collect()
    }

    /// Finds out whether a pool can serve. Pools that it leads to are judged first; they never lead
    /// back.
    fn judge(&mut self, pool: usize, is_judged: &mut [bool]) {
        if std::mem::replace(&mut is_judged[pool], true) {
            return;
        }
        let current = self.current;
        let PoolKind::Routed(routes) = &current.plan.pools[pool].kind else {
            self.faults[pool] = current.unserved(pool);
            return;
        };
        for child in routes.pool.children() {
            self.judge(usize::from(child), is_judged);
        }
        let is_down = |child: u16| self.faults[usize::from(child)].is_some();
        if serves(&routes.pool, is_down) {
            return;
        }
        let names = routes.pool.children().into_iter().filter(|&child| is_down(child));
        let names: Vec<String> =
            names.map(|it| format!("{:?}", current.plan.pools[usize::from(it)].name)).collect();
        let (name, names) = (&current.plan.pools[pool].name, names.join(", "));
        self.faults[pool] =
            Some(format!("pool {name:?}: requests fail, as these pools do not serve: {names}"));
    }

    /// Makes a pool that cannot serve a reason, and also the pools whose failure is the cause.
    fn blame(&mut self, pool: usize) {
        if self.faults[pool].is_none() || std::mem::replace(&mut self.is_reason[pool], true) {
            return;
        }
        if let PoolKind::Routed(routes) = &self.current.plan.pools[pool].kind {
            for child in needed(&routes.pool) {
                self.blame(usize::from(child));
            }
        }
    }
}

/// Returns whether requests to a pool of pools are served while `is_down` holds for some pools that
/// it leads to.
fn serves(pool: &RoutedPool, is_down: impl Fn(u16) -> bool) -> bool {
    match pool {
        // Each pool is the only one for its keys.
        RoutedPool::Prefix(_) | RoutedPool::Shadow(_) | RoutedPool::RateLimited(_) => {
            !needed(pool).into_iter().any(is_down)
        }
        // A child that is down is skipped, for reads and for writes.
        RoutedPool::Failover(_) | RoutedPool::Mirror(_) | RoutedPool::MissThen(_) => {
            !needed(pool).into_iter().all(is_down)
        }
        RoutedPool::ReadWriteSplit(split) => {
            !is_down(split.write) && (split.read_fallback || !is_down(split.read))
        }
    }
}

/// Returns the pools whose failure can make requests to a pool of pools fail.
fn needed(pool: &RoutedPool) -> Vec<u16> {
    match pool {
        RoutedPool::Shadow(shadow) => vec![shadow.main],
        _ => pool.children(),
    }
}

/// Most servers that a line about a pool names.
const NAMED_MAX: usize = 5;

impl Current {
    /// Returns the pools that clients use: those that a listener names, and those of its users.
    fn entered_pools(&self) -> impl Iterator<Item = u16> + '_ {
        let listeners = self.plan.listeners.iter().filter(|listener| !listener.is_ended);
        listeners.flat_map(|listener| {
            let of_users = listener.users.all().iter().filter_map(|user| user.pool());
            of_users.chain([listener.pool])
        })
    }

    /// Returns the reason why a pool with servers of its own cannot serve, if it cannot.
    // Neither circuits nor outliers count here. Requests of clients find out when a circuit may
    // close again, and a balancer that relied on this would send none. Of servers that are left out
    // as outliers, one that can be read always stays.
    fn unserved(&self, index: usize) -> Option<String> {
        let pool = &self.plan.pools[index];
        let kind = &pool.kind;
        // Without sentinels the pool goes on with the servers it knows.
        if matches!(kind, PoolKind::Sentinels(_)) {
            return None;
        }
        if let Some(cluster) = kind.cluster()
            && let Some(why) = cluster.unserved(&pool.name)
        {
            return Some(format!("pool {:?}: {why}", pool.name));
        }
        if let Some(store) = kind.store() {
            let restrictions = store.restrictions();
            if restrictions.is_loading() {
                let whose = if restrictions.is_replica() { "its primary's" } else { "its" };
                return Some(format!("pool {:?}: {whose} snapshot is being loaded", pool.name));
            }
            if restrictions.is_unlogged() {
                let is_loading =
                    store.log().is_some_and(|log| log.status().state == LogState::Loading);
                let why = match is_loading {
                    true => "until a base of its log is whole",
                    false => "(-MISCONF) until its log, which has failed, has begun anew",
                };
                return Some(format!("pool {:?}: writes are refused {why}", pool.name));
            }
            if restrictions.is_stale() {
                return Some(format!("pool {:?}: the link to its primary is down", pool.name));
            }
        }
        let totals = self.registry.backend_totals(index);
        let ids = self.plan.topology.backend_ids(index).zip(totals).enumerate();
        let there = ids.filter(|(server, _)| kind.has_server(*server));
        let mut backends = there.map(|(_, backend)| backend).peekable();
        backends.peek()?;
        backends.all(|(id, totals)| self.is_down(id, totals.links_ready)).then(|| {
            let why = self.describe(&self.failing(index));
            format!("pool {:?}: every server is out of use or down{why}", pool.name)
        })
    }

    /// Returns the servers of a pool that are failing, out of use, or down in the view of their
    /// cluster.
    fn failing(&self, pool: usize) -> Vec<(String, BackendId)> {
        let mut all = self.backends(pool);
        let fails = |state: &str| {
            matches!(
                state,
                "failing" | "failed" | "absent" | "ejected" | "rejoining" | "quarantined"
            )
        };
        all.retain(|(_, id)| fails(self.state(*id).0));
        all
    }

    /// Returns the names of failing servers, each with the reason, after a colon; an empty string
    /// if there are none.
    fn describe(&self, failing: &[(String, BackendId)]) -> String {
        let one = |(name, id): &(String, BackendId)| {
            let status = self.status(*id).map(|status| status.role);
            let role = status.filter(|role| *role != "none").map(|role| format!("{role}, "));
            format!("{name} ({}{})", role.unwrap_or_default(), self.reason_words(*id))
        };
        let mut named: Vec<String> = failing.iter().take(NAMED_MAX).map(one).collect();
        if failing.len() > NAMED_MAX {
            named.push(format!("and {} more", failing.len() - NAMED_MAX));
        }
        if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) }
    }

    /// Returns the reason why a server is not up.
    fn reason_words(&self, id: BackendId) -> String {
        let Some(backend) = self.plan.topology.backend(id) else { return String::new() };
        let pool = &self.plan.pools[backend.pool_index];
        let has_password =
            pool.kind.upstream().is_some_and(|upstream| upstream.options.password.is_some());
        let server_index = backend.server_index as u16;
        match self.plan.health.reason(id) {
            Some(FailureReason::Connect) => {
                pool.notices.unreached(server_index).unwrap_or("cannot be reached")
            }
            Some(FailureReason::Timeout) => "no answer in time",
            Some(FailureReason::Closed) => "closed the connection",
            Some(FailureReason::Loading) => "is loading its data",
            Some(FailureReason::MasterDown) => "is a replica without its primary",
            Some(FailureReason::ReadOnly) => "is a replica and refuses writes",
            Some(FailureReason::Protocol) => {
                return match pool.notices.foreign(server_index) {
                    Some((_, said)) => said,
                    None => "answers in another protocol".to_owned(),
                };
            }
            Some(FailureReason::Handshake) if has_password => "refuses the password or database",
            Some(FailureReason::Handshake) => "NOAUTH: wants a password",
            Some(FailureReason::Operator) => "ejected by hand",
            None => match self.state(id).0 {
                "failed" => "failed, as its cluster says",
                "absent" => "absent: no server names it any more",
                other => other,
            },
        }
        .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_topology::{
        FailoverPool, Gutter, MirrorPool, MissThenPool, PrefixPool, RateLimitedPool,
        ReadWriteSplitPool, ShadowBy, ShadowPool, Wait,
    };
    use std::time::Duration;

    #[test]
    fn a_pool_of_pools_serves_while_its_requests_do_not_fail() {
        let children = vec![0, 1];
        let gutter = Some(Gutter { pool: 2, ttl_max: Duration::from_secs(1) });
        let failover = |gutter| RoutedPool::Failover(FailoverPool { children: vec![0, 1], gutter });
        let mirror = MirrorPool { children: children.clone(), read_from: 0, wait: Wait::All };
        let prefix = PrefixPool::new(vec![(b"a".as_slice().into(), 0)], Some(1));
        let limited = RateLimitedPool { child: 0, requests_per_second: 1, burst: 1 };
        let by = ShadowBy::Key;
        let shadow = ShadowPool { main: 0, shadow: 1, percent: 9, by, in_flight_max: 1 };
        let split = |read_fallback| {
            RoutedPool::ReadWriteSplit(ReadWriteSplitPool {
                write: 0,
                read: 1,
                pin_after_write: None,
                read_fallback,
                write_commands: Vec::new(),
            })
        };
        // (the pool, whether it serves with the first child down, with the second, and with both)
        for (pool, expected) in [
            (failover(None), [true, true, false]),
            (failover(gutter), [true, true, true]),
            (RoutedPool::Mirror(mirror), [true, true, false]),
            (
                RoutedPool::MissThen(MissThenPool { children, fill_ttl_max: None }),
                [true, true, false],
            ),
            (RoutedPool::Prefix(prefix), [false, false, false]),
            (RoutedPool::RateLimited(limited), [false, true, false]),
            (RoutedPool::Shadow(shadow), [false, true, false]),
            (split(false), [false, false, false]),
            (split(true), [false, true, false]),
        ] {
            let down: [&[u16]; 3] = [&[0], &[1], &[0, 1]];
            let found = down.map(|down| serves(&pool, |child| down.contains(&child)));
            assert_eq!(found, expected, "{pool:?}");
            assert!(serves(&pool, |_| false), "{pool:?}");
        }
    }
}
