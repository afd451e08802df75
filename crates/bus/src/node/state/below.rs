//! The nodes below this one, and the connections that lead to them.

use crate::id::NodeId;
use crate::labels::Labels;
use crate::peer::{Identity, PeerKey};
use crate::wire::{Reader, Writer};
use keyway_base::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Most ways to one node: it may move again before the first nodes have learnt of it.
const WAYS_MAX: usize = 8;
/// Bytes of a way besides the node's description of itself.
const WAY_LEN: usize = 160;
/// Average bytes for each of the nodes that may be below: all of them take no more than that.
pub(crate) const NODE_LEN: usize = 512;
/// Most ids that are checked for a second process at the same time.
const TWICE_MAX: usize = 256;
/// Most changes of ways that are remembered; there may be twice as many.
const CHANGES_MAX: usize = 4096;
/// Least time for which changes are remembered, if there are not more.
const CHANGES_FOR: Duration = Duration::from_secs(30);

/// A way to a node below.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeRoute {
    peer: PeerKey,
    /// The stamp of the node's attachment to its upstream: the latest one counts.
    stamp: u64,
    parent: NodeId,
    /// The node's description of itself, as received. Parsed it would take ten times as much
    /// memory.
    said: Box<[u8]>,
}

impl NodeRoute {
    fn cost(&self) -> usize {
        WAY_LEN + self.said.len()
    }

    /// Returns incarnation, host and process, which identify the process.
    fn process(&self) -> &[u8] {
        &self.said[..self.said.len().min(32)]
    }
}

/// What is known about a node below.
#[derive(Clone, Debug)]
pub(crate) struct Known<'a> {
    pub stamp: u64,
    pub parent: NodeId,
    said: &'a [u8],
}

impl Known<'_> {
    /// Appends the node's description of itself.
    pub fn write(&self, out: &mut Writer<'_>) {
        out.raw(self.said);
    }

    /// Returns its labels.
    pub fn labels(&self) -> Labels {
        let mut from = Reader::new(self.said);
        from.take(32).and_then(|_| Labels::read(&mut from)).unwrap_or_default()
    }
}

/// Everything that a connection has announced.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// The peer.
    id: NodeId,
    count: usize,
    len: usize,
}

/// Earlier ways to nodes. Frames sent there may still come back.
#[derive(Default)]
struct Changes {
    recent: BTreeSet<(NodeId, NodeId)>,
    older: BTreeSet<(NodeId, NodeId)>,
    turned_at: Time,
}

impl Changes {
    fn note(&mut self, id: NodeId, by: NodeId) {
        if self.recent.len() >= CHANGES_MAX {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert((id, by));
    }

    fn has(&self, id: NodeId, by: NodeId) -> bool {
        self.recent.contains(&(id, by)) || self.older.contains(&(id, by))
    }

    fn forget(&mut self, now: Time) {
        if now.since(self.turned_at) >= CHANGES_FOR {
            self.turned_at = now;
            self.older = std::mem::take(&mut self.recent);
        }
    }
}

/// An id that two processes use.
#[derive(Default)]
struct Twice {
    since: Option<Time>,
    is_told: bool,
}

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing that others must know.
    None,
    /// The node is new.
    Joined,
    /// The node has moved, or has changed its description.
    Changed,
    /// It is gone.
    Left,
}

/// All nodes below. A node that has moved has two ways for a while, because announcements of its
/// old upstream may come late. The way with the latest attachment counts, and each connection can
/// only withdraw its own announcements.
///
/// A connection may have as much as it leaves to others, so no child fills the table for all. A
/// single child gets half of it; two that want everything get a third each.
#[derive(Default)]
pub(crate) struct Below {
    nodes: BTreeMap<NodeId, Vec<NodeRoute>>,
    shares: BTreeMap<u64, Share>,
    /// Bytes of all ways.
    len: usize,
    changes: Changes,
    twice: BTreeMap<NodeId, Twice>,
}

fn best(ways: &[NodeRoute]) -> Option<&NodeRoute> {
    // Of two with the same stamp, the last one counts.
    ways.iter().max_by_key(|way| way.stamp)
}

fn are_two(ways: &[NodeRoute]) -> bool {
    ways.split_first()
        .is_some_and(|(first, others)| others.iter().any(|way| way.process() != first.process()))
}

impl Below {
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the approximate bytes of all of it.
    pub fn memory_len(&self) -> usize {
        self.len
    }

    /// Returns the connection that leads to `id`.
    pub fn way(&self, id: NodeId) -> Option<PeerKey> {
        best(self.nodes.get(&id)?).map(|way| way.peer)
    }

    /// Returns whether `peer`, whose id is `by`, announces that the node is below it, or did so a
    /// while ago.
    pub fn was_below(&self, id: NodeId, peer: PeerKey, by: NodeId) -> bool {
        self.nodes.get(&id).is_some_and(|ways| ways.iter().any(|way| way.peer == peer))
            || self.changes.has(id, by)
    }

