//! The meaning of complete replies.

use crate::program::Judge;
use keyway_memcache::{Outcome, Reply, ReplyLimits, ReplyParsed, Wire, parse_reply};
use keyway_resp::{Framer, Kind, Protocol};

/// Length of the longest reply, in bytes. Lists of large values are long.
pub(crate) const REPLY_LEN_MAX: u32 = 1 << 30;

/// Largest depth of arrays in arrays.
pub(crate) const DEPTH_MAX: u32 = 32;

pub(crate) const LIMITS: ReplyLimits = ReplyLimits { reply_len_max: REPLY_LEN_MAX };

/// The meaning of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told<'a> {
    pub(crate) hits: u32,
    pub(crate) misses: u32,
    /// The text of an error.
    pub(crate) error: Option<&'a [u8]>,
    /// True if the reply to a piece of the request was an error. That error is noted already.
    pub(crate) has_failed_piece: bool,
}

impl Told<'_> {
    const HIT: Told<'static> = Told { hits: 1, ..Told::DONE };
    const MISS: Told<'static> = Told { misses: 1, ..Told::DONE };
    const DONE: Told<'static> = Told { hits: 0, misses: 0, error: None, has_failed_piece: false };

    /// Returns whether the request counts as failed.
    #[inline]
    pub(crate) fn is_failed(&self) -> bool {
        self.error.is_some() || self.has_failed_piece
    }
}

/// Returns the meaning of a complete reply of Redis.
#[inline]
pub(crate) fn redis(bytes: &[u8], kind: Kind, judge: Judge) -> Told<'_> {
    match kind {
        Kind::Bulk if bytes[1] == b'-' => Told::MISS,
        Kind::Bulk => Told::HIT,
        Kind::Simple | Kind::Integer => Told::DONE,
        Kind::Null => Told::MISS,
        Kind::Error | Kind::BlobError => Told { error: Some(error_text(bytes)), ..Told::DONE },
        Kind::Array | Kind::Map => match judge {
            Judge::Many(_) => {
                let mut told = Told::DONE;
                values(bytes, |value| match value {
                    Some(_) => told.hits += 1,
                    None => told.misses += 1,
                });
                told
            }
            Judge::Record if bytes[1] == b'0' => Told::MISS,
            Judge::Record => Told::HIT,
            _ if bytes[1] == b'-' => Told::MISS,
            _ => Told::DONE,
        },
        _ => Told::DONE,
    }
}

fn error_text(bytes: &[u8]) -> &[u8] {
    let text = match bytes.first() {
        Some(b'!') => bytes.splitn(2, |&byte| byte == b'\n').nth(1).unwrap_or_default(),
        _ => bytes.get(1..).unwrap_or_default(),
    };
    text.trim_ascii_end()
}

/// Calls `each` with the values of a reply of Redis in order: a bulk, or the elements of an array.
/// A missing value is `None`. Any other reply is ignored.
pub(crate) fn values<'a>(bytes: &'a [u8], mut each: impl FnMut(Option<&'a [u8]>)) {
    if bytes.first() != Some(&b'*') {
        return each(bulk(bytes));
    }
    let Some((count, mut at)) = number(bytes) else { return };
    for _ in 0..count.max(0) {
        let rest = bytes.get(at..).unwrap_or_default();
        let framed = Framer::new(Protocol::Resp3).frame(rest, REPLY_LEN_MAX, DEPTH_MAX);
        let Ok(keyway_resp::Framing::Ready { len, .. }) = framed else { return };
        each(bulk(&rest[..len]));
        at += len;
    }
}

/// Returns the bytes of a bulk, if there are any.
pub(crate) fn bulk(bytes: &[u8]) -> Option<&[u8]> {
    if bytes.first() != Some(&b'$') {
        return None;
    }
    let (len, start) = number(bytes)?;
    bytes.get(start..start.checked_add(usize::try_from(len).ok()?)?)
}

/// Returns the number behind the first byte, and the offset of the end of its line.
fn number(bytes: &[u8]) -> Option<(i64, usize)> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    let text = std::str::from_utf8(bytes.get(1..end)?).ok()?;
    Some((text.trim_end().parse().ok()?, end + 1))
}

