//! Remembers which changes of servers' health were logged recently. Servers that flap all the time
//! are logged less often.

use keyway_base::Time;
use keyway_topology::{FailureReason, HealthState, StateChange};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time between two lines about one backend that alternates between up and failing. If it were
/// shorter, it would fill the log. If it were longer, it would hide an outage for that time.
pub(crate) const FLAP_EVERY: Duration = Duration::from_secs(1);

/// The latest logged change of health of each server of one pool, for all workers. It belongs to
/// the pool and keys servers by their indices in it. A reload gives the numbers of a board to other
/// servers, but keeps these indices. It is not read while health does not change.
#[derive(Debug, Default)]
pub(crate) struct HealthLog {
    pub(crate) told: Mutex<BTreeMap<u16, Told>>,
    /// True if a suppressed change may still have to be logged.
    pub(crate) is_pending: AtomicBool,
}

impl HealthLog {
    /// Returns whether a change between up and failing must be logged now, and how.
    pub(crate) fn on_flap(&self, server: u16, change: &StateChange, now: Time) -> Option<Flap> {
        let StateChange { from, to, reason, .. } = *change;
        let mut told = self.told.lock();
        let last = told.get_mut(&server);
        let left_out = match last {
            Some(last) if now < last.at + FLAP_EVERY => {
                last.left_out += 1;
                last.reason = reason;
                self.is_pending.store(true, Ordering::Relaxed);
                return None;
            }
            Some(last) => last.left_out,
            None => 0,
        };
        told.insert(server, Told { state: to, at: now, left_out: 0, reason });
        Some(Flap { server, from, to, reason, left_out })
    }

    /// Notes a change that is always logged.
    pub(crate) fn on_told(&self, server: u16, change: &StateChange, now: Time) {
        let told = Told { state: change.to, at: now, left_out: 0, reason: change.reason };
        self.told.lock().insert(server, told);
    }

    /// Discards what was logged about the server at an index: another one is there.
    pub(crate) fn forget(&self, server: u16) {
        self.told.lock().remove(&server);
    }

    /// Takes over the entries of `old`, the log of the pool that this one's pool replaces.
    /// `heir_of` maps an index in that pool to an index in this one.
    pub(crate) fn inherit(&self, old: &HealthLog, heir_of: impl Fn(u16) -> Option<u16>) {
        let old = old.told.lock();
        let heirs = old.iter().filter_map(|(&server, &told)| Some((heir_of(server)?, told)));
        let mut own = self.told.lock();
        own.extend(heirs);
        let is_pending = own.values().any(|told| told.left_out > 0);
        self.is_pending.store(is_pending, Ordering::Relaxed);
    }

    /// Returns the lines that still must be written, because the last logged state is not the
    /// lasting one. `state` returns the current state of the server at an index.
    pub(crate) fn overdue(&self, now: Time, state: impl Fn(u16) -> HealthState) -> Vec<Flap> {
        if !self.is_pending.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut told = self.told.lock();
        let mut flaps = Vec::new();
        let mut is_pending = false;
        for (&server, last) in told.iter_mut().filter(|(_, last)| last.left_out > 0) {
            if now < last.at + FLAP_EVERY {
                is_pending = true;
                continue;
            }
            let (from, to) = (last.state, state(server));
            if from != to && to.is_usable() {
                let left_out = last.left_out - 1;
                flaps.push(Flap { server, from, to, reason: last.reason, left_out });
                *last = Told { state: to, at: now, left_out: 0, ..*last };
            }
        }
        self.is_pending.store(is_pending, Ordering::Relaxed);
        flaps
    }
}

/// The last line about one backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) state: HealthState,
    pub(crate) at: Time,
    /// Number of changes since then that were not logged.
    pub(crate) left_out: u32,
    /// The latest failure.
    pub(crate) reason: Option<FailureReason>,
}

/// A line between up and failing that must be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flap {
    /// The server's index in its pool.
    pub(crate) server: u16,
    pub(crate) from: HealthState,
    pub(crate) to: HealthState,
    pub(crate) reason: Option<FailureReason>,
    /// Number of changes before this one that were not logged.
    pub(crate) left_out: u32,
}
