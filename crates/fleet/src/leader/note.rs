use crate::{GroupState, Outcome, PlanPhase, Severity, Version};
use keyway_bus::NodeId;
use std::fmt;

/// A change of state that operators want to read in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// This node leads, in this epoch.
    Leads(u64),
    /// That node leads, in that epoch.
    Follows(NodeId, u64),
    /// Nobody leads.
    NobodyLeads,
    /// The session of this process is lost, and with it the leadership.
    SessionLost,
    /// The coordinator does not answer, or refuses.
    Fault(String),
    /// A key of the coordinator cannot be read.
    Damaged(String),
    /// A version was published.
    Published(Version),
    /// A member is there that was not, or was silent.
    Joined(NodeId),
    /// A member is not on the bus any more.
    Silent(NodeId),
    /// A member could not apply a version.
    Refused(NodeId, Version, String),
    /// A member has a version that this leader does not know.
    Ahead(NodeId, Version),
    /// Nodes of the bus have a version that this leader does not know.
    WentBack(Version),
    /// A node has sent something else than a report.
    NoReport(NodeId),
    /// A member of another cluster has reported.
    OtherCluster(NodeId, String),
    /// A rollout of this revision is watched.
    RolloutWatched(u64),
    /// A rollout of this revision is paused.
    RolloutPaused(u64),
    /// A rollout has ended: its revision, the outcome, the revision that all get, and why.
    RolloutEnded(u64, Outcome, u64, String),
    /// There is no room for another member.
    TooMany(NodeId),
    /// The primary of a pool is taken for decided: the pool and the primary.
    PrimaryTaken(String, String),
    /// A fail-over has begun, for the primary is down.
    FailoverBegun {
        /// The pool.
        pool: String,
        /// The primary before.
        from: String,
        /// The primary that is decided.
        to: String,
        /// The observers that agree.
        why: String,
    },
    /// A primary hands over by order of an operator.
    SwitchBegun {
        /// The pool.
        pool: String,
        /// The primary.
        from: String,
        /// The replica.
        to: String,
        /// The operator.
        by: String,
    },
    /// A fail-over has ended: the pool and its primary.
    FailedOver(String, String),
    /// A primary did not hand over: the pool, the replica, and why.
    NotSwitched(String, String, String),
    /// A server that was another primary's, or a primary itself, is made a replica.
    MadeReplica {
        /// The pool.
        pool: String,
        /// The server.
        server: String,
        /// Its primary.
        primary: String,
    },
    /// An order to the servers of a pool has failed: the pool, and why.
    NotCommanded(String, String),
    /// A group is in another state: the pool and the state.
    GroupIs(String, GroupState),
    /// Events of a member did not arrive: it was cut off for long.
    EventsLost(NodeId, u64),
    /// An operator has ordered something about the slots of a pool: the pool, the first plan that it
    /// concerns, the order, and the operator.
    PlanOrdered(String, u64, String, String),
    /// A plan of a pool has another step, for this reason.
    PlanIs(String, u64, PlanPhase, String),
    /// The next try of a plan of a pool waits, for this reason.
    PlanWaits(String, u64, String),
}

