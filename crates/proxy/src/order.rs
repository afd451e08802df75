//! ```text
//!            head                              next
//!  slots      | waiting | ready | waiting | ready |
//!                           |                 |
//!  stash               [ reply 2 ][  reply 4   ]
//! ```
//! A request reserves the next slot when it is parsed, which decides the position of its reply. The
//! reply to the head goes straight to the client's output. An early one waits in the stash. The
//! stash is one buffer, which is emptied whenever no reply waits in it.

use crate::Output;
use keyway_base::Part;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The offset of its reply in the stash. The stash of a client that may have more than 4 GiB
    /// undelivered exceeds 32 bits.
    offset: u64,
    len: u64,
}

impl Slot {
    const WAITING: Slot = Slot { offset: 0, len: u64::MAX };
    /// Means that its reply is a part, and not in the stash.
    const KEPT: u64 = u64::MAX - 1;

    /// Returns the slot of a reply that is kept as the part with that number.
    fn kept(number: usize) -> Slot {
        Slot { offset: number as u64, len: Slot::KEPT }
    }

    fn stashed(start: usize, end: usize) -> Slot {
        Slot { offset: start as u64, len: (end - start) as u64 }
    }

    fn range(self) -> std::ops::Range<usize> {
        self.offset as usize..(self.offset + self.len) as usize
    }
}

/// The order in which replies leave one session, whatever the order in which they arrive.
#[derive(Debug, Default)]
pub struct ReplyOrder {
    slots: VecDeque<Slot>,
    head: u32,
    stash: Vec<u8>,
    /// Early replies that are not copied. `None` where one has left.
    parts: Vec<Option<Part>>,
    /// Number of them that have not left, and number of bytes of those and of the list.
    parts_left: usize,
    parts_len: usize,
    /// Number of early replies, in the stash or not.
    stashed: u32,
    /// What is remembered of requests without a reply. `None` if there were none.
    unheard: Option<Unheard>,
}

/// The latest of the requests whose reply the client does not want. They have no index.
#[derive(Clone, Copy, Debug)]
struct Unheard {
    /// The index that was to be reserved next when it began.
    at: u32,
    /// True if another one was in flight then.
    has_company: bool,
}

/// Capacity that the stash keeps when it becomes empty, in bytes.
const STASH_KEPT_MAX: usize = 64 << 10;

/// Capacity for parts that it keeps when none is left, in parts.
const PARTS_KEPT_MAX: usize = 64;

impl ReplyOrder {
    /// Returns the number of requests whose reply has not left yet.
    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether every reply has left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the bytes of early replies, including those that have left since the stash was last
    /// empty.
    pub fn stash_len(&self) -> usize {
        self.stash.len() + self.parts_len
    }

    /// Returns how many early replies are parts of received blocks.
    pub fn parts_count(&self) -> usize {
        self.parts_left
    }

    /// Returns the bytes of memory held.
    pub fn capacity(&self) -> usize {
        self.stash.capacity()
            + self.slots.capacity() * size_of::<Slot>()
            + self.parts.capacity() * size_of::<Option<Part>>()
    }

    /// Returns whether there are replies that wait for an earlier one.
    pub fn has_early(&self) -> bool {
        self.stashed > 0
    }

    /// The index that will be reserved next.
    pub fn next_index(&self) -> u32 {
        self.head.wrapping_add(self.slots.len() as u32)
    }

    /// Returns whether every reply in front of `index`, which was told as the next one
    /// not long ago, has left.
    pub fn has_passed(&self, index: u32) -> bool {
        index.wrapping_sub(self.head) as i32 <= 0
    }

    /// Returns whether the reply of that index is the next to leave.
    pub fn is_next(&self, index: u32) -> bool {
        index == self.head && !self.slots.is_empty()
    }

