//! Sockets of connections to servers.

use super::{LINK, Worker};
use crate::core::ConnectionKey;
use keyway_base::BackendFault;
use keyway_net::{Address, Io, Recv, Socket, Token};
use keyway_proxy::LinkState;

impl<I: Io> Worker<I> {
    pub(super) fn read_link(&mut self, index: ConnectionKey, hangup: bool) {
        let mut budget = self.plan.limits.read_len_per_turn as usize * 4;
        loop {
            let socket = self.core.links.get(index).and_then(|connection| connection.socket);
            let Some(socket) = socket else { return };
            if self.core.is_held(index) {
                return;
            }
            self.core.plane.cells.recv_calls.add(1);
            let fault = match self.io.recv(socket) {
                Recv::Data { bytes, drained, block } => {
                    let len = bytes.len();
                    match self.core.on_backend_block(index, bytes, block) {
                        Ok(()) if drained && !hangup => return,
                        Ok(()) => {
                            budget = budget.saturating_sub(len);
                            if budget == 0 {
                                if !self.link_rereads.contains(&index) {
                                    self.link_rereads.push(index);
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
                    self.note_tls_fault(index, socket);
                    match self.io.has_broken_rules(socket) {
                        true => BackendFault::Protocol,
                        false => BackendFault::Closed,
                    }
                }
            };
            return self.lose_link(index, fault);
        }
    }

    /// Tells why a connection ends, where the server's word on our certificate has
    /// come behind the handshake.
    #[cold]
    pub(super) fn note_tls_fault(&mut self, index: ConnectionKey, socket: Socket) {
        if let Some(fault) = self.io.tls_fault(socket) {
            self.core.on_tls_fault(index, fault);
        }
    }

    pub(super) fn lose_link(&mut self, index: ConnectionKey, fault: BackendFault) {
        let connection = &self.core.links[index];
        if matches!(connection.link.state(), LinkState::Connecting { .. }) {
            self.io.cancel_connect(link_token(index, connection.generation));
        }
        if let Some(socket) = self.core.end_link(index, fault) {
            self.io.close(socket);
        }
    }

    pub(super) fn on_connected(&mut self, token: Token, socket: Socket) {
        match self.link_of(token) {
            Some(index) => self.core.on_connected(index, socket),
            None if self.on_subscriber_connected(token, socket) => {}
            // Given up in the meantime.
            None => self.io.close(socket),
        }
    }

    pub(super) fn link_of(&self, token: Token) -> Option<ConnectionKey> {
        if token.0 & LINK == 0 {
            return None;
        }
        let (key, connection) = self.core.links.at(token.0 as u32 as usize)?;
        (link_token(key, connection.generation) == token).then_some(key)
    }

    /// What the turn's requests and replies left to do about private links.
    pub(super) fn settle_private(&mut self) {
        while let Some(unblock) = self.core.plane.clients.unblocks.pop() {
            if !self.core.unblock(unblock) {
                self.plan.post_unblock(self.index, unblock);
            }
        }
        if self.core.plane.servers.tracking.has_work() {
            self.settle_tracking();
        }
        while let Some(index) = self.core.plane.upstream.discards.pop() {
            if self.core.is_to_be_discarded(index) {
                self.lose_link(index, BackendFault::Closed);
            }
        }
    }

    /// Ends what goes with a link that was lost, and tells the clients that are
    /// to forget everything.
    #[cold]
    pub(super) fn settle_tracking(&mut self) {
        while let Some((index, fault)) = self.core.next_loss() {
            self.lose_link(index, fault);
        }
        self.core.deliver_redirected();
        self.core.tell_forgetful();
    }

    pub(super) fn start_connecting(&mut self) {
        let mut connects = std::mem::take(&mut self.core.plane.upstream.connects);
        for index in connects.drain(..) {
            if !self.core.wants_connection(index) {
                // Given up, or asked for twice.
                continue;
            }
            self.core.on_connecting(index);
            let connection = &self.core.links[index];
            let token = link_token(index, connection.generation);
            match self.core.address_of(index) {
                Some(address) => self.connect(connection.server_id.pool, &address, token),
                // The server has left its cluster.
                None => self.lose_link(index, BackendFault::Closed),
            }
        }
        self.core.plane.upstream.connects = connects;
    }

    /// Connects to a server of a pool, as the pool says.
    pub(super) fn connect(&mut self, pool: u16, address: &Address, token: Token) {
        match self.plan.pools[usize::from(pool)].kind.tls() {
            None => self.io.connect(address, token),
            Some(tls) => self.io.connect_secured(address, tls, token),
        }
    }
}

fn link_token(key: ConnectionKey, generation: u32) -> Token {
    Token(LINK | u64::from(generation) << 32 | key.index() as u64)
}
