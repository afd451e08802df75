//! The allowed fates of keys that are asked through a pool that leads to others.

use super::{Circumstances, Ledger};
use crate::network::Nanos;
use keyway_topology::{Pool, PoolKind, RoutedPool};

/// Where requests to a pool that leads to others go.
#[derive(Clone, Debug)]
pub struct Reach {
    pool: RoutedPool,
    /// All pools, to follow those that lead further.
    pools: Vec<Pool>,
}

impl Reach {
    /// Returns the reach of a pool, if it leads to others.
    pub fn of(pool: &Pool, pools: &[Pool]) -> Option<Reach> {
        match &pool.kind {
            PoolKind::Routed(routed) => Some(Reach { pool: routed.clone(), pools: pools.to_vec() }),
            _ => None,
        }
    }

    /// Returns the pools with servers that may answer for a key.
    fn leaves(&self, key: &[u8]) -> Vec<usize> {
        let mut leaves = Vec::new();
        self.follow(&self.pool, key, &mut leaves);
        leaves
    }

    fn follow(&self, pool: &RoutedPool, key: &[u8], leaves: &mut Vec<usize>) {
        let children = match pool {
            RoutedPool::Prefix(prefix) => prefix.pick(key).into_iter().collect(),
            RoutedPool::Shadow(shadow) => vec![shadow.main],
            others => others.children(),
        };
        for child in children.into_iter().map(usize::from) {
            match &self.pools[child].kind {
                PoolKind::Routed(routed) => self.follow(routed, key, leaves),
                _ => leaves.push(child),
            }
        }
    }

    /// Returns whether a child may answer a request that another child has not executed.
    fn goes_on(&self) -> bool {
        let of_pool = |&child: &u16| match &self.pools[usize::from(child)].kind {
            PoolKind::Routed(routed) => {
                Reach { pool: routed.clone(), pools: self.pools.clone() }.goes_on()
            }
            _ => false,
        };
        matches!(self.pool, RoutedPool::Failover(_))
            || self.asks_all()
            || self.pool.children().iter().any(of_pool)
    }

    /// Returns whether some children may execute a request while others report that they did not.
    fn asks_all(&self) -> bool {
        matches!(self.pool, RoutedPool::Mirror(_) | RoutedPool::MissThen(_))
    }
}

impl Ledger {
    /// Sets which pools each pool leads to.
    pub fn know_reaches(&mut self, reaches: Vec<Option<Reach>>) {
        self.reaches = reaches;
    }

    fn reach(&self, pool: usize) -> Option<&Reach> {
        self.reaches.get(pool)?.as_ref()
    }

    /// Returns a bit for each pool whose replies no client gets.
    pub(super) fn shadows(&self) -> u8 {
        let shadow = |reach: &Reach| match &reach.pool {
            RoutedPool::Shadow(shadow) => Some(1 << shadow.shadow),
            _ => None,
        };
        self.reaches.iter().flatten().filter_map(shadow).fold(0, |all, one: u8| all | one)
    }

    /// Returns whether a child of a pool that this one leads to may answer a request that another
    /// child has not executed.
    fn goes_on(&self, pool: usize) -> bool {
        self.reach(pool).is_some_and(Reach::goes_on)
    }

    /// Returns whether an error of this pool says nothing of what some of its children did.
    pub fn is_told_by_one_of_many(&self, pool: usize) -> bool {
        self.reach(pool).is_some_and(Reach::asks_all)
    }

    /// Returns whether a server of any pool that may hold the key has failed so far. A request to
    /// one server of such a pool waits behind the client's request to another server. It outlives
    /// the connection that sent it.
    pub fn had_troubles(&self, pool: usize, key: &[u8]) -> bool {
        let leaves = self.reach(pool).map_or_else(|| vec![pool], |reach| reach.leaves(key));
        leaves.into_iter().any(|leaf| self.is_excused(&self.servers_of(leaf), 0, self.now))
    }

    /// Returns whether requests to this pool are led to others.
    pub fn is_routed(&self, pool: usize) -> bool {
        self.reach(pool).is_some()
    }

    /// Returns everything that could excuse a difference. While any server that may have the key
    /// fails, that is everything. In a pool that goes on, it is also so while a client waits for a
    /// reply `since` such a time.
    pub(super) fn routed_circumstances(
        &self,
        pool: usize,
        key: &[u8],
        since: Option<Nanos>,
    ) -> Option<Circumstances> {
        let leaves = self.reach(pool)?.leaves(key);
        let since = since.filter(|_| self.goes_on(pool)).unwrap_or(self.now);
        let mut all = Circumstances { epoch: 0, losses: 0, stragglers: 0 };
        all.stragglers = self.stragglers.get(key).copied().unwrap_or(0);
        for leaf in leaves {
            all.losses += self.pools[leaf].as_ref().map_or(0, |known| known.losses);
            // A request may use up its time behind the client's request to another server of the
            // pool. Another child answers it then.
            let homes = match self.goes_on(pool) {
                true => self.servers_of(leaf),
                false => self.own_homes(leaf, key),
            };
            let troubles = homes.iter().flat_map(|&server| &self.troubles[server]);
            for &(from, until) in troubles {
                if from <= self.now && since <= until {
                    self.uncertain.set(self.uncertain.get() + 1);
                    all.epoch = self.uncertain.get() << 32;
                    return Some(all);
                }
                all.epoch += u64::from(until < self.now);
            }
        }
        Some(all)
    }

    /// Returns whether a request for these keys may have failed between two times: every pool that
    /// had to answer has a failed server.
    pub fn is_excused_for(&self, pool: usize, keys: &[Vec<u8>], from: Nanos, until: Nanos) -> bool {
        let may_fail =
            |leaf: usize, key: &[u8]| self.is_excused(&self.possible_homes(leaf, key), from, until);
        let Some(reach) = self.reach(pool) else {
            return keys.iter().any(|key| may_fail(pool, key));
        };
        let fails_everywhere =
            |key: &Vec<u8>| reach.leaves(key).into_iter().all(|leaf| may_fail(leaf, key));
        match &reach.pool {
            // The keys of the failed server continue by themselves, or each on its own path.
            RoutedPool::Failover(_) | RoutedPool::Prefix(_) => keys.iter().any(fails_everywhere),
            _ => {
                let Some(first) = keys.first() else { return false };
                let mut leaves = reach.leaves(first).into_iter();
                leaves.all(|leaf| keys.iter().any(|key| may_fail(leaf, key)))
            }
        }
    }

    /// Returns the pools that hold the same data for this one, once everything is at rest.
    pub fn mirrored(&self, pool: usize) -> Option<Vec<usize>> {
        let reach = self.reach(pool)?;
        match &reach.pool {
            RoutedPool::Mirror(mirror) => {
                let children = mirror.children.iter().map(|&child| usize::from(child));
                Some(children.filter(|&child| self.pools[child].is_some()).collect())
            }
            _ => None,
        }
    }
}
