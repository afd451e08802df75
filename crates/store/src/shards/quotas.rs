//! Quotas: how much of the store the keys of a prefix may take.
//!
//! The keys of each quota lie in spaces of their own, one per shard and
//! database ([`super::shard`]), with a table, a wheel and queues of their own.
//! So a victim among them is found as one is found in the whole store, without
//! a look at anybody else's keys, under whatever policy; and what they take is
//! what the items of their spaces take: tables and queues are the store's. Without quotas there is one space per database, as
//! if there were no such thing.
//!
//! Every change counts the memory of a quota's keys, while the shard is locked, in one word for all
//! shards.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// Most quotas of a store: each takes a space per shard.
pub const QUOTAS_MAX: usize = 64;

/// A bound on the keys that begin with a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaConfig {
    /// The prefix. If several prefixes fit a key, the longest counts.
    pub prefix: Box<[u8]>,
    /// Bytes they may take, without what finds them: each shard has a little of
    /// that, which would be most of a small quota; 0 for no bound.
    pub memory_max: u64,
    /// Largest number of keys, in all databases. 0: no bound.
    pub items_max: u64,
}

/// Figures of one quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaStats {
    /// The quota.
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

pub(crate) struct Quota {
    pub(crate) config: QuotaConfig,
    pub(crate) used: AtomicI64,
    pub(crate) items: AtomicI64,
    pub(crate) evicted: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// The shard whose turn it is to evict.
    pub(crate) turn: AtomicUsize,
}

/// What a write may add to a quota.
#[derive(Clone, Copy, Default)]
pub(crate) struct Demand {
    pub(crate) bytes: u64,
    pub(crate) items: u64,
}

impl Quota {
    /// Returns whether the quota is within its bounds once `more` is added.
    pub(crate) fn fits(&self, more: Demand) -> bool {
        let over = |used: &AtomicI64, more: u64, bound: u64| match bound {
            0 => 0,
            bound => (used.load(Ordering::Relaxed) + more as i64 - bound as i64).max(0),
        };
        let Self { config, used, items: count, .. } = self;
        over(used, more.bytes, config.memory_max) == 0
            && over(count, more.items, config.items_max) == 0
    }

    /// Returns whether an empty quota has room for `more`.
    pub(crate) fn may_hold(&self, more: Demand) -> bool {
        let within = |wanted: u64, bound: u64| bound == 0 || wanted <= bound;
        within(more.bytes, self.config.memory_max) && within(more.items, self.config.items_max)
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

    /// Returns the number of a key's space in its database, which is 0 without a quota.
    pub(crate) fn of(&self, key: &[u8]) -> usize {
        let (Some(first), false) = (key.first(), self.is_empty()) else { return 0 };
        let first = usize::from(*first);
        let range = usize::from(self.starts[first])..usize::from(self.starts[first + 1]);
        let fits = |index: &usize| key.starts_with(&self.list[*index].config.prefix);
        range.clone().find(fits).map_or(0, |index| index + 1)
    }

    pub(crate) fn at(&self, index: usize) -> Option<&Quota> {
        self.list.get(index.checked_sub(1)?)
    }

    /// Counts a change of the space of an index; whether that is one of a quota.
    pub(super) fn book(&self, space_index: usize, bytes: i64, items: i64) -> bool {
        let Some(quota) = self.at(space_index % self.width()) else { return false };
        quota.used.fetch_add(bytes, Ordering::Relaxed);
        if items != 0 {
            quota.items.fetch_add(items, Ordering::Relaxed);
        }
        true
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
