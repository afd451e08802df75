//! MONITOR: requests of a pool are shown to its monitors.
//!
//! A request is shown once, when it starts. Its line is held until the next one or the end of the
//! turn, and dropped if the request has to wait instead. A monitor that does not read misses lines,
//! and is told how many once it has read.

use crate::core::observe::state::Monitoring;
use crate::core::observe::state::Watcher;
use crate::core::request::Step;
use crate::core::request::{ClientRef, RequestContext};
use crate::core::{Core, Plane};
use crate::monitors::Line;
use crate::pool_worker::PoolWorker;
use keyway_base::{Clock, Key};
use keyway_command::Request;
use keyway_proxy::{Identity, Session, is_shown, write_line, write_lost, write_memcached_line};
use keyway_resp::reply;

/// Number of undelivered bytes of one monitor above which it is shown nothing more.
const OUTPUT_LEN_MAX: usize = 1 << 20;

/// Number of bytes of lines above which they are handed over before the end of the turn: a part of
/// the capacity of an inbox.
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
            return self.refuse_request(incoming, text);
        }
        self.served(incoming.session.pool, incoming.request.command.counted());
        self.answer(incoming.session, incoming.busy, |out| reply::simple(out, "OK"));
        if !std::mem::replace(&mut incoming.session.is_monitor, true) {
            // Earlier requests are not for this monitor.
            self.hand_on_shown();
            let pool = incoming.session.pool;
            self.observe.monitoring.watchers.push(Watcher { pool, session: incoming.key, lost: 0 });
            let pause = &self.plan.pools[usize::from(pool)].pause;
            self.plan.monitors.add(PoolWorker { pool, worker: self.worker() }, pause);
        }
        Step::Started
    }

    /// Stops showing requests to a client that leaves or resets.
    #[cold]
    pub(in crate::core) fn end_monitor(&mut self, key: Key<Session>, session: &mut Session) {
        session.is_monitor = false;
        self.observe.monitoring.watchers.retain(|watcher| watcher.session != key);
        let pause = &self.plan.pools[usize::from(session.pool)].pause;
        self.plan.monitors.remove(PoolWorker { pool: session.pool, worker: self.worker() }, pause);
    }

    /// Creates the line of a request that is about to start.
    #[cold]
    pub(in crate::core) fn show_request(&mut self, client: ClientRef<'_>, request: &Request) {
        if is_shown(request) {
            self.hold_shown(client, |clock, identity, line| {
                write_line(request, clock, identity.database, &identity.addr, line);
            });
        }
    }

    /// Does the same for a request of a memcached client.
    #[cold]
    pub(in crate::core) fn show_memcached(
        &mut self,
        client: ClientRef<'_>,
        request: &keyway_memcache::Request,
        bytes: &[u8],
    ) {
        self.hold_shown(client, |clock, identity, line| {
            write_memcached_line(request, bytes, clock, &identity.addr, line);
        });
    }

    /// Holds the line that `write` appends until the request has started, if the request is one of
    /// those that are shown.
    fn hold_shown(
        &mut self,
        ClientRef { key, session }: ClientRef<'_>,
        write: impl FnOnce(Clock, &Identity, &mut Vec<u8>),
    ) {
        let every = u64::from(self.plan.limits.monitor_every);
        if every > 1 && !(self.next_random() >> 16).is_multiple_of(every) {
            return;
        }
        let line = &mut self.observe.monitoring.line;
        line.clear();
        write(self.clock, &session.identity, line);
        let shown = Line { pool: session.pool, text: line.as_slice().into() };
        self.observe.monitoring.held.push((key, shown));
    }

    /// Shows the previous request: it has started.
    #[cold]
    pub(in crate::core) fn commit_shown(&mut self) {
        let Monitoring { held, started, started_len, .. } = &mut self.observe.monitoring;
        for (_, line) in held.drain(..) {
            *started_len += line.text.len();
            started.push(line);
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

    /// Hands the lines of a turn over to the workers that have monitors, all at once, because all
    /// workers share the channel.
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

    /// Does not show the request of this client now, because it has to wait.
    #[inline]
    pub(in crate::core) fn retract_shown(&mut self, key: Key<Session>) {
        self.observe.monitoring.held.retain(|(shown, ..)| *shown != key);
    }
}

impl Core {
    /// Sends the received lines to this worker's monitors.
    #[cold]
    pub(in crate::core) fn deliver_monitored(&mut self) {
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
            for Line { text, .. } in lines.iter().filter(|line| line.pool == watcher.pool) {
                if busy.undelivered() + text.len() > OUTPUT_LEN_MAX {
                    watcher.lost += 1;
                    continue;
                }
                if watcher.lost > 0 {
                    let lost = std::mem::take(&mut watcher.lost);
                    let reason = "requests are not shown: this client reads too slowly";
                    write_lost(lost, *clock, reason, busy.output.buf());
                }
                busy.output.buf().extend_from_slice(text);
            }
            if !session.is_dirty {
                session.is_dirty = true;
                dirty.push(watcher.session);
            }
        }
    }
}
