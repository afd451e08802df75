//! Hashes, lists, sets, sorted sets and streams: what they are stored as.
//!
//! ```text
//!  small: a blob, the item's own bytes          large: boxed, owned by the item
//!  hash      count, then field value ...        Fields: a table of field -> value
//!  list      count, then elements               Chunks: a deque of such blobs
//!  set       count, then members; or integers   Fields: a table of members
//!  sorted    count, then member score ...       Scores: a table of member -> score,
//!                                                       and a tree in order
//!  stream                                       Stream: a tree of blocks of entries
//!  hash of which fields expire: see `timed.rs`
//! ```
//! A collection is boxed when it grows beyond what Redis keeps in one block,
//! and stays so. The tables are those of the key space: no request ever pays
//! for a rehash, and cursors of scans stay good. Here is how each type is read
//! and changed; `entry/edit.rs` keeps the books.

pub(crate) mod blob;
pub(crate) mod chunks;
pub(crate) mod fields;
pub(crate) mod hash;
pub(crate) mod integers;
pub(crate) mod list;
pub(crate) mod ranks;
pub(crate) mod score;
pub(crate) mod set;
pub(crate) mod sorted;
pub(crate) mod stream;
pub(crate) mod timed;

use crate::item::Owned;
use crate::store::Store;
use chunks::Chunks;
use fields::Fields;
use keyway_memory::nodes::{self, NodeBox};
use keyway_memory::{Discard, Heap, Memory};
use sorted::Scores;
use stream::Stream;
use timed::Timed;

/// Most elements of a set or a sorted set in a blob, and the longest string of
/// these and hashes: Redis's defaults, so that OBJECT ENCODING says the same.
pub(crate) const BLOB_ELEMENTS_MAX: usize = 128;
pub(crate) const BLOB_STRING_LEN_MAX: usize = 64;

/// Elements up to which a collection is freed at once: some microseconds. The longest run of
/// elements is a list's chunk, or a leaf of a tree.
const FREED_AT_ONCE_MAX: usize = 128;

/// The key holds a value of another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrongType;

/// What structures need to change: memory, and the secret hash.
#[derive(Clone, Copy)]
pub(crate) struct Means<'a> {
    pub(crate) store: &'a Store,
    pub(crate) arena: usize,
    /// Fields that expire by then are as good as gone.
    pub(crate) now_millis: u64,
}

impl<'a> Means<'a> {
    #[inline]
    pub(crate) fn memory(&self) -> Memory<'a> {
        Memory { heap: &self.store.heap, arena: self.arena }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u32 {
        self.store.hash(key) as u32
    }

    /// Whether a field with this time has expired.
    #[inline]
    pub(crate) fn has_passed(&self, time: Option<u64>) -> bool {
        time.is_some_and(|time| time <= self.now_millis)
    }
}

/// A large collection. Its owner frees it with [`Boxed::free_some`] before
/// dropping it, or its memory is lost.
pub(crate) enum Boxed {
    /// Of a hash or a set.
    Fields(Fields),
    List(Chunks),
    Sorted(Scores),
    Stream(NodeBox<Stream>),
    /// Of a hash whose fields may expire.
    Timed(NodeBox<Timed>),
}

impl Boxed {
    /// Bytes it takes of the system's memory.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        let inner = match self {
            Boxed::Fields(fields) => fields.bytes(),
            Boxed::List(chunks) => chunks.bytes(),
            Boxed::Sorted(scores) => scores.bytes(),
            Boxed::Stream(stream) => stream.bytes(),
            Boxed::Timed(timed) => timed.bytes(),
        };
        nodes::boxed_len::<Self>() + inner
    }

    /// Elements.
    pub(crate) fn len(&self) -> usize {
        match self {
            Boxed::Fields(fields) => fields.len(),
            Boxed::List(chunks) => chunks.len(),
            Boxed::Sorted(scores) => scores.len(),
            Boxed::Stream(stream) => stream.log().len() as usize,
            Boxed::Timed(timed) => timed.fields().len(),
        }
    }

    /// A copy of its own.
    pub(crate) fn duplicate(&self, means: Means<'_>) -> Self {
        match self {
            Boxed::Fields(fields) => Boxed::Fields(fields.duplicate(means)),
            Boxed::List(chunks) => Boxed::List(chunks.clone()),
            Boxed::Sorted(scores) => Boxed::Sorted(scores.duplicate(means)),
            Boxed::Stream(stream) => Boxed::Stream(stream.clone()),
            Boxed::Timed(timed) => Boxed::Timed(nodes::boxed(timed.duplicate(means))),
        }
    }

    /// Moves elements from sparse pages, of a large collection the part whose
    /// turn it is; counts `visits` down and `moved` up.
    pub(crate) fn compact(&mut self, memory: Memory<'_>, visits: &mut u32, moved: &mut u64) {
        let relocate = |item: &mut Owned| item.relocate(memory.heap, memory.arena);
        match self {
            Boxed::Fields(fields) => fields.compact(memory, visits, moved, relocate),
            Boxed::Timed(timed) => timed.compact(memory, visits, moved),
            Boxed::Sorted(scores) => scores.compact(memory, visits, moved),
            Boxed::List(chunks) => chunks.compact(visits, moved),
            Boxed::Stream(stream) => stream.compact(visits, moved),
        }
    }

    /// Frees a collection that nobody uses any more: a small one at once, a large one in steps of
    /// upkeep. Returns the bytes it took, which from now on only the heap counts.
    #[cold]
    pub(crate) fn discard(mut self, heap: &Heap) -> usize {
        let bytes = self.bytes();
        let mut steps = FREED_AT_ONCE_MAX as u32;
        if self.len() > FREED_AT_ONCE_MAX || !self.free_some(heap.memory(), &mut steps) {
            heap.discard(Box::new(self));
        }
        bytes
    }
}

impl Discard for Boxed {
    fn bytes(&self) -> usize {
        Boxed::bytes(self)
    }

    fn free_some(&mut self, memory: Memory<'_>, steps: &mut u32) -> bool {
        match self {
            Boxed::Fields(fields) => fields.free_some(memory, steps),
            Boxed::List(chunks) => chunks.free_some(steps),
            Boxed::Sorted(scores) => scores.free_some(memory, steps),
            Boxed::Stream(stream) => stream.free_some(steps),
            Boxed::Timed(timed) => timed.free_some(memory, steps),
        }
    }
}
