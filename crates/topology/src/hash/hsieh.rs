//! Paul Hsieh's SuperFastHash. Published with both odd tail bytes signed; here
//! the lone byte of a tail of one is unsigned, the third of a tail of three is
//! signed.

use super::sign_extended;

pub(super) fn hsieh(key: &[u8]) -> u32 {
    if key.is_empty() {
        return 0;
    }
    let pair = |low: u8, high: u8| u32::from(u16::from_le_bytes([low, high]));
    let mut hash = 0u32;
    let mut rest = key;
    while let Some((&[a, b, c, d], after)) = rest.split_first_chunk() {
        hash = hash.wrapping_add(pair(a, b));
        hash = hash << 16 ^ pair(c, d) << 11 ^ hash;
        hash = hash.wrapping_add(hash >> 11);
        rest = after;
    }
    match *rest {
        [a, b, c] => {
            hash = hash.wrapping_add(pair(a, b));
            hash ^= hash << 16;
            hash ^= sign_extended(c) << 18;
            hash = hash.wrapping_add(hash >> 11);
        }
        [a, b] => {
            hash = hash.wrapping_add(pair(a, b));
            hash ^= hash << 11;
            hash = hash.wrapping_add(hash >> 17);
        }
        [a] => {
            hash = hash.wrapping_add(u32::from(a));
            hash ^= hash << 10;
            hash = hash.wrapping_add(hash >> 1);
        }
        _ => {}
    }
    hash ^= hash << 3;
    hash = hash.wrapping_add(hash >> 5);
    hash ^= hash << 4;
    hash = hash.wrapping_add(hash >> 17);
    hash ^= hash << 25;
    hash.wrapping_add(hash >> 6)
}
