//! A member of the fleet: a proxy that receives documents.
//!
//! In: `handle_*`, with the outcome of each action. Out: [`Member::poll_action`], to be called after
//! every call in until it returns nothing, and [`Member::poll_deadline`]. A document goes through
//! three steps, one document at a time:
//!
//! ```text
//!   published ─► Save ─► on the disk ─► Apply ─► applied or refused ─► Applied, Report
//! ```
//! The latest document that comes meanwhile waits; those between are skipped.

use crate::events::Outbox;
use crate::limits::{NEWS_WITHIN, REPORT_AGAIN, REPORT_WITHIN, SAVE_AGAIN};
use crate::measuring::Measuring;
use crate::seeing::{ReportView, Seeing};
use crate::{
    About, Document, Event, GroupSeen, Measured, Published, RefusedVersion, Report, Saved,
    SlotsSeen, Version,
};
use keyway_base::Time;
use keyway_bus::NodeId;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// An order of the member for its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write this to the disk, so that it survives a crash, and call [`Member::handle_saved`].
    Save(Saved),
    /// Serve by this document, and call [`Member::handle_applied`].
    Apply(Document),
    /// Tell the bus that a version was applied, or was refused.
    Applied {
        /// The version.
        version: Version,
        /// True if it was applied.
        is_good: bool,
    },
    /// Send this to a publisher that was refused. It may get lost.
    Tell {
        /// The publisher.
        to: NodeId,
        /// The message.
        body: Vec<u8>,
    },
    /// Count requests since the first order with the same two numbers, and call
    /// [`Member::handle_measured`]. The first order counts none.
    Measure {
        /// The revision of the rollout.
        rollout: u64,
        /// The revision that is served by; 0 without a document.
        revision: u64,
    },
    /// Send this to the leader, and call [`Member::handle_reported`].
    Report {
        /// The leader.
        to: NodeId,
        /// The message.
        body: Vec<u8>,
    },
}

/// The reason why a published document is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is of another cluster.
    OtherCluster {
        /// The name of that cluster.
        theirs: String,
        /// The name of this member's cluster.
        ours: String,
    },
    /// A later leader has published before: the publisher was replaced and does not know it yet.
    OldLeader {
        /// The version that was published.
        theirs: Version,
        /// The newest version of this member.
        ours: Version,
    },
    /// A later leader publishes an earlier document: the coordinator was restored from a backup.
    WentBack {
        /// The version that was published.
        theirs: Version,
        /// The newest version of this member.
        ours: Version,
    },
    /// Two documents have one revision: the coordinator was restored from a backup, and went on.
    Differs {
        /// The version that was published.
        theirs: Version,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::OtherCluster { theirs, ours } => write!(
                f,
                "control is of cluster {theirs:?}, this process is of {ours:?}; correct `cluster` \
                 or `urls` in [control]"
            ),
            Refusal::OldLeader { theirs, ours } => write!(
                f,
                "document {theirs} is of a leader that was replaced; this process has {ours}"
            ),
            Refusal::WentBack { theirs, ours } => write!(
                f,
                "document {theirs} is older than {ours}, which this process has: the coordinator \
                 went back, as after a restored backup; apply the right document again by keyway \
                 ctl apply"
            ),
            Refusal::Differs { theirs } => write!(
                f,
                "document {theirs} is not what revision {} was before: the coordinator was \
                 restored from a backup and went on; apply the right document again by keyway ctl \
                 apply",
                theirs.revision
            ),
        }
    }
}

impl std::error::Error for Refusal {}

/// The outcome of the start: what the process serves by before any control has answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// The document of the file by which it serves; `None` without one.
    pub running: Option<Version>,
    /// The reason why the newest one of the file could not be applied.
    pub refused: Option<String>,
}

/// The step of the current document.
#[derive(Debug)]
enum Step {
    None,
    Saving(Document),
    /// It could not be saved, and is tried again then.
    Unsaved(Document, Time),
    Applying(Document),
}

/// Reports on their way to the leader.
#[derive(Debug, Default)]
struct Reports {
    /// The leader of the largest epoch.
    leader: Option<(NodeId, u64)>,
    is_due: bool,
    /// True if the next one has what the leader must know at once.
    is_news: bool,
    /// Earliest time of the next one.
    not_before: Option<Time>,
    /// The one that was sent and is not acknowledged.
    awaited: Option<Awaited>,
}

