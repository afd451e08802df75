use crate::answer::{Answer, Unanswerable};
use crate::ends::{End, Run};
use crate::flags::ScriptFlags;
use crate::raised::{is_counted, is_out_of_memory};

use crate::host::Host;
use crate::libraries::{FunctionInfo, Library, Policy, check_room, is_same, name_of};
use crate::registry::{CacheFull, Kept, Name, Registry, digest_of, flags_of};
use crate::sandbox::{self, Prelude};
use crate::state::{Registered, State};
use keyway_base::Time;
use keyway_resp::{Protocol, reply};
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, Table, Value};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Largest number of compiled scripts that an engine keeps. Others are compiled again when they are
/// called. More would take memory from running scripts.
const COMPILED_MAX: usize = 1_000;

/// Garbage is collected before a script runs if the memory exceeds the limit divided by this.
const GARBAGE_PART: usize = 2;

/// The name of every script's chunk, as in Redis.
const CHUNK: &str = "@user_script";

/// A script to run.
#[derive(Clone, Debug)]
pub struct Script {
    /// Its name.
    pub name: Name,
    /// Its declared flags.
    pub flags: ScriptFlags,
    /// Its text. The registry may forget the text before the script runs.
    body: Arc<[u8]>,
    /// Index at which its text begins, after the line of its flags.
    start: usize,
}

impl Script {
    fn of(name: Name, kept: Kept) -> Self {
        Self { name, flags: kept.flags, body: kept.body, start: kept.start }
    }
}

/// The keys and arguments of a call.
pub struct Words<'a> {
    /// The keys.
    pub keys: &'a [&'a [u8]],
    /// The other arguments.
    pub args: &'a [&'a [u8]],
}

/// What Lua needs. It is created at first use.
struct Machine {
    lua: Lua,
    prelude: Prelude,
    state: Rc<State>,
    compiled: BTreeMap<Name, Function>,
    epoch: u64,
    /// Functions of libraries, by name in lower case.
    functions: BTreeMap<Vec<u8>, Function>,
    libraries_epoch: u64,
    /// Keeps the name of chunks from being collected.
    _chunk: mlua::LuaString,
}

/// A worker's Lua for the scripts of one pool.
pub struct Engine {
    registry: Arc<Registry>,
    machine: Option<Machine>,
    /// The memory that was last reported to the registry.
    memory_told: usize,
    /// Called every few milliseconds while a script runs.
    on_long: Rc<dyn Fn()>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.registry.totals.note_memory(self.memory_told, 0);
    }
}

