//! One key with its value in one block of memory.
//!
//! ```text
//!  word u32 │ lengths            │ expiry u64 │ flags u32 │ cas u64, marks u8 │ key │ value
//!           │ u8 u8 or u32 u32   └───────── each only when the word says so ───┘
//!  word: encoding 4 bits, WIDE, EXPIRY, FLAGS, CAS, FRESH, seconds of last access 23 bits
//! ```
//! Lengths are wide when key or value is longer than 255 bytes. A block of its
//! own is marked in the key length; it always has the expiry field (0: none),
//! so that setting one never moves hundreds of megabytes.
//! The encoding says what the value's bytes are: a string, the compact blob of a
//! small collection, or the address of a boxed one, which the item owns.

use super::head::{
    ACCESS_MASK, ACCESS_SHIFT, ADDRESS_LEN, CAS, CAS_LEN, ENCODING_MASK, EXPIRY, Encoding, FLAGS,
    FRESH, Head, Meta,
};
use keyway_memory::{Heap, Memory, SLOT_LEN_MAX, block_len};
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

/// The address of an item. The holder must know that the item still exists.
#[derive(Clone, Copy)]
pub(crate) struct Address(NonNull<u8>);

// SAFETY: nothing is reached through it but by `Item::at`, whose caller vouches
// for the item, as it would for one of its own thread.
unsafe impl Send for Address {}
// SAFETY: as above; the address itself never changes.
unsafe impl Sync for Address {}

impl Address {
    /// Returns the start of the item's block.
    pub(crate) fn start(self) -> NonNull<u8> {
        self.0
    }

    /// The item.
    ///
    /// # Safety
    /// It stays live and unchanged for `'a`.
    #[inline]
    pub(crate) unsafe fn item<'a>(self) -> Item<'a> {
        // SAFETY: by contract.
        unsafe { Item::at(self.0) }
    }
}

/// A live item to read.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    pub(super) start: NonNull<u8>,
    pub(super) head: Head,
    of: PhantomData<&'a [u8]>,
}

impl<'a> Item<'a> {
    /// # Safety
    /// `start` is the start of an item that stays live and unchanged for `'a`.
    #[inline]
    pub(crate) unsafe fn at(start: NonNull<u8>) -> Self {
        // SAFETY: by contract.
        Self { start, head: unsafe { Head::read(start) }, of: PhantomData }
    }

    #[inline]
    pub(crate) fn key(&self) -> &'a [u8] {
        // SAFETY: the header describes the live block.
        unsafe {
            let key = self.start.add(self.head.key_at());
            std::slice::from_raw_parts(key.as_ptr(), self.head.key_len)
        }
    }

    /// Returns the bytes of the value. [`Encoding`] says what they are.
    #[inline]
    pub(crate) fn value(&self) -> &'a [u8] {
        // SAFETY: the header describes the live block.
        unsafe {
            let value = self.start.add(self.head.value_at());
            std::slice::from_raw_parts(value.as_ptr(), self.head.value_len)
        }
    }

    /// Returns the address of the structure that the item owns, if the value is one.
    #[inline]
    pub(crate) fn structure(&self) -> Option<*mut ()> {
        if !self.encoding().is_boxed() {
            return None;
        }
        let bytes = <[u8; ADDRESS_LEN]>::try_from(self.value()).ok()?;
        Some(std::ptr::with_exposed_provenance_mut(usize::from_ne_bytes(bytes)))
    }

    /// Returns the address of the item.
    #[inline]
    pub(crate) fn address(&self) -> Address {
        Address(self.start)
    }

    #[inline]
    pub(crate) fn encoding(&self) -> Encoding {
        Encoding::of(self.head.word)
    }

    /// Returns the expiry, in milliseconds since the Unix epoch. `None` means never.
    #[inline]
    pub(crate) fn expiry(&self) -> Option<u64> {
        if self.head.word & EXPIRY == 0 {
            return None;
        }
        // SAFETY: the word says that the field is there.
        let expiry = unsafe { self.start.add(self.head.fields_at).cast::<u64>().read_unaligned() };
        (expiry != 0).then_some(expiry)
    }

    /// Returns whether the item has expired.
    #[inline]
    pub(crate) fn is_expired(&self, now_millis: u64) -> bool {
        self.expiry().is_some_and(|expiry| expiry <= now_millis)
    }

    /// Returns the low bits of the second of the last access, see [`ACCESS_MASK`].
    #[inline]
    pub(crate) fn access(&self) -> u32 {
        self.head.word >> ACCESS_SHIFT
    }

    /// Returns the flags that a memcached client has given the item.
    #[inline]
    pub(crate) fn flags(&self) -> u32 {
        if self.head.word & FLAGS == 0 { 0 } else { self.meta().flags }
    }

    /// Returns the number of the value and its marks. The number is 0 if the value has none.
    #[inline]
    pub(crate) fn cas_and_marks(&self) -> (u64, u8) {
        if self.head.word & CAS == 0 {
            return (0, 0);
        }
        let meta = self.meta();
        (meta.cas, meta.marks)
    }

    pub(crate) fn meta(&self) -> Meta {
        let mut at = self.head.fields_at;
        at += if self.head.word & EXPIRY != 0 { 8 } else { 0 };
        let mut meta = Meta::new(self.encoding(), self.expiry());
        meta.fresh = self.head.word & FRESH != 0;
        // SAFETY: the word says which fields are there.
        unsafe {
            if self.head.word & FLAGS != 0 {
                meta.flags = self.start.add(at).cast::<u32>().read_unaligned();
                at += 4;
            }
            if self.head.word & CAS != 0 {
                meta.cas = self.start.add(at).cast::<u64>().read_unaligned();
                meta.marks = self.start.add(at + CAS_LEN - 1).read();
            }
        }
        meta
    }
}

