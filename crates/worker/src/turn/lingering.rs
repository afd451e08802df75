//! Connections that end in order, while the other side may still be sending.
//!
//! A socket that is closed with bytes unread is reset by the system, and what the peer has not
//! read yet is lost to it: replies, too. So a client that has its last reply is told first that
//! nothing more comes. What it sends until it closes is read and thrown away, within bounds of
//! time, bytes and number. None of this is a client any more: it is in no figures of theirs.

use super::Worker;
use keyway_base::{Key, Time};
use keyway_metrics::CloseReason;
use keyway_net::{Io, Recv, Socket, Token};
use keyway_proxy::Session;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long what a client still sends is thrown away. Longer holds up the end of the process for
/// who never closes; shorter loses replies on their way to who is far away.
pub(super) const LINGER: Duration = Duration::from_secs(2);

/// Bytes that are thrown away of one: more than both systems hold of what was sent before the
/// client could know. Who sends more does not read.
const THROWN_LEN_MAX: usize = 64 << 20;

/// Bytes that are thrown away of one before others have their turn.
const THROWN_LEN_PER_TURN: usize = 64 << 10;

/// By which part of `clients_max` those that linger may be more than clients together with them,
/// and by how many at least.
const BEYOND_PART: u64 = 16;
const BEYOND_MIN: u64 = 16;

/// Names that are forgotten in time may be this many more than there are connections.
const FORGOTTEN_MAX: usize = 1024;

struct Line {
    socket: Socket,
    /// Bytes that may still be thrown away.
    left: usize,
    /// It is among those to be read on.
    is_unread: bool,
}

/// What a worker knows of them.
#[derive(Default)]
pub(super) struct Lingering {
    /// By what they are called in events: the key of the session that is gone.
    lines: BTreeMap<u64, Line>,
    /// Until when, in the order in which they began; some have ended.
    order: VecDeque<(u64, Time)>,
    /// Those to be read on in the next turn.
    unread: Vec<u64>,
    /// Counts those that were never a session.
    refused: u64,
}

impl Lingering {
    /// Whether there is something to do without anything happening.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        !self.unread.is_empty()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// A name for a client that is refused: no session ever has it.
    pub(super) fn name_of_refused(&mut self) -> Token {
        /// Generations of sessions have as many bits.
        const GENERATION_MAX: u64 = (1 << 29) - 1;
        self.refused = (self.refused + 1) & GENERATION_MAX;
        Token(self.refused << 32 | u64::from(Key::<Session>::NONE.index()))
    }

    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// The one that began first.
    fn oldest(&mut self) -> Option<(u64, Time)> {
        while let Some(&(name, until)) = self.order.front() {
            if self.lines.contains_key(&name) {
                return Some((name, until));
            }
            self.order.pop_front();
        }
        None
    }
}

/// Whether a client that is closed for this reason gets what it was told before. Others are closed
/// at once: nothing arrives there any more, or nothing is to.
pub(super) fn is_in_order(reason: CloseReason) -> bool {
    match reason {
        CloseReason::Left
        | CloseReason::Client
        | CloseReason::Limit
        | CloseReason::Drained
        | CloseReason::Backend => true,
        CloseReason::Reset | CloseReason::Killed | CloseReason::Idle => false,
    }
}

impl<I: Io> Worker<I> {
    /// Closes a socket of that name in order: the peer gets all that was sent.
    #[cold]
    pub(super) fn linger(&mut self, socket: Socket, name: Token) {
        if !self.has_room_to_linger() || !self.io.finish(socket) {
            return self.io.close(socket);
        }
        let until = self.core.clock().now + LINGER;
        let Lingering { lines, order, .. } = &mut self.lingering;
        let line = Line { socket, left: THROWN_LEN_MAX, is_unread: false };
        lines.insert(name.0, line);
        order.push_back((name.0, until));
        if order.len() > 2 * lines.len() + FORGOTTEN_MAX {
            order.retain(|(name, _)| lines.contains_key(name));
        }
        self.core.plane.cells.lingering.raise(1);
        // Some of what it has sent may have been told of before.
        self.throw_away(name);
    }

    /// Whether one more may linger, when the oldest has made room if it had to.
    fn has_room_to_linger(&mut self) -> bool {
        let clients_max = u64::from(self.plan.limits.clients_max);
        let most = clients_max + (clients_max / BEYOND_PART).max(BEYOND_MIN);
        let lingering = self.core.plane.cells.registry().lingering();
        lingering + (self.plan.clients.len() as u64) < most || self.end_oldest_lingering()
    }

    /// Closes the one that has lingered longest; `false` where there is none.
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

    /// Reads on what one sends that lingers; whoever else has the name is let alone.
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
                Recv::End | Recv::Failed => break,
            }
        }
        self.end_lingering(name.0);
    }

    /// Reads on where throwing away stopped for fairness.
    #[cold]
    pub(super) fn throw_away_more(&mut self) {
        for name in std::mem::take(&mut self.lingering.unread) {
            if let Some(line) = self.lingering.lines.get_mut(&name) {
                line.is_unread = false;
                self.throw_away(Token(name));
            }
        }
    }

    /// Closes those whose time is over, a few times a second.
    pub(super) fn tend_lingering(&mut self, now: Time) {
        while let Some((name, until)) = self.lingering.oldest() {
            if until > now {
                return;
            }
            self.end_lingering(name);
        }
    }
}
