use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;

/// Alignment and unit of length of a region: the length of a huge page. A page of an arena is
/// aligned to its own length within it.
pub const ALIGN: usize = 2 << 20;
/// Length of a small store's regions.
const LEN_MIN: usize = 2 << 20;
/// Length of the longest region. Regions are only address space until they are touched, so only a
/// system that forbids overcommitting notices.
const LEN_MAX: usize = 64 << 20;
/// Number of mapped bytes from which further regions are backed by huge pages. Lookups over
/// gigabytes then have far fewer TLB misses. With less memory, huge pages would show in the size of
/// a small process.
const HUGE_FROM: usize = 64 << 20;

/// Memory straight from the system, aligned to 2 MiB, and zero when first touched.
pub struct Region {
    start: NonNull<u8>,
    len: usize,
    /// True if it is backed by huge pages.
    huge: bool,
}

// SAFETY: a region is plain memory owned by whoever holds it.
unsafe impl Send for Region {}

impl Region {
    /// Maps a region of a suitable length for a store that already has `mapped` bytes.
    pub fn map(mapped: usize) -> Self {
        let len = (mapped / 4).clamp(LEN_MIN, LEN_MAX).next_multiple_of(ALIGN);
        Self { start: map_aligned(len), len, huge: mapped >= HUGE_FROM }
    }

    /// Like [`Region::map`], but never backed by huge pages, because parts of it are returned and
    /// used again.
    pub fn map_small_pages(mapped: usize) -> Self {
        let len = (mapped / 4).clamp(LEN_MIN, LEN_MAX).next_multiple_of(ALIGN);
        Self { start: map_aligned(len), len, huge: false }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether an address is in the region.
    pub fn contains(&self, at: NonNull<u8>) -> bool {
        let start = self.start.addr().get();
        (start..start + self.len).contains(&at.addr().get())
    }

    /// Returns whether full parts of it are to be backed by huge pages.
    pub fn is_huge(&self) -> bool {
        self.huge
    }

    /// Returns the address `offset` bytes into the region.
    pub fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len);
        // SAFETY: the offset lies in the region.
        unsafe { self.start.add(offset) }
    }
}

#[cfg(all(unix, not(miri)))]
fn map_aligned(len: usize) -> NonNull<u8> {
    let asked = len + ALIGN;
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous mapping, of which the parts outside the aligned
    // region are unmapped again.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), asked, protection, flags, -1, 0);
        if start == libc::MAP_FAILED {
            handle_alloc_error(Layout::new::<u8>());
        }
        let start = start.cast::<u8>();
        let skip = start.align_offset(ALIGN);
        if skip > 0 {
            libc::munmap(start.cast(), skip);
        }
        let aligned = start.add(skip);
        if skip < ALIGN {
            libc::munmap(aligned.add(len).cast(), ALIGN - skip);
        }
        NonNull::new_unchecked(aligned)
    }
}

#[cfg(all(unix, not(miri)))]
impl Region {
    /// Has the system back a used part of the region with huge pages when it has time. It must not
    /// be called before all of the part is in use: the first byte written to a huge page makes the
    /// system clear all of it, which stops the writer for a millisecond and more.
    pub fn merge(&self, offset: usize, len: usize) {
        assert!(offset + len <= self.len);
        #[cfg(target_os = "linux")]
        // SAFETY: advice about our own mapping; refusal does no harm.
        unsafe {
            libc::madvise(self.at(offset).as_ptr().cast(), len, libc::MADV_HUGEPAGE);
        }
    }

    /// Has the system back the 2 MiB around an address of a region with small pages from now on. A
    /// huge page would come back whole as soon as one byte of it is used.
    pub fn split(at: NonNull<u8>) {
        #[cfg(target_os = "linux")]
        // SAFETY: advice about our own mapping, whose regions are aligned to
        // ALIGN and a multiple of it long; refusal does no harm.
        unsafe {
            let start = at.as_ptr().map_addr(|addr| addr & !(ALIGN - 1));
            libc::madvise(start.cast(), ALIGN, libc::MADV_NOHUGEPAGE);
        }
    }

    /// Returns the memory of a part of a region to the system. The part stays mapped and may be
    /// used again, with undefined content.
    ///
    /// # Safety
    /// Nothing in the part may be in use.
    pub unsafe fn release(start: NonNull<u8>, len: usize) {
        // SAFETY: by contract; the part is page-aligned memory of a region.
        unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTNEED) };
    }
}

#[cfg(all(unix, not(miri)))]
impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours; its owner holds no slot of it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(not(all(unix, not(miri))))]
fn map_aligned(len: usize) -> NonNull<u8> {
    let Ok(layout) = Layout::from_size_align(len, ALIGN) else {
        handle_alloc_error(Layout::new::<u8>())
    };
    // SAFETY: the layout is not empty.
    let start = unsafe { std::alloc::alloc_zeroed(layout) };
    NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout))
}

