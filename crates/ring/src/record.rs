//! Records in a ring of bytes: `length: u32 | kind: u8 | flags: u8 | number: u16`, little-endian,
//! then the payload, and zeros up to a multiple of eight. The number grows by one with each record.

use crate::ends::{Consumer, Ended, Producer};
use crate::memory::Memory;

/// Bytes before each payload.
pub const RECORD_HEAD_LEN: usize = 8;

const ALIGN: usize = 8;

/// Returns the length of a record with a payload of `len` bytes.
pub const fn record_len(len: usize) -> usize {
    (RECORD_HEAD_LEN + len).next_multiple_of(ALIGN)
}

/// The fields of a record besides its payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// Its kind, defined by the users of the ring.
    pub kind: u8,
    /// Its flags, defined by the users of the ring.
    pub flags: u8,
}

/// The end that writes records.
#[derive(Debug)]
pub struct Records<M> {
    end: Producer<M>,
    number: u16,
}

impl<M: Memory> Records<M> {
    /// Creates it over the end of a new ring.
    pub fn new(end: Producer<M>) -> Self {
        Self { end, number: 0 }
    }

    /// Returns the length of the longest payload that ever fits, in bytes.
    pub fn payload_max(&self) -> usize {
        self.end.memory().capacity() - RECORD_HEAD_LEN
    }

    /// Writes a record. Returns `false` if there is no room for it now. The reader does not see it
    /// before [`Producer::publish`].
    ///
    /// # Errors
    /// Returns errors as [`Producer::free`] does.
    ///
    /// # Panics
    /// Panics if the payload is longer than [`Records::payload_max`].
    #[inline]
    pub fn push(&mut self, tag: Tag, payload: &[u8]) -> Result<bool, Ended> {
        assert!(payload.len() <= self.payload_max(), "a record longer than its ring");
        let len = record_len(payload.len());
        if self.end.free(len)? < len {
            return Ok(false);
        }
        let mut head = [0; RECORD_HEAD_LEN];
        head[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        (head[4], head[5]) = (tag.kind, tag.flags);
        head[6..].copy_from_slice(&self.number.to_le_bytes());
        self.end.put(&head);
        self.end.put(payload);
        self.end.skip(len - RECORD_HEAD_LEN - payload.len());
        self.number = self.number.wrapping_add(1);
        Ok(true)
    }

    /// Returns the end of the ring of bytes, to publish, park and close.
    pub fn end(&mut self) -> &mut Producer<M> {
        &mut self.end
    }
}

/// The end that reads records.
#[derive(Debug)]
pub struct RecordReader<M> {
    end: Consumer<M>,
    number: u16,
    payload_max: usize,
}

impl<M: Memory> RecordReader<M> {
    /// Creates it over the end of a new ring. A record whose payload is longer than `payload_max`
    /// bytes violates the rules.
    pub fn new(end: Consumer<M>, payload_max: usize) -> Self {
        Self { end, number: 0, payload_max }
    }

    /// Reads the next record, its payload into `into`, replacing the content. Returns `None` if
    /// there is none now. [`Consumer::release`] gives its room back to the producer.
    ///
    /// # Errors
    /// Returns errors as [`Consumer::available`] does, and [`Ended::Broken`] for bytes that are not
    /// a record.
    #[inline]
    pub fn next(&mut self, into: &mut Vec<u8>) -> Result<Option<Tag>, Ended> {
        let there = self.end.available(RECORD_HEAD_LEN)?;
        if there == 0 {
            return Ok(None);
        }
        if there < RECORD_HEAD_LEN {
            // Records are published whole.
            return Err(Ended::Broken);
        }
        let mut head = [0; RECORD_HEAD_LEN];
        self.end.take(&mut head);
        let payload = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let number = u16::from_le_bytes([head[6], head[7]]);
        if payload > self.payload_max || number != self.number {
            return Err(Ended::Broken);
        }
        let rest = record_len(payload) - RECORD_HEAD_LEN;
        if rest > 0 && self.end.available(rest).unwrap_or(0) < rest {
            return Err(Ended::Broken);
        }
        into.resize(payload, 0);
        self.end.take(into);
        self.end.skip(rest - payload);
        self.number = number.wrapping_add(1);
        Ok(Some(Tag { kind: head[4], flags: head[5] }))
    }

    /// Returns the end of the ring of bytes, to release, park and close.
    pub fn end(&mut self) -> &mut Consumer<M> {
        &mut self.end
    }
}
