//! The interface between the admin listener and the process.

use crate::backends::PoolStatus;
use crate::fleet::FleetApi;
use crate::process::Api;
use std::net::SocketAddr;

/// What the admin listener shows and may change. It is called on the listener's thread, one call at
/// a time, so a call should take milliseconds at most. Only [`Api::reload`] has a thread of its
/// own.
pub trait AdminState: Send + Sync {
    /// Appends all metrics in the Prometheus text format, version 0.0.4.
    fn metrics(&self, out: &mut String);

    /// Returns whether the process is ending and accepts no new clients.
    fn draining(&self) -> bool;

    /// Returns a line for each reason why some pool cannot serve; empty if every pool can.
    fn not_ready(&self) -> Vec<String>;

    /// Returns a line for each pool that serves although servers are failing or out of use.
    fn failing(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns a line for each pool with servers that have neither answered nor failed yet.
    fn not_known(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns every pool with its backends, in the order of the configuration.
    fn pools(&self) -> Vec<PoolStatus>;

    /// Ends the ejection or quarantine of a backend. Returns false, without an effect, if it was in
    /// use already.
    ///
    /// # Errors
    /// Returns a text with the existing names if there is no such pool or backend.
    fn restore_backend(&self, pool: &str, backend: &str) -> Result<bool, String>;

    /// Ends the script or function that runs on the store of a pool, if it has written nothing.
    ///
    /// # Errors
    /// Returns a text that says so if there is no such pool, or it is not a store.
    fn kill_script(&self, pool: &str) -> Result<ScriptKill, String>;

    /// Notes a change that was asked for, or a request that was refused for want of a right, after
    /// its answer. It is called on the listener's thread, and must not wait.
    fn note_request(&self, _request: &NotedRequest<'_>) {}

    /// Returns the API under `/v1`, if there is one.
    fn api(&self) -> Option<&dyn Api> {
        None
    }

    /// Returns the API of the fleet, if the process is a control node.
    fn fleet(&self) -> Option<&dyn FleetApi> {
        None
    }
}

/// A request that is noted.
#[derive(Clone, Copy, Debug)]
pub struct NotedRequest<'r> {
    /// The name of the operator; `None` if it is not known.
    pub operator: Option<&'r str>,
    /// The address of the client.
    pub address: SocketAddr,
    /// The method.
    pub method: &'r str,
    /// The path, without its query.
    pub path: &'r str,
    /// The HTTP status of the answer.
    pub status: u16,
    /// The reason of a refusal; empty without one.
    pub detail: &'r str,
}

/// The result of an order to end a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptKill {
    /// No script runs.
    NoneRuns,
    /// It has written: it ends only when its time is over.
    HasWritten,
    /// It is ending.
    Ends,
}

/// The readiness of the process, as `/readyz` and `/v1/ready` report it.
pub(crate) struct Readiness {
    /// The reasons why it is not ready; empty if it is.
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
