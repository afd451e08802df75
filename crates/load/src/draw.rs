//! The draw of the next key.

use crate::random::Random;
use crate::workload::Pattern;

/// Number of terms of a zeta that are added one by one. An integral stands for the others.
const ZETA_TERMS: u64 = 10_000;

/// Number of ranks that YCSB draws from before it scatters them over the keys.
const YCSB_RANKS: u64 = 10_000_000_000;

/// Number of draws of a normal distribution that may miss the keys before a uniform draw is used.
const MISSES_MAX: u32 = 64;

/// A draw of key numbers from 0 up to, and without, the number of keys.
#[derive(Clone, Debug)]
pub struct Draw {
    count: u64,
    how: How,
}

#[derive(Clone, Debug)]
enum How {
    Even,
    /// Walks from `at` through `first..end`, again and again.
    Walk {
        first: u64,
        end: u64,
        at: u64,
    },
    Normal {
        median: f64,
        deviation: f64,
    },
    Zipf {
        zipf: Zipf,
        scatter: Scatter,
    },
    /// The rank is the distance from the newest key.
    Latest(Zipf),
}

/// The map from ranks to keys. Popular keys are not neighbours.
#[derive(Clone, Copy, Debug)]
enum Scatter {
    /// One to one, by a step that has no divisor in common with the number of keys.
    Step(u64),
    /// By a hash modulo the number of keys, as in YCSB.
    Ycsb,
}

impl Draw {
    /// Creates the draw of a pattern over `count` keys, for client `client` of `clients`.
    pub fn new(pattern: Pattern, count: u64, client: u64, clients: u64) -> Draw {
        let how = match pattern {
            Pattern::Random => How::Even,
            Pattern::Sequential => How::Walk { first: 0, end: count, at: 0 },
            Pattern::Parallel => {
                let part =
                    |of: u64| (u128::from(count) * u128::from(of) / u128::from(clients)) as u64;
                let (first, end) = (part(client), part(client + 1));
                // More clients than keys: some have the key of another.
                let first = first.min(count - 1);
                How::Walk { first, end: end.max(first + 1), at: first }
            }
            Pattern::Gaussian { median, deviation } => How::Normal {
                median: median.unwrap_or(count as f64 / 2.0),
                deviation: deviation.unwrap_or(count as f64 / 6.0),
            },
            Pattern::Zipf { theta } => How::Zipf {
                zipf: Zipf::new(count, theta),
                scatter: Scatter::Step(coprime_step(count)),
            },
            Pattern::YcsbZipf => {
                How::Zipf { zipf: Zipf::new(YCSB_RANKS, 0.99), scatter: Scatter::Ycsb }
            }
            Pattern::Latest => How::Latest(Zipf::new(count, 0.99)),
        };
        Draw { count, how }
    }

    /// Returns the next key. `newest` is the key that was added last.
    #[inline]
    pub fn next(&mut self, random: &mut Random, newest: u64) -> u64 {
        match &mut self.how {
            How::Even => random.below(self.count),
            How::Walk { first, end, at } => {
                let key = *at;
                *at = if key + 1 < *end { key + 1 } else { *first };
                key
            }
            How::Normal { median, deviation } => normal(*median, *deviation, self.count, random),
            How::Zipf { zipf, scatter } => {
                let rank = zipf.rank(random);
                match scatter {
                    Scatter::Step(step) => {
                        (u128::from(rank) * u128::from(*step) % u128::from(self.count)) as u64
                    }
                    Scatter::Ycsb => fnv64(rank) % self.count,
                }
            }
            How::Latest(zipf) => newest.saturating_sub(zipf.rank(random)),
        }
    }

    /// Returns the next key of the same request after `key`. A walk returns the key behind it, and
    /// any other draw returns some other key. It uses no state that changes.
    #[inline]
    pub fn beside(&self, key: u64, random: &mut Random) -> u64 {
        match &self.how {
            How::Walk { first, end, .. } => {
                if key + 1 < *end {
                    key + 1
                } else {
                    *first
                }
            }
            _ => random.below(self.count),
        }
    }
}

fn normal(median: f64, deviation: f64, count: u64, random: &mut Random) -> u64 {
    for _ in 0..MISSES_MAX {
        // Box and Muller's; 1 - unit is never 0.
        let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
        let value = median + deviation * radius * (std::f64::consts::TAU * random.unit()).cos();
        if value >= 0.0 && value < count as f64 {
            return value as u64;
        }
    }
    random.below(count)
}

/// Returns a step near the golden section of `count` that has no divisor in common with it.
fn coprime_step(count: u64) -> u64 {
    let divisor = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let near = (count as f64 * 0.618_033_988_75) as u64;
    (near.max(1)..).find(|&step| divisor(step, count) == 1).unwrap_or(1)
}

/// Returns YCSB's hash of a number: FNV-1a of its eight bytes, lowest first, without the sign.
pub fn fnv64(number: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in number.to_le_bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    (hash as i64).unsigned_abs()
}

