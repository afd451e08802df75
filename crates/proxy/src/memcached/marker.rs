//! The marker item, which tells proxies the generation of a server's data, and other questions of a
//! proxy to a server of memcached that returns.
//!
//! The marker of a pool is the item [`MARKER_PREFIX`] with the pool's name. It has the same key on
//! every server of the pool, whatever the distribution. Its value is `1`, the generation in 16
//! hexadecimal digits, and the time at which it began in milliseconds since 1970, separated by
//! blanks. It never expires. A proxy that empties a server holds the item [`LOCK_PREFIX`] with the
//! pool's name meanwhile.

use keyway_memcache::{
    Dialect, Expect, Head, Outcome, ReplyLimits, ReplyParsed, Verb, Wire, compose_request,
    parse_reply,
};
use keyway_topology::Generation;

/// The prefix of the keys of markers. Clients must not use such keys.
pub const MARKER_PREFIX: &str = "keyway:generation:";

/// The prefix of the keys of locks. Clients must not use such keys.
pub const LOCK_PREFIX: &str = "keyway:emptying:";

/// Time that a lock lasts, in seconds, by the server's clock. If a proxy stops before it has
/// emptied the server, another one does it then. If the time were shorter than emptying takes, two
/// proxies might do it one after the other.
const LOCK_LEN_S: i64 = 10;

/// A question to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The contents of its marker.
    Marker,
    /// The number of its items.
    Items,
    /// The lock: only this proxy empties it.
    Lock,
    /// The release of the lock.
    Unlock,
    /// A request to empty it.
    Flush,
    /// A request to store this marker, unless it has one.
    Place(Generation),
}

/// A server's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Its marker. `None`: something else is stored there.
    Marker(Option<Generation>),
    /// There is no such item.
    Absent,
    /// It was done.
    Done,
    /// There is one already.
    NotStored,
    /// The number of items.
    Items(u64),
    /// An error, or an invalid answer.
    Refused,
}

/// Appends a question to a server of the pool. Returns how its reply ends.
pub fn write_question(
    out: &mut Vec<u8>,
    dialect: Dialect,
    pool: &str,
    question: Question,
) -> Expect {
    // Servers with the meta protocol accept classic commands as well.
    let dialect = if dialect == Dialect::Meta { Dialect::Text } else { dialect };
    let (verb, prefix) = match question {
        Question::Marker => (Verb::Get, MARKER_PREFIX),
        Question::Place(_) => (Verb::Add, MARKER_PREFIX),
        Question::Lock => (Verb::Add, LOCK_PREFIX),
        Question::Unlock => (Verb::Delete, LOCK_PREFIX),
        Question::Items => (Verb::Stats, ""),
        Question::Flush => (Verb::FlushAll, ""),
    };
    let value = match question {
        Question::Place(Generation { id, began_ms }) => format!("1 {id:016x} {began_ms}"),
        Question::Lock => "1".to_owned(),
        _ => String::new(),
    };
    let expiry = if question == Question::Lock { LOCK_LEN_S } else { 0 };
    let head = Head { verb, expiry, ..Head::default() };
    let key = (!prefix.is_empty()).then(|| format!("{prefix}{pool}"));
    let keys: Vec<&[u8]> = key.iter().map(|key| key.as_bytes()).collect();
    let composed = compose_request(out, dialect, &head, keys.into_iter(), value.as_bytes());
    composed.unwrap_or(Expect::One)
}

/// Parses the complete reply to a question.
pub fn read_answer(reply: &[u8], wire: Wire) -> Answer {
    let limits = ReplyLimits { reply_len_max: u32::MAX };
    let mut rest = reply;
    while !rest.is_empty() {
        let Ok(ReplyParsed::Ready { len, reply }) = parse_reply(rest, wire, &limits) else {
            return Answer::Refused;
        };
        rest = &rest[len..];
        match reply.outcome {
            Outcome::Hit(item) => return Answer::Marker(parse_marker(item.value)),
            Outcome::NotFound | Outcome::End => return Answer::Absent,
            Outcome::Done(_) => return Answer::Done,
            Outcome::NotStored | Outcome::Exists => return Answer::NotStored,
            Outcome::Stat { name: b"curr_items", value } => {
                return number(value, 10).map_or(Answer::Refused, Answer::Items);
            }
            Outcome::Stat { .. } => {}
            _ => return Answer::Refused,
        }
    }
    Answer::Refused
}

fn parse_marker(value: &[u8]) -> Option<Generation> {
    let mut words = value.split(|&byte| byte == b' ');
    let is_known = words.next()? == b"1";
    let id = number(words.next()?, 16).filter(|&id| id > 1)?;
    let began_ms = number(words.next()?, 10)?;
    (is_known && words.next().is_none()).then_some(Generation { id, began_ms })
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let is_plain = digits.iter().all(u8::is_ascii_alphanumeric);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_plain)?;
    u64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERATION: Generation = Generation { id: 0xab, began_ms: 1_700_000_000_123 };

    fn said(question: Question) -> String {
        let mut out = Vec::new();
        write_question(&mut out, Dialect::Meta, "main", question);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn questions_are_what_memcached_understands() {
        assert_eq!(said(Question::Marker), "get keyway:generation:main\r\n");
        assert_eq!(
            said(Question::Place(GENERATION)),
            "add keyway:generation:main 0 0 32\r\n1 00000000000000ab 1700000000123\r\n"
        );
        assert_eq!(said(Question::Lock), "add keyway:emptying:main 0 10 1\r\n1\r\n");
        assert_eq!(said(Question::Unlock), "delete keyway:emptying:main\r\n");
        assert_eq!(said(Question::Items), "stats\r\n");
        assert_eq!(said(Question::Flush), "flush_all\r\n");
    }

    #[test]
    fn answers_are_read_in_text() {
        let read = |text: &str| read_answer(text.as_bytes(), Wire::Text);
        let value = "1 00000000000000ab 1700000000123";
        let found = |value: &str| read(&format!("VALUE k 0 {}\r\n{value}\r\nEND\r\n", value.len()));
        assert_eq!(found(value), Answer::Marker(Some(GENERATION)));
        for odd in ["", "2 00000000000000ab 17", "1 0 17", "1 ab", "1 ab 17 x", "1 +b 17"] {
            assert_eq!(found(odd), Answer::Marker(None), "{odd}");
        }
        assert_eq!(read("END\r\n"), Answer::Absent);
        assert_eq!(read("STORED\r\n"), Answer::Done);
        assert_eq!(read("OK\r\n"), Answer::Done);
        assert_eq!(read("NOT_STORED\r\n"), Answer::NotStored);
        assert_eq!(read("STAT pid 9\r\nSTAT curr_items 12\r\nEND\r\n"), Answer::Items(12));
        assert_eq!(read("CLIENT_ERROR flush_all not allowed\r\n"), Answer::Refused);
    }

    #[test]
    fn a_marker_is_read_as_it_was_written_in_packets_too() {
        let mut out = Vec::new();
        write_question(&mut out, Dialect::Binary, "main", Question::Place(GENERATION));
        let value = b"1 00000000000000ab 1700000000123";
        assert!(out.ends_with(value));
        let mut reply = vec![0x81, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 36];
        reply.extend_from_slice(&[0; 16]);
        reply.extend_from_slice(value);
        assert_eq!(read_answer(&reply, Wire::Binary), Answer::Marker(Some(GENERATION)));
        let mut missing = vec![0x81, 0, 0, 0, 0, 0, 0, 1];
        missing.extend_from_slice(&[0; 16]);
        assert_eq!(read_answer(&missing, Wire::Binary), Answer::Absent);
    }
}
