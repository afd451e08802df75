//! A worker's state of the requests that it counts and shows.

use super::served::Served;
use crate::Plan;
use crate::core::request::ReplyIndex;
use crate::monitors::Line;
use keyway_base::{Key, Limits, Time};
use keyway_command::Counted;
use keyway_memcache as memcache;
use keyway_proxy::{Session, SlowEntry, SlowLog};
use std::sync::Arc;
use std::time::Duration;

/// The requests that a worker counts and shows.
pub(crate) struct State {
    /// How often slow requests were logged recently.
    pub(super) slow_lines: SlowLines,
    /// Slow requests whose reply is being sent to its client.
    pub(in crate::core) unwritten: Vec<Unwritten>,
    pub(crate) served: Served,
    pub(in crate::core) hot_keys: Noting,
    pub(crate) monitoring: Monitoring,
}

impl State {
    /// Counts a request that was accepted: before the turn sends replies, or in front of whatever
    /// tells such counts.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a few instructions, once per request")]
    pub(in crate::core) fn started(&mut self, pool: u16, counted: Counted) {
        self.served.note_call(pool, counted);
    }

    /// Creates the state of a worker that has seen no request.
    pub(in crate::core) fn new(plan: &Plan) -> State {
        State {
            slow_lines: SlowLines::default(),
            unwritten: Vec::new(),
            served: Served::new(),
            hot_keys: Noting::new(&plan.limits),
            monitoring: Monitoring::default(),
        }
    }
}

/// Chooses the requests that are examined.
pub(in crate::core) struct Noting {
    /// Number of requests up to the next one that is examined whatever its length.
    pub(super) left: u32,
    pub(super) every: u32,
    /// Length of a request or reply from which its values are examined, in bytes.
    pub(super) big_from: usize,
    /// Length of a reply of a store from which it is examined, in bytes.
    pub(in crate::core) look_from: usize,
    /// A buffer for a request of memcached.
    pub(super) item: memcache::Request,
}

impl Noting {
    pub(in crate::core) fn new(limits: &Limits) -> Noting {
        let every = limits.hot_keys_every;
        // Not all workers choose at the same time.
        let left = if every == 0 { u32::MAX } else { every };
        let (big_from, item) = (limits.big_reply_len(), memcache::Request::default());
        Noting { left, every, big_from, look_from: big_from.min(SlowLog::TIMED_FROM), item }
    }

    /// Returns whether a request of this length, which was started, must be examined.
    #[inline]
    pub(in crate::core) fn is_due(&mut self, len: usize) -> bool {
        self.left -= 1;
        self.left == 0 || len >= self.big_from
    }

    /// Returns how many requests one represents, if it is chosen. The next one is chosen after as
    /// many on average, at random, so that nothing regular is always or never chosen.
    pub(super) fn take_turn(&mut self, random: u64) -> Option<f64> {
        if self.left != 0 {
            return None;
        }
        if self.every == 0 {
            self.left = u32::MAX;
            return None;
        }
        self.left = 1 + (random % u64::from(2 * self.every - 1)) as u32;
        Some(f64::from(self.every))
    }
}

/// The monitors of one worker, and what they are about to be shown.
#[derive(Default)]
pub(crate) struct Monitoring {
    pub(super) watchers: Vec<Watcher>,
    /// The lines of the request that was started last, one for each pool that it crosses, and its
    /// client.
    pub(super) held: Vec<(Key<Session>, Line)>,
    /// Lines for the monitors of all workers, and their bytes.
    pub(super) started: Vec<Line>,
    pub(super) started_len: usize,
    /// True if the inbox may contain something.
    pub(crate) has_mail: bool,
    pub(super) line: Vec<u8>,
}

impl Monitoring {
    /// Returns the number of clients in MONITOR, and of lines for them.
    pub(in crate::core) fn len(&self) -> usize {
        self.watchers.len() + self.held.len() + self.started.len()
    }

    /// Returns whether there is something to do before the worker sleeps.
    #[inline]
    pub(in crate::core) fn has_work(&self) -> bool {
        self.has_mail || !self.held.is_empty() || !self.started.is_empty()
    }
}

/// A monitoring client of this worker.
pub(super) struct Watcher {
    pub(super) pool: u16,
    pub(super) session: Key<Session>,
    /// Number of requests that it was not shown, and not told about.
    pub(super) lost: u64,
}

/// A slow request whose reply is not with its client.
pub(crate) struct Unwritten {
    pub(super) reply: ReplyIndex,
    /// Bytes up to the end of the reply that the system has still to take, once its turn has
    /// come.
    pub(super) left: Option<usize>,
    /// When the reply arrived.
    pub(super) received: Time,
    /// Nanoseconds by which the earlier times were rounded.
    pub(super) rest: u32,
    pub(super) log: Arc<SlowLog>,
    pub(super) id: u64,
    /// The text for the log, if the log level requires it.
    pub(super) told: Option<Told>,
}

/// How many lines about slow requests were logged in this second.
#[derive(Debug, Default)]
pub(in crate::core) struct SlowLines {
    pub(super) since: Time,
    pub(super) count: u32,
    pub(super) left_out: u64,
}

impl SlowLines {
    /// Returns whether another line may be logged now. The number of suppressed lines before it is
    /// in the result.
    pub(super) fn take(&mut self, now: Time) -> Option<u64> {
        if now >= self.since + Duration::from_secs(1) {
            (self.since, self.count) = (now, 0);
        }
        if self.count == LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.count += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// The client of a slow request, as far as it is there.
#[derive(Clone, Copy)]
pub(in crate::core) struct SlowClient {
    pub(in crate::core) id: Option<u64>,
    /// The reply, if the client gets one.
    pub(in crate::core) reply: Option<ReplyIndex>,
}

/// Lines on slow requests in one second of one worker. More would let a slow server fill the
/// log.
pub(super) const LINES_MAX: u32 = 10;

pub(super) struct Told {
    pub(super) pool: String,
    pub(super) entry: SlowEntry,
}
