//! Memory for items: size classes at most 12.5 % apart, cut from 64 KiB pages.
//!
//! ```text
//!  Heap ── arena 0 ── class 72 ── page ─ page        one lock per arena
//!   │      arena 1 ── class 80 ── page               shard -> arena: many shards share one,
//!   │        …                                       or small caches would waste a page per
//!   └─ PageSource: regions from the system,          shard and class
//!      cold pages given back to it
//! ```
//! A page belongs to one class at a time and goes back when its last slot is
//! free. A slot's page is found by masking its address. A page that is sparse
//! where others of its class have room can be set aside: nothing new is put
//! there, and the owners of its slots are told to move ([`Heap::is_sparse`]),
//! or the memory of values of other sizes would stay with it. Blocks above
//! [`SLOT_LEN_MAX`] are runs (`runs.rs`), and the longest come from the global
//! allocator, which maps them on their own.

use crate::discarded::{Block, Discarded};
use crate::lock::Lock;
use crate::mapping::{ALIGN, Region};
use crate::runs::{RUN_LEN_MAX, Runs, run_len};
use std::alloc::{Layout, alloc, handle_alloc_error, realloc};
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// Size and alignment of a page. Larger wastes more in classes hardly used,
/// smaller wastes more at the end of pages of large slots.
const PAGE_LEN: usize = 64 << 10;
/// The page header takes the first cache line.
const HEADER_LEN: usize = 64;
/// Longest block cut from a page: nine to a page; the next class would waste
/// an eighth of it.
pub const SLOT_LEN_MAX: usize = 7168;
/// Classes up to [`SLOT_LEN_MAX`].
const CLASSES: usize = class_of(SLOT_LEN_MAX) + 1;
/// Empty pages an arena keeps for itself before it gives them back: fewer make
/// a workload that swings around a page's edge fault memory in and out.
const SPARE_PAGES_MAX: usize = 2;
/// A page with one slot in this many free, or more, can be set aside.
const SPARSE_FROM: u32 = 10;
/// Bytes by which an arena's idle memory may change before the heap's sum is
/// told: smaller makes cores share a cache line more often.
const UNREPORTED_MAX: i64 = 16 << 10;
/// Bytes in front of a block of its own: its length and how often it is lent,
/// padded to keep the block's alignment.
const LARGE_PREFIX_LEN: usize = 16;
/// Where in that the count of loans is.
const LOANS_AT: usize = 8;
/// In that count: whoever had the block wants it no more.
const LEFT: u32 = 1 << 31;
const LARGE_ALIGN: usize = 16;

/// The class whose slots hold `len` bytes: steps of 8 up to 64, then eight
/// per doubling.
#[inline]
const fn class_of(len: usize) -> usize {
    if len <= 64 {
        return len.div_ceil(8).saturating_sub(1);
    }
    let top = (len - 1).ilog2() as usize;
    8 + (top - 6) * 8 + ((len - 1) >> (top - 3)) - 8
}

/// Length of the slots of `class`, in bytes.
#[inline]
const fn slot_len(class: usize) -> usize {
    if class < 8 {
        return (class + 1) * 8;
    }
    let (octave, step) = ((class - 8) / 8, (class - 8) % 8);
    (9 + step) << (octave + 3)
}

/// How many bytes a block asked for with `len` really takes.
#[inline]
pub const fn block_len(len: usize) -> usize {
    if len <= SLOT_LEN_MAX { slot_len(class_of(len)) } else { large_len(len) }
}

/// First cache line of a page in use.
#[repr(C)]
struct Page {
    previous: *mut Page,
    next: *mut Page,
    arena: u16,
    class: u16,
    /// First free slot, as its offset in the page over 8; 0: none. A free slot
    /// holds the next one's in its first two bytes.
    free: u16,
    /// Slots in use.
    used: u16,
    /// Offset of the first slot never used, in bytes.
    fresh: u32,
    /// Length of a slot, in bytes.
    slot_len: u32,
    /// Set aside to become empty: in the list of such pages.
    leaving: bool,
}

