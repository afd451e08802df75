//! The target of a follower of the source: the snapshot's keys and the stream's commands go to the pipe.

use crate::access::Failure;
use crate::board::{Board, Over};
use crate::commands::{Batch, Commands, shown};
use crate::filter::{Filter, Heard};
use crate::pace::{Pace, Pacer, now, unix_millis};
use crate::slots::SlotSet;
use crate::value::{Dialect, TEXT_LEN_MAX, Value};
use keyway_command::Args;
use keyway_rdb::replication::ReplicationId;
use keyway_rdb::{Event, Key, Part};
use keyway_replica::{Origin, Position, Remains, Target, TargetError, Unit};
use keyway_resp::reply;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a long string that go to the pipe together.
const CHUNK_LEN: usize = 256 << 10;

/// Longest sleep between two looks at whether the mover is over.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// Keys between two looks at the clock.
const KEYS_PER_LOOK: u64 = 64;

/// The target of a follower.
pub(crate) struct Copier {
    board: Arc<Board>,
    slots: Arc<SlotSet>,
    /// The forms that the target understands.
    dialect: Dialect,
    /// The pace, as it was when it was last looked at.
    pace: Pace,
    database: u64,
    value: Value,
    /// True while a value of the slots is taken.
    is_moving: bool,
    batch: Commands,
    filter: Filter,
    pacer: Pacer,
    /// Keys that were copied and looked at since the board knows.
    keys: (u64, u64),
}

impl Copier {
    pub(crate) fn new(board: Arc<Board>, slots: Arc<SlotSet>, dialect: Dialect) -> Copier {
        Copier {
            board,
            slots,
            dialect,
            pace: Pace::default(),
            database: 0,
            value: Value::default(),
            is_moving: false,
            batch: Commands::default(),
            filter: Filter::default(),
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
        self.board.push(&mut self.batch, offset).map_err(over)
    }

    fn begin_key(&mut self, key: &Key<'_>) -> Result<(), TargetError> {
        self.keys.1 += 1;
        if self.keys.1 >= KEYS_PER_LOOK {
            self.note_keys()?;
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
        let begun = self.value.begin((key.name, key.expires_ms), &key.value, self.dialect);
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
        let len = self.batch.bytes.len();
        // A batch of many keys would be a burst.
        if len < Batch::LEN && self.pace == Pace::default() {
            return Ok(());
        }
        self.push(None)?;
        self.rest(1, len as u64)
    }

    /// Passes a long string on, without holding all of it again.
    fn long_text(&mut self, name: &[u8], text: &[u8]) -> Result<(), TargetError> {
        let out = &mut self.batch.bytes;
        reply::array(out, 3);
        reply::bulk(out, b"SET");
        reply::bulk(out, name);
        reply::bulk_header(out, text.len());
        self.batch.count += 1;
        self.push(None)?;
        for chunk in text.chunks(CHUNK_LEN) {
            self.board.push_rest(chunk).map_err(over)?;
            self.rest(0, chunk.len() as u64)?;
        }
        self.board.push_rest(b"\r\n").map_err(over)
    }

    fn note_keys(&mut self) -> Result<(), TargetError> {
        let (copied, seen) = std::mem::take(&mut self.keys);
        let mut state = self.board.lock();
        state.note_keys(copied, seen, now());
        self.pace = state.pace();
        let is_paused = state.is_paused();
        drop(state);
        if is_paused { self.rest(0, 0) } else { Ok(()) }
    }

    /// Keeps to the pace of the copy, and to a pause.
    fn rest(&mut self, keys: u64, bytes: u64) -> Result<(), TargetError> {
        let mut until = now() + self.pacer.note(self.pace, keys, bytes, now());
        loop {
            let state = self.board.lock();
            if state.is_over() {
                return Err(over(Over));
            }
            // Another pace is obeyed at once.
            if state.pace() != self.pace {
                self.pace = state.pace();
                self.pacer = Pacer::new(now());
                until = now();
            }
            let is_paused = state.is_paused();
            drop(state);
            let left = until.saturating_duration_since(now());
            if left.is_zero() && !is_paused {
                return Ok(());
            }
            let nap = if is_paused { SLEEP_MAX } else { left.min(SLEEP_MAX) };
            std::thread::park_timeout(nap);
        }
    }
}

fn over(_: Over) -> TargetError {
    TargetError::stop("the mover is over")
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
                self.dialect.version = version.min(self.dialect.version);
                Ok(())
            }
            Event::Database(number) => {
                self.database = number;
                Ok(())
            }
            Event::Key(key) => self.begin_key(&key),
            Event::Part(Part::Text(text)) if self.is_moving && text.len() > TEXT_LEN_MAX => {
                let name = self.value.name().to_vec();
                self.long_text(&name, text)
            }
            Event::Part(part) if self.is_moving => {
                let taken = self.value.part(&part, &mut self.batch);
                taken.map_err(|failure| self.fail(failure))?;
                let len = self.batch.bytes.len();
                if len < Batch::LEN {
                    return Ok(());
                }
                self.push(None)?;
                self.rest(0, len as u64)
            }
            Event::KeyEnd => self.end_key(),
            _ => Ok(()),
        }
    }

    fn end_snapshot(&mut self, position: Position) -> Result<(), TargetError> {
        self.push(None)?;
        self.note_keys()?;
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
        self.board.lock().rename(position.id, position.offset);
    }

    fn apply(&mut self, unit: &Unit<'_>) -> Result<(), TargetError> {
        let heard = unit.commands().map(|command| {
            let (buf, ranges) = command.frame();
            let (database, raw) = (command.database(), command.raw());
            Heard { database, raw, args: Args::new(buf, ranges) }
        });
        let (slots, batch) = (&self.slots, &mut self.batch);
        let filtered = self.filter.unit(slots, heard, unit.is_transaction(), batch);
        filtered.map_err(|failure| self.fail(failure))?;
        self.push(Some(unit.end()))
    }
}
