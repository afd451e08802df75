//! Writes requests to servers, in the protocol of the server.
//!
//! A request is always sent so that the server answers it, quiet or not: a proxy has to know which
//! reply belongs to which request. [`crate::write_reply`] keeps silent towards a client that asked
//! for silence.

mod binary;
mod meta;
#[cfg(test)]
mod tests;
mod text;

use crate::usual::printed_len;
use crate::{Dialect, Expect, Head, Verb};

/// Why a request cannot be sent to a server with another protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untranslatable {
    /// The protocol cannot express it.
    Request,
    /// A key contains bytes that the protocol cannot carry, or too many.
    Key,
    /// The line would be longer than a server accepts. Fewer keys must be asked at once.
    Line,
}

/// Appends a request to a server that uses the protocol `to`, and returns how its reply ends.
/// `keys` are those of [`crate::Request::keys`] or some of them, as the server knows them. `value`
/// is the value. On an error, `out` is unchanged.
///
/// Administrative commands are sent to meta servers as to classic ones, with the words of the
/// client.
#[inline]
pub fn compose_request<'a>(
    out: &mut Vec<u8>,
    to: Dialect,
    head: &Head,
    keys: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    value: &[u8],
) -> Result<Expect, Untranslatable> {
    let before = out.len();
    let item = head.verb.reads()
        || head.verb.stores()
        || matches!(head.verb, Verb::Delete | Verb::Incr | Verb::Decr | Verb::Touch | Verb::Debug);
    let outcome = match to {
        Dialect::Binary => binary::compose(out, head, keys, value),
        Dialect::Meta if item => meta::compose(out, head, keys, value),
        Dialect::Text | Dialect::Meta => text::compose(out, head, keys, value),
    };
    if outcome.is_err() {
        out.truncate(before);
    }
    outcome
}

/// Appends a classic get of some keys of a canonical request ([`crate::Request::is_canonical`]).
/// Returns how its reply ends.
#[inline]
pub fn compose_share<'a>(out: &mut Vec<u8>, keys: impl Iterator<Item = &'a [u8]>) -> Expect {
    out.extend_from_slice(b"get");
    for key in keys {
        out.push(b' ');
        out.extend_from_slice(key);
    }
    out.extend_from_slice(b"\r\n");
    Expect::List
}

fn number(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.push(b' ');
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Returns whether a line can carry `key` unchanged.
fn fits_line(key: &[u8]) -> bool {
    let breaks = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\r' | 0);
    !key.is_empty() && !key[printed_len(key)..].iter().any(breaks)
}

/// Returns an expiry for the text protocols, which read 32 bits. A larger expiry becomes one in the
/// year 2038.
fn expiry_32(expiry: i64) -> i32 {
    expiry.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
}
