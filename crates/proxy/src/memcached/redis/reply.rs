//! Converts replies of servers of Redis to memcached's protocol.

use super::Question;
use super::envelope::{number, open};
use keyway_memcache::{Head, RequestFlags};
use keyway_resp::head_number;

/// An element of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element<'a> {
    Bulk(&'a [u8]),
    Null,
    Number(i64),
    Simple,
    Error(&'a [u8]),
    Array(usize),
}

/// Iterates over a complete reply.
struct Elements<'a>(&'a [u8]);

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        let first = *self.0.first()?;
        let line = self.0.windows(2).position(|pair| pair == b"\r\n")?;
        let (text, rest) = (self.0.get(1..line)?, &self.0[line + 2..]);
        let number = head_number(self.0);
        self.0 = rest;
        Some(match first {
            b'+' => Element::Simple,
            b'-' => Element::Error(text),
            b':' => Element::Number(number?),
            b'*' => usize::try_from(number?).map_or(Element::Null, Element::Array),
            b'$' => match usize::try_from(number?) {
                Err(_) => Element::Null,
                Ok(len) => {
                    self.0 = rest.get(len + 2..)?;
                    Element::Bulk(&rest[..len])
                }
            },
            _ => return None,
        })
    }
}

/// Appends what a server of memcached would have answered to `question`: one element of the meta
/// protocol, or a classic list if there are many keys.
pub(in crate::memcached) fn read<'k>(
    out: &mut Vec<u8>,
    question: Question,
    head: &Head,
    keys: impl Iterator<Item = &'k [u8]>,
    reply: &[u8],
) {
    let mut elements = Elements(reply);
    let start = out.len();
    let told = match (question, elements.next()) {
        (_, Some(Element::Error(text))) => {
            error(out, text);
            Some(())
        }
        (Question::Value, first) => value(out, head, first),
        (Question::Touched, first) => touched(out, first),
        (Question::Values, Some(Element::Array(_))) => values(out, head, keys, &mut elements),
        (Question::Stored { cas, len }, first) => stored(out, head, first, cas, len),
        (Question::Found, Some(Element::Number(count))) => {
            line(out, if count > 0 { "HD" } else { "NF" })
        }
        (Question::Done, Some(Element::Simple)) => line(out, "OK"),
        (Question::Info { database }, Some(Element::Bulk(text))) => info(out, text, database),
        (Question::Script, Some(Element::Array(_))) => scripted(out, head, &mut elements),
        _ => None,
    };
    if told.is_none() {
        out.truncate(start);
        line(out, "SERVER_ERROR a server of Redis answered something that is no reply to this");
    }
}

fn line(out: &mut Vec<u8>, text: &str) -> Option<()> {
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
    Some(())
}

