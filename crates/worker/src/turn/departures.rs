//! Clients that a worker is about to close: what it remembers of them.

use keyway_base::{Key, Time};
use keyway_metrics::CloseReason;
use keyway_net::{Socket, Token};
use keyway_proxy::Session;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long what a client still sends is thrown away. Longer holds up the end of the process for
/// who never closes; shorter loses replies on their way to who is far away.
pub(super) const LINGER: Duration = Duration::from_secs(2);

/// Bytes that are thrown away of one: more than both systems hold of what was sent before the
/// client could know. Who sends more does not read.
pub(super) const THROWN_LEN_MAX: usize = 64 << 20;

/// Bytes that are thrown away of one before others have their turn.
pub(super) const THROWN_LEN_PER_TURN: usize = 64 << 10;

/// By which part of `clients_max` those that linger may be more than clients together with them,
/// and by how many at least.
pub(super) const BEYOND_PART: u64 = 16;

pub(super) const BEYOND_MIN: u64 = 16;

/// Names that are forgotten in time may be this many more than there are connections.
pub(super) const FORGOTTEN_MAX: usize = 1024;

pub(super) struct Line {
    pub(super) socket: Socket,
    /// Bytes that may still be thrown away.
    pub(super) left: usize,
    /// It is among those to be read on.
    pub(super) is_unread: bool,
}

/// What a worker knows of them.
#[derive(Default)]
pub(super) struct Lingering {
    /// By what they are called in events: the key of the session that is gone.
    pub(super) lines: BTreeMap<u64, Line>,
    /// Until when, in the order in which they began; some have ended.
    pub(super) order: VecDeque<(u64, Time)>,
    /// Those to be read on in the next turn.
    pub(super) unread: Vec<u64>,
    /// Counts those that were never a session.
    pub(super) refused: u64,
}

impl Lingering {
    /// Returns whether the next turn has something to do although nothing happens.
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
    pub(super) fn oldest(&mut self) -> Option<(u64, Time)> {
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

/// Clients that are to be ended, and of which a request still waits.
#[derive(Debug, Default)]
pub(super) struct Ending {
    pub(super) keys: Vec<Key<Session>>,
    /// When they are ended all the same: who sends without end could always have one that waits.
    pub(super) until: Time,
}

impl Ending {
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
}

/// Since when, and for how long, a worker only serves the clients it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    pub(super) idle_from: Time,
    pub(super) until: Time,
}
