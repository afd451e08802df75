//! The elements of lists: runs of them in one block of bytes, and a deque of
//! such runs.
//!
//! ```text
//!  element: length │ bytes │ length of both before, to be read from its end
//! ```

use super::blob::{Prefix, read_prefix, read_prefix_back};
use keyway_memory::Deque;
use keyway_memory::nodes::{self, Node};
use keyway_memory::steps_of_block;
use std::ops::Range;

/// Bytes of a run before the next one begins, as Redis has it. Larger makes
/// changes in the middle copy more, smaller takes more memory.
pub(crate) const RUN_LEN_MAX: usize = 8 << 10;
/// To free a run takes as long as to free so many elements of a table.
const STEPS_PER_RUN: u32 = 16;

/// Runs of a list that are looked at at a time when nodes are moved.
const COMPACTED_RUNS: usize = 64;

/// The encoded form of an element, in the parts to be put one behind the other.
pub(crate) struct Encoded<'a> {
    prefix: Prefix,
    value: &'a [u8],
    suffix: ([u8; 5], usize),
}

impl<'a> Encoded<'a> {
    pub(crate) fn of(value: &'a [u8]) -> Self {
        let prefix = Prefix::of(value.len());
        let suffix = Prefix::of(prefix.bytes().len() + value.len()).reversed();
        Self { prefix, value, suffix }
    }

    pub(crate) fn parts(&self) -> [&[u8]; 3] {
        [self.prefix.bytes(), self.value, &self.suffix.0[..self.suffix.1]]
    }

    pub(crate) fn len(&self) -> usize {
        self.prefix.bytes().len() + self.value.len() + self.suffix.1
    }
}

/// Where an element's bytes are, and where the next element starts.
#[inline]
pub(crate) fn element_at(run: &[u8], at: usize) -> (Range<usize>, usize) {
    let (len, start) = read_prefix(run, at);
    let end = start + len;
    // The suffix tells the length of prefix and bytes in as few bytes as fit.
    let body = end - at;
    let suffix = if body < 0x80 { 1 } else { Prefix::of(body).bytes().len() };
    (start..end, end + suffix)
}

/// Where the element before `end` starts.
#[inline]
pub(crate) fn element_before(run: &[u8], end: usize) -> usize {
    let (body, suffix_at) = read_prefix_back(run, end);
    suffix_at - body
}

/// Where element `index` of `count` starts, or the end.
pub(crate) fn seek(run: &[u8], count: usize, index: usize) -> usize {
    if index <= count / 2 {
        let mut at = 0;
        for _ in 0..index {
            at = element_at(run, at).1;
        }
        at
    } else {
        let mut at = run.len();
        for _ in index..count {
            at = element_before(run, at);
        }
        at
    }
}

/// Elements one behind the other.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) bytes: Node<u8>,
    pub(crate) count: usize,
}

impl Run {
    /// Bytes it takes.
    fn room(&self) -> usize {
        nodes::bytes(&self.bytes)
    }

