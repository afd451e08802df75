//! Snapshots: the whole store as bytes of an RDB file, and back.
//!
//! ```text
//!  Store::begin_snapshot ─► Store::take_snapshot ─► Saving ─► Batch, Batch, … ─► the caller's file
//!  the caller's file ─► Loading::feed ─► Store
//! ```
//! Both are driven by a thread of the caller, which has the file; nothing here does I/O. The store
//! serves requests while a snapshot is written. It serves none while it is loaded. A log is a
//! snapshot as its base and the effects behind it, which [`Replay`] executes again.
//!
//! Redis and Valkey read the file, and theirs is read here. The memcached state of items, and the
//! counts that make numbers of values unique, are in auxiliary fields that servers ignore.

mod batch;
mod load;
mod replay;
mod save;

pub use batch::LoadBatch;
pub use load::{Filling, LoadError, Loading, TakeBatch};
pub use replay::{Replay, ReplayError};
pub use save::{Batch, Progress, SaveError, Saving};

/// The field that has the greatest count of values' numbers, and when the cut was.
const NUMBERS_FIELD: &[u8] = b"keyway-numbers";
/// The fields, in Redis's words, that have the place of a replica's data in the history of its
/// primary.
const HISTORY_ID_FIELD: &[u8] = b"repl-id";
const HISTORY_OFFSET_FIELD: &[u8] = b"repl-offset";
const STREAM_DATABASE_FIELD: &[u8] = b"repl-stream-db";
/// The field that has a flush to come: its database, and when.
const FLUSH_FIELD: &[u8] = b"keyway-flush";
