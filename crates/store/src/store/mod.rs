//! The store itself: its shards with their locks, the room that writes need, and what
//! is noted of keys. It knows no command.

mod ahead;
mod arenas;
mod compaction;
mod config;
mod core;
mod events;
mod flushes;
mod following;
mod gate;
mod holding;
mod locked;
mod logged;
mod mortal;
mod notify;
mod resident;
mod room;
mod scripting;
mod snapshots;
mod streamed_set;
mod streamed_sets;
mod turn;
mod waiters;
mod watches;
mod zero_copy;

pub use ahead::KeyHint;
pub use config::{AfterRead, DatabaseStats, StoreConfig, StoreStats};
pub(crate) use core::OUT_OF_MEMORY;
pub use core::Store;
pub(crate) use events::SILENT;
pub use events::{KeyEvent, NO_WORKER};
pub use following::{EffectReader, Overrun};
pub use gate::Restrictions;
pub(crate) use holding::{ShardIndices, Telling};
pub(crate) use locked::Locked;
pub use logged::{EffectLog, LogState, LogStatus};
pub(crate) use room::{Reserved, Search, args_len, reserved_len};
pub use scripting::Busy;
pub use snapshots::{SnapshotRefusal, SnapshotStatus};
pub use streamed_set::StreamedSet;
pub use turn::Context;
pub(crate) use turn::{Mode, Turn};
pub(crate) use waiters::Lane;
pub use waiters::{Patience, Waiter, Who};
pub use watches::Mark;
pub use zero_copy::{Insertions, Transfer};
