//! Clients that a worker is about to close: what it remembers of them.

use keyway_base::{Key, Time};
use keyway_metrics::CloseReason;
use keyway_net::{Socket, Token};
use keyway_proxy::{Output, Session};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long bytes from a closing client are discarded. If it were longer, a client that never
/// closes would delay the end of the process. If it were shorter, replies in flight to distant
/// clients would be lost.
pub(super) const LINGER: Duration = Duration::from_secs(2);

/// Number of bytes that are discarded from one client: more than both systems buffer of what was
/// sent before the client could know. A client that sends more than this does not read its replies.
pub(super) const THROWN_LEN_MAX: usize = 64 << 20;

/// Number of bytes that are discarded from one client before others have their turn.
pub(super) const THROWN_LEN_PER_TURN: usize = 64 << 10;

/// Lingering connections and clients together may exceed `clients_max` by one part in this many,
/// and by at least `BEYOND_MIN`.
pub(super) const BEYOND_PART: u64 = 16;

pub(super) const BEYOND_MIN: u64 = 16;

/// The table of names that are discarded in time may exceed the number of connections by this many.
pub(super) const FORGOTTEN_MAX: usize = 1024;

pub(super) struct Line {
    pub(super) socket: Socket,
    /// Number of bytes that may still be discarded.
    pub(super) left: usize,
    /// True if it is among those that must be read again.
    pub(super) is_unread: bool,
    /// What the client has not taken yet. Its connection is told to end after that.
    pub(super) tail: Output,
    /// True if the client has ended its side.
    pub(super) has_ended: bool,
}

/// The lingering connections of a worker.
#[derive(Default)]
pub(super) struct Lingering {
    /// By their name in events: the key of the session that is gone.
    pub(super) lines: BTreeMap<u64, Line>,
    /// Their deadlines, in the order in which they began. Some have ended.
    pub(super) order: VecDeque<(u64, Time)>,
    /// The connections that must be read again in the next turn.
    pub(super) unread: Vec<u64>,
    /// Counts the ones that never were a session.
    pub(super) refused: u64,
}

impl Lingering {
    /// Returns whether the next turn has something to do without an event.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        !self.unread.is_empty()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns a name for a refused client that no session ever has.
    pub(super) fn name_of_refused(&mut self) -> Token {
        /// Generations of sessions have as many bits.
        const GENERATION_MAX: u64 = (1 << 29) - 1;
        self.refused = (self.refused + 1) & GENERATION_MAX;
        Token(self.refused << 32 | u64::from(Key::<Session>::NONE.index()))
    }

    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns the one that began first.
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

/// Returns whether a client that is closed for this reason gets its earlier replies. Others are
/// closed at once: nothing reaches them any more, or nothing should.
pub(super) fn is_in_order(reason: CloseReason) -> bool {
    match reason {
        CloseReason::Left
        | CloseReason::Client
        | CloseReason::Limit
        | CloseReason::Drained
        | CloseReason::Backend => true,
        CloseReason::Reset | CloseReason::Killed | CloseReason::Idle | CloseReason::Log => false,
    }
}

/// Clients that must be ended, and of which a request still waits.
#[derive(Debug, Default)]
pub(super) struct Ending {
    pub(super) keys: Vec<Key<Session>>,
    /// When they are ended in any case: a client that sends without end could always have a waiting
    /// request.
    pub(super) until: Time,
}

impl Ending {
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
}

/// Since when, and for how long, a worker only serves its current clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    pub(super) idle_from: Time,
    pub(super) until: Time,
}
