//! Slow requests, for SLOWLOG.

use crate::PoolPlan;
use crate::core::Plane;
use crate::core::observe::state::SlowClient;
use crate::core::observe::state::Told;
use crate::core::observe::state::Unwritten;
use crate::core::request::ReplyIndex;
use keyway_base::{Key, Slab, Time};
use keyway_command::lookup;
use keyway_proxy::{Owner, Session, Slow, SlowEntry, shown_args};
use keyway_topology::ServerId;
use std::sync::Arc;
use std::time::Duration;

impl Plane {
    /// Returns the id of the client that waits for a reply, or `None` if there is none any more.
    #[cold]
    fn client_of(&self, sessions: &Slab<Session>, owner: Owner) -> Option<u64> {
        Some(sessions.get(self.session_of(owner)?)?.identity.id)
    }

    /// The client that waits for the reply to an exchange. A session without a client, which brings
    /// the reply to another pool, has no reply of its own.
    #[cold]
    pub(in crate::core) fn slow_client(
        &self,
        sessions: &Slab<Session>,
        owner: Owner,
    ) -> SlowClient {
        let has_client = |index: &ReplyIndex| {
            sessions.get(index.session).is_some_and(|session| session.sub_request.is_none())
        };
        let reply = self.reply_index(owner).filter(has_client);
        SlowClient { id: self.client_of(sessions, owner), reply }
    }

    /// The reply that an exchange is for.
    pub(in crate::core) fn reply_index(&self, owner: Owner) -> Option<ReplyIndex> {
        match owner {
            Owner::Session { session, sequence } => Some(ReplyIndex { session, reply: sequence }),
            Owner::Operation { operation, .. } => self.pending.reply_index(operation),
            Owner::Hedged { hedge, .. } => self.reply_index(self.cluster.owner_of(hedge)?),
            Owner::Unheard(_) | Owner::Internal(_) | Owner::None => None,
        }
    }

    /// Returns the session that waits for a reply, or for a request to be over.
    pub(in crate::core) fn session_of(&self, owner: Owner) -> Option<Key<Session>> {
        match owner {
            Owner::Session { session, .. } | Owner::Unheard(session) => Some(session),
            Owner::Operation { operation, .. } => self.pending.session_of(operation),
            Owner::Hedged { hedge, .. } => self.session_of(self.cluster.owner_of(hedge)?),
            Owner::Internal(_) | Owner::None => None,
        }
    }

    /// Adds a slow request to its pool's log.
    #[cold]
    pub(in crate::core) fn log_slow(&mut self, server: ServerId, slow: Slow, client: SlowClient) {
        let (addr, name) = self.client_names(client.id);
        let (queued, took) = (slow.queued, slow.queued + slow.took);
        let received = took + self.clock.now.since(slow.answered);
        let micros = |time: Duration| time.as_micros() as u64;
        let entry = SlowEntry {
            id: 0,
            unix_seconds: self.clock.unix_micros / 1_000_000,
            // The parts then add up, whatever is rounded off.
            micros: micros(took) - micros(queued),
            args: shown_args(&slow.request),
            addr,
            name,
            trace: self.next_random(),
            server: self.name_backend(server).label,
            queue_micros: micros(queued),
            receive_micros: micros(received) - micros(took),
            write_micros: None,
        };
        let pool = Arc::clone(&self.plan.pools[usize::from(server.pool)]);
        let rest = received.subsec_nanos() % 1000;
        self.keep_slow(&pool, entry, client.reply, self.clock.now, rest);
    }

    /// Returns address and name of a client, as far as it exists.
    pub(in crate::core) fn client_names(&self, client: Option<u64>) -> (String, String) {
        let entry = client.and_then(|id| self.plan.clients.get(id));
        entry.map_or_else(Default::default, |entry| {
            (entry.addr.to_string(), entry.name().to_owned())
        })
    }

