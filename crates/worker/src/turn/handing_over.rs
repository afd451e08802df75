//! Clients that leave this worker: to another one, by an operator's command, or because it ends.

use super::{Client, Worker};
use crate::turn::departures::LINGER;
use crate::{Adopted, Mail};
use keyway_metrics::CloseReason;
use keyway_net::{Io, ListenerIndex, Token};

impl<I: Io> Worker<I> {
    /// Stops accepting, when all waiting clients are accepted. Received requests are answered, and
    /// then clients are closed.
    pub(super) fn drain(&mut self) {
        if self.drain_deadline.is_some() {
            return;
        }
        for listener in 0..self.plan.listeners.len() {
            self.accept_waiting(ListenerIndex(listener as u16));
        }
        if self.accept_paused_until.take().is_some() {
            self.io.pause_accepting(false);
        }
        let now = self.core.clock().now;
        // A client that is being accepted must be told of its end like others.
        self.io.leave_listening();
        self.arrivals_until = Some(now + LINGER.min(self.plan.drain_timeout));
        self.drain_deadline = Some(now + self.plan.drain_timeout);
        self.core.end_waits_for_primaries();
        self.drain_relays(false);
        for key in self.core.client_keys() {
            self.end_soon(key);
        }
    }

    pub(super) fn is_drained(&self) -> bool {
        let is_over = self.drain_deadline.is_some() && !self.core.has_clients();
        is_over && self.lingering.is_empty() && self.relays.is_empty() && !self.io.has_arrivals()
    }

    /// Closes clients of all workers. `ids` must be in ascending order.
    pub(super) fn kill(&mut self, ids: &[u64]) {
        // This is done before the mail: a worker that took a client over before it reads the mail
        // has the client, and one that takes it over later sees the mark.
        self.plan.clients.mark_killed(ids);
        // Their workers read no mail until the scripts are over.
        self.plan.pools.iter().for_each(|pool| pool.scripts.kill_of_clients(ids));
        self.kill_own(ids);
        self.plan.post_kill(self.index, ids);
    }

    /// Closes the clients of this worker. `ids` must be in ascending order.
    pub(super) fn kill_own(&mut self, ids: &[u64]) {
        for key in self.core.sessions.keys() {
            let id = self.core.session(key).map(|session| session.identity.id);
            if id.is_some_and(|id| ids.binary_search(&id).is_ok()) {
                self.close_client(key, CloseReason::Killed);
            }
        }
    }

    /// Hands clients at rest over to another worker.
    pub(super) fn give_away(&mut self, count: usize, to: &keyway_net::Mailer<Mail>) {
        let mut left = count;
        for key in self.core.sessions.keys() {
            if left == 0 {
                return;
            }
            let Some(session) = self.core.session(key) else { continue };
            let Some(client) = self.client(key) else { continue };
            let has_state = session.is_special()
                || session.subscriptions.is_some()
                || session.is_monitor
                || session.streaming.is_some()
                || session.memcached.is_some_and(|client| client.skip > 0)
                || self.core.plane.store.introduced.has(session.identity.id)
                || self.core.plane.store.tracking.is_tracker(session.identity.id);
            let is_bound = session.closing || session.unread || has_state;
            if is_bound || !session.is_at_rest() || !self.core.may_change_links(key) {
                continue;
            }
            let Some(session) = self.core.session(key) else { continue };
            let identity = session.identity.clone();
            let pool = session.pool;
            let Client { socket, .. } = client;
            let listener = session.listener;
            let released = self.io.release(socket);
            let adopted = Adopted { socket: released, pool, listener, identity };
            match to.post(Mail::Adopt(Box::new(adopted))) {
                Ok(()) => {
                    self.core.remove_session(key, None);
                    self.clients[key.index() as usize] = None;
                    left -= 1;
                }
                Err(_) => {
                    // There is no room in the other's mailbox, so the client is kept.
                    let socket = self.io.adopt(released);
                    let kept = Client { socket, ..client };
                    self.clients[key.index() as usize] = Some(kept);
                    if !self.io.watch(socket, Token(key.to_bits())) {
                        self.close_client(key, CloseReason::Reset);
                    }
                    return;
                }
            }
        }
    }
}
