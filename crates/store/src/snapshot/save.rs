//! The whole store, as it was at a snapshot's cut.

use super::{
    FLUSH_FIELD, HISTORY_ID_FIELD, HISTORY_OFFSET_FIELD, NUMBERS_FIELD, STREAM_DATABASE_FIELD,
};
use crate::cut::{Piece, Pieces};
use crate::effects::{EffectLimits, Keeping};
use crate::shards::CutStep;
use crate::store::{EffectReader, Store};
use keyway_base::Clock;
use keyway_rdb::{Crc64, Version, pieces};
use std::fmt;
use std::sync::Arc;

/// The version that is written: one that Redis 7.0 and all Valkey read. Hashes whose fields expire
/// have a type of Redis 7.4, which only servers that know it can read in any version.
const VERSION: Version = Version::Redis10;

/// Why a snapshot is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveError {
    /// More bytes had to wait for the file than may.
    Overflow {
        /// The bound in bytes.
        buffer_max: u64,
    },
    /// All data is being replaced.
    Replaced,
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overflow { buffer_max } => write!(
                f,
                "keys changed faster than the disk took them: more than {buffer_max} bytes waited \
                 for the file; raise `buffer`, or save at a quieter time"
            ),
            Self::Replaced => f.write_str(
                "the primary's data replaces that of the snapshot: save again behind the resync",
            ),
        }
    }
}

impl std::error::Error for SaveError {}

/// A snapshot that is being written.
///
/// Legal order: [`Saving::next`] until it returns `None`, then [`Saving::commit`] once the file is
/// in place. Dropping it gives it up; [`Saving::fail`] also says why.
pub struct Saving {
    store: Arc<Store>,
    stage: Stage,
    crc: Crc64,
    len: u64,
    numbers: u64,
    is_ended: bool,
    clock: Clock,
    /// The database that the stream behind the cut begins in, if it does not say so itself.
    stream_database: Option<u32>,
    /// Effects follow: what has expired is written, too, until an effect deletes it.
    is_followed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Head,
    /// The shard with this index. A value of it may be incomplete.
    Shard {
        index: usize,
        is_within: bool,
    },
    Tail,
    Over,
}

/// The result of [`Saving::next`].
pub enum Progress {
    /// Bytes of the file.
    Batch(Batch),
    /// A script holds what is next: ask again a little later.
    Wait,
}

/// Some bytes of the file. They are given back when this is dropped.
pub struct Batch {
    store: Arc<Store>,
    parts: Vec<Piece>,
    /// Bytes of it that the queue counts until they are written.
    queued: u64,
}

impl Batch {
    /// The bytes, in their order.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(Piece::bytes)
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.parts().map(<[u8]>::len).sum()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.parts.drain(..).for_each(|piece| piece.end(&self.store.heap));
        self.store.snapshots.queue.release(self.queued);
    }
}

impl Store {
    /// The snapshot that is to be written, if one is: the caller writes it. Makes the cut if that
    /// was scheduled.
    pub fn take_snapshot(self: &Arc<Self>, clock: Clock) -> Option<Saving> {
        self.claim_cut(clock).then(|| Saving::of_cut(self, clock))
    }

    /// Follows the store, and begins a snapshot at the same cut, which is made
    /// at `clock`: what the snapshot has and what the reader gets fit
    /// exactly. The snapshot holds `buffer_max` bytes at most of items that change before they
    /// were written. The figures of snapshots do not show it, and nobody else writes it.
    ///
    /// Returns none while another snapshot is being written. Waits for a script that runs. To
    /// be called with no shard held.
    pub fn follow_with_snapshot(
        self: &Arc<Self>,
        limits: EffectLimits,
        keeping: Keeping,
        clock: Clock,
        buffer_max: u64,
    ) -> Option<(EffectReader, Saving)> {
        if !self.claim_for_log() {
            return None;
        }
        let mut stream_database = None;
        let reader = self.follow_at_cut(limits, keeping, |locked, _| {
            self.cut_for_log(locked, buffer_max, clock.unix_millis());
            stream_database = self.relayed_database();
        });
        let mut saving = Saving::of_cut(self, clock);
        (saving.stream_database, saving.is_followed) = (stream_database, true);
        Some((reader, saving))
    }
}

impl Saving {
    /// The snapshot of a cut that was made.
    fn of_cut(store: &Arc<Store>, clock: Clock) -> Self {
        Self {
            store: Arc::clone(store),
            stage: Stage::Head,
            crc: Crc64::default(),
            len: 0,
            numbers: 0,
            is_ended: false,
            clock,
            stream_database: None,
            is_followed: false,
        }
    }

    /// The next bytes of the file, none once it is whole. `libraries` are those of functions, asked
    /// for at the beginning. A call locks one shard for some ten microseconds by estimate.
    ///
    /// # Errors
    /// [`SaveError`]; the snapshot is of no use then.
    pub fn next(
        &mut self,
        clock: Clock,
        libraries: &mut dyn FnMut() -> Vec<Arc<[u8]>>,
    ) -> Result<Option<Progress>, SaveError> {
        self.clock = clock;
        let mut out = Pieces::default();
        let mut queued = 0;
        match self.stage {
            Stage::Head => {
                self.head(&libraries(), out.bytes());
                self.stage = Stage::Shard { index: 0, is_within: false };
            }
            Stage::Shard { index, is_within } => {
                if !self.step(index, is_within, &mut out) {
                    return Ok(Some(Progress::Wait));
                }
                let is_within = matches!(self.stage, Stage::Shard { is_within: true, .. });
                if !is_within {
                    queued = self.take_queued(&mut out);
                }
            }
            Stage::Tail => {
                queued = self.take_queued(&mut out);
                self.check()?;
                self.tail(&mut out);
                self.stage = Stage::Over;
            }
            Stage::Over => return Ok(None),
        }
        self.check()?;
        self.len += out.len() as u64;
        self.store.note_snapshot_written(self.len);
        let batch = Batch { store: Arc::clone(&self.store), parts: out.into_parts(), queued };
        if self.stage != Stage::Over {
            batch.parts().for_each(|part| self.crc.update(part));
        }
        Ok(Some(Progress::Batch(batch)))
    }

