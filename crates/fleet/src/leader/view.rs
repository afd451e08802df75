//! The fleet, for people.

use super::{Leader, Place};
use crate::facts::{self, DocumentFact};
use crate::{About, LeaderFact, Published, RefusedVersion, Rollout, Tally, Version};
use keyway_base::Time;
use keyway_bus::NodeId;
use std::sync::Arc;
use std::time::Duration;

/// The fleet, as a control node knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetView {
    /// The name of the cluster.
    pub cluster: String,
    /// The control node that is asked.
    pub node: NodeId,
    /// The leader.
    pub leader: Option<LeaderView>,
    /// The revision of the current document, 0 if there is none.
    pub revision: u64,
    /// The version that this node has published, if it leads.
    pub published: Option<Version>,
    /// The members, in the order of their ids.
    pub members: Vec<MemberView>,
    /// The rollout that is going on, or the latest one.
    pub rollout: Option<RolloutView>,
    /// The fault of the coordinator, if it does not answer or was refused.
    pub fault: Option<String>,
}

/// A rollout.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutView {
    /// The rollout, as the coordinator has it.
    pub rollout: Rollout,
    /// True if it is going on.
    pub is_active: bool,
    /// The members of the share, if this node leads.
    pub share: Tally,
    /// All other members, if this node leads.
    pub rest: Tally,
    /// The reason why it goes on, or why it ended.
    pub says: String,
    /// For how long this node has watched it.
    pub watched_for: Option<Duration>,
}

/// The leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderView {
    /// Its key in the coordinator.
    pub fact: LeaderFact,
    /// True if this node leads.
    pub is_me: bool,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Its id.
    pub id: NodeId,
    /// The facts about it.
    pub about: About,
    /// The newest version on its disk.
    pub saved: Option<Version>,
    /// The version that it serves by.
    pub running: Option<Version>,
    /// The version that it could not apply.
    pub refused: Option<RefusedVersion>,
    /// For how long it has not been on the bus; `None` if it is.
    pub silent_for: Option<Duration>,
    /// For how long the current version has been published that it does not serve by; `None` if it
    /// does, or this node does not lead.
    pub behind_for: Option<Duration>,
    /// True if it has a version that the leader does not know.
    pub is_ahead: bool,
    /// True if it serves by the document of a rollout before others do.
    pub is_in_share: bool,
}

/// A document in the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDocument {
    /// Its revision.
    pub revision: u64,
    /// When it was stored, in seconds since 1970.
    pub at: u64,
    /// By whom.
    pub by: String,
    /// The document.
    pub text: Arc<str>,
}

impl From<DocumentFact> for StoredDocument {
    fn from(fact: DocumentFact) -> StoredDocument {
        let DocumentFact { revision, at, by, text } = fact;
        StoredDocument { revision, at, by, text }
    }
}

impl Leader {
    /// Returns whether this node leads.
    pub fn leads(&self) -> bool {
        matches!(self.place, Place::Leads { .. })
    }

    /// Returns whether a leader is known: this node or another.
    pub fn has_leader(&self) -> bool {
        self.place != Place::Adrift
    }

    /// Returns the revision of the current document, 0 if there is none.
    pub fn revision(&self) -> u64 {
        self.current().map_or(0, |current| current.revision)
    }

    /// Returns the epoch of this node as leader, and the revision of the current document, if this
    /// node leads. It costs little.
    pub fn leads_document(&self) -> Option<(u64, u64)> {
        let Place::Leads { fact, .. } = &self.place else { return None };
        Some((fact.epoch, self.current_revision()?))
    }

    /// Returns the documents that the coordinator keeps, the latest first.
    pub fn documents(&self) -> Vec<StoredDocument> {
        let is_one = |key: &&String| key.starts_with(facts::DOCUMENTS);
        let keys = self.facts.keys().rev().filter(is_one);
        let found = keys.filter_map(|key| DocumentFact::decode(&self.facts.get(key)?.value));
        found.map(StoredDocument::from).collect()
    }

    /// Returns the current document; `None` if the coordinator is not known yet, or is damaged.
    pub fn document(&self) -> Option<StoredDocument> {
        self.current().filter(|_| self.revision > 0).map(StoredDocument::from)
    }

    /// Returns the fleet.
    pub fn view(&self, now: Time) -> FleetView {
        let leader = match &self.place {
            Place::Leads { fact, .. } => Some(LeaderView { fact: fact.clone(), is_me: true }),
            Place::Below(fact) => Some(LeaderView { fact: fact.clone(), is_me: false }),
            Place::Adrift => None,
        };
        let published = self.roster.published().filter(|_| self.leads());
        let members = self.roster.members().map(|(id, known)| {
            let report = &known.report;
            let meant = self.published.as_ref().map(|one| one.document_for(id).version);
            let is_behind = meant.is_some() && report.running != meant;
            let behind = published.filter(|_| is_behind);
            let rollout = self.published.as_ref().and_then(|one| one.rollout.as_ref());
            MemberView {
                id,
                about: report.about.clone(),
                saved: report.saved,
                running: report.running,
                refused: report.refused.clone(),
                silent_for: known.silent_since.map(|since| now.since(since)),
                behind_for: behind.map(|(_, since)| now.since(since)),
                is_ahead: report
                    .saved
                    .zip(published)
                    .is_some_and(|(saved, (version, _))| !version.covers(saved)),
                is_in_share: rollout.is_some_and(|rollout| rollout.share.includes(id)),
            }
        });
        FleetView {
            cluster: self.me.cluster.clone(),
            node: self.me.node,
            leader,
            revision: self.revision(),
            published: self.published.as_ref().map(|one: &Published| one.document.version),
            members: members.collect(),
            rollout: self.rollout_view(now),
            fault: self.ended.clone().or_else(|| self.fault.clone()),
        }
    }
}
