//! Snapshots of embedded stores: the files, and the thread that writes and loads them.
//!
//! ```text
//!  start:  the file is opened ─► LOADING ─► loaded by the thread ─► served
//!  BGSAVE, SAVE, `every`, the end of the process ─► the thread ─► FILE.PID.tmp ─► FILE
//! ```
//! The store has the snapshot as bytes (`keyway_store::Saving`), and takes it as bytes
//! (`keyway_store::Loading`). There is one thread for all pools: snapshots are written one after
//! the other.

mod batches;
mod file;
mod load;
mod save;

use crate::plan::monotonic;
use crate::reload::Wake;
use crate::serve::wall_clock;
use crate::store_logs::StoreLogs;
use anyhow::{Result, anyhow};
use keyway_base::Time;
use keyway_config::{Config, PoolKindConfig, SnapshotConfig};
use keyway_store::Store;
use keyway_worker::{Plan, PoolKind};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest time after a snapshot that failed to the next by `every`. Less fills the log while a disk
/// is full, more leaves the data unsaved for longer once it is not.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// How far the thread stands back for those that serve clients, once nothing is loaded. More makes a
/// snapshot take far longer on a busy machine.
const NICENESS: i32 = 10;

/// A message to the thread.
enum Ask {
    /// A store has a snapshot to be written.
    Look,
    /// A pool has come.
    Pool(Box<Job>),
    /// The process ends. With `saves` snapshots are made first; the answer is false if one failed.
    End { saves: bool, tell: Sender<bool> },
}

/// A pool whose store has snapshots.
struct Job {
    name: String,
    store: Arc<Store>,
    plan: Arc<Plan>,
    scripts: Arc<keyway_script::Registry>,
    config: SnapshotConfig,
    /// The file to be loaded, and its length.
    load: Option<(File, u64)>,
    /// When the next one by `every` is due.
    due: Option<Time>,
    /// The file could not be loaded: it is not to be overwritten.
    is_off: bool,
    /// The pool came by a reload: if its file cannot be loaded, the other pools are served on.
    is_late: bool,
}

/// The snapshots of a process.
pub struct Snapshots {
    tell: Sender<Ask>,
    asked: Option<Receiver<Ask>>,
    jobs: Vec<Job>,
    /// Names of the pools that are looked after.
    known: Vec<String>,
    is_ending: Arc<AtomicBool>,
    wake: Sender<Wake>,
    thread: Option<JoinHandle<()>>,
}

impl Snapshots {
    /// Opens the files of a process that starts. Their stores answer LOADING from here on.
    ///
    /// # Errors
    /// The error says what is wrong with a file or its directory.
    /// A store with a log is not loaded from a snapshot.
    pub fn prepare(
        plan: &Arc<Plan>,
        config: &Config,
        wake: Sender<Wake>,
        logs: &StoreLogs,
    ) -> Result<Self> {
        let (tell, asked) = channel();
        let mut snapshots = Self {
            tell,
            asked: Some(asked),
            jobs: Vec::new(),
            known: Vec::new(),
            is_ending: Arc::default(),
            wake,
            thread: None,
        };
        snapshots.jobs = snapshots.new_jobs(plan, config, logs)?;
        Ok(snapshots)
    }

    /// The pools of a configuration that are not looked after yet.
    fn new_jobs(
        &mut self,
        plan: &Arc<Plan>,
        config: &Config,
        logs: &StoreLogs,
    ) -> Result<Vec<Job>> {
        let mut jobs = Vec::new();
        for (pool, settings) in plan.pools.iter().zip(&config.pools) {
            let (PoolKind::Store(store), PoolKindConfig::Store(of_store)) =
                (&pool.kind, &settings.kind)
            else {
                continue;
            };
            let Some(config) = &of_store.snapshot else { continue };
            if self.known.contains(&pool.name) {
                continue;
            }
            let load = file::open(&config.file)
                .map_err(|error| anyhow!("pool.{}.snapshot: {error}", pool.name))?;
            let load = load.filter(|_| !logs.has_data(&pool.name));
            let clock = wall_clock();
            if let Some((_, len)) = load {
                store.begin_loading(len, clock);
            }
            let tell = self.tell.clone();
            // Where the thread has ended, the process does.
            store.enable_snapshots(config.buffer, clock, move || _ = tell.send(Ask::Look));
            self.known.push(pool.name.clone());
            jobs.push(Job {
                name: pool.name.clone(),
                store: Arc::clone(store),
                plan: Arc::clone(plan),
                scripts: Arc::clone(&pool.scripts),
                config: config.clone(),
                load,
                due: config.every.map(|every| monotonic() + every),
                is_off: false,
                is_late: self.asked.is_none(),
            });
        }
        Ok(jobs)
    }

    /// Loads all files now, before anybody is served.
    ///
    /// # Errors
    /// Why a file cannot be loaded.
    pub fn load_now(&mut self) -> Result<()> {
        for job in &mut self.jobs {
            load::load(job, &self.is_ending).map_err(|error| anyhow!("{error}"))?;
        }
        Ok(())
    }

