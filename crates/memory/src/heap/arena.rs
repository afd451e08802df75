//! An arena: the pages of all size classes for a group of shards, under one lock.
//!
//! A page is freed with its last slot. A sparse page, if others of its class have room, can be set
//! aside: it gives out no new slots, and the owners of its slots are told to move
//! ([`Heap::is_sparse`](crate::Heap::is_sparse)). Otherwise, pages would keep the memory of values
//! of sizes that are no longer used.

use super::pages::{CLASSES, HEADER_LEN, PAGE_LEN, Page, PageSource, slot_len};
use crate::lock::Lock;
use std::ptr::NonNull;

/// Number of empty pages that an arena keeps for itself before it frees them. With fewer, a
/// workload that needs a page again and again would fault its memory in and out.
pub(super) const SPARE_PAGES_MAX: usize = 2;

/// A page can be set aside if at least one in this many of its slots is free.
const SPARSE_FROM: u32 = 10;

/// Pages of all classes for a group of shards.
pub(super) struct Arena {
    pub(super) index: u16,
    /// For each class: pages with a free slot, doubly linked.
    pub(super) partial: [*mut Page; CLASSES],
    /// For each class: pages that are set aside, doubly linked.
    pub(super) leaving: [*mut Page; CLASSES],
    /// For each class: number of free slots of pages in `partial`.
    pub(super) free_slots: [u32; CLASSES],
    /// For each class: number of used slots on pages in `leaving`.
    pub(super) moving_slots: [u32; CLASSES],
    pub(super) spare: Vec<NonNull<Page>>,
    /// Change of the bytes in pages that no used slot takes, as far as it was not reported to the
    /// heap.
    pub(super) unreported: i64,
}

// SAFETY: pages are reached only under the arena's lock.
unsafe impl Send for Arena {}

impl Arena {
    /// Creates an arena without pages. `index` is its index in the heap.
    pub(super) fn new(index: u16) -> Self {
        Self {
            index,
            partial: [std::ptr::null_mut(); CLASSES],
            leaving: [std::ptr::null_mut(); CLASSES],
            free_slots: [0; CLASSES],
            moving_slots: [0; CLASSES],
            spare: Vec::new(),
            unreported: 0,
        }
    }

    /// Returns a slot of a class that has a page with a free one.
    #[inline]
    pub(super) fn take_slot(&mut self, class: usize) -> NonNull<u8> {
        let page = self.partial[class];
        // SAFETY: pages in `partial` are live and have a free slot; offsets
        // lie in the page, and a free slot holds the next offset.
        unsafe {
            let header = &mut *page;
            let offset = if header.free != 0 {
                let offset = usize::from(header.free) * 8;
                header.free = page.cast::<u8>().add(offset).cast::<u16>().read();
                offset
            } else {
                let offset = header.fresh as usize;
                header.fresh += header.slot_len;
                offset
            };
            header.used += 1;
            self.free_slots[class] -= 1;
            self.unreported -= i64::from(header.slot_len);
            if header.is_full() {
                self.unlink(page);
            }
            NonNull::new_unchecked(page.cast::<u8>().add(offset))
        }
    }

    /// Puts a slot on its page's free list. Returns whether the page is empty now.
    ///
    /// # Safety
    /// `page` must be live and belong to this arena, and `slot` must be one of its used slots.
    #[inline]
    pub(super) unsafe fn put_slot(&mut self, page: *mut Page, slot: NonNull<u8>) -> bool {
        // SAFETY: by contract.
        unsafe {
            let header = &mut *page;
            let was_full = header.is_full();
            slot.cast::<u16>().write(header.free);
            header.free = ((slot.addr().get() & (PAGE_LEN - 1)) / 8) as u16;
            header.used -= 1;
            let empty = header.used == 0;
            let class = usize::from(header.class);
            self.unreported += i64::from(header.slot_len);
            if header.leaving {
                self.moving_slots[class] -= 1;
            } else {
                self.free_slots[class] += 1;
            }
            if was_full {
                self.link(page);
            }
            empty
        }
    }

