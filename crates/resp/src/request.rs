//! Requests: an array of bulk strings, or an inline line.

use crate::digits::{Line, length_line};
use crate::inline;
use keyway_base::{ByteRange, Limits};

/// Limits of one request.
#[derive(Clone, Copy, Debug)]
pub struct ParseLimits {
    /// Largest number of arguments.
    pub args_max: u32,
    /// Length of the longest argument, in bytes.
    pub bulk_len_max: u32,
    /// Length of the longest whole request, in bytes.
    pub request_len_max: u32,
    /// Length of the longest inline line, in bytes.
    pub inline_len_max: u32,
}

impl ParseLimits {
    /// Returns the limits for a client that may send everything that `limits` allow.
    pub fn of(limits: &Limits) -> Self {
        Self {
            args_max: limits.request_args_max,
            bulk_len_max: limits.bulk_len_max,
            request_len_max: limits.request_len_max,
            inline_len_max: limits.inline_len_max,
        }
    }

    /// Returns the limits for a client that has not given its password yet. They are enough for
    /// AUTH and HELLO, and too small to make the proxy hold many bytes. The values are those of
    /// Redis.
    pub fn unauthenticated(self) -> Self {
        Self { args_max: 10, bulk_len_max: 16 << 10, ..self }
    }
}

/// Outcome of [`parse_request`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A whole request of `consumed` bytes. Its arguments are ranges into those bytes. A request
    /// without arguments (`*0`) must be skipped.
    Ready {
        /// Length of the request in bytes.
        consumed: usize,
    },
    /// A whole inline line of `consumed` bytes. Its array form was written to the `inline` buffer,
    /// and the arguments are ranges into that.
    Inline {
        /// Length of the line with its end, in bytes.
        consumed: usize,
    },
    /// The request is incomplete. It need not be parsed again before the buffer holds `at_least`
    /// bytes.
    NeedMore {
        /// Total buffer length from which parsing again can succeed, in bytes.
        at_least: usize,
    },
}

/// Why bytes are not a request. The connection cannot be synchronised again: it must be answered
/// and closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFault {
    /// The array's count is no number, or too large.
    MultibulkLength,
    /// An element does not start with `$`.
    ExpectedBulk {
        /// The byte found instead.
        got: u8,
    },
    /// A bulk's length is no number, negative or too large.
    BulkLength,
    /// A bulk is not followed by `\r\n`.
    BulkEnd,
    /// There are more arguments than a client without its password may send.
    UnauthenticatedMultibulk,
    /// An argument is longer than a client without its password may send.
    UnauthenticatedBulk,
    /// The whole request is longer than the limit.
    TooLong,
    /// An inline line is longer than the limit.
    InlineTooLong,
    /// An inline line has an unclosed quote.
    InlineQuotes,
}

