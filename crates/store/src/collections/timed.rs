//! Hashes of which fields expire. Only what had such a field takes this form,
//! and keeps it; other hashes know nothing of it.
//!
//! ```text
//!  small: count u16 │ earliest u48 │ field value time u48 ...    a blob; time 0: never
//!  large: Timed: Fields, whose items carry an expiry as those of the key space do,
//!                and a tree of their times, the earliest first
//! ```
//! Times are milliseconds since the Unix epoch. The item counts as one that
//! expires, so that the wheel of its space comes by at the earliest time
//! (`shards/space.rs`) and upkeep removes the fields whose time has come. Until
//! then they are hidden: whoever locates the key removes a few of them, whoever
//! reads or changes fields passes over the others ([`Means::now_millis`]). Readers
//! that cannot change anything ask [`super::hash::Hash::get_at`].

use super::blob::{self, HEADER_LEN, Prefix, string_at};
use super::fields::Fields;
use super::means::Means;
use super::ranks::Ranks;
use crate::items::Owned;
use keyway_memory::Memory;
use keyway_memory::nodes;
use std::ops::{ControlFlow, Range};

/// Bytes of a time: enough for the year 10889.
const TIME_LEN: usize = 6;
/// Bytes in front of the first field.
const HEAD_LEN: usize = HEADER_LEN + TIME_LEN;
/// The last time there is, that of Redis.
pub(crate) const TIME_MAX: u64 = (1 << 46) - 1;
/// To remove a field that has expired takes as long as to free so many: its bucket,
/// its item and those of the bucket that is merged are in no cache.
const STEPS_PER_FIELD: u32 = 4;

/// The time that is written at `at`.
pub(crate) fn read_time(blob: &[u8], at: usize) -> Option<u64> {
    let mut bytes = [0; 8];
    bytes[..TIME_LEN].copy_from_slice(blob.get(at..at + TIME_LEN)?);
    Some(u64::from_le_bytes(bytes)).filter(|time| *time != 0)
}

/// A time as it is written.
pub(crate) fn time_bytes(time: Option<u64>) -> [u8; TIME_LEN] {
    let [bytes @ .., _, _] = time.unwrap_or(0).to_le_bytes();
    bytes
}

/// Where a field is in a blob.
#[derive(Clone)]
pub(crate) struct FieldRange {
    /// Its start, length included.
    pub(crate) start: usize,
    pub(crate) field: Range<usize>,
    /// The bytes of the value; its time follows.
    pub(crate) value: Range<usize>,
}

impl FieldRange {
    /// Behind the time.
    pub(crate) fn end(&self) -> usize {
        self.value.end + TIME_LEN
    }

    pub(crate) fn time(&self, blob: &[u8]) -> Option<u64> {
        read_time(blob, self.value.end)
    }

    fn has_expired(&self, blob: &[u8], now_millis: u64) -> bool {
        self.time(blob).is_some_and(|time| time <= now_millis)
    }
}

/// The fields of a blob.
pub(crate) struct FieldRanges<'a> {
    blob: &'a [u8],
    at: usize,
}

impl<'a> FieldRanges<'a> {
    pub(crate) fn of(blob: &'a [u8]) -> Self {
        Self { blob, at: HEAD_LEN }
    }
}

impl Iterator for FieldRanges<'_> {
    type Item = FieldRange;

    fn next(&mut self) -> Option<FieldRange> {
        let start = self.at;
        if start >= self.blob.len() {
            return None;
        }
        let field = string_at(self.blob, start);
        let value = string_at(self.blob, field.end);
        self.at = value.end + TIME_LEN;
        Some(FieldRange { start, field, value })
    }
}

/// Visits every field with its value. Kept apart, for what visits other hashes
/// to stay small.
#[inline(never)]
pub(crate) fn visit<'a>(blob: &'a [u8], visit: &mut dyn FnMut(&'a [u8], &'a [u8])) {
    for FieldRange { field, value, .. } in FieldRanges::of(blob) {
        visit(&blob[field], &blob[value]);
    }
}

pub(crate) fn find(blob: &[u8], field: &[u8]) -> Option<FieldRange> {
    FieldRanges::of(blob).find(|range| blob[range.field.clone()] == *field)
}

