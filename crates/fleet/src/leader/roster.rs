//! The members, as the leader knows them.

use super::Note;
use crate::facts::{self, Fact, LEADER};
use crate::limits::{
    BELIEVED_MAX, FORGET_AFTER, MEMBERS_EVERY, MEMBERS_MAX, MEMBERS_PER_WRITE, WRITE_LEN_MAX,
};
use crate::{Measured, Report, Version, When, Write};
use keyway_base::Time;
use keyway_bus::NodeId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A member.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// Its report, without its measure.
    pub report: Report,
    /// Its latest measure, of whatever rollout.
    pub measured: Option<Measured>,
    /// Time since which it is not on the bus, or has not reported to this leader.
    pub silent_since: Option<Time>,
}

#[derive(Debug, Default)]
pub(super) struct Roster {
    members: BTreeMap<NodeId, Known>,
    /// Members whose entry in the coordinator is to be written or deleted.
    dirty: BTreeSet<NodeId>,
    write_at: Option<Time>,
    /// No member is forgotten before that. Members that came back are no reason to look for the next
    /// one at once, so it may be too early.
    forget_at: Option<Time>,
    /// When the current version was published.
    published: Option<(Version, Time)>,
    /// The largest numbers that members have.
    highest: Version,
    /// True if a member was left out, which was told.
    is_full: bool,
}

impl Roster {
    /// Takes all members of a listing. Those have not reported to this node.
    pub fn load(&mut self, facts: &BTreeMap<String, Fact>, now: Time) {
        self.members.clear();
        self.dirty.clear();
        self.forget_at = None;
        for (key, fact) in facts.range(facts::MEMBERS.to_owned()..) {
            if !key.starts_with(facts::MEMBERS) {
                break;
            }
            self.load_one(key, Some(fact), now);
        }
    }

    /// Takes a change of a member's entry, which another leader has written.
    pub fn load_one(&mut self, key: &str, fact: Option<&Fact>, now: Time) {
        let Some(text) = key.strip_prefix(facts::MEMBERS) else { return };
        let Ok(id) = text.parse::<NodeId>() else { return };
        match fact.and_then(|fact| facts::member(key, fact)) {
            Some((id, report)) if self.has_room(id) => {
                self.note_highest(&report);
                let report = Report { measured: None, events: None, ..report };
                self.members.insert(id, Known { report, measured: None, silent_since: Some(now) });
                self.note_silent(now);
            }
            Some(_) => {}
            None => drop(self.members.remove(&id)),
        }
    }

    fn has_room(&self, id: NodeId) -> bool {
        self.members.len() < MEMBERS_MAX || self.members.contains_key(&id)
    }

    /// Begins to lead: nobody has reported yet.
    pub fn begin(&mut self, now: Time) {
        self.published = None;
        self.members.values_mut().for_each(|known| known.silent_since = Some(now));
        self.forget_at = (!self.members.is_empty()).then(|| now + FORGET_AFTER);
    }

    /// Notes that a member is silent since that time.
    fn note_silent(&mut self, since: Time) {
        let at = since + FORGET_AFTER;
        self.forget_at = Some(self.forget_at.map_or(at, |known| known.min(at)));
    }

    pub fn note_published(&mut self, version: Version, now: Time) {
        self.published = Some((version, now));
    }

    /// Returns the version that is published, and since when.
    pub fn published(&self) -> Option<(Version, Time)> {
        self.published
    }

    /// Returns the members on the bus.
    pub fn present(&self) -> impl Iterator<Item = (NodeId, &Known)> {
        self.members().filter(|(_, known)| known.silent_since.is_none())
    }

    /// Returns the largest epoch and revision that members have.
    pub fn highest(&self) -> Version {
        self.highest
    }

    pub fn members(&self) -> impl Iterator<Item = (NodeId, &Known)> {
        self.members.iter().map(|(id, known)| (*id, known))
    }

    fn note_highest(&mut self, report: &Report) {
        self.note_ahead(report.saved.unwrap_or_default());
    }

    /// Notes a version that members have. Returns whether it is news.
    pub fn note_ahead(&mut self, version: Version) -> bool {
        let is_believed = version.epoch <= BELIEVED_MAX && version.revision <= BELIEVED_MAX;
        let is_news = is_believed && !self.highest.covers(version);
        if is_news {
            self.highest = self.highest.join(version);
        }
        is_news
    }

    /// Takes a report.
    pub fn take(
        &mut self,
        from: NodeId,
        mut report: Report,
        published: Option<Version>,
        now: Time,
        notes: &mut VecDeque<Note>,
    ) {
        if !self.has_room(from) {
            if !std::mem::replace(&mut self.is_full, true) {
                notes.push_back(Note::TooMany(from));
            }
            return;
        }
        // The coordinator does not keep it: it changes every few seconds.
        let measured = report.measured.take();
        self.note_highest(&report);
        let known = self.members.get(&from);
        let was_there = known.is_some_and(|known| known.silent_since.is_none());
        let before = known.map(|known| &known.report);
        if !was_there {
            notes.push_back(Note::Joined(from));
        }
        let is_ahead = |report: &Report| {
            report.saved.is_some_and(|saved| published.is_some_and(|ours| !ours.covers(saved)))
        };
        if let Some(saved) = report.saved
            && is_ahead(&report)
            && before.is_none_or(|before| before.saved != report.saved)
        {
            notes.push_back(Note::Ahead(from, saved));
        }
        if let Some(refused) = &report.refused
            && before.is_none_or(|before| before.refused != report.refused)
        {
            notes.push_back(Note::Refused(from, refused.version, refused.why.clone()));
        }
        if before != Some(&report) {
            self.dirty.insert(from);
            self.write_at.get_or_insert(now + MEMBERS_EVERY);
        }
        self.members.insert(from, Known { report, measured, silent_since: None });
    }

