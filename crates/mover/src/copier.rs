//! What a follower of the source feeds: the snapshot's keys and the stream's commands go to the pipe.

use crate::access::Failure;
use crate::board::Board;
use crate::filter::{self, Heard};
use crate::pace::{Pace, Pacer, now};
use crate::slots::SlotSet;
use crate::value::{Commands, Value, shown};
use keyway_command::Args;
use keyway_rdb::replication::ReplicationId;
use keyway_rdb::{Event, Key, Version};
use keyway_replica::{Origin, Position, Remains, Target, TargetError, Unit};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of commands that go to the pipe together.
const BATCH_LEN: usize = 64 << 10;

/// Longest sleep between two looks at whether the mover is over.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// Keys between two looks at the clock.
const KEYS_PER_LOOK: u64 = 64;

/// The target of a follower.
pub(crate) struct Copier {
    board: Arc<Board>,
    slots: Arc<SlotSet>,
    /// The newest version of RDB that the target reads.
    version: Version,
    /// The form in which streams are written: no newer than that of the source's snapshot.
    written: Version,
    database: u64,
    value: Value,
    /// True while a value of the slots is taken.
    is_moving: bool,
    batch: Commands,
    pacer: Pacer,
    /// Keys that were copied and looked at since the board knows.
    keys: (u64, u64),
}

impl Copier {
    pub(crate) fn new(board: Arc<Board>, slots: Arc<SlotSet>, version: Version) -> Copier {
        Copier {
            board,
            slots,
            version,
            written: version,
            database: 0,
            value: Value::default(),
            is_moving: false,
            batch: Commands::default(),
            pacer: Pacer::new(now()),
            keys: (0, 0),
        }
    }

    /// Ends the mover.
    fn fail(&self, failure: Failure) -> TargetError {
        let error = TargetError::stop(&failure.why);
        self.board.fail(failure);
        error
    }

    fn push(&mut self, offset: Option<u64>) -> Result<(), TargetError> {
        let count = std::mem::take(&mut self.batch.count);
        let pushed = self.board.push(&mut self.batch.bytes, count, offset);
        pushed.map_err(|_| TargetError::stop("the mover is over"))
    }

    fn begin_key(&mut self, key: &Key<'_>) -> Result<(), TargetError> {
        self.keys.1 += 1;
        if self.keys.1 >= KEYS_PER_LOOK {
            self.note_keys();
        }
        self.is_moving = self.slots.has_key(key.name);
        if !self.is_moving {
            return Ok(());
        }
        if self.database != 0 {
            return Err(self.fail(Failure::lasting(format!(
                "key {} is in database {}, and only database 0 can be moved",
                shown(key.name),
                self.database
            ))));
        }
        // The source's own deletion of it follows in the stream.
        if key.expires_ms.is_some_and(|millis| millis <= unix_millis()) {
            self.is_moving = false;
            return Ok(());
        }
        let begun = self.value.begin((key.name, key.expires_ms), &key.value, self.written);
        begun.map_err(|failure| self.fail(failure))
    }

    fn end_key(&mut self) -> Result<(), TargetError> {
        if !std::mem::take(&mut self.is_moving) {
            return Ok(());
        }
        if let Err(failure) = self.value.end(&mut self.batch) {
            return Err(self.fail(failure));
        }
        self.keys.0 += 1;
        let pace = self.board.lock().pace();
        let len = self.batch.bytes.len();
        // A batch of many keys would be a burst.
        if len < BATCH_LEN && pace == Pace::default() {
            return Ok(());
        }
        self.push(None)?;
        self.rest(pace, 1, len as u64)
    }

    fn note_keys(&mut self) {
        let (copied, seen) = std::mem::take(&mut self.keys);
        self.board.lock().note_keys(copied, seen, now());
    }

    /// Keeps to the pace of the copy.
    fn rest(&mut self, pace: Pace, keys: u64, bytes: u64) -> Result<(), TargetError> {
        let until = now() + self.pacer.note(pace, keys, bytes, now());
        while now() < until {
            if self.board.lock().is_over() {
                return Err(TargetError::stop("the mover is over"));
            }
            let left = until.saturating_duration_since(now());
            std::thread::park_timeout(left.min(SLEEP_MAX));
            // Another pace is obeyed at once.
            if self.board.lock().pace() != pace {
                self.pacer = Pacer::new(now());
                break;
            }
        }
        Ok(())
    }
}

impl Target for Copier {
    fn begin_snapshot(&mut self, _origin: &Origin) -> Result<(), TargetError> {
        if self.board.lock().begin_snapshot() {
            return Ok(());
        }
        let why = "the source could not go on where the connection was lost: the copy begins anew";
        Err(self.fail(Failure::passing(why)))
    }

    fn take(&mut self, event: Event<'_>) -> Result<(), TargetError> {
        match event {
            Event::Start(version) => {
                self.written = version.min(self.version);
                Ok(())
            }
            Event::Database(number) => {
                self.database = number;
                Ok(())
            }
            Event::Key(key) => self.begin_key(&key),
            Event::Part(part) if self.is_moving => {
                let taken = self.value.part(&part, &mut self.batch);
                taken.map_err(|failure| self.fail(failure))?;
                let len = self.batch.bytes.len();
                if len < BATCH_LEN {
                    return Ok(());
                }
                self.push(None)?;
                let pace = self.board.lock().pace();
                self.rest(pace, 0, len as u64)
            }
            Event::KeyEnd => self.end_key(),
            _ => Ok(()),
        }
    }

    fn end_snapshot(&mut self, position: Position) -> Result<(), TargetError> {
        self.push(None)?;
        self.note_keys();
        self.board.lock().begin_stream(position.id, position.offset);
        self.board.notify();
        Ok(())
    }

    fn abort_snapshot(&mut self) -> Remains {
        self.board.fail(Failure::passing(
            "the connection to the source was lost during the snapshot: the copy begins anew",
        ));
        Remains::Nothing
    }

    fn renamed(&mut self, _before: ReplicationId, position: Position) {
        self.board.lock().rename(position.id);
    }

    fn apply(&mut self, unit: &Unit<'_>) -> Result<(), TargetError> {
        let heard = unit.commands().map(|command| {
            let (buf, ranges) = command.frame();
            let (database, raw) = (command.database(), command.raw());
            Heard { database, raw, args: Args::new(buf, ranges) }
        });
        let filtered = filter::unit(&self.slots, heard, unit.is_transaction(), &mut self.batch);
        filtered.map_err(|failure| self.fail(failure))?;
        self.push(Some(unit.end()))
    }
}

/// Returns the time in milliseconds since 1970. Servers have clocks of their own.
#[allow(clippy::disallowed_methods, reason = "expiries are times of the wall clock")]
fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}
