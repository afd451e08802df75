use super::stream;
use super::strings::Strings;
use crate::collections::stream::Stream;
use crate::collections::timed::TIME_MAX;
use crate::items::STRING_LEN_MAX;
use keyway_memory::nodes::{self, NodeBox};
use keyway_rdb::format::{Cursor, Encoded, Stop};
use keyway_rdb::{Kind, Opened, Part, ReadLimits, ValueReader, Version, What, kind, lzf};
use std::borrow::Cow;

/// Why a value is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It has no form there is.
    Form,
    /// It is larger than all memory there may be.
    Room,
}

impl From<Stop> for Refusal {
    fn from(stop: Stop) -> Self {
        let Stop::Wrong(fault) = stop else { return Self::Form };
        match fault.what() {
            What::StringLong { len, .. } | What::BlockLong { len, .. } if len <= STRING_LEN_MAX => {
                Self::Room
            }
            _ => Self::Form,
        }
    }
}

/// A value that was read. None but a string or a stream is empty.
pub(crate) enum Value<'a> {
    Text(Cow<'a, [u8]>),
    List(Strings),
    /// Members, each once.
    Set(Strings),
    /// Fields and values in turn, each field once.
    Hash(Strings),
    /// The same, and when each field expires, 0 for never.
    Timed(Strings, Vec<u64>),
    /// Members, each once, with scores that are numbers.
    Sorted(Strings, Vec<f64>),
    Stream(NodeBox<Stream>),
}

impl Value<'_> {
    /// Bytes that it takes as it is.
    pub(crate) fn bytes_len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::List(strings) | Self::Set(strings) | Self::Hash(strings) => strings.bytes_len(),
            Self::Sorted(strings, scores) => strings.bytes_len() + size_of_val(&scores[..]),
            Self::Stream(stream) => stream.bytes(),
            Self::Timed(strings, times) => strings.bytes_len() + size_of_val(&times[..]),
        }
    }

    /// Returns whether it has elements, and no two where there is to be one.
    pub(crate) fn is_sound(&self, hash: &dyn Fn(&[u8]) -> u64) -> bool {
        match self {
            Self::Text(_) | Self::Stream(_) => true,
            Self::List(strings) => strings.len() > 0,
            Self::Set(strings) | Self::Sorted(strings, _) => {
                strings.len() > 0 && strings.are_distinct(1, hash)
            }
            Self::Hash(strings) | Self::Timed(strings, _) => {
                strings.len() > 0 && strings.are_distinct(2, hash)
            }
        }
    }
}

/// Reads a value in a version's form, which may take up to `room` bytes.
/// `hash` is one that nobody can foresee. Bytes behind the value are ignored.
pub(crate) fn read<'a>(
    bytes: &'a [u8],
    version: Version,
    room: usize,
    hash: &dyn Fn(&[u8]) -> u64,
) -> Result<Value<'a>, Refusal> {
    let mut cursor = Cursor::new(bytes);
    let kind = cursor.byte()?;
    if kind == kind::STRING {
        return Ok(Value::Text(read_text(&mut cursor, room)?));
    }
    let longest = (room as u64).min(STRING_LEN_MAX);
    let limits = ReadLimits { string_len_max: longest, block_len_max: longest };
    let mut source = Source { reader: ValueReader::new(version, limits), cursor, room };
    let opened = source.reader.open(kind, &mut source.cursor)?;
    let value = source.value(opened)?;
    if value.is_sound(hash) { Ok(value) } else { Err(Refusal::Form) }
}

/// A string, which is copied only if it was packed.
fn read_text<'a>(cursor: &mut Cursor<'a>, room: usize) -> Result<Cow<'a, [u8]>, Refusal> {
    match cursor.read_string(STRING_LEN_MAX)? {
        Encoded::Plain(bytes) => Ok(Cow::Borrowed(bytes)),
        Encoded::Integer(value) => {
            let digits = value.to_string().into_bytes();
            if digits.len() > room { Err(Refusal::Room) } else { Ok(Cow::Owned(digits)) }
        }
        Encoded::Packed { len, .. } if len > room => Err(Refusal::Room),
        Encoded::Packed { packed, len } => {
            let mut bytes = Vec::new();
            lzf::unpack(packed, len, &mut bytes).map_err(|_| Refusal::Form)?;
            Ok(Cow::Owned(bytes))
        }
    }
}