    /// Notes that a request without a reply begins, while so many others like it are in flight.
    pub fn note_unheard(&mut self, others: u32) {
        self.unheard = Some(Unheard { at: self.next_index(), has_company: others > 0 });
    }

    /// Returns whether one request is in flight and none was begun after it, not even one that is
    /// over. `unheard` is the number of requests without a reply in flight.
    pub fn is_only_one(&self, unheard: u32) -> bool {
        match (self.slots.len(), unheard) {
            (1, 0) => self.unheard.is_none_or(|it| it.at.wrapping_sub(self.head) as i32 <= 0),
            (0, 1) => self.unheard.is_some_and(|it| it.at == self.next_index() && !it.has_company),
            _ => false,
        }
    }

    /// Reserves the index of the next request's reply.
    #[inline]
    pub fn reserve(&mut self) -> u32 {
        let sequence = self.head.wrapping_add(self.slots.len() as u32);
        self.slots.push_back(Slot::WAITING);
        sequence
    }

    /// Takes back the index that was reserved last: its request will not be executed.
    ///
    /// # Panics
    /// When `sequence` is not waiting, or another was reserved after it.
    pub fn withdraw(&mut self, sequence: u32) {
        let index = self.waiting(sequence);
        assert_eq!(index + 1, self.slots.len(), "the reply of another is behind it");
        self.slots.pop_back();
    }