    /// Returns whether the node is not below, or was not a while ago.
    pub fn was_elsewhere(&self, id: NodeId) -> bool {
        !self.nodes.contains_key(&id) || self.changes.has(id, NodeId::NONE)
    }

    pub fn get(&self, id: NodeId) -> Option<Known<'_>> {
        best(self.nodes.get(&id)?).map(known)
    }

    pub fn iter(&self) -> impl Iterator<Item = (NodeId, Known<'_>)> {
        self.nodes.iter().filter_map(|(id, ways)| Some((*id, known(best(ways)?))))
    }

    /// Returns whether `peer` may announce one more node below it, of at most `nodes_max` in all.
    pub fn has_room(&self, peer: PeerKey, identity: &Identity, nodes_max: usize) -> bool {
        let own = self.nodes.get(&identity.id);
        if own.is_some_and(|ways| ways.iter().any(|way| way.peer == peer)) {
            return true;
        }
        let (count, len) =
            self.shares.get(&peer.to_bits()).map_or((0, 0), |share| (share.count, share.len));
        let free = nodes_max.saturating_sub(self.nodes.len());
        let free_len = (nodes_max * NODE_LEN).saturating_sub(self.len);
        count < free && len + WAY_LEN + identity.len() <= free_len
    }

    /// Notes that `peer`, whose id is `by`, announces that the node is below it.
    pub fn set(
        &mut self,
        peer: PeerKey,
        by: NodeId,
        stamp: u64,
        parent: NodeId,
        identity: &Identity,
    ) -> Change {
        let id = identity.id;
        let mut said = Vec::with_capacity(identity.len());
        identity.write(&mut Writer::new(&mut said));
        let way = NodeRoute { peer, stamp, parent, said: said.into_boxed_slice() };
        let before = self.nodes.get(&id).and_then(|ways| best(ways)).cloned();
        self.take_away(peer, id);
        let ways = self.nodes.entry(id).or_insert_with(|| Vec::with_capacity(1));
        if ways.len() >= WAYS_MAX {
            let oldest = ways.iter().min_by_key(|way| way.stamp).map(|way| way.peer);
            oldest.map(|oldest| self.take_away(oldest, id));
        }
        self.len += way.cost();
        let share = self.shares.entry(peer.to_bits()).or_insert(Share { id: by, count: 0, len: 0 });
        share.count += 1;
        share.len += way.cost();
        let ways = self.nodes.entry(id).or_default();
        ways.push(way);
        if are_two(ways) {
            if self.twice.len() < TWICE_MAX {
                self.twice.entry(id).or_default();
            }
        } else {
            self.twice.remove(&id);
        }
        match before {
            None => {
                self.changes.note(id, NodeId::NONE);
                Change::Joined
            }
            before if best(ways) == before.as_ref() => Change::None,
            _ => Change::Changed,
        }
    }

    /// Removes the way through `peer`. Returns whether there was one.
    fn take_away(&mut self, peer: PeerKey, id: NodeId) -> bool {
        let Some(ways) = self.nodes.get_mut(&id) else { return false };
        let Some(at) = ways.iter().position(|way| way.peer == peer) else { return false };
        let cost = ways.remove(at).cost();
        self.len -= cost;
        if let Some(share) = self.shares.get_mut(&peer.to_bits()) {
            share.count -= 1;
            share.len -= cost;
            if share.count == 0 {
                self.shares.remove(&peer.to_bits());
            }
        }
        true
    }

    /// Notes that `peer` announces that the node has left.
    pub fn unset(&mut self, peer: PeerKey, id: NodeId) -> Change {
        let by = self.shares.get(&peer.to_bits()).map_or(NodeId::NONE, |share| share.id);
        let had = self.way(id);
        if !self.take_away(peer, id) {
            return Change::None;
        }
        self.changes.note(id, by);
        let ways = self.nodes.get(&id).map_or(&[][..], Vec::as_slice);
        if !are_two(ways) {
            self.twice.remove(&id);
        }
        match best(ways).map(|way| way.peer) {
            None => {
                self.nodes.remove(&id);
                Change::Left
            }
            has if has != had => Change::Changed,
            _ => Change::None,
        }
    }

    /// Returns the nodes that `peer` has announced.
    pub fn of(&self, peer: PeerKey) -> Vec<NodeId> {
        if !self.shares.contains_key(&peer.to_bits()) {
            return Vec::new();
        }
        let is_of = |ways: &[NodeRoute]| ways.iter().any(|way| way.peer == peer);
        self.nodes.iter().filter(|(_, ways)| is_of(ways)).map(|(id, _)| *id).collect()
    }

    /// Returns whether two processes use one id, and that was not reported.
    pub fn has_twins(&self) -> bool {
        self.twice.values().any(|twice| !twice.is_told)
    }

    /// Forgets old changes. Returns the ids that two processes have used for `after` and that were
    /// not reported.
    pub fn look(&mut self, after: Duration, now: Time) -> Vec<NodeId> {
        self.changes.forget(now);
        let mut told = Vec::new();
        for (id, twice) in &mut self.twice {
            let since = *twice.since.get_or_insert(now);
            if !twice.is_told && now.since(since) >= after {
                twice.is_told = true;
                told.push(*id);
            }
        }
        told
    }
}

