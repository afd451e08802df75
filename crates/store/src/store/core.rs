use super::arenas::{Compaction, arena_count};
use super::config::{DatabaseStats, StoreConfig, StoreStats};
use super::effect_log::Logged;
use super::events::Events;
use super::flushes::Flushes;
use super::gate::Gate;
use super::history::History;
use super::resident::Resident;
use super::scripting::{Busy, Scripting};
use super::snapshots::Snapshots;
use super::streamed_sets::StreamedSets;
use super::turn::Turn;
use super::waiters::Waiters;
use super::watches::Watches;
use crate::collections::Means;
use crate::cut::{ItemWriter, Uses};
use crate::effects::Effects;
use crate::items::Hasher;
use crate::shards::{CutDoor, EvictionPolicy, QuotaConfig, Quotas, Shard, Upkeep};
use keyway_base::KeyspaceEvents;
use keyway_command::Verb;
use keyway_memory::{Guard, Heap, Lock, Memory};
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering};

/// Fewest shards: with fewer, cores would wait for each other, and tables
/// would be longer.
const SHARDS_MIN: usize = 1024;
/// Shards per core of the machine.
const SHARDS_PER_CORE: usize = 64;
/// Most shards: a cursor of SCAN has this much room.
const SHARDS_MAX: usize = 1 << 16;
/// Bytes by which a shard's use may change before the store's sum is told,
/// with no bound on memory. Smaller makes cores share a cache line more often.
const UNREPORTED_MAX: i64 = 64 << 10;
/// With a bound on memory, what all shards together may not have told is at
/// most this part of it.
const UNREPORTED_SHARE: u64 = 64;

/// Number of times that a thread that cannot wait yields the processor before it gives up. It takes
/// some milliseconds, or as long as other threads run.
const WAITS_MAX: u32 = 10_000;

/// A shard on cache lines of its own: neighbours are prefetched in pairs.
#[repr(align(128))]
struct Padded(Lock<Shard>);

/// The embedded store. Shared by all workers; each runs a request to
/// completion on its own thread, locking the shards of the request's keys.
pub struct Store {
    // Drop clears the shards, whose items lie in the heap.
    shards: Box<[Padded]>,
    /// Per shard, the second at which its upkeep has something to do.
    due: Box<[AtomicU32]>,
    pub(crate) heap: Heap,
    pub(super) config: StoreConfig,
    hasher: Hasher,
    shard_bits: u32,
    /// log2 of the shards that share an arena.
    arena_shift: u32,
    pub(crate) compaction: Compaction,
    /// Database as clients name it -> the index of its first space in shards. Changed only with
    /// all shards locked, so holding any shard is enough to read it.
    pub(super) first_spaces: Box<[AtomicU32]>,
    /// Bytes used, short of what shards have not yet reported.
    used: AtomicI64,
    /// Bound on what a shard does not report.
    pub(super) unreported_max: i64,
    /// The shard whose turn it is to be looked at by a tick.
    tick_turn: AtomicUsize,
    /// The shard whose turn it is to evict.
    pub(super) evict_turn: AtomicUsize,
    /// The bounds on keys of a prefix.
    pub(crate) quotas: Quotas,
    /// The events of keys.
    pub(crate) events: Events,
    /// The effects that repeat each change, for readers that follow the store.
    pub(crate) effects: Effects,
    /// The keys that are watched for transactions.
    pub(crate) watches: Watches,
    /// The clients that wait for elements.
    pub(crate) waiters: Waiters,
    /// Feeds choices that only have to be different each time.
    random_turn: AtomicUsize,
    /// The memory that the process holds for the store beyond the counted bytes.
    pub(crate) resident: Resident,
    /// Held by the script that runs: there is one at a time.
    pub(crate) scripting: Scripting,
    /// The delayed flushes of memcached clients.
    pub(crate) flushes: Flushes,
    /// Long values that are on their way in.
    pub(crate) streamed_sets: StreamedSets,
    /// The state of snapshots.
    pub(crate) snapshots: Snapshots,
    /// The log of its effects.
    pub(super) logged: Logged,
    /// The place of a replica's data in the history of its primary.
    pub(crate) history: History,
    /// The state that keeps clients from being served.
    pub(crate) gate: Gate,
}

impl Store {
    /// An empty store: some hundred kilobytes.
    pub fn new(config: StoreConfig) -> Self {
        Self::with_quotas(config, Vec::new())
    }

