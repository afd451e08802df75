//! Orders of operators: another document, and what a rollout is to do.

use super::rollout::Steer;
use super::{Leader, Place, Purpose};
use crate::audit::{self, AuditOutcome, Author, Record};
use crate::facts::{self, DOCUMENT, DocumentFact, EPOCH, LEADER, ROLLOUT};
use crate::limits::{
    BELIEVED_MAX, DOCUMENT_LEN_MAX, DOCUMENTS_KEPT, ORDERS_MAX, WATCH_MAX, WATCH_MIN,
};
use crate::{LeaderFact, Version, When, Write};
use keyway_base::Time;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Longest time for which the answer to an order that was carried out waits for the copy to show it.
const SHOWN_WITHIN: Duration = Duration::from_millis(500);

/// Identifies an order of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrderId(pub u64);

/// An order to store another document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apply {
    /// Its id, which the answer has.
    pub id: OrderId,
    /// The revision that the operator has seen. The order is refused if it is not the current one.
    pub base: u64,
    /// The document.
    pub text: Arc<str>,
    /// The time, in seconds since 1970.
    pub at: u64,
    /// The operator.
    pub by: Author,
    /// The revision whose document it is, if the operator goes back to an earlier one.
    pub back_to: Option<u64>,
    /// The differences from the document of `base`, one line each, for the audit log.
    pub changes: Vec<String>,
    /// The rollout by which the members get it; `None` if all get it at once.
    pub rollout: Option<RolloutOrder>,
}

impl Apply {
    /// Returns the author for people.
    fn shown_by(&self) -> String {
        match self.back_to {
            Some(revision) => format!("{}, back to {revision}", self.by.name),
            None => self.by.name.clone(),
        }
    }

    /// Returns the entry of the audit log.
    fn record(&self, before: u64, after: u64) -> Record {
        let what = match (self.back_to, self.rollout) {
            (None, None) => "apply".to_owned(),
            (Some(back_to), None) => format!("rollback to {back_to}"),
            (None, Some(RolloutOrder { percent, .. })) => format!("apply to {percent} %"),
            (Some(back_to), Some(RolloutOrder { percent, .. })) => {
                format!("rollback to {back_to}, for {percent} %")
            }
        };
        Record {
            at: self.at,
            by: self.by.clone(),
            what,
            before: Some(before),
            after: Some(after),
            changes: self.changes.clone(),
            outcome: AuditOutcome::Done,
            why: String::new(),
            unlisted: 0,
        }
    }
}

/// The way in which the members get a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RolloutOrder {
    /// The part of the members that get it first, in percent: 1 to 99.
    pub percent: u8,
    /// The time for which the leader watches these, [`WATCH_MIN`] to [`WATCH_MAX`].
    pub watch: Duration,
}

/// The reason why a document was not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyFault {
    /// This node does not lead. The leader, if it is known.
    NotLeading(Option<LeaderFact>),
    /// The current revision is another than the operator has seen.
    OtherBase(u64),
    /// The document is too long.
    TooLong,
    /// Too many orders wait.
    Busy,
    /// The leader or the document has changed meanwhile.
    Changed,
    /// The coordinator has not done it, for this reason.
    Coordinator(String),
    /// The coordinator's answer was lost: the document may be stored, or may still be.
    Unknown(String),
    /// A key of the coordinator is damaged.
    Damaged,
    /// A rollout of this revision is going on.
    RollingOut(u64),
    /// No rollout is going on.
    NoRollout,
    /// A rollout needs two members on the bus.
    TooFew,
    /// The share, or the time of the watch, is out of bounds.
    OutOfBounds,
    /// Members have a document that the coordinator does not know.
    WentBack,
    /// The servers of a group have not been asked yet.
    NotYet,
    /// A pool is no group, for this reason.
    NoGroup(String),
    /// A group cannot fail over as an operator has ordered, for this reason.
    NotFit(String),
    /// The rollout is another than the operator has seen.
    OtherRollout(u64),
}