fn digits(out: &mut Vec<u8>, letter: &str, value: impl itoa::Integer) {
    out.extend_from_slice(letter.as_bytes());
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

fn value(out: &mut Vec<u8>, head: &Head, element: Option<Element<'_>>) -> Option<()> {
    match element? {
        Element::Null => line(out, "EN"),
        Element::Bulk(stored) => item(out, head, stored, None),
        _ => None,
    }
}

/// Writes `VA`, with everything that was asked for.
fn item(out: &mut Vec<u8>, head: &Head, stored: &[u8], ttl: Option<i64>) -> Option<()> {
    let (flags, value) = open(stored);
    digits(out, "VA ", value.len());
    digits(out, " f", flags);
    if head.asked.has(RequestFlags::CAS) {
        digits(out, " c", number([stored, b""]));
    }
    if let Some(ttl) = ttl {
        digits(out, " t", ttl);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(value);
    line(out, "")
}

fn touched(out: &mut Vec<u8>, element: Option<Element<'_>>) -> Option<()> {
    match element? {
        Element::Null => line(out, "NF"),
        Element::Bulk(stored) => {
            digits(out, "HD f", open(stored).0);
            digits(out, " c", number([stored, b""]));
            line(out, "")
        }
        _ => None,
    }
}

/// Writes a classic list of the existing items.
fn values<'k>(
    out: &mut Vec<u8>,
    head: &Head,
    keys: impl Iterator<Item = &'k [u8]>,
    elements: &mut Elements<'_>,
) -> Option<()> {
    for key in keys {
        let Element::Bulk(stored) = elements.next()? else { continue };
        let (flags, value) = open(stored);
        out.extend_from_slice(b"VALUE ");
        out.extend_from_slice(key);
        digits(out, " ", flags);
        digits(out, " ", value.len());
        if head.asked.has(RequestFlags::CAS) {
            digits(out, " ", number([stored, b""]));
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    line(out, "END")
}

fn stored(
    out: &mut Vec<u8>,
    head: &Head,
    element: Option<Element<'_>>,
    cas: Option<u64>,
    len: u32,
) -> Option<()> {
    match element? {
        Element::Null => return line(out, "NS"),
        Element::Simple => {}
        _ => return None,
    }
    out.extend_from_slice(b"HD");
    if let Some(cas) = cas {
        digits(out, " c", cas);
    }
    if head.asked.has(RequestFlags::SIZE) {
        digits(out, " s", len);
    }
    line(out, "")
}

/// Writes the script's answer.
fn scripted(out: &mut Vec<u8>, head: &Head, elements: &mut Elements<'_>) -> Option<()> {
    let Element::Bulk(word) = elements.next()? else { return None };
    let (value, last) = (elements.next(), elements.next());
    let cas = match last {
        Some(Element::Bulk(hex)) => u64::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok(),
        _ => None,
    };
    match (word, value, last) {
        (b"NAN", ..) => line(out, "CLIENT_ERROR cannot increment or decrement non-numeric value"),
        (b"BIG", ..) => line(out, "NS"),
        (b"VA", Some(Element::Bulk(stored)), Some(Element::Number(millis))) => {
            let ttl = if millis < 0 { -1 } else { millis.unsigned_abs().div_ceil(1000) as i64 };
            item(out, head, stored, Some(ttl))
        }
        (b"VA", Some(Element::Bulk(text)), _) => {
            digits(out, "VA ", text.len());
            digits(out, " c", cas?);
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(text);
            line(out, "")
        }
        (b"HD", ..) => {
            out.extend_from_slice(b"HD");
            if let Some(cas) = cas {
                digits(out, " c", cas);
            }
            line(out, "")
        }
        (b"EN" | b"NF" | b"NS" | b"EX", ..) => line(out, std::str::from_utf8(word).ok()?),
        _ => None,
    }
}

/// Writes statistics under memcached's names, as far as Redis has them.
fn info(out: &mut Vec<u8>, text: &[u8], database: u32) -> Option<()> {
    let text = String::from_utf8_lossy(text);
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or("0")
    };
    let count = |name: &str| field(name).parse::<u64>().unwrap_or(0);
    let (hits, misses) = (count("keyspace_hits"), count("keyspace_misses"));
    let keys = field(&format!("db{database}")).strip_prefix("keys=");
    let items = keys.and_then(|keys| keys.split(',').next()?.parse().ok()).unwrap_or(0);
    for (name, figure) in [
        ("curr_connections", count("connected_clients")),
        ("total_connections", count("total_connections_received")),
        ("cmd_get", hits.saturating_add(misses)),
        ("get_hits", hits),
        ("get_misses", misses),
        ("curr_items", items),
        ("bytes", count("used_memory")),
        ("limit_maxbytes", count("maxmemory")),
        ("evictions", count("evicted_keys")),
        ("expired", count("expired_keys")),
    ] {
        digits(out, &format!("STAT {name} "), figure);
        line(out, "")?;
    }
    let version = field("redis_version");
    line(out, &format!("STAT redis_version {version}"))?;
    line(out, "END")
}

/// Writes a server's error. Scripts put a text of their own before that of a command.
#[cold]
fn error(out: &mut Vec<u8>, text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    let says = |word: &str| text.split([' ', ':']).any(|one| one == word);
    out.extend_from_slice(b"SERVER_ERROR ");
    if says("WRONGTYPE") {
        line(out, "key holds another type of Redis: use Redis commands for it, or set it anew");
    } else if says("OOM") {
        line(out, "out of memory storing object");
    } else if text.starts_with("NOSCRIPT") {
        line(out, "the server has lost what it was given to do this: nothing was done, ask again");
    } else {
        out.extend_from_slice(b"the server of Redis said: ");
        line(out, &text);
    }
}
