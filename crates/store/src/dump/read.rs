use super::source::{Refusal, Source, Visit};
use super::stream;
use super::strings::Strings;
use crate::collections::score;
use crate::collections::stream::Stream;
use crate::collections::timed::TIME_MAX;
use keyway_memory::nodes::{self, NodeBox};
use keyway_rdb::format::{Reader, Text};
use keyway_rdb::{integers, kind, listpack, older};
use std::borrow::Cow;

/// How the strings of a block are found.
type VisitBlock = fn(&[u8], &mut Visit<'_>) -> Result<(), Refusal>;

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

    /// Whether it has elements, and no two where there is to be one.
    fn is_sound(&self, hash: &dyn Fn(&[u8]) -> u64) -> bool {
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

/// Reads a value, which may take up to `room` bytes. `hash` is one that nobody
/// can foresee. Bytes behind the value are ignored.
pub(crate) fn read<'a>(
    bytes: &'a [u8],
    room: usize,
    hash: &dyn Fn(&[u8]) -> u64,
) -> Result<Value<'a>, Refusal> {
    let mut reader = Reader::new(bytes);
    let kind = reader.byte().ok_or(Refusal::Form)?;
    let value = Source { reader, room }.value(kind)?;
    if value.is_sound(hash) { Ok(value) } else { Err(Refusal::Form) }
}

