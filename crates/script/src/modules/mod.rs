//! The libraries of scripts besides Lua's own: cjson, cmsgpack, bit and struct, as in Redis.

mod arguments;
mod bit;
mod bounds;
mod json;
mod msgpack;
mod pack;
mod pattern;

pub(crate) use arguments::{number_at, number_of, string_at};
pub(crate) use pattern::add as add_patterns;

use crate::state::State;
use mlua::{Lua, Table};
use std::rc::Rc;

/// Adds the libraries to `libraries`.
pub(crate) fn add(state: &Rc<State>, lua: &Lua, libraries: &Table) -> mlua::Result<()> {
    libraries.set("bit", bit::table(lua)?)?;
    libraries.set("cjson", json::table(state, lua)?)?;
    libraries.set("cmsgpack", msgpack::table(state, lua)?)?;
    libraries.set("struct", pack::table(state, lua)?)
}
