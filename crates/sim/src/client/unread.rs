//! How long a client has taken next to nothing.

use crate::network::{MILLI, Nanos};

/// A client that takes nothing for so long may be ended where memory is wanted for others: half a
/// second as the worker sees it, which hears of it later.
const STALLED_MIN: Nanos = 490 * MILLI;

/// How slowly a client has read its present connection.
///
/// The system tells a worker of room when a third of a full buffer is free. Until then a client
/// takes nothing as far as the worker can know.
#[derive(Default)]
pub(super) struct Unread {
    /// Begin of the present span. A span ends when a third of the buffer was read in it.
    since: Nanos,
    /// Bytes read in it.
    len: usize,
    /// Length of the span before it.
    before: Nanos,
    /// The longest two spans in a row. Any time in which the client read less than a third of the
    /// buffer lies within two.
    longest: Nanos,
}

impl Unread {
    /// The client reads a new connection from now on.
    pub(super) fn begin(&mut self, now: Nanos) {
        *self = Unread { since: now, ..Unread::default() };
    }

    /// The client looks for something to read.
    pub(super) fn look(&mut self, now: Nanos) {
        self.longest = self.longest.max(self.before + (now - self.since));
    }

    /// The client has found so many bytes, of a buffer of so many.
    pub(super) fn take(&mut self, len: usize, capacity: usize, now: Nanos) {
        self.len += len;
        if len == 0 {
            // Nothing is left to be taken.
            (self.since, self.len, self.before) = (now, 0, 0);
        } else if self.len * 3 >= capacity {
            (self.since, self.len, self.before) = (now, 0, now - self.since);
        }
    }

    /// Whether a worker may have ended the client for want of memory.
    pub(super) fn is_stalled(&self) -> bool {
        self.longest >= STALLED_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_a_little_now_and_then_is_no_progress_to_the_worker() {
        let mut unread = Unread::default();
        unread.begin(MILLI);
        for at in [100, 200, 300, 400].map(|millis| millis * MILLI) {
            unread.look(at);
            unread.take(10, 300, at);
        }
        assert!(!unread.is_stalled());
        unread.look(500 * MILLI);
        assert!(unread.is_stalled());
    }

    #[test]
    fn a_third_of_the_buffer_or_an_empty_one_is_progress() {
        for len in [100, 0] {
            let mut unread = Unread::default();
            for at in (0..20).map(|count| count * 200 * MILLI) {
                unread.look(at);
                unread.take(len, 300, at);
            }
            assert!(!unread.is_stalled());
        }
    }
}
