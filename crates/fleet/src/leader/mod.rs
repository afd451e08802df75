//! A control node: it campaigns for the leadership, and leads.
//!
//! In: what the coordinator tells (`handle_session`, `handle_listed`, `handle_changes`,
//! `handle_written`, `handle_fault`), what the bus tells (`handle_report`, `handle_joined`,
//! `handle_left`), orders of operators ([`Leader::apply`]) and time. Out: [`Leader::poll_action`],
//! [`Leader::poll_note`] and [`Leader::poll_event`], to be called after every call in until they
//! return nothing.
//!
//! The node keeps a copy of what the coordinator holds and decides by it alone. It writes one
//! transaction at a time, and every transaction of a leader compares the leader's key: a leader that
//! was replaced changes nothing. A node acts as leader only while its copy has reached its own
//! election, so it knows every document that an earlier leader has stored.

mod audit;
mod groups;
mod note;
mod orders;
mod rollout;
mod roster;
mod slots;
mod view;
#[cfg(test)]
mod world;

pub use audit::{PassedRequest, RefusedRequest};
pub use groups::{Failover, GroupState, GroupView, ServerView};
pub use note::Note;
pub use orders::{Apply, ApplyFault, OrderId, RolloutOrder};
pub use rollout::{Steer, Steering};
pub use slots::{PlanView, SlotsChange, SlotsOrder, SlotsView};
pub use view::{FleetView, LeaderView, MemberView, RolloutView, StoredDocument};

use crate::audit::{Author, Record};
use crate::events::Inboxes;
use crate::facts::{self, DocumentFact, EPOCH, LEADER};
use crate::limits::{AUDIT_KEPT, BELIEVED_MAX, WRITE_AGAIN};
use crate::{
    Document, Event, Fact, GroupOrder, KeyChange, LeaderFact, MoverOrder, Published,
    PublishedGroups, Report, RolloutState, SentEvents, Version, When, Write, Written,
};
use audit::Requests;
use groups::Groups;
use keyway_base::Time;
use keyway_bus::NodeId;
use orders::{Ordered, Orders};
use rollout::Watch;
use roster::Roster;
use slots::Moves;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Identifies a transaction that was ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// The identity of this control node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name of the cluster.
    pub cluster: String,
    /// Its node of the bus.
    pub node: NodeId,
    /// The addresses of its node.
    pub urls: Vec<String>,
    /// The address of its admin listener.
    pub admin: Option<String>,
}

/// An order of the control node for its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Execute this transaction, and call [`Leader::handle_written`].
    Write(Ticket, Write),
    /// List everything and watch from there, and call [`Leader::handle_listed`].
    List,
    /// Be the root of the bus.
    Lead,
    /// Be below that node on the bus.
    Follow(LeaderFact),
    /// Be below nobody, and not the root: nobody leads, or nobody is known to.
    Adrift,
    /// Publish this on the bus.
    Publish(Published),
    /// Publish the decided primaries of groups on the bus.
    PublishGroups(PublishedGroups),
    /// Have servers of a group do this, and call [`Leader::commanded`].
    Command(GroupOrder),
    /// Have a mover of a pool do this, and call [`Leader::moved`] with each of its reports.
    Move(MoverOrder),
    /// End the mover of this pool. It writes nothing more.
    EndMove(String),
    /// An order of an operator has ended.
    Answer(OrderId, Result<Version, ApplyFault>),
}

/// The place of this node in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Adrift,
    Below(LeaderFact),
    /// It leads, by this key of the coordinator.
    Leads {
        fact: LeaderFact,
        modified: u64,
    },
}

/// A transaction that was ordered and has no outcome yet.
#[derive(Debug)]
enum Purpose {
    Campaign,
    Order(Ordered),
    /// The end of a rollout, which the leader has decided.
    End,
    /// The entries of requests that have no transaction of their own.
    Requests(Vec<Record>),
    Members(Vec<NodeId>),
    /// A step of a group, and the line of the log about it.
    Group(Option<Note>),
}

