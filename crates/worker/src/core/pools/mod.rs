//! The handling of requests by each kind of pool, and the worker's state of each pool.
//!
//! | folder | what happens there |
//! | --- | --- |
//! | `store` | the embedded store |
//! | `servers` | the common handling of all pools with servers |
//! | `memcached` | clients that speak memcached's protocols, and pools of its servers |
//! | `cluster` | pools that find out their servers: Redis Cluster, and primaries with replicas |
//! | `routed` | pools of pools |
//!
//! `scripts` sends scripts to servers, and `given` remembers them. `homes` says where keys are, by the kind of
//! pool. `state` has the worker's state of each pool, one variant for each kind.
//!
//! The doors, which code outside of the room calls, by file:
//!
//! - `homes`: `cluster_state`, `has_slots`, `slot_of`, `moving_home_of`, `is_member`,
//!   `has_moving_homes`, `is_server_used`, `leaves_out`
//! - `scripts`: `scripts`

pub(super) mod cluster;
pub(super) mod given;
mod homes;
pub(super) mod memcached;
pub(super) mod routed;
pub(super) mod scripts;
pub(super) mod servers;
mod state;
pub(super) mod store;

pub(super) use state::{BULK, BYPASS, FoundState, PoolState, SharedLinks};