fn known(way: &NodeRoute) -> Known<'_> {
    Known { stamp: way.stamp, parent: way.parent, said: &way.said }
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
        assert_eq!(below.set(peer(1), NodeId(10), 5, NodeId(10), &identity(3)), Change::Joined);
        assert_eq!(below.set(peer(2), NodeId(11), 6, NodeId(11), &identity(3)), Change::Changed);
        assert_eq!(below.way(NodeId(3)), Some(peer(2)));
        // Late announcements of the old upstream change nothing.
        assert_eq!(below.set(peer(1), NodeId(10), 5, NodeId(10), &identity(3)), Change::None);
        assert_eq!(below.unset(peer(1), NodeId(3)), Change::None);
        assert_eq!(below.way(NodeId(3)), Some(peer(2)));
        assert_eq!(below.unset(peer(2), NodeId(3)), Change::Left);
        assert_eq!(below.len(), 0);
    }

    #[test]
    fn the_old_way_is_taken_again_when_the_new_one_ends() {
        let mut below = Below::default();
        below.set(peer(1), NodeId(10), 5, NodeId(10), &identity(3));
        below.set(peer(2), NodeId(11), 6, NodeId(11), &identity(3));
        assert_eq!(below.unset(peer(2), NodeId(3)), Change::Changed);
        assert_eq!(below.way(NodeId(3)), Some(peer(1)));
    }

    #[test]
    fn a_child_has_no_more_than_it_leaves_and_gives_it_back() {
        let mut below = Below::default();
        let mut fill = |by: u64, first: u64| {
            let ids = first..first + 100;
            ids.filter(|id| {
                let has_room = below.has_room(peer(by), &identity(*id), 90);
                if has_room {
                    below.set(peer(by), NodeId(by), 1, NodeId(by), &identity(*id));
                }
                has_room
            })
            .count()
        };
        assert_eq!([fill(1, 1000), fill(2, 2000), fill(3, 3000)], [45, 23, 11]);
        for by in 1..=3 {
            for id in below.of(peer(by)) {
                assert_eq!(below.unset(peer(by), id), Change::Left);
            }
        }
        assert_eq!((below.len(), below.memory_len(), below.shares.len()), (0, 0, 0));
    }

    #[test]
    fn long_labels_count_against_the_share() {
        let mut long = identity(0);
        for number in 0..16 {
            long.labels.set(&format!("name{number:059}"), &"x".repeat(63)).unwrap();
        }
        let mut below = Below::default();
        let taken = (1..1000u64).take_while(|id| {
            let one = Identity { id: NodeId(*id), ..long.clone() };
            let has_room = below.has_room(peer(1), &one, 1000);
            below.set(peer(1), NodeId(9), 1, NodeId(9), &one);
            has_room
        });
        let count = taken.count();
        assert!((100..130).contains(&count), "{count}");
        assert!(below.memory_len() <= 1000 * NODE_LEN / 2 + 3000);
        assert_eq!(below.get(NodeId(1)).unwrap().labels(), long.labels);
    }

    #[test]
    fn an_id_that_two_processes_use_is_told_once_it_has_lasted() {
        let after = Duration::from_secs(10);
        let mut below = Below::default();
        let other = Identity { incarnation: 2, ..identity(3) };
        below.set(peer(1), NodeId(10), 5, NodeId(10), &identity(3));
        below.set(peer(2), NodeId(11), 6, NodeId(11), &identity(3));
        assert_eq!(below.look(after, Time(0)), []);
        assert_eq!(below.look(after, Time(0) + 2 * after), [], "it has moved");
        below.set(peer(2), NodeId(11), 7, NodeId(11), &other);
        assert_eq!(below.look(after, Time(0) + 2 * after), []);
        assert_eq!(below.look(after, Time(0) + 3 * after), [NodeId(3)]);
        assert_eq!(below.look(after, Time(0) + 4 * after), [], "once");
        below.unset(peer(1), NodeId(3));
        assert!(below.twice.is_empty());
    }

    #[test]
    fn the_way_of_before_is_remembered_for_a_while() {
        let mut below = Below::default();
        below.set(peer(1), NodeId(10), 5, NodeId(10), &identity(3));
        below.unset(peer(1), NodeId(3));
        assert!(below.was_below(NodeId(3), peer(7), NodeId(10)));
        assert!(!below.was_below(NodeId(3), peer(7), NodeId(11)));
        for seconds in [40, 80] {
            below.look(Duration::ZERO, Time(0) + Duration::from_secs(seconds));
        }
        assert!(!below.was_below(NodeId(3), peer(7), NodeId(10)));
        for id in 0..3 * CHANGES_MAX as u64 {
            below.changes.note(NodeId(id), NodeId(1));
        }
        assert!(below.changes.recent.len() + below.changes.older.len() <= 2 * CHANGES_MAX);
    }

    proptest! {
        /// Compares with a plain list of announcements.
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
                        below.set(peer(by), NodeId(by), stamp, NodeId(by), &identity(id))
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
