//! The state that keeps clients from being served as usual: the store is loaded, it is a
//! replica, its log cannot be written, or too few replicas follow it.
//!
//! ```text
//!  primary ──► replica ──► loading ──► replica ──► primary
//!                          (a snapshot of the primary replaces all data)
//! ```
//! A replica changes by the effects of its primary alone ([`Store::apply`]). Nothing expires in
//! it and nothing is evicted: a client gets the answer as if an expired key were gone, and the
//! key stays until the primary deletes it.

use super::core::Store;
use std::sync::atomic::{AtomicU8, Ordering};

const LOADING: u8 = 1;
const REPLICA: u8 = 1 << 1;
const STALE: u8 = 1 << 2;
const UNLOGGED: u8 = 1 << 3;
const ALONE: u8 = 1 << 4;
const HELD: u8 = 1 << 5;

/// The state that a request has to pass.
pub(crate) struct Gate(AtomicU8);

/// The reasons why a request may not be served as usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restrictions(u8);

impl Restrictions {
    /// The store is being loaded.
    pub fn is_loading(self) -> bool {
        self.0 & LOADING != 0
    }

    /// The store is a replica: clients do not write.
    pub fn is_replica(self) -> bool {
        self.0 & REPLICA != 0
    }

    /// The link to the primary is down, and old data is not to be shown.
    pub fn is_stale(self) -> bool {
        self.0 & STALE != 0
    }

    /// Writes would not be in the log.
    pub fn is_unlogged(self) -> bool {
        self.0 & UNLOGGED != 0
    }

    /// Too few replicas follow for writes.
    pub fn is_alone(self) -> bool {
        self.0 & ALONE != 0
    }
}

impl Gate {
    pub(crate) const fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    fn set(&self, bit: u8, is_set: bool) {
        // ORDER: Release; workers see what was loaded through the shards' locks.
        match is_set {
            true => self.0.fetch_or(bit, Ordering::Release),
            false => self.0.fetch_and(!bit, Ordering::Release),
        };
    }

    fn has(&self, bit: u8) -> bool {
        self.0.load(Ordering::Relaxed) & bit != 0
    }

    pub(crate) fn set_loading(&self, is_loading: bool) {
        self.set(LOADING, is_loading);
    }
}

impl Store {
    /// Returns whether a request has to pass [`Store::restrictions`].
    #[inline]
    pub fn is_restricted(&self) -> bool {
        self.gate.0.load(Ordering::Relaxed) != 0
    }

    /// Returns what restricts requests of clients now.
    pub fn restrictions(&self) -> Restrictions {
        Restrictions(self.gate.0.load(Ordering::Relaxed))
    }

    /// Returns whether the store is being loaded: nobody is to be served.
    #[inline]
    pub fn is_loading(&self) -> bool {
        self.gate.has(LOADING)
    }

    /// Has workers refuse writes as the log cannot take them, or take them again.
    pub fn refuse_writes(&self, is_refused: bool) {
        self.gate.set(UNLOGGED, is_refused);
    }

    /// Returns whether writes are refused, as the log cannot take them.
    #[inline]
    pub fn refuses_writes(&self) -> bool {
        self.gate.has(UNLOGGED)
    }

    /// Has workers refuse writes as too few replicas follow, or take them again.
    pub fn set_alone(&self, is_alone: bool) {
        self.gate.set(ALONE, is_alone);
    }

    /// Has nothing change by itself, or things change again: nothing expires by upkeep, and nothing
    /// is evicted by it. Clients are held by others.
    pub fn set_held(&self, is_held: bool) {
        self.gate.set(HELD, is_held);
    }

    /// Returns whether nothing is to change by itself.
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.gate.has(HELD)
    }

    /// Returns whether the store is a replica.
    #[inline]
    pub fn is_replica(&self) -> bool {
        self.gate.has(REPLICA)
    }

    /// Makes the store a replica, or a primary.
    ///
    /// A write that is under way ends as it began. All shards are locked once, so that every
    /// later one sees the change. A replica does none of the flushes that memcached clients have asked
    /// for at a time to come: its primary does its own. Returns those that it would have done, as
    /// [`Store::flushes_to_come`] gives them.
    pub fn set_replica(&self, is_replica: bool) -> Vec<(u32, u64)> {
        let _locked = self.lock_all();
        self.gate.set(REPLICA, is_replica);
        if is_replica {
            let flushes = self.flushes_to_come();
            self.set_flushes_to_come(&[]);
            return flushes;
        }
        self.gate.set(STALE, false);
        // In front of the first write of a client.
        self.leave_history();
        Vec::new()
    }

    /// Has clients of a replica be refused, or served with what there is.
    pub fn set_stale(&self, is_stale: bool) {
        self.gate.set(STALE, is_stale);
    }
}
