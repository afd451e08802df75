/// A range of bytes in a buffer that someone else owns: `start..end`, in bytes from the buffer's
/// beginning. [`crate::Limits`] bounds requests and replies well below 4 GiB, so 32 bits are
/// enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte of the run.
    pub start: u32,
    /// One past the last byte of the run; never less than `start`.
    pub end: u32,
}

impl ByteRange {
    /// Returns a run from `start` (inclusive) to `end` (exclusive).
    #[inline]
    pub fn new(start: usize, end: usize) -> Self {
        debug_assert!(start <= end && end <= u32::MAX as usize);
        Self { start: start as u32, end: end as u32 }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Returns whether the run holds no byte.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Returns the bytes of `buf` in this range.
    ///
    /// # Panics
    /// Panics if the range does not lie in `buf`: Keyway's own parser makes ranges from the very
    /// buffer they are applied to.
    #[inline]
    pub fn of(self, buf: &[u8]) -> &[u8] {
        &buf[self.start as usize..self.end as usize]
    }
}
