//! The embedded store as the primary of replicas: what a `Feed` sends.

use keyway_base::{Clock, Limits};
use keyway_rdb::Version;
use keyway_rdb::replication::{CommandStep, CommandStream, ReplicaProfile};
use keyway_replica::feed::{
    Beginning, Parting, Snapshot, SnapshotStep, Source, SourceError, Stream, StreamLost,
};
use keyway_resp::ParseLimits;
use keyway_store::{EffectLimits, EffectReader, Keeping, Progress, Saving, Store};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How the names of commands begin that only Keyway knows.
const OWN: &[u8] = b"KEYWAY.";
/// The one of them that is for replicas, if they are Keyways. Others are for the log of this store.
const FLAGS: &[u8] = b"KEYWAY.FLAGS";

/// Bytes from which on a part of the stream that was fetched before takes no more.
const PART_LEN: usize = 64 << 10;

/// Bytes of the stream that are fetched beside one step of a snapshot. With more, a step takes long
/// under fast writers, and nothing of the snapshot is sent meanwhile.
const FILL_LEN: usize = 4 << 20;

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
    /// Set if the only replica is the process that takes this one's place.
    pub twin: Option<Twin>,
    /// Most bytes of items that change before a snapshot has them.
    pub snapshot_buffer: u64,
    /// Is told when a replica has acknowledged a later offset.
    pub acknowledged: Box<dyn Fn() + Send + Sync>,
    /// Is told why a replica from this address is fed no longer.
    pub parted: Parted,
}

/// A replica that takes the place of this process. It knows commands that no other server does.
#[derive(Clone)]
pub struct Twin {
    /// Bytes of the stream that are kept beside the store while the snapshot is sent. Without them
    /// that much less may be written meanwhile.
    pub spool_max: usize,
    /// What was fetched for it.
    pub progress: Arc<TwinProgress>,
    /// Bytes of memory that the stream takes beside the store.
    pub spooled: Arc<AtomicU64>,
}

impl Twin {
    fn note(&self, len: usize, spool: &Spool) {
        self.progress.taken.fetch_add(len as u64, Ordering::Relaxed);
        self.spooled.store(spool.len as u64, Ordering::Relaxed);
        self.progress.note_offset(spool);
    }
}

/// The part of a store that was fetched for the process that takes the place of this one.
#[derive(Debug)]
pub struct TwinProgress {
    /// Bytes of snapshot and stream.
    taken: AtomicU64,
    /// The offset up to which the stream was fetched; [`NOT_BEGUN`] before the snapshot has begun.
    fetched: AtomicU64,
    /// True while the snapshot is made.
    is_snapshotting: AtomicBool,
}

/// No stream is that long.
const NOT_BEGUN: u64 = u64::MAX;

impl Default for TwinProgress {
    fn default() -> Self {
        Self {
            taken: AtomicU64::new(0),
            fetched: AtomicU64::new(NOT_BEGUN),
            is_snapshotting: AtomicBool::new(false),
        }
    }
}

impl TwinProgress {
    /// Returns the number of bytes that were fetched, of the snapshot and of the stream.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Returns the offset up to which the stream was fetched, or `None` before the snapshot has
    /// begun.
    pub fn fetched(&self) -> Option<u64> {
        Some(self.fetched.load(Ordering::Relaxed)).filter(|&offset| offset != NOT_BEGUN)
    }

    /// Returns whether a snapshot that the store makes now is the one for that process.
    pub fn is_snapshotting(&self) -> bool {
        self.is_snapshotting.load(Ordering::Relaxed)
    }

    fn begin(&self, spool: &Spool) {
        self.note_offset(spool);
        self.is_snapshotting.store(true, Ordering::Relaxed);
    }

    fn end_snapshot(&self) {
        self.is_snapshotting.store(false, Ordering::Relaxed);
    }

