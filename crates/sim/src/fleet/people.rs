//! A control node's process and a member's process.

use super::clock::Clocks;
use super::engine::{Engine, USABLE};
use super::sight::Sight;
use crate::random::Random;
use keyway_base::Time;
use keyway_bus::NodeId;
use keyway_fleet::{
    About, Begun, Document, Event, Identity, Leader, Measured, Member, MemberAction, Published,
    Saved, Severity, Ticket, Version, Write,
};
use std::collections::{BTreeSet, VecDeque};

/// The name of the cluster.
pub(super) const CLUSTER: &str = "sim";

/// A transaction on its way to the coordinator.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub ticket: Ticket,
    pub write: Write,
    pub session: u64,
}

/// A control node's process while it lives.
#[derive(Debug)]
pub(super) struct Control {
    pub leader: Leader,
    pub clocks: Clocks,
    /// The session, and when it was last renewed by the clock of the process.
    pub session: Option<(u64, Time)>,
    /// True if the machine was not told yet that the session is lost.
    pub believes: bool,
    /// The revision that it has watched to; `None` before it lists.
    pub watched: Option<u64>,
    pub sent: Option<Sent>,
    /// The document that its node of the bus publishes.
    pub topic: Option<Published>,
    /// The events that it has taken.
    pub had: BTreeSet<(NodeId, String)>,
    /// It does nothing until then.
    pub hangs_until: Time,
    /// It does not reach the coordinator until then.
    pub cut_until: Time,
}

pub(super) fn control_id(nth: usize) -> NodeId {
    NodeId::of(1, 1, 0, nth as u64 + 1).unwrap_or_default()
}

pub(super) fn member_id(nth: usize) -> NodeId {
    NodeId::of(1, 3, 0, nth as u64 + 1).unwrap_or_default()
}

impl Control {
    pub fn new(nth: usize, clocks: Clocks) -> Control {
        let me = Identity {
            cluster: CLUSTER.to_owned(),
            node: control_id(nth),
            urls: vec![format!("mem://control{nth}")],
            admin: None,
        };
        let mut leader = Leader::new(me);
        leader.keep_audit(super::audit::KEPT);
        Control {
            leader,
            clocks,
            session: None,
            believes: false,
            watched: None,
            sent: None,
            topic: None,
            had: BTreeSet::new(),
            hangs_until: Time(0),
            cut_until: Time(0),
        }
    }

    /// Keeps the session, and watches: one step of the thread that speaks to the coordinator.
    pub fn speak(&mut self, engine: &mut Engine, random: &mut Random, now: Time) {
        let (is_cut, own) = (self.cut_until > now, self.clocks.at(now));
        if let Some((session, renewed)) = self.session {
            if !is_cut && engine.renew(session, now) {
                self.session = Some((session, own));
            } else if own.since(renewed) >= USABLE || !is_cut {
                // It is told, sooner or later: meanwhile the machine believes.
                self.session = None;
            }
        }
        if self.session.is_none() && self.believes {
            if random.percent(50) {
                self.believes = false;
                self.watched = None;
                self.leader.handle_session(None, own);
            }
            return;
        }
        if is_cut {
            if random.percent(10) {
                self.leader.handle_fault("cut off", false, own);
            }
            return;
        }
        match (self.session, self.watched) {
            (None, _) => {
                let session = engine.begin(now);
                self.session = Some((session, own));
                self.believes = true;
                self.watched = None;
                self.leader.handle_session(Some(session), own);
            }
            (Some(_), None) => {
                let (revision, facts) = engine.list();
                self.watched = Some(revision);
                self.leader.handle_listed(revision, facts, own);
            }
            (Some(_), Some(seen)) if seen > engine.revision() => {
                self.leader.handle_fault("the revision went back", true, own);
            }
            (Some(_), Some(seen)) => {
                if let Some((revision, changes)) = engine.after(seen) {
                    self.watched = Some(revision);
                    self.leader.handle_changes(revision, changes, own);
                }
            }
        }
    }
}

