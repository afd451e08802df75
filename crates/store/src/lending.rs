//! Long values that replies take from the store without a copy.
//!
//! ```text
//!  item ──► block: │ length │ loans │ header, key │ value │
//!                                                     ▲
//!  a client's output ──► Loan ────────────────────────┘
//! ```
//! A block that is lent keeps the bytes of its value: who changes them changes a
//! copy, and a block that its item has left is freed by the last loan. Only the
//! header may change meanwhile, such as when the item was last used.

use crate::item::{Address, Item};
use crate::store::Store;
use keyway_base::{Lent, Part};
use std::cell::RefCell;
use std::sync::Arc;

/// Values from which on nothing is copied, in bytes. Fewer are copied faster than
/// they are lent, and sent with what is around them.
const LENT_MIN: usize = 16 << 10;

/// What a request may take from a store without a copy.
pub(crate) struct Lending<'s> {
    store: &'s Arc<Store>,
    /// By where in the reply they go.
    parts: RefCell<Vec<(usize, Part)>>,
}

impl<'s> Lending<'s> {
    #[inline]
    pub(crate) fn of(store: &'s Arc<Store>) -> Self {
        Self { store, parts: RefCell::new(Vec::new()) }
    }

    /// Lends `value`, which is of `item`, as what goes into the reply at `at`; whether
    /// it is one to be lent.
    #[inline]
    pub(crate) fn lends(&self, item: &Item<'_>, value: &[u8], at: usize) -> bool {
        value.len() >= LENT_MIN && self.lend(item, value, at)
    }

    #[cold]
    fn lend(&self, item: &Item<'_>, value: &[u8], at: usize) -> bool {
        if !item.lend() {
            return false;
        }
        let loan =
            Loan { store: Arc::clone(self.store), item: item.address(), value: value.into() };
        let Some(part) = Part::of_lent(Arc::new(loan)) else { return false };
        self.parts.borrow_mut().push((at, part));
        true
    }

    /// Takes back what goes into the reply at `at` or behind.
    #[cold]
    pub(crate) fn withdraw(&self, at: usize) {
        self.parts.borrow_mut().retain(|(place, _)| *place < at);
    }

    #[inline]
    pub(crate) fn into_parts(self) -> Vec<(usize, Part)> {
        self.parts.into_inner()
    }
}

/// A value of a block that is lent.
struct Loan {
    /// Whose block it is.
    store: Arc<Store>,
    item: Address,
    value: std::ptr::NonNull<[u8]>,
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
