//! Frees in steps, so that no request waits while millions of elements or gigabytes are freed.

use crate::heap::{Heap, Memory};
use crate::lock::Lock;
use crate::mapping::Region;
use std::alloc::{Layout, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, Ordering};

/// A structure in the heap that takes too long to free at once.
pub trait Discard: Send {
    /// Returns the bytes of the system's memory that it still takes.
    fn bytes(&self) -> usize;

    /// Frees up to `steps` elements and subtracts their number from `steps`. Returns whether
    /// nothing is left.
    fn free_some(&mut self, memory: Memory<'_>, steps: &mut u32) -> bool;
}

/// Number of bytes of a block that are returned to the system at a time. It is a multiple of any
/// system's page, and takes some hundred microseconds.
const PIECE_LEN: usize = 1 << 20;
/// Number of elements that take as long to free as returning one piece.
const STEPS_PER_PIECE: u32 = 256;

/// Returns the number of steps to free a block of `bytes` bytes, besides its elements. A block that
/// is longer than a piece is freed later, in steps of its own.
pub fn steps_of_block(bytes: usize) -> u32 {
    match bytes {
        0..=PIECE_LEN => (bytes * STEPS_PER_PIECE as usize / PIECE_LEN) as u32,
        _ => 0,
    }
}
/// Alignment that is a multiple of any system's page.
const PIECE_ALIGN: usize = 64 << 10;

/// An unused block of the global allocator.
pub(crate) struct Block {
    start: NonNull<u8>,
    layout: Layout,
    /// Number of bytes at its start whose memory was not returned.
    left: usize,
}

// SAFETY: a block is plain memory owned by whoever holds it.
unsafe impl Send for Block {}

impl Block {
    /// Takes a block of that layout from its owner, who wrote nothing after the first `used` bytes.
    ///
    /// # Safety
    /// The block came from the global allocator and is not used again.
    pub(crate) unsafe fn new(start: NonNull<u8>, layout: Layout, used: usize) -> Self {
        Self { start, layout, left: used.min(layout.size()) }
    }

    /// Returns the memory of its last piece to the system, and frees the block itself with the
    /// first piece. Returns the bytes, and whether the block is gone.
    fn free_some(&mut self) -> (usize, bool) {
        if self.left <= PIECE_LEN {
            // SAFETY: by the contract of `new`; it is freed once, as nothing is
            // left of it then.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
            return (std::mem::take(&mut self.left), true);
        }
        // Only whole pages are returned, wherever the block begins.
        let end = self.start.addr().get() + self.left;
        let from = (end - 1) / PIECE_LEN * PIECE_LEN;
        let len = (end - from) / PIECE_ALIGN * PIECE_ALIGN;
        self.left = from - self.start.addr().get();
        if len > 0 {
            // SAFETY: the part lies in the block, which nobody uses.
            unsafe { Region::release(self.start.add(self.left), len) };
        }
        (end - from, false)
    }
}

/// Unused structures and blocks that must still be freed.
pub(crate) struct Discarded {
    waiting: Lock<Vec<Box<dyn Discard>>>,
    blocks: Lock<Vec<Block>>,
    /// Number of bytes that they take.
    bytes: AtomicI64,
}

impl Discarded {
    pub(crate) fn new() -> Self {
        Self {
            waiting: Lock::new(Vec::new()),
            blocks: Lock::new(Vec::new()),
            bytes: AtomicI64::new(0),
        }
    }

