//! Facts about each replica, for others than its thread.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// How far a replica has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It waits for a snapshot to begin.
    Waiting = 0,
    /// It gets a snapshot.
    Snapshot = 1,
    /// It has the whole snapshot, and has not acknowledged anything yet.
    Loading = 2,
    /// It follows.
    Online = 3,
}

impl Stage {
    /// Returns Redis's word for it in INFO.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Waiting => "wait_bgsave",
            Self::Snapshot | Self::Loading => "send_bulk",
            Self::Online => "online",
        }
    }
}

/// The part of a session that others see.
#[derive(Debug, Default)]
pub(super) struct Shown {
    stage: AtomicU8,
    sent: AtomicU64,
    acknowledged: AtomicU64,
    /// Milliseconds of the feed at which the replica last acknowledged anything.
    acknowledged_at: AtomicU64,
    is_renamed: AtomicBool,
    /// Bytes of the buffer of what is on its way.
    buffered: AtomicU64,
}

impl Shown {
    /// Notes that the history has another name, for which the replica has to leave.
    pub(super) fn rename(&self) {
        self.is_renamed.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_renamed(&self) -> bool {
        self.is_renamed.load(Ordering::Relaxed)
    }

    pub(super) fn set_buffered(&self, bytes: usize) {
        self.buffered.store(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn buffered(&self) -> u64 {
        self.buffered.load(Ordering::Relaxed)
    }

    pub(super) fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    pub(super) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Relaxed) {
            0 => Stage::Waiting,
            1 => Stage::Snapshot,
            2 => Stage::Loading,
            _ => Stage::Online,
        }
    }

    pub(super) fn set_sent(&self, offset: u64) {
        self.sent.store(offset, Ordering::Relaxed);
    }

    /// Notes an acknowledged offset. A replica cannot have more than it was sent. Returns whether
    /// it is a later one.
    pub(super) fn acknowledge(&self, offset: u64, at_millis: u64) -> bool {
        self.acknowledged_at.store(at_millis, Ordering::Relaxed);
        let offset = offset.min(self.sent.load(Ordering::Relaxed));
        self.acknowledged.fetch_max(offset, Ordering::Relaxed) < offset
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    pub(super) fn acknowledged_at(&self) -> u64 {
        self.acknowledged_at.load(Ordering::Relaxed)
    }
}
