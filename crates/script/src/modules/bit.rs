//! `bit`: operations on the 32 bits of a number.

use super::arguments::number_at;
use mlua::{Lua, Table, Value, Variadic};

/// Returns the bits of a number, modulo 2^32, rounded to the nearest even.
fn bits_of(number: f64) -> u32 {
    if !number.is_finite() {
        return 0;
    }
    number.round_ties_even().rem_euclid(4_294_967_296.0) as u32
}

fn result(bits: u32) -> f64 {
    f64::from(bits as i32)
}

fn hex(bits: u32, digits: i32) -> String {
    let count = digits.unsigned_abs().min(8) as usize;
    let all = match digits < 0 {
        true => format!("{bits:08X}"),
        false => format!("{bits:08x}"),
    };
    all[8 - count..].to_owned()
}

type Map = fn(u32) -> u32;
type Fold = fn(u32, u32) -> u32;
type Shift = fn(u32, u32) -> u32;

pub(super) fn table(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let one: [(&'static str, Map); 3] =
        [("tobit", |bits| bits), ("bnot", |bits| !bits), ("bswap", u32::swap_bytes)];
    for (name, of) in one {
        let function = move |lua: &Lua, args: Variadic<Value>| {
            Ok(result(of(bits_of(number_at(lua, &args, 1, name)?))))
        };
        table.set(name, lua.create_function(function)?)?;
    }
    let folds: [(&'static str, Fold); 3] =
        [("band", |a, b| a & b), ("bor", |a, b| a | b), ("bxor", |a, b| a ^ b)];
    for (name, of) in folds {
        let function = move |lua: &Lua, args: Variadic<Value>| {
            let mut bits = bits_of(number_at(lua, &args, 1, name)?);
            for nth in 2..=args.len() {
                bits = of(bits, bits_of(number_at(lua, &args, nth, name)?));
            }
            Ok(result(bits))
        };
        table.set(name, lua.create_function(function)?)?;
    }
    let shifts: [(&'static str, Shift); 5] = [
        ("lshift", |bits, by| bits << by),
        ("rshift", |bits, by| bits >> by),
        ("arshift", |bits, by| ((bits as i32) >> by) as u32),
        ("rol", u32::rotate_left),
        ("ror", u32::rotate_right),
    ];
    for (name, of) in shifts {
        let function = move |lua: &Lua, args: Variadic<Value>| {
            let bits = bits_of(number_at(lua, &args, 1, name)?);
            let by = bits_of(number_at(lua, &args, 2, name)?) & 31;
            Ok(result(of(bits, by)))
        };
        table.set(name, lua.create_function(function)?)?;
    }
    let tohex = |lua: &Lua, args: Variadic<Value>| {
        let bits = bits_of(number_at(lua, &args, 1, "tohex")?);
        let digits = match args.len() {
            1 => 8,
            _ => bits_of(number_at(lua, &args, 2, "tohex")?) as i32,
        };
        Ok(hex(bits, digits))
    };
    table.set("tohex", lua.create_function(tohex)?)?;
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_modulo_the_bits() {
        for (number, bits) in
            [(-1.0, u32::MAX), (4_294_967_296.0, 0), (2.5, 2), (3.5, 4), (f64::NAN, 0)]
        {
            assert_eq!(bits_of(number), bits, "{number}");
        }
        assert_eq!(
            (hex(255, 8), hex(255, -4), hex(255, i32::MIN)),
            ("000000ff".to_owned(), "00FF".to_owned(), "000000FF".to_owned())
        );
    }
}
