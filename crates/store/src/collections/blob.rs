//! Blobs: a count of elements in two bytes, then strings, each behind its
//! length.

use std::ops::Range;

/// Most elements of a set or a sorted set in a blob, and the longest string of
/// these and hashes: Redis's defaults, so that OBJECT ENCODING says the same.
pub(crate) const BLOB_ELEMENTS_MAX: usize = 128;
pub(crate) const BLOB_STRING_LEN_MAX: usize = 64;

/// Bytes of the count.
pub(crate) const HEADER_LEN: usize = 2;
/// Of a blob without elements.
pub(crate) const EMPTY: &[u8] = &[0; HEADER_LEN];
/// Most bytes of a length.
const PREFIX_LEN_MAX: usize = 5;

/// Elements of a blob; none of nothing.
#[inline]
pub(crate) fn count(blob: &[u8]) -> usize {
    match blob {
        [low, high, ..] => usize::from(u16::from_le_bytes([*low, *high])),
        _ => 0,
    }
}

/// The header of a blob of `count` elements.
pub(crate) fn header(count: usize) -> [u8; HEADER_LEN] {
    debug_assert!(count <= usize::from(u16::MAX));
    (count as u16).to_le_bytes()
}

/// A length, seven bits to a byte, the lowest first.
pub(crate) struct Prefix {
    bytes: [u8; PREFIX_LEN_MAX],
    len: usize,
}

impl Prefix {
    #[inline]
    pub(crate) fn of(mut value: usize) -> Self {
        debug_assert!(value >> 35 == 0);
        let mut prefix = Self { bytes: [0; PREFIX_LEN_MAX], len: 1 };
        while value >= 0x80 {
            prefix.bytes[prefix.len - 1] = value as u8 | 0x80;
            prefix.len += 1;
            value >>= 7;
        }
        prefix.bytes[prefix.len - 1] = value as u8;
        prefix
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// As [`Prefix::bytes`], turned round: to be read from the end of what it
    /// stands behind.
    pub(crate) fn reversed(&self) -> ([u8; PREFIX_LEN_MAX], usize) {
        let mut bytes = self.bytes;
        bytes[..self.len].reverse();
        (bytes, self.len)
    }
}

/// Reads a length at `at`; where the bytes behind it start.
#[inline]
pub(crate) fn read_prefix(blob: &[u8], at: usize) -> (usize, usize) {
    let first = blob[at];
    if first < 0x80 {
        return (usize::from(first), at + 1);
    }
    let (mut value, mut shift, mut at) = (usize::from(first & 0x7f), 7, at + 1);
    loop {
        let byte = blob[at];
        value |= usize::from(byte & 0x7f) << shift;
        at += 1;
        if byte < 0x80 {
            return (value, at);
        }
        shift += 7;
    }
}

/// Reads a length that ends before `end`, put there by [`Prefix::reversed`];
/// where it starts.
pub(crate) fn read_prefix_back(blob: &[u8], end: usize) -> (usize, usize) {
    let (mut value, mut shift, mut at) = (0, 0, end);
    loop {
        at -= 1;
        let byte = blob[at];
        value |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return (value, at);
        }
        shift += 7;
    }
}

/// Where the bytes of the string at `at` are; the next one follows them.
#[inline]
pub(crate) fn string_at(blob: &[u8], at: usize) -> Range<usize> {
    let (len, start) = read_prefix(blob, at);
    start..start + len
}

/// The strings of a blob from `at` on.
#[derive(Clone)]
pub(crate) struct Strings<'a> {
    blob: &'a [u8],
    at: usize,
}

impl<'a> Strings<'a> {
    /// All strings of a blob.
    #[inline]
    pub(crate) fn of(blob: &'a [u8]) -> Self {
        Self { blob, at: HEADER_LEN }
    }
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.at >= self.blob.len() {
            return None;
        }
        let range = string_at(self.blob, self.at);
        self.at = range.end;
        Some(&self.blob[range])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_length_reads_back_from_either_side(value in prop_oneof![0..300usize, 0..1usize << 34]) {
            let prefix = Prefix::of(value);
            let mut blob = b"xy".to_vec();
            blob.extend_from_slice(prefix.bytes());
            prop_assert_eq!(read_prefix(&blob, 2), (value, blob.len()));
            let (reversed, len) = prefix.reversed();
            let mut blob = b"xy".to_vec();
            blob.extend_from_slice(&reversed[..len]);
            prop_assert_eq!(read_prefix_back(&blob, blob.len()), (value, 2));
        }
    }
}
