//! Bounds on everything that a node keeps for others: queues, messages in parts, strangers.

use super::Node;
use super::came::Came;
use crate::event::Event;
use crate::fault::Reason;
use crate::frame::{FRAGMENT_LEN, HEAD_LEN, Head, Kind};
use crate::id::NodeId;
use crate::peer::PeerKey;
use crate::peer::outbox::is_word;
use keyway_base::Time;
use std::time::Duration;

/// Returns whether a peer that has `own` of the `all` used bytes may have `len` more, of `max`. A
/// peer may have as much as it leaves to others, so a peer that reads nothing fills at most half.
fn leaves_room(len: usize, own: usize, all: usize, max: usize) -> bool {
    let free = max.saturating_sub(all);
    len <= free && (own == 0 || own + len <= free)
}

impl Node {
    /// Makes room for a new connection. If there is none, the oldest stranger is closed. Returns
    /// whether there is room.
    pub(super) fn make_place(&mut self, now: Time) -> bool {
        let strangers_max = (self.settings.peers_max / 4).max(16);
        let is_full = self.peers.len() >= self.settings.peers_max;
        if !is_full && self.strangers.order.len() < strangers_max {
            return true;
        }
        let peers = &self.peers;
        let is_stranger =
            |key: &PeerKey| peers.get(*key).is_some_and(|peer| peer.identity.is_none());
        self.strangers.order.retain(is_stranger);
        if is_full || self.strangers.order.len() >= strangers_max {
            let Some(oldest) = self.strangers.order.pop_front() else { return false };
            self.close(oldest, Reason::PeersMax, now);
        }
        true
    }

    pub(super) fn note_stranger(&mut self, key: PeerKey) {
        self.strangers.order.push_back(key);
    }

    /// Reports that a new connection was refused. If many come at once, only some are reported,
    /// with the number of the others.
    pub(super) fn tell_refused(
        &mut self,
        id: NodeId,
        from: Option<Box<str>>,
        reason: Reason,
        now: Time,
    ) {
        self.counts.strangers_refused += 1;
        self.tell_one_of_many(id, from, reason, now);
    }

    /// Reports a refusal that others can cause as often as they like.
    pub(super) fn tell_one_of_many(
        &mut self,
        id: NodeId,
        from: Option<Box<str>>,
        reason: Reason,
        now: Time,
    ) {
        match self.strangers.may_tell(now) {
            true => self.tell(Event::Refused { id, from, reason }),
            false => self.strangers.untold += 1,
        }
        self.wake_at(self.strangers.since + Duration::from_secs(1));
    }

    /// Reports the number of unreported refusals, once a second.
    pub(super) fn tell_unsaid(&mut self, now: Time) {
        if self.strangers.untold == 0 {
            return;
        }
        let at = self.strangers.since + Duration::from_secs(1);
        if now < at {
            return self.wake_at(at);
        }
        let count = std::mem::take(&mut self.strangers.untold);
        self.tell(Event::Unsaid { count });
    }

    /// Queues a frame on a connection, if there is room for that peer and in all queues together.
    pub(super) fn queue(
        &mut self,
        key: PeerKey,
        head: &Head,
        path: &[u8],
        body: Came<'_>,
    ) -> Result<(), Reason> {
        let max = self.settings.queues_len_max;
        let Some(peer) = self.peers.get_mut(key) else { return Err(Reason::Unreachable) };
        let last_len = if let Came::Split(_, last) = &body { last.len() } else { 0 };
        let len = HEAD_LEN + path.len() + body.bytes().len() + last_len;
        let has_room = match head.kind {
            Kind::Message | Kind::Command | Kind::Result => {
                leaves_room(len, peer.counted, self.queued_len, max)
            }
            // These have an eighth more, which messages cannot fill.
            kind if is_word(kind) => leaves_room(len, peer.counted_words, self.words_len, max / 8),
            // These are a node's own words, which only an upstream is told. No peer's queue keeps
            // it from them.
            _ => true,
        };
        if !has_room {
            return Err(Reason::Full);
        }
        match body {
            Came::Slice(body) if body.len() <= FRAGMENT_LEN => {
                peer.push(head, path, body, &self.settings)?;
            }
            Came::Slice(body) => {
                let body = std::sync::Arc::new(body.to_vec());
                peer.push_large(head, path, body, &self.settings)?;
            }
            Came::Whole(body) => peer.push_large(head, path, body, &self.settings)?,
            split @ Came::Split(..) => {
                let body = std::sync::Arc::new(split.into_bytes());
                peer.push_large(head, path, body, &self.settings)?;
            }
        }
        self.account(key);
        self.mark(key);
        Ok(())
    }

    /// Counts what a peer holds now.
    pub(super) fn account(&mut self, key: PeerKey) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        let (held, words) = (peer.held_len(), peer.words_len());
        self.queued_len = self.queued_len - peer.counted + held;
        self.words_len = self.words_len - peer.counted_words + words;
        (peer.counted, peer.counted_words) = (held, words);
    }

    /// Gives up messages in parts that do not go on. Their senders are told. A push has no sender,
    /// so its connection is closed.
    pub(super) fn give_up_idle_parts(&mut self, now: Time) {
        if self.assembly_left == self.settings.assembly_len_max {
            return;
        }
        for key in self.peers.keys() {
            let Some(peer) = self.peers.get_mut(key) else { continue };
            let given_up = peer.give_up_idle(&self.settings, &mut self.assembly_left, now);
            for (head, path) in given_up.into_iter().flatten() {
                self.counts.stalled += 1;
                match head.kind {
                    Kind::Push => self.close(key, Reason::Stalled, now),
                    _ => self.refuse_parts(&head, &path, Reason::Stalled, now),
                }
            }
        }
    }
}
