//! Requests are counted, logged and shown.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `counting` | requests, errors and latencies by class and by command |
//! | `figures` | gauges, a few times a second |
//! | `hot_keys` | which keys are asked for most, and which have large values |
//! | `monitor` | requests are shown to clients that watch |
//! | `served` | the latency of what needs no server |
//! | `slow` | slow requests, for SLOWLOG |
//!
//! The doors, which code outside of the room calls, by file:
//!
//! - `counting`: `started`, `executed`, `served`, `replied`, `note_store_error`, `note_refused_write`,
//!   `count_fault`
//! - `figures`: `figures`
//! - `hot_keys`: `note_request`, `note_memcached`, `note_large`, `note_stored_reply`,
//!   `note_large_item`, `note_big_reply`
//! - `monitor`: `start_monitor`, `end_monitor`, `show_request`, `show_memcached`, `commit_shown`,
//!   `show_started`, `retract_shown`, `deliver_monitored`
//! - `slow`: `slow_client`, `reply_index`, `session_of`, `log_slow`, `client_names`, `keep_slow`,
//!   `await_written`, `mark_unwritten`, `note_written`, `forget_unwritten`

pub(super) mod counting;
pub(super) mod figures;
pub(super) mod hot_keys;
mod monitor;
pub(super) mod served;
mod slow;
pub(super) mod state;

pub(crate) use state::State;
