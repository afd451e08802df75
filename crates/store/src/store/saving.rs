//! How a store begins and ends a snapshot, and tells about it.

use super::core::Store;
use super::history::HistoryPlace;
use super::locked::Locked;
use super::snapshots::{CUT, FOR_LOG, IDLE, SCHEDULED, SnapshotRefusal, SnapshotStatus, WRITING};
use super::waiters::Waiter;
use keyway_base::Clock;
use keyway_memory::Holder;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

impl Store {
    /// Lets snapshots be made: each may hold up to `buffer_max` bytes of items that change before
    /// they were written. `wake` has somebody call [`Store::take_snapshot`]. `clock` is now.
    /// Nothing happens if it was called before.
    pub fn enable_snapshots(
        &self,
        buffer_max: u64,
        clock: Clock,
        wake: impl Fn() + Send + Sync + 'static,
    ) {
        self.set_snapshot_buffer(buffer_max);
        self.snapshots.saved_at.store(clock.unix_millis() / 1000, Ordering::Relaxed);
        let _ = self.snapshots.wake.set(Box::new(wake));
    }

    /// Changes how many bytes a snapshot may hold.
    pub fn set_snapshot_buffer(&self, buffer_max: u64) {
        self.snapshots.buffer_max.store(buffer_max, Ordering::Relaxed);
    }

    /// Begins a snapshot of this moment, which is `now_millis` since the Unix epoch, or a moment later if the caller is in a transaction or a
    /// script runs. With `schedule` one that is being written is followed by another; whether
    /// that is so.
    ///
    /// # Errors
    /// [`SnapshotRefusal`].
    pub fn begin_snapshot(&self, now_millis: u64, schedule: bool) -> Result<bool, SnapshotRefusal> {
        let snapshots = &self.snapshots;
        if snapshots.wake.get().is_none() {
            return Err(SnapshotRefusal::Off);
        }
        let may_cut = !Holder::is_holding() && !self.has_script();
        // The phase SCHEDULED keeps other threads from beginning a snapshot.
        if !snapshots.advance(IDLE, SCHEDULED) {
            if !schedule {
                return Err(SnapshotRefusal::Running);
            }
            snapshots.again.store(true, Ordering::Relaxed);
            snapshots.wake();
            return Ok(true);
        }
        if may_cut {
            self.make_cut(now_millis);
        }
        snapshots.wake();
        Ok(!may_cut)
    }

    /// As [`Store::begin_snapshot`], with a client that waits for the end.
    ///
    /// # Errors
    /// [`SnapshotRefusal`]: then the client does not wait.
    pub(crate) fn begin_snapshot_for(
        &self,
        waiter: &Arc<Waiter>,
        now_millis: u64,
    ) -> Result<(), SnapshotRefusal> {
        let mut waiting = self.snapshots.waiting.lock();
        self.begin_snapshot(now_millis, false)?;
        waiting.push(Arc::clone(waiter));
        Ok(())
    }

    /// Takes the clients whose snapshot has ended.
    pub(crate) fn take_saved(&self) -> Vec<Arc<Waiter>> {
        std::mem::take(&mut *self.snapshots.saved.lock())
    }

    /// Makes the cut of a snapshot that was scheduled.
    fn make_cut(&self, now_millis: u64) {
        let snapshots = &self.snapshots;
        let mut locked = self.lock_all();
        if snapshots.advance(SCHEDULED, CUT) {
            let buffer_max = snapshots.buffer_max.load(Ordering::Relaxed);
            self.cut(&mut locked, buffer_max, now_millis);
        }
    }

    /// Claims the store's one snapshot for a log; whether no other is being written. The
    /// caller makes the cut by [`Store::cut_for_log`].
    pub(crate) fn claim_for_log(&self) -> bool {
        self.snapshots.advance(IDLE, FOR_LOG)
    }

