//! When items expire: a wheel of one-second buckets, coarser further away.
//!
//! ```text
//!  level 0: 32 buckets of 1 s │ level 1: 32 of 32 s │ … │ level 6: the rest of 32 bits of seconds
//! ```
//! An entry lies at the level of the highest 5-bit digit in which its second
//! differs from the wheel's, and moves down as that digit comes up. Entries
//! name items by hash only. They are hints: the owner looks the item up, and
//! what expired, moved or went away meanwhile does no harm. An item whose
//! expiry moved into the future is scheduled anew when its old entry comes up,
//! so refreshing one costs nothing.

use keyway_memory::nodes;
use keyway_memory::{Lines, Memory};

const LEVELS: usize = 7;
const DIGIT_BITS: u32 = 5;
const DIGITS: usize = 1 << DIGIT_BITS;

/// Entries per chunk, which makes it one cache line.
const CHUNK_LEN: usize = 7;
const NONE: u32 = u32::MAX;

/// An item due at a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The item's hash in its shard.
    pub(crate) hash: u32,
    /// Seconds since the Unix epoch.
    pub(crate) second: u32,
}

#[derive(Clone, Copy)]
struct Chunk {
    next: u32,
    len: u32,
    entries: [Entry; CHUNK_LEN],
}

/// A timing wheel. The owner clears it before dropping it, or its memory is
/// lost.
pub(crate) struct Wheel {
    /// The second up to which everything was taken out.
    now: u32,
    /// Entries in all.
    len: usize,
    /// Per level, a bit per bucket that is not empty.
    occupied: [u32; LEVELS],
    /// First chunk of each bucket.
    heads: [[u32; DIGITS]; LEVELS],
    chunks: Lines<Chunk>,
    /// First free chunk; they are linked by `next`.
    free: u32,
}

/// The second at which everything that expires by `millis` (since the Unix
/// epoch) has expired.
pub(crate) fn due_second(millis: u64) -> u32 {
    u32::try_from(millis.div_ceil(1000)).unwrap_or(u32::MAX)
}

#[inline]
fn digit(second: u32, level: usize) -> usize {
    (second >> (DIGIT_BITS * level as u32)) as usize & (DIGITS - 1)
}

impl Wheel {
    /// An empty wheel that stands at second `now`.
    pub(crate) fn new(now: u32) -> Self {
        Self {
            now,
            len: 0,
            occupied: [0; LEVELS],
            heads: [[NONE; DIGITS]; LEVELS],
            chunks: Lines::new(),
            free: NONE,
        }
    }