impl Page {
    /// Slots it has.
    fn slot_count(&self) -> u32 {
        (PAGE_LEN - HEADER_LEN) as u32 / self.slot_len
    }

    /// Slots not in use.
    fn free_count(&self) -> u32 {
        self.slot_count() - u32::from(self.used)
    }

    /// Whether not one more slot can be had.
    #[inline]
    fn is_full(&self) -> bool {
        self.free == 0 && (self.fresh + self.slot_len) as usize > PAGE_LEN
    }
}

/// Pages of all classes for a group of shards.
struct Arena {
    index: u16,
    /// Per class: pages with a free slot, doubly linked.
    partial: [*mut Page; CLASSES],
    /// Per class: pages set aside, doubly linked.
    leaving: [*mut Page; CLASSES],
    /// Per class: free slots of pages in `partial`.
    free_slots: [u32; CLASSES],
    /// Per class: slots in use on pages in `leaving`.
    moving_slots: [u32; CLASSES],
    spare: Vec<NonNull<Page>>,
    /// Change of the bytes in pages that no slot in use takes, of which the
    /// heap was not told.
    unreported: i64,
}

// SAFETY: pages are reached only under the arena's lock.
unsafe impl Send for Arena {}

/// Where arenas get pages from and give them back.
struct PageSource {
    regions: Vec<Region>,
    /// Bytes of the last region handed out.
    handed_out: usize,
    /// Pages given back whose memory is still to be returned to the system.
    warm: Vec<NonNull<Page>>,
    /// Pages given back, their memory returned to the system.
    cold: Vec<NonNull<Page>>,
    /// Where huge pages were given up, over their length.
    split: BTreeSet<usize>,
    pages_out: usize,
}

// SAFETY: pages are reached only under the source's lock, or by the arena that
// took them.
unsafe impl Send for PageSource {}

/// All arenas of a store.
pub struct Heap {
    arenas: Box<[Lock<Arena>]>,
    source: Lock<PageSource>,
    runs: Lock<Runs>,
    /// Bytes in pages that no slot in use takes, short of what arenas have not
    /// told.
    idle: AtomicI64,
    /// Bytes of blocks that belong to no item: drafts, and lent blocks that nobody else wants. It
    /// includes `reserved`.
    outside: AtomicI64,
    /// Bytes that large writes under way may still take.
    reserved: AtomicI64,
    /// What was allocated here and is to be freed in steps.
    pub(crate) discarded: Discarded,
}

impl Heap {
    /// A heap of so many arenas, which holds no memory yet.
    ///
    /// # Panics
    /// When there are more than 65,535 arenas.
    pub fn new(arena_count: usize) -> Self {
        assert!(arena_count <= usize::from(u16::MAX));
        let arena = |index| {
            Lock::new(Arena {
                index: index as u16,
                partial: [std::ptr::null_mut(); CLASSES],
                leaving: [std::ptr::null_mut(); CLASSES],
                free_slots: [0; CLASSES],
                moving_slots: [0; CLASSES],
                spare: Vec::new(),
                unreported: 0,
            })
        };
        Self {
            arenas: (0..arena_count).map(arena).collect(),
            source: Lock::new(PageSource {
                regions: Vec::new(),
                handed_out: 0,
                warm: Vec::new(),
                cold: Vec::new(),
                split: BTreeSet::new(),
                pages_out: 0,
            }),
            runs: Lock::new(Runs::new()),
            idle: AtomicI64::new(0),
            outside: AtomicI64::new(0),
            reserved: AtomicI64::new(0),
            discarded: Discarded::new(),
        }
    }

    /// Bytes that were discarded and are still to be freed.
    #[inline]
    pub fn discarded_bytes(&self) -> i64 {
        self.discarded.bytes()
    }

    /// Bytes of pages that are held: what slots of all classes occupy, and what
    /// was not returned yet.
    pub fn page_bytes(&self) -> u64 {
        (self.source.lock().pages_out * PAGE_LEN) as u64
    }

    /// How many arenas there are.
    pub fn arena_count(&self) -> usize {
        self.arenas.len()
    }

