//! The messages to subscribers, and those of a server to a subscriber.

use super::SubscriptionKind;
use keyway_resp::{Framing, frame_reply, reply};

/// The form of a push, which a client gets at any time without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushShape {
    /// An array, as in RESP2.
    Array,
    /// A push in RESP3.
    Push,
}

impl PushShape {
    fn byte(self) -> u8 {
        match self {
            PushShape::Array => b'*',
            PushShape::Push => b'>',
        }
    }
}

/// Appends a complete frame that was written as an array, in a client's form: the two differ only
/// in their first byte.
#[inline]
pub fn append_frame(out: &mut Vec<u8>, shape: PushShape, frame: &[u8]) {
    out.push(shape.byte());
    out.extend_from_slice(&frame[1..]);
}

/// Appends a message as an array. `pattern` is the pattern that matched, if any.
pub fn write_message(
    out: &mut Vec<u8>,
    kind: SubscriptionKind,
    pattern: Option<&[u8]>,
    channel: &[u8],
    payload: &[u8],
) {
    reply::array(out, 3 + usize::from(pattern.is_some()));
    reply::bulk(out, kind.message_word().as_bytes());
    if let Some(pattern) = pattern {
        reply::bulk(out, pattern);
    }
    reply::bulk(out, channel);
    reply::bulk(out, payload);
}

/// Appends the confirmation of a subscription that begins or ends, with the client's current number
/// of subscriptions. `name` is `None` if there was none to end.
pub fn write_change(
    out: &mut Vec<u8>,
    shape: PushShape,
    word: &str,
    name: Option<&[u8]>,
    count: usize,
) {
    out.extend_from_slice(&[shape.byte(), b'3', b'\r', b'\n']);
    reply::bulk(out, word.as_bytes());
    match (name, shape) {
        (Some(name), _) => reply::bulk(out, name),
        (None, PushShape::Array) => reply::null(out),
        (None, PushShape::Push) => out.extend_from_slice(b"_\r\n"),
    }
    reply::integer(out, count as i64);
}

/// Appends the reply to PING for a RESP2 client that has subscriptions.
pub fn write_pong(out: &mut Vec<u8>, message: &[u8]) {
    reply::array(out, 2);
    reply::bulk(out, b"pong");
    reply::bulk(out, message);
}

/// A frame of a server, parsed as far as is needed to forward it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed<'a> {
    /// A message for the subscription to `name`.
    Message { kind: SubscriptionKind, name: &'a [u8] },
    /// A subscription began or ended.
    Changed { kind: SubscriptionKind, subscribes: bool, name: Option<&'a [u8]> },
    /// The answer to PING.
    Pong,
}

/// Parses an array of a server. Returns `None` if it is none of these.
pub(super) fn read_push(frame: &[u8]) -> Option<Pushed<'_>> {
    let head = frame.iter().position(|byte| *byte == b'\n')? + 1;
    let (word, rest) = take_bulk(&frame[head..])?;
    let word = word?;
    if word == b"pong" {
        return Some(Pushed::Pong);
    }
    let (name, _) = take_bulk(rest)?;
    for kind in SubscriptionKind::ALL {
        if word == kind.message_word().as_bytes() {
            return Some(Pushed::Message { kind, name: name? });
        }
        for subscribes in [true, false] {
            if word == kind.word(subscribes).as_bytes() {
                return Some(Pushed::Changed { kind, subscribes, name });
            }
        }
    }
    None
}

/// Returns the payload of a complete message of a channel, or `None` if it is no such message.
pub fn payload_of(frame: &[u8]) -> Option<&[u8]> {
    let head = frame.iter().position(|byte| *byte == b'\n')? + 1;
    let (_, rest) = take_bulk(&frame[head..])?;
    let (_, rest) = take_bulk(rest)?;
    take_bulk(rest)?.0
}

/// Returns the bulk at the start of `bytes`, as `None` if it is null, and what follows it.
fn take_bulk(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    if bytes.first() != Some(&b'$') {
        return None;
    }
    let Ok(Framing::Ready { len, .. }) = frame_reply(bytes, u32::MAX, 1) else { return None };
    let start = bytes.iter().position(|byte| *byte == b'\n')? + 1;
    let value = (len >= start + 2).then(|| &bytes[start..len - 2]);
    Some((value, &bytes[len..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use SubscriptionKind::{Channel, Pattern, Shard};

    #[test]
    fn what_is_written_is_read_back() {
        let mut out = Vec::new();
        for (kind, pattern, name) in
            [(Channel, None, &b"c"[..]), (Pattern, Some(&b"c*"[..]), b"c*"), (Shard, None, b"c")]
        {
            out.clear();
            write_message(&mut out, kind, pattern, b"c", b"*1\r\n");
            assert_eq!(read_push(&out), Some(Pushed::Message { kind, name }));
        }
        for kind in SubscriptionKind::ALL {
            for (subscribes, name) in [(true, Some(&b"n"[..])), (false, Some(b"")), (false, None)] {
                out.clear();
                let word = kind.word(subscribes);
                write_change(&mut out, PushShape::Array, word, name, 7);
                assert_eq!(read_push(&out), Some(Pushed::Changed { kind, subscribes, name }));
            }
        }
        out.clear();
        write_pong(&mut out, b"");
        assert_eq!(read_push(&out), Some(Pushed::Pong));
    }

    #[test]
    fn a_frame_that_is_no_push_is_not_taken_for_one() {
        for frame in ["*0\r\n", "*1\r\n:1\r\n", "*1\r\n$-1\r\n", "*2\r\n$4\r\nnone\r\n$1\r\na\r\n"]
        {
            assert_eq!(read_push(frame.as_bytes()), None, "{}", frame.escape_debug());
        }
        let null_name = b"*3\r\n$7\r\nmessage\r\n$-1\r\n$1\r\na\r\n";
        assert_eq!(read_push(null_name), None);
    }

    #[test]
    fn a_push_and_an_array_differ_in_their_first_byte() {
        let (mut array, mut push) = (Vec::new(), Vec::new());
        write_message(&mut array, Channel, None, b"c", b"m");
        append_frame(&mut push, PushShape::Push, &array);
        assert_eq!(push[0], b'>');
        assert_eq!(push[1..], array[1..]);
    }
}