/// Returns the room of a value that grows: an eighth more than `len`. Less room would mean more
/// copies, and more room would waste memory. Slots have the spare bytes of their class anyway.
fn roomy(len: usize) -> usize {
    len + len / 8
}

/// An item with one owner. The owner must release it: a dropped item loses its memory for good.
#[must_use]
pub(crate) struct Owned {
    pub(super) start: NonNull<u8>,
}

impl Owned {
    /// Creates an item. Its value is `value`, followed by zeros up to `value_len` bytes.
    pub(crate) fn create(
        memory: Memory<'_>,
        meta: &Meta,
        access: u32,
        key: &[u8],
        value: &[u8],
        value_len: usize,
    ) -> Self {
        let head = Head::plan(meta, key.len(), value_len);
        let Memory { heap, arena } = memory;
        let start = if head.large { heap.large(head.len()) } else { heap.slot(arena, head.len()) };
        let mut item = Self { start };
        // SAFETY: the block has at least `head.len()` bytes.
        unsafe { item.fill(&head, meta, access, key, value) };
        item
    }

    /// Returns the same item with another key.
    pub(crate) fn rekey(self, memory: Memory<'_>, access: u32, key: &[u8]) -> Self {
        let (meta, value) = (self.item().meta(), self.item().value());
        // The data at a boxed value's address belongs to the new item now.
        let renamed = Self::create(memory, &meta, access, key, value, value.len());
        self.free_block(memory.heap);
        renamed
    }

    /// Returns whether the item lies on a page that is being emptied, see [`Heap::is_sparse`].
    pub(crate) fn is_on_sparse_page(&self, heap: &Heap) -> bool {
        // SAFETY: an item that is not large lies in a slot of the heap, which
        // is live.
        !self.item().head.large && unsafe { heap.is_sparse(self.start) }
    }

    /// Moves the item to another slot of the same length. The item must not be large.
    pub(crate) fn relocate(&mut self, memory: Memory<'_>) {
        // SAFETY: the item's slot is live, and nobody else knows of the item
        // while it is borrowed.
        self.start = unsafe { memory.heap.relocate(memory.arena, self.start) };
    }

    /// # Safety
    /// The block has at least `head.len()` bytes and overlaps neither `key`
    /// nor `value`, which is no longer than `head.value_len`.
    pub(super) unsafe fn fill(
        &mut self,
        head: &Head,
        meta: &Meta,
        access: u32,
        key: &[u8],
        value: &[u8],
    ) {
        debug_assert!(value.len() <= head.value_len);
        // SAFETY: by contract.
        unsafe {
            head.write(self.start, meta, access);
            let at = self.start.add(head.key_at());
            at.copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
            let at = at.add(key.len());
            at.copy_from_nonoverlapping(NonNull::from(value).cast(), value.len());
            if value.len() < head.value_len {
                at.add(value.len()).write_bytes(0, head.value_len - value.len());
            }
        }
    }

    /// Returns the address of the item. Nobody frees the item until it has an owner again.
    #[inline]
    pub(crate) fn into_start(self) -> NonNull<u8> {
        self.start
    }

    /// # Safety
    /// `start` came from [`Owned::into_start`] and is not owned otherwise.
    #[inline]
    pub(crate) unsafe fn from_start(start: NonNull<u8>) -> Self {
        Self { start }
    }

