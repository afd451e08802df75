//! The log, as its owner has it.

use crate::directory::Directory;
use crate::engine::Engine;
use crate::fault::LogFault;
use crate::gate::Gate;
use crate::load;
use crate::settings::Settings;
use keyway_store::{EffectLog, LogStatus, Store};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The log of a store.
///
/// Legal order: [`Log::open`] before anybody uses the store, [`Log::begin`] if there is nothing to
/// be loaded, [`Log::start`], and [`Log::end`] when nobody writes any more.
pub struct Log {
    gate: Arc<Gate>,
    engine: Option<Engine>,
    thread: Option<JoinHandle<()>>,
}

impl Log {
    /// Opens the directory of a log, which no other process may have. If it has a log, the store
    /// answers LOADING from here on, until the thread has loaded it.
    ///
    /// # Errors
    /// [`LogFault`].
    pub fn open(store: &Arc<Store>, settings: Settings) -> Result<Self, LogFault> {
        let directory = Directory::open(&settings.directory)?;
        let gate = Arc::new(Gate::new(settings.fsync));
        store.set_log(Arc::clone(&gate) as Arc<dyn EffectLog>);
        if directory.manifest().is_some() {
            store.begin_loading(load::len_of(&directory)?, (settings.wall_clock)());
        }
        let engine = Engine::new(Arc::clone(store), settings, directory, Arc::clone(&gate));
        Ok(Self { gate, engine: Some(engine), thread: None })
    }

    /// Returns whether the log has something to be loaded.
    pub fn has_data(&self) -> bool {
        self.engine.as_ref().is_some_and(Engine::has_data)
    }

    /// Begins a log that has nothing to be loaded, with what the store holds, and waits for
    /// its first base. If the store is still being loaded from a snapshot, the thread of the log
    /// does that later.
    ///
    /// # Errors
    /// [`LogFault`].
    pub fn begin(&mut self) -> Result<(), LogFault> {
        match &mut self.engine {
            Some(engine) => engine.begin_now(),
            None => Ok(()),
        }
    }

    /// Starts the thread. It loads the store first, if there is something to be loaded.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub fn start(&mut self) -> io::Result<()> {
        if let Some(engine) = self.engine.take() {
            let thread = std::thread::Builder::new().name("keyway-log".into());
            self.thread = Some(thread.spawn(move || engine.run())?);
        }
        Ok(())
    }

    /// Asks for a new base.
    pub fn ask_compaction(&self) {
        // One that is running, or is to, is as good.
        let _ = self.gate.ask_compaction(true);
    }

    /// Figures.
    pub fn status(&self) -> LogStatus {
        self.gate.status()
    }

    /// Ends the thread behind all that was told, which is on the disk then. Nobody writes any
    /// more.
    pub fn end(&mut self) {
        self.gate.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.end();
    }
}
