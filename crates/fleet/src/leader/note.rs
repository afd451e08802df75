use crate::{Outcome, Severity, Version};
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
    /// Events of a member did not arrive: it was cut off for long.
    EventsLost(NodeId, u64),
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
        !matches!(
            self,
            Note::Leads(_)
                | Note::Follows(..)
                | Note::Published(_)
                | Note::Joined(_)
                | Note::RolloutWatched(_)
                | Note::RolloutPaused(_)
                | Note::RolloutEnded(_, Outcome::WentOn, ..)
        )
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Leads(epoch) => write!(f, "this control node leads in epoch {epoch}"),
            Note::Follows(id, epoch) => write!(f, "{id} leads in epoch {epoch}"),
            Note::NobodyLeads => f.write_str("nobody leads"),
            Note::SessionLost => {
                f.write_str("the coordinator's session is lost: this control node leads no more")
            }
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
        }
    }
}
