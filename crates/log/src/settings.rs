//! The settings of a log.

use crate::fault::LogFault;
use crate::segment::Cut;
use keyway_base::{Clock, Time};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// When what was written is to be on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Before a client gets the reply.
    Always,
    /// A second later.
    EverySecond,
    /// When the system does it.
    No,
}

/// The functions of a store's scripts, which are beside its keys.
pub trait Functions: Send + Sync {
    /// The source code of all libraries.
    fn libraries(&self) -> Vec<Arc<[u8]>>;

    /// Takes a library of the base, or says why not.
    ///
    /// # Errors
    /// The fault in its code.
    fn load(&self, code: &[u8]) -> Result<(), String>;

    /// Executes a command of the log: FUNCTION LOAD, DELETE, FLUSH or RESTORE. The libraries
    /// may already be as they are behind the command.
    fn execute(&self, words: &[&[u8]]);
}

/// An event that an operator should know of.
#[derive(Debug)]
pub enum Notice {
    /// Loading goes on.
    Loading {
        /// How far it is.
        percent: u64,
        /// Keys of the base so far.
        keys: u64,
        /// Commands of segments so far.
        commands: u64,
        /// For how long.
        took: Duration,
    },
    /// The last record was not whole, and was cut.
    TornTail {
        /// The segment.
        path: PathBuf,
        /// The part that was cut.
        cut: Cut,
    },
    /// The store has what the log has.
    Loaded {
        /// Keys of the base.
        keys: u64,
        /// Commands of segments.
        commands: u64,
        /// How many of them the store has refused, and the first refusal.
        refused: (u64, Option<String>),
        /// How long that took.
        took: Duration,
    },
    /// The first base is written while clients are served.
    Beginning {
        /// True if writes are refused until it is whole.
        refuses: bool,
    },
    /// The first base is whole: the log has all that the store has.
    Begun {
        /// Its length.
        base_len: u64,
        /// How long that took.
        took: Duration,
    },
    /// The log cannot be loaded: the store is not served.
    CannotLoad(LogFault),
    /// A new base is in place.
    Compacted {
        /// Its length.
        base_len: u64,
        /// How long that took.
        took: Duration,
    },
    /// No new base could be written. The log goes on with the one it has.
    NotCompacted(LogFault),
    /// The log has lost writes. It begins anew when it can.
    Failed {
        /// Why.
        fault: LogFault,
        /// True if writes are refused until then.
        refuses: bool,
    },
    /// The log still cannot begin anew. It tries again by itself. Told once a minute at most.
    NotBegun {
        /// Why.
        fault: LogFault,
        /// The time until the next attempt.
        after: Duration,
    },
    /// The log has begun anew, and has all that the store has.
    Healed,
    /// All data was replaced, and the log has what took its place.
    Replaced {
        /// The length of the new base.
        base_len: u64,
        /// How long that took.
        took: Duration,
    },
}

/// The settings of a log, and the functions that it calls.
#[derive(Clone)]
pub struct Settings {
    /// The directory of the files.
    pub directory: PathBuf,
    /// When what was written is to be on the disk.
    pub fsync: Fsync,
    /// Bytes of effects in memory. From half of it on workers wait for the log. A longer unit is
    /// let through, and a longer script is refused further writes. With less, workers wait for
    /// the disk more often.
    pub effects_room: usize,
    /// Bytes that a compaction may hold of items that change before they were written.
    pub snapshot_buffer: u64,
    /// Bytes of segments from which on a compaction is worth its while. It also waits until
    /// they are as many as those of the base.
    pub compact_from: u64,
    /// Bytes of a segment, from which on the next one is begun. Shorter ones take more fsyncs,
    /// longer ones leave more to look at behind a torn tail.
    pub segment_len: u64,
    /// The monotonic clock.
    pub monotonic: fn() -> Time,
    /// The wall clock.
    pub wall_clock: fn() -> Clock,
    /// The functions of the store.
    pub functions: Arc<dyn Functions>,
    /// Is told of events. Called by the log's threads.
    pub notify: Arc<dyn Fn(Notice) + Send + Sync>,
}

impl Settings {
    /// The usual settings, with nothing to be told and no functions to be kept.
    pub fn new(directory: PathBuf, fsync: Fsync, functions: Arc<dyn Functions>) -> Self {
        Self {
            directory,
            fsync,
            effects_room: 256 << 20,
            snapshot_buffer: 256 << 20,
            compact_from: 512 << 20,
            segment_len: 64 << 20,
            monotonic,
            wall_clock,
            functions,
            notify: Arc::new(|_| ()),
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the log has a thread of its own, and its clock")]
fn monotonic() -> Time {
    static BEGAN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    Time(BEGAN.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64)
}

#[allow(clippy::disallowed_methods, reason = "the log has a thread of its own, and its clock")]
fn wall_clock() -> Clock {
    use std::time::{SystemTime, UNIX_EPOCH};
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Clock { now: Time(0), unix_micros: unix.as_micros() as u64 }
}
