//! The first look at an unknown server: when a server is asked whether it answers, and which worker
//! asks it.

use keyway_base::Time;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A worker's next step for an unknown server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookStep {
    /// Nothing: the server is not due, or another worker asks it.
    Wait,
    /// Ask it. Only one worker is told so.
    Ask,
    /// Count a failure: the worker that asked has no answer. Only one worker is told so.
    GiveUp,
}

/// The first look at one server, shared by all workers: the time of the next step, and whether the
/// server was asked; 0 before the first step.
#[derive(Debug, Default)]
pub(crate) struct FirstLook(AtomicU64);

impl FirstLook {
    /// Returns the step that is due. A server waits for `spread` before it is asked, and has
    /// `patience` to answer.
    pub(crate) fn step(&self, now: Time, spread: Duration, patience: Duration) -> LookStep {
        let before = self.0.load(Relaxed);
        let (due, was_asked) = (before >> 1, before & 1 == 1);
        if before != 0 && now.as_millis() < due {
            return LookStep::Wait;
        }
        let (step, after) = match (before, was_asked) {
            (0, _) => (LookStep::Wait, Self::packed(now + spread, false)),
            (_, false) => (LookStep::Ask, Self::packed(now + patience, true)),
            (_, true) => (LookStep::GiveUp, 0),
        };
        match self.0.compare_exchange(before, after, Relaxed, Relaxed) {
            Ok(_) => step,
            // Another worker took the step.
            Err(_) => LookStep::Wait,
        }
    }

    /// Starts the first look again.
    pub(crate) fn restart(&self) {
        self.0.store(0, Relaxed);
    }

    /// Packs a step. The result is never zero: a step is due at one millisecond or later.
    fn packed(due: Time, was_asked: bool) -> u64 {
        due.as_millis().max(1) << 1 | u64::from(was_asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_asked_once_after_its_pause_and_given_up_once() {
        let look = FirstLook::default();
        let (spread, patience) = (Duration::from_millis(300), Duration::from_secs(5));
        let at = |millis: u64| look.step(Time(millis * 1_000_000), spread, patience);
        let wait = LookStep::Wait;
        assert_eq!([0, 0, 299].map(at), [wait; 3]);
        assert_eq!([300, 300, 5299].map(at), [LookStep::Ask, wait, wait]);
        assert_eq!([5300, 5300, 5599].map(at), [LookStep::GiveUp, wait, wait]);
        look.restart();
        assert_eq!([9000, 9300, 9300].map(at), [wait, LookStep::Ask, wait]);
    }
}
