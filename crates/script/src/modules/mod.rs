//! The libraries that scripts have besides Lua's own: cjson, cmsgpack, bit and
//! struct, as Redis has them.

mod bit;
mod json;
mod msgpack;
mod pack;
mod pattern;

pub(crate) use json::Settings as JsonSettings;
pub(crate) use pattern::add as add_patterns;

use crate::sandbox::{Raised, State};
use mlua::{Lua, Table, Value};
use std::rc::Rc;

/// Elements between two looks at the clock.
const ELEMENTS_PER_LOOK: usize = 4096;

/// Adds the libraries to `libraries`.
pub(crate) fn add(state: &Rc<State>, lua: &Lua, libraries: &Table) -> mlua::Result<()> {
    libraries.set("bit", bit::table(lua)?)?;
    libraries.set("cjson", json::table(state, lua)?)?;
    libraries.set("cmsgpack", msgpack::table(state, lua)?)?;
    libraries.set("struct", pack::table(state, lua)?)
}

/// A number, which Lua may show as a whole one.
pub(crate) fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => Some(*number),
        Value::Integer(number) => Some(*number as f64),
        _ => None,
    }
}

/// Lua's message for a wrong argument.
fn bad_argument(lua: &Lua, nth: usize, function: &str, what: &str) -> mlua::Error {
    Raised::text(lua, &format!("bad argument #{nth} to '{function}' ({what})"))
}

/// What Lua calls the type of an argument that may be missing.
fn type_of(value: Option<&Value>) -> &'static str {
    match value {
        None => "no value",
        Some(Value::Integer(_)) => "number",
        Some(Value::LightUserData(_)) => "userdata",
        Some(value) => value.type_name(),
    }
}

/// A number among the arguments, counted from 1.
pub(crate) fn number_at(
    lua: &Lua,
    args: &[Value],
    nth: usize,
    function: &str,
) -> mlua::Result<f64> {
    let value = args.get(nth - 1);
    let number = match value {
        Some(value) => lua.coerce_number(value.clone())?,
        None => None,
    };
    let found = type_of(value);
    number.ok_or_else(|| bad_argument(lua, nth, function, &format!("number expected, got {found}")))
}

/// A string among the arguments, counted from 1.
pub(crate) fn string_at(
    lua: &Lua,
    args: &[Value],
    nth: usize,
    function: &str,
) -> mlua::Result<mlua::LuaString> {
    let value = args.get(nth - 1);
    let text = match value {
        Some(value) => lua.coerce_string(value.clone())?,
        None => None,
    };
    let found = type_of(value);
    text.ok_or_else(|| bad_argument(lua, nth, function, &format!("string expected, got {found}")))
}

/// The length of a table that is a list: its keys are the numbers from 1 to it.
/// Also how many keys there are; none for other tables.
fn list_len(table: &Table) -> mlua::Result<Option<(f64, usize)>> {
    let (mut max, mut count) = (0.0_f64, 0);
    for pair in table.pairs::<Value, Value>() {
        let (key, _) = pair?;
        match number_of(&key) {
            Some(key) if key > 0.0 && key.fract() == 0.0 => max = max.max(key),
            _ => return Ok(None),
        }
        count += 1;
    }
    Ok(Some((max, count)))
}

/// Watches that what a library makes stays in bounds.
struct Bounds<'a> {
    state: &'a State,
    lua: &'a Lua,
    elements: usize,
}

impl<'a> Bounds<'a> {
    fn new(state: &'a State, lua: &'a Lua) -> Self {
        Self { state, lua, elements: 0 }
    }

    /// One more element; `len` bytes have been made so far.
    fn pass(&mut self, len: usize) -> mlua::Result<()> {
        self.elements += 1;
        if len > self.state.memory_max() {
            return Err(self.state.end_now(self.lua, crate::ends::End::Memory));
        }
        if self.elements.is_multiple_of(ELEMENTS_PER_LOOK) {
            self.state.check_end(self.lua)?;
        }
        Ok(())
    }
}
