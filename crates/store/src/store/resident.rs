//! The memory that the process holds for its stores beyond the bytes that each store counts.
//!
//! ```text
//!  anonymous memory of the process
//!   = what it held before the first store, and what it holds for itself
//!   + per store: items, tables, collections, idle in pages of items
//!   + idle in pages of nodes             ─┐ each store's part is that of all
//!   + the surplus: the C library's own   ─┘ that stores count
//! ```
//! The surplus is the freed blocks that the C library's heap keeps, and the clients' buffers beyond
//! the allowance. It is measured, a few times a second, and only in stores that are to heed it:
//! other processes' memory is not their stores'.

use super::config::StoreConfig;
use keyway_memory::nodes;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Milliseconds between two measurements of a store.
const PERIOD_MILLIS: u64 = 100;
/// Part of the bound after which, evicted, the next measurement is made without
/// waiting for its time: what is let go of and written anew moves the surplus. More
/// often takes time, some ten microseconds each; less often lets large values
/// pass the bound by some percent before it is seen.
const EVICTED_SHARE: u64 = 64;
/// Bytes that are evicted between two such measurements at least.
const EVICTED_MIN: u64 = 1 << 20;
/// Bytes that the process may take for itself: stacks, pools of buffers, clients
/// at rest.
pub(crate) const ALLOWANCE: i64 = 4 << 20;
/// Part of the bound up to which the surplus makes a store evict.
const SURPLUS_MAX: i64 = 4;
/// Part by which a smaller surplus counts at each measurement; a larger one counts
/// at once.
const STEP: i64 = 2;
/// The unit of shares: a whole has so many parts.
const WHOLE: i64 = 1 << 10;

/// The bytes that all stores of the process count, as far as they have told.
static COUNTED: AtomicI64 = AtomicI64::new(0);
/// Anonymous memory of the process when its first store was made.
static BASE: OnceLock<i64> = OnceLock::new();

