//! How the C library's allocator, which serves everything but items and tables,
//! is to behave.

/// Block size from which each block is a mapping of its own, in bytes: buffers
/// that grew in a burst then go back to the system when they are freed,
/// wherever they lie.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_LEN_MIN: i32 = 128 << 10;

/// Free memory at the end of the heap from which it is given back, in bytes.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const TRIM_LEN_MIN: i32 = 256 << 10;

/// Has the system take the pages back that lie in free memory, wherever in the
/// heap. Freed blocks that are many and lie side by side would otherwise keep
/// theirs until the end of the heap is free, and go back in one go: a pause of
/// milliseconds for the thread that frees the last one. Does nothing with other
/// C libraries.
pub(crate) fn give_back_free_pages() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: it touches free memory alone, under the allocator's locks. The end
    // of the heap stays: it is shortened when blocks are freed.
    unsafe {
        libc::malloc_trim(usize::MAX / 2);
    }
}

/// Keeps glibc from raising its thresholds with use: by default one freed
/// buffer of 32 MiB makes it keep every buffer up to that size for ever. To be
/// called once, before threads are started. Does nothing with other C
/// libraries.
pub fn give_back_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: mallopt takes two numbers and touches only the allocator's own
    // settings, under its lock; setting either value switches the adjustment off.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_LEN_MIN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_LEN_MIN);
    }
}
