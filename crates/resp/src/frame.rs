//! Finds where a reply ends. A proxy forwards a reply whole, so it needs only the length and the
//! first byte.

use crate::Protocol;
use crate::digits::{Line, number_line, short_number};

/// The kind of a reply, by its first byte. The kinds from [`Kind::Null`] on belong to RESP3.
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
    /// `_`
    Null,
    /// `#`
    Boolean,
    /// `,`
    Double,
    /// `(`
    BigNumber,
    /// `=`, a text with its format
    Verbatim,
    /// `!`, an error with any bytes
    BlobError,
    /// `%`
    Map,
    /// `~`
    Set,
    /// `>`, not a reply: it is sent between replies
    Push,
    /// `|`, attributes and the reply to which they belong
    Attribute,
}

impl Kind {
    /// Returns the kind of the whole reply in `bytes`, in any version, or `None` if it is no reply.
    pub fn of(bytes: &[u8]) -> Option<Kind> {
        match bytes.first()? {
            b'$' => Some(Kind::Bulk),
            b'+' => Some(Kind::Simple),
            b':' => Some(Kind::Integer),
            b'-' => Some(Kind::Error),
            b'*' => Some(Kind::Array),
            &byte => Kind::of_resp3(byte),
        }
    }

    /// Returns the kind that begins with `byte` only in RESP3.
    fn of_resp3(byte: u8) -> Option<Kind> {
        Some(match byte {
            b'_' => Kind::Null,
            b'#' => Kind::Boolean,
            b',' => Kind::Double,
            b'(' => Kind::BigNumber,
            b'=' => Kind::Verbatim,
            b'!' => Kind::BlobError,
            b'%' => Kind::Map,
            b'~' => Kind::Set,
            b'>' => Kind::Push,
            b'|' => Kind::Attribute,
            _ => return None,
        })
    }
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
    /// The reply is incomplete. It need not be framed again before the buffer holds `at_least`
    /// bytes.
    NeedMore {
        /// Total buffer length from which framing again can succeed, in bytes.
        at_least: usize,
    },
}

/// Why the bytes of a backend are not a reply. The link must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramingFault {
    /// They are not RESP, or not the version in use.
    Protocol,
    /// The reply is longer than the limit.
    TooLong,
    /// The reply is nested deeper than the limit.
    TooDeep,
}

/// Smallest number of bytes of an element of an array: `+\r\n`, `_\r\n`.
const ELEMENT_LEN_MIN: usize = 3;

/// Number of bytes before the text of a verbatim string: its format and a colon.
const FORMAT_LEN: usize = 4;

/// Number of open levels of an array for which memory is kept.
const LEVELS_KEPT_MAX: usize = 64;

/// Finds where replies end. It remembers how far it has read an incomplete reply, so that it reads
/// no byte twice, however the reply is cut.
#[derive(Debug, Default)]
pub struct Framer {
    /// The protocol version. RESP3's kinds are replies only with RESP3.
    protocol: Protocol,
    /// Index at which the current element starts.
    at: usize,
    /// Index up to which no line end was found.
    scanned: usize,
    /// Number of elements that are still missing, for each open level of an array.
    open: Vec<u64>,
}

/// Finds the end of the RESP2 reply at the start of `buf`. The reply may be at most `len_max` bytes
/// long and nested `depth_max` deep. For RESP3, and for a reply that arrives in pieces, use a
/// [`Framer`].
#[inline]
pub fn frame_reply(buf: &[u8], len_max: u32, depth_max: u32) -> Result<Framing, FramingFault> {
    Framer::default().frame(buf, len_max, depth_max)
}

impl Framer {
    /// Creates a framer of replies of `protocol`. RESP3 includes all replies of RESP2.
    pub fn new(protocol: Protocol) -> Framer {
        Framer { protocol, ..Framer::default() }
    }

