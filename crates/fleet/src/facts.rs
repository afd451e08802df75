//! The keys of a cluster in the coordinator, and their form.
//!
//! ```text
//!   leader            who leads; bound to the session of that control node
//!   epoch             the number of elections so far
//!   document          the revision of the current document
//!   documents/N       the document of revision N, of the latest ones
//!   rollout           the rollout that is going on, or the latest one
//!   members/ID        what a member has reported
//!   groups/POOL       the primary of a group
//!   slots/POOL        the map of a pool whose slots have moved, and its plans
//!   decisions         the number of decisions about these so far
//!   audit-head        the end of the audit log; see `audit`
//!   audit/N           entry N of the audit log, of the latest ones
//! ```

use crate::limits::{DOCUMENT_LEN_MAX, NAME_LEN_MAX};
use crate::{Report, document};
use keyway_bus::NodeId;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub(crate) const LEADER: &str = "leader";
pub(crate) const EPOCH: &str = "epoch";
pub(crate) const DOCUMENT: &str = "document";
pub(crate) const ROLLOUT: &str = "rollout";
pub(crate) const DOCUMENTS: &str = "documents/";
pub(crate) const MEMBERS: &str = "members/";
pub(crate) const GROUPS: &str = "groups/";
pub(crate) const SLOTS: &str = "slots/";
/// The number of decisions about groups and slots so far.
pub(crate) const DECISIONS: &str = "decisions";

/// A value of the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The value.
    pub value: Arc<[u8]>,
    /// The coordinator's revision that changed it last.
    pub modified: u64,
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// The key.
    pub key: String,
    /// Its value; `None` if it is gone.
    pub fact: Option<Fact>,
}

/// A condition of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// The key does not exist.
    Absent(String),
    /// The key was changed last by this revision of the coordinator.
    Modified(String, u64),
}

/// A transaction of the coordinator: everything is done, or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Write {
    /// The conditions.
    pub when: Vec<When>,
    /// Keys and their values.
    pub put: Vec<(String, Vec<u8>)>,
    /// Keys and values that the end of this process's session deletes.
    pub put_bound: Vec<(String, Vec<u8>)>,
    /// Keys to delete.
    pub delete: Vec<String>,
}

/// The outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// Everything was done, at this revision of the coordinator.
    Done(u64),
    /// Something did not hold, and nothing was done.
    Refused,
    /// The answer was lost: it may have been done, or may still be.
    Unknown(String),
    /// Nothing was done, for this reason.
    Failed(String),
}

/// The leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderFact {
    /// Its node of the bus.
    pub node: u64,
    /// Its epoch.
    pub epoch: u64,
    /// A number that its process has drawn.
    pub token: u64,
    /// The addresses of its node.
    pub urls: Vec<String>,
    /// The address of its admin listener.
    pub admin: Option<String>,
}

impl LeaderFact {
    pub(crate) fn decode(value: &[u8]) -> Option<LeaderFact> {
        serde_json::from_slice(value).ok()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Returns the node that leads.
    pub fn id(&self) -> NodeId {
        NodeId(self.node)
    }
}

#[derive(Serialize, Deserialize)]
struct DocumentHead {
    revision: u64,
    /// Seconds since 1970.
    at: u64,
    by: String,
}

/// A document in the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DocumentFact {
    pub revision: u64,
    pub at: u64,
    pub by: String,
    pub text: Arc<str>,
}

impl DocumentFact {
    pub fn decode(value: &[u8]) -> Option<DocumentFact> {
        let (head, text): (DocumentHead, _) = document::split_head(value, DOCUMENT_LEN_MAX).ok()?;
        let DocumentHead { revision, at, by } = head;
        Some(DocumentFact { revision, at, by, text: text.into() })
    }

    pub fn encode(&self) -> Vec<u8> {
        debug_assert!(self.text.len() <= DOCUMENT_LEN_MAX);
        let by = self.by.chars().take(NAME_LEN_MAX).collect();
        document::with_head(&DocumentHead { revision: self.revision, at: self.at, by }, &self.text)
    }
}

pub(crate) fn document_key(revision: u64) -> String {
    format!("{DOCUMENTS}{revision:020}")
}

pub(crate) fn member_key(id: NodeId) -> String {
    format!("{MEMBERS}{id}")
}

pub(crate) fn group_key(pool: &str) -> String {
    format!("{GROUPS}{pool}")
}

pub(crate) fn slots_key(pool: &str) -> String {
    format!("{SLOTS}{pool}")
}

pub(crate) fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

pub(crate) fn member(key: &str, fact: &Fact) -> Option<(NodeId, Report)> {
    let id = key.strip_prefix(MEMBERS)?.parse().ok()?;
    Some((id, Report::decode(&fact.value)?))
}
