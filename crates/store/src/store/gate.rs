//! The state that keeps clients from being served as usual: the store is loaded, it is a
//! replica, its log cannot be written, or too few replicas follow it.
//!
//! ```text
//!  primary ──► replica ──► loading ──► replica ──► primary
//!                          (a snapshot of the primary replaces all data)
//! ```
//! A replica changes by the effects of its primary alone ([`Store::apply`](crate::Store::apply)). Nothing expires in
//! it and nothing is evicted: a client gets the answer as if an expired key were gone, and the
//! key stays until the primary deletes it.

use std::sync::atomic::{AtomicU8, Ordering};

pub(super) const LOADING: u8 = 1;
pub(super) const REPLICA: u8 = 1 << 1;
pub(super) const STALE: u8 = 1 << 2;
pub(super) const UNLOGGED: u8 = 1 << 3;
pub(super) const ALONE: u8 = 1 << 4;
pub(super) const HELD: u8 = 1 << 5;

/// The state that a request has to pass.
pub(crate) struct Gate(AtomicU8);

/// The reasons why a request may not be served as usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restrictions(u8);

impl Restrictions {
    /// Returns whether nothing restricts requests.
    #[inline]
    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }

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

    /// The restrictions on requests now.
    #[inline]
    pub(super) fn restrictions(&self) -> Restrictions {
        Restrictions(self.0.load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, bit: u8, is_set: bool) {
        // ORDER: Release; workers see what was loaded through the shards' locks.
        match is_set {
            true => self.0.fetch_or(bit, Ordering::Release),
            false => self.0.fetch_and(!bit, Ordering::Release),
        };
    }

    #[inline]
    pub(super) fn has(&self, bit: u8) -> bool {
        self.0.load(Ordering::Relaxed) & bit != 0
    }

    pub(crate) fn set_loading(&self, is_loading: bool) {
        self.set(LOADING, is_loading);
    }
}
