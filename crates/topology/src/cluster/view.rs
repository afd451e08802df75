use super::slot::{SLOT_COUNT, SlotOwners};
use crate::reply_reader::{endpoint, is_unknown_host};
use crate::{Endpoint, NODES_MAX, ViewError};
use std::collections::BTreeMap;

/// Most slots that the ranges of a reply may claim together. Where nodes do not agree yet, a slot
/// is claimed twice at most. Without a bound, a hostile reply could claim all of them a million
/// times.
const CLAIMED_MAX: usize = 4 * SLOT_COUNT;

/// Longest identity of a node that is accepted, in bytes; Redis uses 40 hex digits.
const ID_LEN_MAX: usize = 64;

/// The server that was asked, and how.
#[derive(Clone, Copy, Debug)]
pub struct ViewSource<'a> {
    /// The server that sent the reply. A node without a host is on this server's host.
    pub endpoint: &'a Endpoint,
    /// True if Keyway connects to nodes by TLS. If so, the TLS port is taken from a node that tells
    /// both.
    pub wants_tls: bool,
}

impl<'a> ViewSource<'a> {
    /// Returns a source for `endpoint`, asked without TLS.
    pub fn plainly(endpoint: &'a Endpoint) -> ViewSource<'a> {
        ViewSource { endpoint, wants_tls: false }
    }

    /// Returns the endpoint of a node. `host` is the host that its server prefers: a name or
    /// address, empty for the host that was asked, or `?` if it prefers a name and has none. For
    /// `?`, one of `others` is taken.
    pub(super) fn locate(
        self,
        host: Option<&str>,
        others: &[Option<&str>],
        port: u16,
    ) -> Result<Option<Endpoint>, ViewError> {
        let preferred = match host {
            Some("?") => others.iter().flatten().find(|host| !is_unknown_host(host)).copied(),
            host => host.filter(|host| !host.is_empty()),
        };
        match (preferred, self.endpoint) {
            (Some(host), _) => endpoint(host, port),
            (None, Endpoint::Tcp { host, .. }) => endpoint(host, port),
            (None, Endpoint::Unix { .. } | Endpoint::Shm { .. }) => Ok(None),
        }
    }

    /// Returns the port to connect to, of the plain and the TLS port of a node.
    pub(super) fn port(self, plain: u16, tls: u16) -> u16 {
        let (wanted, other) = if self.wants_tls { (tls, plain) } else { (plain, tls) };
        if wanted == 0 { other } else { wanted }
    }
}

/// The role of a node in its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeRole {
    /// The node takes writes for the slots it owns, which may be none.
    Primary,
    /// The node copies a primary.
    Replica {
        /// Index of the primary in the list of nodes. `None` if the reply does not list it, or if
        /// it is a replica itself.
        of: Option<u16>,
    },
}

/// The health of a node, as the asked node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeHealth {
    /// Nothing is known against it.
    Online,
    /// The node is a replica that has not copied its primary yet.
    Loading,
    /// The asked node cannot reach it (`fail?`), or tells a state that Keyway does not know.
    Failing,
    /// Most primaries cannot reach it.
    Failed,
    /// The handshake with it is under way, and it does not belong to the cluster yet.
    Handshake,
    /// No node knows its address.
    NoAddress,
}

/// One server of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNode {
    /// Its identity, 40 hex digits in Redis. Old versions of CLUSTER SLOTS tell none.
    pub id: Option<Box<str>>,
    /// The address to connect to, as the reply prefers: an address, a host name, or the host that
    /// was asked. `None` if it has no address or no port.
    pub endpoint: Option<Endpoint>,
    /// Its announced host name. [`ClusterNode::endpoint`] may hold the same name.
    pub host_name: Option<Box<str>>,
    /// Its availability zone, told by Valkey.
    pub zone: Option<Box<str>>,
    /// Its role.
    pub role: NodeRole,
    /// Its health.
    pub health: NodeHealth,
    /// Its replication offset, in bytes (CLUSTER SHARDS).
    pub replication_offset: Option<u64>,
    /// Its epoch (CLUSTER NODES). A replica has the epoch of its primary.
    pub epoch: Option<u64>,
    /// True if it is the asked node (CLUSTER NODES).
    pub is_asked: bool,
}

/// The direction in which a slot moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Away from the asked node, which still owns it.
    Migrating,
    /// To the asked node, which does not own it yet.
    Importing,
}

/// A slot that is moving from or to the asked node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovingSlot {
    /// The slot.
    pub slot: u16,
    /// The direction, seen from the asked node.
    pub phase: Move,
    /// Index of the asked node.
    pub asked: u16,
    /// Index of the other node; `None` if the reply does not list it.
    pub peer: Option<u16>,
}

/// A cluster as one of its nodes sees it.
///
/// The owner of a slot is always a primary. If two nodes claim a slot, it belongs to the node with
/// the later epoch if epochs are told, else to the node that has not failed, else to the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterView {
    /// Every node in the reply, in its order.
    pub nodes: Vec<ClusterNode>,
    /// The owner of each slot.
    pub owners: SlotOwners,
    /// The latest epoch of any node (CLUSTER NODES).
    pub epoch: Option<u64>,
    /// The slots that are moving, as the asked node sees them (CLUSTER NODES).
    pub moving: Vec<MovingSlot>,
}

