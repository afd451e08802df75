//! Logs of embedded stores: their wiring.
//!
//! Each log has a thread of its own (`keyway_log`). Here is what it needs of the process: the
//! functions of its pool's scripts, clocks, and whom to tell.

use crate::plan::monotonic;
use crate::reload::Wake;
use crate::serve::wall_clock;
use anyhow::{Result, anyhow};
use keyway_config::{Config, LogFsync, PoolKindConfig, StoreLogConfig};
use keyway_log::{Fsync, Functions, Log, LogState, Notice, Settings};
use keyway_script::{Engine, Policy, Registry, Run};
use keyway_worker::{Plan, PoolKind, repeat_function_command};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// The logs of a process.
pub struct StoreLogs {
    all: Vec<StoreLog>,
    /// The pools whose data, and log if there is one, another process still has.
    awaited: Vec<String>,
    wake: Sender<Wake>,
}

/// The log of a pool.
pub struct StoreLog {
    pool: String,
    has_data: bool,
    log: Log,
}

impl StoreLogs {
    /// Opens the logs of a process that starts, but for those of the pools `awaited`, which another
    /// process still has. Stores that are to be loaded answer LOADING from here on.
    ///
    /// # Errors
    /// A directory, or a file in it, is wrong.
    pub fn prepare(
        plan: &Arc<Plan>,
        config: &Config,
        wake: Sender<Wake>,
        awaited: Vec<String>,
    ) -> Result<Self> {
        let mut logs = Self { all: Vec::new(), awaited, wake };
        logs.all = logs.open(plan, config)?;
        Ok(logs)
    }

    /// Opens the logs of pools that have none yet.
    fn open(&self, plan: &Plan, config: &Config) -> Result<Vec<StoreLog>> {
        let mut opened = Vec::new();
        for (pool, settings) in plan.pools.iter().zip(&config.pools) {
            let (PoolKind::Store(store), PoolKindConfig::Store(of_store)) =
                (&pool.kind, &settings.kind)
            else {
                continue;
            };
            let Some(config) = &of_store.log else { continue };
            if store.log().is_some() || self.awaited.contains(&pool.name) {
                continue;
            }
            let settings = self.settings(&pool.name, config, &pool.scripts);
            let log = Log::open(store, settings)
                .map_err(|fault| anyhow!("pool.{}.log: {fault}", pool.name))?;
            let has_data = log.has_data();
            opened.push(StoreLog { pool: pool.name.clone(), has_data, log });
        }
        Ok(opened)
    }

    fn settings(&self, pool: &str, config: &StoreLogConfig, scripts: &Arc<Registry>) -> Settings {
        let fsync = match config.fsync {
            LogFsync::Always => Fsync::Always,
            LogFsync::EverySecond => Fsync::EverySecond,
            LogFsync::No => Fsync::No,
        };
        let functions = Arc::new(OfPool(Arc::clone(scripts)));
        let teller = Teller { pool: pool.to_owned(), wake: self.wake.clone() };
        Settings {
            effects_room: config.buffer as usize,
            snapshot_buffer: config.buffer,
            monotonic,
            wall_clock,
            notify: Arc::new(move |notice| teller.tell(notice)),
            ..Settings::new(config.dir.clone(), fsync, functions)
        }
    }

    /// Returns whether a pool is loaded from its log, or gets its data from the process before.
    pub fn has_data(&self, pool: &str) -> bool {
        let is_awaited = self.awaited.iter().any(|awaited| awaited == pool);
        is_awaited || self.all.iter().any(|log| log.pool == pool && log.has_data)
    }

