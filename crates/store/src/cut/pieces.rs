//! Bytes of a snapshot on their way to the file.

use crate::items::{Address, Item};
use keyway_memory::Heap;
use std::ptr::NonNull;

/// Bytes from which on a value is shared instead of copied: its copy takes longer than a step may.
const SHARED_LEN_MIN: usize = 32 << 10;

/// Bytes of a snapshot, in the order of the file.
#[derive(Default)]
pub(crate) struct Pieces {
    parts: Vec<Piece>,
    /// Bytes of the parts but the last one, if that one may still grow.
    closed_len: usize,
}

/// Some bytes of a snapshot.
pub(crate) enum Piece {
    /// Bytes of its own.
    Bytes(Vec<u8>),
    /// A string that an item has, or had.
    Shared(SharedValue),
}

/// A string in a block that is shared with its item.
///
/// Whoever has it gives it back with [`Piece::end`]: the store cannot free the block before.
pub(crate) struct SharedValue {
    item: Address,
    value: NonNull<[u8]>,
}

// SAFETY: nobody changes the bytes while they are shared, and the count of shares is atomic.
unsafe impl Send for SharedValue {}
// SAFETY: as above.
unsafe impl Sync for SharedValue {}

impl Piece {
    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Shared(shared) => shared.bytes(),
        }
    }

    /// Gives back what it shares, to the heap that its item lies in.
    pub(crate) fn end(self, heap: &Heap) {
        if let Self::Shared(shared) = self {
            // SAFETY: the block was shared once for this piece, and is not used here again.
            unsafe { heap.end_loan(shared.item.start()) };
        }
    }
}

impl SharedValue {
    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the block was shared, with the value in it, and is not given back before this is
        // taken apart.
        unsafe { self.value.as_ref() }
    }
}

impl Pieces {
    /// No bytes.
    pub(crate) const fn new() -> Self {
        Self { parts: Vec::new(), closed_len: 0 }
    }

    /// Bytes to append to.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        if !matches!(self.parts.last(), Some(Piece::Bytes(_))) {
            self.parts.push(Piece::Bytes(Vec::new()));
        }
        match self.parts.last_mut() {
            Some(Piece::Bytes(bytes)) => bytes,
            _ => unreachable!("the last part was just added"),
        }
    }

    /// Returns whether an item's string is shared, and not copied.
    pub(crate) fn shares(item: &Item<'_>) -> bool {
        item.encoding().is_text() && item.value().len() >= SHARED_LEN_MIN && item.has_own_block()
    }

    /// Appends the string of such an item.
    pub(crate) fn share(&mut self, item: &Item<'_>) {
        item.share();
        self.closed_len = self.len();
        self.parts.push(Piece::Shared(SharedValue {
            item: item.address(),
            value: NonNull::from(item.value()),
        }));
        self.closed_len += item.value().len();
    }

    /// Bytes of all parts.
    pub(crate) fn len(&self) -> usize {
        self.closed_len + self.open_len()
    }

    fn open_len(&self) -> usize {
        match self.parts.last() {
            Some(Piece::Bytes(bytes)) => bytes.len(),
            _ => 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Appends what `other` has.
    pub(crate) fn append(&mut self, other: Self) {
        self.closed_len = self.len() + other.closed_len;
        self.parts.extend(other.parts);
    }

    /// The parts, in their order.
    pub(crate) fn parts(&self) -> &[Piece] {
        &self.parts
    }

    /// As [`Pieces::parts`].
    pub(crate) fn into_parts(self) -> Vec<Piece> {
        self.parts
    }
}
