//! Separate blocks, above [`SLOT_LEN_MAX`](crate::SLOT_LEN_MAX): runs, and the longest ones, from
//! the global allocator.
//!
//! A prefix before the block contains its length and the number of its loans.

use super::Heap;
use crate::discarded::Block;
use crate::runs::{RUN_LEN_MAX, run_len};
use std::alloc::{Layout, alloc, handle_alloc_error, realloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of bytes before a separate block: its length and the number of its loans, padded to keep
/// the block's alignment.
const LARGE_PREFIX_LEN: usize = 16;

/// Offset of the number of loans in the prefix.
const LOANS_AT: usize = 8;

/// A bit in the number of loans: the owner has freed the block.
const LEFT: u32 = 1 << 31;

const LARGE_ALIGN: usize = 16;

fn large_layout(total_len: usize) -> Layout {
    match Layout::from_size_align(total_len, LARGE_ALIGN) {
        Ok(layout) => layout,
        Err(_) => handle_alloc_error(Layout::new::<u8>()),
    }
}

/// Returns whether a block for `capacity` bytes comes from the global allocator.
pub const fn is_mapped(capacity: usize) -> bool {
    capacity + LARGE_PREFIX_LEN > RUN_LEN_MAX
}

/// Returns the bytes of a separate block for `capacity` bytes, including its prefix. The longest
/// blocks fill the pages that are mapped for them and for the C library's header.
#[inline]
pub(super) const fn large_len(capacity: usize) -> usize {
    let len = capacity + LARGE_PREFIX_LEN;
    if len <= RUN_LEN_MAX { run_len(len) } else { (len + 16).next_multiple_of(4096) - 16 }
}

impl Heap {
    /// Returns a separate block for at least `capacity` bytes, with undefined content.
    pub fn large(&self, capacity: usize) -> NonNull<u8> {
        let full = || handle_alloc_error(large_layout(large_len(capacity)));
        self.try_large(capacity).unwrap_or_else(full)
    }

    /// Does the same, but returns `None` if the system has no memory.
    pub fn try_large(&self, capacity: usize) -> Option<NonNull<u8>> {
        let len = large_len(capacity);
        let start = if len <= RUN_LEN_MAX {
            let (start, held) = self.runs.lock().take(len);
            self.note_idle(held - len as i64);
            start
        } else {
            // SAFETY: the layout is not empty.
            NonNull::new(unsafe { alloc(large_layout(len)) })?
        };
        // SAFETY: the prefix lies in the block.
        unsafe {
            start.cast::<usize>().write(len - LARGE_PREFIX_LEN);
            start.add(LOANS_AT).cast::<u32>().write(0);
            Some(start.add(LARGE_PREFIX_LEN))
        }
    }

    /// Resizes a block for `capacity` bytes, and moves it if necessary.
    ///
    /// # Safety
    /// `block` must come from [`Heap::large`] or this function and must not be lent. Only the
    /// result may be used afterwards.
    pub unsafe fn resize_large(&self, block: NonNull<u8>, capacity: usize) -> NonNull<u8> {
        // SAFETY: by contract the prefix is in front of the block and tells
        // with which length it was allocated.
        unsafe {
            let (old_len, len) = (large_bytes(block), large_len(capacity));
            if old_len <= RUN_LEN_MAX || len <= RUN_LEN_MAX {
                let moved = self.large(capacity);
                let kept = old_len.min(len) - LARGE_PREFIX_LEN;
                moved.copy_from_nonoverlapping(block, kept);
                self.free_large(block);
                return moved;
            }
            let (old, new) = (large_layout(old_len), large_layout(len));
            let start = block.as_ptr().sub(LARGE_PREFIX_LEN);
            let Some(start) = NonNull::new(realloc(start, old, new.size())) else {
                handle_alloc_error(new)
            };
            start.cast::<usize>().write(len - LARGE_PREFIX_LEN);
            start.add(LARGE_PREFIX_LEN)
        }
    }

    /// Frees a separate block, or leaves it to those to which it is lent. Returns the bytes that it
    /// took.
    ///
    /// # Safety
    /// `block` must come from [`Heap::large`], and only its borrowers may still use it.
    pub unsafe fn free_large(&self, block: NonNull<u8>) -> usize {
        // SAFETY: by contract the block is live, and freed by whoever is the last.
        unsafe {
            let len = large_bytes(block);
            // ORDER: pairs with those of `end_loan`: what was read of it was read before.
            if loans(block).fetch_or(LEFT, Ordering::AcqRel) == 0 {
                self.free_left(block, len);
            } else {
                self.note_outside(len as i64);
            }
            len
        }
    }

    /// Ends a loan of a block.
    ///
    /// # Safety
    /// [`lend`] must have lent `block` for this loan, and the borrower must not use it again.
    pub unsafe fn end_loan(&self, block: NonNull<u8>) {
        // SAFETY: as above.
        unsafe {
            // ORDER: pairs with `free_large`, `is_lent` and itself: what was read of the
            // block was read before it is changed or freed.
            if loans(block).fetch_sub(1, Ordering::AcqRel) == LEFT | 1 {
                let len = large_bytes(block);
                self.note_outside(-(len as i64));
                self.free_left(block, len);
            }
        }
    }

    /// Frees a block of the global allocator of which only the first `used` bytes were ever
    /// written.
    ///
    /// # Safety
    /// `block` must come from [`Heap::try_large`] and be one that [`is_mapped`]. It must not be in
    /// use.
    pub unsafe fn free_unfilled(&self, block: NonNull<u8>, used: usize) {
        // SAFETY: by contract.
        unsafe { self.free_left(block, large_bytes(block).min(used + LARGE_PREFIX_LEN)) };
    }

    /// # Safety
    /// `block` must come from [`Heap::large`] and must not be in use, and nothing was written after
    /// its first `used` bytes.
    unsafe fn free_left(&self, block: NonNull<u8>, used: usize) {
        // SAFETY: by contract the prefix is in front of the block and tells
        // with which length it was allocated.
        unsafe {
            let len = large_bytes(block);
            let start = block.sub(LARGE_PREFIX_LEN);
            if len <= RUN_LEN_MAX {
                let held = self.runs.lock().give(start, len);
                self.note_idle(held + len as i64);
            } else {
                self.discard_block(Block::new(start, large_layout(len), used));
            }
        }
    }
}

/// Returns the number of loans of a separate block.
///
/// # Safety
/// `block` must come from [`Heap::large`] and must not be freed for `'a`.
unsafe fn loans<'a>(block: NonNull<u8>) -> &'a AtomicU32 {
    // SAFETY: by contract the prefix is in front of the block, aligned for it, and
    // nothing but atomics touches the count once the block is made.
    unsafe { AtomicU32::from_ptr(block.sub(LARGE_PREFIX_LEN - LOANS_AT).cast().as_ptr()) }
}

/// Lends a separate block until [`Heap::end_loan`]. It is not freed before, and the lent bytes must
/// not be changed.
///
/// # Safety
/// `block` must come from [`Heap::large`] and must not have been freed.
pub unsafe fn lend(block: NonNull<u8>) {
    // SAFETY: by contract.
    unsafe { loans(block).fetch_add(1, Ordering::Relaxed) };
}

/// Returns whether a separate block is lent.
///
/// # Safety
/// `block` must come from [`Heap::large`] and must not have been freed.
pub unsafe fn is_lent(block: NonNull<u8>) -> bool {
    // SAFETY: by contract.
    // ORDER: pairs with `Heap::end_loan`: what was read of it was read before.
    unsafe { loans(block).load(Ordering::Acquire) != 0 }
}

/// Returns the length of a separate block, in bytes.
///
/// # Safety
/// `block` must come from [`Heap::large`] and must not have been freed.
pub unsafe fn large_capacity(block: NonNull<u8>) -> usize {
    // SAFETY: by contract the prefix is in front of the block.
    unsafe { block.sub(LARGE_PREFIX_LEN).cast::<usize>().read() }
}

/// Returns the bytes of the system's memory that a separate block takes.
///
/// # Safety
/// `block` must come from [`Heap::large`] and must not have been freed.
pub unsafe fn large_bytes(block: NonNull<u8>) -> usize {
    // SAFETY: by contract.
    unsafe { large_capacity(block) + LARGE_PREFIX_LEN }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_len;

    #[test]
    fn a_large_block_keeps_its_bytes_when_resized() {
        let heap = Heap::new(1);
        let block = heap.large(10_000);
        // SAFETY: the block has 10,000 bytes, and 200,000 once resized.
        unsafe {
            block.write_bytes(7, 10_000);
            let block = heap.resize_large(block, 200_000);
            assert!(large_capacity(block) >= 200_000);
            let bytes = std::slice::from_raw_parts(block.as_ptr(), 10_000);
            assert!(bytes.iter().all(|byte| *byte == 7));
            let block = heap.resize_large(block, 20_000);
            let bytes = std::slice::from_raw_parts(block.as_ptr(), 10_000);
            assert!(bytes.iter().all(|byte| *byte == 7));
            assert_eq!(heap.free_large(block), block_len(20_000));
        }
    }
}
