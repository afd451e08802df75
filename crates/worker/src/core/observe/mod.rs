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

pub(in crate::core) mod counting;
pub(in crate::core) mod figures;
pub(in crate::core) mod hot_keys;
pub(in crate::core) mod monitor;
pub(in crate::core) mod served;
pub(in crate::core) mod slow;
pub(in crate::core) mod state;

pub(crate) use state::State;