impl Engine {
    /// Creates an engine that has run nothing yet.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self { registry, machine: None, memory_told: 0, on_long: Rc::new(|| ()) }
    }

    /// Sets the function that is called every few milliseconds while a script runs or a library is
    /// loaded. The worker serves no other clients meanwhile.
    #[must_use]
    pub fn with_long(mut self, on_long: Rc<dyn Fn()>) -> Self {
        self.on_long = on_long;
        self
    }

    /// Returns what the pool's clients have loaded.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Returns the bytes of Lua's memory.
    pub fn memory_used(&self) -> usize {
        self.machine.as_ref().map_or(0, |machine| machine.lua.used_memory())
    }

    /// Compiles a script and keeps it.
    ///
    /// # Errors
    /// Returns the text of the error for the client.
    pub fn load(&mut self, body: &[u8], is_loaded: bool) -> Result<Script, String> {
        let name = digest_of(body);
        if let Some(kept) = self.registry.script(&name).filter(|_| !is_loaded) {
            return Ok(Script::of(name, kept));
        }
        let (flags, start) = flags_of(body).map_err(|text| format!("ERR {text}"))?;
        self.compile(name, &body[start..])?;
        let body: Arc<[u8]> = body.into();
        let kept = self.registry.keep((name, &body), (flags, start), is_loaded);
        kept.map_err(|CacheFull| CacheFull::TEXT.to_owned())?;
        Ok(Script { name, flags, body, start })
    }

    /// Returns the script of this name. Its hexadecimal digits may have any case.
    pub fn find(&self, name: &[u8]) -> Option<Script> {
        let name: Name = name.to_ascii_lowercase().try_into().ok()?;
        let kept = self.registry.script(&name)?;
        Some(Script::of(name, kept))
    }

    fn machine(&mut self) -> Result<&mut Machine, String> {
        let (limits, clock) = (*self.registry.limits(), self.registry.clock());
        let epoch = self.registry.epoch();
        let machine = match self.machine.take() {
            Some(machine) => machine,
            None => {
                Machine::new(&limits, clock, Rc::clone(&self.on_long), epoch).map_err(broken)?
            }
        };
        let machine = self.machine.insert(machine);
        if machine.epoch != epoch || machine.compiled.len() > COMPILED_MAX {
            machine.compiled.clear();
            machine.epoch = epoch;
        }
        let libraries_epoch = self.registry.libraries.epoch();
        if machine.libraries_epoch != libraries_epoch {
            machine.functions.clear();
            machine.libraries_epoch = libraries_epoch;
        }
        if machine.lua.used_memory() > limits.memory_max / GARBAGE_PART {
            machine.compiled.clear();
            machine.functions.clear();
            machine.lua.gc_collect().map_err(broken)?;
        }
        Ok(machine)
    }

    fn compile(&mut self, name: Name, text: &[u8]) -> Result<Function, String> {
        let machine = self.machine()?;
        if let Some(function) = machine.compiled.get(&name) {
            return Ok(function.clone());
        }
        let chunk = machine.lua.load(text).set_name(CHUNK).set_mode(ChunkMode::Text);
        let chunk = chunk.set_environment(machine.prelude.globals.clone());
        let is_binary = text.first() == Some(&0x1b);
        match chunk.into_function() {
            Ok(function) if !is_binary => {
                machine.compiled.insert(name, function.clone());
                Ok(function)
            }
            Ok(_) => Err("ERR Error compiling script (new function): bytecode is refused".into()),
            Err(mlua::Error::MemoryError(_)) => {
                self.machine = None;
                Err(self.memory_text())
            }
            Err(mlua::Error::SyntaxError { message, .. }) => {
                Err(format!("ERR Error compiling script (new function): {message}"))
            }
            Err(error) => Err(broken(error)),
        }
    }

    /// Runs a script and appends its reply to `out`. `is_read_only` is set for EVAL_RO and similar
    /// commands.
    pub fn run(
        &mut self,
        script: &Script,
        words: &Words<'_>,
        (host, run): (Rc<dyn Host>, Arc<Run>),
        is_read_only: bool,
        client: Protocol,
        out: &mut Vec<u8>,
    ) {
        let function = match self.compile(script.name, &script.body[script.start..]) {
            Ok(function) => function,
            Err(text) => return reply::error(out, &text),
        };
        let is_read_only = is_read_only || script.flags.no_writes;
        let start = out.len();
        let deadline = self.registry.deadline();
        let Ok(machine) = self.machine() else { return reply::error(out, BROKEN) };
        machine.state.begin(host, (&run, deadline), is_read_only);
        self.registry.begin(&run);
        let ran = self.machine.as_ref().map(|machine| machine.run(&function, words));
        self.registry.end(&run);
        if let Some(ran) = ran {
            self.answer(ran, &run, client, out);
        }
        self.note_run(deadline, out.get(start) == Some(&b'-'));
    }

    /// Notes a finished run that had to end at `deadline`.
    fn note_run(&mut self, deadline: Time, is_error: bool) {
        let (registry, memory) = (&self.registry, self.memory_used());
        let left = deadline.since((registry.clock())());
        registry.totals.note(registry.limits().time_max.saturating_sub(left), is_error);
        registry.totals.note_memory(self.memory_told, memory);
        self.memory_told = memory;
    }

    /// Runs a library's text and returns what it offers. Nothing is kept. `run` can be killed
    /// meanwhile.
    ///
    /// # Errors
    /// Returns the text of the error for the client.
    pub fn load_library(
        &mut self,
        code: &[u8],
        policy: Policy,
        run: &Arc<Run>,
    ) -> Result<Library, String> {
        let (name, _) = name_of(code)?;
        self.registry.libraries.check_name(&name, policy)?;
        let mut libraries = self.load_libraries(&[code], run)?;
        libraries.pop().ok_or_else(|| NOTHING_REGISTERED.to_owned())
    }

    /// Does the same for many libraries, all or none, within the time of one script. It does not
    /// check whether their names are free.
    ///
    /// # Errors
    /// Returns the text of the error for the client.
    pub fn load_libraries(
        &mut self,
        codes: &[&[u8]],
        run: &Arc<Run>,
    ) -> Result<Vec<Library>, String> {
        check_room(codes.len(), codes.iter().map(|code| code.len()).sum())?;
        let deadline = self.registry.deadline();
        self.registry.begin(run);
        let loaded = codes.iter().map(|code| {
            let (name, start) = name_of(code)?;
            let registered = self.register(&code[start..], (run, deadline))?;
            if registered.is_empty() {
                return Err(NOTHING_REGISTERED.to_owned());
            }
            let functions = registered.into_iter().map(|one| one.info).collect();
            Ok(Library { name, code: (*code).into(), functions })
        });
        let loaded = loaded.collect();
        self.registry.end(run);
        loaded
    }

    /// Runs a library's text. Returns the functions that it registers.
    fn register(
        &mut self,
        text: &[u8],
        (run, deadline): (&Arc<Run>, Time),
    ) -> Result<Vec<Registered>, String> {
        const FUNCTIONS: &str = "@user_function";
        let machine = self.machine()?;
        let anchor = machine.lua.create_string(FUNCTIONS).map_err(broken)?;
        let chunk = machine.lua.load(text).set_name(FUNCTIONS).set_mode(ChunkMode::Text);
        let chunk = chunk.set_environment(machine.prelude.of_functions.clone());
        let function = chunk.into_function();
        drop(anchor);
        let function = match function {
            Ok(function) => function,
            Err(mlua::Error::SyntaxError { message, .. }) => {
                return Err(format!("ERR Error compiling function: {message}"));
            }
            Err(error) => return Err(broken(error)),
        };
        machine.state.begin_loading((run, deadline));
        // A short one may be over before Lua checks.
        let is_time = machine.state.check_end(&machine.lua);
        let Prelude { run, show_loading, .. } = &machine.prelude;
        let shown = is_time.and_then(|()| show_loading.call::<()>(true));
        let ran = shown.and_then(|()| run.call::<(bool, Value)>(function));
        let is_over = show_loading.call::<()>(false).is_ok();
        let registered = machine.state.registering().borrow_mut().take().unwrap_or_default();
        let end = machine.state.end();
        machine.state.finish();
        if !is_over {
            // Functions must not run with the globals of a library that is being loaded.
            self.machine = None;
        }
        match (ran, end) {
            (_, Some(End::Killed)) => {
                Err("ERR Script killed by user with FUNCTION KILL.".to_owned())
            }
            (_, Some(End::Time)) => Err("ERR FUNCTION LOAD timeout".to_owned()),
            (_, Some(End::Memory | End::Kept)) | (Err(_), None) => {
                self.machine = None;
                Err(self.memory_text())
            }
            (Ok((true, _)), None) => Ok(registered),
            (Ok((false, error)), None) => {
                let mut text = Vec::new();
                if let Value::Table(table) = &error
                    && let Ok(Value::String(message)) = table.raw_get::<Value>("err")
                {
                    text = message.as_bytes().to_vec();
                }
                let text = String::from_utf8_lossy(&text);
                Err(format!("ERR Error registering functions: {text}"))
            }
        }
    }

    /// Returns the information about a function.
    pub fn find_function(&self, name: &[u8]) -> Option<FunctionInfo> {
        self.registry.libraries.find(name).map(|(_, info)| info)
    }

    /// Calls a function and appends its reply to `out`.
    pub fn call(
        &mut self,
        name: &[u8],
        words: &Words<'_>,
        (host, run): (Rc<dyn Host>, Arc<Run>),
        is_read_only: bool,
        client: Protocol,
        out: &mut Vec<u8>,
    ) {
        let (start, deadline) = (out.len(), self.registry.deadline());
        self.registry.begin(&run);
        let ran = self.function(name, (&run, deadline)).and_then(|function| {
            let machine = self.machine().map_err(|_| BROKEN.to_owned())?;
            machine.state.begin(host, (&run, deadline), is_read_only);
            Ok(machine.call(&function, words))
        });
        self.registry.end(&run);
        match ran {
            Ok(ran) => self.answer(ran, &run, client, out),
            Err(text) => reply::error(out, &text),
        }
        self.note_run(deadline, out.get(start) == Some(&b'-'));
    }

    /// Returns the function of this name in this worker's Lua.
    fn function(&mut self, name: &[u8], run: (&Arc<Run>, Time)) -> Result<Function, String> {
        let not_found = || "ERR Function not found".to_owned();
        // The epoch is read before the library is looked up: the library may not be the newest once
        // it is compiled.
        let epoch = self.machine()?.libraries_epoch;
        let (library, _) = self.registry.libraries.find(name).ok_or_else(not_found)?;
        let functions = self.machine.as_ref().map(|machine| &machine.functions);
        let key = name.to_ascii_lowercase();
        if let Some(function) = functions.and_then(|functions| functions.get(&key)) {
            return Ok(function.clone());
        }
        let (_, start) = name_of(&library.code)?;
        let registered = self.register(&library.code[start..], run)?;
        let machine = self.machine()?;
        let is_newest = machine.libraries_epoch == epoch;
        let mut found = None;
        for one in registered {
            // Of functions that differ only in case, the first one is used.
            if found.is_none() && is_same(&one.info.name, name) {
                found = Some(one.callback.clone());
            }
            if is_newest {
                let key = one.info.name.to_ascii_lowercase();
                machine.functions.entry(key).or_insert(one.callback);
            }
        }
        found.ok_or_else(not_found)
    }

    /// Writes the reply of a run.
    fn answer(
        &mut self,
        ran: mlua::Result<(bool, Value)>,
        run: &Run,
        client: Protocol,
        out: &mut Vec<u8>,
    ) {
        let Some(machine) = self.machine.as_ref() else { return };
        let (start, len_max) = (out.len(), self.registry.limits().reply_len_max);
        let state = Rc::clone(&machine.state);
        let script = state.protocol.get();
        let end = match (&ran, state.end()) {
            (_, Some(end)) => Some(end),
            (Err(error), _) if is_out_of_memory(error) => Some(End::Memory),
            (Ok((false, Value::String(text))), _) if text.as_bytes() == b"not enough memory" => {
                Some(End::Memory)
            }
            _ => None,
        };
        if let Some(end) = end {
            self.write_end(end, &state, run, out);
            return state.finish();
        }
        let lua = machine.lua.clone();
        let mut error = None;
        match ran {
            Ok((true, value)) => {
                let is_late = || state.is_late();
                let len_max = start + len_max;
                let (is_late, count) = (&is_late, 0);
                let mut answer = Answer { client, script, out, len_max, is_late, count };
                // This creates the names of the fields that it looks up.
                let written = state.make(&lua, 0, || Ok(answer.write(&value)));
                if let Err(fault) = written.unwrap_or(Err(Unanswerable::Long)) {
                    out.truncate(start);
                    match unanswerable(fault) {
                        Some(text) => reply::error(out, text),
                        None => self.write_end(End::Time, &state, run, out),
                    }
                } else if out.get(start) == Some(&b'-') {
                    error = Some(value);
                }
            }
            Ok((false, raised)) => {
                write_error(&raised, &run.name, out);
                error = Some(raised);
            }
            Err(error) => reply::error(out, &broken(error)),
        }
        if error.is_some_and(|error| is_counted(&error)) {
            state.host().inspect(|host| host.note_counted());
        }
        state.finish();
    }

    /// Writes why a script was ended.
    fn write_end(&mut self, end: End, state: &State, run: &Run, out: &mut Vec<u8>) {
        self.registry.totals.note_end();
        let place = state.end_place();
        let text = match end {
            // Redis uses this text for functions as well.
            End::Killed => "ERR Script killed by user with SCRIPT KILL...".to_owned(),
            End::Time => {
                let time_max = self.registry.limits().time_max;
                let wrote = wrote_text(run);
                format!(
                    "ERR the script was ended: it ran longer than script_time_max ({time_max:?}){wrote}"
                )
            }
            End::Kept => {
                let (memory_max, wrote) =
                    (self.registry.limits().memory_max >> 20, wrote_text(run));
                format!(
                    "ERR the script was ended: what is to be told of it takes more than \
                     script_memory_max ({memory_max} MiB){wrote}"
                )
            }
            End::Memory => {
                self.machine = None;
                self.memory_text() + wrote_text(run)
            }
        };
        write_with_place(text.as_bytes(), &run.name, place, out);
    }

    fn memory_text(&self) -> String {
        let memory_max = self.registry.limits().memory_max;
        format!(
            "ERR the script was ended: it needed more than script_memory_max ({} MiB)",
            memory_max >> 20
        )
    }
}

