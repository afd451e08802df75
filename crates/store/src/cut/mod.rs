//! Items in the form of a snapshot, and where they wait for the file.
//!
//! ```text
//!  shard, walked by the snapshot ──────────► Pieces ──► file
//!  shard, before an item changes ─► Queue ──────▲
//! ```
//! A snapshot tells of one moment, the *cut*. `shards/cut.rs` decides which item is written when;
//! here is how an item is written, and the queue of those that could not wait for the walk.

mod cells;
mod item;
mod pieces;
mod queue;

pub(crate) use cells::Cells;
pub(crate) use item::{ItemWriter, META_FIELD, Uses, read_meta};
pub(crate) use pieces::{Piece, Pieces};
pub(crate) use queue::Queue;