    /// Completes the reply that `write` appends: into `out` if it is the next to leave, with every
    /// ready one after it, else into the stash.
    ///
    /// # Panics
    /// Panics if `sequence` is not waiting: each request has exactly one reply.
    #[inline]
    pub fn complete(&mut self, sequence: u32, out: &mut Output, write: impl FnOnce(&mut Vec<u8>)) {
        let index = self.waiting(sequence);
        if index == 0 {
            write(out.buf());
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

    /// Completes a reply without copying it.
    ///
    /// # Panics
    /// Panics if `sequence` is not waiting: each request has exactly one reply.
    pub fn complete_with(&mut self, sequence: u32, out: &mut Output, part: Part) {
        let index = self.waiting(sequence);
        if index == 0 {
            out.append(part);
            self.pop_head();
            if self.stashed > 0 {
                self.release_ready(out);
            }
        } else {
            self.slots[index] = Slot::kept(self.parts.len());
            self.parts_len += part.len() + size_of::<Option<Part>>();
            self.parts_left += 1;
            self.parts.push(Some(part));
            self.stashed += 1;
        }
    }

    /// Completes every request that waits, in their order. `write` appends the reply to each to its
    /// argument. All replies leave into `out`.
    pub fn complete_rest(&mut self, out: &mut Output, mut write: impl FnMut(&mut Vec<u8>)) {
        while !self.slots.is_empty() {
            // The head always waits: a ready one has left.
            self.complete(self.head, out, &mut write);
        }
    }

    /// Returns the index of the slot of that sequence number, which waits.
    #[inline]
    fn waiting(&self, sequence: u32) -> usize {
        let index = sequence.wrapping_sub(self.head) as usize;
        assert!(
            self.slots.get(index).is_some_and(|slot| slot.len == Slot::WAITING.len),
            "a reply for no request"
        );
        index
    }

    #[inline]
    fn pop_head(&mut self) {
        self.slots.pop_front();
        self.head = self.head.wrapping_add(1);
    }

    fn release_ready(&mut self, out: &mut Output) {
        while let Some(&slot) = self.slots.front() {
            if slot.len == Slot::WAITING.len {
                return;
            }
            if slot.len == Slot::KEPT {
                let part = self.parts[slot.offset as usize].take();
                let part = part.expect("a part leaves once");
                self.parts_len -= part.len();
                self.parts_left -= 1;
                out.append(part);
                if self.parts_left == 0 {
                    self.parts.clear();
                    self.parts_len = 0;
                }
            } else {
                out.buf().extend_from_slice(&self.stash[slot.range()]);
            }
            self.pop_head();
            self.stashed -= 1;
            if self.stashed == 0 {
                self.stash.clear();
                if self.parts.capacity() > PARTS_KEPT_MAX {
                    self.parts = Vec::new();
                }
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
    use std::io::IoSlice;
    use std::sync::Arc;

    /// Begins requests with and without a reply and ends them in an arbitrary order. One that is
    /// told as the only one must be the last that was begun.
    #[test]
    fn the_only_one_has_nothing_behind_it() {
        let mut told = 0;
        for seed in 1..500u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut random = |below: usize| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state % below as u64) as usize
            };
            let mut order = ReplyOrder { head: u32::MAX - 5, ..ReplyOrder::default() };
            let mut out = Output::default();
            // Those in flight, by the number of requests that were begun before.
            let (mut heard, mut unheard) = (Vec::new(), Vec::new());
            for begun in 1..60 {
                for _ in 0..random(4) {
                    match random(2) {
                        0 if !heard.is_empty() => {
                            let (_, index) = heard.swap_remove(random(heard.len()));
                            order.complete(index, &mut out, |_| ());
                        }
                        _ if !unheard.is_empty() => {
                            unheard.swap_remove(random(unheard.len()));
                        }
                        _ => {}
                    }
                    let all = heard.iter().map(|&(begun, _)| begun).chain(unheard.clone());
                    let all: Vec<i32> = all.collect();
                    if order.is_only_one(unheard.len() as u32) {
                        assert_eq!(all, [begun - 1], "seed {seed}");
                        told += 1;
                    }
                    if order.is_empty() && all.is_empty() {
                        order = ReplyOrder::default();
                    }
                }
                match random(2) {
                    0 => heard.push((begun, order.reserve())),
                    _ => {
                        order.note_unheard(unheard.len() as u32);
                        unheard.push(begun);
                    }
                }
                if heard.len() + unheard.len() == 1 {
                    assert!(order.is_only_one(unheard.len() as u32), "seed {seed}: it is alone");
                }
            }
        }
        assert!(told > 1000, "{told}");
    }

    /// Completes replies in an arbitrary order, reserves in between, and checks what leaves against
    /// the order of reservation.
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
            let (mut out, mut expected, mut waiting) = (Output::default(), Vec::new(), Vec::new());
            let mut left = Vec::new();
            for step in 0..300 {
                if waiting.is_empty() || (step < 200 && random(2) == 0) {
                    let reply = format!("<{step}{}>", "x".repeat(random(20)));
                    expected.extend_from_slice(reply.as_bytes());
                    waiting.push((order.reserve(), reply));
                } else {
                    let (sequence, reply) = waiting.swap_remove(random(waiting.len()));
                    answer(&mut order, &mut out, sequence, &reply, random(3) == 0);
                    let left_before = left.len();
                    send(&mut out, random(60), &mut left);
                    assert!(left.len() - left_before < 60 && expected.starts_with(&left));
                }
            }
            for (sequence, reply) in waiting.drain(..) {
                answer(&mut order, &mut out, sequence, &reply, sequence % 2 == 0);
            }
            assert_eq!(left.len() + out.len(), expected.len());
            send(&mut out, usize::MAX, &mut left);
            assert_eq!(left, expected);
            assert!(order.is_empty() && out.is_empty() && !out.has_parts());
            assert_eq!(order.stash_len(), 0);
        }
    }