    /// Begins the logs that have nothing to be loaded.
    ///
    /// # Errors
    /// The reason why a log cannot be begun.
    pub fn begin(&mut self) -> Result<()> {
        self.all.iter_mut().try_for_each(StoreLog::begin)
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// When the system has no thread for one.
    pub fn start(&mut self) -> io::Result<()> {
        self.all.iter_mut().try_for_each(|log| log.log.start())
    }

    /// The logs of pools that a reload brings, before workers use them.
    ///
    /// # Errors
    /// A log cannot be opened, so the reload is refused.
    pub fn of_new_pools(&self, plan: &Plan, config: &Config) -> Result<Vec<StoreLog>> {
        let mut opened = self.open(plan, config)?;
        for log in &mut opened {
            log.begin()?;
            log.log.start()?;
        }
        Ok(opened)
    }

    /// Keeps the logs of [`StoreLogs::of_new_pools`].
    pub fn adopt(&mut self, logs: Vec<StoreLog>) {
        self.all.extend(logs);
    }

    /// Goes on with the logs that another process has handed on. Their stores hold the data.
    ///
    /// # Errors
    /// A directory, or a file in it, is wrong, or the process before has not ended its log.
    pub fn resume(&mut self, plan: &Plan, config: &Config) -> Result<()> {
        let awaited = std::mem::take(&mut self.awaited);
        for (pool, settings) in plan.pools.iter().zip(&config.pools) {
            let (PoolKind::Store(store), PoolKindConfig::Store(of_store)) =
                (&pool.kind, &settings.kind)
            else {
                continue;
            };
            let Some(config) = of_store.log.as_ref().filter(|_| awaited.contains(&pool.name))
            else {
                continue;
            };
            let settings = self.settings(&pool.name, config, &pool.scripts);
            let log = Log::resume(store, settings)
                .map_err(|fault| anyhow!("pool.{}.log: {fault}", pool.name))?;
            self.all.push(StoreLog { pool: pool.name.clone(), has_data: true, log });
        }
        Ok(())
    }

    /// Returns the pool whose log has failed, or has not begun.
    pub fn not_open(&self) -> Option<&str> {
        let is_open = |log: &&StoreLog| log.log.status().state == LogState::Open;
        self.all.iter().find(|log| !is_open(log)).map(|log| &*log.pool)
    }

    /// Ends all logs so that another process can go on with them. Nobody writes.
    ///
    /// # Errors
    /// Why a log cannot be ended. All logs are as before then.
    pub fn hand_on(&mut self) -> Result<(), String> {
        for at in 0..self.all.len() {
            let (given, rest) = self.all.split_at_mut(at);
            let Some(one) = rest.first_mut() else { return Ok(()) };
            if let Err(fault) = one.log.hand_on() {
                let why = format!("pool.{}.log: {fault}", one.pool);
                given.iter_mut().for_each(StoreLog::take_back);
                return Err(why);
            }
        }
        Ok(())
    }

    /// Goes on with all logs, as the other process does not.
    pub fn take_back(&mut self) {
        self.all.iter_mut().for_each(StoreLog::take_back);
    }

    /// Returns the directory of a pool's log, as text; empty without a log.
    pub fn directory(&self, pool: &str) -> String {
        let log = self.all.iter().find(|log| log.pool == pool);
        log.map(|log| log.log.directory().display().to_string()).unwrap_or_default()
    }

    /// Ends all logs, behind what was written. Returns whether each has all that its pool holds.
    pub fn end(&mut self) -> bool {
        let mut are_whole = true;
        for StoreLog { pool, log, .. } in &mut self.all {
            log.end();
            let status = log.status();
            if status.state == LogState::Lost {
                are_whole = false;
                tracing::error!(
                    target: "keyway::event::store-log-failed",
                    pool,
                    "the process ends without all writes in the log: {}",
                    status.last_fault
                );
            }
        }
        are_whole
    }
}

impl StoreLog {
    fn take_back(&mut self) {
        if let Err(fault) = self.log.take_back() {
            let pool = &*self.pool;
            tracing::error!(
                target: "keyway::event::store-log-failed",
                pool,
                "the log cannot go on: {fault}; writes are refused until Keyway is restarted"
            );
        }
    }

    fn begin(&mut self) -> Result<()> {
        self.log.begin().map_err(|fault| anyhow!("pool.{}.log: {fault}", self.pool))
    }
}

/// The functions of a pool.
struct OfPool(Arc<Registry>);

impl Functions for OfPool {
    fn libraries(&self) -> Vec<Arc<[u8]>> {
        self.0.libraries().iter().map(|library| Arc::clone(&library.code)).collect()
    }

