//! Sockets of subscriber links.

use super::{LINK, Worker};
use crate::core::SubscriberIndex;
use keyway_base::BackendFault;
use keyway_metrics::CloseReason;
use keyway_net::{ConnectFault, Io, Recv, Send, Socket, Token};
use keyway_proxy::pubsub::SubscriberState;

/// Distinguishes a subscriber link's token from another link's.
const SUBSCRIBER: u64 = 1 << 31;

fn token(index: SubscriberIndex, generation: u32) -> Token {
    Token(LINK | u64::from(generation) << 32 | SUBSCRIBER | index as u64)
}

impl<I: Io> Worker<I> {
    fn subscriber_of(&self, told: Token) -> Option<SubscriberIndex> {
        if told.0 & SUBSCRIBER == 0 {
            return None;
        }
        let index = (told.0 as u32 & !(SUBSCRIBER as u32)) as usize;
        let connection = self.core.plane.pubsub.slots.get(index)?;
        (token(index, connection.generation) == told).then_some(index)
    }

    /// Handles an event of a socket that belongs neither to a link nor to a client.
    #[cold]
    pub(super) fn on_subscriber_ready(&mut self, told: Token, writable: bool, readable: bool) {
        let Some(index) = self.subscriber_of(told) else { return };
        let connection = &mut self.core.plane.pubsub.slots[index];
        if writable && connection.link.send_blocked {
            connection.link.send_blocked = false;
            self.send_subscriber(index);
        }
        if readable {
            self.read_subscriber(index);
        }
    }

    /// Returns whether the connection belongs to a subscriber link. If not, the socket is not
    /// touched.
    pub(super) fn on_subscriber_connected(&mut self, told: Token, socket: Socket) -> bool {
        let Some(index) = self.subscriber_of(told) else { return false };
        self.core.on_subscriber_connected(index, socket);
        true
    }

    pub(super) fn on_subscriber_connect_failed(&mut self, told: Token, fault: ConnectFault) {
        if let Some(index) = self.subscriber_of(told) {
            self.core.on_subscriber_connect_failed(index, fault);
        }
    }

    fn read_subscriber(&mut self, index: SubscriberIndex) {
        let mut budget = self.plan.limits.read_len_per_turn as usize * 4;
        loop {
            let Some(socket) = self.core.plane.pubsub.slots[index].socket else { return };
            self.core.plane.cells.recv_calls.add(1);
            let fault = match self.io.recv(socket) {
                Recv::Data { bytes, .. } => {
                    let len = bytes.len();
                    match self.core.on_subscriber_bytes(index, bytes) {
                        Ok(()) => {
                            budget = budget.saturating_sub(len);
                            if budget == 0 {
                                // The others come first. It is not reported again.
                                if !self.subscriber_rereads.contains(&index) {
                                    self.subscriber_rereads.push(index);
                                }
                                return;
                            }
                            continue;
                        }
                        Err(fault) => fault,
                    }
                }
                Recv::Empty => return,
                Recv::End | Recv::Failed => {
                    if let Some(fault) = self.io.tls_fault(socket) {
                        self.core.on_subscriber_tls_fault(index, fault);
                    }
                    BackendFault::Closed
                }
            };
            return self.lose_subscriber(index, fault);
        }
    }

    pub(super) fn lose_subscriber(&mut self, index: SubscriberIndex, fault: BackendFault) {
        let connection = &self.core.plane.pubsub.slots[index];
        if matches!(connection.link.state(), SubscriberState::Connecting { .. }) {
            self.io.cancel_connect(token(index, connection.generation));
        }
        if let Some(socket) = self.core.on_subscriber_lost(index, fault) {
            self.io.close(socket);
        }
    }

    /// Continues reading where it stopped for fairness.
    pub(super) fn read_subscribers_again(&mut self) {
        for index in std::mem::take(&mut self.subscriber_rereads) {
            self.read_subscriber(index);
        }
    }

    /// Delivers published messages, closes clients that do not keep up, and handles subscriber
    /// links.
    #[cold]
    pub(super) fn serve_subscribers(&mut self) {
        self.core.deliver_published();
        for (key, reason) in self.core.take_dropped() {
            let Some(session) = self.core.session(key) else { continue };
            let pool = session.pool as usize;
            let undelivered = session.busy.as_ref().map_or(0, |busy| busy.undelivered());
            let client = &*session.identity.addr;
            let name = &self.plan.pools[pool].name;
            tracing::warn!(pool = name, client, undelivered, "subscriber disconnected: {reason}");
            self.core.plane.cells.pool(pool).pubsub.dropped.add(1);
            self.close_client(key, CloseReason::Limit);
        }
        self.core.settle_upstream();
        let mut busy = std::mem::take(&mut self.core.plane.pubsub.busy_slots);
        for index in busy.drain(..) {
            self.core.plane.pubsub.untouch(index);
            self.serve_subscriber(index);
        }
        if self.core.plane.pubsub.busy_slots.is_empty() {
            self.core.plane.pubsub.busy_slots = busy;
        }
    }

    fn serve_subscriber(&mut self, index: SubscriberIndex) {
        let now = self.core.clock().now;
        let connection = &self.core.plane.pubsub.slots[index];
        if !connection.link.is_needed() {
            if !matches!(connection.link.state(), SubscriberState::Idle) {
                self.lose_subscriber(index, BackendFault::Closed);
            }
            return;
        }
        if connection.link.wants_connection(now) {
            let server = connection.server_id;
            let told = token(index, connection.generation);
            self.core.on_subscriber_connecting(index);
            match self.core.server_address(server) {
                Some(address) => self.connect(server.pool, &address, told),
                // The server has left its cluster.
                None => self.lose_subscriber(index, BackendFault::Closed),
            }
            return;
        }
        self.send_subscriber(index);
    }

    fn send_subscriber(&mut self, index: SubscriberIndex) {
        let connection = &mut self.core.plane.pubsub.slots[index];
        let (Some(socket), false) = (connection.socket, connection.link.send_blocked) else {
            return;
        };
        let unsent = connection.link.unsent();
        if unsent.is_empty() {
            return;
        }
        let len = unsent.len();
        self.core.plane.cells.send_calls.add(1);
        match self.io.send(socket, unsent) {
            Send::Taken(taken) => {
                connection.link.advance(taken);
                connection.link.send_blocked = taken < len;
                let server = connection.server_id;
                let cells = self.core.plane.cells.backend(server.pool, server.server);
                cells.sent_bytes.add(taken as u64);
            }
            Send::Failed => self.lose_subscriber(index, BackendFault::Closed),
        }
    }

    /// Performs the upkeep of subscriptions, a few times a second.
    pub(super) fn tend_subscribers(&mut self) {
        let mut dead = Vec::new();
        self.core.tend_pubsub(&mut dead);
        for (index, fault) in dead {
            self.lose_subscriber(index, fault);
        }
    }
}
