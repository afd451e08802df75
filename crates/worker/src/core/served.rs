//! Requests answered without asking a server, until their latency is known.
//!
//! A turn polls once or twice, and its replies leave at its end. What was
//! served after each poll is counted apart, so that a request is charged from
//! the poll that found it, and everything that the turn did before its reply
//! was sent: the requests ahead of it, upkeep, and all sends.
//!
//! How long a request was worked on is not measured one by one, for reading the clock costs as
//! much as a GET. The time of a turn is divided evenly over its requests.

use keyway_base::Time;
use keyway_command::Class;
use keyway_metrics::{Latency, WorkerCells};

/// Polls of a turn.
const POLLS: usize = 2;

/// Counts of one worker's turn, by poll, pool and class.
pub(crate) struct Served {
    counts: Vec<u32>,
    /// Where in `counts` those of the latest poll begin.
    offset: usize,
    /// When each poll returned.
    polled: [Time; POLLS],
    has_any: bool,
}

impl Served {
    pub(super) fn new(pools: usize) -> Self {
        let counts = vec![0; POLLS * pools * Class::ALL.len()];
        Self { counts, offset: 0, polled: [Time(0); POLLS], has_any: false }
    }

    /// Requests noted from here on were found by a poll that returned at `now`.
    pub(super) fn on_poll(&mut self, now: Time) {
        if !self.has_any {
            self.offset = 0;
            self.polled = [now; POLLS];
        } else if self.offset == 0 {
            self.offset = self.counts.len() / POLLS;
            self.polled[POLLS - 1] = now;
        }
    }

    /// Notes a request of `pool`.
    #[inline]
    pub(super) fn note(&mut self, pool: u16, class: u8) {
        let place = usize::from(pool) * Class::ALL.len() + usize::from(class);
        self.counts[self.offset + place] += 1;
        self.has_any = true;
    }

    /// Whether any request waits to be recorded.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.has_any
    }

    /// Records all that were noted, whose replies had been sent by `now`.
    pub(crate) fn record(&mut self, cells: &WorkerCells, now: Time) {
        self.has_any = false;
        let of_poll = self.counts.len() / POLLS;
        let in_use = self.offset + of_poll;
        let served: u64 = self.counts[..in_use].iter().map(|count| u64::from(*count)).sum();
        let share = (now - self.polled[0]).as_nanos() as u64 / served.max(1);
        let polls = self.counts[..in_use].chunks_exact_mut(of_poll);
        for (counts, polled) in polls.zip(self.polled) {
            let latency = Latency::between(polled, now);
            for (pool, counts) in counts.chunks_exact_mut(Class::ALL.len()).enumerate() {
                for (class, count) in counts.iter_mut().enumerate().filter(|(_, count)| **count > 0)
                {
                    let cells = cells.pool(pool).class(class);
                    let count = u64::from(std::mem::take(count));
                    cells.latency.add(latency, count);
                    cells.worked.add(share * count);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_metrics::{LatencyShares, Layout, PoolLayout, Registry};
    use std::sync::Arc;

    fn registry() -> Arc<Registry> {
        let pool =
            |name: &str| PoolLayout { name: name.into(), backends: vec![], is_retired: false };
        Registry::new(Layout {
            classes: &["read", "write", "read_many", "write_many", "script", "connection", "admin"],
            pools: vec![pool("a"), pool("b")],
            workers_max: 1,
            version: "0",
            start_unix_micros: 0,
        })
    }

    fn millis(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    #[test]
    fn a_request_is_charged_from_the_poll_that_found_it_to_the_end_of_the_turn() {
        let registry = registry();
        let cells = registry.start_worker().expect("a free place");
        let mut served = Served::new(2);
        served.on_poll(millis(100));
        served.note(0, Class::Read as u8);
        served.note(1, Class::Write as u8);
        served.on_poll(millis(107));
        served.note(1, Class::Write as u8);
        served.record(&cells, millis(110));
        assert!(!served.has_any());
        let shares = |requests, over| LatencyShares { requests, over };
        assert_eq!(registry.latency_shares(0)[Class::Read as usize], shares(1, [1, 1, 0]));
        assert_eq!(registry.latency_shares(1)[Class::Write as usize], shares(2, [2, 1, 0]));
        // The next turn begins anew, and one without requests leaves nothing.
        served.on_poll(millis(200));
        served.on_poll(millis(300));
        served.note(0, Class::Read as u8);
        served.record(&cells, millis(300));
        assert_eq!(registry.latency_shares(0)[Class::Read as usize], shares(2, [1, 1, 0]));
    }
}