    /// Bytes of these pages that no slot in use takes, but for what arenas have
    /// not told.
    #[inline]
    pub fn idle_bytes(&self) -> i64 {
        self.idle.load(Ordering::Relaxed)
    }

    /// Returns the memory of up to `count` empty pages to the system; whether
    /// there were as many. Each is a system call, of tens of microseconds.
    pub fn release_pages(&self, count: usize) -> bool {
        for _ in 0..count {
            if !self.source.lock().release_one() {
                return false;
            }
            self.note_idle(-(PAGE_LEN as i64));
        }
        true
    }

    #[inline]
    fn report(&self, arena: &mut Arena) {
        if arena.unreported.abs() > UNREPORTED_MAX {
            self.idle.fetch_add(std::mem::take(&mut arena.unreported), Ordering::Relaxed);
        }
    }

    /// Whether a slot's page has few others in use, and other pages room for
    /// them: the slot's owner should move to a new one. The page is set aside
    /// with the first slot of which this is said.
    ///
    /// # Safety
    /// `slot` came from [`Heap::slot`] of this heap and was not given back.
    pub unsafe fn is_sparse(&self, slot: NonNull<u8>) -> bool {
        let page = page_of(slot);
        // SAFETY: a live slot's page is live, and its arena does not change.
        let index = unsafe { (*page).arena };
        let mut arena = self.arenas[usize::from(index)].lock();
        // SAFETY: as above; the arena's lock is held.
        unsafe { arena.set_aside_if_sparse(page) }
    }

    /// Another slot with what `slot` has in it, which is given back.
    ///
    /// # Safety
    /// As of [`Heap::free_slot`].
    pub unsafe fn relocate(&self, arena: usize, slot: NonNull<u8>) -> NonNull<u8> {
        // SAFETY: by contract; both slots have `capacity` bytes.
        unsafe {
            let capacity = slot_capacity(slot);
            let moved = self.slot(arena, capacity);
            moved.copy_from_nonoverlapping(slot, capacity);
            self.free_slot(slot);
            moved
        }
    }

    /// A slot of at least `len` bytes, not above [`SLOT_LEN_MAX`], aligned to
    /// 8, its contents undefined.
    #[inline]
    pub fn slot(&self, arena: usize, len: usize) -> NonNull<u8> {
        debug_assert!(len <= SLOT_LEN_MAX);
        let class = class_of(len);
        let mut arena = self.arenas[arena].lock();
        if arena.partial[class].is_null() {
            arena.add_page(class, &self.source);
        }
        let slot = arena.take_slot(class);
        self.report(&mut arena);
        slot
    }

