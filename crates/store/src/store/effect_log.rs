//! The log of a store as its workers see it: its states, its figures and what they ask of it.

use std::sync::{Arc, OnceLock};

/// The state of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogState {
    /// It is not begun, or is being loaded.
    #[default]
    Loading,
    /// It has all that the store has, or will in a moment.
    Open,
    /// It has lost writes, and is to begin anew.
    Lost,
}

/// The state of a log's compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compaction {
    /// None runs, and none was asked for.
    #[default]
    Idle,
    /// One begins when a snapshot, or a script, has ended, or when the log has begun anew.
    Scheduled,
    /// A new base is being written, or is begun in a moment.
    Running,
}

/// The reason why no compaction is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionRefusal {
    /// The store has no log.
    Off,
    /// One is running.
    Running,
}

impl CompactionRefusal {
    /// The error for a client, error code included.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Off => "ERR this pool has no log; `log` in its configuration sets one",
            Self::Running => "ERR Background append only file rewriting already in progress",
        }
    }
}

/// Figures about a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogStatus {
    /// Its state.
    pub state: LogState,
    /// Bytes of the base.
    pub base_len: u64,
    /// Bytes of the segments behind the base.
    pub segments_len: u64,
    /// Bytes of units that were written since the start.
    pub written: u64,
    /// Records that were written.
    pub records: u64,
    /// Calls of fsync for records.
    pub fsyncs: u64,
    /// Their total time, in microseconds.
    pub fsync_micros: u64,
    /// The time of the longest, in microseconds.
    pub fsync_micros_max: u64,
    /// True if bytes that were written may not be on the disk.
    pub is_unsynced: bool,
    /// The state of a new base: it is being written, or is to be, or neither.
    pub compaction: Compaction,
    /// When the latest compaction began, in seconds since the Unix epoch; 0 for one that is asked
    /// for, and before the first.
    pub compaction_began: u64,
    /// Bases that were written.
    pub compactions: u64,
    /// Bases that could not be written.
    pub compactions_failed: u64,
    /// True if the last one could not.
    pub last_compaction_failed: bool,
    /// The time that the latest base took, in seconds. `None` before the first one.
    pub last_compaction_seconds: Option<u64>,
    /// Number of times that writes were lost.
    pub losses: u64,
    /// Attempts to begin anew that failed.
    pub failed_attempts: u64,
    /// Why, the last time.
    pub last_fault: String,
}

/// A log of a store's effects, as a worker needs it.
pub trait EffectLog: Send + Sync {
    /// A worker is about to send replies, which show units up to the number `told` of
    /// [`Store::told`](crate::Store::told). With a log that is to be on the disk first, this returns when they
    /// are. It also returns when the log has lost them.
    ///
    /// Returns how often the log has lost units. When that has changed, nobody knows whether
    /// the writes of the worker's turn are on the disk: it closes their clients without
    /// replies.
    fn before_replies(&self, told: u64) -> u64;

    /// Waits while `is_full`, which is [`Store::effects_are_full`](crate::Store::effects_are_full): the log is behind.
    fn await_room(&self, is_full: &dyn Fn() -> bool);

    /// Asks for a new base, which is begun at once if `may_begin`. Returns the state that was
    /// found, or that this call has made: `None` if a compaction was running.
    fn ask_compaction(&self, may_begin: bool) -> Option<Compaction>;

    /// All data is about to be replaced. Returns when everything that was told is written, after
    /// which the log takes nothing. A restart finds the data of this moment until
    /// [`EffectLog::begin_anew`] has had its effect. The store answers LOADING meanwhile.
    fn pause(&self);

    /// All data was replaced. The log begins with what the store holds from now on; the old files
    /// count until the new ones are whole. Nothing happens to a log that was not paused.
    fn begin_anew(&self);

    /// Figures.
    fn status(&self) -> LogStatus;
}

/// The log of a store, if it has one.
pub(crate) struct Logged(OnceLock<Arc<dyn EffectLog>>);

impl Logged {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Sets the log. Nothing happens if there is one.
    pub(super) fn set(&self, log: Arc<dyn EffectLog>) {
        let _ = self.0.set(log);
    }

    #[inline]
    pub(super) fn get(&self) -> Option<&Arc<dyn EffectLog>> {
        self.0.get()
    }
}
