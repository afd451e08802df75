//! Freeing in steps: no request waits while millions of elements or gigabytes are given back.

use crate::arena::Heap;
use crate::lines::Memory;
use crate::lock::Lock;
use crate::mapping::Region;
use std::alloc::{Layout, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, Ordering};

/// A structure in the heap that takes too long to free at once.
pub trait Discard: Send {
    /// Bytes that it still takes of the system's memory.
    fn bytes(&self) -> usize;

    /// Frees up to `steps` elements and subtracts their number from `steps`. Returns whether
    /// nothing is left.
    fn free_some(&mut self, memory: Memory<'_>, steps: &mut u32) -> bool;
}

/// Bytes of a block that are given back to the system at a time, a multiple of
/// any system's page: some hundred microseconds.
const PIECE_LEN: usize = 1 << 20;
/// To give a piece back takes as long as to free so many elements.
const STEPS_PER_PIECE: u32 = 256;

/// Steps that it takes to free a block of so many bytes beside its elements. One
/// that is longer than a piece is taken apart later, in steps of its own.
pub fn steps_of_block(bytes: usize) -> u32 {
    match bytes {
        0..=PIECE_LEN => (bytes * STEPS_PER_PIECE as usize / PIECE_LEN) as u32,
        _ => 0,
    }
}
/// No system's pages are longer.
const PIECE_ALIGN: usize = 64 << 10;

/// A block of the global allocator that nobody has a use for.
pub(crate) struct Block {
    start: NonNull<u8>,
    layout: Layout,
    /// Bytes at its start whose memory was not given back.
    left: usize,
}

// SAFETY: a block is plain memory owned by whoever holds it.
unsafe impl Send for Block {}

impl Block {
    /// Takes a block of that layout from its owner, who wrote nothing behind the first
    /// `used` bytes.
    ///
    /// # Safety
    /// The block came from the global allocator and is not used again.
    pub(crate) unsafe fn new(start: NonNull<u8>, layout: Layout, used: usize) -> Self {
        Self { start, layout, left: used.min(layout.size()) }
    }

    /// Gives the memory of its last piece back, the block itself with the first;
    /// the bytes, and whether it is gone.
    fn free_some(&mut self) -> (usize, bool) {
        if self.left <= PIECE_LEN {
            // SAFETY: by the contract of `new`; it is freed once, as nothing is
            // left of it then.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
            return (std::mem::take(&mut self.left), true);
        }
        // Whole pages, wherever the block begins.
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

/// Structures and blocks that nobody uses any more and that are still to be freed.
pub(crate) struct Discarded {
    waiting: Lock<Vec<Box<dyn Discard>>>,
    blocks: Lock<Vec<Block>>,
    /// Bytes that those waiting take.
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

    /// Bytes that are still to be freed.
    #[inline]
    pub fn bytes(&self) -> i64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Heap {
    /// Takes a structure that nobody uses any more. From now on only [`Discarded::bytes`]
    /// counts its bytes.
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
            // Taken out, so that nobody waits for the lock meanwhile.
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

    /// Memory for structures that shrink: any arena will do.
    pub fn memory(&self) -> Memory<'_> {
        Memory { heap: self, arena: 0 }
    }
}
