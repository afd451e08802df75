//! Numbers for `math.random`: the generator of POSIX's `lrand48`. As in Redis 7, its sequence, and
//! a seed that a script has set, continue from script to script.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const MASK: u64 = (1 << 48) - 1;
/// The start of a process's first generator, as in Redis.
const START: u64 = 0x1234_ABCD_330E;
/// Distance between the starts of two generators. It is odd, so that all starts differ.
const STRIDE: u64 = 0x9E37_79B9_7F4B;
/// Number of generators made so far. Each worker has one, with a start of its own.
static MADE: AtomicU64 = AtomicU64::new(0);
/// One more than the largest number.
pub(crate) const MAX: i32 = i32::MAX;

#[derive(Debug)]
pub(crate) struct Random(Cell<u64>);

impl Random {
    pub(crate) fn new() -> Self {
        // ORDER: a counter; no other memory depends on it.
        let nth = MADE.fetch_add(1, Ordering::Relaxed);
        Self(Cell::new(START.wrapping_add(nth.wrapping_mul(STRIDE)) & MASK))
    }

    /// Sets the seed like `srand48`.
    pub(crate) fn seed(&self, seed: i32) {
        self.0.set(u64::from(seed as u32) << 16 | 0x330E);
    }

    /// Returns the next number, of 31 bits.
    pub(crate) fn next(&self) -> i32 {
        let next = self.0.get().wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & MASK;
        self.0.set(next);
        (next >> 17) as i32
    }

    /// Returns a number from 0 to below 1.
    pub(crate) fn fraction(&self) -> f64 {
        f64::from(self.next() % MAX) / f64::from(MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_redis() {
        let random = Random::new();
        random.seed(0);
        assert_eq!(format!("{:.14}", random.fraction()), "0.17082803611217");
        random.seed(7);
        assert_eq!(format!("{:.14}", random.fraction()), "0.26644419658298");
        let first = Random(Cell::new(START));
        assert_eq!(format!("{:.14}", first.fraction()), "0.39646477363839");
    }

    #[test]
    fn no_two_generators_agree() {
        let numbers: std::collections::BTreeSet<_> =
            (0..100).map(|_| Random::new().next()).collect();
        assert_eq!(numbers.len(), 100);
    }
}
