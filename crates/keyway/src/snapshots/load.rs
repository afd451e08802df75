//! Loading a store from its file.

use super::Job;
use super::batches::Batches;
use crate::plan::monotonic;
use crate::serve::wall_clock;
use keyway_base::Time;
use keyway_script::{Engine, Policy, Run};
use keyway_store::{LoadBatch, Loading};
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes that are read at once.
const READ_LEN: usize = 1 << 20;
/// How often the log tells how far loading is.
const TOLD_EVERY: Duration = Duration::from_secs(5);

/// Loads the file of a job, if it has one that was not loaded.
///
/// # Errors
/// Why it cannot be loaded, and what to do.
pub(super) fn load(job: &mut Job, is_ending: &AtomicBool) -> Result<(), String> {
    let Some((file, len)) = job.load.take() else { return Ok(()) };
    let path = job.file().display().to_string();
    tracing::info!(pool = job.name, file = path, bytes = len, "loading the snapshot");
    let began = monotonic();
    let mut loader = Loader { job, is_ending, began, told: began, len };
    let (keys, expired) = loader.read(file).map_err(|what| {
        format!(
            "pool.{}.snapshot: cannot load {path}: {what}; nothing was changed in the file: repair \
             or replace it, or move it away to start without its data",
            job.name
        )
    })?;
    job.store.end_loading();
    let took = monotonic().since(began);
    tracing::info!(
        pool = job.name,
        keys,
        expired,
        seconds = took.as_secs_f64(),
        "loaded the snapshot of {keys} keys in {took:.1?}"
    );
    Ok(())
}

struct Loader<'j> {
    job: &'j Job,
    is_ending: &'j AtomicBool,
    began: Time,
    told: Time,
    len: u64,
}

impl Loader<'_> {
    /// Reads the file into the store; keys that were loaded, and those that had expired.
    fn read(&mut self, file: impl Read) -> Result<(u64, u64), String> {
        let mut loading = Loading::new(&self.job.store);
        let batches = Batches::new(&self.job.store);
        std::thread::scope(|scope| {
            batches.start(scope);
            let read = self.read_pieces(file, &mut loading, &batches);
            batches.end();
            read
        })?;
        match batches.failure() {
            Some(failure) => Err(failure.to_string()),
            None => loading.finish().map_err(|error| error.to_string()),
        }
    }

    fn read_pieces(
        &mut self,
        mut file: impl Read,
        loading: &mut Loading,
        batches: &Batches,
    ) -> Result<(), String> {
        let scripts = &self.job.scripts;
        let mut library = |code: &[u8]| {
            let mut engine = Engine::new(Arc::clone(scripts));
            let run = Arc::new(Run::new(true, String::new(), Vec::new(), monotonic()));
            let library = engine.load_library(code, Policy::Append, &run)?;
            scripts.keep_libraries(vec![library], Policy::Append)
        };
        let (mut buffer, mut read) = (vec![0; READ_LEN], 0);
        loop {
            if self.is_ending.load(Ordering::Relaxed) {
                return Err("the process ends".to_owned());
            }
            let count = match file.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.to_string()),
            };
            read += count as u64;
            let mut put = |batch: &mut LoadBatch| batches.put(batch);
            loading
                .feed_batches(&buffer[..count], wall_clock(), &mut library, &mut put)
                .map_err(|error| error.to_string())?;
            self.tell(read);
        }
    }

    /// Tells how far it is, now and then.
    fn tell(&mut self, read: u64) {
        let now = monotonic();
        if now.since(self.told) >= TOLD_EVERY {
            self.told = now;
            let percent = read * 100 / self.len.max(1);
            let status = self.job.store.snapshot_status();
            tracing::info!(
                pool = self.job.name,
                percent,
                keys = status.load_keys,
                seconds = now.since(self.began).as_secs(),
                "loading the snapshot: {percent} %"
            );
        }
    }
}
