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
use keyway_metrics::{Latency, RequestCells, WorkerCells};

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
    /// The number of them that are still to be counted as accepted.
    calls: u32,
}

/// The counts of one worker's turn.
pub(crate) struct Served {
    /// In the order in which the first of each was served. A turn has few.
    tallies: Vec<Tally>,
    /// The latest poll.
    poll: u8,
    /// When each poll returned.
    polled: [Time; POLLS],
    /// True if the latency of any of them is to be recorded.
    is_timed: bool,
}

impl Served {
    pub(in crate::core) fn new() -> Self {
        Self { tallies: Vec::new(), poll: 0, polled: [Time(0); POLLS], is_timed: false }
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

    /// Notes a request of `pool` that was answered. `calls` is 1 if it is to be counted as accepted
    /// too, or else 0.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a few instructions, once per request")]
    pub(super) fn note(&mut self, pool: u16, counted: Counted, calls: u32) {
        self.is_timed = true;
        self.add(pool, counted, 1, calls);
    }

    /// Notes a request of `pool` that was accepted, and is answered later.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a few instructions, once per request")]
    pub(super) fn note_call(&mut self, pool: u16, counted: Counted) {
        self.add(pool, counted, 0, 1);
    }

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a few instructions, once per request")]
    fn add(&mut self, pool: u16, counted: Counted, count: u32, calls: u32) {
        // Most requests are like the previous one.
        if let Some(last) = self.tallies.last_mut()
            && last.pool == pool
            && last.counted == counted
            && last.poll == self.poll
        {
            last.count += count;
            last.calls += calls;
        } else {
            self.add_other(Tally { pool, counted, poll: self.poll, count, calls });
        }
    }

    #[inline(never)]
    fn add_other(&mut self, other: Tally) {
        let is_same = |it: &&mut Tally| {
            it.counted == other.counted && it.pool == other.pool && it.poll == other.poll
        };
        match self.tallies.iter_mut().rev().take(TALLIES_SEARCHED).find(is_same) {
            Some(tally) => {
                tally.count += other.count;
                tally.calls += other.calls;
            }
            None => self.tallies.push(other),
        }
    }

    /// Counts the noted requests as accepted: before their replies are sent, and in front of a reply
    /// that tells such counts.
    pub(crate) fn count_calls(&mut self, cells: &WorkerCells) {
        for tally in &mut self.tallies {
            let calls = std::mem::take(&mut tally.calls);
            if calls > 0 {
                tally.cells(cells).calls(u64::from(calls));
            }
        }
    }

    /// Records all noted requests, whose replies have been sent. `now` reads the clock, if any were
    /// answered: with the turn's own time, all of them would have taken no time.
    #[inline]
    pub(crate) fn record(&mut self, cells: &WorkerCells, now: impl FnOnce() -> Time) {
        if self.tallies.is_empty() {
            return;
        }
        if std::mem::take(&mut self.is_timed) {
            return self.record_timed(cells, now());
        }
        self.count_calls(cells);
        self.tallies.clear();
    }

    fn record_timed(&mut self, cells: &WorkerCells, now: Time) {
        self.count_calls(cells);
        let served: u64 = self.tallies.iter().map(|tally| u64::from(tally.count)).sum();
        let share = (now - self.polled[0]).as_nanos() as u64 / served.max(1);
        let latencies = self.polled.map(|polled| Latency::between(polled, now));
        for tally in self.tallies.drain(..) {
            let count = u64::from(tally.count);
            if count == 0 {
                continue;
            }
            let cells = tally.cells(cells);
            cells.latencies(latencies[usize::from(tally.poll)], count);
            cells.worked(share * count);
        }
    }
}

impl Tally {
    /// Returns where its requests are counted.
    #[inline]
    fn cells<'c>(&self, cells: &'c WorkerCells) -> RequestCells<'c> {
        let pool = cells.pool(usize::from(self.pool));
        pool.requests(self.counted.class() as usize, self.counted.command())
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
        let totals = |pool: usize| {
            let totals = registry.command_totals(pool).into_iter();
            let named = totals.map(|(at, it)| (keyway_command::COUNTED_NAMES[at], it));
            named.map(|(name, it)| (name, it.calls, it.replies)).collect::<Vec<_>>()
        };
        // These are more kinds than are searched, in turn.
        for round in 0..5 {
            for name in &names[..names.len() - round] {
                served.note(0, counted(name), 1);
                served.note(1, counted(name), 1);
                served.note(1, counted(name), 0);
                served.note_call(1, counted(name));
                served.note_call(1, counted(name));
            }
            if round == 2 {
                // The replies are not sent yet.
                served.count_calls(&cells);
                assert!(totals(0).iter().all(|(_, calls, replies)| *calls > 0 && *replies == 0));
            }
        }
        served.record(&cells, || millis(1));
        for (pool, called, replied) in [(0, 1, 1), (1, 3, 2)] {
            for (name, calls, replies) in totals(pool) {
                let left_out = (0..5).filter(|&round| names[names.len() - round..].contains(&name));
                let rounds = 5 - left_out.count() as u64;
                assert_eq!((calls, replies), (rounds * called, rounds * replied), "{name}");
            }
        }
        // A turn of requests that were only accepted has no latencies.
        served.note_call(0, counted("get"));
        served.record(&cells, || panic!("the clock is read"));
        assert!(totals(0).contains(&("get", 6, 5)));
    }

    #[test]
    fn a_request_is_charged_from_the_poll_that_found_it_to_the_end_of_the_turn() {
        let registry = registry();
        let cells = registry.start_worker().expect("a free place");
        let mut served = Served::new();
        served.on_poll(millis(100));
        served.note(0, counted("get"), 1);
        served.note(1, counted("set"), 1);
        served.on_poll(millis(107));
        served.note(1, counted("set"), 1);
        served.record(&cells, || millis(110));
        let shares = |requests, over| LatencyShares { requests, over };
        assert_eq!(registry.latency_shares(0)[Class::Read as usize], shares(1, [1, 1, 0]));
        assert_eq!(registry.latency_shares(1)[Class::Write as usize], shares(2, [2, 1, 0]));
        // The next turn starts from zero, and one without requests leaves nothing.
        served.on_poll(millis(200));
        served.on_poll(millis(300));
        served.note(0, counted("get"), 1);
        served.record(&cells, || millis(300));
        assert_eq!(registry.latency_shares(0)[Class::Read as usize], shares(2, [1, 1, 0]));
    }
}
