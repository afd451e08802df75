//! Bases: snapshots at a cut of the effects, written by a thread of their own.

use crate::disk;
use crate::fault::LogFault;
use crate::settings::{Functions, Settings};
use keyway_base::Clock;
use keyway_store::{Progress, Saving};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the thread waits for a script that holds what is next.
const SCRIPT_PATIENCE: Duration = Duration::from_millis(1);
/// Bytes that are gathered before they are written.
const GATHERED_LEN: usize = 1 << 20;
/// Bytes after which the system is told to put them on the disk. With more, the fsync of a record
/// waits for all of them.
const SYNC_EVERY: u64 = 4 << 20;

/// A base that is being written.
pub(crate) struct NewBase {
    thread: Option<JoinHandle<Result<u64, LogFault>>>,
    is_over: Arc<AtomicBool>,
}

impl NewBase {
    /// Begins to write a base.
    pub(crate) fn begin(
        path: PathBuf,
        mut saving: Saving,
        settings: &Settings,
    ) -> Result<Self, LogFault> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (told, clock) = (Arc::clone(&is_over), settings.wall_clock);
        let functions = Arc::clone(&settings.functions);
        let thread = std::thread::Builder::new().name("keyway-log-base".into());
        let spawned = thread.spawn(move || {
            let written = write(&path, &mut saving, clock, &*functions, &told);
            match &written {
                Ok(_) => saving.commit(clock()),
                Err(fault) => saving.fail(fault.to_string(), clock()),
            }
            written
        });
        let thread = spawned.map_err(|error| LogFault::NoBase(format!("no thread: {error}")))?;
        Ok(Self { thread: Some(thread), is_over })
    }

    /// Returns whether there is an outcome.
    pub(crate) fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// The length of the base once it is on the disk whole, or why there is none.
    pub(crate) fn outcome(&mut self) -> Option<Result<u64, LogFault>> {
        let thread = self.thread.take_if(|thread| thread.is_finished())?;
        let ended = thread.join();
        Some(ended.unwrap_or_else(|_| Err(LogFault::NoBase("its thread has failed".to_owned()))))
    }
}

impl Drop for NewBase {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Its result is of no use any more.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn write(
    path: &Path,
    saving: &mut Saving,
    clock: fn() -> Clock,
    functions: &dyn Functions,
    is_over: &AtomicBool,
) -> Result<u64, LogFault> {
    let failed = |error| LogFault::io("write", path, error);
    let mut file: BufWriter<File> = BufWriter::with_capacity(GATHERED_LEN, disk::create(path)?);
    let mut synced = 0;
    let libraries = &mut || functions.libraries();
    while !is_over.load(Ordering::Relaxed) {
        let next = saving.next(clock(), libraries);
        match next.map_err(|error| LogFault::NoBase(error.to_string()))? {
            Some(Progress::Batch(batch)) => {
                for part in batch.parts() {
                    file.write_all(part).map_err(failed)?;
                }
            }
            Some(Progress::Wait) => std::thread::park_timeout(SCRIPT_PATIENCE),
            None => {
                let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
                file.sync_all().map_err(failed)?;
                return Ok(saving.len());
            }
        }
        if saving.len() - synced >= SYNC_EVERY {
            file.flush().and_then(|()| file.get_ref().sync_data()).map_err(failed)?;
            synced = saving.len();
        }
    }
    Err(LogFault::Ends)
}
