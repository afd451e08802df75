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

// SAFETY: it is memory that any thread may use, and what is in it is atomics.
unsafe impl Send for SharedDoorbell {}
// SAFETY: as above.
unsafe impl Sync for SharedDoorbell {}

impl SharedDoorbell {
    /// A new one.
    ///
    /// # Errors
    /// Of the system.
    pub fn create() -> io::Result<SharedDoorbell> {
        SharedDoorbell::map(sealed(HEADER_LEN as u64)?)
    }

    /// One that another process has made and handed over.
    ///
    /// # Errors
    /// `InvalidData` when it is not sealed, or has another size.
    pub fn open(descriptor: OwnedFd) -> io::Result<SharedDoorbell> {
        check_sealed(descriptor.as_fd(), HEADER_LEN as u64)?;
        SharedDoorbell::map(descriptor)
    }

    fn map(descriptor: OwnedFd) -> io::Result<SharedDoorbell> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: new addresses, where nothing is yet.
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

    /// To be handed to the writers.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Deref for SharedDoorbell {
    type Target = Doorbell;

    fn deref(&self) -> &Doorbell {
        // SAFETY: mapped as long as `self` is, aligned to a page, atomics throughout, and any bits
        // are a value of them.
        unsafe { self.base.cast::<Doorbell>().as_ref() }
    }
}

impl Drop for SharedDoorbell {
    fn drop(&mut self) {
        // SAFETY: all of what `map` has mapped, and nobody has a reference into it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), HEADER_LEN) };
        debug_assert!(unmapped.is_ok());
    }
}
