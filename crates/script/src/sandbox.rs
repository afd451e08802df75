//! The Lua state of a worker, and the functions of the host in it.

use crate::call::{Failure, Scratch, call_or_raise, call_or_tell, error_table};
use crate::ends::{End, Run};
use crate::functions::{Registered, register};
use crate::host::Host;
use crate::modules::JsonSettings;
use crate::random::{self, Random};
use crate::registry::ScriptLimits;
use keyway_base::Time;
use keyway_resp::Protocol;
use mlua::chunk::ChunkMode;
use mlua::{HookTriggers, Lua, LuaOptions, StdLib, Table, Value, Variadic, VmState};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Instructions between two looks at the clock. More let a script pass its
/// time by more where each takes long, such as joining long strings; fewer
/// slow every script down.
const INSTRUCTIONS_PER_LOOK: u32 = 128;

/// Time between two calls that tell that a script goes on. With a longer time, new clients wait
/// longer for another worker. A shorter one wakes other workers more often.
const LONG: Duration = Duration::from_millis(5);

/// Most bytes that strings and tables are made of without the bound on memory.
const MADE_FREELY_MAX: usize = 4 << 10;
/// Bytes that what is made of one takes at most: a table for a reply of five.
const MADE_PER_BYTE: usize = 64;
/// The name of the prelude's chunk, which no message is to show.
const PRELUDE: &str = "=keyway";

/// What a script runs with, and how it stands.
pub(crate) struct State {
    host: RefCell<Option<Rc<dyn Host>>>,
    run: RefCell<Option<Arc<Run>>>,
    pub(crate) is_read_only: Cell<bool>,
    /// What `redis.setresp` has set.
    pub(crate) protocol: Cell<Protocol>,
    deadline: Cell<Time>,
    end: Cell<Option<End>>,
    /// Where the script was when it came to its end.
    end_place: RefCell<Option<(String, i64)>>,
    pub(crate) scratch: RefCell<Scratch>,
    random: Random,
    json: JsonSettings,
    /// What the library that is being loaded has registered.
    registering: RefCell<Option<Vec<Registered>>>,
    memory_max: usize,
    /// When others are to be told that it runs for long, unless they were.
    busy_at: Cell<Time>,
    /// Time of the next such call.
    long_at: Cell<Time>,
    on_long: Rc<dyn Fn()>,
    /// How long after that it is over.
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

    /// Begins a run that is to be over at `deadline`.
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

    /// Begins to load a library, which reaches nothing.
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

    pub(crate) fn memory_max(&self) -> usize {
        self.memory_max
    }

    /// Has `work` make strings and tables, and nothing else, out of `len` bytes. While
    /// there is a bound on memory, Lua is guarded each time by a function made for it,
    /// which takes longer than the string: for what is short the bound is lifted, and
    /// whatever Lua takes next meets it again.
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

    /// Ends the script: the error is raised again wherever it is caught.
    pub(crate) fn end_now(&self, lua: &Lua, end: End) -> mlua::Error {
        if self.end.get().is_none() {
            self.end.set(Some(end));
            *self.end_place.borrow_mut() = place_of_script(lua, 0);
        }
        mlua::Error::external(Raised::End)
    }

    /// Whether the script has run for too long.
    pub(crate) fn is_late(&self) -> bool {
        (self.clock)() > self.deadline.get()
    }

    /// Ends the script if it is time to.
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

/// An error that the host raises in a script.
#[derive(Debug, Clone)]
pub(crate) enum Raised {
    /// A message.
    Text(String),
    /// What `redis.call` raises.
    Table(Failure),
    /// The script is at its end.
    End,
}

impl std::fmt::Display for Raised {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => formatter.write_str(text),
            Self::Table(failure) => formatter.write_str(&String::from_utf8_lossy(&failure.text)),
            Self::End => formatter.write_str("the script was ended"),
        }
    }
}

impl std::error::Error for Raised {}

impl Raised {
    /// The error of `redis.call`.
    pub(crate) fn table(failure: Failure) -> mlua::Error {
        mlua::Error::external(Self::Table(failure))
    }

