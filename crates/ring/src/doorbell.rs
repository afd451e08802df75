//! The doorbell of an inbox whose writers are other processes.

use crate::inbox::Doorbell;
use crate::layout::HEADER_LEN;
use crate::segment::{check_sealed, sealed};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;

const _: () = assert!(size_of::<Doorbell>() <= HEADER_LEN);

/// A [`Doorbell`] in memory that is handed over like a [`crate::Segment`].
#[derive(Debug)]
pub struct SharedDoorbell {
    descriptor: OwnedFd,
    base: NonNull<u8>,
}

// SAFETY: any thread may use the memory, and its content is atomics.
unsafe impl Send for SharedDoorbell {}
// SAFETY: as above.
unsafe impl Sync for SharedDoorbell {}

impl SharedDoorbell {
    /// Creates a doorbell.
    ///
    /// # Errors
    /// Returns an error of the system.
    pub fn create() -> io::Result<SharedDoorbell> {
        SharedDoorbell::map(sealed(HEADER_LEN as u64)?)
    }

    /// Opens a doorbell that another process has made and handed over.
    ///
    /// # Errors
    /// Returns `InvalidData` if it is not sealed, or has another size.
    pub fn open(descriptor: OwnedFd) -> io::Result<SharedDoorbell> {
        check_sealed(descriptor.as_fd(), HEADER_LEN as u64)?;
        SharedDoorbell::map(descriptor)
    }

    fn map(descriptor: OwnedFd) -> io::Result<SharedDoorbell> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: these are new addresses, where nothing is mapped yet.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                HEADER_LEN,
                rights,
                MapFlags::SHARED,
                &descriptor,
                0,
            )
        }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SharedDoorbell { descriptor, base })
    }

    /// Returns the descriptor for the writers.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Deref for SharedDoorbell {
    type Target = Doorbell;

    fn deref(&self) -> &Doorbell {
        // SAFETY: the memory is mapped as long as `self` exists and is aligned to a page. Its
        // content is atomics, for which any bits are valid.
        unsafe { self.base.cast::<Doorbell>().as_ref() }
    }
}

impl Drop for SharedDoorbell {
    fn drop(&mut self) {
        // SAFETY: this is all that `map` has mapped, and no reference into it exists any more.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), HEADER_LEN) };
        debug_assert!(unmapped.is_ok());
    }
}