/// A member's process, and its disk.
#[derive(Debug)]
pub(super) struct Proxy {
    pub member: Member,
    pub clocks: Clocks,
    pub disk: Option<Vec<u8>>,
    /// The newest version on the disk.
    pub saved: Option<Version>,
    pub running: Option<Document>,
    pub pending: VecDeque<MemberAction>,
    /// The version of the topic that its node of the bus has: such nodes take later ones only.
    pub topic: Option<(u64, u64)>,
    /// The requests of the rollout that goes on.
    measured: Measured,
    /// The number of the report that it awaits a word about.
    pub awaited: Option<u64>,
    /// Its view of a group of servers.
    pub sight: Sight,
    /// The number of this process, and the events that it has had.
    pub process: u64,
    pub happened: u64,
    pub hangs_until: Time,
}

impl Proxy {
    pub fn start(nth: usize, disk: Option<Vec<u8>>, clocks: Clocks) -> Proxy {
        let saved = disk.as_deref().and_then(|bytes| Saved::decode(bytes).ok());
        let choices = saved.iter().flat_map(|saved| [Some(&saved.newest), saved.good.as_ref()]);
        let running = choices.flatten().find(|one| is_good(one)).cloned();
        let version = running.as_ref().map(|one| one.version);
        let is_refused = saved.as_ref().is_some_and(|saved| Some(saved.newest.version) != version);
        let begun =
            Begun { running: version, refused: is_refused.then(|| "not usable".to_owned()) };
        let newest = saved.as_ref().map(|saved| saved.newest.version);
        let member = Member::new((CLUSTER, member_id(nth)), About::default(), saved, begun);
        let (pending, hangs_until) = (VecDeque::new(), Time(0));
        let (topic, measured, process, happened) = (None, Measured::default(), 0, 0);
        let sight = Sight::default();
        Proxy {
            member,
            clocks,
            disk,
            saved: newest,
            running,
            pending,
            topic,
            measured,
            awaited: None,
            sight,
            process,
            happened,
            hangs_until,
        }
    }

    /// Lets events happen, each with the number of the process and its own.
    pub fn happen(&mut self, count: u64, now: Time) {
        for _ in 0..count {
            let text = format!("{} {}", self.process, self.happened);
            self.happened += 1;
            let event = Event::new(self.clocks.wall(), "test", Severity::Info, &text);
            self.member.note_event(event, self.clocks.at(now));
        }
    }

    /// Counts requests for a rollout: some more than at the count before. All of them fail while
    /// the member serves by a sick document.
    pub fn measure(&mut self, rollout: u64, revision: u64, random: &mut Random, now: Time) {
        if (self.measured.rollout, self.measured.revision) != (rollout, revision) {
            self.measured = Measured { rollout, revision, ..Measured::default() };
        } else {
            let more = random.between(0, 80);
            self.measured.requests += more;
            self.measured.p99_micros = 900;
            let text = self.running.as_ref().map_or("", |one| &one.text);
            self.measured.errors += if is_sick(text) { more } else { 0 };
        }
        self.member.handle_measured(self.measured, self.clocks.at(now));
    }

    /// Finishes what the machine has ordered of the disk or of the process.
    pub fn work(&mut self, is_disk_full: bool, now: Time) {
        match self.pending.pop_front() {
            Some(MemberAction::Save(_)) if is_disk_full => {
                self.member.handle_saved(Err("full".to_owned()), self.clocks.at(now));
            }
            Some(MemberAction::Save(saved)) => {
                self.disk = Some(saved.encode());
                self.saved = Some(saved.newest.version);
                self.member.handle_saved(Ok(()), self.clocks.at(now));
            }
            Some(MemberAction::Apply(document)) => {
                let outcome = if is_good(&document) { Ok(()) } else { Err("wrong".to_owned()) };
                if outcome.is_ok() {
                    self.running = Some(document);
                }
                self.member.handle_applied(outcome, self.clocks.at(now));
            }
            _ => {}
        }
    }
}

/// Returns whether a member can apply a document.
pub(super) fn is_good(document: &Document) -> bool {
    !document.text.starts_with("# bad")
}

/// Returns whether requests fail at members that serve by a document.
pub(super) fn is_sick(text: &str) -> bool {
    text.starts_with("# sick")
}