    /// An error with the place of the function that called the host, as Lua's
    /// own functions raise it.
    pub(crate) fn text(lua: &Lua, text: &str) -> mlua::Error {
        mlua::Error::external(Self::Text(format!("{}{text}", prefix_of_caller(lua))))
    }

    /// One without.
    pub(crate) fn bare(text: impl Into<String>) -> mlua::Error {
        mlua::Error::external(Self::Text(text.into()))
    }
}

/// A place in a chunk, as Redis names it: `@user_script` and the line.
fn place_at(lua: &Lua, level: usize) -> Option<(String, i64)> {
    lua.inspect_stack(level, |debug| {
        let source = debug.source().source.map(|source| source.into_owned()).unwrap_or_default();
        (source, debug.current_line().map_or(-1, |line| line as i64))
    })
}

/// Where the script is, from `level` on outwards: the prelude is no part of it.
pub(crate) fn place_of_script(lua: &Lua, level: usize) -> Option<(String, i64)> {
    (level..).map_while(|level| place_at(lua, level)).find(|(source, line)| {
        *line > 0 && source != PRELUDE && !source.starts_with("=[C]") && !source.is_empty()
    })
}

/// What stands before the message of an error that a script's line raises.
fn prefix_of(lua: &Lua, level: usize) -> String {
    let prefix = lua.inspect_stack(level, |debug| {
        let source = debug.source();
        let is_prelude = source.source.as_deref() == Some(PRELUDE);
        let line = debug.current_line().filter(|_| !is_prelude)?;
        Some(format!("{}:{line}: ", source.short_src.as_deref().unwrap_or("?")))
    });
    prefix.flatten().unwrap_or_default()
}

/// The same of the function that called the host, or the prelude.
fn prefix_of_caller(lua: &Lua) -> String {
    let is_between = |level: usize| {
        place_at(lua, level)
            .is_some_and(|(source, _)| source == PRELUDE || source == "=(tail call)")
    };
    let level = (1..).find(|level| !is_between(*level)).unwrap_or(1);
    prefix_of(lua, level)
}

/// The message without the place in the prelude at its beginning.
fn without_prelude(text: &[u8]) -> Option<&[u8]> {
    let rest = text.strip_prefix(b"keyway:")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    rest[digits..].strip_prefix(b": ")
}

const OUT_OF_MEMORY: &[u8] = b"not enough memory";

/// Whether memory is what was wanting, in a function of the host's or elsewhere.
pub(crate) fn is_out_of_memory(error: &mlua::Error) -> bool {
    match error {
        mlua::Error::MemoryError(_) => true,
        mlua::Error::CallbackError { cause, .. } | mlua::Error::WithContext { cause, .. } => {
            is_out_of_memory(cause)
        }
        _ => false,
    }
}

/// What an error is to a script that catches it.
fn caught(state: &State, lua: &Lua, error: Value) -> mlua::Result<Value> {
    if state.end().is_some() {
        return Err(mlua::Error::external(Raised::End));
    }
    match error {
        Value::Error(error) => match error.downcast_ref::<Raised>() {
            Some(Raised::Text(text)) => Ok(Value::String(lua.create_string(text)?)),
            Some(Raised::Table(failure)) => Ok(Value::Table(error_table(lua, failure)?)),
            Some(Raised::End) => Err(state.end_now(lua, End::Time)),
            None if is_out_of_memory(&error) => Err(state.end_now(lua, End::Memory)),
            None => {
                // What the host's own functions say of their arguments; the
                // rest is a trace.
                let text = error.to_string();
                Ok(Value::String(lua.create_string(text.lines().next().unwrap_or_default())?))
            }
        },
        Value::String(text) => {
            if text.as_bytes() == OUT_OF_MEMORY {
                return Err(state.end_now(lua, End::Memory));
            }
            let plain = without_prelude(&text.as_bytes()).map(|text| lua.create_string(text));
            Ok(Value::String(plain.transpose()?.unwrap_or(text)))
        }
        other => Ok(other),
    }
}

/// What Lua says of values that have no order, whether a script's own line
/// compares them or `table.sort` does: in Redis, without a place for the latter.
const NO_ORDER: &[u8] = b"attempt to compare ";

