//! `redis.register_function`: what a library offers, while it is loaded.

use crate::flags::{ScriptFlags, set_flag};
use crate::libraries::{FunctionInfo, is_name};
use crate::raised::{Failure, Raised};
use crate::state::{Registered, State};
use mlua::{Lua, Table, Value, Variadic};
use std::rc::Rc;

/// The known flags.
const FLAGS: [&str; 5] =
    ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

fn wrong(text: &str) -> mlua::Error {
    Raised::table(Failure::of_script(text))
}

/// Returns the function `redis.register_function`.
pub(crate) fn register(state: &Rc<State>, lua: &Lua) -> mlua::Result<mlua::Function> {
    let state = Rc::clone(state);
    lua.create_function(move |lua, args: Variadic<Value>| {
        let registered = match &args[..] {
            [Value::Table(table)] => from_table(lua, table)?,
            [_] => {
                return Err(wrong(
                    "calling redis.register_function with a single argument is only applicable to \
                     Lua table (representing named arguments).",
                ));
            }
            [name, callback] => from_pair(lua, name, callback)?,
            _ => return Err(wrong("wrong number of arguments to redis.register_function")),
        };
        if !is_name(&registered.info.name) {
            return Err(wrong(
                "Library names can only contain letters, numbers, or underscores(_) and must be \
                 at least one character long",
            ));
        }
        let mut registering = state.registering().borrow_mut();
        let Some(all) = registering.as_mut() else {
            return Err(wrong(
                "redis.register_function can only be called on FUNCTION LOAD command",
            ));
        };
        if all.iter().any(|other: &Registered| other.info.name == registered.info.name) {
            return Err(wrong("Function already exists in the library"));
        }
        all.push(registered);
        Ok(())
    })
}

fn registered(name: Vec<u8>, callback: mlua::Function) -> Registered {
    let flags = ScriptFlags { is_declared: true, ..ScriptFlags::default() };
    let info = FunctionInfo { name, description: None, flags, flag_names: Vec::new() };
    Registered { info, callback }
}

/// Returns a string, or the text of a number.
fn text_of(lua: &Lua, value: &Value) -> mlua::Result<Option<Vec<u8>>> {
    Ok(lua.coerce_string(value.clone())?.map(|text| text.as_bytes().to_vec()))
}

fn from_pair(lua: &Lua, name: &Value, callback: &Value) -> mlua::Result<Registered> {
    let Some(name) = text_of(lua, name)? else {
        return Err(wrong("first argument to redis.register_function must be a string"));
    };
    let Value::Function(callback) = callback else {
        return Err(wrong("second argument to redis.register_function must be a function"));
    };
    Ok(registered(name, callback.clone()))
}

fn from_table(lua: &Lua, table: &Table) -> mlua::Result<Registered> {
    let (mut name, mut callback, mut description, mut flags) = (None, None, None, None);
    // A wrong value is reported before a missing one.
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let Some(key) = text_of(lua, &key)? else {
            return Err(wrong(
                "named argument key given to redis.register_function is not a string",
            ));
        };
        match (&key[..], value) {
            (b"function_name", value) => {
                let text =
                    "function_name argument given to redis.register_function must be a string";
                name = Some(text_of(lua, &value)?.ok_or_else(|| wrong(text))?);
            }
            (b"description", value) => {
                let text = "description argument given to redis.register_function must be a string";
                description = Some(text_of(lua, &value)?.ok_or_else(|| wrong(text))?);
            }
            (b"callback", Value::Function(function)) => callback = Some(function),
            (b"callback", _) => {
                return Err(wrong(
                    "callback argument given to redis.register_function must be a function",
                ));
            }
            (b"flags", Value::Table(table)) => flags = Some(flags_of(&table)?),
            (b"flags", _) => {
                return Err(wrong(
                    "flags argument to redis.register_function must be a table representing \
                     function flags",
                ));
            }
            _ => return Err(wrong("unknown argument given to redis.register_function")),
        }
    }
    let name =
        name.ok_or_else(|| wrong("redis.register_function must get a function name argument"))?;
    let callback =
        callback.ok_or_else(|| wrong("redis.register_function must get a callback argument"))?;
    let mut all = registered(name, callback);
    all.info.description = description;
    if let Some((flags, names)) = flags {
        (all.info.flags, all.info.flag_names) = (flags, names);
    }
    Ok(all)
}

/// Returns the flags of a function, and their names.
fn flags_of(table: &Table) -> mlua::Result<(ScriptFlags, Vec<&'static str>)> {
    let mut flags = ScriptFlags { is_declared: true, ..ScriptFlags::default() };
    let mut names = Vec::new();
    for index in 1.. {
        let flag = match table.raw_get::<Value>(index)? {
            Value::Nil => break,
            Value::String(flag) => flag,
            _ => return Err(wrong("unknown flag given")),
        };
        let flag = flag.as_bytes();
        set_flag(&mut flags, &flag).ok_or_else(|| wrong("unknown flag given"))?;
        names.extend(FLAGS.iter().find(|known| known.as_bytes() == &flag[..]));
    }
    Ok((flags, names))
}
