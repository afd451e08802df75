mod execute;
mod room;

pub(crate) use execute::{args_len, len_of};
pub(crate) use room::{Reserved, Search, reserved_len};

use crate::busy::Scripting;
use crate::collections::{Means, View, WrongType};
use crate::compaction::{self, Compaction};
use crate::entry::{Entry, Turn};
use crate::events::{Events, NO_WORKER};
use crate::items::{Hasher, Item, Table};
use crate::memcached::Flushes;
use crate::resident::Resident;
use crate::shards::{EvictionPolicy, Gone, QuotaConfig, QuotaStats, Quotas, Shard, Upkeep};
use crate::transfer::Drafts;
use crate::waiters::Waiters;
use crate::watches::Watches;
use keyway_base::{Clock, KeyspaceEvents};
use keyway_command::Verb;
use keyway_memory::Heap;
use keyway_memory::Memory;
use keyway_memory::nodes;
use keyway_memory::{Guard, Holder, Lock};
use keyway_resp::Protocol;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering};

/// Fewest shards: with fewer, cores would wait for each other, and tables
/// would be longer.
const SHARDS_MIN: usize = 1024;
/// Shards per core of the machine.
const SHARDS_PER_CORE: usize = 64;
/// Most shards: a cursor of SCAN has this much room.
const SHARDS_MAX: usize = 1 << 16;
/// Fewest shards that share an arena: more let writers wait for each other.
pub(crate) const SHARDS_PER_ARENA: usize = 64;
/// Most arenas per core of the machine: each holds a page of every size of item
/// that is not full, so more make small caches of many sizes waste memory.
pub(crate) const ARENAS_PER_CORE: usize = 4;
/// Calls of [`Store::tick`] in which every shard is looked at once. At ten a
/// second, that and a wheel's whole seconds keep within two.
const TICKS_PER_ROUND: usize = 5;
/// Items a tick may touch: a tenth of a millisecond of work, some more when none is
/// in a cache.
const TICK_STEPS: u32 = 600;
/// Empty pages whose memory a tick returns to the system.
const TICK_PAGES: usize = 4;
/// Items a write may touch to keep its shard tidy: under a microsecond each.
const WRITE_STEPS: u32 = 8;
/// Bytes by which a shard's use may change before the store's sum is told,
/// with no bound on memory. Smaller makes cores share a cache line more often.
const UNREPORTED_MAX: i64 = 64 << 10;
/// With a bound on memory, what all shards together may not have told is at
/// most this part of it.
const UNREPORTED_SHARE: u64 = 64;

/// How a store is made.
#[derive(Clone, Copy, Debug)]
pub struct StoreConfig {
    /// Bytes of memory that items and tables may take; 0 for no bound.
    pub memory_max: u64,
    /// What to do when a write would pass `memory_max`.
    pub policy: EvictionPolicy,
    /// Number of databases that clients can select; at least 1.
    pub databases: u32,
    /// Number of shards, rounded up to a power of two; `None` chooses by the
    /// number of cores.
    pub shards: Option<u32>,
    /// Secret that decides which keys share a table bucket: random in
    /// production, fixed in a test.
    pub seed: u64,
    /// Which changes of keys [`Store::take_events`] tells of.
    pub notify: KeyspaceEvents,
    /// How reading a key that has an expiry moves it; `None`: not at all.
    pub after_read: Option<AfterRead>,
    /// Whether what the process is seen to hold beyond what its stores count
    /// counts towards `memory_max`: where stores are all that it holds much for.
    pub heeds_resident: bool,
}

/// How reading a key that has an expiry moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AfterRead {
    /// From when it is read to when it expires then, in milliseconds.
    pub span_millis: u64,
    /// Percent of that, up to 100, below which the time that is left must be.
    pub below_percent: u8,
}