/// What is known of an error that a script did not catch, as a table.
fn uncaught(state: &State, lua: &Lua, error: Value) -> mlua::Result<Value> {
    let place = place_of_script(lua, 1);
    let with_prefix = |text: &[u8]| match (without_prelude(text), &place) {
        // Lua's function was called by the prelude on behalf of the script.
        (Some(text), _) if text.starts_with(NO_ORDER) => text.to_vec(),
        (Some(text), Some((source, line))) => {
            let source = source.trim_start_matches(['@', '=']);
            [format!("{source}:{line}: ").as_bytes(), text].concat()
        }
        _ => text.to_vec(),
    };
    let error = match error {
        Value::String(text) if text.as_bytes() != OUT_OF_MEMORY => {
            Value::String(lua.create_string(with_prefix(&text.as_bytes()))?)
        }
        other => other,
    };
    let table = match caught(state, lua, error)? {
        Value::Table(table) => table,
        other => {
            let text = match &other {
                Value::String(text) => text.as_bytes().to_vec(),
                other => other.to_string()?.into_bytes(),
            };
            let table = lua.create_table()?;
            table.raw_set("err", lua.create_string([b"ERR ", &text[..]].concat())?)?;
            table
        }
    };
    if let Some((source, line)) = place {
        // Of the script's own tables none is one that must not change.
        table.raw_set("source", source)?;
        table.raw_set("line", line)?;
    }
    Ok(Value::Table(table))
}

/// The prelude's functions that the engine calls.
pub(crate) struct Prelude {
    /// Runs a script under the handler of errors.
    pub(crate) run: mlua::Function,
    /// Calls a function with keys and arguments.
    pub(crate) call: mlua::Function,
    /// What stands for the globals of libraries.
    pub(crate) of_functions: Table,
    /// Switches the globals of a library that is being loaded on and off.
    pub(crate) show_loading: mlua::Function,
    /// What stands for the globals of scripts, and they themselves.
    pub(crate) globals: Table,
    pub(crate) all: Table,
}

/// Makes a state with everything that scripts see.
pub(crate) fn make(state: &Rc<State>) -> mlua::Result<(Lua, Prelude)> {
    let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
    let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
    let made: Table = lua
        .load(include_str!("prelude.lua"))
        .set_name(PRELUDE)
        .set_mode(ChunkMode::Text)
        .call(host_table(state, &lua)?)?;
    let globals: mlua::Function = made.get("globals")?;
    let (proxy, all): (Table, Table) = globals.call(redis_table(state, &lua)?)?;
    let of_libraries: mlua::Function = made.get("of_libraries")?;
    let libraries = (redis_table(state, &lua)?, loading_table(state, &lua)?);
    let (of_functions, show_loading): (Table, mlua::Function) = of_libraries.call(libraries)?;
    let (run, call) = (made.get("run")?, made.get("call")?);
    let prelude = Prelude { run, call, of_functions, show_loading, globals: proxy, all };
    let compile = compile_function(&lua, &prelude)?;
    let host: Table = made.get("host")?;
    host.raw_set("compile", compile)?;
    lua.set_memory_limit(state.memory_max)?;
    let looking = Rc::clone(state);
    let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS_PER_LOOK);
    lua.set_global_hook(triggers, move |lua, _| {
        looking.check_end(lua)?;
        Ok(VmState::Continue)
    })?;
    Ok((lua, prelude))
}

/// The library `redis` for libraries that are being loaded, as Redis has it there.
fn loading_table(state: &Rc<State>, lua: &Lua) -> mlua::Result<Table> {
    let (all, shown) = (redis_table(state, lua)?, lua.create_table()?);
    let levels = ["LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"];
    for name in ["log", "REDIS_VERSION", "REDIS_VERSION_NUM"].into_iter().chain(levels) {
        shown.set(name, all.get::<Value>(name)?)?;
    }
    shown.set("register_function", register(state, lua)?)?;
    Ok(shown)
}

