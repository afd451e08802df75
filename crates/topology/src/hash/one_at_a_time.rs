//! Bob Jenkins' one-at-a-time. The published function takes unsigned bytes; here bytes of 0x80 and
//! above are sign-extended.

use super::sign_extended;

pub(super) fn one_at_a_time(key: &[u8]) -> u32 {
    mixed(key.iter().map(|&byte| sign_extended(byte)))
}

#[inline(always)]
fn mixed(values: impl Iterator<Item = u32>) -> u32 {
    let mut hash = 0u32;
    for value in values {
        hash = hash.wrapping_add(value);
        hash = hash.wrapping_add(hash << 10);
        hash ^= hash >> 6;
    }
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 11;
    hash.wrapping_add(hash << 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the published function.
    fn unsigned(key: &[u8]) -> u32 {
        mixed(key.iter().map(|&byte| u32::from(byte)))
    }

    #[test]
    fn published_vectors_hold_for_ascii() {
        for (key, hash) in [
            ("", 0),
            ("a", 0xca2e_9442),
            ("The quick brown fox jumps over the lazy dog", 0x519e_91f5),
        ] {
            assert_eq!(one_at_a_time(key.as_bytes()), hash, "{key}");
            assert_eq!(unsigned(key.as_bytes()), hash, "{key}");
        }
    }

    #[test]
    fn high_bytes_enter_sign_extended() {
        assert_ne!(one_at_a_time(b"\x80"), unsigned(b"\x80"));
        assert_eq!(one_at_a_time(b"\xff"), mixed([u32::MAX].into_iter()));
    }
}