/// The source of a value that is read.
pub(super) struct Source<'a> {
    reader: ValueReader,
    cursor: Cursor<'a>,
    /// Bytes that the value may take.
    pub(super) room: usize,
}

impl Source<'_> {
    /// The next part of the value; `None` once it is whole.
    pub(super) fn part(&mut self) -> Result<Option<Part<'_>>, Refusal> {
        Ok(self.reader.next(&mut self.cursor)?)
    }

    fn value(mut self, opened: Opened) -> Result<Value<'static>, Refusal> {
        let mut strings = Strings::new(self.room);
        let (mut scores, mut times) = (Vec::new(), Vec::new());
        if opened.kind == Kind::Stream {
            return Ok(Value::Stream(nodes::boxed(stream::read(&mut self)?)));
        }
        while let Some(part) = self.part()? {
            match part {
                Part::Element(text) | Part::Member(text) => strings.push(text)?,
                Part::Scored { member, score } => {
                    strings.push(member)?;
                    scores.push(score);
                }
                Part::Field { name, value, expires_ms } => {
                    strings.push(name)?;
                    strings.push(value)?;
                    if opened.kind == Kind::ExpiringHash {
                        times.push(valid_time(expires_ms.unwrap_or(0))?);
                    }
                }
                _ => return Err(Refusal::Form),
            }
        }
        Ok(match opened.kind {
            Kind::List => Value::List(strings),
            Kind::Set => Value::Set(strings),
            Kind::Sorted => Value::Sorted(strings, scores),
            Kind::Hash => Value::Hash(strings),
            Kind::ExpiringHash => Value::Timed(strings, times),
            Kind::Text | Kind::Stream => return Err(Refusal::Form),
        })
    }
}

fn valid_time(time: u64) -> Result<u64, Refusal> {
    if time <= TIME_MAX { Ok(time) } else { Err(Refusal::Form) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::number::INTEGER_LEN_MAX;
    use proptest::prelude::*;

    /// Blocks that are whole as far as their headers say.
    fn any_block() -> impl Strategy<Value = Vec<u8>> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
        prop_oneof![
            bytes(),
            bytes().prop_map(|elements| {
                let mut block = vec![elements.len() as u8 + 7, 0, 0, 0, 0xff, 0xff];
                block.extend_from_slice(&elements);
                block.push(0xff);
                block
            }),
            bytes().prop_map(|values| {
                let count = (values.len() / 2) as u8;
                let mut block = vec![2, 0, 0, 0, count, 0, 0, 0];
                block.extend_from_slice(&values[..2 * usize::from(count)]);
                block
            }),
        ]
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_take_more_than_its_room(
            kind in 0..27u8,
            version in proptest::sample::select(Version::ALL.as_slice()),
            head in proptest::collection::vec(any::<u8>(), 0..6),
            block in any_block(),
            wraps: bool,
        ) {
            let mut bytes = vec![kind];
            bytes.extend_from_slice(&head);
            if wraps {
                bytes.push(block.len() as u8 & 0x3f);
            }
            bytes.extend_from_slice(&block);
            for room in [usize::MAX, 100, 0] {
                if let Ok(value) = read(&bytes, version, room, &|text| text.len() as u64) {
                    let scores = match &value {
                        Value::Sorted(_, scores) => size_of_val(&scores[..]),
                        Value::Timed(_, times) => size_of_val(&times[..]),
                        Value::Text(Cow::Borrowed(text)) => text.len(),
                        // The digits of a number take none.
                        Value::Text(Cow::Owned(text)) => text.len().min(INTEGER_LEN_MAX),
                        _ => 0,
                    };
                    prop_assert!(value.bytes_len() - scores <= room);
                }
            }
        }
    }

    #[test]
    fn what_is_there_twice_is_refused_though_hashes_are_the_same() {
        let is_read = |bytes: &[u8]| read(bytes, Version::Redis10, usize::MAX, &|_| 7).is_ok();
        assert!(is_read(b"\x02\x03\x01a\x01b\x01c"));
        assert!(!is_read(b"\x02\x03\x01a\x01b\x01a"));
        assert!(is_read(b"\x04\x02\x01a\x01b\x01b\x01b"));
        assert!(!is_read(b"\x04\x02\x01a\x01b\x01a\x01c"));
        assert!(!is_read(b"\x02\x02\xc0\x05\x015"));
    }
}
