//! The two versions of the protocol, and composing what differs between them.
//! What is the same in both is a function of [`crate::reply`].

use crate::reply;

/// Which RESP a connection speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Protocol {
    /// RESP2, which every connection begins with.
    #[default]
    Resp2 = 2,
    /// RESP3, after `HELLO 3`.
    Resp3 = 3,
}

impl Protocol {
    /// The version that `HELLO` calls `number`; `None` when there is no such.
    pub fn from_number(number: i64) -> Option<Protocol> {
        match number {
            2 => Some(Protocol::Resp2),
            3 => Some(Protocol::Resp3),
            _ => None,
        }
    }

    /// What `HELLO` calls it.
    pub fn number(self) -> i64 {
        self as i64
    }

    /// The null: `$-1\r\n` or `_\r\n`.
    #[inline]
    pub fn null(self, out: &mut Vec<u8>) {
        match self {
            Protocol::Resp2 => out.extend_from_slice(b"$-1\r\n"),
            Protocol::Resp3 => out.extend_from_slice(b"_\r\n"),
        }
    }

    /// The null where an array is expected: `*-1\r\n` or `_\r\n`.
    pub fn null_array(self, out: &mut Vec<u8>) {
        match self {
            Protocol::Resp2 => reply::null_array(out),
            Protocol::Resp3 => self.null(out),
        }
    }

    /// The head of a map of `len` pairs, of which the caller appends keys and
    /// values in turn: an array of twice as many elements in RESP2.
    pub fn map(self, out: &mut Vec<u8>, len: usize) {
        match self {
            Protocol::Resp2 => reply::array(out, 2 * len),
            Protocol::Resp3 => reply::head(out, b'%', len),
        }
    }

    /// The head of a set of `len` elements, which the caller appends: an array
    /// in RESP2.
    pub fn set(self, out: &mut Vec<u8>, len: usize) {
        match self {
            Protocol::Resp2 => reply::array(out, len),
            Protocol::Resp3 => reply::head(out, b'~', len),
        }
    }

    /// Text meant to be shown as it is: a bulk in RESP2, a verbatim string of
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

    /// A number with a fraction, spelt out by the caller: a bulk in RESP2, a
    /// double in RESP3. `digits` must hold no line end.
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
