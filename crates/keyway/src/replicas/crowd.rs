//! The clients of a pool whose store is a replica.

use keyway_standby::Audience;
use keyway_store::Store;
use keyway_worker::Plan;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long a store that becomes a replica waits for requests that were begun before. A script may
/// run for longer; its writes are refused.
const PATIENCE: Duration = Duration::from_secs(1);
/// Failed commands of a stream that are logged, of every so many after the first ones.
const LOGGED_FIRST: u64 = 10;
const LOGGED_EVERY: u64 = 1000;

struct Crowd {
    plan: Arc<Plan>,
    pool: u16,
    /// A worker was asked to tell clients of changes, and has not begun.
    is_asked: Arc<AtomicBool>,
    failed: AtomicU64,
}

/// The clients of a pool. Its index and what is used of the plan are the same in later versions.
pub(super) fn of(plan: &Arc<Plan>, pool: u16) -> Arc<dyn Audience> {
    let (is_asked, failed) = (Arc::default(), AtomicU64::new(0));
    Arc::new(Crowd { plan: Arc::clone(plan), pool, is_asked, failed })
}

impl Audience for Crowd {
    fn changed(&self) {
        self.plan.post_changed(self.pool, &self.is_asked);
    }

    fn publish(&self, is_sharded: bool, channel: &[u8], message: &[u8]) {
        self.plan.publish(self.pool, is_sharded, channel, message);
    }

    fn failed(&self, command: &str, error: &str) {
        let count = self.failed.fetch_add(1, Ordering::Relaxed) + 1;
        if count <= LOGGED_FIRST || count.is_multiple_of(LOGGED_EVERY) {
            let pool = &*self.plan.pools[usize::from(self.pool)].name;
            tracing::warn!(
                pool,
                command,
                count,
                "a command of the primary failed in the replica, which goes on: {error}"
            );
        }
    }

    fn became_replica(&self, store: &Store) {
        self.plan.settle_replica(store, PATIENCE);
    }
}
