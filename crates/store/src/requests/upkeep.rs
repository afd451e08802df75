//! Upkeep of the whole store, cut into steps.

use crate::store::{Context, NO_WORKER, Store, Turn};
use keyway_base::Clock;
use keyway_memory::nodes;
use keyway_resp::Protocol;
use std::sync::atomic::Ordering;

/// Calls of [`Store::tick`] in which every shard is looked at once. At ten a
/// second, that and a wheel's whole seconds keep within two.
const TICKS_PER_ROUND: usize = 5;
/// Items a tick may touch: a tenth of a millisecond of work, some more when none is
/// in a cache.
const TICK_STEPS: u32 = 600;
/// Empty pages whose memory a tick returns to the system.
const TICK_PAGES: usize = 4;

impl Store {
    /// Does upkeep in bounded time: frees items that expired and memory of flushed databases. Any
    /// worker calls it about every 100 ms. If several workers call it, they share the work. Returns
    /// whether there is more to do at once. The worker should then call again after its next turn,
    /// because a call reclaims no more than some thousand items.
    ///
    /// Nothing is done while the store is loaded: what expires or is evicted then would be
    /// missing in its log. Nothing is done either while the store is held.
    #[must_use = "there may be more to do at once"]
    pub fn tick(&self, clock: Clock) -> bool {
        if self.is_loading() || self.is_held() {
            return false;
        }
        let (now_millis, protocol) = (clock.unix_millis(), Protocol::default());
        let context = Context { database: 0, clock, protocol, worker: NO_WORKER };
        // No time passes for a replica: nothing is due but what was flushed.
        let turn = match self.is_replica() {
            true => Turn::of_effect(context),
            false => Turn::of(context),
        };
        self.check_mortal(turn);
        if !self.has_script() {
            self.events.resume();
            if self.flush_is_due(turn) {
                self.flush_due(turn);
            }
        }
        let second = (turn.now_millis / 1000) as u32;
        let mut steps = TICK_STEPS;
        self.measure(now_millis);
        // Pages of nodes are all stores': one that heeds no others makes no haste for them.
        let shared = nodes::heap().release_pages(TICK_PAGES) && self.config().heeds_resident;
        let more = self.heap.release_pages(TICK_PAGES) | shared;
        if self.free_discarded(&mut steps) && steps == 0 {
            return true;
        }
        let count = self.shard_count().div_ceil(TICKS_PER_ROUND);
        for _ in 0..count {
            let index = self.next_to_tidy();
            if self.due_of(index).load(Ordering::Relaxed) <= second
                && let Some(mut shard) = self.try_shard(index)
            {
                self.tidy(&mut shard, index, turn, &mut steps);
            }
            if steps == 0 {
                return true;
            }
        }
        self.compact_in_upkeep() || more
    }

    /// Looks at the streams that are due: those that have expired go, which makes
    /// them ready for who waits.
    fn check_mortal(&self, turn: Turn) {
        // Upkeep waits for no script: they stay due.
        if self.has_script() {
            return;
        }
        for (database, key) in self.waiters.mortal.take_due(turn.now_millis) {
            let turn = Turn { database, ..turn };
            let mut locked = self.lock_keys(std::iter::once(&*key));
            let expiry = locked.entry(turn, &key).peek().and_then(|facts| facts.expiry());
            self.waiters.expect_end(database, &key, expiry);
        }
    }
}
