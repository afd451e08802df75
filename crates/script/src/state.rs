//! The state of a running script: its host, its limits, and what it has set so far.

use crate::ends::{End, Run};
use crate::host::Host;
use crate::json_settings::JsonSettings;
use crate::libraries::FunctionInfo;
use crate::raised::{Raised, place_of_script};
use crate::random::Random;
use crate::registry::ScriptLimits;
use crate::scratch::Scratch;
use keyway_base::Time;
use keyway_resp::Protocol;
use mlua::Lua;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Time between two calls of the function for long scripts. If it were longer, new clients would
/// wait longer for another worker. If it were shorter, other workers would wake more often.
const LONG: Duration = Duration::from_millis(5);

/// Largest number of bytes of strings and tables that are created without the memory limit.
const MADE_FREELY_MAX: usize = 4 << 10;

/// Largest number of bytes created for one byte: a table for a reply of five bytes.
const MADE_PER_BYTE: usize = 64;

/// A function that a library has registered.
pub(crate) struct Registered {
    pub(crate) info: FunctionInfo,
    pub(crate) callback: mlua::Function,
}

/// The state of a running script.
pub(crate) struct State {
    host: RefCell<Option<Rc<dyn Host>>>,
    run: RefCell<Option<Arc<Run>>>,
    pub(crate) is_read_only: Cell<bool>,
    /// The protocol that `redis.setresp` has set.
    pub(crate) protocol: Cell<Protocol>,
    deadline: Cell<Time>,
    end: Cell<Option<End>>,
    /// Where the script was when it ended.
    end_place: RefCell<Option<(String, i64)>>,
    pub(crate) scratch: RefCell<Scratch>,
    random: Random,
    json: JsonSettings,
    /// The functions that the library that is being loaded has registered.
    registering: RefCell<Option<Vec<Registered>>>,
    memory_max: usize,
    /// When others are told that the script runs for long, unless they were told.
    busy_at: Cell<Time>,
    /// Time of the next such call.
    long_at: Cell<Time>,
    on_long: Rc<dyn Fn()>,
    /// Time from then to its deadline.
    busy_for: Duration,
    clock: fn() -> Time,
}

impl State {
    pub(crate) fn new(limits: &ScriptLimits, clock: fn() -> Time, on_long: Rc<dyn Fn()>) -> Self {
        Self {
            host: RefCell::new(None),
            run: RefCell::new(None),
            is_read_only: Cell::new(false),
            protocol: Cell::new(Protocol::Resp2),
            deadline: Cell::new(Time(u64::MAX)),
            end: Cell::new(None),
            end_place: RefCell::new(None),
            scratch: RefCell::new(Scratch::default()),
            random: Random::new(),
            json: JsonSettings::default(),
            registering: RefCell::new(None),
            memory_max: limits.memory_max,
            busy_at: Cell::new(Time(u64::MAX)),
            long_at: Cell::new(Time(u64::MAX)),
            on_long,
            busy_for: limits.time_max.saturating_sub(limits.busy_after),
            clock,
        }
    }

    /// Begins a run that must be over at `deadline`.
    pub(crate) fn begin(
        &self,
        host: Rc<dyn Host>,
        (run, deadline): (&Arc<Run>, Time),
        is_read_only: bool,
    ) {
        self.deadline.set(deadline);
        let busy_for = u64::try_from(self.busy_for.as_nanos()).unwrap_or(u64::MAX);
        self.busy_at.set(Time(deadline.0.saturating_sub(busy_for)));
        self.long_at.set((self.clock)() + LONG);
        *self.host.borrow_mut() = Some(host);
        *self.run.borrow_mut() = Some(Arc::clone(run));
        self.is_read_only.set(is_read_only);
        self.protocol.set(Protocol::Resp2);
        self.end.set(None);
        *self.end_place.borrow_mut() = None;
        self.json.reset();
    }

    /// Begins to load a library, which has no access to the host.
    pub(crate) fn begin_loading(&self, (run, deadline): (&Arc<Run>, Time)) {
        self.deadline.set(deadline);
        self.busy_at.set(Time(u64::MAX));
        self.long_at.set((self.clock)() + LONG);
        *self.run.borrow_mut() = Some(Arc::clone(run));
        self.end.set(None);
        *self.end_place.borrow_mut() = None;
        *self.registering.borrow_mut() = Some(Vec::new());
        self.json.reset();
    }

    pub(crate) fn registering(&self) -> &RefCell<Option<Vec<Registered>>> {
        &self.registering
    }

    pub(crate) fn json(&self) -> &JsonSettings {
        &self.json
    }

    pub(crate) fn random(&self) -> &Random {
        &self.random
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> Time {
        (self.clock)()
    }

    pub(crate) fn memory_max(&self) -> usize {
        self.memory_max
    }

    /// Calls `work`, which creates strings and tables, and nothing else, from `len` bytes. While
    /// there is a memory limit, Lua is guarded each time by a new function, which takes longer than
    /// the string. So for short ones the limit is lifted. It applies again to everything that Lua
    /// allocates next.
    pub(crate) fn make<R>(
        &self,
        lua: &Lua,
        len: usize,
        work: impl FnOnce() -> mlua::Result<R>,
    ) -> mlua::Result<R> {
        let fits = lua.used_memory() + MADE_PER_BYTE * len < self.memory_max;
        if len > MADE_FREELY_MAX || !fits {
            return work();
        }
        lua.set_memory_limit(0)?;
        let made = work();
        lua.set_memory_limit(self.memory_max)?;
        made
    }

    pub(crate) fn finish(&self) {
        *self.host.borrow_mut() = None;
        *self.run.borrow_mut() = None;
        self.deadline.set(Time(u64::MAX));
    }

    pub(crate) fn host(&self) -> Option<Rc<dyn Host>> {
        self.host.borrow().clone()
    }

    pub(crate) fn run(&self) -> Option<Arc<Run>> {
        self.run.borrow().clone()
    }

    pub(crate) fn end(&self) -> Option<End> {
        self.end.get()
    }

    pub(crate) fn end_place(&self) -> Option<(String, i64)> {
        self.end_place.borrow_mut().take()
    }

    /// Ends the script. The error is raised again wherever it is caught.
    pub(crate) fn end_now(&self, lua: &Lua, end: End) -> mlua::Error {
        if self.end.get().is_none() {
            self.end.set(Some(end));
            *self.end_place.borrow_mut() = place_of_script(lua, 0);
        }
        mlua::Error::external(Raised::End)
    }

    /// Returns whether the script has run for too long.
    pub(crate) fn is_late(&self) -> bool {
        (self.clock)() > self.deadline.get()
    }

    /// Ends the script if its time is up.
    pub(crate) fn check_end(&self, lua: &Lua) -> mlua::Result<()> {
        if self.end.get().is_some() {
            return Err(mlua::Error::external(Raised::End));
        }
        let is_killed = self.run.borrow().as_ref().is_some_and(|run| run.is_killed());
        if is_killed {
            return Err(self.end_now(lua, End::Killed));
        }
        let now = (self.clock)();
        if now > self.busy_at.get() {
            self.busy_at.set(Time(u64::MAX));
            if let Some(host) = self.host() {
                host.note_busy();
            }
        }
        if now > self.long_at.get() {
            self.long_at.set(now + LONG);
            (self.on_long)();
        }
        if now > self.deadline.get() {
            return Err(self.end_now(lua, End::Time));
        }
        Ok(())
    }
}
