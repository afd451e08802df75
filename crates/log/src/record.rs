//! The format of a segment.
//!
//! ```text
//!  segment:  "KWAYLOG1" │ id of the log │ number │ offset │ checksum       each 8 bytes
//!            record, record, …
//!  record:   checksum │ offset │ synced │ length (4) │ 0 (4) │ units       numbers are 8 bytes
//! ```
//! All numbers have their lowest byte first. Checksums are CRC-64 over the id of the log and all
//! bytes behind the checksum, or before it in the head of a segment. The id is a secret number:
//! a client cannot write a value that looks like a record.
//!
//! `offset` is that of the stream in front of the units. `synced` is an offset of the stream up
//! to which all was on the disk when the record was written. It tells damage from a torn tail,
//! see `segment.rs`. A record of length 0 says that alone.

use keyway_rdb::Crc64;

const MAGIC: [u8; 8] = *b"KWAYLOG1";
pub(crate) const SEGMENT_HEAD_LEN: usize = 40;
pub(crate) const RECORD_HEAD_LEN: usize = 32;

/// The head of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHead {
    pub(crate) id: u64,
    pub(crate) number: u64,
    /// The offset of the stream at which it begins.
    pub(crate) offset: u64,
}

impl SegmentHead {
    pub(crate) fn encode(self) -> [u8; SEGMENT_HEAD_LEN] {
        let mut bytes = [0; SEGMENT_HEAD_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        put(&mut bytes, 8, self.id);
        put(&mut bytes, 16, self.number);
        put(&mut bytes, 24, self.offset);
        let sum = checksum(self.id, &bytes[..32]);
        put(&mut bytes, 32, sum);
        bytes
    }

    /// Reads a head; none if it is no head of this log.
    pub(crate) fn decode(bytes: &[u8; SEGMENT_HEAD_LEN], id: u64) -> Option<Self> {
        let head = Self { id: get(bytes, 8), number: get(bytes, 16), offset: get(bytes, 24) };
        let is_whole = bytes[..8] == MAGIC && get(bytes, 32) == checksum(id, &bytes[..32]);
        (is_whole && head.id == id).then_some(head)
    }
}

/// The head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub(crate) checksum: u64,
    pub(crate) offset: u64,
    pub(crate) synced: u64,
    pub(crate) len: u32,
}

impl RecordHead {
    /// Reads a head; none if it cannot be one. The checksum is yet to be compared.
    pub(crate) fn decode(bytes: &[u8; RECORD_HEAD_LEN]) -> Option<Self> {
        let (checksum, offset, synced) = (get(bytes, 0), get(bytes, 8), get(bytes, 16));
        let lens = get(bytes, 24);
        let len = u32::try_from(lens).ok()?;
        let is_plausible = synced <= offset && offset.checked_add(len.into()).is_some();
        is_plausible.then_some(Self { checksum, offset, synced, len })
    }

    /// The sum of the head's bytes behind the checksum. Add the units.
    pub(crate) fn begin_sum(self, id: u64) -> Crc64 {
        let mut bytes = [0; RECORD_HEAD_LEN];
        put(&mut bytes, 8, self.offset);
        put(&mut bytes, 16, self.synced);
        put(&mut bytes, 24, self.len.into());
        let mut sum = Crc64::default();
        sum.update(&id.to_le_bytes());
        sum.update(&bytes[8..]);
        sum
    }
}

/// Fills the first [`RECORD_HEAD_LEN`] bytes of a record, whose units are behind them. The units
/// are shorter than 4 GiB.
pub(crate) fn seal(record: &mut [u8], id: u64, offset: u64, synced: u64) {
    let Some((bytes, units)) = record.split_first_chunk_mut::<RECORD_HEAD_LEN>() else { return };
    let head = RecordHead { checksum: 0, offset, synced, len: units.len() as u32 };
    let mut sum = head.begin_sum(id);
    sum.update(units);
    put(bytes, 0, sum.sum());
    put(bytes, 8, offset);
    put(bytes, 16, synced);
    put(bytes, 24, head.len.into());
}

fn checksum(id: u64, bytes: &[u8]) -> u64 {
    let mut sum = Crc64::default();
    sum.update(&id.to_le_bytes());
    sum.update(bytes);
    sum.sum()
}

fn put(bytes: &mut [u8], at: usize, number: u64) {
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

fn get(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}