    /// Entries, stale ones included.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        nodes::boxed_len::<Self>() + self.heap_bytes()
    }

    /// Of these, what it leads to.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.chunks.bytes()
    }

    /// Adds an entry; one in the past is due at once.
    pub(crate) fn add(&mut self, memory: Memory<'_>, entry: Entry) {
        let second = entry.second.max(self.now);
        let differing = second ^ self.now;
        let level = (u32::BITS - differing.leading_zeros()).saturating_sub(1) / DIGIT_BITS;
        let (level, bucket) = (level as usize, digit(second, level as usize));
        let head = self.heads[level][bucket];
        let chunk = if head != NONE && (self.chunks.get(head as usize).len as usize) < CHUNK_LEN {
            head
        } else {
            let fresh = self.take_chunk(memory, head);
            self.heads[level][bucket] = fresh;
            fresh
        };
        let chunk = self.chunks.get_mut(chunk as usize);
        chunk.entries[chunk.len as usize] = entry;
        chunk.len += 1;
        self.occupied[level] |= 1 << bucket;
        self.len += 1;
    }

    fn take_chunk(&mut self, memory: Memory<'_>, next: u32) -> u32 {
        if self.free != NONE {
            let index = self.free;
            let chunk = self.chunks.get_mut(index as usize);
            self.free = chunk.next;
            (chunk.next, chunk.len) = (next, 0);
            return index;
        }
        self.chunks.push(memory, Chunk { next, len: 0, entries: [Entry::default(); CHUNK_LEN] });
        self.chunks.len() as u32 - 1
    }

    /// The first bucket that is not empty: its level, its index, and the
    /// second at which it comes up.
    fn first(&self) -> Option<(usize, usize, u32)> {
        // A coarse bucket that came up is emptied before time moves on.
        for level in 1..LEVELS {
            let current = digit(self.now, level);
            if self.occupied[level] & 1 << current != 0 {
                return Some((level, current, self.now));
            }
        }
        for level in 0..LEVELS {
            let current = digit(self.now, level);
            let ahead = self.occupied[level] & (u32::MAX << current);
            if ahead != 0 {
                let bucket = ahead.trailing_zeros() as usize;
                let shift = DIGIT_BITS * level as u32;
                // The digits below are zero when the bucket comes up, the ones
                // above are those of now.
                let below = u32::MAX.checked_shl(shift).unwrap_or(0);
                let above = u32::MAX.checked_shl(shift + DIGIT_BITS).unwrap_or(0);
                let start = self.now & above | (bucket as u32) << shift & below;
                return Some((level, bucket, start.max(self.now)));
            }
        }
        None
    }

    /// When to look again: the second at which something may be due.
    pub(crate) fn next_second(&self) -> Option<u32> {
        self.first().map(|(_, _, second)| second)
    }

    /// Takes out an entry due by second `now`. Counts down `steps` for every
    /// entry touched, those only moved to a finer level included, and stops at
    /// zero.
    pub(crate) fn pop_due(
        &mut self,
        memory: Memory<'_>,
        now: u32,
        steps: &mut u32,
    ) -> Option<Entry> {
        while *steps > 0 {
            let Some((level, bucket, second)) = self.first() else {
                self.now = self.now.max(now);
                return None;
            };
            if second > now {
                // Not beyond the bucket's second: it is relative to now.
                self.now = self.now.max(now);
                return None;
            }
            self.now = second;
            let entry = self.pop_from(level, bucket)?;
            *steps -= 1;
            if entry.second <= second || level == 0 {
                return Some(entry);
            }
            self.add(memory, entry);
        }
        None
    }

    /// Moves a part of it from a sparse page. `turn` chooses the part. Returns whether the part was
    /// moved.
    pub(crate) fn compact(&mut self, memory: Memory<'_>, turn: usize) -> bool {
        self.chunks.compact(memory, turn % self.chunks.segment_count().max(1))
    }

    /// Gives its memory back; it is empty then.
    pub(crate) fn clear(&mut self, memory: Memory<'_>) {
        self.chunks.clear(memory);
        *self = Self::new(self.now);
    }

    /// Takes out the entry that is due first, or one close to it: of a coarse
    /// bucket, only the first few entries are compared.
    pub(crate) fn pop_nearest(&mut self) -> Option<Entry> {
        let (level, bucket, _) = self.first()?;
        let chunk = self.chunks.get_mut(self.heads[level][bucket] as usize);
        let entries = &mut chunk.entries[..chunk.len as usize];
        let nearest = (0..entries.len()).min_by_key(|index| entries[*index].second)?;
        entries.swap(nearest, chunk.len as usize - 1);
        self.pop_from(level, bucket)
    }

    fn pop_from(&mut self, level: usize, bucket: usize) -> Option<Entry> {
        let index = self.heads[level][bucket];
        if index == NONE {
            return None;
        }
        let chunk = self.chunks.get_mut(index as usize);
        chunk.len -= 1;
        let entry = chunk.entries[chunk.len as usize];
        if chunk.len == 0 {
            self.heads[level][bucket] = chunk.next;
            if chunk.next == NONE {
                self.occupied[level] &= !(1 << bucket);
            }
            chunk.next = self.free;
            self.free = index;
        }
        self.len -= 1;
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_memory::Heap;
    use proptest::prelude::*;

    fn drain(wheel: &mut Wheel, memory: Memory<'_>, now: u32) -> Vec<Entry> {
        let mut entries = Vec::new();
        loop {
            let mut steps = 3;
            while let Some(entry) = wheel.pop_due(memory, now, &mut steps) {
                entries.push(entry);
            }
            if steps > 0 {
                return entries;
            }
        }
    }

    proptest! {
        #[test]
        fn every_entry_comes_up_at_its_second_however_often_work_is_interrupted(
            start in prop_oneof![Just(0u32), Just(1_700_000_000), Just(u32::MAX - 5000)],
            rounds in proptest::collection::vec(
                (
                    proptest::collection::vec(
                        prop_oneof![0..70u32, 0..5000u32, 0..100_000_000u32, Just(u32::MAX)], 0..20),
                    prop_oneof![0..3u32, 0..200u32, 0..4_000_000u32],
                ),
                1..30,
            ),
        ) {
            let heap = Heap::new(1);
            let memory = Memory { heap: &heap, arena: 0 };
            let mut wheel = Wheel::new(start);
            let mut model: Vec<Entry> = Vec::new();
            let mut now = start;
            let mut hash = 0;
            for (delays, step) in rounds {
                for delay in delays {
                    hash += 1;
                    let entry = Entry { hash, second: now.saturating_add(delay) };
                    wheel.add(memory, entry);
                    model.push(entry);
                }
                if let Some(next) = wheel.next_second() {
                    prop_assert!(model.iter().all(|entry| entry.second >= next || entry.second <= now));
                }
                now = now.saturating_add(step);
                let mut due = drain(&mut wheel, memory, now);
                let mut expected: Vec<Entry> =
                    model.iter().copied().filter(|entry| entry.second <= now).collect();
                model.retain(|entry| entry.second > now);
                due.sort_by_key(|entry| entry.hash);
                expected.sort_by_key(|entry| entry.hash);
                prop_assert_eq!(due, expected);
                prop_assert_eq!(wheel.len(), model.len());
            }
        }
    }

    #[test]
    fn the_nearest_entry_is_first_within_a_second() {
        let heap = Heap::new(1);
        let memory = Memory { heap: &heap, arena: 0 };
        let mut wheel = Wheel::new(0);
        for second in [50, 9, 7, 4000, 8] {
            wheel.add(memory, Entry { hash: second, second });
        }
        let order: Vec<u32> =
            std::iter::from_fn(|| wheel.pop_nearest()).map(|entry| entry.hash).collect();
        assert_eq!(order, [7, 8, 9, 50, 4000]);
    }
}
