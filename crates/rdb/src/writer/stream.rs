//! Writes streams part by part. Deleted entries of a block are not written.

use super::WriteFault;
use crate::event::{Id, Part, StreamBlock, Totals};
use crate::format::{write_bytes, write_len};
use crate::kind;
use crate::listpack::Listpack;

/// The flag of an entry that has the fields of its block.
const SHARES_FIELDS: i64 = 2;
/// Number of elements of an entry besides names and values: with the block's names, or with its own
/// names, whose number is one more element.
const AROUND_SHARED: i64 = 3;
const AROUND_OWN: i64 = 4;

/// A stream that is being written.
#[derive(Debug)]
pub(super) struct StreamWriter {
    /// The type, which decides what else is written.
    kind: u8,
    stage: Stage,
    block: Option<Block>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Blocks { left: u64 },
    Groups { left: u64 },
    Pending { left: u64, groups_left: u64 },
    Consumers { left: u64, groups_left: u64 },
    Owned { left: u64, consumers_left: u64, groups_left: u64 },
}

/// An incomplete block.
#[derive(Debug)]
struct Block {
    first: Id,
    listpack: Listpack,
    /// Numbers of missing names of the block, of missing fields of the entry, and of missing
    /// entries.
    names_left: u64,
    fields_left: u64,
    entries_left: u64,
    shares_fields: bool,
    /// The number after the entry.
    elements: i64,
}

impl Block {
    fn new(block: &StreamBlock) -> Result<Self, WriteFault> {
        let signed = |count: u64| i64::try_from(count).map_err(|_| WriteFault::Order);
        let mut listpack = Listpack::new();
        for value in [signed(block.entries)?, 0, signed(block.fields)?] {
            listpack.push_integer(value);
        }
        let mut new = Self {
            first: block.first,
            listpack,
            names_left: block.fields,
            fields_left: 0,
            entries_left: block.entries,
            shares_fields: false,
            elements: 0,
        };
        new.end_names();
        Ok(new)
    }

    fn end_names(&mut self) {
        if self.names_left == 0 {
            self.listpack.push_integer(0);
        }
    }

    fn end_entry(&mut self) {
        if self.fields_left == 0 {
            self.listpack.push_integer(self.elements);
        }
    }

    fn is_whole(&self) -> bool {
        self.names_left == 0 && self.fields_left == 0 && self.entries_left == 0
    }

    fn part(&mut self, part: &Part<'_>) -> Result<(), WriteFault> {
        match part {
            Part::BlockField(name) if self.names_left > 0 => {
                self.listpack.push(name);
                self.names_left -= 1;
                self.end_names();
            }
            Part::Entry { id, fields, shares_fields }
                if self.names_left == 0 && self.fields_left == 0 && self.entries_left > 0 =>
            {
                let count = i64::try_from(*fields).ok().filter(|count| *count < i64::MAX / 4);
                let count = count.ok_or(WriteFault::Order)?;
                self.listpack.push_integer(if *shares_fields { SHARES_FIELDS } else { 0 });
                self.listpack.push_integer(id.ms.wrapping_sub(self.first.ms) as i64);
                self.listpack.push_integer(id.seq.wrapping_sub(self.first.seq) as i64);
                if !shares_fields {
                    self.listpack.push_integer(count);
                }
                let own = AROUND_OWN + 2 * count;
                self.elements = if *shares_fields { AROUND_SHARED + count } else { own };
                (self.fields_left, self.shares_fields) = (*fields, *shares_fields);
                self.entries_left -= 1;
                self.end_entry();
            }
            Part::EntryField { name, value } if self.fields_left > 0 => {
                if !self.shares_fields {
                    self.listpack.push(name);
                }
                self.listpack.push(value);
                self.fields_left -= 1;
                self.end_entry();
            }
            _ => return Err(WriteFault::Order),
        }
        Ok(())
    }
}

impl StreamWriter {
    /// Creates the writer of a stream with this number of blocks, which is already written.
    pub(super) fn new(kind: u8, blocks: u64) -> Self {
        Self { kind, stage: Stage::Blocks { left: blocks }, block: None }
    }

