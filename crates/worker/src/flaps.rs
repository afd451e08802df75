//! Which changes of a server's health were told lately: servers that come and go all the time are
//! told of less often.

use keyway_base::Time;
use keyway_topology::{FailureReason, HealthState, StateChange};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between two lines on one backend that goes back and forth between up and
/// failing. Shorter fills the log; longer hides an outage for as long.
pub(crate) const FLAP_EVERY: Duration = Duration::from_secs(1);

/// The latest change of health that the log told of each server of one pool, for all workers. The
/// log belongs to the pool and keys servers by their places in it. A reload gives the numbers of a
/// board to other servers, but keeps these places. Nobody looks at this log while health does not
/// change.
#[derive(Debug, Default)]
pub(crate) struct HealthLog {
    pub(crate) told: Mutex<BTreeMap<u16, Told>>,
    /// Whether something may have been left out that must still be told.
    pub(crate) is_pending: AtomicBool,
}

impl HealthLog {
    /// Whether a change between up and failing is to be told now, and as what.
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

    /// Notes a change that is told whenever it happens.
    pub(crate) fn on_told(&self, server: u16, change: &StateChange, now: Time) {
        let told = Told { state: change.to, at: now, left_out: 0, reason: change.reason };
        self.told.lock().insert(server, told);
    }

    /// Forgets what was told of the server at a place: another one is there.
    pub(crate) fn forget(&self, server: u16) {
        self.told.lock().remove(&server);
    }

    /// Takes over the entries of `old`, the log of the pool that this one's pool replaces.
    /// `heir_of` maps a place in that pool to a place in this one.
    pub(crate) fn inherit(&self, old: &HealthLog, heir_of: impl Fn(u16) -> Option<u16>) {
        let old = old.told.lock();
        let heirs = old.iter().filter_map(|(&server, &told)| Some((heir_of(server)?, told)));
        let mut own = self.told.lock();
        own.extend(heirs);
        let is_pending = own.values().any(|told| told.left_out > 0);
        self.is_pending.store(is_pending, Ordering::Relaxed);
    }

    /// The lines that are still to be written, as the state last told is not
    /// the one that lasts. `state` is where the server at a place stands.
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

/// The last line on one backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) state: HealthState,
    pub(crate) at: Time,
    /// Changes since then that no line told of.
    pub(crate) left_out: u32,
    /// The latest failure.
    pub(crate) reason: Option<FailureReason>,
}

/// A line between up and failing that is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flap {
    /// The server's place in its pool.
    pub(crate) server: u16,
    pub(crate) from: HealthState,
    pub(crate) to: HealthState,
    pub(crate) reason: Option<FailureReason>,
    /// Changes before this one that no line told of.
    pub(crate) left_out: u32,
}
