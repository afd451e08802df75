//! Which peer may send what. Accepted peers do not always tell the truth.
//!
//! A frame that cannot be from its sender is refused. A failure from where its message did not go
//! is marked *unproven* by the first node that notices: it ends no wait. Word of what was applied
//! whose way is not known yet is kept for a while, until it is.

use super::Node;
use super::came::Came;
use crate::fault::Reason;
use crate::frame::{Head, Kind};
use crate::id::NodeId;
use crate::peer::outbox::Routed;
use crate::peer::{Origin, Peer, PeerKey, Relation};
use crate::wire::Reader;
use keyway_base::Time;
use std::sync::Arc;

fn is_child(peer: &Peer) -> bool {
    peer.origin == Origin::Accepted && peer.relation == Relation::Child
}

impl Node {
    /// Returns whether a frame of that sender can come on a connection. A child may send its own
    /// frames, and those of nodes whose way is that connection. Other peers may send none of nodes
    /// below. Word of what was applied may come by an earlier way. Any node may send failures: see
    /// [`Node::is_from_its_way`].
    pub(super) fn may_say(&self, from: PeerKey, head: &Head) -> bool {
        let Some(peer) = self.peers.get(from) else { return false };
        if head.kind == Kind::Failure || head.src == peer.id() {
            return true;
        }
        if head.kind == Kind::Applied {
            return match is_child(peer) {
                true => self.below.was_below(head.src, from, peer.id()),
                false => self.below.was_elsewhere(head.src),
            };
        }
        let way = self.below.way(head.src);
        match is_child(peer) {
            true => way == Some(from),
            // A frame of this node that comes back is refused as a loop.
            false => way.is_none() && (head.src != self.id || head.dst != self.id),
        }
    }

    /// Returns whether a failure comes from where its message could have gone: from a child, if the
    /// message was for it or a node below it; from a direct connection, if it was for that node;
    /// from an upstream, if it was for a node that is not below. A way of a moment ago is enough.
    pub(super) fn is_from_its_way(&self, from: PeerKey, body: &[u8]) -> bool {
        let Some(dst) = Reader::new(body).u64().map(NodeId) else { return false };
        let Some(peer) = self.peers.get(from) else { return false };
        match peer.origin {
            _ if dst == peer.id() => true,
            Origin::Uplink(_) => self.below.was_elsewhere(dst),
            _ => is_child(peer) && self.below.was_below(dst, from, peer.id()),
        }
    }

    /// Refuses a frame that cannot be from its sender. Only the peer that sent it is told.
    pub(super) fn refuse_there(
        &mut self,
        from: PeerKey,
        head: &Head,
        path: &[u8],
        body: &Came<'_>,
        now: Time,
    ) {
        if head.kind == Kind::Applied {
            let body = Arc::new(body.bytes().to_vec());
            let routed = Routed { head: *head, path: path.to_vec(), body };
            self.counts.unproven += u64::from(!self.early.put(from, routed, now));
            return;
        }
        if !matches!(head.kind, Kind::Message | Kind::Command) {
            self.counts.unproven += 1;
            return;
        }
        let (back, body) = self.failure_of(head, Reason::Unreachable, false);
        let rest = &path[..path.len().saturating_sub(8)];
        self.counts.refused += 1;
        if self.queue(from, &back, rest, Came::Slice(&body)).is_err() {
            self.counts.untold_failures += 1;
        }
    }

    /// Checks again word whose sender may have been announced since.
    pub(super) fn hear_early(&mut self, now: Time) {
        self.early.forget(now);
        for (at, from, routed) in self.early.take() {
            if self.may_say(from, &routed.head) {
                let body = Came::Whole(Arc::clone(&routed.body));
                self.on_routed(from, &routed.head, &routed.path, body, now);
            } else if self.peers.get(from).is_some() {
                // It keeps its order and its time.
                self.early.put(from, routed, at);
            }
        }
    }
}
