//! Where the items of one database in one shard are: a linear hash table.
//!
//! ```text
//!  bucket (64 bytes, one cache line) = 8 slots; a full one links to an overflow bucket
//!  slot u64:  tag 14 │ link │ volatile │ address 45 (of 48, 8-aligned) │ main │ frequency 2
//! ```
//! The table grows and shrinks by one bucket at a time, so no request ever
//! pays for a rehash, and memory per item is the same at any size. The bits
//! that decide a split are in the tag once there are 256 buckets, so that a
//! split touches no item. The hash given here is the part that does not choose
//! the shard.

use super::item::{Item, Owned};
use keyway_memory::{Lines, Memory};
use std::ptr::NonNull;

const SLOTS: usize = 8;

const FREQUENCY: u64 = 0b11;
const MAIN: u64 = 1 << 2;
const ADDRESS: u64 = 0x0000_ffff_ffff_fff8;
const VOLATILE: u64 = 1 << 48;
const LINK: u64 = 1 << 49;
const TAG_SHIFT: u32 = 50;
const TAG_BITS: u32 = 14;
/// Lowest bit of the hash that is in the tag.
const TAG_FROM: u32 = 8;

/// Buckets from which on tags have the bit that decides a split.
const EXPECTED_MAX: usize = 1 << TAG_FROM;

/// Items per bucket above which a bucket is split, in eighths of an item.
/// More makes overflow buckets common, less costs memory.
const SPLIT_LOAD: usize = 52;
/// Items per bucket below which two buckets are merged, in eighths. Far from
/// `SPLIT_LOAD`, or a table would swing between the two.
const MERGE_LOAD: usize = 12;
/// A table never shrinks below this many buckets.
const BUCKETS_MIN: usize = 1;

/// Most often an item's use is counted: two bits.
pub(crate) const FREQUENCY_MAX: u8 = 3;

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Bucket {
    slots: [u64; SLOTS],
}

const EMPTY_BUCKET: Bucket = Bucket { slots: [0; SLOTS] };

/// Where a bucket is: in the table proper or, with the top bit, among the
/// overflow buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BucketId(u32);

const OVERFLOW: u32 = 1 << 31;

/// Where an item is. Good until the table changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// First bucket of the chain.
    head: u32,
    bucket: BucketId,
    slot: u8,
}

/// The facts about an item that its slot has, so that the item need not be touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Uses counted so far, up to [`FREQUENCY_MAX`].
    pub(crate) frequency: u8,
    /// Out of probation: evicted by the clock, not from the small queue.
    pub(crate) main: bool,
    /// Has an expiry.
    pub(crate) volatile: bool,
}

/// A linear hash table that owns its items. The owner empties it with
/// [`Table::pop`] before dropping it, or their memory is lost.
pub(crate) struct Table {
    buckets: Lines<Bucket>,
    overflow: Lines<Bucket>,
    /// First free overflow bucket plus one; its first slot holds the next.
    overflow_free: u32,
    len: usize,
}

#[inline]
fn tag_of(hash: u32) -> u64 {
    u64::from(hash >> TAG_FROM & ((1 << TAG_BITS) - 1)) << TAG_SHIFT
}

impl Table {
    pub(crate) const fn new() -> Self {
        Self { buckets: Lines::new(), overflow: Lines::new(), overflow_free: 0, len: 0 }
    }

    /// Items.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Buckets, not counting overflow.
    #[inline]
    pub(crate) fn bucket_count(&self) -> usize {
        self.buckets.len()
    }

