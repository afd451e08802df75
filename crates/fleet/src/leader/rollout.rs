//! The leader's part of a rollout: it watches, and goes on or back.
//!
//! The coordinator has the state. A leader keeps nothing of it but the time since which it watches, so
//! a new leader watches anew.

use super::orders::Ordered;
use super::{ApplyFault, Leader, Note, OrderId, Place, Purpose};
use crate::audit::{AuditOutcome, Author, Record};
use crate::facts::{self, DocumentFact, ROLLOUT};
use crate::rollout::{Verdict, judge};
use crate::{
    Document, LeaderFact, Outcome, PublishedRollout, Rollout, RolloutState, Tally, Version,
};
use keyway_base::Time;
use keyway_bus::NodeId;

/// An operator's order to a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steering {
    /// Decide nothing until it is resumed. The share keeps its document.
    Pause,
    /// Watch anew.
    Resume,
    /// Go back now.
    Abort,
    /// Go on to all members now.
    Finish,
}

/// An order about the rollout that is going on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steer {
    /// Its id, which the answer has.
    pub id: OrderId,
    /// The order.
    pub what: Steering,
    /// The time, in seconds since 1970.
    pub at: u64,
    /// The operator.
    pub by: Author,
    /// The revision of the rollout that the operator means; `None` means the one that goes on.
    pub revision: Option<u64>,
}

impl Steering {
    fn text(self) -> &'static str {
        match self {
            Steering::Pause => "pause",
            Steering::Resume => "resume",
            Steering::Abort => "abort",
            Steering::Finish => "finish",
        }
    }
}

/// The end of a rollout.
struct End<'e> {
    outcome: Outcome,
    why: &'e str,
    by: &'e Author,
    /// The author of the document that all members get, for people.
    stored_by: &'e str,
    at: u64,
}

/// The watch of this leader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    revision: u64,
    since: Time,
}

impl Leader {
    /// Returns the latest rollout; `None` if there was none, or its key is damaged.
    pub(super) fn rollout(&self) -> Option<Rollout> {
        Rollout::decode(&self.facts.get(ROLLOUT)?.value)
    }

    /// Returns the rollout that is going on. A rollout over another document than the current one
    /// is none: somebody has stored that document past it.
    pub(super) fn active(&self) -> Option<Rollout> {
        let rollout = self.rollout().filter(|rollout| !rollout.has_ended())?;
        let current = self.current_revision()?;
        (rollout.base == current && rollout.revision > current).then_some(rollout)
    }

    /// Returns the rollout for members; `None` if there is none, or its document is damaged.
    pub(super) fn publishable(&self, epoch: u64) -> Option<PublishedRollout> {
        let rollout = self.active()?;
        let text = self.stored_document(rollout.revision)?.text;
        let version = Version { epoch, revision: rollout.revision };
        Some(PublishedRollout {
            document: Document { version, text },
            share: rollout.share,
            measure_every: rollout.measure_every(),
        })
    }

    /// Follows the rollout: tells of it once, and watches it.
    pub(super) fn follow_rollout(&mut self, now: Time) {
        let rollout = self.rollout();
        let told = rollout.as_ref().map(|one| (one.revision, one.state.clone()));
        let had_begun = std::mem::replace(&mut self.told_rollout, told.clone());
        if told != had_begun
            && let Some((revision, state)) = told
        {
            let was_seen = had_begun.is_some_and(|(seen, _)| seen == revision);
            match state {
                RolloutState::Watching => self.notes.push_back(Note::RolloutWatched(revision)),
                RolloutState::Paused => self.notes.push_back(Note::RolloutPaused(revision)),
                RolloutState::Ended { outcome, end, why } if was_seen => {
                    self.notes.push_back(Note::RolloutEnded(revision, outcome, end, why));
                }
                RolloutState::Ended { .. } => {}
            }
        }
        let active = self.active().filter(|one| one.state == RolloutState::Watching);
        self.watch = active.map(|rollout| {
            let same = self.watch.filter(|watch| watch.revision == rollout.revision);
            same.unwrap_or(Watch { revision: rollout.revision, since: now })
        });
    }

