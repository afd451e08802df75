use keyway_base::Time;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Limits the requests in a second, over all workers. One word holds the time at which all admitted
/// requests would have arrived if they had arrived at the allowed rate. A request may be ahead of
/// that by the length of the burst.
#[derive(Debug)]
pub struct Bucket {
    /// In sixteenths of a nanosecond since `origin`.
    due: AtomicU64,
    /// Time between two requests at the allowed rate, in sixteenths of a nanosecond.
    step: u64,
    /// Longest time that a request may be ahead of the rate, in the same unit.
    ahead_max: u64,
    /// When the bucket was created.
    origin: Time,
}

/// Bits for fractions of a nanosecond, so that rates which do not divide a second well are kept
/// within 1 %. With more, the word would overflow within the life of a process. With 4 bits, that
/// takes 36 years.
const FRACTION_BITS: u32 = 4;

impl Bucket {
    /// Creates a full bucket: `per_second` requests each second, and `burst` at once after a rest.
    pub fn new(per_second: u64, burst: u64, now: Time) -> Bucket {
        let step = ((1_000_000_000u64 << FRACTION_BITS) / per_second.max(1)).max(1);
        let ahead_max = step.saturating_mul(burst.max(1));
        Bucket { due: AtomicU64::new(0), step, ahead_max, origin: now }
    }

    fn now(&self, now: Time) -> u64 {
        now.0.saturating_sub(self.origin.0) << FRACTION_BITS
    }

    /// Takes a token. Returns whether there was one.
    pub fn try_take(&self, now: Time) -> bool {
        let now = self.now(now);
        let mut due = self.due.load(Relaxed);
        loop {
            let next = due.max(now).saturating_add(self.step);
            if next - now > self.ahead_max {
                return false;
            }
            // ORDER: Relaxed, nothing else is published with it.
            match self.due.compare_exchange_weak(due, next, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(seen) => due = seen,
            }
        }
    }

    /// Returns an unused token.
    pub fn give_back(&self) {
        self.due.fetch_sub(self.step, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn let_through(bucket: &Bucket, from: Time, lasts: Duration, tries: u64) -> u64 {
        let step = lasts.as_nanos() as u64 / tries;
        (0..tries).filter(|nth| bucket.try_take(Time(from.0 + nth * step))).count() as u64
    }

    #[test]
    fn the_rate_is_kept_whatever_it_is() {
        for (rate, burst) in
            [(1, 1), (3, 2), (1000, 100), (333_333, 10), (1_000_000, 1000), (7_000_000, 3)]
        {
            for start in [0, 1 << 50] {
                let origin = Time(start);
                let bucket = Bucket::new(rate, burst, origin);
                let seconds = 3;
                let tries = (rate * seconds * 4).max(4000);
                let taken = let_through(&bucket, origin, Duration::from_secs(seconds), tries);
                let expected = rate * seconds + burst;
                assert!(taken.abs_diff(expected) <= expected / 50 + 2, "{rate}: {taken}");
            }
        }
    }

    #[test]
    fn it_goes_on_after_days_and_a_rest_saves_no_more_than_the_burst() {
        let bucket = Bucket::new(10, 5, Time(7));
        for days in [0, 1, 3, 4, 100, 5000] {
            let now = Time(7 + days * 86_400_000_000_000);
            let taken = (0..50).filter(|_| bucket.try_take(now)).count();
            assert_eq!(taken, 5, "after {days} days");
        }
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let bucket = Bucket::new(10, 2, Time(0));
        assert!(bucket.try_take(Time(0)) && bucket.try_take(Time(0)) && !bucket.try_take(Time(0)));
        bucket.give_back();
        assert!(bucket.try_take(Time(0)) && !bucket.try_take(Time(0)));
    }
}
