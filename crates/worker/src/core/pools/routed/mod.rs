//! Requests to pools that lead to other pools.
//!
//! Some pools need no reply to decide: by a prefix, a token, or whether a copy is due. These only
//! choose the pool, and the request goes on there like any other ([`Destination`]).
//!
//! A request that needs replies is a [`RoutedRequest`]. Its reply index is reserved, and at the end
//! of the turn it sends its first requests. Each of these is sent by a *sub-request*, which is a
//! session without a client, in the pool that is asked. So splitting, joining, translating and
//! error texts are those of a client of that pool, and that pool may itself lead to others. A
//! sub-request sends one request, and is then at rest for the next.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `mod` | choosing; what a turn does about routed requests |
//! | `sub_requests` | the order of sub-requests, and their number at once |
//! | `behind` | later requests stay behind requests in flight |
//! | `redis` | requests of Redis clients; those of memcached are in `memcached::routes` |
//! | `retired` | reasons to keep a pool that a reload has replaced |
//! | `split` | reads and writes that go different ways |
//! | `routed_request` | questions to children, and the effects of their replies |
//! | `fill` | values that one child has are stored in the first |
//!
//! The doors, which code outside of the room calls, by file:
//!
//! - `behind`: `hold_in_flight`, `is_alone`
//! - `redis`: `dispatch_routed`
//! - `retired`: `is_led_to`
//! - `split`: `dispatch_at_writer`
//! - `steps`: `add_routed_request`, `destination`, `turn_back`, `note_passed`, `may_travel`,
//!   `wait_among_routed_requests`, `crowded_too_long`, `release_crowded`, `client_keys`,
//!   `has_clients`, `parts_by`
//! - `sub_requests`: `note_unstalled`, `continue_routes`

mod behind;
mod fill;
mod redis;
mod retired;
mod routed_request;
mod split;
mod state;
mod steps;
mod sub_requests;

pub(in crate::core::pools) use redis::{PARTS_MAX, route_policy_of};
pub(in crate::core) use state::{
    Destination, Language, State, Wants, Whose, above, client_behind, reports_to,
};
