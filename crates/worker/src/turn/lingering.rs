//! Connections that end in order, while the other side may still be sending.
//!
//! A socket that is closed with unread bytes is reset by the system, and what the peer has not read
//! yet is lost to it, including replies. So a client that has its last reply is told first that
//! nothing more will be sent. What it sends until it closes is discarded, within limits of time,
//! bytes and number. Such a connection is no client any more: it is in no figures of clients.
//!
//! A client that must leave may not have taken its last replies. It gets them as it reads, within
//! the same time.

use super::Worker;
use crate::turn::departures::BEYOND_MIN;
use crate::turn::departures::BEYOND_PART;
use crate::turn::departures::FORGOTTEN_MAX;
use crate::turn::departures::LINGER;
use crate::turn::departures::Line;
use crate::turn::departures::Lingering;
use crate::turn::departures::THROWN_LEN_MAX;
use crate::turn::departures::THROWN_LEN_PER_TURN;
use crate::turn::flush::send_output;
use keyway_base::Time;
use keyway_net::{Io, Recv, Send, Socket, Token};
use keyway_proxy::Output;

impl<I: Io> Worker<I> {
    /// Closes a socket with that name in order: the peer gets everything that was sent.
    #[cold]
    pub(super) fn linger(&mut self, socket: Socket, name: Token) {
        self.linger_with(socket, name, Output::default(), false);
    }

    /// Closes a socket with that name in order, once the peer has taken `tail`. `has_ended` tells
    /// that the peer has ended its side.
    #[cold]
    pub(super) fn linger_with(
        &mut self,
        socket: Socket,
        name: Token,
        tail: Output,
        has_ended: bool,
    ) {
        if !self.has_room_to_linger() || tail.is_empty() && !self.io.finish(socket) {
            return self.io.close(socket);
        }
        let until = self.core.clock().now + LINGER;
        let Lingering { lines, order, .. } = &mut self.lingering;
        let line = Line { socket, left: THROWN_LEN_MAX, is_unread: false, tail, has_ended };
        lines.insert(name.0, line);
        order.push_back((name.0, until));
        if order.len() > 2 * lines.len() + FORGOTTEN_MAX {
            order.retain(|(name, _)| lines.contains_key(name));
        }
        self.core.plane.cells.lingering.raise(1);
        // The socket may have had room all along, and then nothing reports it.
        self.send_tail(name);
        // Some of what it has sent may have been reported before.
        self.throw_away(name);
    }

    /// Sends more to a lingering connection that has not taken everything. Another one with the
    /// name is not touched.
    #[cold]
    pub(super) fn send_tail(&mut self, name: Token) {
        let Some(line) = self.lingering.lines.get_mut(&name.0) else { return };
        if line.tail.is_empty() {
            return;
        }
        let calls = &self.core.plane.cells.send_calls;
        let sent = send_output(&mut self.io, line.socket, &mut line.tail, usize::MAX, calls);
        let goes_on = match sent {
            Send::Taken(_) if !line.tail.is_empty() => true,
            Send::Taken(_) => !line.has_ended && self.io.finish(line.socket),
            Send::Failed => false,
        };
        if !goes_on {
            self.end_lingering(name.0);
        }
    }

    /// Returns whether one more may linger, after the oldest one has made room if necessary.
    fn has_room_to_linger(&mut self) -> bool {
        let clients_max = u64::from(self.plan.limits.clients_max);
        let most = clients_max + (clients_max / BEYOND_PART).max(BEYOND_MIN);
        let lingering = self.core.plane.cells.registry().lingering();
        lingering + (self.plan.clients.len() as u64) < most || self.end_oldest_lingering()
    }

    /// Closes the one that has lingered longest. Returns `false` if there is none.
    #[cold]
    pub(super) fn end_oldest_lingering(&mut self) -> bool {
        let oldest = self.lingering.oldest();
        if let Some((name, _)) = oldest {
            self.end_lingering(name);
        }
        oldest.is_some()
    }

    fn end_lingering(&mut self, name: u64) {
        let Some(line) = self.lingering.lines.remove(&name) else { return };
        self.core.plane.cells.lingering.lower(1);
        self.io.close(line.socket);
    }

    /// Reads and discards what a lingering connection sends. Another one with the name is not
    /// touched.
    #[cold]
    pub(super) fn throw_away(&mut self, name: Token) {
        let Some(line) = self.lingering.lines.get_mut(&name.0) else { return };
        let mut budget = THROWN_LEN_PER_TURN;
        while line.left > 0 {
            if budget == 0 {
                if !std::mem::replace(&mut line.is_unread, true) {
                    self.lingering.unread.push(name.0);
                }
                return;
            }
            self.core.plane.cells.recv_calls.add(1);
            match self.io.recv(line.socket) {
                Recv::Data { bytes, .. } => {
                    line.left = line.left.saturating_sub(bytes.len());
                    budget = budget.saturating_sub(bytes.len());
                }
                Recv::Empty => return,
                // It may have ended its side only, and read on.
                Recv::End if !line.tail.is_empty() => {
                    line.has_ended = true;
                    return;
                }
                Recv::End | Recv::Failed => break,
            }
        }
        self.end_lingering(name.0);
    }

    /// Continues where discarding stopped for fairness.
    #[cold]
    pub(super) fn throw_away_more(&mut self) {
        for name in std::mem::take(&mut self.lingering.unread) {
            if let Some(line) = self.lingering.lines.get_mut(&name) {
                line.is_unread = false;
                self.throw_away(Token(name));
            }
        }
    }

    /// Closes the ones whose time is over, a few times a second.
    pub(super) fn tend_lingering(&mut self, now: Time) {
        while let Some((name, until)) = self.lingering.oldest() {
            if until > now {
                return;
            }
            self.end_lingering(name);
        }
    }
}
