//! The two versions of the protocol, and functions that write what differs between them. Functions
//! for what is the same in both are in [`crate::reply`].

use crate::reply;

/// The version of RESP on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Protocol {
    /// RESP2. Every connection begins with it.
    #[default]
    Resp2 = 2,
    /// RESP3, after `HELLO 3`.
    Resp3 = 3,
}

impl Protocol {
    /// Returns the version with this number in `HELLO`, or `None` if there is no such version.
    pub fn from_number(number: i64) -> Option<Protocol> {
        match number {
            2 => Some(Protocol::Resp2),
            3 => Some(Protocol::Resp3),
            _ => None,
        }
    }

    /// Returns its number in `HELLO`.
    pub fn number(self) -> i64 {
        self as i64
    }

    /// Appends the null: `$-1\r\n` or `_\r\n`.
    #[inline]
    pub fn null(self, out: &mut Vec<u8>) {
        match self {
            Protocol::Resp2 => out.extend_from_slice(b"$-1\r\n"),
            Protocol::Resp3 => out.extend_from_slice(b"_\r\n"),
        }
    }

    /// Appends the null where an array is expected: `*-1\r\n` or `_\r\n`.
    pub fn null_array(self, out: &mut Vec<u8>) {
        match self {
            Protocol::Resp2 => reply::null_array(out),
            Protocol::Resp3 => self.null(out),
        }
    }

    /// Appends the head of a map of `len` pairs. The caller appends keys and values in turn. In
    /// RESP2 it is an array of twice as many elements.
    pub fn map(self, out: &mut Vec<u8>, len: usize) {
        match self {
            Protocol::Resp2 => reply::array(out, 2 * len),
            Protocol::Resp3 => reply::head(out, b'%', len),
        }
    }

    /// Appends the head of a set of `len` elements, which the caller appends. In RESP2 it is an
    /// array.
    pub fn set(self, out: &mut Vec<u8>, len: usize) {
        match self {
            Protocol::Resp2 => reply::array(out, len),
            Protocol::Resp3 => reply::head(out, b'~', len),
        }
    }

    /// Appends a text that is meant to be shown unchanged: a bulk in RESP2, a verbatim string of
    /// format `txt` in RESP3.
    pub fn text(self, out: &mut Vec<u8>, text: &[u8]) {
        match self {
            Protocol::Resp2 => reply::bulk(out, text),
            Protocol::Resp3 => {
                reply::head(out, b'=', text.len() + 4);
                out.extend_from_slice(b"txt:");
                out.extend_from_slice(text);
                out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Appends a number with a fraction, in the digits of the caller: a bulk in RESP2, a double in
    /// RESP3. `digits` must contain no line end.
    pub fn double(self, out: &mut Vec<u8>, digits: &[u8]) {
        match self {
            Protocol::Resp2 => reply::bulk(out, digits),
            Protocol::Resp3 => {
                out.push(b',');
                out.extend_from_slice(digits);
                out.extend_from_slice(b"\r\n");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn composed(protocol: Protocol) -> String {
        let mut out = Vec::new();
        protocol.null(&mut out);
        protocol.null_array(&mut out);
        protocol.map(&mut out, 12);
        protocol.set(&mut out, 3);
        protocol.text(&mut out, b"a\r\n");
        protocol.double(&mut out, b"1.5");
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_differs_is_spelt_as_each_version_spells_it() {
        let old = "$-1\r\n*-1\r\n*24\r\n*3\r\n$3\r\na\r\n\r\n$3\r\n1.5\r\n";
        assert_eq!(composed(Protocol::Resp2), old);
        assert_eq!(composed(Protocol::Resp3), "_\r\n_\r\n%12\r\n~3\r\n=7\r\ntxt:a\r\n\r\n,1.5\r\n");
    }

    #[test]
    fn versions_are_told_by_their_numbers() {
        for number in -1..6 {
            let protocol = Protocol::from_number(number);
            assert_eq!(protocol.map(Protocol::number), (2..=3).contains(&number).then_some(number));
        }
    }
}
