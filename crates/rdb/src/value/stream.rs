//! Streams (`rdbSaveObject`, `src/t_stream.c` of Redis 7.0).
//!
//! ```text
//!  stream:   blocks, each an id of 16 bytes and a listpack │ entries │ newest id
//!            │ first id │ greatest deleted id │ entries ever added │ groups
//!  group:    name │ last id │ entries read │ deliveries: id, time, count
//!            │ consumers: name, time, time, ids of deliveries
//! ```
//! The first id, the deleted id, the added entries and the read entries were added with Redis 7.0,
//! and the second time of consumers with 7.2.

mod entries;

use super::ReadLimits;
use super::text::Held;
use crate::event::{History, Id, Part, Totals};
use crate::fault::{Fault, Form, StreamPart, What};
use crate::format::{Cursor, Stop};
use entries::Entries;

/// The contents of the forms of three versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StreamForm {
    Redis5,
    /// Also has counters of entries.
    Redis7,
    /// Also has the time at which a consumer last received something.
    Redis72,
}

/// A stream that is being read.
#[derive(Debug)]
pub(super) struct StreamReader {
    form: StreamForm,
    stage: Stage,
    /// Number of entries so far, and the last of them.
    len: u64,
    last: Option<Id>,
}

#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one for each reader")]
enum Stage {
    /// Before a block, or before what follows the blocks.
    Blocks {
        left: u64,
    },
    /// Within a block.
    Entries {
        entries: Entries,
        blocks_left: u64,
    },
    Totals,
    Groups {
        left: u64,
    },
    Pending {
        left: u64,
        last: Option<Id>,
        groups_left: u64,
    },
    Consumers {
        left: u64,
        groups_left: u64,
    },
    Owned {
        left: u64,
        consumers_left: u64,
        groups_left: u64,
    },
}

impl StreamReader {
    /// Creates the reader of a stream with this number of blocks.
    pub(super) fn new(form: StreamForm, blocks: u64) -> Self {
        Self { form, stage: Stage::Blocks { left: blocks }, len: 0, last: None }
    }

