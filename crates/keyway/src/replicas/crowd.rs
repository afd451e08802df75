//! The clients of a pool whose store is a replica.

use super::Ask;
use keyway_replica::feed::Parting;
use keyway_standby::Audience;
use keyway_store::Store;
use keyway_worker::Plan;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// How long a store that becomes a replica waits for requests that were begun before. A script may
/// run for longer; its writes are refused.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the first replica waits for requests that were begun before. A write of a script that
/// runs for longer costs the replica its place, and it takes a second snapshot.
const SETTLE_PATIENCE: Duration = Duration::from_millis(250);
/// Failed commands of a stream that are logged, of every so many after the first ones.
const LOGGED_FIRST: u64 = 10;
const LOGGED_EVERY: u64 = 1000;

struct Crowd {
    plan: Arc<Plan>,
    pool: u16,
    /// A worker was asked to tell clients of changes, and has not begun.
    is_asked: Arc<AtomicBool>,
    failed: AtomicU64,
    /// The thread of roles, which answers clients that wait for replicas.
    tell: Sender<Ask>,
    /// Replicas that were cut off because they were slow.
    cut_off: Arc<AtomicU64>,
}

/// The clients of a pool. Its index and what is used of the plan are the same in later versions.
pub(super) fn of(
    plan: &Arc<Plan>,
    pool: u16,
    tell: Sender<Ask>,
    cut_off: Arc<AtomicU64>,
) -> Arc<dyn Audience> {
    let (is_asked, failed) = (Arc::default(), AtomicU64::new(0));
    Arc::new(Crowd { plan: Arc::clone(plan), pool, is_asked, failed, tell, cut_off })
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

    fn acknowledged(&self) {
        // The thread ends with the process.
        let _ = self.tell.send(Ask::Acknowledged);
    }

    fn parted(&self, address: &str, parting: &Parting) {
        let pool = &*self.plan.pools[usize::from(self.pool)].name;
        match parting {
            Parting::TooSlow => {
                self.cut_off.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(pool, replica = address, "a replica is cut off: {parting}");
            }
            Parting::Closed | Parting::Served | Parting::Renamed | Parting::Stopped => {
                tracing::info!(pool, replica = address, "a replica has left: {parting}");
            }
            _ => tracing::warn!(pool, replica = address, "a replica has left: {parting}"),
        }
    }

    fn settle(&self) {
        self.plan.settle(SETTLE_PATIENCE);
    }
}
