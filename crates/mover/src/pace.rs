//! The pace of a copy: bounds on keys and on bytes in a second.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bounds on what is copied or deleted in a second. Without them it is as fast as it can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Largest number of keys.
    pub keys_per_second: Option<u64>,
    /// Largest number of bytes.
    pub bytes_per_second: Option<u64>,
}

/// The unused part of a bound is of use for this long.
const SAVED: Duration = Duration::from_millis(100);

/// Keeps to a pace.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// When the keys so far are allowed to have been done, and the bytes.
    due: [Instant; 2],
}

impl Pacer {
    pub(crate) fn new(now: Instant) -> Pacer {
        Pacer { due: [now; 2] }
    }

    /// Notes what was done. Returns how long to wait before more is.
    pub(crate) fn note(&mut self, pace: Pace, keys: u64, bytes: u64, now: Instant) -> Duration {
        let bounds = [(pace.keys_per_second, keys), (pace.bytes_per_second, bytes)];
        let mut wait = Duration::ZERO;
        for (due, (bound, done)) in self.due.iter_mut().zip(bounds) {
            let Some(bound) = bound else {
                *due = now;
                continue;
            };
            let earliest = now.checked_sub(SAVED).unwrap_or(now);
            let took = Duration::from_secs_f64(done as f64 / bound.max(1) as f64);
            *due = (*due).max(earliest) + took.min(Duration::from_secs(3600));
            wait = wait.max(due.saturating_duration_since(now));
        }
        wait
    }
}

/// The time now.
#[allow(clippy::disallowed_methods, reason = "threads of a mover serve no client")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns the time in milliseconds since 1970. Servers have clocks of their own.
#[allow(clippy::disallowed_methods, reason = "expiries are times of the wall clock")]
pub(crate) fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_take_the_time_that_their_bound_says() {
        let begin = now();
        let mut pacer = Pacer::new(begin);
        let pace = Pace { keys_per_second: Some(1000), bytes_per_second: None };
        let mut at = begin;
        for _ in 0..50 {
            at += pacer.note(pace, 100, 1 << 20, at);
        }
        let took = at - begin;
        assert!((Duration::from_millis(4800)..=Duration::from_secs(5)).contains(&took), "{took:?}");
        assert_eq!(pacer.note(Pace::default(), 1000, 1000, at), Duration::ZERO);
        let both = Pace { keys_per_second: Some(1000), bytes_per_second: Some(1000) };
        assert!(pacer.note(both, 1, 5000, at) > Duration::from_secs(4), "bytes are the bound");
    }
}
