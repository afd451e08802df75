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
//!
//! The doors, which code outside of the room calls, by file:
//!
//! - `info`: `info`
//! - `scripts`: `load`, `unload`, `script_exists`, `run_script`, `give_libraries`,
//!   `on_load_refused`, `learn_loads`
//! - `stateful`: `dispatch_stateful`, `greet`, `block`, `answered_by`, `answered_within`,
//!   `check_blocking`, `hashes_of`, `lease_for`, `send_private`
//! - `tracking::links`: `own_link`, `end_tracking`, `discard_unused`, `may_connect`,
//!   `on_tracking_ready`, `on_receiver_known`, `on_tracking_lost`, `tend_tracking`
//! - `tracking`: `track`, `dispatch_tracked`
//! - `tracking::tell`: `next_loss`, `on_ring_changed`, `deliver_redirected`, `tell_forgetful`,
//!   `release_pushes`, `on_push`
//! - `transactions`: `transact`
//! - `unblock`: `unblock_at_servers`, `retry_unblocks`, `send_unblock`, `end_refused`, `let_go`,
//!   `note_hangup`

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
