//! Quotas: how much of the store the keys of a prefix may take.
//!
//! The keys of each quota lie in spaces of their own, one per shard and
//! database ([`crate::shard`]), with a table, a wheel and queues of their own.
//! So a victim among them is found as one is found in the whole store, without
//! a look at anybody else's keys, under whatever policy; and what they take is
//! what the items of their spaces take: tables and queues are the store's. Without quotas there is one space per database, as
//! if there were no such thing.
//!
//! What a quota's keys take is counted with every change, while the shard is
//! locked, in one word for all shards.

use crate::commands;
use crate::entry::Turn;
use crate::evict::EvictionPolicy;
use crate::shard::VICTIMS_MAX;
use crate::space::Space;
use crate::store::{Search, Store, len_of};
use crate::transfer::Transfer;
use keyway_base::KeyspaceEvents;
use keyway_command::{Flags, Request};
use keyway_resp::reply;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// Most quotas of a store: each takes a space per shard.
pub const QUOTAS_MAX: usize = 64;

/// What the keys that begin with a prefix may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaConfig {
    /// What they begin with; of several that fit a key, the longest counts.
    pub prefix: Box<[u8]>,
    /// Bytes they may take, without what finds them: each shard has a little of
    /// that, which would be most of a small quota; 0 for no bound.
    pub memory_max: u64,
    /// How many there may be, in all databases; 0 for no bound.
    pub items_max: u64,
}

/// Figures of one quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaStats {
    /// What it is about.
    pub config: QuotaConfig,
    /// Bytes that its keys take.
    pub memory_used: u64,
    /// Its keys.
    pub items: u64,
    /// Of its keys, those removed to stay within it.
    pub evicted: u64,
    /// Writes refused because of it.
    pub refused: u64,
}

struct Quota {
    config: QuotaConfig,
    used: AtomicI64,
    items: AtomicI64,
    evicted: AtomicU64,
    refused: AtomicU64,
    /// The shard whose turn it is to evict.
    turn: AtomicUsize,
}

impl Quota {
    /// Bytes and items above the bounds, if so much were added.
    fn excess(&self, (bytes, items): (u64, u64)) -> (i64, i64) {
        let over = |used: &AtomicI64, more: u64, bound: u64| match bound {
            0 => 0,
            bound => (used.load(Ordering::Relaxed) + more as i64 - bound as i64).max(0),
        };
        let Self { config, used, items: count, .. } = self;
        (over(used, bytes, config.memory_max), over(count, items, config.items_max))
    }

    fn fits(&self, more: (u64, u64)) -> bool {
        self.excess(more) == (0, 0)
    }

    /// Whether so much could be there at all.
    fn may_hold(&self, (bytes, items): (u64, u64)) -> bool {
        let within = |wanted: u64, bound: u64| bound == 0 || wanted <= bound;
        within(bytes, self.config.memory_max) && within(items, self.config.items_max)
    }
}

/// The quotas of a store.
pub(crate) struct Quotas {
    /// By first byte; of the same one, the longest first.
    list: Box<[Quota]>,
    /// Per first byte, where its quotas begin; they end where the next do.
    starts: Box<[u8]>,
}

