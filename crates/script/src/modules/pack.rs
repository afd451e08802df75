//! `struct`: values as bytes in a given format.

use super::arguments::{bad_argument, number_at, string_at};
use super::bounds::Bounds;
use crate::number::truncate;
use crate::raised::Raised;
use crate::state::State;
use mlua::{Lua, MultiValue, Table, Value, Variadic};
use std::rc::Rc;

/// Length of the longest integer, in bytes.
const INTEGER_LEN_MAX: usize = 32;
/// Alignment of `!` without a number.
const ALIGN: usize = 8;
/// Largest number of values that one call returns. Lua's stack takes no more.
const VALUES_MAX: usize = 7_000;

pub(super) fn table(state: &Rc<State>, lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let own = Rc::clone(state);
    let pack = move |lua: &Lua, args: Variadic<Value>| pack(&own, lua, &args);
    table.set("pack", lua.create_function(pack)?)?;
    let unpack = |lua: &Lua, args: Variadic<Value>| unpack(lua, &args);
    table.set("unpack", lua.create_function(unpack)?)?;
    let size = |lua: &Lua, args: Variadic<Value>| size(lua, &args);
    table.set("size", lua.create_function(size)?)?;
    Ok(table)
}

/// A format, as it is read from the left.
struct Form<'a> {
    rest: &'a [u8],
    is_little: bool,
    align: usize,
    function: &'static str,
}

/// An option of a format, and its number of bytes.
struct Item {
    option: u8,
    size: usize,
}

impl Form<'_> {
    fn number(&mut self, default: usize) -> usize {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at(digits);
        self.rest = rest;
        if digits.is_empty() {
            return default;
        }
        let text = std::str::from_utf8(digits).unwrap_or_default();
        text.parse::<u32>().map_or(usize::MAX >> 1, |number| number as usize)
    }

    fn next(&mut self, lua: &Lua) -> mlua::Result<Option<Item>> {
        let Some((&option, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        let size = match option {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.number(1),
            b'i' | b'I' => {
                let size = self.number(4);
                if size > INTEGER_LEN_MAX {
                    let text =
                        format!("integral size {size} is larger than limit of {INTEGER_LEN_MAX}");
                    return Err(Raised::text(lua, &text));
                }
                size
            }
            _ => 0,
        };
        Ok(Some(Item { option, size }))
    }

    /// Returns the number of bytes before an item that align it.
    fn padding(&self, at: usize, item: &Item) -> usize {
        if item.size == 0 || item.option == b'c' {
            return 0;
        }
        let size = item.size.min(self.align).max(1);
        (size - (at & (size - 1))) & (size - 1)
    }

    /// Handles an option that changes how the rest is read.
    fn control(&mut self, lua: &Lua, option: u8) -> mlua::Result<()> {
        match option {
            b' ' => {}
            b'>' => self.is_little = false,
            b'<' => self.is_little = true,
            b'!' => {
                let align = self.number(ALIGN);
                if !align.is_power_of_two() {
                    let text = format!("alignment {align} is not a power of 2");
                    return Err(Raised::text(lua, &text));
                }
                self.align = align;
            }
            _ => {
                let text = format!("invalid format option '{}'", char::from(option));
                return Err(bad_argument(lua, 1, self.function, &text));
            }
        }
        Ok(())
    }
}

fn form<'a>(text: &'a [u8], function: &'static str) -> Form<'a> {
    Form { rest: text, is_little: true, align: 1, function }
}

fn ordered(mut bytes: Vec<u8>, is_little: bool) -> Vec<u8> {
    if !is_little {
        bytes.reverse();
    }
    bytes
}

fn pack(state: &State, lua: &Lua, args: &[Value]) -> mlua::Result<mlua::LuaString> {
    let text = string_at(lua, args, 1, "pack")?;
    let text = text.as_bytes();
    let mut form = form(&text, "pack");
    let mut bounds = Bounds::new(state, lua);
    let (mut out, mut nth) = (Vec::new(), 1);
    while let Some(item) = form.next(lua)? {
        bounds.pass(out.len())?;
        out.resize(out.len() + form.padding(out.len(), &item), 0);
        match item.option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                nth += 1;
                let number = truncate(number_at(lua, args, nth, "pack")?);
                let fill = if number < 0 { 0xff } else { 0 };
                let mut bytes = number.to_le_bytes().to_vec();
                bytes.resize(item.size, fill);
                out.extend(ordered(bytes, form.is_little));
            }
            b'x' => out.push(0),
            b'f' => {
                nth += 1;
                let number = number_at(lua, args, nth, "pack")? as f32;
                out.extend(ordered(number.to_le_bytes().to_vec(), form.is_little));
            }
            b'd' => {
                nth += 1;
                let number = number_at(lua, args, nth, "pack")?;
                out.extend(ordered(number.to_le_bytes().to_vec(), form.is_little));
            }
            b'c' | b's' => {
                nth += 1;
                let text = string_at(lua, args, nth, "pack")?;
                let text = text.as_bytes();
                let size = if item.size == 0 { text.len() } else { item.size };
                if text.len() < size {
                    return Err(bad_argument(lua, nth + 1, "pack", "string too short"));
                }
                bounds.pass(out.len() + size)?;
                out.extend_from_slice(&text[..size]);
                if item.option == b's' {
                    out.push(0);
                }
            }
            option => form.control(lua, option)?,
        }
    }
    lua.create_string(out)
}

