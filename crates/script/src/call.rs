//! `redis.call`: converts the script's command to a request, and its reply to a value.

use crate::ends::End;
use crate::number::general;
use crate::raised::{Failure, Raised, error_table};
use crate::scratch::{Scratch, TOO_LONG, add_word};
use crate::state::State;
use keyway_command::{Args, Flags, Refusal, Request, Verb};
use mlua::{Lua, Value, Variadic};

/// Largest depth of nesting of replies. No command's reply is deeper.
const DEPTH_MAX: usize = 32;

/// Runs a command. Returns its reply or its error.
pub(crate) fn call(
    state: &State,
    lua: &Lua,
    args: &Variadic<Value>,
) -> mlua::Result<Result<Value, Failure>> {
    let mut scratch = state.scratch.take();
    let result = call_with(state, lua, args, &mut scratch);
    scratch.shrink();
    state.scratch.replace(scratch);
    result
}

fn refused(text: &str) -> mlua::Result<Result<Value, Failure>> {
    Ok(Err(Failure::of_script(text)))
}

/// Refuses a command. It counts as one that was answered with an error.
fn refused_counted(state: &State, text: &str) -> mlua::Result<Result<Value, Failure>> {
    let mut failure = Failure::of_script(text);
    if let Some(host) = state.host() {
        host.count_error(&failure.text);
        failure.is_counted = true;
    }
    Ok(Err(failure))
}

fn call_with(
    state: &State,
    lua: &Lua,
    args: &Variadic<Value>,
    scratch: &mut Scratch,
) -> mlua::Result<Result<Value, Failure>> {
    state.check_end(lua)?;
    let Scratch { buf, ranges, reply } = scratch;
    buf.clear();
    ranges.clear();
    reply.clear();
    if args.is_empty() {
        return refused("Please specify at least one argument for this redis lib call");
    }
    for arg in args.iter() {
        let fits = match arg {
            Value::String(text) => add_word(buf, ranges, &text.as_bytes()),
            Value::Number(number) => add_word(buf, ranges, general(*number, 17).as_bytes()),
            Value::Integer(number) => add_word(buf, ranges, number.to_string().as_bytes()),
            _ => return refused("Lua redis lib command arguments must be strings or integers"),
        };
        if !fits {
            return refused(TOO_LONG);
        }
    }
    let request = match Request::resolve(Args::new(buf, ranges)) {
        Ok(request) => request,
        Err(Refusal::Arity(_)) => {
            return refused_counted(
                state,
                "Wrong number of args calling Redis command from script",
            );
        }
        Err(_) => return refused_counted(state, "Unknown Redis command called from script"),
    };
    if let Err(text) = admit(state, &request) {
        return refused_counted(state, &text);
    }
    let Some(run) = state.run() else {
        return refused("redis.call/pcall can only be called inside a script invocation");
    };
    let has_written = run.has_written();
    let writes = request.command.flags.contains(Flags::WRITE);
    if writes && run.is_killed() {
        return Err(state.end_now(lua, End::Killed));
    }
    let protocol = state.protocol.get();
    let Some(host) = state.host() else {
        return refused("redis.call/pcall can only be called inside a script invocation");
    };
    // From here on it cannot be killed. A command that is refused below has written nothing, and it
    // does no harm that the script cannot be killed any more.
    if writes && !run.note_write() {
        return Err(state.end_now(lua, End::Killed));
    }
    host.execute(&request, protocol, has_written, reply);
    if host.kept_len() > state.memory_max() {
        return Err(state.end_now(lua, End::Kept));
    }
    state.check_end(lua)?;
    match reply.first() {
        Some(b'-') => {
            let text = reply[1..].strip_suffix(b"\r\n").unwrap_or(&reply[1..]).to_vec();
            Ok(Err(Failure { text, is_counted: true }))
        }
        _ => Ok(Ok(state.make(lua, reply.len(), || value_of(lua, reply))?)),
    }
}

/// Returns whether a script may send a command at all.
fn admit(state: &State, request: &Request<'_>) -> Result<(), String> {
    let command = request.command;
    if command.flags.contains(Flags::NOSCRIPT) {
        return Err("This Redis command is not allowed from script".to_owned());
    }
    // A command that a server may have to replicate counts as a write.
    let tells = matches!(command.verb, Verb::Publish | Verb::Spublish | Verb::Pfcount);
    if state.is_read_only.get() && (tells || command.flags.contains(Flags::WRITE)) {
        return Err("Write commands are not allowed from read-only scripts.".to_owned());
    }
    if matches!(command.verb, Verb::Xread | Verb::Xreadgroup) && request.blocks() {
        let name = String::from_utf8_lossy(&request.args[0]).into_owned();
        return Err(format!("{name} command is not allowed with BLOCK option from scripts"));
    }
    Ok(())
}