/// A control node.
#[derive(Debug)]
pub struct Leader {
    me: Identity,
    place: Place,
    /// The session of this process. A leader's key that has another number is not its own.
    session: Option<u64>,
    /// The copy of what the coordinator holds, and its revision.
    facts: BTreeMap<String, Fact>,
    revision: u64,
    /// True if the copy is of a listing and of all changes since.
    is_whole: bool,
    /// The copy must reach this revision before the next decision.
    await_revision: u64,
    writing: Option<(Ticket, Purpose)>,
    next_ticket: u64,
    /// Earliest time of the next write, after one that failed.
    not_before: Option<Time>,
    /// The document that this node has published.
    published: Option<Published>,
    roster: Roster,
    orders: Orders,
    groups: Groups,
    moves: Moves,
    /// Requests without an entry of the audit log.
    requests: Requests,
    /// Entries of the audit log that the coordinator keeps.
    audit_kept: u64,
    /// The watch of the rollout that is going on, unless it is paused.
    watch: Option<Watch>,
    /// The rollout that was told, and its state.
    told_rollout: Option<(u64, RolloutState)>,
    /// The time of the owner, in seconds since 1970, for documents that the leader stores itself.
    wall_clock: u64,
    /// The damaged key that was told.
    damaged: Option<&'static str>,
    /// The fault for which this node acts no more.
    ended: Option<String>,
    /// The latest fault of the coordinator, until it answers.
    fault: Option<String>,
    actions: VecDeque<Action>,
    notes: VecDeque<Note>,
    inboxes: Inboxes,
    events: VecDeque<(NodeId, Event)>,
}

impl Leader {
    /// Creates a node that knows nothing of the coordinator yet.
    pub fn new(me: Identity) -> Leader {
        Leader {
            me,
            place: Place::Adrift,
            session: None,
            facts: BTreeMap::new(),
            revision: 0,
            is_whole: false,
            await_revision: 0,
            writing: None,
            next_ticket: 0,
            not_before: None,
            published: None,
            roster: Roster::default(),
            orders: Orders::default(),
            groups: Groups::default(),
            moves: Moves::default(),
            requests: Requests::default(),
            audit_kept: AUDIT_KEPT,
            watch: None,
            told_rollout: None,
            wall_clock: 0,
            damaged: None,
            ended: None,
            fault: None,
            actions: VecDeque::new(),
            notes: VecDeque::new(),
            inboxes: Inboxes::default(),
            events: VecDeque::new(),
        }
    }

