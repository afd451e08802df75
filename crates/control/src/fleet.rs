//! The fleet, as a control node shows and changes it: `/v1/fleet`.

use crate::access::Caller;
use crate::backends::as_utc;
use crate::events::EventLog;
use crate::groups::{FailoverOrder, GroupStatus};
use crate::members::{MemberAnswer, PassedRequest, Selection};
use crate::slots::{SlotsAsk, SlotsStatus};
use keyway_fleet::AuditLog;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The part of the API that only a control node has. It is called on the listener's thread, and
/// answers within two seconds; [`FleetApi::apply`] and [`FleetApi::pass_on`] have threads of their own.
pub trait FleetApi: Send + Sync {
    /// Returns the leader and the members.
    ///
    /// # Errors
    /// Returns a text if the node does not answer.
    fn fleet(&self) -> Result<FleetStatus, String>;

    /// Returns the documents that the coordinator keeps, the latest first. A viewer gets masks in place of
    /// their passwords and hashes.
    ///
    /// # Errors
    /// Returns a text if the node does not answer.
    fn documents(&self, by: &Caller) -> Result<Vec<DocumentStatus>, String>;

    /// Stores a document as the next revision, if `base` is the current one. With `dry_run` it
    /// tells the differences alone.
    ///
    /// # Errors
    /// Returns why nothing was stored, or is not known to be.
    fn apply(&self, order: &ApplyOrder<'_>) -> Result<AppliedStatus, ApplyRefusal>;

    /// Returns the rollout that is going on, or the latest one; `None` if there was none.
    ///
    /// # Errors
    /// Returns a text if the node does not answer.
    fn rollout(&self) -> Result<Option<RolloutStatus>, String>;

    /// Has the rollout that is going on do something.
    ///
    /// # Errors
    /// Returns why it was not done, or is not known to be.
    fn steer(&self, action: RolloutAction, by: &Caller) -> Result<(), ApplyRefusal>;

    /// Has members answer a request, and waits for the slowest of them for some seconds. Returns an
    /// answer for each, in the order of their ids.
    ///
    /// # Errors
    /// Returns why no member was asked: there is no such one, or this node does not lead.
    fn pass_on(
        &self,
        to: &Selection,
        request: &PassedRequest,
        by: &Caller,
    ) -> Result<Vec<MemberAnswer>, ApplyRefusal>;

    /// Returns the groups of servers, in the order of their pools.
    ///
    /// # Errors
    /// Returns a text if the node does not answer.
    fn groups(&self) -> Result<Vec<GroupStatus>, String>;

    /// Has another server of a group become the primary. Returns when it is.
    ///
    /// # Errors
    /// Returns why it was not done, or is not known to be.
    fn fail_over(&self, order: &FailoverOrder, by: &Caller) -> Result<(), ApplyRefusal>;

    /// Returns the pools whose slots may move, in the order of their names. A node that does not lead
    /// knows none.
    ///
    /// # Errors
    /// Returns a text if the node does not answer, or does not lead.
    fn slots(&self) -> Result<Vec<SlotsStatus>, String>;

    /// Carries out an order about the slots of a pool. Returns the number of the first plan that it has
    /// made or changed.
    ///
    /// # Errors
    /// Returns why it was not done, or is not known to be.
    fn order_slots(&self, ask: SlotsAsk, by: &Caller) -> Result<u64, ApplyRefusal>;

    /// Forgets a member that has ended for good.
    ///
    /// # Errors
    /// Returns why it was not done.
    fn forget(&self, member: &str, by: &Caller) -> Result<(), ApplyRefusal>;

    /// Returns the audit log, as the coordinator has it.
    ///
    /// # Errors
    /// Returns a text if the node does not answer.
    fn audit(&self) -> Result<AuditLog, String>;

    /// Returns the events that this node knows.
    fn events(&self) -> Arc<EventLog>;
}

/// An order to store a document.
#[derive(Clone, Copy, Debug)]
pub struct ApplyOrder<'o> {
    /// The operator.
    pub by: &'o Caller,
    /// The revision that the operator has seen; `None` in a dry run means the current one.
    pub base: Option<u64>,
    /// The document.
    pub content: Content<'o>,
    /// True if nothing is to be stored.
    pub dry_run: bool,
    /// The rollout by which members get it; `None` if all get it at once.
    pub rollout: Option<RolloutAsk>,
}

/// The document of an order.
#[derive(Clone, Copy, Debug)]
pub enum Content<'o> {
    /// This one, in TOML.
    Text(&'o str),
    /// The one that has this revision: a rollback.
    Revision(u64),
}

/// The way in which members get a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutAsk {
    /// The part of the members that get it first, in percent.
    pub percent: u8,
    /// The time for which these are watched, in seconds; the default if `None`.
    pub watch_seconds: Option<u64>,
}

/// An order about a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RolloutAction {
    /// Decide nothing until it is resumed.
    Pause,
    /// Watch anew.
    Resume,
    /// Go back now.
    Abort,
    /// Go on to all members now.
    Finish,
}

/// The phase of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RolloutPhase {
    /// The share is compared with the rest.
    Watching,
    /// An operator has paused it.
    Paused,
    /// All members got its document.
    WentOn,
    /// All members got the document from before.
    WentBack,
    /// Another document was stored past it.
    Superseded,
}

