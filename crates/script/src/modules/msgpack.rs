//! `cmsgpack`: MessagePack.

use super::arguments::{bad_argument, list_len, number_at, number_of, string_at};
use super::bounds::Bounds;
use crate::raised::Raised;
use crate::state::State;
use mlua::{Lua, MultiValue, Table, Value, Variadic};
use std::rc::Rc;

/// Largest depth to which tables are written. Deeper ones become nil, as in Redis.
const DEPTH_MAX: usize = 16;
/// Largest depth of nesting of what is read.
const READ_DEPTH_MAX: usize = 200;
/// Largest number of values that one call returns. Lua's stack takes no more.
const VALUES_MAX: usize = 7_000;

pub(super) fn table(state: &Rc<State>, lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.set("_NAME", "cmsgpack")?;
    table.set("_VERSION", "lua-cmsgpack 0.4.0")?;
    table.set("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo")?;
    table.set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    let own = Rc::clone(state);
    let pack = move |lua: &Lua, args: Variadic<Value>| {
        if args.is_empty() {
            return Err(bad_argument(lua, 0, "pack", "MessagePack pack needs input."));
        }
        let mut writer = Writer { bounds: Bounds::new(&own, lua), out: Vec::new() };
        args.iter().try_for_each(|value| writer.value(value, 0))?;
        lua.create_string(&writer.out)
    };
    table.set("pack", lua.create_function(pack)?)?;
    let own = Rc::clone(state);
    let unpack = move |lua: &Lua, args: Variadic<Value>| read(&own, lua, &args, None, "unpack");
    table.set("unpack", lua.create_function(unpack)?)?;
    let own = Rc::clone(state);
    let unpack_one = move |lua: &Lua, args: Variadic<Value>| {
        let offset = optional(lua, &args, 2, "unpack_one")?;
        read(&own, lua, &args, Some((1.0, offset)), "unpack_one")
    };
    table.set("unpack_one", lua.create_function(unpack_one)?)?;
    let own = Rc::clone(state);
    let unpack_limit = move |lua: &Lua, args: Variadic<Value>| {
        let limit = number_at(lua, &args, 2, "unpack_limit")?.trunc();
        let offset = optional(lua, &args, 3, "unpack_limit")?;
        read(&own, lua, &args, Some((limit, offset)), "unpack_limit")
    };
    table.set("unpack_limit", lua.create_function(unpack_limit)?)?;
    Ok(table)
}

fn optional(lua: &Lua, args: &[Value], nth: usize, function: &str) -> mlua::Result<f64> {
    match args.get(nth - 1) {
        None | Some(Value::Nil) => Ok(0.0),
        Some(_) => Ok(number_at(lua, args, nth, function)?.trunc()),
    }
}

