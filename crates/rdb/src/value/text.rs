//! Returns strings as bytes, in whatever form they were written.

use super::ReadLimits;
use crate::element::Text;
use crate::fault::{Fault, What};
use crate::format::{Cursor, Encoded, Stop};
use crate::lzf;
use std::io::Write;

/// What a reader of values holds in addition to the caller's bytes.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// The block whose elements are being read, and its offset.
    pub(crate) block: Vec<u8>,
    pub(crate) block_at: u64,
    /// Buffers for two strings of a part that are not present in the caller's bytes.
    pub(crate) first: Vec<u8>,
    pub(crate) second: Vec<u8>,
}

impl Held {
    /// Returns the string at the cursor.
    pub(crate) fn first<'a, 'b: 'a>(
        &'a mut self,
        cursor: &mut Cursor<'b>,
        limits: ReadLimits,
    ) -> Result<&'a [u8], Stop> {
        text(cursor, limits, &mut self.first)
    }

    /// Returns two strings that follow each other.
    pub(crate) fn both<'a, 'b: 'a>(
        &'a mut self,
        cursor: &mut Cursor<'b>,
        limits: ReadLimits,
    ) -> Result<(&'a [u8], &'a [u8]), Stop> {
        let mut ahead = *cursor;
        let first = text(&mut ahead, limits, &mut self.first)?;
        let second = text(&mut ahead, limits, &mut self.second)?;
        *cursor = ahead;
        Ok((first, second))
    }

    /// Takes a block from the cursor.
    pub(crate) fn take_block(
        &mut self,
        cursor: &mut Cursor<'_>,
        limits: ReadLimits,
    ) -> Result<(), Stop> {
        let start = cursor.offset();
        let read = cursor.read_string(limits.block_len_max);
        let encoded = read.map_err(|stop| match stop {
            Stop::Wrong(fault) => match fault.what() {
                What::StringLong { len, max } => {
                    Stop::Wrong(Fault::new(start, What::BlockLong { len, max }))
                }
                _ => stop,
            },
            Stop::Short { .. } => stop,
        })?;
        self.block.clear();
        self.block_at = start;
        match encoded {
            Encoded::Plain(bytes) => self.block.extend_from_slice(bytes),
            Encoded::Integer(value) => write_digits(value, &mut self.block),
            Encoded::Packed { packed, len } => {
                let unpacked = lzf::unpack(packed, len, &mut self.block);
                unpacked.map_err(|_| Fault::new(start, What::Packed))?;
            }
        }
        Ok(())
    }
}

/// Returns the string at the cursor. It may have been created in `room`.
pub(crate) fn text<'a, 'b: 'a>(
    cursor: &mut Cursor<'b>,
    limits: ReadLimits,
    room: &'a mut Vec<u8>,
) -> Result<&'a [u8], Stop> {
    let start = *cursor;
    let mut ahead = start;
    let encoded = ahead.read_string(limits.string_len_max)?;
    *cursor = ahead;
    room.clear();
    match encoded {
        Encoded::Plain(bytes) => return Ok(bytes),
        Encoded::Integer(value) => write_digits(value, room),
        Encoded::Packed { packed, len } => {
            lzf::unpack(packed, len, room).map_err(|_| start.fault(What::Packed))?;
        }
    }
    Ok(room)
}

/// Returns the bytes of an element. They may have been created in `room`.
pub(crate) fn element<'a>(text: Text<'a>, room: &'a mut Vec<u8>) -> &'a [u8] {
    match text {
        Text::Plain(bytes) => bytes,
        Text::Integer(value) => {
            room.clear();
            write_digits(value, room);
            room
        }
    }
}

fn write_digits(value: i64, out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = write!(out, "{value}");
}
