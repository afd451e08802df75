//! What is known of a log.

/// What a log does.
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

/// Figures about a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogStatus {
    /// What it does.
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
    /// How long they took together, in microseconds.
    pub fsync_micros: u64,
    /// How long the longest took, in microseconds.
    pub fsync_micros_max: u64,
    /// True if bytes that were written may not be on the disk.
    pub is_unsynced: bool,
    /// True if a new base is being written.
    pub is_compacting: bool,
    /// Bases that were written.
    pub compactions: u64,
    /// Bases that could not be written.
    pub compactions_failed: u64,
    /// True if the last one could not.
    pub last_compaction_failed: bool,
    /// How long the last took, in seconds; none before the first.
    pub last_compaction_seconds: Option<u64>,
    /// How often writes were lost.
    pub losses: u64,
    /// Why, the last time.
    pub last_fault: String,
}