impl AfterRead {
    /// Whether an expiry is moved by reading, with so much time left.
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

/// What a request needs besides its words.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The client's selected database.
    pub database: u32,
    /// Both clocks of the worker's turn.
    pub clock: Clock,
    /// What the client speaks.
    pub protocol: Protocol,
    /// Whose [`Store::take_events`] tells what became of keys.
    pub worker: u16,
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
    config: StoreConfig,
    hasher: Hasher,
    shard_bits: u32,
    /// log2 of the shards that share an arena.
    arena_shift: u32,
    pub(crate) compaction: Compaction,
    /// Database as clients name it -> its place in shards. Changed only with
    /// all shards locked, so holding any shard is enough to read it.
    places: Box<[AtomicU32]>,
    /// Bytes used, short of what shards have not yet reported.
    used: AtomicI64,
    /// Bound on what a shard does not report.
    unreported_max: i64,
    /// The shard whose turn it is to be looked at by a tick.
    tick_turn: AtomicUsize,
    /// The shard whose turn it is to evict.
    evict_turn: AtomicUsize,
    /// What keys of a prefix may take.
    pub(crate) quotas: Quotas,
    /// What became of keys.
    pub(crate) events: Events,
    /// Which keys are watched for transactions.
    pub(crate) watches: Watches,
    /// Who waits for elements.
    pub(crate) waiters: Waiters,
    /// Feeds choices that only have to be different each time.
    random_turn: AtomicUsize,
    /// What the process holds for it beyond that.
    pub(crate) resident: Resident,
    /// Held by the script that runs: there is one at a time.
    pub(crate) scripting: Scripting,
    /// What memcached clients want flushed at a time to come.
    pub(crate) flushes: Flushes,
    /// Long values that are on their way in.
    pub(crate) drafts: Drafts,
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
        let arena_count = compaction::arena_count(config.memory_max, shard_count, cores);
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
            places: (0..config.databases.max(1)).map(|it| AtomicU32::new(it * width)).collect(),
            used: AtomicI64::new(0),
            unreported_max: unreported_max.min(UNREPORTED_MAX),
            tick_turn: AtomicUsize::new(0),
            evict_turn: AtomicUsize::new(0),
            quotas,
            events: Events::new(KeyspaceEvents::NONE),
            watches: Watches::new(),
            waiters: Waiters::new(),
            random_turn: AtomicUsize::new(config.seed as usize),
            resident: Resident::new(),
            scripting: Scripting::new(),
            flushes: Flushes::new(),
            drafts: Drafts::default(),
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

    fn own_bytes(&self) -> i64 {
        let shards = self.shards.len() * (size_of::<Padded>() + size_of::<AtomicU32>());
        let tables = self.events.bytes() + self.watches.bytes() + self.waiters.bytes();
        (size_of::<Self>() + shards + tables) as i64
    }

    /// Whether the store executes `verb`.
    pub fn serves(&self, verb: Verb) -> bool {
        keyway_command::store_serves(verb)
    }

