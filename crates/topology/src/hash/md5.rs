//! MD5. 32 bits of it place a key, and all 128 bits place four ketama points.

use md5::{Digest, Md5};

use super::word;

/// Returns the digest as four little-endian words.
pub(crate) fn digest_words(bytes: &[u8]) -> [u32; 4] {
    let digest = Md5::digest(bytes);
    [word(&digest), word(&digest[4..]), word(&digest[8..]), word(&digest[12..])]
}

pub(super) fn md5(key: &[u8]) -> u32 {
    word(&Md5::digest(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_rfc_1321_hold() {
        for (key, words) in [
            ("", [0xd98c_1dd4, 0x04b2_008f, 0x9809_80e9, 0x7e42_f8ec]),
            ("a", [0xb975_c10c, 0xa8b6_f1c0, 0xe299_c331, 0x6126_7769]),
            ("abc", [0x9850_0190, 0xb04f_d23c, 0x7d3f_96d6, 0x727f_e128]),
            ("message digest", [0x7d69_6bf9, 0x8d93_b77c, 0x312f_5a52, 0xd061_f1aa]),
        ] {
            assert_eq!(digest_words(key.as_bytes()), words, "{key}");
            assert_eq!(md5(key.as_bytes()), words[0], "{key}");
        }
    }
}
