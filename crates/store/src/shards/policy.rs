/// The handling of a write that finds memory used up. The names are those of Redis's
/// `maxmemory-policy`, and one of Keyway's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EvictionPolicy {
    /// `noeviction`: refuse the write.
    NoEviction,
    /// `allkeys-s3fifo`: S3-FIFO over all keys.
    #[default]
    AllKeysS3Fifo,
    /// `allkeys-lru`: keys not used lately.
    AllKeysLru,
    /// `allkeys-lfu`: keys used rarely.
    AllKeysLfu,
    /// `allkeys-random`: any key.
    AllKeysRandom,
    /// `volatile-lru`: keys with an expiry, not used lately.
    VolatileLru,
    /// `volatile-lfu`: keys with an expiry, used rarely.
    VolatileLfu,
    /// `volatile-random`: any key with an expiry.
    VolatileRandom,
    /// `volatile-ttl`: keys that expire soon.
    VolatileTtl,
}

impl EvictionPolicy {
    /// In the order of the variants.
    const NAMES: [(Self, &'static str); 9] = [
        (Self::NoEviction, "noeviction"),
        (Self::AllKeysS3Fifo, "allkeys-s3fifo"),
        (Self::AllKeysLru, "allkeys-lru"),
        (Self::AllKeysLfu, "allkeys-lfu"),
        (Self::AllKeysRandom, "allkeys-random"),
        (Self::VolatileLru, "volatile-lru"),
        (Self::VolatileLfu, "volatile-lfu"),
        (Self::VolatileRandom, "volatile-random"),
        (Self::VolatileTtl, "volatile-ttl"),
    ];

    /// The name in configuration and in CONFIG GET.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    /// The policy of that name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        let found = Self::NAMES.into_iter().find(|(_, own)| own.eq_ignore_ascii_case(name));
        found.map(|(policy, _)| policy)
    }

    /// Returns whether OBJECT FREQ tells something.
    pub(crate) fn is_lfu(self) -> bool {
        matches!(self, Self::AllKeysLfu | Self::VolatileLfu)
    }

    /// Returns whether it goes by when items were used last.
    pub(crate) fn is_lru(self) -> bool {
        matches!(self, Self::AllKeysLru | Self::VolatileLru)
    }

    pub(super) fn only_volatile(self) -> bool {
        use EvictionPolicy::{VolatileLfu, VolatileLru, VolatileRandom, VolatileTtl};
        matches!(self, VolatileLru | VolatileLfu | VolatileRandom | VolatileTtl)
    }
}
