//! Times slow requests on the embedded store, for SLOWLOG.
//!
//! A turn has one time, so the clock is read only around certain requests: commands that may be
//! slow however small they are, and requests that carry or get many bytes. The second reading is
//! the first reading of the next request, if that is timed too.

use crate::PoolPlan;
use crate::core::Plane;
use crate::core::pools::store::state::Looked;
use crate::core::request::ClientMut;
use crate::core::request::ReplyIndex;
use keyway_base::Time;
use keyway_command::Request;
use keyway_memcache as memcache;
use keyway_proxy::{Busy, Session, SlowEntry, SlowLog, shown_args, shown_words};
use std::time::Duration;

/// Number of requests since the last reading of the clock up to which a large reply is timed from
/// that reading. With more, the time of those requests would be charged to it. With fewer, a large
/// reply in a deep pipeline would not be timed.
const LATELY: u64 = 64;

/// A request that is timed. The last reading of the clock is the time at which it began, or at
/// which its wait was over.
#[derive(Clone, Copy, Debug)]
pub(in crate::core) struct Work {
    /// Index of its reply, if its client gets one.
    reply: Option<u32>,
}

/// The times at which a request began and ended.
#[derive(Clone, Copy)]
struct WorkTimes {
    began: Time,
    ended: Time,
}

/// Returns whether a request is timed.
#[inline]
pub(super) fn is_timed(log: &SlowLog, request: &Request) -> bool {
    request.command.may_take_long || request.args.buf().len() >= log.timed_from()
}

impl Plane {
    /// Reads the clock, if the pool's requests are timed.
    #[cold]
    pub(super) fn look(&mut self, log: &SlowLog) -> Option<Time> {
        let at = log.now()?;
        self.store.looked = Looked { at, requests: self.batch };
        Some(at)
    }

    /// Begins to time the request that was started last: from now, or from the end of the request
    /// before it.
    #[cold]
    #[inline(never)]
    pub(in crate::core::pools) fn begin_work(
        &mut self,
        log: &SlowLog,
        session: &Session,
        busy: &Busy,
    ) -> Option<Work> {
        if self.store.looked.requests + 1 < self.batch {
            self.look(log)?;
        }
        // The reply of a session without a client goes to another pool.
        let is_heard = !Self::is_silent(session) && session.sub_request.is_none();
        Some(Work { reply: is_heard.then(|| busy.order.next_index()) })
    }

    /// Returns the timing of a request whose large reply was just composed, if the clock was read
    /// at most `LATELY` requests ago.
    #[cold]
    #[inline(never)]
    pub(in crate::core::pools) fn began_lately(
        &mut self,
        log: &SlowLog,
        session: &Session,
        busy: &Busy,
    ) -> Option<Work> {
        if self.store.looked.requests + LATELY < self.batch {
            self.look(log);
            return None;
        }
        let is_heard = !Self::is_silent(session) && session.sub_request.is_none();
        let reply = is_heard.then(|| busy.order.next_index().wrapping_sub(1));
        Some(Work { reply })
    }

    /// Notes that a request was executed.
    #[cold]
    #[inline(never)]
    pub(super) fn end_work(
        &mut self,
        pool: &PoolPlan,
        client: ClientMut<'_>,
        request: &Request,
        work: Work,
    ) {
        if let Some(times) = self.ended_slow(&pool.slow_log) {
            self.keep_worked(pool, client, work, times, shown_args(request.args.buf()));
        }
    }

    /// Does the same for a request of a memcached client.
    #[cold]
    #[inline(never)]
    pub(in crate::core::pools) fn end_memcached_work(
        &mut self,
        pool: &PoolPlan,
        client: ClientMut<'_>,
        request: &memcache::Request,
        bytes: &[u8],
        work: Work,
    ) {
        let Some(times) = self.ended_slow(&pool.slow_log) else { return };
        let name = match request.head.verb {
            memcache::Verb::FlushAll => "flush_all",
            verb => crate::core::observe::hot_keys::command_of(verb).unwrap_or("request"),
        };
        let value = Some(request.value.of(bytes)).filter(|value| !value.is_empty());
        let words: Vec<&[u8]> =
            std::iter::once(name.as_bytes()).chain(request.keys(bytes)).chain(value).collect();
        self.keep_worked(pool, client, work, times, shown_words(words.into_iter()));
    }

    /// Returns the times of the request that has just ended, if it was slow.
    fn ended_slow(&mut self, log: &SlowLog) -> Option<WorkTimes> {
        let began = self.store.looked.at;
        let ended = self.look(log)?;
        (ended.since(began) >= log.slower_than()).then_some(WorkTimes { began, ended })
    }

    fn keep_worked(
        &mut self,
        pool: &PoolPlan,
        ClientMut { key, session }: ClientMut<'_>,
        work: Work,
        WorkTimes { began, ended: now }: WorkTimes,
        args: Vec<Vec<u8>>,
    ) {
        let (addr, name) = self.client_names(Some(session.identity.id));
        // The request was there when the turn began.
        let (queued, took) = (began.since(self.clock.now), now.since(self.clock.now));
        let micros = |time: Duration| time.as_micros() as u64;
        let entry = SlowEntry {
            id: 0,
            unix_seconds: (self.clock.unix_micros + micros(took)) / 1_000_000,
            // The parts then add up, whatever is rounded off.
            micros: micros(took).saturating_sub(micros(queued)),
            args,
            addr,
            name,
            trace: self.next_random(),
            server: String::new(),
            queue_micros: micros(queued),
            receive_micros: 0,
            write_micros: None,
        };
        let reply = work.reply.map(|reply| ReplyIndex { session: key, reply });
        self.keep_slow(pool, entry, reply, now, took.subsec_nanos() % 1000);
        session.has_unwritten |= reply.is_some();
    }
}
