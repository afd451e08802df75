use super::Boxed;
use crate::arena::Heap;
use crate::lines::Memory;
use crate::lock::Lock;
use std::sync::atomic::{AtomicI64, Ordering};

/// Elements up to which a collection is freed at once: some microseconds. The
/// longest run of elements is a list's chunk, or a leaf of a tree.
const AT_ONCE_MAX: usize = 128;

/// Large collections nobody has a use for, freed in steps so that no request
/// waits for millions of elements.
pub(crate) struct Discarded {
    waiting: Lock<Vec<Boxed>>,
    /// Bytes that those waiting take.
    bytes: AtomicI64,
}

impl Discarded {
    pub(crate) fn new() -> Self {
        Self { waiting: Lock::new(Vec::new()), bytes: AtomicI64::new(0) }
    }

    /// Bytes that are still to be freed.
    #[inline]
    pub(crate) fn bytes(&self) -> i64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Heap {
    /// Takes a collection that is no longer used; the bytes it took, which from
    /// now on only [`Discarded::bytes`] counts.
    #[cold]
    pub(crate) fn discard(&self, mut boxed: Boxed) -> usize {
        let bytes = boxed.bytes();
        let mut steps = AT_ONCE_MAX as u32;
        if boxed.len() <= AT_ONCE_MAX && boxed.free_some(self.memory(), &mut steps) {
            return bytes;
        }
        self.discarded.bytes.fetch_add(boxed.bytes() as i64, Ordering::Relaxed);
        self.discarded.waiting.lock().push(boxed);
        bytes
    }

    /// Frees up to `steps` elements of discarded collections; whether some are
    /// left.
    pub(crate) fn free_discarded(&self, steps: &mut u32) -> bool {
        if self.discarded.bytes() == 0 {
            return false;
        }
        while *steps > 0 {
            // Taken out, so that nobody waits for the lock meanwhile.
            let taken = self.discarded.waiting.lock().pop();
            let Some(mut boxed) = taken else { break };
            *steps -= 1;
            let before = boxed.bytes() as i64;
            let done = boxed.free_some(self.memory(), steps);
            let freed = if done { before } else { before - boxed.bytes() as i64 };
            self.discarded.bytes.fetch_sub(freed, Ordering::Relaxed);
            if !done {
                self.discarded.waiting.lock().push(boxed);
            }
        }
        self.discarded.bytes() != 0
    }

    /// Any arena will do for what shrinks.
    fn memory(&self) -> Memory<'_> {
        Memory { heap: self, arena: 0 }
    }
}
