//! Error replies by their first word, for INFO.

use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of words that are counted separately. Scripts can return any error, so clients could
/// create any number of words.
const WORDS_MAX: usize = 128;

/// Number of bytes in which the word is searched, as in Redis.
const WORD_LEN_MAX: usize = 32;

/// The word under which errors beyond [`WORDS_MAX`] are counted.
const OVERFLOW: &str = "ERRORSTATS_OVERFLOW";

/// Error replies to the clients of one pool. Only errors take its lock, and only a new word takes
/// it for writing.
#[derive(Debug, Default)]
pub struct ErrorStats {
    counts: RwLock<BTreeMap<Box<[u8]>, AtomicU64>>,
}

impl ErrorStats {
    /// Counts an error reply, which begins with `-`.
    #[cold]
    pub fn note(&self, reply: &[u8]) {
        let word = word_of(reply);
        if let Some(count) = self.counts.read().get(word) {
            count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut counts = self.counts.write();
        let is_full = counts.len() >= WORDS_MAX && !counts.contains_key(word);
        let word = if is_full { OVERFLOW.as_bytes() } else { word };
        *counts.entry(word.into()).or_default().get_mut() += 1;
    }

    /// Counts an error reply that `write` may append.
    #[inline]
    pub(crate) fn watch(&self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        write(out);
        if out.get(start) == Some(&b'-') {
            self.note(&out[start..]);
        }
    }

    /// Returns the words, in a form for a line of INFO, with their counts.
    pub fn counts(&self) -> Vec<(String, u64)> {
        let plain = |byte: &u8| match byte {
            b'#' | b':' | b'\r' | b'\n' => b'_',
            byte => *byte,
        };
        let counts = self.counts.read();
        let shown = counts.iter().map(|(word, count)| {
            let word: Vec<u8> = word.iter().map(plain).collect();
            (String::from_utf8_lossy(&word).into_owned(), count.load(Ordering::Relaxed))
        });
        shown.collect()
    }

    /// Resets all counts.
    pub fn reset(&self) {
        self.counts.write().clear();
    }
}

/// Returns the first word of an error reply.
fn word_of(reply: &[u8]) -> &[u8] {
    let reply = &reply[..reply.len().min(WORD_LEN_MAX)];
    match reply.iter().position(|byte| *byte == b' ') {
        Some(end) if end > 1 => &reply[1..end],
        _ => b"ERR",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_their_first_word_until_a_reset() {
        let stats = ErrorStats::default();
        for reply in ["-ERR a\r\n", "-OOM b\r\n", "-ERR c\r\n", "-alone\r\n", "-A:B# c\r\n"] {
            stats.note(reply.as_bytes());
        }
        let long = format!("-{} x\r\n", "w".repeat(WORD_LEN_MAX));
        stats.note(long.as_bytes());
        let counts = [("A_B_", 1), ("ERR", 4), ("OOM", 1)];
        assert_eq!(stats.counts(), counts.map(|(word, count)| (word.to_owned(), count)));
        stats.reset();
        assert_eq!(stats.counts(), []);
    }

    #[test]
    fn however_many_words_there_are_their_number_is_bounded() {
        let stats = ErrorStats::default();
        (0..1000).for_each(|nth| stats.note(format!("-W{nth} x\r\n").as_bytes()));
        let counts = stats.counts();
        assert_eq!(counts.len(), WORDS_MAX + 1);
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 1000);
        assert!(counts.contains(&(OVERFLOW.to_owned(), 1000 - WORDS_MAX as u64)));
    }

    #[test]
    fn only_errors_are_counted_and_only_what_was_appended_is_looked_at() {
        let stats = ErrorStats::default();
        let mut out = b"-ERR before\r\n".to_vec();
        stats.watch(&mut out, |out| out.extend_from_slice(b"+OK\r\n"));
        stats.watch(&mut out, |_| {});
        assert_eq!(stats.counts(), []);
        stats.watch(&mut out, |out| out.extend_from_slice(b"-NO x\r\n"));
        assert_eq!(stats.counts(), [("NO".to_owned(), 1)]);
    }
}
