//! Writes what a script returns as the reply to its client.

use crate::number::{general, truncate};
use keyway_resp::{Protocol, reply};
use mlua::{Table, Value};

/// Largest depth of nesting of a script's result.
const DEPTH_MAX: usize = 512;

/// Why a value cannot be a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswerable {
    /// It is too long.
    Long,
    /// It is nested too deeply.
    Deep,
    /// It takes too long: tables may contain each other many times.
    Late,
}

/// Writes replies.
pub(crate) struct Answer<'a> {
    /// The client's protocol.
    pub(crate) client: Protocol,
    /// The protocol that the script has set with `redis.setresp`.
    pub(crate) script: Protocol,
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) len_max: usize,
    /// True if the script's time is up.
    pub(crate) is_late: &'a dyn Fn() -> bool,
    /// Number of values written.
    pub(crate) count: u32,
}

/// Number of values between two checks of the time.
const VALUES_PER_LOOK: u32 = 4096;

impl Answer<'_> {
    pub(crate) fn write(&mut self, value: &Value) -> Result<(), Unanswerable> {
        self.value(value, DEPTH_MAX)
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Unanswerable> {
        if self.out.len() > self.len_max {
            return Err(Unanswerable::Long);
        }
        if depth == 0 {
            return Err(Unanswerable::Deep);
        }
        self.count = self.count.wrapping_add(1);
        if self.count.is_multiple_of(VALUES_PER_LOOK) && (self.is_late)() {
            return Err(Unanswerable::Late);
        }
        match value {
            Value::String(text) => {
                let text = text.as_bytes();
                if self.out.len() + text.len() > self.len_max {
                    return Err(Unanswerable::Long);
                }
                reply::bulk(self.out, &text);
            }
            Value::Boolean(is_true) if self.script == Protocol::Resp3 => {
                match (self.client, is_true) {
                    (Protocol::Resp3, true) => self.out.extend_from_slice(b"#t\r\n"),
                    (Protocol::Resp3, false) => self.out.extend_from_slice(b"#f\r\n"),
                    (_, is_true) => reply::integer(self.out, i64::from(*is_true)),
                }
            }
            Value::Boolean(true) => reply::integer(self.out, 1),
            Value::Number(number) => reply::integer(self.out, truncate(*number)),
            Value::Integer(number) => reply::integer(self.out, *number),
            Value::Table(table) => return self.table(table, depth),
            _ => self.client.null(self.out),
        }
        Ok(())
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        self.out.extend(text.iter().map(|byte| if is_end(byte) { b' ' } else { *byte }));
        self.out.extend_from_slice(b"\r\n");
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<(), Unanswerable> {
        let field = |name: &str| table.raw_get::<Value>(name).unwrap_or(Value::Nil);
        if let Value::String(text) = field("err") {
            self.line(b'-', &text.as_bytes());
        } else if let Value::String(text) = field("ok") {
            self.line(b'+', &text.as_bytes());
        } else if let Some(number) = crate::modules::number_of(&field("double")) {
            self.client.double(self.out, general(number, 17).as_bytes());
        } else if let Value::Table(map) = field("map") {
            return self.map(&map, depth);
        } else if let Value::Table(set) = field("set") {
            return self.set(&set, depth);
        } else if let Value::String(number) = field("big_number") {
            match self.client {
                Protocol::Resp3 => self.line(b'(', &number.as_bytes()),
                _ => {
                    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
                    let text: Vec<u8> = number
                        .as_bytes()
                        .iter()
                        .map(|byte| if is_end(byte) { b' ' } else { *byte })
                        .collect();
                    reply::bulk(self.out, &text);
                }
            }
        } else if let Value::Table(verbatim) = field("verbatim_string") {
            self.verbatim(&verbatim);
        } else {
            return self.array(table, depth);
        }
        Ok(())
    }

    fn verbatim(&mut self, table: &Table) {
        let field = |name: &str| table.raw_get::<Value>(name).unwrap_or(Value::Nil);
        let (Value::String(text), Value::String(format)) = (field("string"), field("format"))
        else {
            return reply::array(self.out, 0);
        };
        if self.client != Protocol::Resp3 {
            return reply::bulk(self.out, &text.as_bytes());
        }
        let mut kind = [b' '; 3];
        for (at, byte) in kind.iter_mut().zip(format.as_bytes().iter()) {
            *at = *byte;
        }
        self.out.extend_from_slice(format!("={}\r\n", text.as_bytes().len() + 4).as_bytes());
        self.out.extend_from_slice(&kind);
        self.out.push(b':');
        self.out.extend_from_slice(&text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    fn map(&mut self, map: &Table, depth: usize) -> Result<(), Unanswerable> {
        let pairs = pairs_of(map);
        self.client.map(self.out, pairs.len());
        for (key, value) in pairs {
            self.value(&key, depth - 1)?;
            self.value(&value, depth - 1)?;
        }
        Ok(())
    }

    fn set(&mut self, set: &Table, depth: usize) -> Result<(), Unanswerable> {
        let pairs = pairs_of(set);
        self.client.set(self.out, pairs.len());
        for (key, _) in pairs {
            self.value(&key, depth - 1)?;
        }
        Ok(())
    }

    /// Writes the elements up to the first missing one.
    fn array(&mut self, table: &Table, depth: usize) -> Result<(), Unanswerable> {
        let value = |index: usize| table.raw_get::<Value>(index).unwrap_or(Value::Nil);
        let len = (0..).find(|len| value(len + 1).is_nil()).unwrap_or(0);
        reply::array(self.out, len);
        for index in 1..=len {
            self.value(&value(index), depth - 1)?;
        }
        Ok(())
    }
}

fn pairs_of(table: &Table) -> Vec<(Value, Value)> {
    table.pairs::<Value, Value>().filter_map(Result::ok).collect()
}