struct Writer<'a> {
    bounds: Bounds<'a>,
    out: Vec<u8>,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> mlua::Result<()> {
        self.bounds.pass(self.out.len())?;
        match value {
            Value::String(text) => {
                let text = text.as_bytes();
                self.bounds.pass(self.out.len() + text.len())?;
                self.head(text.len(), (0xa0, 32), [Some(0xd9), Some(0xda), Some(0xdb)]);
                self.out.extend_from_slice(&text);
            }
            Value::Boolean(is_true) => self.out.push(if *is_true { 0xc3 } else { 0xc2 }),
            Value::Table(table) if depth < DEPTH_MAX => return self.table(table, depth),
            other => match number_of(other) {
                Some(number) => self.number(number),
                None => self.out.push(0xc0),
            },
        }
        Ok(())
    }

    /// Writes the kind and length of what follows, in the shortest form.
    fn head(&mut self, len: usize, (fixed, below): (u8, usize), longer: [Option<u8>; 3]) {
        if len < below {
            self.out.push(fixed | len as u8);
        } else if let (Some(kind), Ok(len)) = (longer[0], u8::try_from(len)) {
            self.out.extend_from_slice(&[kind, len]);
        } else if let (Some(kind), Ok(len)) = (longer[1], u16::try_from(len)) {
            self.out.push(kind);
            self.out.extend_from_slice(&len.to_be_bytes());
        } else if let Some(kind) = longer[2] {
            self.out.push(kind);
            self.out.extend_from_slice(&(len as u32).to_be_bytes());
        }
    }

    fn number(&mut self, number: f64) {
        const BOUND: f64 = 9_223_372_036_854_775_808.0;
        if (-BOUND..BOUND).contains(&number) && number.fract() == 0.0 {
            return self.integer(number as i64);
        }
        let short = number as f32;
        if f64::from(short) == number {
            self.out.push(0xca);
            self.out.extend_from_slice(&short.to_be_bytes());
        } else {
            self.out.push(0xcb);
            self.out.extend_from_slice(&number.to_be_bytes());
        }
    }

    fn integer(&mut self, number: i64) {
        let mut tagged = |kind: u8, bytes: &[u8]| {
            self.out.push(kind);
            self.out.extend_from_slice(bytes);
        };
        match number {
            -32..=127 => self.out.push(number as u8),
            128..=0xff => tagged(0xcc, &[number as u8]),
            0x100..=0xffff => tagged(0xcd, &(number as u16).to_be_bytes()),
            0x1_0000..=0xffff_ffff => tagged(0xce, &(number as u32).to_be_bytes()),
            0x1_0000_0000.. => tagged(0xcf, &number.to_be_bytes()),
            -128..=-33 => tagged(0xd0, &[number as u8]),
            -0x8000..=-129 => tagged(0xd1, &(number as i16).to_be_bytes()),
            -0x8000_0000..=-0x8001 => tagged(0xd2, &(number as i32).to_be_bytes()),
            _ => tagged(0xd3, &number.to_be_bytes()),
        }
    }

    fn table(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
        if let Some((max, count)) = list_len(table)?
            && max == count as f64
        {
            self.head(count, (0x90, 16), [None, Some(0xdc), Some(0xdd)]);
            for index in 1..=count {
                self.value(&table.raw_get(index)?, depth + 1)?;
            }
            return Ok(());
        }
        // The pairs are counted first and not collected: Lua's values that are held take space on
        // one of its stacks.
        let mut count = 0;
        for pair in table.pairs::<Value, Value>() {
            pair?;
            count += 1;
        }
        self.head(count, (0x80, 16), [None, Some(0xde), Some(0xdf)]);
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            self.value(&key, depth + 1)?;
            self.value(&value, depth + 1)?;
        }
        Ok(())
    }
}

/// Why bytes are not MessagePack.
enum Fault {
    Missing,
    BadFormat,
    Lua(mlua::Error),
}

impl From<mlua::Error> for Fault {
    fn from(error: mlua::Error) -> Self {
        Self::Lua(error)
    }
}

/// Reads the values of argument 1: all of them, or as many as a limit says from an offset on. In
/// the second case the offset of what follows comes first.
fn read(
    state: &State,
    lua: &Lua,
    args: &[Value],
    part: Option<(f64, f64)>,
    function: &str,
) -> mlua::Result<MultiValue> {
    let text = string_at(lua, args, 1, function)?;
    let text = text.as_bytes();
    let (limit, offset) = part.unwrap_or((f64::INFINITY, 0.0));
    if !(offset >= 0.0 && limit >= 0.0) {
        let text = format!(
            "Invalid request to unpack with offset of {offset} and limit of {}.",
            text.len()
        );
        return Err(Raised::text(lua, &text));
    }
    if offset > text.len() as f64 {
        let text = format!("Start offset {offset} greater than input length {}.", text.len());
        return Err(Raised::text(lua, &text));
    }
    let mut reader =
        Reader { bounds: Bounds::new(state, lua), rest: &text[offset as usize..], lua };
    let mut values = Vec::new();
    while !reader.rest.is_empty() && (values.len() as f64) < limit {
        match reader.value(READ_DEPTH_MAX) {
            Ok(value) => values.push(value),
            Err(Fault::Missing) => return Err(Raised::text(lua, "Missing bytes in input.")),
            Err(Fault::BadFormat) => return Err(Raised::text(lua, "Bad data format in input.")),
            Err(Fault::Lua(error)) => return Err(error),
        }
        if values.len() > VALUES_MAX {
            return Err(Raised::text(lua, "stack overflow (in function mp_unpack_full)"));
        }
    }
    if part.is_some() {
        let next = match reader.rest.len() {
            0 => -1.0,
            left => (text.len() - left) as f64,
        };
        values.insert(0, Value::Number(next));
    }
    Ok(MultiValue::from_vec(values))
}

