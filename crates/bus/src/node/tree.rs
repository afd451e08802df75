//! Announcements to the upstream: which nodes are below, and which have left.

use super::Node;
use super::state::Change;
use crate::event::Event;
use crate::fault::Reason;
use crate::frame::{Channel, Kind};
use crate::id::NodeId;
use crate::peer::{Identity, Origin, PeerKey, Relation};
use crate::wire::{Reader, Writer};
use keyway_base::Time;

/// Most bytes of one announcement, without its last entry.
const ANNOUNCEMENT_LEN: usize = 32 << 10;
/// Bytes of announcements that are queued ahead, approximately. More would only wait there instead
/// of here.
const ANNOUNCE_AHEAD: usize = 128 << 10;

/// Attachments of a node during one run; its next run has stamps that are later by this many.
const ATTACHMENTS_MAX: u64 = 1 << 20;

/// Returns the number before the stamp of a node's first attachment: random in the first half of
/// all possible stamps, so that only nodes that were told know it.
pub(super) fn first_stamp(incarnation: u64, random: u64) -> u64 {
    incarnation.saturating_add(random % (ATTACHMENTS_MAX / 2))
}

impl Node {
    /// Handles a child's word whether messages for it go through this node.
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
        // A connected node has its place: there are as many places as there may be peers.
        self.note_way(key, identity.id, stamp, parent, &identity);
        Ok(())
    }

    fn note_way(
        &mut self,
        key: PeerKey,
        by: NodeId,
        stamp: u64,
        parent: NodeId,
        identity: &Identity,
    ) {
        let id = identity.id;
        // Stamps begin at the incarnation, so a stamp beyond all time does not displace a node for
        // ever.
        let stamp = stamp.min(identity.incarnation.saturating_add(ATTACHMENTS_MAX));
        if id != by && !self.below.has_room(key, identity, self.settings.nodes_max) {
            self.counts.nodes_over += 1;
            return;
        }
        let change = self.below.set(key, by, stamp, parent, identity);
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

    /// Removes all ways through a connection.
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

    /// Handles a child's announcement of the nodes below it.
    pub(super) fn on_topology(
        &mut self,
        key: PeerKey,
        body: &[u8],
        now: Time,
    ) -> Result<(), Reason> {
        let Some(peer) = self.peers.get(key) else { return Ok(()) };
        // It was sent before the child learnt that its farewell was accepted.
        if peer.is_leaving {
            return Ok(());
        }
        // A guest has no nodes below it.
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
            if id == self.id {
                self.on_itself(stamp, &identity, now)?;
                continue;
            }
            if self.upstream() == Some(id) {
                self.on_upstream_below(stamp, NodeId(parent), &identity, now);
                continue;
            }
            // The same rule holds for direct connections.
            if !self.settings.accept.iter().any(|range| range.contains(id)) {
                continue;
            }
            self.note_way(key, child, stamp, NodeId(parent), &identity);
        }
        from.end().ok_or(Reason::Malformed)
    }

    /// Handles an announcement that this node is below itself. In a cycle of upstreams this is
    /// true, and comes back with the stamp that this node has announced to its own upstream, which
    /// no node below is told. Otherwise it is another process with its id, or a lie of a node
    /// below: a peer that passes it on is not closed for it.
    fn on_itself(&mut self, stamp: u64, identity: &Identity, now: Time) -> Result<(), Reason> {
        let is_said = stamp > self.first_stamp && stamp <= self.attach_stamp;
        let is_this = is_said && identity.incarnation == self.settings.incarnation;
        if is_this && !self.settings.upstreams.is_empty() {
            return Err(Reason::Cycle);
        }
        self.tell_twice(identity.id, now);
        Ok(())
    }

    /// Handles an announcement that the used upstream is below. The upstream itself is asked,
    /// because it knows, and is not taken for a node below.
    fn on_upstream_below(&mut self, stamp: u64, parent: NodeId, identity: &Identity, now: Time) {
        self.tell_twice(identity.id, now);
        let Some(key) = self.uplinks.active_peer() else { return };
        // Of endless lies only some are passed on.
        if self.peers.get(key).is_some_and(|up| up.queued_on(Channel::Control) < ANNOUNCEMENT_LEN) {
            let mut entry = Vec::new();
            let mut out = Writer::new(&mut entry);
            out.u8(1);
            [identity.id.0, stamp, parent.0].iter().for_each(|number| out.u64(*number));
            identity.write(&mut out);
            self.announce(key, 1, &entry, now);
        }
    }

    fn tell_twice(&mut self, id: NodeId, now: Time) {
        self.counts.ids_twice += 1;
        self.tell_one_of_many(id, None, Reason::IdTwice, now);
    }

    /// Announces all nodes below to a new upstream.
    pub(super) fn tell_all_ways(&mut self, now: Time) {
        self.untold = self.below.iter().map(|(id, _)| id).collect();
        self.tell_ways(now);
    }

    /// Announces changes to the upstream, as many as it accepts for now. A large tree is announced
    /// in pieces, each after the one before was sent.
    pub(super) fn tell_ways(&mut self, now: Time) {
        if self.leaving.is_some() {
            // The nodes above know already that none is here.
            self.untold.clear();
        }
        while !self.untold.is_empty()
            && let Some(key) = self.uplinks.active_peer()
            && self.peers.get(key).is_some_and(|peer| {
                let queued = peer.queued_on(Channel::Control);
                let ahead = ANNOUNCE_AHEAD.min(self.settings.queue_len_max);
                peer.is_open() && (queued == 0 || queued + 2 * ANNOUNCEMENT_LEN <= ahead)
            })
        {
            let (mut entries, mut count) = (Vec::new(), 0u16);
            while entries.len() < ANNOUNCEMENT_LEN
                && let Some(id) = self.untold.pop_first()
            {
                self.write_way(id, &mut entries);
                count += 1;
            }
            self.announce(key, count, &entries, now);
        }
    }

    /// Announces a node to the upstream before a frame of it is sent up, unless the queue is full.
    /// Then it is announced later, with all other changes.
    pub(super) fn tell_way_of(&mut self, id: NodeId, now: Time) {
        let len_max = self.settings.queue_len_max;
        if let Some(key) = self.uplinks.active_peer()
            && self.peers.get(key).is_some_and(|up| up.queued_on(Channel::Control) < len_max)
            && self.untold.remove(&id)
        {
            let mut entry = Vec::new();
            self.write_way(id, &mut entry);
            self.announce(key, 1, &entry, now);
        }
    }

    fn announce(&mut self, key: PeerKey, count: u16, entries: &[u8], now: Time) {
        let body = [&count.to_le_bytes()[..], entries].concat();
        self.push_plain(key, Kind::Topology, &body, now);
    }

    /// Reports ids that two processes have used for longer than it takes to notice a lost one.
    pub(super) fn look_for_twins(&mut self, now: Time) {
        let silence = self.settings.heartbeat * self.settings.silent_after;
        for id in self.below.look(3 * silence, now) {
            self.counts.ids_twice += 1;
            self.tell(Event::Refused { id, from: None, reason: Reason::IdTwice });
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
                known.write(&mut out);
            }
        }
    }
}
