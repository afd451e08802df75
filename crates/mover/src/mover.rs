//! A mover: its threads, and the door to them.

use crate::access::{Access, Failure};
use crate::board::{Board, Stage, Status};
use crate::copier::Copier;
use crate::look::{look, position};
use crate::pace::{Pace, now};
use crate::pipe;
use crate::slots::SlotSet;
use keyway_replica::{Follower, FollowerSettings, State};
use parking_lot::Mutex;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest wait for the answer to a question.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Time between two looks at how far the source is.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Longest time for which a source may be away before the copy begins, and while it goes on.
const AWAY_MAX: Duration = Duration::from_secs(10);

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
    /// The name of the connection to the target. It has no spaces.
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

    /// Has the copy end where the source's primary is in its stream, as [`position`] has told it when no
    /// more writes to the slots could come. The copy must be [`Stage::Tailing`]. Once it is
    /// [`Stage::Finished`], the target has everything and gets nothing more.
    pub fn finish(&self, replication_id: &str, offset: u64) {
        self.board.lock().finish(replication_id, offset);
        self.board.nudge();
    }

    /// Waits for a step forward, for this long at most. Returns how far it is.
    pub fn wait(&self, patience: Duration) -> Status {
        self.board.wait(patience);
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
    let mut away_since: Option<Instant> = None;
    while !board.lock().is_over() {
        board.wait(LOOK_EVERY);
        let state = follower.lock().as_ref().map(Follower::status);
        let Some(state) = state else { return };
        if state.state == State::Stopped {
            let why = state.reason.map_or_else(
                || format!("the copy from {} has ended", settings.source.endpoint),
                |reason| reason.to_string(),
            );
            return board.fail(Failure::passing(why));
        }
        let is_away = matches!(state.state, State::Connect | State::Connecting);
        let since = *away_since.get_or_insert_with(now);
        if !is_away {
            away_since = None;
        } else if now().saturating_duration_since(since) > AWAY_MAX {
            let why = state.reason.map(|reason| reason.to_string()).unwrap_or_default();
            return board.fail(Failure::passing(format!(
                "{} is not reached: {why}",
                settings.source.endpoint
            )));
        }
        let is_streaming = matches!(board.lock().stage(), Stage::Tailing);
        if is_streaming && let Ok((_, offset)) = position(&settings.source, ANSWER_WITHIN) {
            board.lock().note_known(offset);
            board.notify();
        }
    }
}

fn begin(
    board: &Arc<Board>,
    follower: &Mutex<Option<Follower>>,
    settings: &MoverSettings,
) -> Result<(), Failure> {
    let target = look(&settings.target, ANSWER_WITHIN)?;
    let source = look(&settings.source, ANSWER_WITHIN)?;
    let copier = Copier::new(Arc::clone(board), Arc::new(settings.slots.clone()), target.rdb);
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
