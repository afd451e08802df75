//! A reply as the harness reads it.

use std::fmt;

/// One reply, of either version of RESP.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// `+text`
    Simple(Vec<u8>),
    /// `-text`
    Error(Vec<u8>),
    /// `:number`
    Integer(i64),
    /// `$length` and that many bytes
    Bulk(Vec<u8>),
    /// `$-1`
    Nil,
    /// `*-1`
    NilArray,
    /// `*count` and that many replies
    Array(Vec<Value>),
    /// `_`, from here on RESP3's
    Null,
    /// `#t` or `#f`
    Boolean(bool),
    /// `,digits`
    Double(Vec<u8>),
    /// `(digits`
    BigNumber(Vec<u8>),
    /// `=length` and that many bytes, the first four its format and a colon
    Verbatim(Vec<u8>),
    /// `%count` and that many pairs
    Map(Vec<(Value, Value)>),
    /// `~count` and that many replies
    Set(Vec<Value>),
    /// `>count` and that many replies, which answer nothing
    Push(Vec<Value>),
}

impl Value {
    /// A simple string.
    pub fn simple(text: &str) -> Value {
        Value::Simple(text.as_bytes().to_vec())
    }

    /// A bulk string.
    pub fn bulk(bytes: impl AsRef<[u8]>) -> Value {
        Value::Bulk(bytes.as_ref().to_vec())
    }

    /// Whether this is an error reply.
    pub fn is_error(&self) -> bool {
        matches!(self, Value::Error(_))
    }

    /// The text of an error reply, without its dash; empty for others.
    pub fn error_text(&self) -> String {
        match self {
            Value::Error(text) => String::from_utf8_lossy(text).into_owned(),
            _ => String::new(),
        }
    }

    /// The number of an integer reply.
    ///
    /// # Panics
    /// When it is another kind of reply.
    pub fn integer(&self) -> i64 {
        match self {
            Value::Integer(number) => *number,
            other => panic!("not an integer: {other:?}"),
        }
    }

    /// The elements of an array, a set or a push.
    ///
    /// # Panics
    /// When it is another kind of reply.
    pub fn array(&self) -> &[Value] {
        match self {
            Value::Array(items) | Value::Set(items) | Value::Push(items) => items,
            other => panic!("not an array: {other:?}"),
        }
    }

    /// The pairs of a map.
    ///
    /// # Panics
    /// When it is another kind of reply.
    pub fn map(&self) -> &[(Value, Value)] {
        match self {
            Value::Map(pairs) => pairs,
            other => panic!("not a map: {other:?}"),
        }
    }

    /// The value with its maps, sets and texts as RESP2 has them. RESP3's null
    /// stays: it does not tell which of RESP2's two it stands for.
    #[must_use]
    pub fn plain(self) -> Value {
        let all = |items: Vec<Value>| items.into_iter().map(Value::plain).collect();
        match self {
            Value::Boolean(is_true) => Value::Integer(i64::from(is_true)),
            Value::Double(digits) | Value::BigNumber(digits) => Value::Bulk(digits),
            Value::Verbatim(text) => Value::Bulk(text[4..].to_vec()),
            Value::Map(pairs) => {
                let items = pairs.into_iter().flat_map(|(key, value)| [key, value]);
                Value::Array(all(items.collect()))
            }
            Value::Array(items) | Value::Set(items) | Value::Push(items) => {
                Value::Array(all(items))
            }
            other => other,
        }
    }

    /// The bytes of a simple, bulk, verbatim or error reply, or the digits of a
    /// number with a fraction; empty for others.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Value::Simple(bytes) | Value::Error(bytes) | Value::Bulk(bytes) => bytes,
            Value::Double(bytes) | Value::BigNumber(bytes) | Value::Verbatim(bytes) => bytes,
            _ => &[],
        }
    }

    /// The same as text, for messages and containment checks.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }
}

/// Reads one value from the start of `input`: the value and its length in
/// bytes, or nothing when more bytes are needed.
///
/// # Errors
/// What is wrong, when the bytes can never become a reply.
pub(crate) fn parse(input: &[u8]) -> Result<Option<(Value, usize)>, String> {
    let Some(line_end) = find_line_end(input) else {
        return if input.len() > (64 << 10) { Err("endless line".to_owned()) } else { Ok(None) };
    };
    let (kind, line) = match input[..line_end].split_first() {
        Some((kind, line)) => (*kind, line),
        None => return Err("empty line".to_owned()),
    };
    let after = line_end + 2;
    match kind {
        b'+' => Ok(Some((Value::Simple(line.to_vec()), after))),
        b'-' => Ok(Some((Value::Error(line.to_vec()), after))),
        b':' => Ok(Some((Value::Integer(number(line)?), after))),
        b'$' => match number(line)? {
            -1 => Ok(Some((Value::Nil, after))),
            length => parse_bulk(input, after, length, Value::Bulk),
        },
        b'*' => match number(line)? {
            -1 => Ok(Some((Value::NilArray, after))),
            count => parse_items(input, after, count, Value::Array),
        },
        b'_' => Ok(Some((Value::Null, after))),
        b'#' => Ok(Some((Value::Boolean(line == b"t"), after))),
        b',' => Ok(Some((Value::Double(line.to_vec()), after))),
        b'(' => Ok(Some((Value::BigNumber(line.to_vec()), after))),
        b'=' => parse_bulk(input, after, number(line)?, Value::Verbatim),
        b'~' => parse_items(input, after, number(line)?, Value::Set),
        b'>' => parse_items(input, after, number(line)?, Value::Push),
        b'%' => parse_items(input, after, 2 * number(line)?, in_pairs),
        other => Err(format!("a reply cannot start with {:?}", char::from(other))),
    }
}

