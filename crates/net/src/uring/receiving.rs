//! Receiving: from the buffers that the kernel has filled, or by a call of its own.

use super::inbox::Reading;
use super::orders::Kind;
use super::{UringIo, arm};
use crate::io::Io;
use crate::moving::Outcome;
use crate::{Recv, Socket};
use rustix::event::PollFlags;
use std::time::Duration;

/// Most attempts to get completions that had no room before going on without them.
const OVERFLOWN_MAX: usize = 256;

impl UringIo {
    /// Reads by a call of its own. If that shows that the socket is empty, the kernel receives
    /// again.
    #[inline(never)]
    pub(super) fn recv_direct(&mut self, socket: Socket) -> Recv<'_> {
        let (len, drained) = match self.base.recv(socket) {
            Recv::Data { bytes, drained, .. } => (bytes.len(), drained),
            Recv::Empty => (0, true),
            Recv::End => return Recv::End,
            Recv::Failed => return Recv::Failed,
        };
        if drained && let Some(Some(conn)) = self.conns.get_mut(socket.0 as usize) {
            arm(&mut self.orders, socket.0, conn);
        }
        match len {
            0 => Recv::Empty,
            _ => {
                let block = self.base.block();
                Recv::Data { bytes: &block[..len], drained, block: Some(block) }
            }
        }
    }

    /// Handles a read without an event: checks for bytes that have come by now.
    #[cold]
    pub(super) fn recv_late(&mut self, socket: Socket) -> Recv<'_> {
        let mut events = std::mem::take(&mut self.early);
        // As long as memory is short nothing comes.
        for _ in 0..OVERFLOWN_MAX {
            self.orders.enter(Some(Duration::ZERO));
            self.reap(&mut events);
            if !self.orders.has_overflown() {
                break;
            }
        }
        self.early = events;
        let is_lost = self.orders.is_lost();
        let Some(Some(conn)) = self.conns.get_mut(socket.0 as usize) else { return Recv::Failed };
        match (self.pieces.pop(conn), conn.outcome) {
            (Some(piece), _) => {
                self.shared = Some(piece);
                Recv::Data { bytes: self.buffers.bytes(piece), drained: false, block: None }
            }
            (None, Some(Outcome::End)) => Recv::End,
            (None, Some(Outcome::Failed)) => Recv::Failed,
            // The bytes in the socket may not be the next ones.
            (None, None) if is_lost => Recv::Empty,
            (None, None) => {
                conn.is_awaited = conn.reading == Reading::Stopping;
                // The kernel receives only while it is called for that, and everything it has
                // received was read: the bytes in the socket are the next ones.
                self.recv_direct(socket)
            }
        }
    }

    #[cold]
    pub(super) fn recv_held(&mut self, socket: Socket) -> Recv<'_> {
        let held = self.conn(socket).map(|conn| conn.take_held());
        self.held_bytes = held.unwrap_or_default();
        Recv::Data { bytes: &self.held_bytes, drained: false, block: None }
    }

    #[cold]
    pub(super) fn await_room(&mut self, socket: Socket) {
        let Self { conns, orders, has_fallen: false, .. } = self else { return };
        let Some(Some(conn)) = conns.get_mut(socket.0 as usize) else { return };
        if !std::mem::replace(&mut conn.polls_room, true) {
            orders.poll((Kind::Room, conn.generation, socket.0), PollFlags::OUT);
            conn.ordered_at = orders.submitted();
        }
    }
}
