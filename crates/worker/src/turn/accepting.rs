//! Waiting clients are accepted, or told that there is no room.

use super::Worker;
use crate::Adopted;
use keyway_base::{Fault, Key, LimitFault};
use keyway_metrics::CloseReason;
use keyway_net::{Accept, Away, Io, ListenerIndex, Peer, Socket};
use keyway_proxy::local::ClientEntry;
use keyway_proxy::memcached::write_no_room;
use keyway_proxy::{Identity, Session, write_fault};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Number of clients that are accepted in one turn before connected clients get theirs.
const ACCEPTS_PER_TURN: usize = 64;

/// Largest number of clients that are accepted by a listener that ends: more than queues hold, if
/// not many arrive meanwhile.
const WAITING_MAX: usize = 64 << 10;

/// Longest time of a reply, in multiples of the longest `timeout` of all pools: pools may be asked
/// one after the other, and once more. A smaller number would close clients that wait. A larger one
/// would keep a session whose reply was lost for longer.
const REPLY_TIMEOUTS_MAX: u32 = 32;

/// Pause after the system could not hand over a waiting client.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl<I: Io> Worker<I> {
    pub(super) fn accept(&mut self, listener: ListenerIndex) {
        if self.accept_paused_until.is_some() {
            return;
        }
        self.accept_some(listener, ACCEPTS_PER_TURN);
    }

    /// Accepts clients that wait at the sockets of other workers.
    #[cold]
    pub(super) fn relieve(&mut self) {
        self.plan.relief.note_read(self.index);
        if self.drain_deadline.is_some()
            || self.leaving.is_some()
            || self.accept_paused_until.is_some()
        {
            return;
        }
        for listener in 0..self.plan.listeners.len() {
            let listener = ListenerIndex(listener as u16);
            if self.io.accept_beside(listener) {
                self.accept(listener);
            }
        }
    }

    /// Accepts all clients that wait at a listener that is about to end.
    #[cold]
    pub(super) fn accept_waiting(&mut self, listener: ListenerIndex) {
        self.io.empty_listener(listener);
        self.accept_some(listener, WAITING_MAX);
    }

    fn accept_some(&mut self, listener: ListenerIndex, count: usize) {
        for _ in 0..count {
            match self.io.accept(listener) {
                Accept::Client { socket, peer } => self.add_client(socket, peer, listener.0),
                Accept::Entering => {}
                Accept::Turned { peer, away } => self.note_away(listener.0, peer, away),
                Accept::Empty => return,
                // The others have their last reply.
                Accept::Exhausted if self.end_oldest_lingering() => {}
                Accept::Exhausted => {
                    if self.tells_of_accepting() {
                        tracing::warn!(
                            "no file descriptor left for a waiting client; raise `ulimit -n` or \
                             lower clients_max; told at most once a minute"
                        );
                    }
                    return self.pause_accepting();
                }
                Accept::Failed(reason) => {
                    if self.tells_of_accepting() {
                        tracing::warn!(
                            "a waiting client cannot be accepted: {reason}; told at most once a \
                             minute"
                        );
                    }
                    return self.pause_accepting();
                }
            }
        }
    }

    fn tells_of_accepting(&self) -> bool {
        self.plan.notices.not_accepted.is_due(self.core.clock().now)
    }

    fn pause_accepting(&mut self) {
        self.accept_paused_until = Some(self.core.clock().now + ACCEPT_PAUSE);
        self.io.pause_accepting(true);
    }

    /// Counts a client that was refused, and logs it.
    #[cold]
    fn note_away(&mut self, listener: u16, peer: Peer, away: Away) {
        let listener_plan = &self.plan.listeners[usize::from(listener)];
        let is_due = listener_plan.access.tally.note_away(away).is_due(self.core.clock().now);
        // Health checks connect and leave without a word. A client for which there is no room is
        // told so.
        if matches!(away, Away::Gone | Away::Full) || !is_due {
            return;
        }
        tracing::warn!(
            listener = &*listener_plan.name,
            client = peer.to_string(),
            "client turned away: {}; told at most once a minute for each reason, and counted in \
             keyway_listener_refused_connections_total",
            away.text()
        );
    }

    /// Closes some of the clients that have sent no request for too long. All are checked once a
    /// second.
    pub(super) fn close_idle(&mut self) {
        let mut listeners = self.plan.listeners.iter();
        if listeners.all(|listener| listener.access.idle_timeout.is_none()) {
            return;
        }
        let count = (self.clients.len() / 10).max(64).min(self.clients.len());
        for _ in 0..count {
            self.idle_cursor = (self.idle_cursor + 1) % self.clients.len();
            let Some(key) = self.clients[self.idle_cursor].map(|client| client.key) else {
                continue;
            };
            if self.is_idle(key) {
                self.close_client(key, CloseReason::Idle);
            }
        }
    }

    fn is_idle(&self, key: Key<Session>) -> bool {
        let Some(session) = self.core.session(key) else { return false };
        let listener_plan = &self.plan.listeners[usize::from(session.listener)];
        let Some(timeout) = listener_plan.access.idle_timeout else { return false };
        let now = self.core.clock().now;
        let silence = session.identity.live.silence(now);
        let silence = silence.unwrap_or_else(|| now.since(session.identity.connected));
        if silence <= timeout {
            return false;
        }
        // A client that has closed its side, or takes no reply, must not keep its session for ever.
        if session.closing || session.ended || session.hung_up || session.send_blocked {
            return true;
        }
        let waits = session.subscriptions.is_some() || session.is_monitor || session.is_blocked();
        // A client that stops in the middle of a large value expects a reply.
        let stops = session.streaming.is_some() && !session.paused;
        !waits && (stops || session.has_delivered() || self.is_overdue(silence - timeout))
    }

    /// Returns whether every request must have had its reply or an error after this time.
    #[cold]
    fn is_overdue(&self, waited: Duration) -> bool {
        let upstreams = self.plan.pools.iter().filter_map(|pool| pool.kind.upstream());
        let timeouts = upstreams.map(|it| it.options.timeout.unwrap_or(Duration::MAX));
        let longest = timeouts.max().unwrap_or_default().max(Duration::from_secs(1));
        waited > longest.saturating_mul(REPLY_TIMEOUTS_MAX)
    }

    fn add_client(&mut self, socket: Socket, peer: Peer, listener: u16) {
        let listener_plan = &self.plan.listeners[listener as usize];
        if listener_plan.is_ended {
            // It arrived while a reload removed the listener.
            return self.io.close(socket);
        }
        let pool = &self.plan.pools[listener_plan.pool as usize];
        let clients = &self.core.plane.cells.pool(listener_plan.pool as usize).clients;
        clients.accepted.add(1);
        let in_pool =
            self.core.plane.cells.registry().clients_connected(listener_plan.pool as usize);
        let all = self.plan.clients.len() as u64;
        let of_listener = listener_plan.access.tally.connected();
        let is_listener_full = listener_plan.access.clients_max != 0
            && of_listener >= listener_plan.access.clients_max;
        let is_full =
            is_listener_full || pool.clients_max != 0 && in_pool >= u64::from(pool.clients_max);
        if is_full || all >= u64::from(self.plan.limits.clients_max) {
            let mut out = Vec::new();
            let fault = Fault::Limit(LimitFault::Clients);
            match listener_plan.memcached {
                Some(_) => write_no_room(&mut out),
                None => write_fault(fault, "", &mut out),
            }
            self.core.plane.cells.pool(listener_plan.pool as usize).refused.of(fault).add(1);
            let name = self.lingering.name_of_refused();
            let is_watched = self.io.watch(socket, name);
            self.io.send(socket, &out);
            match is_watched {
                true => self.linger(socket, name),
                false => self.io.close(socket),
            }
            return self.note_away(listener, peer, Away::Full);
        }
        let clock = self.core.clock();
        let id = self.plan.next_client_id.fetch_add(1, Ordering::Relaxed);
        let addr = Arc::from(peer.to_string());
        let mut identity = Identity { addr, ..Identity::new(id, false, clock.now) };
        identity.begin(&listener_plan.users);
        let laddr = match listener_plan.cluster.as_ref().and_then(|_| self.io.local_address(socket))
        {
            // Clients of a cluster see nodes by the address that they use.
            Some(reached) => reached.to_string().into(),
            None => Arc::clone(&listener_plan.name),
        };
        let connected_unix = clock.unix_micros / 1_000_000;
        let entry =
            ClientEntry::new(&identity, laddr, self.index, listener_plan.pool, connected_unix);
        self.plan.clients.insert(id, entry);
        let is_secured =
            listener_plan.access.filter.as_ref().is_some_and(|filter| filter.tls.is_some());
        listener_plan.access.tally.note_in(is_secured);
        self.install(Adopted { socket, pool: listener_plan.pool, listener, identity });
    }
}