const NOTHING_REGISTERED: &str = "ERR No functions registered";

const BROKEN: &str = "ERR Lua could not be started";

fn broken(error: mlua::Error) -> String {
    let text: String = error.to_string().lines().next().unwrap_or_default().to_owned();
    format!("ERR Lua failed: {text}")
}

fn wrote_text(run: &Run) -> &'static str {
    match run.has_written() {
        true => "; it had written, and what it wrote stays",
        false => "; it had written nothing",
    }
}

/// Returns the error for the client, or `None` if the script's time is up.
fn unanswerable(fault: Unanswerable) -> Option<&'static str> {
    match fault {
        Unanswerable::Long => Some("ERR the script's reply is longer than a client may be sent"),
        Unanswerable::Deep => Some("ERR reached lua stack limit: the reply is nested too deep"),
        Unanswerable::Late => None,
    }
}

/// Writes an error that a script did not catch.
fn write_error(error: &Value, name: &str, out: &mut Vec<u8>) {
    let Value::Table(table) = error else {
        let text = match error {
            Value::String(text) => text.to_string_lossy(),
            _ => "unknown error".to_owned(),
        };
        return write_with_place(format!("ERR {text}").as_bytes(), name, None, out);
    };
    let field = |name: &str| table.raw_get::<Value>(name).unwrap_or(Value::Nil);
    let text = match field("err") {
        Value::String(text) => text.as_bytes().to_vec(),
        _ => b"ERR unknown error".to_vec(),
    };
    let place = match (field("source"), field("line")) {
        (Value::String(source), Value::Number(line)) => {
            Some((source.to_string_lossy(), line as i64))
        }
        (Value::String(source), Value::Integer(line)) => Some((source.to_string_lossy(), line)),
        _ => None,
    };
    write_with_place(&text, name, place, out);
}