fn size(lua: &Lua, args: &[Value]) -> mlua::Result<f64> {
    let text = string_at(lua, args, 1, "size")?;
    let text = text.as_bytes();
    let mut form = form(&text, "size");
    let mut at = 0_usize;
    while let Some(item) = form.next(lua)? {
        at = at.saturating_add(form.padding(at, &item));
        match (item.option, item.size) {
            (option @ b's', _) | (option @ b'c', 0) => {
                let text = format!("option '{}' has no fixed size", char::from(option));
                return Err(bad_argument(lua, 1, "size", &text));
            }
            (option, 0) if !option.is_ascii_alphabetic() => form.control(lua, option)?,
            (option, 0) if !matches!(option, b'i' | b'I') => form.control(lua, option)?,
            _ => {}
        }
        at = at.saturating_add(item.size);
    }
    Ok(at as f64)
}

fn integer(bytes: &[u8], is_little: bool, is_signed: bool) -> f64 {
    let mut sum = 0_u64;
    let mut add = |byte: &u8| sum = sum << 8 | u64::from(*byte);
    match is_little {
        true => bytes.iter().rev().for_each(&mut add),
        false => bytes.iter().for_each(&mut add),
    }
    if !is_signed {
        return sum as f64;
    }
    let unused = 64 - 8 * bytes.len().min(8) as u32;
    if unused == 64 { 0.0 } else { (((sum << unused) as i64) >> unused) as f64 }
}

fn unpack(lua: &Lua, args: &[Value]) -> mlua::Result<MultiValue> {
    let (text, data) = (string_at(lua, args, 1, "unpack")?, string_at(lua, args, 2, "unpack")?);
    let (text, data) = (text.as_bytes(), data.as_bytes());
    let mut at = match args.get(2) {
        None | Some(Value::Nil) => 0,
        Some(_) => {
            let from = truncate(number_at(lua, args, 3, "unpack")?);
            match usize::try_from(from) {
                Ok(from @ 1..) => from - 1,
                _ => return Err(bad_argument(lua, 3, "unpack", "offset must be 1 or greater")),
            }
        }
    };
    let short = || bad_argument(lua, 2, "unpack", "data string too short");
    let mut form = form(&text, "unpack");
    let mut values: Vec<Value> = Vec::new();
    while let Some(item) = form.next(lua)? {
        at = at.saturating_add(form.padding(at, &item));
        let end = at.checked_add(item.size).ok_or_else(short)?;
        let bytes = data.get(at..end).ok_or_else(short)?;
        if values.len() > VALUES_MAX {
            return Err(Raised::text(lua, "stack overflow (too many results)"));
        }
        at = end;
        match item.option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let is_signed = item.option.is_ascii_lowercase();
                values.push(Value::Number(integer(bytes, form.is_little, is_signed)));
            }
            b'x' => {}
            b'f' => {
                let bits = integer(bytes, form.is_little, false) as u32;
                values.push(Value::Number(f64::from(f32::from_bits(bits))));
            }
            b'd' => {
                let mut whole = [0; 8];
                whole.copy_from_slice(bytes);
                let number = match form.is_little {
                    true => f64::from_le_bytes(whole),
                    false => f64::from_be_bytes(whole),
                };
                values.push(Value::Number(number));
            }
            b'c' if item.size > 0 => values.push(Value::String(lua.create_string(bytes)?)),
            b'c' => {
                let Some(size) = values.pop().as_ref().and_then(super::number_of) else {
                    return Err(Raised::text(lua, "format 'c0' needs a previous size"));
                };
                let size = usize::try_from(truncate(size)).map_err(|_| short())?;
                let end = at.checked_add(size).ok_or_else(short)?;
                let bytes = data.get(at..end).ok_or_else(short)?;
                values.push(Value::String(lua.create_string(bytes)?));
                at = end;
            }
            b's' => {
                let rest = data.get(at..).ok_or_else(short)?;
                let Some(len) = rest.iter().position(|byte| *byte == 0) else {
                    return Err(Raised::text(lua, "unfinished string in data"));
                };
                values.push(Value::String(lua.create_string(&rest[..len])?));
                at += len + 1;
            }
            option => form.control(lua, option)?,
        }
    }
    values.push(Value::Number((at + 1) as f64));
    Ok(MultiValue::from_vec(values))
}