    /// Returns when the watch is over, if that is still to come.
    pub(super) fn watch_due(&self, now: Time) -> Option<Time> {
        let (watch, rollout) = self.watch.zip(self.rollout())?;
        Some(watch.since + rollout.watch()).filter(|due| *due > now)
    }

    /// Orders the transaction that ends a rollout, if it is time.
    pub(super) fn write_end(&mut self, leader: &LeaderFact, modified: u64, now: Time) -> bool {
        let Some(rollout) = self.active() else { return false };
        let (outcome, why) = match self.verdict(&rollout, now) {
            Some(Verdict::GoOn(why)) => (Outcome::WentOn, why),
            Some(Verdict::GoBack(why)) => (Outcome::WentBack, why),
            Some(Verdict::Wait(_)) | None => return false,
        };
        let by = Author::control();
        let stored_by = format!("the rollout of {}", rollout.by);
        let end = End { outcome, why: &why, by: &by, stored_by: &stored_by, at: self.wall_clock };
        match self.end_write((leader, modified), &end) {
            Ok((_, write)) => {
                self.write(write, Purpose::End);
                true
            }
            Err(_) => false,
        }
    }

    /// Returns what is to be done; `None` if this leader decides nothing.
    fn verdict(&self, rollout: &Rollout, now: Time) -> Option<Verdict> {
        let watch = self.watch?;
        // Members that know a later document: the coordinator went back, and an operator decides.
        let Place::Leads { fact, .. } = &self.place else { return None };
        let newest = Version { epoch: fact.epoch, revision: rollout.revision };
        if !newest.covers(self.roster.highest()) {
            let why = "members have a document that the coordinator does not know";
            return Some(Verdict::Wait(why.to_owned()));
        }
        let is_over = now.since(watch.since) >= rollout.watch();
        let (share, rest) = self.tallies(rollout);
        Some(judge::decide(rollout, (&share, &rest), self.refusal(rollout), is_over))
    }

    /// Returns the sums of the share and of the rest.
    fn tallies(&self, rollout: &Rollout) -> (Tally, Tally) {
        let (mut share, mut rest) = (Tally::default(), Tally::default());
        for (id, known) in self.roster.present() {
            let tally = if rollout.share.includes(id) { &mut share } else { &mut rest };
            tally.members += 1;
            let revision = rollout.revision_of(id);
            if known.report.running.map_or(0, |running| running.revision) != revision {
                continue;
            }
            tally.serving += 1;
            let is_of_it =
                |one: &crate::Measured| one.rollout == rollout.revision && one.revision == revision;
            if let Some(measured) = known.measured.filter(is_of_it) {
                tally.add(&measured);
            }
        }
        (share, rest)
    }

    /// Returns the refusal of a member of the share.
    fn refusal(&self, rollout: &Rollout) -> Option<String> {
        self.roster.present().find_map(|(id, known)| {
            let refused = known.report.refused.as_ref()?;
            let is_of_it = refused.version.revision == rollout.revision;
            is_of_it.then(|| format!("{id} cannot apply it: {}", refused.why))
        })
    }

    /// Returns the rollout for people.
    pub(super) fn rollout_view(&self, now: Time) -> Option<super::RolloutView> {
        let rollout = self.rollout()?;
        let is_active = self.active().is_some();
        let leads = self.leads();
        let (share, rest) = match is_active && leads {
            true => self.tallies(&rollout),
            false => Default::default(),
        };
        let says = match (&rollout.state, is_active && leads) {
            (RolloutState::Ended { why, .. }, _) => why.clone(),
            (RolloutState::Watching, true) => match self.verdict(&rollout, now) {
                Some(Verdict::Wait(why) | Verdict::GoOn(why) | Verdict::GoBack(why)) => why,
                None => String::new(),
            },
            (RolloutState::Paused, true) => {
                "it waits for an operator: resume, abort or finish it".to_owned()
            }
            (_, false) if leads => "another document was stored past it".to_owned(),
            (_, false) => "ask the node that leads".to_owned(),
        };
        let watched_for = self.watch.map(|watch| now.since(watch.since));
        Some(super::RolloutView { rollout, is_active, share, rest, says, watched_for })
    }

