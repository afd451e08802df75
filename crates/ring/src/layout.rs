//! What two processes share of one ring, before its bytes. Every word that one side writes while
//! the other reads it lies on lines of its own: processors fetch lines in pairs, hence 128 bytes.

use crate::park::Parking;
use crate::sync::{AtomicU32, AtomicU64};

/// Length of the part before the bytes: a page, so that the bytes can be mapped twice.
pub const HEADER_LEN: usize = 4096;

/// What the memory begins with: `KWRING01`, the last two characters being the layout's version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"KWRING01");

/// Words on lines of their own.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// The part before the bytes. All of it may be written by the other process at any time: whoever
/// reads it judges a copy.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Header {
    pub(crate) magic: Apart<AtomicU64>,
    /// Position behind the last byte that was published; written by the producer.
    pub(crate) tail: Apart<AtomicU64>,
    /// Position of the first byte that was not read yet; written by the consumer.
    pub(crate) head: Apart<AtomicU64>,
    /// Where the consumer waits for bytes.
    pub(crate) reader: Apart<Parking>,
    /// Where the producer waits for room.
    pub(crate) writer: Apart<Parking>,
    /// Not zero once the producer writes no more.
    pub(crate) written_out: Apart<AtomicU32>,
    /// Not zero once the consumer reads no more.
    pub(crate) read_out: Apart<AtomicU32>,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Header>() <= HEADER_LEN);
