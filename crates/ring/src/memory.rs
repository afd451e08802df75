//! Where a ring lies.

use crate::layout::Header;

/// The memory of one ring.
///
/// # Safety
/// `header` is the same for the memory's whole life. Both copies work for every `at` below
/// `capacity` and every length up to `capacity`, going on at the beginning behind the end; what
/// they copy may change meanwhile only if another process does not keep to the rules.
pub unsafe trait Memory {
    /// What comes before the bytes.
    fn header(&self) -> &Header;

    /// How many bytes there are: a power of two.
    fn capacity(&self) -> usize;

    /// Writes `bytes` from `at` on.
    fn copy_in(&self, at: usize, bytes: &[u8]);

    /// Reads what is from `at` on.
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
