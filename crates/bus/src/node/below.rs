//! Who is below this node, and through which connection.

use crate::id::NodeId;
use crate::peer::{Identity, PeerKey};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Ways to one node at most: it has moved, and moved again, before the first heard of it.
const WAYS_MAX: usize = 8;

/// A way to a node below.
#[derive(Clone, Debug)]
struct Way {
    peer: PeerKey,
    /// Of the node's attachment to its upstream: the latest is where it is.
    stamp: u64,
    parent: NodeId,
    identity: Arc<Identity>,
}

/// What is known of a node below.
#[derive(Clone, Debug)]
pub(crate) struct Known<'a> {
    pub stamp: u64,
    pub parent: NodeId,
    pub identity: &'a Arc<Identity>,
}

/// What a change came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing that others must know.
    None,
    /// The node is new.
    Joined,
    /// It is elsewhere, or says other things of itself.
    Changed,
    /// It is gone.
    Left,
}

/// All nodes below. A node that has moved has two ways for a while, for what its old upstream says of
/// it may come late: the way with the latest attachment is taken, and each connection can only take back
/// what it has said itself.
#[derive(Default)]
pub(crate) struct Below {
    nodes: BTreeMap<NodeId, Vec<Way>>,
}

fn best(ways: &[Way]) -> Option<&Way> {
    // Of two as late, what came last.
    ways.iter().max_by_key(|way| way.stamp)
}

impl Below {
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The connection that leads to `id`.
    pub fn way(&self, id: NodeId) -> Option<PeerKey> {
        best(self.nodes.get(&id)?).map(|way| way.peer)
    }

    pub fn get(&self, id: NodeId) -> Option<Known<'_>> {
        best(self.nodes.get(&id)?).map(known)
    }

    pub fn iter(&self) -> impl Iterator<Item = (NodeId, Known<'_>)> {
        self.nodes.iter().filter_map(|(id, ways)| Some((*id, known(best(ways)?))))
    }

    /// `peer` says that the node is below it.
    pub fn set(&mut self, peer: PeerKey, stamp: u64, parent: NodeId, identity: Identity) -> Change {
        let ways = self.nodes.entry(identity.id).or_default();
        let before =
            best(ways).map(|way| (way.peer, way.stamp, way.parent, Arc::clone(&way.identity)));
        ways.retain(|way| way.peer != peer);
        if ways.len() >= WAYS_MAX {
            let oldest = (0..ways.len()).min_by_key(|at| ways[*at].stamp);
            oldest.map(|at| ways.remove(at));
        }
        ways.push(Way { peer, stamp, parent, identity: Arc::new(identity) });
        let after =
            best(ways).map(|way| (way.peer, way.stamp, way.parent, Arc::clone(&way.identity)));
        match before {
            None => Change::Joined,
            Some(before) if after.as_ref() == Some(&before) => Change::None,
            Some(_) => Change::Changed,
        }
    }

    /// `peer` says that the node no longer is.
    pub fn unset(&mut self, peer: PeerKey, id: NodeId) -> Change {
        let Some(ways) = self.nodes.get_mut(&id) else { return Change::None };
        let had = best(ways).map(|way| way.peer);
        let len = ways.len();
        ways.retain(|way| way.peer != peer);
        match best(ways).map(|way| way.peer) {
            None => {
                self.nodes.remove(&id);
                Change::Left
            }
            has if has != had && ways.len() < len => Change::Changed,
            _ => Change::None,
        }
    }

    /// The nodes that `peer` has said are below it.
    pub fn of(&self, peer: PeerKey) -> Vec<NodeId> {
        let is_of = |ways: &[Way]| ways.iter().any(|way| way.peer == peer);
        self.nodes.iter().filter(|(_, ways)| is_of(ways)).map(|(id, _)| *id).collect()
    }
}

fn known(way: &Way) -> Known<'_> {
    Known { stamp: way.stamp, parent: way.parent, identity: &way.identity }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::Labels;
    use crate::url::Place;
    use proptest::prelude::*;

    fn identity(id: u64) -> Identity {
        let (labels, place) = (Labels::default(), Place::default());
        Identity { id: NodeId(id), incarnation: 1, place, labels, urls: vec![] }
    }

    fn peer(index: u64) -> PeerKey {
        PeerKey::from_bits(1 << 32 | index)
    }

    #[test]
    fn a_node_that_moved_is_not_lost_when_its_old_upstream_notices() {
        let mut below = Below::default();
        assert_eq!(below.set(peer(1), 5, NodeId(10), identity(3)), Change::Joined);
        assert_eq!(below.set(peer(2), 6, NodeId(11), identity(3)), Change::Changed);
        assert_eq!(below.way(NodeId(3)), Some(peer(2)));
        // What the old one says late changes nothing.
        assert_eq!(below.set(peer(1), 5, NodeId(10), identity(3)), Change::None);
        assert_eq!(below.unset(peer(1), NodeId(3)), Change::None);
        assert_eq!(below.way(NodeId(3)), Some(peer(2)));
        assert_eq!(below.unset(peer(2), NodeId(3)), Change::Left);
        assert_eq!(below.len(), 0);
    }

    #[test]
    fn the_old_way_is_taken_again_when_the_new_one_ends() {
        let mut below = Below::default();
        below.set(peer(1), 5, NodeId(10), identity(3));
        below.set(peer(2), 6, NodeId(11), identity(3));
        assert_eq!(below.unset(peer(2), NodeId(3)), Change::Changed);
        assert_eq!(below.way(NodeId(3)), Some(peer(1)));
    }

    proptest! {
        /// Against a plain list of who said what.
        #[test]
        fn the_way_is_that_of_the_latest_attachment(
            ops in prop::collection::vec((0u64..3, 0u64..4, 0u64..6, any::<bool>()), 0..60),
        ) {
            let mut below = Below::default();
            let mut said: Vec<(u64, u64, u64)> = Vec::new();
            for (by, id, stamp, is_there) in ops {
                said.retain(|(one, node, _)| (*one, *node) != (by, id));
                let existed = below.way(NodeId(id)).is_some();
                let change = match is_there {
                    true => {
                        said.push((by, id, stamp));
                        below.set(peer(by), stamp, NodeId(by), identity(id))
                    }
                    false => below.unset(peer(by), NodeId(id)),
                };
                let exists = below.way(NodeId(id)).is_some();
                prop_assert_eq!(change == Change::Joined, !existed && exists);
                prop_assert_eq!(change == Change::Left, existed && !exists);
                for id in 0..4 {
                    let of = said.iter().filter(|(_, node, _)| *node == id);
                    let latest = of.clone().map(|(.., stamp)| *stamp).max();
                    match below.get(NodeId(id)) {
                        None => prop_assert!(latest.is_none()),
                        Some(known) => {
                            prop_assert_eq!(Some(known.stamp), latest);
                            let by = known.parent.0;
                            prop_assert!(of.clone().any(|one| *one == (by, id, known.stamp)));
                        }
                    }
                }
            }
        }
    }
}
