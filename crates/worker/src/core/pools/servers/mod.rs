//! The commands that all pools with servers handle alike for clients that speak RESP.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `info` | INFO about a pool's servers: added up, or one of them |
//! | `pubsub` | subscriptions: the subscribers of each name, and the subscriptions at servers |
//! | `scripts` | scripts and libraries, and which of them each connection was given |
//! | `stateful` | commands that block, and those in a transaction |
//! | `transactions` | MULTI, EXEC and WATCH |
//! | `tracking` | invalidations for clients that track keys |
//! | `unblock` | the end of a command that blocks |

pub(in crate::core) mod given;
pub(in crate::core) mod info;
pub(in crate::core) mod pubsub;
pub(in crate::core) mod scripts;
mod stateful;
pub(in crate::core) mod tracking;
pub(super) mod transactions;
mod unblock;

use crate::Plan;
use pubsub::PubSub;

/// The state that a worker holds for clients of all pools with servers.
pub(crate) struct State {
    pub(crate) pubsub: PubSub,
    pub(crate) tracking: tracking::State,
    /// Scripts that EVAL has shown to the cache already.
    shown: scripts::Shown,
}

impl State {
    /// The state of a worker without clients.
    pub(in crate::core) fn new(plan: &Plan) -> State {
        State {
            pubsub: PubSub::new(plan),
            tracking: tracking::State::default(),
            shown: scripts::Shown::default(),
        }
    }
}
