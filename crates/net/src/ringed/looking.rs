//! Whether and how long a worker looks at rings before it sleeps. Who sleeps is woken some 50 us
//! late, and at the price of two calls; so it is worth looking where the next bytes come sooner
//! than that, and wasted where they do not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How many waits go by at most before looking is tried again where it was in vain.
const SKIPPED_MAX: u32 = 255;

/// Workers that look now, of the whole process.
static LOOKING: AtomicUsize = AtomicUsize::new(0);

/// Whether looking for a connection's bytes is worth it, by what came of it lately. How long it
/// takes until the other side rings says nothing about that: with few processors it may be just the
/// one who looks that the other side waits for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Luck {
    /// Waits that go by before the next try, after one in vain.
    skip: u32,
    /// How many of them are left.
    left: u32,
}

impl Luck {
    /// Bytes came while it looked.
    pub(super) fn found(&mut self) {
        self.skip /= 2;
    }

    /// They did not.
    pub(super) fn in_vain(&mut self) {
        self.skip = (self.skip * 2 + 1).min(SKIPPED_MAX);
        self.left = self.skip;
    }

    /// Whether to look this time.
    pub(super) fn is_good(&mut self) -> bool {
        let is_good = self.left == 0;
        self.left = self.left.saturating_sub(1);
        is_good
    }
}

/// What the worker did last on a connection before it waits for bytes there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum After {
    /// It has read: what comes next may have to wait for it, as replies do for requests.
    #[default]
    Reading,
    /// It has written: an answer or the next request may follow at once.
    Writing,
}

/// A connection's luck after either: a proxy that waits for who asks it and one that waits for who
/// answers it have nothing to learn from each other.
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

    /// A wait begins; whether to look.
    pub(super) fn is_good(&mut self, after: After) -> bool {
        self.after = after;
        self.now().is_good()
    }

    /// What this wait comes behind.
    pub(super) fn after(&self) -> After {
        self.after
    }

    /// As [`Luck::found`].
    pub(super) fn found(&mut self) {
        self.now().found();
    }

    /// As [`Luck::in_vain`].
    pub(super) fn in_vain(&mut self) {
        self.now().in_vain();
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
