//! Settings of the C library's allocator, which serves everything except items and tables.

/// Length from which each block is a mapping of its own, in bytes. Buffers that grew in a burst are
/// then returned to the system when they are freed, wherever they are.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_LEN_MIN: i32 = 128 << 10;

/// Amount of free memory at the end of the heap from which it is returned, in bytes.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const TRIM_LEN_MIN: i32 = 256 << 10;

/// Returns the bytes that a block of `len` bytes takes in glibc, with its header: multiples of
/// sixteen, and whole pages if it is mapped separately.
pub const fn allocated(len: usize) -> usize {
    match len {
        0 => 0,
        1..=24 => 32,
        _ if len < 128 << 10 => (len + 8).next_multiple_of(16),
        _ => (len + 16).next_multiple_of(4096),
    }
}

/// Keeps glibc from raising its thresholds with use. By default, one freed buffer of 32 MiB makes
/// it keep every buffer up to that size for ever. It must be called once, before threads are
/// started. It does nothing with other C libraries.
pub fn give_back_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: mallopt takes two numbers and touches only the allocator's own
    // settings, under its lock; setting either value switches the adjustment off.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_LEN_MIN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_LEN_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_takes_its_header_and_what_is_left_of_its_last_unit() {
        let mapped = 128 << 10;
        for (len, bytes) in [
            (0, 0),
            (1, 32),
            (24, 32),
            (25, 48),
            (40, 48),
            (41, 64),
            (mapped - 1, mapped + 16),
            (mapped, mapped + 4096),
            (mapped + 4080, mapped + 4096),
            (mapped + 4081, mapped + 8192),
        ] {
            assert_eq!(allocated(len), bytes, "{len}");
        }
    }

    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    #[test]
    fn a_block_is_mapped_on_its_own_though_a_longer_one_was_freed() {
        give_back_freed_memory();
        drop(std::hint::black_box(Vec::<u8>::with_capacity(16 << 20)));
        let is_mapped = |block: &Vec<u8>| {
            // SAFETY: the block came from the C library's allocator and is live.
            let usable = unsafe { libc::malloc_usable_size(block.as_ptr().cast_mut().cast()) };
            // A tool that detects memory errors has an allocator of its own, which does not round.
            usable == block.capacity() || usable + 16 == allocated(block.capacity())
        };
        // Memory that parallel tests have freed is used first, and is soon used up. No block would
        // be mapped if the long one had raised the threshold.
        let mut blocks: Vec<Vec<u8>> = Vec::new();
        while !blocks.last().is_some_and(is_mapped) {
            assert!(blocks.len() < 256, "none of {} blocks is mapped", blocks.len());
            blocks.push(std::hint::black_box(Vec::with_capacity((1 << 20) + 1)));
        }
    }
}
