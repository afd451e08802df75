//! What all pools with servers do for clients that speak RESP.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `info` | INFO about a pool's servers: added up, or one of them |
//! | `pubsub` | subscriptions: who hears what, and what is subscribed at servers |
//! | `scripts` | what servers keep for later calls, and who was given what |
//! | `stateful` | commands that block, and those in a transaction |
//! | `transactions` | MULTI, EXEC and WATCH |
//! | `tracking` | who is told which keys have changed |
//! | `unblock` | the end of a command that blocks |

pub(in crate::core) mod given;
pub(in crate::core) mod info;
pub(in crate::core) mod pubsub;
pub(in crate::core) mod scripts;
pub(in crate::core) mod stateful;
pub(in crate::core) mod tracking;
pub(in crate::core) mod transactions;
pub(in crate::core) mod unblock;

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