/// Returns the meaning of a complete reply of memcached.
#[inline]
pub(crate) fn memcached(bytes: &[u8], wire: Wire, judge: Judge) -> Told<'_> {
    if wire == Wire::Text && judge == Judge::One {
        match bytes {
            [b'V', b'A' | b'a', ..] => return Told::HIT,
            [b'S', b'T', b'O', ..] | [b'H', b'D', ..] => return Told::DONE,
            [b'E', b'N', ..] => return Told::MISS,
            _ => {}
        }
    }
    let mut told = Told::DONE;
    elements(bytes, wire, |reply, element| match reply.outcome {
        Outcome::Hit(_) => told.hits += 1,
        Outcome::NotFound if !matches!(judge, Judge::Many(_)) => told.misses += 1,
        Outcome::Error { text, .. } => {
            let line = element.split(|&byte| byte == b'\r').next().unwrap_or_default();
            told.error = Some(if wire == Wire::Text { line } else { text });
        }
        _ => {}
    });
    if let Judge::Many(keys) = judge
        && told.error.is_none()
    {
        told.misses = keys.saturating_sub(told.hits);
    }
    told
}

/// Returns the elements of a reply of memcached.
pub(crate) fn elements<'a>(
    bytes: &'a [u8],
    wire: Wire,
    mut each: impl FnMut(&Reply<'a>, &'a [u8]),
) {
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        match parse_reply(rest, wire, &LIMITS) {
            Ok(ReplyParsed::Ready { len, reply }) => {
                each(&reply, &rest[..len]);
                at += len;
            }
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(bytes: &[u8], judge: Judge) -> (u32, u32, Option<&[u8]>) {
        let Told { hits, misses, error, .. } = redis(bytes, Kind::of(bytes).unwrap(), judge);
        (hits, misses, error)
    }

    #[test]
    fn replies_of_redis_are_told_apart() {
        assert_eq!(told(b"$1\r\na\r\n", Judge::One), (1, 0, None));
        assert_eq!(told(b"$-1\r\n", Judge::One), (0, 1, None));
        assert_eq!(told(b"_\r\n", Judge::One), (0, 1, None));
        assert_eq!(told(b"+OK\r\n", Judge::One), (0, 0, None));
        assert_eq!(told(b"-ERR a b\r\n", Judge::One), (0, 0, Some(&b"ERR a b"[..])));
        let many = b"*4\r\n$1\r\na\r\n$-1\r\n_\r\n$0\r\n\r\n";
        assert_eq!(told(many, Judge::Many(4)), (2, 2, None));
        assert_eq!(told(b"*0\r\n", Judge::Record), (0, 1, None));
        assert_eq!(told(b"%0\r\n", Judge::Record), (0, 1, None));
        assert_eq!(told(b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", Judge::Record), (1, 0, None));
    }

    #[test]
    fn values_come_in_order_whatever_is_in_them() {
        let mut found = Vec::new();
        values(b"*3\r\n$4\r\n\r\n$1\r\n$-1\r\n$1\r\nz\r\n", |value| found.push(value));
        assert_eq!(found, [Some(&b"\r\n$1"[..]), None, Some(&b"z"[..])]);
    }

    #[test]
    fn replies_of_memcached_are_told_apart() {
        let text = |bytes, judge| {
            let Told { hits, misses, error, .. } = memcached(bytes, Wire::Text, judge);
            (hits, misses, error)
        };
        assert_eq!(text(b"VALUE k 0 1\r\na\r\nEND\r\n", Judge::One), (1, 0, None));
        assert_eq!(text(b"END\r\n", Judge::One), (0, 1, None));
        assert_eq!(text(b"EN\r\n", Judge::One), (0, 1, None));
        assert_eq!(text(b"STORED\r\n", Judge::One), (0, 0, None));
        assert_eq!(text(b"NOT_FOUND\r\n", Judge::One), (0, 1, None));
        let many = b"VALUE a 0 1\r\na\r\nVALUE b 0 1\r\nb\r\nEND\r\n";
        assert_eq!(text(many, Judge::Many(3)), (2, 1, None));
        let meta = b"VA 1 O1\r\na\r\nMN\r\n";
        assert_eq!(text(meta, Judge::Many(3)), (1, 2, None));
        let error = b"SERVER_ERROR out of memory\r\n";
        assert_eq!(text(error, Judge::One).2, Some(&b"SERVER_ERROR out of memory"[..]));
        assert_eq!(text(b"ERROR\r\n", Judge::One).2, Some(&b"ERROR"[..]));
    }
}
