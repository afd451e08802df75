//! Numbers and strings of a block, as bytes.
//!
//! ```text
//!  number   seven bits to a byte, the lowest first
//!  string   a number: length << 1     │ bytes
//!           or:       zigzag << 1 | 1 │        what reads as a short integer
//! ```

use crate::algorithms::number::{INTEGER_LEN_MAX, format_integer, parse_integer};
use keyway_memory::nodes::{self, Node};

/// Integers whose magnitude is below this are stored as numbers: the two
/// marking bits must still fit.
const INTEGER_END: i64 = 1 << 61;

/// A string as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Text<'a> {
    Bytes(&'a [u8]),
    Integer(i64),
}

impl<'a> Text<'a> {
    /// As what a string is to be stored.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        let integer =
            parse_integer(bytes).filter(|value| value.unsigned_abs() < INTEGER_END as u64);
        integer.map_or(Self::Bytes(bytes), Self::Integer)
    }

    pub(crate) fn write(self, out: &mut Node<u8>) {
        match self {
            Self::Bytes(bytes) => {
                write_number(out, (bytes.len() as u64) << 1);
                nodes::append(out, bytes);
            }
            Self::Integer(value) => {
                let zigzag = (value << 1 ^ value >> 63) as u64;
                write_number(out, zigzag << 1 | 1);
            }
        }
    }

    /// Lets `work` have the string's bytes.
    #[inline]
    pub(crate) fn with_bytes<R>(self, work: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Self::Bytes(bytes) => work(bytes),
            Self::Integer(value) => work(format_integer(value, &mut [0; INTEGER_LEN_MAX])),
        }
    }
}

pub(crate) fn write_number(out: &mut Node<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads what was written one behind the other.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    #[inline]
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    #[inline]
    pub(crate) fn number(&mut self) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.bytes[self.at];
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return value;
            }
            shift += 7;
        }
    }

    #[inline]
    pub(crate) fn text(&mut self) -> Text<'a> {
        let number = self.number();
        if number & 1 == 1 {
            let zigzag = number >> 1;
            return Text::Integer((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64));
        }
        let start = self.at;
        self.at += (number >> 1) as usize;
        Text::Bytes(&self.bytes[start..self.at])
    }

    #[inline]
    pub(crate) fn skip(&mut self, len: usize) {
        self.at += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn strings_and_numbers_read_back_as_written(
            numbers: Vec<u64>,
            strings in proptest::collection::vec(prop_oneof![
                any::<Vec<u8>>(),
                any::<i64>().prop_map(|value| value.to_string().into_bytes()),
                (-300..300i64).prop_map(|value| value.to_string().into_bytes()),
            ], 0..20),
        ) {
            let mut out = nodes::copy_of(&[9]);
            numbers.iter().for_each(|number| write_number(&mut out, *number));
            strings.iter().for_each(|string| Text::of(string).write(&mut out));
            let mut reader = Reader::new(&out, 1);
            for number in numbers {
                prop_assert_eq!(reader.number(), number);
            }
            for string in strings {
                reader.text().with_bytes(|bytes| assert_eq!(bytes, &string[..]));
            }
            prop_assert!(reader.is_at_end());
        }
    }

    #[test]
    fn a_short_integer_takes_fewer_bytes_than_its_digits() {
        for (text, len) in [("7", 1), ("-31", 1), ("12345", 3), ("1700000000000", 7)] {
            let mut out = nodes::empty();
            Text::of(text.as_bytes()).write(&mut out);
            assert_eq!(out.len(), len, "{text}");
        }
    }
}
