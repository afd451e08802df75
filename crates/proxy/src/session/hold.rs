//! The time for which replies wait for others, to be sent with them.
//!
//! ```text
//!  asked ── took ──► first reply is here ── until ──► sent at the latest
//!    the replies of the other servers come ▲ ▲ ▲, and all leave in one segment
//! ```

use keyway_base::Time;
use std::time::Duration;

/// The shortest time: about what nearby servers need for their part of a pipeline.
const LEAST: Duration = Duration::from_micros(100);

/// The longest time. If replies took longer than twice this, they arrive at such different times
/// that they are sent in separate segments anyway.
const MOST: Duration = Duration::from_millis(1);

/// When the output of a session that waits for more replies is sent.
///
/// Replies wait at most half as long as they have already taken, from [`LEAST`] to [`MOST`]: on
/// busy servers, the parts of a pipeline arrive further apart than on idle ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hold {
    asked_at: Time,
    until: Option<Time>,
}

impl Hold {
    /// Notes that the client has sent something.
    #[inline]
    pub fn note_asked(&mut self, now: Time) {
        self.asked_at = now;
    }

    /// Returns how long ago the client last sent something.
    #[inline]
    pub fn took(&self, now: Time) -> Duration {
        now.since(self.asked_at)
    }

    /// Returns until when the output waits, from the first reply on, or `None` if that is over.
    #[inline]
    pub fn until(&mut self, now: Time) -> Option<Time> {
        let asked_at = self.asked_at;
        let until = *self.until.get_or_insert_with(|| {
            let took = now.since(asked_at);
            now + (took / 2).clamp(LEAST, MOST)
        });
        (now < until).then_some(until)
    }

    /// Notes that the output is being sent.
    #[inline]
    pub fn end(&mut self) {
        self.until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(micros: u64) -> Time {
        Time(1_000_000_000 + micros * 1000)
    }

    fn held(took: u64) -> u64 {
        let mut hold = Hold::default();
        hold.note_asked(at(0));
        let until = hold.until(at(took)).expect("replies wait");
        assert_eq!(hold.until(at(took + 50)), Some(until), "the first reply starts it");
        hold.end();
        hold.note_asked(at(10_000));
        assert_eq!(hold.until(at(10_000)), Some(at(10_000) + LEAST), "sent, and begun anew");
        until.since(at(took)).as_micros() as u64
    }

    #[test]
    fn replies_wait_half_as_long_as_they_took() {
        assert_eq!(held(600), 300);
        assert_eq!(held(0), 100);
        assert_eq!(held(150), 100);
        assert_eq!(held(90_000), 1000);
    }

    #[test]
    fn the_wait_ends() {
        let mut hold = Hold::default();
        hold.note_asked(at(0));
        assert_eq!(hold.until(at(400)), Some(at(600)));
        assert_eq!(hold.until(at(599)), Some(at(600)));
        assert_eq!(hold.until(at(600)), None);
    }
}
