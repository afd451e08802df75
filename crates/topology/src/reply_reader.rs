//! Reads the elements of a reply whose end is already known.

use crate::{Endpoint, VIEW_LEN_MAX, ViewError};
use keyway_resp::{Framer, Framing, Protocol, parse_integer};

/// Deepest nesting: CLUSTER SLOTS needs four levels.
const DEPTH_MAX: u32 = 8;

/// Bytes before the text of a verbatim string: its format and a colon.
const FORMAT_LEN: usize = 4;

/// One element, of either version of RESP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// A simple, bulk or verbatim string.
    Text(&'a [u8]),
    Integer(i64),
    Null,
    /// An array or a set: the number of elements that follow.
    List(usize),
    /// A map: the number of pairs that follow.
    Map(usize),
    /// Any other type: a double, a big number, a boolean, or a nested error.
    Other,
}

/// Reads the elements of a reply, one after the other. Every count that it returns is of elements
/// that are there, so the work is bounded by the length of the reply.
#[derive(Debug)]
pub(crate) struct ReplyReader<'a> {
    rest: &'a [u8],
}

impl<'a> ReplyReader<'a> {
    /// Creates a reader of `reply`, which must be exactly one reply and not an error.
    pub fn new(reply: &'a [u8]) -> Result<ReplyReader<'a>, ViewError> {
        if reply.len() > VIEW_LEN_MAX {
            return Err(ViewError::TooLong);
        }
        match Framer::new(Protocol::Resp3).frame(reply, VIEW_LEN_MAX as u32, DEPTH_MAX) {
            Ok(Framing::Ready { len, .. }) if len == reply.len() => {}
            _ => return Err(ViewError::NotOneReply),
        }
        let mut reader = ReplyReader { rest: reply };
        match reply[0] {
            b'-' => Err(ViewError::refused(&reader.line()?[1..])),
            b'!' => Err(match reader.bulk(1)? {
                Item::Text(text) => ViewError::refused(text),
                _ => ViewError::NotOneReply,
            }),
            _ => Ok(reader),
        }
    }

    /// Reads the next element. Skips attributes.
    pub fn next(&mut self) -> Result<Item<'a>, ViewError> {
        loop {
            let kind = *self.rest.first().ok_or(ViewError::NotOneReply)?;
            return Ok(match kind {
                b'$' => self.bulk(0)?,
                b'=' => self.bulk(FORMAT_LEN)?,
                b'!' => {
                    self.bulk(0)?;
                    Item::Other
                }
                b'+' => Item::Text(&self.line()?[1..]),
                b':' => Item::Integer(number(self.line()?)?),
                b'*' | b'~' | b'>' => match number(self.line()?)? {
                    -1 => Item::Null,
                    count => Item::List(count_of(count)?),
                },
                b'%' => Item::Map(count_of(number(self.line()?)?)?),
                b'|' => {
                    let count = count_of(number(self.line()?)?)?;
                    self.skip_many(2 * count)?;
                    continue;
                }
                b'_' => {
                    self.line()?;
                    Item::Null
                }
                _ => {
                    self.line()?;
                    Item::Other
                }
            });
        }
    }

    /// Skips one element and all elements nested in it.
    pub fn skip(&mut self) -> Result<(), ViewError> {
        self.skip_many(1)
    }

    /// Reads the head of an array, and returns its length.
    pub fn list(&mut self, what: &'static str) -> Result<usize, ViewError> {
        match self.next()? {
            Item::List(count) => Ok(count),
            _ => Err(ViewError::Expected(what)),
        }
    }

    /// Reads the head of a map, and returns its number of pairs. RESP2 has an array of twice as
    /// many elements instead.
    pub fn pairs(&mut self, what: &'static str) -> Result<usize, ViewError> {
        match self.next()? {
            Item::Map(count) => Ok(count),
            Item::List(count) if count % 2 == 0 => Ok(count / 2),
            _ => Err(ViewError::Expected(what)),
        }
    }