    #[test]
    fn replies_that_are_always_early_pile_up_nothing() {
        let (mut order, mut out) = (ReplyOrder::default(), Output::default());
        let block: keyway_base::Block = Arc::from(&b"0123456789"[..]);
        let part = || Part::of(&block, &block[..]).unwrap();
        let mut late = order.reserve();
        let mut early = order.reserve();
        order.complete_with(early, &mut out, part());
        for _ in 0..100_000 {
            // The next one arrives before the last has left.
            let next = (order.reserve(), order.reserve());
            order.complete_with(next.1, &mut out, part());
            let held = order.stash_len();
            order.complete(late, &mut out, |out| out.extend_from_slice(b"late"));
            assert!(held > 2 * 10 && order.parts_count() == 1);
            (late, early) = next;
            out.advance(out.len());
            assert!(order.capacity() <= 4 * (64 << 10), "it piles up, and nobody sees it");
            if order.stash_len() > 64 << 10 {
                // So much is undelivered that no more is asked.
                order.complete(late, &mut out, |_| ());
                assert_eq!((order.stash_len(), order.len()), (0, 0));
                (late, early) = (order.reserve(), order.reserve());
                order.complete_with(early, &mut out, part());
            }
        }
        let _ = early;
    }

    /// Answers with a copy of a reply or with a part of a block.
    fn answer(order: &mut ReplyOrder, out: &mut Output, sequence: u32, reply: &str, is_part: bool) {
        if is_part {
            let block = format!("head{reply}tail").into_bytes().into();
            let part = Part::of(&block, &block[4..4 + reply.len()]).unwrap();
            order.complete_with(sequence, out, part);
        } else {
            order.complete(sequence, out, |out| out.extend_from_slice(reply.as_bytes()));
        }
    }

    /// Sends up to `len` bytes, in a few pieces at a time.
    fn send(out: &mut Output, mut len: usize, left: &mut Vec<u8>) {
        while len > 0 && !out.is_empty() {
            let mut pieces = [IoSlice::new(b""); 3];
            let count = out.pieces(&mut pieces, len);
            let before = left.len();
            pieces[..count].iter().for_each(|piece| left.extend_from_slice(piece));
            let sent = left.len() - before;
            len -= sent;
            out.advance(sent);
        }
    }

    #[test]
    fn an_offset_in_the_stash_is_told_beyond_4_gib() {
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
        let mut out = Output::default();
        order.complete(second, &mut out, |_| ());
        let _ = first;
        order.complete(second, &mut out, |_| ());
    }

    #[test]
    fn a_reply_index_that_is_withdrawn_is_the_next_to_be_reserved() {
        let (mut order, mut out) = (ReplyOrder::default(), Output::default());
        let first = order.reserve();
        let second = order.reserve();
        order.withdraw(second);
        assert_eq!(order.len(), 1);
        assert_eq!(order.reserve(), second);
        order.complete(second, &mut out, |out| out.push(b'2'));
        order.complete(first, &mut out, |out| out.push(b'1'));
        assert_eq!((out.unsent(), order.is_empty()), (&b"12"[..], true));
    }
    /// An early reply in the model: its length, and whether it is a part.
    type Early = (usize, bool);

    /// The replies that a [`ReplyOrder`] must keep.
    #[derive(Default)]
    struct Model {
        head: u32,
        slots: VecDeque<Option<Early>>,
        stash_len: usize,
        parts_len: usize,
    }

    impl Model {
        fn early(&self) -> impl Iterator<Item = Early> {
            self.slots.iter().filter_map(|slot| *slot)
        }

        fn complete(&mut self, reply_index: u32, len: usize, is_part: bool) {
            let index = reply_index.wrapping_sub(self.head) as usize;
            if index > 0 {
                self.slots[index] = Some((len, is_part));
                match is_part {
                    true => self.parts_len += len + size_of::<Option<Part>>(),
                    false => self.stash_len += len,
                }
                return;
            }
            self.slots[0] = Some((len, false));
            let mut is_first = true;
            while let Some(Some((len, is_part))) = self.slots.front().copied() {
                self.slots.pop_front();
                self.head = self.head.wrapping_add(1);
                if is_part {
                    self.parts_len -= len;
                }
                if !self.early().any(|(_, is_part)| is_part) {
                    self.parts_len = 0;
                }
                if self.early().next().is_none() && !is_first {
                    self.stash_len = 0;
                }
                is_first = false;
            }
        }

