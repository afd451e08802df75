//! Totals of the scripts of a pool, for metrics.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Counters that all workers write. Scripts of a store exclude each other, so these words are not
/// more contended than the lock that all of them take.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    runs: AtomicU64,
    errors: AtomicU64,
    ended: AtomicU64,
    nanos: AtomicU64,
    memory_len: AtomicI64,
}

/// The totals of the scripts and functions of a pool so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptTotals {
    /// Number of scripts and functions that were run.
    pub runs: u64,
    /// Number of runs whose reply was an error.
    pub errors: u64,
    /// Number of runs that were ended: killed, or by a limit.
    pub ended: u64,
    /// How long all of them ran.
    pub duration: Duration,
    /// Bytes of Lua's memory now, in all workers.
    pub memory_len: u64,
}

impl Totals {
    /// Notes a run that is over.
    pub(crate) fn note(&self, duration: Duration, is_error: bool) {
        let relaxed = Ordering::Relaxed;
        self.runs.fetch_add(1, relaxed);
        self.errors.fetch_add(u64::from(is_error), relaxed);
        self.nanos.fetch_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), relaxed);
    }

    /// Notes that the run that is about to be over was ended.
    pub(crate) fn note_end(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes the memory of a worker's Lua, which was `before`.
    pub(crate) fn note_memory(&self, before: usize, now: usize) {
        self.memory_len.fetch_add(now as i64 - before as i64, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> ScriptTotals {
        let relaxed = Ordering::Relaxed;
        ScriptTotals {
            runs: self.runs.load(relaxed),
            errors: self.errors.load(relaxed),
            ended: self.ended.load(relaxed),
            duration: Duration::from_nanos(self.nanos.load(relaxed)),
            memory_len: u64::try_from(self.memory_len.load(relaxed)).unwrap_or_default(),
        }
    }
}
