//! Replies to commands in a row: how many have come, and the first error among them.

/// Longest line of a reply that is looked at. The rest of a longer one is skipped.
const LINE_LEN_MAX: usize = 512;

/// Counts replies without keeping them.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    /// Replies that are missing until the one that has begun is whole.
    left: u64,
    /// Bytes of a text that are skipped.
    skip: u64,
    /// The line that has begun.
    line: Vec<u8>,
    /// Replies that were whole.
    whole: u64,
    /// The first error, and the number of the reply in which it was.
    error: Option<(u64, Vec<u8>)>,
}

/// The bytes are no replies.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Strange;

impl Replies {
    /// Takes bytes. Returns how many replies are whole by them.
    ///
    /// # Errors
    /// [`Strange`].
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Result<u64, Strange> {
        let mut whole = 0;
        while !bytes.is_empty() {
            if self.skip > 0 {
                let len = self.skip.min(bytes.len() as u64);
                bytes = bytes.get(len as usize..).unwrap_or_default();
                self.skip -= len;
                if self.skip == 0 {
                    whole += self.ended();
                }
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
                self.keep(bytes);
                break;
            };
            let (line, rest) = bytes.split_at(end + 1);
            self.keep(line);
            bytes = rest;
            whole += self.on_line()?;
        }
        Ok(whole)
    }

    /// Returns the first error, without its sign, behind the number of replies before its own.
    pub(crate) fn error(&self) -> Option<(u64, &[u8])> {
        self.error.as_ref().map(|(nth, error)| (*nth, error.as_slice()))
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LINE_LEN_MAX.saturating_sub(self.line.len());
        self.line.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    fn on_line(&mut self) -> Result<u64, Strange> {
        let line = std::mem::take(&mut self.line);
        let told = self.on_text(&line);
        self.line = line;
        self.line.clear();
        told
    }

    fn on_text(&mut self, line: &[u8]) -> Result<u64, Strange> {
        let (sign, rest) = line.split_first().ok_or(Strange)?;
        let number = || std::str::from_utf8(rest.trim_ascii()).ok()?.parse::<i64>().ok();
        match sign {
            b'+' | b':' => Ok(self.ended()),
            b'-' => {
                self.error.get_or_insert_with(|| (self.whole, rest.trim_ascii().to_vec()));
                Ok(self.ended())
            }
            b'$' => match number().ok_or(Strange)? {
                -1 => Ok(self.ended()),
                len => {
                    self.skip = u64::try_from(len).map_err(|_| Strange)? + 2;
                    Ok(0)
                }
            },
            b'*' => match number().ok_or(Strange)? {
                -1 | 0 => Ok(self.ended()),
                count => {
                    let count = u64::try_from(count).map_err(|_| Strange)?;
                    // The array itself is one that was missing.
                    self.left = self.left.max(1) - 1 + count.min(u64::from(u32::MAX));
                    Ok(0)
                }
            },
            _ => Err(Strange),
        }
    }

    /// Notes that a reply without elements has ended. Returns the number of whole replies.
    fn ended(&mut self) -> u64 {
        self.left = self.left.saturating_sub(1);
        let is_whole = self.left == 0;
        self.whole += u64::from(is_whole);
        u64::from(is_whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIXED: &[u8] = b"+OK\r\n:1\r\n$3\r\na\nb\r\n$-1\r\n*0\r\n*2\r\n*1\r\n:1\r\n$0\r\n\r\n*1\r\n-ERR no\r\n+OK\r\n";

    #[test]
    fn replies_are_counted_wherever_they_are_cut() {
        for cut in 0..=MIXED.len() {
            let mut replies = Replies::default();
            let (first, second) = MIXED.split_at(cut);
            let count = replies.feed(first).unwrap() + replies.feed(second).unwrap();
            assert_eq!((count, replies.error()), (8, Some((6, &b"ERR no"[..]))), "{cut}");
        }
        assert_eq!(Replies::default().feed(b"HTTP/1.1 400\r\n"), Err(Strange));
        assert_eq!(Replies::default().feed(b"$-7\r\n"), Err(Strange));
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Replies::default().feed(&bytes);
        }
    }
}
