//! Groups: a primary and its replicas, watched by observers, with a primary that the leader decides.
//!
//! ```text
//!   (none) ─► Settled ◄──────────────┐        by itself: the primary is down
//!              │   │                 │
//!              │   └─► Promoting ────┤        decided; the servers are told until they obey
//!              │          ▲          │
//!              └─► Switching ────────┘        by hand: the servers hand over, then it is decided
//! ```
//! A group is one key of the coordinator, so another leader carries on each step. Each decision has
//! an epoch, which is larger than that of every decision before it, in all groups.

mod choose;
mod observers;
mod published;

pub use published::{Decided, DecisionRefusal, Decisions, PublishedGroups};

pub(crate) use choose::{best, fitness};
pub(crate) use observers::{Observers, Users, Verdict};

use crate::limits::{GROUP_NAME_LEN_MAX, GROUPS_MAX, SERVERS_MAX, WHY_LEN_MAX};
use crate::report::{cut, shorten};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The topic of the bus on which control publishes the decided primaries.
pub const GROUPS_TOPIC: &str = "groups";

/// A group, as the document says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// The name of its pool.
    pub pool: String,
    /// The addresses of its servers, as the document writes them.
    pub servers: Vec<String>,
    /// Time without an answer after which a server is down for an observer.
    pub down_after: Duration,
    /// Observers for which the primary must be down. `None`: the majority of all that control knows.
    pub quorum: Option<u32>,
}

/// A group, as the coordinator has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The epoch of the decision. Every later decision about any group has a larger one.
    pub epoch: u64,
    /// The address of the primary.
    pub primary: String,
    /// The primary before the latest fail-over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    /// The step of a fail-over.
    #[serde(flatten)]
    pub phase: Phase,
    /// When it was decided, in seconds since 1970.
    pub at: u64,
    /// The reason, for people.
    pub why: String,
}

/// The step of a fail-over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "kebab-case")]
pub enum Phase {
    /// None is going on.
    Settled,
    /// The primary is decided, and has not told yet that it is one.
    Promoting,
    /// The primary hands over to this server. Each of the two may be the primary.
    Switching {
        /// The address.
        to: String,
    },
}

impl Group {
    /// Reads the coordinator's value.
    pub fn decode(value: &[u8]) -> Option<Group> {
        serde_json::from_slice(value).ok()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Returns the server to which the primary hands over.
    pub fn next(&self) -> Option<&str> {
        match &self.phase {
            Phase::Switching { to } => Some(to),
            Phase::Settled | Phase::Promoting => None,
        }
    }

    pub(crate) fn decided(&self, pool: &str) -> Decided {
        Decided {
            pool: pool.to_owned(),
            epoch: self.epoch,
            primary: self.primary.clone(),
            next: self.next().map(str::to_owned),
        }
    }

    pub(crate) fn with_why(mut self, why: &str) -> Group {
        self.why = cut(why, WHY_LEN_MAX);
        self
    }
}

/// A group, as an observer sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSeen {
    /// The name of its pool.
    pub pool: String,
    /// The epoch of the decision by which the observer serves; 0 without one.
    #[serde(default)]
    pub epoch: u64,
    /// Its servers.
    pub servers: Vec<ServerSeen>,
}

/// A server, as an observer sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSeen {
    /// Its address, as the document writes it.
    pub address: String,
    /// Milliseconds since its latest answer; `None` if it has answered the latest question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
    /// The role that it told last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<RoleSeen>,
}

/// The role that a server tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "kebab-case")]
pub enum RoleSeen {
    /// It is a primary.
    Primary {
        /// Its replication offset, in bytes.
        offset: u64,
        /// The replicas that are connected to it and follow.
        replicas: u64,
    },
    /// It is a replica.
    Replica {
        /// The address of its primary.
        of: String,
        /// Its replication offset, in bytes.
        offset: u64,
        /// True if its connection to the primary is up.
        is_linked: bool,
        /// Milliseconds since that went down, if it tells them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        down_ms: Option<u64>,
        /// True if its first full copy is under way: it lacks data.
        #[serde(default)]
        is_syncing: bool,
        /// Its priority for promotion. Zero: never.
        priority: u32,
    },
}

impl ServerSeen {
    /// Returns whether it has answered the latest question.
    pub fn is_reached(&self) -> bool {
        self.silent_ms.is_none()
    }

    /// Returns whether it has answered, and is a primary.
    pub fn is_primary(&self) -> bool {
        self.is_reached() && matches!(self.role, Some(RoleSeen::Primary { .. }))
    }

    /// Returns the replication offset that it told last.
    pub fn offset(&self) -> Option<u64> {
        match self.role.as_ref()? {
            RoleSeen::Primary { offset, .. } | RoleSeen::Replica { offset, .. } => Some(*offset),
        }
    }

    fn cut(&mut self) {
        shorten(&mut self.address, GROUP_NAME_LEN_MAX);
        if let Some(RoleSeen::Replica { of, .. }) = &mut self.role {
            shorten(of, GROUP_NAME_LEN_MAX);
        }
    }
}

impl GroupSeen {
    /// Returns a server.
    pub fn server(&self, address: &str) -> Option<&ServerSeen> {
        self.servers.iter().find(|server| server.address == address)
    }
}

/// Cuts lists and names to what a report may have.
pub(crate) fn cut_seen(mut groups: Vec<GroupSeen>) -> Vec<GroupSeen> {
    groups.truncate(GROUPS_MAX);
    let mut room = SERVERS_MAX;
    for group in &mut groups {
        shorten(&mut group.pool, GROUP_NAME_LEN_MAX);
        group.servers.truncate(room);
        group.servers.iter_mut().for_each(ServerSeen::cut);
        room -= group.servers.len();
    }
    groups
}

/// An order to the servers of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOrder {
    /// The name of the pool.
    pub pool: String,
    /// A number for the answer.
    pub number: u64,
    /// The order. Executing it twice does what executing it once does.
    pub what: Command,
}

/// The parts of an order to the servers of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Stop writes on the primary before, where it can be reached, and make it a replica of the new
    /// one. Make the new one a primary. Then make the others its replicas.
    Promote {
        /// The new primary. The order has failed if it does not become one.
        primary: String,
        /// The primary before.
        old: Option<String>,
        /// All others.
        others: Vec<String>,
    },
    /// Make this server a replica.
    Follow {
        /// The server.
        server: String,
        /// Its primary.
        primary: String,
    },
    /// Have the primary hand over to a replica without losing a write: writes held, offsets equal,
    /// switched. If that fails the primary must be one again, or have handed over.
    Switch {
        /// The primary.
        from: String,
        /// The replica.
        to: String,
        /// All others, which follow it afterwards.
        others: Vec<String>,
    },
}
