//! Nodes that have asked by an unused upstream: answers go back there.

use crate::id::NodeId;
use crate::peer::PeerKey;
use std::collections::BTreeMap;

/// Most askers that are remembered. Beyond that, the one that asked longest ago is forgotten.
const ASKERS_MAX: usize = 1024;

/// Askers, each with its connection, by id and by the time of their last question.
#[derive(Default)]
pub(in crate::node) struct Askers {
    all: BTreeMap<NodeId, (PeerKey, u64)>,
    by_turn: BTreeMap<u64, NodeId>,
    turn: u64,
}

impl Askers {
    /// Returns the connection by which `id` has asked.
    pub fn way(&self, id: NodeId) -> Option<PeerKey> {
        self.all.get(&id).map(|(by, _)| *by)
    }

    pub fn note(&mut self, id: NodeId, by: PeerKey) {
        self.forget(id);
        if self.all.len() >= ASKERS_MAX
            && let Some((_, oldest)) = self.by_turn.pop_first()
        {
            self.all.remove(&oldest);
        }
        self.turn += 1;
        self.all.insert(id, (by, self.turn));
        self.by_turn.insert(self.turn, id);
    }

    /// Forgets one that asks another way by now.
    pub fn forget(&mut self, id: NodeId) {
        if let Some((_, turn)) = self.all.remove(&id) {
            self.by_turn.remove(&turn);
        }
    }

    /// Forgets all that have asked by a connection that is gone.
    pub fn forget_all(&mut self, by: PeerKey) {
        self.all.retain(|_, (at, _)| *at != by);
        self.by_turn.retain(|_, id| self.all.contains_key(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(index: u64) -> PeerKey {
        PeerKey::from_bits(1 << 32 | index)
    }

    #[test]
    fn who_asked_last_is_remembered_whatever_its_id() {
        let mut askers = Askers::default();
        askers.note(NodeId(2), peer(1));
        for id in 1000..2000 {
            askers.note(NodeId(id), peer(1));
            if id == 1500 {
                askers.note(NodeId(1), peer(2));
                askers.note(NodeId(2), peer(1));
            }
        }
        for id in 3000..3000 + ASKERS_MAX as u64 - 600 {
            askers.note(NodeId(id), peer(1));
        }
        assert_eq!((askers.way(NodeId(1)), askers.way(NodeId(2))), (Some(peer(2)), Some(peer(1))));
        assert_eq!((askers.way(NodeId(1000)), askers.all.len()), (None, ASKERS_MAX));
        askers.forget_all(peer(1));
        assert_eq!((askers.all.len(), askers.by_turn.len()), (1, 1));
        askers.forget(NodeId(1));
        assert!(askers.all.is_empty() && askers.by_turn.is_empty());
    }
}
