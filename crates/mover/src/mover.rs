//! A mover: its threads, and the door to them.

use crate::access::{Access, Failure};
use crate::board::{Board, Stage, Status};
use crate::copier::Copier;
use crate::look::{look, offset_of};
use crate::pace::{Pace, now};
use crate::pipe;
use crate::slots::SlotSet;
use crate::value::Dialect;
use crate::wire::Wire;
use keyway_replica::{Cause, Follower, FollowerSettings, State};
use parking_lot::Mutex;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest wait for the answer to a question.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Time between two looks at how far the source is.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Longest time for which a source may be away before the copy begins, and while it goes on.
const AWAY_MAX: Duration = Duration::from_secs(5);

/// Whom to copy from, whom to, and how.
#[derive(Clone, Debug)]
pub struct MoverSettings {
    /// The server that has the slots: a replica of their primary, or the primary.
    pub source: Access,
    /// The server that gets them. It has no keys of them.
    pub target: Access,
    /// The slots.
    pub slots: SlotSet,
    /// The pace of the copy. Writes are copied as they come.
    pub pace: Pace,
    /// The name of its connections, but for that of replication. It has no spaces.
    pub name: String,
}

impl MoverSettings {
    /// The usual settings.
    pub fn new(source: Access, target: Access, slots: SlotSet) -> MoverSettings {
        let name = "keyway-mover".to_owned();
        MoverSettings { source, target, slots, pace: Pace::default(), name }
    }
}

/// A copy that goes on by its own threads, until it is stopped or dropped.
pub struct Mover {
    board: Arc<Board>,
    follower: Arc<Mutex<Option<Follower>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Mover {
    /// Starts a copy.
    ///
    /// # Errors
    /// The system has no more threads or descriptors.
    pub fn start(settings: MoverSettings) -> std::io::Result<Mover> {
        let board = Arc::new(Board::new(settings.pace)?);
        let follower = Arc::new(Mutex::new(None));
        let mut mover = Mover { board, follower, threads: Vec::new() };
        let (board, target) = (Arc::clone(&mover.board), settings.target.clone());
        let name = settings.name.clone();
        mover.spawn("keyway-writer", move || pipe::run(&board, &target, &name))?;
        let (board, follower) = (Arc::clone(&mover.board), Arc::clone(&mover.follower));
        mover.spawn("keyway-mover", move || watch(&board, &follower, settings))?;
        Ok(mover)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        self.threads.push(std::thread::Builder::new().name(name.to_owned()).spawn(work)?);
        Ok(())
    }

    /// Returns how far it is.
    pub fn status(&self) -> Status {
        self.board.status()
    }

    /// Changes the pace of the copy.
    pub fn set_pace(&self, pace: Pace) {
        self.board.lock().set_pace(pace);
    }

    /// Holds the copy of the snapshot. Writes that come behind it are still copied. A source ends the
    /// connection if the pause is longer than its `repl-timeout`, or if so many writes wait for the mover
    /// as `client-output-buffer-limit` allows.
    pub fn pause(&self) {
        self.board.lock().set_paused(true);
    }

    /// Goes on with the copy of the snapshot.
    pub fn resume(&self) {
        self.board.lock().set_paused(false);
    }

    /// Has the copy end where the source's primary is in its stream, as [`position`] has told it when no
    /// more writes to the slots could come. The copy must be [`Stage::Tailing`]. Once it is
    /// [`Stage::Finished`], the target has everything and gets nothing more.
    pub fn finish(&self, replication_id: &str, offset: u64) {
        self.board.lock().finish(replication_id, offset);
        self.board.nudge();
    }

    /// Waits for another [`Stage`], for this long at most. Returns how far it is.
    pub fn wait(&self, patience: Duration) -> Status {
        self.board.wait_for_step(patience);
        self.board.status()
    }

    /// Ends the copy. Nothing is written after this.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.board.stop();
        for thread in self.threads.drain(..) {
            // A panic of a thread was told when it happened.
            let _ = thread.join();
        }
        drop(self.follower.lock().take());
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts to follow the source, and looks how far it is, until the mover is over.
fn watch(board: &Arc<Board>, follower: &Mutex<Option<Follower>>, settings: MoverSettings) {
    if let Err(failure) = begin(board, follower, &settings) {
        return board.fail(failure);
    }
    let source = &settings.source;
    let mut patience = Patience::default();
    let mut wire = None;
    let mut looked = now();
    loop {
        board.wait(LOOK_EVERY);
        if board.lock().is_over() {
            return;
        }
        // Every answer of the target is a change.
        if now().saturating_duration_since(looked) < LOOK_EVERY {
            continue;
        }
        looked = now();
        let Some(state) = follower.lock().as_ref().map(Follower::status) else { return };
        if let Err(failure) = patience.check(&state, source) {
            return board.fail(failure);
        }
        let is_streaming = matches!(board.lock().stage(), Stage::Tailing);
        if is_streaming {
            if wire.is_none() {
                wire = Wire::connect(source, &settings.name, ANSWER_WITHIN).ok();
            }
            match wire.as_mut().map(|wire| offset_of(wire, ANSWER_WITHIN)) {
                Some(Ok(offset)) => {
                    board.lock().note_known(offset);
                    board.notify();
                }
                _ => wire = None,
            }
        }
    }
}

/// How long a source is waited for.
#[derive(Default)]
struct Patience {
    /// Links that had failed when the latest one was good.
    failures: u64,
    away_since: Option<Instant>,
}

impl Patience {
    /// Checks that the source is there, or was a moment ago.
    fn check(&mut self, status: &keyway_replica::Status, source: &Access) -> Result<(), Failure> {
        let reason = status.reason.as_ref();
        let why = || reason.map(ToString::to_string).unwrap_or_default();
        match status.state {
            State::Stopped => {
                // Another snapshot of the same server would have the same.
                let is_final = reason.is_some_and(|it| matches!(it.cause(), Cause::Snapshot(_)));
                let why = format!("the copy from {} has ended: {}", source.endpoint, why());
                return Err(Failure { why, is_final });
            }
            State::Online | State::Transfer { .. } => {
                *self = Patience { failures: status.failures, away_since: None };
            }
            _ if status.failures > self.failures => {
                let since = *self.away_since.get_or_insert_with(now);
                if now().saturating_duration_since(since) > AWAY_MAX {
                    let why = format!("{} is not reached: {}", source.endpoint, why());
                    return Err(Failure::passing(why));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn begin(
    board: &Arc<Board>,
    follower: &Mutex<Option<Follower>>,
    settings: &MoverSettings,
) -> Result<(), Failure> {
    let target = look(&settings.target, ANSWER_WITHIN)?;
    let source = look(&settings.source, ANSWER_WITHIN)?;
    let dialect = Dialect { restores: target.restores, version: target.rdb };
    let copier = Copier::new(Arc::clone(board), Arc::new(settings.slots.clone()), dialect);
    let followed = followed(settings, !source.is_replica);
    let started = Follower::start(followed, Box::new(copier));
    let started = started.map_err(|error| Failure::passing(format!("no thread: {error}")))?;
    *follower.lock() = Some(started);
    Ok(())
}

/// Returns how the source is followed.
fn followed(settings: &MoverSettings, is_primary: bool) -> FollowerSettings {
    FollowerSettings {
        password: settings.source.password.clone(),
        tls: settings.source.tls.clone(),
        // A primary would take the mover for a replica that has its clients' writes.
        is_counted: !is_primary,
        pause_max: Duration::from_secs(1),
        transaction_len_max: 64 << 20,
        ..FollowerSettings::new(settings.source.endpoint.clone())
    }
}