/// A Zipf distribution over ranks from 0 on. The frequency of rank r is in proportion to 1 / (r +
/// 1)^theta. The algorithm is from Gray and others, "Quickly generating billion-record synthetic
/// databases".
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    count: u64,
    theta: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    /// Creates a distribution over `count` ranks. `theta` is above 0 and below 1.
    pub fn new(count: u64, theta: f64) -> Zipf {
        let zeta = zeta(count, theta);
        let power = (2.0 / count as f64).powf(1.0 - theta);
        let eta = (1.0 - power) / (1.0 - zeta_two(theta) / zeta);
        Zipf { count, theta, zeta, alpha: 1.0 / (1.0 - theta), eta }
    }

    /// Returns the next rank.
    #[inline]
    pub fn rank(&self, random: &mut Random) -> u64 {
        let unit = random.unit();
        let at = unit * self.zeta;
        if at < 1.0 || self.count < 2 {
            return 0;
        }
        if at < zeta_two(self.theta) || self.count == 2 {
            return 1;
        }
        let rank = self.count as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.count - 1)
    }
}

fn zeta_two(theta: f64) -> f64 {
    1.0 + 0.5f64.powf(theta)
}

/// Returns the sum of 1 / r^theta over r from 1 to `count`.
fn zeta(count: u64, theta: f64) -> f64 {
    let summed = count.min(ZETA_TERMS);
    let sum: f64 = (1..=summed).map(|rank| (rank as f64).powf(-theta)).sum();
    if summed == count {
        return sum;
    }
    // Euler and Maclaurin's, to the second term.
    let (from, to) = (summed as f64, count as f64);
    let integral = (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta);
    sum + integral + (to.powf(-theta) - from.powf(-theta)) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pattern: Pattern, keys: u64, draws: u32) -> Vec<u32> {
        let mut draw = Draw::new(pattern, keys, 0, 1);
        let mut random = Random::new(5);
        let mut counts = vec![0; keys as usize];
        for _ in 0..draws {
            counts[draw.next(&mut random, keys - 1) as usize] += 1;
        }
        counts
    }

    #[test]
    fn even_draws_reach_all_keys_alike() {
        let counts = counts(Pattern::Random, 100, 100_000);
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn zipf_draws_fall_off_as_the_law_says() {
        let mut counts = counts(Pattern::Zipf { theta: 0.9 }, 1000, 1_000_000);
        counts.sort_unstable_by(|left, right| right.cmp(left));
        let zeta = zeta(1000, 0.9);
        for rank in [0usize, 1] {
            let expected = 1e6 / zeta / ((rank + 1) as f64).powf(0.9);
            let off = f64::from(counts[rank]) / expected;
            assert!((0.98..1.02).contains(&off), "rank {rank}: {off}");
        }
        // Beyond the first two the method is an approximation: sums are right.
        let share = counts[..100].iter().sum::<u32>() as f64 / 1e6;
        let expected = super::zeta(100, 0.9) / zeta;
        assert!((share - expected).abs() < 0.02, "{share} {expected}");
    }

    #[test]
    fn a_zeta_is_the_same_added_up_and_integrated() {
        let exact: f64 = (1..=1_000_000u64).map(|rank| (rank as f64).powf(-0.99)).sum();
        assert!((zeta(1_000_000, 0.99) - exact).abs() < 1e-6);
        // The constant that YCSB has for ten thousand million ranks.
        assert!((zeta(YCSB_RANKS, 0.99) - 26.469_028_201_783_02).abs() < 1e-4);
    }

    #[test]
    fn normal_draws_lie_where_they_should() {
        let counts = counts(Pattern::Gaussian { median: None, deviation: None }, 600, 100_000);
        let within = |from: usize, to: usize| counts[from..to].iter().sum::<u32>() as f64 / 1e5;
        // One and two deviations, of what three let through.
        assert!((within(200, 400) - 0.6845).abs() < 0.01, "{}", within(200, 400));
        assert!((within(100, 500) - 0.957).abs() < 0.01, "{}", within(100, 500));
    }

    #[test]
    fn walks_go_through_their_part_and_begin_again() {
        let walk = |pattern, client| {
            let (mut draw, mut random) = (Draw::new(pattern, 10, client, 3), Random::new(1));
            (0..7).map(|_| draw.next(&mut random, 9)).collect::<Vec<_>>()
        };
        assert_eq!(walk(Pattern::Sequential, 2), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(walk(Pattern::Parallel, 0), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(walk(Pattern::Parallel, 2), [6, 7, 8, 9, 6, 7, 8]);
        let mut few = Draw::new(Pattern::Parallel, 2, 4, 5);
        assert_eq!(few.next(&mut Random::new(1), 1), 1);
    }

    #[test]
    fn ycsb_keys_are_hashed_as_ycsb_hashes_them() {
        assert_eq!(fnv64(0), 6_284_781_860_667_377_211);
        assert_eq!(fnv64(1), 8_517_097_267_634_966_620);
        let latest = counts(Pattern::Latest, 1000, 10_000);
        assert!(latest[999] > latest[500] * 10 && latest[999] > latest[998]);
    }
}