impl ClusterView {
    /// Returns the node that owns `slot`.
    #[inline]
    pub fn owner_of(&self, slot: u16) -> Option<&ClusterNode> {
        self.owners.of(slot).map(|owner| &self.nodes[usize::from(owner)])
    }

    /// Returns the replicas of the node at `primary`, with their indices.
    pub fn replicas_of(&self, primary: u16) -> impl Iterator<Item = (u16, &ClusterNode)> {
        let numbered = self.nodes.iter().enumerate().map(|(index, node)| (index as u16, node));
        numbered.filter(move |(_, node)| node.role == NodeRole::Replica { of: Some(primary) })
    }

    /// Returns whether every slot has an owner.
    pub fn is_whole(&self) -> bool {
        self.owners.owned_count() == SLOT_COUNT
    }
}

impl ClusterNode {
    /// Creates a primary of which only the endpoint is known.
    pub(super) fn new(endpoint: Option<Endpoint>) -> ClusterNode {
        ClusterNode {
            id: None,
            endpoint,
            host_name: None,
            zone: None,
            role: NodeRole::Primary,
            health: NodeHealth::Online,
            replication_offset: None,
            epoch: None,
            is_asked: false,
        }
    }
}

/// A view that is being read: the nodes by identity, and for each slot the node with the best
/// claim.
#[derive(Debug, Default)]
pub(super) struct Building {
    pub nodes: Vec<ClusterNode>,
    pub moving: Vec<MovingSlot>,
    by_id: BTreeMap<Box<str>, u16>,
    by_endpoint: BTreeMap<Endpoint, u16>,
    owners: SlotOwners,
    claimed: usize,
}

impl Building {
    /// Returns the index of `node`. Adds it unless it is in the list already, by its identity or,
    /// if it has none, by its endpoint.
    pub fn add(&mut self, node: ClusterNode) -> Result<u16, ViewError> {
        let known = match (&node.id, &node.endpoint) {
            (Some(id), _) => self.by_id.get(id),
            (None, Some(endpoint)) => self.by_endpoint.get(endpoint),
            (None, None) => None,
        };
        if let Some(&index) = known {
            return Ok(index);
        }
        if self.nodes.len() == NODES_MAX {
            return Err(ViewError::TooManyNodes);
        }
        let index = self.nodes.len() as u16;
        match (&node.id, &node.endpoint) {
            (Some(id), _) => self.by_id.insert(id.clone(), index),
            (None, Some(endpoint)) => self.by_endpoint.insert(endpoint.clone(), index),
            (None, None) => None,
        };
        self.nodes.push(node);
        Ok(index)
    }

    /// Returns the index of the node called `id`.
    pub fn find(&self, id: &str) -> Option<u16> {
        self.by_id.get(id).copied()
    }

    /// Notes that `owner` claims the slots from `first` to `last`.
    pub fn claim(&mut self, first: i64, last: i64, owner: u16) -> Result<(), ViewError> {
        let is_slot = |slot: i64| (0..SLOT_COUNT as i64).contains(&slot);
        if !is_slot(first) || !is_slot(last) || last < first {
            return Err(ViewError::SlotRange);
        }
        self.count((last - first + 1) as usize)?;
        if self.nodes[usize::from(owner)].role != NodeRole::Primary {
            return Ok(());
        }
        // Claims come as ranges that hardly ever overlap. Each run of slots with one previous owner
        // is compared once.
        let (mut at, last) = (first as u16, last as u16);
        while at <= last {
            let before = self.owners.of(at);
            let mut end = at;
            while end < last && self.owners.of(end + 1) == before {
                end += 1;
            }
            if before.is_none_or(|before| self.weight(owner) > self.weight(before)) {
                self.owners.set_range(at, end, Some(owner));
            }
            at = end + 1;
        }
        Ok(())
    }

    /// Counts slots that a reply names. Returns an error above [`CLAIMED_MAX`].
    pub fn count(&mut self, slots: usize) -> Result<(), ViewError> {
        self.claimed += slots;
        if self.claimed > CLAIMED_MAX { Err(ViewError::TooManySlots) } else { Ok(()) }
    }

    /// Returns the weight of a node's claim; the greater wins.
    fn weight(&self, index: u16) -> (u64, bool) {
        let node = &self.nodes[usize::from(index)];
        (node.epoch.unwrap_or(0), node.health != NodeHealth::Failed)
    }

    pub fn finish(self) -> ClusterView {
        let epoch = self.nodes.iter().filter_map(|node| node.epoch).max();
        ClusterView { nodes: self.nodes, owners: self.owners, epoch, moving: self.moving }
    }
}

/// Returns a checked copy of an identity.
pub(super) fn node_id(text: &str) -> Result<Box<str>, ViewError> {
    let is_id =
        (1..=ID_LEN_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    if is_id { Ok(text.into()) } else { Err(ViewError::Expected("the identity of a node")) }
}

/// Returns a copy of a text, or `None` if it means "unknown", as an empty host name does.
pub(super) fn told(text: Option<&str>) -> Option<Box<str>> {
    text.filter(|text| !is_unknown_host(text)).map(Into::into)
}