/// When the first field of a blob expires, as it is written in its head.
#[inline]
pub(crate) fn written_earliest(blob: &[u8]) -> Option<u64> {
    read_time(blob, HEADER_LEN)
}

/// Returns whether every field of a blob has expired.
pub(crate) fn is_spent(blob: &[u8], now_millis: u64) -> bool {
    written_earliest(blob).is_some_and(|earliest| earliest <= now_millis)
        && FieldRanges::of(blob).all(|range| range.has_expired(blob, now_millis))
}

/// When the first field of a blob expires, by a look at all of them.
pub(crate) fn earliest_of(blob: &[u8]) -> Option<u64> {
    FieldRanges::of(blob).filter_map(|range| range.time(blob)).min()
}

/// A blob being written.
pub(crate) struct Writer {
    bytes: Vec<u8>,
    count: usize,
    earliest: Option<u64>,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; HEAD_LEN], count: 0, earliest: None }
    }

    pub(crate) fn push(&mut self, field: &[u8], value: &[u8], time: Option<u64>) {
        for text in [field, value] {
            self.bytes.extend_from_slice(Prefix::of(text.len()).bytes());
            self.bytes.extend_from_slice(text);
        }
        self.bytes.extend_from_slice(&time_bytes(time));
        self.count += 1;
        self.earliest = [self.earliest, time].into_iter().flatten().min();
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes[..HEADER_LEN].copy_from_slice(&blob::header(self.count));
        self.bytes[HEADER_LEN..HEAD_LEN].copy_from_slice(&time_bytes(self.earliest));
        self.bytes
    }
}

/// A blob without the fields that have expired, and how many those are. `gone` is told of
/// each.
pub(crate) fn without_expired(
    blob: &[u8],
    now_millis: u64,
    gone: &mut dyn FnMut(&[u8]),
) -> (Vec<u8>, usize) {
    let mut kept = Writer::new();
    for range in FieldRanges::of(blob) {
        if range.has_expired(blob, now_millis) {
            gone(&blob[range.field.clone()]);
            continue;
        }
        kept.push(&blob[range.field.clone()], &blob[range.value.clone()], range.time(blob));
    }
    let removed = blob::count(blob) - kept.count;
    (kept.finish(), removed)
}

/// That a field expires at a time. Ordered by the time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Hint {
    /// Bits of the time from 32 on.
    high: u16,
    low: u32,
    /// The field's hash.
    hash: u32,
    /// Tells fields of the same time and hash apart.
    twin: u16,
}

impl Hint {
    fn new(time: u64, hash: u32) -> Self {
        Self { high: (time >> 32) as u16, low: time as u32, hash, twin: 0 }
    }

    fn time(self) -> u64 {
        u64::from(self.high) << 32 | u64::from(self.low)
    }
}

/// The fields of a large hash, some of which expire.
pub(crate) struct Timed {
    fields: Fields,
    /// One for each field with a time, in order. A tree, not a heap: it is never
    /// moved as a whole, loses the hint of a field that changes, and knows the last
    /// time.
    hints: Ranks<Hint>,
}

impl Timed {
    pub(crate) fn new(fields: Fields) -> Self {
        Self { fields, hints: Ranks::new() }
    }

    pub(crate) fn fields(&self) -> &Fields {
        &self.fields
    }

    pub(crate) fn bytes(&self) -> usize {
        nodes::boxed_len::<Self>() + self.fields.bytes() + self.hints.bytes()
    }

    pub(crate) fn earliest(&self) -> Option<u64> {
        self.hints.get(0).map(|hint| hint.time())
    }

    /// When the first field expires of those that have not.
    pub(crate) fn earliest_after(&self, now_millis: u64) -> Option<u64> {
        self.hints.get(self.hidden(now_millis)).map(|hint| hint.time())
    }

    pub(crate) fn is_spent(&self, now_millis: u64) -> bool {
        self.hints.len() == self.fields.len()
            && self.hidden(now_millis) == self.hints.len()
            && self.hints.len() > 0
    }

    /// Returns whether it has fields that have expired.
    #[inline]
    pub(crate) fn hides(&self, now_millis: u64) -> bool {
        self.earliest().is_some_and(|earliest| earliest <= now_millis)
    }

