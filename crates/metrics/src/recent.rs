//! Recent values of histograms.

use crate::histogram::{LatencyHistogram, Snapshot};
use std::time::Duration;

/// The recent part of some histograms. Values recorded before the last call of [`Recent::follow`]
/// count half, those before the call before that a quarter.
#[derive(Debug, Default)]
pub struct Recent {
    seen: Option<Snapshot>,
    latest: Option<Snapshot>,
}

impl Recent {
    /// Takes the values recorded since the last call.
    pub fn follow<'a>(&mut self, parts: impl Iterator<Item = &'a LatencyHistogram>) {
        let now = Snapshot::of_latencies(parts);
        let since = now.since(self.seen.as_ref(), self.latest.as_ref());
        self.seen = Some(now);
        self.latest = Some(since);
    }

    /// Returns a time that the share `q` (0 to 1) of the values does not exceed; `None` if there
    /// were none.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        self.latest.as_ref()?.quantile(q).map(Duration::from_secs_f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::Time;

    fn record(histogram: &LatencyHistogram, millis: u64, count: usize) {
        (0..count).for_each(|_| histogram.record(Time(0), Time(millis * 1_000_000)));
    }

    fn p99(recent: &Recent) -> u64 {
        recent.quantile(0.99).map_or(0, |time| time.as_millis() as u64)
    }

    #[test]
    fn what_was_slow_is_forgotten_and_what_becomes_slow_is_seen() {
        let (one, other) = (LatencyHistogram::new(), LatencyHistogram::new());
        let mut recent = Recent::default();
        recent.follow([&one, &other].into_iter());
        assert_eq!(p99(&recent), 0);
        record(&one, 2, 1000);
        record(&other, 64, 20);
        recent.follow([&one, &other].into_iter());
        assert_eq!(p99(&recent), 64);
        for _ in 0..5 {
            record(&one, 2, 1000);
            recent.follow([&one, &other].into_iter());
        }
        assert_eq!(p99(&recent), 2);
        record(&other, 16, 100);
        recent.follow([&one, &other].into_iter());
        assert_eq!(p99(&recent), 16);
    }

    #[test]
    fn a_histogram_that_begins_again_counts_from_nothing() {
        let one = LatencyHistogram::new();
        let mut recent = Recent::default();
        record(&one, 64, 1000);
        recent.follow([&one].into_iter());
        one.restart();
        record(&one, 2, 10);
        for _ in 0..11 {
            recent.follow([&one].into_iter());
            record(&one, 2, 10);
        }
        assert_eq!(p99(&recent), 2);
    }
}