/// `loadstring`: text alone, with the globals of scripts.
fn compile_function(lua: &Lua, prelude: &Prelude) -> mlua::Result<mlua::Function> {
    let globals = prelude.globals.clone();
    lua.create_function(move |lua, (text, name): (mlua::LuaString, Option<mlua::LuaString>)| {
        // What compiles does not keep the name from being collected meanwhile.
        let name = name.unwrap_or_else(|| text.clone());
        let shown: String = name.to_string_lossy().chars().take_while(|it| *it != '\0').collect();
        let anchor = lua.create_string(&shown)?;
        let text = text.as_bytes();
        if text.first() == Some(&0x1b) {
            let message = lua.create_string("bytecode is refused: text alone is compiled")?;
            return Ok((Value::Nil, Value::String(message)));
        }
        let chunk = lua.load(&text[..]).set_name(shown).set_mode(ChunkMode::Text);
        let function = chunk.set_environment(globals.clone()).into_function();
        drop(anchor);
        match function {
            Ok(function) => Ok((Value::Function(function), Value::Nil)),
            Err(mlua::Error::SyntaxError { message, .. }) => {
                Ok((Value::Nil, Value::String(lua.create_string(message)?)))
            }
            Err(error) => Err(error),
        }
    })
}

/// What the prelude is given.
fn host_table(state: &Rc<State>, lua: &Lua) -> mlua::Result<Table> {
    let host = lua.create_table()?;
    let own = Rc::clone(state);
    host.set("caught", lua.create_function(move |lua, error: Value| caught(&own, lua, error))?)?;
    let own = Rc::clone(state);
    host.set(
        "on_error",
        lua.create_function(move |lua, error: Value| uncaught(&own, lua, error))?,
    )?;
    let own = Rc::clone(state);
    host.set("check_end", lua.create_function(move |lua, (): ()| own.check_end(lua))?)?;
    const FROZEN: &str = "Attempt to modify a readonly table";
    let frozen = |lua: &Lua, _: Variadic<Value>| Err::<(), _>(Raised::text(lua, FROZEN));
    host.set("frozen", lua.create_function(frozen)?)?;
    let frozen = |_: &Lua, (): ()| Err::<(), _>(Raised::bare(FROZEN));
    host.set("frozen_raw", lua.create_function(frozen)?)?;
    let fail = |lua: &Lua, text: String| {
        let place = place_of_script(lua, 1);
        let prefix = place.map_or_else(String::new, |(source, line)| {
            format!("{}:{line}: ", source.trim_start_matches(['@', '=']))
        });
        Err::<(), _>(Raised::bare(prefix + &text))
    };
    host.set("fail", lua.create_function(fail)?)?;
    let missing = |lua: &Lua, (_, name): (Value, Value)| {
        let name = match name {
            Value::String(name) => name.to_string_lossy(),
            other => other.to_string().unwrap_or_default(),
        };
        let text = format!("Script attempted to access nonexistent global variable '{name}'");
        Err::<(), _>(Raised::text(lua, &text))
    };
    host.set("missing", lua.create_function(missing)?)?;
    host.set("collectgarbage", collectgarbage(state, lua)?)?;
    host.set("strings", strings_table(state, lua)?)?;
    host.set("math", math_table(state, lua)?)?;
    host.set("libraries", libraries_table(state, lua)?)?;
    Ok(host)
}

/// Garbage is collected as always, whatever a script says: only the figures are
/// told, and a whole collection may be asked for.
fn collectgarbage(state: &Rc<State>, lua: &Lua) -> mlua::Result<mlua::Function> {
    let state = Rc::clone(state);
    lua.create_function(move |lua, option: Option<String>| {
        state.check_end(lua)?;
        match option.as_deref() {
            Some("count") => Ok(Value::Number(lua.used_memory() as f64 / 1024.0)),
            None | Some("collect" | "restart" | "stop") => Ok(Value::Number(0.0)),
            Some("step") => Ok(Value::Boolean(false)),
            Some("setpause" | "setstepmul") => Ok(Value::Number(200.0)),
            Some(other) => {
                let text =
                    format!("bad argument #1 to 'collectgarbage' (invalid option '{other}')");
                Err(Raised::text(lua, &text))
            }
        }
    })
}

