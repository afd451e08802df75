//! The embedded store as the primary of replicas: what a `Feed` sends.

use keyway_base::{Clock, Limits};
use keyway_rdb::Version;
use keyway_rdb::replication::{CommandStep, CommandStream};
use keyway_replica::feed::{
    Beginning, Parting, Snapshot, SnapshotStep, Source, SourceError, Stream, StreamLost,
};
use keyway_resp::ParseLimits;
use keyway_store::{EffectLimits, EffectReader, Keeping, Progress, Saving, Store};
use std::sync::Arc;

/// The command that only Keyway knows.
const FLAGS: &[u8] = b"KEYWAY.FLAGS";

/// Is told the address of a replica, and why it is fed no longer.
pub type Parted = Box<dyn Fn(&str, &Parting) + Send + Sync>;

/// The parts of a [`StoreSource`].
pub struct SourceParts {
    /// The store.
    pub store: Arc<Store>,
    /// Returns the source code of all libraries of functions.
    pub libraries: Box<dyn Fn() -> Vec<Arc<[u8]>> + Send + Sync>,
    /// Returns the time.
    pub clock: fn() -> Clock,
    /// Bounds of the stream that is kept for replicas.
    pub limits: EffectLimits,
    /// Whether the replicas are Keyway, which knows commands that no other server does.
    pub is_of_keyway: bool,
    /// Most bytes of items that change before a snapshot has them.
    pub snapshot_buffer: u64,
    /// Is told when a replica has acknowledged a later offset.
    pub acknowledged: Box<dyn Fn() + Send + Sync>,
    /// Is told why a replica from this address is fed no longer.
    pub parted: Parted,
}

/// Feeds replicas of a store.
pub struct StoreSource {
    parts: Arc<SourceParts>,
}

impl StoreSource {
    /// Creates the source of a store's feed.
    pub fn new(parts: SourceParts) -> Self {
        Self { parts: Arc::new(parts) }
    }

    fn stream(&self, reader: EffectReader) -> Box<dyn Stream> {
        Box::new(StoreStream { reader, is_of_keyway: self.parts.is_of_keyway })
    }
}

impl Source for StoreSource {
    fn begin(&self, _version: Version) -> Result<Beginning, SourceError> {
        let SourceParts { store, limits, snapshot_buffer, clock, .. } = &*self.parts;
        if store.is_loading() {
            return Err(SourceError::Busy);
        }
        let begun = store.follow_with_snapshot(*limits, Keeping::Newest, clock(), *snapshot_buffer);
        let (reader, saving) = begun.ok_or(SourceError::Busy)?;
        let snapshot = StoreSnapshot { parts: Arc::clone(&self.parts), saving: Some(saving) };
        Ok(Beginning { snapshot: Box::new(snapshot), stream: self.stream(reader) })
    }

    fn resume(&self, offset: u64) -> Option<Box<dyn Stream>> {
        let reader = self.parts.store.follow_from(offset, Keeping::Newest)?;
        Some(self.stream(reader))
    }

    fn anchor(&self) -> Option<Box<dyn Stream>> {
        let reader = self.parts.store.follow_on(Keeping::Newest)?;
        Some(self.stream(reader))
    }

    fn tell(&self, words: &[&[u8]]) {
        self.parts.store.tell_followers(words);
    }

    fn on_acknowledged(&self) {
        (self.parts.acknowledged)();
    }

    fn on_parting(&self, address: &str, parting: &Parting) {
        (self.parts.parted)(address, parting);
    }
}

/// A snapshot on its way to a replica.
struct StoreSnapshot {
    parts: Arc<SourceParts>,
    saving: Option<Saving>,
}

impl Snapshot for StoreSnapshot {
    fn read(&mut self, out: &mut Vec<u8>) -> Result<SnapshotStep, String> {
        let Some(saving) = &mut self.saving else { return Ok(SnapshotStep::End) };
        let clock = (self.parts.clock)();
        let progress = saving.next(clock, &mut || (self.parts.libraries)());
        match progress.map_err(|error| error.to_string())? {
            Some(Progress::Batch(batch)) => {
                batch.parts().for_each(|part| out.extend_from_slice(part));
                Ok(SnapshotStep::More)
            }
            Some(Progress::Wait) => Ok(SnapshotStep::Wait),
            None => {
                if let Some(saving) = self.saving.take() {
                    saving.commit(clock);
                }
                Ok(SnapshotStep::End)
            }
        }
    }
}

/// The stream of one replica.
struct StoreStream {
    reader: EffectReader,
    is_of_keyway: bool,
}

impl Stream for StoreStream {
    fn read(&mut self, out: &mut Vec<u8>) -> Result<usize, StreamLost> {
        let start = out.len();
        let len = self.reader.read(out).map_err(|_| StreamLost)?;
        if !self.is_of_keyway {
            blank_flags(&mut out[start..]);
        }
        Ok(len)
    }

    fn skip(&mut self) -> Result<(), StreamLost> {
        let mut passed = Vec::new();
        while self.reader.read(&mut passed).map_err(|_| StreamLost)? > 0 {
            passed.clear();
        }
        Ok(())
    }

    fn position(&self) -> Result<u64, StreamLost> {
        self.reader.offset().map_err(|_| StreamLost)
    }
}

/// Puts empty lines in the place of commands that other servers do not know. Every replica thus
/// counts the same offsets. A replica takes empty lines for signs of life.
fn blank_flags(commands: &mut [u8]) {
    if memchr::memmem::find(commands, FLAGS).is_none() {
        return;
    }
    let mut stream = CommandStream::new(0, None, ParseLimits::of(&Limits::default()));
    let mut blanks = Vec::new();
    let mut at = 0;
    while at < commands.len()
        && let Ok(CommandStep::Command { consumed, command }) = stream.read(&commands[at..])
    {
        if command.words().next() == Some(FLAGS) {
            blanks.push(at..at + consumed);
        }
        at += consumed;
    }
    blanks.into_iter().for_each(|range| commands[range].fill(b'\n'));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_keyway_become_empty_lines_of_the_same_length_and_values_stay() {
        let set = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$12\r\nKEYWAY.FLAGS\r\n";
        let flags = b"*4\r\n$12\r\nKEYWAY.FLAGS\r\n$1\r\nk\r\n$1\r\n7\r\n$1\r\n0\r\n";
        let mut commands = [&set[..], flags, set].concat();
        blank_flags(&mut commands);
        let lines = vec![b'\n'; flags.len()];
        assert_eq!(commands, [&set[..], &lines, set].concat());
        // Bytes that are no commands stay as they are.
        let mut wrong = b"KEYWAY.FLAGS".to_vec();
        blank_flags(&mut wrong);
        assert_eq!(wrong, b"KEYWAY.FLAGS");
    }
}