    fn note_offset(&self, spool: &Spool) {
        if let Ok(offset) = spool.reader.offset() {
            self.fetched.store(offset, Ordering::Relaxed);
        }
    }
}

/// The stream behind a snapshot: what was fetched while that is sent, and the rest.
struct Spool {
    reader: EffectReader,
    /// What was fetched, in parts as the reader gave them.
    parts: VecDeque<Vec<u8>>,
    /// Their bytes.
    len: usize,
}

impl Spool {
    fn of(reader: EffectReader) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { reader, parts: VecDeque::new(), len: 0 }))
    }

    /// Fetches what there is, until `len_max` bytes are kept or [`FILL_LEN`] were fetched. The last
    /// part may be beyond that, by one request. Returns the number of bytes.
    fn fill(&mut self, len_max: usize) -> usize {
        let mut filled = 0;
        while self.len < len_max && filled < FILL_LEN {
            let is_open = self.parts.back().is_some_and(|part| part.len() < PART_LEN);
            let open = if is_open { self.parts.pop_back() } else { None };
            let mut part = open.unwrap_or_default();
            let read = self.reader.read(&mut part).unwrap_or(0);
            if !part.is_empty() {
                self.parts.push_back(part);
            }
            if read == 0 {
                break;
            }
            self.len += read;
            filled += read;
        }
        filled
    }

    /// Appends the next part to `out`.
    fn read(&mut self, out: &mut Vec<u8>) -> Result<usize, StreamLost> {
        let Some(part) = self.parts.pop_front() else {
            return self.reader.read(out).map_err(|_| StreamLost);
        };
        self.len -= part.len();
        out.extend_from_slice(&part);
        Ok(part.len())
    }

    fn position(&self) -> Result<u64, StreamLost> {
        let fetched = self.reader.offset().map_err(|_| StreamLost)?;
        Ok(fetched - self.len as u64)
    }
}

/// Feeds replicas of a store.
pub struct StoreSource {
    parts: Arc<SourceParts>,
    /// Returns when no write that was begun before is under way.
    settle: Option<Box<dyn Fn() + Send + Sync>>,
}

impl StoreSource {
    /// Creates the source of a store's feed.
    pub fn new(parts: SourceParts) -> Self {
        Self { parts: Arc::new(parts), settle: None }
    }

    /// Has the first reader wait until `settle` returns, which is to be when no write is under way
    /// that was begun before. Without it such a write may cost the reader its place.
    #[must_use]
    pub fn settling(mut self, settle: Box<dyn Fn() + Send + Sync>) -> Self {
        self.settle = Some(settle);
        self
    }

    /// The next process loses nothing: writers wait for it. Replicas may be late.
    fn keeping(&self) -> Keeping {
        if self.parts.twin.is_some() { Keeping::All } else { Keeping::Newest }
    }

    /// Lets other replicas have snapshots again.
    fn end_reservation(&self) {
        if self.parts.twin.is_some() {
            self.parts.store.reserve_snapshot(false);
        }
    }

    fn stream(&self, spool: Arc<Mutex<Spool>>) -> Box<dyn Stream> {
        Box::new(StoreStream { spool, twin: self.parts.twin.clone() })
    }

    fn stream_of(&self, reader: EffectReader) -> Box<dyn Stream> {
        self.stream(Spool::of(reader))
    }
}

impl Drop for StoreSource {
    /// The next process may be gone before it had its snapshot.
    fn drop(&mut self) {
        self.end_reservation();
    }
}