    /// Upkeep, in bounded time: frees items that expired and memory of flushed
    /// databases. To be called about every 100 ms by any worker; more workers
    /// calling share the work. Whether there is more to do at once: the worker
    /// should then call again after its next turn, or a mass expiry is
    /// reclaimed at no more than some thousand items per call.
    #[must_use = "there may be more to do at once"]
    pub fn tick(&self, clock: Clock) -> bool {
        let protocol = Protocol::default();
        let now_millis = clock.unix_millis();
        let turn =
            Turn { database: 0, now_millis, protocol, worker: NO_WORKER, is_scripted: false };
        self.check_mortal(turn);
        if !self.has_script() {
            self.events.resume();
            if self.flush_is_due(turn) {
                self.flush_due(turn);
            }
        }
        let second = (turn.now_millis / 1000) as u32;
        let mut steps = TICK_STEPS;
        self.measure(now_millis);
        // Pages of nodes are all stores': one that heeds no others makes no haste for them.
        let shared = nodes::heap().release_pages(TICK_PAGES) && self.config.heeds_resident;
        let more = self.heap.release_pages(TICK_PAGES) | shared;
        if self.free_discarded(&mut steps) && steps == 0 {
            return true;
        }
        let count = self.shards.len().div_ceil(TICKS_PER_ROUND);
        for _ in 0..count {
            let index = self.tick_turn.fetch_add(1, Ordering::Relaxed) & (self.shards.len() - 1);
            if self.due[index].load(Ordering::Relaxed) <= second
                && let Some(mut shard) = self.shards[index].0.try_lock()
            {
                self.tidy(&mut shard, index, turn, &mut steps);
            }
            if steps == 0 {
                return true;
            }
        }
        self.compact_in_upkeep() || more
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
            databases: vec![DatabaseStats::default(); self.places.len()],
            memory_pages: self.heap.page_bytes(),
            memory_idle: (self.heap.idle_bytes() + self.resident.idle_now()).max(0) as u64,
            memory_peak: self.resident.peak().max(0) as u64,
            memory_max: self.config.memory_max,
            quotas: self.quotas.stats(),
            ..StoreStats::default()
        };
        let mut used = self.own_bytes();
        // Blocks that become items meanwhile, or are freed from them, are not counted twice.
        let gone = || (self.heap.discarded_bytes(), self.heap.outside_held());
        let before = gone();
        for index in 0..self.shards.len() {
            let mut shard = lock(self.lock_of(index))?;
            for database in 0..self.places.len() {
                for place in self.places_of(database as u32) {
                    let Some(space) = shard.existing_space(place) else { continue };
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

    /// The configuration it was made with.
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    pub(crate) fn policy(&self) -> EvictionPolicy {
        self.config.policy
    }

    /// Whether eviction needs to know how often items are used.
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

    /// What the collections of a shard need.
    #[inline]
    pub(crate) fn means(&self, shard_index: usize, now_millis: u64) -> Means<'_> {
        let (heap, hasher, arena) = (&self.heap, &self.hasher, self.arena_of(shard_index));
        Means { heap, hasher, arena, now_millis }
    }

    pub(crate) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    #[inline]
    pub(crate) fn shard(&self, index: usize) -> Guard<'_, Shard> {
        let lock = &self.shards[index].0;
        #[cfg(debug_assertions)]
        assert!(!Holder::is_holding() || lock.is_held(), "a transaction holds all it needs");
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
    pub(crate) fn shard_place(&self, index: usize) -> *const Lock<Shard> {
        &raw const self.shards[index].0
    }

    /// Which of a database's spaces a key is in.
    #[inline]
    pub(crate) fn quota_of(&self, key: &[u8]) -> usize {
        if self.quotas.is_empty() { 0 } else { self.quotas.of(key) }
    }

    /// The place in shards of the space that a key is in. Good while a shard
    /// is locked.
    #[inline]
    pub(crate) fn place_for(&self, database: u32, key: &[u8]) -> usize {
        self.place_of(database) + self.quota_of(key)
    }

    /// The places of a database's spaces. Good while a shard is locked.
    pub(crate) fn places_of(&self, database: u32) -> Range<usize> {
        let first = self.place_of(database);
        first..first + self.quotas.width()
    }

    /// The place in shards of a database's first space, which has the keys
    /// without a quota. Good while a shard is locked.
    #[inline]
    pub(crate) fn place_of(&self, database: u32) -> usize {
        self.places[database as usize].load(Ordering::Relaxed) as usize
    }

    /// The database that has a place in shards, one of which is locked.
    pub(crate) fn database_at(&self, place: usize) -> u32 {
        let has_it = |database: &u32| self.places_of(*database).contains(&place);
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

    /// Locks `key`'s shard and lets `work` work on the key.
    #[inline]
    pub(crate) fn with_key<R>(
        &self,
        turn: Turn,
        key: &[u8],
        work: impl FnOnce(Entry<'_>) -> R,
    ) -> R {
        let (hash, index) = self.locate(key);
        let mut shard = self.shard(index);
        work(Entry::locate(self, (&mut shard, index), turn, key, hash))
    }

    /// Locks the shards of all `keys`, always in the same order, so that two
    /// requests never wait for each other.
    pub(crate) fn lock_keys<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> Locked<'_> {
        let mut indices: SmallVec<[u32; 16]> =
            keys.map(|key| self.shard_of(self.hash(key)) as u32).collect();
        indices.sort_unstable();
        indices.dedup();
        self.lock_indices(indices, None)
    }

    /// Locks every shard.
    pub(crate) fn lock_all(&self) -> Locked<'_> {
        let indices: SmallVec<[u32; 16]> = (0..self.shards.len() as u32).collect();
        // With so many, there would always be one that some script holds.
        let turn = (!Holder::is_holding()).then(|| self.scripting.lock());
        self.lock_indices(indices, turn)
    }

    /// Locks these shards, in ascending order. A script holds shards in any
    /// order: who meets one of them lets go of all others and begins again, the
    /// next time with no script beside it.
    fn lock_indices<'a>(
        &'a self,
        indices: SmallVec<[u32; 16]>,
        mut turn: Option<Guard<'a, ()>>,
    ) -> Locked<'a> {
        let mut guards = SmallVec::with_capacity(indices.len());
        'again: loop {
            for index in &indices {
                let lock = &self.shards[*index as usize].0;
                #[cfg(debug_assertions)]
                assert!(
                    !Holder::is_holding() || lock.is_held(),
                    "a transaction holds all it needs"
                );
                // Nobody waits for who has none yet.
                let guard = match guards.is_empty() {
                    true => Some(lock.lock()),
                    false => lock.lock_unless_held(),
                };
                let Some(guard) = guard else {
                    guards.clear();
                    turn.get_or_insert_with(|| self.scripting.lock());
                    lock.wait_until_released();
                    continue 'again;
                };
                guards.push(guard);
            }
            return Locked { store: self, indices, guards };
        }
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