    pub(super) fn next<'a, 'b: 'a>(
        &mut self,
        held: &'a mut Held,
        limits: ReadLimits,
        cursor: &mut Cursor<'b>,
    ) -> Result<Option<Part<'a>>, Stop> {
        self.pass_ends(held)?;
        let mut ahead = *cursor;
        let part = match self.stage {
            Stage::Blocks { left } => self.block(left, held, limits, &mut ahead)?,
            Stage::Entries { .. } => return self.entry(held).map(Some),
            Stage::Totals => self.totals(&mut ahead)?,
            Stage::Groups { left: 0 } => return Ok(None),
            Stage::Groups { left } => self.group(left, held, limits, &mut ahead)?,
            Stage::Pending { left: 0, groups_left, .. } => {
                let left = ahead.read_len()?;
                self.stage = Stage::Consumers { left, groups_left };
                Part::Consumers(left)
            }
            Stage::Pending { left, last, groups_left } => {
                let id = Id::of_bytes(ahead.array()?);
                if last.is_some_and(|last| id <= last) {
                    return Err(wrong(cursor, StreamPart::Pending));
                }
                let (delivered_ms, deliveries) = (ahead.number()?, ahead.read_len()?);
                self.stage = Stage::Pending { left: left - 1, last: Some(id), groups_left };
                Part::Pending { id, delivered_ms, deliveries }
            }
            Stage::Consumers { left, groups_left } => {
                self.consumer((left, groups_left), held, limits, &mut ahead)?
            }
            Stage::Owned { left, consumers_left, groups_left } => {
                let id = Id::of_bytes(ahead.array()?);
                self.stage = Stage::Owned { left: left - 1, consumers_left, groups_left };
                Part::Owned(id)
            }
        };
        *cursor = ahead;
        Ok(Some(part))
    }

    /// Leaves stages that have nothing left to read.
    fn pass_ends(&mut self, held: &mut Held) -> Result<(), Stop> {
        loop {
            self.stage = match self.stage {
                Stage::Blocks { left: 0 } => Stage::Totals,
                Stage::Entries { mut entries, blocks_left } => {
                    let has_more = entries
                        .find_part(&held.block, &mut self.last)
                        .map_err(|what| Fault::new(held.block_at, what))?;
                    if has_more {
                        self.stage = Stage::Entries { entries, blocks_left };
                        return Ok(());
                    }
                    self.len = self.len.saturating_add(entries.seen());
                    Stage::Blocks { left: blocks_left }
                }
                Stage::Owned { left: 0, consumers_left, groups_left } => {
                    Stage::Consumers { left: consumers_left, groups_left }
                }
                Stage::Consumers { left: 0, groups_left } => Stage::Groups { left: groups_left },
                _ => return Ok(()),
            };
        }
    }

    fn block<'a>(
        &mut self,
        left: u64,
        held: &mut Held,
        limits: ReadLimits,
        cursor: &mut Cursor<'a>,
    ) -> Result<Part<'a>, Stop> {
        let start = *cursor;
        // An id of 16 bytes, written like any string.
        const ID_ALONE: ReadLimits = ReadLimits { string_len_max: 16, block_len_max: 16 };
        held.take_block(cursor, ID_ALONE).map_err(|stop| match stop {
            Stop::Wrong(_) => wrong(&start, StreamPart::BlockId),
            Stop::Short { .. } => stop,
        })?;
        let id: Option<[u8; 16]> = held.block.as_slice().try_into().ok();
        let first = id.map(Id::of_bytes).filter(|id| self.last.is_none_or(|last| *id > last));
        let first = first.ok_or(wrong(&start, StreamPart::BlockId))?;
        held.take_block(cursor, limits)?;
        let fault = |what| Fault::new(held.block_at, what);
        let (entries, block) = Entries::start(first, &held.block).map_err(fault)?;
        self.stage = Stage::Entries { entries, blocks_left: left - 1 };
        Ok(Part::Block(block))
    }

    fn entry<'a>(&mut self, held: &'a mut Held) -> Result<Part<'a>, Stop> {
        let Stage::Entries { entries, .. } = &mut self.stage else {
            return Err(Fault::new(held.block_at, What::Block(Form::Listpack)).into());
        };
        let fault = |what| Stop::Wrong(Fault::new(held.block_at, what));
        entries.part(&held.block, (&mut held.first, &mut held.second)).map_err(fault)
    }

    fn totals<'a>(&mut self, cursor: &mut Cursor<'a>) -> Result<Part<'a>, Stop> {
        let start = *cursor;
        let len = cursor.read_len()?;
        let newest = read_id(cursor)?;
        let history = if self.form >= StreamForm::Redis7 {
            let (first, deleted) = (read_id(cursor)?, read_id(cursor)?);
            Some(History { first, deleted, added: cursor.read_len()? })
        } else {
            None
        };
        if len != self.len || self.last.is_some_and(|last| newest < last) {
            return Err(wrong(&start, StreamPart::Length));
        }
        let groups = cursor.read_len()?;
        self.stage = Stage::Groups { left: groups };
        Ok(Part::Totals(Totals { len, newest, history, groups }))
    }

    fn group<'a, 'b: 'a>(
        &mut self,
        left: u64,
        held: &'a mut Held,
        limits: ReadLimits,
        cursor: &mut Cursor<'b>,
    ) -> Result<Part<'a>, Stop> {
        let name = held.first(cursor, limits)?;
        let last = read_id(cursor)?;
        let entries_read = if self.form >= StreamForm::Redis7 {
            let start = *cursor;
            let count = cursor.read_len()? as i64;
            if count < -1 {
                return Err(wrong(&start, StreamPart::Group));
            }
            Some(count)
        } else {
            None
        };
        let pending = cursor.read_len()?;
        self.stage = Stage::Pending { left: pending, last: None, groups_left: left - 1 };
        Ok(Part::Group { name, last, entries_read, pending })
    }

    /// Reads the next consumer, which must exist.
    fn consumer<'a, 'b: 'a>(
        &mut self,
        (left, groups_left): (u64, u64),
        held: &'a mut Held,
        limits: ReadLimits,
        cursor: &mut Cursor<'b>,
    ) -> Result<Part<'a>, Stop> {
        let name = held.first(cursor, limits)?;
        let seen_ms = cursor.number()?;
        let active_ms = match self.form {
            StreamForm::Redis72 => Some(cursor.number()? as i64),
            StreamForm::Redis5 | StreamForm::Redis7 => None,
        };
        let pending = cursor.read_len()?;
        let consumers_left = left.saturating_sub(1);
        self.stage = Stage::Owned { left: pending, consumers_left, groups_left };
        Ok(Part::Consumer { name, seen_ms, active_ms, pending })
    }
}

fn wrong(cursor: &Cursor<'_>, part: StreamPart) -> Stop {
    Stop::Wrong(cursor.fault(What::Stream(part)))
}

/// Reads the id of an entry, as two lengths.
fn read_id(cursor: &mut Cursor<'_>) -> Result<Id, Stop> {
    Ok(Id { ms: cursor.read_len()?, seq: cursor.read_len()? })
}