    /// Returns the transaction of an operator's order about the rollout.
    pub(super) fn steer_write(
        &self,
        order: &Steer,
        (leader, modified): (&LeaderFact, u64),
    ) -> Result<(Ordered, crate::Write), ApplyFault> {
        let rollout = self.active().ok_or(ApplyFault::NoRollout)?;
        let Steer { id, what, at, by, revision } = order;
        if revision.is_some_and(|revision| revision != rollout.revision) {
            return Err(ApplyFault::OtherRollout(rollout.revision));
        }
        let state = match what {
            Steering::Pause => RolloutState::Paused,
            Steering::Resume => RolloutState::Watching,
            Steering::Abort | Steering::Finish => {
                let (outcome, word) = match what {
                    Steering::Abort => (Outcome::WentBack, "aborted"),
                    _ => (Outcome::WentOn, "finished"),
                };
                let why = format!("{word} by {}", by.name);
                let end = End { outcome, why: &why, by, stored_by: &by.name, at: *at };
                let (version, write) = self.end_write((leader, modified), &end)?;
                return Ok((Ordered::new(*id, version, &write), write));
            }
        };
        let version = Version { epoch: leader.epoch, revision: rollout.revision };
        let mut write = self.write_of_leader(modified);
        let next = Rollout { state, ..rollout };
        write.put.push((ROLLOUT.to_owned(), next.encode()));
        let record = Record {
            at: *at,
            by: by.clone(),
            what: format!("rollout {}", what.text()),
            before: None,
            after: None,
            changes: Vec::new(),
            outcome: AuditOutcome::Done,
            why: format!("the rollout of document {}", version.revision),
            unlisted: 0,
        };
        self.put_audit(&mut write, record);
        Ok((Ordered::new(*id, version, &write), write))
    }

    /// Returns the transaction that ends the rollout: all members get a document with the next
    /// revision, and the text of the rollout or of before.
    fn end_write(
        &self,
        (leader, modified): (&LeaderFact, u64),
        end: &End<'_>,
    ) -> Result<(Version, crate::Write), ApplyFault> {
        let &End { outcome, why, by, stored_by, at } = end;
        let rollout = self.active().ok_or(ApplyFault::NoRollout)?;
        let document = match outcome {
            Outcome::WentOn => self.stored_document(rollout.revision),
            Outcome::WentBack => self.current(),
        };
        let text = document.ok_or(ApplyFault::Damaged)?.text;
        let version = self.next_version(leader)?;
        let mut write = self.write_of_leader(modified);
        self.put_epoch(&mut write, leader, version);
        let stored =
            DocumentFact { revision: version.revision, at, by: stored_by.to_owned(), text };
        self.put_document(&mut write, &stored);
        let revision = version.revision.to_string().into_bytes();
        write.put.push((facts::DOCUMENT.to_owned(), revision));
        let (what, source) = match outcome {
            Outcome::WentOn => ("rollout goes on", rollout.revision),
            Outcome::WentBack => ("rollout goes back", rollout.base),
        };
        let record = Record {
            at,
            by: by.clone(),
            what: what.to_owned(),
            before: Some(rollout.base),
            after: Some(version.revision),
            changes: vec![format!("all members get the document of revision {source}")],
            outcome: AuditOutcome::Done,
            why: why.to_owned(),
            unlisted: 0,
        };
        self.put_audit(&mut write, record);
        let ended = rollout.ended(outcome, version.revision, why);
        write.put.push((ROLLOUT.to_owned(), ended.encode()));
        Ok((version, write))
    }

    /// Returns a new rollout of the document that gets this version.
    pub(super) fn new_rollout(
        &self,
        order: &super::Apply,
        percent: u8,
        watch: std::time::Duration,
        (version, base): (Version, u64),
    ) -> Result<Rollout, ApplyFault> {
        let members: Vec<NodeId> = self.roster.present().map(|(id, _)| id).collect();
        let (share, chosen) =
            crate::Share::choose(version.revision, percent, &members).ok_or(ApplyFault::TooFew)?;
        Ok(Rollout {
            revision: version.revision,
            base,
            share,
            percent,
            chosen,
            watch_seconds: watch.as_secs(),
            at: order.at,
            by: order.by.name.clone(),
            state: RolloutState::Watching,
        })
    }
}
