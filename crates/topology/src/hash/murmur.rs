//! Austin Appleby's MurmurHash2. twemproxy derives the seed from the length.

use super::word;

const MULTIPLIER: u32 = 0x5bd1_e995;

pub(super) fn murmur(key: &[u8]) -> u32 {
    murmur2(key, 0xdead_beef_u32.wrapping_mul(key.len() as u32))
}

#[inline(always)]
fn murmur2(key: &[u8], seed: u32) -> u32 {
    let mut hash = seed ^ key.len() as u32;
    let mut rest = key;
    while rest.len() >= 4 {
        let mut mixed = word(rest).wrapping_mul(MULTIPLIER);
        mixed ^= mixed >> 24;
        hash = hash.wrapping_mul(MULTIPLIER) ^ mixed.wrapping_mul(MULTIPLIER);
        rest = &rest[4..];
    }
    let tail = match *rest {
        [a, b, c] => u32::from_le_bytes([a, b, c, 0]),
        [a, b] => u32::from_le_bytes([a, b, 0, 0]),
        [a] => u32::from(a),
        _ => 0,
    };
    if !rest.is_empty() {
        hash = (hash ^ tail).wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check of SMHasher: the hashes of `[]`, `[0]`, `[0, 1]`, ... under
    /// falling seeds, hashed once more.
    #[test]
    fn published_verification_value_holds() {
        let bytes: Vec<u8> = (0..=255).collect();
        let hashes: Vec<u8> = (0..256usize)
            .flat_map(|len| murmur2(&bytes[..len], 256 - len as u32).to_le_bytes())
            .collect();
        assert_eq!(murmur2(&hashes, 0), 0x2786_4c1e);
    }

    #[test]
    fn seed_is_a_multiple_of_the_length() {
        for key in [&b""[..], b"a", b"key", b"twelve bytes"] {
            let seed = 0xdead_beef_u64 * key.len() as u64;
            assert_eq!(murmur(key), murmur2(key, seed as u32));
        }
    }
}