#[cfg(not(all(unix, not(miri))))]
impl Region {
    /// Does nothing. On Linux it merges pages.
    pub fn merge(&self, _offset: usize, _len: usize) {}

    /// Does nothing. On Linux it splits a huge page.
    pub fn split(_at: NonNull<u8>) {}

    /// Does nothing. On Unix it returns memory.
    ///
    /// # Safety
    /// Nothing in the part may be in use.
    pub unsafe fn release(_start: NonNull<u8>, _len: usize) {}
}

#[cfg(not(all(unix, not(miri))))]
impl Drop for Region {
    fn drop(&mut self) {
        if let Ok(layout) = Layout::from_size_align(self.len, ALIGN) {
            // SAFETY: allocated with the same layout in `map_aligned`.
            unsafe { std::alloc::dealloc(self.start.as_ptr(), layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_aligned_and_grow_with_the_store() {
        for (mapped, len) in [(0, LEN_MIN), (40 << 20, 10 << 20), (usize::MAX / 2, LEN_MAX)] {
            let region = Region::map(mapped);
            assert_eq!(region.len(), len);
            assert!(region.at(0).addr().get().is_multiple_of(ALIGN));
            // SAFETY: the first and last byte lie in the region.
            unsafe {
                assert_eq!(region.at(len - 1).read(), 0);
                region.at(0).write(1);
                Region::release(region.at(0), 64 << 10);
            }
        }
    }

    #[test]
    fn a_region_contains_its_own_addresses_alone() {
        for region in [Region::map(0), Region::map_small_pages(40 << 20)] {
            let (first, last) = (region.at(0), region.at(region.len() - 1));
            assert!(region.contains(first) && region.contains(last));
            let beside = [first.addr().get() - 1, last.addr().get() + 1];
            for at in beside.into_iter().filter_map(std::num::NonZero::new) {
                assert!(!region.contains(first.with_addr(at)));
            }
        }
    }

    #[test]
    fn only_large_stores_have_huge_pages_and_runs_never() {
        for (mapped, is_huge) in [(0, false), (HUGE_FROM - 1, false), (HUGE_FROM, true)] {
            let (region, small) = (Region::map(mapped), Region::map_small_pages(mapped));
            assert_eq!((region.is_huge(), small.is_huge()), (is_huge, false));
            assert_eq!(region.len(), small.len());
        }
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn a_region_takes_no_address_but_its_own_and_gives_it_back() {
        // These are no multiples of a huge page, because the system aligns such mappings by itself.
        let filler_len = 3 * ALIGN + (64 << 10);
        let region = |nth: usize| {
            let len = ALIGN + nth * nth % 31 * (64 << 10);
            Region { start: map_aligned(len), len, huge: false }
        };
        let mut kept = Vec::new();
        for nth in 0..40 {
            // SAFETY: a new anonymous mapping of which only the first page is touched.
            let filler = unsafe {
                let (protection, flags) =
                    (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
                let at = libc::mmap(std::ptr::null_mut(), filler_len, protection, flags, -1, 0);
                assert_ne!(at, libc::MAP_FAILED);
                NonNull::new(at.cast::<u8>()).expect("a mapping")
            };
            kept.push((filler, region(nth)));
        }
        for (filler, region) in &kept {
            assert!(region.at(0).addr().get().is_multiple_of(ALIGN));
            // SAFETY: both are mapped, and nobody else has them.
            unsafe {
                for at in (0..filler_len).step_by(64 << 10) {
                    assert_eq!(filler.add(at).read(), 0);
                }
                region.at(0).write(1);
                region.at(region.len() - 1).write(1);
            }
        }
        for (filler, region) in kept {
            drop(region);
            // SAFETY: as above; it is not used again.
            assert_eq!(unsafe { libc::munmap(filler.as_ptr().cast(), filler_len) }, 0);
        }
        if std::env::var_os("KEYWAY_SANITIZED").is_some() {
            return;
        }
        // Other tests map and unmap meanwhile, but not as much.
        let pages = || {
            let sizes = std::fs::read_to_string("/proc/self/statm").expect("the process's size");
            sizes.split(' ').next().and_then(|it| it.parse::<usize>().ok()).expect("a number")
        };
        let before = pages();
        // The next one is mapped while the last one exists, so it has another address.
        let mut last = region(0);
        for nth in 1..16_000 {
            last = region(nth);
        }
        drop(last);
        assert!(pages() < before + (2 << 30) / 4096, "{before} pages before, {} now", pages());
    }
}
