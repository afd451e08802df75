//! Latencies of requests by class of commands: the sections Latencystats and Latencies, and LATENCY
//! HISTOGRAM.
//!
//! Latencies has the shares of requests above 1, 8 and 64 ms, since the start and over the last ten
//! seconds. For the last ten seconds, the counts are noted once a second, and those of ten seconds
//! ago are subtracted.

use super::{Fields, Report};
use keyway_metrics::{LatencyShares, Registry};
use keyway_proxy::local::ClassLatencies;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;

/// Least time between two notes. If it were smaller, the length of the window would vary less, and
/// noting would cost more.
const NOTE_EVERY: Duration = Duration::from_millis(900);

/// Length of the window of recent requests.
const WINDOW: Duration = Duration::from_secs(10);

/// Counts of every class at the ends of the last few seconds.
#[derive(Default)]
pub(super) struct Window {
    inner: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    /// Time since the latest note, over all calls.
    passed: Duration,
    /// Noted counts, each with the time to the next note (the latest with the time to now), oldest
    /// first. Before the first note is the start, when all counts were zero.
    notes: VecDeque<(Vec<LatencyShares>, Duration)>,
    /// Time from the start to the first note, until the first note is dropped.
    before_first: Option<Duration>,
}

impl Window {
    /// Notes that time has passed. `now` returns the current counts.
    pub(super) fn pass(&self, elapsed: Duration, now: impl FnOnce() -> Vec<LatencyShares>) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        inner.passed += elapsed;
        match inner.notes.back_mut() {
            Some((_, length)) => *length += elapsed,
            None => *inner.before_first.get_or_insert_default() += elapsed,
        }
        if inner.passed < NOTE_EVERY {
            return;
        }
        inner.passed = Duration::ZERO;
        inner.notes.push_back((now(), Duration::ZERO));
        while inner.length_without_first() >= WINDOW {
            if inner.before_first.take().is_none() {
                inner.notes.pop_front();
            }
        }
    }

    /// Returns the counts in the window, given the current counts, and the length of the window.
    fn latest(&self, now: &[LatencyShares]) -> (Vec<LatencyShares>, Duration) {
        let inner = self.inner.lock();
        let noted: Duration = inner.notes.iter().map(|(_, length)| *length).sum();
        let first = inner.notes.front().filter(|_| inner.before_first.is_none());
        let base = first.map_or(&[][..], |(counts, _)| counts);
        let since = |(class, now): (usize, &LatencyShares)| {
            now.since(&base.get(class).copied().unwrap_or_default())
        };
        let counts = now.iter().enumerate().map(since).collect();
        (counts, noted + inner.before_first.unwrap_or_default())
    }
}

impl Notes {
    /// Returns the length of the window without its oldest part.
    fn length_without_first(&self) -> Duration {
        let skipped = usize::from(self.before_first.is_none());
        self.notes.iter().skip(skipped).map(|(_, length)| *length).sum()
    }
}

/// Writes the quantiles by class, as in Redis's section of that name. They are at most an eighth
/// too high.
pub(super) fn write_quantiles(report: &Report, fields: &mut Fields) {
    let registry = &report.process.registry;
    for (class, latencies) in
        registry.layout().classes.iter().zip(registry.class_latencies(report.index))
    {
        let quantiles = [0.5, 0.99, 0.999].map(|quantile| latencies.quantile(quantile));
        let [Some(half), Some(most), Some(nearly)] = quantiles.map(|it| it.map(|it| it * 1e6))
        else {
            continue;
        };
        let value = format_args!("p50={half:.3},p99={most:.3},p99.9={nearly:.3}");
        fields.put(&format!("latency_percentiles_usec_{class}"), value);
    }
}

/// Writes a line for each class that had requests.
pub(super) fn write_shares(report: &Report, fields: &mut Fields) {
    let registry = &report.process.registry;
    let all = registry.latency_shares(report.index);
    let (latest, length) = report.pool.past.latencies.latest(&all);
    fields.put("latencies_window_seconds", format_args!("{:.1}", length.as_secs_f64()));
    for (class, (all, latest)) in registry.layout().classes.iter().zip(all.iter().zip(&latest)) {
        if all.requests > 0 {
            let value = format!("{},{}", shares("", all), shares("window_", latest));
            fields.put(&format!("latencies_{class}"), value);
        }
    }
}

fn shares(prefix: &str, shares: &LatencyShares) -> String {
    let mut text = format!("{prefix}requests={}", shares.requests);
    for (millis, percent) in LatencyShares::OVER_MILLIS.iter().zip(shares.percent()) {
        text += &format!(",{prefix}over_{millis}ms={percent:.4}");
    }
    text
}

/// Returns the histograms of a pool, as LATENCY HISTOGRAM shows them.
pub(super) fn histograms(registry: &Registry, pool: usize) -> Vec<ClassLatencies> {
    if pool >= registry.layout().pools.len() {
        return Vec::new();
    }
    let classes = registry.layout().classes.iter().zip(registry.class_latencies(pool));
    let of = classes.map(|(class, latencies)| ClassLatencies {
        class,
        requests: latencies.count(),
        at_or_below_micros: latencies.cumulative_micros(),
    });
    of.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Duration = Duration::from_millis(500);

    fn counts(requests: u64, slow: u64) -> Vec<LatencyShares> {
        vec![LatencyShares { requests, over: [slow, 0, 0] }]
    }

    #[test]
    fn until_ten_seconds_have_passed_the_window_begins_with_the_process() {
        let window = Window::default();
        assert_eq!(window.latest(&counts(7, 1)), (counts(7, 1), Duration::ZERO));
        for half in 0..18 {
            window.pass(HALF, || counts(half, 0));
        }
        assert_eq!(window.latest(&counts(99, 9)), (counts(99, 9), HALF * 18));
    }

    #[test]
    fn the_window_forgets_what_is_more_than_its_length_ago() {
        let window = Window::default();
        for half in 1..=100 {
            window.pass(HALF, || counts(half * 10, half));
            let (seen, length) = window.latest(&counts(half * 10, half));
            let halves = u64::try_from(length.as_millis()).expect("a few seconds") / 500;
            assert_eq!(seen, counts(halves * 10, halves), "after {half}");
            assert!(halves == half || (20..=22).contains(&halves), "{halves} after {half}");
        }
    }

    #[test]
    fn a_share_of_nothing_is_nothing() {
        assert_eq!(LatencyShares::default().percent(), [0.0; 3]);
        let some = LatencyShares { requests: 400, over: [4, 1, 0] };
        assert_eq!(
            shares("w_", &some),
            "w_requests=400,w_over_1ms=1.0000,w_over_8ms=0.2500,w_over_64ms=0.0000"
        );
    }
}
