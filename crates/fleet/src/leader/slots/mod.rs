//! The leader's part of slots that move: it writes each step of a plan, and has movers and members
//! carry it out.
//!
//! In: [`Leader::set_slots`] with what the document says, reports of members, [`Leader::moved`] with
//! the reports of movers, and [`Leader::order_slots`]. Out: [`super::Action::Move`]. A mover belongs to
//! the process of the leader. A new leader has none, so it takes a fence back and copies anew.
//!
//! A step that changes the map or a fence is also a decision about groups: it has the next number of
//! these, and is published with them.

mod decide;
mod tend;
#[cfg(test)]
mod tests;
mod view;

pub use view::{PlanView, SlotsView};

use super::{Action, ApplyFault, Leader, OrderId, Place};
use crate::audit::Author;
use crate::facts;
use crate::limits::ORDERS_MAX;
use crate::slots::{
    MoverOrder, MoverReport, MoverWork, PlanPace, PublishedSlots, SlotRanges, SlotsFact, SlotsSeen,
    SlotsSettings,
};
use keyway_base::Time;
use keyway_bus::NodeId;
use std::collections::{BTreeMap, VecDeque};

/// Pools whose slots move, of a report.
pub(crate) const POOLS_MAX: usize = 16;

/// An order of an operator about the slots of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotsOrder {
    /// Its id, which the answer has.
    pub id: OrderId,
    /// The name of the pool.
    pub pool: String,
    /// The order.
    pub what: SlotsChange,
    /// The time, in seconds since 1970.
    pub at: u64,
    /// The operator.
    pub by: Author,
}

/// The parts of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotsChange {
    /// Slots move to a group, whoever has them. Each group that has some of them gets a plan.
    Move {
        /// The slots.
        slots: SlotRanges,
        /// The group.
        to: String,
        /// The pace.
        pace: PlanPace,
    },
    /// A plan is given up. The source keeps its slots.
    Cancel(u64),
    /// A plan waits until it is resumed.
    Pause(u64),
    /// A plan goes on.
    Resume(u64),
    /// The pace of a plan changes.
    Pace(u64, PlanPace),
}

/// A mover at work, and what is known of it.
#[derive(Debug)]
struct Running {
    order: MoverOrder,
    report: Option<MoverReport>,
    /// The epochs of the decisions about both groups at its start.
    groups: (u64, u64),
    /// True if it was told to finish.
    is_finishing: bool,
}

/// The pause in front of the next try of a plan.
#[derive(Debug)]
struct Pausing {
    plan: u64,
    /// Tries that have failed one after the other.
    tries: u32,
    until: Time,
    why: String,
}

/// The slots that move, as the leader knows them.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// `None` until the owner has read the document.
    settings: Option<BTreeMap<String, SlotsSettings>>,
    /// The maps that members obey.
    seen: BTreeMap<NodeId, Vec<SlotsSeen>>,
    running: BTreeMap<String, Running>,
    pausing: BTreeMap<String, Pausing>,
    /// Since when a pool's fence of this epoch is published.
    fenced: BTreeMap<String, (u64, Time)>,
    orders: VecDeque<SlotsOrder>,
    next_number: u64,
    due: Option<Time>,
}

impl Moves {
    /// Leads no more: a leader alone knows movers and members. Numbers are not used again.
    fn clear(&mut self) {
        *self = Moves { next_number: self.next_number, ..Moves::default() };
    }

    /// Returns when something is due.
    pub fn due(&self) -> Option<Time> {
        self.due
    }

    /// Takes the maps that a member obeys. Returns whether they are news.
    pub fn take(&mut self, from: NodeId, mut seen: Vec<SlotsSeen>) -> bool {
        seen.truncate(POOLS_MAX);
        let is_news = self.seen.get(&from) != Some(&seen);
        match seen.is_empty() {
            true => drop(self.seen.remove(&from)),
            false => drop(self.seen.insert(from, seen)),
        }
        is_news
    }

    /// Forgets what a member obeys, which has left the bus.
    pub fn forget(&mut self, id: NodeId) {
        self.seen.remove(&id);
    }

    fn seen_of(&self, member: NodeId, pool: &str) -> Option<&SlotsSeen> {
        self.seen.get(&member)?.iter().find(|seen| seen.pool == pool)
    }
}

impl Leader {
    /// Takes the pools of the current document whose slots may move.
    pub fn set_slots(&mut self, pools: Vec<SlotsSettings>, now: Time) {
        if matches!(self.place, Place::Leads { .. }) {
            let pools = pools.into_iter().map(|pool| (pool.pool.clone(), pool));
            self.moves.settings = Some(pools.collect());
            self.groups.urge();
            self.decide(now);
        }
    }