    /// Returns the next order.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns the next change of state to be logged.
    pub fn poll_note(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    /// Returns the next event of a member.
    pub fn poll_event(&mut self) -> Option<(NodeId, Event)> {
        self.events.pop_front()
    }

    /// Returns when [`Leader::handle_timeout`] is to be called; `None` if nothing is due. A time
    /// that has passed at `now` is due at once.
    pub fn poll_deadline(&self, now: Time) -> Option<Time> {
        let roster = matches!(self.place, Place::Leads { .. }).then(|| self.roster.due()).flatten();
        // While nothing can be decided, groups are looked at as soon as something can.
        let groups = self.groups.due().into_iter().chain(self.moves.due());
        let groups = groups.filter(|_| self.decides());
        let due = self.not_before.into_iter().chain(roster).chain(groups);
        due.chain(self.watch_due(now)).chain(self.orders.tell_by()).min()
    }

    /// Takes the time of the wall clock, in seconds since 1970. Documents that the leader stores by
    /// itself, as at the end of a rollout, have it.
    pub fn set_wall_clock(&mut self, seconds: u64) {
        self.wall_clock = seconds;
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.not_before.is_some_and(|at| at <= now) {
            self.not_before = None;
        }
        if matches!(self.place, Place::Leads { .. }) {
            self.roster.forget_silent(now);
        }
        self.decide(now);
    }

    /// Notes that a session of this process has begun, with a number that no other session has, or
    /// that it is lost. A listing follows on the beginning.
    pub fn handle_session(&mut self, session: Option<u64>, now: Time) {
        if matches!(self.place, Place::Leads { .. }) && session != self.session {
            self.notes.push_back(Note::SessionLost);
            self.stand_down();
        }
        self.session = session;
        self.is_whole &= session.is_none();
        self.decide(now);
    }

    /// Takes everything that the coordinator holds, as of one revision.
    pub fn handle_listed(&mut self, revision: u64, facts: BTreeMap<String, Fact>, now: Time) {
        self.facts = facts;
        self.groups.urge();
        self.revision = revision;
        self.is_whole = true;
        self.fault = None;
        self.settle_unknown();
        if !matches!(self.place, Place::Leads { .. }) {
            self.roster.load(&self.facts, now);
        }
        self.decide(now);
    }

    /// Takes the changes of a revision that follows on the copy.
    pub fn handle_changes(&mut self, revision: u64, changes: Vec<KeyChange>, now: Time) {
        if !self.is_whole || revision <= self.revision {
            return;
        }
        self.revision = revision;
        self.fault = None;
        self.groups.urge();
        for KeyChange { key, fact } in changes {
            if !matches!(self.place, Place::Leads { .. }) {
                self.roster.load_one(&key, fact.as_ref(), now);
            }
            match fact {
                Some(fact) => drop(self.facts.insert(key, fact)),
                None => drop(self.facts.remove(&key)),
            }
        }
        self.decide(now);
    }

    /// Notes that the coordinator does not answer, or refuses. With `is_final` this node does
    /// nothing more: the coordinator went back to an older state.
    pub fn handle_fault(&mut self, what: &str, is_final: bool, now: Time) {
        if self.fault.as_deref() != Some(what) {
            self.notes.push_back(Note::Fault(what.to_owned()));
        }
        self.fault = Some(what.to_owned());
        if is_final && self.ended.is_none() {
            self.ended = Some(what.to_owned());
            self.stand_down();
            // No listing follows that would tell.
            self.give_up_unknown();
        }
        self.decide(now);
    }

    /// Takes the outcome of a transaction.
    pub fn handle_written(&mut self, ticket: Ticket, written: Written, now: Time) {
        let Some((_, purpose)) = self.writing.take_if(|(known, _)| *known == ticket) else {
            return;
        };
        self.groups.urge();
        match written {
            Written::Done(revision) => {
                self.await_revision = self.await_revision.max(revision);
                self.on_done(purpose, now);
            }
            Written::Refused => {
                self.again(now);
                self.list();
                self.on_failed(purpose, ApplyFault::Changed, now);
            }
            Written::Unknown(why) => {
                self.again(now);
                self.list();
                self.on_unknown(purpose, why, now);
            }
            Written::Failed(why) => {
                self.again(now);
                if self.fault.as_ref() != Some(&why) {
                    self.notes.push_back(Note::Fault(why.clone()));
                }
                self.fault = Some(why.clone());
                self.on_failed(purpose, ApplyFault::Coordinator(why), now);
            }
        }
        self.decide(now);
    }

    fn again(&mut self, now: Time) {
        self.not_before = Some(now + WRITE_AGAIN);
    }

    fn list(&mut self) {
        self.is_whole = false;
        self.actions.push_back(Action::List);
    }

    fn on_done(&mut self, purpose: Purpose, now: Time) {
        match purpose {
            Purpose::Campaign => {}
            Purpose::Order(order) => self.orders.await_copy(&order, now),
            Purpose::Requests(records) => self.requests.settle(records, true),
            Purpose::End | Purpose::Members(_) => {}
            Purpose::Group(note) => self.notes.extend(note),
        }
    }

    fn on_failed(&mut self, purpose: Purpose, fault: ApplyFault, now: Time) {
        match purpose {
            // A group's next step is decided anew.
            Purpose::Campaign | Purpose::End | Purpose::Group(_) => {}
            Purpose::Order(order) => self.answer(order.id, Err(fault)),
            Purpose::Requests(records) => self.requests.settle(records, false),
            Purpose::Members(members) => self.roster.note_unwritten(members, now),
        }
    }

    fn on_unknown(&mut self, purpose: Purpose, why: String, now: Time) {
        match purpose {
            // The listing shows whether a rollout has ended, and the step of a group.
            Purpose::Campaign | Purpose::End | Purpose::Group(_) => {}
            // They may be there. A refused request has one entry at most.
            Purpose::Requests(records) => self.requests.settle(records, true),
            Purpose::Order(order) if self.ended.is_some() => {
                self.answer(order.id, Err(ApplyFault::Unknown(why)));
            }
            Purpose::Order(order) => self.orders.await_listing(order, why),
            Purpose::Members(members) => self.roster.note_unwritten(members, now),
        }
    }

    /// Takes a report of a member.
    pub fn handle_report(&mut self, from: NodeId, body: &[u8], now: Time) {
        let leads = matches!(self.place, Place::Leads { .. });
        let mut report = match Report::decode(body) {
            Some(report) if report.cluster == self.me.cluster => report,
            _ if !leads => return,
            Some(report) => {
                return self.notes.push_back(Note::OtherCluster(from, report.cluster));
            }
            None => return self.notes.push_back(Note::NoReport(from)),
        };
        // The bus acknowledges the report also for a node that has just been replaced.
        if let Some(sent) = report.events.take() {
            self.take_events(from, sent);
        }
        if !leads {
            return;
        }
        // The coordinator does not keep them: they change every second.
        self.groups.note_decisions(std::mem::take(&mut report.decisions));
        self.take_views(from, std::mem::take(&mut report.groups), now);
        if self.moves.take(from, std::mem::take(&mut report.slots)) {
            self.groups.urge();
        }
        let published = self.published.as_ref().map(Published::stamp);
        self.roster.take(from, report, published, now, &mut self.notes);
        self.decide(now);
    }

    fn take_events(&mut self, from: NodeId, sent: SentEvents) {
        let (lost, events) = self.inboxes.take(from, sent);
        if lost > 0 {
            self.notes.push_back(Note::EventsLost(from, lost));
        }
        self.events.extend(events.into_iter().map(|event| (from, event)));
    }

    /// Takes the latest version of the topic that nodes below have on the bus. They do not take the
    /// version of a leader whose coordinator went back, and do not report to it.
    pub fn handle_latest_below(&mut self, version: Version) {
        let published = self.published.as_ref().map(Published::stamp);
        if published.is_some_and(|ours| !ours.covers(version)) && self.roster.note_ahead(version) {
            self.notes.push_back(Note::WentBack(version));
        }
    }

    /// Notes that a node has joined the bus below this one.
    pub fn handle_joined(&mut self, id: NodeId) {
        self.roster.note_joined(id);
    }

    /// Notes that a node has left the bus, or was lost.
    pub fn handle_left(&mut self, id: NodeId, now: Time) {
        self.groups.forget(id);
        self.moves.forget(id);
        if self.roster.note_left(id, now) && matches!(self.place, Place::Leads { .. }) {
            self.notes.push_back(Note::Silent(id));
            self.decide(now);
        }
    }

    /// Forgets a member that has ended for good, as an operator says: nothing waits for it any more. Until
    /// it reports again it counts as no member.
    ///
    /// # Errors
    /// This node does not lead, the member is on the bus, or there is none of this id.
    pub fn forget_member(
        &mut self,
        id: NodeId,
        (at, by): (u64, Author),
        now: Time,
    ) -> Result<(), ApplyFault> {
        if !self.leads() {
            let leader = match &self.place {
                Place::Below(leader) => Some(leader.clone()),
                Place::Leads { .. } | Place::Adrift => None,
            };
            return Err(ApplyFault::NotLeading(leader));
        }
        let forgotten = self.roster.forget(id, now);
        forgotten.map_err(|why| ApplyFault::NotFit(format!("{id} {why}")))?;
        let (what, outcomes) = (format!("forget member {id}"), Vec::new());
        self.note_passed(PassedRequest { at, by, what, outcomes }, now);
        self.groups.urge();
        self.decide(now);
        Ok(())
    }

    fn answer(&mut self, order: OrderId, outcome: Result<Version, ApplyFault>) {
        self.actions.push_back(Action::Answer(order, outcome));
    }

    /// Returns whether the copy is whole and of now, and nothing is being written.
    fn decides(&self) -> bool {
        let is_whole = self.is_whole && self.revision >= self.await_revision;
        is_whole && self.writing.is_none() && self.not_before.is_none() && self.ended.is_none()
    }

    /// Does the next thing that is to be done.
    fn decide(&mut self, now: Time) {
        self.answer_stored(now);
        self.refuse_orders();
        if self.ended.is_some() || !self.is_whole || self.writing.is_some() {
            return;
        }
        if self.revision < self.await_revision || self.not_before.is_some_and(|at| at > now) {
            return;
        }
        let found = self.facts.get(LEADER);
        match found.map(|fact| (LeaderFact::decode(&fact.value), fact.modified)) {
            Some((Some(fact), modified)) if Some(fact.token) == self.session => {
                self.lead(fact, modified, now);
            }
            // An earlier process of this node, or an earlier session of this one, whose key goes
            // with its lease.
            Some((Some(fact), _)) if fact.id() == self.me.node => self.drift(),
            Some((Some(fact), _)) => self.follow(fact),
            Some((None, _)) => {
                self.note_damaged(LEADER);
                self.drift();
            }
            None => {
                self.drift();
                if let Some(session) = self.session {
                    self.campaign(session);
                }
            }
        }
    }

    /// Tells of a damaged key, once.
    fn note_damaged(&mut self, key: &'static str) {
        if self.damaged.replace(key) != Some(key) {
            self.notes.push_back(Note::Damaged(key.to_owned()));
        }
    }

    fn campaign(&mut self, session: u64) {
        let (epoch, seen) = match self.facts.get(EPOCH) {
            Some(fact) => {
                (facts::number(&fact.value), When::Modified(EPOCH.to_owned(), fact.modified))
            }
            None => (Some(0), When::Absent(EPOCH.to_owned())),
        };
        let Some(epoch) = epoch.filter(|epoch| *epoch < BELIEVED_MAX) else {
            return self.note_damaged(EPOCH);
        };
        let fact = self.fact_of(session, epoch + 1);
        let write = Write {
            when: vec![When::Absent(LEADER.to_owned()), seen],
            put: vec![(EPOCH.to_owned(), (epoch + 1).to_string().into_bytes())],
            put_bound: vec![(LEADER.to_owned(), fact.encode())],
            delete: Vec::new(),
        };
        self.write(write, Purpose::Campaign);
    }

    fn fact_of(&self, session: u64, epoch: u64) -> LeaderFact {
        let Identity { node, urls, admin, .. } = self.me.clone();
        LeaderFact { node: node.0, epoch, token: session, urls, admin }
    }

    fn write(&mut self, write: Write, purpose: Purpose) {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.writing = Some((ticket, purpose));
        self.actions.push_back(Action::Write(ticket, write));
    }

    fn lead(&mut self, fact: LeaderFact, modified: u64, now: Time) {
        let place = Place::Leads { fact: fact.clone(), modified };
        if self.place != place {
            if !matches!(self.place, Place::Leads { .. }) {
                self.actions.push_back(Action::Lead);
                self.roster.begin(now);
            }
            self.notes.push_back(Note::Leads(fact.epoch));
            self.place = place;
        }
        self.publish(fact.epoch, now);
        self.publish_groups(fact.epoch, now);
        self.follow_rollout(now);
        let looks = self.groups.takes_look(now) || self.moves.due().is_some_and(|due| due <= now);
        if looks {
            self.tend_groups(&fact, now);
            self.tend_slots(now);
        }
        let is_writing = (looks
            && (self.write_group(&fact, modified, now) || self.write_slots(&fact, modified, now)))
            || self.write_order(&fact, modified)
            || self.write_end(&fact, modified, now)
            || self.write_requests(modified);
        if !is_writing {
            self.write_members(modified, now);
        }
    }

    /// Publishes the stored document, if it is not what was published.
    fn publish(&mut self, epoch: u64, now: Time) {
        let newest = self.active().map(|active| active.revision);
        let revision = newest.or_else(|| self.current_revision());
        let known = self.published.as_ref().map(Published::stamp);
        if known.is_some() && known == revision.map(|revision| Version { epoch, revision }) {
            return;
        }
        let Some(stored) = self.stored() else { return };
        let version = Version { epoch, revision: stored.revision };
        let document = Document { version, text: stored.text };
        let rollout = self.publishable(epoch);
        let (cluster, leader) = (self.me.cluster.clone(), self.me.node);
        let published = Published { cluster, leader, document, rollout };
        let stamp = published.stamp();
        if known == Some(stamp) || known.is_some_and(|known| !stamp.covers(known)) {
            return;
        }
        self.published = Some(published.clone());
        self.roster.note_published(stamp, now);
        self.notes.push_back(Note::Published(stamp));
        self.actions.push_back(Action::Publish(published));
    }

    /// Returns the current document; `None` if what the coordinator holds is damaged.
    fn stored(&mut self) -> Option<DocumentFact> {
        let stored = self.current();
        match stored {
            Some(_) => self.damaged = None,
            None => self.note_damaged(facts::DOCUMENT),
        }
        stored
    }

    fn current(&self) -> Option<DocumentFact> {
        let Some(fact) = self.facts.get(facts::DOCUMENT) else {
            let (by, text) = (String::new(), Arc::from(""));
            return Some(DocumentFact { revision: 0, at: 0, by, text });
        };
        self.stored_document(facts::number(&fact.value)?)
    }

    /// Returns the revision of the current document, without a look at the document.
    fn current_revision(&self) -> Option<u64> {
        self.facts.get(facts::DOCUMENT).map_or(Some(0), |fact| facts::number(&fact.value))
    }

    fn stored_document(&self, revision: u64) -> Option<DocumentFact> {
        let found = self.facts.get(&facts::document_key(revision))?;
        DocumentFact::decode(&found.value).filter(|found| found.revision == revision)
    }

    fn write_members(&mut self, modified: u64, now: Time) {
        let Some((members, write)) = self.roster.write(&self.facts, modified, now) else { return };
        self.write(write, Purpose::Members(members));
    }

    fn follow(&mut self, fact: LeaderFact) {
        let place = Place::Below(fact.clone());
        if self.place == place {
            return;
        }
        self.forget_lead();
        self.notes.push_back(Note::Follows(fact.id(), fact.epoch));
        self.actions.push_back(Action::Follow(fact));
        self.place = place;
    }

    fn drift(&mut self) {
        if self.place != Place::Adrift {
            self.notes.push_back(Note::NobodyLeads);
        }
        self.stand_down();
    }

    /// Leads no more, and follows nobody before the coordinator has told who leads.
    fn stand_down(&mut self) {
        if self.place != Place::Adrift {
            self.forget_lead();
            self.actions.push_back(Action::Adrift);
            self.place = Place::Adrift;
        }
    }

    fn forget_lead(&mut self) {
        self.published = None;
        self.watch = None;
        self.forget_slots();
        self.forget_groups();
    }
}
