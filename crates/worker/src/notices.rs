//! Lines of the log that outside events could repeat without end, let through
//! at a bounded rate. Shared by the workers.

use crate::flaps::HealthLog;
use keyway_base::Time;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Between two lines of one kind. Shorter lets whoever causes them fill a disk.
const EVERY: Duration = Duration::from_secs(60);

/// A line of the log that is written at most once a minute.
#[derive(Debug, Default)]
pub struct Notice {
    /// When the next may be written, in nanoseconds on the clock of [`Time`].
    due: AtomicU64,
}

impl Notice {
    /// Whether the line may be written now; whoever is told so writes it.
    #[cold]
    pub fn is_due(&self, now: Time) -> bool {
        let due = self.due.load(Ordering::Relaxed);
        let next = (now + EVERY).0;
        now.0 >= due
            && self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// The process's [`Notice`]s that belong to no pool.
#[derive(Debug, Default)]
pub struct Notices {
    /// A client spoke HTTP.
    pub http: Notice,
    /// A login failed.
    pub login: Notice,
    /// A client that does not read was cut off.
    pub overgrown: Notice,
    /// A client has broken the rules of shared memory.
    pub broken: Notice,
    /// A waiting client cannot be accepted.
    pub not_accepted: Notice,
    /// Clients cut off at the end of `drain_timeout`.
    pub clients_cut: AtomicU64,
    /// Their requests that were in flight.
    pub requests_cut: AtomicU64,
}

/// The [`Notice`]s of one pool. They belong to its [`PoolPlan`](crate::PoolPlan), so that no number
/// of a pool or a server outlives its plan.
#[derive(Debug, Default)]
pub struct PoolNotices {
    /// The store refuses writes.
    pub(crate) store_full: Notice,
    /// A value does not fit into the store, however empty the store is.
    pub(crate) value_too_large: Notice,
    /// A server wants a password that the pool has not.
    pub(crate) locked: Notice,
    /// A server does not let the pool's user send PING.
    pub(crate) ping_denied: Notice,
    /// Changes of the servers' health.
    pub(crate) health: HealthLog,
    /// Why the latest attempt to connect to a server has failed, by the server's place.
    unreached: Mutex<BTreeMap<u16, &'static str>>,
    /// The latest words of servers that are not of their pool's protocol, and when, by their places.
    foreign: Mutex<BTreeMap<u16, (Time, String)>>,
}

impl PoolNotices {
    /// Notes why an attempt to connect to the server at a place has failed.
    pub(crate) fn note_unreached(&self, server: u16, why: &'static str) {
        self.unreached.lock().insert(server, why);
    }

    /// Notes what the server at a place said that is not of its protocol.
    pub(crate) fn note_foreign(&self, server: u16, said: String, now: Time) {
        self.foreign.lock().insert(server, (now, said));
    }

    /// The latest words of the server at a place that are not of its protocol, with the time. Says
    /// nothing of whether the server has answered as it should since.
    pub fn foreign(&self, server: u16) -> Option<(Time, String)> {
        self.foreign.lock().get(&server).cloned()
    }

    /// Why the latest attempt to connect to the server at a place has failed. Says nothing of
    /// whether another one has succeeded since.
    pub fn unreached(&self, server: u16) -> Option<&'static str> {
        self.unreached.lock().get(&server).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_due_at_once_and_again_after_a_minute() {
        let notice = Notice::default();
        let at = |seconds: u64| Time(seconds * 1_000_000_000);
        let due: Vec<_> =
            [1, 1, 60, 61, 62].into_iter().filter(|&second| notice.is_due(at(second))).collect();
        assert_eq!(due, [1, 61]);
    }
}