    /// The same with quotas for keys of some prefixes. Each takes up to two
    /// hundred bytes per shard, and another kilobyte where its keys expire.
    ///
    /// # Panics
    /// With more than [`crate::QUOTAS_MAX`], a prefix that is empty, or one
    /// that is there twice.
    pub fn with_quotas(config: StoreConfig, quotas: Vec<QuotaConfig>) -> Self {
        let quotas = Quotas::new(quotas);
        let width = quotas.width() as u32;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shard_count = match config.shards {
            Some(count) => count as usize,
            None => (SHARDS_PER_CORE * cores).max(SHARDS_MIN),
        };
        let shard_count = shard_count.clamp(1, SHARDS_MAX).next_power_of_two();
        let unreported_max = match config.memory_max {
            0 => UNREPORTED_MAX,
            bound => (bound / UNREPORTED_SHARE / shard_count as u64) as i64,
        };
        let mut seed = config.seed;
        let arena_count = arena_count(config.memory_max, shard_count, cores);
        let store = Self {
            shards: (0..shard_count)
                .map(|_| Padded(Lock::new(Shard::new(split_mix(&mut seed)))))
                .collect(),
            due: (0..shard_count).map(|_| AtomicU32::new(u32::MAX)).collect(),
            heap: Heap::new(arena_count),
            arena_shift: (shard_count / arena_count).ilog2(),
            compaction: Compaction::default(),
            config: StoreConfig { databases: config.databases.max(1), ..config },
            hasher: Hasher::new(config.seed),
            shard_bits: shard_count.ilog2(),
            first_spaces: (0..config.databases.max(1))
                .map(|it| AtomicU32::new(it * width))
                .collect(),
            used: AtomicI64::new(0),
            unreported_max: unreported_max.min(UNREPORTED_MAX),
            tick_turn: AtomicUsize::new(0),
            evict_turn: AtomicUsize::new(0),
            quotas,
            events: Events::new(KeyspaceEvents::NONE),
            effects: Effects::new(),
            watches: Watches::new(),
            waiters: Waiters::new(),
            random_turn: AtomicUsize::new(config.seed as usize),
            resident: Resident::new(),
            scripting: Scripting::new(),
            flushes: Flushes::new(),
            streamed_sets: StreamedSets::default(),
            snapshots: Snapshots::new(),
            logged: Logged::new(),
            history: History::new(),
            gate: Gate::new(),
        };
        store.watch_changes(false);
        store.used.store(store.own_bytes(), Ordering::Relaxed);
        store
    }

    /// Bytes used, as far as shards told.
    #[inline]
    pub(crate) fn used_bytes(&self) -> i64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that the store counts by itself.
    pub(crate) fn counted(&self) -> i64 {
        let gone = self.heap.discarded_bytes() + self.heap.outside_held();
        self.used_bytes() + gone + self.heap.idle_bytes() + self.effects.held() as i64
    }

    /// Looks at what the process holds beyond that, if it is time.
    pub(crate) fn measure(&self, now_millis: u64) {
        self.resident.measure(now_millis, &self.config, || self.counted());
    }

    fn own_bytes(&self) -> i64 {
        let shards = self.shards.len() * (size_of::<Padded>() + size_of::<AtomicU32>());
        let tables = self.events.bytes()
            + self.watches.bytes()
            + self.waiters.bytes()
            + self.effects.own_bytes();
        (size_of::<Self>() + shards + tables) as i64
    }

    /// Returns whether the store executes `verb`.
    pub fn serves(&self, verb: Verb) -> bool {
        keyway_command::store_serves(verb)
    }

    /// The store's figures. Takes every shard's lock once.
    pub fn stats(&self) -> StoreStats {
        let figures = self.stats_with(|lock| Some(lock.lock()));
        figures.unwrap_or_default()
    }

    /// The figures, with each shard as `lock` locks it; none if it does not.
    pub(crate) fn stats_with<'s>(
        &'s self,
        lock: impl Fn(&'s Lock<Shard>) -> Option<Guard<'s, Shard>>,
    ) -> Option<StoreStats> {
        let mut stats = StoreStats {
            databases: vec![DatabaseStats::default(); self.first_spaces.len()],
            memory_pages: self.heap.page_bytes(),
            memory_idle: (self.heap.idle_bytes() + self.resident.idle_now()).max(0) as u64,
            memory_peak: self.resident.peak().max(0) as u64,
            memory_max: self.config.memory_max,
            quotas: self.quotas.stats(),
            ..StoreStats::default()
        };
        let mut used = self.own_bytes() + self.effects.held() as i64;
        // Blocks that become items meanwhile, or are freed from them, are not counted twice.
        let gone = || (self.heap.discarded_bytes(), self.heap.outside_held());
        let before = gone();
        for index in 0..self.shards.len() {
            let mut shard = lock(self.lock_of(index))?;
            for database in 0..self.first_spaces.len() {
                for index in self.space_indices(database as u32) {
                    let Some(space) = shard.existing_space(index) else { continue };
                    stats.databases[database].items += space.table.len() as u64;
                    stats.databases[database].volatile += space.volatile as u64;
                }
            }
            used += shard.used;
            stats.hits += shard.counts.hits;
            stats.misses += shard.counts.misses;
            stats.expired += shard.counts.expired;
            stats.expired_fields += shard.counts.expired_fields;
            stats.evicted += shard.counts.evicted;
            stats.changes += shard.changes();
        }
        let after = gone();
        used += before.0.min(after.0) + before.1.min(after.1);
        stats.memory_used = used.max(0) as u64;
        Some(stats)
    }

