//! Stores an item of a memcached client on a server of Redis, where a value has no flags. The value
//! is unchanged if its flags are 0, else it is in an *envelope*.
//!
//! ```text
//!   C1 'm' 'c' | 01      | flags, 4 bytes, the highest first | value
//!   magic      | version |                                   |
//! ```
//! C1 does not occur in UTF-8 and begins no message of MessagePack, so values of Redis clients are
//! hardly ever mistaken for an envelope. A value with flags 0 that begins with the magic is put
//! into an envelope too. Bytes that begin with the magic and are no complete envelope of a known
//! version are a plain value.
//!
//! The scripts of `item.lua` do the same on the server.

use sha1::{Digest, Sha1};

const MAGIC: &[u8] = b"\xc1mc";

const VERSION: u8 = 1;

/// Number of bytes before the value.
const LEN: usize = 8;

/// The bytes before a value. Empty if it is stored unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    bytes: [u8; LEN],
    len: u8,
}

impl Prefix {
    /// Returns the prefix of a value with these flags.
    pub(super) fn of(flags: u32, value: &[u8]) -> Prefix {
        let mut bytes = [0; LEN];
        if flags == 0 && !value.starts_with(MAGIC) {
            return Prefix { bytes, len: 0 };
        }
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[MAGIC.len()] = VERSION;
        bytes[LEN - 4..].copy_from_slice(&flags.to_be_bytes());
        Prefix { bytes, len: LEN as u8 }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Returns the flags and the value of what is stored on a server.
pub(super) fn open(stored: &[u8]) -> (u32, &[u8]) {
    let rest = stored.strip_prefix(MAGIC).and_then(|rest| rest.strip_prefix(&[VERSION]));
    match rest.and_then(|rest| rest.split_first_chunk()) {
        Some((flags, value)) => (u32::from_be_bytes(*flags), value),
        None => (0, stored),
    }
}

/// Returns the number for compare-and-swap of what is stored on a server: 60 bits of its hash,
/// because some clients read a signed number. `parts` are concatenated.
pub(super) fn number(parts: [&[u8]; 2]) -> u64 {
    let mut hash = Sha1::new();
    parts.iter().for_each(|part| hash.update(part));
    let hash: [u8; 20] = hash.finalize().into();
    u64::from_be_bytes(*hash.first_chunk().expect("a hash has 20 bytes")) >> 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stored(flags: u32, value: &[u8]) -> Vec<u8> {
        [Prefix::of(flags, value).as_bytes(), value].concat()
    }

    /// Bytes that are often almost an envelope.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let magic = (0..=LEN, prop::collection::vec(any::<u8>(), 0..12))
            .prop_map(|(len, rest)| [&[0xc1, b'm', b'c', 1, 0, 0, 0, 7][..len], &rest].concat());
        prop_oneof![prop::collection::vec(any::<u8>(), 0..40), magic]
    }

    proptest! {
        #[test]
        fn what_is_stored_is_read_back(flags: u32, value in bytes()) {
            for flags in [flags, flags & 1, 0] {
                let stored = stored(flags, &value);
                prop_assert_eq!(open(&stored), (flags, &value[..]));
            }
        }

        /// A value of a Redis client is read unchanged, unless it is an envelope. An envelope is
        /// read as one, and written again unchanged if its flags are not 0.
        #[test]
        fn whatever_lies_there_is_read(raw in bytes()) {
            let (flags, value) = open(&raw);
            if value.len() == raw.len() {
                prop_assert_eq!((flags, value), (0, &raw[..]));
            } else {
                prop_assert_eq!(value.len() + LEN, raw.len());
                prop_assert!(flags == 0 || stored(flags, value) == raw);
            }
        }
    }

    #[test]
    fn values_without_flags_lie_as_they_are() {
        assert_eq!(stored(0, b"plain"), b"plain");
        assert_eq!(stored(0, b""), b"");
        assert_eq!(stored(7, b"v"), b"\xc1mc\x01\0\0\0\x07v");
        assert_eq!(stored(0, b"\xc1mc"), b"\xc1mc\x01\0\0\0\0\xc1mc");
        assert_eq!(open(b"\xc1mc\x02\0\0\0\x07v"), (0, &b"\xc1mc\x02\0\0\0\x07v"[..]));
        assert_eq!(open(b"\xc1mc\x01\0\0"), (0, &b"\xc1mc\x01\0\0"[..]));
    }

    #[test]
    fn the_number_is_of_flags_and_value() {
        // These are the first 15 digits of redis.sha1hex.
        assert_eq!(number([b"", b"abc"]), 0x0a99_93e3_6470_6816);
        assert_eq!(number([b"a", b"bc"]), number([b"", b"abc"]));
        let sealed = |flags, value| number([Prefix::of(flags, value).as_bytes(), value]);
        assert_ne!(sealed(1, b"v"), sealed(2, b"v"));
    }
}
