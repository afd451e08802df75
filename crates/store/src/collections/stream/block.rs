//! Blocks of entries whose field names are mostly the same.
//!
//! ```text
//!  block   count of fields │ names │ entry │ entry │ ...
//!  entry   length of what follows │ marks │ milliseconds past the block's id
//!          │ seq, past the block's id in its millisecond, unless 0
//!          │ the block's names:  value, value, ...
//!          │ or names of its own: count of fields, name, value, name, ...
//! ```
//! A removed entry leaves nothing, but counts towards the block's bounds.

use super::code::{Reader, Text, write_number};
use super::id::Id;
use super::weight;
use keyway_memory::nodes::{self, Node};
use smallvec::SmallVec;
use std::ops::Range;

/// Bytes that Redis would take for a block before the next one begins, its
/// `stream-node-max-bytes`.
const WEIGHT_MAX: usize = 4096;
/// Entries of a block, its `stream-node-max-entries`.
pub(crate) const ENTRIES_MAX: u16 = 100;

/// The entry has the block's names.
const SAME_NAMES: u8 = 1;
/// The entry has a sequence number.
const HAS_SEQ: u8 = 2;

/// Entries one behind the other, called after the first one.
#[derive(Clone)]
pub(crate) struct Block {
    bytes: Node<u8>,
    /// The last entry ever, removed or not.
    last: Id,
    /// The bytes that Redis would use for the block, including removed entries.
    weight: u32,
    /// Entries ever.
    added: u16,
    /// Entries that are there.
    live: u16,
}

impl Block {
    /// A block without entries, for those with these names.
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a [u8]> + Clone) -> Self {
        let mut bytes = nodes::empty();
        write_number(&mut bytes, names.clone().count() as u64);
        names.clone().for_each(|name| Text::of(name).write(&mut bytes));
        let weight = weight::of_block(names) as u32;
        Self { bytes, last: Id::ZERO, weight, added: 0, live: 0 }
    }

    #[inline]
    pub(crate) fn live(&self) -> u16 {
        self.live
    }

    /// The last entry that it ever had.
    #[inline]
    pub(crate) fn last(&self) -> Id {
        self.last
    }

    /// Bytes allocated.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        nodes::bytes(&self.bytes)
    }

    /// Moves its bytes, if they lie on a sparse page; whether they did.
    pub(crate) fn relocate(&mut self) -> bool {
        nodes::relocate(&mut self.bytes)
    }

    /// Returns whether an entry whose strings have `len` bytes is to go in here.
    pub(crate) fn takes(&self, len: usize) -> bool {
        self.weight as usize + len < WEIGHT_MAX && self.added < ENTRIES_MAX
    }

    /// Gives back room for entries that will not come.
    pub(crate) fn close(&mut self) {
        self.bytes.shrink_to_fit();
    }

    /// The number of names, and a reader at the first one.
    fn names(&self) -> (u64, Reader<'_>) {
        let mut reader = Reader::new(&self.bytes, 0);
        (reader.number(), reader)
    }

    /// Its names.
    pub(crate) fn name_texts(&self) -> impl ExactSizeIterator<Item = Text<'_>> {
        let (count, mut reader) = self.names();
        (0..count as usize).map(move |_| reader.text())
    }

    /// Counts what a block of Redis's had of bytes and entries, removed ones
    /// included, if that is more.
    pub(super) fn count_removed(&mut self, len: usize, entries: u64) {
        self.weight = self.weight.max(u32::try_from(len).unwrap_or(u32::MAX));
        self.added = self.added.max(u16::try_from(entries).unwrap_or(u16::MAX));
    }

    fn has_names<'a>(&self, mut names: impl Iterator<Item = &'a [u8]>) -> bool {
        let (count, mut reader) = self.names();
        for _ in 0..count {
            let Some(name) = names.next() else { return false };
            if !reader.text().with_bytes(|bytes| bytes == name) {
                return false;
            }
        }
        names.next().is_none()
    }

    /// Adds an entry behind the others; `first` is the block's id.
    pub(crate) fn push<'a>(
        &mut self,
        first: Id,
        id: Id,
        pairs: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    ) {
        let same = self.has_names(pairs.clone().map(|(name, _)| name));
        let ms = id.ms - first.ms;
        let seq = if ms == 0 { id.seq - first.seq } else { id.seq };
        let start = self.bytes.len();
        self.bytes.push(if same { SAME_NAMES } else { 0 } | if seq == 0 { 0 } else { HAS_SEQ });
        write_number(&mut self.bytes, ms);
        if seq != 0 {
            write_number(&mut self.bytes, seq);
        }
        if !same {
            write_number(&mut self.bytes, pairs.clone().count() as u64);
        }
        for (name, value) in pairs.clone() {
            if !same {
                Text::of(name).write(&mut self.bytes);
            }
            Text::of(value).write(&mut self.bytes);
        }
        // Its length goes before it.
        let end = self.bytes.len();
        write_number(&mut self.bytes, (end - start) as u64);
        let prefix_len = self.bytes.len() - end;
        self.bytes[start..].rotate_right(prefix_len);
        let delta = (ms as i64, id.seq.wrapping_sub(first.seq) as i64);
        self.weight += weight::of_entry(delta, same, pairs) as u32;
        self.last = id;
        self.added += 1;
        self.live += 1;
    }

    /// Its entries; `first` is the block's id.
    pub(crate) fn entries(&self, first: Id) -> Entries<'_> {
        let (count, names) = self.names();
        let mut rest = names;
        for _ in 0..count {
            rest.text();
        }
        Entries { block: self, first, names, name_count: count, rest }
    }

    /// Removes an entry; whether it was there.
    pub(crate) fn remove(&mut self, first: Id, id: Id) -> bool {
        let mut entries = self.entries(first);
        let mut start = entries.rest.at();
        while let Some(entry) = entries.next() {
            let end = entries.rest.at();
            if entry.id == id {
                self.cut(start..end, 1);
                return true;
            }
            start = end;
        }
        false
    }

    /// Removes entries from the first one on as long as `is_gone` says so of
    /// their ids; how many.
    pub(crate) fn trim(&mut self, first: Id, mut is_gone: impl FnMut(Id) -> bool) -> u16 {
        let mut entries = self.entries(first);
        let start = entries.rest.at();
        let (mut end, mut count) = (start, 0);
        while let Some(entry) = entries.next() {
            if !is_gone(entry.id) {
                break;
            }
            end = entries.rest.at();
            count += 1;
        }
        self.cut(start..end, count);
        count
    }

    fn cut(&mut self, range: Range<usize>, count: u16) {
        self.bytes.drain(range);
        self.live -= count;
        if self.bytes.capacity() > 4 * self.bytes.len() + 64 {
            self.bytes.shrink_to(2 * self.bytes.len());
        }
    }
}

