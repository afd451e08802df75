//! Replies of servers in text, classic and meta.

use crate::numbers::{signed, unsigned};
use crate::outcome::{ErrorKind, Item, Outcome, Reply, ReplyFault, ReplyLimits, ReplyParsed};
use crate::usual;
use memchr::memchr;

/// Length of the longest line of a reply, in bytes. Keys, opaque tokens, the values of statistics
/// and errors are shorter. A longer line is not from memcached.
const LINE_LEN_MAX: usize = 8192;

pub(crate) fn parse<'a>(
    buf: &'a [u8],
    limits: &ReplyLimits,
) -> Result<ReplyParsed<'a>, ReplyFault> {
    if let Some((item, len)) = usual::item(buf)
        && item.value.len() <= limits.reply_len_max as usize
    {
        return Ok(ready(len, Outcome::Hit(item)));
    }
    let Some(newline) = memchr(b'\n', &buf[..buf.len().min(LINE_LEN_MAX)]) else {
        // All replies begin with a capital letter or a digit. Other bytes are refused at once.
        let begins_none = |first: &u8| !first.is_ascii_uppercase() && !first.is_ascii_digit();
        return match buf.len() {
            _ if buf.first().is_some_and(begins_none) => Err(ReplyFault::Protocol),
            0..LINE_LEN_MAX => Ok(ReplyParsed::NeedMore { at_least: buf.len() + 1 }),
            _ => Err(ReplyFault::Protocol),
        };
    };
    let line = buf[..newline].strip_suffix(b"\r").ok_or(ReplyFault::Protocol)?;
    let next = newline + 1;
    let (verb, rest) = match memchr(b' ', line) {
        Some(blank) => (&line[..blank], &line[blank + 1..]),
        None => (line, &line[line.len()..]),
    };
    match verb {
        b"VALUE" => classic_value(buf, rest, next, limits),
        b"VA" => meta_value(buf, rest, next, limits),
        _ => {
            let outcome = outcome(verb, rest, line).ok_or(ReplyFault::Protocol)?;
            Ok(ready(next, outcome))
        }
    }
}

fn ready(len: usize, outcome: Outcome<'_>) -> ReplyParsed<'_> {
    ReplyParsed::Ready { len, reply: Reply { outcome, opcode: 0, opaque: 0 } }
}

/// Parses everything that is one line.
fn outcome<'a>(verb: &'a [u8], rest: &'a [u8], line: &'a [u8]) -> Option<Outcome<'a>> {
    Some(match verb {
        b"END" => Outcome::End,
        b"STORED" | b"DELETED" | b"TOUCHED" | b"OK" | b"RESET" => Outcome::Done(Item::default()),
        b"NOT_FOUND" | b"EN" | b"NF" => Outcome::NotFound,
        b"NOT_STORED" | b"NS" => Outcome::NotStored,
        b"EXISTS" | b"EX" => Outcome::Exists,
        b"HD" => Outcome::Done(meta_item(rest)?),
        b"MN" => Outcome::Noop,
        b"ME" => Outcome::Debug(&rest[memchr(b' ', rest).map_or(rest.len(), |at| at + 1)..]),
        b"VERSION" => Outcome::Text(rest),
        // `stats cachedump` and `stats detail dump` begin their lines with other words than `STAT`.
        b"STAT" | b"ITEM" | b"PREFIX" => {
            let blank = memchr(b' ', rest).unwrap_or(rest.len());
            let value = rest.get(blank + 1..).unwrap_or_default();
            Outcome::Stat { name: &rest[..blank], value }
        }
        b"ERROR" | b"ERROR:" => Outcome::Error { kind: ErrorKind::Unknown, text: rest },
        b"CLIENT_ERROR" => Outcome::Error { kind: client_error(rest), text: rest },
        b"SERVER_ERROR" => Outcome::Error { kind: server_error(rest), text: rest },
        _ if line.iter().all(u8::is_ascii_digit) => {
            Outcome::Number { value: unsigned(line)?, cas: None }
        }
        _ => return None,
    })
}

