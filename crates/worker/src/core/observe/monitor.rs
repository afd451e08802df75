//! MONITOR: requests of a pool shown to its clients that watch.
//!
//! A request is shown once, when it starts: the line made of it is held until
//! the next one comes or the turn ends, and dropped when the request has to
//! wait instead. A monitor that does not read misses lines, and is told how
//! many once it has read.

use crate::core::observe::state::Monitoring;
use crate::core::observe::state::Watcher;
use crate::core::request::Step;
use crate::core::request::{ClientRef, RequestContext};
use crate::core::{Core, Plane};
use crate::plan::PoolWorker;
use keyway_base::Key;
use keyway_command::Request;
use keyway_proxy::{Session, is_shown, write_line, write_lost, write_memcached_line};
use keyway_resp::reply;

/// Undelivered bytes of one monitor above which it is shown nothing more.
const OUTPUT_LEN_MAX: usize = 1 << 20;

/// Bytes of lines above which they are handed on before the turn ends: a part
/// of what an inbox holds.
const STARTED_LEN_MAX: usize = 64 << 10;

impl Plane {
    /// Begins to show a client the requests of its pool.
    #[cold]
    pub(in crate::core) fn start_monitor(&mut self, incoming: &mut RequestContext) -> Step {
        if !incoming.busy.order.is_empty() {
            incoming.session.fence();
            return Step::Wait;
        }
        if self.plan.limits.monitor_every == 0 {
            let text = "ERR 'monitor' is refused: monitor_every = 0 in [limits] turns it off";
            self.refuse(incoming.session, incoming.busy, |out| reply::error(out, text));
            return Step::Started;
        }
        self.count(incoming.session, incoming.request);
        self.note_served(incoming.session.pool, incoming.request.command.counted());
        self.answer(incoming.session, incoming.busy, |out| reply::simple(out, "OK"));
        if !std::mem::replace(&mut incoming.session.is_monitor, true) {
            // What has come before is not for this one.
            self.hand_on_shown();
            let pool = incoming.session.pool;
            self.observe.monitoring.watchers.push(Watcher { pool, session: incoming.key, lost: 0 });
            let pause = &self.plan.pools[usize::from(pool)].pause;
            self.plan.monitors.add(PoolWorker { pool, worker: self.worker() }, pause);
        }
        Step::Started
    }

    /// Shows a client no more, as it leaves or resets.
    #[cold]
    pub(in crate::core) fn end_monitor(&mut self, key: Key<Session>, session: &mut Session) {
        session.is_monitor = false;
        self.observe.monitoring.watchers.retain(|watcher| watcher.session != key);
        let pause = &self.plan.pools[usize::from(session.pool)].pause;
        self.plan.monitors.remove(PoolWorker { pool: session.pool, worker: self.worker() }, pause);
    }

    /// Makes the line of a request that is about to start.
    #[cold]
    pub(in crate::core) fn show_request(
        &mut self,
        ClientRef { key, session }: ClientRef<'_>,
        request: &Request,
    ) {
        let every = u64::from(self.plan.limits.monitor_every);
        if !is_shown(request) || (every > 1 && !(self.next_random() >> 16).is_multiple_of(every)) {
            return;
        }
        let identity = &session.identity;
        let line = &mut self.observe.monitoring.line;
        line.clear();
        write_line(request, self.clock, identity.database, &identity.addr, line);
        self.observe.monitoring.held.push((key, session.pool, line.as_slice().into()));
    }

    /// The same for a request of a memcached client.
    #[cold]
    pub(in crate::core) fn show_memcached(
        &mut self,
        ClientRef { key, session }: ClientRef<'_>,
        request: &keyway_memcache::Request,
        bytes: &[u8],
    ) {
        let every = u64::from(self.plan.limits.monitor_every);
        if every > 1 && !(self.next_random() >> 16).is_multiple_of(every) {
            return;
        }
        let identity = &session.identity;
        let line = &mut self.observe.monitoring.line;
        line.clear();
        write_memcached_line(request, bytes, (self.clock, &identity.addr), line);
        self.observe.monitoring.held.push((key, session.pool, line.as_slice().into()));
    }

    /// Shows the request before this one: it has started.
    #[cold]
    pub(in crate::core) fn commit_shown(&mut self) {
        let Monitoring { held, started, started_len, .. } = &mut self.observe.monitoring;
        for (_, pool, line) in held.drain(..) {
            *started_len += line.len();
            started.push((pool, line));
        }
        if self.observe.monitoring.started_len > STARTED_LEN_MAX {
            self.hand_on_shown();
        }
    }

    /// Shows all requests that have started.
    #[cold]
    pub(in crate::core) fn show_started(&mut self) {
        self.commit_shown();
        self.hand_on_shown();
    }

    /// Hands the lines of a turn to the workers that have monitors, at once:
    /// all workers share what they are handed through.
    fn hand_on_shown(&mut self) {
        let lines = std::mem::take(&mut self.observe.monitoring.started);
        self.observe.monitoring.started_len = 0;
        for worker in self.plan.monitors.show(lines) {
            match worker == self.worker() {
                true => self.observe.monitoring.has_mail = true,
                false => self.plan.post_published(worker),
            }
        }
    }

    /// Does not show the request of this client now, as it has to wait.
    #[inline]
    pub(in crate::core) fn retract_shown(&mut self, key: Key<Session>) {
        self.observe.monitoring.held.retain(|(shown, ..)| *shown != key);
    }
}

impl Core {
    /// Hands the lines that have come to this worker's monitors.
    #[cold]
    pub(crate) fn deliver_monitored(&mut self) {
        let Core { sessions, plane, .. } = self;
        plane.commit_shown();
        plane.hand_on_shown();
        plane.observe.monitoring.has_mail = false;
        let (lines, lost) = plane.plan.monitors.take(plane.worker());
        let Plane { observe, clients, clock, .. } = plane;
        let (monitoring, busy_pool, dirty) =
            (&mut observe.monitoring, &mut clients.busy_pool, &mut clients.dirty);
        for watcher in &mut monitoring.watchers {
            let Some(session) = sessions.get_mut(watcher.session) else { continue };
            if session.closing {
                continue;
            }
            let missed = lost.iter().filter(|(pool, _)| *pool == watcher.pool);
            watcher.lost += missed.map(|(_, count)| *count).sum::<u64>();
            let busy = session.busy.get_or_insert_with(|| busy_pool.take());
            for (_, line) in lines.iter().filter(|(pool, _)| *pool == watcher.pool) {
                if busy.undelivered() + line.len() > OUTPUT_LEN_MAX {
                    watcher.lost += 1;
                    continue;
                }
                if watcher.lost > 0 {
                    let lost = std::mem::take(&mut watcher.lost);
                    let reason = "requests are not shown: this client reads too slowly";
                    write_lost(lost, *clock, reason, busy.output.buf());
                }
                busy.output.buf().extend_from_slice(line);
            }
            if !session.is_dirty {
                session.is_dirty = true;
                dirty.push(watcher.session);
            }
        }
    }
}
