//! Log lines that outside events could repeat without end, limited to a rate. The workers share the
//! limit.

use crate::flaps::HealthLog;
use keyway_base::Time;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time between two lines of one kind. If it were shorter, whoever causes them could fill a disk.
const EVERY: Duration = Duration::from_secs(60);

/// A log line that is written at most once a minute.
#[derive(Debug, Default)]
pub struct Notice {
    /// When the next one may be written, in nanoseconds on the clock of [`Time`].
    due: AtomicU64,
}

impl Notice {
    /// Returns whether the line may be written now. The caller must then write it.
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
    /// A client used HTTP.
    pub http: Notice,
    /// A login failed.
    pub login: Notice,
    /// A client that does not read was disconnected.
    pub overgrown: Notice,
    /// A client has violated the rules of shared memory.
    pub broken: Notice,
    /// A waiting client cannot be accepted.
    pub not_accepted: Notice,
    /// Clients cut off at the end of `drain_timeout`.
    pub clients_cut: AtomicU64,
    /// Their requests that were in flight.
    pub requests_cut: AtomicU64,
}

/// The [`Notice`]s of one pool. They belong to its [`PoolPlan`](crate::PoolPlan), so that no index
/// of a pool or a server outlives its plan.
#[derive(Debug, Default)]
pub struct PoolNotices {
    /// The store refuses writes.
    pub(crate) store_full: Notice,
    /// A value does not fit into the store, however empty the store is.
    pub(crate) value_too_large: Notice,
    /// A server requires a password that the pool does not have.
    pub(crate) locked: Notice,
    /// A server forbids PING to the pool's user.
    pub(crate) ping_denied: Notice,
    /// Changes of the servers' health.
    pub(crate) health: HealthLog,
    /// Why the latest attempt to connect to a server has failed, by the server's index.
    unreached: Mutex<BTreeMap<u16, &'static str>>,
    /// The latest texts of servers that do not use their pool's protocol, with their times, by
    /// index.
    foreign: Mutex<BTreeMap<u16, (Time, String)>>,
}

impl PoolNotices {
    /// Notes why an attempt to connect to the server at an index has failed.
    pub(crate) fn note_unreached(&self, server: u16, why: &'static str) {
        self.unreached.lock().insert(server, why);
    }

    /// Notes the text of the server at an index that does not use its pool's protocol.
    pub(crate) fn note_foreign(&self, server: u16, said: String, now: Time) {
        self.foreign.lock().insert(server, (now, said));
    }

    /// Returns the latest text of the server at an index that does not use its protocol, with the
    /// time. This does not say whether the server has answered correctly since.
    pub fn foreign(&self, server: u16) -> Option<(Time, String)> {
        self.foreign.lock().get(&server).cloned()
    }

    /// Returns why the latest attempt to connect to the server at an index has failed. This does
    /// not say whether another one has succeeded since.
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
