//! Memory of one process, for rings between its threads. It has no descriptor that another process
//! could open.

use crate::layout::Header;
use crate::memory::Memory;
use crate::segment::{CAPACITY_MAX, CAPACITY_MIN};
use std::cell::UnsafeCell;
use std::sync::Arc;

/// A ring in memory of this process alone. Clones are the same memory, one for each end.
#[derive(Clone, Debug)]
pub struct Private(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    header: Header,
    bytes: Box<[UnsafeCell<u8>]>,
}

// SAFETY: any thread may use the memory. Its content is atomics, and bytes that one end writes and
// the other end reads. Positions, published with release and read with acquire, tell which end may
// use a byte.
unsafe impl Sync for Inner {}

impl Private {
    /// Creates a ring of at least `capacity` bytes, a power of two from [`CAPACITY_MIN`] to
    /// [`CAPACITY_MAX`]. The system provides pages when they are written.
    pub fn new(capacity: usize) -> Private {
        let capacity = capacity.clamp(CAPACITY_MIN, CAPACITY_MAX).next_power_of_two();
        let zeros: Box<[u8]> = vec![0; capacity].into_boxed_slice();
        // SAFETY: a cell has the layout of its content, and no one else has this memory.
        let bytes = unsafe { Box::from_raw(Box::into_raw(zeros) as *mut [UnsafeCell<u8>]) };
        Private(Arc::new(Inner { header: Header::default(), bytes }))
    }

    fn place(&self, at: usize, len: usize) -> (*mut u8, usize) {
        let bytes = &self.0.bytes;
        assert!(at < bytes.len() && len <= bytes.len(), "{len} bytes at {at} of a ring");
        // All cells of a slice may be written through a pointer to the first.
        (UnsafeCell::raw_get(bytes.as_ptr()), len.min(bytes.len() - at))
    }
}

// SAFETY: the header is the same for the memory's whole life, and `place` has checked the bounds of
// both copies, which wrap around at the end.
unsafe impl Memory for Private {
    fn header(&self) -> &Header {
        &self.0.header
    }

    fn capacity(&self) -> usize {
        self.0.bytes.len()
    }

    fn copy_in(&self, at: usize, bytes: &[u8]) {
        let (start, first) = self.place(at, bytes.len());
        // SAFETY: both pieces are within the ring, and the other end does not read them before they
        // are published.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.add(at), first);
            std::ptr::copy_nonoverlapping(bytes.as_ptr().add(first), start, bytes.len() - first);
        }
    }

    fn copy_out(&self, at: usize, into: &mut [u8]) {
        let (start, first) = self.place(at, into.len());
        // SAFETY: both pieces are within the ring, and the other end does not write them before
        // they are given back.
        unsafe {
            std::ptr::copy_nonoverlapping(start.add(at), into.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(start, into.as_mut_ptr().add(first), into.len() - first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Consumer, Ended, Producer};

    #[test]
    fn what_one_thread_writes_another_reads_in_order_across_the_end() {
        let ring = Private::new(1);
        assert_eq!(ring.capacity(), CAPACITY_MIN);
        let (mut producer, mut consumer) = (Producer::new(ring.clone()), Consumer::new(ring));
        const LEN: usize = 10 * CAPACITY_MIN + 777;
        let byte = |at: usize| ((at * 31) >> 3) as u8;
        let writer = std::thread::spawn(move || {
            let mut at = 0;
            while at < LEN {
                let piece: Vec<u8> = (at..LEN.min(at + 5003)).map(byte).collect();
                let len = producer.write(&piece).unwrap();
                // Neither end sleeps here.
                let _ = producer.publish();
                at += len;
                if len == 0 {
                    std::thread::yield_now();
                }
            }
            let _ = producer.close();
        });
        let (mut read, mut buf) = (Vec::new(), [0; 7001]);
        loop {
            match consumer.read(&mut buf) {
                Ok(0) => std::thread::yield_now(),
                Ok(len) => {
                    read.extend_from_slice(&buf[..len]);
                    let _ = consumer.release();
                }
                Err(ended) => {
                    assert_eq!(ended, Ended::Closed);
                    break;
                }
            }
        }
        writer.join().unwrap();
        assert!(read.len() == LEN && read.iter().enumerate().all(|(at, got)| *got == byte(at)));
    }
}