struct Reader<'a> {
    bounds: Bounds<'a>,
    rest: &'a [u8],
    lua: &'a Lua,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Fault::Missing)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads an unsigned number of `len` bytes.
    fn unsigned(&mut self, len: usize) -> Result<u64, Fault> {
        Ok(self.take(len)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn text(&mut self, len: u64) -> Result<Value, Fault> {
        let text = self.take(usize::try_from(len).map_err(|_| Fault::Missing)?)?;
        Ok(Value::String(self.lua.create_string(text)?))
    }

    fn value(&mut self, depth: usize) -> Result<Value, Fault> {
        self.bounds.pass(0)?;
        let depth = depth.checked_sub(1).ok_or(Fault::BadFormat)?;
        let kind = self.take(1)?[0];
        let signed = |bits: u64, len: u32| {
            let unused = 64 - 8 * len;
            Value::Number((((bits << unused) as i64) >> unused) as f64)
        };
        Ok(match kind {
            0x00..=0x7f => Value::Number(f64::from(kind)),
            0xe0..=0xff => Value::Number(f64::from(kind as i8)),
            0x80..=0x8f => self.map(u64::from(kind & 15), depth)?,
            0x90..=0x9f => self.list(u64::from(kind & 15), depth)?,
            0xa0..=0xbf => self.text(u64::from(kind & 31))?,
            0xc0 => Value::Nil,
            0xc2 | 0xc3 => Value::Boolean(kind == 0xc3),
            0xca => Value::Number(f64::from(f32::from_bits(self.unsigned(4)? as u32))),
            0xcb => Value::Number(f64::from_bits(self.unsigned(8)?)),
            0xcc..=0xcf => Value::Number(self.unsigned(1 << (kind & 3))? as f64),
            0xd0..=0xd3 => {
                let len = 1 << (kind & 3);
                signed(self.unsigned(len)?, len as u32)
            }
            0xc4 | 0xd9 => {
                let len = self.unsigned(1)?;
                self.text(len)?
            }
            0xc5 | 0xda => {
                let len = self.unsigned(2)?;
                self.text(len)?
            }
            0xc6 | 0xdb => {
                let len = self.unsigned(4)?;
                self.text(len)?
            }
            0xdc | 0xdd => {
                let len = self.unsigned(if kind == 0xdc { 2 } else { 4 })?;
                self.list(len, depth)?
            }
            0xde | 0xdf => {
                let len = self.unsigned(if kind == 0xde { 2 } else { 4 })?;
                self.map(len, depth)?
            }
            _ => return Err(Fault::BadFormat),
        })
    }

    fn list(&mut self, len: u64, depth: usize) -> Result<Value, Fault> {
        let table = self.lua.create_table()?;
        for index in 1..=len {
            let value = self.value(depth)?;
            table.raw_set(index, value)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, len: u64, depth: usize) -> Result<Value, Fault> {
        let table = self.lua.create_table()?;
        for _ in 0..len {
            let (key, value) = (self.value(depth)?, self.value(depth)?);
            let is_key = !key.is_nil() && number_of(&key).is_none_or(|key| !key.is_nan());
            if !is_key {
                return Err(Fault::BadFormat);
            }
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }
}