    /// Notes whether the next snapshot for a follower is meant for one that must not wait behind
    /// others: a replica that is slower than the writes comes back for a snapshot for ever.
    pub fn reserve_snapshot(&self, is_reserved: bool) {
        self.snapshots.is_reserved.store(is_reserved, Ordering::Relaxed);
    }

    /// Returns whether other followers are to wait with their snapshots.
    pub fn is_snapshot_reserved(&self) -> bool {
        self.snapshots.is_reserved.load(Ordering::Relaxed)
    }

    /// Makes the cut of a snapshot that was claimed for a log, with all shards locked.
    pub(crate) fn cut_for_log(&self, locked: &mut Locked<'_>, buffer_max: u64, now_millis: u64) {
        self.cut(locked, buffer_max, now_millis);
    }

    /// Has all shards keep what they hold now for a snapshot.
    fn cut(&self, locked: &mut Locked<'_>, buffer_max: u64, now_millis: u64) {
        let snapshots = &self.snapshots;
        let databases: Vec<u32> = {
            let width = self.quotas.width();
            let count = self.database_count() as usize * width;
            let mut databases = vec![0; count];
            for database in 0..self.database_count() {
                self.space_indices(database).for_each(|index| databases[index] = database);
            }
            databases
        };
        snapshots.queue.open(buffer_max, databases);
        let changes = locked.begin_cut();
        snapshots.cut_changes.store(changes, Ordering::Relaxed);
        *snapshots.cut_place.lock() = self.history.get();
        snapshots.cut_at.store(now_millis, Ordering::Relaxed);
        snapshots.written.store(0, Ordering::Relaxed);
    }

    /// Returns whether there is a snapshot to be written now, which is then the caller's to write.
    pub(crate) fn claim_cut(&self, clock: Clock) -> bool {
        let snapshots = &self.snapshots;
        if snapshots.phase.load(Ordering::Acquire) == IDLE
            && snapshots.again.swap(false, Ordering::Relaxed)
        {
            snapshots.advance(IDLE, SCHEDULED);
        }
        if snapshots.phase.load(Ordering::Acquire) == SCHEDULED {
            self.make_cut(clock.unix_millis());
        }
        snapshots.advance(CUT, WRITING)
    }

    /// Notes how the snapshot that was claimed has ended, and lets another begin.
    pub(crate) fn end_snapshot(&self, outcome: Result<u64, String>, clock: Clock) {
        let snapshots = &self.snapshots;
        if snapshots.phase.load(Ordering::Acquire) == FOR_LOG {
            return self.release_snapshot();
        }
        let cut_at = snapshots.cut_at.load(Ordering::Relaxed);
        let millis = clock.unix_millis().saturating_sub(cut_at);
        snapshots.saved_millis.store(millis as i64, Ordering::Relaxed);
        snapshots.last_failed.store(outcome.is_err(), Ordering::Relaxed);
        match outcome {
            Ok(len) => {
                let changes = snapshots.cut_changes.load(Ordering::Relaxed);
                snapshots.saved_changes.store(changes, Ordering::Relaxed);
                snapshots.saved_at.store(clock.unix_millis() / 1000, Ordering::Relaxed);
                snapshots.saved_len.store(len, Ordering::Relaxed);
                snapshots.saves.fetch_add(1, Ordering::Relaxed);
            }
            Err(failure) => {
                *snapshots.failure.lock() = failure;
                snapshots.failures.fetch_add(1, Ordering::Relaxed);
            }
        }
        // A client that comes from here on waits for another snapshot.
        let mut waiting = std::mem::take(&mut *snapshots.waiting.lock());
        snapshots.saved.lock().append(&mut waiting);
        self.release_snapshot();
    }

    /// Gives up a snapshot that is being written, as all data is about to be replaced. Whoever
    /// writes it notices at its next step; until then [`Store::is_saving`].
    pub fn give_up_snapshot(&self) {
        if self.is_saving() {
            self.snapshots.queue.give_up();
        }
    }

