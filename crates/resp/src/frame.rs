//! Replies: finding where one ends. A proxy hands a reply on whole, so all it
//! needs is the length and the leading byte.

use crate::digits::{Line, number_line};

/// What a reply is, by its leading byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `+`
    Simple,
    /// `-`
    Error,
    /// `:`
    Integer,
    /// `$`, null included
    Bulk,
    /// `*`, null included
    Array,
}

/// Outcome of [`frame_reply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// A whole reply.
    Ready {
        /// Its length in bytes.
        len: usize,
        /// Its leading byte.
        kind: Kind,
    },
    /// Not whole: no use looking again before the buffer holds `at_least`.
    NeedMore {
        /// Total buffer length worth framing again, in bytes.
        at_least: usize,
    },
}

/// Why a backend's bytes are not a reply: close the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramingFault {
    /// Not RESP2 at all.
    Protocol,
    /// Longer than the bound.
    TooLong,
    /// Nested deeper than the bound.
    TooDeep,
}

/// Fewest bytes an element of an array takes: `+\r\n`.
const ELEMENT_LEN_MIN: usize = 3;

/// Longest simple line (status, error) taken from a backend, in bytes: a
/// longer one is not Redis talking. Scripts may return long errors.
const LINE_LEN_MAX: usize = 1 << 20;

/// Finds the end of the reply at the start of `buf`, which may be at most
/// `len_max` bytes long and nest at most `depth_max` deep.
#[inline]
pub fn frame_reply(buf: &[u8], len_max: u32, depth_max: u32) -> Result<Framing, FramingFault> {
    let kind = match buf.first() {
        Some(b'$') => Kind::Bulk,
        Some(b'+') => Kind::Simple,
        Some(b':') => Kind::Integer,
        Some(b'-') => Kind::Error,
        Some(b'*') => Kind::Array,
        Some(_) => return Err(FramingFault::Protocol),
        None => return Ok(Framing::NeedMore { at_least: 1 }),
    };
    let end = match kind {
        Kind::Array => array_end(buf, depth_max)?,
        _ => scalar_end(buf, 0)?,
    };
    match end {
        End::At(len) if len <= len_max as usize => Ok(Framing::Ready { len, kind }),
        End::Beyond(at_least) if at_least <= len_max as usize => {
            Ok(Framing::NeedMore { at_least: at_least.max(buf.len() + 1) })
        }
        _ => Err(FramingFault::TooLong),
    }
}

enum End {
    /// One past the last byte.
    At(usize),
    /// Not before this many bytes.
    Beyond(usize),
}

/// End of the non-array element at `at`, which is inside `buf`.
#[inline]
fn scalar_end(buf: &[u8], at: usize) -> Result<End, FramingFault> {
    match buf[at] {
        b'$' => match number_line(buf, at + 1) {
            Line::Number(-1, next) => Ok(End::At(next)),
            Line::Number(len, start) if len >= 0 => {
                let end = usize::try_from(len)
                    .ok()
                    .and_then(|len| start.checked_add(len)?.checked_add(2))
                    .ok_or(FramingFault::TooLong)?;
                match buf.get(end - 2..end) {
                    Some(b"\r\n") => Ok(End::At(end)),
                    Some(_) => Err(FramingFault::Protocol),
                    None => Ok(End::Beyond(end)),
                }
            }
            Line::Partial => Ok(End::Beyond(buf.len() + 1)),
            _ => Err(FramingFault::Protocol),
        },
        b':' => match number_line(buf, at + 1) {
            Line::Number(_, end) => Ok(End::At(end)),
            Line::Partial => Ok(End::Beyond(buf.len() + 1)),
            Line::Invalid => Err(FramingFault::Protocol),
        },
        b'+' | b'-' => line_end(buf, at + 1),
        _ => Err(FramingFault::Protocol),
    }
}

fn line_end(buf: &[u8], at: usize) -> Result<End, FramingFault> {
    match memchr::memchr2(b'\r', b'\n', &buf[at..]) {
        None if buf.len() - at > LINE_LEN_MAX => Err(FramingFault::Protocol),
        None => Ok(End::Beyond(buf.len() + 1)),
        Some(offset) if buf[at + offset] == b'\n' => Err(FramingFault::Protocol),
        Some(offset) => match buf.get(at + offset + 1) {
            Some(b'\n') => Ok(End::At(at + offset + 2)),
            Some(_) => Err(FramingFault::Protocol),
            None => Ok(End::Beyond(buf.len() + 1)),
        },
    }
}