impl fmt::Display for ApplyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApplyFault::NotLeading(Some(leader)) => {
                let admin = leader.admin.as_deref().unwrap_or("an unknown address");
                write!(f, "{} leads: ask its admin listener at {admin}", leader.id())
            }
            ApplyFault::NotLeading(None) => {
                f.write_str("nobody leads, or the coordinator does not answer: try again")
            }
            ApplyFault::OtherBase(current) => write!(
                f,
                "the current document has revision {current}: look at it, and name that revision \
                 as the base"
            ),
            ApplyFault::TooLong => write!(f, "a document has at most {DOCUMENT_LEN_MAX} bytes"),
            ApplyFault::Busy => f.write_str("other documents wait to be stored: try again"),
            ApplyFault::Changed => {
                f.write_str("the document or the leader has changed meanwhile: look, and try again")
            }
            ApplyFault::Coordinator(why) => write!(f, "not stored: {why}"),
            ApplyFault::Unknown(why) => write!(
                f,
                "it may be stored, or may still be: {why}; keyway ctl fleet tells which revision \
                 is current"
            ),
            ApplyFault::RollingOut(revision) => write!(
                f,
                "a rollout of revision {revision} is going on: wait for its end, or abort it by \
                 keyway ctl rollout abort"
            ),
            ApplyFault::NoRollout => f.write_str("no rollout is going on"),
            ApplyFault::OtherRollout(revision) => {
                write!(
                    f,
                    "another rollout is going on meanwhile, of revision {revision}: look at it"
                )
            }
            ApplyFault::TooFew => {
                f.write_str("a rollout needs two members on the bus: apply the document to all")
            }
            ApplyFault::OutOfBounds => write!(
                f,
                "a share is 1 to 99 percent, and is watched for {} to {} seconds",
                WATCH_MIN.as_secs(),
                WATCH_MAX.as_secs()
            ),
            ApplyFault::WentBack => f.write_str(
                "members have a document that the coordinator does not know: apply the right one \
                 to all",
            ),
            ApplyFault::NotYet => {
                f.write_str("control has not asked the servers of the pool yet: try again")
            }
            ApplyFault::NoGroup(why) | ApplyFault::NotFit(why) => f.write_str(why),
            ApplyFault::Damaged => f.write_str(
                "the current document in the coordinator cannot be read: restore the coordinator",
            ),
        }
    }
}

impl std::error::Error for ApplyFault {}

/// An order that waits.
#[derive(Debug)]
enum Order {
    Apply(Apply),
    Steer(Steer),
}

impl Order {
    fn id(&self) -> OrderId {
        match self {
            Order::Apply(order) => order.id,
            Order::Steer(order) => order.id,
        }
    }
}

/// An order whose transaction was sent.
#[derive(Debug)]
pub(super) struct Ordered {
    pub id: OrderId,
    pub version: Version,
    /// The trace of the transaction in the coordinator: its last entry of the audit log, with its key.
    /// No other transaction has that entry, for it names the author and the time.
    entry: Option<(String, Vec<u8>)>,
}

impl Ordered {
    /// Creates the order that this transaction carries out.
    pub fn new(id: OrderId, version: Version, write: &Write) -> Ordered {
        let is_entry = |put: &&(String, Vec<u8>)| put.0.starts_with(audit::ENTRIES);
        let entry = write.put.iter().rev().find(is_entry).cloned();
        Ordered { id, version, entry }
    }
}

/// Orders that wait.
#[derive(Debug, Default)]
pub(super) struct Orders {
    waiting: VecDeque<Order>,
    /// An order whose transaction has an unknown outcome for this reason, until everything was
    /// listed again.
    unknown: Option<(Ordered, String)>,
    /// The orders that the coordinator has carried out, and that the copy does not show yet.
    stored: Vec<(OrderId, Version)>,
    /// Until when these are answered.
    tell_by: Option<Time>,
}

impl Orders {
    /// Notes an order that the coordinator has carried out. Its answer comes when the copy shows it:
    /// a client that reads next sees what it has changed.
    pub fn await_copy(&mut self, order: &Ordered, now: Time) {
        self.stored.push((order.id, order.version));
        self.tell_by.get_or_insert(now + SHOWN_WITHIN);
    }

