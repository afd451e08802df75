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
mod boxed;
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

use crate::store::Store;
pub(crate) use boxed::Boxed;
use keyway_memory::Memory;

/// Most elements of a set or a sorted set in a blob, and the longest string of
/// these and hashes: Redis's defaults, so that OBJECT ENCODING says the same.
pub(crate) const BLOB_ELEMENTS_MAX: usize = 128;
pub(crate) const BLOB_STRING_LEN_MAX: usize = 64;

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
