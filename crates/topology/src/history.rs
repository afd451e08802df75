//! The replication offsets that a primary had at past times. They show how long a replica has
//! lacked data.
//!
//! ```text
//!  offset of the primary  100 ── 180 ── 250 ── 400      one that has 200 lacks
//!  seen at                 1 s    2 s    3 s    4 s     something since second 3
//! ```

use keyway_base::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// Number of remembered times. With fewer, the lag of a replica is known less exactly.
const MOMENTS_MAX: usize = 64;

/// Replicas report their offset once a second, and primaries tell the age of the report in whole
/// seconds. So a report may be older than it seems by this much.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// The offsets of a primary at several times.
#[derive(Clone, Debug, Default)]
pub struct OffsetHistory {
    /// Pairs of time and offset, ascending in both.
    moments: VecDeque<(Time, u64)>,
    /// The replication id of the history, if the primary tells one.
    id: Option<Box<str>>,
}

impl OffsetHistory {
    /// Notes that the history with this id had reached `offset`, in bytes, at `now`. Times closer
    /// together than a fraction of `span` are merged.
    pub fn note(&mut self, now: Time, id: Option<&str>, offset: u64, span: Duration) {
        let goes_on = self.moments.back().is_none_or(|&(at, last)| at <= now && last <= offset);
        let is_same = self.id.as_deref() == id;
        if !goes_on && is_same && id.is_some() {
            // This report is late: the offset of one history never goes back.
            return;
        }
        if !goes_on || !is_same {
            self.moments.clear();
            self.id = id.map(Box::from);
        }
        // The newest entry is replaced until it is far enough from the one before.
        let step = span / (MOMENTS_MAX as u32 / 4);
        let before = self.moments.len().checked_sub(2).map(|index| self.moments[index].0);
        if before.is_some_and(|before| now.since(before) < step) {
            self.moments.pop_back();
        }
        if self.moments.len() == MOMENTS_MAX {
            self.moments.pop_front();
        }
        self.moments.push_back((now, offset));
    }

    /// Returns the least time for which a replica had lacked data when it last reported its offset,
    /// `silence` ago. Returns zero if it has not reported yet (`offset` 0).
    pub fn behind(&self, now: Time, offset: u64, silence: Duration) -> Duration {
        let lacks = |&&(_, at): &&(Time, u64)| at > offset && offset > 0;
        let since = self.moments.iter().find(lacks).map_or(now, |&(since, _)| since);
        now.since(since).saturating_sub(silence.saturating_add(TOLD_EVERY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000_000)
    }

    fn history(moments: impl IntoIterator<Item = (u64, u64)>) -> OffsetHistory {
        let mut history = OffsetHistory::default();
        for (seconds, offset) in moments {
            history.note(at(seconds), Some("a"), offset, SPAN);
        }
        history
    }

    fn behind(history: &OffsetHistory, now: u64, offset: u64, silence: u64) -> u64 {
        history.behind(at(now), offset, Duration::from_secs(silence)).as_secs()
    }

    #[test]
    fn what_is_lacked_is_told_by_when_the_primary_was_there() {
        let history = history([(1, 100), (2, 180), (3, 250), (4, 400), (10, 400)]);
        assert_eq!(behind(&history, 10, 400, 0), 0);
        // What it lacks was there in the fourth second. The uncertainty of a second is subtracted.
        assert_eq!(behind(&history, 10, 399, 0), 10 - 4 - 1);
        assert_eq!(behind(&history, 10, 200, 0), 10 - 3 - 1);
        // The report is three seconds old, and the replica was less behind then.
        assert_eq!(behind(&history, 10, 200, 3), 10 - 3 - 3 - 1);
        assert_eq!(behind(&history, 10, 5, 0), 10 - 1 - 1, "at least since the first moment");
        assert_eq!(behind(&history, 10, 0, 0), 0, "it has not told yet");
        assert_eq!(history.behind(at(10), 5, Duration::MAX), Duration::ZERO);
        assert_eq!(behind(&OffsetHistory::default(), 10, 5, 0), 0, "nothing is known");
    }

    #[test]
    fn who_follows_is_never_behind_though_it_tells_late() {
        let history = history((0..100).map(|second| (second, 1000 * second)));
        for silence in 0..2 {
            // A report that is a second old may be about the second before.
            assert_eq!(behind(&history, 99, 1000 * (99 - 1 - silence), silence), 0);
        }
        assert_eq!(behind(&history, 99, 1000 * 90, 0), 7);
    }

    #[test]
    fn few_moments_reach_far_back() {
        let mut history = OffsetHistory::default();
        let span = Duration::from_secs(3600);
        for second in 0..10_000 {
            history.note(at(second), None, second, span);
        }
        assert!(history.moments.len() <= MOMENTS_MAX);
        let lag = history.behind(at(9999), 9999 - 3000, Duration::ZERO).as_secs();
        assert!((2500..3000).contains(&lag), "{lag}");
        assert!(history.behind(at(9999), 1, Duration::ZERO) >= span);
    }

    #[test]
    fn one_that_does_not_get_on_is_known_to_be_behind_whatever_is_asked_for() {
        for seconds in 1..200 {
            let (mut history, span) = (OffsetHistory::default(), Duration::from_secs(seconds));
            for poll in 0..1000_u64 {
                let now = Time(poll * 503_000_000);
                history.note(now, Some("a"), 1000 + poll, span);
                if poll * 503 > 1000 * (2 * seconds + 5) {
                    for silence in [0, 1] {
                        let behind = history.behind(now, 1000, Duration::from_secs(silence));
                        assert!(behind > span, "{behind:?} for {span:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn another_history_is_begun_anew() {
        for (id, offset) in [(Some("b"), 5000), (Some("b"), 100), (None, 5000)] {
            let mut history = history([(1, 1000), (2, 2000)]);
            history.note(at(50), id, offset, SPAN);
            assert_eq!(history.moments.len(), 1, "{id:?}: of another name");
            assert_eq!(history.behind(at(50), 50, Duration::ZERO), Duration::ZERO);
        }
        let mut nameless = OffsetHistory::default();
        nameless.note(at(1), None, 1000, SPAN);
        nameless.note(at(2), None, 10, SPAN);
        assert_eq!(nameless.moments.len(), 1, "a server that was started anew");
    }

    #[test]
    fn what_is_told_late_changes_nothing() {
        let mut history = history([(1, 1000), (2, 2000), (3, 3000)]);
        history.note(at(2), Some("a"), 1900, SPAN);
        history.note(at(3), Some("a"), 2900, SPAN);
        assert_eq!(behind(&history, 9, 1500, 0), 9 - 2 - 1);
    }
}