    fn link(&mut self, page: *mut Page) {
        // SAFETY: callers pass a live page of this arena that is in no list;
        // the list's head is live or null.
        unsafe {
            let head = *self.list_of(page);
            (*page).previous = std::ptr::null_mut();
            (*page).next = head;
            if !head.is_null() {
                (*head).previous = page;
            }
            *self.list_of(page) = page;
        }
    }

    /// Returns the head of the list to which a page belongs.
    ///
    /// # Safety
    /// `page` must be live and belong to this arena.
    unsafe fn list_of(&mut self, page: *mut Page) -> &mut *mut Page {
        // SAFETY: by contract.
        let (class, leaving) = unsafe { (usize::from((*page).class), (*page).leaving) };
        if leaving { &mut self.leaving[class] } else { &mut self.partial[class] }
    }

    /// Sets a page aside if few of its slots are used and others of its class have room for them.
    /// Returns whether the page is set aside now.
    ///
    /// # Safety
    /// `page` must be live, belong to this arena, and have a used slot.
    pub(super) unsafe fn set_aside_if_sparse(&mut self, page: *mut Page) -> bool {
        // SAFETY: by contract.
        let header = unsafe { &mut *page };
        if header.leaving || header.is_full() {
            return header.leaving;
        }
        let class = usize::from(header.class);
        let (used, free) = (u32::from(header.used), header.free_count());
        // If few slots are free, many would have to move for each page that is gained.
        let is_dense = free * SPARSE_FROM < header.slot_count();
        if is_dense || used + self.moving_slots[class] > self.free_slots[class] - free {
            return false;
        }
        self.unlink(page);
        header.leaving = true;
        self.free_slots[class] -= free;
        self.moving_slots[class] += used;
        self.link(page);
        true
    }

    /// Uses a page that was set aside again, if there is one. Returns whether there was one.
    fn take_back(&mut self, class: usize) -> bool {
        let page = self.leaving[class];
        if page.is_null() {
            return false;
        }
        self.unlink(page);
        // SAFETY: pages in `leaving` are live and of this arena.
        let header = unsafe { &mut *page };
        header.leaving = false;
        self.moving_slots[class] -= u32::from(header.used);
        self.free_slots[class] += header.free_count();
        self.link(page);
        true
    }

    fn unlink(&mut self, page: *mut Page) {
        // SAFETY: callers pass a live page that is in its class's list, whose
        // neighbours are live.
        unsafe {
            let (previous, next) = ((*page).previous, (*page).next);
            if previous.is_null() {
                *self.list_of(page) = next;
            } else {
                (*previous).next = next;
            }
            if !next.is_null() {
                (*next).previous = previous;
            }
        }
    }

    /// Adds a page with free slots to a class: one that was set aside, an empty one, or a new one.
    #[cold]
    pub(super) fn add_page(&mut self, class: usize, source: &Lock<PageSource>) {
        if self.take_back(class) {
            return;
        }
        let page = match self.spare.pop() {
            Some(page) => page,
            None => {
                let (page, is_new) = source.lock().take();
                self.unreported += if is_new { PAGE_LEN as i64 } else { 0 };
                page
            }
        };
        let header = Page {
            previous: std::ptr::null_mut(),
            next: std::ptr::null_mut(),
            arena: self.index,
            class: class as u16,
            free: 0,
            used: 0,
            fresh: HEADER_LEN as u32,
            slot_len: slot_len(class) as u32,
            leaving: false,
        };
        self.free_slots[class] += header.slot_count();
        // SAFETY: the page is ours alone, aligned, and PAGE_LEN bytes long.
        unsafe { page.write(header) };
        self.link(page.as_ptr());
    }

    /// Removes an empty page from its class.
    #[cold]
    pub(super) fn retire(&mut self, page: *mut Page, source: &Lock<PageSource>) {
        self.unlink(page);
        let Some(page) = NonNull::new(page) else { return };
        // SAFETY: an empty page of this arena is live until it is given back.
        let header = unsafe { page.as_ref() };
        if !header.leaving {
            self.free_slots[usize::from(header.class)] -= header.slot_count();
        }
        if self.spare.len() < SPARE_PAGES_MAX {
            self.spare.push(page);
        } else {
            source.lock().give(page);
        }
    }
}
