//! The entries of a block.
//!
//! ```text
//!  listpack: live, deleted, fields, name ..., 0 │ entry ...
//!  entry:    marks, id past the block's, seq past the block's
//!            │ value ...  or  fields, name, value ... │ elements
//! ```

use crate::block::Block;
use crate::element::{Damaged, Text};
use crate::event::{Id, Part, StreamBlock};
use crate::fault::{Form, StreamPart, What};
use crate::value::text::element;

/// Flags of an entry.
const DELETED: i64 = 1;
const SHARES_FIELDS: i64 = 2;
/// Number of elements of an entry besides names and values: with the block's names, or with its own
/// names, whose number is one more element.
const AROUND_SHARED: i64 = 3;
const AROUND_OWN: i64 = 4;

/// A position in a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entries {
    first: Id,
    /// The next element.
    at: Block,
    /// The first of the block's names, and their number.
    names: Block,
    name_count: i64,
    /// Number of entries that were not read yet, and of those that are not deleted.
    left: i64,
    live: i64,
    seen: i64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Names {
        left: i64,
    },
    /// Before an entry.
    Between,
    /// The head of an entry was read.
    Head(Head),
    Fields {
        head: Head,
        left: i64,
        names: Block,
    },
}

#[derive(Clone, Copy, Debug)]
struct Head {
    id: Id,
    fields: i64,
    shares_fields: bool,
    is_deleted: bool,
}

impl Head {
    /// Returns the number of names and values, with the elements around them.
    fn elements(self) -> Option<i64> {
        match self.shares_fields {
            true => self.fields.checked_add(AROUND_SHARED),
            false => self.fields.checked_mul(2)?.checked_add(AROUND_OWN),
        }
    }
}

impl From<Damaged> for What {
    fn from(_: Damaged) -> Self {
        Self::Block(Form::Listpack)
    }
}

const WRONG: What = What::Stream(StreamPart::Block);

fn integer(at: &mut Block, bytes: &[u8]) -> Result<i64, What> {
    match at.next(bytes)? {
        Some(Text::Integer(value)) => Ok(value),
        Some(Text::Plain(text)) => keyway_resp::parse_integer(text).ok_or(WRONG),
        None => Err(WRONG),
    }
}

impl Entries {
    /// Returns the position before the first name of a block.
    pub(super) fn start(first: Id, bytes: &[u8]) -> Result<(Self, StreamBlock), What> {
        let (mut at, _) = Block::start(Form::Listpack, bytes)?;
        let (live, deleted) = (integer(&mut at, bytes)?, integer(&mut at, bytes)?);
        let name_count = integer(&mut at, bytes)?;
        let left = live.checked_add(deleted).ok_or(WRONG)?;
        if live < 0 || deleted < 0 || name_count < 0 {
            return Err(WRONG);
        }
        let block = StreamBlock {
            first,
            entries: live as u64,
            deleted: deleted as u64,
            fields: name_count as u64,
            len: bytes.len() as u64,
        };
        let stage = Stage::Names { left: name_count };
        Ok((Self { first, at, names: at, name_count, left, live, seen: 0, stage }, block))
    }

    /// Returns the number of entries so far that are not deleted.
    pub(super) fn seen(&self) -> u64 {
        self.seen as u64
    }

    /// Moves to the next part. Returns whether there is one. `last` is the last entry of the
    /// stream.
    pub(super) fn find_part(&mut self, bytes: &[u8], last: &mut Option<Id>) -> Result<bool, What> {
        loop {
            match self.stage {
                Stage::Names { left: 0 } => {
                    if integer(&mut self.at, bytes)? != 0 {
                        return Err(WRONG);
                    }
                    self.stage = Stage::Between;
                }
                Stage::Between if self.left == 0 => {
                    let is_whole = self.at.next(bytes)?.is_none() && self.seen == self.live;
                    return if is_whole { Ok(false) } else { Err(WRONG) };
                }
                Stage::Between => {
                    self.left -= 1;
                    let head = self.head(bytes)?;
                    if head.is_deleted {
                        self.stage = self.fields_of(head);
                        continue;
                    }
                    if head.id < self.first || last.is_some_and(|last| head.id <= last) {
                        return Err(What::Stream(StreamPart::EntryId));
                    }
                    *last = Some(head.id);
                    self.seen += 1;
                    self.stage = Stage::Head(head);
                }
                Stage::Fields { head, left: 0, .. } => {
                    if Some(integer(&mut self.at, bytes)?) != head.elements() {
                        return Err(WRONG);
                    }
                    self.stage = Stage::Between;
                }
                Stage::Fields { head, left, names } if head.is_deleted => {
                    for _ in 0..if head.shares_fields { 1 } else { 2 } {
                        self.at.next(bytes)?.ok_or(WRONG)?;
                    }
                    self.stage = Stage::Fields { head, left: left - 1, names };
                }
                Stage::Names { .. } | Stage::Head(_) | Stage::Fields { .. } => return Ok(true),
            }
        }
    }

    fn head(&mut self, bytes: &[u8]) -> Result<Head, What> {
        let marks = integer(&mut self.at, bytes)?;
        let id = Id {
            ms: self.first.ms.wrapping_add_signed(integer(&mut self.at, bytes)?),
            seq: self.first.seq.wrapping_add_signed(integer(&mut self.at, bytes)?),
        };
        let shares_fields = marks & SHARES_FIELDS != 0;
        let fields = if shares_fields { self.name_count } else { integer(&mut self.at, bytes)? };
        if fields < 0 {
            return Err(WRONG);
        }
        Ok(Head { id, fields, shares_fields, is_deleted: marks & DELETED != 0 })
    }

    fn fields_of(&self, head: Head) -> Stage {
        Stage::Fields { head, left: head.fields, names: self.names }
    }

    /// Returns the part that [`Entries::find_part`] has found.
    pub(super) fn part<'a>(
        &mut self,
        bytes: &'a [u8],
        (first, second): (&'a mut Vec<u8>, &'a mut Vec<u8>),
    ) -> Result<Part<'a>, What> {
        match self.stage {
            Stage::Names { left } => {
                self.stage = Stage::Names { left: left.saturating_sub(1) };
                Ok(Part::BlockField(element(self.at.next(bytes)?.ok_or(WRONG)?, first)))
            }
            Stage::Between => Err(WRONG),
            Stage::Head(head) => {
                self.stage = self.fields_of(head);
                let (id, shares_fields) = (head.id, head.shares_fields);
                Ok(Part::Entry { id, fields: head.fields as u64, shares_fields })
            }
            Stage::Fields { head, left, mut names } => {
                let name = match head.shares_fields {
                    true => names.next(bytes)?,
                    false => self.at.next(bytes)?,
                };
                let name = element(name.ok_or(WRONG)?, first);
                let value = element(self.at.next(bytes)?.ok_or(WRONG)?, second);
                self.stage = Stage::Fields { head, left: left.saturating_sub(1), names };
                Ok(Part::EntryField { name, value })
            }
        }
    }
}
