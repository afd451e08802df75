//! Listpacks: strings and numbers in one block (`src/listpack.c` of Redis 7.0).
//!
//! ```text
//!  listpack: bytes in all, 4 │ elements, 2 │ element ... │ 0xff
//!  element:  encoding and bytes │ their length, to be read from its end
//!  encoding: 0xxxxxxx  a number          10xxxxxx  a length below 64
//!            110xxxxx  a number + 1      1110xxxx  a length + 1
//!            0xf1..4   a number, 2, 3, 4 or 8 bytes
//!            0xf0      a length, 4 bytes
//! ```

use crate::element::{Damaged, Slice, Text};
use keyway_resp::parse_integer;

const HEADER_LEN: usize = 6;
const END: u8 = 0xff;
/// A count that does not fit its place.
const UNCOUNTED: u16 = u16::MAX;

/// How many bytes tell the length of `len` bytes in front of them.
fn suffix_len(len: usize) -> usize {
    match len {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

/// Calls `write` with the suffix that contains this length.
fn with_suffix<R>(len: usize, write: impl FnOnce(&[u8]) -> R) -> R {
    let mut bytes = [0; 5];
    let suffix = &mut bytes[..suffix_len(len)];
    for (index, byte) in suffix.iter_mut().rev().enumerate() {
        // All bytes except the first one announce that more follow.
        *byte = (len >> (7 * index)) as u8 & 0x7f | 0x80;
    }
    suffix[0] &= 0x7f;
    write(suffix)
}

/// A position in a listpack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    at: usize,
    seen: u64,
    /// The expected number of elements, if it is known.
    count: Option<u64>,
}

/// Returns the first position, and the number of elements if the listpack contains it.
pub(crate) fn start(bytes: &[u8]) -> Result<(Walk, Option<u64>), Damaged> {
    let (header, elements) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(Damaged)?;
    let [a, b, c, d, e, f] = *header;
    let (total, count) = (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([e, f]));
    if total as usize != bytes.len() || elements.last() != Some(&END) {
        return Err(Damaged);
    }
    let count = (count != UNCOUNTED).then_some(count.into());
    Ok((Walk { at: HEADER_LEN, seen: 0, count }, count))
}

impl Walk {
    /// Returns whether no element is left.
    pub(crate) fn is_over(&self, bytes: &[u8]) -> bool {
        self.at + 1 >= bytes.len()
    }

    /// Returns the next element, or `None` at the end, if the number of elements is the announced
    /// one.
    pub(crate) fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<Text<'a>>, Damaged> {
        let rest = bytes.get(self.at..bytes.len() - 1).ok_or(Damaged)?;
        if rest.is_empty() {
            let is_counted = self.count.is_none_or(|count| count == self.seen);
            return if is_counted { Ok(None) } else { Err(Damaged) };
        }
        let mut slice = Slice::new(rest);
        let text = element(&mut slice)?;
        let len = rest.len() - slice.left();
        let suffix = slice.take(suffix_len(len))?;
        if !with_suffix(len, |expected| suffix == expected) {
            return Err(Damaged);
        }
        self.at += len + suffix.len();
        self.seen += 1;
        Ok(Some(text))
    }
}

fn element<'a>(slice: &mut Slice<'a>) -> Result<Text<'a>, Damaged> {
    let first = slice.byte()?;
    let len = match first {
        0..0x80 => return Ok(Text::Integer(first.into())),
        0x80..0xc0 => usize::from(first & 0x3f),
        0xc0..0xe0 => {
            let bits = u16::from_be_bytes([first & 0x1f, slice.byte()?]);
            return Ok(Text::Integer(((bits << 3) as i16 >> 3).into()));
        }
        0xe0..0xf0 => usize::from(u16::from_be_bytes([first & 0xf, slice.byte()?])),
        0xf0 => u32::from_le_bytes(slice.array()?) as usize,
        0xf1 => return Ok(Text::Integer(i16::from_le_bytes(slice.array()?).into())),
        0xf2 => {
            let [low, middle, high] = slice.array()?;
            return Ok(Text::Integer((i32::from_le_bytes([0, low, middle, high]) >> 8).into()));
        }
        0xf3 => return Ok(Text::Integer(i32::from_le_bytes(slice.array()?).into())),
        0xf4 => return Ok(Text::Integer(i64::from_le_bytes(slice.array()?))),
        _ => return Err(Damaged),
    };
    slice.take(len).map(Text::Plain)
}

