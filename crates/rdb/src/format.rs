//! Redis's own form of a value: what DUMP gives, RESTORE takes and RDB files
//! are made of (`src/rdb.h`, `createDumpPayload` of Redis 7.0).
//!
//! ```text
//!  payload: type, value │ version of the form, 2 bytes │ checksum, 8 bytes
//!  length:  00xxxxxx │ 01xxxxxx + 1 byte │ 0x80 + 4 bytes │ 0x81 + 8 bytes
//!  string:  length, bytes │ 0xc0..0xc2 + integer of 1, 2, 4 bytes
//!           │ 0xc3, packed length, length, bytes packed with LZF
//! ```
//! Lengths are written with the highest byte first, all else with the lowest.
//! What is read comes from anywhere: nothing here panics on it, or reserves
//! memory because it says so.

/// The version of the form that is written: that of Redis 7.0.
const VERSION: u16 = 10;
/// The newest that is read, that of Redis 7.4 and 8; and what is written of
/// values that older servers have no form of, whose types begin here.
const VERSION_NEWEST: u16 = 12;
const TYPES_NEWEST: u8 = 22;
const VERSION_LEN: usize = 2;
const CHECKSUM_LEN: usize = 8;
/// Bytes of version and checksum.
pub const FOOTER_LEN: usize = VERSION_LEN + CHECKSUM_LEN;

/// What stands for the ways to encode a string.
const INTEGER_8: u8 = 0;
const INTEGER_16: u8 = 1;
const INTEGER_32: u8 = 2;
const LZF: u8 = 3;

/// The value in a payload without its footer; `None` if the checksum is
/// wrong or the form too new.
pub fn open(payload: &[u8]) -> Option<&[u8]> {
    let (checked, sum) = payload.split_last_chunk::<CHECKSUM_LEN>()?;
    let (value, version) = checked.split_last_chunk::<VERSION_LEN>()?;
    let is_known = u16::from_le_bytes(*version) <= VERSION_NEWEST;
    (is_known && checksum(checked) == u64::from_le_bytes(*sum)).then_some(value)
}

/// Appends the footer to a value, which makes it a payload.
pub fn seal(value: &mut Vec<u8>) {
    // What is above them are no types: a payload of functions begins with 245.
    let is_newest = value.first().is_some_and(|kind| (TYPES_NEWEST..128).contains(kind));
    let version = if is_newest { VERSION_NEWEST } else { VERSION };
    value.extend_from_slice(&version.to_le_bytes());
    let sum = checksum(value);
    value.extend_from_slice(&sum.to_le_bytes());
}

/// A string as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text<'a> {
    /// Its bytes.
    Plain(&'a [u8]),
    /// The decimal digits of a number.
    Integer(i64),
    /// To be given to [`unpack`].
    Packed {
        /// Its bytes, packed with LZF.
        packed: &'a [u8],
        /// How many it is said to be.
        len: usize,
    },
}

/// A value being read.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

/// What a first byte tells.
enum Head {
    Len(u64),
    Encoding(u8),
}

impl<'a> Reader<'a> {
    /// Of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes that are left.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Whether nothing is left.
    pub fn is_over(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    /// The next byte.
    pub fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn head(&mut self) -> Option<Head> {
        let first = self.byte()?;
        Some(match (first >> 6, first) {
            (0, _) => Head::Len(first.into()),
            (1, _) => Head::Len(u16::from_be_bytes([first & 0x3f, self.byte()?]).into()),
            (2, 0x80) => Head::Len(u32::from_be_bytes(self.array()?).into()),
            (2, 0x81) => Head::Len(u64::from_be_bytes(self.array()?)),
            (2, _) => return None,
            _ => Head::Encoding(first & 0x3f),
        })
    }

    /// A length, which nothing is known of yet. What would be an encoding is
    /// one below 64 here, as Redis reads it.
    pub fn read_len(&mut self) -> Option<usize> {
        match self.head()? {
            Head::Len(len) => usize::try_from(len).ok(),
            Head::Encoding(len) => Some(len.into()),
        }
    }

    /// A string.
    pub fn read_text(&mut self) -> Option<Text<'a>> {
        let encoding = match self.head()? {
            Head::Len(len) => return self.take(usize::try_from(len).ok()?).map(Text::Plain),
            Head::Encoding(encoding) => encoding,
        };
        Some(match encoding {
            INTEGER_8 => Text::Integer(i8::from_le_bytes(self.array()?).into()),
            INTEGER_16 => Text::Integer(i16::from_le_bytes(self.array()?).into()),
            INTEGER_32 => Text::Integer(i32::from_le_bytes(self.array()?).into()),
            LZF => {
                let (packed_len, len) = (self.read_len()?, self.read_len()?);
                Text::Packed { packed: self.take(packed_len)?, len }
            }
            _ => return None,
        })
    }
}

/// Appends the `len` bytes that were packed with LZF; `None`, with some of them
/// appended, if they are not so many or the form is wrong. No bytes can be had
/// from anything, as Redis has it.
///
/// ```text
///  000nnnnn                      n + 1 bytes as they are
///  nnnooooo oooooooo             n + 2 bytes from o + 1 bytes before
///  111ooooo nnnnnnnn oooooooo    n + 9 bytes from there
/// ```
pub fn unpack(packed: &[u8], len: usize, out: &mut Vec<u8>) -> Option<()> {
    if len == 0 {
        return Some(());
    }
    let start = out.len();
    let mut reader = Reader::new(packed);
    while let Some(control) = reader.byte() {
        let left = len - (out.len() - start);
        if control < 32 {
            let run = reader.take(usize::from(control) + 1)?;
            if run.len() > left {
                return None;
            }
            out.extend_from_slice(run);
            continue;
        }
        let mut count = usize::from(control >> 5) + 2;
        if control >> 5 == 7 {
            count += usize::from(reader.byte()?);
        }
        let back = usize::from(u16::from_be_bytes([control & 0x1f, reader.byte()?])) + 1;
        let from = out.len().checked_sub(back).filter(|from| *from >= start)?;
        if count > left {
            return None;
        }
        if count <= back {
            out.extend_from_within(from..from + count);
        } else {
            // What is referred to is what is being written.
            (from..from + count).for_each(|at| out.push(out[at]));
        }
    }
    (out.len() - start == len).then_some(())
}

