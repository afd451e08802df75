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
///
/// [`Log::hand_on`] ends the thread so that another process can go on with the log, by
/// [`Log::resume`]. Then only [`Log::take_back`] may follow, if that process does not serve.
pub struct Log {
    store: Arc<Store>,
    settings: Settings,
    gate: Arc<Gate>,
    engine: Option<Engine>,
    thread: Option<JoinHandle<Option<Engine>>>,
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
        let engine = Engine::new(Arc::clone(store), settings.clone(), directory, Arc::clone(&gate));
        let (store, engine) = (Arc::clone(store), Some(engine));
        Ok(Self { store, settings, gate, engine, thread: None })
    }

    /// Goes on with a log that another process has handed on, whose data the store holds. Nobody
    /// uses the store yet. No write is taken before [`Log::start`].
    ///
    /// # Errors
    /// [`LogFault`], also if the log was not handed on.
    pub fn resume(store: &Arc<Store>, settings: Settings) -> Result<Self, LogFault> {
        let gate = Arc::new(Gate::new(settings.fsync));
        let store = Arc::clone(store);
        let mut log = Self { store, settings, gate, engine: None, thread: None };
        log.go_on()?;
        log.store.set_log(Arc::clone(&log.gate) as Arc<dyn EffectLog>);
        Ok(log)
    }

    fn go_on(&mut self) -> Result<(), LogFault> {
        let directory = Directory::open(&self.settings.directory)?;
        let (store, gate) = (Arc::clone(&self.store), Arc::clone(&self.gate));
        let mut engine = Engine::new(store, self.settings.clone(), directory, gate);
        engine.go_on()?;
        self.engine = Some(engine);
        Ok(())
    }

    /// Ends the thread behind all that was told, which is on the disk then, and lets another
    /// process have the directory. Nobody writes any more.
    ///
    /// # Errors
    /// [`LogFault`]. The log is as before then.
    pub fn hand_on(&mut self) -> Result<(), LogFault> {
        self.gate.end();
        let engine = self.thread.take().and_then(|thread| thread.join().ok().flatten());
        let mut engine =
            engine.ok_or(LogFault::Lost("the log has not begun, or cannot be loaded"))?;
        let closed = engine.close();
        if closed.is_err() {
            self.gate.begin_again();
            self.engine = Some(engine);
            self.start().map_err(|error| LogFault::NoBase(format!("no thread: {error}")))?;
        } else {
            self.gate.shut();
        }
        closed
    }

    /// Goes on with a log that was handed on to a process that does not serve. Nobody has written
    /// meanwhile.
    ///
    /// # Errors
    /// [`LogFault`]. Writes are refused then, as no file would have them.
    pub fn take_back(&mut self) -> Result<(), LogFault> {
        self.gate.begin_again();
        let taken = self.go_on().and_then(|()| {
            self.start().map_err(|error| LogFault::NoBase(format!("no thread: {error}")))
        });
        if taken.is_err() {
            self.store.refuse_writes(true);
            self.gate.lose();
        }
        taken
    }

    /// The directory of the log.
    pub fn directory(&self) -> &std::path::Path {
        &self.settings.directory
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
