//! Pages of slots, and their source: size classes that differ by at most 12.5 %, in 64 KiB pages.
//!
//! A page belongs to one class at a time. A slot's page is found by masking its address.
//! [`PageSource`] maps regions from the system and returns the memory of empty pages to it.

use crate::mapping::{ALIGN, Region};
use std::collections::BTreeSet;
use std::ptr::NonNull;

/// Size and alignment of a page. If it were larger, rarely used classes would waste more. If it
/// were smaller, pages of large slots would waste more at their ends.
pub(super) const PAGE_LEN: usize = 64 << 10;

/// Length of the page header: the first cache line.
pub(super) const HEADER_LEN: usize = 64;

/// Length of the longest slot: nine fit into a page. The next class would waste an eighth of it.
pub const SLOT_LEN_MAX: usize = 7168;

/// Number of classes up to [`SLOT_LEN_MAX`].
pub(super) const CLASSES: usize = class_of(SLOT_LEN_MAX) + 1;

/// Returns the class whose slots hold `len` bytes: steps of 8 up to 64, then eight for each
/// doubling.
#[inline]
pub(super) const fn class_of(len: usize) -> usize {
    if len <= 64 {
        return len.div_ceil(8).saturating_sub(1);
    }
    let top = (len - 1).ilog2() as usize;
    8 + (top - 6) * 8 + ((len - 1) >> (top - 3)) - 8
}

/// Returns the length of the slots of `class`, in bytes.
#[inline]
pub(super) const fn slot_len(class: usize) -> usize {
    if class < 8 {
        return (class + 1) * 8;
    }
    let (octave, step) = ((class - 8) / 8, (class - 8) % 8);
    (9 + step) << (octave + 3)
}

/// The first cache line of a used page.
#[repr(C)]
pub(super) struct Page {
    pub(super) previous: *mut Page,
    pub(super) next: *mut Page,
    pub(super) arena: u16,
    pub(super) class: u16,
    /// The first free slot, as its offset in the page divided by 8. 0: none. A free slot contains
    /// the next one's offset in its first two bytes.
    pub(super) free: u16,
    /// Number of used slots.
    pub(super) used: u16,
    /// Offset of the first slot that was never used, in bytes.
    pub(super) fresh: u32,
    /// Length of a slot, in bytes.
    pub(super) slot_len: u32,
    /// True if it is set aside to become empty, and is in the list of such pages.
    pub(super) leaving: bool,
}

impl Page {
    /// Returns the number of its slots.
    pub(super) fn slot_count(&self) -> u32 {
        (PAGE_LEN - HEADER_LEN) as u32 / self.slot_len
    }

    /// Returns the number of free slots.
    pub(super) fn free_count(&self) -> u32 {
        self.slot_count() - u32::from(self.used)
    }

    /// Returns whether it has no free slot.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.free == 0 && (self.fresh + self.slot_len) as usize > PAGE_LEN
    }
}

/// Returns the length of a slot, in bytes.
///
/// # Safety
/// `slot` must come from [`Heap::slot`] and must not have been freed.
#[inline]
pub unsafe fn slot_capacity(slot: NonNull<u8>) -> usize {
    // SAFETY: a live slot's page is live; its slot length is constant.
    unsafe { (*page_of(slot)).slot_len as usize }
}

#[inline]
pub(super) fn page_of(slot: NonNull<u8>) -> *mut Page {
    slot.as_ptr().map_addr(|addr| addr & !(PAGE_LEN - 1)).cast()
}

/// The source from which arenas get pages, and to which they return them.
pub(super) struct PageSource {
    pub(super) regions: Vec<Region>,
    /// Number of bytes of the last region that were given out.
    pub(super) handed_out: usize,
    /// Returned pages whose memory must still be returned to the system.
    pub(super) warm: Vec<NonNull<Page>>,
    /// Returned pages whose memory was returned to the system.
    pub(super) cold: Vec<NonNull<Page>>,
    /// Addresses at which huge pages were given up, divided by their length.
    pub(super) split: BTreeSet<usize>,
    /// Number of pages whose memory is held.
    pub(super) pages_out: usize,
}

// SAFETY: pages are reached only under the source's lock, or by the arena that
// took them.
unsafe impl Send for PageSource {}

impl PageSource {
    /// Creates a source that holds no memory yet.
    pub(super) fn new() -> Self {
        Self {
            regions: Vec::new(),
            handed_out: 0,
            warm: Vec::new(),
            cold: Vec::new(),
            split: BTreeSet::new(),
            pages_out: 0,
        }
    }

    /// Returns the bytes of the pages whose memory is held.
    pub(super) fn held_bytes(&self) -> u64 {
        (self.pages_out * PAGE_LEN) as u64
    }

    /// Takes an empty page back. Its memory is still held.
    pub(super) fn give(&mut self, page: NonNull<Page>) {
        self.warm.push(page);
    }

    /// Returns a page, and whether it takes memory that was not held before.
    pub(super) fn take(&mut self) -> (NonNull<Page>, bool) {
        if let Some(page) = self.warm.pop() {
            return (page, false);
        }
        self.pages_out += 1;
        if let Some(page) = self.cold.pop() {
            return (page, true);
        }
        if self.regions.last().is_none_or(|region| self.handed_out + PAGE_LEN > region.len()) {
            let mapped: usize = self.regions.iter().map(Region::len).sum();
            self.regions.push(Region::map(mapped));
            self.handed_out = 0;
        }
        let region = &self.regions[self.regions.len() - 1];
        let page = region.at(self.handed_out);
        self.handed_out += PAGE_LEN;
        if region.is_huge() && self.handed_out.is_multiple_of(ALIGN) {
            let part = self.handed_out - ALIGN;
            // If a page was returned before all were given out, a huge page would bring its memory
            // back.
            if !self.split.contains(&(region.at(part).addr().get() / ALIGN)) {
                region.merge(part, ALIGN);
            }
        }
        (page.cast(), true)
    }

    /// Returns the memory of a warm page to the system, and whether there was one.
    pub(super) fn release_one(&mut self) -> bool {
        let Some(page) = self.warm.pop() else { return false };
        self.pages_out -= 1;
        let is_in = |region: &&Region| region.contains(page.cast());
        if self.split.insert(page.addr().get() / ALIGN)
            && self.regions.iter().find(is_in).is_some_and(Region::is_huge)
        {
            Region::split(page.cast());
        }
        // SAFETY: an empty page that its arena has let go of.
        unsafe { Region::release(page.cast(), PAGE_LEN) };
        self.cold.push(page);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_its_length_with_at_most_an_eighth_to_spare() {
        for len in 1..=SLOT_LEN_MAX {
            let class = class_of(len);
            let slot = slot_len(class);
            assert!(slot >= len && slot.is_multiple_of(8), "{len} in {slot}");
            assert!(slot - len < 8 || slot - len <= len / 8, "{len} in {slot}");
            assert!(class == 0 || slot_len(class - 1) < len);
        }
        assert_eq!(slot_len(CLASSES - 1), SLOT_LEN_MAX);
    }
}