    /// Reads a text.
    pub fn text(&mut self, what: &'static str) -> Result<&'a str, ViewError> {
        self.text_or_null(what)?.ok_or(ViewError::Expected(what))
    }

    /// Reads a text that may be null.
    pub fn text_or_null(&mut self, what: &'static str) -> Result<Option<&'a str>, ViewError> {
        match self.next()? {
            Item::Text(bytes) => match str::from_utf8(bytes) {
                Ok(text) => Ok(Some(text)),
                Err(_) => Err(ViewError::Expected(what)),
            },
            Item::Null => Ok(None),
            _ => Err(ViewError::Expected(what)),
        }
    }

    /// Reads a number, written as a number or as text.
    pub fn number(&mut self, what: &'static str) -> Result<i64, ViewError> {
        match self.next()? {
            Item::Integer(number) => Ok(number),
            Item::Text(text) => parse_integer(text).ok_or(ViewError::Number(what)),
            _ => Err(ViewError::Number(what)),
        }
    }

    /// Reads a port; zero means that there is none.
    pub fn port(&mut self, what: &'static str) -> Result<u16, ViewError> {
        u16::try_from(self.number(what)?).map_err(|_| ViewError::Number(what))
    }

    fn skip_many(&mut self, count: usize) -> Result<(), ViewError> {
        let mut left = count;
        while left > 0 {
            left -= 1;
            left += match self.next()? {
                Item::List(count) => count,
                Item::Map(count) => 2 * count,
                _ => 0,
            };
        }
        Ok(())
    }

    /// Reads the line at the start. Returns it without its end.
    fn line(&mut self) -> Result<&'a [u8], ViewError> {
        let len = self.rest.iter().position(|&byte| byte == b'\r').ok_or(ViewError::NotOneReply)?;
        let line = &self.rest[..len];
        self.rest = self.rest.get(len + 2..).ok_or(ViewError::NotOneReply)?;
        Ok(line)
    }

    /// Reads a string with its length, which begins at byte `from`.
    fn bulk(&mut self, from: usize) -> Result<Item<'a>, ViewError> {
        let len = number(self.line()?)?;
        if len == -1 {
            return Ok(Item::Null);
        }
        let len = count_of(len)?;
        let text = self.rest.get(from..len).ok_or(ViewError::NotOneReply)?;
        self.rest = self.rest.get(len + 2..).ok_or(ViewError::NotOneReply)?;
        Ok(Item::Text(text))
    }
}

/// Returns the number in a line, after its first byte.
fn number(line: &[u8]) -> Result<i64, ViewError> {
    parse_integer(&line[1..]).ok_or(ViewError::NotOneReply)
}

fn count_of(number: i64) -> Result<usize, ViewError> {
    usize::try_from(number).map_err(|_| ViewError::NotOneReply)
}

/// Returns whether `host` means that the server does not know the host.
pub(crate) fn is_unknown_host(host: &str) -> bool {
    host.is_empty() || host == "?"
}

/// Returns the endpoint of `host` and `port`; `None` if the server gives no host or no port. An
/// IPv6 address may be in brackets.
pub(crate) fn endpoint(host: &str, port: u16) -> Result<Option<Endpoint>, ViewError> {
    if port == 0 || is_unknown_host(host) {
        return Ok(None);
    }
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Endpoint::tcp(bare, port).map(Some).map_err(|_| ViewError::host(host))
}

/// Reads a number in decimal digits.
pub(crate) fn decimal<N: std::str::FromStr>(
    text: &str,
    what: &'static str,
) -> Result<N, ViewError> {
    if text.starts_with('+') {
        return Err(ViewError::Number(what));
    }
    text.parse().map_err(|_| ViewError::Number(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_both_versions_come_one_after_the_other() {
        let reply = b"*9\r\n$2\r\nab\r\n+c\r\n:-7\r\n$-1\r\n_\r\n=5\r\ntxt:d\r\n%1\r\n+k\r\n*0\r\n\
            |1\r\n+x\r\n*1\r\n:1\r\n:8\r\n#t\r\n";
        let mut reader = ReplyReader::new(reply).unwrap();
        for item in [
            Item::List(9),
            Item::Text(b"ab"),
            Item::Text(b"c"),
            Item::Integer(-7),
            Item::Null,
            Item::Null,
            Item::Text(b"d"),
            Item::Map(1),
            Item::Text(b"k"),
            Item::List(0),
            Item::Integer(8),
            Item::Other,
        ] {
            assert_eq!(reader.next(), Ok(item));
        }
        assert_eq!(reader.next(), Err(ViewError::NotOneReply));
    }

    #[test]
    fn what_is_skipped_is_skipped_whole() {
        let mut reader =
            ReplyReader::new(b"*2\r\n%1\r\n*2\r\n:1\r\n*1\r\n:2\r\n+v\r\n:3\r\n").unwrap();
        assert_eq!(reader.list("two"), Ok(2));
        reader.skip().unwrap();
        assert_eq!(reader.number("three"), Ok(3));
    }

    #[test]
    fn what_is_not_one_reply_is_refused() {
        for bytes in [&b""[..], b"*1\r\n", b":1\r\n:2\r\n", b"HTTP/1.1 200 OK\r\n"] {
            assert_eq!(ReplyReader::new(bytes).err(), Some(ViewError::NotOneReply), "{bytes:?}");
        }
        let refused = ReplyReader::new(b"-ERR no\x01\r\n").err();
        assert_eq!(refused, Some(ViewError::Refused("ERR no\\x01".into())));
        let long = [&b"$16777217\r\n"[..], &vec![b'x'; VIEW_LEN_MAX + 1], b"\r\n"].concat();
        assert_eq!(ReplyReader::new(&long).err(), Some(ViewError::TooLong));
    }
}
