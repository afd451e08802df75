//! `cjson`: JSON, with the settings and the messages of lua-cjson.

use super::arguments::{bad_argument, list_len, number_of, string_at};
use super::bounds::Bounds;
use crate::json_settings::{DEPTH_MAX, JsonSettings};
use crate::number::general;
use crate::raised::Raised;
use crate::state::State;
use mlua::{Lua, Table, Value, Variadic};
use std::cell::Cell;
use std::rc::Rc;

pub(super) fn table(state: &Rc<State>, lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.set("_NAME", "cjson")?;
    table.set("_VERSION", "2.1.0")?;
    table.set("null", Value::NULL)?;
    let own = Rc::clone(state);
    let encode = move |lua: &Lua, args: Variadic<Value>| {
        let [value] = &args[..] else {
            return Err(bad_argument(lua, 1, "encode", "expected 1 argument"));
        };
        let mut writer =
            Writer { bounds: Bounds::new(&own, lua), settings: own.json(), out: Vec::new(), lua };
        writer.value(value, 0)?;
        lua.create_string(&writer.out)
    };
    table.set("encode", lua.create_function(encode)?)?;
    let own = Rc::clone(state);
    let decode = move |lua: &Lua, args: Variadic<Value>| {
        if args.len() != 1 {
            return Err(bad_argument(lua, 1, "decode", "expected 1 argument"));
        }
        let text = string_at(lua, &args, 1, "decode")?;
        decode(&own, lua, &text.as_bytes())
    };
    table.set("decode", lua.create_function(decode)?)?;
    set_settings(state, lua, &table)?;
    let whole = table.clone();
    table.set("new", lua.create_function(move |_, (): ()| Ok(whole.clone()))?)?;
    Ok(table)
}

/// Returns a number that a script sets, within bounds.
fn setting(
    lua: &Lua,
    args: &[Value],
    nth: usize,
    (function, min, max): (&str, usize, usize),
) -> mlua::Result<Option<usize>> {
    let Some(value) = args.get(nth - 1).filter(|value| !value.is_nil()) else { return Ok(None) };
    let number = lua.coerce_number(value.clone())?;
    let number = number.filter(|number| (min as f64..=max as f64).contains(number));
    let text = format!("expected integer between {min} and {max}");
    number
        .map(|number| Some(number as usize))
        .ok_or_else(|| bad_argument(lua, nth, function, &text))
}

type Number = fn(&JsonSettings) -> &Cell<usize>;
type Switch = fn(&JsonSettings) -> &Cell<bool>;

