//! Writes replies to clients, in the protocol of their requests.

use crate::numbers::unsigned;
use crate::outcome::{ErrorKind, Item, Outcome};
use crate::packet::{self, Body, Status};
use crate::reply_text::{NOT_NUMBER, TOO_LARGE};
use crate::{Dialect, Head, RequestFlags, Verb, base64};

/// What must be remembered of a request to answer it.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// Its head.
    pub head: &'a Head,
    /// Its key (decoded), or, of several keys, the one of the outcome. It is needed if an item does
    /// not contain its own key.
    pub key: &'a [u8],
    /// The bytes of [`crate::Request::meta`].
    pub meta: &'a [u8],
}

/// Appends the client's reply for `outcome`, or nothing if it asked for silence. For the items of a
/// request with many keys, and for statistics, it is called once for each. [`write_end`] ends
/// those.
#[inline]
pub fn write_reply(out: &mut Vec<u8>, asker: &Asker<'_>, outcome: &Outcome<'_>) {
    match asker.head.dialect {
        Dialect::Text => text(out, asker, outcome),
        Dialect::Meta => meta(out, asker, outcome),
        Dialect::Binary => binary(out, asker, outcome),
    }
}

/// Appends the end of the reply to a request that is answered in several elements: `END`, or a
/// binary statistic without a name. It appends nothing for others, so it can be called for all. An
/// error ends a reply by itself.
pub fn write_end(out: &mut Vec<u8>, head: &Head) {
    let stats = head.verb == Verb::Stats;
    match head.dialect {
        Dialect::Binary if stats => packet::reply(out, head, Status::OK, &Body::default()),
        Dialect::Text if stats || head.verb.reads() => out.extend_from_slice(b"END\r\n"),
        _ => {}
    }
}

/// Appends the reply of [`write_reply`] to a [canonical](crate::Request::is_canonical) `set` that
/// was done.
#[inline]
pub fn write_stored(out: &mut Vec<u8>) {
    out.extend_from_slice(b"STORED\r\n");
}

