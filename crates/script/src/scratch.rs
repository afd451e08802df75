//! Buffers for the words of a command and its reply.

use keyway_base::ByteRange;

/// Number of bytes of a buffer that are kept.
const KEPT_MAX: usize = 64 << 10;

/// Largest number of bytes of one command, as of the longest string. Its arguments may contain one
/// string many times.
const REQUEST_LEN_MAX: usize = 512 << 20;

/// The error of a script for a longer command.
pub(crate) const TOO_LONG: &str = "the command is longer than 512 MiB";

/// Appends a word of a command, unless the command would be too long. Returns whether it fits.
#[must_use]
pub(crate) fn add_word(buf: &mut Vec<u8>, ranges: &mut Vec<ByteRange>, word: &[u8]) -> bool {
    let start = buf.len();
    let fits = start + word.len() <= REQUEST_LEN_MAX;
    if fits {
        buf.extend_from_slice(word);
        ranges.push(ByteRange::new(start, buf.len()));
    }
    fits
}

/// Buffers for one request and its reply, which are used again.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) buf: Vec<u8>,
    pub(crate) ranges: Vec<ByteRange>,
    pub(crate) reply: Vec<u8>,
}

impl Scratch {
    /// Frees memory that only a long command or reply needs.
    pub(crate) fn shrink(&mut self) {
        if self.buf.capacity() > KEPT_MAX {
            self.buf = Vec::new();
        }
        if self.reply.capacity() > KEPT_MAX {
            self.reply = Vec::new();
        }
    }
}
