//! What nodes tell their upstream: who is below, and who no longer is.

use super::Node;
use super::below::Change;
use crate::event::Event;
use crate::fault::Reason;
use crate::frame::Kind;
use crate::id::NodeId;
use crate::peer::{Identity, Origin, PeerKey, Relation};
use crate::wire::{Reader, Writer};
use keyway_base::Time;

/// Bytes of one announcement at most, but for its last entry.
const ANNOUNCEMENT_LEN: usize = 32 << 10;

/// Attachments of a node that was started once; its next start is later by as many.
const ATTACHMENTS_MAX: u64 = 1 << 20;

impl Node {
    /// A child says whether messages for it go through this node.
    pub(super) fn on_attach(&mut self, key: PeerKey, body: &[u8]) -> Result<(), Reason> {
        let Some(peer) = self.peers.get_mut(key) else { return Ok(()) };
        let mut from = Reader::new(body);
        let (is_active, stamp) = from.u8().zip(from.u64()).ok_or(Reason::Malformed)?;
        if peer.origin != Origin::Accepted || peer.relation != Relation::Child || is_active > 1 {
            return Err(Reason::Unexpected);
        }
        peer.is_attached = is_active == 1;
        if !peer.is_attached {
            self.forget_ways(key);
            return Ok(());
        }
        let Some(identity) = peer.identity.as_deref().cloned() else { return Ok(()) };
        let parent = peer.our_id();
        self.note_way(key, stamp, parent, identity);
        Ok(())
    }

    fn note_way(&mut self, key: PeerKey, stamp: u64, parent: NodeId, identity: Identity) {
        let id = identity.id;
        // Stamps begin at the incarnation: no other node is displaced for ever by one of all time.
        let stamp = stamp.min(identity.incarnation.saturating_add(ATTACHMENTS_MAX));
        if self.below.len() >= self.settings.nodes_max && self.below.get(id).is_none() {
            self.counts.nodes_over += 1;
            return;
        }
        let change = self.below.set(key, stamp, parent, identity);
        self.note_change(id, change);
    }

    fn note_change(&mut self, id: NodeId, change: Change) {
        match change {
            Change::None => return,
            Change::Joined => self.tell(Event::Joined(id)),
            Change::Left => self.tell(Event::Left(id)),
            Change::Changed => {}
        }
        self.may_unpark = true;
        if self.uplinks.active.is_some() {
            self.untold.insert(id);
        }
    }

    /// Forgets all ways through a connection.
    pub(super) fn forget_ways(&mut self, key: PeerKey) {
        for id in self.below.of(key) {
            let change = self.below.unset(key, id);
            self.note_change(id, change);
        }
        if let Some(peer) = self.peers.get_mut(key) {
            peer.is_attached = false;
            peer.versions = None;
        }
    }

    /// A child says who is below it.
    pub(super) fn on_topology(&mut self, key: PeerKey, body: &[u8]) -> Result<(), Reason> {
        let Some(peer) = self.peers.get(key) else { return Ok(()) };
        // What it said before it heard that its farewell was taken.
        if peer.is_leaving {
            return Ok(());
        }
        // A guest has nobody below it.
        if !peer.is_attached || peer.id().is_guest() {
            return Err(Reason::Unexpected);
        }
        let child = peer.id();
        let mut from = Reader::new(body);
        for _ in 0..from.u16().ok_or(Reason::Malformed)? {
            let (is_there, id) = from.u8().zip(from.u64()).ok_or(Reason::Malformed)?;
            let id = NodeId(id);
            if id.is_none() || id == child {
                return Err(Reason::Malformed);
            }
            if is_there == 0 {
                let change = self.below.unset(key, id);
                self.note_change(id, change);
                continue;
            }
            let (stamp, parent) = from.u64().zip(from.u64()).ok_or(Reason::Malformed)?;
            let identity = Identity::read(id, &mut from).ok_or(Reason::Malformed)?;
            if id == self.id || self.is_above(id) {
                return Err(Reason::Cycle);
            }
            // Guests were given their ids, the others are let in here by the same rule as at the door.
            let accept = &self.settings.accept;
            if !id.is_guest() && !accept.iter().any(|range| range.contains(id)) {
                continue;
            }
            self.note_way(key, stamp, NodeId(parent), identity);
        }
        from.end().ok_or(Reason::Malformed)
    }

    /// Whether a node is an upstream of this one.
    fn is_above(&self, id: NodeId) -> bool {
        let is_uplink = |key: &PeerKey| {
            self.peers.get(*key).is_some_and(|peer| matches!(peer.origin, Origin::Uplink(_)))
        };
        self.settings.upstreams.iter().any(|upstream| upstream.id == id)
            || self.by_id.get(&id).is_some_and(is_uplink)
    }

    /// Tells a new upstream of all nodes below.
    pub(super) fn tell_all_ways(&mut self, key: PeerKey, now: Time) {
        self.untold.clear();
        let ids: Vec<NodeId> = self.below.iter().map(|(id, _)| id).collect();
        self.announce(key, &ids, now);
    }

    /// Tells the upstream what has changed since.
    pub(super) fn tell_ways(&mut self, now: Time) {
        if self.leaving.is_some() {
            // Those above know already that nobody is here.
            self.untold.clear();
        }
        if self.untold.is_empty() {
            return;
        }
        let ids: Vec<NodeId> = std::mem::take(&mut self.untold).into_iter().collect();
        if let Some(key) = self.uplinks.active_peer() {
            self.announce(key, &ids, now);
        }
    }

    fn announce(&mut self, key: PeerKey, ids: &[NodeId], now: Time) {
        let mut rest = ids;
        while !rest.is_empty() {
            let mut entries = Vec::new();
            let mut count = 0u16;
            while let Some((id, others)) = rest.split_first()
                && entries.len() < ANNOUNCEMENT_LEN
            {
                self.write_way(*id, &mut entries);
                count += 1;
                rest = others;
            }
            let mut body = count.to_le_bytes().to_vec();
            body.append(&mut entries);
            self.push_plain(key, Kind::Topology, &body, now);
        }
    }

    fn write_way(&self, id: NodeId, entries: &mut Vec<u8>) {
        let mut out = Writer::new(entries);
        match self.below.get(id) {
            None => {
                out.u8(0);
                out.u64(id.0);
            }
            Some(known) => {
                out.u8(1);
                out.u64(id.0);
                out.u64(known.stamp);
                out.u64(known.parent.0);
                known.identity.write(&mut out);
            }
        }
    }
}
