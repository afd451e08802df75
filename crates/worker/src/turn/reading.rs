//! Reading from the sockets of clients.

use super::Worker;
use keyway_base::Key;
use keyway_metrics::CloseReason;
use keyway_net::{Io, Recv, Token};
use keyway_proxy::Session;

impl<I: Io> Worker<I> {
    /// Reads what a client has sent, until the socket is drained, the session stops accepting
    /// requests, or others must have their turn.
    pub(super) fn read_client(&mut self, key: Key<Session>, hangup: bool) {
        let Some(client) = self.client(key) else {
            return self.throw_away(Token(key.to_bits()));
        };
        let mut budget = self.plan.limits.read_len_per_turn as usize;
        let mut has_read = false;
        loop {
            if self.core.plane.store.logs.has_any() {
                self.core.plane.store.logs.await_room();
            }
            if !self.core.may_read(key) {
                if self.core.has_sent_too_much(key) {
                    return self.close_client(key, CloseReason::Limit);
                }
                if has_read {
                    self.core.note_left_unread(key);
                }
                return;
            }
            self.core.plane.cells.recv_calls.add(1);
            match self.io.recv(client.socket) {
                Recv::Data { bytes, drained, .. } => {
                    let len = bytes.len();
                    has_read = true;
                    self.core.on_client_bytes(key, bytes);
                    if !self.core.plane.upstream.full_links.is_empty() {
                        self.send_full_links();
                    }
                    if drained && !hangup {
                        return;
                    }
                    budget = budget.saturating_sub(len);
                    if budget == 0 {
                        if self.core.set_unread(key) {
                            self.rereads.push(key);
                        }
                        return;
                    }
                }
                Recv::Empty => return,
                Recv::End => {
                    if let Some(Some(client)) = self.clients.get_mut(key.index() as usize) {
                        client.has_ended = true;
                    }
                    self.core.on_client_end(key);
                    if self.core.note_hangup(key) {
                        self.part_with(key);
                    }
                    return;
                }
                Recv::Failed => return self.close_broken(key, client.socket),
            }
        }
    }
}
