//! Slots that move between the groups of a pool, as a control node shows them: `/v1/fleet/slots`.

use crate::backends::as_utc;
use keyway_fleet::{PlanPace, SlotRanges};
use serde::{Deserialize, Serialize};

/// A pool whose slots may move.
#[derive(Clone, Debug, Serialize)]
pub struct SlotsStatus {
    /// The name of the pool.
    pub pool: String,
    /// The number of its slots.
    pub slots: u16,
    /// The epoch of its map; 0 if that is the document's.
    pub epoch: u64,
    /// Its groups, those without slots too.
    pub groups: Vec<SlotsOfGroup>,
    /// Its plans, in the order of their numbers: those that go on, and the latest ones that have ended.
    pub plans: Vec<PlanStatus>,
}

/// The slots of a group.
#[derive(Clone, Debug, Serialize)]
pub struct SlotsOfGroup {
    /// The name of the group.
    pub group: String,
    /// The ranges, as `0-511,600`.
    pub slots: SlotRanges,
    /// The number of slots.
    pub count: u32,
}

/// A plan: slots move from one group to another.
#[derive(Clone, Debug, Serialize)]
pub struct PlanStatus {
    /// Its number in the pool.
    pub plan: u64,
    /// The slots.
    pub slots: SlotRanges,
    /// The group that had them at first.
    pub from: String,
    /// The group that gets them.
    pub to: String,
    /// Its step: `planned`, `copying`, `fenced`, `cleaning`, `done`, `aborting` or `aborted`.
    pub step: &'static str,
    /// True if an operator has paused it.
    pub paused: bool,
    /// True if nothing more happens.
    pub over: bool,
    /// The next thing that it waits for; empty if it is over.
    pub waits_for: String,
    /// The reason for its step; empty if it is the usual course.
    pub why: String,
    /// The operator.
    pub by: String,
    /// When the step began.
    #[serde(rename = "since", serialize_with = "as_utc")]
    pub since_unix_seconds: u64,
    /// The bounds of the copy.
    pub pace: PlanPace,
    /// The numbers of its copy; `None` unless it is at work.
    pub progress: Option<PlanProgress>,
}

/// The numbers of a copy.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PlanProgress {
    /// Keys that were copied, or deleted.
    pub keys: u64,
    /// Keys that there were at the start, as far as it is known.
    pub keys_total: Option<u64>,
    /// Bytes that were written to the target.
    pub bytes: u64,
    /// Keys in the latest second.
    pub keys_per_second: u64,
    /// Bytes of the source's writes that the target lacks, as far as it is known.
    pub behind_bytes: Option<u64>,
}

/// An order about the slots of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotsAsk {
    /// The name of the pool.
    pub pool: String,
    /// The order.
    pub action: SlotsAction,
    /// The slots that move, as `0-511,600`.
    pub slots: Option<SlotRanges>,
    /// The group that gets them.
    pub to: Option<String>,
    /// The plan, for all but `move`.
    pub plan: Option<u64>,
    /// The bounds of the copy, for `move` and `pace`.
    #[serde(default)]
    pub pace: PlanPace,
}

/// The kind of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlotsAction {
    /// Slots move to a group.
    Move,
    /// A plan is given up.
    Cancel,
    /// A plan waits.
    Pause,
    /// A plan goes on.
    Resume,
    /// The pace of a plan changes.
    Pace,
}

/// All pools whose slots may move.
#[derive(Debug, Serialize)]
pub(crate) struct SlotsList {
    pub(crate) pools: Vec<SlotsStatus>,
    /// The first plan that an order has made or changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) plan: Option<u64>,
}