impl<'a> Source<'a> {
    fn value(mut self, kind: u8) -> Result<Value<'a>, Refusal> {
        Ok(match kind {
            kind::STRING => Value::Text(self.bytes()?),
            kind::LIST => Value::List(self.strings(1)?),
            kind::SET => Value::Set(self.strings(1)?),
            kind::HASH => Value::Hash(self.strings(2)?),
            kind::SORTED => self.scored(|reader| reader.array().map(f64::from_le_bytes))?,
            kind::SORTED_TEXT => self.scored(text_score)?,
            kind::LIST_ZIPLIST => Value::List(self.block(older::visit_ziplist)?),
            kind::LIST_ZIPLISTS => Value::List(self.blocks(false)?),
            kind::LIST_LISTPACKS => Value::List(self.blocks(true)?),
            kind::SET_INTEGERS => Value::Set(self.block(integers::visit)?),
            kind::HASH_ZIPMAP => Value::Hash(self.pairs(older::visit_zipmap)?),
            kind::HASH_ZIPLIST => Value::Hash(self.pairs(older::visit_ziplist)?),
            kind::HASH_LISTPACK => Value::Hash(self.pairs(listpack::visit)?),
            kind::SET_LISTPACK => Value::Set(self.block(listpack::visit)?),
            kind::STREAM_5 | kind::STREAM | kind::STREAM_72 => {
                let form = stream::Form::of(kind);
                Value::Stream(nodes::boxed(stream::read(&mut self, form)?))
            }
            kind::HASH_TIMES_EARLY => self.timed(None)?,
            kind::HASH_TIMES_LISTPACK_EARLY => self.timed_block()?,
            kind::HASH_TIMES => {
                let earliest = self.earliest()?;
                self.timed(Some(earliest))?
            }
            kind::HASH_TIMES_LISTPACK => {
                self.earliest()?;
                self.timed_block()?
            }
            kind::SORTED_ZIPLIST => self.scored_block(older::visit_ziplist)?,
            kind::SORTED_LISTPACK => self.scored_block(listpack::visit)?,
            _ => return Err(Refusal::Form),
        })
    }

    /// As many strings as a count says, `each` for one.
    fn strings(&mut self, each: usize) -> Result<Strings, Refusal> {
        let count = self.len()?;
        let mut strings = Strings::new(self.room);
        for _ in 0..count {
            for _ in 0..each {
                strings.push(self.reader.read_text().ok_or(Refusal::Form)?)?;
            }
        }
        Ok(strings)
    }

    /// Members and scores, each of which `score` reads.
    fn scored(
        &mut self,
        score: impl Fn(&mut Reader<'a>) -> Option<f64>,
    ) -> Result<Value<'a>, Refusal> {
        let count = self.len()?;
        let (mut members, mut scores) = (Strings::new(self.room), Vec::new());
        for _ in 0..count {
            members.push(self.reader.read_text().ok_or(Refusal::Form)?)?;
            let score = score(&mut self.reader).filter(|score| !score.is_nan());
            scores.push(score.ok_or(Refusal::Form)?);
        }
        Ok(Value::Sorted(members, scores))
    }

    /// The strings of a block.
    fn block(&mut self, visit: VisitBlock) -> Result<Strings, Refusal> {
        let block = self.bytes()?;
        let mut strings = Strings::new(self.room);
        visit(&block, &mut |text| strings.push(text))?;
        Ok(strings)
    }

    fn pairs(&mut self, visit: VisitBlock) -> Result<Strings, Refusal> {
        let strings = self.block(visit)?;
        if strings.len().is_multiple_of(2) { Ok(strings) } else { Err(Refusal::Form) }
    }

    /// When the first field of a hash expires.
    fn earliest(&mut self) -> Result<u64, Refusal> {
        self.reader.array().map(u64::from_le_bytes).ok_or(Refusal::Form)
    }

    /// Triples of a time, a field and a value. A time is 0 for never, or it
    /// counts from `earliest`, which is 1.
    fn timed(&mut self, earliest: Option<u64>) -> Result<Value<'a>, Refusal> {
        let count = self.len()?;
        let (mut strings, mut times) = (Strings::new(self.room), Vec::new());
        for _ in 0..count {
            let time = self.len()? as u64;
            let time = match earliest.filter(|_| time != 0) {
                Some(earliest) => (time - 1).checked_add(earliest).ok_or(Refusal::Form)?,
                None => time,
            };
            times.push(valid_time(time)?);
            for _ in 0..2 {
                strings.push(self.reader.read_text().ok_or(Refusal::Form)?)?;
            }
        }
        Ok(Value::Timed(strings, times))
    }

    /// Fields, values and times of a block, in turn.
    fn timed_block(&mut self) -> Result<Value<'a>, Refusal> {
        let block = self.bytes()?;
        let (mut strings, mut times) = (Strings::new(self.room), Vec::new());
        listpack::visit(&block, &mut |text| {
            if strings.len() < 2 * (times.len() + 1) {
                return strings.push(text);
            }
            let Text::Integer(time) = text else { return Err(Refusal::Form) };
            times.push(valid_time(u64::try_from(time).map_err(|_| Refusal::Form)?)?);
            Ok(())
        })?;
        let is_whole = strings.len() == 2 * times.len();
        if is_whole { Ok(Value::Timed(strings, times)) } else { Err(Refusal::Form) }
    }

    /// Members and scores of a block, in turn.
    fn scored_block(&mut self, visit: VisitBlock) -> Result<Value<'a>, Refusal> {
        let block = self.bytes()?;
        let (mut members, mut scores) = (Strings::new(self.room), Vec::new());
        visit(&block, &mut |text| {
            if scores.len() == members.len() {
                return members.push(text);
            }
            let score = match text {
                Text::Integer(value) => Some(value as f64),
                Text::Plain(text) => score::parse(text),
                Text::Packed { .. } => None,
            };
            scores.push(score.ok_or(Refusal::Form)?);
            Ok(())
        })?;
        let is_even = scores.len() == members.len();
        if is_even { Ok(Value::Sorted(members, scores)) } else { Err(Refusal::Form) }
    }

    /// The strings of as many blocks as a count says: ziplists, or listpacks
    /// and single strings, whose kind each is told before.
    fn blocks(&mut self, are_listpacks: bool) -> Result<Strings, Refusal> {
        const SINGLE: usize = 1;
        const LISTPACK: usize = 2;
        let count = self.len()?;
        let mut strings = Strings::new(self.room);
        for _ in 0..count {
            let container = if are_listpacks { Some(self.len()?) } else { None };
            let block = self.bytes()?;
            if block.is_empty() {
                return Err(Refusal::Form);
            }
            let mut add = |text: Text<'_>| strings.push(text);
            match container {
                None => older::visit_ziplist(&block, &mut add)?,
                Some(LISTPACK) => listpack::visit(&block, &mut add)?,
                Some(SINGLE) => add(Text::Plain(&block))?,
                Some(_) => return Err(Refusal::Form),
            }
        }
        Ok(strings)
    }
}

fn valid_time(time: u64) -> Result<u64, Refusal> {
    if time <= TIME_MAX { Ok(time) } else { Err(Refusal::Form) }
}

/// A score in decimal digits behind their number.
fn text_score(reader: &mut Reader<'_>) -> Option<f64> {
    match reader.byte()? {
        255 => Some(f64::NEG_INFINITY),
        254 => Some(f64::INFINITY),
        253 => None,
        len => score::parse(reader.take(len.into())?),
    }
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
                if let Ok(value) = read(&bytes, room, &|text| text.len() as u64) {
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
        let is_read = |bytes: &[u8]| read(bytes, usize::MAX, &|_| 7).is_ok();
        assert!(is_read(b"\x02\x03\x01a\x01b\x01c"));
        assert!(!is_read(b"\x02\x03\x01a\x01b\x01a"));
        assert!(is_read(b"\x04\x02\x01a\x01b\x01b\x01b"));
        assert!(!is_read(b"\x04\x02\x01a\x01b\x01a\x01c"));
        assert!(!is_read(b"\x02\x02\xc0\x05\x015"));
    }
}
