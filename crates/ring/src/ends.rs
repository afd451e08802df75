//! The two ends of a ring of bytes. Positions only grow: a ring is empty if head and tail are
//! equal, and full if they are a capacity apart. Written bytes count from the moment their end is
//! published. A process that is killed before that has written nothing.

use crate::memory::Memory;
use crate::park::Wait;
use crate::sync::Ordering;
use std::fmt;

/// The reason why an end is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The other side has closed its end.
    Closed,
    /// The other side has written an impossible value: the memory cannot be trusted.
    Broken,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ended::Closed => "the other side has closed the ring",
            Ended::Broken => "the other side has broken the rules of the ring",
        })
    }
}

impl std::error::Error for Ended {}

/// The writing end.
#[derive(Debug)]
pub struct Producer<M> {
    memory: M,
    /// Position after the last written byte.
    written: u64,
    /// Position up to which bytes are published.
    published: u64,
    /// The consumer's position, as last read.
    head: u64,
}

/// The reading end.
#[derive(Debug)]
pub struct Consumer<M> {
    memory: M,
    /// Position of the next byte to read.
    read: u64,
    /// Position up to which room was given back.
    released: u64,
    /// The producer's position, as last read.
    tail: u64,
}

fn place<M: Memory>(memory: &M, position: u64) -> usize {
    position as usize & (memory.capacity() - 1)
}

impl<M: Memory> Producer<M> {
    /// Creates the end of a new ring.
    pub fn new(memory: M) -> Self {
        Self { memory, written: 0, published: 0, head: 0 }
    }

    fn room(&self) -> usize {
        self.memory.capacity() - (self.written - self.head) as usize
    }

    /// Returns how many bytes fit. The consumer's position is read again if fewer than `wanted` do.
    ///
    /// # Errors
    /// Returns [`Ended`] if nothing will ever fit.
    pub fn free(&mut self, wanted: usize) -> Result<usize, Ended> {
        let room = self.room();
        if room >= wanted {
            return Ok(room);
        }
        self.look()?;
        Ok(self.room())
    }

    /// Reads the consumer's position.
    fn look(&mut self) -> Result<(), Ended> {
        let header = self.memory.header();
        let head = header.head.0.load(Ordering::Acquire);
        if head < self.head || head > self.published {
            return Err(Ended::Broken);
        }
        self.head = head;
        match header.read_out.0.load(Ordering::Relaxed) {
            0 => Ok(()),
            _ => Err(Ended::Closed),
        }
    }

    /// Writes as much of `bytes` as fits, and returns how much that is. The consumer does not see
    /// it before [`Producer::publish`].
    ///
    /// # Errors
    /// Returns errors as [`Producer::free`] does.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Ended> {
        let len = bytes.len().min(self.free(bytes.len())?);
        self.put(&bytes[..len]);
        Ok(len)
    }

    /// Writes bytes that fit by [`Producer::free`].
    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.room());
        self.memory.copy_in(place(&self.memory, self.written), bytes);
        self.written += bytes.len() as u64;
    }

    /// Skips bytes whose content does not matter.
    #[inline]
    pub(crate) fn skip(&mut self, len: usize) {
        debug_assert!(len <= self.room());
        self.written += len as u64;
    }

    /// Returns the number of written bytes that are not published.
    pub fn unpublished(&self) -> usize {
        (self.written - self.published) as usize
    }

    /// Publishes the written bytes. Returns how to wake the consumer, if it sleeps.
    #[must_use = "the consumer may sleep"]
    pub fn publish(&mut self) -> Option<Wait> {
        if self.published == self.written {
            return None;
        }
        self.published = self.written;
        let header = self.memory.header();
        header.tail.0.store(self.written, Ordering::Release);
        header.reader.0.wake()
    }

    /// Announces that it is about to wait for room for `wanted` bytes, and at least a quarter of
    /// the ring. Returns the futex word, or `None` if there is room by now. Publish before this:
    /// the consumer cannot free bytes that it does not see.
    ///
    /// # Errors
    /// Returns errors as [`Producer::free`] does.
    /// Returns an error as [`Producer::free`] does.
    pub fn park(&mut self, how: Wait, wanted: usize) -> Result<Option<u32>, Ended> {
        debug_assert_eq!(self.unpublished(), 0);
        let sequence = self.memory.header().writer.0.announce(how);
        let seen = self.look();
        let capacity = self.memory.capacity();
        if seen.is_err() || self.room() >= wanted.clamp(capacity / 4, capacity) {
            self.memory.header().writer.0.cancel();
            return seen.map(|()| None);
        }
        Ok(Some(sequence))
    }

    /// Notes that it is awake, whatever has woken it.
    pub fn unpark(&mut self) {
        self.memory.header().writer.0.cancel();
    }

    /// Publishes the written bytes and tells that there will be no more. Returns how to wake the
    /// consumer, if it sleeps.
    #[must_use = "the consumer may sleep"]
    pub fn close(&mut self) -> Option<Wait> {
        self.published = self.written;
        let header = self.memory.header();
        header.tail.0.store(self.written, Ordering::Release);
        header.written_out.0.store(1, Ordering::Release);
        header.reader.0.wake()
    }

    /// Returns the memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }
}

