//! Shared memory without a name. It is sealed, so that the other side cannot shrink it while it is
//! in use, and is gone with the last process that has it.

use crate::ends::Producer;
use crate::layout::{HEADER_LEN, Header, MAGIC};
use crate::memory::Memory;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Smallest capacity of a ring, in bytes.
pub const CAPACITY_MIN: usize = 64 << 10;

/// Largest capacity of a ring, in bytes.
pub const CAPACITY_MAX: usize = 1 << 30;

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The memory of one or several rings, one after the other.
#[derive(Debug)]
pub struct Segment {
    descriptor: OwnedFd,
    capacities: Vec<usize>,
}

impl Segment {
    /// Creates memory for rings of these capacities, in bytes: powers of two from [`CAPACITY_MIN`]
    /// to [`CAPACITY_MAX`]. The system provides pages when they are written.
    ///
    /// # Errors
    /// Returns an error of the system, or `InvalidInput` for an invalid capacity.
    pub fn create(capacities: &[usize]) -> io::Result<Segment> {
        let descriptor = sealed(len_of(capacities)?)?;
        let segment = Segment { descriptor, capacities: capacities.to_vec() };
        for index in 0..capacities.len() {
            segment.ring(index)?.header().magic.0.store(MAGIC, Ordering::Release);
        }
        Ok(segment)
    }

    /// Opens memory that another process has made by [`Segment::create`] and handed over.
    ///
    /// # Errors
    /// Returns `InvalidData` if it is not sealed or has another size: the other process could take
    /// away pages that are in use.
    pub fn open(descriptor: OwnedFd, capacities: &[usize]) -> io::Result<Segment> {
        check_sealed(descriptor.as_fd(), len_of(capacities)?)?;
        Ok(Segment { descriptor, capacities: capacities.to_vec() })
    }

    /// Returns the descriptor for the other process.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Maps a ring.
    ///
    /// # Errors
    /// Returns an error of the system, or `InvalidInput` if there is no such ring.
    pub fn ring(&self, index: usize) -> io::Result<Mapping> {
        let capacity = *self.capacities.get(index).ok_or(io::ErrorKind::InvalidInput)?;
        let offset = self.capacities[..index].iter().map(|before| HEADER_LEN + before).sum();
        Mapping::new(self.descriptor.as_fd(), offset, capacity)
    }
}

/// Creates memory of `len` bytes, which can be neither shrunk nor grown.
pub(crate) fn sealed(len: u64) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let descriptor = rustix::fs::memfd_create(c"keyway-ring", flags)?;
    rustix::fs::ftruncate(&descriptor, len)?;
    rustix::fs::fcntl_add_seals(&descriptor, SEALS)?;
    Ok(descriptor)
}

/// Checks that a descriptor is memory as [`sealed`] makes it.
pub(crate) fn check_sealed(descriptor: BorrowedFd<'_>, len: u64) -> io::Result<()> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
    // Only such memory can be asked for seals.
    let seals = rustix::fs::fcntl_get_seals(descriptor)
        .map_err(|_| wrong("what was handed over is no shared memory"))?;
    if !seals.contains(SEALS) {
        return Err(wrong("the shared memory is not sealed"));
    }
    if rustix::fs::fstat(descriptor)?.st_size as u64 != len {
        return Err(wrong("the shared memory has another size than its rings"));
    }
    Ok(())
}

fn len_of(capacities: &[usize]) -> io::Result<u64> {
    let is_right =
        |len: &usize| len.is_power_of_two() && (CAPACITY_MIN..=CAPACITY_MAX).contains(len);
    if !capacities.iter().all(is_right) {
        let what = "a ring's capacity is a power of two from 64 KiB to 1 GiB";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(capacities.iter().map(|capacity| (HEADER_LEN + capacity) as u64).sum())
}

/// A ring in this process's memory. Its bytes are mapped twice, one after the other, so that a
/// piece that wraps around is still contiguous.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    capacity: usize,
}

// SAFETY: any thread may use the memory. Its content is atomics, and bytes that one end writes and
// the other end reads, as their positions tell.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Number of rings that this process has mapped.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// Address ranges of a ring: its header with its bytes, and its bytes again.
const RANGES_EACH: usize = 2;

/// Most address ranges of a process if the system does not tell; Linux's default.
const RANGES_MAX: usize = 65_530;

/// Returns how many rings a process may map. The system bounds the number of address ranges
/// (`vm.max_map_count`), and a process that reaches it gets no memory for anything. A quarter is
/// left for other uses.
fn mapped_max() -> usize {
    static MAX: OnceLock<usize> = OnceLock::new();
    *MAX.get_or_init(|| {
        let told = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
        let ranges = told.and_then(|text| text.trim().parse().ok()).unwrap_or(RANGES_MAX);
        (ranges - ranges / 4) / RANGES_EACH
    })
}

