//! Slots that move between the groups of a pool, while clients use them.
//!
//! ```text
//!   Planned ─► Copying ─► Fenced ─► Cleaning ─► Done
//!      │         │  ▲        │
//!      │         │  └────────┤        a proxy did not drain, the mover has failed
//!      └─────────┴──► Aborting ─► Aborted
//! ```
//! The map of a pool and its plans are one key of the coordinator. So the flip, by which slots get
//! another group, is one transaction, and there is no moment at which two control nodes can decide.
//! Nothing is decided by a clock: a fence that is not drained in time is taken back, never passed.
//!
//! While slots are *fenced*, proxies hold every command for them. A proxy has *drained* a fence when
//! each command that it had sent before has had its reply.

mod ranges;

pub use ranges::{SlotRanges, SlotRangesFault};

use crate::limits::WHY_LEN_MAX;
use crate::report::cut;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Plans of a pool that are kept: those that go on, and the latest ones that have ended.
pub(crate) const PLANS_KEPT: usize = 32;

/// A pool whose slots control may move, as the document says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotsSettings {
    /// The name of the pool.
    pub pool: String,
    /// The number of its slots.
    pub count: u16,
    /// The names of its groups, and the slots that the document gives to each.
    pub groups: Vec<(String, SlotRanges)>,
}

/// The step of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanPhase {
    /// The servers are looked at. Nothing has changed.
    Planned,
    /// Keys are copied, and writes are streamed.
    Copying,
    /// Proxies hold the commands for the slots.
    Fenced,
    /// The slots belong to the target. The source's copies are deleted.
    Cleaning,
    /// Everything is done.
    Done,
    /// The plan is given up, and the target's copies are deleted.
    Aborting,
    /// The plan was given up. The source has everything.
    Aborted,
}

impl PlanPhase {
    /// Returns whether nothing more happens.
    pub fn is_over(self) -> bool {
        matches!(self, PlanPhase::Done | PlanPhase::Aborted)
    }

    /// Returns whether the slots belong to the source still, and the plan goes on.
    pub fn is_before_flip(self) -> bool {
        matches!(self, PlanPhase::Planned | PlanPhase::Copying | PlanPhase::Fenced)
    }

    /// Returns the name of the step for people.
    pub fn word(self) -> &'static str {
        match self {
            PlanPhase::Planned => "planned",
            PlanPhase::Copying => "copying",
            PlanPhase::Fenced => "fenced",
            PlanPhase::Cleaning => "cleaning",
            PlanPhase::Done => "done",
            PlanPhase::Aborting => "aborting",
            PlanPhase::Aborted => "aborted",
        }
    }
}

/// Bounds on the pace of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanPace {
    /// Largest number of keys in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_per_second: Option<u64>,
    /// Largest number of bytes in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
}

/// A plan: slots move from one group to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Its number in the pool.
    pub id: u64,
    /// The slots.
    pub slots: SlotRanges,
    /// The group that has them.
    pub from: String,
    /// The group that gets them.
    pub to: String,
    /// Its step.
    pub phase: PlanPhase,
    /// True if an operator has paused it. A paused plan keeps its place, and copies nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_paused: bool,
    /// The pace of the copy.
    #[serde(default)]
    pub pace: PlanPace,
    /// When the step began, in seconds since 1970.
    pub at: u64,
    /// The operator.
    pub by: String,
    /// The reason for its step, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// The map of a pool and its plans, as the coordinator has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotsFact {
    /// The epoch of the map and of its fences. It grows with each change of these.
    pub epoch: u64,
    /// The slots of each group.
    pub owners: BTreeMap<String, SlotRanges>,
    /// The plans, in the order of their numbers.
    pub plans: Vec<Plan>,
    /// The number of the next plan.
    pub next: u64,
}

impl SlotsFact {
    /// Creates the fact of a pool whose slots have never moved.
    pub(crate) fn of_document(settings: &SlotsSettings) -> SlotsFact {
        let owners = settings.groups.iter().filter(|(_, slots)| !slots.is_empty()).cloned();
        SlotsFact { epoch: 0, owners: owners.collect(), plans: Vec::new(), next: 1 }
    }