    /// A write's share of its shard's upkeep.
    #[inline]
    pub(crate) fn tidy_if_due(&self, shard: &mut Shard, shard_index: usize, turn: Turn) {
        let second = (turn.now_millis / 1000) as u32;
        if self.due[shard_index].load(Ordering::Relaxed) <= second {
            let mut steps = WRITE_STEPS;
            self.tidy(shard, shard_index, turn, &mut steps);
        }
    }

    #[cold]
    fn tidy(&self, shard: &mut Shard, shard_index: usize, turn: Turn, steps: &mut u32) {
        let mut partly: SmallVec<[(usize, Box<[u8]>); 1]> = SmallVec::new();
        let gone = |place: usize, key: &[u8], what: Gone| match what {
            Gone::Whole => {
                self.note_event_at((turn, place), KeyspaceEvents::EXPIRED, "expired", key);
            }
            Gone::Fields => partly.push((place, key.into())),
        };
        let due = &self.due[shard_index];
        let freed = shard.tidy(&self.upkeep(shard_index, turn), steps, due, gone);
        self.charge(shard, -freed);
        for (place, key) in partly {
            // Of the last one something is done in any case.
            *steps = (*steps).max(WRITE_STEPS);
            let turn = Turn { database: self.database_at(place), ..turn };
            self.drop_fields((shard, shard_index), turn, &key, steps);
        }
    }

    pub(crate) fn upkeep(
        &self,
        shard_index: usize,
        turn: Turn,
    ) -> Upkeep<'_, impl Fn(&[u8]) -> u32> {
        let hash_key = |key: &[u8]| self.hash(key) as u32;
        let (memory, quotas) = (self.memory_of(shard_index), &self.quotas);
        Upkeep { memory, now_millis: turn.now_millis, quotas, hash_key }
    }

    /// Exchanges the places of two databases, with `locked` all shards.
    pub(crate) fn swap_databases(&self, _locked: &Locked<'_>, one: u32, other: u32) {
        let (one, other) = (&self.places[one as usize], &self.places[other as usize]);
        let place = one.load(Ordering::Relaxed);
        one.store(other.load(Ordering::Relaxed), Ordering::Relaxed);
        other.store(place, Ordering::Relaxed);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        for (index, shard) in self.shards.iter_mut().enumerate() {
            let memory = Memory { heap: &self.heap, arena: index >> self.arena_shift };
            shard.0.get_mut().clear(memory, &self.quotas);
        }
        while self.heap.free_discarded(&mut { u32::MAX }) {}
    }
}