impl Source for StoreSource {
    fn begin(&self, _version: Version) -> Result<Beginning, SourceError> {
        let SourceParts { store, limits, snapshot_buffer, clock, .. } = &*self.parts;
        // The effects of a replica that relays nothing are of no history.
        let is_apart = store.is_replica() && !store.is_relaying() && self.parts.twin.is_none();
        let is_behind_twin = store.is_snapshot_reserved() && self.parts.twin.is_none();
        if store.is_loading() || is_apart || is_behind_twin {
            return Err(SourceError::Busy);
        }
        if self.parts.twin.is_some() {
            store.reserve_snapshot(true);
        }
        // Other replicas may leave or fail to begin meanwhile.
        let expected = store.expect_follower(*limits);
        if let Some(settle) = &self.settle
            && expected.is_first()
        {
            settle();
        }
        let begun = store.follow_with_snapshot(*limits, self.keeping(), clock(), *snapshot_buffer);
        let Some((reader, saving)) = begun else { return Err(SourceError::Busy) };
        let parts = Arc::clone(&self.parts);
        let spool = Spool::of(reader);
        if let Some(twin) = &parts.twin {
            twin.progress.begin(&spool.lock());
        }
        self.end_reservation();
        let of_twin = parts.twin.is_some().then(|| Arc::clone(&spool));
        let snapshot = StoreSnapshot { parts, saving: Some(saving), spool: of_twin };
        Ok(Beginning { snapshot: Box::new(snapshot), stream: self.stream(spool) })
    }

    fn resume(&self, offset: u64) -> Option<Box<dyn Stream>> {
        let reader = self.parts.store.follow_from(offset, self.keeping())?;
        Some(self.stream_of(reader))
    }

    fn anchor(&self) -> Option<Box<dyn Stream>> {
        let reader = self.parts.store.follow_on(Keeping::Newest)?;
        Some(self.stream_of(reader))
    }

    fn tell(&self, words: &[&[u8]]) {
        self.parts.store.tell_followers(words);
    }

    fn adapt(&self, replica: &ReplicaProfile, commands: &mut [u8]) {
        if self.parts.twin.is_none() {
            blank_own(commands, replica.takes_flags());
        }
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
    /// The stream of a twin, which is fetched meanwhile.
    spool: Option<Arc<Mutex<Spool>>>,
}

impl Snapshot for StoreSnapshot {
    fn read(&mut self, out: &mut Vec<u8>) -> Result<SnapshotStep, String> {
        let before = out.len();
        let step = self.read_next(out);
        if let (Some(twin), Some(spool)) = (&self.parts.twin, &self.spool) {
            let mut spool = spool.lock();
            let filled = spool.fill(twin.spool_max);
            twin.note(out.len() - before + filled, &spool);
        }
        step
    }
}

impl StoreSnapshot {
    fn read_next(&mut self, out: &mut Vec<u8>) -> Result<SnapshotStep, String> {
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
                self.end_of_twin();
                if let Some(saving) = self.saving.take() {
                    saving.commit(clock);
                }
                Ok(SnapshotStep::End)
            }
        }
    }

    /// Notes that a snapshot that comes later is not that of the process that takes this one's place.
    fn end_of_twin(&self) {
        if let Some(twin) = &self.parts.twin {
            twin.progress.end_snapshot();
        }
    }
}

impl Drop for StoreSnapshot {
    fn drop(&mut self) {
        self.end_of_twin();
    }
}

/// The stream of one replica.
pub(crate) struct StoreStream {
    spool: Arc<Mutex<Spool>>,
    twin: Option<Twin>,
}

impl StoreStream {
    pub(crate) fn new(reader: EffectReader) -> Self {
        Self { spool: Spool::of(reader), twin: None }
    }
}

impl Stream for StoreStream {
    fn read(&mut self, out: &mut Vec<u8>) -> Result<usize, StreamLost> {
        let mut spool = self.spool.lock();
        let len = spool.read(out)?;
        if let Some(twin) = &self.twin {
            twin.note(len, &spool);
        }
        Ok(len)
    }

    fn skip(&mut self) -> Result<(), StreamLost> {
        let mut passed = Vec::new();
        while self.spool.lock().read(&mut passed)? > 0 {
            passed.clear();
        }
        Ok(())
    }

    fn position(&self) -> Result<u64, StreamLost> {
        self.spool.lock().position()
    }
}

