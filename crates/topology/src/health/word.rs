//! The state of a backend in one atomic word.

use super::state::HealthState;
use crate::{Ejection, FailureReason};
use keyway_base::Time;
use std::time::Duration;

/// The state of a backend, in 64 bits: 3 for the state, 4 for the reason, 17 for failures in a row,
/// 40 for the time at which the state is due to end. A backend whose latest request succeeded is
/// all zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) state: HealthState,
    pub(super) reason: Option<FailureReason>,
    pub(super) failures: u32,
    /// Whole milliseconds on the clock of [`Time`], rounded up.
    pub(super) due_ms: u64,
}

impl Word {
    /// The word of an unknown backend.
    pub(super) const UNKNOWN: Word =
        Word { state: HealthState::Unknown, reason: None, failures: 0, due_ms: 0 };
    pub(super) const FAILURES_MAX: u32 = 100_000;
    pub(super) const FAILURES_BITS: u32 = 17;
    pub(super) const DUE_BITS: u32 = 40;
    /// One tick of `due_ms`. If it were shorter, two claims on one backend could be the same word,
    /// and a lapsed claim could pass for the other.
    pub(super) const EJECTION_MIN: Duration = Duration::from_millis(1);
    /// A due time that is never reached: only an operator ends the state.
    pub(super) const NEVER: u64 = (1 << Word::DUE_BITS) - 1;

    pub(super) fn to_bits(self) -> u64 {
        let reason = self.reason.map_or(0, |reason| reason as u64);
        self.state as u64
            | reason << 3
            | u64::from(self.failures) << 7
            | self.due_ms << (7 + Word::FAILURES_BITS)
    }

    pub(super) fn from_bits(bits: u64) -> Word {
        let state = match bits & 0b111 {
            0 => HealthState::Up,
            1 => HealthState::Failing,
            2 => HealthState::Ejected,
            3 => HealthState::Rejoining,
            4 => HealthState::Quarantined,
            _ => HealthState::Unknown,
        };
        let reason = (bits >> 3 & 0b1111) as usize;
        Word {
            state,
            reason: reason.checked_sub(1).and_then(|index| FailureReason::ALL.get(index)).copied(),
            failures: (bits >> 7) as u32 & ((1 << Word::FAILURES_BITS) - 1),
            due_ms: bits >> (7 + Word::FAILURES_BITS),
        }
    }

    /// Returns the time `span` after `now` in whole milliseconds, rounded up.
    pub(super) fn due_after(now: Time, span: Duration) -> u64 {
        (now + span).0.div_ceil(1_000_000).min(Word::NEVER)
    }

    pub(super) fn is_due(self, now: Time) -> bool {
        self.due_ms != Word::NEVER && self.due_ms <= now.as_millis()
    }

    pub(super) fn until(self) -> Option<Time> {
        let timed = matches!(
            self.state,
            HealthState::Ejected | HealthState::Rejoining | HealthState::Quarantined
        );
        (timed && self.due_ms != Word::NEVER).then(|| Time(self.due_ms * 1_000_000))
    }

    /// Returns the word after one more failure; `None` if it makes no difference.
    pub(super) fn after_failure(
        self,
        reason: FailureReason,
        now: Time,
        ejection: Option<Ejection>,
    ) -> Option<Word> {
        let failures = (self.failures + 1).min(Word::FAILURES_MAX);
        let failing =
            Word { state: HealthState::Failing, reason: Some(reason), failures, due_ms: 0 };
        match (self.state, ejection) {
            // These are late failures of requests sent before the ejection.
            (HealthState::Ejected | HealthState::Rejoining, _) => None,
            (state, None) if state.is_usable() => Some(failing),
            (state, Some(ejection))
                if state.is_usable()
                    && failures < ejection.after_failures.min(Word::FAILURES_MAX) =>
            {
                Some(failing)
            }
            (_, ejection) => {
                let span = ejection.map_or(Duration::ZERO, |ejection| ejection.for_);
                let due_ms = Word::due_after(now, span.max(Word::EJECTION_MIN));
                Some(Word { state: HealthState::Ejected, due_ms, ..failing })
            }
        }
    }
}
