//! Replies as values.

use keyway_resp::{Kind, parse_integer};
use std::fmt;

/// One reply, of either version of the protocol.
#[derive(Clone, PartialEq)]
pub enum Value {
    /// No value: a null of any kind.
    Nil,
    /// A status, as `OK`.
    Status(Vec<u8>),
    /// An error, as the server words it.
    Error(Vec<u8>),
    /// A whole number.
    Integer(i64),
    /// Bytes; a text that says its format without that.
    Bytes(Vec<u8>),
    /// True or false, where the server was asked for RESP3.
    Boolean(bool),
    /// A number with a fraction (RESP3).
    Double(f64),
    /// A number of any length, in digits (RESP3).
    BigNumber(Vec<u8>),
    /// Values in order.
    Array(Vec<Value>),
    /// Values without an order (RESP3).
    Set(Vec<Value>),
    /// Pairs (RESP3).
    Map(Vec<(Value, Value)>),
    /// What answers nothing: a message, an invalidation (RESP3).
    Push(Vec<Value>),
}

impl Value {
    /// The bytes of a status, of an error, or of bytes.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Status(bytes)
            | Value::Error(bytes)
            | Value::Bytes(bytes)
            | Value::BigNumber(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// [`Value::as_bytes`] where they are text.
    pub fn as_str(&self) -> Option<&str> {
        self.as_bytes().and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    /// The number of an integer.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Value::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// The elements of an array, a set or a push.
    pub fn elements(&self) -> Option<&[Value]> {
        match self {
            Value::Array(elements) | Value::Set(elements) | Value::Push(elements) => Some(elements),
            _ => None,
        }
    }

    /// Returns whether the server has refused.
    pub fn is_error(&self) -> bool {
        matches!(self, Value::Error(_))
    }

    /// The value of a whole reply, as a framer has found it; `None` when it is none after all.
    pub(crate) fn of_frame(frame: &[u8]) -> Option<Value> {
        let mut rest = frame;
        let value = read(&mut rest)?;
        rest.is_empty().then_some(value)
    }
}

/// Bytes are shown as the text they mostly are.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Nil => f.write_str("Nil"),
            Value::Status(bytes) => write!(f, "Status(\"{}\")", bytes.escape_ascii()),
            Value::Error(bytes) => write!(f, "Error(\"{}\")", bytes.escape_ascii()),
            Value::Bytes(bytes) => write!(f, "Bytes(\"{}\")", bytes.escape_ascii()),
            Value::BigNumber(digits) => write!(f, "BigNumber({})", digits.escape_ascii()),
            Value::Integer(number) => write!(f, "Integer({number})"),
            Value::Boolean(truth) => write!(f, "Boolean({truth})"),
            Value::Double(number) => write!(f, "Double({number:?})"),
            Value::Array(values) => f.debug_tuple("Array").field(values).finish(),
            Value::Set(values) => f.debug_tuple("Set").field(values).finish(),
            Value::Push(values) => f.debug_tuple("Push").field(values).finish(),
            Value::Map(pairs) => f.debug_tuple("Map").field(pairs).finish(),
        }
    }
}

/// Takes the first value of `rest`, whose depth the framer has bounded.
fn read(rest: &mut &[u8]) -> Option<Value> {
    let mut kind = Kind::of(rest)?;
    let mut line = take_line(rest)?;
    // Attributes say something of the value behind them.
    while kind == Kind::Attribute {
        pairs(rest, line)?;
        kind = Kind::of(rest)?;
        line = take_line(rest)?;
    }
    Some(match kind {
        Kind::Simple => Value::Status(line.to_vec()),
        Kind::Error => Value::Error(line.to_vec()),
        Kind::Integer => Value::Integer(parse_integer(line)?),
        Kind::Null => Value::Nil,
        Kind::Boolean => Value::Boolean(line == b"t"),
        Kind::Double => Value::Double(double(line)?),
        Kind::BigNumber => Value::BigNumber(line.to_vec()),
        _ if line == b"-1" => Value::Nil,
        Kind::Bulk => Value::Bytes(take_bytes(rest, line)?.to_vec()),
        Kind::Verbatim => Value::Bytes(take_bytes(rest, line)?.get(4..)?.to_vec()),
        Kind::BlobError => Value::Error(take_bytes(rest, line)?.to_vec()),
        Kind::Array => Value::Array(elements(rest, line)?),
        Kind::Set => Value::Set(elements(rest, line)?),
        Kind::Push => Value::Push(elements(rest, line)?),
        Kind::Map => Value::Map(pairs(rest, line)?),
        Kind::Attribute => unreachable!("the loop above goes past them"),
    })
}

