//! The configuration and the figures of a store.

use crate::shards::{EvictionPolicy, QuotaStats};
use keyway_base::KeyspaceEvents;

/// The configuration of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoreConfig {
    /// Bytes of memory that items and tables may take; 0 for no bound.
    pub memory_max: u64,
    /// The handling of a write that would pass `memory_max`.
    pub policy: EvictionPolicy,
    /// Number of databases that clients can select; at least 1.
    pub databases: u32,
    /// Number of shards, rounded up to a power of two; `None` chooses by the
    /// number of cores.
    pub shards: Option<u32>,
    /// Secret that decides which keys share a table bucket: random in
    /// production, fixed in a test.
    pub seed: u64,
    /// The changes of keys that [`crate::Store::take_events`] returns.
    pub notify: KeyspaceEvents,
    /// The rule by which reading a key moves its expiry. `None`: it does not.
    pub after_read: Option<AfterRead>,
    /// True if what the process is seen to hold beyond what its stores count
    /// counts towards `memory_max`: where stores are all that it holds much for.
    pub heeds_resident: bool,
}

/// The rule by which reading a key moves its expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AfterRead {
    /// From when it is read to when it expires then, in milliseconds.
    pub span_millis: u64,
    /// Percent of that, up to 100, below which the time that is left must be.
    pub below_percent: u8,
}

impl AfterRead {
    /// Returns whether an expiry is moved by reading, with so much time left.
    pub(crate) fn puts_off(self, left_millis: u64) -> bool {
        let below = u128::from(self.span_millis) * u128::from(self.below_percent.min(100));
        u128::from(left_millis) * 100 < below
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            memory_max: 0,
            policy: EvictionPolicy::default(),
            databases: 16,
            shards: None,
            seed: 0,
            notify: KeyspaceEvents::NONE,
            after_read: None,
            heeds_resident: false,
        }
    }
}

/// Figures of a store. Gathered shard by shard, so they are of slightly
/// different moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Per database.
    pub databases: Vec<DatabaseStats>,
    /// Bytes that items, tables and the store itself take, allocator's
    /// rounding included.
    pub memory_used: u64,
    /// Bytes of pages held for items of up to 7 KiB: what exceeds their share
    /// of `memory_used` is fragmentation.
    pub memory_pages: u64,
    /// Bytes of pages that nothing takes, this store's part of those of nodes
    /// included: with `memory_used` what the process
    /// holds for the store.
    pub memory_idle: u64,
    /// The most that both together were, as seen in upkeep.
    pub memory_peak: u64,
    /// The bound on both together, 0 for none.
    pub memory_max: u64,
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    /// Items removed because they had expired.
    pub expired: u64,
    /// Fields of hashes removed because they had expired.
    pub expired_fields: u64,
    /// Items removed to make room.
    pub evicted: u64,
    /// Number of changes of keys by requests, by the rules of keyspace events.
    pub changes: u64,
    /// Per quota, by prefix.
    pub quotas: Vec<QuotaStats>,
}

/// Figures of one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseStats {
    /// Keys, with those expired but not yet removed.
    pub items: u64,
    /// Keys with an expiry.
    pub volatile: u64,
}
