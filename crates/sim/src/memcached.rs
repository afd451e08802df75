//! memcached's text protocol for the clients and servers of the simulation, in separate code. A
//! request is read as the words of a command. A reply is read as the value that the Redis command
//! with the same meaning returns, so that both kinds share clients and oracles.

use crate::wire::{Parsed, Value, clip};

/// The prefix of the keys of Keyway's own items. No client uses it.
pub const RESERVED: &[u8] = b"keyway:";

fn line(buf: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let len = buf.get(at..)?.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&buf[at..at + len], at + len + 2))
}

fn length(word: Option<&&[u8]>) -> Result<usize, String> {
    let text = word.and_then(|word| std::str::from_utf8(word).ok());
    text.and_then(|text| text.parse().ok()).ok_or_else(|| "no length".to_owned())
}

/// Returns a block of `len` bytes at `at` with its line end, and the offset of what follows.
fn block(buf: &[u8], at: usize, len: usize) -> Parsed<Vec<u8>> {
    let Some(bytes) = buf.get(at..at + len + 2) else { return Ok(None) };
    match bytes.strip_suffix(b"\r\n") {
        Some(bytes) => Ok(Some((bytes.to_vec(), at + len + 2))),
        None => Err("a value without its line end".to_owned()),
    }
}

/// Reads one request. Returns its words, with the value as the last one, and its length, or `None`
/// while it is incomplete.
///
/// # Errors
/// Returns what is wrong with it.
pub fn parse_request(buf: &[u8]) -> Parsed<Vec<Vec<u8>>> {
    let Some((text, next)) = line(buf, 0) else { return Ok(None) };
    let words: Vec<&[u8]> = text.split(|&byte| byte == b' ').collect();
    let mut args: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
    if !matches!(words[0], b"set" | b"add" | b"cas") {
        return Ok(Some((args, next)));
    }
    let value = block(buf, next, length(words.get(4))?)?;
    Ok(value.map(|(value, end)| {
        args.push(value);
        (args, end)
    }))
}

/// Appends `get` of these keys.
pub fn write_get(out: &mut Vec<u8>, keys: &[Vec<u8>]) {
    out.extend_from_slice(b"get");
    for key in keys {
        out.push(b' ');
        out.extend_from_slice(key);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends `set`.
pub fn write_set(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    out.extend_from_slice(b"set ");
    out.extend_from_slice(key);
    out.extend_from_slice(format!(" 0 0 {}\r\n", value.len()).as_bytes());
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends `delete`.
pub fn write_delete(out: &mut Vec<u8>, key: &[u8]) {
    out.extend_from_slice(b"delete ");
    out.extend_from_slice(key);
    out.extend_from_slice(b"\r\n");
}

/// Appends an item as in the reply to `get`, or with its number as in the reply to `gets`.
pub fn write_item(out: &mut Vec<u8>, key: &[u8], value: &[u8], number: Option<u64>) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    let number = number.map_or(String::new(), |number| format!(" {number}"));
    out.extend_from_slice(format!(" 0 {}{number}\r\n", value.len()).as_bytes());
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Reads the reply at `at` to a request for `keys`: one value, or with `is_many` an array of
/// values. Returns it with the offset of the next reply, or `None` while it is incomplete.
///
/// # Errors
/// Returns an error if it does not follow the protocol, or is about other keys.
pub fn parse_reply(buf: &[u8], mut at: usize, keys: &[Vec<u8>], is_many: bool) -> Parsed<Value> {
    let mut items: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    loop {
        let Some((text, next)) = line(buf, at) else { return Ok(None) };
        let words: Vec<&[u8]> = text.split(|&byte| byte == b' ').collect();
        match words[0] {
            b"VALUE" => {
                let Some((value, end)) = block(buf, next, length(words.get(3))?)? else {
                    return Ok(None);
                };
                items.push((words[1].to_vec(), value));
                at = end;
            }
            b"END" => return Ok(Some((values(items, keys, is_many)?, next))),
            b"STORED" => return Ok(Some((Value::Simple(b"OK".to_vec()), next))),
            b"DELETED" => return Ok(Some((Value::Integer(1), next))),
            b"NOT_FOUND" => return Ok(Some((Value::Integer(0), next))),
            b"SERVER_ERROR" if items.is_empty() => {
                let words = &text[b"SERVER_ERROR ".len().min(text.len())..];
                return Ok(Some((Value::Error([b"ERR ", words].concat()), next)));
            }
            _ => return Err(format!("no reply to this: {}", clip(text))),
        }
    }
}

/// Returns the items in the order of their keys.
fn values(
    items: Vec<(Vec<u8>, Vec<u8>)>,
    keys: &[Vec<u8>],
    is_many: bool,
) -> Result<Value, String> {
    let mut items = items.into_iter().peekable();
    let mut found: Vec<Value> = keys
        .iter()
        .map(|key| Value::Bulk(items.next_if(|(name, _)| name == key).map(|(_, value)| value)))
        .collect();
    if let Some((name, _)) = items.next() {
        return Err(format!("an item that was not asked for, or out of order: {}", clip(&name)));
    }
    match is_many {
        true => Ok(Value::Array(Some(found))),
        false => found.pop().ok_or_else(|| "items in answer to something else".to_owned()),
    }
}