/// A report that was sent.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    since: Time,
    has_news: bool,
}

impl Reports {
    /// Returns when the acknowledgement of the one that was sent is given up. News wait for it no
    /// longer than [`NEWS_WITHIN`].
    fn gives_up_at(&self) -> Option<Time> {
        let Awaited { since, has_news } = self.awaited?;
        Some(since + if has_news || self.is_news { NEWS_WITHIN } else { REPORT_WITHIN })
    }

    /// Takes that the one that was sent has not arrived, as far as is known: it is sent again.
    fn give_up(&mut self) {
        if let Some(Awaited { has_news, .. }) = self.awaited.take() {
            self.is_due = true;
            self.is_news |= has_news;
        }
    }
}

/// A member of the fleet.
#[derive(Debug)]
pub struct Member {
    cluster: String,
    id: NodeId,
    about: About,
    /// The newest document on the disk.
    newest: Option<Document>,
    /// The document that is served by.
    good: Option<Document>,
    /// Its version.
    running: Option<Version>,
    refused: Option<RefusedVersion>,
    step: Step,
    next: Option<Document>,
    reports: Reports,
    measuring: Measuring,
    seeing: Seeing,
    /// The number of decisions about groups at the latest publication that was taken.
    decisions: u64,
    /// The maps of pools whose slots may move, as this process obeys them.
    slots: Vec<SlotsSeen>,
    events: Outbox,
    actions: VecDeque<Action>,
}

impl Member {
    /// Begins with the name of the cluster and the id of the member, what is on the disk, and how
    /// it went.
    pub fn new(
        (cluster, id): (&str, NodeId),
        about: About,
        saved: Option<Saved>,
        begun: Begun,
    ) -> Member {
        let (newest, older) = saved.map_or((None, None), |saved| (Some(saved.newest), saved.good));
        let is_running = |one: &&Document| begun.running == Some(one.version);
        let good = newest.as_ref().into_iter().chain(&older).find(is_running).cloned();
        let refused = newest
            .as_ref()
            .zip(begun.refused)
            .map(|(newest, why)| RefusedVersion::new(newest.version, &why));
        Member {
            cluster: cluster.to_owned(),
            id,
            about: about.cut(),
            newest,
            good,
            running: begun.running,
            refused,
            step: Step::None,
            next: None,
            reports: Reports::default(),
            measuring: Measuring::default(),
            seeing: Seeing::default(),
            decisions: 0,
            slots: Vec::new(),
            events: Outbox::default(),
            actions: VecDeque::new(),
        }
    }

    /// Returns the newest version on the disk.
    pub fn saved(&self) -> Option<Version> {
        self.newest.as_ref().map(|newest| newest.version)
    }

    /// Returns the version that is served by.
    pub fn running(&self) -> Option<Version> {
        self.running
    }

    /// Returns the reason why the newest version is not served by, if it was refused.
    pub fn refused(&self) -> Option<&RefusedVersion> {
        self.refused.as_ref()
    }

    /// Returns the leader, as far as this member knows.
    pub fn leader(&self) -> Option<NodeId> {
        self.reports.leader.map(|(leader, _)| leader)
    }

    /// Changes what the member is, as after a reload.
    pub fn set_about(&mut self, about: About, now: Time) {
        let about = about.cut();
        if about != self.about {
            self.about = about;
            self.report(now);
        }
    }

    /// Takes what this member sees of the groups of servers that it uses, as of now. A change is
    /// reported at once, and everything every [`crate::limits::SEEN_EVERY`]. A change waits for the
    /// acknowledgement of an earlier report no longer than [`NEWS_WITHIN`].
    pub fn observe(&mut self, groups: Vec<GroupSeen>, now: Time) {
        match self.seeing.take(groups, now) {
            ReportView::No => {}
            ReportView::Due => self.report(now),
            ReportView::Changed => self.report_news(now),
        }
    }

    /// Takes the number of decisions about groups at the latest publication that this member has
    /// taken. The next report has it.
    pub fn note_decisions(&mut self, decisions: u64) {
        self.decisions = decisions;
    }

    /// Takes the maps of pools whose slots may move, as this process obeys them now. A change is
    /// reported at once: the leader waits for it while slots are fenced.
    pub fn note_slots(&mut self, slots: Vec<SlotsSeen>, now: Time) {
        if self.slots != slots {
            self.slots = slots;
            self.report(now);
        }
    }