    /// Adds an entry to the log of its pool. The entry is completed once the client has the reply,
    /// which arrived at `received`. `rest` is the number of nanoseconds that its times leave out.
    pub(in crate::core) fn keep_slow(
        &mut self,
        pool: &PoolPlan,
        entry: SlowEntry,
        reply: Option<ReplyIndex>,
        received: Time,
        rest: u32,
    ) {
        let told = tracing::enabled!(tracing::Level::DEBUG)
            .then(|| Told { pool: pool.name.clone(), entry: entry.clone() });
        let log = Arc::clone(&pool.slow_log);
        let id = log.add(entry);
        let reply_or_none = reply.unwrap_or(ReplyIndex { session: Key::NONE, reply: 0 });
        let unwritten =
            Unwritten { reply: reply_or_none, left: None, received, rest, log, id, told };
        if reply.is_none() {
            return self.tell_slow(unwritten, None);
        }
        if self.observe.unwritten.len() == UNWRITTEN_MAX {
            let oldest = self.observe.unwritten.remove(0);
            self.tell_slow(oldest, None);
        }
        self.observe.unwritten.push(unwritten);
    }

    /// Starts to watch when a session's replies are sent.
    #[cold]
    pub(in crate::core) fn await_written(
        &self,
        sessions: &mut Slab<Session>,
        reply: Option<ReplyIndex>,
    ) {
        if let Some(session) = reply.and_then(|index| sessions.get_mut(index.session)) {
            session.has_unwritten = true;
        }
    }

    /// Notes, before a client is sent its output, which of the replies to slow requests are in it.
    #[cold]
    pub(crate) fn mark_unwritten(&mut self, key: Key<Session>, session: &Session) {
        let Some(busy) = &session.busy else { return };
        for it in self
            .observe
            .unwritten
            .iter_mut()
            .filter(|it| it.reply.session == key && it.left.is_none())
        {
            if busy.order.has_passed(it.reply.reply.wrapping_add(1)) {
                it.left = Some(busy.output.len());
            }
        }
    }

    /// Notes that the system has taken `len` bytes for a client. Returns whether there are replies
    /// to slow requests that it does not have yet.
    #[cold]
    pub(crate) fn note_written(&mut self, key: Key<Session>, taken: usize, now: Time) -> bool {
        let (mut index, mut has_more) = (0, false);
        while let Some(it) = self.observe.unwritten.get_mut(index) {
            let is_here = it.reply.session == key;
            if let (true, Some(left)) = (is_here, &mut it.left) {
                *left = left.saturating_sub(taken);
            }
            if is_here && it.left == Some(0) {
                let done = self.observe.unwritten.remove(index);
                self.tell_slow(done, Some(now));
            } else {
                has_more |= is_here;
                index += 1;
            }
        }
        has_more
    }

    /// Discards the slow requests of a client that is gone.
    #[cold]
    pub(in crate::core) fn forget_unwritten(&mut self, key: Key<Session>) {
        while let Some(index) = self.observe.unwritten.iter().position(|it| it.reply.session == key)
        {
            let it = self.observe.unwritten.remove(index);
            self.tell_slow(it, None);
        }
    }

    /// Completes the entry of a slow request, and logs it at level `debug` with the same trace
    /// number: at most ten a second.
    fn tell_slow(&mut self, it: Unwritten, written: Option<Time>) {
        let write = written.map(|now| {
            let since = now.since(it.received) + Duration::from_nanos(it.rest.into());
            since.as_micros() as u64
        });
        if let Some(micros) = write {
            it.log.note_written(it.id, micros);
        }
        let Some(Told { pool, mut entry }) = it.told else { return };
        let Some(left_out) = self.observe.slow_lines.take(self.clock.now) else { return };
        entry.write_micros = write;
        tracing::debug!(
            trace = format!("{:016x}", entry.trace),
            pool,
            backend = Some(&*entry.server).filter(|server| !server.is_empty()),
            command = command_name(&entry.args),
            queue_us = entry.queue_micros,
            server_us = entry.micros,
            receive_us = entry.receive_micros,
            write_us = entry.write_micros,
            total_us = entry.total_micros(),
            left_out = Some(left_out).filter(|count| *count > 0),
            "slow request"
        );
    }
}

/// Number of slow requests, for each worker, whose client does not have the reply yet. With more,
/// the oldest is logged without that time.
const UNWRITTEN_MAX: usize = 256;

/// Returns the name of a known command. Text of a client must not be logged.
fn command_name(args: &[Vec<u8>]) -> &'static str {
    args.first().and_then(|name| lookup(name)).map_or("unknown", |command| command.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::observe::state::{LINES_MAX, SlowLines};

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
