//! Counts the replies of memcached's classic text protocol.

use super::reply::Framing;

/// The longest line kept: `VALUE`, a key of 250 bytes and three numbers.
const LINE_MAX: usize = 512;

/// Counts whole replies, errors and missing values of one connection.
///
/// The loader's values have no line ends of their own, so a reply is known by
/// its lines: `get` ends with `END`, and is missing without a `VALUE` before
/// it; a value's own line says nothing.
#[derive(Debug, Default)]
pub struct TextCounter {
    line: Vec<u8>,
    /// Lines of a value still to come.
    value_lines: u32,
    has_value: bool,
    replies: u64,
    errors: u64,
    missing: u64,
    first_error: String,
}

impl TextCounter {
    /// Whole replies so far.
    pub fn replies(&self) -> u64 {
        self.replies
    }

    /// Error replies so far.
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// Keys that were not found so far.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// The first error's text.
    pub fn first_error(&self) -> String {
        self.first_error.clone()
    }

    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// [`Framing`] when a line is none of the protocol's; the counter is of no
    /// further use then.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), Framing> {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let room = LINE_MAX.saturating_sub(self.line.len());
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.line(line.trim_ascii_end())?;
                self.line = line;
                self.line.clear();
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Framing> {
        if self.value_lines > 0 {
            self.value_lines -= 1;
            return Ok(());
        }
        match line {
            b"END" => {
                self.missing += u64::from(!self.has_value);
                self.has_value = false;
                self.replies += 1;
            }
            b"STORED" => self.replies += 1,
            _ if line.starts_with(b"VALUE ") => {
                self.has_value = true;
                self.value_lines = 1;
            }
            _ if line.split(|&byte| byte == b' ').next().is_some_and(|w| w.ends_with(b"ERROR")) => {
                if self.errors == 0 {
                    self.first_error = String::from_utf8_lossy(line).into_owned();
                }
                self.errors += 1;
                self.replies += 1;
            }
            _ => return Err(Framing),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"STORED\r\nVALUE k 0 3\r\nabc\r\nEND\r\nEND\r\nSERVER_ERROR out\r\n";

    #[test]
    fn a_split_at_any_byte_counts_the_same() {
        for split in 0..=STREAM.len() {
            let mut counter = TextCounter::default();
            counter.feed(&STREAM[..split]).unwrap();
            counter.feed(&STREAM[split..]).unwrap();
            assert_eq!((counter.replies(), counter.errors(), counter.missing()), (4, 1, 1));
            assert_eq!(counter.first_error(), "SERVER_ERROR out");
        }
    }

    #[test]
    fn another_protocol_is_refused() {
        assert_eq!(TextCounter::default().feed(b"+OK\r\n"), Err(Framing));
    }
}
