//! Decides whether and how long a worker polls rings before it sleeps. A sleeping worker is woken
//! some 50 us late, and at the price of two calls. So polling is worth it if the next bytes come
//! sooner than that, and is wasted otherwise.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Most waits without polling before it is tried again after polling in vain.
const SKIPPED_MAX: u32 = 255;

/// Number of workers of the process that poll now.
static LOOKING: AtomicUsize = AtomicUsize::new(0);

/// Whether polling for a connection's bytes is worth it, judged by recent results. The time until
/// the other side's wake-up says nothing about that: with few processors the other side may be
/// waiting for the processor of the polling worker.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Luck {
    /// Number of waits to skip after polling in vain.
    skip: u32,
    /// Number of these that are left.
    left: u32,
}

impl Luck {
    /// Notes that bytes came while polling.
    pub(super) fn found(&mut self) {
        self.skip /= 2;
    }

    /// Notes that no bytes came while polling.
    pub(super) fn in_vain(&mut self) {
        self.skip = (self.skip * 2 + 1).min(SKIPPED_MAX);
        self.left = self.skip;
    }

    /// Returns whether to poll this time.
    pub(super) fn is_good(&mut self) -> bool {
        let is_good = self.left == 0;
        self.left = self.left.saturating_sub(1);
        is_good
    }
}

/// What the worker did last on a connection before it waits for bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum After {
    /// It has read. The next bytes may have to wait for other parties, as replies do for requests.
    #[default]
    Reading,
    /// It has written. An answer or the next request may follow at once.
    Writing,
}

/// A connection's luck after either. Waiting for a client and waiting for a server are different,
/// so a proxy keeps them apart.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lucks {
    after: After,
    reading: Luck,
    writing: Luck,
}

impl Lucks {
    fn now(&mut self) -> &mut Luck {
        match self.after {
            After::Reading => &mut self.reading,
            After::Writing => &mut self.writing,
        }
    }

    /// Begins a wait. Returns whether to poll.
    pub(super) fn is_good(&mut self, after: After) -> bool {
        self.after = after;
        self.now().is_good()
    }

    /// Returns what this wait comes after.
    pub(super) fn after(&self) -> After {
        self.after
    }

    /// Notes that bytes came, as [`Luck::found`] does.
    pub(super) fn found(&mut self) {
        self.now().found();
    }

    /// Notes that no bytes came, as [`Luck::in_vain`] does.
    pub(super) fn in_vain(&mut self) {
        self.now().in_vain();
    }
}

/// How long a worker may poll, and how many workers may.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looking {
    pub(super) budget: Duration,
    seats: usize,
}

impl Looking {
    /// Creates the limits. At most half of the processors are for polling workers. With only one
    /// processor no worker polls, because the other side would wait for it.
    pub(super) fn new(budget: Duration) -> Looking {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let budget = if processors > 1 { budget } else { Duration::ZERO };
        Looking { budget, seats: processors / 2 }
    }

    pub(super) fn is_off(&self) -> bool {
        self.budget.is_zero()
    }

    /// Returns a seat if one more worker may poll.
    pub(super) fn seat(&self) -> Option<Seat> {
        // No other data depends on it: one worker too many for a moment does no harm.
        let before = LOOKING.fetch_add(1, Ordering::Relaxed);
        let seat = Seat(());
        (before < self.seats).then_some(seat)
    }
}

/// The seat of a polling worker.
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
    fn who_looks_in_vain_tries_less_and_less_and_never_gives_up() {
        let mut luck = Luck::default();
        let mut tries = Vec::new();
        for wait in 0..1_000 {
            if luck.is_good() {
                tries.push(wait);
                luck.in_vain();
            }
        }
        assert_eq!(tries, [0, 2, 6, 14, 30, 62, 126, 254, 510, 766]);
        let mut waits = 0;
        while luck.skip > 0 {
            waits += 1;
            if luck.is_good() {
                luck.found();
            }
        }
        assert!(waits < 300, "{waits} waits until it looks each time");
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