    /// Gives a slot back; its length in bytes.
    ///
    /// # Safety
    /// `slot` came from [`Heap::slot`] of this heap and is not used again.
    #[inline]
    pub unsafe fn free_slot(&self, slot: NonNull<u8>) -> usize {
        let page = page_of(slot);
        // SAFETY: a live slot's page is live, and its class and arena do not
        // change while it has a slot in use.
        let (index, len) = unsafe { ((*page).arena, (*page).slot_len) };
        let mut arena = self.arenas[usize::from(index)].lock();
        // SAFETY: as above; the arena's lock is held.
        if unsafe { arena.put_slot(page, slot) } {
            arena.retire(page, &self.source);
        }
        self.report(&mut arena);
        len as usize
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
fn page_of(slot: NonNull<u8>) -> *mut Page {
    slot.as_ptr().map_addr(|addr| addr & !(PAGE_LEN - 1)).cast()
}

impl Arena {
    /// A slot of a class that has a page with a free one.
    #[inline]
    fn take_slot(&mut self, class: usize) -> NonNull<u8> {
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

    /// Puts a slot on its page's free list; whether the page is empty now.
    ///
    /// # Safety
    /// `page` is live, of this arena, and `slot` one of its slots in use.
    #[inline]
    unsafe fn put_slot(&mut self, page: *mut Page, slot: NonNull<u8>) -> bool {
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

    /// The first of the list that a page is to be found in.
    ///
    /// # Safety
    /// `page` is live and of this arena.
    unsafe fn list_of(&mut self, page: *mut Page) -> &mut *mut Page {
        // SAFETY: by contract.
        let (class, leaving) = unsafe { (usize::from((*page).class), (*page).leaving) };
        if leaving { &mut self.leaving[class] } else { &mut self.partial[class] }
    }

    /// # Safety
    /// `page` is live, of this arena, and has a slot in use.
    unsafe fn set_aside_if_sparse(&mut self, page: *mut Page) -> bool {
        // SAFETY: by contract.
        let header = unsafe { &mut *page };
        if header.leaving || header.is_full() {
            return header.leaving;
        }
        let class = usize::from(header.class);
        let (used, free) = (u32::from(header.used), header.free_count());
        // Where few are free, many would move for each page that is had.
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

    /// Puts a page that was set aside to use again, if there is one.
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

    #[cold]
    fn add_page(&mut self, class: usize, source: &Lock<PageSource>) {
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

    /// Takes an empty page out of its class.
    #[cold]
    fn retire(&mut self, page: *mut Page, source: &Lock<PageSource>) {
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
            source.lock().warm.push(page);
        }
    }
}

impl PageSource {
    /// A page, and whether it takes memory that was not held before.
    fn take(&mut self) -> (NonNull<Page>, bool) {
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
    fn release_one(&mut self) -> bool {
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

fn large_layout(total_len: usize) -> Layout {
    match Layout::from_size_align(total_len, LARGE_ALIGN) {
        Ok(layout) => layout,
        Err(_) => handle_alloc_error(Layout::new::<u8>()),
    }
}

/// Whether a block with room for `capacity` bytes is one of the global allocator.
pub const fn is_mapped(capacity: usize) -> bool {
    capacity + LARGE_PREFIX_LEN > RUN_LEN_MAX
}

/// Bytes of a block of its own with room for `capacity`, its prefix included:
/// the longest fill the pages that are mapped for them and for what the C
/// library puts in front.
#[inline]
const fn large_len(capacity: usize) -> usize {
    let len = capacity + LARGE_PREFIX_LEN;
    if len <= RUN_LEN_MAX { run_len(len) } else { (len + 16).next_multiple_of(4096) - 16 }
}

impl Heap {
    /// A block of its own with room for `capacity` bytes at least, contents
    /// undefined.
    pub fn large(&self, capacity: usize) -> NonNull<u8> {
        let full = || handle_alloc_error(large_layout(large_len(capacity)));
        self.try_large(capacity).unwrap_or_else(full)
    }

    /// The same; none where the system has no memory.
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

    /// The block with room for `capacity` bytes, moved if it must be.
    ///
    /// # Safety
    /// `block` came from [`Heap::large`] or this function and is not lent; only the
    /// result is used afterwards.
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

    /// Frees a block of its own, or leaves it to those it is lent to; the bytes it
    /// took.
    ///
    /// # Safety
    /// `block` came from [`Heap::large`] and is not used again but by them.
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
    /// `block` was lent by [`lend`] for this, and is not used again by who had it.
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

    /// Frees a block of the global allocator of which only the first `used` bytes were
    /// ever written.
    ///
    /// # Safety
    /// `block` came from [`Heap::try_large`] as one that [`is_mapped`], and nobody uses it.
    pub unsafe fn free_unfilled(&self, block: NonNull<u8>, used: usize) {
        // SAFETY: by contract.
        unsafe { self.free_left(block, large_bytes(block).min(used + LARGE_PREFIX_LEN)) };
    }

    /// # Safety
    /// Nobody uses `block`, which came from [`Heap::large`], and nothing was written
    /// behind its first `used` bytes.
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

    /// Bytes of blocks that belong to no item: drafts as far as they came, lent blocks that nobody
    /// else wants, and reserved bytes.
    #[inline]
    pub fn outside_bytes(&self) -> i64 {
        self.outside.load(Ordering::Relaxed)
    }

    /// As `outside_bytes`, without the reserved bytes: the blocks that exist.
    pub fn outside_held(&self) -> i64 {
        self.outside_bytes() - self.reserved.load(Ordering::Relaxed)
    }

    /// Adds a change to the reserved bytes.
    pub fn note_reserved(&self, change: i64) {
        self.note_outside(change);
        self.reserved.fetch_add(change, Ordering::Relaxed);
    }

    /// Notes a change of them.
    #[inline]
    pub fn note_outside(&self, change: i64) {
        self.outside.fetch_add(change, Ordering::Relaxed);
    }

    #[inline]
    fn note_idle(&self, change: i64) {
        if change != 0 {
            self.idle.fetch_add(change, Ordering::Relaxed);
        }
    }
}

/// How often a block of its own is lent.
///
/// # Safety
/// `block` came from [`Heap::large`] and is not freed for `'a`.
unsafe fn loans<'a>(block: NonNull<u8>) -> &'a AtomicU32 {
    // SAFETY: by contract the prefix is in front of the block, aligned for it, and
    // nothing but atomics touches the count once the block is made.
    unsafe { AtomicU32::from_ptr(block.sub(LARGE_PREFIX_LEN - LOANS_AT).cast().as_ptr()) }
}

/// Lends a block of its own, until [`Heap::end_loan`]: it is not freed before, and
/// what is lent of it must not be changed.
///
/// # Safety
/// `block` came from [`Heap::large`] and was not freed.
pub unsafe fn lend(block: NonNull<u8>) {
    // SAFETY: by contract.
    unsafe { loans(block).fetch_add(1, Ordering::Relaxed) };
}

/// Whether a block of its own is lent.
///
/// # Safety
/// `block` came from [`Heap::large`] and was not freed.
pub unsafe fn is_lent(block: NonNull<u8>) -> bool {
    // SAFETY: by contract.
    // ORDER: pairs with `Heap::end_loan`: what was read of it was read before.
    unsafe { loans(block).load(Ordering::Acquire) != 0 }
}

/// Length of a block of its own, in bytes.
///
/// # Safety
/// `block` came from [`Heap::large`] and was not freed.
pub unsafe fn large_capacity(block: NonNull<u8>) -> usize {
    // SAFETY: by contract the prefix is in front of the block.
    unsafe { block.sub(LARGE_PREFIX_LEN).cast::<usize>().read() }
}

/// Bytes a block of its own takes of the system's memory.
///
/// # Safety
/// `block` came from [`Heap::large`] and was not freed.
pub unsafe fn large_bytes(block: NonNull<u8>) -> usize {
    // SAFETY: by contract.
    unsafe { large_capacity(block) + LARGE_PREFIX_LEN }
}

#[cfg(test)]
mod invariants;

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

    #[test]
    fn slots_in_use_never_overlap() {
        let heap = Heap::new(2);
        let mut live: Vec<(NonNull<u8>, usize, u8)> = Vec::new();
        let mut state = 1u64;
        let steps = if cfg!(miri) { 600 } else { 60_000 };
        for step in 0..steps {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let pick = (state >> 33) as usize;
            // Grows for two thirds of the steps, then shrinks.
            let grow =
                if step < steps / 3 * 2 { !pick.is_multiple_of(3) } else { pick.is_multiple_of(4) };
            if grow {
                let len = [24, 88, 100, 700, 7168][pick % 5];
                let slot = heap.slot(pick % 2, len);
                let mark = pick as u8;
                // SAFETY: the slot has at least `len` bytes.
                unsafe { slot.write_bytes(mark, len) };
                live.push((slot, len, mark));
            } else if !live.is_empty() {
                let (slot, len, mark) = live.swap_remove(pick % live.len());
                // SAFETY: the slot is live and was filled to `len`.
                unsafe {
                    let bytes = std::slice::from_raw_parts(slot.as_ptr(), len);
                    assert!(bytes.iter().all(|byte| *byte == mark));
                    assert_eq!(heap.free_slot(slot), block_len(len));
                }
            }
        }
        for (slot, _, _) in live {
            // SAFETY: the slot is live.
            unsafe { heap.free_slot(slot) };
        }
        while heap.release_pages(1) {}
        assert!(heap.page_bytes() <= (2 * SPARE_PAGES_MAX * PAGE_LEN) as u64);
    }

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
