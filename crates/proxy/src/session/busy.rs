use super::{Hold, ReplySize};
use crate::{Output, ReplyOrder};
use keyway_base::Limits;

/// The buffers of a session that is not at rest.
#[derive(Debug, Default)]
pub struct Busy {
    /// Received bytes that are not parsed: a partial request, or requests that wait for room. They
    /// are `input[parsed..]`.
    pub input: Vec<u8>,
    /// Number of bytes of `input` that are parsed.
    pub parsed: usize,
    /// Length of unparsed input from which parsing again can succeed.
    pub input_needed: usize,
    /// The order of replies that are not sent yet.
    pub order: ReplyOrder,
    /// Replies to be sent.
    pub output: Output,
    /// The time for which the output waits for other replies.
    pub hold: Hold,
    /// Number of bytes of the outputs that the worker has counted as not taken.
    pub counted: u64,
}

impl Busy {
    /// Returns the number of bytes of replies that have arrived and were not sent.
    #[inline]
    pub fn undelivered(&self) -> usize {
        self.output.len() + self.order.stash_len()
    }

    /// Returns how many of them are parts of received blocks.
    pub fn parts_count(&self) -> usize {
        self.output.parts_count() + self.order.parts_count()
    }

    /// Returns whether another request may be started: the pipeline has room and the client reads
    /// its replies.
    #[inline]
    pub fn has_room(&self, limits: &Limits, reply_size: ReplySize) -> bool {
        self.order.len() < reply_size.in_flight_max(limits)
            && self.undelivered() < limits.session_output_len_soft as usize
    }

    /// Returns the unparsed input.
    #[inline]
    pub fn unparsed(&self) -> &[u8] {
        &self.input[self.parsed..]
    }

    /// Returns whether nothing is held for the client.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty() && self.output.is_empty() && self.parsed == self.input.len()
    }

    /// Appends bytes that could not be parsed yet.
    pub fn keep_input(&mut self, bytes: &[u8]) {
        if self.parsed > 0 {
            self.input.drain(..self.parsed);
            self.parsed = 0;
        }
        self.input.extend_from_slice(bytes);
    }

    fn capacity(&self) -> usize {
        self.input.capacity() + self.order.capacity() + self.output.capacity()
    }
}

/// Unused buffers, for the next session that becomes busy.
#[derive(Debug, Default)]
#[allow(clippy::vec_box, reason = "the boxes are what is reused: sessions hold one word")]
pub struct BusyPool {
    free: Vec<Box<Busy>>,
    held: usize,
}

/// Largest amount of memory that the pool keeps, in bytes. It must cover the sessions that are busy
/// in one turn. Otherwise buffers would be allocated again. More would be waste.
const HELD_MAX: usize = 1 << 20;

/// Largest amount of memory of one kept set of buffers, in bytes.
const BUSY_KEPT_MAX: usize = 32 << 10;

impl BusyPool {
    /// Returns buffers for a session that becomes busy.
    #[inline]
    pub fn take(&mut self) -> Box<Busy> {
        match self.free.pop() {
            Some(busy) => {
                self.held -= busy.capacity() + size_of::<Busy>();
                busy
            }
            None => Box::default(),
        }
    }

    /// Takes back the buffers of a session at rest.
    #[inline]
    pub fn give(&mut self, mut busy: Box<Busy>) {
        debug_assert!(busy.is_empty());
        busy.input.clear();
        busy.parsed = 0;
        busy.input_needed = 0;
        (busy.hold, busy.counted) = (Hold::default(), 0);
        let size = busy.capacity() + size_of::<Busy>();
        if size <= BUSY_KEPT_MAX && self.held + size <= HELD_MAX {
            self.held += size;
            self.free.push(busy);
        }
    }

    /// Frees all buffers.
    pub fn trim(&mut self) {
        self.free = Vec::new();
        self.held = 0;
    }

    /// Returns the bytes held.
    pub fn held(&self) -> usize {
        self.held
    }
}