    pub(super) fn is_whole(&self) -> bool {
        matches!(self.stage, Stage::Groups { left: 0 })
    }

    pub(super) fn part(&mut self, part: &Part<'_>, out: &mut Vec<u8>) -> Result<(), WriteFault> {
        if let Stage::Blocks { left } = self.stage {
            return self.block_part(left, part, out);
        }
        self.stage = match (self.stage, *part) {
            (Stage::Groups { left }, Part::Group { name, last, entries_read, pending })
                if left > 0 =>
            {
                write_bytes(name, out);
                write_id(last, out);
                if self.kind != kind::STREAM_5 {
                    // -1 means unknown.
                    write_len(entries_read.unwrap_or(-1) as u64, out);
                }
                write_len(pending, out);
                Stage::Pending { left: pending, groups_left: left - 1 }
            }
            (
                Stage::Pending { left, groups_left },
                Part::Pending { id, delivered_ms, deliveries },
            ) if left > 0 => {
                out.extend_from_slice(&id.to_bytes());
                out.extend_from_slice(&delivered_ms.to_le_bytes());
                write_len(deliveries, out);
                Stage::Pending { left: left - 1, groups_left }
            }
            (Stage::Pending { left: 0, groups_left }, Part::Consumers(count)) => {
                write_len(count, out);
                Stage::Consumers { left: count, groups_left }
            }
            (
                Stage::Consumers { left, groups_left },
                Part::Consumer { name, seen_ms, active_ms, pending },
            ) if left > 0 => {
                write_bytes(name, out);
                out.extend_from_slice(&seen_ms.to_le_bytes());
                if self.kind == kind::STREAM_72 {
                    // Servers that read the older form use the same value.
                    let active_ms = active_ms.unwrap_or(seen_ms as i64);
                    out.extend_from_slice(&active_ms.to_le_bytes());
                }
                write_len(pending, out);
                Stage::Owned { left: pending, consumers_left: left - 1, groups_left }
            }
            (Stage::Owned { left, consumers_left, groups_left }, Part::Owned(id)) if left > 0 => {
                out.extend_from_slice(&id.to_bytes());
                Stage::Owned { left: left - 1, consumers_left, groups_left }
            }
            _ => return Err(WriteFault::Order),
        };
        self.pass_ends();
        Ok(())
    }

    /// Leaves stages that have nothing left to write.
    fn pass_ends(&mut self) {
        if let Stage::Owned { left: 0, consumers_left, groups_left } = self.stage {
            self.stage = Stage::Consumers { left: consumers_left, groups_left };
        }
        if let Stage::Consumers { left: 0, groups_left } = self.stage {
            self.stage = Stage::Groups { left: groups_left };
        }
    }

    fn block_part(
        &mut self,
        left: u64,
        part: &Part<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), WriteFault> {
        match (&mut self.block, part) {
            (None, Part::Block(block)) if left > 0 => self.block = Some(Block::new(block)?),
            (None, Part::Totals(totals)) if left == 0 => {
                self.totals(totals, out);
                return Ok(());
            }
            (Some(block), part) => block.part(part)?,
            _ => return Err(WriteFault::Order),
        }
        if let Some(block) = self.block.take_if(|block| block.is_whole()) {
            write_bytes(&block.first.to_bytes(), out);
            write_bytes(&block.listpack.finish(), out);
            self.stage = Stage::Blocks { left: left - 1 };
        }
        Ok(())
    }

    fn totals(&mut self, totals: &Totals, out: &mut Vec<u8>) {
        write_len(totals.len, out);
        write_id(totals.newest, out);
        if self.kind != kind::STREAM_5 {
            let history = totals.history.unwrap_or(crate::event::History {
                // Servers find the first entry by themselves.
                first: Id::default(),
                deleted: Id::default(),
                added: totals.len,
            });
            write_id(history.first, out);
            write_id(history.deleted, out);
            write_len(history.added, out);
        }
        write_len(totals.groups, out);
        self.stage = Stage::Groups { left: totals.groups };
    }
}

fn write_id(id: Id, out: &mut Vec<u8>) {
    write_len(id.ms, out);
    write_len(id.seq, out);
}
