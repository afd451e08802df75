//! Large collections, and the items that own one: their value is its address.

use super::blob;
use super::chunks::Chunks;
use super::fields::Fields;
use super::means::{Means, View};
use super::scores::Scores;
use super::stream::Stream;
use super::timed::{self, Timed};
use crate::items::{Encoding, Item, Kind, Meta, Owned, Times};
use keyway_memory::nodes::{self, NodeBox, Nodes};
use keyway_memory::{Discard, Heap, Memory};

/// Elements up to which a collection is freed at once: some microseconds. The longest run of
/// elements is a list's chunk, or a leaf of a tree.
const FREED_AT_ONCE_MAX: usize = 128;

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

    pub(crate) fn fields_mut(&mut self) -> Option<&mut Fields> {
        if let Boxed::Fields(fields) = self { Some(fields) } else { None }
    }

    pub(crate) fn list_mut(&mut self) -> Option<&mut Chunks> {
        if let Boxed::List(chunks) = self { Some(chunks) } else { None }
    }

    pub(crate) fn scores_mut(&mut self) -> Option<&mut Scores> {
        if let Boxed::Sorted(scores) = self { Some(scores) } else { None }
    }

    pub(crate) fn stream_mut(&mut self) -> Option<&mut Stream> {
        if let Boxed::Stream(stream) = self { Some(stream) } else { None }
    }

    pub(crate) fn timed_mut(&mut self) -> Option<&mut Timed> {
        if let Boxed::Timed(timed) = self { Some(timed) } else { None }
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
        let relocate = |item: &mut Owned| item.relocate(memory);
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

static EMPTY: Stream = Stream::new();

impl<'a> View<'a> for &'a Stream {
    const KIND: Kind = Kind::Stream;

    fn of(item: Item<'a>, _: Means<'a>) -> Self {
        match item.boxed() {
            Some(Boxed::Stream(stream)) => stream,
            _ => &EMPTY,
        }
    }
}

impl<'a> Item<'a> {
    /// The structure that the value is the address of, if it is one.
    #[inline]
    pub(crate) fn boxed(&self) -> Option<&'a Boxed> {
        let address = self.structure()?;
        // SAFETY: a boxed item owns the structure at its address, which lives
        // and stays unchanged as long as the item does.
        Some(unsafe { &*address.cast() })
    }

    /// When it expires, and when something in it does.
    #[inline]
    pub(crate) fn times(&self) -> Times {
        let fields = if self.encoding().is_timed() { self.first_field() } else { None };
        Times { expiry: self.expiry(), fields }
    }

    /// When the first field of a timed hash expires, or somewhat before.
    #[inline]
    pub(crate) fn first_field(&self) -> Option<u64> {
        match self.boxed() {
            Some(Boxed::Timed(timed)) => timed.earliest(),
            _ => timed::written_earliest(self.value()),
        }
    }

    /// Returns whether every field of a timed hash has expired.
    pub(crate) fn is_spent(&self, now_millis: u64) -> bool {
        match self.boxed() {
            Some(Boxed::Timed(timed)) => timed.is_spent(now_millis),
            _ => timed::is_spent(self.value(), now_millis),
        }
    }

    /// Returns whether it is past its expiry, or every field of it is.
    pub(crate) fn is_gone(&self, now_millis: u64) -> bool {
        self.is_expired(now_millis) || self.encoding().is_timed() && self.is_spent(now_millis)
    }

    /// Returns whether a timed hash has a field that has not expired, as far as that is
    /// known without a look at the fields.
    pub(crate) fn is_sure_to_last(&self, now_millis: u64) -> bool {
        match self.boxed() {
            Some(Boxed::Timed(timed)) => !timed.is_spent(now_millis),
            _ => false,
        }
    }

    /// Returns whether nothing is left of a collection that is not there without elements.
    pub(crate) fn is_empty_collection(&self) -> bool {
        match (self.boxed(), self.encoding()) {
            (_, Encoding::StreamBoxed) => false,
            (Some(boxed), _) => boxed.len() == 0,
            (None, Encoding::Integers) => self.value().len() <= 1,
            (None, _) => blob::count(self.value()) == 0,
        }
    }
}

impl Owned {
    /// An item whose value is a structure, which it owns.
    pub(crate) fn create_boxed(
        memory: Memory<'_>,
        meta: &Meta,
        access: u32,
        key: &[u8],
        boxed: NodeBox<Boxed>,
    ) -> Self {
        debug_assert!(meta.encoding.is_boxed());
        let address = NodeBox::into_raw(boxed).expose_provenance().to_ne_bytes();
        Self::create(memory, meta, access, key, &address, address.len())
    }

    /// Bytes it takes of the system's memory, with what its value leads to.
    pub(crate) fn bytes(&self) -> usize {
        self.block_bytes() + self.item().boxed().map_or(0, Boxed::bytes)
    }

    /// Frees the item; the bytes it took. A large structure is only handed to
    /// the heap here, to be freed in steps.
    #[inline]
    pub(crate) fn release(self, heap: &Heap) -> usize {
        let boxed = match self.item().structure() {
            Some(address) => {
                // SAFETY: the address came from a box in `create_boxed`, and
                // the item that owned it is gone with this function.
                let boxed = unsafe { NodeBox::<Boxed>::from_raw_in(address.cast(), Nodes) };
                NodeBox::into_inner(boxed).discard(heap)
            }
            None => 0,
        };
        boxed + self.free_block(heap)
    }

    /// The structure that the value is the address of, to change it.
    #[inline]
    pub(crate) fn boxed_mut(&mut self) -> Option<&mut Boxed> {
        let address = self.item().structure()?;
        // SAFETY: as for `Item::boxed`; the item is borrowed mutably.
        Some(unsafe { &mut *address.cast() })
    }

    /// Moves the structure, if it lies on a page that is to become empty; whether
    /// it was moved.
    pub(crate) fn relocate_boxed(&mut self) -> bool {
        let Some(address) = self.item().structure() else { return false };
        // SAFETY: the address came from a box in `create_boxed` or here, which
        // the item owns, and which is borrowed mutably.
        let boxed = unsafe { NodeBox::<Boxed>::from_raw_in(address.cast(), Nodes) };
        let (boxed, has_moved) = nodes::relocate_boxed(boxed);
        let address = NodeBox::into_raw(boxed).expose_provenance().to_ne_bytes();
        if has_moved {
            self.value_mut().copy_from_slice(&address);
        }
        has_moved
    }
}