    pub fn note_joined(&mut self, id: NodeId) {
        if let Some(known) = self.members.get_mut(&id) {
            known.silent_since = None;
        }
    }

    /// Notes that a node is not on the bus any more. Returns whether it was a member that was there.
    pub fn note_left(&mut self, id: NodeId, now: Time) -> bool {
        let Some(known) = self.members.get_mut(&id) else { return false };
        known.silent_since.is_none() && {
            known.silent_since = Some(now);
            self.note_silent(now);
            true
        }
    }

    /// Forgets a member that is silent.
    ///
    /// # Errors
    /// It is not silent, or there is none of this id.
    pub fn forget(&mut self, id: NodeId, now: Time) -> Result<(), &'static str> {
        match self.members.get(&id) {
            None => return Err("is no member that is known"),
            Some(known) if known.silent_since.is_none() => {
                return Err("is on the bus: only a member that has ended can be forgotten");
            }
            Some(_) => {}
        }
        self.members.remove(&id);
        self.dirty.insert(id);
        self.is_full = false;
        self.write_at = Some(now);
        Ok(())
    }

    /// Forgets members that are silent for long.
    pub fn forget_silent(&mut self, now: Time) {
        if self.forget_at.is_none_or(|at| at > now) {
            return;
        }
        let is_over = |known: &Known| {
            known.silent_since.is_some_and(|since| now.since(since) >= FORGET_AFTER)
        };
        let over: Vec<NodeId> =
            self.members.iter().filter(|(_, known)| is_over(known)).map(|(id, _)| *id).collect();
        for id in over {
            self.members.remove(&id);
            self.dirty.insert(id);
            self.is_full = false;
            self.write_at.get_or_insert(now);
        }
        let silent = self.members.values().filter_map(|known| known.silent_since).min();
        self.forget_at = silent.map(|since| since + FORGET_AFTER);
    }

    /// Returns when something is due.
    pub fn due(&self) -> Option<Time> {
        let written = self.write_at.filter(|_| !self.dirty.is_empty());
        written.into_iter().chain(self.forget_at).min()
    }

    /// Returns the transaction for the entries of members that are due, if there is one.
    pub fn write(
        &mut self,
        facts: &BTreeMap<String, Fact>,
        modified: u64,
        now: Time,
    ) -> Option<(Vec<NodeId>, Write)> {
        if self.dirty.is_empty() || self.write_at.is_none_or(|at| at > now) {
            return None;
        }
        let mut write =
            Write { when: vec![When::Modified(LEADER.to_owned(), modified)], ..Write::default() };
        let (mut written, mut len) = (Vec::new(), 0);
        for id in self.dirty.iter().take(MEMBERS_PER_WRITE) {
            let key = facts::member_key(*id);
            match self.members.get(id) {
                Some(known) => {
                    let value = known.report.encode();
                    len += value.len();
                    if len > WRITE_LEN_MAX && !written.is_empty() {
                        break;
                    }
                    write.put.push((key, value));
                }
                None if facts.contains_key(&key) => write.delete.push(key),
                None => {}
            }
            written.push(*id);
        }
        // A member that reports meanwhile is due again.
        self.dirty.retain(|id| !written.contains(id));
        self.write_at = (!self.dirty.is_empty()).then(|| now + MEMBERS_EVERY);
        let is_empty = write.put.is_empty() && write.delete.is_empty();
        (!is_empty).then_some((written, write))
    }

    /// Notes that entries were not written. They are due again.
    pub fn note_unwritten(&mut self, members: Vec<NodeId>, now: Time) {
        self.dirty.extend(members);
        self.write_at.get_or_insert(now + MEMBERS_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn report() -> Report {
        Report {
            cluster: "test".to_owned(),
            about: crate::About::default(),
            saved: None,
            running: None,
            refused: None,
            measured: None,
            groups: Vec::new(),
            decisions: 0,
            slots: Vec::new(),
            events: None,
        }
    }

    proptest! {
        /// Whatever comes and goes, nobody is forgotten too late: the roster is due at the time at
        /// which the first silent member is over, or before, and then forgets exactly those.
        #[test]
        fn a_silent_member_is_forgotten_in_time(
            steps in proptest::collection::vec((0u8..5, 1u64..6, 0u64..30), 1..60)
        ) {
            let mut roster = Roster::default();
            let mut now = Time(0);
            for (step, id, hours) in steps {
                now = now + Duration::from_secs(hours * 3600);
                let id = NodeId(id);
                match step {
                    0 | 1 => roster.take(id, report(), None, now, &mut VecDeque::new()),
                    2 => drop(roster.note_left(id, now)),
                    3 => roster.note_joined(id),
                    _ => roster.begin(now),
                }
                let silent = |roster: &Roster| {
                    let all = roster.members.values().filter_map(|known| known.silent_since);
                    all.min().map(|since| since + FORGET_AFTER)
                };
                let first = silent(&roster);
                prop_assert!(first.is_none_or(|first| roster.forget_at.is_some_and(|at| at <= first)));
                roster.forget_silent(now);
                prop_assert!(silent(&roster).is_none_or(|first| first > now));
                // It is not due all the time.
                prop_assert!(roster.forget_at.is_none_or(|at| at > now));
            }
        }
    }
}