impl Mapping {
    fn new(descriptor: BorrowedFd<'_>, offset: usize, capacity: usize) -> io::Result<Mapping> {
        if MAPPED.fetch_add(1, Ordering::Relaxed) >= mapped_max() {
            MAPPED.fetch_sub(1, Ordering::Relaxed);
            let what = "as many rings are mapped as vm.max_map_count leaves room for";
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, what));
        }
        let reserved = Self::reserve(HEADER_LEN + 2 * capacity);
        let base = reserved.inspect_err(|_| {
            MAPPED.fetch_sub(1, Ordering::Relaxed);
        })?;
        // From here on it is unmapped in any case.
        let mapping = Mapping { base, capacity };
        mapping.place(descriptor, (0, HEADER_LEN + capacity), offset)?;
        mapping.place(descriptor, (HEADER_LEN + capacity, capacity), offset + HEADER_LEN)?;
        Ok(mapping)
    }

    /// Reserves addresses for `len` bytes.
    fn reserve(len: usize) -> io::Result<NonNull<u8>> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: these are new addresses, where nothing is mapped yet.
        let base = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), flags)
        }?;
        Ok(NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?)
    }

    /// Maps `len` bytes of the segment at `offset` to position `at` of the mapping.
    fn place(
        &self,
        descriptor: BorrowedFd<'_>,
        (at, len): (usize, usize),
        offset: usize,
    ) -> io::Result<()> {
        let (rights, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: this is within the addresses that `new` has reserved, which nothing else uses.
        unsafe {
            let place = self.base.as_ptr().add(at).cast::<c_void>();
            rustix::mm::mmap(place, len, rights, flags, descriptor, offset as u64)?;
        }
        Ok(())
    }

    /// Returns whether the memory begins like a ring of this layout.
    pub fn is_ring(&self) -> bool {
        self.header().magic.0.load(Ordering::Acquire) == MAGIC
    }

    /// Gives the pages of the ring's bytes back to the system. They read as zeros afterwards.
    fn discard(&self) {
        // SAFETY: the pages are mapped here, and their content is not needed: the caller has
        // written all of it, and the other side has read it.
        let outcome = unsafe {
            let bytes = self.base.as_ptr().add(HEADER_LEN).cast::<c_void>();
            rustix::mm::madvise(bytes, self.capacity, Advice::LinuxRemove)
        };
        debug_assert!(outcome.is_ok(), "{outcome:?}");
    }

    fn byte(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at < self.capacity && len <= self.capacity, "{len} bytes at {at} of a ring");
        // SAFETY: with the second mapping there are `capacity` bytes from every position on.
        unsafe { self.base.as_ptr().add(HEADER_LEN + at) }
    }
}

impl Producer<Mapping> {
    /// Gives memory without content back to the system, for a while in which nothing will be
    /// written. Returns whether it did: it does not while something is still to be read. Only the
    /// end that writes a ring may do that, because only it knows what is being written.
    pub fn discard(&mut self) -> bool {
        let capacity = self.memory().capacity();
        let is_empty = self.unpublished() == 0 && self.free(capacity) == Ok(capacity);
        if is_empty {
            self.memory().discard();
        }
        is_empty
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is all that `new` has reserved, and no reference into it exists any more.
        let unmapped = unsafe {
            rustix::mm::munmap(self.base.as_ptr().cast(), HEADER_LEN + 2 * self.capacity)
        };
        debug_assert!(unmapped.is_ok());
        MAPPED.fetch_sub(1, Ordering::Relaxed);
    }
}

// SAFETY: the header is the mapping's first page; `byte` has checked the bounds of both copies.
unsafe impl Memory for Mapping {
    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: it is mapped and aligned to a page. Its content is atomics, for which any bits
        // are valid.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    #[inline]
    fn capacity(&self) -> usize {
        self.capacity
    }

    #[inline]
    fn copy_in(&self, at: usize, bytes: &[u8]) {
        let place = self.byte(at, bytes.len());
        // SAFETY: that many bytes are mapped there, and the other end does not read them before
        // they are published. Another process that does so anyway reads arbitrary bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    }

    #[inline]
    fn copy_out(&self, at: usize, into: &mut [u8]) {
        let place = self.byte(at, into.len());
        // SAFETY: that many bytes are mapped there. Another process that writes them meanwhile
        // violates the rules, and any bits are valid for the copied bytes.
        unsafe { std::ptr::copy_nonoverlapping(place, into.as_mut_ptr(), into.len()) };
    }
}
