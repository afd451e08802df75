//! Counts that INFO shows since CONFIG RESETSTAT. Metrics never go back.

use super::{ProcessFacts, Report};
use keyway_metrics::{CommandTotals, PoolTotals};
use keyway_store::StoreStats;
use parking_lot::RwLock;

/// The counts of a pool at the latest CONFIG RESETSTAT.
#[derive(Default)]
pub(super) struct AtReset(RwLock<Option<Counts>>);

struct Counts {
    pool: PoolTotals,
    commands: Vec<(usize, CommandTotals)>,
    store: Option<StoreStats>,
}

impl AtReset {
    pub(super) fn set(&self, process: &ProcessFacts, index: usize) {
        let store = process.pools[index].store.as_ref().map(|store| (store.read)());
        let registry = &process.registry;
        let (pool, commands) = (registry.pool_totals(index), registry.command_totals(index));
        *self.0.write() = Some(Counts { pool, commands, store });
    }

    /// Returns the pool's counts since the reset. Levels and latencies are unchanged.
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

    fn command(&self, command: usize, mut now: CommandTotals) -> CommandTotals {
        let at_reset = self.0.read();
        let of_command = |counts: &Counts| {
            counts.commands.iter().find(|(at, _)| *at == command).map(|(_, then)| *then)
        };
        if let Some(then) = at_reset.as_ref().and_then(of_command) {
            now.calls = now.calls.saturating_sub(then.calls);
            now.errors = now.errors.saturating_sub(then.errors);
            now.replies = now.replies.saturating_sub(then.replies);
            now.reply_seconds = (now.reply_seconds - then.reply_seconds).max(0.0);
            now.worked_seconds = (now.worked_seconds - then.worked_seconds).max(0.0);
        }
        now
    }

    /// Returns one of the store's counts since the reset.
    pub(super) fn store(&self, now: &StoreStats, read: fn(&StoreStats) -> u64) -> u64 {
        let at_reset = self.0.read();
        let then = at_reset.as_ref().and_then(|counts| counts.store.as_ref());
        read(now).saturating_sub(then.map_or(0, read))
    }
}

impl Report<'_> {
    /// Returns the totals of each command that was called, over all workers, with its name.
    pub(super) fn command_totals(&self) -> impl Iterator<Item = (&'static str, CommandTotals)> {
        let registry = &self.process.registry;
        let names = registry.layout().commands;
        let since =
            |(command, now)| (names[command], self.pool.past.at_reset.command(command, now));
        registry.command_totals(self.index).into_iter().map(since)
    }
}
