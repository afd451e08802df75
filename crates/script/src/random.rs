//! Numbers for `math.random`: the generator of POSIX's `lrand48`, from the same
//! seed for every script, so that a script gives the same each time, and the
//! same as on Redis.

use std::cell::Cell;

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const MASK: u64 = (1 << 48) - 1;
/// What a generator starts from that was given no seed.
const START: u64 = 0x1234_ABCD_330E;
/// One more than the largest number.
pub(crate) const MAX: i32 = i32::MAX;

#[derive(Debug)]
pub(crate) struct Random(Cell<u64>);

impl Random {
    pub(crate) fn new() -> Self {
        Self(Cell::new(START))
    }

    /// As `srand48` does.
    pub(crate) fn seed(&self, seed: i32) {
        self.0.set(u64::from(seed as u32) << 16 | 0x330E);
    }

    /// The next number of 31 bits.
    pub(crate) fn next(&self) -> i32 {
        let next = self.0.get().wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & MASK;
        self.0.set(next);
        (next >> 17) as i32
    }

    /// A number from 0 to below 1.
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
    }
}
