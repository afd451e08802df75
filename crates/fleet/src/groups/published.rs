//! The decided primaries, as the leader publishes them and a member obeys them.

use crate::Version;
use crate::limits::{GROUPS_LEN_MAX, GROUPS_MAX};
use crate::slots::PublishedSlots;
use keyway_bus::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The decided primary of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// The name of the pool.
    pub pool: String,
    /// The epoch of the decision.
    pub epoch: u64,
    /// The address of the primary, as the document writes it.
    pub primary: String,
    /// The server to which the primary hands over by order of an operator. As soon as this server
    /// says that it is a primary, it is the primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// All decisions, as a leader publishes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedGroups {
    /// The name of the cluster.
    pub cluster: String,
    /// The leader.
    pub leader: u64,
    /// The epoch of the leader, and the number of decisions so far.
    #[serde(flatten)]
    pub version: Version,
    /// The decisions, by pool.
    pub groups: Vec<Decided>,
    /// Pools of the document whose latest decision the coordinator has lost, or that have none.
    /// Members that have one keep it until another one is made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
    /// The maps of pools whose slots have moved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<PublishedSlots>,
}

impl PublishedGroups {
    /// Returns the bytes for the bus.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads the bytes of [`PublishedGroups::encode`]. Returns `None` if they are not such bytes.
    pub fn decode(bytes: &[u8]) -> Option<PublishedGroups> {
        if bytes.len() > GROUPS_LEN_MAX {
            return None;
        }
        let published: PublishedGroups = serde_json::from_slice(bytes).ok()?;
        let is_short = published.groups.len() <= GROUPS_MAX && published.lost.len() <= GROUPS_MAX;
        is_short.then_some(published)
    }

    /// Returns the node of the leader.
    pub fn leader(&self) -> NodeId {
        NodeId(self.leader)
    }
}

/// The reason why published decisions are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecisionRefusal {
    /// They are of another cluster, which has this name.
    OtherCluster(String),
    /// They are older than those of this member.
    Older {
        /// The version that was published.
        theirs: Version,
        /// The version of this member.
        ours: Version,
    },
    /// Other decisions have the same version.
    Differs(Version),
}

impl fmt::Display for DecisionRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecisionRefusal::OtherCluster(theirs) => {
                write!(f, "the decided primaries are of cluster {theirs:?}")
            }
            DecisionRefusal::Older { theirs, ours } => write!(
                f,
                "the decided primaries {theirs} are older than {ours}, which this process has: the \
                 leader was replaced, or the coordinator went back, as after a restored backup; \
                 decide anew by keyway ctl failover"
            ),
            DecisionRefusal::Differs(version) => write!(
                f,
                "the decided primaries {version} are not what they were before: the coordinator \
                 went back, as after a restored backup; decide anew by keyway ctl failover"
            ),
        }
    }
}

impl std::error::Error for DecisionRefusal {}

/// The decisions that a member obeys. It never goes back to older ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decisions {
    cluster: String,
    #[serde(flatten)]
    version: Version,
    groups: BTreeMap<String, Decided>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    slots: BTreeMap<String, PublishedSlots>,
}

#[derive(Serialize, Deserialize)]
struct OnDisk {
    keyway_groups: u32,
    sum: u32,
    decisions: String,
}

/// The form of the file.
const FORM: u32 = 1;

impl Decisions {
    /// Begins without any.
    pub fn new(cluster: &str) -> Decisions {
        Decisions { cluster: cluster.to_owned(), ..Decisions::default() }
    }

    /// Returns the name of the cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Returns the version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the decision about a pool.
    pub fn of(&self, pool: &str) -> Option<&Decided> {
        self.groups.get(pool)
    }

    /// Returns all decisions.
    pub fn all(&self) -> impl Iterator<Item = &Decided> {
        self.groups.values()
    }

    /// Returns the map of a pool whose slots have moved.
    pub fn slots_of(&self, pool: &str) -> Option<&PublishedSlots> {
        self.slots.get(pool)
    }

    /// Returns the maps of all pools whose slots have moved.
    pub fn all_slots(&self) -> impl Iterator<Item = &PublishedSlots> {
        self.slots.values()
    }

    /// Takes published decisions. Returns whether something is new: then they are to be saved and
    /// obeyed. A decision about a pool that is older than the one that is known changes nothing.
    ///
    /// # Errors
    /// Returns why they are refused. Nothing has changed then.
    pub fn take(&mut self, published: &PublishedGroups) -> Result<bool, DecisionRefusal> {
        if published.cluster != self.cluster {
            return Err(DecisionRefusal::OtherCluster(published.cluster.clone()));
        }
        let (theirs, ours) = (published.version, self.version);
        if !theirs.covers(ours) {
            return Err(DecisionRefusal::Older { theirs, ours });
        }
        let mut groups = BTreeMap::new();
        for one in &published.groups {
            let known = self.groups.get(&one.pool).filter(|known| known.epoch > one.epoch);
            groups.insert(one.pool.clone(), known.unwrap_or(one).clone());
        }
        // A removal counts, so a pool that only its publisher lacks was lost.
        let is_same_count = theirs.revision == ours.revision && ours != Version::default();
        for (pool, known) in &self.groups {
            if is_same_count || published.lost.contains(pool) {
                groups.entry(pool.clone()).or_insert_with(|| known.clone());
            }
        }
        let is_other = |(pool, known): (&String, &Decided)| groups.get(pool) != Some(known);
        let slots = self.newer_slots(published, is_same_count);
        let has_other_slots = slots != self.slots;
        if is_same_count && (self.groups.iter().any(is_other) || has_other_slots) {
            return Err(DecisionRefusal::Differs(theirs));
        }
        let is_new = theirs != ours;
        (self.version, self.groups, self.slots) = (theirs, groups, slots);
        Ok(is_new)
    }

