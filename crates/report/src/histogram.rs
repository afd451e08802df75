//! Latencies as counts in buckets.

use serde::{Deserialize, Serialize};

/// How often which latency was seen. What recorded it decides how fine the buckets are: with
/// three digits, as HDR histograms of load generators have, a percentile is right to 0.1 %.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// The largest value of a bucket in nanoseconds, and how many values are in it; ascending,
    /// empty buckets left out.
    #[serde(default)]
    pub buckets_ns: Vec<(u64, u64)>,
    /// The sum of all values in nanoseconds.
    #[serde(default)]
    pub sum_ns: f64,
    /// The smallest value in nanoseconds.
    #[serde(default)]
    pub min_ns: u64,
    /// The largest value in nanoseconds.
    #[serde(default)]
    pub max_ns: u64,
}

impl Histogram {
    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.buckets_ns.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// The value in nanoseconds that `share` of all values, from 0 to 1, do not exceed; none
    /// when there are none.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let count = self.count();
        // The nearest rank: at least one value, at most all of them.
        let rank = ((share * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0_u64;
        let bucket = self.buckets_ns.iter().find(|(_, count)| {
            seen = seen.saturating_add(*count);
            seen >= rank
        });
        bucket.map(|(upper, _)| if self.max_ns > 0 { *upper.min(&self.max_ns) } else { *upper })
    }

    /// The mean in nanoseconds; none when there are no values.
    pub fn mean_ns(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum_ns / count as f64)
    }

    /// The standard deviation in nanoseconds, as well as the buckets tell it.
    pub fn deviation_ns(&self) -> Option<f64> {
        let (count, mean) = (self.count(), self.mean_ns()?);
        let squares = self.buckets_ns.iter().map(|(upper, count)| {
            let distance = *upper as f64 - mean;
            distance * distance * *count as f64
        });
        Some((squares.sum::<f64>() / count as f64).sqrt())
    }

    /// Which share of the values, from 0 to 1, is above `bound_ns`; none when there are none. A
    /// bucket that the bound lies in counts as above.
    pub fn share_above(&self, bound_ns: u64) -> Option<f64> {
        let count = self.count();
        let above = self.buckets_ns.iter().filter(|(upper, _)| *upper > bound_ns);
        let above = above.fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        (count > 0).then(|| above as f64 / count as f64)
    }

    /// All of these in one.
    pub fn merged<'a>(all: impl IntoIterator<Item = &'a Histogram>) -> Histogram {
        let mut buckets = std::collections::BTreeMap::new();
        let mut merged = Histogram { min_ns: u64::MAX, ..Histogram::default() };
        for one in all {
            for (upper, count) in &one.buckets_ns {
                let sum: &mut u64 = buckets.entry(*upper).or_default();
                *sum = sum.saturating_add(*count);
            }
            merged.sum_ns += one.sum_ns;
            merged.max_ns = merged.max_ns.max(one.max_ns);
            if !one.buckets_ns.is_empty() {
                merged.min_ns = merged.min_ns.min(one.min_ns);
            }
        }
        merged.buckets_ns = buckets.into_iter().collect();
        if merged.buckets_ns.is_empty() {
            merged.min_ns = 0;
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Histogram {
        let mut buckets = std::collections::BTreeMap::new();
        for value in values {
            *buckets.entry(*value).or_insert(0) += 1;
        }
        Histogram {
            buckets_ns: buckets.into_iter().collect(),
            sum_ns: values.iter().map(|value| *value as f64).sum(),
            min_ns: values.iter().copied().min().unwrap_or_default(),
            max_ns: values.iter().copied().max().unwrap_or_default(),
        }
    }

    #[test]
    fn quantiles_of_the_numbers_from_one_to_a_thousand_are_known() {
        let histogram = of(&(1..=1000).collect::<Vec<_>>());
        for (share, wanted) in [(0.0, 1), (0.5, 500), (0.99, 990), (0.999, 999), (1.0, 1000)] {
            assert_eq!(histogram.quantile_ns(share), Some(wanted));
        }
        assert_eq!(histogram.mean_ns(), Some(500.5));
        assert_eq!(histogram.share_above(990), Some(0.01));
        let deviation = histogram.deviation_ns().unwrap();
        assert!((deviation - 288.675).abs() < 0.001, "{deviation}");
    }

    #[test]
    fn nothing_recorded_has_no_quantile() {
        let nothing = Histogram::default();
        assert_eq!(nothing.quantile_ns(0.5), None);
        assert_eq!(nothing.mean_ns(), None);
        assert_eq!(nothing.share_above(1), None);
        assert_eq!(Histogram::merged([]), nothing);
    }

    #[test]
    fn exponential_latencies_have_the_quantiles_of_the_distribution() {
        // The inverse of the distribution at evenly spaced shares: no chance is involved.
        let count = 100_000;
        let mean = 250_000.0;
        let value = |nth: u32| -mean * (1.0 - (f64::from(nth) + 0.5) / f64::from(count)).ln();
        let histogram = of(&(0..count).map(|nth| value(nth) as u64).collect::<Vec<_>>());
        for share in [0.5, 0.9, 0.99, 0.999] {
            let wanted = -mean * (1.0_f64 - share).ln();
            let got = histogram.quantile_ns(share).unwrap() as f64;
            assert!((got / wanted - 1.0).abs() < 0.01, "{share}: {got} instead of {wanted}");
        }
    }

    proptest! {
        #[test]
        fn a_quantile_is_what_sorting_gives(
            values in prop::collection::vec(1_u64..1_000_000, 1..200), share in 0.0_f64..=1.0,
        ) {
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let rank = ((share * values.len() as f64).ceil() as usize).clamp(1, values.len());
            prop_assert_eq!(of(&values).quantile_ns(share), Some(sorted[rank - 1]));
        }

        #[test]
        fn merging_is_recording_together(
            left in prop::collection::vec(1_u64..10_000, 0..50),
            right in prop::collection::vec(1_u64..10_000, 0..50),
        ) {
            let both: Vec<u64> = left.iter().chain(&right).copied().collect();
            prop_assert_eq!(Histogram::merged([&of(&left), &of(&right)]), of(&both));
        }
    }
}
