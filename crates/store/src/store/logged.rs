//! The log of a store, if it has one.

use super::core::Store;
use super::effect_log::{Compaction, CompactionRefusal, EffectLog, LogStatus};
use keyway_memory::Holder;
use std::sync::Arc;

impl Store {
    /// Gives the store a log, before workers use the store. Nothing happens if it has one.
    pub fn set_log(&self, log: Arc<dyn EffectLog>) {
        self.logged.set(log);
    }

    /// The log of the store, if it has one.
    pub fn log(&self) -> Option<&Arc<dyn EffectLog>> {
        self.logged.get()
    }

    /// Asks the log for a compaction; whether that is scheduled for a moment later.
    ///
    /// # Errors
    /// [`CompactionRefusal`].
    pub(crate) fn begin_compaction(&self) -> Result<bool, CompactionRefusal> {
        let log = self.log().ok_or(CompactionRefusal::Off)?;
        let may_begin = !Holder::is_holding() && !self.has_script() && !self.has_snapshot();
        let state = log.ask_compaction(may_begin).ok_or(CompactionRefusal::Running)?;
        Ok(state == Compaction::Scheduled)
    }

    /// Figures about the log, if the store has one.
    pub fn log_status(&self) -> Option<LogStatus> {
        self.log().map(|log| log.status())
    }
}