    /// Fields that have expired.
    fn hidden(&self, now_millis: u64) -> usize {
        self.hints.count_before(|hint| hint.time() <= now_millis)
    }

    /// Fields that have not expired.
    pub(crate) fn len_at(&self, now_millis: u64) -> usize {
        self.fields.len() - self.hidden(now_millis)
    }

    /// Sets a field and its time; whether it is new.
    pub(crate) fn set(
        &mut self,
        means: Means<'_>,
        field: &[u8],
        value: &[u8],
        time: Option<u64>,
    ) -> bool {
        let old = self.fields.get(means, field).and_then(|item| item.expiry());
        let is_new = self.fields.set_until(means, field, value, time);
        self.note(means, field, old, time);
        is_new || means.has_passed(old)
    }

    /// Sets the time of a field that is there.
    pub(crate) fn set_time(&mut self, means: Means<'_>, field: &[u8], time: Option<u64>) {
        let Some(item) = self.fields.get(means, field) else { return };
        let old = item.expiry();
        if old != time && !means.has_passed(old) {
            self.fields.set_expiry(means, field, time);
            self.note(means, field, old, time);
        }
    }

    /// Removes a field; whether it was there.
    pub(crate) fn remove(&mut self, means: Means<'_>, field: &[u8]) -> bool {
        let old = self.fields.get(means, field).and_then(|item| item.expiry());
        let was_there = self.fields.remove(means, field);
        self.note(means, field, old, None);
        was_there && !means.has_passed(old)
    }

    fn note(&mut self, means: Means<'_>, field: &[u8], old: Option<u64>, new: Option<u64>) {
        if old == new {
            return;
        }
        let hash = means.hash(field);
        if let Some(last) = old.and_then(|time| self.last_twin(time, hash)) {
            let rank = self.hints.count_before(|hint| *hint < last);
            self.hints.remove(rank);
        }
        if let Some(time) = new {
            let twin = self.last_twin(time, hash).map_or(0, |last| last.twin.saturating_add(1));
            let hint = Hint { twin, ..Hint::new(time, hash) };
            self.hints.insert(hint, |other| *other < hint);
        }
    }

    fn last_twin(&self, time: u64, hash: u32) -> Option<Hint> {
        let most = Hint { twin: u16::MAX, ..Hint::new(time, hash) };
        let rank = self.hints.count_before(|hint| *hint <= most);
        let last = *self.hints.get(rank.checked_sub(1)?)?;
        (last.time() == time && last.hash == hash).then_some(last)
    }

    /// Removes fields that have expired, while `steps` are left, and tells `gone` of each;
    /// how many.
    pub(crate) fn drop_expired(
        &mut self,
        means: Means<'_>,
        now_millis: u64,
        steps: &mut u32,
        gone: &mut dyn FnMut(&[u8]),
    ) -> usize {
        let mut removed = 0;
        while *steps > 0
            && let Some(hint) = self.hints.get(0).copied()
            && hint.time() <= now_millis
        {
            self.hints.remove(0);
            *steps = steps.saturating_sub(STEPS_PER_FIELD);
            removed += usize::from(self.fields.remove_expired(means, hint.hash, hint.time(), gone));
        }
        removed
    }

    pub(crate) fn duplicate(&self, means: Means<'_>) -> Self {
        let fields = self.fields.duplicate(means);
        let mut hints = Ranks::new();
        let _ = self.hints.visit(0..usize::MAX, false, |hint| {
            hints.insert(*hint, |_| true);
            ControlFlow::Continue(())
        });
        Self { fields, hints }
    }

    /// Moves what lies on sparse pages, see [`super::Boxed::compact`].
    pub(crate) fn compact(&mut self, memory: Memory<'_>, visits: &mut u32, moved: &mut u64) {
        // Hints know fields by their hash.
        let relocate = |item: &mut Owned| item.relocate(memory);
        self.fields.compact(memory, visits, moved, relocate);
        self.hints.compact(visits, moved);
    }

    pub(crate) fn free_some(&mut self, memory: Memory<'_>, steps: &mut u32) -> bool {
        self.hints.free_some(steps) && self.fields.free_some(memory, steps)
    }
}