        fn check(&self, order: &ReplyOrder) {
            let len = self.slots.len();
            assert_eq!((order.len(), order.is_empty()), (len, len == 0));
            assert_eq!(order.has_early(), self.early().next().is_some());
            assert_eq!(order.parts_count(), self.early().filter(|(_, is_part)| *is_part).count());
            assert_eq!(order.stash_len(), self.stash_len + self.parts_len);
            assert_eq!(order.next_index(), self.head.wrapping_add(len as u32));
            for ahead in -3..=len as i32 + 3 {
                let reply_index = self.head.wrapping_add(ahead as u32);
                assert_eq!(order.has_passed(reply_index), ahead <= 0, "{ahead}");
                assert_eq!(order.is_next(reply_index), ahead == 0 && len > 0, "{ahead}");
            }
        }
    }

    #[test]
    fn all_that_is_told_of_the_order_is_what_a_model_tells() {
        for seed in 1..100u64 {
            let mut state = seed;
            let mut random = |below: usize| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state % below as u64) as usize
            };
            let head = u32::MAX - 20;
            let mut order = ReplyOrder { head, ..ReplyOrder::default() };
            let mut model = Model { head, ..Model::default() };
            let (mut out, mut waiting) = (Output::default(), Vec::new());
            for _ in 0..200 {
                match random(5) {
                    0..2 => {
                        waiting.push(order.reserve());
                        model.slots.push_back(None);
                    }
                    2 if waiting.last() == Some(&order.next_index().wrapping_sub(1)) => {
                        order.withdraw(waiting.pop().unwrap());
                        model.slots.pop_back();
                    }
                    _ if !waiting.is_empty() => {
                        let reply_index = waiting.remove(random(waiting.len()));
                        let (len, is_part) = (1 + random(20), random(2) == 0);
                        answer(&mut order, &mut out, reply_index, &"x".repeat(len), is_part);
                        model.complete(reply_index, len, is_part);
                    }
                    _ => {}
                }
                model.check(&order);
            }
        }
    }

    #[test]
    fn the_last_reply_index_alone_may_be_withdrawn() {
        let mut order = ReplyOrder::default();
        let first = order.reserve();
        let _ = order.reserve();
        let withdrawn = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            order.withdraw(first);
        }));
        assert!(withdrawn.is_err());
    }

    /// Returns the memory held after early replies of these lengths have all left.
    fn held_after(lens: &[usize], is_part: bool) -> (usize, usize) {
        let (mut order, mut out) = (ReplyOrder::default(), Output::default());
        let first = order.reserve();
        for len in lens {
            let reply_index = order.reserve();
            answer(&mut order, &mut out, reply_index, &"x".repeat(*len), is_part);
        }
        let rest = order.slots.capacity() * size_of::<Slot>();
        let (stash, parts) = (order.stash.capacity(), order.parts.capacity());
        let of_parts = parts * size_of::<Option<Part>>();
        assert_eq!(order.capacity(), rest + stash + of_parts);
        assert!(stash + of_parts > 0);
        order.complete(first, &mut out, |out| out.push(b'1'));
        (order.stash.capacity(), order.parts.capacity())
    }

    #[test]
    fn room_for_early_replies_is_kept_up_to_a_bound() {
        assert_eq!(held_after(&[STASH_KEPT_MAX], false), (STASH_KEPT_MAX, 0));
        assert_eq!(held_after(&[STASH_KEPT_MAX + 1], false), (0, 0));
        assert_eq!(held_after(&[9], false).1, 0);
        assert!(held_after(&[9], false).0 >= 9);
        assert_eq!(held_after(&[9; PARTS_KEPT_MAX], true), (0, PARTS_KEPT_MAX));
        assert_eq!(held_after(&[9; PARTS_KEPT_MAX + 1], true), (0, 0));
        assert!(held_after(&[9], true).1 >= 1);
    }
}