/// Anonymous memory of the process, in bytes; none where the system does not
/// say.
#[cfg(all(target_os = "linux", not(miri)))]
fn anonymous() -> Option<i64> {
    use std::io::Read;
    let mut text = [0; 128];
    let mut file = std::fs::File::open("/proc/self/statm").ok()?;
    let len = file.read(&mut text).ok()?;
    let mut numbers = std::str::from_utf8(&text[..len]).ok()?.split(' ').skip(1);
    let mut next = || numbers.next()?.parse::<i64>().ok();
    // SAFETY: asks for a constant of the system.
    let page_len = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some((next()? - next()?) * page_len)
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn anonymous() -> Option<i64> {
    None
}

/// The memory that a store does not count itself, as far as it knows.
pub(crate) struct Resident {
    /// When it was last measured, in milliseconds.
    measured: AtomicU64,
    /// The bytes that the store added to `COUNTED`.
    told: AtomicI64,
    /// The store's part of what is shared, of `WHOLE`.
    share: AtomicI64,
    /// The store's part of what pages of nodes hold idle, in bytes.
    idle: AtomicI64,
    /// The store's part of the surplus, in bytes.
    surplus: AtomicI64,
    /// Bytes that were evicted since the last measurement.
    evicted: AtomicU64,
    /// The most that the store counted, with its part of what is idle.
    peak: AtomicI64,
}

impl Resident {
    pub(crate) fn new() -> Self {
        BASE.get_or_init(|| anonymous().unwrap_or(0));
        Self {
            measured: AtomicU64::new(0),
            told: AtomicI64::new(0),
            share: AtomicI64::new(WHOLE),
            idle: AtomicI64::new(0),
            surplus: AtomicI64::new(0),
            evicted: AtomicU64::new(0),
            peak: AtomicI64::new(0),
        }
    }

    /// The store's part of what pages of nodes hold idle, as of the last look.
    #[inline]
    pub(crate) fn idle(&self) -> i64 {
        self.idle.load(Ordering::Relaxed)
    }

    /// The store's current share of the bytes that nodes hold beyond what collections count: idle
    /// bytes in their pages, and blocks that are still to be freed.
    pub(crate) fn idle_now(&self) -> i64 {
        self.look();
        let share = self.share.load(Ordering::Relaxed);
        self.idle() + nodes::heap().discarded_bytes() * share / WHOLE
    }

    /// The store's part of the surplus.
    #[inline]
    pub(crate) fn surplus(&self) -> i64 {
        self.surplus.load(Ordering::Relaxed)
    }

    /// The most bytes that the store was seen to take.
    pub(crate) fn peak(&self) -> i64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Looks at the pages of nodes again.
    pub(crate) fn look(&self) {
        let idle = nodes::heap().idle_bytes().max(0);
        let share = self.share.load(Ordering::Relaxed);
        self.idle.store(idle * share / WHOLE, Ordering::Relaxed);
    }

    /// A round of upkeep's look at what the store, which counts `counted` bytes by
    /// itself, does not count.
    pub(crate) fn measure(
        &self,
        now_millis: u64,
        config: &StoreConfig,
        counted: impl FnOnce() -> i64,
    ) {
        let last = self.measured.load(Ordering::Relaxed);
        // The clock may be set back.
        if now_millis >= last && now_millis - last < PERIOD_MILLIS {
            return;
        }
        let free = (Ordering::Relaxed, Ordering::Relaxed);
        if self.measured.compare_exchange(last, now_millis, free.0, free.1).is_ok() {
            self.measure_now(config, counted());
        }
    }

    /// Notes that bytes were evicted, and measures if they are many.
    pub(crate) fn note_evicted(
        &self,
        bytes: u64,
        config: &StoreConfig,
        counted: impl FnOnce() -> i64,
    ) {
        let due = EVICTED_MIN.max(config.memory_max / EVICTED_SHARE);
        if self.evicted.fetch_add(bytes, Ordering::Relaxed) + bytes >= due {
            self.measure_now(config, counted());
        }
    }

    fn measure_now(&self, config: &StoreConfig, counted: i64) {
        self.evicted.store(0, Ordering::Relaxed);
        let own = counted.max(0);
        let told = self.told.swap(own, Ordering::Relaxed);
        let all = COUNTED.fetch_add(own - told, Ordering::Relaxed) + own - told;
        let share = (own / (all / WHOLE).max(1)).clamp(0, WHOLE);
        self.share.store(share, Ordering::Relaxed);
        self.look();
        self.peak.fetch_max(own + self.idle(), Ordering::Relaxed);
        if !config.heeds_resident {
            return;
        }
        let Some(held) = anonymous() else { return };
        let base = BASE.get().copied().unwrap_or(0) + ALLOWANCE;
        let beyond = held - base - all - nodes::heap().idle_bytes();
        let most = config.memory_max as i64 / SURPLUS_MAX;
        let target = (beyond.max(0) / WHOLE * share).min(most);
        let surplus = self.surplus();
        let step = if target > surplus { 1 } else { STEP };
        self.surplus.store(surplus + (target - surplus) / step, Ordering::Relaxed);
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        COUNTED.fetch_sub(*self.told.get_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn what_is_evicted_is_followed_by_a_measurement_before_its_time() {
        let bound = 64 << 20;
        let config =
            StoreConfig { memory_max: bound, heeds_resident: true, ..StoreConfig::default() };
        let store = Store::new(config);
        let ballast = vec![1u8; 2 * bound as usize];
        let evict = |bytes| store.resident.note_evicted(bytes, store.config(), || store.counted());
        evict(EVICTED_MIN - 1);
        assert_eq!(store.resident.surplus(), 0, "nothing is measured yet");
        evict(1);
        assert_eq!(store.resident.surplus() > 0, anonymous().is_some());
        drop(ballast);
    }

    #[test]
    fn what_the_process_holds_is_measured_and_bounds_what_a_store_takes() {
        let bound = 64 << 20;
        let config =
            StoreConfig { memory_max: bound, heeds_resident: true, ..StoreConfig::default() };
        let store = Store::new(config);
        let ballast = vec![1u8; 2 * bound as usize];
        for round in 1..100 {
            store.measure(round * PERIOD_MILLIS);
        }
        if anonymous().is_some() {
            let most = bound as i64 / SURPLUS_MAX;
            assert!(store.resident.surplus() > 0 && store.resident.surplus() <= most);
        }
        drop(ballast);
        let other = Store::new(StoreConfig { memory_max: bound, ..StoreConfig::default() });
        other.measure(PERIOD_MILLIS);
        assert_eq!(other.resident.surplus(), 0, "it is not to heed it");
    }
}
