use crate::items::{Hasher, Item, Kind};
use keyway_memory::{Heap, Memory};

/// The means that a structure needs to change: memory, and the secret hash.
#[derive(Clone, Copy)]
pub(crate) struct Means<'a> {
    pub(crate) heap: &'a Heap,
    pub(crate) hasher: &'a Hasher,
    pub(crate) arena: usize,
    /// Fields that expire by then are as good as gone.
    pub(crate) now_millis: u64,
}

impl<'a> Means<'a> {
    #[inline]
    pub(crate) fn memory(&self) -> Memory<'a> {
        Memory { heap: self.heap, arena: self.arena }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u32 {
        self.hasher.hash(key) as u32
    }

    /// Returns whether a field with this time has expired.
    #[inline]
    pub(crate) fn has_passed(&self, time: Option<u64>) -> bool {
        time.is_some_and(|time| time <= self.now_millis)
    }
}

/// A type of collection, borrowed to be read.
pub(crate) trait View<'a>: Sized {
    const KIND: Kind;

    /// The collection that `item`, which is of this kind, holds.
    fn of(item: Item<'a>, means: Means<'a>) -> Self;
}