/// Appends a length.
pub fn write_len(len: usize, out: &mut Vec<u8>) {
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
                out.extend_from_slice(&(len as u64).to_be_bytes());
            }
        },
    }
}

/// Appends a string of these bytes, unpacked.
pub fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write_len(bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// Appends a string that reads as this number; whether there is such a form of
/// it.
pub fn write_integer(value: i64, out: &mut Vec<u8>) -> bool {
    const ENCODED: u8 = 0xc0;
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

/// The polynomial of the checksum, lowest bit first.
const POLYNOMIAL: u64 = 0xad93_d235_94c9_35a9_u64.reverse_bits();
/// Bytes that are taken into the checksum at once.
const STRIDE: usize = 8;

/// What each byte does to the checksum, by how many bytes follow it in a
/// stride.
static TABLES: [[u64; 256]; STRIDE] = tables();

const fn tables() -> [[u64; 256]; STRIDE] {
    let mut tables = [[0; 256]; STRIDE];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u64;
        let mut following = 0;
        while following < STRIDE {
            let mut bit = 0;
            while bit < 8 {
                sum = if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 };
                bit += 1;
            }
            tables[following][byte] = sum;
            following += 1;
        }
        byte += 1;
    }
    tables
}

/// The checksum of these bytes: CRC-64 with the polynomial of Jones.
pub fn checksum(bytes: &[u8]) -> u64 {
    let (strides, rest) = bytes.as_chunks::<STRIDE>();
    let mut sum = 0u64;
    for stride in strides {
        let word = (sum ^ u64::from_le_bytes(*stride)).to_le_bytes();
        let effects = word.iter().zip(TABLES.iter().rev());
        sum = effects.fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)]);
    }
    rest.iter().fold(sum, |sum, byte| sum >> 8 ^ TABLES[0][usize::from(sum as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_redis() {
        assert_eq!(checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(checksum(b""), 0);
    }

    #[test]
    fn lengths_and_numbers_read_back_as_written() {
        for len in [0, 1, 63, 64, 16_383, 16_384, u32::MAX as usize, u32::MAX as usize + 1] {
            let mut out = Vec::new();
            write_len(len, &mut out);
            let mut reader = Reader::new(&out);
            assert_eq!(reader.read_len(), Some(len));
            assert!(reader.is_over());
            assert!((0..out.len()).all(|cut| Reader::new(&out[..cut]).read_len().is_none()));
        }
        for value in [0, -1, 127, -128, 128, -32_768, 32_768, 2_147_483_647, -2_147_483_648] {
            let mut out = Vec::new();
            assert!(write_integer(value, &mut out));
            assert_eq!(Reader::new(&out).read_text(), Some(Text::Integer(value)));
            assert!((0..out.len()).all(|cut| Reader::new(&out[..cut]).read_text().is_none()));
        }
        assert!(!write_integer(2_147_483_648, &mut Vec::new()));
    }

    #[test]
    fn what_is_packed_unpacks_to_its_length_and_no_other() {
        // "abc", then nine bytes from three before.
        let packed = [2, b'a', b'b', b'c', 0xe0, 0, 2];
        for len in 0..20 {
            let mut out = b"before".to_vec();
            let done = unpack(&packed, len, &mut out).is_some();
            assert_eq!(done, len == 12 || len == 0);
            assert!(len != 12 || out == b"beforeabcabcabcabc");
        }
        assert_eq!(unpack(&[0, b'a', 0x20, 1], 4, &mut b"before".to_vec()), None);
        assert_eq!(unpack(&[0, b'a', 0xe0, 0], 12, &mut Vec::new()), None);
        assert_eq!(unpack(&[1, b'a'], 2, &mut Vec::new()), None);
    }

    #[test]
    fn a_payload_opens_unless_it_was_changed_or_is_too_new() {
        let mut payload = b"\0\x01x".to_vec();
        seal(&mut payload);
        assert_eq!(open(&payload), Some(&b"\0\x01x"[..]));
        for at in 0..payload.len() {
            let mut other = payload.clone();
            other[at] ^= 0x10;
            assert_eq!(open(&other), None, "{at}");
            assert_eq!(open(&payload[..at]), None);
        }
        for (version, is_known) in [(11, true), (12, true), (13, false), (0x10b, false)] {
            let mut newer = b"\0\x01x".to_vec();
            newer.extend_from_slice(&u16::to_le_bytes(version));
            newer.extend_from_slice(&checksum(&newer).to_le_bytes());
            assert_eq!(open(&newer).is_some(), is_known, "{version}");
        }
        let mut timed = vec![TYPES_NEWEST];
        seal(&mut timed);
        assert_eq!(timed[1..3], VERSION_NEWEST.to_le_bytes());
        let mut functions = vec![245];
        seal(&mut functions);
        assert_eq!(functions[1..3], VERSION.to_le_bytes());
    }
}
