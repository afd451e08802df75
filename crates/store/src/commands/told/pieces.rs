//! The pieces of the store's own reply, from which an effect is told.

use crate::algorithms::number::parse_integer;

/// A piece of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// So many pieces follow that belong together.
    Many(usize),
    Text(&'a [u8]),
    Number(i64),
    /// Null, or a line.
    Other,
}

/// The pieces of one reply that the store has just written, in their order.
pub(super) struct Pieces<'a>(pub(super) &'a [u8]);

impl<'a> Pieces<'a> {
    pub(super) fn next(&mut self) -> Option<Piece<'a>> {
        let end = self.0.iter().position(|byte| *byte == b'\r')?;
        let (line, rest) = (&self.0[..end], self.0.get(end + 2..)?);
        self.0 = rest;
        let (kind, text) = line.split_first()?;
        let number = parse_integer(text);
        Some(match (kind, number) {
            (b'*' | b'~' | b'>', Some(count @ 0..)) => Piece::Many(count as usize),
            (b'%', Some(count @ 0..)) => Piece::Many(2 * count as usize),
            (b'$', Some(len @ 0..)) => {
                let len = len as usize;
                let text = rest.get(..len)?;
                self.0 = rest.get(len + 2..)?;
                Piece::Text(text)
            }
            (b':', Some(number)) => Piece::Number(number),
            _ => Piece::Other,
        })
    }

    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        match self.next()? {
            Piece::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn many(&mut self) -> Option<usize> {
        match self.next()? {
            Piece::Many(count) => Some(count),
            _ => None,
        }
    }

    /// Passes over what follows, and says what it begins with.
    pub(super) fn skip(&mut self) -> Option<Piece<'a>> {
        let first = self.next()?;
        if let Piece::Many(count) = first {
            for _ in 0..count {
                self.skip()?;
            }
        }
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_in_their_order_whatever_they_are_part_of() {
        let mut pieces = Pieces(b"*3\r\n$1\r\na\r\n%1\r\n:7\r\n_\r\n~1\r\n$3\r\n\r\nb\r\n$-1\r\n");
        assert_eq!(pieces.many(), Some(3));
        assert_eq!(pieces.text(), Some(&b"a"[..]));
        assert_eq!(pieces.skip(), Some(Piece::Many(2)));
        assert_eq!((pieces.next(), pieces.text()), (Some(Piece::Many(1)), Some(&b"\r\nb"[..])));
        assert_eq!((pieces.next(), pieces.next()), (Some(Piece::Other), None));
    }
}
