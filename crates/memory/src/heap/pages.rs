//! Pages of slots, and where they come from: size classes at most 12.5 % apart, cut from
//! 64 KiB pages.
//!
//! A page belongs to one class at a time. A slot's page is found by masking its address.
//! [`PageSource`] maps regions from the system and returns the memory of empty pages to it.

use crate::mapping::{ALIGN, Region};
use std::collections::BTreeSet;
use std::ptr::NonNull;

/// Size and alignment of a page. Larger wastes more in classes hardly used,
/// smaller wastes more at the end of pages of large slots.
pub(super) const PAGE_LEN: usize = 64 << 10;

/// The page header takes the first cache line.
pub(super) const HEADER_LEN: usize = 64;

/// Longest block cut from a page: nine to a page; the next class would waste
/// an eighth of it.
pub const SLOT_LEN_MAX: usize = 7168;

/// Classes up to [`SLOT_LEN_MAX`].
pub(super) const CLASSES: usize = class_of(SLOT_LEN_MAX) + 1;

/// The class whose slots hold `len` bytes: steps of 8 up to 64, then eight
/// per doubling.
#[inline]
pub(super) const fn class_of(len: usize) -> usize {
    if len <= 64 {
        return len.div_ceil(8).saturating_sub(1);
    }
    let top = (len - 1).ilog2() as usize;
    8 + (top - 6) * 8 + ((len - 1) >> (top - 3)) - 8
}

/// Length of the slots of `class`, in bytes.
#[inline]
pub(super) const fn slot_len(class: usize) -> usize {
    if class < 8 {
        return (class + 1) * 8;
    }
    let (octave, step) = ((class - 8) / 8, (class - 8) % 8);
    (9 + step) << (octave + 3)
}

/// First cache line of a page in use.
#[repr(C)]
pub(super) struct Page {
    pub(super) previous: *mut Page,
    pub(super) next: *mut Page,
    pub(super) arena: u16,
    pub(super) class: u16,
    /// First free slot, as its offset in the page over 8; 0: none. A free slot
    /// holds the next one's in its first two bytes.
    pub(super) free: u16,
    /// Slots in use.
    pub(super) used: u16,
    /// Offset of the first slot never used, in bytes.
    pub(super) fresh: u32,
    /// Length of a slot, in bytes.
    pub(super) slot_len: u32,
    /// Set aside to become empty: in the list of such pages.
    pub(super) leaving: bool,
}

impl Page {
    /// Slots it has.
    pub(super) fn slot_count(&self) -> u32 {
        (PAGE_LEN - HEADER_LEN) as u32 / self.slot_len
    }

    /// Slots not in use.
    pub(super) fn free_count(&self) -> u32 {
        self.slot_count() - u32::from(self.used)
    }

    /// Whether not one more slot can be had.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.free == 0 && (self.fresh + self.slot_len) as usize > PAGE_LEN
    }
}

/// Length of a slot, in bytes.
///
/// # Safety
/// `slot` came from [`Heap::slot`] and was not given back.
#[inline]
pub unsafe fn slot_capacity(slot: NonNull<u8>) -> usize {
    // SAFETY: a live slot's page is live; its slot length is constant.
    unsafe { (*page_of(slot)).slot_len as usize }
}

#[inline]
pub(super) fn page_of(slot: NonNull<u8>) -> *mut Page {
    slot.as_ptr().map_addr(|addr| addr & !(PAGE_LEN - 1)).cast()
}

/// Where arenas get pages from and give them back.
pub(super) struct PageSource {
    pub(super) regions: Vec<Region>,
    /// Bytes of the last region handed out.
    pub(super) handed_out: usize,
    /// Pages given back whose memory is still to be returned to the system.
    pub(super) warm: Vec<NonNull<Page>>,
    /// Pages given back, their memory returned to the system.
    pub(super) cold: Vec<NonNull<Page>>,
    /// Where huge pages were given up, over their length.
    pub(super) split: BTreeSet<usize>,
    /// Pages whose memory is held.
    pub(super) pages_out: usize,
}

// SAFETY: pages are reached only under the source's lock, or by the arena that
// took them.
unsafe impl Send for PageSource {}

impl PageSource {
    /// A source that holds no memory yet.
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

    /// Bytes of the pages whose memory is held.
    pub(super) fn held_bytes(&self) -> u64 {
        (self.pages_out * PAGE_LEN) as u64
    }

    /// Takes an empty page back; its memory is still held.
    pub(super) fn give(&mut self, page: NonNull<Page>) {
        self.warm.push(page);
    }

    /// A page, and whether it takes memory that was not held before.
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
            // Where a page was given back before all were handed out, a huge one
            // would bring its memory back.
            if !self.split.contains(&(region.at(part).addr().get() / ALIGN)) {
                region.merge(part, ALIGN);
            }
        }
        (page.cast(), true)
    }

    /// Returns the memory of a warm page to the system; whether there was one.
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
