//! Which keys are requested, and in which order. It is the same for every system.

use keyway_load::Random;

/// Number of keys that are requested again and again.
pub const KEYS: u32 = 1_000_000;
/// Number of requests between the starts of two scans.
const SCAN_EVERY: usize = 600_000;
/// Number of keys of a scan: about what the larger caches hold.
const SCAN_KEYS: usize = 200_000;
/// The random numbers are the same every time.
const SEED: u64 = 20;

/// A mix of requests.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// The name in the table.
    pub title: &'static str,
    /// Exponent of Zipf's law: the nth most popular key is requested 1/n^skew as often as the
    /// first.
    skew: f64,
    /// True if there are scans from time to time: long sequences of keys that are not requested
    /// again, one between any two of the other requests.
    has_scans: bool,
}

/// The mixes of the table.
pub const MIXES: [Mix; 4] = [
    Mix { title: "zipf 0.8", skew: 0.8, has_scans: false },
    Mix { title: "zipf 1.0", skew: 1.0, has_scans: false },
    Mix { title: "zipf 0.8 and scans", skew: 0.8, has_scans: true },
    Mix { title: "zipf 1.0 and scans", skew: 1.0, has_scans: true },
];

impl Mix {
    /// Returns the keys of `count` requests, by number. Keys of a scan are numbered from [`KEYS`]
    /// on and occur once.
    pub fn trace(&self, count: usize) -> Vec<u32> {
        let zipf = Zipf::new(KEYS, self.skew);
        let mut random = Random::new(SEED);
        let mut fresh = KEYS;
        let mut key = |position: usize| {
            let in_scan = position % SCAN_EVERY < 2 * SCAN_KEYS && position >= SCAN_EVERY;
            if self.has_scans && in_scan && position % 2 == 1 {
                fresh += 1;
                return fresh - 1;
            }
            zipf.draw(&mut random)
        };
        (0..count).map(&mut key).collect()
    }
}

/// Ranks with the probabilities of Zipf's law, as cumulative sums.
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new(keys: u32, skew: f64) -> Zipf {
        let mut sum = 0.0;
        let weight = |rank: u32| f64::from(rank).powf(-skew);
        let sums = (1..=keys).map(|rank| {
            sum += weight(rank);
            sum
        });
        Zipf { sums: sums.collect() }
    }

    /// Draws a rank, from 0.
    fn draw(&self, random: &mut Random) -> u32 {
        let all = self.sums[self.sums.len() - 1];
        let point = random.unit() * all;
        self.sums.partition_point(|sum| *sum <= point).min(self.sums.len() - 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_zipfs_law() {
        let zipf = Zipf::new(1000, 1.0);
        let mut random = Random::new(1);
        let mut seen = [0u32; 1000];
        (0..200_000).for_each(|_| seen[zipf.draw(&mut random) as usize] += 1);
        let share = |rank: usize| f64::from(seen[rank]) / 200_000.0;
        // The thousandth harmonic number is 7.485.
        assert!((share(0) - 1.0 / 7.485).abs() < 0.004, "{}", share(0));
        assert!((share(9) - 0.1 / 7.485).abs() < 0.002, "{}", share(9));
    }

    #[test]
    fn scans_read_keys_that_nobody_else_wants_once() {
        let trace = MIXES[3].trace(3 * SCAN_EVERY);
        let mut scanned: Vec<u32> = trace.iter().copied().filter(|key| *key >= KEYS).collect();
        assert_eq!(scanned.len(), 2 * SCAN_KEYS);
        assert!(scanned.is_sorted());
        scanned.dedup();
        assert_eq!(scanned.len(), 2 * SCAN_KEYS);
        assert!(MIXES[1].trace(100_000).iter().all(|key| *key < KEYS));
    }

    #[test]
    fn every_system_gets_the_same_requests() {
        assert_eq!(MIXES[2].trace(10_000), MIXES[2].trace(10_000));
    }
}