    /// Finds the end of the reply at the start of `buf`. The reply may be at most `len_max` bytes
    /// long and nested `depth_max` deep. After [`Framing::NeedMore`], the next call gets the same
    /// bytes with more behind them. After any other result, it gets the next reply.
    ///
    /// # Errors
    /// Returns an error if it is no reply, or exceeds a limit.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "once per reply, called from few places")]
    pub fn frame(
        &mut self,
        buf: &[u8],
        len_max: u32,
        depth_max: u32,
    ) -> Result<Framing, FramingFault> {
        match short_bulk(buf) {
            Some(len) if len <= len_max as usize => Ok(Framing::Ready { len, kind: Kind::Bulk }),
            _ => self.frame_any(buf, len_max, depth_max),
        }
    }

    #[inline(never)]
    fn frame_any(
        &mut self,
        buf: &[u8],
        len_max: u32,
        depth_max: u32,
    ) -> Result<Framing, FramingFault> {
        if buf.starts_with(b"+OK\r\n") && len_max >= 5 {
            self.scanned = 0;
            return Ok(Framing::Ready { len: 5, kind: Kind::Simple });
        }
        let kind = match buf.first() {
            Some(b'$') => Kind::Bulk,
            Some(b'+') => Kind::Simple,
            Some(b':') => Kind::Integer,
            Some(b'-') => Kind::Error,
            Some(b'*') => Kind::Array,
            Some(&byte) => self.other_kind(byte)?,
            None => return Ok(Framing::NeedMore { at_least: 1 }),
        };
        let end = match kind {
            Kind::Array | Kind::Map | Kind::Set | Kind::Push | Kind::Attribute => {
                self.aggregate_end(buf, depth_max)
            }
            _ => scalar_end(buf, 0, &mut self.scanned),
        };
        match end {
            Ok(End::Beyond(at_least)) if at_least <= len_max as usize => {
                Ok(Framing::NeedMore { at_least: at_least.max(buf.len() + 1) })
            }
            other => {
                self.reset();
                match other? {
                    End::At(len) if len <= len_max as usize => Ok(Framing::Ready { len, kind }),
                    _ => Err(FramingFault::TooLong),
                }
            }
        }
    }

    #[cold]
    fn other_kind(&self, byte: u8) -> Result<Kind, FramingFault> {
        match self.protocol {
            Protocol::Resp2 => Err(FramingFault::Protocol),
            Protocol::Resp3 => Kind::of_resp3(byte).ok_or(FramingFault::Protocol),
        }
    }

    /// Discards the state of a reply that will not be read further.
    #[inline]
    pub fn reset(&mut self) {
        self.at = 0;
        self.scanned = 0;
        self.open.clear();
        if self.open.capacity() > LEVELS_KEPT_MAX {
            self.open = Vec::new();
        }
    }
}

/// Returns the length of the reply with which `buf` begins, if it is a whole bulk of less than
/// 1,000 bytes. Most replies are. A [`Framer`] keeps no state for an incomplete bulk, so there is
/// nothing to discard.
#[inline(always)]
fn short_bulk(buf: &[u8]) -> Option<usize> {
    if buf.first() != Some(&b'$') {
        return None;
    }
    let (len, start) = short_number(buf, 1)?;
    let end = start + len as usize + 2;
    (buf.get(end - 2..end)? == b"\r\n").then_some(end)
}

enum End {
    /// The index after the last byte.
    At(usize),
    /// The smallest possible length of the buffer.
    Beyond(usize),
}

