//! The number of copies of a large request on its way.

use crate::model::{Config, PoolKindConfig};
use keyway_topology::{DEPTH_MAX, RoutedPool};

impl Config {
    /// Returns the largest number of copies of a request that is kept until it is whole: one as it
    /// was received, and one for the server. A pool that leads to others has one more, and the
    /// copies of every child that it may ask. A reply has as many.
    pub(crate) fn copies(&self) -> u64 {
        let mut copies = vec![2_u64; self.pools.len()];
        for _ in 0..DEPTH_MAX {
            for (index, pool) in self.pools.iter().enumerate() {
                let PoolKindConfig::Routed(routed) = &pool.kind else { continue };
                let children = routed.pool.children();
                let of_child = children.iter().map(|&child| copies[usize::from(child)]);
                let behind = match &routed.pool {
                    RoutedPool::Prefix(_) | RoutedPool::RateLimited(_) => of_child.max(),
                    _ => Some(of_child.fold(0, u64::saturating_add)),
                };
                copies[index] = behind.unwrap_or(0).saturating_add(1);
            }
        }
        copies.into_iter().max().unwrap_or(0)
    }
}