    /// Returns whether a snapshot is being written to a file, and not for the log.
    pub fn is_saving(&self) -> bool {
        matches!(self.snapshots.phase.load(Ordering::Acquire), CUT | WRITING)
    }

    /// Returns whether a snapshot is being written or scheduled, for whomever.
    pub(crate) fn has_snapshot(&self) -> bool {
        self.snapshots.phase.load(Ordering::Relaxed) != IDLE
    }

    /// Lets another snapshot begin.
    fn release_snapshot(&self) {
        let snapshots = &self.snapshots;
        // ORDER: Release pairs with the Acquire in `Snapshots::advance`.
        snapshots.phase.store(IDLE, Ordering::Release);
        if snapshots.again.load(Ordering::Relaxed) {
            snapshots.wake();
        }
    }

    /// Notes bytes that were written.
    pub(crate) fn note_snapshot_written(&self, written: u64) {
        self.snapshots.written.store(written, Ordering::Relaxed);
    }

    /// When the cut was made, in milliseconds since the Unix epoch.
    pub(crate) fn cut_millis(&self) -> u64 {
        self.snapshots.cut_at.load(Ordering::Relaxed)
    }

    /// The place of a replica's data at the cut.
    pub(crate) fn cut_place(&self) -> Option<HistoryPlace> {
        *self.snapshots.cut_place.lock()
    }

    /// Returns whether the store has a file for snapshots.
    pub(crate) fn has_snapshots(&self) -> bool {
        self.snapshots.wake.get().is_some()
    }

    /// Has requests be refused until the store is loaded: a file of so many bytes is read.
    pub fn begin_loading(&self, len: u64, clock: Clock) {
        self.snapshots.load_len.store(len, Ordering::Relaxed);
        self.snapshots.load_began.store(clock.unix_millis() / 1000, Ordering::Relaxed);
        self.gate.set_loading(true);
    }

    /// Notes how many bytes of [`Store::begin_loading`] were read so far, how many keys were
    /// loaded, and how many were left out as they had expired.
    pub fn note_loaded(&self, read: u64, keys: u64, expired: u64) {
        self.snapshots.load_read.store(read, Ordering::Relaxed);
        self.snapshots.load_keys.store(keys, Ordering::Relaxed);
        self.snapshots.load_expired.store(expired, Ordering::Relaxed);
    }

    /// Lets requests be served: all is loaded.
    pub fn end_loading(&self) {
        self.gate.set_loading(false);
    }

    /// Figures about snapshots.
    pub fn snapshot_status(&self) -> SnapshotStatus {
        let snapshots = &self.snapshots;
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let phase = snapshots.phase.load(Ordering::Relaxed);
        SnapshotStatus {
            is_on: snapshots.wake.get().is_some(),
            is_saving: matches!(phase, CUT | WRITING),
            is_scheduled: phase == SCHEDULED || snapshots.again.load(Ordering::Relaxed),
            began: read(&snapshots.cut_at) / 1000,
            written: read(&snapshots.written),
            buffered: snapshots.queue.bytes(),
            buffered_peak: snapshots.queue.peak(),
            saved_at: read(&snapshots.saved_at),
            saved_changes: read(&snapshots.saved_changes),
            saved_len: read(&snapshots.saved_len),
            saved_millis: snapshots.saved_millis.load(Ordering::Relaxed),
            saves: read(&snapshots.saves),
            failures: read(&snapshots.failures),
            last_failed: snapshots.last_failed.load(Ordering::Relaxed),
            failure: snapshots.failure.lock().clone(),
            is_loading: self.is_loading(),
            load_began: read(&snapshots.load_began),
            load_read: read(&snapshots.load_read),
            load_len: read(&snapshots.load_len),
            load_keys: read(&snapshots.load_keys),
            load_expired: read(&snapshots.load_expired),
        }
    }
}
