//! Pauses between the turns of a control node that hears from many members, so that one turn handles
//! several reports.

use keyway_base::Time;
use std::time::Duration;

/// Time over which events are counted.
const WINDOW: Duration = Duration::from_millis(100);

/// Events of the bus in a [`WINDOW`] from which on turns pause: more than those of a change at a
/// hundred members, or of a few members that come.
const BUSY: u64 = 25;

/// Pause before a turn. A longer one would be noticed in the time of a change or a fail-over.
const PAUSE: Duration = Duration::from_millis(10);

/// The rate of events, and whether turns pause for it.
#[derive(Debug, Default)]
pub(super) struct Pace {
    began: Time,
    events: u64,
    is_busy: bool,
}

impl Pace {
    pub fn note_event(&mut self) {
        self.events += 1;
    }

    /// Returns how long the next turn is to wait, if at all.
    pub fn pause(&mut self, now: Time) -> Option<Duration> {
        let long = now.since(self.began);
        if long >= WINDOW {
            let usual = u128::from(BUSY) * long.as_nanos();
            self.is_busy = u128::from(self.events) * WINDOW.as_nanos() >= usual;
            (self.began, self.events) = (now, 0);
        }
        self.is_busy.then_some(PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_pause_while_many_events_come_and_no_longer() {
        let mut pace = Pace::default();
        let mut now = Time(0);
        let mut pauses = |count: u64, each: Duration| {
            let turns = (0..count).filter(|_| {
                now = now + each;
                pace.note_event();
                pace.pause(now).is_some()
            });
            turns.count() as u64
        };
        let ms = Duration::from_millis;
        assert_eq!(pauses(50, ms(10)), 0, "100 events in a second are few");
        let many = pauses(1000, ms(2));
        assert!((900..1000).contains(&many), "500 events in a second are many: {many} pauses");
        let last = pauses(100, ms(10));
        assert!(last <= 10, "they are over: {last} pauses");
    }
}
