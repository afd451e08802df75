//! *Operations*: requests that take several exchanges with servers.
//!
//! An [`Operation`](keyway_proxy::Operation) is in one slab, whatever its kind, with the
//! destination of its reply. An exchange refers to it and to the part of it that the exchange is
//! for ([`Owner::Operation`](keyway_proxy::Owner)). The kind decides what it asks, and what the
//! replies mean. The code of a kind is in the room of its pools.
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
//! | `answer_operation`, `answer_operation_now`, `with_unended` | the reply, unless the client has left |
//! | `session_of`, `reply_index`, `is_part_of`, `is_wait` | who waits for an exchange, for those who log it or send it elsewhere |
//! | `operations`, `count`, `all`, `due` | how many there are, and which |
//! | `split`, `send_everywhere`, `begin_join`, `finish_join_now` | fan-out and join |
//! | `across`, `take_multi_step`, `start_multi_step`, `own_as_multi_step`, `note_moved` | requests in several steps |
//! | `expect`, `expect_nothing` | what follows once every server has answered |
//! | `has_operations_due`, `operate`, `wait_again` | work for this turn; a request that is otherwise local asks servers; a WAIT asks again |
//! | `in_use`, `link_of` | the servers that are asked, and a client's connection to one |
//!
//! A hedged read is no operation: it is a second exchange for the reply of one request or of one
//! part of an operation, so it is between an exchange and its owner (`cluster::hedge`).

mod conclusions;
mod fan_out;
mod join;
mod multi_step;
mod operations;
mod progress;
mod state;
pub(super) mod wait;

pub(super) use operations::Due;
pub(super) use state::Conclusion;
pub(crate) use state::State;
