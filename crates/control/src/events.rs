//! The events that a control node knows, in memory. A node that starts again begins anew.

use crate::backends::as_utc;
use keyway_fleet::{Event, Severity};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::VecDeque;
use tokio::sync::watch;

/// Events that are kept. With the longest texts they have 12 MiB.
const EVENTS_MAX: usize = 10_000;

/// Seconds for which an event is kept.
const AGE_MAX_SECONDS: u64 = 7 * 24 * 3600;

/// The number of events of one second that have numbers of their own after a restart.
const NUMBERS_PER_SECOND_BITS: u32 = 20;

/// An event that was taken.
#[derive(Clone, Debug, Serialize)]
pub struct EventStatus {
    /// Its number. A later event has a larger one, also after a restart of the node.
    pub number: u64,
    /// When it happened, by the clock of the process where it did.
    #[serde(rename = "time", serialize_with = "as_utc")]
    pub unix_seconds: u64,
    /// The process where it happened, or that it is about.
    pub member: String,
    /// A word for it.
    pub kind: String,
    /// Its weight.
    pub severity: Severity,
    /// The pool, where there is one.
    pub pool: Option<String>,
    /// The server, where there is one.
    pub server: Option<String>,
    /// The event in words.
    pub text: String,
}

/// The events, bounded by their number and age.
#[derive(Debug)]
pub struct EventLog {
    kept: Mutex<Kept>,
    /// The number of the latest event.
    latest: watch::Sender<u64>,
}

#[derive(Debug)]
struct Kept {
    next: u64,
    events: VecDeque<EventStatus>,
    /// Events that have left before their time.
    dropped: u64,
}

impl EventLog {
    /// Creates a log without events. `unix_seconds` is the time now: numbers begin by it.
    pub fn new(unix_seconds: u64) -> EventLog {
        let next = unix_seconds.saturating_mul(1 << NUMBERS_PER_SECOND_BITS) + 1;
        let kept = Kept { next, events: VecDeque::new(), dropped: 0 };
        EventLog { kept: Mutex::new(kept), latest: watch::channel(next - 1).0 }
    }

    /// Takes an event of a process. `unix_seconds` is the time now.
    pub fn take(&self, member: &str, event: Event, unix_seconds: u64) {
        let Event { at, kind, severity, pool, server, text } = event;
        let mut kept = self.kept.lock();
        let number = kept.next;
        kept.next += 1;
        let member = member.to_owned();
        let event =
            EventStatus { number, unix_seconds: at, member, kind, severity, pool, server, text };
        kept.events.push_back(event);
        if kept.events.len() > EVENTS_MAX {
            kept.events.pop_front();
            kept.dropped += 1;
        }
        // Clocks of members differ, so the first ones are not always the oldest.
        while kept
            .events
            .front()
            .is_some_and(|event| event.unix_seconds.saturating_add(AGE_MAX_SECONDS) < unix_seconds)
        {
            kept.events.pop_front();
        }
        drop(kept);
        self.latest.send_replace(number);
    }

    /// Returns at most `limit` events with a larger number than `after` that have happened at
    /// `since` or later, in seconds since 1970: the first ones with `after`, else the latest ones.
    pub fn list(&self, after: Option<u64>, since: u64, limit: usize) -> Vec<EventStatus> {
        let kept = self.kept.lock();
        let floor = after.unwrap_or_default();
        let wanted = |event: &&EventStatus| event.number > floor && event.unix_seconds >= since;
        match after {
            Some(_) => kept.events.iter().filter(wanted).take(limit).cloned().collect(),
            None => {
                let latest = kept.events.iter().rev().filter(wanted).take(limit).cloned();
                let mut latest: Vec<EventStatus> = latest.collect();
                latest.reverse();
                latest
            }
        }
    }

    /// Returns the number of the latest event.
    pub fn latest(&self) -> u64 {
        *self.latest.borrow()
    }

    /// Waits for an event with a larger number.
    pub(crate) async fn wait_after(&self, number: u64) {
        // The sender is of this log, which outlives the wait.
        let _ = self.latest.subscribe().wait_for(|latest| *latest > number).await;
    }

    /// Returns how many events are kept, and how many have left before their time.
    pub fn counts(&self) -> (u64, u64) {
        let kept = self.kept.lock();
        (kept.events.len() as u64, kept.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at: u64) -> Event {
        Event::new(at, "test", Severity::Info, &at.to_string())
    }

    #[test]
    fn events_are_bounded_by_number_and_age_and_numbers_grow_over_a_restart() {
        let log = EventLog::new(1000);
        let before = log.latest();
        (0..EVENTS_MAX as u64 + 5).for_each(|at| log.take("z1.proxy.0.1", event(2000 + at), 2000));
        assert_eq!(log.counts(), (EVENTS_MAX as u64, 5));
        let first = log.list(Some(before), 0, 2);
        assert_eq!(first.len(), 2);
        assert_eq!(first[0].unix_seconds, 2005);
        let latest = log.list(None, 0, 2);
        assert_eq!(latest[1].number, log.latest());
        assert_eq!(latest[0].number + 1, latest[1].number);
        assert_eq!(log.list(None, latest[1].unix_seconds, 100).len(), 1);
        assert!(log.list(Some(log.latest()), 0, 100).is_empty());
        let later = 2000 + EVENTS_MAX as u64 + AGE_MAX_SECONDS + 10;
        log.take("z1.proxy.0.1", event(later), later);
        assert_eq!(log.counts().0, 1);
        assert!(EventLog::new(later).latest() > log.latest());
    }
}