/// End of the array at the start of `buf`. Counts elements instead of
/// recursing, one counter per level.
fn array_end(buf: &[u8], depth_max: u32) -> Result<End, FramingFault> {
    const DEPTH_MAX: usize = 32;
    let depth_max = DEPTH_MAX.min(depth_max as usize);
    // Elements still to come on each open level.
    let mut open = [0u64; DEPTH_MAX];
    let mut depth = 0;
    let mut pos = 0;
    loop {
        let Some(&byte) = buf.get(pos) else {
            return Ok(End::Beyond(still_needed(pos, &open[..depth])));
        };
        if byte == b'*' {
            match number_line(buf, pos + 1) {
                Line::Number(count, next) if count > 0 => {
                    if depth == depth_max {
                        return Err(FramingFault::TooDeep);
                    }
                    open[depth] = count as u64;
                    depth += 1;
                    pos = next;
                    continue;
                }
                Line::Number(0 | -1, next) => pos = next,
                Line::Partial => return Ok(End::Beyond(still_needed(pos, &open[..depth]))),
                _ => return Err(FramingFault::Protocol),
            }
        } else {
            match scalar_end(buf, pos)? {
                End::At(next) => pos = next,
                End::Beyond(at_least) => {
                    let rest = still_needed(at_least, &open[..depth]);
                    return Ok(End::Beyond(rest.saturating_sub(ELEMENT_LEN_MIN)));
                }
            }
        }
        // The element that just ended may end the levels it was last on.
        loop {
            if depth == 0 {
                return Ok(End::At(pos));
            }
            open[depth - 1] -= 1;
            if open[depth - 1] > 0 {
                break;
            }
            depth -= 1;
        }
    }
}

/// Where the reply cannot end before: every element still open takes room.
fn still_needed(pos: usize, open: &[u64]) -> usize {
    let mut elements: u64 = 0;
    for (level, left) in open.iter().enumerate() {
        // All but the innermost level count the element being read as one of
        // theirs, and that one's own bytes are counted further in.
        let inner = level + 1 < open.len();
        elements = elements.saturating_add(left - u64::from(inner));
    }
    usize::try_from(elements)
        .unwrap_or(usize::MAX)
        .saturating_mul(ELEMENT_LEN_MIN)
        .saturating_add(pos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(buf: &[u8]) -> Result<Framing, FramingFault> {
        frame_reply(buf, 1 << 30, 8)
    }

    fn vectors() -> Vec<(&'static [u8], Kind)> {
        vec![
            (b"+OK\r\n", Kind::Simple),
            (b"+\r\n", Kind::Simple),
            (b"-ERR no\r\n", Kind::Error),
            (b":-12\r\n", Kind::Integer),
            (b"$-1\r\n", Kind::Bulk),
            (b"$0\r\n\r\n", Kind::Bulk),
            (b"$5\r\na\r\nbc\r\n", Kind::Bulk),
            (b"*-1\r\n", Kind::Array),
            (b"*0\r\n", Kind::Array),
            (b"*2\r\n$1\r\na\r\n:1\r\n", Kind::Array),
            (b"*3\r\n*2\r\n+a\r\n*0\r\n*1\r\n*1\r\n$-1\r\n-ERR\r\n", Kind::Array),
        ]
    }

    #[test]
    fn a_reply_ends_where_it_ends_whatever_follows() {
        for (bytes, kind) in vectors() {
            let expected = Ok(Framing::Ready { len: bytes.len(), kind });
            assert_eq!(frame(bytes), expected, "{bytes:?}");
            let followed = [bytes, b"$3\r\nabc\r\n"].concat();
            assert_eq!(frame(&followed), expected, "{bytes:?} followed");
        }
    }

    #[test]
    fn every_prefix_waits_and_never_for_more_than_the_reply() {
        for (bytes, _) in vectors() {
            for split in 0..bytes.len() {
                match frame(&bytes[..split]) {
                    Ok(Framing::NeedMore { at_least }) => {
                        assert!(
                            at_least > split && at_least <= bytes.len(),
                            "{bytes:?} at {split}"
                        );
                    }
                    other => panic!("{bytes:?} cut at {split}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn what_is_not_resp_is_refused() {
        for bytes in [
            &b"HTTP/1.1 200 OK\r\n"[..],
            b"$abc\r\n",
            b"$-2\r\n",
            b"$1\r\nab\r\n",
            b":\r\n",
            b":1x\r\n",
            b"+a\nb\r\n",
            b"+a\rb\r\n",
            b"*1\r\nx",
            b"*-5\r\n",
        ] {
            assert_eq!(frame(bytes), Err(FramingFault::Protocol), "{bytes:?}");
        }
    }

    #[test]
    fn bounds_are_met_before_bytes_are_waited_for() {
        assert_eq!(frame_reply(b"$2000\r\n", 1000, 8), Err(FramingFault::TooLong));
        assert_eq!(frame(b"$9223372036854775807\r\n"), Err(FramingFault::TooLong));
        assert_eq!(frame(b"*9223372036854775807\r\n"), Err(FramingFault::TooLong));
        assert_eq!(frame(&b"*1\r\n".repeat(9)), Err(FramingFault::TooDeep));
    }
}
