//! Rates per second, computed from counts that are read only on request.

use parking_lot::Mutex;

/// Shortest time for a rate, in microseconds. Over less time, a single batch of requests would look
/// like a flood.
const WINDOW_MICROS: u64 = 1_000_000;

/// Requests, bytes received and bytes sent.
pub(super) type Counts = [u64; 3];

#[derive(Clone, Copy, Debug)]
struct Sample {
    unix_micros: u64,
    counts: Counts,
}

/// The last two samples, at least a window apart.
#[derive(Debug, Default)]
pub(super) struct Rates {
    samples: Mutex<Option<(Sample, Sample)>>,
}

impl Rates {
    /// Takes a sample and returns each count's rate since the sample before the last window. If it
    /// is called every second, that is the last second. If it is called rarely, it is the time
    /// since the previous call. At first it is the time since `start`.
    pub(super) fn per_second(&self, unix_micros: u64, start: u64, counts: Counts) -> [f64; 3] {
        let now = Sample { unix_micros, counts };
        let mut samples = self.samples.lock();
        let (mut base, mut last) = samples.unwrap_or_else(|| {
            let start = Sample { unix_micros: start, counts: [0; 3] };
            (start, start)
        });
        if now.unix_micros < last.unix_micros {
            // The clock was set back: start anew.
            (base, last) = (now, now);
        } else if now.unix_micros - last.unix_micros >= WINDOW_MICROS {
            (base, last) = (last, now);
        }
        *samples = Some((base, last));
        let micros = now.unix_micros.saturating_sub(base.unix_micros).max(WINDOW_MICROS);
        std::array::from_fn(|index| {
            let grown = now.counts[index].saturating_sub(base.counts[index]);
            grown as f64 * 1e6 / micros as f64
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(rates: &Rates, micros: u64, count: u64) -> f64 {
        rates.per_second(micros, 0, [count, 0, 0])[0]
    }

    #[test]
    fn a_rate_is_that_of_the_last_window() {
        let rates = Rates::default();
        assert_eq!(requests(&rates, 10_000_000, 1_000), 100.0, "since the start");
        assert_eq!(requests(&rates, 11_000_000, 1_500), 500.0);
        assert_eq!(requests(&rates, 13_000_000, 1_500), 0.0);
        assert_eq!(requests(&rates, 13_000_001, 1_501), 1.0 * 1e6 / 2_000_001.0);
    }

    #[test]
    fn clocks_set_back_and_young_processes_give_sane_rates() {
        let rates = Rates::default();
        assert_eq!(requests(&rates, 10, 5), 5.0);
        assert_eq!(requests(&rates, 5_000_000, 5), 1.0);
        assert_eq!(requests(&rates, 1_000_000, 6), 0.0);
        assert_eq!(requests(&rates, 2_000_000, 10), 4.0);
    }
}
