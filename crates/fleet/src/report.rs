//! The report of a member to the leader, as JSON.

use crate::limits::{NAME_LEN_MAX, NAMES_MAX, REPORT_LEN_MAX, WHY_LEN_MAX};
use crate::{GroupSeen, Measured, SentEvents, Version, groups};
use serde::{Deserialize, Serialize};

/// The facts about a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The version of its program.
    pub version: String,
    /// The addresses at which it serves clients.
    pub listeners: Vec<String>,
    /// The names of its pools.
    pub pools: Vec<String>,
    /// The addresses at which clients find its pools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serves: Vec<Serving>,
}

/// An address at which clients find a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// The name of the pool.
    pub pool: String,
    /// The protocol of its clients: `redis` or `memcached`.
    pub protocol: String,
    /// The address, as `HOST:PORT`.
    pub address: String,
}

/// A version that a member could not apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedVersion {
    /// The version.
    #[serde(flatten)]
    pub version: Version,
    /// The reason.
    pub why: String,
}

/// A report of a member. Each has everything, so the latest one counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The name of the cluster.
    pub cluster: String,
    /// The facts about it.
    #[serde(flatten)]
    pub about: About,
    /// The newest document on its disk. It refuses every older one.
    pub saved: Option<Version>,
    /// The document that it serves by.
    pub running: Option<Version>,
    /// The latest document that it could not apply, if that is its newest one.
    pub refused: Option<RefusedVersion>,
    /// Its requests during a rollout. The coordinator does not keep them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// The groups of servers that it uses. The coordinator does not keep them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupSeen>,
    /// Events that the leader has not acknowledged. The coordinator does not keep them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<SentEvents>,
}

impl About {
    /// Cuts lists and names to what a report may have.
    #[must_use]
    pub fn cut(mut self) -> About {
        self.version = cut(&self.version, NAME_LEN_MAX);
        for list in [&mut self.listeners, &mut self.pools] {
            list.truncate(NAMES_MAX);
            list.iter_mut().for_each(|name| *name = cut(name, NAME_LEN_MAX));
        }
        self.serves.truncate(NAMES_MAX);
        for one in &mut self.serves {
            for text in [&mut one.pool, &mut one.protocol, &mut one.address] {
                *text = cut(text, NAME_LEN_MAX);
            }
        }
        self
    }
}

impl RefusedVersion {
    pub(crate) fn new(version: Version, why: &str) -> RefusedVersion {
        RefusedVersion { version, why: cut(why, WHY_LEN_MAX) }
    }
}

impl Report {
    /// Returns the bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a message. Returns `None` if it is no report. Lists and texts are cut to their bounds.
    pub fn decode(bytes: &[u8]) -> Option<Report> {
        if bytes.len() > REPORT_LEN_MAX {
            return None;
        }
        let mut report: Report = serde_json::from_slice(bytes).ok()?;
        report.about = report.about.cut();
        report.groups = groups::cut_seen(report.groups);
        report.refused = report.refused.map(|one| RefusedVersion::new(one.version, &one.why));
        Some(report)
    }
}

/// Returns the beginning of a text that has at most `len_max` bytes.
pub(crate) fn cut(text: &str, len_max: usize) -> String {
    let mut end = text.len().min(len_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}
