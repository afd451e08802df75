//! Requests that were answered without asking a server, until their latency is known.
//!
//! A turn polls once or twice, and its replies are sent at its end. Requests after each poll are
//! counted separately. So the latency of a request counts from the poll that found it, and includes
//! everything that the turn did before its reply was sent: earlier requests, upkeep, and all sends.
//!
//! The working time of a single request is not measured: reading the clock costs as much as a GET.
//! The time of a turn is divided evenly over its requests.

use keyway_base::Time;
use keyway_command::Counted;
use keyway_metrics::{Latency, WorkerCells};

/// Number of polls of a turn.
const POLLS: usize = 2;

/// Number of tallies that are searched backwards. Further ones are not found, and another one is
/// begun. More would take time in a turn with requests of many kinds. Fewer would take memory
/// there.
const TALLIES_SEARCHED: usize = 16;

/// Requests of one pool that are counted alike, found by one poll.
struct Tally {
    pool: u16,
    counted: Counted,
    /// The poll of the turn that found them.
    poll: u8,
    count: u32,
}

/// The counts of one worker's turn.
pub(crate) struct Served {
    /// In the order in which the first of each was served. A turn has few.
    tallies: Vec<Tally>,
    /// The latest poll.
    poll: u8,
    /// When each poll returned.
    polled: [Time; POLLS],
}

impl Served {
    pub(in crate::core) fn new() -> Self {
        Self { tallies: Vec::new(), poll: 0, polled: [Time(0); POLLS] }
    }

    /// Notes that requests from here on were found by a poll that returned at `now`.
    pub(in crate::core) fn on_poll(&mut self, now: Time) {
        if self.tallies.is_empty() {
            self.poll = 0;
            self.polled = [now; POLLS];
        } else if self.poll == 0 {
            self.poll = 1;
            self.polled[POLLS - 1] = now;
        }
    }

    /// Notes a request of `pool`.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a few instructions, once per request")]
    pub(super) fn note(&mut self, pool: u16, counted: Counted) {
        // Most requests are like the previous one.
        if let Some(last) = self.tallies.last_mut()
            && last.pool == pool
            && last.counted == counted
            && last.poll == self.poll
        {
            last.count += 1;
        } else {
            self.note_other(pool, counted);
        }
    }

    #[inline(never)]
    fn note_other(&mut self, pool: u16, counted: Counted) {
        let poll = self.poll;
        let is_same = |it: &&mut Tally| it.counted == counted && it.pool == pool && it.poll == poll;
        match self.tallies.iter_mut().rev().take(TALLIES_SEARCHED).find(is_same) {
            Some(tally) => tally.count += 1,
            None => self.tallies.push(Tally { pool, counted, poll, count: 1 }),
        }
    }

    /// Returns whether any request waits to be recorded.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        !self.tallies.is_empty()
    }

    /// Records all noted requests, whose replies had been sent by `now`.
    pub(crate) fn record(&mut self, cells: &WorkerCells, now: Time) {
        let served: u64 = self.tallies.iter().map(|tally| u64::from(tally.count)).sum();
        let share = (now - self.polled[0]).as_nanos() as u64 / served.max(1);
        let latencies = self.polled.map(|polled| Latency::between(polled, now));
        for Tally { pool, counted, poll, count } in self.tallies.drain(..) {
            let pool = cells.pool(usize::from(pool));
            let cells = pool.requests(counted.class() as usize, counted.command());
            let count = u64::from(count);
            cells.latencies(latencies[usize::from(poll)], count);
            cells.worked(share * count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_command::{Class, lookup};
    use keyway_metrics::{LatencyShares, Layout, PoolLayout, Registry};
    use std::sync::Arc;

    fn registry() -> Arc<Registry> {
        let pool =
            |name: &str| PoolLayout { name: name.into(), backends: vec![], is_retired: false };
        Registry::new(Layout {
            classes: &["read", "write", "read_many", "write_many", "script", "connection", "admin"],
            commands: &keyway_command::COUNTED_NAMES,
            pools: vec![pool("a"), pool("b")],
            workers_max: 1,
            version: "0",
            start_unix_micros: 0,
        })
    }

    fn millis(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    fn counted(name: &str) -> Counted {
        lookup(name.as_bytes()).expect("a command").counted()
    }

    #[test]
    fn every_request_is_counted_once_whatever_came_between() {
        let registry = registry();
        let cells = registry.start_worker().expect("a free place");
        let mut served = Served::new();
        let names: Vec<&str> = keyway_command::COMMANDS.iter().map(|it| it.name).collect();
        served.on_poll(millis(0));
        // These are more kinds than are searched, in turn.
        for round in 0..5 {
            for name in &names[..names.len() - round] {
                served.note(0, counted(name));
                served.note(1, counted(name));
                served.note(1, counted(name));
            }
        }
        served.record(&cells, millis(1));
        let replies = |pool: usize| {
            // Commands that were not called have no counts.
            names.iter().for_each(|name| {
                let counted = counted(name);
                cells.pool(pool).requests(counted.class() as usize, counted.command()).call();
            });
            let totals = registry.command_totals(pool).into_iter();
            totals.map(|(command, totals)| (keyway_command::COUNTED_NAMES[command], totals.replies))
        };
        for (pool, times) in [(0, 1), (1, 2)] {
            for (name, replies) in replies(pool) {
                let left_out = (0..5).filter(|&round| names[names.len() - round..].contains(&name));
                assert_eq!(replies, (5 - left_out.count() as u64) * times, "{name}");
            }
        }
    }

    #[test]
    fn a_request_is_charged_from_the_poll_that_found_it_to_the_end_of_the_turn() {
        let registry = registry();
        let cells = registry.start_worker().expect("a free place");
        let mut served = Served::new();
        served.on_poll(millis(100));
        served.note(0, counted("get"));
        served.note(1, counted("set"));
        served.on_poll(millis(107));
        served.note(1, counted("set"));
        served.record(&cells, millis(110));
        assert!(!served.has_any());
        let shares = |requests, over| LatencyShares { requests, over };
        assert_eq!(registry.latency_shares(0)[Class::Read as usize], shares(1, [1, 1, 0]));
        assert_eq!(registry.latency_shares(1)[Class::Write as usize], shares(2, [2, 1, 0]));
        // The next turn starts from zero, and one without requests leaves nothing.
        served.on_poll(millis(200));
        served.on_poll(millis(300));
        served.note(0, counted("get"));
        served.record(&cells, millis(300));
        assert_eq!(registry.latency_shares(0)[Class::Read as usize], shares(2, [1, 1, 0]));
    }
}