    /// Returns whether a script runs, or what excludes scripts: the caller's request may
    /// have to wait.
    #[inline]
    pub fn has_script(&self) -> bool {
        self.scripting.is_taken()
    }

    /// Returns the kind of script that has been running for long, if one has.
    pub fn busy(&self) -> Option<Busy> {
        self.scripting.busy()
    }

    /// The figures of [`Store::stats`], for who cannot wait for the end of a script:
    /// none if one holds a shard that is needed, and is busy or goes on for some
    /// milliseconds.
    pub fn stats_beside_script(&self) -> Option<StoreStats> {
        let waits = Cell::new(0);
        self.stats_with(|lock| {
            loop {
                if let Some(guard) = lock.lock_unless_held() {
                    return Some(guard);
                }
                if waits.get() == WAITS_MAX || self.busy().is_some() {
                    return None;
                }
                waits.set(waits.get() + 1);
                std::thread::yield_now();
            }
        })
    }

    /// The configuration it was made with.
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    pub(crate) fn policy(&self) -> EvictionPolicy {
        self.config.policy
    }

    /// Returns whether eviction needs to know how often items are used.
    #[inline]
    pub(crate) fn counts_uses(&self) -> bool {
        let is_bounded = self.config.memory_max != 0 || !self.quotas.is_empty();
        is_bounded && self.config.policy != EvictionPolicy::NoEviction
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    /// The shard of a hash: its top bits; tables use the lower half.
    #[inline]
    pub(crate) fn shard_of(&self, hash: u64) -> usize {
        ((hash >> 32) >> (32 - self.shard_bits)) as usize
    }

    #[inline]
    pub(crate) fn arena_of(&self, shard_index: usize) -> usize {
        shard_index >> self.arena_shift
    }

    /// Where a shard's tables and items get their memory from.
    #[inline]
    pub(crate) fn memory_of(&self, shard_index: usize) -> Memory<'_> {
        Memory { heap: &self.heap, arena: self.arena_of(shard_index) }
    }

