//! The embedded store: keys and values in memory, expiry, eviction, and the
//! commands on them.
//!
//! ```text
//!  Store ── Shard (lock) ── Space per database ── Table ── items, each one block of memory
//!    │                      and quota         ├── Wheel: when they expire
//!    └── Heap: arenas for items               └── Queue: which to evict
//! ```
//! Shared by all workers; a request runs to completion on the thread that read
//! it, holding the locks of its keys' shards. Never does I/O, never reads a
//! clock, has no thread of its own. Read first: [`Store`], `entry/` (all that
//! commands may do with a key) and `items/table.rs`.
//!
//! The folders are layers, and each imports only those before it: `algorithms`,
//! `items`, `collections`, `dump`, `cut`, `shards`, `effects`, `store`, `entry`, `edits`,
//! `commands`, `requests`, `memcached`, `snapshot`.
//!
//! Architecture invariants: a request waits for nothing but shard locks. It takes
//! them in ascending order, and gives them back when it meets one that a script
//! holds. Arena locks are taken inside them and held for one list operation. Every
//! byte of an item or a table is in `memory_used`.

mod algorithms;
mod collections;
mod commands;
mod cut;
mod dump;
mod edits;
mod effects;
mod entry;
mod items;
mod memcached;
mod requests;
mod shards;
mod snapshot;
mod store;
#[cfg(test)]
mod testing;

pub use effects::{EffectLimits, Keeping};
pub use keyway_memory::give_back_freed_memory;
pub use memcached::MemcachedContext;
pub use requests::{Footprint, Held, OutOfMemory, Refused, ScriptHold, Waited};
pub use shards::{EvictionPolicy, QUOTAS_MAX, QuotaConfig, QuotaStats};
pub use snapshot::{
    Batch, Filling, LoadBatch, LoadError, Loading, Progress, Replay, ReplayError, SaveError,
    Saving, TakeBatch,
};
pub use store::{
    AfterRead, Busy, Compaction, Context, DatabaseStats, EffectLog, EffectReader, Expected,
    HISTORY_COMMAND, HistoryPlace, Insertions, KeyEvent, KeyHint, LogState, LogStatus, Mark,
    NO_WORKER, Overrun, Patience, Restrictions, SnapshotRefusal, SnapshotStatus, Store,
    StoreConfig, StoreStats, StreamedSet, Transfer, Waiter, Who,
};
