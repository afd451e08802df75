//! Commands for the target, and the buffers in which they wait.

use keyway_resp::reply;

/// Commands, and how many they are.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: u64,
}

impl Commands {
    pub(crate) fn add(&mut self, words: &[&[u8]]) {
        command(&mut self.bytes, words);
        self.count += 1;
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }
}

/// Appends a command.
pub(crate) fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    reply::array(out, words.len());
    words.iter().for_each(|word| reply::bulk(out, word));
}

/// Commands that go to the target together. Without commands, the bytes go on with the one before.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: u64,
}

impl Batch {
    /// Bytes of a batch, but for one long command.
    pub(crate) const LEN: usize = 64 << 10;

    /// Returns whether so many bytes of other commands may be added.
    pub(crate) fn joins(&self, len: usize) -> bool {
        self.count > 0 && self.bytes.len() + len <= Batch::LEN
    }
}

/// Returns a key for people.
pub(crate) fn shown(key: &[u8]) -> String {
    const SHOWN_MAX: usize = 60;
    let cut = key.get(..SHOWN_MAX).unwrap_or(key);
    let dots = if cut.len() < key.len() { "…" } else { "" };
    format!("{}{dots}", keyway_base::printable(cut))
}
