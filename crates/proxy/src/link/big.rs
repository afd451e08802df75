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
    /// Index of that element.
    pub index: u32,
    /// Number of elements. A reply that is no array has one.
    pub elements: u32,
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
        self.note_big_element(exchange, LargestElement::of(reply), reply.len());
    }

    /// Does the same for a reply that was not kept, of which the largest element and the length are
    /// known.
    #[cold]
    pub(super) fn note_big_element(
        &mut self,
        exchange: &Exchange,
        largest: LargestElement,
        whole: usize,
    ) {
        let Some(request) = self.trace.answered_request(exchange.len) else { return };
        let big = self.big.get_or_insert_default();
        let is_larger = !big.is_new || big.whole < whole as u64;
        if is_larger && !matches!(exchange.owner, Owner::Internal(_)) {
            big.request.clear();
            big.request.extend_from_slice(request);
            (big.whole, big.bytes) = (whole as u64, largest.len as u64);
            (big.index, big.elements) = (largest.index, largest.count);
            big.is_new = true;
        }
    }
}

/// The largest element of a reply. The elements are those of an array of strings, which are the
/// values of several keys. Anything else is one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LargestElement {
    /// Its index among the elements.
    pub(super) index: u32,
    /// Number of elements.
    pub(super) count: u32,
    /// Its length in bytes.
    pub(super) len: usize,
}

impl LargestElement {
    /// Returns the largest element of a reply.
    fn of(reply: &[u8]) -> LargestElement {
        largest_of_array(reply).unwrap_or(LargestElement::whole(reply.len()))
    }

    /// Returns the only element of a reply of `len` bytes.
    pub(super) fn whole(len: usize) -> LargestElement {
        LargestElement { index: 0, count: 1, len }
    }
}

/// Returns the largest element of an array of strings, or `None` for any other reply.
fn largest_of_array(reply: &[u8]) -> Option<LargestElement> {
    let (count, mut rest) = header(reply, b'*')?;
    let count = u32::try_from(count?).ok()?;
    let mut largest = LargestElement { index: 0, count, len: 0 };
    for index in 0..count {
        let (len, behind) = header(rest, b'$')?;
        let len = len.unwrap_or(0);
        if len > largest.len {
            (largest.index, largest.len) = (index, len);
        }
        rest = match behind.get(len + 2..) {
            _ if rest.starts_with(b"$-") => behind,
            Some(behind) => behind,
            None => return None,
        };
    }
    (count > 0).then_some(largest)
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
            let LargestElement { index, count, len } = LargestElement::of(reply);
            assert_eq!((index, count, len), found, "{}", String::from_utf8_lossy(reply));
        }
        let whole = b"*2\r\n$3\r\nabc\r\n$1\r\nd\r\n";
        (0..whole.len()).for_each(|len| _ = LargestElement::of(&whole[..len]));
    }
}
