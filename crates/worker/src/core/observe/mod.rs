//! What is counted, logged and shown of requests.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `counting` | requests, errors and latencies by class and by command |
//! | `figures` | gauges, a few times a second |
//! | `hot_keys` | which keys are asked for most, and which have large values |
//! | `monitor` | requests are shown to clients that watch |
//! | `served` | the latency of what needs no server |
//! | `slow` | slow requests, for SLOWLOG |

mod counting;
pub(super) mod figures;
pub(super) mod hot_keys;
mod monitor;
pub(super) mod served;
mod slow;
pub(super) mod state;

pub(crate) use state::State;
