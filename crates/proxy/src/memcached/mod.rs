//! The proxy's parts for memcached: the state of a client's connection, the requests of a link
//! itself, and requests that are not answered with a server's unchanged bytes ([`MemcachedJoin`]).

mod marker;
mod memcached_join;
pub mod redis;
mod returning;
mod stats;
mod warm;

pub use marker::{Answer, LOCK_PREFIX, MARKER_PREFIX, Question, read_answer, write_question};
pub use memcached_join::{MemcachedJoin, MemcachedJoinPool, Rule};
pub use returning::{Cleaned, Next, Returning};
pub use warm::{
    Aim, End, ItemCopy, Terms, WarmUpPool, WarmUpRead, WarmUpTotals, Warmth, warmth_of,
};

use keyway_base::Fault;
use keyway_memcache::{
    Asker, Dialect, ErrorKind, Expect, Head, Outcome, Verb, Wire, compose_request, write_reply,
};

/// The parsing state of a memcached client.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemcachedClient {
    /// Its protocol, once its first byte has arrived.
    pub wire: Option<Wire>,
    /// Number of bytes of a refused value that must still be dropped.
    pub skip: u64,
    /// Length of the longest item that it may store, in bytes.
    pub item_len_max: u32,
}

/// Returns the framing of requests in `dialect`.
pub fn wire_of(dialect: Dialect) -> Wire {
    match dialect {
        Dialect::Text | Dialect::Meta => Wire::Text,
        Dialect::Binary => Wire::Binary,
    }
}

/// Appends a request of Keyway itself without keys. Returns how its reply ends.
pub fn write_own(out: &mut Vec<u8>, dialect: Dialect, verb: Verb) -> Expect {
    let head = Head { verb, ..Head::default() };
    let composed = compose_request(out, dialect, &head, std::iter::empty(), b"");
    composed.unwrap_or(Expect::One)
}

/// Appends the login of a link, if servers require a password.
pub(crate) fn write_login(out: &mut Vec<u8>, dialect: Dialect, user: &str, password: &str) {
    if dialect == Dialect::Binary {
        let head = Head { verb: Verb::SaslStart, ..Head::default() };
        let value = [b"\0", user.as_bytes(), b"\0", password.as_bytes()].concat();
        let composed = compose_request(out, dialect, &head, std::iter::once(&b"PLAIN"[..]), &value);
        debug_assert!(composed.is_ok(), "every dialect of packets has SASL");
        return;
    }
    let len = user.len() + 1 + password.len();
    out.extend_from_slice(format!("set keyway 0 0 {len}\r\n{user} {password}\r\n").as_bytes());
}

/// Returns whether a server has accepted what [`write_login`] sent.
pub(crate) fn is_welcome(reply: &[u8], wire: Wire) -> bool {
    match wire {
        Wire::Text => reply == b"STORED\r\n",
        Wire::Binary => status(reply) == Some(0),
    }
}

/// The message of a full server on a new connection, before it closes it.
pub(crate) const NO_ROOM: &[u8] = b"ERROR Too many open connections";

/// Appends the message to a client for which there is no room.
pub fn write_no_room(out: &mut Vec<u8>) {
    out.extend_from_slice(NO_ROOM);
    out.extend_from_slice(b"\r\n");
}

/// Returns whether a complete reply is an error of the server.
#[inline]
pub fn is_error(reply: &[u8], wire: Wire) -> bool {
    /// The smallest status that is no outcome of an ordinary request.
    const ERRORS: u16 = 0x20;
    match wire {
        Wire::Text => {
            reply.starts_with(b"ERROR")
                || reply.starts_with(b"SERVER_ERROR")
                || reply.starts_with(b"CLIENT_ERROR")
        }
        Wire::Binary => status(reply).is_some_and(|status| status >= ERRORS),
    }
}

fn status(reply: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(reply.get(6..8)?.try_into().ok()?))
}

/// Appends the reply to a client whose request has failed. `backend` is as for
/// [`crate::write_fault`].
#[cold]
pub fn write_failure(out: &mut Vec<u8>, asker: &Asker<'_>, fault: Fault, backend: &str) {
    let text = crate::fault_reply::text_for_memcached(fault, backend);
    let kind = match fault {
        Fault::StoreFull => ErrorKind::OutOfMemory,
        _ => ErrorKind::Server,
    };
    let words = text.split_once(' ').map_or(&*text, |(_, words)| words);
    write_reply(out, asker, &Outcome::Error { kind, text: words.as_bytes() });
}

/// Does the same for a text client of whose request nothing else is known.
#[cold]
pub fn write_text_failure(out: &mut Vec<u8>, fault: Fault, backend: &str) {
    let head = Head::default();
    write_failure(out, &Asker { head: &head, key: b"", meta: b"" }, fault, backend);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_link_says_is_in_the_words_of_its_servers() {
        let said = |dialect, verb| {
            let mut out = Vec::new();
            let expect = write_own(&mut out, dialect, verb);
            (out, expect)
        };
        assert_eq!(said(Dialect::Text, Verb::Version), (b"version\r\n".to_vec(), Expect::One));
        assert_eq!(said(Dialect::Meta, Verb::FlushAll), (b"flush_all\r\n".to_vec(), Expect::One));
        let (bytes, expect) = said(Dialect::Binary, Verb::Version);
        assert_eq!((bytes.len(), bytes[0], bytes[1], expect), (24, 0x80, 0x0b, Expect::One));
    }

    #[test]
    fn a_login_is_what_memcached_expects() {
        let mut out = Vec::new();
        write_login(&mut out, Dialect::Meta, "me", "secret");
        assert_eq!(out, b"set keyway 0 0 9\r\nme secret\r\n");
        out.clear();
        write_login(&mut out, Dialect::Binary, "me", "secret");
        assert_eq!((out[0], out[1]), (0x80, 0x21));
        assert!(out.ends_with(b"PLAIN\0me\0secret"));
    }
}
