//! What the threads of a mover share: what is to be sent, how far they are, and why they end.

use crate::access::Failure;
use crate::pace::{Pace, now};
use keyway_rdb::replication::ReplicationId;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Bytes that wait for the target at most. While there are more, nothing is read of the source.
const WAITING_MAX: usize = 4 << 20;

/// Commands that the target has not answered, at most.
const UNANSWERED_MAX: u64 = 20_000;

/// The step of a mover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The servers are connected to, and the source makes its snapshot.
    Connecting,
    /// The snapshot is copied.
    Copying,
    /// Writes are copied as they come.
    Tailing,
    /// The same, up to a known end.
    Finishing,
    /// Everything up to the end was copied, and nothing is written any more.
    Finished,
    /// Nothing is written any more.
    Failed(Failure),
}

/// A mover at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its step.
    pub stage: Stage,
    /// Keys of the snapshot that were copied.
    pub keys: u64,
    /// Bytes that were written to the target.
    pub bytes: u64,
    /// Keys in the latest second.
    pub keys_per_second: u64,
    /// Bytes of the source's stream that the target has not answered yet; `None` until it is known.
    pub behind: Option<u64>,
    /// Keys of the snapshot that were looked at.
    pub keys_seen: u64,
}

/// What the threads share.
pub(crate) struct State {
    stage: Stage,
    /// Commands that the writer has not taken.
    waiting: Vec<u8>,
    /// Commands that were handed over, and those that the target has answered.
    commands: u64,
    answered: u64,
    keys: u64,
    keys_seen: u64,
    bytes: u64,
    rate: (Instant, u64, u64),
    /// The ids of the history that the stream is of.
    histories: Vec<ReplicationId>,
    /// The offset of the stream behind what was handed over; `None` during the snapshot.
    offset: Option<u64>,
    /// The same where the target has answered everything.
    applied: Option<u64>,
    /// The offset that the source had when it was last asked.
    known: Option<u64>,
    /// The offset at which the copy ends.
    end: Option<u64>,
    pace: Pace,
    is_stopping: bool,
}

/// The state, and those who wait for a change of it.
pub(crate) struct Board {
    state: Mutex<State>,
    changed: Condvar,
    /// Wakes the writer.
    wake: OwnedFd,
}

/// The mover is over, for whatever reason.
#[derive(Debug)]
pub(crate) struct Over;

impl Board {
    pub(crate) fn new(pace: Pace) -> std::io::Result<Board> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let state = State {
            stage: Stage::Connecting,
            waiting: Vec::new(),
            commands: 0,
            answered: 0,
            keys: 0,
            keys_seen: 0,
            bytes: 0,
            rate: (now(), 0, 0),
            histories: Vec::new(),
            offset: None,
            applied: None,
            known: None,
            end: None,
            pace,
            is_stopping: false,
        };
        Ok(Board { state: Mutex::new(state), changed: Condvar::new(), wake })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Has the writer and everybody else look at the state.
    pub(crate) fn nudge(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        self.changed.notify_all();
    }

    /// Has everybody but the writer look at the state.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Forgets that the writer was woken.
    pub(crate) fn heed(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }

    /// Ends the mover for this reason, unless it has ended.
    pub(crate) fn fail(&self, failure: Failure) {
        let mut state = self.lock();
        if !state.is_over() {
            state.stage = Stage::Failed(failure);
        }
        drop(state);
        self.nudge();
    }

    pub(crate) fn stop(&self) {
        self.lock().is_stopping = true;
        self.nudge();
    }

