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
//! for a rehash, and cursors of scans stay good. Here is how each type is stored
//! and read; `edits/` changes them.

pub(crate) mod blob;
mod boxed;
pub(crate) mod chunks;
pub(crate) mod fields;
pub(crate) mod hash;
pub(crate) mod integers;
pub(crate) mod list;
mod means;
pub(crate) mod ranks;
pub(crate) mod score;
pub(crate) mod scores;
pub(crate) mod set;
pub(crate) mod sorted;
pub(crate) mod stream;
pub(crate) mod timed;

pub(crate) use boxed::Boxed;
pub(crate) use means::{Means, View};

/// The key holds a value of another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrongType;
