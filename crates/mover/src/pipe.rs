//! The writer's thread: it sends what waits to the target, and counts the answers.

use crate::access::{Access, Failure};
use crate::board::Board;
use crate::commands::{Batch, shown};
use crate::pace::now;
use crate::replies::Replies;
use crate::wire::Wire;
use std::collections::VecDeque;
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
    // Threads that wait for the writer look again.
    board.nudge();
}

fn send(board: &Board, wire: &mut Wire) -> Result<(), Failure> {
    // Bytes that the system has not sent are not sent after the end.
    wire.forget_at_close();
    let mut flight = Flight::default();
    let (mut input, mut released) = (Vec::new(), Vec::new());
    let (mut heard, mut has_progress) = (now(), true);
    loop {
        board.heed();
        let mut state = board.lock();
        if state.is_over() {
            return Ok(());
        }
        let is_owed = state.is_owed();
        state.take_waiting(&mut flight.batches, !has_progress);
        drop(state);
        let at = now();
        if !is_owed {
            heard = at;
        }
        if at.saturating_duration_since(heard) > ANSWER_WITHIN {
            let seconds = ANSWER_WITHIN.as_secs();
            let why = format!("{} has not answered for {seconds} s", wire.server());
            return Err(Failure::passing(why));
        }
        let has_sent = flight.send(wire, &mut released)?;
        let has_read = wire.receive(&mut input)?;
        has_progress = has_sent || has_read;
        if has_sent {
            heard = at;
        }
        if has_read {
            heard = at;
            let answered = flight.take(wire, &input)?;
            input.clear();
            flight.release(answered, &mut released);
            board.lock().note_answered(answered, &mut released);
            board.notify();
        } else if !released.is_empty() {
            board.lock().note_answered(0, &mut released);
            board.notify();
        }
        if !has_progress {
            wire.wait(flight.is_sent(), Some(board.wake()), at + IDLE);
        }
    }
}

/// Commands that were taken of the board, and are not sent or not answered.
#[derive(Default)]
struct Flight {
    batches: VecDeque<Batch>,
    /// The batch that is being sent, and the bytes of it that were sent.
    next: usize,
    sent: usize,
    /// Commands of the first batch that were answered.
    answered: u64,
    replies: Replies,
    /// Commands of batches that were released.
    before: u64,
}

impl Flight {
    fn is_sent(&self) -> bool {
        self.next >= self.batches.len()
    }

    /// Sends what the system takes. Returns whether it took something.
    fn send(&mut self, wire: &mut Wire, released: &mut Vec<Vec<u8>>) -> Result<bool, Failure> {
        let mut has_sent = false;
        while let Some(batch) = self.batches.get(self.next) {
            let len = wire.send(batch.bytes.get(self.sent..).unwrap_or_default())?;
            if len == 0 {
                break;
            }
            has_sent = true;
            self.sent += len;
            if self.sent < batch.bytes.len() {
                continue;
            }
            self.sent = 0;
            // The rest of a long command is of no use any more.
            match batch.count {
                0 => released.extend(self.batches.remove(self.next).map(|batch| batch.bytes)),
                _ => self.next += 1,
            }
        }
        Ok(wire.flush()? || has_sent)
    }

    /// Takes bytes of the target. Returns how many commands are answered by them.
    fn take(&mut self, wire: &Wire, input: &[u8]) -> Result<u64, Failure> {
        let answered = self.replies.feed(input).map_err(|_| {
            Failure::passing(format!("{} answers in another protocol", wire.server()))
        })?;
        match self.replies.error() {
            None => Ok(answered),
            Some((nth, error)) => Err(Failure::of_command(wire.server(), &self.named(nth), error)),
        }
    }

    /// Returns the command with a number, for people.
    fn named(&self, nth: u64) -> String {
        let mut first = self.before;
        for batch in &self.batches {
            if nth < first + batch.count {
                return name_of(&batch.bytes, nth - first);
            }
            first += batch.count;
        }
        "a command".to_owned()
    }

    /// Lets go of batches whose commands are all answered.
    fn release(&mut self, answered: u64, released: &mut Vec<Vec<u8>>) {
        self.answered += answered;
        while self.next > 0 {
            let Some(first) = self.batches.front() else { return };
            if self.answered < first.count {
                return;
            }
            self.answered -= first.count;
            self.before += first.count;
            self.next -= 1;
            released.extend(self.batches.pop_front().map(|batch| batch.bytes));
        }
    }
}

/// Returns the name and the key of one of the commands in `bytes`.
fn name_of(mut bytes: &[u8], nth: u64) -> String {
    for _ in 0..nth {
        let words = header(&mut bytes, b'*').unwrap_or_default();
        for _ in 0..words {
            word(&mut bytes);
        }
    }
    header(&mut bytes, b'*');
    let name = shown(word(&mut bytes).unwrap_or_default());
    match (&*name, word(&mut bytes)) {
        ("EXEC", _) => "a transaction".to_owned(),
        (_, None) => name,
        (_, Some(key)) => format!("{name} of key {}", shown(key)),
    }
}

/// Takes a number with its sign.
fn header(bytes: &mut &[u8], sign: u8) -> Option<usize> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (line, rest) = bytes.split_at(end + 1);
    let digits = line.strip_prefix(&[sign])?.trim_ascii_end();
    *bytes = rest;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn word<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let len = header(bytes, b'$')?;
    let (word, rest) = bytes.split_at_checked(len)?;
    *bytes = rest.get(2..).unwrap_or_default();
    Some(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Commands;

    #[test]
    fn a_command_is_named_by_its_number() {
        let mut commands = Commands::default();
        commands.add(&[b"SET", b"a\r\n*1", b"x"]);
        commands.add(&[b"HSET", b"b", b"f", b"v"]);
        commands.add(&[b"EXEC"]);
        commands.bytes.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$999\r\nxx");
        let named: Vec<String> = (0..6).map(|nth| name_of(&commands.bytes, nth)).collect();
        let expected =
            ["SET of key a\\r\\n*1", "HSET of key b", "a transaction", "SET of key big", "", ""];
        assert_eq!(named, expected);
    }
}
