//! Lengths and strings, from which everything else is built (`src/rdb.h` of Redis 7.0).
//!
//! ```text
//!  length: 00xxxxxx │ 01xxxxxx + 1 byte │ 0x80 + 4 bytes │ 0x81 + 8 bytes
//!  string: length, bytes │ 0xc0..0xc2 + integer of 1, 2, 4 bytes
//!          │ 0xc3, packed length, length, bytes packed with LZF
//! ```
//! Lengths have the highest byte first, everything else the lowest.

use crate::fault::{Fault, What};

/// The numbers of the string encodings.
const INTEGER_8: u8 = 0;
const INTEGER_16: u8 = 1;
const INTEGER_32: u8 = 2;
const LZF: u8 = 3;
/// The two highest bits of a byte with such a number.
const ENCODED: u8 = 0xc0;

/// Why a [`Cursor`] cannot read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// More bytes are needed.
    Short {
        /// Smallest number of bytes that are needed from the cursor's start on.
        at_least: usize,
    },
    /// The bytes are wrong.
    Wrong(Fault),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Wrong(fault)
    }
}

/// A string as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoded<'a> {
    /// Its bytes.
    Plain(&'a [u8]),
    /// The decimal digits of a number.
    Integer(i64),
    /// A packed string, for [`unpack`](crate::lzf::unpack).
    Packed {
        /// Its bytes, packed with LZF.
        packed: &'a [u8],
        /// Its announced unpacked length.
        len: usize,
    },
}

/// A position in bytes that are being read.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The offset of the first byte, for faults.
    base: u64,
}

/// The meaning of a first byte.
enum Head {
    Len(u64),
    Encoding(u8),
}

impl<'a> Cursor<'a> {
    /// Creates a cursor at the first of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self::at_offset(bytes, 0)
    }

    /// Creates a cursor at the first of these bytes, which has this offset in the whole.
    pub fn at_offset(bytes: &'a [u8], base: u64) -> Self {
        Self { bytes, at: 0, base }
    }

    /// Returns the number of bytes read.
    pub fn consumed(&self) -> usize {
        self.at
    }

    /// Returns the number of bytes left.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Returns whether nothing is left.
    pub fn is_over(&self) -> bool {
        self.left() == 0
    }

    /// Returns the offset of the next byte.
    pub fn offset(&self) -> u64 {
        self.base.saturating_add(self.at as u64)
    }

    /// Returns a fault at the next byte.
    pub fn fault(&self, what: What) -> Fault {
        Fault::new(self.offset(), what)
    }

    /// Returns the next `len` bytes.
    ///
    /// # Errors
    /// Returns [`Stop::Short`] if there are fewer.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Stop> {
        let end = self.at.saturating_add(len);
        let taken = self.bytes.get(self.at..end).ok_or(Stop::Short { at_least: end })?;
        self.at = end;
        Ok(taken)
    }

    /// Returns the next `N` bytes.
    ///
    /// # Errors
    /// Returns [`Stop::Short`] if there are fewer.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    /// Returns the next byte.
    ///
    /// # Errors
    /// Returns [`Stop::Short`] if there is none.
    pub fn byte(&mut self) -> Result<u8, Stop> {
        self.array().map(|[byte]| byte)
    }

    /// Returns the next eight bytes as a number, with the lowest first.
    ///
    /// # Errors
    /// Returns [`Stop::Short`] if there are fewer.
    pub fn number(&mut self) -> Result<u64, Stop> {
        self.array().map(u64::from_le_bytes)
    }

    fn head(&mut self) -> Result<Head, Stop> {
        let wrong = |cursor: &Self, byte| cursor.fault(What::LengthEncoding(byte));
        let start = *self;
        let first = self.byte()?;
        Ok(match (first >> 6, first) {
            (0, _) => Head::Len(first.into()),
            (1, _) => Head::Len(u16::from_be_bytes([first & 0x3f, self.byte()?]).into()),
            (2, 0x80) => Head::Len(u32::from_be_bytes(self.array()?).into()),
            (2, 0x81) => Head::Len(u64::from_be_bytes(self.array()?)),
            (2, _) => return Err(wrong(&start, first).into()),
            _ => Head::Encoding(first & 0x3f),
        })
    }

    /// Reads a length. A string encoding is read as a length below 64 here, as in Redis.
    ///
    /// # Errors
    /// Returns [`Stop`]. The position is then undefined.
    pub fn read_len(&mut self) -> Result<u64, Stop> {
        Ok(match self.head()? {
            Head::Len(len) => len,
            Head::Encoding(len) => len.into(),
        })
    }

    /// Reads a string of at most `max` bytes.
    ///
    /// # Errors
    /// Returns [`Stop`]. The position is then undefined.
    pub fn read_string(&mut self, max: u64) -> Result<Encoded<'a>, Stop> {
        let start = *self;
        let checked = |len: u64| match usize::try_from(len) {
            Ok(short) if len <= max => Ok(short),
            _ => Err(Stop::Wrong(start.fault(What::StringLong { len, max }))),
        };
        let encoding = match self.head()? {
            Head::Len(len) => return self.take(checked(len)?).map(Encoded::Plain),
            Head::Encoding(encoding) => encoding,
        };
        Ok(match encoding {
            INTEGER_8 => Encoded::Integer(i8::from_le_bytes(self.array()?).into()),
            INTEGER_16 => Encoded::Integer(i16::from_le_bytes(self.array()?).into()),
            INTEGER_32 => Encoded::Integer(i32::from_le_bytes(self.array()?).into()),
            LZF => {
                let (packed_len, len) = (checked(self.read_len()?)?, checked(self.read_len()?)?);
                Encoded::Packed { packed: self.take(packed_len)?, len }
            }
            _ => return Err(start.fault(What::StringEncoding(ENCODED | encoding)).into()),
        })
    }
}