    /// Returns when orders that were carried out are answered at the latest.
    pub fn tell_by(&self) -> Option<Time> {
        self.tell_by
    }

    /// Notes that the outcome of a transaction is not known.
    pub fn await_listing(&mut self, order: Ordered, why: String) {
        self.unknown = Some((order, why));
    }
}

impl Leader {
    /// Takes an order of an operator. Its answer is [`super::Action::Answer`].
    pub fn apply(&mut self, order: Apply, now: Time) {
        if order.text.len() > DOCUMENT_LEN_MAX {
            return self.answer(order.id, Err(ApplyFault::TooLong));
        }
        let is_bounded = |one: &RolloutOrder| {
            (1..=99).contains(&one.percent) && (WATCH_MIN..=WATCH_MAX).contains(&one.watch)
        };
        if !order.rollout.as_ref().is_none_or(is_bounded) {
            return self.answer(order.id, Err(ApplyFault::OutOfBounds));
        }
        self.take_order(Order::Apply(order), now);
    }

    /// Takes an order about the rollout. Its answer is [`super::Action::Answer`], with the version of
    /// the rollout, or that of its end.
    pub fn steer(&mut self, order: Steer, now: Time) {
        self.take_order(Order::Steer(order), now);
    }

    fn take_order(&mut self, order: Order, now: Time) {
        if self.orders.waiting.len() >= ORDERS_MAX {
            return self.answer(order.id(), Err(ApplyFault::Busy));
        }
        self.orders.waiting.push_back(order);
        self.decide(now);
    }

    /// Answers orders that were carried out, if the copy shows them, or will not do so soon.
    pub(super) fn answer_stored(&mut self, now: Time) {
        let Some(tell_by) = self.orders.tell_by else { return };
        let is_shown = self.is_whole && self.revision >= self.await_revision;
        let leads = matches!(self.place, Place::Leads { .. });
        if is_shown || now >= tell_by || !leads || self.fault.is_some() {
            self.orders.tell_by = None;
            for (id, version) in std::mem::take(&mut self.orders.stored) {
                self.answer(id, Ok(version));
            }
        }
    }

    /// Answers orders that this node cannot carry out, as it does not lead.
    pub(super) fn refuse_orders(&mut self) {
        let leader = match &self.place {
            Place::Leads { .. } => return,
            Place::Below(leader) => Some(leader.clone()),
            Place::Adrift => None,
        };
        for order in std::mem::take(&mut self.orders.waiting) {
            self.answer(order.id(), Err(ApplyFault::NotLeading(leader.clone())));
        }
    }

    /// Orders the transaction of the next order. Returns whether one was ordered.
    pub(super) fn write_order(&mut self, leader: &LeaderFact, modified: u64) -> bool {
        while let Some(order) = self.orders.waiting.pop_front() {
            let id = order.id();
            let ordered = match &order {
                Order::Apply(order) => self.order_write(order, leader, modified),
                Order::Steer(order) => self.steer_write(order, (leader, modified)),
            };
            match ordered {
                Ok((ordered, write)) => {
                    self.write(write, Purpose::Order(ordered));
                    return true;
                }
                Err(fault) => self.answer(id, Err(fault)),
            }
        }
        false
    }

    fn order_write(
        &self,
        order: &Apply,
        leader: &LeaderFact,
        modified: u64,
    ) -> Result<(Ordered, Write), ApplyFault> {
        let current = self.current().ok_or(ApplyFault::Damaged)?;
        if order.base != current.revision {
            return Err(ApplyFault::OtherBase(current.revision));
        }
        if let Some(active) = self.active() {
            return Err(ApplyFault::RollingOut(active.revision));
        }
        let version = self.next_version(leader)?;
        let mut write = self.write_of_leader(modified);
        let (revision, by) = (version.revision, order.shown_by());
        let stored = DocumentFact { revision, at: order.at, by, text: Arc::clone(&order.text) };
        self.put_document(&mut write, &stored);
        self.put_audit(&mut write, order.record(current.revision, revision));
        match order.rollout {
            None => {
                self.put_epoch(&mut write, leader, version);
                write.put.push((DOCUMENT.to_owned(), revision.to_string().into_bytes()));
            }
            Some(RolloutOrder { percent, watch }) => {
                let known = Version { epoch: leader.epoch, revision: current.revision };
                if !known.covers(self.roster.highest()) {
                    return Err(ApplyFault::WentBack);
                }
                let rollout =
                    self.new_rollout(order, percent, watch, (version, current.revision))?;
                write.put.push((ROLLOUT.to_owned(), rollout.encode()));
            }
        }
        Ok((Ordered::new(order.id, version, &write), write))
    }

