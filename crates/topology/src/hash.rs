//! The hash functions of twemproxy, and one other. They have twemproxy's names and its results on
//! x86-64, where `char` is signed: several of them sign-extend bytes of 0x80 and above, which the
//! published functions do not.
//!
//! None of them resists keys chosen by an adversary. They are here so that keys stay where they
//! are.

mod crc;
mod fnv;
mod hsieh;
mod jenkins;
mod md5;
mod murmur;
mod one_at_a_time;

pub(crate) use md5::digest_words as md5_digest_words;

/// A hash function from a key to 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hash {
    /// Bob Jenkins' one-at-a-time, bytes sign-extended.
    OneAtATime,
    /// The first four bytes of MD5, little-endian.
    Md5,
    /// CRC-16/XMODEM. Bits shifted out of the register are kept above its 16 bits.
    Crc16,
    /// CRC-16/XMODEM, only its 16 bits, as in Redis Cluster and predixy.
    Crc16Xmodem,
    /// Bits 16 to 30 of CRC-32, as in libmemcached: 15 bits in all.
    Crc32,
    /// CRC-32, whole.
    Crc32a,
    /// The low half of 64-bit FNV-1, bytes sign-extended.
    Fnv1_64,
    /// The low half of 64-bit FNV-1a, bytes sign-extended.
    Fnv1a64,
    /// 32-bit FNV-1, bytes sign-extended.
    Fnv1_32,
    /// 32-bit FNV-1a, bytes sign-extended.
    Fnv1a32,
    /// Paul Hsieh's SuperFastHash, with one of its two tails unsigned.
    Hsieh,
    /// MurmurHash2, seeded from the length.
    Murmur,
    /// Bob Jenkins' lookup3 `hashlittle` with 13 as its initial value.
    Jenkins,
}

impl Hash {
    /// Every function.
    pub const ALL: [Hash; 13] = {
        let mut all = [Hash::Crc16Xmodem; 13];
        let mut index = 0;
        while index < Hash::TWEMPROXY.len() {
            all[index] = Hash::TWEMPROXY[index];
            index += 1;
        }
        all
    };

    /// The functions that twemproxy has, in its order.
    pub const TWEMPROXY: [Hash; 12] = [
        Hash::OneAtATime,
        Hash::Md5,
        Hash::Crc16,
        Hash::Crc32,
        Hash::Crc32a,
        Hash::Fnv1_64,
        Hash::Fnv1a64,
        Hash::Fnv1_32,
        Hash::Fnv1a32,
        Hash::Hsieh,
        Hash::Murmur,
        Hash::Jenkins,
    ];

    /// Returns the name in configuration files. For [`Hash::TWEMPROXY`] it is also twemproxy's
    /// name.
    pub const fn name(self) -> &'static str {
        match self {
            Hash::OneAtATime => "one_at_a_time",
            Hash::Md5 => "md5",
            Hash::Crc16 => "crc16",
            Hash::Crc16Xmodem => "crc16_xmodem",
            Hash::Crc32 => "crc32",
            Hash::Crc32a => "crc32a",
            Hash::Fnv1_64 => "fnv1_64",
            Hash::Fnv1a64 => "fnv1a_64",
            Hash::Fnv1_32 => "fnv1_32",
            Hash::Fnv1a32 => "fnv1a_32",
            Hash::Hsieh => "hsieh",
            Hash::Murmur => "murmur",
            Hash::Jenkins => "jenkins",
        }
    }

    /// Returns the function called `name`.
    pub fn from_name(name: &str) -> Option<Hash> {
        Hash::ALL.into_iter().find(|hash| hash.name() == name)
    }

    /// Returns the hash of `key`.
    #[inline]
    pub fn hash(self, key: &[u8]) -> u32 {
        match self {
            Hash::OneAtATime => one_at_a_time::one_at_a_time(key),
            Hash::Md5 => md5::md5(key),
            Hash::Crc16 => crc::crc16(key),
            Hash::Crc16Xmodem => u32::from(crc::crc16_narrow(key)),
            Hash::Crc32 => crc::crc32(key),
            Hash::Crc32a => crc::crc32a(key),
            Hash::Fnv1_64 => fnv::fnv1_64(key),
            Hash::Fnv1a64 => fnv::fnv1a_64(key),
            Hash::Fnv1_32 => fnv::fnv1_32(key),
            Hash::Fnv1a32 => fnv::fnv1a_32(key),
            Hash::Hsieh => hsieh::hsieh(key),
            Hash::Murmur => murmur::murmur(key),
            Hash::Jenkins => jenkins::jenkins(key),
        }
    }
}

/// Returns a byte as C widens it from a signed `char`.
#[inline(always)]
fn sign_extended(byte: u8) -> u32 {
    byte as i8 as u32
}

/// Returns the little-endian number in the first four bytes of `bytes`.
#[inline(always)]
fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[cfg(test)]
mod samples {
    /// Returns keys of every length up to 300. For each length there are keys with low bytes, with
    /// high bytes and with both.
    pub fn keys() -> impl Iterator<Item = Vec<u8>> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        (0..900usize).map(move |sample| {
            (0..sample / 3)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963);
                    let byte = (state >> 56) as u8;
                    match sample % 3 {
                        0 => byte & 0x7f,
                        1 => byte | 0x80,
                        _ => byte,
                    }
                })
                .collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrow_crc_is_the_wide_one_cut() {
        assert_eq!(Hash::Crc16Xmodem.hash(b"123456789"), 0x31c3);
        for key in samples::keys() {
            assert_eq!(Hash::Crc16Xmodem.hash(&key), Hash::Crc16.hash(&key) & 0xffff);
        }
    }

    #[test]
    fn names_lead_back_to_their_functions() {
        for hash in Hash::ALL {
            assert_eq!(Hash::from_name(hash.name()), Some(hash));
        }
        for name in ["", "FNV1A_64", "sha1", "crc", "fnv1a64"] {
            assert_eq!(Hash::from_name(name), None);
        }
    }
}
