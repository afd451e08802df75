//! Whether and how long a worker looks at rings before it sleeps. Who sleeps is woken some 50 us
//! late, and at the price of two calls; so it is worth looking where the next bytes come sooner
//! than that, and wasted where they do not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// One wait of so many is spent looking although it was not worth it lately, to see whether that
/// has changed.
const PROBE_EVERY: u32 = 32;

/// Workers that look now, of the whole process.
static LOOKING: AtomicUsize = AtomicUsize::new(0);

/// How long it takes lately until bytes come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gap {
    nanos: u64,
    waits: u32,
}

impl Gap {
    /// Notes how long it took. Longer than four times the budget is all the same.
    pub(super) fn note(&mut self, took: Duration, budget: Duration) {
        let took = took.min(budget * 4).as_nanos() as u64;
        self.nanos = self.nanos - self.nanos / 4 + took / 4;
    }

    /// Whether it is worth looking, for as long as the budget, until the next bytes come.
    pub(super) fn is_short(&mut self, budget: Duration) -> bool {
        self.waits = self.waits.wrapping_add(1);
        self.nanos <= budget.as_nanos() as u64 || self.waits.is_multiple_of(PROBE_EVERY)
    }
}

/// For how long a worker may look, and how many workers may.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looking {
    pub(super) budget: Duration,
    seats: usize,
}

impl Looking {
    /// Half of the processors at most are for those who only look; where there is but one, nobody
    /// does: the other side would wait for it.
    pub(super) fn new(budget: Duration) -> Looking {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let budget = if processors > 1 { budget } else { Duration::ZERO };
        Looking { budget, seats: processors / 2 }
    }

    pub(super) fn is_off(&self) -> bool {
        self.budget.is_zero()
    }

    /// Room for one more who looks.
    pub(super) fn seat(&self) -> Option<Seat> {
        // Nothing else hangs on it: a worker more for a moment does no harm.
        let before = LOOKING.fetch_add(1, Ordering::Relaxed);
        let seat = Seat(());
        (before < self.seats).then_some(seat)
    }
}

/// Somebody looks.
pub(super) struct Seat(());

impl Drop for Seat {
    fn drop(&mut self) {
        LOOKING.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Duration = Duration::from_micros(20);

    #[test]
    fn who_hears_soon_looks_and_who_does_not_tries_now_and_then() {
        let mut gap = Gap::default();
        assert!(gap.is_short(BUDGET), "at first it looks");
        for _ in 0..8 {
            gap.note(Duration::from_secs(1), BUDGET);
        }
        let looked = (0..PROBE_EVERY * 4).filter(|_| gap.is_short(BUDGET)).count();
        assert_eq!(looked, 4);
        for _ in 0..16 {
            gap.note(Duration::from_micros(1), BUDGET);
        }
        assert!((0..PROBE_EVERY).all(|_| gap.is_short(BUDGET)));
    }

    #[test]
    fn there_are_only_so_many_seats() {
        let looking = Looking { budget: BUDGET, seats: 1 };
        let one = looking.seat();
        assert!(one.is_some() && looking.seat().is_none());
        drop(one);
        assert!(looking.seat().is_some());
    }
}
