//! Long strings on their way into a store.

use super::core::Store;
use super::events::NO_WORKER;
use super::turn::{Context, Turn};
use crate::items::{Meta, Owned};
use keyway_command::Verb;
use keyway_memory::Heap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// Part of the bound on memory that streamed SETs may announce together: they are in the way of
/// items, before it is known whether they will be any.
const ANNOUNCED_SHARE: u64 = 4;

/// Bytes that streamed SETs may announce together where memory has no bound.
const ANNOUNCED_MAX: u64 = 4 << 30;

/// A long string on its way into a store, in the block that its item will have. The store makes
/// room as the value comes, and the bytes that have come count towards the memory bound. A
/// streamed SET without room is refused: its block is freed, and the rest of its value is dropped.
pub struct StreamedSet {
    store: Arc<Store>,
    /// `None` once the block belongs to an item or is freed.
    block: Option<NonNull<u8>>,
    key_len: usize,
    value_len: usize,
    /// Bytes that have come.
    filled: usize,
    /// Bytes that the heap counts.
    counted: usize,
}

// SAFETY: a streamed SET is the only one to know of its block.
unsafe impl Send for StreamedSet {}

impl fmt::Debug for StreamedSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "StreamedSet({} of {} bytes)", self.filled, self.value_len)
    }
}

impl StreamedSet {
    /// Begins a streamed SET of `value_len` bytes under `key`. It takes memory only as it is
    /// filled. It is refused from the start in a store that evicts nothing and has no room for
    /// the value. None begins for a short value, with too many streamed SETs, without room
    /// beside the others, or when the system has no memory.
    pub fn new(store: &Arc<Store>, key: &[u8], value_len: usize) -> Option<StreamedSet> {
        let len = Owned::streamed_len(key.len(), value_len)?;
        let announced_max = match store.config().memory_max {
            0 => ANNOUNCED_MAX,
            bound => bound / ANNOUNCED_SHARE,
        };
        let announced = store.streamed_sets.admit(value_len, announced_max)?;
        let has_room = store.has_room_to_announce(announced);
        let block = if has_room { store.heap.try_large(len) } else { None };
        // A value that would have no room without the other streamed SETs is refused at once.
        let is_refused = !has_room && !store.has_room_to_announce(value_len as u64);
        if block.is_none() && !is_refused {
            store.streamed_sets.leave(value_len);
            return None;
        }
        let (store, key_len) = (Arc::clone(store), key.len());
        Some(StreamedSet { store, block, key_len, value_len, filled: 0, counted: 0 })
    }

    /// Returns whether a command sets its key to the value that a streamed SET is of.
    pub fn suits(verb: Verb) -> bool {
        matches!(verb, Verb::Set | Verb::Setnx | Verb::Setex | Verb::Psetex)
    }

    /// Appends what has come of the value; returns what came behind it.
    pub fn extend<'b>(&mut self, bytes: &'b [u8], context: Context) -> &'b [u8] {
        let (bytes, rest) = bytes.split_at(bytes.len().min(self.value_len - self.filled));
        // Upkeep reports the evicted keys: the client's request may never be executed.
        let turn = Turn { worker: NO_WORKER, ..Turn::of(context) };
        if !self.is_refused() && !self.store.make_room(bytes.len() as u64, turn) {
            self.free();
        }
        if let Some(value) = self.value() {
            // SAFETY: the bytes that are filled and these lie within the value in the
            // block, which nobody else knows of.
            unsafe {
                let at = value.add(self.filled);
                at.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
            }
            self.counted += bytes.len();
            self.heap().note_outside(bytes.len() as i64);
        }
        self.filled += bytes.len();
        rest
    }

    /// The bytes of the value that have come. Empty if the streamed SET was refused.
    pub fn bytes(&self) -> &[u8] {
        match self.value() {
            // SAFETY: so many bytes were filled.
            Some(value) => unsafe { std::slice::from_raw_parts(value.as_ptr(), self.filled) },
            None => &[],
        }
    }

    /// Bytes that have come.
    pub(super) fn filled(&self) -> usize {
        self.filled
    }

    /// Returns whether the store had no room for the bytes that came.
    pub fn is_refused(&self) -> bool {
        self.block.is_none()
    }

    /// Returns whether it is on its way into this store.
    pub fn is_for(&self, store: &Arc<Store>) -> bool {
        Arc::ptr_eq(&self.store, store)
    }

    /// Returns whether there is nothing to come.
    pub fn is_whole(&self) -> bool {
        self.filled == self.value_len
    }

    /// The item with this value, unless its key is another one or a part is missing. The
    /// streamed SET stays counted until it is dropped, so that the item can be counted first.
    pub(crate) fn take_item(&mut self, meta: &Meta, access: u32, key: &[u8]) -> Option<Owned> {
        if !self.is_whole() || key.len() != self.key_len {
            return None;
        }
        let block = self.block.take()?;
        // SAFETY: the block has room for such an item, and its value is in place; it
        // belongs to the item from here on.
        Some(unsafe { Owned::of_streamed(block, meta, access, key, self.value_len) })
    }

    fn heap(&self) -> &Heap {
        &self.store.heap
    }

    /// Where the value begins.
    fn value(&self) -> Option<NonNull<u8>> {
        // SAFETY: the block was made for a key of that length with a value behind it.
        self.block.map(|block| unsafe { block.add(Owned::streamed_value_at(self.key_len)) })
    }

    /// Frees the block, if there is one.
    fn free(&mut self) {
        if let Some(block) = self.block.take() {
            let used = Owned::streamed_value_at(self.key_len) + self.filled;
            // SAFETY: nobody else knows of the block, which is filled up to there.
            unsafe { self.heap().free_unfilled(block, used) };
        }
        self.heap().note_outside(-(self.counted as i64));
        self.counted = 0;
    }
}

impl Drop for StreamedSet {
    fn drop(&mut self) {
        self.free();
        self.store.streamed_sets.leave(self.value_len);
    }
}