impl<M: Memory> Consumer<M> {
    /// Creates the end of a new ring.
    pub fn new(memory: M) -> Self {
        Self { memory, read: 0, released: 0, tail: 0 }
    }

    /// Returns how many bytes can be read. The producer's position is read again if fewer than
    /// `wanted` can.
    ///
    /// # Errors
    /// Returns [`Ended`] if nothing is left and nothing will come.
    pub fn available(&mut self, wanted: usize) -> Result<usize, Ended> {
        let there = (self.tail - self.read) as usize;
        if there >= wanted.max(1) {
            return Ok(there);
        }
        self.look()
    }

    /// Reads the producer's position.
    fn look(&mut self) -> Result<usize, Ended> {
        let header = self.memory.header();
        // Bytes written before the closing are visible if the closing is.
        let is_closed = header.written_out.0.load(Ordering::Acquire) != 0;
        let tail = header.tail.0.load(Ordering::Acquire);
        let len = tail.wrapping_sub(self.released);
        if tail < self.tail || len > self.memory.capacity() as u64 {
            return Err(Ended::Broken);
        }
        self.tail = tail;
        match (self.tail - self.read) as usize {
            0 if is_closed => Err(Ended::Closed),
            there => Ok(there),
        }
    }

    /// Reads as much as there is and `into` holds, and returns how much that is.
    /// [`Consumer::release`] gives its room back to the producer.
    ///
    /// # Errors
    /// Returns errors as [`Consumer::available`] does.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, Ended> {
        let len = into.len().min(self.available(into.len())?);
        self.take(&mut into[..len]);
        Ok(len)
    }

    /// Reads bytes that are there by [`Consumer::available`].
    #[inline]
    pub(crate) fn take(&mut self, into: &mut [u8]) {
        debug_assert!(into.len() as u64 <= self.tail - self.read);
        self.memory.copy_out(place(&self.memory, self.read), into);
        self.read += into.len() as u64;
    }

    /// Skips bytes that are there.
    #[inline]
    pub(crate) fn skip(&mut self, len: usize) {
        debug_assert!(len as u64 <= self.tail - self.read);
        self.read += len as u64;
    }

    /// Returns the number of read bytes whose room was not given back.
    pub fn unreleased(&self) -> usize {
        (self.read - self.released) as usize
    }

    /// Gives the room of read bytes back. Returns how to wake the producer, if it waits and a
    /// quarter of the ring is free.
    #[must_use = "the producer may sleep"]
    pub fn release(&mut self) -> Option<Wait> {
        if self.released == self.read {
            return None;
        }
        self.released = self.read;
        let header = self.memory.header();
        header.head.0.store(self.read, Ordering::Release);
        let capacity = self.memory.capacity() as u64;
        let held = header.tail.0.load(Ordering::Relaxed).wrapping_sub(self.read);
        // A producer of a full ring waits for a quarter, and is woken at each release after that.
        if held <= capacity - capacity / 4 { header.writer.0.wake() } else { None }
    }

    /// Announces that it is about to wait for bytes. Returns the futex word, or `None` if there are
    /// some by now. Release before this: the producer may wait for that.
    ///
    /// # Errors
    /// Returns errors as [`Consumer::available`] does.
    pub fn park(&mut self, how: Wait) -> Result<Option<u32>, Ended> {
        debug_assert_eq!(self.unreleased(), 0);
        let sequence = self.memory.header().reader.0.announce(how);
        let seen = self.look();
        if seen != Ok(0) {
            self.memory.header().reader.0.cancel();
            return seen.map(|_| None);
        }
        Ok(Some(sequence))
    }

    /// Notes that it is awake, whatever has woken it.
    pub fn unpark(&mut self) {
        self.memory.header().reader.0.cancel();
    }

    /// Tells that nothing more will be read. Returns how to wake the producer, if it waits.
    #[must_use = "the producer may sleep"]
    pub fn close(&mut self) -> Option<Wait> {
        let header = self.memory.header();
        header.read_out.0.store(1, Ordering::Release);
        header.writer.0.wake()
    }

    /// Returns the memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }
}
