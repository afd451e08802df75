//! The replies of a store with a memory bound.

use super::*;
use crate::scenario::Bound;

/// A store may refuse a write only when it has counted at least this percentage of its bound.
const FULL_PERCENT: u64 = 60;

/// A store with a memory bound.
#[derive(Clone, Copy)]
pub(super) struct BoundedStore {
    bound: Bound,
    /// The largest amount that it has counted.
    most: u64,
}

impl Ledger {
    /// Sets the bound of a store.
    pub fn know_bound(&mut self, bound: Option<Bound>) {
        self.bounded = bound.map(|bound| BoundedStore { bound, most: 0 });
    }

    fn bounded(&self, pool: usize) -> Option<&BoundedStore> {
        self.bounded.as_ref().filter(|bounded| bounded.bound.pool == pool)
    }

    /// Returns whether the memory of a pool's store is bounded.
    pub fn is_bounded(&self, pool: usize) -> bool {
        self.bounded(pool).is_some()
    }

    /// Notes that the store counts `counted` bytes.
    pub fn on_memory(&mut self, counted: u64) {
        let Some(BoundedStore { bound, most }) = &mut self.bounded else { return };
        *most = counted.max(*most);
        let (allowed, bound) = (bound.most(), *bound);
        if counted > allowed {
            self.fail(|| {
                format!("a store counts {counted} bytes, at most {allowed} allowed by {bound:?}")
            });
        }
    }

    /// Returns the largest amount that the store has counted, in percent of its bound.
    pub fn filled_percent(&self) -> u64 {
        self.bounded.as_ref().map_or(0, |it| it.most * 100 / it.bound.memory_max)
    }

    /// Returns whether a key may have been evicted to make room for others.
    pub fn may_be_gone(&self, pool: usize, key: &[u8]) -> bool {
        self.bounded(pool).is_some_and(|BoundedStore { bound, .. }| {
            bound.may_all_go() || (bound.may_expiring_go() && key.starts_with(b"y"))
        })
    }

    /// Returns whether every key may be evicted.
    pub fn may_all_go(&self, pool: usize) -> bool {
        self.bounded(pool).is_some_and(|bounded| bounded.bound.may_all_go())
    }

    /// Returns whether a store reports that it has no room, and is allowed to. Then it has done
    /// nothing.
    pub fn is_for_room(&self, pool: usize, text: &str) -> bool {
        let is_said = text.starts_with("OOM command not allowed when used memory > 'maxmemory'")
            || text.starts_with("ERR out of memory storing object");
        is_said && self.bounded(pool).is_some() && self.filled_percent() >= FULL_PERCENT
    }
}