    /// Reads the coordinator's value.
    pub fn decode(value: &[u8]) -> Option<SlotsFact> {
        serde_json::from_slice(value).ok()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Returns the plan that is carried out now: the first one that goes on and is not paused. One
    /// that is past its flip is not paused any more.
    pub fn active(&self) -> Option<&Plan> {
        let goes_on = |plan: &&Plan| !plan.phase.is_over();
        let counts = |plan: &&Plan| !plan.is_paused || !plan.phase.is_before_flip();
        self.plans.iter().filter(goes_on).find(counts)
    }

    /// Returns a plan.
    pub fn plan(&self, id: u64) -> Option<&Plan> {
        self.plans.iter().find(|plan| plan.id == id)
    }

    /// Returns the slots that proxies hold commands for.
    pub fn fenced(&self) -> SlotRanges {
        let fenced = self.plans.iter().filter(|plan| plan.phase == PlanPhase::Fenced);
        fenced.fold(SlotRanges::default(), |all, plan| all.or(&plan.slots))
    }

    /// Returns the slots of plans that go on: no other plan may have them.
    pub(crate) fn locked(&self) -> SlotRanges {
        let going = self.plans.iter().filter(|plan| !plan.phase.is_over());
        going.fold(SlotRanges::default(), |all, plan| all.or(&plan.slots))
    }

    /// Returns the same with another step of a plan.
    #[must_use]
    pub(crate) fn with_phase(&self, id: u64, phase: PlanPhase, at: u64, why: &str) -> SlotsFact {
        let mut fact = self.clone();
        if let Some(plan) = fact.plans.iter_mut().find(|plan| plan.id == id) {
            (plan.phase, plan.at, plan.why) = (phase, at, cut(why, WHY_LEN_MAX));
        }
        fact.forget_ended();
        fact
    }

    /// Returns the same after the flip of a plan.
    #[must_use]
    pub(crate) fn flipped(&self, id: u64, at: u64) -> SlotsFact {
        let mut fact = self.with_phase(id, PlanPhase::Cleaning, at, "");
        let Some(plan) = self.plan(id) else { return fact };
        for slots in fact.owners.values_mut() {
            *slots = slots.without(&plan.slots);
        }
        let own = fact.owners.entry(plan.to.clone()).or_default();
        *own = own.or(&plan.slots);
        fact.owners.retain(|_, slots| !slots.is_empty());
        fact
    }

    /// Forgets the oldest plans that have ended, past [`PLANS_KEPT`].
    fn forget_ended(&mut self) {
        while self.plans.len() > PLANS_KEPT {
            let Some(at) = self.plans.iter().position(|plan| plan.phase.is_over()) else { return };
            self.plans.remove(at);
        }
    }

    pub(crate) fn published(&self, pool: &str) -> PublishedSlots {
        let (epoch, owners, fenced) = (self.epoch, self.owners.clone(), self.fenced());
        PublishedSlots { pool: pool.to_owned(), epoch, owners, fenced }
    }
}

/// The map of a pool, as the leader publishes it and a member obeys it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedSlots {
    /// The name of the pool.
    pub pool: String,
    /// The epoch.
    pub epoch: u64,
    /// The slots of each group.
    pub owners: BTreeMap<String, SlotRanges>,
    /// The slots that proxies hold commands for.
    #[serde(default, skip_serializing_if = "SlotRanges::is_empty")]
    pub fenced: SlotRanges,
}

/// The map that a member obeys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotsSeen {
    /// The name of the pool.
    pub pool: String,
    /// The epoch of the map that it has saved and obeys; 0 for that of the document.
    pub epoch: u64,
    /// True if every command for a fenced slot that it had sent before has had its reply.
    pub is_drained: bool,
}

