//! Numbers and texts in the bodies of frames, little-endian.

/// Appends to a buffer.
pub(crate) struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    pub fn u8(&mut self, number: u8) {
        self.out.push(number);
    }

    pub fn u16(&mut self, number: u16) {
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    pub fn u32(&mut self, number: u32) {
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    pub fn u64(&mut self, number: u64) {
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Writes the length in a byte, then the text. A longer text is cut at a character.
    pub fn text(&mut self, text: &str) {
        let mut len = text.len().min(255);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        self.u8(len as u8);
        self.raw(&text.as_bytes()[..len]);
    }

    /// Writes the length in four bytes, then the bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.raw(bytes);
    }
}

/// Reads what a [`Writer`] has written; `None` if the bytes are something else.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.array()?))
    }

    pub fn text(&mut self) -> Option<&'a str> {
        let len = usize::from(self.u8()?);
        std::str::from_utf8(self.take(len)?).ok()
    }

    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    pub fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Returns `Some` if nothing is left.
    pub fn end(self) -> Option<()> {
        self.rest.is_empty().then_some(())
    }
}

/// Returns where the bytes of the last of several items begin, in `total` bytes that begin with
/// `front`. The format is their number, then each as [`Writer::bytes`] writes it. Returns `None` if
/// that is not in `front`, or they are invalid.
pub(crate) fn last_item_at(front: &[u8], total: usize) -> Option<usize> {
    let mut from = Reader::new(front);
    for left in (0..from.u32()?).rev() {
        let len = from.u32()? as usize;
        let at = front.len() - from.rest.len();
        if left == 0 {
            return (at + len == total).then_some(at);
        }
        from.take(len)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_item_is_found_wherever_it_begins() {
        let mut all = Vec::new();
        let mut out = Writer::new(&mut all);
        out.u32(3);
        for item in [&b"one"[..], b"", b"a long one"] {
            out.bytes(item);
        }
        let at = all.len() - 10;
        for len in 0..=all.len() {
            let expected = (len >= at).then_some(at);
            assert_eq!(last_item_at(&all[..len], all.len()), expected, "{len}");
        }
        assert_eq!(last_item_at(&all, all.len() + 1), None);
        assert_eq!(last_item_at(&[0; 4], 4), None);
        assert_eq!(last_item_at(&[0xff; 20], 64), None);
    }
}
