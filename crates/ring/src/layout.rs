//! The shared data of one ring, before its bytes. Every word that one side writes while the other
//! reads it has cache lines of its own. Processors fetch lines in pairs, hence 128 bytes.

use crate::park::Parking;
use crate::sync::{AtomicU32, AtomicU64};

/// Length of the part before the bytes: a page, so that the bytes can be mapped twice.
pub const HEADER_LEN: usize = 4096;

/// The beginning of the memory: `KWRING01`. The last two characters are the layout's version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"KWRING01");

/// A word on cache lines of its own.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// The part before the bytes. The other process may write all of it at any time, so a reader checks
/// a copy.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Header {
    pub(crate) magic: Apart<AtomicU64>,
    /// Position after the last published byte; written by the producer.
    pub(crate) tail: Apart<AtomicU64>,
    /// Position of the first unread byte; written by the consumer.
    pub(crate) head: Apart<AtomicU64>,
    /// The word on which the consumer waits for bytes.
    pub(crate) reader: Apart<Parking>,
    /// The word on which the producer waits for room.
    pub(crate) writer: Apart<Parking>,
    /// Not zero once the producer will write no more.
    pub(crate) written_out: Apart<AtomicU32>,
    /// Not zero once the consumer will read no more.
    pub(crate) read_out: Apart<AtomicU32>,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Header>() <= HEADER_LEN);