/// Runs `redis.call`.
pub(crate) fn call_or_raise(
    state: &State,
    lua: &Lua,
    args: &Variadic<Value>,
) -> mlua::Result<Value> {
    match call(state, lua, args)? {
        Ok(value) => Ok(value),
        Err(failure) => Err(Raised::table(failure)),
    }
}

/// Runs `redis.pcall`.
pub(crate) fn call_or_tell(
    state: &State,
    lua: &Lua,
    args: &Variadic<Value>,
) -> mlua::Result<Value> {
    match call(state, lua, args)? {
        Ok(value) => Ok(value),
        Err(failure) => Ok(Value::Table(error_table(lua, &failure)?)),
    }
}

/// Returns the value of a reply.
fn value_of(lua: &Lua, reply: &[u8]) -> mlua::Result<Value> {
    let mut reader = Reader { lua, rest: reply };
    Ok(reader.value(DEPTH_MAX)?.unwrap_or(Value::Boolean(false)))
}

struct Reader<'a> {
    lua: &'a Lua,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn line(&mut self) -> Option<(u8, &'a [u8])> {
        let end = self.rest.windows(2).position(|pair| pair == b"\r\n")?;
        let (line, rest) = self.rest.split_at(end);
        self.rest = &rest[2..];
        let (kind, text) = line.split_first()?;
        Some((*kind, text))
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let bytes = self.rest.get(..len)?;
        self.rest = self.rest.get(len + 2..)?;
        Some(bytes)
    }

    fn string(&self, bytes: &[u8]) -> mlua::Result<Value> {
        Ok(Value::String(self.lua.create_string(bytes)?))
    }

    /// Returns a table with one field.
    fn tagged(&self, name: &str, value: Value) -> mlua::Result<Option<Value>> {
        let table = self.lua.create_table()?;
        table.raw_set(name, value)?;
        Ok(Some(Value::Table(table)))
    }

    /// Returns the next value, or `None` if the reply ends early.
    fn value(&mut self, depth: usize) -> mlua::Result<Option<Value>> {
        let Some((kind, text)) = self.line() else { return Ok(None) };
        if depth == 0 {
            return Ok(None);
        }
        let number = || std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
        let len = number().and_then(|len| usize::try_from(len).ok());
        match kind {
            b':' => Ok(Some(Value::Number(number().unwrap_or_default() as f64))),
            b'+' => self.tagged("ok", self.string(text)?),
            b'-' => self.tagged("err", self.string(text)?),
            b'$' => match len.and_then(|len| self.bytes(len)) {
                Some(bytes) => Ok(Some(self.string(bytes)?)),
                None => Ok(Some(Value::Boolean(false))),
            },
            b'*' => match len {
                Some(len) => self.array(len, depth),
                None => Ok(Some(Value::Boolean(false))),
            },
            b'%' => self.map(len.unwrap_or_default(), depth),
            b'~' => self.set(len.unwrap_or_default(), depth),
            b'_' => Ok(Some(Value::Nil)),
            b'#' => Ok(Some(Value::Boolean(text == b"t"))),
            b',' => {
                let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
                self.tagged("double", Value::Number(number.unwrap_or_default()))
            }
            b'(' => self.tagged("big_number", self.string(text)?),
            b'=' => {
                let Some(bytes) = len.and_then(|len| self.bytes(len)) else { return Ok(None) };
                let (format, text) = bytes.split_at(bytes.len().min(4));
                let table = self.lua.create_table()?;
                table.raw_set("string", self.string(text)?)?;
                table.raw_set("format", self.string(&format[..format.len().min(3)])?)?;
                self.tagged("verbatim_string", Value::Table(table))
            }
            _ => Ok(None),
        }
    }

    fn array(&mut self, len: usize, depth: usize) -> mlua::Result<Option<Value>> {
        let table = self.lua.create_table_with_capacity(len.min(self.rest.len()), 0)?;
        for index in 1..=len {
            let Some(value) = self.value(depth - 1)? else { break };
            table.raw_seti(index, value)?;
        }
        Ok(Some(Value::Table(table)))
    }

    fn map(&mut self, len: usize, depth: usize) -> mlua::Result<Option<Value>> {
        let table = self.lua.create_table()?;
        for _ in 0..len {
            let (Some(key), Some(value)) = (self.value(depth - 1)?, self.value(depth - 1)?) else {
                break;
            };
            if !key.is_nil() {
                table.raw_set(key, value)?;
            }
        }
        self.tagged("map", Value::Table(table))
    }

    fn set(&mut self, len: usize, depth: usize) -> mlua::Result<Option<Value>> {
        let table = self.lua.create_table()?;
        for _ in 0..len {
            let Some(value) = self.value(depth - 1)? else { break };
            if !value.is_nil() {
                table.raw_set(value, true)?;
            }
        }
        self.tagged("set", Value::Table(table))
    }
}
