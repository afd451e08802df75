use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A count that only grows. One thread writes it, any thread reads it. Adding is a relaxed load and
/// a relaxed store, which loses counts if two threads write. Cells are therefore reached only
/// through [`crate::WorkerCells`].
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Returns a counter at zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts `n` more. Wraps after 2^64, which Prometheus reads as a restart.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Restarts from zero, which Prometheus reads as a restart.
    pub(crate) fn restart(&self) {
        self.0.store(0, Relaxed);
    }

    /// Returns the count.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A level that rises and falls, never below zero. One thread writes it, any thread reads it, as
/// with [`Counter`].
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Returns a gauge at zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Replaces the level.
    #[inline]
    pub fn set(&self, level: u64) {
        self.0.store(level, Relaxed);
    }

    /// Adds `n` to the level.
    #[inline]
    pub fn raise(&self, n: u64) {
        self.set(self.get().wrapping_add(n));
    }

    /// Takes `n` off the level. Taking more than there is means that the caller counted wrong: a
    /// debug build panics, a release build shows zero.
    #[inline]
    pub fn lower(&self, n: u64) {
        let level = self.get();
        debug_assert!(n <= level, "gauge lowered by {n} from {level}");
        self.set(level.saturating_sub(n));
    }

    /// Returns the level.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_is_the_sum_of_what_was_added() {
        let counter = Counter::new();
        for n in 0..100 {
            counter.add(n);
        }
        assert_eq!(counter.get(), 4950);
    }

    #[test]
    fn gauge_returns_to_zero_after_equal_raises_and_lowers() {
        let gauge = Gauge::new();
        gauge.raise(7);
        gauge.raise(3);
        gauge.lower(4);
        assert_eq!(gauge.get(), 6);
        gauge.lower(6);
        assert_eq!(gauge.get(), 0);
        gauge.set(9);
        assert_eq!(gauge.get(), 9);
    }
}
