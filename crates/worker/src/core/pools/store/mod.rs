//! The embedded store, for clients that speak Redis's protocol.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `ahead` | the memory of a pipeline's keys is fetched ahead |
//! | `awaited` | replies of writers that wait until others were told |
//! | `blocking` | commands that wait for others |
//! | `scripts` | scripts and functions |
//! | `slow` | requests that took long |
//! | `tracking` | who is told of changed keys |
//! | `transactions` | MULTI and EXEC |

pub(in crate::core) mod ahead;
pub(in crate::core) mod awaited;
pub(in crate::core) mod blocking;
pub(in crate::core) mod scripts;
pub(in crate::core) mod slow;
pub(in crate::core) mod tracking;
pub(in crate::core) mod transactions;
