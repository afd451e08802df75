//! The numbers that rendezvous and maglev draw. This never changes: keys would move.

use crate::hash::md5_digest_words;

/// 2^64 divided by the golden ratio, made odd.
pub(super) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output function of SplitMix64 (Steele, Lea and Flood 2014, with Stafford's thirteenth set of
/// constants). Every bit of the input affects every bit of the result, and no two inputs have the
/// same result.
#[inline]
pub(super) fn mix(mut value: u64) -> u64 {
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// Returns the two halves of the MD5 of a ring name, each little-endian.
pub(super) fn seeds(ring_name: &str) -> (u64, u64) {
    let [a, b, c, d] = md5_digest_words(ring_name.as_bytes()).map(u64::from);
    (b << 32 | a, d << 32 | c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_sequence_of_splitmix64_holds() {
        // The outputs for the seed 1234567, each one golden step after the other.
        let mut state = 1_234_567u64;
        for expected in [6_457_827_717_110_365_317, 3_203_168_211_198_807_973u64] {
            state = state.wrapping_add(GOLDEN);
            assert_eq!(mix(state), expected);
        }
    }

    #[test]
    fn seeds_are_the_halves_of_the_digest() {
        // MD5("a") is 0cc175b9c0f1b6a831c399e269772661.
        assert_eq!(seeds("a"), (0xa8b6_f1c0_b975_c10c, 0x6126_7769_e299_c331));
    }
}
