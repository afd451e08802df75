//! Zipmaps, in which servers before Redis 2.6 write small hashes
//! (`src/zipmap.c`).
//!
//! ```text
//!  zipmap: pairs, 1 │ length, field, length, unused bytes, 1, value, unused ... │ 0xff
//! ```
//! A length is one byte, or 254 and four bytes.

use crate::element::{Damaged, Slice, Text};

const END: u8 = 0xff;
/// Marks a length of more than one byte, or a count that does not fit.
const LONG: u8 = 254;

/// A position in a zipmap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    at: usize,
    /// Number of fields and values so far.
    seen: u64,
    count: Option<u64>,
}

/// Returns the first position, and the number of fields and values if the zipmap contains it. A
/// zipmap is never empty.
pub(crate) fn start(bytes: &[u8]) -> Result<(Walk, Option<u64>), Damaged> {
    let (count, pairs) = bytes.split_first().ok_or(Damaged)?;
    if pairs.last() != Some(&END) || pairs.len() == 1 {
        return Err(Damaged);
    }
    let count = (*count != LONG).then_some(2 * u64::from(*count));
    Ok((Walk { at: 1, seen: 0, count }, count))
}

impl Walk {
    /// Returns whether no element is left.
    pub(crate) fn is_over(&self, bytes: &[u8]) -> bool {
        self.at + 1 >= bytes.len()
    }

    /// Returns the next field or value, or `None` at the end, if the number of pairs is the
    /// announced one.
    pub(crate) fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<Text<'a>>, Damaged> {
        let rest = bytes.get(self.at..bytes.len() - 1).ok_or(Damaged)?;
        let is_field = self.seen.is_multiple_of(2);
        if rest.is_empty() {
            let is_counted = self.count.is_none_or(|count| count == self.seen);
            return if is_field && is_counted { Ok(None) } else { Err(Damaged) };
        }
        let mut slice = Slice::new(rest);
        let len = read_len(&mut slice)?;
        let unused = if is_field { 0 } else { slice.byte()? };
        let text = slice.take(len)?;
        slice.take(unused.into())?;
        self.at += rest.len() - slice.left();
        self.seen += 1;
        Ok(Some(Text::Plain(text)))
    }
}

/// Reads a length, unless it takes more bytes than needed: servers read such a length in two ways.
fn read_len(slice: &mut Slice<'_>) -> Result<usize, Damaged> {
    match slice.byte()? {
        END => Err(Damaged),
        LONG => {
            let len = u32::from_le_bytes(slice.array()?);
            if len < LONG.into() { Err(Damaged) } else { Ok(len as usize) }
        }
        len => Ok(usize::from(len)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Block, texts_of};
    use crate::fault::Form;
    use proptest::prelude::*;

    const ZIPMAP: &[u8] = b"\x02\x03foo\x03\x02barXY\x05hello\x05\x00world\xff";

    fn texts(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
        texts_of(Block::start(Form::Zipmap, bytes).ok()?.0, bytes)
    }

    #[test]
    fn a_zipmap_is_read_and_refused_when_it_is_cut_off_or_miscounted() {
        let expected = ["foo", "bar", "hello", "world"].map(|text| text.as_bytes().to_vec());
        assert_eq!(texts(ZIPMAP), Some(expected.to_vec()));
        assert!((0..ZIPMAP.len()).all(|len| texts(&ZIPMAP[..len]).is_none()));
        for (count, is_read) in [(1, false), (3, false), (254, true), (255, false)] {
            let mut other = ZIPMAP.to_vec();
            other[0] = count;
            assert_eq!(texts(&other).is_some(), is_read, "{count}");
        }
        assert_eq!(texts(b"\0\xff"), None);
        let mut long = b"\x01\xfe\xfe\0\0\0".to_vec();
        long.extend_from_slice(&[b'f'; 254]);
        long.extend_from_slice(b"\x01\0v\xff");
        assert_eq!(texts(&long), Some(vec![vec![b'f'; 254], b"v".to_vec()]));
        long[2] = 253;
        assert_eq!(texts(&long), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..60),
            (at, byte) in any::<(prop::sample::Index, u8)>(),
        ) {
            bytes.push(END);
            let _ = texts(&bytes);
            let mut bytes = ZIPMAP.to_vec();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = texts(&bytes);
        }
    }
}
