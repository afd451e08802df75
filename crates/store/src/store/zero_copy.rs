//! Zero-copy values: long ones that replies take from the store, and requests give to it,
//! without a copy.
//!
//! ```text
//!  a client's input ──► StreamedSet ────────────────┐
//!                                                   ▼
//!  item ──► block: │ length │ shares │ header, key │ value │
//!                                                   │
//!  a client's output ◄── ZeroCopyValue ◄────────────┘
//! ```
//! A shared block keeps the bytes of its value: a change of them changes a copy. The last
//! zero-copy value frees a block that its item has left. Only the header may change
//! meanwhile, such as when the item was last used.
//!
//! A streamed SET is filled as the value comes, over many turns. Its block becomes the
//! item's when the request is executed. Nobody sees it before.

use super::core::Store;
use super::streamed_set::StreamedSet;
use crate::items::{Address, Item};
use keyway_base::{Lent, Part};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;

/// Values from which on nothing is copied, in bytes: shorter ones have no block of their
/// own. Deep pipelines of values of 8 KB take a quarter of the time, 16 at a time; one by
/// one it is the same.
const ZERO_COPY_LEN_MIN: usize = 7 << 10;

/// A block is shared for no less than its half: more would be held than its client is known
/// to have waiting.
const ZERO_COPY_SHARE: usize = 2;

/// The values that a request may take from a store, or give to it, without a copy. It is made for
/// each request, and costs next to nothing if no value is long.
pub struct Transfer<'s> {
    store: &'s Arc<Store>,
    /// The streamed value that the request sets, and its length.
    streamed: Cell<Option<Box<StreamedSet>>>,
    streamed_len: usize,
    is_refused: bool,
    zero_copy: Cell<Option<Box<Insertions>>>,
}

/// Parts that are inserted into a reply without a copy. Each is inserted before the byte with its
/// index. They are in order.
pub type Insertions = Vec<(usize, Part)>;

impl<'s> Transfer<'s> {
    /// Creates the transfer of one request of a store. `streamed` may hold the value that it sets,
    /// if the command can take one. The argument then stands for the value.
    #[inline]
    pub fn new(store: &'s Arc<Store>, streamed: Option<Box<StreamedSet>>) -> Self {
        let streamed_len = streamed.as_ref().map_or(0, |streamed| streamed.filled());
        let is_refused = streamed.as_ref().is_some_and(|streamed| streamed.is_refused());
        Self {
            store,
            streamed: Cell::new(streamed),
            streamed_len,
            is_refused,
            zero_copy: Cell::new(None),
        }
    }

    /// Returns whether the store had no room for the value as it came.
    #[inline]
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// The values that the reply was not given as bytes.
    #[inline]
    pub fn into_zero_copy(self) -> Option<Box<Insertions>> {
        self.zero_copy.into_inner()
    }

    /// Bytes that the request brings beside its arguments.
    #[inline]
    pub(crate) fn streamed_len(&self) -> usize {
        self.streamed_len
    }

    /// Takes the value that was given, if one was.
    #[inline]
    pub(crate) fn take_streamed(&self) -> Option<Box<StreamedSet>> {
        self.streamed.take()
    }

    /// Returns whether `value`, which is of `item`, is long enough to be inserted without a copy.
    #[inline]
    pub(crate) fn is_for(&self, item: &Item<'_>, value: &[u8]) -> bool {
        value.len() >= ZERO_COPY_LEN_MIN
            && value.len() >= item.value().len() / ZERO_COPY_SHARE
            && item.has_own_block()
    }

    /// Inserts such a value into the reply at `at`.
    #[cold]
    pub(crate) fn insert(&self, item: &Item<'_>, value: &[u8], at: usize) {
        item.share();
        let (store, item) = (Arc::clone(self.store), item.address());
        let shared = Arc::new(ZeroCopyValue { store, item, value: value.into() });
        let part = Part::of_lent(shared).expect("no value is as long as 4 GiB");
        let mut zero_copy = self.zero_copy.take().unwrap_or_default();
        zero_copy.push((at, part));
        self.zero_copy.set(Some(zero_copy));
    }

    /// Takes back what goes into the reply at `at` or behind.
    #[cold]
    pub(crate) fn withdraw(&self, at: usize) {
        if let Some(mut zero_copy) = self.zero_copy.take() {
            zero_copy.retain(|(position, _)| *position < at);
            self.zero_copy.set(Some(zero_copy));
        }
    }
}

/// A value in a shared block.
struct ZeroCopyValue {
    /// The store that owns the block.
    store: Arc<Store>,
    item: Address,
    value: NonNull<[u8]>,
}

// SAFETY: nobody changes the bytes while they are shared, and the count of shares is
// atomic.
unsafe impl Send for ZeroCopyValue {}
// SAFETY: as above.
unsafe impl Sync for ZeroCopyValue {}

impl Lent for ZeroCopyValue {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the block was shared, with the value in it, and is given back when
        // this is dropped.
        unsafe { self.value.as_ref() }
    }
}

impl Drop for ZeroCopyValue {
    fn drop(&mut self) {
        // SAFETY: the block was shared once for this, and is not used here again.
        unsafe { self.store.heap.end_loan(self.item.start()) };
    }
}
