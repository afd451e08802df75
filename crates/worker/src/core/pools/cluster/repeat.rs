//! Reads whose connection was lost go to another server, and how often requests are
//! sent again is bounded.

use crate::core::upstream::connections::lost_with;
use crate::core::{ConnectionKey, Core, Plane};
use keyway_base::{BackendFault, Sent};
use keyway_command::Class;
use keyway_proxy::Exchange;
use std::sync::atomic::Ordering::Relaxed;

impl Core {
    /// Sends reads to another server whose connection was lost, or tells their clients.
    #[inline]
    pub(in crate::core) fn repeat_reads(
        &mut self,
        from: ConnectionKey,
        reads: Vec<(Exchange, Sent, Box<[u8]>)>,
        fault: BackendFault,
    ) {
        for (exchange, sent, request) in reads {
            if !self.repeat(from, &exchange, &request, fault) {
                let Core { sessions, links, plane } = self;
                let server = links[from].server_id;
                plane.fail(sessions, server, &exchange, false, lost_with(fault, sent));
            }
        }
    }

    /// Returns whether another server was sent the read.
    pub(super) fn repeat(
        &mut self,
        from: ConnectionKey,
        first: &Exchange,
        request: &[u8],
        fault: BackendFault,
    ) -> bool {
        let Core { sessions, links, plane } = self;
        let pool = links[from].server_id.pool;
        // A reply that is too long would end the other's connection as well.
        if matches!(fault, BackendFault::Reply(_)) {
            return false;
        }
        let Some((lane, listener)) = plane.reader_session(sessions, first) else { return false };
        let other = plane.other_reader(links, from, lane, listener, request, false);
        let Some(to) = other.filter(|_| plane.may_retry(pool)) else { return false };
        if let Some(state) = plane.cluster_state(pool) {
            state.shared.totals.retried.fetch_add(1, Relaxed);
        }
        plane.send_second(links, to, first, first.owner, request);
        true
    }
}

impl Plane {
    /// Keeps up with what was asked, a few times a second.
    #[inline]
    pub(super) fn tend_repeats(&mut self, pool: u16) {
        self.tend_hedging(pool);
        self.note_asked(pool);
    }

    fn note_asked(&mut self, pool: u16) {
        let Plane { pools, cells, clock, .. } = self;
        let Some(state) = pools[usize::from(pool)].found_mut() else { return };
        if let Some(budget) = &mut state.retries {
            let of_pool = cells.pool(usize::from(pool));
            let asked = |class: Class| of_pool.calls_of_class(class as usize);
            budget.note_asked(Class::ALL.into_iter().map(asked).sum(), clock.now);
        }
    }

    /// The exchange of a request that goes to another server. If the request's time is over, a
    /// little is left to it: a request may wait longer behind a large reply of its client, and the
    /// other link does not know of that reply.
    pub(super) fn renewed(&self, pool: u16, exchange: &Exchange) -> Exchange {
        let (mut exchange, now) = (*exchange, self.clock.now);
        let asked = exchange.asked();
        let since = self.counts_from(pool, asked);
        if since > asked {
            exchange.count_from(since, now);
        }
        exchange
    }

    /// Returns whether one more request of a pool may be sent again; it counts if it may.
    pub(super) fn may_retry(&mut self, pool: u16) -> bool {
        self.note_asked(pool);
        let now = self.clock.now;
        let Some(state) = self.pools[usize::from(pool)].found_mut() else { return true };
        let may = state.retries.as_mut().is_none_or(|budget| budget.try_spend(now));
        if !may {
            state.cluster.shared.totals.retries_refused.fetch_add(1, Relaxed);
        }
        may
    }
}