/// Appends a length.
pub fn write_len(len: u64, out: &mut Vec<u8>) {
    match len {
        0..0x40 => out.push(len as u8),
        0x40..0x4000 => out.extend_from_slice(&(len as u16 | 0x4000).to_be_bytes()),
        _ => match u32::try_from(len) {
            Ok(len) => {
                out.push(0x80);
                out.extend_from_slice(&len.to_be_bytes());
            }
            Err(_) => {
                out.push(0x81);
                out.extend_from_slice(&len.to_be_bytes());
            }
        },
    }
}

/// Appends a string with these bytes unchanged.
pub fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write_len(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Length of the longest string that may be written as a number: one of 32 bits.
const INTEGER_LEN_MAX: usize = 11;

/// Appends a string. It is written as a number if it is the text of one of 32 bits.
pub fn write_text(text: &[u8], out: &mut Vec<u8>) {
    let integer =
        if text.len() <= INTEGER_LEN_MAX { keyway_resp::parse_integer(text) } else { None };
    if !integer.is_some_and(|value| write_integer(value, out)) {
        write_bytes(text, out);
    }
}

/// Appends a string with the text of this number. Returns whether it has such a form.
fn write_integer(value: i64, out: &mut Vec<u8>) -> bool {
    if let Ok(value) = i8::try_from(value) {
        out.push(ENCODED | INTEGER_8);
        out.extend_from_slice(&value.to_le_bytes());
    } else if let Ok(value) = i16::try_from(value) {
        out.push(ENCODED | INTEGER_16);
        out.extend_from_slice(&value.to_le_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        out.push(ENCODED | INTEGER_32);
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        return false;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_numbers_read_back_as_written() {
        let wide = u64::from(u32::MAX);
        for len in [0, 1, 63, 64, 16_383, 16_384, wide, wide + 1, u64::MAX] {
            let mut out = Vec::new();
            write_len(len, &mut out);
            let mut cursor = Cursor::new(&out);
            assert_eq!(cursor.read_len(), Ok(len));
            assert!(cursor.is_over());
            for cut in 0..out.len() {
                let stop = Cursor::new(&out[..cut]).read_len();
                assert!(matches!(stop, Err(Stop::Short { at_least }) if at_least > cut));
            }
        }
        for value in [0, -1, 127, -128, 128, -32_768, 32_768, 2_147_483_647, -2_147_483_648] {
            let mut out = Vec::new();
            write_text(value.to_string().as_bytes(), &mut out);
            assert_eq!(Cursor::new(&out).read_string(5), Ok(Encoded::Integer(value)));
            assert!((0..out.len()).all(|cut| Cursor::new(&out[..cut]).read_string(5).is_err()));
        }
        for text in [&b"2147483648"[..], b"-0", b"007", b"+1", b"", b"1 "] {
            let mut out = Vec::new();
            write_text(text, &mut out);
            assert_eq!(Cursor::new(&out).read_string(99), Ok(Encoded::Plain(text)));
        }
    }

    #[test]
    fn a_length_that_lies_is_refused_before_its_bytes_are_waited_for() {
        let long = |bytes: &'static [u8]| Cursor::at_offset(bytes, 70).read_string(100);
        let fault = |len| Err(Stop::Wrong(Fault::new(70, What::StringLong { len, max: 100 })));
        assert_eq!(long(b"\x40\x65"), fault(101));
        assert_eq!(long(b"\x81\xff\xff\xff\xff\xff\xff\xff\xff"), fault(u64::MAX));
        assert_eq!(long(b"\xc3\x40\x65"), fault(101));
        assert_eq!(long(b"\xc3\x05\x40\x65"), fault(101));
        assert_eq!(long(b"\x40\x64"), Err(Stop::Short { at_least: 102 }));
        let wrong = |what| Err(Stop::Wrong(Fault::new(70, what)));
        assert_eq!(long(b"\xc4"), wrong(What::StringEncoding(0xc4)));
        assert_eq!(long(b"\x82"), wrong(What::LengthEncoding(0x82)));
    }
}
