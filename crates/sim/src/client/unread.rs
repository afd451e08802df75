//! Measures for how long a client has taken almost nothing.

use crate::network::{MILLI, Nanos};

/// A client that takes nothing for this long may be ended to free memory for others. For the worker
/// the limit is half a second, but it learns of it later.
const STALLED_MIN: Nanos = 490 * MILLI;

/// How slowly a client has read its current connection.
///
/// The system reports room to a worker when a third of a full buffer is free. Until then, as far as
/// the worker knows, the client takes nothing.
#[derive(Default)]
pub(super) struct Unread {
    /// The start of the current span. A span ends when a third of the buffer was read in it.
    since: Nanos,
    /// Number of bytes read in it.
    len: usize,
    /// Length of the span before it.
    before: Nanos,
    /// The longest two spans in a row. Any time in which the client read less than a third of the
    /// buffer lies within two spans.
    longest: Nanos,
}

impl Unread {
    /// Starts the measurement of a new connection.
    pub(super) fn begin(&mut self, now: Nanos) {
        *self = Unread { since: now, ..Unread::default() };
    }

    /// Notes that the client looks for something to read.
    pub(super) fn look(&mut self, now: Nanos) {
        self.longest = self.longest.max(self.before + (now - self.since));
    }

    /// Notes that the client has read `len` bytes, of a buffer of `capacity` bytes.
    pub(super) fn take(&mut self, len: usize, capacity: usize, now: Nanos) {
        self.len += len;
        if len == 0 {
            // No unread bytes are left.
            (self.since, self.len, self.before) = (now, 0, 0);
        } else if self.len * 3 >= capacity {
            (self.since, self.len, self.before) = (now, 0, now - self.since);
        }
    }

    /// Returns whether a worker may have ended the client to free memory.
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