/// Returns the end of the element at `at`, which is inside `buf` and contains no other elements.
#[inline]
fn scalar_end(buf: &[u8], at: usize, scanned: &mut usize) -> Result<End, FramingFault> {
    match buf[at] {
        b'$' => match number_line(buf, at + 1) {
            Line::Number(-1, next) => Ok(End::At(next)),
            Line::Number(len, start) => bytes_end(buf, len, start),
            Line::Partial => Ok(End::Beyond(buf.len() + 1)),
            Line::Invalid => Err(FramingFault::Protocol),
        },
        b':' => match number_line(buf, at + 1) {
            Line::Number(_, end) => Ok(End::At(end)),
            Line::Partial => Ok(End::Beyond(buf.len() + 1)),
            Line::Invalid => Err(FramingFault::Protocol),
        },
        b'+' | b'-' => line_end(buf, at + 1, scanned),
        _ => resp3_scalar_end(buf, at, scanned),
    }
}

/// Returns the end of `len` bytes from `start` on, with their line end.
#[inline]
fn bytes_end(buf: &[u8], len: i64, start: usize) -> Result<End, FramingFault> {
    let len = u64::try_from(len).map_err(|_| FramingFault::Protocol)?;
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

/// Does the same as [`scalar_end`] for an element that only RESP3 has.
#[inline(never)]
fn resp3_scalar_end(buf: &[u8], at: usize, scanned: &mut usize) -> Result<End, FramingFault> {
    let kind = Kind::of_resp3(buf[at]).ok_or(FramingFault::Protocol)?;
    let is_whole = |text: &[u8]| match kind {
        Kind::Null => text.is_empty(),
        Kind::Boolean => matches!(text, b"t" | b"f"),
        Kind::BigNumber => {
            let digits = text.strip_prefix(b"-").unwrap_or(text);
            !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
        }
        _ => !text.is_empty(),
    };
    match kind {
        Kind::Null | Kind::Boolean | Kind::Double | Kind::BigNumber => {
            match line_end(buf, at + 1, scanned)? {
                End::At(end) if !is_whole(&buf[at + 1..end - 2]) => Err(FramingFault::Protocol),
                end => Ok(end),
            }
        }
        Kind::Verbatim | Kind::BlobError => match number_line(buf, at + 1) {
            Line::Number(len, _) if kind == Kind::Verbatim && len < FORMAT_LEN as i64 => {
                Err(FramingFault::Protocol)
            }
            Line::Number(len, start) => bytes_end(buf, len, start),
            Line::Partial => Ok(End::Beyond(buf.len() + 1)),
            Line::Invalid => Err(FramingFault::Protocol),
        },
        _ => Err(FramingFault::Protocol),
    }
}

fn line_end(buf: &[u8], at: usize, scanned: &mut usize) -> Result<End, FramingFault> {
    let from = at.max(*scanned);
    let Some(offset) = memchr::memchr2(b'\r', b'\n', &buf[from..]) else {
        *scanned = buf.len();
        return Ok(End::Beyond(buf.len() + 1));
    };
    let end = from + offset;
    match (buf[end], buf.get(end + 1)) {
        (b'\r', Some(b'\n')) => Ok(End::At(end + 2)),
        (b'\r', None) => {
            *scanned = end;
            Ok(End::Beyond(end + 2))
        }
        _ => Err(FramingFault::Protocol),
    }
}

/// Returns the number of elements of the aggregate that begins with `kind` and `count`. A map has
/// two for each pair. Attributes include the reply to which they belong. Returns `None` if there is
/// no such aggregate.
#[inline]
fn elements(kind: u8, count: i64) -> Option<u64> {
    match (kind, count) {
        (b'*', -1) => Some(0),
        (_, ..0) => None,
        (b'%', _) => Some(2 * count as u64),
        (b'|', _) => Some(2 * count as u64 + 1),
        (_, _) => Some(count as u64),
    }
}

impl Framer {
    /// Returns the end of the aggregate at the start of `buf`. It counts elements instead of
    /// recursing, with one counter for each level.
    fn aggregate_end(&mut self, buf: &[u8], depth_max: u32) -> Result<End, FramingFault> {
        let Framer { protocol, at, scanned, open } = self;
        let is_resp3 = *protocol == Protocol::Resp3;
        loop {
            let Some(&byte) = buf.get(*at) else {
                return Ok(End::Beyond(still_needed(*at, open)));
            };
            if byte == b'*' || is_resp3 && matches!(byte, b'%' | b'~' | b'>' | b'|') {
                match number_line(buf, *at + 1) {
                    Line::Number(count, next) => {
                        let count = elements(byte, count).ok_or(FramingFault::Protocol)?;
                        *at = next;
                        if count > 0 {
                            if open.len() >= depth_max as usize {
                                return Err(FramingFault::TooDeep);
                            }
                            open.push(count);
                            continue;
                        }
                    }
                    Line::Partial => return Ok(End::Beyond(still_needed(*at, open))),
                    Line::Invalid => return Err(FramingFault::Protocol),
                }
            } else if !is_resp3 && !matches!(byte, b'$' | b'+' | b':' | b'-') {
                return Err(FramingFault::Protocol);
            } else {
                match scalar_end(buf, *at, scanned)? {
                    End::At(next) => *at = next,
                    End::Beyond(at_least) => {
                        let rest = still_needed(at_least, open);
                        return Ok(End::Beyond(rest.saturating_sub(ELEMENT_LEN_MIN)));
                    }
                }
            }
            // The end of an element may also end the levels of which it was the last element.
            loop {
                let Some(left) = open.last_mut() else { return Ok(End::At(*at)) };
                *left -= 1;
                if *left > 0 {
                    break;
                }
                open.pop();
            }
        }
    }
}

/// Returns the index before which the reply cannot end: every missing element takes some bytes.
fn still_needed(pos: usize, open: &[u64]) -> usize {
    let mut elements: u64 = 0;
    for (level, left) in open.iter().enumerate() {
        // All levels except the innermost count the current element as one of theirs. Its own bytes
        // are counted at the inner level.
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

    fn resp3_vectors() -> Vec<(&'static [u8], Kind)> {
        vec![
            (b"_\r\n", Kind::Null),
            (b"#t\r\n", Kind::Boolean),
            (b",3.25\r\n", Kind::Double),
            (b",-inf\r\n", Kind::Double),
            (b"(-3492890328409238509324850943850943825024385\r\n", Kind::BigNumber),
            (b"=8\r\ntxt:a\r\nb\r\n", Kind::Verbatim),
            (b"!5\r\nERR x\r\n", Kind::BlobError),
            (b"%0\r\n", Kind::Map),
            (b"%2\r\n+a\r\n_\r\n+b\r\n~1\r\n:1\r\n", Kind::Map),
            (b"~2\r\n#f\r\n%1\r\n$1\r\na\r\n*-1\r\n", Kind::Set),
            (b">2\r\n+message\r\n,1\r\n", Kind::Push),
            (b"|0\r\n+OK\r\n", Kind::Attribute),
            (b"|1\r\n+ttl\r\n:9\r\n*2\r\n|1\r\n+x\r\n_\r\n:1\r\n:2\r\n", Kind::Attribute),
            (b"*3\r\n_\r\n%1\r\n+a\r\n*0\r\n=4\r\ntxt:\r\n", Kind::Array),
        ]
    }

    /// Returns each vector, with whether RESP2 has it too.
    fn all_vectors() -> impl Iterator<Item = (&'static [u8], Kind, Protocol)> {
        let versions = [Protocol::Resp2, Protocol::Resp3];
        let old = vectors()
            .into_iter()
            .flat_map(move |(bytes, kind)| versions.map(|protocol| (bytes, kind, protocol)));
        old.chain(resp3_vectors().into_iter().map(|(bytes, kind)| (bytes, kind, Protocol::Resp3)))
    }

    #[test]
    fn a_reply_ends_where_it_ends_whatever_follows() {
        for (bytes, kind, protocol) in all_vectors() {
            let frame = |buf: &[u8]| Framer::new(protocol).frame(buf, 1 << 30, 8);
            let expected = Ok(Framing::Ready { len: bytes.len(), kind });
            assert_eq!(frame(bytes), expected, "{bytes:?}");
            let followed = [bytes, b"$3\r\nabc\r\n"].concat();
            assert_eq!(frame(&followed), expected, "{bytes:?} followed");
        }
    }

    #[test]
    fn resp3_is_no_reply_where_it_was_not_asked_for() {
        for (bytes, _) in resp3_vectors() {
            let inside = [b"*1\r\n", bytes].concat();
            for buf in [bytes, &inside] {
                assert_eq!(frame(buf), Err(FramingFault::Protocol), "{buf:?}");
            }
        }
    }

    #[test]
    fn what_is_not_resp3_is_refused() {
        for bytes in [
            &b"_x\r\n"[..],
            b"#x\r\n",
            b"#\r\n",
            b",\r\n",
            b"(\r\n",
            b"(1.5\r\n",
            b"=3\r\ntxt\r\n",
            b"=-1\r\n",
            b"!-1\r\n",
            b"!2\r\nabc\r\n",
            b"%-1\r\n",
            b"~-1\r\n",
            b">-1\r\n",
            b"|-1\r\n",
            b"%1\r\nx",
            b"*?\r\n",
            b"$?\r\n",
            b"HTTP/1.1 200 OK\r\n",
        ] {
            let framed = Framer::new(Protocol::Resp3).frame(bytes, 1 << 30, 8);
            assert_eq!(framed, Err(FramingFault::Protocol), "{bytes:?}");
        }
    }

    #[test]
    fn maps_count_twice_against_the_bounds() {
        let frame = |buf: &[u8], len_max| Framer::new(Protocol::Resp3).frame(buf, len_max, 8);
        for huge in [&b"%9223372036854775807\r\n"[..], b"|9223372036854775807\r\n"] {
            assert_eq!(frame(huge, 1 << 30), Err(FramingFault::TooLong), "{huge:?}");
        }
        assert_eq!(frame(b"%200\r\n", 1000), Err(FramingFault::TooLong));
        assert!(matches!(frame(b"*200\r\n", 1000), Ok(Framing::NeedMore { .. })));
        assert_eq!(frame(&b"%1\r\n".repeat(9), 1 << 30), Err(FramingFault::TooDeep));
    }

    #[test]
    fn every_prefix_waits_and_never_for_more_than_the_reply() {
        for (bytes, _, protocol) in all_vectors() {
            for split in 0..bytes.len() {
                match Framer::new(protocol).frame(&bytes[..split], 1 << 30, 8) {
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
    fn a_reply_cut_anywhere_ends_where_it_would_whole() {
        for (bytes, kind, protocol) in all_vectors() {
            for first in 0..bytes.len() {
                for second in first..bytes.len() {
                    let mut framer = Framer::new(protocol);
                    for cut in [first, second] {
                        let waits = framer.frame(&bytes[..cut], 1 << 30, 8);
                        let whole = Framer::new(protocol).frame(&bytes[..cut], 1 << 30, 8);
                        assert_eq!(waits, whole, "{bytes:?} at {first}, {second}");
                    }
                    for _ in 0..2 {
                        let expected = Ok(Framing::Ready { len: bytes.len(), kind });
                        assert_eq!(framer.frame(bytes, 1 << 30, 8), expected, "{bytes:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_reply_nests_as_deep_and_a_line_is_as_long_as_its_bound() {
        let deep = [b"*1\r\n".repeat(9_999), b"*1\r\n:1\r\n".to_vec()].concat();
        let ready = |len| Ok(Framing::Ready { len, kind: Kind::Array });
        assert_eq!(frame_reply(&deep, 1 << 30, 10_000), ready(deep.len()));
        assert_eq!(frame_reply(&deep, 1 << 30, 9_999), Err(FramingFault::TooDeep));
        let line = [b"-ERR ".to_vec(), vec![b'x'; 3 << 20], b"\r\n".to_vec()].concat();
        let ready = Ok(Framing::Ready { len: line.len(), kind: Kind::Error });
        assert_eq!(frame(&line), ready);
        assert_eq!(frame_reply(&line, line.len() as u32 - 1, 8), Err(FramingFault::TooLong));
        assert_eq!(frame_reply(&line[..2000], 1000, 8), Err(FramingFault::TooLong));
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
    #[test]
    fn the_kind_of_a_reply_is_told_by_its_first_byte() {
        for (bytes, kind, _) in all_vectors() {
            assert_eq!(Kind::of(bytes), Some(kind), "{bytes:?}");
        }
        assert_eq!((Kind::of(b""), Kind::of(b"OK\r\n")), (None, None));
    }

    #[test]
    fn a_reply_is_as_long_as_its_bound_and_no_longer() {
        for (bytes, kind, protocol) in all_vectors() {
            let (len, mut framer) = (bytes.len(), Framer::new(protocol));
            let ready = Ok(Framing::Ready { len, kind });
            assert_eq!(framer.frame(bytes, len as u32, 8), ready, "{bytes:?}");
            let short = framer.frame(bytes, len as u32 - 1, 8);
            assert_eq!(short, Err(FramingFault::TooLong), "{bytes:?}");
        }
    }

    #[test]
    fn a_short_bulk_is_told_at_once_and_nothing_else_is() {
        assert_eq!(short_bulk(b"$3\r\nabc\r\n"), Some(9));
        assert_eq!(short_bulk(b"$12\r\nabcdefghijkl\r\n:1\r\n"), Some(19));
        for buf in [&b"$3\r\nabc\r"[..], b"$3\r\nabcd\r\n", b"+3\r\nabc\r\n", b"$-1\r\n+OK\r\n"] {
            assert_eq!(short_bulk(buf), None, "{buf:?}");
        }
    }

    /// A caller that waits for `at_least` bytes looks as rarely as possible: every missing element
    /// has at least three bytes.
    #[test]
    fn the_bytes_waited_for_are_all_that_the_open_elements_take_at_least() {
        for (buf, at_least) in [
            (&b"*1"[..], 3),
            (b"*3\r\n", 4 + 9),
            (b"*3\r\n+a\r\n", 8 + 6),
            (b"*2\r\n*2\r\n", 8 + 6 + 3),
            (b"*2\r\n*2\r\n*1\r\n", 12 + 3 + 3 + 3),
            (b"*2\r\n*1\r\n+a\r\n", 12 + 3),
            (b"*2\r\n*1", 4 + 6),
            (b"*2\r\n$3\r\nab", 13 + 3),
            (b"*2\r\n$1", 7 + 3),
            (b"*2\r\n:1", 7 + 3),
            (b"*2\r\n+a", 7 + 3),
            (b"*2\r\n+a\r", 8 + 3),
            (b"*2\r\n,1", 7 + 3),
            (b"*2\r\n=8", 7 + 3),
            (b"%2\r\n", 4 + 12),
            (b"|1\r\n", 4 + 9),
        ] {
            let framed = Framer::new(Protocol::Resp3).frame(buf, 1 << 30, 8);
            assert_eq!(framed, Ok(Framing::NeedMore { at_least }), "{buf:?}");
        }
    }

    #[test]
    fn room_for_levels_is_kept_up_to_a_bound() {
        let mut framer = Framer::default();
        for (depth, is_kept) in [(1, true), (LEVELS_KEPT_MAX, true), (LEVELS_KEPT_MAX + 1, false)] {
            let reply = [b"*1\r\n".repeat(depth), b"+a\r\n".to_vec()].concat();
            assert!(framer.frame(&reply, 1 << 30, 1_000).is_ok());
            assert_eq!(framer.open.capacity() >= depth, is_kept, "{depth}");
            assert_eq!(framer.open.capacity() == 0, !is_kept, "{depth}");
        }
    }
}