    /// Returns the number of bytes that must still be freed.
    #[inline]
    pub fn bytes(&self) -> i64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Heap {
    /// Takes an unused structure. From now on only [`Discarded::bytes`] counts its bytes.
    #[cold]
    pub fn discard(&self, structure: Box<dyn Discard>) {
        self.discarded.bytes.fetch_add(structure.bytes() as i64, Ordering::Relaxed);
        self.discarded.waiting.lock().push(structure);
    }

    /// Frees a block, in steps if it is long.
    pub(crate) fn discard_block(&self, mut block: Block) {
        if block.left <= PIECE_LEN {
            block.free_some();
            return;
        }
        self.discarded.bytes.fetch_add(block.left as i64, Ordering::Relaxed);
        self.discarded.blocks.lock().push(block);
    }

    /// Frees up to `steps` elements of what was discarded. Returns whether some are left.
    pub fn free_discarded(&self, steps: &mut u32) -> bool {
        if self.discarded.bytes() == 0 {
            return false;
        }
        while *steps > 0 {
            let taken = self.discarded.blocks.lock().pop();
            let Some(mut block) = taken else { break };
            *steps = steps.saturating_sub(STEPS_PER_PIECE);
            let (freed, done) = block.free_some();
            self.discarded.bytes.fetch_sub(freed as i64, Ordering::Relaxed);
            if !done {
                self.discarded.blocks.lock().push(block);
            }
        }
        while *steps > 0 {
            // The structure is taken out, so that no thread waits for the lock meanwhile.
            let taken = self.discarded.waiting.lock().pop();
            let Some(mut structure) = taken else { break };
            *steps -= 1;
            let before = structure.bytes() as i64;
            let done = structure.free_some(self.memory(), steps);
            let freed = if done { before } else { before - structure.bytes() as i64 };
            self.discarded.bytes.fetch_sub(freed, Ordering::Relaxed);
            if !done {
                self.discarded.waiting.lock().push(structure);
            }
        }
        self.discarded.bytes() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number of elements of 64 bytes each.
    struct Elements(usize);

    impl Discard for Elements {
        fn bytes(&self) -> usize {
            self.0 * 64
        }

        fn free_some(&mut self, _: Memory<'_>, steps: &mut u32) -> bool {
            let freed = self.0.min(*steps as usize);
            self.0 -= freed;
            *steps -= freed as u32;
            self.0 == 0
        }
    }

    #[test]
    fn what_is_discarded_is_freed_in_as_many_steps_as_are_allowed() {
        let heap = Heap::new(1);
        let mut steps = 10;
        assert!(!heap.free_discarded(&mut steps), "nothing is discarded");
        assert_eq!(steps, 10);
        heap.discard(Box::new(Elements(100)));
        heap.discard(Box::new(Elements(50)));
        let mut left = 150;
        assert_eq!(heap.discarded_bytes(), 150 * 64);
        // Each structure that is begun takes a step, and each element another.
        for (allowed, freed, unused) in
            [(11, 10, 0), (41, 40, 0), (0, 0, 0), (61, 60, 0), (99, 40, 58)]
        {
            let mut steps = allowed;
            left -= freed;
            assert_eq!(heap.free_discarded(&mut steps), left > 0);
            assert_eq!((heap.discarded_bytes(), steps), (left * 64, unused));
        }
        assert_eq!(left, 0);
    }

    #[test]
    fn a_long_block_is_freed_piece_by_piece_before_structures_are() {
        let heap = Heap::new(1);
        let block = heap.large(5 * PIECE_LEN + 1000);
        // SAFETY: the block is live and not used again.
        let len = unsafe { heap.free_large(block) } as i64;
        assert_eq!(heap.discarded_bytes(), len);
        heap.discard(Box::new(Elements(10)));
        let mut pieces = 0;
        while heap.discarded_bytes() > 10 * 64 {
            let before = heap.discarded_bytes();
            // One piece takes its steps, also if fewer are allowed.
            let mut steps = if pieces % 2 == 0 { STEPS_PER_PIECE } else { 1 };
            assert!(heap.free_discarded(&mut steps) && steps == 0);
            let freed = before - heap.discarded_bytes();
            assert!(freed > 0 && freed <= PIECE_LEN as i64, "{freed}");
            pieces += 1;
        }
        assert!((6..=7).contains(&pieces), "{pieces}");
        assert_eq!(heap.discarded_bytes(), 10 * 64);
        let mut steps = 12;
        assert!(!heap.free_discarded(&mut steps));
        assert_eq!(steps, 1);

        // Several pieces and the structure behind them are freed in one call.
        // SAFETY: the block is live and not used again.
        _ = unsafe { heap.free_large(heap.large(3 * PIECE_LEN)) };
        heap.discard(Box::new(Elements(10)));
        let mut steps = 10 * STEPS_PER_PIECE;
        assert!(!heap.free_discarded(&mut steps));
        assert!(steps >= 5 * STEPS_PER_PIECE && heap.discarded_bytes() == 0);
    }

    #[test]
    fn a_block_no_longer_than_a_piece_is_freed_at_once() {
        let heap = Heap::new(1);
        // SAFETY: the blocks are live and not used again.
        unsafe {
            heap.free_large(heap.large(PIECE_LEN / 2));
            assert_eq!(heap.discarded_bytes(), 0);
            // Of a long one only what was written counts.
            heap.free_unfilled(heap.large(3 * PIECE_LEN), PIECE_LEN / 2);
            assert_eq!(heap.discarded_bytes(), 0);
            let used = 3 * PIECE_LEN / 2;
            heap.free_unfilled(heap.large(3 * PIECE_LEN), used);
            assert!((used..used + 64).contains(&(heap.discarded_bytes() as usize)));
        }
        let mut steps = u32::MAX;
        assert!(!heap.free_discarded(&mut steps));
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn a_piece_that_is_given_back_loses_its_bytes_and_the_rest_keeps_them() {
        let len = 4 * PIECE_LEN + 5 * PIECE_ALIGN + 100;
        let layout = Layout::from_size_align(len, 16).expect("a layout");
        // SAFETY: the layout is not empty; all of the block is written.
        let start = unsafe {
            let start = NonNull::new(std::alloc::alloc(layout)).expect("memory");
            start.write_bytes(7, len);
            start
        };
        // SAFETY: the block is not used again, but for what is left of it.
        let mut block = unsafe { Block::new(start, layout, len) };
        let byte = |at: usize| {
            // SAFETY: the block is not freed before its last piece is.
            unsafe { start.add(at).read() }
        };
        let mut left = len;
        while left > PIECE_LEN {
            let (freed, is_gone) = block.free_some();
            assert!(!is_gone && freed > 0 && freed <= PIECE_LEN);
            left -= freed;
            assert_eq!(block.left, left);
            assert!((start.addr().get() + left).is_multiple_of(PIECE_LEN));
            let whole = freed / PIECE_ALIGN * PIECE_ALIGN;
            assert!((0..left).step_by(4096).all(|at| byte(at) == 7) && byte(left - 1) == 7);
            assert!((left..left + whole).step_by(4096).all(|at| byte(at) == 0));
        }
        assert_eq!(block.free_some(), (left, true));
        assert_eq!(block.left, 0);
    }

    #[test]
    fn a_block_costs_steps_by_its_length_unless_it_has_steps_of_its_own() {
        let piece = STEPS_PER_PIECE;
        for (bytes, steps) in [
            (0, 0),
            (PIECE_LEN / 256, piece / 256),
            (PIECE_LEN / 2, piece / 2),
            (PIECE_LEN, piece),
            (PIECE_LEN + 1, 0),
        ] {
            assert_eq!(steps_of_block(bytes), steps, "{bytes}");
        }
    }
}
