//! Log-linear histograms: eight buckets for every power of two. A quantile is at most 12.5 % too
//! high, and a histogram takes 1.4 KB.
//!
//! Values are counted as integers of the histogram's own step. Every power of two of steps is a
//! boundary between two buckets, and the exported `le` bounds are such powers. So exported counts
//! are exact, not interpolated. For latencies the step is 1/1024 ms, which puts the bounds on 1, 2,
//! 4, 8 … ms.

use keyway_base::Time;

use crate::cell::Counter;

/// log2 of the number of buckets per power of two. One more halves the error of a quantile and
/// doubles the memory.
const GROUPING: u32 = 3;
/// log2 of the first value (in steps) that no longer fits. Larger values count in the last bucket.
/// For latencies 2^24 steps are 16.4 s.
const RANGE: u32 = 24;
const BUCKETS: usize = ((RANGE - GROUPING + 1) << GROUPING) as usize;
const STEP_MAX: u64 = (1 << RANGE) - 1;

/// Latency steps per second: 1024 per millisecond.
const STEPS_PER_SECOND: u64 = 1_024_000;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Returns the bucket of a value of `step` steps, which must not exceed `STEP_MAX`.
#[inline]
fn bucket_of(step: u64) -> usize {
    // Below 2^(GROUPING+1) a bucket is one step wide. From there each bucket keeps the leading
    // GROUPING+1 bits and drops `shift` low ones.
    let shift = (step | (1 << GROUPING)).ilog2() - GROUPING;
    ((shift as usize) << GROUPING) + (step >> shift) as usize
}

/// Returns the first step after `bucket`, which is its upper bound: every value counted in it was
/// at most this large (values are counted as one less).
fn bucket_end(bucket: usize) -> u64 {
    let next = bucket as u64 + 1;
    let shift = (next >> GROUPING).saturating_sub(1);
    (next - (shift << GROUPING)) << shift
}

#[derive(Debug)]
struct Buckets {
    counts: [Counter; BUCKETS],
    sum: Counter,
}

impl Buckets {
    const fn new() -> Self {
        Self { counts: [const { Counter::new() }; BUCKETS], sum: Counter::new() }
    }

    #[inline]
    fn add(&self, bucket: usize, amount: u64, count: u64) {
        self.counts[bucket].add(count);
        self.sum.add(amount);
    }
}

/// A duration with its bucket, to be recorded in several histograms.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    bucket: usize,
    nanos: u64,
}

impl Latency {
    /// Returns the time from `start` to `end`; zero if they are reversed.
    #[inline]
    pub fn between(start: Time, end: Time) -> Latency {
        let nanos = end.0.saturating_sub(start.0);
        // One is subtracted, so that exactly 1 ms still counts as `le` 1 ms.
        const STEPS: u64 = STEPS_PER_SECOND / 64_000;
        const NANOS: u64 = NANOS_PER_SECOND / 64_000;
        let clamped = nanos.saturating_sub(1).min(u64::MAX / STEPS);
        Latency { bucket: bucket_of((clamped * STEPS / NANOS).min(STEP_MAX)), nanos }
    }

    /// Returns the duration in nanoseconds.
    #[inline]
    pub(crate) fn nanos(self) -> u64 {
        self.nanos
    }
}

/// Durations, exported in seconds.
#[derive(Debug)]
pub struct LatencyHistogram(Buckets);

impl LatencyHistogram {
    pub(crate) const fn new() -> Self {
        Self(Buckets::new())
    }

    /// Records the time from `start` to `end`; zero if they are reversed.
    #[inline]
    pub fn record(&self, start: Time, end: Time) {
        self.add(Latency::between(start, end), 1);
    }

    /// Restarts from zero.
    pub(crate) fn restart(&self) {
        self.0.counts.iter().chain([&self.0.sum]).for_each(Counter::restart);
    }

    /// Records a latency for `count` occurrences.
    #[inline]
    pub fn add(&self, latency: Latency, count: u64) {
        self.0.add(latency.bucket, latency.nanos.saturating_mul(count), count);
    }
}

/// Sizes such as requests per turn, exported as they are.
#[derive(Debug)]
pub struct SizeHistogram(Buckets);

impl SizeHistogram {
    pub(crate) const fn new() -> Self {
        Self(Buckets::new())
    }

    /// Records one occurrence of `size`.
    #[inline]
    pub fn record(&self, size: u64) {
        self.0.add(bucket_of(size.saturating_sub(1).min(STEP_MAX)), size, 1);
    }
}

/// The factors from a snapshot's steps to the metric's unit.
#[derive(Clone, Copy, Debug)]
struct Scale {
    steps_per_unit: u64,
    amounts_per_unit: u64,
    /// The exported bounds are 2^first ..= 2^last steps.
    bounds_log2: (u32, u32),
}

