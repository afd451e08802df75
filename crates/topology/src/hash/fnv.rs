//! Fowler, Noll and Vo's hashes. twemproxy uses 32 bits of the 64-bit variants. Their prime is
//! 2^40 + 0x1b3, so the low half of every product depends only on the low half of its factors, and
//! all four run in 32 bits. The published functions take unsigned bytes; here bytes of 0x80 and above
//! are sign-extended.

use super::sign_extended;

const OFFSET_32: u32 = 0x811c_9dc5;
const PRIME_32: u32 = 0x0100_0193;
const OFFSET_64_LOW: u32 = 0x8422_2325;
const PRIME_64_LOW: u32 = 0x1b3;

#[inline(always)]
fn fnv1(key: &[u8], offset: u32, prime: u32) -> u32 {
    key.iter().fold(offset, |hash, &byte| hash.wrapping_mul(prime) ^ sign_extended(byte))
}

#[inline(always)]
fn fnv1a(key: &[u8], offset: u32, prime: u32) -> u32 {
    key.iter().fold(offset, |hash, &byte| (hash ^ sign_extended(byte)).wrapping_mul(prime))
}

pub(super) fn fnv1_32(key: &[u8]) -> u32 {
    fnv1(key, OFFSET_32, PRIME_32)
}

pub(super) fn fnv1a_32(key: &[u8]) -> u32 {
    fnv1a(key, OFFSET_32, PRIME_32)
}

pub(super) fn fnv1_64(key: &[u8]) -> u32 {
    fnv1(key, OFFSET_64_LOW, PRIME_64_LOW)
}

pub(super) fn fnv1a_64(key: &[u8]) -> u32 {
    fnv1a(key, OFFSET_64_LOW, PRIME_64_LOW)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::samples;

    const OFFSET_64: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME_64: u64 = 0x100_0000_01b3;

    /// Computes the published function, except that `widen` widens a byte.
    fn reference_fnv1_64(key: &[u8], widen: fn(u8) -> u64) -> u64 {
        key.iter().fold(OFFSET_64, |hash, &byte| hash.wrapping_mul(PRIME_64) ^ widen(byte))
    }

    fn reference_fnv1a_64(key: &[u8], widen: fn(u8) -> u64) -> u64 {
        key.iter().fold(OFFSET_64, |hash, &byte| (hash ^ widen(byte)).wrapping_mul(PRIME_64))
    }

    #[test]
    fn published_vectors_hold_for_ascii() {
        for (key, one_32, one_a_32, one_64, one_a_64) in [
            ("", 0x811c_9dc5, 0x811c_9dc5, OFFSET_64, OFFSET_64),
            ("a", 0x050c_5d7e, 0xe40c_292c, 0xaf63_bd4c_8601_b7be, 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x31f0_b262, 0xbf9c_f968, 0x340d_8765_a4dd_a9c2, 0x8594_4171_f739_67e8),
        ] {
            let bytes = key.as_bytes();
            assert_eq!(fnv1_32(bytes), one_32, "{key}");
            assert_eq!(fnv1a_32(bytes), one_a_32, "{key}");
            assert_eq!(reference_fnv1_64(bytes, u64::from), one_64, "{key}");
            assert_eq!(reference_fnv1a_64(bytes, u64::from), one_a_64, "{key}");
            assert_eq!(fnv1_64(bytes), one_64 as u32, "{key}");
            assert_eq!(fnv1a_64(bytes), one_a_64 as u32, "{key}");
        }
    }

    #[test]
    fn low_half_in_32_bits_is_the_low_half_of_64() {
        let widen = |byte: u8| byte as i8 as u64;
        for key in samples::keys() {
            assert_eq!(fnv1_64(&key), reference_fnv1_64(&key, widen) as u32);
            assert_eq!(fnv1a_64(&key), reference_fnv1a_64(&key, widen) as u32);
        }
    }

    #[test]
    fn high_bytes_enter_sign_extended() {
        assert_eq!(fnv1_32(b"\xff"), !OFFSET_32.wrapping_mul(PRIME_32));
        assert_eq!(fnv1a_32(b"\xff"), (!OFFSET_32).wrapping_mul(PRIME_32));
        assert_ne!(fnv1_64(b"\x80"), reference_fnv1_64(b"\x80", u64::from) as u32);
        assert_ne!(fnv1a_64(b"\x80"), reference_fnv1a_64(b"\x80", u64::from) as u32);
    }
}
