//! What the admin listener knows and may do.

use crate::backends::PoolStatus;
use crate::process::Api;

/// What the admin listener shows and may change. Called on its thread, one
/// call at a time, so a call should take milliseconds at most; only [`Api::reload`] has a thread
/// of its own.
pub trait AdminState: Send + Sync {
    /// Appends all metrics in the Prometheus text format, version 0.0.4.
    fn metrics(&self, out: &mut String);

    /// Whether the process is on its way out and takes no new clients.
    fn draining(&self) -> bool;

    /// Why some pool cannot serve, a line for each reason; empty when every
    /// pool can.
    fn not_ready(&self) -> Vec<String>;

    /// Pools that serve although servers are failing or out of use, a line for each such pool.
    fn failing(&self) -> Vec<String> {
        Vec::new()
    }

    /// Pools with servers that have neither answered nor failed yet, a line for each such pool.
    fn not_known(&self) -> Vec<String> {
        Vec::new()
    }

    /// Every pool with its backends, in the order of the configuration.
    fn pools(&self) -> Vec<PoolStatus>;

    /// Ends the ejection or quarantine of a backend. False when it was in use
    /// already: then nothing is done.
    ///
    /// # Errors
    /// When there is no such pool or backend: a text with the names there are.
    fn restore_backend(&self, pool: &str, backend: &str) -> Result<bool, String>;

    /// Ends the script or function that runs on the store of a pool, if it has
    /// written nothing.
    ///
    /// # Errors
    /// When there is no such pool, or it is no store: a text that says so.
    fn kill_script(&self, pool: &str) -> Result<ScriptKill, String>;

    /// What the API under `/v1` shows and may change, where there is one.
    fn api(&self) -> Option<&dyn Api> {
        None
    }
}

/// What became of the wish to end a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptKill {
    /// None runs.
    NoneRuns,
    /// It has written: its time will end it.
    HasWritten,
    /// It ends.
    Ends,
}

/// Whether the process is ready, as `/readyz` and `/v1/ready` tell it.
pub(crate) struct Readiness {
    /// Why it is not; none where it is.
    pub(crate) reasons: Vec<String>,
    /// A line for each pool that serves although servers are failing or out of use.
    pub(crate) failing: Vec<String>,
    /// A line for each pool with servers that have neither answered nor failed yet.
    pub(crate) unknown: Vec<String>,
}

impl Readiness {
    pub(crate) fn of(state: &dyn AdminState) -> Self {
        let mut reasons = state.not_ready();
        if state.draining() {
            reasons.insert(0, "draining".into());
        }
        Self { reasons, failing: state.failing(), unknown: state.not_known() }
    }
}
