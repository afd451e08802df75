//! The fleet: control nodes that agree on one leader, and members that receive its document.
//!
//! Two state machines without sockets, clocks and threads. [`Leader`] is a control node: it
//! campaigns, publishes the document of the cluster and knows its members. [`Member`] is a proxy:
//! it saves each version before it applies it, and never goes back to an older one. Time and
//! everything that was read are arguments; what is to be done comes out of `poll_action`.
//!
//! The crate knows neither the coordinator nor the sockets of the bus. Their owner carries out the
//! actions and tells the outcome. Read first: [`Version`], [`Member`] and [`Leader`].

#![forbid(unsafe_code)]

pub mod limits;

mod audit;
mod document;
mod events;
mod facts;
mod groups;
mod leader;
mod measuring;
mod member;
mod report;
mod rollout;
mod saved;
mod seeing;
mod slots;
mod version;

pub use audit::{
    AuditEntry, AuditHead, AuditLog, AuditOutcome, Author, Chain, Hash, Record, Tampered,
};
pub use document::{Document, DocumentFault, Published, PublishedRollout};
pub use events::{Event, SentEvents, Severity};
pub use facts::{Fact, KeyChange, LeaderFact, When, Write, Written};
pub use groups::{
    Command, Decided, DecisionRefusal, Decisions, GROUPS_TOPIC, Group, GroupOrder, GroupSeen,
    GroupSettings, Phase, PublishedGroups, RoleSeen, ServerSeen,
};
pub use leader::{
    Action as LeaderAction, Apply, ApplyFault, Failover, FleetView, GroupState, GroupView,
    Identity, Leader, LeaderView, MemberView, Note, OrderId, PassedRequest, PlanView,
    RefusedRequest, RolloutOrder, RolloutView, ServerView, SlotsChange, SlotsOrder, SlotsView,
    Steer, Steering, StoredDocument, Ticket,
};
pub use member::{Action as MemberAction, Begun, Member, Refusal};
pub use report::{About, RefusedVersion, Report, Serving};
pub use rollout::{Measured, Outcome, Rollout, RolloutState, Share, Tally};
pub use saved::{Saved, SavedFault};
pub use slots::{
    MoverGroup, MoverOrder, MoverProgress, MoverReport, MoverWork, Plan, PlanPace, PlanPhase,
    PublishedSlots, SlotRanges, SlotRangesFault, SlotsFact, SlotsSeen, SlotsSettings,
};
pub use version::Version;

/// The topic of the bus on which control publishes the document.
pub const TOPIC: &str = "fleet";
