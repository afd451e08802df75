//! The memory of a ring.

use crate::layout::Header;

/// The memory of one ring.
///
/// # Safety
/// `header` must be the same for the memory's whole life. Both copies must work for every `at`
/// below `capacity` and every length up to `capacity`, wrapping around at the end. The copied bytes
/// may change meanwhile only if another process violates the rules.
pub unsafe trait Memory {
    /// Returns the part before the bytes.
    fn header(&self) -> &Header;

    /// Returns the number of bytes: a power of two.
    fn capacity(&self) -> usize;

    /// Writes `bytes` from `at` on.
    fn copy_in(&self, at: usize, bytes: &[u8]);

    /// Reads the bytes from `at` on.
    fn copy_out(&self, at: usize, into: &mut [u8]);
}

// SAFETY: it is the same memory.
unsafe impl<M: Memory> Memory for std::sync::Arc<M> {
    fn header(&self) -> &Header {
        (**self).header()
    }

    fn capacity(&self) -> usize {
        (**self).capacity()
    }

    #[inline]
    fn copy_in(&self, at: usize, bytes: &[u8]) {
        (**self).copy_in(at, bytes);
    }

    #[inline]
    fn copy_out(&self, at: usize, into: &mut [u8]) {
        (**self).copy_out(at, into);
    }
}
