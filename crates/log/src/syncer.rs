//! A thread that puts files onto the disk while the thread of the log goes on writing.
//!
//! A call of fsync may take a second on a busy disk. What is written meanwhile is with the system,
//! and outlives a process that is killed.

use parking_lot::{Condvar, Mutex};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A file whose bytes are to be on the disk.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) file: Arc<File>,
    /// The offset of the stream behind what was written until the job was given.
    pub(crate) offset: u64,
}

/// The thread, with at most one job.
#[derive(Default)]
pub(crate) struct Syncer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// A job was given whose outcome was not taken.
    is_busy: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The thread waits here for a job, and the thread of the log for an outcome.
    has_changed: Condvar,
}

#[derive(Default)]
struct State {
    job: Option<Job>,
    outcome: Option<(Job, io::Result<()>)>,
    is_over: bool,
}

impl Syncer {
    /// Returns whether a job was given whose outcome was not taken.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Gives a job to the thread, which has none. Returns false if the system has no thread.
    pub(crate) fn give(&mut self, job: Job) -> bool {
        if self.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("keyway-log-sync".into());
            self.thread = thread.spawn(move || shared.run()).ok();
        }
        if self.thread.is_none() {
            return false;
        }
        self.shared.state.lock().job = Some(job);
        self.shared.has_changed.notify_all();
        self.is_busy = true;
        true
    }

    /// The outcome of the job, once there is one.
    pub(crate) fn take(&mut self) -> Option<(Job, io::Result<()>)> {
        if !self.is_busy {
            return None;
        }
        let outcome = self.shared.state.lock().outcome.take();
        self.is_busy = outcome.is_none();
        outcome
    }

    /// Waits for the outcome of the job, if there is a job.
    pub(crate) fn wait(&mut self) -> Option<(Job, io::Result<()>)> {
        if !std::mem::take(&mut self.is_busy) {
            return None;
        }
        let mut state = self.shared.state.lock();
        loop {
            if let Some(outcome) = state.outcome.take() {
                return Some(outcome);
            }
            self.shared.has_changed.wait(&mut state);
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        self.shared.has_changed.notify_all();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn run(&self) {
        let mut state = self.state.lock();
        while !state.is_over {
            let Some(job) = state.job.take() else {
                self.has_changed.wait(&mut state);
                continue;
            };
            drop(state);
            let synced = job.file.sync_data();
            state = self.state.lock();
            state.outcome = Some((job, synced));
            self.has_changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::SegmentHead;
    use crate::writer::Writer;
    use keyway_testkit::TempDir;

    #[test]
    fn what_is_written_behind_a_job_is_not_on_the_disk_with_it() {
        let folder = TempDir::new();
        let head = SegmentHead { id: 1, number: 1, offset: 100 };
        let mut writer = Writer::create(folder.path().join("log.1"), head).unwrap();
        let mut other = Writer::create(folder.path().join("log.2"), head).unwrap();
        let mut syncer = Syncer::default();
        assert!(syncer.take().is_none() && syncer.wait().is_none());
        for round in 1..=20u64 {
            writer.units().bytes().extend_from_slice(&[7; 50]);
            writer.write().unwrap();
            let job = writer.job();
            assert!(syncer.give(job) && syncer.is_busy());
            writer.units().bytes().extend_from_slice(&[8; 30]);
            writer.write().unwrap();
            let outcome = syncer.wait().unwrap();
            assert!(!syncer.is_busy());
            assert_eq!(outcome.0.offset, 100 + 80 * (round - 1) + 50);
            // An outcome for another file says nothing.
            other.units().bytes().extend_from_slice(b"units");
            other.write().unwrap();
            let before = other.unsynced_len();
            other.note_synced((outcome.0.clone(), Ok(()))).unwrap();
            assert_eq!(other.unsynced_len(), before);
            writer.note_synced(outcome).unwrap();
            assert_eq!(writer.unsynced_len(), 30);
        }
        let failed = (writer.job(), Err(io::Error::other("no disk")));
        assert!(writer.note_synced(failed).is_err());
    }
}