/// Puts empty lines in the place of commands that a replica does not know. It knows flags of items if
/// it `takes_flags`. Every replica thus counts the same offsets. A replica takes empty lines for
/// signs of life.
fn blank_own(commands: &mut [u8], takes_flags: bool) {
    if memchr::memmem::find(commands, OWN).is_none() {
        return;
    }
    let mut stream = CommandStream::new(0, None, ParseLimits::of(&Limits::default()));
    let mut blanks = Vec::new();
    let mut at = 0;
    while at < commands.len()
        && let Ok(CommandStep::Command { consumed, command }) = stream.read(&commands[at..])
    {
        if command
            .words()
            .next()
            .is_some_and(|name| name.starts_with(OWN) && !(takes_flags && name == FLAGS))
        {
            blanks.push(at..at + consumed);
        }
        at += consumed;
    }
    blanks.into_iter().for_each(|range| commands[range].fill(b'\n'));
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_store::StoreConfig;

    /// Laws: what is fetched early and what is read later are one stream, at its offsets, and a spool
    /// is never longer than its bound and one part of the stream.
    #[test]
    fn a_spool_gives_the_stream_in_its_order_whenever_it_is_filled() {
        let store = Arc::new(Store::new(StoreConfig::default()));
        let limits = EffectLimits { room: 64 << 20, history: 0 };
        let mut whole = store.follow(limits, Keeping::All, |_| ());
        let spool = Spool::of(store.follow(limits, Keeping::All, |_| ()));
        let mut spool = spool.lock();
        let (start, mut read) = (spool.position().expect("nothing is lost"), Vec::new());
        for round in 0..300_usize {
            for nth in 0..round % 7 {
                let long = if (round + nth).is_multiple_of(11) { 100_000 } else { round };
                store.tell_beside(&[b"SCRIPT", &vec![b'x'; long]], || true);
            }
            if round.is_multiple_of(3) {
                assert!(spool.fill(1 << 20) < FILL_LEN + (256 << 10));
                assert!(spool.len <= (1 << 20) + (256 << 10), "{}", spool.len);
            }
            if round.is_multiple_of(5) {
                spool.read(&mut read).expect("nothing is lost");
            }
            assert_eq!(spool.position(), Ok(start + read.len() as u64));
            assert_eq!(spool.len, spool.parts.iter().map(Vec::len).sum::<usize>());
        }
        while spool.read(&mut read).expect("nothing is lost") > 0 {}
        let mut expected = Vec::new();
        while whole.read(&mut expected).expect("nothing is lost") > 0 {}
        assert!(spool.len == 0 && read.len() > 5 << 20);
        assert!(read == expected, "{} bytes in place of {}", read.len(), expected.len());
    }

    #[test]
    fn commands_of_keyway_become_empty_lines_of_the_same_length_and_values_stay() {
        let set = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$12\r\nKEYWAY.FLAGS\r\n";
        let flags = b"*4\r\n$12\r\nKEYWAY.FLAGS\r\n$1\r\nk\r\n$1\r\n7\r\n$1\r\n0\r\n";
        let history = b"*1\r\n$14\r\nKEYWAY.HISTORY\r\n";
        let sent = [&set[..], flags, set, history].concat();
        let lines = |len| vec![b'\n'; len];
        let mut commands = sent.clone();
        blank_own(&mut commands, false);
        assert_eq!(commands, [&set[..], &lines(flags.len()), set, &lines(history.len())].concat());
        let mut commands = sent;
        blank_own(&mut commands, true);
        assert_eq!(commands, [&set[..], flags, set, &lines(history.len())].concat());
        // Bytes that are no commands stay as they are.
        let mut wrong = b"KEYWAY.FLAGS".to_vec();
        blank_own(&mut wrong, false);
        assert_eq!(wrong, b"KEYWAY.FLAGS");
    }
}
