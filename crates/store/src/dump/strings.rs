use super::source::Refusal;
use crate::algorithms::number::{INTEGER_LEN_MAX, format_integer};
use crate::items::STRING_LEN_MAX;
use keyway_rdb::format::{Text, unpack};

/// Bytes that a string takes besides its own.
const OVERHEAD: usize = size_of::<usize>();

/// Strings of a value that is being read, one behind the other.
pub(crate) struct Strings {
    bytes: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
    /// Bytes that may still be added.
    room: usize,
}

impl Strings {
    /// None yet; all together will take no more than `room` bytes.
    pub(super) fn new(room: usize) -> Self {
        Self { bytes: Vec::new(), ends: Vec::new(), room }
    }

    /// Adds a string.
    pub(super) fn push(&mut self, text: Text<'_>) -> Result<(), Refusal> {
        match text {
            Text::Plain(bytes) => {
                self.claim(bytes.len())?;
                self.bytes.extend_from_slice(bytes);
            }
            Text::Integer(value) => {
                self.claim(INTEGER_LEN_MAX)?;
                let digits = &mut [0; INTEGER_LEN_MAX];
                self.bytes.extend_from_slice(format_integer(value, digits));
            }
            Text::Packed { packed, len } => {
                self.claim(len)?;
                unpack(packed, len, &mut self.bytes).ok_or(Refusal::Form)?;
            }
        }
        self.ends.push(self.bytes.len());
        Ok(())
    }

    fn claim(&mut self, len: usize) -> Result<(), Refusal> {
        if len as u64 > STRING_LEN_MAX {
            return Err(Refusal::Form);
        }
        self.room = self.room.checked_sub(len + OVERHEAD).ok_or(Refusal::Room)?;
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of all strings.
    pub(crate) fn bytes_len(&self) -> usize {
        self.bytes.len() + self.ends.len() * OVERHEAD
    }

    /// String `index`, which is there.
    pub(crate) fn get(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[index]]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Whether all strings, or every `step`th of them, differ.
    pub(super) fn are_distinct(&self, step: usize, hash: &dyn Fn(&[u8]) -> u64) -> bool {
        let mut all: Vec<(u64, &[u8])> =
            self.iter().step_by(step).map(|text| (hash(text), text)).collect();
        all.sort_unstable();
        all.windows(2).all(|pair| pair[0] != pair[1])
    }
}