/// Functions of `string` that Lua has not, or not bounded.
fn strings_table(state: &Rc<State>, lua: &Lua) -> mlua::Result<Table> {
    let strings = lua.create_table()?;
    let len_max = state.memory_max;
    let rep = move |lua: &Lua, args: Variadic<Value>| {
        let text = crate::modules::string_at(lua, &args, 1, "rep")?;
        let count = crate::modules::number_at(lua, &args, 2, "rep")?;
        let text = text.as_bytes();
        let count = if count >= 1.0 { count as usize } else { 0 };
        if text.is_empty() || count == 0 {
            return lua.create_string("");
        }
        let fits = count.checked_mul(text.len()).is_some_and(|len| len <= len_max);
        match fits {
            true => lua.create_string(text.repeat(count)),
            false => Err(Raised::text(lua, "resulting string too large")),
        }
    };
    strings.set("rep", lua.create_function(rep)?)?;
    crate::modules::add_patterns(state, lua, &strings)?;
    Ok(strings)
}

/// `math.random` and `math.randomseed`.
fn math_table(state: &Rc<State>, lua: &Lua) -> mlua::Result<Table> {
    let math = lua.create_table()?;
    let own = Rc::clone(state);
    let random = move |lua: &Lua, bounds: Variadic<f64>| {
        let fraction = own.random.fraction();
        let below = |low: f64, high: f64| low + (fraction * (high - low + 1.0)).floor();
        let empty = |nth: u8| {
            let text = format!("bad argument #{nth} to 'random' (interval is empty)");
            Err(Raised::text(lua, &text))
        };
        match bounds[..] {
            [] => Ok(fraction),
            [high] if high.trunc() < 1.0 => empty(1),
            [high] => Ok(below(1.0, high.trunc())),
            [low, high] if low.trunc() > high.trunc() => empty(2),
            [low, high] => Ok(below(low.trunc(), high.trunc())),
            _ => Err(Raised::text(lua, "wrong number of arguments")),
        }
    };
    math.set("random", lua.create_function(random)?)?;
    let own = Rc::clone(state);
    let seed = move |_: &Lua, seed: f64| {
        own.random.seed(seed as i64 as i32);
        Ok(())
    };
    math.set("randomseed", lua.create_function(seed)?)?;
    debug_assert_eq!(random::MAX, i32::MAX);
    Ok(math)
}

/// Libraries besides Lua's own.
fn libraries_table(state: &Rc<State>, lua: &Lua) -> mlua::Result<Table> {
    let libraries = lua.create_table()?;
    let os = lua.create_table()?;
    let own = Rc::clone(state);
    let clock = move |_: &Lua, (): ()| Ok((own.clock)().0 as f64 / 1e9);
    os.set("clock", lua.create_function(clock)?)?;
    libraries.set("os", os)?;
    crate::modules::add(state, lua, &libraries)?;
    Ok(libraries)
}

/// The library `redis` of scripts.
fn redis_table(state: &Rc<State>, lua: &Lua) -> mlua::Result<Table> {
    let redis = crate::api::table(state, lua)?;
    let own = Rc::clone(state);
    let call = move |lua: &Lua, args: Variadic<Value>| call_or_raise(&own, lua, &args);
    redis.set("call", lua.create_function(call)?)?;
    let own = Rc::clone(state);
    let call = move |lua: &Lua, args: Variadic<Value>| call_or_tell(&own, lua, &args);
    redis.set("pcall", lua.create_function(call)?)?;
    Ok(redis)
}

#[cfg(test)]
#[allow(clippy::arc_with_non_send_sync, reason = "mlua has its causes so")]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn want_of_memory_is_told_however_deep_it_lies() {
        let memory = mlua::Error::MemoryError("not enough memory".to_owned());
        let inner =
            mlua::Error::CallbackError { traceback: String::new(), cause: Arc::new(memory) };
        let outer = mlua::Error::WithContext { context: String::new(), cause: Arc::new(inner) };
        assert!(is_out_of_memory(&outer));
        let other = mlua::Error::RuntimeError("not enough memory".to_owned());
        let cause = Arc::new(other);
        assert!(!is_out_of_memory(&mlua::Error::CallbackError { traceback: String::new(), cause }));
    }
}
