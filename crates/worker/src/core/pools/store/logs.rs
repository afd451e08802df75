//! Logs of stores: a worker waits for them before it sends replies.

use crate::Plan;
use keyway_store::Store;
use std::sync::Arc;

/// The stores of a worker's pools that have a log.
#[derive(Default)]
pub(crate) struct Logs {
    all: Vec<StoreLog>,
    /// True while replies are sent for which was waited.
    is_settled: bool,
}

struct StoreLog {
    store: Arc<Store>,
    /// How often the log had lost writes when replies were sent last.
    losses: u64,
}

impl Logs {
    /// Uses the pools of another plan.
    pub(in crate::core) fn follow(&mut self, plan: &Plan) {
        let before = std::mem::take(&mut self.all);
        for store in plan.pools.iter().filter_map(|pool| pool.kind.store()) {
            let Some(log) = store.log() else { continue };
            let known = before.iter().find(|known| Arc::ptr_eq(&known.store, store));
            let losses = known.map_or_else(|| log.before_replies(0), |known| known.losses);
            self.all.push(StoreLog { store: Arc::clone(store), losses });
        }
    }

    /// Returns whether there is one.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        !self.all.is_empty()
    }

    /// Waits until no log is so late that nothing more is to be executed.
    #[cold]
    pub(crate) fn await_room(&self) {
        for StoreLog { store, .. } in &self.all {
            if let (true, Some(log)) = (store.effects_are_full(), store.log()) {
                log.await_room(&|| store.effects_are_full());
            }
        }
    }

    /// Waits until replies may be sent that show what was executed so far. Returns false if a
    /// log has lost writes since: nobody knows what of this worker's is in it.
    pub(crate) fn settle(&mut self) -> bool {
        let mut has_lost = false;
        for StoreLog { store, losses } in &mut self.all {
            let Some(log) = store.log() else { continue };
            let now = log.before_replies(store.told());
            has_lost |= std::mem::replace(losses, now) != now;
        }
        !has_lost
    }

    /// Returns whether a log has lost writes since replies were sent last.
    pub(crate) fn have_lost(&mut self) -> bool {
        let mut has_lost = false;
        for StoreLog { store, losses } in &mut self.all {
            let Some(log) = store.log() else { continue };
            let now = log.before_replies(0);
            has_lost |= std::mem::replace(losses, now) != now;
        }
        has_lost
    }

    /// Notes whether replies are sent now for which was waited, and nothing is executed meanwhile.
    #[inline]
    pub(crate) fn set_settled(&mut self, is_settled: bool) {
        self.is_settled = is_settled;
    }

    /// Returns whether replies that are about to be sent are to be waited for.
    #[inline]
    pub(crate) fn are_due(&self) -> bool {
        !self.all.is_empty() && !self.is_settled
    }
}
