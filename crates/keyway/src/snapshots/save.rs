//! Writing a store to its file.

use super::Job;
use super::file::{NewFile, write_failure};
use crate::plan::monotonic;
use crate::serve::wall_clock;
use keyway_base::Time;
use keyway_store::{Progress, Saving};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the thread waits for a script that holds what is next.
const SCRIPT_PATIENCE: Duration = Duration::from_millis(1);
/// How far ahead of its rate a snapshot may be before it rests: more makes it come in bursts.
const AHEAD_MAX: Duration = Duration::from_millis(5);

/// Writes a snapshot that was begun; whether it is in its place. It is given up once `is_ending`.
pub(super) fn save(job: &Job, mut saving: Saving, is_ending: Option<&AtomicBool>) -> bool {
    let path = job.file();
    let began = monotonic();
    match write(job, &mut saving, began, is_ending) {
        Ok(()) => {
            let len = saving.len();
            saving.commit(wall_clock());
            let took = monotonic().since(began);
            tracing::info!(
                pool = job.name,
                file = %path.display(),
                bytes = len,
                seconds = took.as_secs_f64(),
                "saved a snapshot of {len} bytes in {took:.1?}"
            );
        }
        Err(failure) => {
            match is_ending.is_some_and(|is_ending| is_ending.load(Ordering::Relaxed)) {
                true => tracing::info!(pool = job.name, "a snapshot is given up: {failure}"),
                false => tracing::error!(
                    target: "keyway::event::snapshot-failed",
                    pool = job.name,
                    "no snapshot: {failure}"
                ),
            }
            saving.fail(failure, wall_clock());
        }
    }
    job.plan.answer_saved(&job.store);
    !job.store.snapshot_status().last_failed
}

fn write(
    job: &Job,
    saving: &mut Saving,
    began: Time,
    is_ending: Option<&AtomicBool>,
) -> Result<(), String> {
    let failed = |error: std::io::Error| write_failure(job.file(), &error);
    let mut file = NewFile::create(job.file()).map_err(failed)?;
    let libraries = &mut || -> Vec<Arc<[u8]>> {
        job.scripts.libraries().iter().map(|library| Arc::clone(&library.code)).collect()
    };
    let mut pace = Pace { began, bytes_per_second: job.config.rate_max };
    loop {
        if is_ending.is_some_and(|is_ending| is_ending.load(Ordering::Relaxed)) {
            return Err("the process ends".to_owned());
        }
        match saving.next(wall_clock(), libraries).map_err(|error| error.to_string())? {
            Some(Progress::Batch(batch)) => {
                for part in batch.parts() {
                    file.write(part).map_err(failed)?;
                }
            }
            Some(Progress::Wait) => rest(SCRIPT_PATIENCE),
            None => return file.commit().map_err(failed),
        }
        pace.keep(saving.len());
    }
}

/// Longest rest at once. A snapshot that is given up ends behind it.
const REST_MAX: Duration = Duration::from_millis(250);

/// Keeps a snapshot from being written faster than it may be.
struct Pace {
    began: Time,
    bytes_per_second: Option<u64>,
}

impl Pace {
    /// Rests until so many bytes may have been written.
    fn keep(&mut self, written: u64) {
        let Some(rate) = self.bytes_per_second else { return };
        let due = Duration::from_secs_f64(written as f64 / rate.max(1) as f64);
        let ahead = due.saturating_sub(monotonic().since(self.began));
        if ahead > AHEAD_MAX {
            rest(ahead.min(REST_MAX));
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a thread of its own, which may wait")]
fn rest(time: Duration) {
    std::thread::sleep(time);
}
