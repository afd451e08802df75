//! Long values that replies take from the store, and requests give to it, without a copy.
//!
//! ```text
//!  a client's input ──► Draft ──────────────────────┐
//!                                                   ▼
//!  item ──► block: │ length │ loans │ header, key │ value │
//!                                                   │
//!  a client's output ◄── Loan ◄─────────────────────┘
//! ```
//! A block that is lent keeps the bytes of its value: who changes them changes a
//! copy, and a block that its item has left is freed by the last loan. Only the
//! header may change meanwhile, such as when the item was last used.
//!
//! A draft is filled as the value comes, over many turns, and becomes the item's block
//! when the request is executed; nobody sees it before.

use super::core::Store;
use super::streamed_set::Draft;
use crate::items::{Address, Item};
use keyway_base::{Lent, Part};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;

/// Values from which on nothing is copied, in bytes: shorter ones have no block of their
/// own. Deep pipelines of values of 8 KB take a quarter of the time, 16 at a time; one by
/// one it is the same.
const LENT_MIN: usize = 7 << 10;

/// A block is lent for no less than its half: more would be held than its client is known
/// to have waiting.
const LENT_SHARE: usize = 2;

/// What a request may take from a store, or give to it, without a copy. Made for each
/// request: it costs next to nothing as long as nothing is long.
pub struct Transfer<'s> {
    store: &'s Arc<Store>,
    /// What stands for the value that the request sets, and how long that is.
    draft: Cell<Option<Box<Draft>>>,
    draft_len: usize,
    is_refused: bool,
    lent: Cell<Option<Box<Insertions>>>,
}

/// What goes into a reply without being copied there: each in front of the byte that is
/// told with it, the first one first.
pub type Insertions = Vec<(usize, Part)>;

impl<'s> Transfer<'s> {
    /// For one request of a store. What it sets may be in `draft`, if that suits the
    /// command: its argument then stands for it.
    #[inline]
    pub fn new(store: &'s Arc<Store>, draft: Option<Box<Draft>>) -> Self {
        let draft_len = draft.as_ref().map_or(0, |draft| draft.filled());
        let is_refused = draft.as_ref().is_some_and(|draft| draft.is_refused());
        Self { store, draft: Cell::new(draft), draft_len, is_refused, lent: Cell::new(None) }
    }

    /// Returns whether the store had no room for the value as it came.
    #[inline]
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// What the reply was not given as bytes.
    #[inline]
    pub fn into_lent(self) -> Option<Box<Insertions>> {
        self.lent.into_inner()
    }

    /// Bytes that the request brings beside its arguments.
    #[inline]
    pub(crate) fn draft_len(&self) -> usize {
        self.draft_len
    }

    /// Takes the value that was given, if one was.
    #[inline]
    pub(crate) fn take_draft(&self) -> Option<Box<Draft>> {
        self.draft.take()
    }

    /// Whether `value`, which is of `item`, is one to be lent.
    #[inline]
    pub(crate) fn is_for(&self, item: &Item<'_>, value: &[u8]) -> bool {
        value.len() >= LENT_MIN
            && value.len() >= item.value().len() / LENT_SHARE
            && item.has_own_block()
    }

    /// Lends such a value, as what goes into the reply at `at`.
    #[cold]
    pub(crate) fn lend(&self, item: &Item<'_>, value: &[u8], at: usize) {
        item.lend();
        let (store, item) = (Arc::clone(self.store), item.address());
        let loan = Arc::new(Loan { store, item, value: value.into() });
        let part = Part::of_lent(loan).expect("no value is as long as 4 GiB");
        let mut lent = self.lent.take().unwrap_or_default();
        lent.push((at, part));
        self.lent.set(Some(lent));
    }

    /// Takes back what goes into the reply at `at` or behind.
    #[cold]
    pub(crate) fn withdraw(&self, at: usize) {
        if let Some(mut lent) = self.lent.take() {
            lent.retain(|(position, _)| *position < at);
            self.lent.set(Some(lent));
        }
    }
}

/// A value of a block that is lent.
struct Loan {
    /// Whose block it is.
    store: Arc<Store>,
    item: Address,
    value: NonNull<[u8]>,
}

// SAFETY: nobody changes the bytes while they are lent, and the count of loans is
// atomic.
unsafe impl Send for Loan {}
// SAFETY: as above.
unsafe impl Sync for Loan {}

impl Lent for Loan {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the block was lent, with the value in it, and is given back when
        // this is dropped.
        unsafe { self.value.as_ref() }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // SAFETY: the block was lent once for this, and is not used here again.
        unsafe { self.store.heap.end_loan(self.item.start()) };
    }
}
