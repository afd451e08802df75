//! The state that the threads of a mover share: the bytes to send, how far they are, and why they end.

use crate::access::Failure;
use crate::commands::{Batch, Commands};
use crate::pace::{Pace, now};
use keyway_rdb::replication::ReplicationId;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Bytes that are not sent, or not answered, at most. While there are more, nothing is read of the
/// source. With fewer, a target that is far away is not kept busy.
const HELD_MAX: usize = 4 << 20;

/// Commands that the target has not answered, at most.
const UNANSWERED_MAX: u64 = 16 << 10;

/// Buffers that are kept for later batches.
const SPARE_MAX: usize = 64;

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

/// A history of the source. Its offsets are those of the stream up to `until`, where another one began.
struct History {
    id: ReplicationId,
    until: Option<u64>,
}

/// The state that the threads share.
pub(crate) struct State {
    stage: Stage,
    /// Commands that the writer has not taken.
    waiting: VecDeque<Batch>,
    /// Bytes of these, and of those that the writer has and the target has not answered.
    held: usize,
    /// Buffers for later batches.
    spare: Vec<Vec<u8>>,
    /// True while the writer sleeps, and is to be woken for the next batch.
    is_writer_idle: bool,
    /// Commands that were handed over, and those that the target has answered.
    commands: u64,
    answered: u64,
    /// For counts of commands, the offset of the stream behind them. Each count is there once.
    marks: VecDeque<(u64, u64)>,
    keys: u64,
    keys_seen: u64,
    bytes: u64,
    rate: (Instant, u64, u64),
    /// The histories that the stream is of, the latest last.
    histories: Vec<History>,
    /// The offset of the stream behind what was handed over; `None` during the snapshot.
    offset: Option<u64>,
    /// The offset up to which the target has answered everything.
    applied: Option<u64>,
    /// The offset that the source had when it was last asked.
    known: Option<u64>,
    /// The offset at which the copy ends.
    end: Option<u64>,
    pace: Pace,
    is_paused: bool,
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
            waiting: VecDeque::new(),
            held: 0,
            spare: Vec::new(),
            is_writer_idle: false,
            commands: 0,
            answered: 0,
            marks: VecDeque::new(),
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
            is_paused: false,
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
        self.wake_writer();
        self.changed.notify_all();
    }

    /// Has everybody but the writer look at the state.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }

    fn wake_writer(&self) {
        // A counter that is full wakes as well.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
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

    /// Hands commands to the writer, and leaves `commands` empty. `offset` is that of the stream behind
    /// them. Waits while too much waits already. Commands of the stream behind the end of the copy are
    /// left out.
    pub(crate) fn push(&self, commands: &mut Commands, offset: Option<u64>) -> Result<(), Over> {
        let mut state = self.wait_for_room(!commands.bytes.is_empty())?;
        if state.end.is_some_and(|end| state.offset.is_some_and(|offset| offset >= end)) {
            commands.clear();
            return Ok(());
        }
        let is_due = state.add(commands);
        if let Some(offset) = offset {
            state.mark(offset);
        }
        let is_over = state.stage == Stage::Finished;
        drop(state);
        if is_over {
            self.nudge();
        } else if is_due {
            self.wake_writer();
        }
        Ok(())
    }

    /// Hands more bytes of the latest command to the writer. They are forgotten as soon as they are
    /// sent.
    pub(crate) fn push_rest(&self, bytes: &[u8]) -> Result<(), Over> {
        let mut state = self.wait_for_room(true)?;
        let mut buffer = state.spare.pop().unwrap_or_default();
        buffer.extend_from_slice(bytes);
        let is_due = state.wait(Batch { bytes: buffer, count: 0 });
        drop(state);
        if is_due {
            self.wake_writer();
        }
        Ok(())
    }

    fn wait_for_room(&self, needs_room: bool) -> Result<MutexGuard<'_, State>, Over> {
        let mut state = self.lock();
        while needs_room && state.is_full() && !state.is_over() {
            self.changed.wait_for(&mut state, Duration::from_millis(100));
        }
        if state.is_over() { Err(Over) } else { Ok(state) }
    }

    /// Waits for a change of the state, for this long at most.
    pub(crate) fn wait(&self, patience: Duration) {
        let mut state = self.lock();
        if !state.is_over() {
            self.changed.wait_for(&mut state, patience);
        }
    }

    /// Waits for another step, for this long at most.
    pub(crate) fn wait_for_step(&self, patience: Duration) {
        let until = now() + patience;
        let mut state = self.lock();
        let before = std::mem::discriminant(&state.stage);
        while !state.is_over() && std::mem::discriminant(&state.stage) == before {
            let left = until.saturating_duration_since(now());
            if left.is_zero() {
                break;
            }
            self.changed.wait_for(&mut state, left);
        }
    }

    pub(crate) fn status(&self) -> Status {
        let state = self.lock();
        let behind = state.known.zip(state.applied);
        let (since, _, rate) = state.rate;
        // During the stream no key of the snapshot comes any more.
        let is_recent = now().saturating_duration_since(since) < Duration::from_secs(3);
        Status {
            stage: state.stage.clone(),
            keys: state.keys,
            bytes: state.bytes,
            keys_per_second: if is_recent { rate } else { 0 },
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
        self.held > HELD_MAX || self.commands - self.answered > UNANSWERED_MAX
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

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    pub(crate) fn set_paused(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
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
        self.histories.push(History { id, until: None });
        if self.stage == Stage::Copying {
            self.stage = Stage::Tailing;
        }
        self.mark(offset);
    }

    /// Takes another id of the history that the stream is of, which is good from an offset on.
    pub(crate) fn rename(&mut self, id: ReplicationId, offset: u64) {
        if let Some(before) = self.histories.last_mut() {
            before.until = Some(offset);
        }
        self.histories.push(History { id, until: None });
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

    /// Adds commands to those that wait. Returns whether the writer is to be woken.
    fn add(&mut self, commands: &mut Commands) -> bool {
        if commands.bytes.is_empty() {
            return false;
        }
        self.commands += commands.count;
        let count = std::mem::take(&mut commands.count);
        let len = commands.bytes.len();
        if let Some(last) = self.waiting.back_mut().filter(|last| last.joins(len)) {
            last.bytes.append(&mut commands.bytes);
            last.count += count;
            self.held += len;
            return false;
        }
        let spare = self.spare.pop().unwrap_or_default();
        let bytes = std::mem::replace(&mut commands.bytes, spare);
        self.wait(Batch { bytes, count })
    }

    fn wait(&mut self, batch: Batch) -> bool {
        self.held += batch.bytes.len();
        self.waiting.push_back(batch);
        std::mem::take(&mut self.is_writer_idle)
    }

    /// Takes what the writer is to send. Without anything the writer sleeps, and is woken.
    pub(crate) fn take_waiting(&mut self, into: &mut VecDeque<Batch>, may_sleep: bool) {
        self.is_writer_idle = may_sleep && self.waiting.is_empty();
        self.bytes += self.waiting.iter().map(|batch| batch.bytes.len() as u64).sum::<u64>();
        into.append(&mut self.waiting);
    }

    /// The target has answered so many commands, and so many bytes are not held any more.
    pub(crate) fn note_answered(&mut self, count: u64, released: &mut Vec<Vec<u8>>) {
        // A server that answers more than it was asked has lost its count.
        self.answered = self.answered.saturating_add(count).min(self.commands);
        for mut buffer in released.drain(..) {
            self.held = self.held.saturating_sub(buffer.len());
            if self.spare.len() < SPARE_MAX && buffer.capacity() <= 2 * Batch::LEN {
                buffer.clear();
                self.spare.push(buffer);
            }
        }
        self.settle();
    }

    /// Returns whether the target has answers to give.
    pub(crate) fn is_owed(&self) -> bool {
        self.commands > self.answered
    }

    /// Everything up to this offset was handed over.
    fn mark(&mut self, offset: u64) {
        self.offset = Some(offset);
        match self.marks.back_mut() {
            Some((count, last)) if *count == self.commands => *last = offset,
            _ => self.marks.push_back((self.commands, offset)),
        }
        self.settle();
    }

    /// Notes how far the target is, and whether that is the end.
    fn settle(&mut self) {
        while let Some((_, offset)) = self.marks.front().filter(|(at, _)| *at <= self.answered) {
            self.applied = Some(*offset);
            self.marks.pop_front();
        }
        let at_end = |end: u64| self.applied.is_some_and(|applied| applied >= end);
        if self.stage == Stage::Finishing && !self.is_owed() && self.end.is_some_and(at_end) {
            self.stage = Stage::Finished;
        }
    }

    /// Takes the end of the copy.
    pub(crate) fn finish(&mut self, id: &str, offset: u64) {
        if self.is_over() || self.stage == Stage::Finishing {
            return;
        }
        let is_ours = |history: &History| {
            history.id.as_bytes().eq_ignore_ascii_case(id.as_bytes())
                && history.until.is_none_or(|until| offset <= until)
        };
        let why = match () {
            () if self.stage != Stage::Tailing => {
                "the copy was not whole when it was to end: it begins anew"
            }
            () if !self.histories.iter().any(is_ours) => {
                "the source has begun another history, as after a fail-over: the copy begins anew"
            }
            () => {
                self.stage = Stage::Finishing;
                self.note_known(offset);
                self.end = Some(offset);
                return self.settle();
            }
        };
        self.stage = Stage::Failed(Failure::passing(why));
    }
}

#[cfg(test)]
#[path = "board/tests.rs"]
mod tests;