/// 62.5 us to 8.192 s, doubling.
const LATENCY: Scale = Scale {
    steps_per_unit: STEPS_PER_SECOND,
    amounts_per_unit: NANOS_PER_SECOND,
    bounds_log2: (6, 23),
};
/// 1 to 8192, doubling.
const SIZE: Scale = Scale { steps_per_unit: 1, amounts_per_unit: 1, bounds_log2: (0, 13) };

/// The sum of histograms of several workers or command classes, at the moment of reading.
#[derive(Clone, Debug)]
pub struct Snapshot {
    counts: [u64; BUCKETS],
    sum: u64,
    scale: Scale,
}

impl Snapshot {
    fn empty(scale: Scale) -> Self {
        Self { counts: [0; BUCKETS], sum: 0, scale }
    }

    fn absorb(&mut self, buckets: &Buckets) {
        for (total, count) in self.counts.iter_mut().zip(&buckets.counts) {
            *total += count.get();
        }
        self.sum = self.sum.wrapping_add(buckets.sum.get());
    }

    pub(crate) fn of_latencies<'a>(parts: impl Iterator<Item = &'a LatencyHistogram>) -> Self {
        let mut snapshot = Self::empty(LATENCY);
        parts.for_each(|part| snapshot.absorb(&part.0));
        snapshot
    }

    pub(crate) fn of_sizes<'a>(parts: impl Iterator<Item = &'a SizeHistogram>) -> Self {
        let mut snapshot = Self::empty(SIZE);
        parts.for_each(|part| snapshot.absorb(&part.0));
        snapshot
    }

    /// Returns what was recorded since `seen`, plus half of `before`.
    pub(crate) fn since(&self, seen: Option<&Snapshot>, before: Option<&Snapshot>) -> Snapshot {
        let mut latest = Snapshot { counts: [0; BUCKETS], ..self.clone() };
        for (at, count) in latest.counts.iter_mut().enumerate() {
            let of = |snapshot: Option<&Snapshot>| snapshot.map_or(0, |it| it.counts[at]);
            *count = self.counts[at].saturating_sub(of(seen)) + of(before) / 2;
        }
        latest
    }

    /// Returns what was recorded since an earlier snapshot of the same histograms.
    #[must_use]
    pub fn after(&self, earlier: &Snapshot) -> Snapshot {
        self.since(Some(earlier), None)
    }

    /// Returns the number of recorded values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of the recorded values, in the metric's unit.
    pub fn sum(&self) -> f64 {
        self.sum as f64 / self.scale.amounts_per_unit as f64
    }

    /// Returns a bound that at least the share `q` (0 to 1) of the recorded values does not exceed,
    /// in the metric's unit. It is at most 12.5 % or one step above the true quantile. Returns
    /// `None` if nothing was recorded. Values beyond the range (16.4 s) count as its end.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let total = self.count();
        if total == 0 {
            return None;
        }
        let rank = ((q.clamp(0.0, 1.0) * total as f64).ceil() as u64).clamp(1, total);
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(bucket_end(bucket) as f64 / self.scale.steps_per_unit as f64)
    }

    /// Returns the number of recorded values that were larger than 2^`log2` steps.
    pub(crate) fn above(&self, log2: u32) -> u64 {
        self.counts[bucket_of(1 << log2)..].iter().sum()
    }

    /// Returns bounds in microseconds, each with the number of latencies at or below it. The bounds
    /// are the powers of two of 1/1024 ms (rounded up to whole microseconds) that some recorded
    /// latency needs. The list ends at the total count.
    pub fn cumulative_micros(&self) -> Vec<(u64, u64)> {
        let (mut bounds, mut from, mut seen) = (Vec::new(), 0, 0);
        for log2 in 0..=RANGE {
            let to = if log2 == RANGE { BUCKETS } else { bucket_of(1 << log2) };
            let here: u64 = self.counts[from..to].iter().sum();
            from = to;
            seen += here;
            if here > 0 {
                bounds.push((((1u64 << log2) * 1_000_000).div_ceil(STEPS_PER_SECOND), seen));
            }
        }
        bounds
    }

    /// Returns the exported bounds in the metric's unit, each with the number of values at or below
    /// it. The number for the bound above all of them is `count`.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let (first, last) = self.scale.bounds_log2;
        let mut from = 0;
        let mut seen = 0;
        (first..=last).map(move |log2| {
            let to = bucket_of(1 << log2);
            seen += self.counts[from..to].iter().sum::<u64>();
            from = to;
            ((1u64 << log2) as f64 / self.scale.steps_per_unit as f64, seen)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies(nanos: &[u64]) -> Snapshot {
        let histogram = LatencyHistogram::new();
        nanos.iter().for_each(|&n| histogram.record(Time(77), Time(77 + n)));
        Snapshot::of_latencies([&histogram].into_iter())
    }

    fn at_or_below(snapshot: &Snapshot, bound: f64) -> u64 {
        let found = snapshot.cumulative().find(|(le, _)| *le == bound);
        found.expect("the bound is exported").1
    }

    /// Returns the ends of buckets by their definition: one step wide up to 2^GROUPING, then
    /// 2^GROUPING of equal width up to each further power of two.
    fn bucket_ends_by_definition() -> Vec<u64> {
        let mut ends: Vec<u64> = (1..=1 << GROUPING).collect();
        for log2 in GROUPING..RANGE {
            let width = 1 << (log2 - GROUPING);
            ends.extend((1..=1u64 << GROUPING).map(|i| (1 << log2) + i * width));
        }
        ends
    }

    #[test]
    fn buckets_agree_with_their_definition() {
        let ends = bucket_ends_by_definition();
        assert_eq!(ends.len(), BUCKETS);
        for (bucket, &end) in ends.iter().enumerate() {
            assert_eq!(bucket_end(bucket), end);
            assert_eq!(bucket_of(end - 1), bucket);
            if end <= STEP_MAX {
                assert_eq!(bucket_of(end), bucket + 1);
            }
        }
    }

    #[test]
    fn a_value_on_a_bound_counts_at_or_below_it() {
        for (bound, nanos) in [(0.0000625, 62_500), (0.001, 1_000_000), (0.008, 8_000_000)] {
            let snapshot = latencies(&[nanos, nanos + 1]);
            assert_eq!(at_or_below(&snapshot, bound), 1, "le {bound}");
        }
        let snapshot = latencies(&[64_000_000, 8_192_000_000, 8_192_000_001]);
        assert_eq!(at_or_below(&snapshot, 0.064), 1);
        assert_eq!(at_or_below(&snapshot, 8.192), 2);
        assert_eq!(snapshot.count(), 3);
    }

    #[test]
    fn extremes_are_counted_and_never_panic() {
        let snapshot = latencies(&[0, u64::MAX - 77]);
        assert_eq!(snapshot.count(), 2);
        assert_eq!(snapshot.quantile(1.0), Some(16.384));
        let reversed = LatencyHistogram::new();
        reversed.record(Time(5), Time(1));
        assert_eq!(Snapshot::of_latencies([&reversed].into_iter()).sum(), 0.0);
    }

    #[test]
    fn quantiles_are_never_low_and_at_most_an_eighth_high() {
        let mut state = 11u64;
        let mut nanos: Vec<u64> = (0..10_000)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                1 + (state >> 33) % (1 << (10 + (state >> 20) % 20))
            })
            .collect();
        let snapshot = latencies(&nanos);
        nanos.sort_unstable();
        for q in [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let rank = ((q * nanos.len() as f64).ceil() as usize).max(1);
            let exact = nanos[rank - 1] as f64 / 1e9;
            let read = snapshot.quantile(q).expect("values were recorded");
            assert!(read >= exact * 0.999_999, "q {q}: {read} below {exact}");
            assert!(read <= exact * 1.1251 + 1e-6, "q {q}: {read} far above {exact}");
        }
    }

    #[test]
    fn sizes_export_as_they_are() {
        let histogram = SizeHistogram::new();
        [0, 1, 2, 3, 4, 5, 100_000].iter().for_each(|&n| histogram.record(n));
        let snapshot = Snapshot::of_sizes([&histogram].into_iter());
        assert_eq!(at_or_below(&snapshot, 1.0), 2);
        assert_eq!(at_or_below(&snapshot, 2.0), 3);
        assert_eq!(at_or_below(&snapshot, 4.0), 5);
        assert_eq!(snapshot.sum(), 100_015.0);
        assert_eq!(snapshot.count(), 7);
        assert_eq!(snapshot.cumulative().count(), 14);
    }

    #[test]
    fn what_is_above_a_bound_and_what_is_not_make_the_count() {
        let snapshot = latencies(&[1, 1_000_000, 1_000_001, 8_000_001, 64_000_000, u64::MAX - 77]);
        assert_eq!([10, 13, 16].map(|log2| snapshot.above(log2)), [4, 3, 1]);
        let bounds = snapshot.cumulative_micros();
        let expected = [(1, 1), (1_000, 2), (2_000, 3), (16_000, 4), (64_000, 5), (16_384_000, 6)];
        assert_eq!(bounds, expected);
        assert_eq!(latencies(&[]).cumulative_micros(), []);
    }

    #[test]
    fn nothing_recorded_has_no_quantile() {
        assert_eq!(latencies(&[]).quantile(0.5), None);
    }

    #[test]
    fn histogram_stays_within_its_memory() {
        assert!(std::mem::size_of::<LatencyHistogram>() <= 1500);
    }
}
