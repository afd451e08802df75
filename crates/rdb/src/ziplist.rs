//! Ziplists, which servers before Redis 7.0 write (`src/ziplist.c`).
//!
//! ```text
//!  ziplist: bytes in all, 4 │ offset of the last element, 4 │ elements, 2 │ element ... │ 0xff
//!  element: length of the one before │ encoding │ bytes
//! ```
//! A length is one byte, or 254 and four bytes. In an encoding it has 6 bits, 14 or 32, with the
//! highest first.

use crate::element::{Damaged, Slice, Text};

const END: u8 = 0xff;
/// Marks a length of more than one byte.
const LONG: u8 = 254;
const HEADER_LEN: usize = 10;
/// Marks a count that does not fit into its field.
const UNCOUNTED: u16 = u16::MAX;

/// A position in a ziplist.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    at: usize,
    /// Length of the element before in bytes, and where it starts.
    before: (usize, usize),
    seen: u64,
    last_at: usize,
    count: Option<u64>,
}

/// Returns the first position, and the number of elements if the ziplist contains it.
pub(crate) fn start(bytes: &[u8]) -> Result<(Walk, Option<u64>), Damaged> {
    let mut header = Slice::new(bytes);
    let total = u32::from_le_bytes(header.array()?) as usize;
    let last_at = u32::from_le_bytes(header.array()?) as usize;
    let count = u16::from_le_bytes(header.array()?);
    let ends = bytes[HEADER_LEN..].last() == Some(&END);
    if !ends || total != bytes.len() || last_at > bytes.len() - 1 {
        return Err(Damaged);
    }
    let count = (count != UNCOUNTED).then_some(count.into());
    Ok((Walk { at: HEADER_LEN, before: (0, 0), seen: 0, last_at, count }, count))
}

impl Walk {
    /// Returns whether no element is left.
    pub(crate) fn is_over(&self, bytes: &[u8]) -> bool {
        self.at + 1 >= bytes.len()
    }

    /// Returns the next element, or `None` at the end, if the number of elements and the position
    /// of the last one are those that the ziplist announces.
    pub(crate) fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<Text<'a>>, Damaged> {
        let rest = bytes.get(self.at..bytes.len() - 1).ok_or(Damaged)?;
        let (before_len, before_at) = self.before;
        if rest.is_empty() {
            let is_last = self.seen == 0 || before_at == self.last_at;
            let is_counted = self.count.is_none_or(|count| count == self.seen);
            return if is_last && is_counted { Ok(None) } else { Err(Damaged) };
        }
        let mut slice = Slice::new(rest);
        if read_len(&mut slice)? != before_len {
            return Err(Damaged);
        }
        let text = element(&mut slice)?;
        let len = rest.len() - slice.left();
        self.before = (len, self.at);
        self.at += len;
        self.seen += 1;
        Ok(Some(text))
    }
}

fn read_len(slice: &mut Slice<'_>) -> Result<usize, Damaged> {
    Ok(match slice.byte()? {
        END => return Err(Damaged),
        LONG => u32::from_le_bytes(slice.array()?) as usize,
        len => usize::from(len),
    })
}

fn element<'a>(slice: &mut Slice<'a>) -> Result<Text<'a>, Damaged> {
    let first = slice.byte()?;
    let value = match first {
        0..0x40 => return slice.take(first.into()).map(Text::Plain),
        0x40..0x80 => {
            let len = u16::from_be_bytes([first & 0x3f, slice.byte()?]);
            return slice.take(len.into()).map(Text::Plain);
        }
        0x80..0xc0 => {
            let len = u32::from_be_bytes(slice.array()?);
            return slice.take(len as usize).map(Text::Plain);
        }
        0xc0 => i16::from_le_bytes(slice.array()?).into(),
        0xd0 => i32::from_le_bytes(slice.array()?).into(),
        0xe0 => i64::from_le_bytes(slice.array()?),
        0xf0 => {
            let [low, middle, high] = slice.array()?;
            (i32::from_le_bytes([0, low, middle, high]) >> 8).into()
        }
        0xfe => i8::from_le_bytes(slice.array()?).into(),
        0xf1..=0xfd => i64::from(first & 0xf) - 1,
        _ => return Err(Damaged),
    };
    Ok(Text::Integer(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Block, texts_of};
    use crate::fault::Form;
    use proptest::prelude::*;

    fn texts(bytes: &[u8]) -> Option<Vec<String>> {
        let texts = texts_of(Block::start(Form::Ziplist, bytes).ok()?.0, bytes)?;
        Some(texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect())
    }

    /// Returns a ziplist of "hi", 2 in four bits, -3 in eight, 1024, and a string with a length of
    /// 14 bits.
    fn ziplist() -> Vec<u8> {
        let mut bytes = vec![0, 0, 0, 0, 21, 0, 0, 0, 5, 0];
        bytes.extend_from_slice(b"\x00\x02hi\x04\xf3\x02\xfe\xfd\x03\xc0\x00\x04");
        let last_at = bytes.len() as u8;
        bytes.extend_from_slice(b"\x04\x40\x46");
        bytes.extend_from_slice(&[b'x'; 70]);
        bytes.push(END);
        (bytes[0], bytes[4]) = (bytes.len() as u8, last_at);
        bytes
    }

    #[test]
    fn a_ziplist_is_read_and_refused_when_it_is_cut_off_or_miscounted() {
        let bytes = ziplist();
        let expected = ["hi", "2", "-3", "1024", &"x".repeat(70)].map(str::to_owned).to_vec();
        assert_eq!(texts(&bytes), Some(expected));
        assert!((0..bytes.len()).all(|len| texts(&bytes[..len]).is_none()));
        for at in [4, 8] {
            let mut other = bytes.clone();
            other[at] += 1;
            assert_eq!(texts(&other), None);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            elements in proptest::collection::vec(any::<u8>(), 0..60),
            (at, byte) in any::<(prop::sample::Index, u8)>(),
        ) {
            let len = elements.len() as u8;
            let mut bytes = vec![len + 11, 0, 0, 0, len, 0, 0, 0, 0xff, 0xff];
            bytes.extend_from_slice(&elements);
            bytes.push(END);
            let _ = texts(&bytes);
            let mut bytes = ziplist();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = texts(&bytes);
        }
    }
}
