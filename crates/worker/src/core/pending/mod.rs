//! Requests that take several exchanges with servers: *operations*.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `operations` | one slab for all of them: who is answered, how replies come to them, how they end |
//! | `fan_out` | one request becomes one fragment per server |
//! | `join` | the replies to the fragments become one reply |
//! | `conclusions` | what else follows from the replies of every server |
//! | `multi_step` | a request asks one server after the other, or one server again |
//! | `wait` | WAIT for the replicas of every server |

pub(in crate::core) mod conclusions;
pub(in crate::core) mod fan_out;
mod join;
pub(in crate::core) mod multi_step;
mod operations;
pub(in crate::core) mod wait;

use keyway_proxy::JoinPool;
use multi_step::MultiStepPool;
pub(in crate::core) use operations::Due;

/// The requests of a worker that take several exchanges.
#[derive(Default)]
pub(crate) struct State {
    operations: operations::Operations,
    /// What replies have asked for.
    due: Vec<Due>,
    conclusions: conclusions::Conclusions,
    joins_free: JoinPool,
    multi_steps_free: MultiStepPool,
    fan_out: fan_out::Scratch,
}

impl State {
    /// Has something done when no link is borrowed.
    pub(in crate::core) fn add_due(&mut self, due: Due) {
        self.due.push(due);
    }

    /// Number of next steps that are due, and of conclusions that are to be drawn.
    pub(in crate::core) fn due(&self) -> usize {
        self.due.len() + self.conclusions.len()
    }

    /// Gives back room beyond `kept_max` keys.
    pub(in crate::core) fn trim(&mut self, kept_max: usize) {
        self.fan_out.trim(kept_max);
    }

    /// Gives back the room of joins at rest.
    pub(in crate::core) fn forget_room(&mut self) {
        self.joins_free = JoinPool::default();
    }
}
