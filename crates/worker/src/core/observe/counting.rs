//! Requests, their errors and their latencies, counted by class and by command.

use crate::core::Plane;
use keyway_base::Fault;
use keyway_command::{Counted, Request};
use keyway_metrics::{Latency, RequestCells};
use keyway_resp::Kind;

/// The outcome of a request, as it is counted.
#[derive(Clone, Copy)]
pub(in crate::core) enum Outcome {
    /// A reply without an error.
    Reply,
    /// An error reply of a server or of a script.
    Error,
    /// An error of Keyway itself.
    Fault(Fault),
}

impl Outcome {
    /// The outcome of a request that a server answered.
    #[inline]
    pub(in crate::core) fn of_reply(kind: Kind) -> Outcome {
        if kind == Kind::Error { Outcome::Error } else { Outcome::Reply }
    }

    /// The outcome of a request that failed with `fault`, if it failed.
    pub(in crate::core) fn of_fault(fault: Option<Fault>) -> Outcome {
        fault.map_or(Outcome::Reply, Outcome::Fault)
    }
}

impl Plane {
    /// Returns where a pool's requests of one kind are counted.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a few instructions, once per request")]
    fn request_cells(&self, pool: u16, counted: Counted) -> RequestCells<'_> {
        self.cells.pool(usize::from(pool)).requests(counted.class() as usize, counted.command())
    }

    /// Counts a request that was accepted: before the turn sends replies, or in front of whatever
    /// tells such counts.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a few instructions, once per request")]
    pub(in crate::core) fn started(&mut self, pool: u16, counted: Counted) {
        self.observe.started(pool, counted);
    }

    /// Counts an error reply of the store, and logs that it refuses writes.
    #[cold]
    pub(in crate::core) fn note_store_error(&self, pool: u16, counted: Counted, is_full: bool) {
        if !is_full {
            return self.request_cells(pool, counted).error_reply();
        }
        self.count_fault(pool, counted, Fault::StoreFull);
        let plan = &self.plan.pools[pool as usize];
        if plan.notices.store_full.is_due(self.clock.now) {
            let memory_max = plan.kind.store().map_or(0, |store| store.config().memory_max);
            tracing::warn!(pool = plan.name, memory_max, "store is full: writes are refused");
        }
    }

    /// Does the same for a request that is completely received. If it has a value that is larger
    /// than the store may be, the log names that value: the store may have room for others.
    #[cold]
    pub(in crate::core) fn note_refused_write(&self, pool: u16, request: &Request, is_full: bool) {
        let counted = request.command.counted();
        let plan = &self.plan.pools[usize::from(pool)];
        let memory_max = plan.kind.store().map_or(0, |store| store.config().memory_max);
        let value = request.args.from(1).map(|arg| arg.len() as u64).max().unwrap_or_default();
        if !is_full || memory_max == 0 || value <= memory_max {
            return self.note_store_error(pool, counted, is_full);
        }
        self.count_fault(pool, counted, Fault::StoreFull);
        if plan.notices.value_too_large.is_due(self.clock.now) {
            tracing::warn!(
                pool = plan.name,
                memory_max,
                value,
                "a value of {value} bytes does not fit into the store: raise memory_max"
            );
        }
    }

    /// Notes that a request was answered without asking a server. Its latency is recorded with
    /// those of its turn.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a few instructions, once per request")]
    pub(in crate::core) fn executed(&mut self, pool: u16, counted: Counted) {
        self.observe.served.note(pool, counted, 0);
    }

    /// Counts a request that is accepted and answered at once, without asking a server.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a few instructions, once per request")]
    pub(in crate::core) fn served(&mut self, pool: u16, counted: Counted) {
        self.observe.served.note(pool, counted, 1);
    }

    /// Counts the end of a request for which servers were asked. `latency` is `None` for a command
    /// that waited as it was asked to.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a few instructions, once per request")]
    pub(in crate::core) fn replied(
        &self,
        pool: u16,
        counted: Counted,
        latency: Option<Latency>,
        outcome: Outcome,
    ) {
        let cells = self.request_cells(pool, counted);
        if let Some(latency) = latency {
            cells.latencies(latency, 1);
        }
        match outcome {
            Outcome::Reply => {}
            Outcome::Error => cells.error_reply(),
            Outcome::Fault(fault) => cells.fault(fault),
        }
    }

    /// Counts a request that was answered with an error of Keyway itself.
    #[cold]
    pub(in crate::core) fn count_fault(&self, pool: u16, counted: Counted, fault: Fault) {
        self.request_cells(pool, counted).fault(fault);
    }
}
