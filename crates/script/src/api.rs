//! The library `redis`, except for its commands.

use crate::raised::{Failure, Raised};
use crate::registry::digest_of;
use crate::scratch::{TOO_LONG, add_word};
use crate::state::State;
use keyway_command::{Args, Refusal, Request};
use keyway_resp::Protocol;
use mlua::{Lua, Table, Value, Variadic};
use std::rc::Rc;

/// The version of Redis whose scripts run here.
const REDIS_VERSION: &str = "7.0.15";
const REDIS_VERSION_NUM: i64 = 0x0007_000F;

/// Largest number of bytes of one line of `redis.log`.
const LOG_LEN_MAX: usize = 1024;

/// Returns an error of Redis for a wrong call.
fn wrong(text: &str) -> mlua::Error {
    Raised::table(Failure::of_script(text))
}

fn one_field(lua: &Lua, name: &str, text: &[u8]) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.raw_set(name, lua.create_string(text)?)?;
    Ok(Value::Table(table))
}

/// Returns the result of `redis.error_reply` and `redis.status_reply` for wrong arguments.
fn no_text(lua: &Lua) -> mlua::Result<Value> {
    one_field(lua, "err", b"ERR wrong number or type of arguments")
}

pub(crate) fn table(state: &Rc<State>, lua: &Lua) -> mlua::Result<Table> {
    let redis = lua.create_table()?;
    for (name, number) in [
        ("LOG_DEBUG", 0),
        ("LOG_VERBOSE", 1),
        ("LOG_NOTICE", 2),
        ("LOG_WARNING", 3),
        ("REPL_NONE", 0),
        ("REPL_AOF", 1),
        ("REPL_SLAVE", 2),
        ("REPL_REPLICA", 2),
        ("REPL_ALL", 3),
        ("REDIS_VERSION_NUM", REDIS_VERSION_NUM),
    ] {
        redis.set(name, number)?;
    }
    redis.set("REDIS_VERSION", REDIS_VERSION)?;
    set_replies(&redis, lua)?;
    set_control(&redis, state, lua)?;
    set_log(&redis, state, lua)?;
    Ok(redis)
}

fn set_replies(redis: &Table, lua: &Lua) -> mlua::Result<()> {
    let error_reply = |lua: &Lua, args: Variadic<Value>| match &args[..] {
        [Value::String(text)] => {
            let text = text.as_bytes();
            match text.strip_prefix(b"-") {
                Some(text) if text.contains(&b' ') => one_field(lua, "err", text),
                Some(text) => one_field(lua, "err", &[b"ERR ", text].concat()),
                // A text of several words already has its code.
                None if text.contains(&b' ') => one_field(lua, "err", &text),
                None => one_field(lua, "err", &[b"ERR ", &text[..]].concat()),
            }
        }
        _ => no_text(lua),
    };
    redis.set("error_reply", lua.create_function(error_reply)?)?;
    let status_reply = |lua: &Lua, args: Variadic<Value>| match &args[..] {
        [Value::String(text)] => one_field(lua, "ok", &text.as_bytes()),
        _ => no_text(lua),
    };
    redis.set("status_reply", lua.create_function(status_reply)?)?;
    let sha1hex = |lua: &Lua, args: Variadic<Value>| {
        let [text] = &args[..] else { return Err(wrong("wrong number of arguments")) };
        let text = match lua.coerce_string(text.clone())? {
            Some(text) => text.as_bytes().to_vec(),
            None => Vec::new(),
        };
        lua.create_string(digest_of(&text))
    };
    redis.set("sha1hex", lua.create_function(sha1hex)?)
}

fn set_control(redis: &Table, state: &Rc<State>, lua: &Lua) -> mlua::Result<()> {
    let own = Rc::clone(state);
    let setresp = move |lua: &Lua, args: Variadic<Value>| {
        let [number] = &args[..] else {
            return Err(wrong("redis.setresp() requires one argument."));
        };
        let number = lua.coerce_number(number.clone())?.unwrap_or_default();
        match number as i64 {
            2 => own.protocol.set(Protocol::Resp2),
            3 => own.protocol.set(Protocol::Resp3),
            _ => return Err(wrong("RESP version must be 2 or 3.")),
        }
        Ok(())
    };
    redis.set("setresp", lua.create_function(setresp)?)?;
    let set_repl = |lua: &Lua, args: Variadic<Value>| {
        let [flags] = &args[..] else {
            return Err(wrong("redis.set_repl() requires one argument."));
        };
        let flags = lua.coerce_number(flags.clone())?.unwrap_or_default();
        if !(0.0..4.0).contains(&flags) {
            let text = "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or \
                        REPL_NONE.";
            return Err(wrong(text));
        }
        Ok(())
    };
    redis.set("set_repl", lua.create_function(set_repl)?)?;
    redis.set("replicate_commands", lua.create_function(|_, ()| Ok(true))?)?;
    redis.set("breakpoint", lua.create_function(|_, _: Variadic<Value>| Ok(false))?)?;
    redis.set("debug", lua.create_function(|_, _: Variadic<Value>| Ok(()))?)?;
    let acl_check_cmd = |lua: &Lua, args: Variadic<Value>| {
        if args.is_empty() {
            return Err(wrong(
                "Please specify at least one argument for this redis.acl_check_cmd() call",
            ));
        }
        let (mut buf, mut ranges) = (Vec::new(), Vec::new());
        for arg in args.iter() {
            let Some(text) = lua.coerce_string(arg.clone())? else {
                let text = "redis.acl_check_cmd() command arguments must be strings or integers";
                return Err(wrong(text));
            };
            if !add_word(&mut buf, &mut ranges, &text.as_bytes()) {
                return Err(wrong(TOO_LONG));
            }
        }
        match Request::resolve(Args::new(&buf, &ranges)) {
            Err(Refusal::Unknown | Refusal::UnknownSubcommand(_) | Refusal::Empty) => {
                Err(wrong("Invalid command passed to redis.acl_check_cmd()"))
            }
            _ => Ok(true),
        }
    };
    redis.set("acl_check_cmd", lua.create_function(acl_check_cmd)?)
}

fn set_log(redis: &Table, state: &Rc<State>, lua: &Lua) -> mlua::Result<()> {
    let own = Rc::clone(state);
    let log = move |lua: &Lua, args: Variadic<Value>| {
        let Some((level, words)) = args.split_first().filter(|(_, words)| !words.is_empty()) else {
            return Err(wrong("redis.log() requires two arguments or more."));
        };
        let Some(level) = crate::modules::number_of(level) else {
            return Err(wrong("First argument must be a number (log level)."));
        };
        if !(0.0..4.0).contains(&level) {
            return Err(wrong("Invalid debug level."));
        }
        let mut line = Vec::new();
        for (nth, word) in words.iter().enumerate() {
            let Some(word) = lua.coerce_string(word.clone())? else { continue };
            if nth > 0 {
                line.push(b' ');
            }
            line.extend(word.as_bytes().iter().take(LOG_LEN_MAX));
        }
        line.truncate(LOG_LEN_MAX);
        if let Some(host) = own.host() {
            host.log(level as u8, &String::from_utf8_lossy(&line));
        }
        Ok(())
    };
    redis.set("log", lua.create_function(log)?)
}
