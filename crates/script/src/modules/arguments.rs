//! Reads the arguments of the libraries' functions.

use crate::raised::Raised;
use mlua::{Lua, Table, Value};

/// Returns the number. Lua may represent it as an integer.
pub(crate) fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => Some(*number),
        Value::Integer(number) => Some(*number as f64),
        _ => None,
    }
}

/// Returns Lua's error for a wrong argument.
pub(super) fn bad_argument(lua: &Lua, nth: usize, function: &str, what: &str) -> mlua::Error {
    Raised::text(lua, &format!("bad argument #{nth} to '{function}' ({what})"))
}

/// Returns Lua's name of the type of an argument that may be missing.
pub(super) fn type_of(value: Option<&Value>) -> &'static str {
    match value {
        None => "no value",
        Some(Value::Integer(_)) => "number",
        Some(Value::LightUserData(_)) => "userdata",
        Some(value) => value.type_name(),
    }
}

/// Returns a number among the arguments, which are counted from 1.
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

/// Returns a string among the arguments, which are counted from 1.
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

/// Returns the length of a table that is a list, whose keys are the numbers from 1 to the length,
/// with the number of keys. Returns `None` for other tables.
pub(super) fn list_len(table: &Table) -> mlua::Result<Option<(f64, usize)>> {
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
