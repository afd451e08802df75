//! The end of a retired pool waits for requests that may still come to it through another pool.

use crate::core::Plane;
use crate::core::pools::routed::state::routes_of;
use keyway_proxy::route_policy::RoutedRequest;

impl Plane {
    /// Returns whether requests may still come to a retired pool through another. Either a pool
    /// leads to it that has not ended in this worker, or a request in flight names it. Its index
    /// must not be given to another pool until then.
    #[cold]
    pub(in crate::core) fn is_led_to(&self, pool: u16) -> bool {
        let leads = |other: u16| {
            let routes = routes_of(&self.plan, other);
            routes.is_some_and(|routes| routes.pool.children().contains(&pool))
        };
        let mut others = 0..self.plan.pools.len() as u16;
        others.any(|other| !self.ended.contains(&other) && leads(other)) || self.names(pool)
    }

    /// Returns whether a request in flight, or a waiting question, names a pool. Routed requests
    /// name the pool that leads them, which ends after them.
    fn names(&self, pool: u16) -> bool {
        self.pending.all::<RoutedRequest>().any(|(to, _)| to.pool == pool)
            || self.routes.copies.iter().any(|copy| copy.names(pool))
            || self.routes.queues.unsent().any(|purpose| purpose.names(pool))
    }
}
