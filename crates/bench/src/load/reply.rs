//! Counts RESP2 replies in a byte stream that may be split anywhere.

/// The longest error text kept for the report.
const ERROR_TEXT_MAX: usize = 160;

/// A byte that cannot start a reply, or a length that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing;

/// Where the stream is between two reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    /// The next byte is a type byte.
    #[default]
    Start,
    /// In a `+` or `:` line: everything to the end of the line is skipped.
    Line,
    /// In a `-` line: as `Line`, but the text is kept.
    Error,
    /// In the length of a `$` or `*`.
    Length { array: bool, negative: bool, value: u64 },
    /// This many bytes of a bulk and its line end are still to come.
    Bulk { left: u64 },
}

/// Counts whole replies, errors and missing values of one connection.
///
/// Arrays need no stack: what matters is only how many elements, at whatever
/// depth, are still to come before the reply is whole.
#[derive(Debug, Default)]
pub struct ReplyCounter {
    position: Position,
    elements_left: u64,
    replies: u64,
    errors: u64,
    missing: u64,
    error_text: Vec<u8>,
}

impl ReplyCounter {
    /// Whole replies so far.
    pub fn replies(&self) -> u64 {
        self.replies
    }

    /// Error replies so far, also those inside arrays.
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// Null bulks and null arrays so far: keys that were not found.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// The first error's text, cut short.
    pub fn first_error(&self) -> String {
        String::from_utf8_lossy(&self.error_text).into_owned()
    }

    /// Whether the stream is between two replies.
    pub fn is_between_replies(&self) -> bool {
        self.position == Position::Start && self.elements_left == 0
    }

    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// [`Framing`] when the bytes are not RESP2; the counter is of no further
    /// use then.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Framing> {
        while let Some(&first) = bytes.first() {
            bytes = match self.position {
                Position::Start => {
                    self.start(first)?;
                    &bytes[1..]
                }
                Position::Line => self.skip_line(bytes),
                Position::Error => self.keep_line(bytes),
                Position::Length { array, negative, value } => {
                    self.length(first, array, negative, value)?;
                    &bytes[1..]
                }
                Position::Bulk { left } => self.skip_bulk(bytes, left),
            };
        }
        Ok(())
    }

    fn start(&mut self, kind: u8) -> Result<(), Framing> {
        if self.elements_left == 0 {
            self.elements_left = 1;
        }
        self.position = match kind {
            b'+' | b':' => Position::Line,
            b'-' => {
                self.errors += 1;
                Position::Error
            }
            b'$' => Position::Length { array: false, negative: false, value: 0 },
            b'*' => Position::Length { array: true, negative: false, value: 0 },
            _ => return Err(Framing),
        };
        Ok(())
    }

    fn skip_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        match bytes.iter().position(|&byte| byte == b'\n') {
            Some(end) => {
                self.element_done();
                &bytes[end + 1..]
            }
            None => &[],
        }
    }

    fn keep_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.errors == 1 {
            let text = bytes.split(|&byte| byte == b'\r' || byte == b'\n').next().unwrap_or(bytes);
            let room = ERROR_TEXT_MAX.saturating_sub(self.error_text.len());
            self.error_text.extend_from_slice(&text[..text.len().min(room)]);
        }
        self.skip_line(bytes)
    }

    fn length(&mut self, byte: u8, array: bool, negative: bool, value: u64) -> Result<(), Framing> {
        self.position = match byte {
            b'0'..=b'9' => {
                let digit = u64::from(byte - b'0');
                let value = value.checked_mul(10).and_then(|v| v.checked_add(digit));
                Position::Length { array, negative, value: value.ok_or(Framing)? }
            }
            b'-' => Position::Length { array, negative: true, value },
            b'\r' => self.position,
            b'\n' => {
                self.length_done(array, negative, value);
                return Ok(());
            }
            _ => return Err(Framing),
        };
        Ok(())
    }

    fn length_done(&mut self, array: bool, negative: bool, value: u64) {
        if negative {
            self.missing += 1;
            self.element_done();
        } else if array {
            self.elements_left = self.elements_left.saturating_add(value);
            self.element_done();
        } else {
            self.position = Position::Bulk { left: value.saturating_add(2) };
        }
    }

    fn skip_bulk<'a>(&mut self, bytes: &'a [u8], left: u64) -> &'a [u8] {
        let here = bytes.len() as u64;
        if here < left {
            self.position = Position::Bulk { left: left - here };
            return &[];
        }
        self.element_done();
        // `left` fits a usize: it is at most the slice's length.
        &bytes[left as usize..]
    }

    fn element_done(&mut self) {
        self.position = Position::Start;
        self.elements_left -= 1;
        if self.elements_left == 0 {
            self.replies += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] =
        b"+OK\r\n$5\r\nhe\r\no\r\n:12\r\n$-1\r\n*3\r\n$1\r\na\r\n$-1\r\n*2\r\n+x\r\n-ERR in\r\n\
        *0\r\n-BUSY out\r\n*-1\r\n$0\r\n\r\n";

    fn counted(counter: &ReplyCounter) -> (u64, u64, u64) {
        (counter.replies(), counter.errors(), counter.missing())
    }

    #[test]
    fn every_kind_of_reply_counts_once() {
        let mut counter = ReplyCounter::default();
        counter.feed(STREAM).unwrap();
        assert_eq!(counted(&counter), (9, 2, 3));
        assert!(counter.is_between_replies());
        assert_eq!(counter.first_error(), "ERR in");
    }

    #[test]
    fn a_split_at_any_two_bytes_changes_nothing() {
        for first in 0..=STREAM.len() {
            for second in first..=STREAM.len() {
                let mut counter = ReplyCounter::default();
                counter.feed(&STREAM[..first]).unwrap();
                counter.feed(&STREAM[first..second]).unwrap();
                counter.feed(&STREAM[second..]).unwrap();
                assert_eq!(counted(&counter), (9, 2, 3), "split at {first} and {second}");
                assert_eq!(counter.first_error(), "ERR in");
            }
        }
    }

    #[test]
    fn byte_by_byte_is_the_same_stream() {
        let mut counter = ReplyCounter::default();
        for byte in STREAM {
            counter.feed(std::slice::from_ref(byte)).unwrap();
        }
        assert_eq!(counted(&counter), (9, 2, 3));
    }

    #[test]
    fn an_unfinished_reply_is_not_counted() {
        let mut counter = ReplyCounter::default();
        counter.feed(b"*2\r\n$1\r\na\r\n").unwrap();
        assert_eq!(counter.replies(), 0);
        assert!(!counter.is_between_replies());
    }

    #[test]
    fn bytes_that_are_no_reply_are_refused() {
        assert_eq!(ReplyCounter::default().feed(b"HTTP/1.1 400\r\n"), Err(Framing));
        assert_eq!(ReplyCounter::default().feed(b"$x\r\n"), Err(Framing));
        assert_eq!(ReplyCounter::default().feed(b"$99999999999999999999\r\n"), Err(Framing));
    }

    #[test]
    fn the_error_text_is_kept_whole_when_split() {
        let mut counter = ReplyCounter::default();
        counter.feed(b"-OOM com").unwrap();
        counter.feed(b"mand not allowed\r").unwrap();
        counter.feed(b"\n-second\r\n").unwrap();
        assert_eq!(counter.first_error(), "OOM command not allowed");
        assert_eq!(counter.errors(), 2);
    }
}
