//! Reloads: the configuration is read again while Keyway serves.
//!
//! A reload is asked for by [`Reload::request`], from the thread that waits for signals or from the
//! admin listener. The main thread carries reloads out, one at a time, because it alone starts and
//! stops workers.

mod diff;
mod live;
mod merge;

pub use diff::diff;
pub use live::Live;
pub use merge::Merge;

use crate::member::Ordered;
use crate::upgrade::{Holding, Reasons, Successor, UpgradeRequest};
use keyway_control::AfterDrain;
use keyway_metrics::ReloadFigures;
use keyway_worker::Retired;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, SyncSender, sync_channel};
use std::time::Duration;

/// Longest wait for the outcome of a reload. Reading files and telling the workers takes
/// milliseconds. Only a process that stops meanwhile never answers.
const PATIENCE: Duration = Duration::from_secs(30);

/// An event that wakes the main thread.
pub enum Wake {
    /// A signal.
    Signal(i32),
    /// An operator orders a drain.
    Drain(AfterDrain),
    /// A reload is asked for. The sender waits for its outcome.
    Reload(SyncSender<Result<Diff, Refusal>>),
    /// A document of the control plane is to be served by.
    Document(Ordered),
    /// An upgrade is asked for.
    Upgrade(UpgradeRequest),
    /// An upgrade has ended, with the process that serves, or the reasons why none does.
    Upgraded(Result<Successor, Reasons>),
    /// The stores are to be held, for the next process to take over.
    Hold(Holding),
    /// The process cannot go on: why.
    Failed(String),
}

/// The changes of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// The number of the settings that are now in force; those of the start have 1.
    pub generation: u64,
    /// The differences, one line each, without secrets; empty if the files say the same.
    pub changes: Vec<String>,
    /// Files that have other certificates now.
    pub rereads: Vec<String>,
    /// Warnings about the file.
    pub warnings: Vec<String>,
}

impl Diff {
    /// Returns the lines about certificates that were read again.
    pub fn told_rereads(&self) -> Vec<String> {
        self.rereads.iter().map(|file| format!("{file} holds other certificates now")).collect()
    }
}

/// A refused reload, which has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind of reason.
    pub cause: Cause,
    /// The reasons, one line each, as `keyway check` prints them.
    pub reasons: Vec<String>,
}

/// The kinds of reasons to refuse a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The file, or one that it names, is wrong or cannot be read.
    Invalid,
    /// It changes what cannot change while Keyway runs.
    NeedsRestart,
    /// Pools replaced by earlier reloads are still ending.
    Draining,
    /// Another process is starting that will replace this one.
    Upgrading,
    /// The reload did not end in time, and is still going on.
    Late,
    /// Keyway is stopping.
    Stopping,
}

impl Cause {
    /// Returns the name in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Cause::Invalid => "invalid",
            Cause::NeedsRestart => "needs-restart",
            Cause::Draining => "draining",
            Cause::Upgrading => "upgrading",
            Cause::Late => "late",
            Cause::Stopping => "stopping",
        }
    }
}

impl Refusal {
    pub(crate) fn new(cause: Cause, reasons: Vec<String>) -> Self {
        Self { cause, reasons }
    }

    /// Returns the refusal for a reload that is still to come, because other work goes first, such
    /// as a reload that waits for a script.
    fn late() -> Self {
        let secs = PATIENCE.as_secs();
        let why = format!(
            "it has not begun, or not ended, within {secs} s, as something else goes on; it still \
             comes: the log tells when"
        );
        Self::new(Cause::Late, vec![why])
    }

    pub(crate) fn stopping() -> Self {
        Self::new(Cause::Stopping, vec!["Keyway is stopping".to_owned()])
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reasons.join("\n"))
    }
}

/// Asks for reloads, from any thread but the main one.
#[derive(Clone)]
pub struct Reload {
    wake: Sender<Wake>,
}

impl Reload {
    /// Creates a handle that asks the main thread through `wake`.
    pub fn new(wake: Sender<Wake>) -> Self {
        Self { wake }
    }

    /// Reads the configuration again, and waits until it is in force: every worker has been told,
    /// and uses it for all requests from then on.
    ///
    /// # Errors
    /// Returns the reason why nothing has changed.
    pub fn request(&self) -> Result<Diff, Refusal> {
        let (tell, told) = sync_channel(1);
        self.wake.send(Wake::Reload(tell)).map_err(|_| Refusal::stopping())?;
        match told.recv_timeout(PATIENCE) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout) => Err(Refusal::late()),
            Err(RecvTimeoutError::Disconnected) => Err(Refusal::stopping()),
        }
    }
}

/// Counts of reloads, for metrics and INFO.
#[derive(Debug, Default)]
pub struct ReloadTally {
    done: AtomicU64,
    refused: [AtomicU64; REFUSED.len()],
    last_unix_seconds: AtomicU64,
}

/// Causes that are counted. A stopping process counts no more.
const REFUSED: [Cause; 4] =
    [Cause::Invalid, Cause::NeedsRestart, Cause::Draining, Cause::Upgrading];

impl ReloadTally {
    pub(crate) fn note(&self, result: &Result<Diff, Refusal>) {
        match result {
            Ok(_) => {
                self.done.fetch_add(1, Ordering::Relaxed);
                let now = crate::serve::wall_clock().unix_micros / 1_000_000;
                self.last_unix_seconds.store(now, Ordering::Relaxed);
            }
            Err(refusal) => {
                if let Some(at) = REFUSED.iter().position(|cause| *cause == refusal.cause) {
                    self.refused[at].fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Returns the counts for a scrape.
    pub fn figures(&self, generation: u64, retired: &[Retired]) -> ReloadFigures {
        let is_left = |it: &&Retired| it.left.load(Ordering::Relaxed) > 0;
        let refused = REFUSED.iter().zip(&self.refused);
        let refused = refused.map(|(cause, count)| (cause.label(), count.load(Ordering::Relaxed)));
        ReloadFigures {
            generation,
            last_unix_seconds: self.last_unix_seconds.load(Ordering::Relaxed),
            ending_pools: retired.iter().filter(is_left).count() as u64,
            results: [("done", self.done.load(Ordering::Relaxed))]
                .into_iter()
                .chain(refused)
                .collect(),
        }
    }
}