impl Note {
    /// Returns the kind of the event that it is.
    pub fn kind(&self) -> &'static str {
        match self {
            Note::Leads(_) | Note::Follows(..) => "leader-changed",
            Note::NobodyLeads => "leader-lost",
            Note::SessionLost => "session-lost",
            Note::Fault(_) => "coordinator-fault",
            Note::Damaged(_) => "coordinator-damaged",
            Note::Published(_) => "document-published",
            Note::Joined(_) => "member-joined",
            Note::Silent(_) => "member-silent",
            Note::Refused(..) => "document-refused",
            Note::Ahead(..) | Note::WentBack(_) => "coordinator-went-back",
            Note::NoReport(_) | Note::OtherCluster(..) => "member-not-understood",
            Note::RolloutWatched(_) => "rollout-begun",
            Note::RolloutPaused(_) => "rollout-paused",
            Note::RolloutEnded(_, Outcome::WentOn, ..) => "rollout-went-on",
            Note::RolloutEnded(_, Outcome::WentBack, ..) => "rollout-went-back",
            Note::TooMany(_) => "member-without-room",
            Note::EventsLost(..) => "events-lost",
            Note::PrimaryTaken(..) => "group-primary",
            Note::FailoverBegun { .. } => "group-failover",
            Note::SwitchBegun { .. } => "group-switch",
            Note::FailedOver(..) => "group-failed-over",
            Note::NotSwitched(..) => "group-not-switched",
            Note::MadeReplica { .. } => "group-replica",
            Note::NotCommanded(..) => "group-not-commanded",
            Note::GroupIs(..) => "group-state",
            Note::PlanOrdered(..) => "slots-ordered",
            Note::PlanIs(..) => "slots-plan",
            Note::PlanWaits(..) => "slots-wait",
        }
    }

    /// Returns the node that it is about, if that is another one than this node.
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Note::Follows(id, _)
            | Note::Joined(id)
            | Note::Silent(id)
            | Note::Refused(id, ..)
            | Note::Ahead(id, _)
            | Note::NoReport(id)
            | Note::OtherCluster(id, _)
            | Note::TooMany(id)
            | Note::EventsLost(id, _) => Some(*id),
            _ => None,
        }
    }

    /// Returns the pool that it is about, if it is about one.
    pub fn pool(&self) -> Option<&str> {
        match self {
            Note::PrimaryTaken(pool, _)
            | Note::FailoverBegun { pool, .. }
            | Note::SwitchBegun { pool, .. }
            | Note::FailedOver(pool, _)
            | Note::NotSwitched(pool, ..)
            | Note::MadeReplica { pool, .. }
            | Note::NotCommanded(pool, _)
            | Note::GroupIs(pool, _)
            | Note::PlanOrdered(pool, ..)
            | Note::PlanIs(pool, ..)
            | Note::PlanWaits(pool, ..) => Some(pool),
            _ => None,
        }
    }

    /// Returns the weight of the event that it is.
    pub fn severity(&self) -> Severity {
        match self {
            Note::NobodyLeads | Note::Damaged(_) | Note::Ahead(..) | Note::WentBack(_) => {
                Severity::Error
            }
            _ if self.is_warning() => Severity::Warning,
            _ => Severity::Info,
        }
    }

    /// Returns whether an operator has to do something.
    pub fn is_warning(&self) -> bool {
        if let Note::PlanIs(_, _, phase, why) = self {
            return matches!(phase, PlanPhase::Aborting | PlanPhase::Aborted)
                || (*phase == PlanPhase::Copying && !why.is_empty());
        }
        !matches!(
            self,
            Note::Leads(_)
                | Note::Follows(..)
                | Note::Published(_)
                | Note::Joined(_)
                | Note::RolloutWatched(_)
                | Note::RolloutPaused(_)
                | Note::RolloutEnded(_, Outcome::WentOn, ..)
                | Note::PrimaryTaken(..)
                | Note::SwitchBegun { .. }
                | Note::FailedOver(..)
                | Note::GroupIs(_, GroupState::Healthy | GroupState::FailingOver)
                | Note::PlanOrdered(..)
        )
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Leads(epoch) => write!(f, "this control node leads in epoch {epoch}"),
            Note::Follows(id, epoch) => write!(f, "{id} leads in epoch {epoch}"),
            Note::NobodyLeads => f.write_str("nobody leads"),
            Note::SessionLost => f.write_str(
                "the coordinator's session is lost: this control node leads no more; most often \
                 the session was not renewed within `lease`, because a disk or network is slow or \
                 the lease is short",
            ),
            Note::Fault(what) => write!(f, "coordinator: {what}"),
            Note::Damaged(key) => write!(
                f,
                "the coordinator's key {key} cannot be read; restore the coordinator, or delete \
                 the key"
            ),
            Note::Published(version) => write!(f, "document {version} is published"),
            Note::Joined(id) => write!(f, "{id} is there"),
            Note::Silent(id) => write!(f, "{id} is silent: it lags until it comes back"),
            Note::Refused(id, version, why) => {
                write!(f, "{id} cannot apply document {version}: {why}")
            }
            Note::Ahead(id, version) => write!(
                f,
                "{id} has document {version}, which this coordinator does not know: the \
                 coordinator went back, as after a restored backup; apply the right document again \
                 by keyway ctl apply"
            ),
            Note::WentBack(version) => write!(
                f,
                "members have document {version}, which this coordinator does not know: the \
                 coordinator went back, as after a restored backup; apply the right document again \
                 by keyway ctl apply"
            ),
            Note::NoReport(id) => {
                write!(f, "{id} has sent something that is no report; update one of both")
            }
            Note::OtherCluster(id, cluster) => {
                write!(f, "{id} is of cluster {cluster:?}; correct `cluster` in its [control]")
            }
            Note::RolloutWatched(revision) => {
                write!(f, "document {revision} goes to a share of the members, which is watched")
            }
            Note::RolloutPaused(revision) => {
                write!(f, "the rollout of document {revision} is paused")
            }
            Note::RolloutEnded(revision, Outcome::WentOn, end, why) => {
                write!(f, "document {revision} goes on to all members, as document {end}: {why}")
            }
            Note::RolloutEnded(revision, Outcome::WentBack, end, why) => write!(
                f,
                "document {revision} was taken back: all members get the one from before, as \
                 document {end}: {why}"
            ),
            Note::EventsLost(id, count) => {
                write!(f, "{count} events of {id} are lost: it was cut off for too long")
            }
            Note::TooMany(id) => write!(
                f,
                "there is no room for {id}: a cluster has {} members at most",
                crate::limits::MEMBERS_MAX
            ),
            of_group => of_group.fmt_group(f),
        }
    }
}

impl Note {
    /// Writes a note about a group of servers.
    fn fmt_group(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::PrimaryTaken(pool, primary) => {
                write!(f, "pool {pool}: {primary} is the primary from now on")
            }
            Note::FailoverBegun { pool, from, to, why } => {
                write!(f, "pool {pool} fails over from {from} to {to}: {why}")
            }
            Note::SwitchBegun { pool, from, to, by } => {
                write!(f, "pool {pool} is handed over from {from} to {to} by order of {by}")
            }
            Note::FailedOver(pool, primary) => {
                write!(f, "pool {pool} has failed over: {primary} is the primary")
            }
            Note::NotSwitched(pool, to, why) => {
                write!(f, "pool {pool} was not handed over to {to}: {why}")
            }
            Note::MadeReplica { pool, server, primary } => {
                write!(f, "pool {pool}: {server} is made a replica of {primary}")
            }
            Note::NotCommanded(pool, why) => {
                write!(f, "pool {pool}: the servers do not do as they are told: {why}")
            }
            Note::GroupIs(pool, state) => write!(f, "pool {pool}: {state}"),
            Note::PlanOrdered(pool, plan, what, by) => {
                write!(f, "pool {pool}, plan {plan}: {what}, by order of {by}")
            }
            Note::PlanIs(pool, plan, phase, why) => {
                let because = if why.is_empty() { "" } else { ": " };
                write!(f, "pool {pool}: plan {plan} is {}{because}{why}", phase.word())
            }
            Note::PlanWaits(pool, plan, why) => {
                write!(f, "pool {pool}: plan {plan} is tried again soon: {why}")
            }
            // All others are written elsewhere.
            _ => Ok(()),
        }
    }
}
