//! Forms that Redis 7.0 reads and no longer writes: ziplists (`src/ziplist.c`)
//! and zipmaps (`src/zipmap.c`).
//!
//! ```text
//!  ziplist: bytes in all, 4 │ offset of the last element, 4 │ elements, 2 │ element ... │ 0xff
//!  element: length of the one before │ encoding │ bytes
//!  zipmap:  pairs, 1 │ length, field, length, unused bytes, 1, value, unused ... │ 0xff
//! ```
//! A length is one byte, or 254 and four; but in an encoding, where it has 6
//! bits, 14 or 32, the highest first.

use crate::format::{Reader, Text};
use crate::{Malformed, Visit};

const END: u8 = 0xff;
/// A length of more than one byte; or, of zipmaps, a count that does not fit.
const LONG: u8 = 254;
const ZIPLIST_HEADER_LEN: usize = 10;
/// A count that does not fit its place.
const UNCOUNTED: u16 = u16::MAX;

fn read_len(reader: &mut Reader<'_>) -> Option<usize> {
    Some(match reader.byte()? {
        END => return None,
        LONG => u32::from_le_bytes(reader.array()?) as usize,
        len => usize::from(len),
    })
}

/// Visits the elements of a ziplist, which must be whole and as many as it
/// says.
pub fn visit_ziplist<E: From<Malformed>>(bytes: &[u8], visit: &mut Visit<'_, E>) -> Result<(), E> {
    let mut header = Reader::new(bytes);
    let total = u32::from_le_bytes(header.array().ok_or(Malformed)?);
    let last_at = u32::from_le_bytes(header.array().ok_or(Malformed)?);
    let count = u16::from_le_bytes(header.array().ok_or(Malformed)?);
    let Some((&END, elements)) = bytes[ZIPLIST_HEADER_LEN..].split_last() else {
        return Err(Malformed.into());
    };
    let end = bytes.len() - 1;
    if total as usize != bytes.len() || last_at as usize > end {
        return Err(Malformed.into());
    }
    let mut reader = Reader::new(elements);
    let (mut before_len, mut seen, mut last) = (0, 0usize, None);
    while !reader.is_over() {
        let start = end - reader.left();
        if read_len(&mut reader) != Some(before_len) {
            return Err(Malformed.into());
        }
        visit(element(&mut reader).ok_or(Malformed)?)?;
        before_len = end - reader.left() - start;
        (last, seen) = (Some(start), seen + 1);
    }
    let is_last = last.is_none_or(|last| last == last_at as usize);
    let is_counted = count == UNCOUNTED || usize::from(count) == seen;
    if is_last && is_counted { Ok(()) } else { Err(Malformed.into()) }
}

fn element<'a>(reader: &mut Reader<'a>) -> Option<Text<'a>> {
    let first = reader.byte()?;
    let value = match first {
        0..0x40 => return reader.take(first.into()).map(Text::Plain),
        0x40..0x80 => {
            let len = u16::from_be_bytes([first & 0x3f, reader.byte()?]);
            return reader.take(len.into()).map(Text::Plain);
        }
        0x80..0xc0 => {
            let len = u32::from_be_bytes(reader.array()?);
            return reader.take(len as usize).map(Text::Plain);
        }
        0xc0 => i16::from_le_bytes(reader.array()?).into(),
        0xd0 => i32::from_le_bytes(reader.array()?).into(),
        0xe0 => i64::from_le_bytes(reader.array()?),
        0xf0 => {
            let [low, middle, high] = reader.array()?;
            (i32::from_le_bytes([0, low, middle, high]) >> 8).into()
        }
        0xfe => i8::from_le_bytes(reader.array()?).into(),
        0xf1..=0xfd => i64::from(first & 0xf) - 1,
        _ => return None,
    };
    Some(Text::Integer(value))
}

/// Visits fields and values of a zipmap in turn; it has some.
pub fn visit_zipmap<E: From<Malformed>>(bytes: &[u8], visit: &mut Visit<'_, E>) -> Result<(), E> {
    let Some((count, rest)) = bytes.split_first() else { return Err(Malformed.into()) };
    let Some((&END, pairs)) = rest.split_last() else { return Err(Malformed.into()) };
    let mut reader = Reader::new(pairs);
    let mut seen = 0usize;
    while !reader.is_over() {
        let (field, value) = pair(&mut reader).ok_or(Malformed)?;
        visit(Text::Plain(field))?;
        visit(Text::Plain(value))?;
        seen += 1;
    }
    let is_counted = *count == LONG || usize::from(*count) == seen;
    if seen > 0 && is_counted { Ok(()) } else { Err(Malformed.into()) }
}

fn pair<'a>(reader: &mut Reader<'a>) -> Option<(&'a [u8], &'a [u8])> {
    // A length that takes more bytes than it needs is read in two ways there.
    let read_len = |reader: &mut Reader<'a>| {
        let before = reader.left();
        read_len(reader).filter(|len| (before - reader.left() > 1) == (*len >= LONG.into()))
    };
    let field_len = read_len(reader)?;
    let field = reader.take(field_len)?;
    let value_len = read_len(reader)?;
    let unused = reader.byte()?;
    let value = reader.take(value_len)?;
    reader.take(unused.into())?;
    Some((field, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::texts_of;
    use proptest::prelude::*;

    type Read = fn(&[u8], &mut Visit<'_, Malformed>) -> Result<(), Malformed>;

    fn texts(read: Read, bytes: &[u8]) -> Option<Vec<String>> {
        let texts = texts_of(bytes, read)?;
        Some(texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect())
    }

    /// "hi", 2 in four bits, -3 in eight, 1024, a string with a length of 14
    /// bits.
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

    const ZIPMAP: &[u8] = b"\x02\x03foo\x03\x02barXY\x05hello\x05\x00world\xff";

    #[test]
    fn the_older_forms_are_read() {
        let expected = ["hi", "2", "-3", "1024", &"x".repeat(70)].map(str::to_owned).to_vec();
        assert_eq!(texts(visit_ziplist, &ziplist()), Some(expected));
        let expected = ["foo", "bar", "hello", "world"].map(str::to_owned).to_vec();
        assert_eq!(texts(visit_zipmap, ZIPMAP), Some(expected));
    }

    #[test]
    fn what_is_cut_off_or_miscounted_is_refused() {
        for (read, bytes) in [(visit_ziplist as Read, ziplist()), (visit_zipmap, ZIPMAP.to_vec())] {
            assert!((0..bytes.len()).all(|len| texts(read, &bytes[..len]).is_none()));
            let count_at = if bytes == ZIPMAP { 0 } else { 8 };
            let mut other = bytes.clone();
            other[count_at] += 1;
            assert_eq!(texts(read, &other), None);
        }
        assert_eq!(texts(visit_zipmap, b"\0\xff"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_them_panic(
            elements in proptest::collection::vec(any::<u8>(), 0..60),
            (at, byte) in any::<(prop::sample::Index, u8)>(),
        ) {
            let len = elements.len() as u8;
            let mut bytes = vec![len + 11, 0, 0, 0, len, 0, 0, 0, 0xff, 0xff];
            bytes.extend_from_slice(&elements);
            bytes.push(END);
            let _ = texts(visit_ziplist, &bytes);
            let _ = texts(visit_zipmap, &bytes[9..]);
            let mut bytes = ziplist();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = texts(visit_ziplist, &bytes);
        }
    }
}
