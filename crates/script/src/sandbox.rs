//! The Lua state of a worker, and the functions of the host in it.

use crate::call::{call_or_raise, call_or_tell};
use crate::ends::End;
use crate::functions::register;
use crate::raised::{
    OUT_OF_MEMORY, PRELUDE, Raised, error_table, is_out_of_memory, place_of_script, without_prelude,
};
use crate::random;
use crate::state::State;
use mlua::chunk::ChunkMode;
use mlua::{HookTriggers, Lua, LuaOptions, StdLib, Table, Value, Variadic, VmState};
use std::rc::Rc;

/// Number of instructions between two checks of the time. With more, a script could exceed its time
/// by more if each instruction takes long, as when long strings are joined. With fewer, every
/// script would be slower.
const INSTRUCTIONS_PER_LOOK: u32 = 128;

/// Returns an error as a script that catches it sees it.
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
                // The first line is the message of the host's own functions about their arguments.
                // The rest is a trace.
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

/// The beginning of Lua's message about values that cannot be compared, either by a line of the
/// script or by `table.sort`. In Redis the latter has no place.
const NO_ORDER: &[u8] = b"attempt to compare ";

/// Returns what is known of an error that a script did not catch, as a table.
fn uncaught(state: &State, lua: &Lua, error: Value) -> mlua::Result<Value> {
    let place = place_of_script(lua, 1);
    let with_prefix = |text: &[u8]| match (without_prelude(text), &place) {
        // The prelude called Lua's function for the script.
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
        // None of the script's own tables is read-only.
        table.raw_set("source", source)?;
        table.raw_set("line", line)?;
    }
    Ok(Value::Table(table))
}

/// The functions of the prelude that the engine calls.
pub(crate) struct Prelude {
    /// Runs a script with the error handler.
    pub(crate) run: mlua::Function,
    /// Calls a function with keys and arguments.
    pub(crate) call: mlua::Function,
    /// The stand-in for the globals of libraries.
    pub(crate) of_functions: Table,
    /// Shows or hides the globals of a library that is being loaded.
    pub(crate) show_loading: mlua::Function,
    /// The stand-in for the globals of scripts, and the globals themselves.
    pub(crate) globals: Table,
    pub(crate) all: Table,
}

/// Creates a state with everything that scripts see.
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
    lua.set_memory_limit(state.memory_max())?;
    let looking = Rc::clone(state);
    let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS_PER_LOOK);
    lua.set_global_hook(triggers, move |lua, _| {
        looking.check_end(lua)?;
        Ok(VmState::Continue)
    })?;
    Ok((lua, prelude))
}

/// Returns the library `redis` for libraries that are being loaded, as in Redis.
fn loading_table(state: &Rc<State>, lua: &Lua) -> mlua::Result<Table> {
    let (all, shown) = (redis_table(state, lua)?, lua.create_table()?);
    let levels = ["LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"];
    for name in ["log", "REDIS_VERSION", "REDIS_VERSION_NUM"].into_iter().chain(levels) {
        shown.set(name, all.get::<Value>(name)?)?;
    }
    shown.set("register_function", register(state, lua)?)?;
    Ok(shown)
}

/// Returns `loadstring`: it accepts only text, and uses the globals of scripts.
fn compile_function(lua: &Lua, prelude: &Prelude) -> mlua::Result<mlua::Function> {
    let globals = prelude.globals.clone();
    lua.create_function(move |lua, (text, name): (mlua::LuaString, Option<mlua::LuaString>)| {
        // The compiler does not keep the name from being collected meanwhile.
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

/// Returns what the prelude gets.
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

/// Returns `collectgarbage`. Garbage is collected as always, whatever a script asks: it returns
/// only the figures, and may run a full collection.
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

/// Returns functions of `string` that Lua lacks, or does not limit.
fn strings_table(state: &Rc<State>, lua: &Lua) -> mlua::Result<Table> {
    let strings = lua.create_table()?;
    let len_max = state.memory_max();
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

/// Returns `math.random` and `math.randomseed`.
fn math_table(state: &Rc<State>, lua: &Lua) -> mlua::Result<Table> {
    let math = lua.create_table()?;
    let own = Rc::clone(state);
    let random = move |lua: &Lua, bounds: Variadic<f64>| {
        let fraction = own.random().fraction();
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
        own.random().seed(seed as i64 as i32);
        Ok(())
    };
    math.set("randomseed", lua.create_function(seed)?)?;
    debug_assert_eq!(random::MAX, i32::MAX);
    Ok(math)
}

/// Returns the libraries besides Lua's own.
fn libraries_table(state: &Rc<State>, lua: &Lua) -> mlua::Result<Table> {
    let libraries = lua.create_table()?;
    let os = lua.create_table()?;
    let own = Rc::clone(state);
    let clock = move |_: &Lua, (): ()| Ok(own.now().0 as f64 / 1e9);
    os.set("clock", lua.create_function(clock)?)?;
    libraries.set("os", os)?;
    crate::modules::add(state, lua, &libraries)?;
    Ok(libraries)
}

/// Returns the library `redis` of scripts.
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
