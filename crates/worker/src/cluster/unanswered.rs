//! Why questions are not answered, for operators: of several reasons the most specific one.

use keyway_base::Time;
use std::time::Duration;

/// For how long a reason hides less specific ones. If it were longer, an outdated one would be
/// kept. If it were shorter, a silent server would hide that another one cannot be reached.
const STANDS_FOR: Duration = Duration::from_secs(10);

/// How specific a reason is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Telling {
    /// No answer arrived in time, whatever the cause.
    Silence,
    /// The cause is known.
    Cause,
}

/// The reason that is reported.
#[derive(Debug)]
pub(super) struct UnansweredReason {
    text: String,
    telling: Telling,
    at: Time,
}

impl UnansweredReason {
    pub(super) fn new(text: &str) -> UnansweredReason {
        UnansweredReason { text: text.to_owned(), telling: Telling::Silence, at: Time(0) }
    }

    /// Takes another reason, unless a more specific one arrived recently.
    pub(super) fn note(&mut self, text: String, telling: Telling, now: Time) {
        if telling >= self.telling || self.at + STANDS_FOR <= now {
            *self = UnansweredReason { text, telling, at: now };
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_does_not_hide_a_cause_and_no_cause_stands_for_ever() {
        let at = |seconds: u64| Time(0) + Duration::from_secs(seconds);
        let mut reason = UnansweredReason::new("none was asked yet");
        reason.note("a is silent".into(), Telling::Silence, at(1));
        assert_eq!(reason.text(), "a is silent");
        reason.note("b refuses".into(), Telling::Cause, at(2));
        reason.note("a is silent".into(), Telling::Silence, at(3));
        assert_eq!(reason.text(), "b refuses");
        reason.note("c refuses".into(), Telling::Cause, at(4));
        assert_eq!(reason.text(), "c refuses", "the latest of those that say as much");
        reason.note("a is silent".into(), Telling::Silence, at(14));
        assert_eq!(reason.text(), "a is silent");
    }
}
