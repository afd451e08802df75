//! Items whose value is shared with replies, or was streamed in before there was an item:
//! see `store/zero_copy.rs` and `store/streamed_set.rs`.

use super::head::{Encoding, Head, Meta};
use super::item::{Item, Owned};
use keyway_memory::Heap;
use std::ptr::NonNull;

impl Item<'_> {
    /// Returns whether its block is one that can be shared.
    #[inline]
    pub(crate) fn has_own_block(&self) -> bool {
        self.head.large
    }

    /// Shares the block, with the value in it.
    ///
    /// # Panics
    /// When it is not one that can be.
    pub(crate) fn share(&self) {
        assert!(self.head.large, "a slot is not shared");
        // SAFETY: the block is one of its own, and live.
        unsafe { keyway_memory::lend(self.start) };
    }
}

impl Owned {
    /// Bytes of the block of a string that is filled before it is an item; none where it
    /// would be one that the heap has in its own regions, and is copied in no time.
    pub(crate) fn streamed_len(key_len: usize, value_len: usize) -> Option<usize> {
        let len = Self::streamed_value_at(key_len).checked_add(value_len)?;
        keyway_memory::is_mapped(len).then_some(len)
    }

    /// Where the value begins in such a block.
    pub(crate) fn streamed_value_at(key_len: usize) -> usize {
        Head::plan_large(&Meta::new(Encoding::Text, None), key_len, 0).value_at()
    }

    /// The item of such a block, whose value is in place.
    ///
    /// # Safety
    /// The block came from [`Heap::try_large`] with [`Owned::streamed_len`], for a key and a
    /// value of these lengths; `meta` has no flags and no number; nobody else uses the block.
    pub(crate) unsafe fn of_streamed(
        start: NonNull<u8>,
        meta: &Meta,
        access: u32,
        key: &[u8],
        value_len: usize,
    ) -> Self {
        let head = Head::plan_large(meta, key.len(), value_len);
        debug_assert!(head.value_at() == Self::streamed_value_at(key.len()));
        // SAFETY: by contract the block has room for all of it.
        unsafe {
            head.write(start, meta, access);
            let at = start.add(head.key_at());
            at.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
        }
        Self { start }
    }

    /// Returns whether the value is shared, so that it must stay as it is.
    pub(super) fn is_shared(&self) -> bool {
        // SAFETY: the block is one of its own, and live.
        self.item().head.large && unsafe { keyway_memory::is_lent(self.start) }
    }

    /// Puts a copy in the place of a shared block, so that the value can be changed.
    pub(crate) fn unshare(&mut self, heap: &Heap) {
        if !self.is_shared() {
            return;
        }
        let (item, head) = (self.item(), self.item().head);
        // SAFETY: the block is one of its own, and live.
        let capacity = unsafe { keyway_memory::large_capacity(self.start) };
        let mut copy = Self { start: heap.large(capacity) };
        // SAFETY: the new block is as long as the old one, and another.
        unsafe { copy.fill(&head, &item.meta(), item.access(), item.key(), item.value()) };
        std::mem::replace(self, copy).free_block(heap);
    }
}
