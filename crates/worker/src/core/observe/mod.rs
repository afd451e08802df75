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

use crate::Plan;
use hot_keys::Noting;
use monitor::Monitoring;
use served::Served;
use slow::{SlowLines, Unwritten};

/// What a worker counts and shows of requests.
pub(crate) struct State {
    /// How often slow requests were told of lately.
    pub(in crate::core::observe) slow_lines: SlowLines,
    /// Slow requests whose reply is on its way to its client.
    pub(in crate::core) unwritten: Vec<Unwritten>,
    pub(crate) served: Served,
    pub(in crate::core) hot_keys: Noting,
    pub(crate) monitoring: Monitoring,
}

impl State {
    /// The state of a worker that has seen no request.
    pub(in crate::core) fn new(plan: &Plan) -> State {
        State {
            slow_lines: SlowLines::default(),
            unwritten: Vec::new(),
            served: Served::new(),
            hot_keys: Noting::new(&plan.limits),
            monitoring: Monitoring::default(),
        }
    }
}