/// What stands between the first byte and the line end, which is taken too.
fn take_line<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let line = &rest[1..end];
    *rest = &rest[end + 2..];
    Some(line)
}

fn take_bytes<'a>(rest: &mut &'a [u8], len: &[u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(parse_integer(len)?).ok()?;
    let (bytes, behind) = rest.split_at_checked(len)?;
    *rest = behind.strip_prefix(b"\r\n")?;
    Some(bytes)
}

fn elements(rest: &mut &[u8], count: &[u8]) -> Option<Vec<Value>> {
    (0..parse_integer(count)?).map(|_| read(rest)).collect()
}

fn pairs(rest: &mut &[u8], count: &[u8]) -> Option<Vec<(Value, Value)>> {
    (0..parse_integer(count)?).map(|_| Some((read(rest)?, read(rest)?))).collect()
}

fn double(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Value {
        Value::Bytes(text.into())
    }

    #[test]
    fn every_kind_is_read() {
        for (frame, expected) in [
            ("+OK\r\n", Value::Status("OK".into())),
            ("-ERR no\r\n", Value::Error("ERR no".into())),
            (":-7\r\n", Value::Integer(-7)),
            ("$-1\r\n", Value::Nil),
            ("*-1\r\n", Value::Nil),
            ("_\r\n", Value::Nil),
            ("$0\r\n\r\n", bytes("")),
            ("$4\r\na\r\nb\r\n", bytes("a\r\nb")),
            ("#t\r\n", Value::Boolean(true)),
            ("#f\r\n", Value::Boolean(false)),
            (",1.5\r\n", Value::Double(1.5)),
            (",-inf\r\n", Value::Double(f64::NEG_INFINITY)),
            ("(123\r\n", Value::BigNumber("123".into())),
            ("=7\r\ntxt:abc\r\n", bytes("abc")),
            ("!5\r\nERR x\r\n", Value::Error("ERR x".into())),
            ("*2\r\n:1\r\n*0\r\n", Value::Array(vec![Value::Integer(1), Value::Array(vec![])])),
            ("~1\r\n$1\r\na\r\n", Value::Set(vec![bytes("a")])),
            (">1\r\n$1\r\na\r\n", Value::Push(vec![bytes("a")])),
            ("%1\r\n$1\r\na\r\n:2\r\n", Value::Map(vec![(bytes("a"), Value::Integer(2))])),
            ("|1\r\n+ttl\r\n:3\r\n:9\r\n", Value::Integer(9)),
        ] {
            assert_eq!(Value::of_frame(frame.as_bytes()), Some(expected), "{frame:?}");
        }
    }

    #[test]
    fn values_are_shown_as_text() {
        let frame = b"*4\r\n$4\r\na\"\xff\n\r\n+OK\r\n%1\r\n:1\r\n_\r\n,1.5\r\n";
        let shown = format!("{:?}", Value::of_frame(frame).unwrap());
        let expected = "Array([Bytes(\"a\\\"\\xff\\n\"), Status(\"OK\"), \
                        Map([(Integer(1), Nil)]), Double(1.5)])";
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_is_none_is_none() {
        for frame in
            ["", "x\r\n", ":a\r\n", "$5\r\nab\r\n", "=2\r\nab\r\n", "*2\r\n:1\r\n", ":1\r\n:2\r\n"]
        {
            assert_eq!(Value::of_frame(frame.as_bytes()), None, "{frame:?}");
        }
    }
}
