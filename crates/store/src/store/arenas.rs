//! The number of arenas of a store, and the position of the walk that compacts their items
//! (`compaction.rs`).

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize};

/// Fewest shards that share an arena: more let writers wait for each other.
const SHARDS_PER_ARENA: usize = 64;
/// Most arenas per core of the machine: each holds a page of every size of item
/// that is not full, so more make small caches of many sizes waste memory.
const ARENAS_PER_CORE: usize = 4;
/// Bytes of the bound for each arena: each has a page of each slot length.
const BOUND_PER_ARENA: u64 = 32 << 20;

/// Arenas for a store with this bound on a machine with so many cores: a power
/// of two, no more than shards.
pub(crate) fn arena_count(memory_max: u64, shard_count: usize, cores: usize) -> usize {
    let most = (shard_count / SHARDS_PER_ARENA).max(1);
    let most = most.min((ARENAS_PER_CORE * cores).next_power_of_two());
    match memory_max {
        0 => most,
        bound => ((bound / BOUND_PER_ARENA) as usize).clamp(1, most).next_power_of_two().min(most),
    }
}

/// Where the walk over the tables is.
#[derive(Default)]
pub(crate) struct Compaction {
    /// The shard it is at.
    pub(super) turn: AtomicUsize,
    pub(super) visited: AtomicU64,
    pub(super) moved: AtomicU64,
    /// Idle bytes when the last walk ended.
    pub(super) idle_before: AtomicI64,
    /// That walk left as much idle as the one before.
    pub(super) is_idling: AtomicBool,
    /// Idle bytes up to which another walk would find nothing to move.
    pub(super) futile_up_to: AtomicI64,
    /// Rounds of upkeep.
    pub(super) rounds: AtomicU32,
}