/// The entries of a block, in order.
#[derive(Clone, Copy)]
pub(crate) struct Entries<'a> {
    block: &'a Block,
    first: Id,
    names: Reader<'a>,
    name_count: u64,
    rest: Reader<'a>,
}

impl<'a> Entries<'a> {
    /// Visits those that are left, the last one first.
    pub(crate) fn reversed(self) -> impl Iterator<Item = Entry<'a>> {
        let mut offsets: SmallVec<[usize; ENTRIES_MAX as usize]> = SmallVec::new();
        let mut rest = self.rest;
        while !rest.is_at_end() {
            offsets.push(rest.at());
            let len = rest.number() as usize;
            rest.skip(len);
        }
        offsets.into_iter().rev().filter_map(move |offset| {
            let rest = Reader::new(&self.block.bytes, offset);
            Entries { rest, ..self }.next()
        })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        if self.rest.is_at_end() {
            return None;
        }
        let len = self.rest.number() as usize;
        let mut reader = self.rest;
        self.rest.skip(len);
        let marks = self.block.bytes[reader.at()];
        reader.skip(1);
        let ms = reader.number();
        let mut seq = if marks & HAS_SEQ == 0 { 0 } else { reader.number() };
        if ms == 0 {
            seq += self.first.seq;
        }
        let id = Id { ms: self.first.ms + ms, seq };
        let (names, count) = match marks & SAME_NAMES {
            0 => (None, reader.number()),
            _ => (Some(self.names), self.name_count),
        };
        Some(Entry { id, pairs: Pairs { names, values: reader, left: count } })
    }
}

/// An entry to read.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) id: Id,
    pub(crate) pairs: Pairs<'a>,
}

/// Fields with their values, in the order they came in.
#[derive(Clone, Copy)]
pub(crate) struct Pairs<'a> {
    /// The block's names, unless the entry has its own before its values.
    names: Option<Reader<'a>>,
    values: Reader<'a>,
    left: u64,
}

impl Pairs<'_> {
    /// Returns whether they have the block's names, and none of their own.
    pub(crate) fn have_names_of_block(&self) -> bool {
        self.names.is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.left as usize
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (Text<'a>, Text<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name = match &mut self.names {
            Some(names) => names.text(),
            None => self.values.text(),
        };
        Some((name, self.values.text()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_block_takes_less_than_one_of_redis() {
        let values = |nth: u64| [format!("sensor-{}", nth % 7), format!("{}", 20_000 + 31 * nth)];
        for step in [1, 70, 5000] {
            let first = Id { ms: 1_700_000_000_000, seq: 0 };
            let names: [&[u8]; 2] = [b"source", b"value"];
            let mut block = Block::new(names.into_iter());
            for nth in 0.. {
                let values = values(nth);
                let pairs = names.into_iter().zip(values.iter().map(String::as_bytes));
                if !block.takes(30) {
                    break;
                }
                block.push(first, Id { ms: first.ms + step * nth, seq: nth % 2 }, pairs);
            }
            block.close();
            assert_eq!(block.live(), ENTRIES_MAX);
            assert!(block.room() * 5 < block.weight as usize * 4, "{}", block.room());
        }
    }
}
