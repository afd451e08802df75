//! Requests of memcached clients, as bytes.

use super::clock_at;
use keyway_memcache::{
    Asker, Outcome, ParseLimits, Parsed, Request, Verb, Wire, parse_request, write_reply,
};
use keyway_store::{MemcachedContext, Store};

pub const LIMITS: ParseLimits =
    ParseLimits { value_len_max: 1 << 20, keys_max: 100_000, keys_line_len_max: 1 << 20 };

pub fn context_at(millis: u64) -> MemcachedContext {
    MemcachedContext { database: 0, clock: clock_at(millis), worker: 0, item_len_max: 1 << 20 }
}

/// Returns the replies to a client that sends whole requests to database 0 at `millis`.
pub fn ask(store: &Store, millis: u64, stream: &[u8]) -> Vec<u8> {
    ask_in(store, context_at(millis), stream)
}

/// The same in any context.
pub fn ask_in(store: &Store, context: MemcachedContext, stream: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    each_request(stream, &mut out, |request, bytes, out| {
        if store.execute_memcached(request, bytes, context, out) {
            return;
        }
        assert_eq!(request.head.verb, Verb::Noop, "the store executes no other");
        let asker = Asker { head: &request.head, key: &[], meta: &[] };
        write_reply(out, &asker, &Outcome::Noop);
    });
    out
}

/// Parses whole requests; those that are refused are answered.
pub fn each_request(
    stream: &[u8],
    out: &mut Vec<u8>,
    mut work: impl FnMut(&Request, &[u8], &mut Vec<u8>),
) {
    let (mut rest, mut request) = (stream, Request::default());
    while let Some(first) = stream.first().filter(|_| !rest.is_empty()) {
        let consumed = match parse_request(rest, Wire::of(*first), &LIMITS, &mut request) {
            Parsed::Ready { consumed } => {
                work(&request, rest, out);
                consumed
            }
            Parsed::Refused { consumed, skip, fault } => {
                fault.write(&request.head, out);
                consumed + skip as usize
            }
            Parsed::NeedMore { .. } => panic!("no whole request: {}", rest.escape_ascii()),
        };
        rest = &rest[consumed..];
    }
}

/// The same as [`ask`], as text.
pub fn say(store: &Store, millis: u64, stream: &str) -> String {
    String::from_utf8_lossy(&ask(store, millis, stream.as_bytes())).into_owned()
}