    /// Bytes the table itself takes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.buckets.bytes() + self.overflow.bytes()
    }

    /// The bucket of `hash`; there must be buckets.
    #[inline]
    pub(crate) fn bucket_of(&self, hash: u32) -> usize {
        let count = self.buckets.len();
        let mask = mask_for(count);
        let index = hash as usize & mask;
        if index < count { index } else { index & (mask >> 1) }
    }

    #[inline]
    fn bucket(&self, id: BucketId) -> &Bucket {
        if id.0 & OVERFLOW == 0 {
            self.buckets.get(id.0 as usize)
        } else {
            self.overflow.get((id.0 & !OVERFLOW) as usize)
        }
    }

    #[inline]
    fn bucket_mut(&mut self, id: BucketId) -> &mut Bucket {
        if id.0 & OVERFLOW == 0 {
            self.buckets.get_mut(id.0 as usize)
        } else {
            self.overflow.get_mut((id.0 & !OVERFLOW) as usize)
        }
    }

    /// The bucket that `id` links to.
    #[inline]
    fn next(&self, id: BucketId) -> Option<BucketId> {
        let last = self.bucket(id).slots[SLOTS - 1];
        (last & LINK != 0).then_some(BucketId(last as u32 | OVERFLOW))
    }

    /// The first item with `hash`'s tag in `hash`'s bucket that `is_it` says
    /// yes to.
    #[inline]
    pub(crate) fn find(
        &self,
        hash: u32,
        mut is_it: impl FnMut(&Item<'_>, Marks) -> bool,
    ) -> Option<Position> {
        if self.len == 0 {
            return None;
        }
        let head = self.bucket_of(hash) as u32;
        let tag = tag_of(hash);
        let mut id = BucketId(head);
        loop {
            let bucket = self.bucket(id);
            for (slot, word) in bucket.slots.iter().enumerate() {
                let differs = (word ^ tag) & (!0 << TAG_SHIFT | LINK);
                if differs == 0 && *word & ADDRESS != 0 {
                    // The key is in the first cache line, most of the value in
                    // the next: fetched while the key is compared.
                    prefetch(start_of(*word).as_ptr().wrapping_add(64));
                    if is_it(&item_of(*word, self), marks_of(*word)) {
                        return Some(Position { head, bucket: id, slot: slot as u8 });
                    }
                }
            }
            id = self.next(id)?;
        }
    }

    #[inline]
    fn word(&self, position: Position) -> u64 {
        let word = self.bucket(position.bucket).slots[usize::from(position.slot)];
        assert!(word & ADDRESS != 0 && word & LINK == 0, "stale position");
        word
    }

    #[inline]
    fn word_mut(&mut self, position: Position) -> &mut u64 {
        let word = &mut self.bucket_mut(position.bucket).slots[usize::from(position.slot)];
        assert!(*word & ADDRESS != 0 && *word & LINK == 0, "stale position");
        word
    }

    /// The slot at `position`, to do several things with it at once.
    #[inline]
    pub(crate) fn slot_mut(&mut self, position: Position) -> SlotMut<'_> {
        SlotMut { word: self.word_mut(position) }
    }

    #[inline]
    pub(crate) fn item(&self, position: Position) -> Item<'_> {
        item_of(self.word(position), self)
    }

    /// Lets `change` change or replace an item; its key stays the same.
    #[inline]
    pub(crate) fn with_item<R>(
        &mut self,
        position: Position,
        change: impl FnOnce(&mut Owned) -> R,
    ) -> R {
        self.slot_mut(position).with_item(change)
    }

    #[inline]
    pub(crate) fn marks(&self, position: Position) -> Marks {
        marks_of(self.word(position))
    }

    #[inline]
    pub(crate) fn set_marks(&mut self, position: Position, marks: Marks) {
        self.slot_mut(position).set_marks(marks);
    }

    /// Makes an empty table large enough for so many items, as far as that saves work: a larger
    /// one grows without touching items.
    pub(crate) fn expect(&mut self, memory: Memory<'_>, items: usize) {
        let wanted = items.saturating_mul(8) / SPLIT_LOAD;
        while self.len == 0 && self.buckets.len() < wanted.min(EXPECTED_MAX) {
            self.buckets.push(memory, EMPTY_BUCKET);
        }
    }

    /// Adds an item whose key, hashing to `hash`, is not there yet.
    /// `hash_key` hashes other keys likewise.
    pub(crate) fn insert(
        &mut self,
        memory: Memory<'_>,
        hash: u32,
        owned: Owned,
        marks: Marks,
        hash_key: impl Fn(&[u8]) -> u32,
    ) -> Position {
        if (self.len + 1) * 8 > self.buckets.len() * SPLIT_LOAD {
            self.split(memory, hash_key);
        }
        self.len += 1;
        let head = self.bucket_of(hash) as u32;
        self.put_word(memory, head, tag_of(hash) | bits_of(marks) | address_of(owned))
    }

    /// Puts `word` into the first empty slot of a chain.
    fn put_word(&mut self, memory: Memory<'_>, head: u32, word: u64) -> Position {
        let mut bucket = BucketId(head);
        loop {
            let slots = &mut self.bucket_mut(bucket).slots;
            if let Some(slot) = slots.iter().position(|word| *word == 0) {
                slots[slot] = word;
                return Position { head, bucket, slot: slot as u8 };
            }
            bucket = match self.next(bucket) {
                Some(next) => next,
                None => self.add_overflow(memory, bucket),
            };
        }
    }

    /// Links an overflow bucket behind a full one, whose last item moves there.
    #[cold]
    fn add_overflow(&mut self, memory: Memory<'_>, last: BucketId) -> BucketId {
        let index = match self.overflow_free {
            0 => {
                self.overflow.push(memory, EMPTY_BUCKET);
                self.overflow.len() as u32 - 1
            }
            free => {
                let bucket = self.overflow.get_mut(free as usize - 1);
                self.overflow_free = bucket.slots[0] as u32;
                *bucket = EMPTY_BUCKET;
                free - 1
            }
        };
        assert!(index < OVERFLOW, "too many overflow buckets");
        let moved =
            std::mem::replace(&mut self.bucket_mut(last).slots[SLOTS - 1], LINK | u64::from(index));
        self.overflow.get_mut(index as usize).slots[0] = moved;
        BucketId(index | OVERFLOW)
    }

    /// Takes an item out.
    pub(crate) fn remove(&mut self, memory: Memory<'_>, position: Position) -> Owned {
        let word = std::mem::take(self.word_mut(position));
        self.len -= 1;
        if self.next(BucketId(position.head)).is_some() {
            self.close_gap(position);
        }
        if self.len * 8 < self.buckets.len() * MERGE_LOAD && self.buckets.len() > BUCKETS_MIN {
            self.merge(memory);
        }
        owned_of(word)
    }

    /// Fills the gap at `position` from the end of its chain, so that overflow
    /// buckets are never kept for nothing.
    #[cold]
    fn close_gap(&mut self, position: Position) {
        let mut before = BucketId(position.head);
        let Some(mut last) = self.next(before) else { return };
        while let Some(next) = self.next(last) {
            (before, last) = (last, next);
        }
        let slots = &mut self.bucket_mut(last).slots;
        if let Some(slot) = slots.iter().rposition(|word| *word != 0) {
            let moved = std::mem::take(&mut slots[slot]);
            self.bucket_mut(position.bucket).slots[usize::from(position.slot)] = moved;
        }
        if self.bucket(last).slots == EMPTY_BUCKET.slots {
            self.bucket_mut(before).slots[SLOTS - 1] = 0;
            self.free_overflow(last);
        }
    }

    fn free_overflow(&mut self, id: BucketId) {
        let index = id.0 & !OVERFLOW;
        self.overflow.get_mut(index as usize).slots[0] = u64::from(self.overflow_free);
        self.overflow_free = index + 1;
    }

    /// Takes all words of a chain, whose overflow buckets become free.
    fn take_chain(&mut self, head: u32, words: &mut smallvec::SmallVec<[u64; 32]>) {
        let mut id = BucketId(head);
        loop {
            let next = self.next(id);
            let taken = std::mem::replace(self.bucket_mut(id), EMPTY_BUCKET);
            words.extend(taken.slots.into_iter().filter(|word| *word != 0 && *word & LINK == 0));
            if id.0 & OVERFLOW != 0 {
                self.free_overflow(id);
            }
            match next {
                Some(next) => id = next,
                None => return,
            }
        }
    }

    /// Adds a bucket, which takes its share of the one it splits off.
    fn split(&mut self, memory: Memory<'_>, hash_key: impl Fn(&[u8]) -> u32) {
        let new = self.buckets.len() as u32;
        assert!(new < OVERFLOW, "too many buckets");
        self.buckets.push(memory, EMPTY_BUCKET);
        if new == 0 {
            return;
        }
        let level = new.ilog2();
        let parent = new & !(1 << level);
        let mut words = smallvec::SmallVec::new();
        self.take_chain(parent, &mut words);
        for word in words {
            let bit = if (TAG_FROM..TAG_FROM + TAG_BITS).contains(&level) {
                (word >> (TAG_SHIFT + level - TAG_FROM)) as u32 & 1
            } else {
                hash_key(item_of(word, self).key()) >> level & 1
            };
            self.put_word(memory, if bit == 0 { parent } else { new }, word);
        }
    }

    /// Drops the last bucket, whose items go back to the one it was split off.
    #[cold]
    fn merge(&mut self, memory: Memory<'_>) {
        let last = self.buckets.len() as u32 - 1;
        let parent = last & !(1 << last.ilog2());
        let mut words = smallvec::SmallVec::new();
        self.take_chain(last, &mut words);
        self.buckets.pop(memory);
        for word in words {
            self.put_word(memory, parent, word);
        }
        if self.len == 0 {
            self.overflow.clear(memory);
            self.overflow_free = 0;
        }
    }

    /// Takes out any item, from the last bucket on; `None` when empty, and then
    /// all memory is given back but for that of [`Table::pop_overflow`].
    pub(crate) fn pop(&mut self, memory: Memory<'_>) -> Option<Owned> {
        while let Some(last) = self.buckets.len().checked_sub(1) {
            let occupied = self.positions(last).next();
            if let Some(position) = occupied {
                let word = std::mem::take(self.word_mut(position));
                self.close_gap(position);
                self.len -= 1;
                return Some(owned_of(word));
            }
            self.buckets.pop(memory);
        }
        None
    }

    /// Drops an overflow bucket of a table that [`Table::pop`] has emptied;
    /// whether there was one.
    pub(crate) fn pop_overflow(&mut self, memory: Memory<'_>) -> bool {
        assert!(self.buckets.is_empty(), "a table in use");
        self.overflow_free = 0;
        self.overflow.pop(memory).is_some()
    }

    /// Visits all items, in no order that means anything.
    #[inline]
    pub(crate) fn visit<'s>(&'s self, mut visit: impl FnMut(Item<'s>)) {
        let mut left = self.len;
        for head in 0..self.buckets.len() as u32 {
            let mut next = Some(BucketId(head));
            while let Some(id) = next {
                for word in &self.bucket(id).slots {
                    if left == 0 {
                        return;
                    }
                    if *word != 0 && *word & LINK == 0 {
                        visit(item_of(*word, self));
                        left -= 1;
                    }
                }
                next = self.next(id);
            }
        }
    }

    /// Where the items of a bucket and its overflow buckets are.
    pub(crate) fn positions(&self, bucket: usize) -> impl Iterator<Item = Position> + '_ {
        let head = bucket as u32;
        let mut next = Some((BucketId(head), 0));
        std::iter::from_fn(move || {
            while let Some((id, slot)) = next {
                next = match slot + 1 {
                    SLOTS => self.next(id).map(|id| (id, 0)),
                    slot => Some((id, slot)),
                };
                let word = self.bucket(id).slots[slot];
                if word != 0 && word & LINK == 0 {
                    return Some(Position { head, bucket: id, slot: slot as u8 });
                }
            }
            None
        })
    }

    /// Moves the items of a bucket that lie on sparse pages, with `change` for each item of the
    /// bucket first, and now and then a part of the table. Each of them that moves counts up
    /// `moved`.
    pub(crate) fn compact(
        &mut self,
        memory: Memory<'_>,
        bucket: usize,
        moved: &mut u64,
        mut change: impl FnMut(&mut Owned, &mut u64),
    ) {
        let (segment, overflow) = (self.buckets.segment_count(), self.overflow.segment_count());
        // A segment has more than one bucket: each is looked at several times.
        let lines = self.buckets.compact(memory, bucket % segment.max(1));
        let lines_behind = self.overflow.compact(memory, bucket % overflow.max(1));
        *moved += u64::from(lines) + u64::from(lines_behind);
        self.prefetch_items(bucket);
        let positions: smallvec::SmallVec<[Position; 16]> = self.positions(bucket).collect();
        for position in positions {
            self.with_item(position, |item| change(item, moved));
        }
    }

    /// Hints that all items of a bucket will be read.
    fn prefetch_items(&self, bucket: usize) {
        for word in self.buckets.get(bucket).slots {
            if word != 0 && word & LINK == 0 {
                prefetch(start_of(word).as_ptr());
            }
        }
    }

    /// Hints to the processor that the bucket of `hash` will be read.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u32) {
        if self.len > 0 {
            prefetch(self.buckets.place(self.bucket_of(hash)));
        }
    }

    /// Hints that the items of `hash`'s tag will be read.
    #[inline]
    pub(crate) fn prefetch_item(&self, hash: u32) {
        if self.len > 0 {
            let tag = tag_of(hash);
            for word in &self.buckets.get(self.bucket_of(hash)).slots {
                if (word ^ tag) >> TAG_SHIFT == 0 {
                    let address = (word & ADDRESS) as usize;
                    prefetch(std::ptr::without_provenance::<u8>(address));
                    prefetch(std::ptr::without_provenance::<u8>(address + 64));
                }
            }
        }
    }

    /// The part of the key space, in order of reversed hashes, that a bucket
    /// covers: from `start` up to `end`. Splits only cut such parts in two,
    /// so a walk in this order misses nothing whatever the table does.
    pub(crate) fn span(&self, bucket: usize) -> std::ops::Range<u64> {
        let mask = mask_for(self.buckets.len());
        // A bucket not yet split covers what will be two.
        let split = bucket + mask / 2 + 1 < self.buckets.len() || bucket > mask >> 1;
        let bits = if split { mask } else { mask >> 1 }.count_ones();
        let start = u64::from((bucket as u32).reverse_bits());
        start..start + (1 << (u32::BITS - bits))
    }
}