/// A group, for a mover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoverGroup {
    /// Its name, as `POOL:GROUP`.
    pub group: String,
    /// The address of its primary.
    pub primary: String,
    /// The addresses of its other servers.
    pub others: Vec<String>,
}

/// The work of a mover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoverWork {
    /// Look whether the servers can do it. The target must have no key of the slots.
    Check,
    /// Delete the target's keys of the slots, then copy those of the source and stream its writes,
    /// until the next order.
    Copy,
    /// Apply all writes that the source has taken by now. A copy goes on.
    Finish,
    /// Delete the source's keys of the slots.
    Clean,
    /// Delete the target's keys of the slots.
    Purge,
}

/// An order to a mover. A later one about the same pool ends an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoverOrder {
    /// The name of the pool.
    pub pool: String,
    /// The number of the plan.
    pub plan: u64,
    /// A number for the reports.
    pub number: u64,
    /// The work.
    pub work: MoverWork,
    /// The slots.
    pub slots: SlotRanges,
    /// The number of slots of the pool.
    pub count: u16,
    /// The group that has them.
    pub from: MoverGroup,
    /// The group that gets them.
    pub to: MoverGroup,
    /// The pace.
    pub pace: PlanPace,
}

/// Numbers about a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoverProgress {
    /// Keys of the slots that were copied, or deleted.
    pub keys: u64,
    /// Keys of the slots that there were at the start, as far as it is known.
    pub keys_total: Option<u64>,
    /// Bytes that were written to the target.
    pub bytes: u64,
    /// Keys in the latest second.
    pub keys_per_second: u64,
    /// Bytes of the source's stream that were not applied yet, as far as it is known.
    pub behind: Option<u64>,
    /// True if the snapshot is copied, and writes are streamed.
    pub is_tailing: bool,
}

/// A report of a mover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoverReport {
    /// It goes on.
    Going(MoverProgress),
    /// It has done all that was ordered.
    Done(MoverProgress),
    /// It has failed. A final failure would come again.
    Failed {
        /// The reason, for people.
        why: String,
        /// True if trying again is of no use.
        is_final: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(text: &str) -> SlotRanges {
        text.parse().unwrap()
    }

    fn fact() -> SlotsFact {
        let groups = vec![("a".to_owned(), ranges("0-511")), ("b".to_owned(), ranges("512-1023"))];
        let settings = SlotsSettings { pool: "p".to_owned(), count: 1024, groups };
        let mut fact = SlotsFact::of_document(&settings);
        fact.plans.push(Plan {
            id: 1,
            slots: ranges("0-9"),
            from: "a".to_owned(),
            to: "b".to_owned(),
            phase: PlanPhase::Fenced,
            is_paused: false,
            pace: PlanPace::default(),
            at: 1,
            by: "me".to_owned(),
            why: String::new(),
        });
        fact
    }

    #[test]
    fn a_flip_gives_the_slots_of_its_plan_to_the_target_and_no_others() {
        let fact = fact();
        assert_eq!(fact.fenced(), ranges("0-9"));
        let flipped = fact.flipped(1, 2);
        assert_eq!(flipped.owners["a"], ranges("10-511"));
        assert_eq!(flipped.owners["b"], ranges("0-9,512-1023"));
        assert!(flipped.fenced().is_empty());
        assert_eq!(flipped.plan(1).map(|plan| plan.phase), Some(PlanPhase::Cleaning));
        assert_eq!(SlotsFact::decode(&flipped.encode()), Some(flipped.clone()));
        let done = flipped.with_phase(1, PlanPhase::Done, 3, "");
        assert!(done.locked().is_empty() && done.active().is_none());
    }

    #[test]
    fn plans_that_go_on_are_never_forgotten() {
        let mut fact = fact();
        let going = fact.plans[0].clone();
        for id in 2..100 {
            let plan = Plan { id, phase: PlanPhase::Done, ..going.clone() };
            fact.plans.push(plan);
            fact.forget_ended();
        }
        assert_eq!(fact.plans.len(), PLANS_KEPT);
        assert_eq!(fact.active(), Some(&going));
    }
}
