//! The transfer of a snapshot, and where it ends.

use memchr::memmem;

/// Length of the mark after a snapshot whose length is not known in advance, in bytes.
pub const MARK_LEN: usize = 40;

/// How the end of a snapshot is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// It has this number of bytes.
    Length(u64),
    /// It is followed by these random bytes.
    Mark([u8; MARK_LEN]),
}

/// A snapshot that is being received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    body: Body,
    received: u64,
    is_over: bool,
}

/// The result of [`Transfer::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferStep {
    /// The first `len` bytes, at least one, belong to the snapshot and are consumed.
    Data {
        /// Number of bytes.
        len: usize,
    },
    /// More bytes are needed.
    More {
        /// Smallest number of bytes that is needed.
        at_least: usize,
    },
    /// The snapshot is over. Commands follow after `consumed` bytes.
    End {
        /// Number of consumed bytes: 0, or the length of the mark.
        consumed: usize,
    },
}

impl Transfer {
    /// Creates the transfer of a snapshot that ends like this.
    pub fn new(body: Body) -> Self {
        Self { body, received: 0, is_over: false }
    }

    /// Returns how its end is found.
    pub fn body(&self) -> Body {
        self.body
    }

    /// Returns the number of bytes of the snapshot so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns whether it has been received completely.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Reads `input`, which must contain all bytes that have arrived and were not consumed.
    pub fn read(&mut self, input: &[u8]) -> TransferStep {
        if self.is_over {
            return TransferStep::End { consumed: 0 };
        }
        let len = match &self.body {
            Body::Length(len) => {
                let left = len.saturating_sub(self.received);
                if left == 0 {
                    self.is_over = true;
                    return TransferStep::End { consumed: 0 };
                }
                if input.is_empty() {
                    return TransferStep::More { at_least: 1 };
                }
                input.len().min(usize::try_from(left).unwrap_or(usize::MAX))
            }
            Body::Mark(mark) => match memmem::find(input, mark) {
                Some(0) => {
                    self.is_over = true;
                    return TransferStep::End { consumed: MARK_LEN };
                }
                Some(at) => at,
                None => match input.len() - begun(input, mark) {
                    0 => return TransferStep::More { at_least: MARK_LEN.min(input.len() + 1) },
                    len => len,
                },
            },
        };
        self.received = self.received.saturating_add(len as u64);
        TransferStep::Data { len }
    }
}

/// Returns how many bytes at the end of `input` may be the beginning of the mark.
fn begun(input: &[u8], mark: &[u8; MARK_LEN]) -> usize {
    let longest = input.len().min(MARK_LEN - 1);
    (1..=longest).rev().find(|len| input.ends_with(&mark[..*len])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: [u8; MARK_LEN] = *b"abababababababababababababababababababac";

    /// Returns the snapshot that was found in bytes that arrive in pieces of `size`, and what
    /// followed it.
    fn received(body: Body, bytes: &[u8], size: usize) -> Option<(Vec<u8>, Vec<u8>)> {
        let (mut transfer, mut kept, mut data) = (Transfer::new(body), Vec::new(), Vec::new());
        let mut pieces = bytes.chunks(size);
        loop {
            match transfer.read(&kept) {
                TransferStep::Data { len } => data.extend(kept.drain(..len)),
                TransferStep::More { at_least } => {
                    assert!(at_least > kept.len());
                    assert!(kept.len() < MARK_LEN, "no more is kept than a mark");
                    kept.extend_from_slice(pieces.next()?);
                }
                TransferStep::End { consumed } => {
                    kept.drain(..consumed);
                    pieces.for_each(|piece| kept.extend_from_slice(piece));
                    assert_eq!(transfer.received(), data.len() as u64);
                    return Some((data, kept));
                }
            }
        }
    }

    #[test]
    fn the_end_is_found_in_pieces_of_any_size() {
        // These look like a mark, and are none.
        let snapshot = b"REDIS ababababababababac abab ".repeat(3);
        let marked = [&snapshot[..], &MARK, b"*1\r\n"].concat();
        let counted = [&snapshot[..], b"*1\r\n"].concat();
        for size in 1..marked.len() {
            let expected = Some((snapshot.clone(), b"*1\r\n".to_vec()));
            assert_eq!(received(Body::Mark(MARK), &marked, size), expected, "{size}");
            let length = Body::Length(snapshot.len() as u64);
            assert_eq!(received(length, &counted, size), expected, "{size}");
            let early = &marked[..snapshot.len() + MARK_LEN - 1];
            assert_eq!(received(Body::Mark(MARK), early, size), None);
        }
        assert_eq!(received(Body::Length(0), b"", 1), Some((Vec::new(), Vec::new())));
    }
}