    #[inline]
    pub(crate) fn item(&self) -> Item<'_> {
        // SAFETY: the item is live as long as it is owned.
        unsafe { Item::at(self.start) }
    }

    /// Returns the bytes of the item's block.
    pub(crate) fn block_bytes(&self) -> usize {
        // SAFETY: the item's block is live and of the kind its header tells.
        unsafe {
            if self.item().head.large {
                keyway_memory::large_bytes(self.start)
            } else {
                keyway_memory::slot_capacity(self.start)
            }
        }
    }

    /// Frees the block and returns the bytes that it took. A structure that the item owns stays.
    pub(crate) fn free_block(self, heap: &Heap) -> usize {
        // SAFETY: the block is live, of the kind its header tells, and nobody
        // else knows of it.
        unsafe {
            if self.item().head.large {
                heap.free_large(self.start)
            } else {
                heap.free_slot(self.start)
            }
        }
    }

    /// Sets value and meta in place, and returns whether that was possible. The block must not be
    /// too short, nor so long that it would waste memory. It is not possible if the item owns a
    /// structure.
    pub(crate) fn overwrite(&mut self, meta: &Meta, access: u32, value: &[u8]) -> bool {
        if self.item().encoding().is_boxed() || self.is_shared() {
            return false;
        }
        let Some(head) = self.plan_in_place(meta, value.len()) else { return false };
        self.shift(&head, head.key_len);
        // SAFETY: the block has room for `head.len()` bytes; the key is in
        // place already.
        unsafe {
            head.write(self.start, meta, access);
            let at = self.start.add(head.value_at());
            at.copy_from_nonoverlapping(NonNull::from(value).cast(), value.len());
        }
        true
    }

    /// Changes the length of the value and the meta of the item. The value keeps its first bytes,
    /// and new bytes are zero. Returns the change of the bytes taken.
    pub(crate) fn reshape(&mut self, memory: Memory<'_>, meta: &Meta, value_len: usize) -> i64 {
        let heap = memory.heap;
        let (access, old) = (self.item().access(), self.item().head);
        let is_shared = self.is_shared();
        if let Some(head) = self.plan_in_place(meta, value_len)
            && (!is_shared || old.key_at() == head.key_at() && old.value_len == value_len)
        {
            self.reshape_in_place(&head, meta, access, old.value_len);
            return 0;
        }
        let before = self.block_bytes();
        let head = Head::plan(meta, old.key_len, value_len);
        if old.large && head.large && old.key_at() == head.key_at() && !is_shared {
            // SAFETY: the block is one of its own, and owned.
            self.start = unsafe { heap.resize_large(self.start, roomy(head.len())) };
            self.reshape_in_place(&head, meta, access, old.value_len);
        } else {
            let kept = old.value_len.min(value_len);
            let item = self.item();
            let (key, value) = (item.key(), &item.value()[..kept]);
            let moved = if head.large {
                let mut moved = Self { start: heap.large(roomy(head.len())) };
                // SAFETY: the new block has at least `head.len()` bytes.
                unsafe { moved.fill(&head, meta, access, key, value) };
                moved
            } else {
                Self::create(memory, meta, access, key, value, value_len)
            };
            // The data at a boxed value's address belongs to the new block now.
            std::mem::replace(self, moved).free_block(heap);
        }
        self.block_bytes() as i64 - before as i64
    }

    fn reshape_in_place(&mut self, head: &Head, meta: &Meta, access: u32, old_value_len: usize) {
        let kept = old_value_len.min(head.value_len);
        self.shift(head, head.key_len + kept);
        // SAFETY: the block has room for `head.len()` bytes; key and the kept
        // part of the value are in place already.
        unsafe {
            head.write(self.start, meta, access);
            let at = self.start.add(head.value_at() + kept);
            at.write_bytes(0, head.value_len - kept);
        }
    }

    /// Returns the header with which the item can stay in its block, if it can.
    fn plan_in_place(&self, meta: &Meta, value_len: usize) -> Option<Head> {
        let old = self.item().head;
        if old.large {
            let head = Head::plan_large(meta, old.key_len, value_len);
            // SAFETY: the block is one of its own, and live.
            let capacity = unsafe { keyway_memory::large_capacity(self.start) };
            (head.len() > SLOT_LEN_MAX && (capacity / 2..=capacity).contains(&head.len()))
                .then_some(head)
        } else {
            let head = Head::plan(meta, old.key_len, value_len);
            // SAFETY: the block is a slot, and live.
            let capacity = unsafe { keyway_memory::slot_capacity(self.start) };
            (!head.large && block_len(head.len()) == capacity).then_some(head)
        }
    }

    /// Moves the first `len` bytes of key and value to their offset in `head`.
    fn shift(&mut self, head: &Head, len: usize) {
        let old = self.item().head;
        if old.key_at() != head.key_at() {
            // SAFETY: both runs lie in the block.
            unsafe {
                let from = self.start.add(old.key_at());
                self.start.add(head.key_at()).copy_from(from, len);
            }
        }
    }

    /// Replaces the bytes of the value in `range` by `parts`. Returns the change of the bytes
    /// taken.
    pub(crate) fn splice(
        &mut self,
        memory: Memory<'_>,
        range: Range<usize>,
        parts: &[&[u8]],
    ) -> i64 {
        let added: usize = parts.iter().map(|part| part.len()).sum();
        let old_len = self.item().value().len();
        let new_len = old_len - range.len() + added;
        let tail_at = range.start + added;
        let meta = self.item().meta();
        let mut change = 0;
        if added < range.len() {
            self.value_mut().copy_within(range.end.., tail_at);
            change = self.reshape(memory, &meta, new_len);
        } else if added > range.len() {
            change = self.reshape(memory, &meta, new_len);
            self.value_mut().copy_within(range.end..old_len, tail_at);
        }
        let mut at = range.start;
        let value = self.value_mut();
        for part in parts {
            value[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        change
    }

    /// Returns the bytes of the value for a change.
    pub(crate) fn value_mut(&mut self) -> &mut [u8] {
        let head = self.item().head;
        // SAFETY: the header describes the block, which is borrowed mutably.
        unsafe {
            let value = self.start.add(head.value_at());
            std::slice::from_raw_parts_mut(value.as_ptr(), head.value_len)
        }
    }

    /// Notes the second of the last access.
    #[inline]
    pub(crate) fn set_access(&mut self, access: u32) {
        self.note_access(access, ACCESS_MASK << ACCESS_SHIFT);
    }

    /// Notes the second of the last access, which read the value.
    #[inline]
    pub(crate) fn set_read(&mut self, access: u32) {
        self.note_access(access, ACCESS_MASK << ACCESS_SHIFT | FRESH);
    }

    #[inline]
    fn note_access(&mut self, access: u32, replaced: u32) {
        // SAFETY: the header is there. Written only when it changes, lest
        // every read dirty a cache line.
        unsafe {
            let word = self.start.cast::<u32>();
            let new = word.read() & !replaced | (access & ACCESS_MASK) << ACCESS_SHIFT;
            if word.read() != new {
                word.write(new);
            }
        }
    }

    pub(crate) fn set_encoding(&mut self, encoding: Encoding) {
        // SAFETY: the header is there.
        unsafe {
            let word = self.start.cast::<u32>();
            word.write(word.read() & !ENCODING_MASK | encoding as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_meta() -> impl Strategy<Value = Meta> {
        let encoding =
            prop_oneof![Just(Encoding::Text), Just(Encoding::Plain), Just(Encoding::Raw)];
        let cas = prop_oneof![Just((0, 0)), (Just(u64::MAX), 0..4u8)];
        (encoding, proptest::option::of(1..u64::MAX), 0..2u32, cas, any::<bool>()).prop_map(
            |(encoding, expiry, flags, (cas, marks), fresh)| Meta {
                encoding,
                expiry,
                flags,
                cas,
                marks,
                fresh,
            },
        )
    }

    fn any_value() -> impl Strategy<Value = Vec<u8>> {
        let len = prop_oneof![0..300usize, Just(7100), 7000..20_000usize, Just(100_000)];
        (len, any::<u8>()).prop_map(|(len, byte)| vec![byte; len])
    }

    proptest! {
        #[test]
        fn an_item_reads_back_as_written_through_any_changes(
            key_len in prop_oneof![0..20usize, 250..260usize, Just(9000)],
            first in (any_meta(), any_value()),
            changes in proptest::collection::vec((any::<bool>(), any_meta(), any_value()), 0..8),
        ) {
            let heap = Heap::new(1);
            let memory = Memory { heap: &heap, arena: 0 };
            let key = vec![b'k'; key_len];
            let (mut meta, mut value) = first;
            let mut item = Owned::create(memory, &meta, 5, &key, &value, value.len());
            let mut bytes = item.block_bytes() as i64;
            for (set, new_meta, new_value) in changes {
                if set {
                    if item.overwrite(&new_meta, 5, &new_value) {
                        value = new_value;
                        meta = new_meta;
                    }
                } else {
                    bytes += item.reshape(memory, &new_meta, new_value.len());
                    value.resize(new_value.len(), 0);
                    meta = new_meta;
                }
                prop_assert_eq!(item.item().key(), &key[..]);
                prop_assert_eq!(item.item().value(), &value[..]);
                prop_assert_eq!(item.item().meta(), meta);
                prop_assert_eq!(item.item().access(), 5);
                prop_assert_eq!(item.block_bytes() as i64, bytes);
            }
            prop_assert_eq!(item.free_block(&heap) as i64, bytes);
        }
    }

    #[test]
    fn a_short_item_has_six_bytes_of_header() {
        let head = Head::plan(&Meta::new(Encoding::Text, None), 16, 64);
        assert_eq!(head.len(), 86);
        let head = Head::plan(&Meta::new(Encoding::Text, Some(1)), 16, 64);
        assert_eq!(head.len(), 94);
    }
}
