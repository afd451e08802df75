//! ```text
//!            head                              next
//!  slots      | waiting | ready | waiting | ready |
//!                           |                 |
//!  stash               [ reply 2 ][  reply 4   ]
//! ```
//! A request reserves the next slot when it is parsed; that fixes the place of
//! its reply. The reply to the head goes straight to the client's output, an
//! early one waits in the stash. The stash is one buffer, emptied whenever no
//! reply waits in it.

use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Where its reply starts in the stash. The stash of a client that may
    /// have more than 4 GiB undelivered is larger than 32 bits tell.
    offset: u64,
    len: u64,
}

impl Slot {
    const WAITING: Slot = Slot { offset: 0, len: u64::MAX };

    fn stashed(start: usize, end: usize) -> Slot {
        Slot { offset: start as u64, len: (end - start) as u64 }
    }

    fn range(self) -> std::ops::Range<usize> {
        self.offset as usize..(self.offset + self.len) as usize
    }
}

/// The order in which replies leave one session, whatever order they come in.
#[derive(Debug, Default)]
pub struct ReplyOrder {
    slots: VecDeque<Slot>,
    head: u32,
    stash: Vec<u8>,
    stashed: u32,
}

/// Capacity the stash keeps when it empties, in bytes.
const STASH_KEPT_MAX: usize = 64 << 10;

impl ReplyOrder {
    /// Requests whose reply has not left yet.
    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether every reply has left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes of early replies.
    pub fn stash_len(&self) -> usize {
        self.stash.len()
    }

    /// Bytes of memory held.
    pub fn capacity(&self) -> usize {
        self.stash.capacity() + self.slots.capacity() * size_of::<Slot>()
    }

    /// Whether replies are here that wait for an earlier one.
    pub fn has_early(&self) -> bool {
        self.stashed > 0
    }

    /// The place that will be reserved next.
    pub fn next_place(&self) -> u32 {
        self.head.wrapping_add(self.slots.len() as u32)
    }

    /// Whether every reply in front of `place`, which was told as the next one
    /// not long ago, has left.
    pub fn has_passed(&self, place: u32) -> bool {
        place.wrapping_sub(self.head) as i32 <= 0
    }

    /// Whether the reply to the request in that place is the next to leave.
    pub fn is_next(&self, place: u32) -> bool {
        place == self.head && !self.slots.is_empty()
    }

    /// The place of the next request's reply.
    #[inline]
    pub fn reserve(&mut self) -> u32 {
        let sequence = self.head.wrapping_add(self.slots.len() as u32);
        self.slots.push_back(Slot::WAITING);
        sequence
    }

    /// Puts the reply that `write` appends into its place: into `out` if it is
    /// the next to leave, with every ready one behind it, else into the stash.
    ///
    /// # Panics
    /// When `sequence` is not waiting: each request has exactly one reply.
    #[inline]
    pub fn complete(&mut self, sequence: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        let index = sequence.wrapping_sub(self.head) as usize;
        assert!(
            self.slots.get(index).is_some_and(|slot| slot.len == Slot::WAITING.len),
            "a reply for no request"
        );
        if index == 0 {
            write(out);
            self.pop_head();
            if self.stashed > 0 {
                self.release_ready(out);
            }
        } else {
            let offset = self.stash.len();
            write(&mut self.stash);
            self.slots[index] = Slot::stashed(offset, self.stash.len());
            self.stashed += 1;
        }
    }

    #[inline]
    fn pop_head(&mut self) {
        self.slots.pop_front();
        self.head = self.head.wrapping_add(1);
    }

    fn release_ready(&mut self, out: &mut Vec<u8>) {
        while let Some(&slot) = self.slots.front() {
            if slot.len == Slot::WAITING.len {
                return;
            }
            out.extend_from_slice(&self.stash[slot.range()]);
            self.pop_head();
            self.stashed -= 1;
            if self.stashed == 0 {
                self.stash.clear();
                if self.stash.capacity() > STASH_KEPT_MAX {
                    self.stash = Vec::new();
                }
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Completes replies in an arbitrary order, reserving in between, and
    /// checks what leaves against the order of reservation.
    #[test]
    fn replies_leave_in_the_order_of_their_requests() {
        for seed in 1..200u64 {
            let mut state = seed;
            let mut random = |below: usize| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state % below as u64) as usize
            };
            let mut order = ReplyOrder { head: u32::MAX - 20, ..ReplyOrder::default() };
            let (mut out, mut expected, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
            for step in 0..300 {
                if waiting.is_empty() || (step < 200 && random(2) == 0) {
                    let reply = format!("<{step}{}>", "x".repeat(random(20)));
                    expected.extend_from_slice(reply.as_bytes());
                    waiting.push((order.reserve(), reply));
                } else {
                    let (sequence, reply) = waiting.swap_remove(random(waiting.len()));
                    order.complete(sequence, &mut out, |out| {
                        out.extend_from_slice(reply.as_bytes())
                    });
                    assert!(expected.starts_with(&out));
                }
            }
            for (sequence, reply) in waiting.drain(..) {
                order.complete(sequence, &mut out, |out| out.extend_from_slice(reply.as_bytes()));
            }
            assert_eq!(out, expected);
            assert!(order.is_empty());
            assert_eq!(order.stash_len(), 0);
        }
    }

    #[test]
    fn a_place_in_the_stash_is_told_beyond_4_gib() {
        let four = 1usize << 32;
        for (start, end) in [(0, 5), (four - 1, four), (four, four + 7), (four - 3, 2 * four + 1)] {
            let slot = Slot::stashed(start, end);
            assert_eq!(slot.range(), start..end);
            assert_ne!(slot.len, Slot::WAITING.len);
        }
    }

    #[test]
    #[should_panic(expected = "a reply for no request")]
    fn a_second_reply_is_a_bug() {
        let mut order = ReplyOrder::default();
        let (first, second) = (order.reserve(), order.reserve());
        let mut out = Vec::new();
        order.complete(second, &mut out, |_| ());
        let _ = first;
        order.complete(second, &mut out, |_| ());
    }
}
