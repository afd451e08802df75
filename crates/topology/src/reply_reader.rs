//! Walking through a reply whose end is already known.

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
    /// An array or a set: this many elements follow.
    List(usize),
    /// This many pairs follow.
    Map(usize),
    /// A number with a fraction, a boolean, an error within.
    Other,
}

/// The elements of a reply, one after the other. Every count it gives is of
/// elements that are there, so work is bounded by the length of the reply.
#[derive(Debug)]
pub(crate) struct ReplyReader<'a> {
    rest: &'a [u8],
}

impl<'a> ReplyReader<'a> {
    /// A reader of `reply`, which is exactly one, and no error.
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

    /// The next element, past attributes.
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

    /// StreamedReply over one element and all within it.
    pub fn skip(&mut self) -> Result<(), ViewError> {
        self.skip_many(1)
    }

    /// The length of the array that is next.
    pub fn list(&mut self, what: &'static str) -> Result<usize, ViewError> {
        match self.next()? {
            Item::List(count) => Ok(count),
            _ => Err(ViewError::Expected(what)),
        }
    }

    /// How many keys with a value each are next: a map, or the array of twice
    /// as many that RESP2 has for it.
    pub fn pairs(&mut self, what: &'static str) -> Result<usize, ViewError> {
        match self.next()? {
            Item::Map(count) => Ok(count),
            Item::List(count) if count % 2 == 0 => Ok(count / 2),
            _ => Err(ViewError::Expected(what)),
        }
    }

    /// The text that is next.
    pub fn text(&mut self, what: &'static str) -> Result<&'a str, ViewError> {
        self.text_or_null(what)?.ok_or(ViewError::Expected(what))
    }

    /// The text that is next, where it may be null.
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

    /// The number that is next, spelt as a number or as text.
    pub fn number(&mut self, what: &'static str) -> Result<i64, ViewError> {
        match self.next()? {
            Item::Integer(number) => Ok(number),
            Item::Text(text) => parse_integer(text).ok_or(ViewError::Number(what)),
            _ => Err(ViewError::Number(what)),
        }
    }

    /// The same for a port; zero says that there is none.
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

    /// The line at the start, without its end.
    fn line(&mut self) -> Result<&'a [u8], ViewError> {
        let len = self.rest.iter().position(|&byte| byte == b'\r').ok_or(ViewError::NotOneReply)?;
        let line = &self.rest[..len];
        self.rest = self.rest.get(len + 2..).ok_or(ViewError::NotOneReply)?;
        Ok(line)
    }

    /// A string with its length, from its byte `from` on.
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

/// The number in a line, after its first byte.
fn number(line: &[u8]) -> Result<i64, ViewError> {
    parse_integer(&line[1..]).ok_or(ViewError::NotOneReply)
}

fn count_of(number: i64) -> Result<usize, ViewError> {
    usize::try_from(number).map_err(|_| ViewError::NotOneReply)
}

/// Whether a server gives `host` to say that it knows none.
pub(crate) fn is_unknown_host(host: &str) -> bool {
    host.is_empty() || host == "?"
}

/// The endpoint of `host`, an IPv6 address with or without brackets, and
/// `port`; none where the server gives no host or no port.
pub(crate) fn endpoint(host: &str, port: u16) -> Result<Option<Endpoint>, ViewError> {
    if port == 0 || is_unknown_host(host) {
        return Ok(None);
    }
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Endpoint::tcp(bare, port).map(Some).map_err(|_| ViewError::host(host))
}

/// A number of a text that is written in decimal digits.
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
