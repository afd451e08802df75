use super::slot::{SLOT_COUNT, SlotOwners};
use crate::reply_reader::{endpoint, is_unknown_host};
use crate::{Endpoint, NODES_MAX, ViewError};
use std::collections::BTreeMap;

/// The ranges of a reply may claim this many slots together. A slot is
/// claimed twice at most where nodes do not agree yet; without a bound, a
/// hostile reply could claim all of them a million times.
const CLAIMED_MAX: usize = 4 * SLOT_COUNT;

/// Longest identity of a node that is kept; Redis has 40 hex digits.
const ID_LEN_MAX: usize = 64;

/// Who was asked, and how.
#[derive(Clone, Copy, Debug)]
pub struct ViewSource<'a> {
    /// Where the reply comes from. A node that is told without a host is on
    /// this one's.
    pub endpoint: &'a Endpoint,
    /// Whether nodes are to be connected to by TLS: their TLS port is taken
    /// where they tell both.
    pub wants_tls: bool,
}

impl<'a> ViewSource<'a> {
    /// `endpoint`, asked without TLS.
    pub fn plainly(endpoint: &'a Endpoint) -> ViewSource<'a> {
        ViewSource { endpoint, wants_tls: false }
    }

    /// The endpoint of a node whose server prefers `host`: its own name for
    /// the host, none (`""`) for the host that was asked, or `?` where it would
    /// prefer a name and has none, so that one of `others` is taken.
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

    /// The port to connect to, of the two that a node may have.
    pub(super) fn port(self, plain: u16, tls: u16) -> u16 {
        let (wanted, other) = if self.wants_tls { (tls, plain) } else { (plain, tls) };
        if wanted == 0 { other } else { wanted }
    }
}

/// What a node does in its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeRole {
    /// It takes writes, for the slots it owns, which may be none.
    Primary,
    /// It copies a primary.
    Replica {
        /// Index of the primary in the list of nodes; none where the reply has
        /// no such node, or where that one is a replica itself.
        of: Option<u16>,
    },
}

/// What the asked node thinks of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeHealth {
    /// Nothing is known against it.
    Online,
    /// A replica that has not copied its primary yet.
    Loading,
    /// The asked node cannot reach it (`fail?`), or says of it what is not
    /// known here.
    Failing,
    /// Most primaries cannot reach it.
    Failed,
    /// It is being met, and is not of the cluster yet.
    Handshake,
    /// Nobody knows where it is.
    NoAddress,
}

/// One server of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterNode {
    /// Its identity, 40 hex digits in Redis; old versions of CLUSTER SLOTS have
    /// none.
    pub id: Option<Box<str>>,
    /// Where to connect to, as the reply prefers: by address, by host name, or
    /// on the host that was asked. None where it has no address or no port.
    pub endpoint: Option<Endpoint>,
    /// Its announced host name, which [`ClusterNode::endpoint`] may hold too.
    pub host_name: Option<Box<str>>,
    /// Its availability zone, which Valkey tells.
    pub zone: Option<Box<str>>,
    /// Primary or replica.
    pub role: NodeRole,
    /// Whether it can be used.
    pub health: NodeHealth,
    /// How far its copy is, in bytes (CLUSTER SHARDS).
    pub replication_offset: Option<u64>,
    /// Its epoch (CLUSTER NODES); a replica has its primary's.
    pub epoch: Option<u64>,
    /// Whether it is the asked one (CLUSTER NODES).
    pub is_asked: bool,
}

/// Which way a slot moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Away from the asked node, which still owns it.
    Migrating,
    /// To the asked node, which does not own it yet.
    Importing,
}

/// A slot that the asked node is about to give or to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovingSlot {
    /// Which.
    pub slot: u16,
    /// From the asked node or to it.
    pub phase: Move,
    /// Index of the asked node.
    pub asked: u16,
    /// Index of the other node; none where the reply has no such node.
    pub peer: Option<u16>,
}

/// A cluster as one of its nodes sees it.
///
/// An owner of a slot is always a primary. A slot that two claim belongs to
/// the one of the later epoch where epochs are told, else to the one that has
/// not failed, else to the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterView {
    /// Every node in the reply, in its order.
    pub nodes: Vec<ClusterNode>,
    /// Who owns which slot.
    pub owners: SlotOwners,
    /// The latest epoch of any node (CLUSTER NODES).
    pub epoch: Option<u64>,
    /// The slots on the way, as the asked node sees them (CLUSTER NODES).
    pub moving: Vec<MovingSlot>,
}

impl ClusterView {
    /// The node that owns `slot`.
    #[inline]
    pub fn owner_of(&self, slot: u16) -> Option<&ClusterNode> {
        self.owners.of(slot).map(|owner| &self.nodes[usize::from(owner)])
    }

    /// The replicas of the node at `primary`, with their indices.
    pub fn replicas_of(&self, primary: u16) -> impl Iterator<Item = (u16, &ClusterNode)> {
        let numbered = self.nodes.iter().enumerate().map(|(index, node)| (index as u16, node));
        numbered.filter(move |(_, node)| node.role == NodeRole::Replica { of: Some(primary) })
    }

    /// Whether every slot has an owner.
    pub fn is_whole(&self) -> bool {
        self.owners.owned_count() == SLOT_COUNT
    }
}

impl ClusterNode {
    /// A primary of which nothing more is known.
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

/// A view on its way: nodes by identity, and slots by who has the better claim.
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
    /// The index of `node`, which may be there already: by its identity, or by
    /// its endpoint where it has none.
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

    /// The node called `id`.
    pub fn find(&self, id: &str) -> Option<u16> {
        self.by_id.get(id).copied()
    }

    /// `owner` says that the slots from `first` to `last` are its own.
    pub fn claim(&mut self, first: i64, last: i64, owner: u16) -> Result<(), ViewError> {
        let is_slot = |slot: i64| (0..SLOT_COUNT as i64).contains(&slot);
        if !is_slot(first) || !is_slot(last) || last < first {
            return Err(ViewError::SlotRange);
        }
        self.count((last - first + 1) as usize)?;
        if self.nodes[usize::from(owner)].role != NodeRole::Primary {
            return Ok(());
        }
        // Claims come as ranges that hardly ever overlap: each run of slots with one owner
        // before is weighed once.
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

    /// Counts slots that a reply names, against the bound.
    pub fn count(&mut self, slots: usize) -> Result<(), ViewError> {
        self.claimed += slots;
        if self.claimed > CLAIMED_MAX { Err(ViewError::TooManySlots) } else { Ok(()) }
    }

    /// What the claim of a node weighs against another's.
    fn weight(&self, index: u16) -> (u64, bool) {
        let node = &self.nodes[usize::from(index)];
        (node.epoch.unwrap_or(0), node.health != NodeHealth::Failed)
    }

    pub fn finish(self) -> ClusterView {
        let epoch = self.nodes.iter().filter_map(|node| node.epoch).max();
        ClusterView { nodes: self.nodes, owners: self.owners, epoch, moving: self.moving }
    }
}

/// An identity as it is kept.
pub(super) fn node_id(text: &str) -> Result<Box<str>, ViewError> {
    let is_id =
        (1..=ID_LEN_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    if is_id { Ok(text.into()) } else { Err(ViewError::Expected("the identity of a node")) }
}

/// A text that says nothing when it is empty, such as a host name.
pub(super) fn told(text: Option<&str>) -> Option<Box<str>> {
    text.filter(|text| !is_unknown_host(text)).map(Into::into)
}
