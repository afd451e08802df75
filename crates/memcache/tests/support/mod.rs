//! A minimal memcached on top of the crate. The tests feed it bytes when they compare with the real
//! one.

use keyway_memcache::{
    Asker, ErrorKind, Item, Outcome, ParseLimits, Parsed, Request, Verb, Wire, parse_request,
    write_end, write_reply,
};
use std::collections::BTreeMap;

/// A server's reply to a stream of bytes, and whether it then closes.
#[derive(Debug, PartialEq, Eq)]
pub struct Said {
    pub bytes: Vec<u8>,
    pub closed: bool,
}

pub fn limits() -> ParseLimits {
    ParseLimits { value_len_max: 1_000_000, keys_max: 100_000, keys_line_len_max: 1 << 20 }
}

#[derive(Clone, Default)]
struct Stored {
    flags: u32,
    value: Vec<u8>,
    ttl: i64,
}

/// Keeps items for ever and gives them no unique numbers.
#[derive(Default)]
pub struct Model {
    items: BTreeMap<Vec<u8>, Stored>,
    version: Vec<u8>,
}

impl Model {
    pub fn new(version: &str) -> Model {
        Model { items: BTreeMap::new(), version: version.as_bytes().to_vec() }
    }

    /// Serves one connection whose bytes arrive in pieces of `piece`.
    pub fn serve(&mut self, stream: &[u8], piece: usize) -> Said {
        let mut said = Said { bytes: Vec::new(), closed: false };
        let Some(&first) = stream.first() else { return said };
        let wire = Wire::of(first);
        let mut request = Request::default();
        let (mut start, mut end, mut needed, mut skip) = (0, 0, 0, 0u64);
        while end < stream.len() && !said.closed {
            end = (end + piece).min(stream.len());
            loop {
                let dropped = skip.min((end - start) as u64);
                skip -= dropped;
                start += dropped as usize;
                if start == end || end - start < needed {
                    break;
                }
                // The parser gets a buffer of its own, so that it cannot read bytes that have not
                // arrived.
                let held = stream[start..end].to_vec();
                needed = 0;
                match parse_request(&held, wire, &limits(), &mut request) {
                    Parsed::NeedMore { at_least } => {
                        assert!(at_least > held.len(), "waits for what is there: {at_least}");
                        needed = at_least;
                    }
                    Parsed::Refused { consumed, skip: behind, fault } => {
                        fault.write(&request.head, &mut said.bytes);
                        said.closed = fault.closes();
                        (start, skip) = (start + consumed, behind);
                    }
                    Parsed::Ready { consumed } => {
                        self.execute(&request, &held, &mut said.bytes);
                        said.closed = request.head.verb == Verb::Quit;
                        start += consumed;
                    }
                }
                if said.closed || needed > 0 {
                    break;
                }
            }
        }
        said
    }

    fn execute(&mut self, request: &Request, buf: &[u8], out: &mut Vec<u8>) {
        let head = &request.head;
        if head.verb == Verb::Quit && head.dialect != keyway_memcache::Dialect::Binary {
            return;
        }
        let meta = request.meta.of(buf);
        if head.verb.reads() {
            for key in request.keys(buf) {
                let stored = self.items.get(key).cloned().unwrap_or_default();
                let item = Item {
                    value: &stored.value,
                    flags: stored.flags,
                    ttl: Some(stored.ttl),
                    ..Item::default()
                };
                let hit = self.items.contains_key(key);
                let outcome = if hit { Outcome::Hit(item) } else { Outcome::NotFound };
                write_reply(out, &Asker { head, key, meta }, &outcome);
                if head.expiry < 0 {
                    self.items.remove(key);
                }
            }
            return write_end(out, head);
        }
        let key = if request.keys.is_empty() { &[] } else { request.key(buf, 0) };
        let outcome = self.change(request, key, request.value.of(buf));
        let done = matches!(outcome, Outcome::Done(_));
        write_reply(out, &Asker { head, key, meta }, &outcome);
        let joins = matches!(head.verb, Verb::Append | Verb::Prepend);
        if done && head.expiry < 0 && !joins {
            self.items.remove(key);
        }
    }

    fn change(&mut self, request: &Request, key: &[u8], value: &[u8]) -> Outcome<'_> {
        let head = &request.head;
        let done = Outcome::Done(Item::default());
        let stored = Stored {
            flags: head.flags,
            value: value.to_vec(),
            ttl: if head.expiry == 0 { -1 } else { head.expiry },
        };
        let old = self.items.get_mut(key);
        let error = |kind| Outcome::Error { kind, text: b"" };
        match (head.verb, old) {
            (Verb::Add, Some(_)) => return Outcome::NotStored,
            (Verb::Replace | Verb::Append | Verb::Prepend, None) => return Outcome::NotStored,
            (Verb::Cas | Verb::Delete | Verb::Touch, None) => return Outcome::NotFound,
            (Verb::Cas, Some(_)) => return Outcome::Exists,
            (Verb::Set | Verb::Add | Verb::Replace, _) => {
                self.items.insert(key.to_vec(), stored);
            }
            (Verb::Append, Some(old)) => old.value.extend_from_slice(value),
            (Verb::Prepend, Some(old)) => {
                old.value.splice(..0, value.iter().copied()).for_each(drop)
            }
            (Verb::Delete, Some(_)) => {
                self.items.remove(key);
            }
            (Verb::Touch, Some(old)) => {
                old.ttl = stored.ttl;
                return Outcome::Done(Item { flags: old.flags, ..Item::default() });
            }
            (Verb::Incr | Verb::Decr, old) => return arithmetic(request, old),
            (Verb::Version, _) => return Outcome::Text(&self.version),
            (Verb::Noop, _) => return Outcome::Noop,
            (Verb::Debug, None) => return Outcome::NotFound,
            (Verb::FlushAll, _) => self.items.clear(),
            (Verb::Stats, _) => return Outcome::NotFound,
            (Verb::SaslList | Verb::SaslStart | Verb::SaslStep, _) => {
                return error(ErrorKind::Unknown);
            }
            (Verb::Shutdown, _) => {
                return Outcome::Error { kind: ErrorKind::Unknown, text: b"shutdown not enabled" };
            }
            _ => {}
        }
        done
    }
}

fn arithmetic(request: &Request, old: Option<&mut Stored>) -> Outcome<'static> {
    let head = &request.head;
    let Some(old) = old else { return Outcome::NotFound };
    let number = std::str::from_utf8(&old.value).ok().and_then(|text| text.parse::<u64>().ok());
    let Some(number) = number else {
        return Outcome::Error { kind: ErrorKind::NotNumber, text: b"" };
    };
    let value = match head.verb {
        Verb::Incr => number.wrapping_add(head.delta),
        _ => number.saturating_sub(head.delta),
    };
    old.value = value.to_string().into_bytes();
    Outcome::Number { value, cas: None }
}

/// Creates a binary request.
pub fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80, opcode];
    bytes.extend_from_slice(&(key.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&[extras.len() as u8, 0, 0, 0]);
    let body = extras.len() + key.len() + value.len();
    bytes.extend_from_slice(&(body as u32).to_be_bytes());
    bytes.extend_from_slice(&0xdead_beef_u32.to_be_bytes());
    bytes.extend_from_slice(&[0; 8]);
    [&bytes, extras, key, value].concat()
}
