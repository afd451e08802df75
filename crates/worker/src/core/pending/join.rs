//! The replies to the fragments of a request become one reply.

use crate::core::Plane;
use crate::core::observe::counting::Outcome;
use keyway_base::{Key, Slab};
use keyway_metrics::Latency;
use keyway_proxy::{Busy, Join, Operation, ReplyTo, Session, write_fault};
use std::sync::Arc;

impl Plane {
    /// Answers a split request whose last fragment was answered.
    pub(super) fn finish_join(&mut self, sessions: &mut Slab<Session>, key: Key<Operation>) {
        let Some((to, mut join)) = self.pending.end::<Join>(key) else { return };
        self.conclude(key, to.pool, &join);
        if join.report.is_some() {
            // It tells how many requests there were.
            self.observe.served.count_calls(&self.cells);
        }
        let (plan, fault) = (Arc::clone(&self.plan), join.fault());
        let write = |out: &mut Vec<u8>| write_join(&plan, to.pool, &mut join, out);
        if self.answer_operation(sessions, to, fault, write) {
            self.note_join(to, &join);
        }
        self.pending.joins_free.give(join);
    }

    /// Does the same for a join that ends while its session is being parsed.
    pub(in crate::core) fn finish_join_now(
        &mut self,
        key: Key<Operation>,
        session: &mut Session,
        busy: &mut Busy,
    ) {
        let Some((to, mut join)) = self.pending.end::<Join>(key) else { return };
        self.conclude(key, to.pool, &join);
        if join.report.is_some() {
            // It tells how many requests there were.
            self.observe.served.count_calls(&self.cells);
        }
        let fault = join.fault();
        let write = |out: &mut Vec<u8>| write_join(&self.plan, to.pool, &mut join, out);
        if self.answer_operation_now(session, busy, to, fault, write) {
            self.note_join(to, &join);
        }
        self.pending.joins_free.give(join);
    }

    fn note_join(&self, to: ReplyTo, join: &Join) {
        let outcome = match join.fault() {
            // A report covers a failed server, and does not fail itself.
            _ if join.report.is_some() => Outcome::Reply,
            Some(fault) => Outcome::Fault(fault),
            None if join.has_errors() => Outcome::Error,
            None => Outcome::Reply,
        };
        let latency = (!join.is_waiting).then(|| Latency::between(to.started, self.clock.now));
        self.replied(to.pool, to.counted, latency, outcome);
    }
}

fn write_join(plan: &crate::Plan, pool: u16, join: &mut Join, out: &mut Vec<u8>) {
    if join.report.is_some() {
        return crate::core::pools::servers::info::write_report(plan, pool, join, out);
    }
    let kind = &plan.pools[usize::from(pool)].kind;
    let servers = kind.upstream().map_or(0, |upstream| upstream.servers.servers.len());
    let labels: Vec<_> = if join.fault().is_some() || join.has_errors() {
        (0..servers).map(|server| kind.label(server)).collect()
    } else {
        Vec::new()
    };
    join.write_reply(
        out,
        |server| labels.get(usize::from(server)).map_or("", String::as_str),
        |_, fault| {
            let mut text = Vec::new();
            write_fault(fault, "", &mut text);
            let text = String::from_utf8_lossy(&text);
            text.trim_start_matches("-ERR backend ").trim().to_owned()
        },
    );
}