impl Quotas {
    /// # Panics
    /// When there are more than [`QUOTAS_MAX`], or a prefix is empty or there
    /// twice: the configuration has none such.
    pub(crate) fn new(mut configs: Vec<QuotaConfig>) -> Self {
        assert!(configs.len() <= QUOTAS_MAX, "{} quotas", configs.len());
        assert!(configs.iter().all(|quota| !quota.prefix.is_empty()), "an empty prefix");
        configs.sort_by(|one, other| {
            let by_length = || other.prefix.len().cmp(&one.prefix.len());
            let by_bytes = || one.prefix.cmp(&other.prefix);
            one.prefix[0].cmp(&other.prefix[0]).then_with(by_length).then_with(by_bytes)
        });
        assert!(
            configs.windows(2).all(|pair| pair[0].prefix != pair[1].prefix),
            "one prefix twice"
        );
        let start = |byte: usize| {
            configs.partition_point(|quota| usize::from(quota.prefix[0]) < byte) as u8
        };
        let starts = if configs.is_empty() { [].into() } else { (0..=256).map(start).collect() };
        let quota = |config| Quota {
            config,
            used: AtomicI64::new(0),
            items: AtomicI64::new(0),
            evicted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            turn: AtomicUsize::new(0),
        };
        Self { list: configs.into_iter().map(quota).collect(), starts }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Spaces per database: one for each quota behind that of all other keys.
    #[inline]
    pub(crate) fn width(&self) -> usize {
        1 + self.list.len()
    }

    /// Which space of its database a key is in: 0 without a quota.
    pub(crate) fn of(&self, key: &[u8]) -> usize {
        let (Some(first), false) = (key.first(), self.is_empty()) else { return 0 };
        let first = usize::from(*first);
        let range = usize::from(self.starts[first])..usize::from(self.starts[first + 1]);
        let fits = |index: &usize| key.starts_with(&self.list[*index].config.prefix);
        range.clone().find(fits).map_or(0, |index| index + 1)
    }

    fn at(&self, index: usize) -> Option<&Quota> {
        self.list.get(index.checked_sub(1)?)
    }

    /// Books a change of the space at a place of a shard, which is locked.
    #[inline]
    pub(crate) fn book(&self, place: usize, space: &mut Space, bytes: i64, items: i64) {
        if !self.is_empty() {
            self.book_for(place, space, bytes, items);
        }
    }

    fn book_for(&self, place: usize, space: &mut Space, bytes: i64, items: i64) {
        let Some(quota) = self.at(place % self.width()) else { return };
        space.used += bytes;
        quota.used.fetch_add(bytes, Ordering::Relaxed);
        if items != 0 {
            quota.items.fetch_add(items, Ordering::Relaxed);
        }
    }

    /// The figures, in the order of the prefixes.
    pub(crate) fn stats(&self) -> Vec<QuotaStats> {
        let stats = |quota: &Quota| QuotaStats {
            config: quota.config.clone(),
            memory_used: quota.used.load(Ordering::Relaxed).max(0) as u64,
            items: quota.items.load(Ordering::Relaxed).max(0) as u64,
            evicted: quota.evicted.load(Ordering::Relaxed),
            refused: quota.refused.load(Ordering::Relaxed),
        };
        let mut all: Vec<QuotaStats> = self.list.iter().map(stats).collect();
        all.sort_by(|one, other| one.config.prefix.cmp(&other.config.prefix));
        all
    }
}

/// The quotas that a request's keys are of.
type Concerned = SmallVec<[usize; 4]>;

impl Store {
    /// Executes a request, keeping the quotas of its keys: room is made, or it
    /// is refused, before; and what it took beyond the estimate is evicted
    /// after.
    pub(crate) fn execute_within_quotas(
        &self,
        request: &Request<'_>,
        turn: Turn,
        transfer: Option<&Transfer<'_>>,
        out: &mut Vec<u8>,
    ) {
        if !request.command.flags.contains(Flags::WRITE) {
            return commands::execute(self, request, turn, transfer, out);
        }
        let mut keys = Vec::new();
        if request.keys(&mut keys).is_err() {
            keys.clear();
        }
        let keys = keys.iter().map(|index| &request.args[*index as usize]);
        let mut concerned: Concerned =
            keys.clone().map(|key| self.quotas.of(key)).filter(|index| *index > 0).collect();
        concerned.sort_unstable();
        concerned.dedup();
        if request.command.flags.contains(Flags::DENYOOM) {
            let bytes = len_of(request, transfer);
            for index in &concerned {
                let of_quota = keys.clone().filter(|key| self.quotas.of(key) == *index);
                if let Err(text) = self.admit(*index, of_quota, bytes, turn) {
                    return reply::error(out, &text);
                }
            }
        }
        commands::execute(self, request, turn, transfer, out);
        for index in concerned {
            self.evict_of_quota(index, (0, 0), turn);
        }
    }

    /// Evicts what a request took beyond the quotas of its keys.
    pub(crate) fn settle_quotas(&self, request: &Request<'_>, turn: Turn) {
        if self.quotas.is_empty() {
            return;
        }
        let mut keys = Vec::new();
        if request.keys(&mut keys).is_ok() {
            for index in keys {
                self.evict_of_quota(self.quotas.of(&request.args[index as usize]), (0, 0), turn);
            }
        }
    }

