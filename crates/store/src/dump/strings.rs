use super::read::Refusal;

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
    pub(crate) fn new(room: usize) -> Self {
        Self { bytes: Vec::new(), ends: Vec::new(), room }
    }

    /// Adds a string.
    pub(crate) fn push(&mut self, text: &[u8]) -> Result<(), Refusal> {
        self.room = self.room.checked_sub(text.len() + OVERHEAD).ok_or(Refusal::Room)?;
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
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

    /// Returns whether all strings, or every `step`th of them, differ.
    pub(super) fn are_distinct(&self, step: usize, hash: &dyn Fn(&[u8]) -> u64) -> bool {
        let mut all: Vec<(u64, &[u8])> =
            self.iter().step_by(step).map(|text| (hash(text), text)).collect();
        all.sort_unstable();
        all.windows(2).all(|pair| pair[0] != pair[1])
    }
}
