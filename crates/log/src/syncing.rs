//! When what was written is put onto the disk, and by which thread.
//!
//! With [`Fsync::Always`] workers wait, and the thread of the log calls fsync itself. Otherwise
//! another thread does, and writing goes on. Where files change, all of a segment has to be on the
//! disk: most of it is put there by the other thread first, so that writing waits for little.

use crate::engine::Engine;
use crate::fault::LogFault;
use crate::settings::Fsync;
use crate::syncer::Syncer;
use keyway_base::Time;
use std::time::Duration;

/// How long a write may stay off the disk with [`Fsync::EverySecond`].
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Bytes off the disk for which writing may wait. With more it waits for longer, with less a busy
/// writer is never near enough.
const NEAR_LEN: u64 = 2 << 20;
/// How often the other thread tries to come near. On a disk that is slower than the writers,
/// writing waits after that.
const TRIES: u32 = 4;

/// The state of fsync.
#[derive(Default)]
pub(crate) struct Syncing {
    syncer: Syncer,
    /// When the job of the other thread began.
    began: Time,
    /// Jobs that were given to come near.
    tries: u32,
}

impl Engine {
    /// Begins to put what was written onto the disk if that is due, and takes the outcome.
    pub(crate) fn sync_due(&mut self) -> Result<(), LogFault> {
        self.take_outcome()?;
        let Some(following) = &self.following else { return Ok(()) };
        let Some(since) = following.unsynced_since else { return Ok(()) };
        match self.settings.fsync {
            Fsync::Always => self.sync(),
            Fsync::EverySecond if self.now().since(since) >= SYNC_EVERY => self.begin_sync(),
            Fsync::EverySecond | Fsync::No => Ok(()),
        }
    }

    /// Puts all that was written onto the disk. Nothing is written meanwhile.
    pub(crate) fn sync(&mut self) -> Result<(), LogFault> {
        // An error of the system may be told to the other thread alone.
        let outcome = self.syncing.syncer.wait();
        self.note_outcome(outcome)?;
        let began = self.now();
        let Some(following) = &mut self.following else { return Ok(()) };
        if following.writer.is_unsynced() {
            following.writer.sync()?;
            self.count_sync(began);
        }
        if let Some(following) = &mut self.following {
            following.unsynced_since = None;
        }
        Ok(())
    }

    /// Returns whether so little is off the disk that writing may wait for it. If not, the other
    /// thread is at work.
    pub(crate) fn is_nearly_synced(&mut self) -> Result<bool, LogFault> {
        self.take_outcome()?;
        let Some(following) = &self.following else { return Ok(true) };
        let is_near = following.writer.unsynced_len() <= NEAR_LEN;
        let is_waited_for = self.settings.fsync == Fsync::Always;
        if self.syncing.syncer.is_busy() {
            return Ok(false);
        }
        if is_near || is_waited_for || self.syncing.tries >= TRIES {
            self.syncing.tries = 0;
            return Ok(true);
        }
        self.syncing.tries += 1;
        self.begin_sync()?;
        Ok(false)
    }

    /// Lets the other thread put what was written onto the disk, unless it is at work.
    fn begin_sync(&mut self) -> Result<(), LogFault> {
        let began = self.now();
        let Some(following) = &mut self.following else { return Ok(()) };
        if self.syncing.syncer.is_busy() {
            return Ok(());
        }
        if !self.syncing.syncer.give(following.writer.job()) {
            return self.sync();
        }
        // What is written from here on is not in the job.
        following.unsynced_since = None;
        self.syncing.began = began;
        Ok(())
    }

    fn take_outcome(&mut self) -> Result<(), LogFault> {
        let outcome = self.syncing.syncer.take();
        self.note_outcome(outcome)
    }

    fn note_outcome(
        &mut self,
        outcome: Option<(crate::syncer::Job, std::io::Result<()>)>,
    ) -> Result<(), LogFault> {
        let (Some(outcome), Some(following)) = (outcome, &mut self.following) else {
            return Ok(());
        };
        following.writer.note_synced(outcome)?;
        self.count_sync(self.syncing.began);
        Ok(())
    }

    fn count_sync(&self, began: Time) {
        let micros = self.now().since(began).as_micros() as u64;
        let mut status = self.gate.status_mut();
        status.fsyncs += 1;
        status.fsync_micros += micros;
        status.fsync_micros_max = status.fsync_micros_max.max(micros);
    }
}
