//! The report of a member to the leader, as JSON.

use crate::limits::{NAME_LEN_MAX, NAMES_MAX, REPORT_LEN_MAX, WHY_LEN_MAX};
use crate::{GroupSeen, Measured, SentEvents, SlotsSeen, Version, groups};
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    /// The number of decisions about groups at the latest publication that it has taken. It refuses
    /// one with fewer. The coordinator does not keep it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub decisions: u64,
    /// The maps of pools whose slots may move, as it obeys them. The coordinator does not keep them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<SlotsSeen>,
    /// Events that the leader has not acknowledged. The coordinator does not keep them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<SentEvents>,
}

/// A report as it is read. A leader reads one of each member in a second. Flattened facts would be
/// kept in a form between first, value by value.
#[derive(Deserialize)]
struct Read {
    cluster: String,
    version: String,
    listeners: Vec<String>,
    pools: Vec<String>,
    #[serde(default)]
    serves: Vec<Serving>,
    saved: Option<Version>,
    running: Option<Version>,
    refused: Option<RefusedVersion>,
    #[serde(default)]
    measured: Option<Measured>,
    #[serde(default)]
    groups: Vec<GroupSeen>,
    #[serde(default)]
    decisions: u64,
    #[serde(default)]
    slots: Vec<SlotsSeen>,
    #[serde(default)]
    events: Option<SentEvents>,
}

impl From<Read> for Report {
    fn from(read: Read) -> Report {
        let Read { cluster, version, listeners, pools, serves, .. } = read;
        let Read { saved, running, refused, measured, groups, decisions, slots, events, .. } = read;
        let about = About { version, listeners, pools, serves };
        Report {
            cluster,
            about,
            saved,
            running,
            refused,
            measured,
            groups,
            decisions,
            slots,
            events,
        }
    }
}

/// Returns whether a report leaves a number out.
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl About {
    /// Cuts lists and names to what a report may have.
    #[must_use]
    pub fn cut(mut self) -> About {
        shorten(&mut self.version, NAME_LEN_MAX);
        for list in [&mut self.listeners, &mut self.pools] {
            list.truncate(NAMES_MAX);
            list.iter_mut().for_each(|name| shorten(name, NAME_LEN_MAX));
        }
        self.serves.truncate(NAMES_MAX);
        for one in &mut self.serves {
            for text in [&mut one.pool, &mut one.protocol, &mut one.address] {
                shorten(text, NAME_LEN_MAX);
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
        let mut report = Report::from(serde_json::from_slice::<Read>(bytes).ok()?);
        report.about = report.about.cut();
        report.groups = groups::cut_seen(report.groups);
        report.refused = report.refused.map(|one| RefusedVersion::new(one.version, &one.why));
        Some(report)
    }
}

/// Returns the beginning of a text that has at most `len_max` bytes.
pub(crate) fn cut(text: &str, len_max: usize) -> String {
    text.get(..end_of(text, len_max)).unwrap_or_default().to_owned()
}

/// Cuts a text to its beginning that has at most `len_max` bytes.
pub(crate) fn shorten(text: &mut String, len_max: usize) {
    text.truncate(end_of(text, len_max));
}

fn end_of(text: &str, len_max: usize) -> usize {
    let mut end = text.len().min(len_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RoleSeen, ServerSeen};

    #[test]
    fn a_report_is_read_as_it_was_written_and_more_names_are_ignored() {
        let about = About {
            version: "1".repeat(NAME_LEN_MAX) + "\u{e4}",
            listeners: vec!["tcp://127.0.0.1:1".to_owned()],
            pools: vec!["a".to_owned(); NAMES_MAX + 1],
            serves: vec![Serving { pool: "a".to_owned(), ..Serving::default() }],
        };
        let role = Some(RoleSeen::Primary { offset: 7, replicas: 1 });
        let server = ServerSeen { address: "p:1".to_owned(), silent_ms: Some(3), role };
        let version = Version { epoch: 3, revision: 9 };
        let report = Report {
            cluster: "test".to_owned(),
            about,
            saved: Some(version),
            running: None,
            refused: Some(RefusedVersion::new(version, "why")),
            measured: Some(Measured::default()),
            groups: vec![GroupSeen { pool: "a".to_owned(), epoch: 1, servers: vec![server] }],
            decisions: 7,
            slots: Vec::new(),
            events: None,
        };
        let bytes = report.encode();
        let expected = Report { about: report.about.clone().cut(), ..report };
        assert_eq!(Report::decode(&bytes).as_ref(), Some(&expected));
        let text = String::from_utf8(bytes).unwrap();
        let later = text.replacen('{', "{\"later\": [1], ", 1);
        assert_eq!(Report::decode(later.as_bytes()), Some(expected));
        let least = r#"{"cluster": "a", "version": "1", "listeners": [], "pools": []}"#;
        assert!(Report::decode(least.as_bytes()).is_some());
    }
}
