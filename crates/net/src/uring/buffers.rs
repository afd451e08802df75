//! Memory into which the kernel receives, with counts of unread pieces.
//!
//! Buffers are given to the kernel through a ring. If the kernel can fill a buffer bit by bit (Linux
//! 6.12), many small receptions lie one after the other in the same buffer. Otherwise each takes a
//! buffer of its own. A buffer goes back when the kernel is done with it and nothing in it is still
//! to be read.

use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

/// The only group of buffers of a ring.
pub(super) const GROUP: u16 = 0;

/// Flag for buffers that are filled bit by bit: `IOU_PBUF_RING_INC`.
const INCREMENTAL: u16 = 2;

/// The number and the length of buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    count: u16,
    len: u32,
    is_incremental: bool,
}

/// Few long buffers, filled bit by bit.
const LONG: Shape = Shape { count: 8, len: 64 << 10, is_incremental: true };

/// One buffer for each reception: as many as clients that may be ready at once.
const SHORT: Shape = Shape { count: 128, len: 8 << 10, is_incremental: false };

/// Received bytes in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    buffer: u16,
    start: u32,
    pub(super) len: u32,
}

impl Piece {
    /// Returns the two as one, if `next` lies right after this one.
    pub(super) fn joined(self, next: Piece) -> Option<Piece> {
        let is_next = self.buffer == next.buffer && self.start + self.len == next.start;
        is_next.then_some(Piece { len: self.len + next.len, ..self })
    }
}

#[derive(Clone, Copy, Default)]
struct Buffer {
    /// The position at which the kernel goes on.
    position: u32,
    /// Receptions in it that are unread.
    unread: u32,
    /// True if the kernel is done with it.
    is_full: bool,
}

/// All buffers of a worker.
pub(super) struct Buffers {
    shape: Shape,
    buffers: Vec<Buffer>,
    /// The ring of shared buffers, followed by the bytes.
    memory: NonNull<c_void>,
    memory_len: usize,
    ring_len: usize,
    tail: u16,
}

// SAFETY: only this value owns the memory, wherever it moves.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Lends buffers to the kernel: long ones if it can fill them bit by bit.
    ///
    /// # Errors
    /// Returns an error if the kernel has no such rings, or there is no memory.
    pub(super) fn register(ring: &IoUring) -> io::Result<Self> {
        Self::lend_shaped(ring, LONG).or_else(|_| Self::lend_shaped(ring, SHORT))
    }

    /// Lends one buffer for each reception, as for older kernels.
    ///
    /// # Errors
    /// Returns errors as [`Buffers::register`] does.
    pub(super) fn lend_short(ring: &IoUring) -> io::Result<Self> {
        Self::lend_shaped(ring, SHORT)
    }

    fn lend_shaped(ring: &IoUring, shape: Shape) -> io::Result<Self> {
        const PAGE: usize = 4096;
        let count = usize::from(shape.count);
        let ring_len = (count * size_of::<BufRingEntry>()).next_multiple_of(PAGE);
        let memory_len = ring_len + count * shape.len as usize;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address that the system chooses touches no other memory.
        let memory = unsafe {
            mmap_anonymous(std::ptr::null_mut(), memory_len, protection, MapFlags::PRIVATE)?
        };
        let memory = NonNull::new(memory).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut all = Buffers {
            shape,
            buffers: vec![Buffer { is_full: true, ..Buffer::default() }; count],
            memory,
            memory_len,
            ring_len,
            tail: 0,
        };
        let flags = if shape.is_incremental { INCREMENTAL } else { 0 };
        // SAFETY: the address is that of a mapping with room for all entries. It outlives its
        // registration, which the `Drop` of the driver ends first.
        unsafe {
            let address = memory.as_ptr() as u64;
            ring.submitter().register_buf_ring_with_flags(address, shape.count, GROUP, flags)?;
        }
        (0..shape.count).for_each(|index| all.give_back(index));
        all.publish();
        Ok(all)
    }

    /// Notes a reception of `len` bytes into a buffer. `more` says whether the kernel goes on
    /// filling it. Returns `None` for values that a correct kernel never reports.
    pub(super) fn fill(&mut self, index: u16, len: u32, more: bool) -> Option<Piece> {
        let buffer = self.buffers.get_mut(usize::from(index))?;
        let start = buffer.position;
        if buffer.is_full || len > self.shape.len - start {
            return None;
        }
        buffer.position += len;
        buffer.unread += 1;
        buffer.is_full = !more;
        Some(Piece { buffer: index, start, len })
    }

    /// Notes that two receptions have become one piece.
    pub(super) fn note_joined(&mut self, piece: Piece) {
        self.buffers[usize::from(piece.buffer)].unread -= 1;
    }

    /// Returns whether the kernel has fewer than half of the buffers left.
    pub(super) fn are_scarce(&self) -> bool {
        let left = self.buffers.iter().filter(|buffer| !buffer.is_full).count();
        left * 2 < self.buffers.len()
    }

    /// Returns the received bytes.
    pub(super) fn bytes(&self, piece: Piece) -> &[u8] {
        let from = self.ring_len
            + usize::from(piece.buffer) * self.shape.len as usize
            + piece.start as usize;
        debug_assert!(piece.start + piece.len <= self.shape.len);
        // SAFETY: `fill` made the piece of bytes inside its buffer that the kernel is done with.
        // The kernel writes there again only after `release`, which ends the piece.
        unsafe {
            let first = self.memory.as_ptr().cast::<u8>().add(from);
            std::slice::from_raw_parts(first, piece.len as usize)
        }
    }

    /// Notes that a piece was read.
    #[inline]
    pub(super) fn release(&mut self, piece: Piece) {
        let buffer = &mut self.buffers[usize::from(piece.buffer)];
        buffer.unread -= 1;
        if buffer.unread == 0 && buffer.is_full {
            self.give_back(piece.buffer);
            self.publish();
        }
    }

    fn give_back(&mut self, index: u16) {
        self.buffers[usize::from(index)] = Buffer::default();
        let at = usize::from(self.tail & (self.shape.count - 1));
        let from = self.ring_len + usize::from(index) * self.shape.len as usize;
        // SAFETY: there are as many entries as buffers, a power of two, so `at` is one of them. The
        // kernel reads it only once the tail is past it.
        unsafe {
            let entry = &mut *self.memory.as_ptr().cast::<BufRingEntry>().add(at);
            entry.set_addr(self.memory.as_ptr() as u64 + from as u64);
            entry.set_len(self.shape.len);
            entry.set_bid(index);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&mut self) {
        // SAFETY: the first entry exists. Its tail is shared with the kernel, which only reads it.
        // ORDER: a reader that sees the tail sees the entries
        unsafe {
            let tail = BufRingEntry::tail(self.memory.as_ptr().cast());
            (*tail.cast::<AtomicU16>()).store(self.tail, Ordering::Release);
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and the driver has ended its registration.
        let _ = unsafe { munmap(self.memory.as_ptr(), self.memory_len) };
    }
}