/// Redis's reply to a write that does not fit.
pub(crate) const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// Several shards locked at once.
pub(crate) struct Locked<'a> {
    store: &'a Store,
    /// Ascending.
    indices: SmallVec<[u32; 16]>,
    /// Of the shards in `indices`, in the same order.
    guards: SmallVec<[Guard<'a, Shard>; 16]>,
}

impl Locked<'_> {
    pub(crate) fn store(&self) -> &Store {
        self.store
    }

    /// Whether a key of a locked shard is there; with `now_millis`, and has not
    /// expired.
    pub(crate) fn contains(&self, database: u32, key: &[u8], now_millis: Option<u64>) -> bool {
        let (hash, index) = self.store.locate(key);
        let Ok(at) = self.indices.binary_search(&(index as u32)) else { return false };
        let space = self.guards[at].space_to_read(self.store.place_for(database, key));
        let is_live = |space: &crate::shards::Space| {
            let position = space.table.find(hash, |item, _| item.key() == key)?;
            let item = space.table.item(position);
            Some(!now_millis.is_some_and(|now| item.is_gone(now)))
        };
        space.and_then(is_live).unwrap_or(false)
    }

    /// One of the keys that were locked.
    ///
    /// # Panics
    /// When the key's shard is not locked: callers pass the keys they locked.
    pub(crate) fn entry<'b>(&'b mut self, turn: Turn, key: &'b [u8]) -> Entry<'b> {
        let hash = self.store.hash(key);
        let index = self.store.shard_of(hash);
        let at = self.indices.binary_search(&(index as u32));
        let shard = &mut self.guards[at.expect("the key's shard is locked")];
        Entry::locate(self.store, (shard, index), turn, key, hash as u32)
    }

    /// The collections of keys that were locked, all at once: nothing is
    /// removed or counted here.
    pub(crate) fn look_at<'b, V: View<'b>>(
        &'b self,
        turn: Turn,
        key: &[u8],
    ) -> Result<Option<V>, WrongType> {
        match self.item(turn, key) {
            None => Ok(None),
            Some((item, means)) if item.encoding().kind() == V::KIND => {
                Ok(Some(V::of(item, means)))
            }
            Some(_) => Err(WrongType),
        }
    }

    /// As [`Locked::look_at`], of a string; none if it is no string.
    pub(crate) fn text(&self, turn: Turn, key: &[u8]) -> Option<&[u8]> {
        let (item, _) = self.item(turn, key)?;
        item.encoding().is_text().then(|| item.value())
    }

    fn item(&self, turn: Turn, key: &[u8]) -> Option<(Item<'_>, Means<'_>)> {
        let (hash, index) = self.store.locate(key);
        let at = self.indices.binary_search(&(index as u32));
        let shard: &Shard = &self.guards[at.expect("the key's shard is locked")];
        let means = self.store.means(index, turn.now_millis);
        let space = shard.space_to_read(self.store.place_for(turn.database, key))?;
        let position = space.table.find(hash, |item, _| item.key() == key)?;
        let item = space.table.item(position);
        (!item.is_gone(turn.now_millis)).then_some((item, means))
    }

    /// Hints to the processor which cache lines the keys' items are in.
    pub(crate) fn prefetch<'b>(
        &mut self,
        turn: Turn,
        keys: impl Iterator<Item = &'b [u8]> + Clone,
    ) {
        for step in [Table::prefetch, Table::prefetch_item] {
            for key in keys.clone() {
                let hash = self.store.hash(key);
                let index = self.store.shard_of(hash) as u32;
                if let Ok(at) = self.indices.binary_search(&index) {
                    let place = self.store.place_for(turn.database, key);
                    step(&self.guards[at].space(place).table, hash as u32);
                }
            }
        }
    }

    /// Empties a database of all locked shards.
    pub(crate) fn flush(&mut self, database: u32) {
        for (index, shard) in self.indices.iter().zip(&mut self.guards) {
            for place in self.store.places_of(database) {
                if shard.flush(place, &self.store.quotas) {
                    self.store.come_by(*index as usize, 0);
                }
            }
        }
    }
}

/// The next number of a SplitMix64 generator.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}
