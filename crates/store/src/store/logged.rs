//! The log of a store, as workers see it, and what the store refuses now.

use super::core::Store;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

/// The store is being loaded.
const LOADING: u8 = 1;
/// Writes would not be logged.
const READ_ONLY: u8 = 1 << 1;

/// A log of a store's effects, as a worker needs it.
pub trait EffectLog: Send + Sync {
    /// A worker is about to send replies, which show units up to the number `told` of
    /// [`Store::told`]. With a log that is to be on the disk first, this returns when they
    /// are. It also returns when the log has lost them.
    ///
    /// Returns how often the log has lost units. When that has changed, nobody knows whether
    /// the writes of the worker's turn are on the disk: it closes their clients without
    /// replies.
    fn before_replies(&self, told: u64) -> u64;

    /// Waits while `is_full`, which is [`Store::effects_are_full`]: the log is behind.
    fn await_room(&self, is_full: &dyn Fn() -> bool);
}

/// What a store has besides its keys for a log.
pub(crate) struct Logged {
    log: OnceLock<Arc<dyn EffectLog>>,
    /// What is refused now.
    refused: AtomicU8,
}

impl Logged {
    pub(crate) const fn new() -> Self {
        Self { log: OnceLock::new(), refused: AtomicU8::new(0) }
    }

    fn set(&self, what: u8, is_set: bool) {
        // ORDER: Release; workers see what was loaded through the shards' locks.
        match is_set {
            true => self.refused.fetch_or(what, Ordering::Release),
            false => self.refused.fetch_and(!what, Ordering::Release),
        };
    }

    pub(super) fn set_loading(&self, is_loading: bool) {
        self.set(LOADING, is_loading);
    }

    #[inline]
    fn has(&self, what: u8) -> bool {
        self.refused.load(Ordering::Relaxed) & what != 0
    }
}

impl Store {
    /// Gives the store a log, before workers use the store. Nothing happens if it has one.
    pub fn set_log(&self, log: Arc<dyn EffectLog>) {
        let _ = self.logged.log.set(log);
    }

    /// The log of the store, if it has one.
    pub fn log(&self) -> Option<&Arc<dyn EffectLog>> {
        self.logged.log.get()
    }

    /// Has workers refuse writes, or take them again.
    pub fn refuse_writes(&self, is_refused: bool) {
        self.logged.set(READ_ONLY, is_refused);
    }

    /// Returns whether some requests are refused: see [`Store::is_loading`] and
    /// [`Store::refuses_writes`].
    #[inline]
    pub fn is_restricted(&self) -> bool {
        self.has_restriction(LOADING | READ_ONLY)
    }

    /// Returns whether the store is being loaded: nobody is to be served.
    #[inline]
    pub fn is_loading(&self) -> bool {
        self.has_restriction(LOADING)
    }

    /// Returns whether writes are refused, as the log cannot take them.
    #[inline]
    pub fn refuses_writes(&self) -> bool {
        self.has_restriction(READ_ONLY)
    }

    #[inline]
    fn has_restriction(&self, what: u8) -> bool {
        self.logged.has(what)
    }
}