    /// Takes a number that no other process of this member has. The leader tells the events of one
    /// process from those of another by it.
    pub fn set_process(&mut self, process: u64) {
        self.events.set_process(process);
    }

    /// Takes an event of this process, for the leader.
    pub fn note_event(&mut self, event: Event, now: Time) {
        self.events.push(event);
        self.report(now);
    }

    /// Takes a published document. Returns whether its version is new here.
    ///
    /// # Errors
    /// Returns why it is refused. Nothing has changed then, and its publisher is told the newest
    /// version of this member.
    pub fn handle_published(&mut self, one: Published, now: Time) -> Result<bool, Refusal> {
        if one.cluster != self.cluster {
            let (theirs, ours) = (one.cluster, self.cluster.clone());
            return Err(Refusal::OtherCluster { theirs, ours });
        }
        let document = one.document_for(self.id).clone();
        if let Err(refusal) = self.check(&document) {
            let body = self.composed().encode();
            self.actions.push_back(Action::Tell { to: one.leader, body });
            return Err(refusal);
        }
        let leader = Some((one.leader, document.version.epoch));
        if self.reports.leader != leader {
            // A leader of before may be dead, and the next one knows nothing of this member.
            self.reports.leader = leader;
            self.give_up();
            self.reports.is_news = true;
        }
        self.measuring.follow(one.rollout.as_ref(), now);
        self.report(now);
        let is_new = self.floor().is_none_or(|floor| floor.version != document.version);
        if is_new {
            match self.step {
                Step::None | Step::Unsaved(..) => self.save(document),
                Step::Saving(_) | Step::Applying(_) => self.next = Some(document),
            }
        }
        Ok(is_new)
    }

    /// Returns the latest document that was accepted, on the disk or on its way there.
    fn floor(&self) -> Option<&Document> {
        let in_step = match &self.step {
            Step::Saving(one) | Step::Unsaved(one, _) => Some(one),
            Step::None | Step::Applying(_) => None,
        };
        self.next.as_ref().or(in_step).or(self.newest.as_ref())
    }

    fn check(&self, document: &Document) -> Result<(), Refusal> {
        let Some(floor) = self.floor() else { return Ok(()) };
        let (theirs, ours) = (document.version, floor.version);
        if theirs.epoch < ours.epoch {
            return Err(Refusal::OldLeader { theirs, ours });
        }
        if theirs.revision < ours.revision {
            return Err(Refusal::WentBack { theirs, ours });
        }
        match theirs.revision == ours.revision && document.text != floor.text {
            true => Err(Refusal::Differs { theirs }),
            false => Ok(()),
        }
    }

    fn save(&mut self, document: Document) {
        let good = self.good.clone().filter(|good| good.text != document.text);
        let saved = Saved { cluster: self.cluster.clone(), newest: document.clone(), good };
        self.actions.push_back(Action::Save(saved));
        self.step = Step::Saving(document);
    }

    fn apply(&mut self, document: Document) {
        self.actions.push_back(Action::Apply(document.clone()));
        self.step = Step::Applying(document);
    }

    /// Takes the outcome of [`Action::Save`].
    pub fn handle_saved(&mut self, outcome: Result<(), String>, now: Time) {
        let Step::Saving(document) = std::mem::replace(&mut self.step, Step::None) else { return };
        match outcome {
            Ok(()) => self.on_saved(document),
            Err(why) => {
                let why = format!("it cannot be saved: {why}");
                self.refused = Some(RefusedVersion::new(document.version, &why));
                self.step = Step::Unsaved(document, now + SAVE_AGAIN);
            }
        }
        self.go_on(now);
    }

    fn on_saved(&mut self, document: Document) {
        self.newest = Some(document.clone());
        let running: Option<&Arc<str>> = self.good.as_ref().map(|good| &good.text);
        let is_same = running.map_or(document.text.is_empty(), |text| *text == document.text);
        match is_same {
            // Only the leader is another.
            true => self.on_good(document),
            false => self.apply(document),
        }
    }

    fn on_good(&mut self, document: Document) {
        let version = document.version;
        if self.running.map(|running| running.revision) != Some(version.revision) {
            self.measuring.begin_again();
        }
        self.running = Some(version);
        self.good = Some(document);
        self.refused = None;
        self.actions.push_back(Action::Applied { version, is_good: true });
    }