    /// Puts encoded elements in the place of those in a range.
    fn splice(&mut self, range: Range<usize>, parts: &[&[u8]]) {
        let added: usize = parts.iter().map(|part| part.len()).sum();
        let (old_len, tail_at) = (self.bytes.len(), range.start + added);
        if added > range.len() {
            let len = old_len + added - range.len();
            if len > self.bytes.capacity() {
                self.grow(len);
            }
            self.bytes.resize(len, 0);
            self.bytes.copy_within(range.end..old_len, tail_at);
        } else {
            self.bytes.copy_within(range.end.., tail_at);
            self.bytes.truncate(old_len + added - range.len());
        }
        let mut at = range.start;
        for part in parts {
            self.bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
    }

    /// Makes room for `len` bytes and some more, as much as the slot has.
    fn grow(&mut self, len: usize) {
        let wanted = len.max(self.bytes.capacity() / 4 * 5);
        self.bytes.reserve_exact(nodes::node_room(wanted) - self.bytes.len());
    }

    /// Gives back room that is hardly used.
    fn trim_room(&mut self) {
        if self.bytes.capacity() > 4 * self.bytes.len() + 64 {
            self.bytes.shrink_to(2 * self.bytes.len());
        }
    }
}

/// The elements of a long list.
#[derive(Clone, Default)]
pub(crate) struct Chunks {
    runs: Deque<Run>,
    len: usize,
    /// Bytes that the runs take.
    room: usize,
    /// The run that is looked at next when nodes are moved.
    compacted: u32,
}

impl Chunks {
    /// The list of a run.
    pub(crate) fn of(run: &[u8], count: usize) -> Self {
        let mut chunks = Self::default();
        if count > 0 {
            chunks.insert_run(0, Run { bytes: nodes::copy_of(run), count });
            chunks.len = count;
        }
        chunks
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> usize {
        self.room + self.runs.bytes()
    }

    /// Run `index`, if there are so many.
    #[inline]
    pub(crate) fn run(&self, index: usize) -> Option<&Run> {
        self.runs.get(index)
    }

    fn insert_run(&mut self, index: usize, run: Run) {
        self.room += run.room();
        self.runs.insert(index, run);
    }

    fn remove_run(&mut self, index: usize) {
        if let Some(run) = self.runs.remove(index) {
            self.room -= run.room();
        }
    }

    /// Lets `change` change a run, which is removed if nothing is left of it.
    fn change_run<R>(&mut self, index: usize, change: impl FnOnce(&mut Run) -> R) -> R {
        let run = &mut self.runs[index];
        let (before, count) = (run.room(), run.count);
        let result = change(run);
        run.trim_room();
        self.room = self.room - before + run.room();
        self.len = self.len - count + run.count;
        if run.count == 0 {
            self.remove_run(index);
        }
        result
    }

    /// The run that element `index` is in, and how many elements of that run
    /// are before it; past the end of the last run for the length.
    pub(crate) fn locate(&self, index: usize) -> (usize, usize) {
        if index <= self.len / 2 {
            let mut rest = index;
            for (at, run) in self.runs.iter().enumerate() {
                if rest < run.count {
                    return (at, rest);
                }
                rest -= run.count;
            }
        } else {
            let mut behind = self.len.saturating_sub(index);
            for (at, run) in (0..self.runs.len()).rev().zip(self.runs.iter().rev()) {
                if behind <= run.count {
                    return (at, run.count - behind);
                }
                behind -= run.count;
            }
        }
        let last = self.runs.len().saturating_sub(1);
        (last, self.runs.last().map_or(0, |run| run.count))
    }

    /// Inserts an element before the one at `index`, or at the end.
    pub(crate) fn insert(&mut self, index: usize, value: &[u8]) {
        let element = Encoded::of(value);
        let fits = |run: &Run| run.bytes.len() + element.len() <= RUN_LEN_MAX;
        let (at_start, at_end) = (index == 0, index >= self.len);
        let (mut at, mut before) = if at_end {
            let last = self.runs.len().saturating_sub(1);
            (last, self.runs.last().map_or(0, |run| run.count))
        } else {
            self.locate(index)
        };
        if self.runs.get(at).is_none_or(|run| !fits(run)) {
            if !at_start && !at_end && before > 0 {
                self.split(at, before);
            }
            // Into a run of its own, or at the end of the one before.
            let next_to = if at_start || self.runs.is_empty() {
                0
            } else if at_end || before > 0 {
                at + 1
            } else {
                at
            };
            let room = if at_end || at_start { 0 } else { next_to };
            match room.checked_sub(1).filter(|previous| fits(&self.runs[*previous])) {
                Some(previous) => (at, before) = (previous, self.runs[previous].count),
                None => {
                    let neighbour = if at_end { at } else { next_to };
                    if let Some(run) = self.runs.get_mut(neighbour) {
                        let old = run.room();
                        run.bytes.shrink_to(run.bytes.len());
                        self.room = self.room - old + run.room();
                    }
                    self.insert_run(next_to, Run { bytes: nodes::empty(), count: 0 });
                    (at, before) = (next_to, 0);
                }
            }
        }
        self.change_run(at, |run| {
            let at = seek(&run.bytes, run.count, before);
            run.splice(at..at, &element.parts());
            run.count += 1;
        });
    }

    /// Cuts a run in two before one of its elements.
    fn split(&mut self, index: usize, before: usize) {
        let tail = self.change_run(index, |run| {
            let at = seek(&run.bytes, run.count, before);
            let tail = Run { bytes: nodes::copy_of(&run.bytes[at..]), count: run.count - before };
            run.bytes.truncate(at);
            run.count = before;
            tail
        });
        self.len += tail.count;
        self.insert_run(index + 1, tail);
    }

    /// Replaces an element that is there.
    pub(crate) fn set(&mut self, index: usize, value: &[u8]) {
        let (at, before) = self.locate(index);
        let Some(run) = self.runs.get(at) else { return };
        let start = seek(&run.bytes, run.count, before);
        let end = element_at(&run.bytes, start).1;
        let element = Encoded::of(value);
        if run.count == 1 || run.bytes.len() - (end - start) + element.len() <= RUN_LEN_MAX {
            self.change_run(at, |run| run.splice(start..end, &element.parts()));
        } else {
            self.remove(index, 1);
            self.insert(index, value);
        }
    }

    /// Removes `count` elements, which are there, from `index` on.
    pub(crate) fn remove(&mut self, index: usize, mut count: usize) {
        while count > 0 {
            let (at, before) = self.locate(index);
            let run_count = self.runs[at].count;
            let here = count.min(run_count - before);
            if here == 0 {
                return;
            }
            self.change_run(at, |run| {
                if here < run_count {
                    let start = seek(&run.bytes, run_count, before);
                    let end = seek(&run.bytes, run_count, before + here);
                    run.splice(start..end, &[]);
                }
                run.count -= here;
            });
            count -= here;
        }
    }

    /// Removes up to `limit` elements equal to `value`, the first or the last
    /// ones; how many.
    pub(crate) fn remove_equal(&mut self, value: &[u8], limit: usize, from_end: bool) -> usize {
        let mut removed = 0;
        let mut left = self.runs.len();
        let mut at = if from_end { left.saturating_sub(1) } else { 0 };
        while left > 0 && removed < limit {
            let count = self.runs.len();
            removed += self.change_run(at, |run| {
                let (bytes, gone) =
                    without_equal(&run.bytes, run.count, value, limit - removed, from_end);
                if gone > 0 {
                    run.bytes = bytes;
                    run.count -= gone;
                }
                gone
            });
            left -= 1;
            if from_end {
                at = at.saturating_sub(1);
            } else if self.runs.len() == count {
                at += 1;
            }
        }
        removed
    }

    /// Moves runs from sparse pages, see [`super::Boxed::compact`].
    pub(crate) fn compact(&mut self, visits: &mut u32, moved: &mut u64) {
        *moved += self.runs.relocate();
        for _ in 0..self.runs.len().min(COMPACTED_RUNS) {
            if *visits == 0 {
                return;
            }
            let index = self.compacted as usize % self.runs.len();
            self.compacted = index as u32 + 1;
            *visits -= 1;
            *moved += u64::from(nodes::relocate(&mut self.runs[index].bytes));
        }
    }

    /// Frees up to `steps` runs; whether none is left.
    pub(crate) fn free_some(&mut self, steps: &mut u32) -> bool {
        while *steps > 0 {
            let Some(run) = self.runs.pop_back() else { return true };
            self.room -= run.room();
            self.len -= run.count;
            *steps = steps.saturating_sub(STEPS_PER_RUN + steps_of_block(run.room()));
        }
        false
    }
}

/// A run without up to `limit` elements equal to `value`, the first or the last
/// ones, and how many are gone.
pub(crate) fn without_equal(
    run: &[u8],
    count: usize,
    value: &[u8],
    limit: usize,
    from_end: bool,
) -> (Node<u8>, usize) {
    let mut equal: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    for _ in 0..count {
        let (body, next) = element_at(run, at);
        if run[body] == *value {
            equal.push(at..next);
        }
        at = next;
    }
    let gone = equal.len().min(limit);
    let chosen = if from_end { equal.split_off(equal.len() - gone) } else { equal };
    let (mut rest, mut from) = (nodes::empty(), 0);
    for range in chosen.iter().take(gone) {
        nodes::append(&mut rest, &run[from..range.start]);
        from = range.end;
    }
    nodes::append(&mut rest, &run[from..]);
    (rest, gone)
}
