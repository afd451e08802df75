//! Seconds of all threads put together.

use crate::outcome::Second;
use crate::record::Slice;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Buckets of the heat map to an octave.
const HEAT_PER_OCTAVE: u32 = 8;

/// Seconds of all threads; one that all have told of becomes a row.
#[derive(Debug)]
pub(crate) struct Series {
    threads: usize,
    open: BTreeMap<u64, Open>,
    done: Vec<Second>,
}

#[derive(Debug)]
struct Open {
    told: usize,
    requests: u64,
    errors: u64,
    latency: Histogram<u32>,
}

impl Series {
    pub(crate) fn new(threads: usize) -> Series {
        Series { threads, open: BTreeMap::new(), done: Vec::new() }
    }

    /// A second of a thread, or what there is of its last.
    pub(crate) fn add(&mut self, slice: &Slice) {
        let open = self.open.entry(slice.second).or_insert_with(|| Open {
            told: 0,
            requests: 0,
            errors: 0,
            latency: Histogram::new_from(&slice.latency),
        });
        open.told += 1;
        open.requests += slice.requests;
        open.errors += slice.errors;
        // Their bounds are alike.
        let _ = open.latency.add(&slice.latency);
        if open.told == self.threads
            && let Some(open) = self.open.remove(&slice.second)
        {
            self.done.push(open.row(slice.second));
        }
    }

    /// The rows, in order; a last one in which nothing came is left out.
    pub(crate) fn seconds(mut self) -> Vec<Second> {
        let open = std::mem::take(&mut self.open);
        self.done.extend(open.into_iter().map(|(second, open)| open.row(second)));
        self.done.sort_by_key(|row| row.second);
        if self.done.last().is_some_and(|row| row.requests == 0) {
            self.done.pop();
        }
        self.done
    }
}

impl Open {
    fn row(self, second: u64) -> Second {
        let max = self.latency.max();
        let at = |quantile| self.latency.value_at_quantile(quantile).min(max) as f64 / 1000.0;
        let mut heat: Vec<(u64, u64)> = Vec::new();
        for step in self.latency.iter_recorded() {
            let upper = heat_bucket(step.value_iterated_to());
            let count = step.count_at_value();
            match heat.last_mut() {
                Some((last, sum)) if *last == upper => *sum += u64::from(count),
                _ => heat.push((upper, u64::from(count))),
            }
        }
        Second {
            second,
            requests: self.requests,
            errors: self.errors,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p99_9_us: at(0.999),
            max_us: max as f64 / 1000.0,
            heat,
        }
    }
}

/// The upper end of the heat map's bucket that a number of nanoseconds is in.
fn heat_bucket(nanos: u64) -> u64 {
    let octave = nanos.max(u64::from(HEAT_PER_OCTAVE)).ilog2();
    let width = (1u64 << octave) / u64::from(HEAT_PER_OCTAVE);
    (nanos / width + 1) * width
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(second: u64, nanos: u64, count: u32) -> Slice {
        let mut slice = Slice::new(second).unwrap();
        slice.latency.record_n(nanos, count).unwrap();
        slice.requests = count.into();
        slice
    }

    #[test]
    fn seconds_of_threads_add_up_in_whatever_order_they_come() {
        let mut series = Series::new(2);
        series.add(&slice(0, 100_000, 10));
        series.add(&slice(1, 100_000, 5));
        series.add(&slice(0, 200_000, 30));
        series.add(&slice(1, 100_000, 1));
        series.add(&slice(2, 100_000, 0));
        let rows = series.seconds();
        assert_eq!(
            rows.iter().map(|row| (row.second, row.requests)).collect::<Vec<_>>(),
            [(0, 40), (1, 6)]
        );
        assert!((rows[0].p50_us / 200.0 - 1.0).abs() < 0.02, "{}", rows[0].p50_us);
        assert_eq!(rows[0].heat.iter().map(|(_, count)| count).sum::<u64>(), 40);
        assert_eq!(rows[0].heat.len(), 2);
    }

    #[test]
    fn heat_is_told_in_eighths_of_octaves() {
        assert_eq!([1000, 1023, 1024, 1151, 1152].map(heat_bucket), [1024, 1024, 1152, 1152, 1280]);
        assert!(heat_bucket(0) >= 1 && heat_bucket(1) >= 1);
    }
}