fn set_settings(state: &Rc<State>, lua: &Lua, table: &Table) -> mlua::Result<()> {
    const HUGE: usize = i32::MAX as usize;
    let numbers: [(&'static str, usize, usize, Number); 3] = [
        ("encode_max_depth", 1, HUGE, |all| &all.encode_depth),
        ("decode_max_depth", 1, HUGE, |all| &all.decode_depth),
        ("encode_number_precision", 1, 14, |all| &all.precision),
    ];
    for (name, min, max, of) in numbers {
        let own = Rc::clone(state);
        let function = move |lua: &Lua, args: Variadic<Value>| {
            if let Some(number) = setting(lua, &args, 1, (name, min, max))? {
                of(own.json()).set(number);
            }
            Ok(of(own.json()).get() as f64)
        };
        table.set(name, lua.create_function(function)?)?;
    }
    let switches: [(&'static str, Switch); 2] = [
        ("encode_keep_buffer", |all| &all.keeps_buffer),
        ("decode_invalid_numbers", |all| &all.decodes_invalid),
    ];
    for (name, of) in switches {
        let own = Rc::clone(state);
        let function = move |_: &Lua, args: Variadic<Value>| {
            if let Some(value) = args.first() {
                of(own.json()).set(is_on(value));
            }
            Ok(of(own.json()).get())
        };
        table.set(name, lua.create_function(function)?)?;
    }
    let own = Rc::clone(state);
    let invalid = move |lua: &Lua, args: Variadic<Value>| {
        let all = own.json();
        match args.first() {
            None => {}
            Some(Value::String(text)) if text.as_bytes() == b"null" => {
                all.encodes_invalid.set(None)
            }
            Some(value) => all.encodes_invalid.set(Some(is_on(value))),
        }
        Ok(match all.encodes_invalid.get() {
            Some(is_on) => Value::Boolean(is_on),
            None => Value::String(lua.create_string("null")?),
        })
    };
    table.set("encode_invalid_numbers", lua.create_function(invalid)?)?;
    let own = Rc::clone(state);
    let sparse = move |lua: &Lua, args: Variadic<Value>| {
        let all = own.json();
        const NAME: &str = "encode_sparse_array";
        if let Some(value) = args.first().filter(|value| !value.is_nil()) {
            all.converts_sparse.set(is_on(value));
        }
        if let Some(ratio) = setting(lua, &args, 2, (NAME, 0, HUGE))? {
            all.sparse_ratio.set(ratio);
        }
        if let Some(safe) = setting(lua, &args, 3, (NAME, 0, HUGE))? {
            all.sparse_safe.set(safe);
        }
        let (ratio, safe) = (all.sparse_ratio.get() as f64, all.sparse_safe.get() as f64);
        Ok((all.converts_sparse.get(), ratio, safe))
    };
    table.set("encode_sparse_array", lua.create_function(sparse)?)
}

fn is_on(value: &Value) -> bool {
    match value {
        Value::Boolean(is_on) => *is_on,
        Value::String(text) => text.as_bytes() == b"on",
        _ => false,
    }
}

struct Writer<'a> {
    bounds: Bounds<'a>,
    settings: &'a JsonSettings,
    out: Vec<u8>,
    lua: &'a Lua,
}

impl Writer<'_> {
    fn fail(&self, kind: &str, why: &str) -> mlua::Error {
        Raised::text(self.lua, &format!("Cannot serialise {kind}: {why}"))
    }

    fn value(&mut self, value: &Value, depth: usize) -> mlua::Result<()> {
        self.bounds.pass(self.out.len())?;
        match value {
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::LightUserData(_) if *value == Value::NULL => {
                self.out.extend_from_slice(b"null");
            }
            Value::Boolean(is_true) => {
                self.out.extend_from_slice(if *is_true { b"true" } else { b"false" });
            }
            Value::String(text) => self.string(&text.as_bytes())?,
            Value::Table(table) => return self.table(table, depth + 1),
            other => match number_of(other) {
                Some(number) => return self.number(number),
                None => {
                    return Err(
                        self.fail(super::arguments::type_of(Some(other)), "type not supported")
                    );
                }
            },
        }
        Ok(())
    }

    fn number(&mut self, number: f64) -> mlua::Result<()> {
        if !number.is_finite() {
            match self.settings.encodes_invalid.get() {
                Some(false) => return Err(self.fail("number", "must not be NaN or Inf")),
                Some(true) => {
                    let text = match number.is_nan() {
                        true => "nan".to_owned(),
                        false => general(number, 14),
                    };
                    self.out.extend_from_slice(text.as_bytes());
                }
                None => self.out.extend_from_slice(b"null"),
            }
            return Ok(());
        }
        let text = general(number, self.settings.precision.get());
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn string(&mut self, text: &[u8]) -> mlua::Result<()> {
        self.bounds.pass(self.out.len() + text.len())?;
        self.out.push(b'"');
        for byte in text {
            let short = match byte {
                b'"' | b'\\' | b'/' => *byte,
                8 => b'b',
                9 => b't',
                10 => b'n',
                12 => b'f',
                13 => b'r',
                0..=31 | 127 => {
                    self.out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                    continue;
                }
                _ => {
                    self.out.push(*byte);
                    continue;
                }
            };
            self.out.extend_from_slice(&[b'\\', short]);
        }
        self.out.push(b'"');
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
        if depth > self.settings.encode_depth.get().min(DEPTH_MAX) {
            let text = format!("Cannot serialise, excessive nesting ({depth})");
            return Err(Raised::text(self.lua, &text));
        }
        match self.list_len(table)? {
            Some(len) => self.list(table, len, depth),
            None => self.object(table, depth),
        }
    }

    /// Returns the length of what is written as a list.
    fn list_len(&self, table: &Table) -> mlua::Result<Option<usize>> {
        let Some((max, count)) = list_len(table)?.filter(|(_, count)| *count > 0) else {
            return Ok(None);
        };
        let ratio = self.settings.sparse_ratio.get();
        let is_sparse = ratio > 0
            && max > count as f64 * ratio as f64
            && max > self.settings.sparse_safe.get() as f64;
        match is_sparse {
            false => Ok(Some(max as usize)),
            true if self.settings.converts_sparse.get() => Ok(None),
            true => Err(self.fail("table", "excessively sparse array")),
        }
    }

    fn list(&mut self, table: &Table, len: usize, depth: usize) -> mlua::Result<()> {
        self.out.push(b'[');
        for index in 1..=len {
            if index > 1 {
                self.out.push(b',');
            }
            self.value(&table.raw_get(index)?, depth)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
        self.out.push(b'{');
        let mut is_first = true;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            if !std::mem::take(&mut is_first) {
                self.out.push(b',');
            }
            match (&key, number_of(&key)) {
                (Value::String(key), _) => self.string(&key.as_bytes())?,
                (_, Some(number)) => {
                    self.out.push(b'"');
                    self.number(number)?;
                    self.out.push(b'"');
                }
                _ => {
                    let kind = super::arguments::type_of(Some(&key));
                    return Err(self.fail(kind, "table key must be a number or string"));
                }
            }
            self.out.push(b':');
            self.value(&value, depth)?;
        }
        self.out.push(b'}');
        Ok(())
    }
}

/// A piece of JSON.
enum Token {
    ObjectBegin,
    ObjectEnd,
    ListBegin,
    ListEnd,
    Text(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Wrong(&'static str),
}

impl Token {
    fn name(&self) -> &'static str {
        match self {
            Self::ObjectBegin => "T_OBJ_BEGIN",
            Self::ObjectEnd => "T_OBJ_END",
            Self::ListBegin => "T_ARR_BEGIN",
            Self::ListEnd => "T_ARR_END",
            Self::Text(_) => "T_STRING",
            Self::Number(_) => "T_NUMBER",
            Self::Boolean(_) => "T_BOOLEAN",
            Self::Null => "T_NULL",
            Self::Colon => "T_COLON",
            Self::Comma => "T_COMMA",
            Self::End => "T_END",
            Self::Wrong(what) => what,
        }
    }
}

struct Reader<'a> {
    bounds: Bounds<'a>,
    text: &'a [u8],
    at: usize,
    /// Index at which the last token began, or was found wrong.
    token_at: usize,
    depth: usize,
    settings: &'a JsonSettings,
    lua: &'a Lua,
}

fn decode(state: &State, lua: &Lua, text: &[u8]) -> mlua::Result<Value> {
    if matches!(text, [0, _, ..] | [_, 0, ..]) {
        return Err(Raised::text(lua, "JSON parser does not support UTF-16 or UTF-32"));
    }
    let mut reader = Reader {
        bounds: Bounds::new(state, lua),
        text,
        at: 0,
        token_at: 0,
        depth: 0,
        settings: state.json(),
        lua,
    };
    let token = reader.next();
    let value = reader.value(token)?;
    match reader.next() {
        Token::End => Ok(value),
        other => Err(reader.expected("the end", &other)),
    }
}

impl Reader<'_> {
    fn expected(&self, what: &str, found: &Token) -> mlua::Error {
        let (found, at) = (found.name(), self.token_at + 1);
        let text = format!("Expected {what} but found {found} at character {at}");
        Raised::text(self.lua, &text)
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn next(&mut self) -> Token {
        while matches!(self.peek(0), b' ' | b'\t' | b'\n' | b'\r') && self.at < self.text.len() {
            self.at += 1;
        }
        self.token_at = self.at;
        if self.at >= self.text.len() {
            return Token::End;
        }
        let one = match self.peek(0) {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ListBegin,
            b']' => Token::ListEnd,
            b':' => Token::Colon,
            b',' => Token::Comma,
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' => {
                return match !self.settings.decodes_invalid.get() && self.is_invalid_number() {
                    true => Token::Wrong("invalid number"),
                    false => self.number(),
                };
            }
            0 => return Token::End,
            _ => return self.word(),
        };
        self.at += 1;
        one
    }

    fn word(&mut self) -> Token {
        let rest = &self.text[self.at..];
        for (word, token) in [
            (&b"true"[..], Token::Boolean(true)),
            (b"false", Token::Boolean(false)),
            (b"null", Token::Null),
        ] {
            if rest.starts_with(word) {
                self.at += word.len();
                return token;
            }
        }
        match self.settings.decodes_invalid.get() && self.is_invalid_number() {
            true => self.number(),
            false => Token::Wrong("invalid token"),
        }
    }

    /// Returns whether a number begins here that is not valid in JSON.
    fn is_invalid_number(&self) -> bool {
        let mut rest = &self.text[self.at..];
        if rest.first() == Some(&b'+') {
            return true;
        }
        rest = rest.strip_prefix(b"-").unwrap_or(rest);
        match rest {
            [b'0', b'x' | b'X' | b'0'..=b'9', ..] => true,
            [b'0'..=b'9', ..] => false,
            _ => {
                let word: Vec<u8> = rest.iter().take(3).map(u8::to_ascii_lowercase).collect();
                word == b"inf" || word == b"nan"
            }
        }
    }

    /// Reads a number in the forms that C's `strtod` accepts.
    fn number(&mut self) -> Token {
        let rest = &self.text[self.at..];
        match parse_number(rest) {
            Some((number, len)) => {
                self.at += len;
                Token::Number(number)
            }
            None => Token::Wrong("invalid number"),
        }
    }

    fn wrong(&mut self, what: &'static str) -> Token {
        self.token_at = self.at;
        Token::Wrong(what)
    }

    fn string(&mut self) -> Token {
        self.at += 1;
        let mut out = Vec::new();
        loop {
            match self.peek(0) {
                0 => return self.wrong("unexpected end of string"),
                b'"' => break,
                b'\\' => {
                    let escaped = match self.peek(1) {
                        byte @ (b'"' | b'\\' | b'/') => byte,
                        b'b' => 8,
                        b'f' => 12,
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'u' => match self.unicode(&mut out) {
                            Some(()) => continue,
                            None => return self.wrong("invalid unicode escape code"),
                        },
                        _ => return self.wrong("invalid escape code"),
                    };
                    out.push(escaped);
                    self.at += 2;
                }
                byte => {
                    out.push(byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        Token::Text(out)
    }

    /// Reads four digits after `\u`, `ahead` bytes from here.
    fn hex(&self, ahead: usize) -> Option<u32> {
        (0..4).try_fold(0, |sum, nth| {
            let digit = char::from(self.peek(ahead + nth)).to_digit(16)?;
            Some(sum << 4 | digit)
        })
    }

    fn unicode(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let mut code = self.hex(2)?;
        let mut len = 6;
        if code & 0xF800 == 0xD800 {
            if code & 0x400 != 0 || self.peek(6) != b'\\' || self.peek(7) != b'u' {
                return None;
            }
            let low = self.hex(8).filter(|low| low & 0xFC00 == 0xDC00)?;
            code = ((code & 0x3FF) << 10 | (low & 0x3FF)) + 0x10000;
            len = 12;
        }
        out.extend_from_slice(char::from_u32(code)?.encode_utf8(&mut [0; 4]).as_bytes());
        self.at += len;
        Some(())
    }

    fn descend(&mut self) -> mlua::Result<()> {
        self.depth += 1;
        if self.depth > self.settings.decode_depth.get().min(DEPTH_MAX) {
            let (depth, at) = (self.depth, self.at);
            let text = format!("Found too many nested data structures ({depth}) at character {at}");
            return Err(Raised::text(self.lua, &text));
        }
        Ok(())
    }

    fn value(&mut self, token: Token) -> mlua::Result<Value> {
        self.bounds.pass(0)?;
        match token {
            Token::Text(text) => Ok(Value::String(self.lua.create_string(text)?)),
            Token::Number(number) => Ok(Value::Number(number)),
            Token::Boolean(is_true) => Ok(Value::Boolean(is_true)),
            Token::Null => Ok(Value::NULL),
            Token::ObjectBegin => self.object(),
            Token::ListBegin => self.list(),
            other => Err(self.expected("value", &other)),
        }
    }

    fn object(&mut self) -> mlua::Result<Value> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.next();
        if !matches!(token, Token::ObjectEnd) {
            loop {
                let Token::Text(key) = &token else {
                    return Err(self.expected("object key string", &token));
                };
                let key = self.lua.create_string(key)?;
                match self.next() {
                    Token::Colon => {}
                    other => return Err(self.expected("colon", &other)),
                }
                let first = self.next();
                let value = self.value(first)?;
                table.raw_set(key, value)?;
                match self.next() {
                    Token::ObjectEnd => break,
                    Token::Comma => token = self.next(),
                    other => return Err(self.expected("comma or object end", &other)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }

    fn list(&mut self) -> mlua::Result<Value> {
        self.descend()?;
        let table = self.lua.create_table()?;
        let mut token = self.next();
        if !matches!(token, Token::ListEnd) {
            for index in 1.. {
                let value = self.value(token)?;
                table.raw_set(index, value)?;
                match self.next() {
                    Token::ListEnd => break,
                    Token::Comma => token = self.next(),
                    other => return Err(self.expected("comma or array end", &other)),
                }
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }
}

/// Returns a number at the beginning of `text`, and its length.
fn parse_number(text: &[u8]) -> Option<(f64, usize)> {
    let sign_len = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let sign = if text.first() == Some(&b'-') { -1.0 } else { 1.0 };
    let rest = &text[sign_len..];
    let lower = |len: usize| rest.iter().take(len).map(u8::to_ascii_lowercase).collect::<Vec<_>>();
    if lower(8) == b"infinity" {
        return Some((sign * f64::INFINITY, sign_len + 8));
    }
    match &lower(3)[..] {
        b"inf" => return Some((sign * f64::INFINITY, sign_len + 3)),
        b"nan" => return Some((sign * f64::NAN, sign_len + 3)),
        _ => {}
    }
    if lower(2) == b"0x" {
        let digits = rest[2..].iter().map_while(|byte| char::from(*byte).to_digit(16));
        let (number, len) =
            digits.fold((0.0, 0), |(sum, len), digit| (sum * 16.0 + f64::from(digit), len + 1));
        return Some(if len == 0 {
            (0.0, sign_len + 1)
        } else {
            (sign * number, sign_len + 2 + len)
        });
    }
    let digits = |from: usize| {
        rest[from.min(rest.len())..].iter().take_while(|it| it.is_ascii_digit()).count()
    };
    let whole = digits(0);
    let mut len = whole;
    let mut decimals = 0;
    if rest.get(len) == Some(&b'.') {
        decimals = digits(len + 1);
        len += 1 + decimals;
    }
    if whole + decimals == 0 {
        return None;
    }
    if matches!(rest.get(len), Some(b'e' | b'E')) {
        let sign_len = usize::from(matches!(rest.get(len + 1), Some(b'-' | b'+')));
        let exponent = digits(len + 1 + sign_len);
        if exponent > 0 {
            len += 1 + sign_len + exponent;
        }
    }
    let number: f64 = std::str::from_utf8(&rest[..len]).ok()?.parse().ok()?;
    Some((sign * number, sign_len + len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_far_as_c_does() {
        for (text, expected) in [
            (&b"12.5e1,"[..], Some((125.0, 6))),
            (b"-0x1F", Some((-31.0, 5))),
            (b"1e", Some((1.0, 1))),
            (b".5", Some((0.5, 2))),
            (b"5.", Some((5.0, 2))),
            (b"-inf]", Some((f64::NEG_INFINITY, 4))),
            (b"-", None),
            (b"", None),
        ] {
            assert_eq!(parse_number(text), expected);
        }
    }
}
