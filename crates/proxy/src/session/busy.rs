use super::{Hold, ReplySize};
use crate::{Output, ReplyOrder};
use keyway_base::Limits;

/// The buffers of a session that has something to do.
#[derive(Debug, Default)]
pub struct Busy {
    /// Bytes received and not parsed: a partial request, or requests that
    /// wait for room. `input[parsed..]` is what counts.
    pub input: Vec<u8>,
    /// Bytes of `input` that were parsed already.
    pub parsed: usize,
    /// Length of unparsed input worth parsing again.
    pub input_needed: usize,
    /// Places of replies not sent yet.
    pub order: ReplyOrder,
    /// Replies on their way out.
    pub output: Output,
    /// How long they wait for others.
    pub hold: Hold,
    /// Bytes of the outputs that the worker has counted as not taken.
    pub counted: u64,
}

impl Busy {
    /// Replies that are here and not sent, in bytes.
    #[inline]
    pub fn undelivered(&self) -> usize {
        self.output.len() + self.order.stash_len()
    }

    /// How many of them are parts of what was read.
    pub fn parts_count(&self) -> usize {
        self.output.parts_count() + self.order.parts_count()
    }

    /// Whether another request may be started: the pipeline has room and the
    /// client reads its replies.
    #[inline]
    pub fn has_room(&self, limits: &Limits, reply_size: ReplySize) -> bool {
        self.order.len() < reply_size.in_flight_max(limits)
            && self.undelivered() < limits.session_output_len_soft as usize
    }

    /// Input not parsed yet.
    #[inline]
    pub fn unparsed(&self) -> &[u8] {
        &self.input[self.parsed..]
    }

    /// Whether nothing is held for the client.
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

/// Buffers at rest, for the next session that wakes.
#[derive(Debug, Default)]
#[allow(clippy::vec_box, reason = "the boxes are what is reused: sessions hold one word")]
pub struct BusyPool {
    free: Vec<Box<Busy>>,
    held: usize,
}

/// Memory the pool keeps, in bytes. It must cover the sessions that are busy
/// in one turn, or buffers are allocated anew; above that it is only waste.
const HELD_MAX: usize = 1 << 20;

/// Memory one kept buffer set may hold, in bytes.
const BUSY_KEPT_MAX: usize = 32 << 10;

impl BusyPool {
    /// Buffers for a session that wakes.
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

    /// Gives everything back to the allocator.
    pub fn trim(&mut self) {
        self.free = Vec::new();
        self.held = 0;
    }

    /// Bytes held.
    pub fn held(&self) -> usize {
        self.held
    }
}