    /// Returns the means that collections of a shard need to change.
    #[inline]
    pub(crate) fn means(&self, shard_index: usize, now_millis: u64) -> Means<'_> {
        let (heap, hasher, arena) = (&self.heap, &self.hasher, self.arena_of(shard_index));
        Means { heap, hasher, arena, now_millis }
    }

    /// The shard whose turn it is to be looked at by a tick.
    pub(crate) fn next_to_tidy(&self) -> usize {
        self.tick_turn.fetch_add(1, Ordering::Relaxed) & (self.shards.len() - 1)
    }

    /// When upkeep is to look at a shard.
    #[inline]
    pub(crate) fn due_of(&self, shard_index: usize) -> &AtomicU32 {
        &self.due[shard_index]
    }

    pub(crate) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    #[inline]
    pub(crate) fn shard(&self, index: usize) -> Guard<'_, Shard> {
        let lock = &self.shards[index].0;
        #[cfg(debug_assertions)]
        assert!(
            !keyway_memory::Holder::is_holding() || lock.is_held(),
            "a transaction holds all it needs"
        );
        lock.lock()
    }

    /// A shard's lock, to be held for several requests.
    pub(crate) fn lock_of(&self, index: usize) -> &Lock<Shard> {
        &self.shards[index].0
    }

    /// A shard, if nobody uses it now.
    #[inline]
    pub(crate) fn try_shard(&self, index: usize) -> Option<Guard<'_, Shard>> {
        self.shards[index].0.try_lock()
    }

    /// Where a shard is, to be prefetched.
    #[inline]
    pub(crate) fn shard_address(&self, index: usize) -> *const Lock<Shard> {
        &raw const self.shards[index].0
    }

    /// Returns the number of a key's space in its database.
    #[inline]
    pub(crate) fn quota_of(&self, key: &[u8]) -> usize {
        if self.quotas.is_empty() { 0 } else { self.quotas.of(key) }
    }

    /// The index in shards of the space that a key is in. Good while a shard
    /// is locked.
    #[inline]
    pub(crate) fn space_index(&self, database: u32, key: &[u8]) -> usize {
        self.first_space(database) + self.quota_of(key)
    }

    /// The indices of a database's spaces in shards. Good while a shard is locked.
    pub(crate) fn space_indices(&self, database: u32) -> Range<usize> {
        let first = self.first_space(database);
        first..first + self.quotas.width()
    }

    /// The index in shards of a database's first space, which has the keys
    /// without a quota. Good while a shard is locked.
    #[inline]
    pub(crate) fn first_space(&self, database: u32) -> usize {
        self.first_spaces[database as usize].load(Ordering::Relaxed) as usize
    }

    /// The database that a space is of. A shard is locked.
    pub(crate) fn database_at(&self, space_index: usize) -> u32 {
        let has_it = |database: &u32| self.space_indices(*database).contains(&space_index);
        (0..self.database_count()).find(has_it).unwrap_or_default()
    }

    pub(crate) fn database_count(&self) -> u32 {
        self.config.databases
    }

    /// A number different each time, evenly spread.
    pub(crate) fn random(&self) -> u64 {
        let mut turn = self.random_turn.fetch_add(1, Ordering::Relaxed) as u64;
        split_mix(&mut turn)
    }

    /// The hash of a key in its shard, and the shard's index.
    #[inline]
    pub(crate) fn locate(&self, key: &[u8]) -> (u32, usize) {
        let hash = self.hash(key);
        (hash as u32, self.shard_of(hash))
    }

    /// Books a change of a shard's memory.
    #[inline]
    pub(crate) fn charge(&self, shard: &mut Shard, change: i64) {
        shard.used += change;
        shard.unreported += change;
        if shard.unreported.abs() > self.unreported_max {
            self.used.fetch_add(shard.unreported, Ordering::Relaxed);
            shard.unreported = 0;
        }
    }

    /// Sees to it that upkeep looks at a shard by `second`. Its lock is held.
    pub(crate) fn come_by(&self, shard_index: usize, second: u32) {
        let due = &self.due[shard_index];
        if second < due.load(Ordering::Relaxed) {
            due.store(second, Ordering::Relaxed);
        }
    }

    pub(crate) fn upkeep(
        &self,
        shard_index: usize,
        turn: Turn,
    ) -> Upkeep<'_, impl Fn(&[u8]) -> u32> {
        let hash_key = |key: &[u8]| self.hash(key) as u32;
        let (memory, quotas) = (self.memory_of(shard_index), &self.quotas);
        let door = self.cut_door(shard_index, turn.now_millis);
        Upkeep { memory, now_millis: turn.now_millis, quotas, door, hash_key }
    }

    /// Returns the means that a snapshot needs to write items of a shard.
    #[inline]
    pub(crate) fn cut_door(&self, shard_index: usize, now_millis: u64) -> CutDoor<'_> {
        let uses = match self.config.policy {
            _ if self.config.memory_max == 0 => Uses::Nothing,
            policy if policy.is_lfu() => Uses::Frequency,
            policy if policy.is_lru() => Uses::IdleTime,
            _ => Uses::Nothing,
        };
        let second = (now_millis / 1000) as u32;
        let writer = ItemWriter { means: self.means(shard_index, now_millis), uses, second };
        CutDoor { writer, queue: &self.snapshots.queue }
    }

    /// Lets a snapshot write the items of a hash before one of them changes.
    #[inline]
    pub(crate) fn before_change(
        &self,
        shard: &mut Shard,
        shard_index: usize,
        space_index: usize,
        hash: u32,
        now_millis: u64,
    ) {
        shard.before_change(space_index, hash, || self.cut_door(shard_index, now_millis));
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        for (index, shard) in self.shards.iter_mut().enumerate() {
            let memory = Memory { heap: &self.heap, arena: index >> self.arena_shift };
            let shard = shard.0.get_mut();
            self.snapshots.discard(shard.end_cut(&self.snapshots.queue), &self.heap);
            shard.clear(memory, &self.quotas);
        }
        self.snapshots.discard(self.snapshots.queue.take(), &self.heap);
        while self.heap.free_discarded(&mut { u32::MAX }) {}
    }
}

/// Redis's reply to a write that does not fit.
pub(crate) const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// The next number of a SplitMix64 generator.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}