impl RequestFault {
    /// Appends the error reply, with Redis's text if Redis has one.
    pub fn write_error(self, out: &mut Vec<u8>) {
        let text = match self {
            Self::MultibulkLength => "invalid multibulk length",
            Self::ExpectedBulk { got } => {
                out.extend_from_slice(b"-ERR Protocol error: expected '$', got '");
                out.push(if (b' '..0x7f).contains(&got) { got } else { b'?' });
                out.extend_from_slice(b"'\r\n");
                return;
            }
            Self::BulkLength => "invalid bulk length",
            Self::BulkEnd => "bulk string without its line end",
            Self::UnauthenticatedMultibulk => "unauthenticated multibulk length",
            Self::UnauthenticatedBulk => "unauthenticated bulk length",
            Self::TooLong => "request longer than request_len_max",
            Self::InlineTooLong => "too big inline request",
            Self::InlineQuotes => "unbalanced quotes in request",
        };
        out.extend_from_slice(b"-ERR Protocol error: ");
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

/// Smallest number of bytes of an argument on the wire: `$0\r\n\r\n`.
const ARG_LEN_MIN: usize = 6;

/// Reads one request from the start of `buf`. `args` is cleared and filled. `inline` is written
/// only for an inline line. `unauthenticated` selects the error for an exceeded limit.
#[inline]
pub fn parse_request(
    buf: &[u8],
    limits: &ParseLimits,
    args: &mut Vec<ByteRange>,
    inline: &mut Vec<u8>,
) -> Result<Parsed, RequestFault> {
    args.clear();
    match buf.first() {
        Some(b'*') => parse_array(buf, limits, args),
        Some(_) => inline::parse(buf, limits, args, inline),
        None => Ok(Parsed::NeedMore { at_least: 1 }),
    }
}

#[inline]
fn parse_array(
    buf: &[u8],
    limits: &ParseLimits,
    args: &mut Vec<ByteRange>,
) -> Result<Parsed, RequestFault> {
    let (count, mut pos) = match length_line(buf, 1) {
        Line::Number(count, next) => (count, next),
        Line::Partial => return Ok(Parsed::NeedMore { at_least: buf.len() + 1 }),
        Line::Invalid => return Err(RequestFault::MultibulkLength),
    };
    if count <= 0 {
        return Ok(Parsed::Ready { consumed: pos });
    }
    if count > i64::from(limits.args_max) {
        return Err(too_many(limits));
    }
    for left in (1..=count as usize).rev() {
        match buf.get(pos) {
            Some(b'$') => {}
            Some(&got) => return Err(RequestFault::ExpectedBulk { got }),
            None => return need(buf, hint(args, pos, left), limits),
        }
        let (len, start) = match length_line(buf, pos + 1) {
            Line::Number(len, start) => (len, start),
            Line::Partial => return need(buf, hint(args, pos, left), limits),
            Line::Invalid => return Err(RequestFault::BulkLength),
        };
        if len < 0 || len > i64::from(limits.bulk_len_max) {
            return Err(too_long(len, limits));
        }
        let end = start + len as usize;
        let Some(line_end) = buf.get(end..end + 2) else {
            return need(buf, hint(args, end + 2, left - 1), limits);
        };
        if line_end != b"\r\n" {
            return Err(RequestFault::BulkEnd);
        }
        args.push(ByteRange::new(start, end));
        pos = end + 2;
    }
    if pos > limits.request_len_max as usize {
        return Err(RequestFault::TooLong);
    }
    Ok(Parsed::Ready { consumed: pos })
}

/// Number of arguments up to which a request is parsed again for every byte that arrives: what
/// follows may be an error, which is reported at once.
const EAGER_ARGS_MAX: usize = 1024;

/// Returns the length below which the buffer need not be parsed again, when `left` arguments are
/// missing from `pos` on. A long request waits for the smallest length of its missing arguments, so
/// that it is scanned a few times and not at every read.
fn hint(args: &[ByteRange], pos: usize, left: usize) -> usize {
    if args.len() < EAGER_ARGS_MAX { pos } else { pos + left * ARG_LEN_MIN }
}

/// Returns that more bytes are needed, or an error if the request is already known to be too long.
#[cold]
fn need(buf: &[u8], at_least: usize, limits: &ParseLimits) -> Result<Parsed, RequestFault> {
    if at_least > limits.request_len_max as usize {
        return Err(RequestFault::TooLong);
    }
    Ok(Parsed::NeedMore { at_least: at_least.max(buf.len() + 1) })
}

#[cold]
fn too_many(limits: &ParseLimits) -> RequestFault {
    if limits.args_max <= 10 {
        RequestFault::UnauthenticatedMultibulk
    } else {
        RequestFault::MultibulkLength
    }
}

#[cold]
fn too_long(len: i64, limits: &ParseLimits) -> RequestFault {
    if len >= 0 && limits.args_max <= 10 {
        RequestFault::UnauthenticatedBulk
    } else {
        RequestFault::BulkLength
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_base::Limits;

    type Outcome = Result<(Vec<Vec<u8>>, usize), RequestFault>;

    fn limits() -> ParseLimits {
        ParseLimits::of(&Limits::default())
    }

    /// Parses a request. Returns `None` while it is incomplete.
    fn parse(buf: &[u8], limits: &ParseLimits) -> Option<Outcome> {
        let (mut args, mut inline) = (Vec::new(), Vec::new());
        match parse_request(buf, limits, &mut args, &mut inline) {
            Err(fault) => Some(Err(fault)),
            Ok(Parsed::NeedMore { at_least }) => {
                assert!(at_least > buf.len(), "a parser that waits must wait for more");
                None
            }
            Ok(Parsed::Ready { consumed }) => {
                Some(Ok((args.iter().map(|a| a.of(buf).to_vec()).collect(), consumed)))
            }
            Ok(Parsed::Inline { consumed }) => {
                Some(Ok((args.iter().map(|a| a.of(&inline).to_vec()).collect(), consumed)))
            }
        }
    }

    fn vectors() -> Vec<(Vec<u8>, Outcome)> {
        let ok = |args: &[&[u8]], len: usize| Ok((args.iter().map(|a| a.to_vec()).collect(), len));
        let v = |bytes: &[u8], outcome: Outcome| (bytes.to_vec(), outcome);
        vec![
            v(b"*1\r\n$4\r\nPING\r\n", ok(&[b"PING"], 14)),
            v(b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n", ok(&[b"GET", b"a\r\n"], 22)),
            v(b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n", ok(&[b"GET", b""], 19)),
            v(b"*0\r\n", ok(&[], 4)),
            v(b"*-1\r\n", ok(&[], 5)),
            v(b"*abc\r\n", Err(RequestFault::MultibulkLength)),
            v(b"*01\r\n", Err(RequestFault::MultibulkLength)),
            v(b"*02\r\n", Err(RequestFault::MultibulkLength)),
            v(b"*00\r\n", Err(RequestFault::MultibulkLength)),
            v(b"*-0\r\n", Err(RequestFault::MultibulkLength)),
            v(b"*-01\r\n", Err(RequestFault::MultibulkLength)),
            v(b"*+1\r\n", Err(RequestFault::MultibulkLength)),
            v(b"*1048577\r\n", Err(RequestFault::MultibulkLength)),
            v(b"*99999999999999999999\r\n", Err(RequestFault::MultibulkLength)),
            v(b"*1\r\n:1\r\n", Err(RequestFault::ExpectedBulk { got: b':' })),
            v(b"*1\r\n*1\r\n$1\r\na\r\n", Err(RequestFault::ExpectedBulk { got: b'*' })),
            v(b"*1\r\n$-1\r\n", Err(RequestFault::BulkLength)),
            v(b"*1\r\n$x\r\n", Err(RequestFault::BulkLength)),
            v(b"*1\r\n$04\r\nPING\r\n", Err(RequestFault::BulkLength)),
            v(b"*1\r\n$00\r\n\r\n", Err(RequestFault::BulkLength)),
            v(b"*1\r\n$-0\r\n\r\n", Err(RequestFault::BulkLength)),
            v(b"*1\r\n$+4\r\nPING\r\n", Err(RequestFault::BulkLength)),
            v(b"*1\r\n$68719476736\r\n", Err(RequestFault::BulkLength)),
            v(b"*1\r\n$1\r\nabc", Err(RequestFault::BulkEnd)),
            v(b"PING\r\n", ok(&[b"PING"], 6)),
            v(b"  SET a  b \n", ok(&[b"SET", b"a", b"b"], 12)),
            v(b"\r\n", ok(&[], 2)),
            v(
                b"SET k \"a b\\x41\\n\\\"\" 'c\\'d'\r\n",
                ok(&[b"SET", b"k", b"a bA\n\"", b"c'd"], 28),
            ),
            v(b"SET k \"a\r\n", Err(RequestFault::InlineQuotes)),
            v(b"SET k \"a\"b\r\n", Err(RequestFault::InlineQuotes)),
        ]
    }

    #[test]
    fn vectors_hold_whole_and_followed_by_another_request() {
        for (bytes, expected) in vectors() {
            assert_eq!(parse(&bytes, &limits()), Some(expected.clone()), "{:?}", bytes);
            let mut followed = bytes.clone();
            followed.extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
            assert_eq!(parse(&followed, &limits()), Some(expected), "{:?} followed", bytes);
        }
    }

    #[test]
    fn every_prefix_of_a_valid_request_waits_and_no_prefix_changes_the_verdict() {
        for (bytes, expected) in vectors() {
            for split in 0..bytes.len() {
                match (parse(&bytes[..split], &limits()), &expected) {
                    (None, _) => {}
                    (Some(early), expected) => {
                        assert!(expected.is_err(), "{:?} cut at {split} was taken whole", bytes);
                        assert_eq!(&early, expected, "{:?} cut at {split}", bytes);
                    }
                }
            }
        }
    }

    #[test]
    fn waiting_hint_never_exceeds_the_request() {
        let mut bytes = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n".to_vec();
        bytes.resize(bytes.len() + 100_000, b'x');
        bytes.extend_from_slice(b"\r\n");
        let (mut args, mut inline) = (Vec::new(), Vec::new());
        for split in 0..40 {
            match parse_request(&bytes[..split], &limits(), &mut args, &mut inline) {
                Ok(Parsed::NeedMore { at_least }) => assert!(at_least <= bytes.len()),
                other => panic!("cut at {split}: {other:?}"),
            }
        }
        let hint = parse_request(&bytes[..40], &limits(), &mut args, &mut inline);
        assert_eq!(hint, Ok(Parsed::NeedMore { at_least: bytes.len() }));
    }

    #[test]
    fn a_client_without_its_password_is_held_to_less() {
        let limits = limits().unauthenticated();
        let fault = |bytes: &[u8]| parse(bytes, &limits).unwrap().unwrap_err();
        assert_eq!(fault(b"*11\r\n"), RequestFault::UnauthenticatedMultibulk);
        assert_eq!(fault(b"*1\r\n$16385\r\n"), RequestFault::UnauthenticatedBulk);
        assert_eq!(fault(b"*1\r\n$-5\r\n"), RequestFault::BulkLength);
    }

    #[test]
    fn a_request_beyond_the_bound_is_refused_before_it_arrives() {
        let limits = ParseLimits { request_len_max: 1000, ..limits() };
        assert_eq!(parse(b"*1\r\n$1001\r\n", &limits), Some(Err(RequestFault::TooLong)));
        let line = vec![b'a'; limits.inline_len_max as usize + 1];
        assert_eq!(parse(&line, &limits), Some(Err(RequestFault::InlineTooLong)));
    }
    #[test]
    fn each_bound_is_met_exactly() {
        for (bytes, outcome) in vectors() {
            if bytes[0] != b'*' || !outcome.as_ref().is_ok_and(|(args, _)| !args.is_empty()) {
                continue;
            }
            let len = bytes.len() as u32;
            let exact = ParseLimits { request_len_max: len, ..limits() };
            for split in 0..bytes.len() {
                assert_eq!(parse(&bytes[..split], &exact), None, "{bytes:?} cut at {split}");
            }
            assert_eq!(parse(&bytes, &exact), Some(outcome), "{bytes:?}");
            let less = ParseLimits { request_len_max: len - 1, ..limits() };
            assert_eq!(parse(&bytes, &less), Some(Err(RequestFault::TooLong)), "{bytes:?}");
        }
        let unauthenticated = limits().unauthenticated();
        let ten = [b"*10\r\n".to_vec(), b"$1\r\na\r\n".repeat(10)].concat();
        assert!(matches!(parse(&ten, &unauthenticated), Some(Ok((args, _))) if args.len() == 10));
        assert_eq!(parse(b"*1\r\n$16384\r\n", &unauthenticated), None);
        assert_eq!(unauthenticated.request_len_max, limits().request_len_max);
    }

    #[test]
    fn a_request_of_many_arguments_is_looked_at_again_when_the_rest_can_be_there() {
        let hint = |bytes: &[u8]| {
            let (mut args, mut inline) = (Vec::new(), Vec::new());
            match parse_request(bytes, &limits(), &mut args, &mut inline) {
                Ok(Parsed::NeedMore { at_least }) => at_least - bytes.len(),
                other => panic!("{other:?}"),
            }
        };
        let begin = |count: usize| [b"*2000\r\n".to_vec(), b"$1\r\na\r\n".repeat(count)].concat();
        assert_eq!(hint(&begin(EAGER_ARGS_MAX - 1)), 1);
        let begin = begin(EAGER_ARGS_MAX);
        let left = 2000 - EAGER_ARGS_MAX;
        assert_eq!(hint(&begin), left * ARG_LEN_MIN);
        assert_eq!(hint(&[&begin[..], b"$"].concat()), left * ARG_LEN_MIN - 1);
        let last = [&begin[..], b"$5\r\nabc"].concat();
        assert_eq!(hint(&last), 4 + (left - 1) * ARG_LEN_MIN);
    }

    #[test]
    fn faults_are_told_in_the_words_of_redis() {
        for (fault, text) in [
            (RequestFault::MultibulkLength, "invalid multibulk length"),
            (RequestFault::ExpectedBulk { got: b'a' }, "expected '$', got 'a'"),
            (RequestFault::ExpectedBulk { got: b'\r' }, "expected '$', got '?'"),
            (RequestFault::ExpectedBulk { got: 0x7f }, "expected '$', got '?'"),
            (RequestFault::BulkLength, "invalid bulk length"),
            (RequestFault::UnauthenticatedMultibulk, "unauthenticated multibulk length"),
            (RequestFault::UnauthenticatedBulk, "unauthenticated bulk length"),
            (RequestFault::InlineTooLong, "too big inline request"),
            (RequestFault::InlineQuotes, "unbalanced quotes in request"),
        ] {
            let mut out = Vec::new();
            fault.write_error(&mut out);
            let expected = format!("-ERR Protocol error: {text}\r\n");
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }
}
