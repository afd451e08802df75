//! Requests that take several exchanges with servers.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `fan_out` | one request becomes one fragment per server, and its replies one reply |
//! | `multi_step` | a request asks one server after the other, or one server again |
//! | `wait` | WAIT for the replicas of every server |

pub(in crate::core) mod fan_out;
pub(in crate::core) mod multi_step;
pub(in crate::core) mod wait;

use keyway_base::Slab;
use keyway_proxy::{Join, JoinPool};

/// The requests of a worker that take several exchanges.
#[derive(Default)]
pub(crate) struct State {
    pub(in crate::core) joins: Slab<Box<Join>>,
    pub(in crate::core) joins_free: JoinPool,
    pub(in crate::core) fan_out: fan_out::Scratch,
    pub(in crate::core) multi_step: multi_step::State,
}
