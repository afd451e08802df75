//! Clients of memcached: their bytes become requests, which the store or the
//! servers of a pool answer.
//!
//! The doors, which code outside of the room calls, by file:
//!
//! - `codec`: `parse_memcached`
//! - `pool`: `finish_memcached_join`
//! - `redis`: `on_memcached_join_refused`
//! - `returns`: `tend_generations`, `take_back_displaced`, `is_held_back`, `try_begin_return`,
//!   `end_return`, `look_at_generation`, `hear_generation`, `has_heard_generation`,
//!   `on_generation_heard`, `describe_cleaned`
//! - `warm`: `is_warming_up`, `warms_up`, `on_item_copy_outcome`, `continue_warm_up_read`

mod access;
mod admission;
mod ahead;
mod codec;
mod dispatch;
mod local;
mod pool;
mod redis;
mod returns;
mod routes;
mod state;
mod store;
mod warm;

pub(in crate::core) use access::was_let;

pub(in crate::core) use state::{State, writes};
