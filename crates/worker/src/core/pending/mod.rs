//! *Operations*: requests that take several exchanges with servers.
//!
//! An [`Operation`](keyway_proxy::Operation) is in one slab whatever it takes, with whose reply it
//! becomes. An exchange names it and the part of it that the exchange is for
//! ([`Owner::Operation`](keyway_proxy::Owner)). What it asks, and what the replies mean, its kind
//! decides, which is in the room of its pools.
//!
//! ```text
//!            begin ──► exchanges ──► on_operation_reply, on_operation_fault
//!                          ▲                    │
//!   continue_operations ───┘◄──── add_due ──────┤
//!                                               ▼
//!                              end, answer_operation ──► the client, if it is there
//! ```
//!
//! | kind | what it is | what decides |
//! | --- | --- | --- |
//! | `Join` | one request became a fragment for each of several servers | `fan_out`, `join`, `wait`, `cluster::split` |
//! | `MultiStep` | a request asks one server after the other, or one again | `multi_step`, `servers::scripts` |
//! | `MemcachedJoin` | a reply to a client of memcached is put together | `memcached::pool` |
//! | `WarmUpRead` | items are brought over from an old pool first | `memcached::warm` |
//! | `RoutedRequest` | a request asks other pools, by sub-requests | `routed` |
//!
//! | door | what it does |
//! | --- | --- |
//! | `reply_to_request` | reserves the reply of a request that becomes an operation |
//! | `begin`, `get`, `get_mut`, `entry_mut`, `end` | an operation of one kind, from its beginning to its end |
//! | `on_operation_reply`, `on_operation_fault` | what a server says, or that it says nothing |
//! | `add_due`, `continue_operations` | the next step, at the end of the turn |
//! | `answer_operation`, `answer_operation_now`, `answer_unended` | the reply, unless the client has left |
//! | `session_of`, `reply_index`, `is_part_of`, `is_wait` | who waits for an exchange, for those who log it or send it elsewhere |
//! | `operations`, `count`, `all`, `due` | how many there are, and which |
//! | `split`, `send_everywhere`, `begin_join`, `finish_join_now` | fan-out and join |
//! | `across`, `take_multi_step`, `start_multi_step`, `own_as_multi_step`, `note_moved` | requests in several steps |
//! | `expect`, `expect_nothing` | what follows once every server has answered |
//!
//! A hedged read is no operation: it is a second exchange for the reply of one request or of one
//! part of an operation, so it stands between an exchange and its owner (`cluster::hedge`).

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