/// A rollout.
#[derive(Clone, Debug, Serialize)]
pub struct RolloutStatus {
    /// The revision of its document.
    pub revision: u64,
    /// The revision of the document of the rest.
    pub base: u64,
    /// Its phase.
    pub phase: RolloutPhase,
    /// The part of the members that was asked for, in percent.
    pub percent: u8,
    /// The number of members that were chosen.
    pub chosen: u64,
    /// When it began.
    #[serde(rename = "started", serialize_with = "as_utc")]
    pub started_unix_seconds: u64,
    /// By whom.
    pub by: String,
    /// The time for which the leader watches, in seconds.
    pub watch_seconds: u64,
    /// For how long this node has watched, in seconds; `None` if it does not.
    pub watched_seconds: Option<u64>,
    /// The revision that all members got at its end.
    pub end: Option<u64>,
    /// The reason why it goes on, or why it ended.
    pub says: String,
    /// The members of the share.
    pub share: TallyStatus,
    /// All other members.
    pub rest: TallyStatus,
}

/// The sum of several members.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct TallyStatus {
    /// Members on the bus.
    pub members: u64,
    /// The members that serve by the document that is meant for them.
    pub serving: u64,
    /// Their requests since the rollout began.
    pub requests: u64,
    /// The requests that failed.
    pub errors: u64,
    /// Their p99 latency in milliseconds.
    pub p99_ms: f64,
}

/// The fleet.
#[derive(Clone, Debug, Serialize)]
pub struct FleetStatus {
    /// The name of the cluster.
    pub cluster: String,
    /// The control node that answers.
    pub node: String,
    /// True if it leads.
    pub leads: bool,
    /// The leader, if there is one.
    pub leader: Option<LeaderStatus>,
    /// The revision of the current document, 0 without one.
    pub revision: u64,
    /// The published version, `EPOCH.REVISION`, if this node leads.
    pub published: Option<String>,
    /// The revision of the rollout that is going on.
    pub rollout: Option<u64>,
    /// The fault of the coordinator, if it does not answer or was refused.
    pub fault: Option<String>,
    /// The members, in the order of their ids.
    pub members: Vec<MemberStatus>,
}

/// The leader.
#[derive(Clone, Debug, Serialize)]
pub struct LeaderStatus {
    /// Its node.
    pub node: String,
    /// Its epoch.
    pub epoch: u64,
    /// The address of its admin listener.
    pub admin: Option<String>,
}

/// The state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    /// It serves by the published document.
    Current,
    /// It does not yet.
    Behind,
    /// It could not apply its newest document, and serves by an older one.
    Refused,
    /// It is not on the bus.
    Silent,
    /// It has a document that the leader does not know.
    Ahead,
    /// The node that was asked does not lead, and knows what the leader has written.
    Known,
}

impl MemberState {
    /// Every state, with its name.
    pub const ALL: [(MemberState, &'static str); 6] = [
        (MemberState::Current, "current"),
        (MemberState::Behind, "behind"),
        (MemberState::Refused, "refused"),
        (MemberState::Silent, "silent"),
        (MemberState::Ahead, "ahead"),
        (MemberState::Known, "known"),
    ];
}

/// A member.
#[derive(Clone, Debug, Serialize)]
pub struct MemberStatus {
    /// Its id on the bus.
    pub id: String,
    /// Its zone.
    pub zone: u64,
    /// Its state.
    pub state: MemberState,
    /// The version of its program.
    pub version: String,
    /// The addresses at which it serves clients.
    pub listeners: Vec<String>,
    /// Its pools.
    pub pools: Vec<String>,
    /// The addresses at which clients find them.
    pub serves: Vec<ServingStatus>,
    /// True if it is of the share of a rollout that is going on.
    pub in_share: bool,
    /// The newest version on its disk.
    pub saved: Option<String>,
    /// The version that it serves by.
    pub running: Option<String>,
    /// The reason why it does not serve by its newest version.
    pub refused: Option<String>,
    /// For how long it has not been on the bus, in seconds.
    pub silent_seconds: Option<u64>,
    /// For how long it has not served by what is published, in seconds.
    pub behind_seconds: Option<u64>,
}

/// An address at which clients find a pool.
#[derive(Clone, Debug, Serialize)]
pub struct ServingStatus {
    /// The pool.
    pub pool: String,
    /// The protocol of its clients.
    pub protocol: String,
    /// The address, as `HOST:PORT`.
    pub address: String,
}

/// A document.
#[derive(Clone, Debug, Serialize)]
pub struct DocumentStatus {
    /// Its revision.
    pub revision: u64,
    /// When it was stored.
    #[serde(rename = "stored", serialize_with = "as_utc")]
    pub stored_unix_seconds: u64,
    /// By whom.
    pub by: String,
    /// The document, in TOML, with masks in place of secrets for a viewer.
    pub document: String,
}

/// The outcome of an order.
#[derive(Clone, Debug, Serialize)]
pub struct AppliedStatus {
    /// The revision before.
    pub base: u64,
    /// The stored version, `EPOCH.REVISION`; `None` in a dry run.
    pub version: Option<String>,
    /// The differences from the document before, one line each.
    pub changes: Vec<String>,
}

/// The reason why an order was not carried out.
#[derive(Clone, Debug)]
pub enum ApplyRefusal {
    /// The operator may not change all that it changes.
    Forbidden(String),
    /// The order or its document is wrong: everything that is.
    Invalid(Vec<String>),
    /// The document or the leader is another than the operator has seen.
    Conflict(String),
    /// This node cannot store it now: it does not lead, or the coordinator does not answer.
    Unavailable(String),
}
