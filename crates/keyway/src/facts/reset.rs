//! What INFO counts since CONFIG RESETSTAT; metrics never go back.

use super::{ProcessFacts, Report};
use keyway_metrics::{ClassTotals, PoolTotals};
use keyway_store::StoreStats;
use parking_lot::RwLock;

/// The counts of a pool at the latest CONFIG RESETSTAT.
#[derive(Default)]
pub(super) struct AtReset(RwLock<Option<Counts>>);

struct Counts {
    pool: PoolTotals,
    classes: Vec<ClassTotals>,
    store: Option<StoreStats>,
}

impl AtReset {
    pub(super) fn set(&self, process: &ProcessFacts, index: usize) {
        let store = process.pools[index].store.as_ref().map(|store| (store.read)());
        let registry = &process.registry;
        let (pool, classes) = (registry.pool_totals(index), registry.class_totals(index));
        *self.0.write() = Some(Counts { pool, classes: classes.into_iter().collect(), store });
    }

    /// The pool's counts since then; levels and latencies are left as they are.
    pub(super) fn pool(&self, mut now: PoolTotals) -> PoolTotals {
        if let Some(Counts { pool: then, .. }) = &*self.0.read() {
            now.requests = now.requests.saturating_sub(then.requests);
            now.errors = now.errors.saturating_sub(then.errors);
            now.refused = now.refused.saturating_sub(then.refused);
            now.clients_accepted = now.clients_accepted.saturating_sub(then.clients_accepted);
            now.received_bytes = now.received_bytes.saturating_sub(then.received_bytes);
            now.sent_bytes = now.sent_bytes.saturating_sub(then.sent_bytes);
        }
        now
    }

    fn class(&self, class: usize, mut now: ClassTotals) -> ClassTotals {
        let at_reset = self.0.read();
        let then = at_reset.as_ref().and_then(|counts| counts.classes.get(class));
        if let Some(then) = then {
            now.requests = now.requests.saturating_sub(then.requests);
            now.errors = now.errors.saturating_sub(then.errors);
            now.error_replies = now.error_replies.saturating_sub(then.error_replies);
            now.replies = now.replies.saturating_sub(then.replies);
            now.reply_seconds = (now.reply_seconds - then.reply_seconds).max(0.0);
            now.worked_seconds = (now.worked_seconds - then.worked_seconds).max(0.0);
        }
        now
    }

    /// A count of the store's since then.
    pub(super) fn store(&self, now: &StoreStats, read: fn(&StoreStats) -> u64) -> u64 {
        let at_reset = self.0.read();
        let then = at_reset.as_ref().and_then(|counts| counts.store.as_ref());
        read(now).saturating_sub(then.map_or(0, read))
    }
}

impl Report<'_> {
    /// What all workers did for each class of commands, with its name.
    pub(super) fn class_totals(&self) -> impl Iterator<Item = (&'static str, ClassTotals)> {
        let registry = &self.process.registry;
        let since = |(class, now)| self.pool.past.at_reset.class(class, now);
        let totals = registry.class_totals(self.index).into_iter().enumerate().map(since);
        registry.layout().classes.iter().copied().zip(totals)
    }
}