fn write_with_place(text: &[u8], name: &str, place: Option<(String, i64)>, out: &mut Vec<u8>) {
    out.push(b'-');
    let mut line = text.to_vec();
    if let Some((source, number)) = place {
        line.extend_from_slice(format!(" script: {name}, on {source}:{number}.").as_bytes());
    }
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    out.extend(line.iter().map(|byte| if is_end(byte) { b' ' } else { *byte }));
    out.extend_from_slice(b"\r\n");
}

impl Machine {
    fn new(
        limits: &crate::ScriptLimits,
        clock: fn() -> Time,
        on_long: Rc<dyn Fn()>,
        epoch: u64,
    ) -> mlua::Result<Self> {
        let state = Rc::new(State::new(limits, clock, on_long));
        let (lua, prelude) = sandbox::make(&state)?;
        let chunk = lua.create_string(CHUNK)?;
        Ok(Self {
            lua,
            prelude,
            state,
            compiled: BTreeMap::new(),
            epoch,
            functions: BTreeMap::new(),
            libraries_epoch: 0,
            _chunk: chunk,
        })
    }

    fn list(&self, words: &[&[u8]]) -> mlua::Result<Table> {
        let len = words.iter().map(|word| word.len() + size_of::<Value>()).sum();
        self.state.make(&self.lua, len, || {
            let table = self.lua.create_table_with_capacity(words.len(), 0)?;
            for (index, word) in words.iter().enumerate() {
                table.raw_seti(index + 1, self.lua.create_string(word)?)?;
            }
            Ok(table)
        })
    }

    fn call(&self, function: &Function, words: &Words<'_>) -> mlua::Result<(bool, Value)> {
        let (keys, args) = (self.list(words.keys)?, self.list(words.args)?);
        self.prelude.call.call((function, keys, args))
    }

    fn run(&self, function: &Function, words: &Words<'_>) -> mlua::Result<(bool, Value)> {
        let (keys, args) = (self.list(words.keys)?, self.list(words.args)?);
        self.prelude.run.call((function, &self.prelude.all, keys, args))
    }
}
