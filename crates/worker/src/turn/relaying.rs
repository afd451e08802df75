//! Connections with state in this worker, TLS or rings in shared memory, whose clients another
//! process serves, or the feed of replicas: bytes go through, as they are under TLS.
//!
//! ```text
//!  client ◄── TLS ──► this worker ◄── a socket pair ──► the process that serves, or a feed
//! ```
//! Each end of a relay is known by its name in events. What one end has not taken keeps the other
//! end from being read. The relays end with this process.

use super::Worker;
use keyway_net::{Io, Recv, Send, Socket, Token};
use keyway_proxy::Output;
use std::collections::BTreeMap;

/// Bytes that are read from one end before others have their turn.
const READ_LEN_PER_TURN: usize = 256 << 10;

/// One end of a relay.
struct End {
    socket: Socket,
    /// It leads to the other process.
    is_line: bool,
    /// The name of the other end.
    other: u64,
    /// Bytes for this end that it has not taken.
    pending: Vec<u8>,
    /// It sends no more.
    has_ended: bool,
    /// It is among those that are read in the next turn.
    is_unread: bool,
    /// It is to be told its end once it has taken what is pending.
    is_to_finish: bool,
}

/// The relays of a worker.
#[derive(Default)]
pub(super) struct Relays {
    ends: BTreeMap<u64, End>,
    unread: Vec<u64>,
}

impl Relays {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    #[inline]
    pub(super) fn has_work(&self) -> bool {
        !self.unread.is_empty()
    }

    #[inline]
    pub(super) fn has(&self, name: Token) -> bool {
        !self.ends.is_empty() && self.ends.contains_key(&name.0)
    }
}

impl<I: Io> Worker<I> {
    /// Begins to relay between a client's socket, known by `name`, and a line to another process.
    #[cold]
    pub(super) fn begin_relay(&mut self, client: (Socket, Token), line: (Socket, Token)) {
        if !self.io.watch(line.0, line.1) {
            self.io.close(client.0);
            return self.io.close(line.0);
        }
        for ((socket, name), other, is_line) in [(client, line.1, false), (line, client.1, true)] {
            let end = End {
                socket,
                is_line,
                other: other.0,
                pending: Vec::new(),
                has_ended: false,
                is_unread: true,
                is_to_finish: false,
            };
            self.relays.ends.insert(name.0, end);
            // Bytes may have come before.
            self.relays.unread.push(name.0);
        }
    }

    /// Handles an event of one end.
    #[cold]
    pub(super) fn on_relay_ready(&mut self, name: Token, is_writable: bool) {
        if is_writable {
            self.flush_relay(name.0);
            if let Some(other) = self.relays.ends.get(&name.0).map(|end| end.other) {
                self.read_relay(other);
            }
        }
        self.read_relay(name.0);
    }

    /// Goes on where reading stopped for fairness.
    #[cold]
    pub(super) fn read_relays_again(&mut self) {
        for name in std::mem::take(&mut self.relays.unread) {
            if let Some(end) = self.relays.ends.get_mut(&name) {
                end.is_unread = false;
                self.read_relay(name);
            }
        }
    }

    fn read_relay(&mut self, name: u64) {
        let mut budget = READ_LEN_PER_TURN;
        loop {
            let Some(end) = self.relays.ends.get(&name) else { return };
            let (socket, to) = (end.socket, end.other);
            let Some(other) = self.relays.ends.get(&to) else { return };
            if end.has_ended || !other.pending.is_empty() {
                return;
            }
            let into = other.socket;
            if budget == 0 {
                if let Some(end) = self.relays.ends.get_mut(&name)
                    && !std::mem::replace(&mut end.is_unread, true)
                {
                    self.relays.unread.push(name);
                }
                return;
            }
            let bytes = match self.io.recv(socket) {
                Recv::Data { bytes, .. } => bytes.to_vec(),
                Recv::Empty => return,
                Recv::End => return self.end_half(name),
                Recv::Failed => return self.end_relay(name),
            };
            budget = budget.saturating_sub(bytes.len());
            match self.io.send(into, &bytes) {
                Send::Taken(len) => {
                    if let Some(other) = self.relays.ends.get_mut(&to) {
                        other.pending.extend_from_slice(bytes.get(len..).unwrap_or_default());
                    }
                }
                Send::Failed => return self.end_relay(name),
            }
        }
    }

    fn flush_relay(&mut self, name: u64) {
        let Some(end) = self.relays.ends.get_mut(&name) else { return };
        if !end.pending.is_empty() {
            match self.io.send(end.socket, &end.pending) {
                Send::Taken(len) => drop(end.pending.drain(..len.min(end.pending.len()))),
                Send::Failed => return self.end_relay(name),
            }
        }
        if end.pending.is_empty() && end.is_to_finish {
            self.finish_relay(name);
        }
    }

    /// One end sends no more: the other is told so, behind what it has yet to take.
    fn end_half(&mut self, name: u64) {
        let Some(end) = self.relays.ends.get_mut(&name) else { return };
        end.has_ended = true;
        let other = end.other;
        let Some(other_end) = self.relays.ends.get_mut(&other) else { return };
        other_end.is_to_finish = true;
        if other_end.pending.is_empty() {
            self.finish_relay(other);
        }
    }

    /// Tells an end that nothing more comes. A relay whose both ends know is over.
    fn finish_relay(&mut self, name: u64) {
        let Some(end) = self.relays.ends.get(&name) else { return };
        let (socket, other, has_ended) = (end.socket, end.other, end.has_ended);
        if has_ended || !self.io.finish(socket) {
            self.end_relay(other);
        }
    }

    fn end_relay(&mut self, name: u64) {
        let Some(end) = self.relays.ends.remove(&name) else { return };
        let other = self.relays.ends.remove(&end.other);
        let other = other.map(|other| (end.other, other));
        for (name, end) in [(name, end)].into_iter().chain(other) {
            match end.is_line {
                true => self.io.close(end.socket),
                // The client gets everything that the other process has sent.
                false => {
                    let mut tail = Output::default();
                    tail.buf().extend_from_slice(&end.pending);
                    self.linger_with(end.socket, Token(name), tail, end.has_ended);
                }
            }
        }
    }

    /// Has the other process answer what has come, and end. With `at_once` everything ends now.
    #[cold]
    pub(super) fn drain_relays(&mut self, at_once: bool) {
        let names: Vec<u64> = self.relays.ends.keys().copied().collect();
        for name in names {
            let is_line = self.relays.ends.get(&name).is_some_and(|end| end.is_line);
            match at_once {
                true => self.end_relay(name),
                false if is_line => {
                    if let Some(client) = self.relays.ends.get(&name).map(|end| end.other) {
                        self.end_half(client);
                    }
                }
                false => {}
            }
        }
    }
}
