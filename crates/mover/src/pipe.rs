//! The writer's thread: it sends what waits to the target, and counts the answers.

use crate::access::{Access, Failure};
use crate::board::Board;
use crate::pace::now;
use crate::replies::Replies;
use crate::wire::Wire;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for the next answer of a target that owes one.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Longest wait while there is nothing to do.
const IDLE: Duration = Duration::from_millis(500);

/// Sends until the mover is over.
pub(crate) fn run(board: &Arc<Board>, target: &Access, name: &str) {
    let connected = Wire::connect(target, name, Duration::from_secs(5));
    if let Err(failure) = connected.and_then(|mut wire| send(board, &mut wire)) {
        board.fail(failure);
    }
    // Those who wait for the writer look again.
    board.nudge();
}

fn send(board: &Board, wire: &mut Wire) -> Result<(), Failure> {
    let mut replies = Replies::default();
    let (mut next, mut input) = (Vec::new(), Vec::new());
    let mut heard = now();
    loop {
        board.heed();
        let mut state = board.lock();
        if state.is_over() {
            return Ok(());
        }
        let is_owed = state.is_owed();
        state.take_waiting(&mut next);
        drop(state);
        wire.queue(&mut next);
        // The buffer may come back with what was sent.
        next.clear();
        let at = now();
        if !is_owed {
            heard = at;
        }
        if at.saturating_duration_since(heard) > ANSWER_WITHIN {
            let seconds = ANSWER_WITHIN.as_secs();
            let why = format!("{} has not answered for {seconds} s", wire.server());
            return Err(Failure::passing(why));
        }
        if !wire.step(&mut input, Some(board.wake()), at + IDLE)? || input.is_empty() {
            continue;
        }
        heard = now();
        let answered = replies.feed(&input).map_err(|_| {
            Failure::passing(format!("{} answers in another protocol", wire.server()))
        })?;
        input.clear();
        if let Some(error) = replies.error() {
            return Err(Failure::of_error(wire.server(), error));
        }
        if answered > 0 {
            board.lock().note_answered(answered);
            board.notify();
        }
    }
}
