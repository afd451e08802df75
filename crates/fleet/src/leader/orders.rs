//! Orders of operators: another document.

use super::{Leader, Place, Purpose};
use crate::facts::{self, DOCUMENT, DocumentFact, EPOCH, LEADER};
use crate::limits::{BELIEVED_MAX, DOCUMENT_LEN_MAX, DOCUMENTS_KEPT, ORDERS_MAX};
use crate::{LeaderFact, Version, When, Write};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

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
    /// The operator, as far as it is known.
    pub by: String,
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
            ApplyFault::Damaged => f.write_str(
                "the current document in the coordinator cannot be read: restore the coordinator",
            ),
        }
    }
}

impl std::error::Error for ApplyFault {}

/// An order whose transaction was sent.
#[derive(Debug)]
pub(super) struct Ordered {
    pub id: OrderId,
    pub version: Version,
    text: Arc<str>,
}

/// Orders that wait.
#[derive(Debug, Default)]
pub(super) struct Orders {
    waiting: VecDeque<Apply>,
    /// An order whose transaction has an unknown outcome for this reason, until everything was
    /// listed again.
    unknown: Option<(Ordered, String)>,
}

impl Orders {
    /// Notes that the outcome of a transaction is not known.
    pub fn await_listing(&mut self, order: Ordered, why: String) {
        self.unknown = Some((order, why));
    }
}

impl Leader {
    /// Takes an order of an operator. Its answer is [`super::Action::Answer`].
    pub fn apply(&mut self, order: Apply, now: keyway_base::Time) {
        if order.text.len() > DOCUMENT_LEN_MAX {
            return self.answer(order.id, Err(ApplyFault::TooLong));
        }
        if self.orders.waiting.len() >= ORDERS_MAX {
            return self.answer(order.id, Err(ApplyFault::Busy));
        }
        self.orders.waiting.push_back(order);
        self.decide(now);
    }

    /// Answers orders that this node cannot carry out, as it does not lead.
    pub(super) fn refuse_orders(&mut self) {
        let leader = match &self.place {
            Place::Leads { .. } => return,
            Place::Below(leader) => Some(leader.clone()),
            Place::Adrift => None,
        };
        for order in std::mem::take(&mut self.orders.waiting) {
            self.answer(order.id, Err(ApplyFault::NotLeading(leader.clone())));
        }
    }

    /// Orders the transaction of the next order. Returns whether one was ordered.
    pub(super) fn write_order(&mut self, leader: &LeaderFact, modified: u64) -> bool {
        while let Some(order) = self.orders.waiting.pop_front() {
            match self.order_write(&order, leader, modified) {
                Ok((version, write)) => {
                    let Apply { id, text, .. } = order;
                    self.write(write, Purpose::Document(Ordered { id, version, text }));
                    return true;
                }
                Err(fault) => self.answer(order.id, Err(fault)),
            }
        }
        false
    }

    fn order_write(
        &self,
        order: &Apply,
        leader: &LeaderFact,
        modified: u64,
    ) -> Result<(Version, Write), ApplyFault> {
        let current = self.current().ok_or(ApplyFault::Damaged)?;
        if order.base != current.revision {
            return Err(ApplyFault::OtherBase(current.revision));
        }
        // A member that is ahead takes no version that does not cover its own. The operator has
        // decided what is right, so the next version is above all that members have.
        let known = Version { epoch: leader.epoch, revision: current.revision };
        let all = self.roster.highest().join(known);
        let revision = all.revision.saturating_add(1);
        let epoch = if all.epoch > leader.epoch { all.epoch + 1 } else { leader.epoch };
        if revision > BELIEVED_MAX + 1 {
            return Err(ApplyFault::Damaged);
        }
        let mut write =
            Write { when: vec![When::Modified(LEADER.to_owned(), modified)], ..Write::default() };
        write.when.push(match self.facts.get(DOCUMENT) {
            Some(fact) => When::Modified(DOCUMENT.to_owned(), fact.modified),
            None => When::Absent(DOCUMENT.to_owned()),
        });
        if epoch != leader.epoch {
            write.put.push((EPOCH.to_owned(), epoch.to_string().into_bytes()));
            write.put_bound.push((LEADER.to_owned(), self.fact_of(leader.token, epoch).encode()));
        }
        let stored = DocumentFact {
            revision,
            at: order.at,
            by: order.by.clone(),
            text: Arc::clone(&order.text),
        };
        write.put.push((DOCUMENT.to_owned(), revision.to_string().into_bytes()));
        write.put.push((facts::document_key(revision), stored.encode()));
        write.delete = self.old_documents();
        Ok((Version { epoch, revision }, write))
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
        let is_there = self.current().is_some_and(|current| {
            current.revision == order.version.revision && current.text == order.text
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