/// An occupied slot, borrowed.
pub(crate) struct SlotMut<'a> {
    word: &'a mut u64,
}

impl<'a> SlotMut<'a> {
    #[inline]
    pub(crate) fn marks(&self) -> Marks {
        marks_of(*self.word)
    }

    #[inline]
    pub(crate) fn set_marks(&mut self, marks: Marks) {
        let new = *self.word & !(FREQUENCY | MAIN | VOLATILE) | bits_of(marks);
        // Unchanged most of the time, and then the cache line stays clean.
        if *self.word != new {
            *self.word = new;
        }
    }

    /// Counts a use of the item.
    #[inline]
    pub(crate) fn count_use(&mut self) {
        if *self.word & FREQUENCY != FREQUENCY {
            *self.word += 1;
        }
    }

    /// Lets `change` change or replace the item; its key stays the same.
    #[inline]
    pub(crate) fn with_item<R>(&mut self, change: impl FnOnce(&mut Owned) -> R) -> R {
        let mut owned = owned_of(*self.word);
        let result = change(&mut owned);
        *self.word = *self.word & !ADDRESS | address_of(owned);
        result
    }

    #[inline]
    pub(crate) fn item(self) -> Item<'a> {
        // SAFETY: an occupied slot's item is live while the slot is borrowed.
        unsafe { Item::at(start_of(*self.word)) }
    }
}

