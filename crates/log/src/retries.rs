//! When a log that has failed tries to begin anew.

use keyway_base::Time;
use std::time::Duration;

/// When it is tried again, and the longest time until then. The time doubles with each attempt.
/// A longer one leaves writes without a log, or refused, though the disk has room again.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(250);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(4);
/// An attempt that took longer is tried again after as long a time, but not longer than this: the base
/// of much data fills the disk anew each time.
const RETRY_AFTER_LONG_MAX: Duration = Duration::from_secs(60);
/// Time between two words about attempts that fail.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// The attempts of a log to begin.
pub(crate) struct Retries {
    /// When the next one is due.
    at: Time,
    after: Duration,
    /// When the latest one began.
    began: Time,
    /// When it was told last that the log has failed, or fails to begin.
    told_at: Time,
}

impl Retries {
    pub(crate) const fn new() -> Self {
        Self { at: Time(0), after: RETRY_AFTER, began: Time(0), told_at: Time(0) }
    }

    pub(crate) fn is_due(&self, now: Time) -> bool {
        now >= self.at
    }

    /// An attempt begins.
    pub(crate) fn begin(&mut self, now: Time) {
        self.began = now;
    }

    /// Nothing was begun: it is tried again a little later.
    pub(crate) fn put_off(&mut self, now: Time) {
        self.at = now + RETRY_AFTER;
    }

    /// Has the next attempt be made at once.
    pub(crate) fn hurry(&mut self) {
        self.at = Time(0);
    }

    /// The log has begun.
    pub(crate) fn succeed(&mut self) {
        self.after = RETRY_AFTER;
    }

    /// The log has failed, or an attempt to begin has (`is_attempt`). Returns the time until the next
    /// one.
    pub(crate) fn fail(&mut self, now: Time, is_attempt: bool) -> Duration {
        let took = if is_attempt { now.since(self.began) } else { Duration::ZERO };
        let after = self.after.max(took.min(RETRY_AFTER_LONG_MAX));
        self.at = now + after;
        self.after = (self.after * 2).min(RETRY_AFTER_MAX);
        after
    }

    /// Returns whether a failure is to be told: the first one, and one a minute.
    pub(crate) fn is_to_tell(&mut self, now: Time, is_first: bool) -> bool {
        let is_to_tell = is_first || now.since(self.told_at) >= TOLD_EVERY;
        if is_to_tell {
            self.told_at = now;
        }
        is_to_tell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    #[test]
    fn attempts_come_every_four_seconds_at_last_and_a_long_one_rests_as_long_as_it_took() {
        let mut retries = Retries::new();
        let mut now = at(1000);
        let afters: Vec<u128> = (0..7)
            .map(|attempt| {
                retries.begin(now);
                let after = retries.fail(now, attempt > 0);
                assert!(!retries.is_due(now) && retries.is_due(now + after));
                now = now + after;
                after.as_millis()
            })
            .collect();
        assert_eq!(afters, [250, 500, 1000, 2000, 4000, 4000, 4000]);
        retries.begin(now);
        assert_eq!(retries.fail(now + Duration::from_secs(20), true), Duration::from_secs(20));
        retries.begin(now);
        assert_eq!(retries.fail(now + Duration::from_secs(900), true), RETRY_AFTER_LONG_MAX);
        retries.succeed();
        assert_eq!(retries.fail(now, false), RETRY_AFTER);
    }

    #[test]
    fn failures_are_told_at_first_and_once_a_minute() {
        let mut retries = Retries::new();
        assert!(retries.is_to_tell(at(0), true));
        let told = (1..200).filter(|second| retries.is_to_tell(at(second * 1000), false));
        assert_eq!(told.collect::<Vec<u64>>(), [60, 120, 180]);
    }
}
