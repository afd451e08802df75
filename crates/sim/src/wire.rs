//! RESP for the clients and servers of the simulation. This is separate simple code, so that it
//! does not share mistakes of `keyway-resp`.

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `+`
    Simple(Vec<u8>),
    /// `-`
    Error(Vec<u8>),
    /// `:`
    Integer(i64),
    /// `$`
    Bulk(Option<Vec<u8>>),
    /// `*`
    Array(Option<Vec<Value>>),
    /// `_` in RESP3.
    Null,
    /// `%` in RESP3: names and values alternate.
    Map(Vec<Value>),
    /// `>` in RESP3.
    Push(Vec<Value>),
}

impl Value {
    /// Formats it for a report.
    pub fn show(&self) -> String {
        match self {
            Value::Simple(text) => format!("+{}", clip(text)),
            Value::Error(text) => format!("-{}", clip(text)),
            Value::Integer(number) => format!(":{number}"),
            Value::Bulk(None) => "nil".to_owned(),
            Value::Bulk(Some(bytes)) => format!("\"{}\"", clip(bytes)),
            Value::Array(None) => "nil array".to_owned(),
            Value::Array(Some(items)) => {
                format!("[{}]", show_all(items))
            }
            Value::Null => "null".to_owned(),
            Value::Map(items) => format!("{{{}}}", show_all(items)),
            Value::Push(items) => format!("push [{}]", show_all(items)),
        }
    }
}

fn show_all(items: &[Value]) -> String {
    let items: Vec<_> = items.iter().map(Value::show).collect();
    items.join(", ")
}

/// Formats bytes for a report: readable and short.
pub fn clip(bytes: &[u8]) -> String {
    const SHOWN: usize = 600;
    let shown =
        String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]).escape_debug().to_string();
    if bytes.len() > SHOWN { format!("{shown}... ({} bytes)", bytes.len()) } else { shown }
}

/// Returns the text of a line and the offset of its end, or `None` while it is incomplete.
fn line(buf: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let len = buf[at..].windows(2).position(|pair| pair == b"\r\n")?;
    Some((&buf[at..at + len], at + len + 2))
}

/// A parsed value and the offset of the next one, or `None` while it is incomplete.
pub type Parsed<T> = Result<Option<(T, usize)>, String>;

fn number(text: &[u8]) -> Result<i64, String> {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| format!("no number: {}", clip(text)))
}

/// Reads one reply at `at`. Returns it with the offset of the next one, or `None` while it is
/// incomplete.
///
/// # Errors
/// Returns an error if it is not RESP.
pub fn parse_value(buf: &[u8], at: usize) -> Parsed<Value> {
    let Some(&first) = buf.get(at) else { return Ok(None) };
    let Some((text, next)) = line(buf, at + 1) else { return Ok(None) };
    let value = match first {
        b'+' => Value::Simple(text.to_vec()),
        b'-' => Value::Error(text.to_vec()),
        b':' => Value::Integer(number(text)?),
        b'$' => {
            let len = number(text)?;
            if len == -1 {
                Value::Bulk(None)
            } else {
                let len = usize::try_from(len).map_err(|_| "negative length".to_owned())?;
                let Some(bytes) = buf.get(next..next + len + 2) else { return Ok(None) };
                if &bytes[len..] != b"\r\n" {
                    return Err("bulk without its line end".to_owned());
                }
                return Ok(Some((Value::Bulk(Some(bytes[..len].to_vec())), next + len + 2)));
            }
        }
        b'*' => {
            let len = number(text)?;
            if len == -1 {
                Value::Array(None)
            } else {
                let items = parse_items(buf, next, len)?;
                return Ok(items.map(|(items, next)| (Value::Array(Some(items)), next)));
            }
        }
        b'_' if text.is_empty() => Value::Null,
        b'%' => {
            let items = parse_items(buf, next, number(text)? * 2)?;
            return Ok(items.map(|(items, next)| (Value::Map(items), next)));
        }
        b'>' => {
            let items = parse_items(buf, next, number(text)?)?;
            return Ok(items.map(|(items, next)| (Value::Push(items), next)));
        }
        other => return Err(format!("a reply that starts with {:?}", other as char)),
    };
    Ok(Some((value, next)))
}

fn parse_items(buf: &[u8], mut at: usize, len: i64) -> Parsed<Vec<Value>> {
    let mut items = Vec::new();
    for _ in 0..len {
        let Some((item, next)) = parse_value(buf, at)? else { return Ok(None) };
        items.push(item);
        at = next;
    }
    Ok(Some((items, at)))
}

/// Appends a reply in RESP3, for values that have only one form there.
pub fn write_resp3(out: &mut Vec<u8>, value: &Value) {
    let line = |out: &mut Vec<u8>, mark: char, text: &[u8]| {
        out.extend_from_slice(mark.encode_utf8(&mut [0; 4]).as_bytes());
        out.extend_from_slice(text);
        out.extend_from_slice(b"\r\n");
    };
    let all = |out: &mut Vec<u8>, mark: char, len: usize, items: &[Value]| {
        line(out, mark, len.to_string().as_bytes());
        items.iter().for_each(|item| write_resp3(out, item));
    };
    match value {
        Value::Simple(text) => line(out, '+', text),
        Value::Error(text) => line(out, '-', text),
        Value::Integer(number) => line(out, ':', number.to_string().as_bytes()),
        Value::Bulk(Some(bytes)) => write_bulk(out, bytes),
        Value::Null | Value::Bulk(None) | Value::Array(None) => line(out, '_', b""),
        Value::Array(Some(items)) => all(out, '*', items.len(), items),
        Value::Map(items) => all(out, '%', items.len() / 2, items),
        Value::Push(items) => all(out, '>', items.len(), items),
    }
}

/// Reads one request, an array of bulks, at `at`, like [`parse_value`].
///
/// # Errors
/// Returns an error if it is not a request. A proxy must never send that.
pub fn parse_request(buf: &[u8], at: usize) -> Parsed<Vec<Vec<u8>>> {
    match parse_value(buf, at)? {
        None => Ok(None),
        Some((Value::Array(Some(items)), next)) => {
            let args = items.into_iter().map(|item| match item {
                Value::Bulk(Some(bytes)) => Ok(bytes),
                other => Err(format!("an argument that is {}", other.show())),
            });
            Ok(Some((args.collect::<Result<_, _>>()?, next)))
        }
        Some((other, _)) => Err(format!("a request that is {}", other.show())),
    }
}

/// Appends a request.
pub fn write_request(out: &mut Vec<u8>, args: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        write_bulk(out, arg);
    }
}

/// Appends a bulk.
pub fn write_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}