    /// Starts the thread, if there is anything to do for it.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub fn start(&mut self) -> io::Result<()> {
        if self.jobs.is_empty() {
            return Ok(());
        }
        let jobs = std::mem::take(&mut self.jobs);
        let Some(asked) = self.asked.take() else {
            jobs.into_iter().for_each(|job| _ = self.tell.send(Ask::Pool(Box::new(job))));
            return Ok(());
        };
        let (is_ending, wake) = (Arc::clone(&self.is_ending), self.wake.clone());
        let worker = Worker { asked, jobs, is_ending, wake };
        let thread = std::thread::Builder::new().name("keyway-snapshots".into());
        self.thread = Some(thread.spawn(move || worker.run())?);
        Ok(())
    }

    /// Looks after pools that a reload has brought. A file that cannot be opened is told and left
    /// alone.
    pub fn follow(&mut self, plan: &Arc<Plan>, config: &Config, logs: &StoreLogs) {
        let started = self.new_jobs(plan, config, logs).and_then(|jobs| {
            self.jobs = jobs;
            Ok(self.start()?)
        });
        if let Err(error) = started {
            tracing::error!("no snapshots of new pools: {error:#}");
        }
    }

    /// Ends the thread; with `saves` behind the snapshots that are to be made at the end. Returns
    /// false if one of these failed.
    pub fn end(&mut self, saves: bool) -> bool {
        self.is_ending.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return true };
        let (tell, told) = channel();
        let asked = self.tell.send(Ask::End { saves, tell });
        // An error says that the thread has gone before, and saved nothing.
        let are_saved = asked.is_ok() && told.recv().unwrap_or(false);
        let _ = thread.join();
        are_saved || !saves
    }
}

/// The thread.
struct Worker {
    asked: Receiver<Ask>,
    jobs: Vec<Job>,
    is_ending: Arc<AtomicBool>,
    wake: Sender<Wake>,
}

impl Worker {
    fn run(mut self) {
        self.load();
        // From here on clients are served meanwhile. A failure leaves the thread as it is.
        let _ = rustix::process::nice(NICENESS);
        loop {
            self.load();
            self.begin_due();
            self.save();
            let ask = match self.next_due() {
                Some(due) => self.asked.recv_timeout(due.since(monotonic())),
                None => self.asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match ask {
                Ok(Ask::Look) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Ask::Pool(job)) => self.jobs.push(*job),
                Ok(Ask::End { saves, tell }) => {
                    let are_saved = !saves || self.save_at_end();
                    // The thread that asked may have ended.
                    let _ = tell.send(are_saved);
                    return;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Loads the files that are to be loaded. A file of the start that cannot be loaded ends the
    /// process.
    fn load(&mut self) {
        for job in &mut self.jobs {
            if let Err(error) = load::load(job, &self.is_ending) {
                job.is_off = true;
                if job.is_late {
                    tracing::error!("{error}; the pool answers LOADING until then");
                } else if !self.is_ending.load(Ordering::Relaxed) {
                    // The main thread may have ended meanwhile.
                    let _ = self.wake.send(Wake::Failed(error));
                }
            }
        }
    }

    fn next_due(&self) -> Option<Time> {
        self.jobs.iter().filter(|job| !job.is_off).filter_map(|job| job.due).min()
    }

    /// Begins the snapshots that are due, of stores that have changed.
    fn begin_due(&mut self) {
        let now = monotonic();
        for job in self.jobs.iter_mut().filter(|job| !job.is_off) {
            let Some(every) = job.config.every else { continue };
            if job.due.is_none_or(|due| due > now) {
                continue;
            }
            job.due = Some(now + every);
            // A part of a primary's snapshot is nothing to keep.
            if job.has_changed() && !job.store.is_loading() {
                // While the base of a log is written, it follows that.
                let _ = job.store.begin_snapshot(wall_clock().unix_millis(), true);
            }
        }
    }

    /// Writes the snapshots that were begun.
    fn save(&mut self) {
        for job in self.jobs.iter_mut().filter(|job| !job.is_off) {
            while let Some(saving) = job.store.take_snapshot(wall_clock()) {
                let is_ok = save::save(job, saving, Some(&self.is_ending));
                if let (false, Some(every)) = (is_ok, job.config.every) {
                    job.due = Some(monotonic() + every.min(RETRY_AFTER_MAX));
                }
            }
        }
    }

    /// Writes the snapshots of the end. Nobody changes the stores any more. Returns false if one
    /// failed.
    fn save_at_end(&mut self) -> bool {
        let mut are_saved = true;
        for job in self.jobs.iter().filter(|job| !job.is_off && job.config.on_shutdown) {
            if !job.has_changed() || job.store.is_loading() {
                continue;
            }
            tracing::info!(pool = job.name, "saving a snapshot before the end");
            let _ = job.store.begin_snapshot(wall_clock().unix_millis(), false);
            let is_saved = match job.store.take_snapshot(wall_clock()) {
                Some(saving) => save::save(job, saving, None),
                None if job.store.log().is_some() => {
                    tracing::info!(
                        pool = job.name,
                        "no snapshot before the end: the base of the log is being written, and \
                         the next start loads the log"
                    );
                    true
                }
                None => {
                    tracing::error!(
                        target: "keyway::event::snapshot-failed",
                        pool = job.name,
                        "no snapshot: another one of the pool has not ended"
                    );
                    false
                }
            };
            if !is_saved {
                are_saved = false;
                tracing::error!(
                    pool = job.name,
                    file = %job.file().display(),
                    "the process ends without a snapshot of what has changed; the file has the \
                     data of the snapshot before, if there was one"
                );
            }
        }
        are_saved
    }
}

impl Job {
    /// Returns whether a key has changed since the last snapshot, or there is none.
    fn has_changed(&self) -> bool {
        let status = self.store.snapshot_status();
        self.store.stats().changes != status.saved_changes || !self.config.file.exists()
    }

    fn file(&self) -> &Path {
        &self.config.file
    }
}
