//! The commands that all pools with servers handle alike for clients that speak RESP.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `info` | INFO about a pool's servers: added up, or one of them |
//! | `scripts` | scripts and libraries, and which of them each connection was given |
//! | `stateful` | commands that block, and those in a transaction |
//! | `transactions` | MULTI, EXEC and WATCH |
//! | `tracking` | invalidations for clients that track keys |
//! | `unblock` | the end of a command that blocks |

pub(in crate::core) mod given;
pub(in crate::core) mod info;
pub(in crate::core) mod scripts;
mod stateful;
pub(in crate::core) mod tracking;
pub(super) mod transactions;
mod unblock;

/// The state that a worker holds for clients of all pools with servers.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) tracking: tracking::State,
    /// Scripts that EVAL has shown to the cache already.
    shown: scripts::Shown,
}