fn client_error(text: &[u8]) -> ErrorKind {
    if text == NOT_NUMBER.as_bytes() {
        ErrorKind::NotNumber
    } else if text.starts_with(b"unauthenticated") || text.starts_with(b"authentication") {
        ErrorKind::Auth
    } else {
        ErrorKind::Client
    }
}

fn server_error(text: &[u8]) -> ErrorKind {
    const OUT_OF_MEMORY: &[u8] = b"out of memory";
    if text == TOO_LARGE.as_bytes() {
        ErrorKind::TooLarge
    } else if text.get(..OUT_OF_MEMORY.len()).is_some_and(|t| t.eq_ignore_ascii_case(OUT_OF_MEMORY))
    {
        ErrorKind::OutOfMemory
    } else {
        ErrorKind::Server
    }
}

/// memcached's text for incr on a value that is no number.
pub(crate) const NOT_NUMBER: &str = "cannot increment or decrement non-numeric value";

/// memcached's text for a value above its limit.
pub(crate) const TOO_LARGE: &str = "object too large for cache";

/// Parses `VALUE key flags length [number]`.
fn classic_value<'a>(
    buf: &'a [u8],
    rest: &'a [u8],
    start: usize,
    limits: &ReplyLimits,
) -> Result<ReplyParsed<'a>, ReplyFault> {
    let mut words = rest.split(|&byte| byte == b' ');
    let mut word = || words.next().unwrap_or_default();
    let key = word();
    let flags = unsigned(word()).ok_or(ReplyFault::Protocol)? as u32;
    let len = word();
    let cas = words.next().map(|text| unsigned(text).ok_or(ReplyFault::Protocol)).transpose()?;
    let item = Item { key, flags, cas, ..Item::default() };
    value(buf, len, start, limits, item)
}

/// Parses `VA length flags...`.
fn meta_value<'a>(
    buf: &'a [u8],
    rest: &'a [u8],
    start: usize,
    limits: &ReplyLimits,
) -> Result<ReplyParsed<'a>, ReplyFault> {
    let blank = memchr(b' ', rest).unwrap_or(rest.len());
    let item = meta_item(&rest[blank..]).ok_or(ReplyFault::Protocol)?;
    value(buf, &rest[..blank], start, limits, item)
}

/// Returns the value that begins at `start`.
fn value<'a>(
    buf: &'a [u8],
    len: &[u8],
    start: usize,
    limits: &ReplyLimits,
    item: Item<'a>,
) -> Result<ReplyParsed<'a>, ReplyFault> {
    let len = unsigned(len).ok_or(ReplyFault::Protocol)?;
    if len > u64::from(limits.reply_len_max) {
        return Err(ReplyFault::TooLong);
    }
    let end = start + len as usize;
    match buf.get(end..end + 2) {
        None => Ok(ReplyParsed::NeedMore { at_least: end + 2 }),
        Some(b"\r\n") => Ok(ready(end + 2, Outcome::Hit(Item { value: &buf[start..end], ..item }))),
        Some(_) => Err(ReplyFault::Protocol),
    }
}

/// Returns what the flags of a meta reply say. Unknown flags are ignored.
fn meta_item(flags: &[u8]) -> Option<Item<'_>> {
    let mut item = Item::default();
    for word in flags.split(|&byte| byte == b' ') {
        let Some((letter, text)) = word.split_first() else { continue };
        match letter {
            b'k' => item.key = text,
            b'b' => item.key_base64 = true,
            b'f' => item.flags = unsigned(text)? as u32,
            b'c' => item.cas = Some(unsigned(text)?),
            b't' => item.ttl = Some(signed(text)?),
            b's' => item.size = Some(unsigned(text)?),
            b'l' => item.last_access = Some(unsigned(text)?),
            b'h' => item.hit = Some(text == b"1"),
            b'W' => item.won = true,
            b'X' => item.stale = true,
            b'Z' => item.sent = true,
            _ => {}
        }
    }
    Some(item)
}