    /// Returns the maps after a publication. A map never goes back to an older one, and none is
    /// forgotten while its pool may still be served: that of the document could be older.
    fn newer_slots(
        &self,
        published: &PublishedGroups,
        is_same_count: bool,
    ) -> BTreeMap<String, PublishedSlots> {
        let mut slots = if is_same_count { self.slots.clone() } else { BTreeMap::new() };
        for one in &published.slots {
            let known = self.slots.get(&one.pool).filter(|known| known.epoch > one.epoch);
            slots.insert(one.pool.clone(), known.unwrap_or(one).clone());
        }
        slots
    }

    /// Returns the bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let decisions = serde_json::to_string(self).unwrap_or_default();
        let sum = crc32c::crc32c(decisions.as_bytes());
        serde_json::to_vec(&OnDisk { keyway_groups: FORM, sum, decisions }).unwrap_or_default()
    }

    /// Reads the bytes of [`Decisions::encode`]. Returns `None` if they are not such bytes, whole and
    /// unchanged.
    pub fn decode(bytes: &[u8]) -> Option<Decisions> {
        if bytes.len() > 2 * GROUPS_LEN_MAX {
            return None;
        }
        let disk: OnDisk = serde_json::from_slice(bytes).ok()?;
        let is_whole = crc32c::crc32c(disk.decisions.as_bytes()) == disk.sum;
        let decisions: Decisions = serde_json::from_str(&disk.decisions).ok()?;
        (disk.keyway_groups == FORM && is_whole).then_some(decisions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(epoch: u64, revision: u64, primary: &str) -> PublishedGroups {
        let decided = Decided {
            pool: "a".to_owned(),
            epoch: revision,
            primary: primary.to_owned(),
            next: None,
        };
        let version = Version { epoch, revision };
        let cluster = "prod".to_owned();
        PublishedGroups {
            cluster,
            leader: 1,
            version,
            groups: vec![decided],
            lost: Vec::new(),
            slots: Vec::new(),
        }
    }

    #[test]
    fn a_member_never_goes_back_to_an_older_decision() {
        let mut decisions = Decisions::new("prod");
        assert_eq!(decisions.take(&published(1, 1, "b:1")), Ok(true));
        assert_eq!(decisions.take(&published(1, 1, "b:1")), Ok(false));
        assert_eq!(decisions.take(&published(2, 1, "b:1")), Ok(true), "another leader");
        assert_eq!(decisions.take(&published(3, 2, "c:1")), Ok(true));
        for (epoch, revision) in [(2, 3), (3, 1), (4, 1)] {
            let before = decisions.clone();
            assert!(decisions.take(&published(epoch, revision, "b:1")).is_err());
            assert_eq!(decisions, before);
        }
        let other = decisions.take(&published(4, 2, "b:1"));
        assert_eq!(other, Err(DecisionRefusal::Differs(Version { epoch: 4, revision: 2 })));
        let stranger = PublishedGroups { cluster: "x".to_owned(), ..published(9, 9, "b:1") };
        assert!(decisions.take(&stranger).is_err());
        assert_eq!(Decisions::decode(&decisions.encode()), Some(decisions.clone()));
        let mut bytes = decisions.encode();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        assert_eq!(Decisions::decode(&bytes), None);
        assert_eq!(
            PublishedGroups::decode(&published(1, 1, "b").encode()),
            Some(published(1, 1, "b"))
        );
    }

    #[test]
    fn a_decision_about_one_pool_never_brings_back_an_older_one_about_another() {
        let all = |epoch, revision, pools: &[(&str, u64, &str)], lost: &[&str]| {
            let decided = |(pool, epoch, primary): &(&str, u64, &str)| Decided {
                pool: (*pool).to_owned(),
                epoch: *epoch,
                primary: (*primary).to_owned(),
                next: None,
            };
            PublishedGroups {
                groups: pools.iter().map(decided).collect(),
                lost: lost.iter().map(|pool| (*pool).to_owned()).collect(),
                ..published(epoch, revision, "")
            }
        };
        let mut decisions = Decisions::new("prod");
        let primary = |decisions: &Decisions, pool: &str| {
            decisions.of(pool).map(|decided| decided.primary.clone())
        };
        let first = all(1, 9, &[("a", 7, "a2"), ("b", 8, "b2"), ("c", 9, "c2")], &[]);
        assert_eq!(decisions.take(&first), Ok(true));
        // The coordinator is that of before, and the primary of pool a is named.
        let restored = [("a", 10, "a3"), ("b", 2, "b1")];
        assert_eq!(decisions.take(&all(3, 10, &restored, &["c"])), Ok(true));
        for (pool, now) in [("a", "a3"), ("b", "b2"), ("c", "c2")] {
            assert_eq!(primary(&decisions, pool).as_deref(), Some(now));
        }
        assert_eq!(decisions.take(&all(4, 10, &restored, &[])), Ok(true), "another leader");
        assert_eq!(primary(&decisions, "c").as_deref(), Some("c2"));
        let named = [("a", 10, "a3"), ("b", 11, "b1")];
        assert_eq!(decisions.take(&all(4, 11, &named, &[])), Ok(true), "pool c is removed");
        assert_eq!(primary(&decisions, "b").as_deref(), Some("b1"));
        assert_eq!(primary(&decisions, "c"), None);
    }
}
