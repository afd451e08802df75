//! The configuration is read again while Keyway serves.
//!
//! Whoever wants it asks [`Reload::request`]: the thread that waits for signals, or the admin
//! listener. The main thread does it, one at a time, as it alone starts and stops workers.

mod diff;
mod live;
mod merge;

pub use diff::diff;
pub use live::Live;
pub use merge::Merge;

use crate::upgrade::{Reasons, Successor, UpgradeRequest};
use keyway_control::AfterDrain;
use keyway_metrics::ReloadFigures;
use keyway_worker::Retired;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, SyncSender, sync_channel};
use std::time::Duration;

/// How long who asks waits for the answer. Reading files and telling the workers takes
/// milliseconds; only a process that stops meanwhile answers never.
const PATIENCE: Duration = Duration::from_secs(30);

/// What wakes the main thread.
pub enum Wake {
    /// A signal.
    Signal(i32),
    /// An operator has the process drain.
    Drain(AfterDrain),
    /// Somebody asks for a reload, and waits for what comes of it.
    Reload(SyncSender<Result<Diff, Refusal>>),
    /// Somebody asks for an upgrade.
    Upgrade(UpgradeRequest),
    /// An upgrade is over: the process that serves, or why none does.
    Upgraded(Result<Successor, Reasons>),
    /// The process cannot go on: why.
    Failed(String),
}

/// What a reload has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// The number of the settings that are in force from here on: 1 are those of the start.
    pub generation: u64,
    /// What differs, one line each, without any secret; nothing when the files say the same.
    pub changes: Vec<String>,
    /// Files that hold other certificates now.
    pub rereads: Vec<String>,
    /// What is suspicious about the file but usable.
    pub warnings: Vec<String>,
}

impl Diff {
    /// What operators are told of certificates that were read again.
    pub fn told_rereads(&self) -> Vec<String> {
        self.rereads.iter().map(|file| format!("{file} holds other certificates now")).collect()
    }
}

/// Why nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Of which kind.
    pub cause: Cause,
    /// What is wrong, one line each, as `keyway check` says it.
    pub reasons: Vec<String>,
}

/// What kind of reason there is against a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The file, or one that it names, is wrong or cannot be read.
    Invalid,
    /// It changes what cannot change while Keyway runs.
    NeedsRestart,
    /// What earlier reloads have replaced is still being ended.
    Draining,
    /// Another process is coming up that is to take this one's place.
    Upgrading,
    /// It was not over in time, and still comes.
    Late,
    /// Keyway is stopping.
    Stopping,
}

impl Cause {
    /// The name in metrics.
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

    /// It is still to come: other work goes on, such as a reload that waits for a script.
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
    /// What asks the main thread through `wake`.
    pub fn new(wake: Sender<Wake>) -> Self {
        Self { wake }
    }

    /// Has the configuration read again, and waits until it is in force: every worker has
    /// been told of it, and serves what comes in from then on by it.
    ///
    /// # Errors
    /// Why nothing has changed.
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

/// Causes that are counted: a process that stops counts no more.
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

    /// The same for whoever scrapes.
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
