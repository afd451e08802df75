//! Large replies, to find the keys with large values.

use super::{Exchange, Link, Owner};

/// A large reply with its request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BigReply {
    /// The complete request.
    pub request: Vec<u8>,
    /// Length of the reply in bytes.
    pub whole: u64,
    /// Length of its largest element, or of the reply, in bytes.
    pub bytes: u64,
    /// Index of that element, and the number of elements. A reply that is no array has one.
    pub element: (u32, u32),
    /// True if it has not been taken yet.
    is_new: bool,
}

impl Link {
    /// Returns the largest large reply since the last call.
    #[inline]
    pub fn take_big(&mut self) -> Option<&BigReply> {
        // It is kept, so that the next one needs no allocation.
        let big = self.big.as_deref_mut().filter(|big| big.is_new)?;
        big.is_new = false;
        Some(big)
    }

    /// Notes a large reply.
    #[cold]
    pub(super) fn note_big(&mut self, exchange: &Exchange, reply: &[u8]) {
        self.note_big_element(exchange, largest_element(reply), reply.len());
    }

    /// Does the same for a reply that was not kept: `element` contains the index of its largest
    /// element and the number of elements. The lengths are those of that element and of the whole.
    #[cold]
    pub(super) fn note_big_element(
        &mut self,
        exchange: &Exchange,
        (index, count, bytes): (u32, u32, usize),
        whole: usize,
    ) {
        let Some(request) = self.trace.answered_request(exchange.len) else { return };
        let big = self.big.get_or_insert_default();
        let is_larger = !big.is_new || big.whole < whole as u64;
        if is_larger && !matches!(exchange.owner, Owner::Internal(_)) {
            big.request.clear();
            big.request.extend_from_slice(request);
            (big.whole, big.bytes) = (whole as u64, bytes as u64);
            (big.element, big.is_new) = ((index, count), true);
        }
    }
}

/// Returns the index of the largest element, the number of elements, and the largest element's
/// length. These are the elements of an array of strings, which are the values of several keys.
/// Anything else is one element.
fn largest_element(reply: &[u8]) -> (u32, u32, usize) {
    elements_of(reply).unwrap_or((0, 1, reply.len()))
}

fn elements_of(reply: &[u8]) -> Option<(u32, u32, usize)> {
    let (count, mut rest) = header(reply, b'*')?;
    let (count, mut largest) = (u32::try_from(count?).ok()?, (0, 0));
    for index in 0..count {
        let (len, behind) = header(rest, b'$')?;
        let len = len.unwrap_or(0);
        if len > largest.1 {
            largest = (index, len);
        }
        rest = match behind.get(len + 2..) {
            _ if rest.starts_with(b"$-") => behind,
            Some(behind) => behind,
            None => return None,
        };
    }
    (count > 0).then_some((largest.0, count, largest.1))
}

/// Returns the number in a line that begins with `kind`, as `None` if it is negative, and what
/// follows.
fn header(bytes: &[u8], kind: u8) -> Option<(Option<usize>, &[u8])> {
    let line = bytes.strip_prefix(&[kind])?;
    let end = line.iter().take(24).position(|&byte| byte == b'\r')?;
    let number = keyway_resp::parse_integer(&line[..end])?;
    Some((usize::try_from(number).ok(), line.get(end + 2..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_several_values_is_found() {
        for (reply, found) in [
            (&b"$5\r\nhello\r\n"[..], (0, 1, 11)),
            (b"*3\r\n$1\r\na\r\n$4\r\nlong\r\n$2\r\nbb\r\n", (1, 3, 4)),
            (b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", (0, 2, 1)),
            (b"*3\r\n$-1\r\n$4\r\nlong\r\n$-1\r\n", (1, 3, 4)),
            (b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n", (0, 1, 19)),
            (b"*0\r\n", (0, 1, 4)),
            (b"VALUE k 0 3\r\nabc\r\nEND\r\n", (0, 1, 23)),
        ] {
            assert_eq!(largest_element(reply), found, "{}", String::from_utf8_lossy(reply));
        }
        let whole = b"*2\r\n$3\r\nabc\r\n$1\r\nd\r\n";
        (0..whole.len()).for_each(|len| _ = largest_element(&whole[..len]));
    }
}