fn in_pairs(items: Vec<Value>) -> Value {
    Value::Map(items.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
}

fn parse_bulk(
    input: &[u8],
    start: usize,
    length: i64,
    kind: fn(Vec<u8>) -> Value,
) -> Result<Option<(Value, usize)>, String> {
    let length = usize::try_from(length).map_err(|_| format!("bulk of {length} bytes"))?;
    let end = start + length;
    if input.len() < end + 2 {
        return Ok(None);
    }
    if &input[end..end + 2] != b"\r\n" {
        return Err("a bulk does not end where its length says".to_owned());
    }
    Ok(Some((kind(input[start..end].to_vec()), end + 2)))
}

fn parse_items(
    input: &[u8],
    start: usize,
    count: i64,
    kind: fn(Vec<Value>) -> Value,
) -> Result<Option<(Value, usize)>, String> {
    let count = usize::try_from(count).map_err(|_| format!("array of {count}"))?;
    let mut items = Vec::new();
    let mut at = start;
    for _ in 0..count {
        match parse(&input[at..])? {
            Some((item, length)) => {
                items.push(item);
                at += length;
            }
            None => return Ok(None),
        }
    }
    Ok(Some((kind(items), at)))
}

fn find_line_end(input: &[u8]) -> Option<usize> {
    input.windows(2).position(|pair| pair == b"\r\n")
}

fn number(text: &[u8]) -> Result<i64, String> {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| format!("not a number: {:?}", String::from_utf8_lossy(text)))
}

impl fmt::Debug for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Simple(text) => write!(formatter, "+{}", text.escape_ascii()),
            Value::Error(text) => write!(formatter, "-{}", text.escape_ascii()),
            Value::Integer(number) => write!(formatter, ":{number}"),
            Value::Bulk(bytes) if bytes.len() > 200 => {
                let start = bytes[..60].escape_ascii();
                write!(formatter, "\"{start}...\" ({} bytes)", bytes.len())
            }
            Value::Bulk(bytes) => write!(formatter, "\"{}\"", bytes.escape_ascii()),
            Value::Nil => write!(formatter, "(nil)"),
            Value::NilArray => write!(formatter, "(nil array)"),
            Value::Array(items) => formatter.debug_list().entries(items).finish(),
            Value::Null => write!(formatter, "(null)"),
            Value::Boolean(is_true) => write!(formatter, "#{is_true}"),
            Value::Double(digits) => write!(formatter, ",{}", digits.escape_ascii()),
            Value::BigNumber(digits) => write!(formatter, "({}", digits.escape_ascii()),
            Value::Verbatim(text) => write!(formatter, "={}", text.escape_ascii()),
            Value::Map(pairs) => formatter
                .debug_map()
                .entries(pairs.iter().map(|(key, value)| (key, value)))
                .finish(),
            Value::Set(items) => formatter.debug_set().entries(items).finish(),
            Value::Push(items) => formatter.debug_tuple("push").field(items).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NESTED: &[u8] = b"*5\r\n+OK\r\n-ERR x\r\n:-7\r\n$3\r\na\r\n\r\n*2\r\n$-1\r\n*-1\r\n";

    #[test]
    fn every_kind_of_reply_is_read() {
        let (value, length) = parse(NESTED).expect("well formed").expect("whole");
        assert_eq!(length, NESTED.len());
        assert_eq!(format!("{value:?}"), r#"[+OK, -ERR x, :-7, "a\r\n", [(nil), (nil array)]]"#);
    }

    #[test]
    fn resp3_is_read_and_made_plain() {
        let bytes = b"%2\r\n+a\r\n_\r\n+b\r\n~2\r\n,1.5\r\n#t\r\n=5\r\ntxt:x\r\n";
        let (value, length) = parse(bytes).expect("well formed").expect("whole");
        assert_eq!(format!("{value:?}"), "{+a: (null), +b: {,1.5, #true}}");
        assert_eq!(format!("{:?}", value.plain()), r#"[+a, (null), +b, ["1.5", :1]]"#);
        let (text, _) = parse(&bytes[length..]).expect("well formed").expect("whole");
        assert_eq!((text.text(), text.plain()), ("txt:x".to_owned(), Value::bulk("x")));
    }

    #[test]
    fn a_cut_reply_is_never_taken_for_whole() {
        for end in 0..NESTED.len() {
            assert_eq!(parse(&NESTED[..end]), Ok(None), "cut at {end}");
        }
    }

    #[test]
    fn bytes_that_are_no_reply_are_refused() {
        for bad in ["hello\r\n", ":x\r\n", "$-2\r\n", "$1\r\nabc\r\n", "\r\n"] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
