//! The buffer that reads go into, and earlier buffers with parts that are still held.

use keyway_base::Block;
use std::collections::VecDeque;
use std::sync::Arc;

/// Most shared buffers that are checked for reuse, rather than freed when the last part of them is
/// dropped. With fewer, deep pipelines of large values make buffers anew. With more, more memory of
/// a burst stays until nothing happens for a while.
const SHARED_MAX: usize = 256;

/// Number of polls after which a busy worker frees buffers that are not held.
const TIDIED_AFTER: u32 = 4096;

/// Number of shared buffers, the oldest first, that are checked for a free one.
const LOOKED_AT: usize = 4;

/// Buffers to read into.
pub(crate) struct Blocks {
    block: Block,
    shared: VecDeque<Block>,
    len: usize,
    /// Number of polls since buffers were freed.
    polls: u32,
}

impl Blocks {
    /// Creates buffers of `len` bytes each.
    pub(crate) fn new(len: usize) -> Self {
        Self { block: fresh(len), shared: VecDeque::new(), len, polls: 0 }
    }

    /// Returns a buffer of which no part is held.
    #[inline]
    pub(crate) fn buf(&mut self) -> &mut [u8] {
        if Arc::strong_count(&self.block) > 1 {
            self.take_another();
        }
        Arc::get_mut(&mut self.block).expect("nobody else has it")
    }

    /// Returns the buffer that [`Blocks::buf`] has returned last.
    #[inline]
    pub(crate) fn block(&self) -> &Block {
        &self.block
    }

    #[cold]
    fn take_another(&mut self) {
        let mut another = None;
        for _ in 0..LOOKED_AT.min(self.shared.len()) {
            let Some(oldest) = self.shared.pop_front() else { break };
            if Arc::strong_count(&oldest) == 1 {
                another = Some(oldest);
                break;
            }
            self.shared.push_back(oldest);
        }
        let another = another.unwrap_or_else(|| fresh(self.len));
        let shared = std::mem::replace(&mut self.block, another);
        if self.shared.len() == SHARED_MAX {
            // A buffer that is held for long is freed by its last part.
            self.shared.pop_front();
        }
        self.shared.push_back(shared);
    }

    /// Frees buffers that are not held, now and then or when there is nothing to do.
    #[cold]
    pub(crate) fn note_poll(&mut self, has_rest: bool) {
        self.polls += 1;
        if has_rest || self.polls >= TIDIED_AFTER {
            self.polls = 0;
            self.shared.retain(|block| Arc::strong_count(block) > 1);
        }
    }

    /// Returns whether there is anything to free, now or later.
    #[inline]
    pub(crate) fn has_shared(&self) -> bool {
        !self.shared.is_empty()
    }
}

fn fresh(len: usize) -> Block {
    std::iter::repeat_n(0, len).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::Part;

    #[test]
    fn what_is_held_is_never_read_into() {
        let mut blocks = Blocks::new(16);
        let mut held = VecDeque::new();
        for round in 0..2000_u32 {
            blocks.buf()[..4].copy_from_slice(&round.to_le_bytes());
            let part = Part::of(blocks.block(), &blocks.block()[..4]).unwrap();
            held.push_back((round, part));
            // The queue is deep at first, and then short.
            while held.len() > if round < 1000 { 400 } else { 3 } {
                held.pop_front();
            }
            assert!(held.iter().all(|(at, part)| part.bytes() == at.to_le_bytes()));
            assert!(blocks.shared.len() <= SHARED_MAX);
        }
        blocks.note_poll(true);
        assert!(blocks.shared.len() <= held.len() && blocks.has_shared());
        held.clear();
        (0..TIDIED_AFTER).for_each(|_| blocks.note_poll(false));
        assert!(!blocks.has_shared());
    }

    #[test]
    fn a_buffer_that_is_free_again_is_used_again() {
        let mut blocks = Blocks::new(16);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..100 {
            blocks.buf();
            let held = Arc::clone(blocks.block());
            seen.insert(held.as_ptr() as usize);
            blocks.buf();
            drop(held);
        }
        assert!(seen.len() <= 3, "{seen:?}");
    }
}