    /// Hands commands to the writer, which leaves `commands` empty. `offset` is that of the stream behind
    /// them. Waits while too much waits already.
    pub(crate) fn push(
        &self,
        commands: &mut Vec<u8>,
        count: u64,
        offset: Option<u64>,
    ) -> Result<(), Over> {
        let mut state = self.lock();
        while count > 0 && state.is_full() && !state.is_over() {
            self.changed.wait_for(&mut state, Duration::from_millis(100));
        }
        if state.is_over() {
            return Err(Over);
        }
        let was_idle = state.waiting.is_empty();
        match was_idle {
            true => std::mem::swap(&mut state.waiting, commands),
            false => state.waiting.append(commands),
        }
        commands.clear();
        state.commands += count;
        state.offset = offset.or(state.offset);
        if count == 0 {
            state.settle();
        }
        let is_due = was_idle && count > 0 || state.end.is_some();
        drop(state);
        if is_due {
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
        Ok(())
    }

    /// Waits for a change of the state, for this long at most.
    pub(crate) fn wait(&self, patience: Duration) {
        let mut state = self.lock();
        if !state.is_over() {
            self.changed.wait_for(&mut state, patience);
        }
    }

    pub(crate) fn status(&self) -> Status {
        let state = self.lock();
        let behind = state.known.zip(state.applied);
        Status {
            stage: state.stage.clone(),
            keys: state.keys,
            bytes: state.bytes,
            keys_per_second: state.rate.2,
            behind: behind.map(|(known, applied)| known.saturating_sub(applied)),
            keys_seen: state.keys_seen,
        }
    }
}

impl State {
    /// Returns whether nothing more is written.
    pub(crate) fn is_over(&self) -> bool {
        self.is_stopping || matches!(self.stage, Stage::Finished | Stage::Failed(_))
    }

    fn is_full(&self) -> bool {
        self.waiting.len() > WAITING_MAX || self.commands - self.answered > UNANSWERED_MAX
    }

    pub(crate) fn stage(&self) -> &Stage {
        &self.stage
    }

    pub(crate) fn pace(&self) -> Pace {
        self.pace
    }

    pub(crate) fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    /// Begins the snapshot. Returns false if there was one already.
    pub(crate) fn begin_snapshot(&mut self) -> bool {
        let is_first = self.stage == Stage::Connecting;
        if is_first {
            self.stage = Stage::Copying;
        }
        is_first
    }

    /// Begins the stream of a history.
    pub(crate) fn begin_stream(&mut self, id: ReplicationId, offset: u64) {
        self.histories.push(id);
        self.offset = Some(offset);
        if self.stage == Stage::Copying {
            self.stage = Stage::Tailing;
        }
        self.settle();
    }

    /// Takes another id of the history that the stream is of.
    pub(crate) fn rename(&mut self, id: ReplicationId) {
        self.histories.push(id);
    }

    pub(crate) fn note_keys(&mut self, copied: u64, seen: u64, at: Instant) {
        self.keys += copied;
        self.keys_seen += seen;
        let (since, before, _) = self.rate;
        let took = at.saturating_duration_since(since);
        if took >= Duration::from_secs(1) {
            let rate = (self.keys - before) as f64 / took.as_secs_f64();
            self.rate = (at, self.keys, rate as u64);
        }
    }

    pub(crate) fn note_known(&mut self, offset: u64) {
        self.known = self.known.max(Some(offset));
    }

    /// Takes what the writer is to send.
    pub(crate) fn take_waiting(&mut self, into: &mut Vec<u8>) {
        self.bytes += self.waiting.len() as u64;
        std::mem::swap(&mut self.waiting, into);
    }

    pub(crate) fn note_answered(&mut self, count: u64) {
        // A server that answers more than it was asked has lost its count.
        self.answered = self.answered.saturating_add(count).min(self.commands);
        self.settle();
    }

    /// Returns whether the target has answers to give.
    pub(crate) fn is_owed(&self) -> bool {
        self.commands > self.answered
    }

    /// Notes how far the target is, and whether that is the end.
    fn settle(&mut self) {
        if self.is_owed() {
            return;
        }
        self.applied = self.offset;
        let at_end = |end: &u64| self.applied.is_some_and(|applied| applied >= *end);
        if self.stage == Stage::Finishing && self.end.as_ref().is_some_and(at_end) {
            self.stage = Stage::Finished;
        }
    }

    /// Takes the end of the copy.
    pub(crate) fn finish(&mut self, id: &str, offset: u64) {
        if self.is_over() || self.stage == Stage::Finishing {
            return;
        }
        let is_ours = self.histories.iter().any(|known| known.as_bytes() == id.as_bytes());
        if self.stage != Stage::Tailing || !is_ours {
            let why = match is_ours {
                true => "the copy was not whole when it was to end",
                false => "the source has begun another history, as after a fail-over",
            };
            self.stage = Stage::Failed(Failure::passing(why));
            return;
        }
        self.stage = Stage::Finishing;
        self.note_known(offset);
        self.end = Some(offset);
        self.settle();
    }
}