    /// Returns the version of the next document. A member that is ahead takes no version that does
    /// not cover its own. The operator has decided what is right, so the next version is above all
    /// that members have.
    pub(super) fn next_version(&self, leader: &LeaderFact) -> Result<Version, ApplyFault> {
        let current = self.current().ok_or(ApplyFault::Damaged)?.revision;
        let rollout = self.rollout().map_or(0, |rollout| rollout.revision);
        let known = Version { epoch: leader.epoch, revision: current.max(rollout) };
        let all = self.roster.highest().join(known);
        let revision = all.revision.saturating_add(1);
        let epoch = if all.epoch > leader.epoch { all.epoch + 1 } else { leader.epoch };
        match revision > BELIEVED_MAX + 1 {
            true => Err(ApplyFault::Damaged),
            false => Ok(Version { epoch, revision }),
        }
    }

    /// Returns a transaction that changes nothing yet. It is refused if this node does not lead any
    /// more, or if the document or the rollout is another than its copy says.
    pub(super) fn write_of_leader(&self, modified: u64) -> Write {
        let as_known = |key: &str| match self.facts.get(key) {
            Some(fact) => When::Modified(key.to_owned(), fact.modified),
            None => When::Absent(key.to_owned()),
        };
        let leads = When::Modified(LEADER.to_owned(), modified);
        Write { when: vec![leads, as_known(DOCUMENT), as_known(ROLLOUT)], ..Write::default() }
    }

    /// Adds the epoch of a version, if it is another than that of the leader.
    pub(super) fn put_epoch(&self, write: &mut Write, leader: &LeaderFact, version: Version) {
        let epoch = version.epoch;
        if epoch != leader.epoch {
            write.put.push((EPOCH.to_owned(), epoch.to_string().into_bytes()));
            write.put_bound.push((LEADER.to_owned(), self.fact_of(leader.token, epoch).encode()));
        }
    }

    /// Adds a document, and makes room for it.
    pub(super) fn put_document(&self, write: &mut Write, stored: &DocumentFact) {
        write.put.push((facts::document_key(stored.revision), stored.encode()));
        write.delete = self.old_documents();
    }

    /// Returns the keys of the documents that make room for another one.
    fn old_documents(&self) -> Vec<String> {
        let kept = self.facts.keys().filter(|key| key.starts_with(facts::DOCUMENTS));
        let kept: Vec<&String> = kept.collect();
        let over = (kept.len() + 1).saturating_sub(DOCUMENTS_KEPT as usize);
        // A few at a time: a transaction has a bound.
        kept.into_iter().take(over.min(8)).cloned().collect()
    }

    /// Tells the outcome of an order whose answer was lost, as far as a listing shows it.
    pub(super) fn settle_unknown(&mut self) {
        let Some((order, why)) = self.orders.unknown.take() else { return };
        let is_there = order.entry.as_ref().is_some_and(|(key, value)| {
            self.facts.get(key).is_some_and(|fact| *fact.value == **value)
        });
        let outcome = if is_there { Ok(order.version) } else { Err(ApplyFault::Unknown(why)) };
        self.answer(order.id, outcome);
    }

    /// Tells that the outcome of an order whose answer was lost stays unknown.
    pub(super) fn give_up_unknown(&mut self) {
        if let Some((order, why)) = self.orders.unknown.take() {
            self.answer(order.id, Err(ApplyFault::Unknown(why)));
        }
    }
}