    fn check(&self) -> Result<(), SaveError> {
        let queue = &self.store.snapshots.queue;
        match queue.has_overflowed() {
            true if queue.is_given_up() => Err(SaveError::Replaced),
            true => Err(SaveError::Overflow { buffer_max: queue.bytes_max() }),
            false => Ok(()),
        }
    }

    /// Bytes of the file so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The snapshot is in its place.
    pub fn commit(mut self, clock: Clock) {
        self.is_ended = true;
        self.end_cuts();
        self.store.end_snapshot(Ok(self.len), clock);
    }

    /// The snapshot is given up.
    pub fn fail(mut self, failure: String, clock: Clock) {
        self.is_ended = true;
        self.end_cuts();
        self.store.end_snapshot(Err(failure), clock);
    }

    /// Appends what stands in front of all keys.
    fn head(&self, libraries: &[Arc<[u8]>], out: &mut Vec<u8>) {
        pieces::header(VERSION, out);
        let seconds = (self.store.cut_millis() / 1000).to_string();
        pieces::aux(b"keyway-ver", env!("CARGO_PKG_VERSION").as_bytes(), out);
        pieces::aux(b"redis-bits", b"64", out);
        pieces::aux(b"ctime", seconds.as_bytes(), out);
        if let Some(database) = self.stream_database {
            pieces::aux(b"repl-stream-db", database.to_string().as_bytes(), out);
        }
        for (database, at) in self.store.flushes.all() {
            pieces::aux(FLUSH_FIELD, format!("{database} {at}").as_bytes(), out);
        }
        if let Some(place) = self.store.cut_place() {
            // A server that goes on from here begins in database 0 without the first field.
            if let Some(database) = place.database {
                pieces::aux(STREAM_DATABASE_FIELD, database.to_string().as_bytes(), out);
            }
            pieces::aux(HISTORY_ID_FIELD, place.id.as_bytes(), out);
            pieces::aux(HISTORY_OFFSET_FIELD, place.offset.to_string().as_bytes(), out);
        }
        libraries.iter().for_each(|code| pieces::library(code, out));
    }

    /// One step of a shard; whether the shard could be had.
    fn step(&mut self, index: usize, is_within: bool, out: &mut Pieces) -> bool {
        let store = &*self.store;
        let Some(mut shard) = store.lock_of(index).lock_unless_held() else { return false };
        self.numbers = self.numbers.max(shard.numbers);
        let mut door = store.cut_door(index, self.clock.unix_millis());
        if self.is_followed || store.is_replica() {
            door.writer = door.writer.with_expired();
        }
        let step = shard.step_cut(&door, out);
        debug_assert!(!is_within || step != CutStep::Done, "a value that was begun is whole");
        self.stage = match step {
            CutStep::Within => Stage::Shard { index, is_within: true },
            CutStep::More => Stage::Shard { index, is_within: false },
            CutStep::Done => {
                // Memory that was held for the snapshot is to be freed.
                store.come_by(index, 0);
                match index + 1 {
                    next if next == store.shard_count() => Stage::Tail,
                    index => Stage::Shard { index, is_within: false },
                }
            }
        };
        true
    }

    /// Appends what could not wait; how many bytes that is.
    fn take_queued(&self, out: &mut Pieces) -> u64 {
        if !self.store.snapshots.queue.has_waiting() {
            return 0;
        }
        let queued = self.store.snapshots.queue.take();
        let len = queued.len() as u64;
        out.append(queued);
        len
    }

    /// Appends the end of the file; the checksum is that of all before.
    fn tail(&mut self, out: &mut Pieces) {
        let text = format!("{} {}", self.numbers, self.store.cut_millis());
        pieces::aux(NUMBERS_FIELD, text.as_bytes(), out.bytes());
        let mut crc = self.crc;
        for piece in out.parts() {
            crc.update(piece.bytes());
        }
        pieces::end(&mut crc, true, out.bytes());
    }

    /// Has no shard write anything for this snapshot any more.
    fn end_cuts(&self) {
        let store = &*self.store;
        for index in 0..store.shard_count() {
            let mut shard = store.lock_of(index).lock();
            let left = shard.end_cut(&store.snapshots.queue);
            drop(shard);
            store.snapshots.discard(left, &store.heap);
            store.come_by(index, 0);
        }
        let left = store.snapshots.queue.take();
        store.snapshots.queue.release(left.len() as u64);
        store.snapshots.discard(left, &store.heap);
    }
}

impl Drop for Saving {
    fn drop(&mut self) {
        if !self.is_ended {
            self.end_cuts();
            self.store.end_snapshot(Err("the snapshot was given up".to_owned()), self.clock);
        }
    }
}