fn number(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

fn line(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Returns the result of an incr or decr, which meta replies contain as a value.
fn result(outcome: &Outcome<'_>) -> Option<(u64, Option<u64>)> {
    match outcome {
        Outcome::Number { value, cas } => Some((*value, *cas)),
        Outcome::Hit(item) => unsigned(item.value).map(|value| (value, item.cas)),
        _ => None,
    }
}

/// Appends the item's key if it contains one, else the request's, as the server knows it.
fn plain_key(out: &mut Vec<u8>, asker: &Asker<'_>, item: &Item<'_>) {
    let start = out.len();
    if item.key.is_empty() {
        out.extend_from_slice(asker.key);
    } else if !item.key_base64 || !base64::decode(item.key, out) {
        out.extend_from_slice(item.key);
    }
    if item.key_base64 {
        // Text clients cannot ask for such a key. Nothing may break their framing.
        let breaks = |byte: &&mut u8| matches!(**byte, b' ' | b'\r' | b'\n');
        out[start..].iter_mut().filter(breaks).for_each(|byte| *byte = b'?');
    }
}

fn text(out: &mut Vec<u8>, asker: &Asker<'_>, outcome: &Outcome<'_>) {
    let head = asker.head;
    if head.quiet {
        return;
    }
    let arithmetic = matches!(head.verb, Verb::Incr | Verb::Decr);
    if let (true, Some((value, _))) = (arithmetic, result(outcome)) {
        number(out, value);
        out.extend_from_slice(b"\r\n");
        return;
    }
    match outcome {
        Outcome::Hit(item) => text_item(out, asker, item),
        Outcome::Done(_) => line(
            out,
            match head.verb {
                Verb::Delete => "DELETED",
                Verb::Touch => "TOUCHED",
                Verb::Stats => "RESET",
                verb if verb.stores() => "STORED",
                _ => "OK",
            },
        ),
        // What a list does not contain is missing.
        Outcome::NotFound if head.verb.reads() => {}
        Outcome::NotFound if head.verb == Verb::Stats => line(out, "ERROR"),
        Outcome::NotFound => line(out, "NOT_FOUND"),
        Outcome::NotStored => line(out, "NOT_STORED"),
        Outcome::Exists => line(out, "EXISTS"),
        _ => plain(out, asker, outcome),
    }
}

fn text_item(out: &mut Vec<u8>, asker: &Asker<'_>, item: &Item<'_>) {
    out.extend_from_slice(b"VALUE ");
    plain_key(out, asker, item);
    out.push(b' ');
    number(out, item.flags);
    out.push(b' ');
    number(out, item.value.len());
    if asker.head.asked.has(RequestFlags::CAS) {
        out.push(b' ');
        number(out, item.cas.unwrap_or(0));
    }
    out.extend_from_slice(b"\r\n");
    value(out, item);
    out.extend_from_slice(b"\r\n");
}

/// Appends its value, unless the caller inserts it.
#[inline]
fn value(out: &mut Vec<u8>, item: &Item<'_>) {
    if !item.is_apart {
        out.extend_from_slice(item.value);
    }
}

/// Returns the number of bytes after the value of a reply.
pub fn value_end_len(dialect: Dialect) -> usize {
    if dialect == Dialect::Binary { 0 } else { "\r\n".len() }
}

/// Appends the reply that classic and meta commands share.
#[cold]
fn plain(out: &mut Vec<u8>, asker: &Asker<'_>, outcome: &Outcome<'_>) {
    match outcome {
        Outcome::Number { value, .. } => number(out, *value),
        Outcome::Text(text) => {
            let version = asker.head.verb == Verb::Version;
            out.extend_from_slice(if version { b"VERSION " } else { b"" });
            one_line(out, text);
        }
        Outcome::Debug(text) => {
            out.extend_from_slice(b"ME ");
            meta_key(out, asker);
            out.push(b' ');
            one_line(out, text);
        }
        Outcome::Stat { name, value } => {
            out.extend_from_slice(b"STAT ");
            one_line(out, name);
            out.push(b' ');
            one_line(out, value);
        }
        Outcome::Noop => out.extend_from_slice(b"MN"),
        Outcome::Error { kind, text } => error(out, *kind, text),
        // None of these answers a text command.
        _ => return,
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a text with blanks for line ends, so that it cannot break the framing.
fn one_line(out: &mut Vec<u8>, text: &[u8]) {
    out.extend(text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
}

fn error(out: &mut Vec<u8>, kind: ErrorKind, text: &[u8]) {
    let (prefix, words): (&str, &[u8]) = match kind {
        ErrorKind::Unknown if text.is_empty() => ("ERROR", b""),
        // This is the text of a binary server, which text clients do not know.
        ErrorKind::Unknown if text == Status::UNKNOWN_COMMAND.text().as_bytes() => ("ERROR", b""),
        ErrorKind::Unknown => ("ERROR: ", text),
        ErrorKind::Client | ErrorKind::Auth => ("CLIENT_ERROR ", text),
        ErrorKind::NotNumber => ("CLIENT_ERROR ", NOT_NUMBER.as_bytes()),
        ErrorKind::Server => ("SERVER_ERROR ", text),
        ErrorKind::TooLarge => ("SERVER_ERROR ", TOO_LARGE.as_bytes()),
        ErrorKind::OutOfMemory => ("SERVER_ERROR ", b"out of memory storing object"),
    };
    out.extend_from_slice(prefix.as_bytes());
    one_line(out, words);
}

/// Appends the key as the meta client wrote it.
fn meta_key(out: &mut Vec<u8>, asker: &Asker<'_>) {
    if asker.head.asked.has(RequestFlags::KEY_BASE64) {
        base64::encode(asker.key, out);
    } else {
        out.extend_from_slice(asker.key);
    }
}

fn meta(out: &mut Vec<u8>, asker: &Asker<'_>, outcome: &Outcome<'_>) {
    let head = asker.head;
    let reads = head.verb.reads();
    let mut digits = itoa::Buffer::new();
    let (item, code) = match outcome {
        Outcome::Hit(item) => {
            (*item, if head.asked.has(RequestFlags::VALUE) { "VA " } else { "HD" })
        }
        Outcome::Number { value, cas } => {
            let item =
                Item { value: digits.format(*value).as_bytes(), cas: *cas, ..Item::default() };
            (item, if head.asked.has(RequestFlags::VALUE) { "VA " } else { "HD" })
        }
        Outcome::Done(item) => (*item, "HD"),
        Outcome::NotFound if reads || head.verb == Verb::Debug => (Item::default(), "EN"),
        Outcome::NotFound => (Item::default(), "NF"),
        Outcome::NotStored => (Item::default(), "NS"),
        Outcome::Exists => (Item::default(), "EX"),
        // The end mark of classic text means nothing to a meta client.
        Outcome::End => return,
        _ => return plain(out, asker, outcome),
    };
    let nominal = matches!(code, "HD" | "VA ");
    if head.quiet && (if reads { code == "EN" } else { nominal }) {
        return;
    }
    out.extend_from_slice(code.as_bytes());
    if code == "VA " {
        number(out, item.value.len());
    }
    meta_flags(out, asker, &item, nominal, matches!(outcome, Outcome::Hit(_)));
    out.extend_from_slice(b"\r\n");
    if code == "VA " {
        value(out, &item);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends everything that was asked for and is known, in the order in which it was asked.
fn meta_flags(out: &mut Vec<u8>, asker: &Asker<'_>, item: &Item<'_>, nominal: bool, hit: bool) {
    let reads = asker.head.verb.reads();
    for word in asker.meta.split(|&byte| byte == b' ') {
        let Some(&letter) = word.first() else { continue };
        let known = match letter {
            b'O' => {
                out.push(b' ');
                out.extend_from_slice(word);
                None
            }
            b'k' => {
                out.extend_from_slice(b" k");
                meta_key(out, asker);
                let encoded = asker.head.asked.has(RequestFlags::KEY_BASE64);
                out.extend_from_slice(if encoded { b" b" } else { b"" });
                None
            }
            // memcached returns the CAS number of the stored item, and 0 if nothing was stored.
            b'c' if !nominal && asker.head.verb.stores() && item.cas.is_none() => Some(0),
            _ if !nominal => None,
            b'c' => item.cas,
            b'f' if reads => Some(u64::from(item.flags)),
            b's' => item.size.or(hit.then_some(item.value.len() as u64)),
            b'l' => item.last_access,
            b'h' => item.hit.map(u64::from),
            b't' => {
                if let Some(ttl) = item.ttl {
                    out.extend_from_slice(b" t");
                    number(out, ttl);
                }
                None
            }
            _ => None,
        };
        if let Some(value) = known {
            out.extend_from_slice(&[b' ', letter]);
            number(out, value);
        }
    }
    for (told, flag) in [(item.sent, b" Z"), (item.stale, b" X"), (item.won, b" W")] {
        out.extend_from_slice(if told { flag } else { b"" });
    }
}

fn binary(out: &mut Vec<u8>, asker: &Asker<'_>, outcome: &Outcome<'_>) {
    let head = asker.head;
    let reads = head.verb.reads();
    let simple = |out: &mut Vec<u8>, status: Status| {
        if !(head.quiet && reads && status == Status::NOT_FOUND) {
            packet::error(out, head, status, status.text());
        }
    };
    let none = Body::default();
    let success = |out: &mut Vec<u8>, body: Body<'_>| {
        if !head.quiet || reads {
            packet::reply(out, head, Status::OK, &body);
        }
    };
    let number = |out: &mut Vec<u8>, value: u64, cas: Option<u64>| {
        success(out, Body { cas: cas.unwrap_or(0), value: &value.to_be_bytes(), ..none });
    };
    let arithmetic = matches!(head.verb, Verb::Incr | Verb::Decr);
    if let (true, Some((value, cas))) = (arithmetic, result(outcome)) {
        return number(out, value, cas);
    }
    let gives_key = head.asked.has(RequestFlags::KEY);
    match outcome {
        Outcome::Hit(item) => {
            let key = if gives_key { asker.key } else { &[] };
            let extras = &item.flags.to_be_bytes();
            let Item { value, is_apart, .. } = *item;
            success(out, Body { cas: item.cas.unwrap_or(0), extras, key, value, is_apart });
        }
        Outcome::Done(item) => {
            let flags = item.flags.to_be_bytes();
            let extras: &[u8] = if reads || head.verb == Verb::Touch { &flags } else { &[] };
            success(out, Body { cas: item.cas.unwrap_or(0), extras, ..none });
        }
        Outcome::NotFound if reads && gives_key => {
            if !head.quiet {
                packet::reply(out, head, Status::NOT_FOUND, &Body { key: asker.key, ..none });
            }
        }
        Outcome::NotFound => simple(out, Status::NOT_FOUND),
        Outcome::NotStored => simple(
            out,
            match head.verb {
                Verb::Add => Status::EXISTS,
                Verb::Replace => Status::NOT_FOUND,
                _ => Status::NOT_STORED,
            },
        ),
        Outcome::Exists => simple(out, Status::EXISTS),
        Outcome::Number { value, cas } => number(out, *value, *cas),
        Outcome::Text(text) | Outcome::Debug(text) => success(out, Body { value: text, ..none }),
        Outcome::Stat { name, value } => success(out, Body { key: name, value, ..none }),
        // This ends a text server's list. Here `write_end` does that.
        Outcome::End => {}
        Outcome::Noop => success(out, none),
        Outcome::Continue(text) => {
            packet::reply(out, head, Status::AUTH_CONTINUE, &Body { value: text, ..none });
        }
        Outcome::Error { kind, text } => binary_error(out, head, *kind, text),
    }
}

#[cold]
fn binary_error(out: &mut Vec<u8>, head: &Head, kind: ErrorKind, text: &[u8]) {
    let status = match kind {
        ErrorKind::Unknown => Status::UNKNOWN_COMMAND,
        ErrorKind::Client => Status::INVALID,
        ErrorKind::NotNumber => Status::NOT_NUMBER,
        ErrorKind::Auth => Status::AUTH_ERROR,
        ErrorKind::TooLarge => Status::TOO_LARGE,
        ErrorKind::OutOfMemory => Status::OUT_OF_MEMORY,
        ErrorKind::Server if text.is_empty() => Status::TEMPORARY,
        ErrorKind::Server => {
            return packet::reply(
                out,
                head,
                Status::TEMPORARY,
                &Body { value: text, ..Body::default() },
            );
        }
    };
    packet::error(out, head, status, status.text());
}
