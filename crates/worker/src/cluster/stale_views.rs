//! Decides whether to believe a report with an earlier epoch than the known one: a single reporter
//! is not believed, a majority is.
//!
//! Epochs go back if a primary is no longer watched and then is watched again, or if the node with
//! the latest epoch is removed. A wrong epoch that one server reported may also never be reached.

use std::collections::BTreeMap;

/// The source of a report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speaker {
    /// Its index in its pool.
    pub(crate) server: u16,
    /// Number of sources of its kind, whether they answer or not.
    pub(crate) of: usize,
    /// How often each must have reported the same earlier epoch before that counts.
    pub(crate) times: u32,
}

#[cfg(test)]
impl Speaker {
    /// The only source.
    pub(crate) const ALONE: Speaker = Speaker { server: 0, of: 1, times: 1 };
}

/// The use of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is current, as far as is known.
    Current,
    /// It is older than what is known.
    Stale,
    /// It is older, and a majority agrees: it is true.
    Earlier,
}

/// The reports about one primary, or a cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct StaleViews {
    /// The epoch that each reported last, and how often consecutively, since a later one was
    /// reported.
    told: BTreeMap<u16, (u64, u32)>,
    /// The epochs that a minority reported. Only later ones count again.
    outvoted: BTreeMap<u16, u64>,
}

impl StaleViews {
    pub(super) fn weigh(&mut self, by: Speaker, told: Option<u64>, known: Option<u64>) -> Verdict {
        let (Some(told), Some(known)) = (told, known) else { return Verdict::Current };
        let is_outvoted = self.outvoted.get(&by.server).is_some_and(|&before| told <= before);
        if told > known && is_outvoted {
            return Verdict::Stale;
        }
        self.outvoted.remove(&by.server);
        if told > known {
            self.told.clear();
        }
        let (epoch, times) = self.told.entry(by.server).or_insert((told, 0));
        *times = if *epoch == told { times.saturating_add(1) } else { 1 };
        *epoch = told;
        if told >= known {
            return Verdict::Current;
        }
        let agrees = |&&(epoch, times): &&(u64, u32)| epoch == told && times >= by.times;
        if self.told.values().filter(agrees).count() * 2 <= by.of {
            return Verdict::Stale;
        }
        let later = self.told.iter().filter(|(_, (epoch, _))| *epoch > told);
        self.outvoted.extend(later.map(|(&server, &(epoch, _))| (server, epoch)));
        self.told.clear();
        Verdict::Earlier
    }

    /// Returns whether the source at an index last reported an earlier epoch than this.
    pub(super) fn is_behind(&self, server: u16, known: Option<u64>) -> bool {
        self.told.get(&server).is_some_and(|&(epoch, _)| Some(epoch) < known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weigh(stale_views: &mut StaleViews, server: u16, told: u64, known: u64) -> Verdict {
        stale_views.weigh(Speaker { server, of: 3, times: 2 }, Some(told), Some(known))
    }

    #[test]
    fn most_of_all_are_believed_once_each_has_said_so_often_enough() {
        let mut stale_views = StaleViews::default();
        for _ in 0..10 {
            assert_eq!(weigh(&mut stale_views, 0, 1, 5), Verdict::Stale, "nobody else says so");
        }
        assert_eq!(weigh(&mut stale_views, 1, 1, 5), Verdict::Stale, "not often enough");
        assert_eq!(weigh(&mut stale_views, 1, 2, 5), Verdict::Stale, "something else");
        assert_eq!(weigh(&mut stale_views, 1, 1, 5), Verdict::Stale);
        assert_eq!(weigh(&mut stale_views, 1, 1, 5), Verdict::Earlier);
        assert_eq!(weigh(&mut stale_views, 0, 1, 1), Verdict::Current);
    }

    #[test]
    fn who_was_outvoted_has_to_tell_of_something_new() {
        let mut stale_views = StaleViews::default();
        assert_eq!(weigh(&mut stale_views, 2, u64::MAX, 5), Verdict::Current);
        for server in [0, 1, 0] {
            assert_eq!(weigh(&mut stale_views, server, 5, u64::MAX), Verdict::Stale);
        }
        assert_eq!(weigh(&mut stale_views, 1, 5, u64::MAX), Verdict::Earlier);
        assert_eq!(weigh(&mut stale_views, 2, u64::MAX, 5), Verdict::Stale);
        assert_eq!(weigh(&mut stale_views, 0, 6, 5), Verdict::Current);
        assert_eq!(weigh(&mut stale_views, 2, u64::MAX, 6), Verdict::Stale);
        assert_eq!(weigh(&mut stale_views, 2, 6, 6), Verdict::Current);
        assert_eq!(weigh(&mut stale_views, 2, 7, 6), Verdict::Current, "it has come round");
    }

    #[test]
    fn a_later_epoch_makes_what_was_told_before_it_count_no_more() {
        let mut stale_views = StaleViews::default();
        for server in [0, 0, 1] {
            assert_eq!(weigh(&mut stale_views, server, 5, 6), Verdict::Stale);
        }
        assert_eq!(weigh(&mut stale_views, 2, 7, 6), Verdict::Current);
        assert_eq!(weigh(&mut stale_views, 1, 5, 7), Verdict::Stale);
        assert!(stale_views.is_behind(1, Some(7)) && !stale_views.is_behind(0, Some(7)));
    }
}