    /// Takes a report of a mover.
    pub fn moved(&mut self, (pool, number): (&str, u64), report: MoverReport, now: Time) {
        let Some(running) = self.moves.running.get_mut(pool) else { return };
        if running.order.number != number {
            return;
        }
        running.report = Some(report);
        self.groups.urge();
        self.decide(now);
    }

    /// Takes an order of an operator. Its answer is [`super::Action::Answer`], with the epoch of the
    /// leader and the number of the first plan that it concerns.
    pub fn order_slots(&mut self, order: SlotsOrder, now: Time) {
        let id = order.id;
        match &self.place {
            Place::Leads { .. } => {}
            Place::Below(leader) => {
                let leader = Some(leader.clone());
                return self.answer(id, Err(ApplyFault::NotLeading(leader)));
            }
            Place::Adrift => return self.answer(id, Err(ApplyFault::NotLeading(None))),
        }
        if self.moves.orders.len() >= ORDERS_MAX {
            return self.answer(id, Err(ApplyFault::Busy));
        }
        self.moves.orders.push_back(order);
        self.groups.urge();
        self.decide(now);
    }

    /// Answers orders about slots, as this node leads no more, and ends its movers.
    pub(super) fn forget_slots(&mut self) {
        for order in std::mem::take(&mut self.moves.orders) {
            self.answer(order.id, Err(ApplyFault::NotLeading(None)));
        }
        for pool in std::mem::take(&mut self.moves.running).into_keys() {
            self.actions.push_back(Action::EndMove(pool));
        }
        self.moves.clear();
    }

    /// Returns the map and the plans of a pool, as the coordinator has them. Returns that of the
    /// document if nothing was ever moved, and `None` if the key is damaged or the pool is unknown.
    fn slots_fact(&self, pool: &str) -> Option<SlotsFact> {
        let settings = self.moves.settings.as_ref()?.get(pool)?;
        match self.facts.get(&facts::slots_key(pool)) {
            Some(fact) => SlotsFact::decode(&fact.value),
            None => Some(SlotsFact::of_document(settings)),
        }
    }

    /// Returns whether it is known which maps are to be published.
    pub(super) fn knows_slots(&self) -> bool {
        let stored = self.facts.range(facts::SLOTS.to_owned()..).next();
        let has_any = stored.is_some_and(|(key, _)| key.starts_with(facts::SLOTS));
        self.moves.settings.is_some() || !has_any
    }

    /// Returns the maps for the members: those of pools that were moved, and that the document has.
    pub(super) fn published_slots(&self) -> Vec<PublishedSlots> {
        let settings = self.moves.settings.iter().flatten();
        let stored = settings.filter_map(|(pool, _)| {
            let fact = self.facts.get(&facts::slots_key(pool))?;
            Some(SlotsFact::decode(&fact.value)?.published(pool))
        });
        stored.collect()
    }

    /// Returns the members that use a pool and do not obey an epoch of its map, or have not drained
    /// its fence, with what they lack.
    fn laggards(&self, pool: &str, epoch: u64) -> Vec<(NodeId, &'static str)> {
        let uses = |pools: &Vec<String>| pools.iter().any(|name| name == pool);
        let members = self.roster.members().filter(|(_, known)| uses(&known.report.about.pools));
        let lacks = members.filter_map(|(id, known)| {
            if known.silent_since.is_some() {
                return Some((id, "is silent"));
            }
            match self.moves.seen_of(id, pool) {
                None => Some((id, "has not told which map it obeys")),
                Some(seen) if seen.epoch < epoch => Some((id, "has not got the map yet")),
                Some(seen) if !seen.is_drained => Some((id, "waits for replies")),
                Some(_) => None,
            }
        });
        lacks.collect()
    }
}

/// Returns whether a mover's report says that it streams writes.
fn is_tailing(report: Option<&MoverReport>) -> bool {
    matches!(report, Some(MoverReport::Going(progress)) if progress.is_tailing)
}

/// Returns whether it says that it does so and has next to nothing to catch up with.
fn has_caught_up(report: Option<&MoverReport>) -> bool {
    let Some(MoverReport::Going(progress)) = report else { return false };
    progress.is_tailing && progress.behind.is_some_and(|behind| behind <= BEHIND_MAX)
}

/// Bytes of the source's stream that a fence may begin with. A mover applies them within some
/// milliseconds.
const BEHIND_MAX: u64 = 256 << 10;

/// Returns the work that a step of a plan wants from a mover.
fn work_of(phase: crate::PlanPhase) -> Option<MoverWork> {
    use crate::PlanPhase::{Aborted, Aborting, Cleaning, Copying, Done, Fenced, Planned};
    match phase {
        Planned => Some(MoverWork::Check),
        Copying => Some(MoverWork::Copy),
        Cleaning => Some(MoverWork::Clean),
        Aborting => Some(MoverWork::Purge),
        Fenced | Done | Aborted => None,
    }
}