/// A listpack being written.
#[derive(Debug)]
pub struct Listpack {
    /// The bytes without the end mark.
    bytes: Vec<u8>,
    count: usize,
}

impl Default for Listpack {
    fn default() -> Self {
        Self::new()
    }
}

impl Listpack {
    /// Creates an empty one.
    pub fn new() -> Self {
        Self { bytes: vec![0; HEADER_LEN], count: 0 }
    }

    /// Returns the current length of the listpack in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() + 1
    }

    /// Returns whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Appends a string. It is written as a number if it is the text of one.
    pub fn push(&mut self, text: &[u8]) {
        if let Some(value) = parse_integer(text) {
            return self.push_integer(value);
        }
        let len = text.len();
        self.push_parts(|bytes| {
            match len {
                0..64 => bytes.push(0x80 | len as u8),
                64..4096 => bytes.extend_from_slice(&(0xe000 | len as u16).to_be_bytes()),
                _ => {
                    bytes.push(0xf0);
                    bytes.extend_from_slice(&(len as u32).to_le_bytes());
                }
            }
            bytes.extend_from_slice(text);
        });
    }

    /// Appends a number.
    pub fn push_integer(&mut self, value: i64) {
        self.push_parts(|bytes| {
            let wide = value.to_le_bytes();
            match value {
                0..=127 => bytes.push(value as u8),
                -4096..=4095 => {
                    bytes.extend_from_slice(&(0xc000 | value as u16 & 0x1fff).to_be_bytes());
                }
                -0x8000..=0x7fff => put(bytes, 0xf1, &wide[..2]),
                -0x80_0000..=0x7f_ffff => put(bytes, 0xf2, &wide[..3]),
                -0x8000_0000..=0x7fff_ffff => put(bytes, 0xf3, &wide[..4]),
                _ => put(bytes, 0xf4, &wide),
            }
        });
    }

    fn push_parts(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        with_suffix(self.bytes.len() - start, |suffix| self.bytes.extend_from_slice(suffix));
        self.count += 1;
    }

    /// Returns the bytes of the complete listpack.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let total = (self.bytes.len() as u32).to_le_bytes();
        let count = u16::try_from(self.count).unwrap_or(UNCOUNTED).to_le_bytes();
        self.bytes[..4].copy_from_slice(&total);
        self.bytes[4..HEADER_LEN].copy_from_slice(&count);
        self.bytes
    }
}

fn put(bytes: &mut Vec<u8>, encoding: u8, value: &[u8]) {
    bytes.push(encoding);
    bytes.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Block, texts_of};
    use crate::fault::Form;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
        texts_of(Block::start(Form::Listpack, bytes).ok()?.0, bytes)
    }

    fn any_text() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            any::<i64>().prop_map(|value| value.to_string().into_bytes()),
            (any::<i64>(), 0..63u32).prop_map(|(value, bits)| (value >> bits).to_string().into()),
            proptest::collection::vec(any::<u8>(), 0..200),
            (0..3usize).prop_map(|which| vec![b'x'; [4095, 4096, 20_000][which]]),
        ]
    }

    proptest! {
        #[test]
        fn elements_read_back_as_written_and_a_listpack_is_no_shorter_than_it_says(
            texts in proptest::collection::vec(any_text(), 0..20),
            (at, byte) in any::<(prop::sample::Index, u8)>(),
        ) {
            let mut listpack = Listpack::new();
            texts.iter().for_each(|text| listpack.push(text));
            let len = listpack.len();
            let mut bytes = listpack.finish();
            prop_assert_eq!(bytes.len(), len);
            prop_assert_eq!(read(&bytes), Some(texts));
            let at = at.index(bytes.len());
            prop_assert_eq!(read(&bytes[..at]), None);
            bytes[at] = byte;
            let _ = read(&bytes);
        }

        #[test]
        fn no_bytes_make_it_panic(elements in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut bytes = (elements.len() as u32 + 7).to_le_bytes().to_vec();
            bytes.extend_from_slice(&[0xff, 0xff]);
            bytes.extend_from_slice(&elements);
            bytes.push(END);
            let _ = read(&bytes);
        }
    }
}