    fn load(&self, code: &[u8]) -> Result<(), String> {
        let run = Arc::new(Run::new(true, String::new(), Vec::new(), monotonic()));
        let library = Engine::new(Arc::clone(&self.0)).load_library(code, Policy::Append, &run)?;
        self.0.keep_libraries(vec![library], Policy::Append)
    }

    fn execute(&self, words: &[&[u8]]) {
        repeat_function_command(&self.0, words, monotonic());
    }
}

/// Tells what happens to a log.
struct Teller {
    pool: String,
    wake: Sender<Wake>,
}

impl Teller {
    fn tell(&self, notice: Notice) {
        let pool = &*self.pool;
        match notice {
            Notice::Loading { percent, keys, commands, took } => tracing::info!(
                pool,
                percent,
                keys,
                commands,
                seconds = took.as_secs(),
                "loading the log: {percent} %"
            ),
            Notice::TornTail { path, cut } => tracing::warn!(
                target: "keyway::event::store-log-cut",
                pool,
                file = %path.display(),
                at = cut.at,
                bytes = cut.len,
                "the log ends in a part of a record, which was cut: the process before was killed, \
                 or the system stopped, while it was written"
            ),
            Notice::Loaded { keys, commands, refused: (refused, first), took } => {
                self.tell_loaded(keys, commands, took);
                if let Some(first) = first {
                    tracing::warn!(
                        pool,
                        refused,
                        "the store has refused commands of its log; the first: {first}"
                    );
                }
            }
            Notice::CannotLoad(fault) => {
                let failed = format!("pool.{pool}.log: cannot load it: {fault}");
                // The main thread may have ended meanwhile.
                let _ = self.wake.send(Wake::Failed(failed));
            }
            Notice::Compacted { base_len, took } => {
                self.tell_base("compacted the log", base_len, took);
            }
            Notice::NotCompacted(fault) => {
                tracing::error!(target: "keyway::event::store-log-not-compacted", pool, "the log is not compacted, and goes on: {fault}");
            }
            Notice::Beginning { refuses: true } => tracing::info!(
                pool,
                "the first base of the log is being written; until it is whole, writes are \
                 refused (-MISCONF)"
            ),
            Notice::Beginning { refuses: false } => tracing::info!(
                pool,
                "the first base of the log is being written; until it is whole, a restart finds \
                 what the snapshot has"
            ),
            Notice::Begun { base_len, took } => {
                self.tell_base("the log has all that the pool holds", base_len, took);
            }
            Notice::Failed { fault, refuses: true } => tracing::error!(
                target: "keyway::event::store-log-failed",
                pool,
                "the log has failed: {fault}; writes are refused until it has begun anew, which it \
                 tries every few seconds"
            ),
            Notice::Failed { fault, refuses: false } => tracing::error!(
                target: "keyway::event::store-log-failed",
                pool,
                "the log has failed: {fault}; writes go on without it until it has begun anew, \
                 which it tries every few seconds"
            ),
            Notice::NotBegun { fault, after } => tracing::error!(
                pool,
                "the log still cannot begin anew: {fault}; the next attempt comes in {after:.1?}"
            ),
            Notice::Replaced { base_len, took } => {
                self.tell_base("the log has the data that replaced the old", base_len, took);
            }
            Notice::Healed => {
                tracing::info!(target: "keyway::event::store-log-begun-anew", pool, "the log has begun anew, and has all that the pool holds");
            }
        }
    }

    fn tell_loaded(&self, keys: u64, commands: u64, took: Duration) {
        tracing::info!(
            pool = &*self.pool,
            keys,
            commands,
            seconds = took.as_secs_f64(),
            "loaded the log: {keys} keys and {commands} commands in {took:.1?}"
        );
    }

    /// Tells that the log has a new base of `base_len` bytes, with what it means in front.
    fn tell_base(&self, what: &str, base_len: u64, took: Duration) {
        tracing::info!(
            pool = &*self.pool,
            bytes = base_len,
            seconds = took.as_secs_f64(),
            "{what}: a base of {base_len} bytes in {took:.1?}"
        );
    }
}
