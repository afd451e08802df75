//! Requests to pools that lead to other pools.
//!
//! What needs no reply to be decided (a prefix, a token, whether there is to be a copy)
//! only chooses the pool, and the request goes on there as any other ([`Destination`]).
//! What does is a [`RoutedRequest`]: its reply index is reserved, and at the end of the turn it
//! begins to ask. Whoever is asked is asked by a *sub-request*, a session without a client,
//! whose pool is the one that is asked: so splitting, joining, translating and the texts
//! of errors are what a client of that pool would get, and that pool may itself lead on.
//! A sub-request brings one request and is then at rest, for the next.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `mod` | choosing; what a turn does about routed requests |
//! | `sub_requests` | who asks, in what order, and how many at once |
//! | `behind` | what is sent next stays behind what is on its way |
//! | `redis` | requests of Redis clients; those of memcached are in `memcached::routes` |
//! | `retired` | what keeps a pool that a reload has replaced |
//! | `split` | reads and writes that go different ways |
//! | `routed_request` | asking, and what replies lead to |
//! | `fill` | what one child has is stored in the first |

mod behind;
mod fill;
mod redis;
mod retired;
mod routed_request;
mod split;
mod state;
mod steps;
mod sub_requests;

pub(in crate::core) use redis::{PARTS_MAX, route_policy_of};
pub(in crate::core) use state::{
    Destination, Language, State, Wants, Whose, above, client_behind, reports_to,
};
