//! Numbers by chance, from a seed.

/// Steele, Lea and Flood's SplitMix64: one addition and three mixing steps a number, and any seed
/// is a good one.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A stream of its own for each pair of seed and number.
    pub fn stream(seed: u64, number: u64) -> Random {
        let mut first = Random(seed);
        let mut second = Random(first.next() ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        Random(second.next())
    }

    /// Any number.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "it has no end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from 0 up to and without 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
