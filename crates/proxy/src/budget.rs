//! Limits how often something may be done beyond what clients ask for, as a share of that.
//!
//! ```text
//!   slots  | asked, spent | asked, spent | … | asked, spent |   ten, the last is now's
//! ```
//! Allowed is the share of what was asked in all slots together, or a small number. So it cannot be
//! saved up for longer than the slots last.

use keyway_base::Time;
use std::time::Duration;

/// Number of steps in which the past is forgotten. With more, it is smoother.
const SLOTS: usize = 10;

/// The counts of a tenth of the time that matters.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    asked: u64,
    spent: u64,
}

/// A limit on repeats.
#[derive(Clone, Debug)]
pub struct Budget {
    percent: u8,
    /// The number that is allowed in any case.
    least: u64,
    slot_nanos: u64,
    slots: [Slot; SLOTS],
    /// Number of the current slot, counted from time zero.
    current: u64,
    /// The total number of requests when it was last reported.
    total: u64,
}

impl Budget {
    /// Creates a budget of `percent` of what was asked in the last `window`, and of at least
    /// `least`.
    pub fn new(percent: u8, window: Duration, least: u64) -> Budget {
        let nanos = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        Budget {
            percent,
            least,
            slot_nanos: (nanos / SLOTS as u64).max(1),
            slots: [Slot::default(); SLOTS],
            current: 0,
            total: 0,
        }
    }

    /// Notes the `total` number of requests from the beginning on. It must be called more often
    /// than the slots change, and before [`Budget::try_spend`].
    pub fn note_asked(&mut self, total: u64, now: Time) {
        self.advance(now);
        let more = total.saturating_sub(std::mem::replace(&mut self.total, total));
        self.slot().asked += more;
    }

    /// Returns whether one more is allowed, and counts it if so.
    pub fn try_spend(&mut self, now: Time) -> bool {
        self.advance(now);
        let sum = |of: fn(&Slot) -> u64| self.slots.iter().map(of).sum::<u64>();
        let allowed = sum(|slot| slot.asked).saturating_mul(u64::from(self.percent)) / 100;
        let is_allowed = sum(|slot| slot.spent) < allowed.max(self.least);
        self.slot().spent += u64::from(is_allowed);
        is_allowed
    }

    fn slot(&mut self) -> &mut Slot {
        &mut self.slots[self.current as usize % SLOTS]
    }

    /// Discards slots that are too old.
    fn advance(&mut self, now: Time) {
        let current = now.0 / self.slot_nanos;
        let passed = current.saturating_sub(self.current).min(SLOTS as u64);
        for step in 1..=passed {
            let slot = self.current.wrapping_add(step);
            self.slots[slot as usize % SLOTS] = Slot::default();
        }
        if passed == SLOTS as u64 {
            self.slots = [Slot::default(); SLOTS];
        }
        self.current = self.current.max(current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn spend_all(budget: &mut Budget, now: u64) -> u64 {
        (0..100_000).take_while(|_| budget.try_spend(Time(now))).count() as u64
    }

    #[test]
    fn a_share_of_what_was_asked_may_be_spent_and_no_more() {
        let mut budget = Budget::new(20, Duration::from_secs(10), 3);
        budget.note_asked(1000, Time(SECOND));
        assert_eq!(spend_all(&mut budget, SECOND), 200);
        assert_eq!(spend_all(&mut budget, 2 * SECOND), 0);
        budget.note_asked(1010, Time(2 * SECOND));
        assert_eq!(spend_all(&mut budget, 2 * SECOND), 2);
    }

    #[test]
    fn nothing_is_saved_up_and_nothing_owed_for_longer_than_the_window() {
        let mut budget = Budget::new(10, Duration::from_secs(1), 1);
        budget.note_asked(1_000_000, Time(SECOND));
        let later = 2 * SECOND + SECOND / 10;
        assert_eq!(spend_all(&mut budget, later), 1, "the least");
        budget.note_asked(1_000_100, Time(later));
        assert_eq!(spend_all(&mut budget, later), 9, "ten with the one before");
        budget.note_asked(1_000_200, Time(later + 10 * SECOND));
        assert_eq!(spend_all(&mut budget, later + 10 * SECOND), 10);
    }

    #[test]
    fn a_steady_load_has_its_share_whenever_it_is_looked_at() {
        let mut budget = Budget::new(5, Duration::from_secs(1), 1);
        let mut spent = 0;
        for tick in 0..1000 {
            let now = tick * SECOND / 50;
            budget.note_asked(tick * 100, Time(now));
            spent += spend_all(&mut budget, now);
        }
        assert!((4_900..=5_000).contains(&spent), "{spent} of 100000");
    }

    #[test]
    fn a_clock_that_stands_or_a_count_that_begins_again_gives_nothing_away() {
        let mut budget = Budget::new(100, Duration::from_secs(1), 0);
        assert!(!budget.try_spend(Time(0)));
        budget.note_asked(50, Time(SECOND));
        budget.note_asked(10, Time(SECOND));
        budget.note_asked(20, Time(0));
        assert_eq!(spend_all(&mut budget, SECOND), 60);
    }
}
