//! Finds the most frequent keys of a stream in bounded memory: Space-Saving over counts that fade,
//! so that what was hot an hour ago is not reported now.
//!
//! Counts are never reduced when they fade. Instead, later ones weigh more (forward decay), and all
//! counts are divided by that weight when they are read.

use super::name::Name;
use keyway_base::Time;
use std::time::Duration;

/// Number of keys that are counted at once. A key with a larger part than one in this number is
/// always among them. More would take time, because all are searched for each counted key, and
/// memory.
pub(super) const COUNTERS: usize = 128;

/// Time after which a count is worth half. If it were longer, keys that are no longer hot would be
/// reported. If it were shorter, the estimates of quiet pools would be coarse.
pub(super) const HALF_LIFE: Duration = Duration::from_secs(30);

/// Number of half-lives after which all counts are divided, long before numbers become too large.
/// Counts that are three times as old have no weight anyway.
const HALF_LIVES_MAX: f64 = 64.0;

/// The weight of a current count compared with one at the beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fading {
    zero: Time,
}

impl Fading {
    pub(super) fn new(now: Time) -> Fading {
        Fading { zero: now }
    }

    fn half_lives(self, now: Time) -> f64 {
        now.since(self.zero).as_secs_f64() / HALF_LIFE.as_secs_f64()
    }

    pub(super) fn weight(self, now: Time) -> f64 {
        self.half_lives(now).min(HALF_LIVES_MAX * 3.0).exp2()
    }

    /// Returns the factor by which all counts must be multiplied, when that is due.
    pub(super) fn restart(&mut self, now: Time) -> Option<f64> {
        if self.half_lives(now) < HALF_LIVES_MAX {
            return None;
        }
        let by = 1.0 / self.weight(now);
        self.zero = now;
        Some(by)
    }
}

/// The counts of one stream of keys.
#[derive(Clone, Debug)]
pub(super) struct Sketch {
    hashes: [u64; COUNTERS],
    /// Each count is too high by at most its `errors`, and never too low.
    counts: [f64; COUNTERS],
    errors: [f64; COUNTERS],
    names: [Name; COUNTERS],
    len: usize,
    total: f64,
    /// The sum of the squares of what was added. It gives the number of samples.
    squares: f64,
}

impl Default for Sketch {
    fn default() -> Sketch {
        Sketch {
            hashes: [0; COUNTERS],
            counts: [0.0; COUNTERS],
            errors: [0.0; COUNTERS],
            names: [Name::EMPTY; COUNTERS],
            len: 0,
            total: 0.0,
            squares: 0.0,
        }
    }
}

/// One key of a sketch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counter<'s> {
    pub(super) hash: u64,
    pub(super) name: &'s Name,
    pub(super) count: f64,
    pub(super) error: f64,
}

impl Sketch {
    /// Counts a key once more.
    pub(super) fn add(&mut self, key: &[u8], weight: f64) {
        self.total += weight;
        self.squares += weight * weight;
        let hash = Name::hash(key);
        let like = self.hashes[..self.len].iter().position(|other| *other == hash);
        let is_it = |&index: &usize| self.hashes[index] == hash && self.names[index].is_of(key);
        if let Some(index) = like.and_then(|first| (first..self.len).find(is_it)) {
            self.counts[index] += weight;
            return;
        }
        // The key with the lowest count is replaced, and its count may have belonged to the new
        // key.
        let (index, before) = match self.len {
            COUNTERS => self.least(),
            len => {
                self.len += 1;
                (len, 0.0)
            }
        };
        self.hashes[index] = hash;
        self.names[index] = Name::new(key);
        (self.counts[index], self.errors[index]) = (before + weight, before);
    }

    fn least(&self) -> (usize, f64) {
        let mut least = (0, self.counts[0]);
        for (index, &count) in self.counts.iter().enumerate().skip(1) {
            if count < least.1 {
                least = (index, count);
            }
        }
        least
    }

    /// Returns the largest possible count of a key that is not counted.
    pub(super) fn uncounted_max(&self) -> f64 {
        if self.len == COUNTERS { self.least().1 } else { 0.0 }
    }

    /// Returns the sum of all counts, and the sum of their squares.
    pub(super) fn totals(&self) -> (f64, f64) {
        (self.total, self.squares)
    }

    pub(super) fn scale(&mut self, by: f64) {
        for index in 0..self.len {
            self.counts[index] *= by;
            self.errors[index] *= by;
        }
        self.total *= by;
        self.squares *= by * by;
    }

    pub(super) fn counters(&self) -> impl Iterator<Item = Counter<'_>> {
        (0..self.len).map(|index| Counter {
            hash: self.hashes[index],
            name: &self.names[index],
            count: self.counts[index],
            error: self.errors[index],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_never_too_low_and_too_high_by_its_error_at_most() {
        let mut state = 9u64;
        let mut sketch = Sketch::default();
        let mut truth = std::collections::BTreeMap::<u64, f64>::new();
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // The square of a random number: small keys are much more frequent.
            let chance = (state >> 40) as f64 / (1u64 << 24) as f64;
            let key = (chance.powi(4) * 5000.0) as u64;
            *truth.entry(key).or_default() += 1.0;
            sketch.add(format!("key:{key}").as_bytes(), 1.0);
        }
        assert_eq!(sketch.len, COUNTERS);
        for counter in sketch.counters() {
            let name = String::from_utf8_lossy(counter.name.bytes()).into_owned();
            let key: u64 = name.strip_prefix("key:").unwrap().parse().unwrap();
            let real = truth[&key];
            assert!(counter.count >= real && counter.count - counter.error <= real, "{name}");
        }
        let bound = sketch.totals().0 / COUNTERS as f64;
        assert!(sketch.uncounted_max() <= bound);
        for (key, count) in truth.iter().filter(|(_, count)| **count > bound) {
            let name = format!("key:{key}");
            let is_there = sketch.counters().any(|it| it.name.is_of(name.as_bytes()));
            assert!(is_there, "{name} came {count} times");
        }
    }

    #[test]
    fn weights_double_with_each_half_life_and_begin_anew_before_they_are_too_large() {
        let mut fading = Fading::new(Time(5));
        assert!((fading.weight(Time(5) + HALF_LIFE) - 2.0).abs() < 1e-9);
        assert!((fading.weight(Time(5) + HALF_LIFE * 3) - 8.0).abs() < 1e-9);
        assert_eq!(fading.restart(Time(5) + HALF_LIFE * 3), None);
        let late = Time(5) + HALF_LIFE * 100_000;
        let by = fading.restart(late).unwrap();
        assert!(by > 0.0 && by < 1e-50, "{by}");
        assert!((fading.weight(late) - 1.0).abs() < 1e-9);
    }
}