/// All ones up to the highest bit that an index below `count` can have.
#[inline]
fn mask_for(count: usize) -> usize {
    debug_assert!(count > 0);
    usize::MAX.checked_shr((count - 1).leading_zeros()).unwrap_or(0)
}

#[inline]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint; any address is allowed.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch(address.cast(), _MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[inline]
fn start_of(word: u64) -> NonNull<u8> {
    let address = std::ptr::with_exposed_provenance_mut((word & ADDRESS) as usize);
    // SAFETY: callers pass the word of an occupied slot, whose address is that
    // of an item and never null.
    unsafe { NonNull::new_unchecked(address) }
}

#[inline]
fn item_of(word: u64, _table: &Table) -> Item<'_> {
    // SAFETY: an occupied slot's item is live while the table is borrowed.
    unsafe { Item::at(start_of(word)) }
}

#[inline]
fn owned_of(word: u64) -> Owned {
    // SAFETY: the slot owned the item; callers empty or rewrite it.
    unsafe { Owned::from_start(start_of(word)) }
}

#[inline]
fn address_of(owned: Owned) -> u64 {
    let address = owned.into_start().as_ptr().expose_provenance() as u64;
    assert!(address & !ADDRESS == 0, "an address of more than 48 bits");
    address
}

#[inline]
fn marks_of(word: u64) -> Marks {
    Marks {
        frequency: (word & FREQUENCY) as u8,
        main: word & MAIN != 0,
        volatile: word & VOLATILE != 0,
    }
}

#[inline]
fn bits_of(marks: Marks) -> u64 {
    u64::from(marks.frequency.min(FREQUENCY_MAX))
        | if marks.main { MAIN } else { 0 }
        | if marks.volatile { VOLATILE } else { 0 }
}

#[cfg(test)]
mod tests;
