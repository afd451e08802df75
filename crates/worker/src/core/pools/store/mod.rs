//! The embedded store, for clients that speak Redis's protocol.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `ahead` | the memory of a pipeline's keys is fetched ahead |
//! | `awaited` | replies of writers that wait until others were told |
//! | `blocking` | commands that wait for others |
//! | `feeding` | clients that become replicas, and clients that wait for them |
//! | `handed` | clients that go to another process, or come from one |
//! | `introduced` | clients that have announced that they are replicas |
//! | `logs` | replies that wait until writes are on disk |
//! | `roles` | REPLICAOF and ROLE, and the way to `feeding` |
//! | `scripts` | scripts and functions |
//! | `script_host` | what a script reaches while it runs |
//! | `script_commands` | SCRIPT and FUNCTION: what is loaded, listed, killed |
//! | `serve` | a request is executed and answered |
//! | `slow` | requests that took long |
//! | `tracking` | who is told of changed keys |
//! | `transactions` | MULTI and EXEC |
//!
//! The doors, which code outside of the room calls, by file:
//!
//! - `ahead`: `look_ahead`
//! - `awaited`: `held_until`, `settle_awaited`, `acknowledge_told`
//! - `blocking`: `serve_waiters`, `forget_waiting`, `deliver_handouts`, `end_overdue_waits`,
//!   `unblock_on_store`
//! - `handed`: `is_ready_to_go`, `place_of_waiting`, `describe`, `restore`
//! - `serve`: `serve`, `awaits_effects`
//! - `slow`: `begin_work`, `began_lately`, `end_memcached_work`
//! - `tracking`: `forget_tracker`, `settlement_of_script`, `tell_changes`, `settle_upkeep`,
//!   `sweep_trackers`
//! - `tracking::deliver`: `deliver_invalidations`, `tell_late`
//! - `transactions`: `serve_special`, `unwatch_keys`

mod ahead;
mod awaited;
mod blocking;
mod feeding;
mod handed;
mod introduced;
mod logs;
mod roles;
mod script_commands;
mod script_host;
mod scripts;
pub(super) mod serve;
mod slow;
pub(in crate::core) mod state;
mod tickets;
mod tracking;
pub(in crate::core) mod transactions;

pub(crate) use introduced::Departing;
pub use script_commands::repeat_function_command;
pub(crate) use state::State;