    /// Takes the outcome of [`Action::Apply`].
    pub fn handle_applied(&mut self, outcome: Result<(), String>, now: Time) {
        let Step::Applying(document) = std::mem::replace(&mut self.step, Step::None) else {
            return;
        };
        match outcome {
            Ok(()) => self.on_good(document),
            Err(why) => {
                let version = document.version;
                self.refused = Some(RefusedVersion::new(version, &why));
                self.actions.push_back(Action::Applied { version, is_good: false });
            }
        }
        self.go_on(now);
    }

    /// Begins the next document, and reports the outcome of the latest.
    fn go_on(&mut self, now: Time) {
        if matches!(self.step, Step::None | Step::Unsaved(..))
            && let Some(next) = self.next.take()
        {
            self.save(next);
        }
        self.report(now);
    }

    /// Takes the outcome of [`Action::Report`]: whether the leader has the report.
    pub fn handle_reported(&mut self, has_arrived: bool, now: Time) {
        if self.reports.awaited.is_none() {
            return;
        }
        if has_arrived {
            self.reports.awaited = None;
            // Further events have a report of their own.
            self.reports.is_due |= self.events.settle(true);
        } else {
            self.give_up();
            let again = if self.reports.is_news { NEWS_WITHIN } else { REPORT_AGAIN };
            self.reports.not_before = Some(now + again);
        }
        self.send_due(now);
    }

    /// Takes the outcome of [`Action::Measure`].
    pub fn handle_measured(&mut self, measured: Measured, now: Time) {
        if self.measuring.take(measured) {
            self.report(now);
        }
    }

    /// Notes that the way to control has changed: the leader may not know this member any more.
    pub fn handle_joined(&mut self, now: Time) {
        self.report_news(now);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        if let Step::Unsaved(_, at) = &self.step
            && *at <= now
            && let Step::Unsaved(document, _) = std::mem::replace(&mut self.step, Step::None)
        {
            self.save(document);
        }
        if let Some(rollout) = self.measuring.take_due(now) {
            let revision = self.running.map_or(0, |running| running.revision);
            self.actions.push_back(Action::Measure { rollout, revision });
        }
        self.send_due(now);
    }

    /// Returns when [`Member::handle_timeout`] is to be called; `None` if nothing is due.
    pub fn poll_deadline(&self) -> Option<Time> {
        let again = match self.step {
            Step::Unsaved(_, at) => Some(at),
            _ => None,
        };
        let report = match (self.reports.gives_up_at(), self.reports.is_due) {
            (Some(until), _) => Some(until),
            (None, true) => self.reports.not_before,
            (None, false) => None,
        };
        again.into_iter().chain(report).chain(self.measuring.due()).min()
    }

    /// Returns the next order.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn report(&mut self, now: Time) {
        self.reports.is_due = true;
        self.reports.not_before = None;
        self.send_due(now);
    }

    /// Reports what the leader must know at once.
    fn report_news(&mut self, now: Time) {
        self.reports.is_news = true;
        self.report(now);
    }

    fn give_up(&mut self) {
        if self.reports.awaited.is_some() {
            self.reports.give_up();
            self.events.settle(false);
        }
    }

    /// Sends a report that is due. One is awaited at most; the next one has the latest state.
    fn send_due(&mut self, now: Time) {
        if self.reports.gives_up_at().is_some_and(|at| at <= now) {
            self.give_up();
        }
        let Some((to, _)) = self.reports.leader else { return };
        let is_time = self.reports.not_before.is_none_or(|at| at <= now);
        if !self.reports.is_due || !is_time || self.reports.awaited.is_some() {
            return;
        }
        self.reports.is_due = false;
        self.reports.not_before = None;
        let has_news = std::mem::take(&mut self.reports.is_news);
        self.reports.awaited = Some(Awaited { since: now, has_news });
        let events = self.events.send();
        let body = Report { events, ..self.composed() }.encode();
        self.actions.push_back(Action::Report { to, body });
    }

    fn composed(&self) -> Report {
        Report {
            cluster: self.cluster.clone(),
            about: self.about.clone(),
            saved: self.saved(),
            running: self.running,
            refused: self.refused.clone(),
            measured: self.measuring.latest(),
            groups: self.seeing.latest().to_vec(),
            decisions: self.decisions,
            slots: self.slots.clone(),
            events: None,
        }
    }
}