    /// Makes room in a quota for a write of one key of its; whether there is.
    pub(crate) fn admit_one(&self, index: usize, key: &[u8], bytes: u64, turn: Turn) -> bool {
        self.admit(index, std::iter::once(key), bytes, turn).is_ok()
    }

    /// Makes room in a quota for a request with these keys of its; if there is
    /// none, says so.
    fn admit<'k>(
        &self,
        index: usize,
        keys: impl Iterator<Item = &'k [u8]>,
        bytes: u64,
        turn: Turn,
    ) -> Result<(), String> {
        let Some(quota) = self.quotas.at(index) else { return Ok(()) };
        // Most requests find room whatever there is of their keys already.
        let keys: SmallVec<[&[u8]; 8]> = keys.collect();
        if quota.fits((bytes, keys.len() as u64)) {
            return Ok(());
        }
        let is_new = |key: &&&[u8]| !self.with_key(turn, key, |entry| entry.exists());
        let new = keys.iter().filter(is_new).count() as u64;
        let is_full =
            !quota.may_hold((bytes, new)) || !self.evict_of_quota(index, (bytes, new), turn);
        if !is_full {
            return Ok(());
        }
        quota.refused.fetch_add(1, Ordering::Relaxed);
        let prefix = String::from_utf8_lossy(&quota.config.prefix).replace(['\r', '\n'], " ");
        Err(format!("OOM command not allowed when the quota of keys '{prefix}*' is used up."))
    }

    /// Evicts keys of a quota until so much more fits into it; whether it
    /// does.
    pub(crate) fn evict_of_quota(&self, index: usize, more: (u64, u64), turn: Turn) -> bool {
        let Some(quota) = self.quotas.at(index) else { return true };
        let mut search = Search::default();
        while !quota.fits(more) {
            if self.policy() == EvictionPolicy::NoEviction || !self.searches_on(&mut search) {
                return false;
            }
            let shard_index = quota.turn.fetch_add(1, Ordering::Relaxed) & (self.shard_count() - 1);
            match self.evict_in_shard(shard_index, index, more, turn) {
                Some(evicted) => {
                    quota.evicted.fetch_add(evicted, Ordering::Relaxed);
                    search.note(evicted);
                }
                None => search.note_held(shard_index),
            }
        }
        true
    }

    /// Evicts some keys of a quota from one shard; how many, `None` when the
    /// shard could not be had.
    fn evict_in_shard(
        &self,
        shard_index: usize,
        index: usize,
        more: (u64, u64),
        turn: Turn,
    ) -> Option<u64> {
        let mut shard = self.shard_to_evict(shard_index)?;
        let quota = self.quotas.at(index)?;
        let upkeep = self.upkeep(shard_index, turn);
        let gone = |place: usize, key: &[u8]| {
            self.note_event_at((turn, place), KeyspaceEvents::EVICTED, "evicted", key);
        };
        let (mut evicted, mut freed) = (0, 0);
        for database in 0..self.database_count() {
            let place = self.place_of(database) + index;
            while evicted < VICTIMS_MAX as u64 && !quota.fits(more) {
                let Some(bytes) = shard.evict_from(place, &upkeep, self.policy(), gone) else {
                    break;
                };
                (evicted, freed) = (evicted + 1, freed + bytes);
            }
        }
        self.charge(&mut shard, -freed);
        Some(evicted)
    }
}

impl Store {
    /// Holds what is counted of every quota against what there is.
    ///
    /// # Panics
    /// When they differ: for tests, of a store that nobody else uses.
    #[doc(hidden)]
    pub fn recount_quotas(&self) {
        for index in 1..self.quotas.width() {
            let (mut bytes, mut items) = (0, 0);
            for shard in 0..self.shard_count() {
                let mut shard = self.shard(shard);
                for database in 0..self.database_count() {
                    let place = self.place_of(database) + index;
                    let Some(space) = shard.existing_space(place) else { continue };
                    let recount = space.recount() as i64;
                    assert_eq!(space.used, recount);
                    bytes += space.used;
                    items += space.table.len() as i64;
                }
            }
            let Some(quota) = self.quotas.at(index) else { continue };
            let counted = (&quota.used, &quota.items);
            let counted = (counted.0.load(Ordering::Relaxed), counted.1.load(Ordering::Relaxed));
            assert_eq!(counted, (bytes, items), "{:?}", quota.config);
        }
    }
}
