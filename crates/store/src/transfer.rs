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

use crate::entry::Turn;
use crate::events::NO_WORKER;
use crate::items::{Address, Item, Meta, Owned};
use crate::store::{Context, Store};
use keyway_base::{Lent, Part};
use keyway_command::Verb;
use keyway_memory::Heap;
use std::cell::Cell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Values from which on nothing is copied, in bytes: shorter ones have no block of their
/// own. Deep pipelines of values of 8 KB take a quarter of the time, 16 at a time; one by
/// one it is the same.
const LENT_MIN: usize = 7 << 10;

/// A block is lent for no less than its half: more would be held than its client is known
/// to have waiting.
const LENT_SHARE: usize = 2;

/// Drafts that a store has at a time; who comes then has its value kept elsewhere until it
/// is whole. More take address space that nobody may ever fill.
const DRAFTS_MAX: usize = 64;

/// Part of the bound on memory that drafts may announce together: they are in the way of
/// items, before it is known whether they will be any.
const DRAFTS_SHARE: u64 = 4;

/// Bytes that drafts may announce together where memory has no bound.
const ANNOUNCED_MAX: u64 = 4 << 30;

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
        let draft_len = draft.as_ref().map_or(0, |draft| draft.filled);
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
            lent.retain(|(place, _)| *place < at);
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

/// A long string on its way into a store, in the block that its item will have. The store makes
/// room as the value comes, and the bytes that have come count towards the memory bound. A draft
/// without room is refused: its block is freed, and the rest of its value is dropped.
pub struct Draft {
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

// SAFETY: a draft is the only one to know of its block.
unsafe impl Send for Draft {}

impl fmt::Debug for Draft {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Draft({} of {} bytes)", self.filled, self.value_len)
    }
}

impl Draft {
    /// Begins a draft of `value_len` bytes under `key`. It takes memory only as it is filled. The
    /// draft is refused from the start in a store that evicts nothing and has no room for the value.
    /// None begins for a short value, with too many drafts, without room beside the other drafts, or
    /// when the system has no memory.
    pub fn new(store: &Arc<Store>, key: &[u8], value_len: usize) -> Option<Draft> {
        let len = Owned::drafted_len(key.len(), value_len)?;
        let announced_max = match store.config().memory_max {
            0 => ANNOUNCED_MAX,
            bound => bound / DRAFTS_SHARE,
        };
        let announced = store.drafts.admit(value_len, announced_max)?;
        let has_room = store.has_room_to_announce(announced);
        let block = if has_room { store.heap.try_large(len) } else { None };
        // A value for which there would be no room without the other drafts is refused at once.
        let is_refused = !has_room && !store.has_room_to_announce(value_len as u64);
        if block.is_none() && !is_refused {
            store.drafts.leave(value_len);
            return None;
        }
        let (store, key_len) = (Arc::clone(store), key.len());
        Some(Draft { store, block, key_len, value_len, filled: 0, counted: 0 })
    }

    /// Whether a command sets its key to the value that a draft is of.
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
            // SAFETY: the bytes that are filled and these lie in the value's place in the
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

    /// The bytes of the value that have come. Empty if the draft was refused.
    pub fn bytes(&self) -> &[u8] {
        match self.value() {
            // SAFETY: so many bytes were filled.
            Some(value) => unsafe { std::slice::from_raw_parts(value.as_ptr(), self.filled) },
            None => &[],
        }
    }

    /// Returns whether the store had no room for the bytes that came.
    pub fn is_refused(&self) -> bool {
        self.block.is_none()
    }

    /// Whether it is on its way into this store.
    pub fn is_for(&self, store: &Arc<Store>) -> bool {
        Arc::ptr_eq(&self.store, store)
    }

    /// Whether there is nothing to come.
    pub fn is_whole(&self) -> bool {
        self.filled == self.value_len
    }

    /// The item with this value, unless its key is another one or a part is missing. The draft
    /// stays counted until it is dropped, so that the item can be counted first.
    pub(crate) fn take_item(&mut self, meta: &Meta, access: u32, key: &[u8]) -> Option<Owned> {
        if !self.is_whole() || key.len() != self.key_len {
            return None;
        }
        let block = self.block.take()?;
        // SAFETY: the block has room for such an item, and its value is in place; it
        // belongs to the item from here on.
        Some(unsafe { Owned::of_draft(block, meta, access, key, self.value_len) })
    }

    fn heap(&self) -> &Heap {
        &self.store.heap
    }

    /// Where the value begins.
    fn value(&self) -> Option<NonNull<u8>> {
        // SAFETY: the block was made for a key of that length with a value behind it.
        self.block.map(|block| unsafe { block.add(Owned::drafted_value_at(self.key_len)) })
    }

    /// Frees the block, if there is one.
    fn free(&mut self) {
        if let Some(block) = self.block.take() {
            let used = Owned::drafted_value_at(self.key_len) + self.filled;
            // SAFETY: nobody else knows of the block, which is filled up to there.
            unsafe { self.heap().free_unfilled(block, used) };
        }
        self.heap().note_outside(-(self.counted as i64));
        self.counted = 0;
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        self.free();
        self.store.drafts.leave(self.value_len);
    }
}

/// Drafts of a store, and how many bytes they have announced.
#[derive(Default)]
pub(crate) struct Drafts {
    count: AtomicUsize,
    announced: AtomicU64,
}

impl Drafts {
    /// Counts another draft, if one more may begin. Returns the bytes that all of them have
    /// announced.
    fn admit(&self, len: usize, announced_max: u64) -> Option<u64> {
        let announced = self.announced.fetch_add(len as u64, Ordering::Relaxed) + len as u64;
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let may = count < DRAFTS_MAX && announced <= announced_max;
        if !may {
            self.leave(len);
        }
        may.then_some(announced)
    }

    fn leave(&self, len: usize) {
        self.announced.fetch_sub(len as u64, Ordering::Relaxed);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}
