//! The control plane. For now its admin listener: metrics, health, readiness,
//! the list of backends, the end of a quarantine and of a script over HTTP.
//!
//! The only crate with an async runtime, on a thread of its own. It never
//! reaches into the data plane: everything it knows and may do is behind
//! [`AdminState`]. Whoever connects to it, however slow, silent or wild, costs
//! no more than [`AdminLimits`] says and never disturbs a worker.
//!
//! Read first: [`AdminState`], [`Admin::start`] and [`AdminHandle`].

#![forbid(unsafe_code)]

mod admin;
mod backends;
mod routes;

pub use admin::{Admin, AdminError, AdminHandle, AdminLimits};
pub use backends::{BackendStanding, BackendStatus, PoolStatus};
pub use routes::{AdminState, ScriptKill};
