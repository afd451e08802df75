//! Paul Hsieh's SuperFastHash. In the published function both odd tail bytes are signed. Here the
//! lone byte of a tail of one is unsigned, and the third byte of a tail of three is signed.

use super::sign_extended;

pub(super) fn hsieh(key: &[u8]) -> u32 {
    super_fast_hash(key, u32::from)
}

#[inline(always)]
fn super_fast_hash(key: &[u8], widen_lone: fn(u8) -> u32) -> u32 {
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
            hash = hash.wrapping_add(widen_lone(a));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The check of SMHasher: the hashes of `[]`, `[0]`, `[0, 1]`, ... hashed once more. The value
    /// is that of the published function, with a signed lone byte.
    #[test]
    fn published_verification_value_holds() {
        let bytes: Vec<u8> = (0..=255).collect();
        let hashes: Vec<u8> = (0..256)
            .flat_map(|len| super_fast_hash(&bytes[..len], sign_extended).to_le_bytes())
            .collect();
        assert_eq!(super_fast_hash(&hashes, sign_extended), 0x980a_cd1d);
    }

    #[test]
    fn lone_byte_is_unsigned_and_third_is_signed() {
        for key in [&b"a"[..], b"12345", b"\x80\x81\x82\xff", b"1234\xff5"] {
            assert_eq!(hsieh(key), super_fast_hash(key, sign_extended));
        }
        for key in [&b"\x80"[..], b"1234\xff"] {
            assert_ne!(hsieh(key), super_fast_hash(key, sign_extended));
        }
        // 0xff as a third byte spreads its sign over the seven highest bits.
        assert_eq!(sign_extended(0xff) << 18, 0xfffc_0000);
    }
}
