//! How many copies there are of a large request on its way.

use crate::model::{Config, PoolKindConfig};
use keyway_topology::{DEPTH_MAX, RoutedPool};

impl Config {
    /// How often a request that is kept until it is whole is there on its way, at most: as it came,
    /// and where it is sent. A pool that leads to others has one more, and those of every child
    /// that it may ask. As often the reply is there.
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
