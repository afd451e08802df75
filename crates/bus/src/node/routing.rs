//! Messages on their way: direct, down, up, or back to their sender.

use super::Node;
use super::came::Came;
use crate::SendOptions;
use crate::event::Event;
use crate::fault::{Reason, SendFault};
use crate::frame::{FRAGMENT_LEN, Head, Kind, TTL_MAX, flags, path_ids};
use crate::id::NodeId;
use crate::peer::outbox::{DeliveryState, Remains, Routed};
use crate::peer::{Body, PeerKey};
use crate::wire::{Reader, Writer};
use keyway_base::Time;
use std::sync::Arc;

/// Most bytes of a failure, or of word of what was applied.
const KEPT_LEN_MAX: usize = 128;

impl Node {
    /// Sends a message. Returns its number. Nothing of a refused message is sent.
    pub fn send(
        &mut self,
        dst: NodeId,
        body: &[u8],
        options: SendOptions,
        now: Time,
    ) -> Result<u64, SendFault> {
        if body.len() > self.settings.message_len_max {
            return Err(SendFault::Refused(Reason::TooLarge));
        }
        if options.ack_within.is_some() {
            self.check_waiting()?;
        }
        let mut head = self.head_for(dst, Kind::Message)?;
        head.flags |= if options.ack_within.is_some() { flags::ACK } else { 0 };
        head.flags |= if options.no_upstream { flags::NO_UPSTREAM } else { 0 };
        if dst == self.id {
            self.tell(Event::Message { from: dst, seq: head.seq, body: body.to_vec() });
            if options.ack_within.is_some() {
                self.tell(Event::Acked { seq: head.seq });
            }
            self.counts.delivered += 1;
            return Ok(head.seq);
        }
        let packed = if self.settings.compress { crate::compress::compressed(body) } else { None };
        let body = match packed {
            Some(packed) => {
                head.flags |= flags::COMPRESSED;
                Came::Whole(Arc::new(packed))
            }
            None if body.len() > FRAGMENT_LEN => Came::Whole(Arc::new(body.to_vec())),
            None => Came::Slice(body),
        };
        self.pass(&head, &[], body, None, now).map_err(SendFault::Refused)?;
        if let Some(within) = options.ack_within {
            self.await_answer(head.seq, dst, now + within);
        }
        Ok(head.seq)
    }

    /// Returns a head of this node's with the next number.
    pub(super) fn head_for(&mut self, dst: NodeId, kind: Kind) -> Result<Head, SendFault> {
        if dst.is_none() {
            return Err(SendFault::NoDestination);
        }
        if self.leaving.is_some() {
            return Err(SendFault::Refused(Reason::Leaving));
        }
        self.next_seq += 1;
        self.counts.sent += 1;
        Ok(Head { kind, flags: 0, seq: self.next_seq, src: self.id, dst, ttl: self.settings.ttl })
    }

    /// Handles a frame that is for this node, or for another.
    pub(super) fn on_routed(
        &mut self,
        from: PeerKey,
        head: &Head,
        path: &[u8],
        body: Came<'_>,
        now: Time,
    ) {
        if !self.may_say(from, head) {
            return self.refuse_there(from, head, path, &body, now);
        }
        let mut head = *head;
        if head.kind == Kind::Failure && !self.is_from_its_way(from, body.bytes()) {
            head.flags |= flags::UNPROVEN;
        }
        let head = &head;
        if head.dst == self.id {
            self.note_asker(from, head);
            return self.deliver(head, path, body, now);
        }
        if !self.untold.is_empty() {
            self.tell_way_of(head.src, now);
        }
        // These may be kept. If they are longer than they can be, they are invalid.
        let is_kept = matches!(head.kind, Kind::Failure | Kind::Applied);
        if is_kept && body.bytes().len() > KEPT_LEN_MAX {
            return;
        }
        if head.kind == Kind::Failure {
            let routed =
                Routed { head: *head, path: path.to_vec(), body: Arc::new(body.bytes().to_vec()) };
            return self.send_back(routed, Some(from), now);
        }
        let kept = (head.kind == Kind::Applied).then(|| body.bytes().to_vec());
        match (self.relay(from, head, path, body, now), kept) {
            (Ok(()), _) => {}
            (Err(Reason::Unreachable), Some(body)) => {
                let routed = Routed { head: *head, path: path.to_vec(), body: Arc::new(body) };
                self.park(self.origin_of(&routed, Some(from)), routed, now);
            }
            (Err(reason), _) => self.refuse(head, path, reason, now),
        }
    }

    fn relay(
        &mut self,
        from: PeerKey,
        head: &Head,
        path: &[u8],
        body: Came<'_>,
        now: Time,
    ) -> Result<(), Reason> {
        if head.src == self.id || path_ids(path).any(|id| id == self.id) {
            return Err(Reason::Loop);
        }
        if head.ttl == 0 || path.len() >= usize::from(TTL_MAX) * 8 {
            return Err(Reason::Ttl);
        }
        let mut longer = [0; TTL_MAX as usize * 8];
        let len = path.len() + 8;
        longer[..path.len()].copy_from_slice(path);
        longer[path.len()..len].copy_from_slice(&self.id.0.to_le_bytes());
        let head = Head { ttl: head.ttl - 1, ..*head };
        self.pass(&head, &longer[..len], body, Some(from), now)?;
        self.counts.relayed += 1;
        Ok(())
    }

    /// Notes a node that asks by an unused upstream: the used one may not know it.
    fn note_asker(&mut self, from: PeerKey, head: &Head) {
        if !matches!(head.kind, Kind::Message | Kind::Command) {
            return;
        }
        if !self.is_unused_uplink(from) {
            return self.asked_by.forget(head.src);
        }
        self.asked_by.note(head.src, from);
    }

    /// Returns the way back to a node that has asked by an unused upstream.
    fn answer_way(&self, head: &Head) -> Option<PeerKey> {
        let is_answer = matches!(head.kind, Kind::Ack | Kind::Result) && head.src == self.id;
        let key = self.asked_by.way(head.dst).filter(|_| is_answer)?;
        self.peers.get(key).is_some_and(|peer| peer.is_open()).then_some(key)
    }

    /// Returns the connection that leads to `dst`, but not the one it came on. A frame that is not
    /// `own` goes up only by the used upstream: another one would not know its sender.
    fn way_to(
        &self,
        dst: NodeId,
        is_own: bool,
        from: Option<PeerKey>,
        no_upstream: bool,
    ) -> Result<PeerKey, Reason> {
        let usable = |key: &PeerKey| {
            Some(*key) != from && self.peers.get(*key).is_some_and(|peer| peer.is_open())
        };
        let direct = self.by_id.get(&dst).copied().filter(usable);
        let direct = direct.filter(|key| is_own || !self.is_unused_uplink(*key));
        if let Some(key) = direct.or_else(|| self.below.way(dst).filter(usable)) {
            return Ok(key);
        }
        match self.uplinks.active_peer().filter(usable) {
            Some(_) if no_upstream => Err(Reason::NoUpstream),
            Some(key) => Ok(key),
            None => Err(Reason::Unreachable),
        }
    }

    /// Queues a frame on the way to its destination.
    pub(super) fn pass(
        &mut self,
        head: &Head,
        path: &[u8],
        body: Came<'_>,
        from: Option<PeerKey>,
        now: Time,
    ) -> Result<(), Reason> {
        let is_own = head.src == self.id;
        let key = match self.answer_way(head) {
            Some(key) => key,
            None => self.way_to(head.dst, is_own, from, head.has(flags::NO_UPSTREAM))?,
        };
        let Some(peer) = self.peers.get_mut(key) else { return Err(Reason::Unreachable) };
        peer.used_at = now;
        self.queue(key, head, path, body)
    }

    fn deliver(&mut self, head: &Head, path: &[u8], body: Came<'_>, now: Time) {
        match head.kind {
            Kind::Message => self.on_message(head, path, body, now),
            Kind::Command => self.on_command(head, path, body, now),
            Kind::Result => self.on_result(head, body, now),
            Kind::Ack => self.on_ack(head),
            Kind::Failure => self.on_failure(head, body.bytes()),
            Kind::Applied => self.on_applied(head, body.bytes(), now),
            _ => {}
        }
    }

    fn on_message(&mut self, head: &Head, path: &[u8], mut came: Came<'_>, now: Time) {
        let Some(body) = self.plain_body(head, &mut came, self.settings.message_len_max) else {
            return self.refuse(head, path, Reason::Malformed, now);
        };
        if !self.seen.is_next(head.src, head.seq, now) {
            return self.refuse(head, path, Reason::Late, now);
        }
        self.counts.delivered += 1;
        let event = Event::Message { from: head.src, seq: head.seq, body };
        match head.has(flags::COMPRESSED) {
            true => self.tell_unpacked(head, came.bytes(), event),
            false => self.tell(event),
        }
        if head.has(flags::ACK) {
            let ack = Head {
                kind: Kind::Ack,
                flags: 0,
                src: self.id,
                dst: head.src,
                ttl: TTL_MAX,
                ..*head
            };
            // If it cannot be sent, the sender gets a timeout.
            let _ = self.pass(&ack, &[], Came::Slice(&[]), None, now);
        }
    }

    /// Tells the sender of a frame that it cannot go on.
    pub(super) fn refuse(&mut self, head: &Head, path: &[u8], reason: Reason, now: Time) {
        self.fail(head, path, reason, false, now);
    }

    /// Refuses a message in parts. If its connection is lost before all of it was sent, it goes
    /// another way. So only one thing is certain: that it is too long for its destination.
    pub(super) fn refuse_parts(&mut self, head: &Head, path: &[u8], reason: Reason, now: Time) {
        let is_certain = reason == Reason::TooLarge && head.dst == self.id;
        self.fail(head, path, reason, !is_certain, now);
    }

    fn fail(&mut self, head: &Head, path: &[u8], reason: Reason, maybe: bool, now: Time) {
        if head.kind == Kind::Result {
            return self.fail_result(head, reason, now);
        }
        if !matches!(head.kind, Kind::Message | Kind::Command) {
            return;
        }
        let (back, body) = self.failure_of(head, reason, maybe);
        if head.src == self.id {
            return self.on_failure(&back, &body);
        }
        self.counts.refused += 1;
        let routed = Routed { head: back, path: path.to_vec(), body: Arc::new(body) };
        self.send_back(routed, None, now);
    }

    /// Tells the asking node that the result cannot go on: the command may have been executed.
    fn fail_result(&mut self, result: &Head, reason: Reason, now: Time) {
        let asked =
            Head { kind: Kind::Command, src: result.dst, dst: result.src, flags: 0, ..*result };
        self.fail(&asked, &[], reason, true, now);
    }

    pub(super) fn failure_of(&self, head: &Head, reason: Reason, maybe: bool) -> (Head, Vec<u8>) {
        let flags = (head.flags & flags::ACK) | if maybe { flags::MAYBE } else { 0 };
        let mut body = Vec::with_capacity(19);
        let mut out = Writer::new(&mut body);
        out.u64(head.dst.0);
        out.u64(self.id.0);
        out.u16(reason as u16);
        out.u8(head.kind as u8);
        let back = Head {
            kind: Kind::Failure,
            flags,
            seq: head.seq,
            src: self.id,
            dst: head.src,
            ttl: TTL_MAX,
        };
        (back, body)
    }

    /// Sends a failure back. If there is no way, it is kept.
    fn send_back(&mut self, routed: Routed, from: Option<PeerKey>, now: Time) {
        let origin = self.origin_of(&routed, from);
        if let Some(routed) = self.try_back(routed, from) {
            self.park(origin, routed, now);
        }
    }

    /// Sends a failure the way its message came: the last node of its path is the next. If that
    /// node is not connected any more, another way is searched. If there is none, returns the
    /// failure.
    fn try_back(&mut self, mut routed: Routed, from: Option<PeerKey>) -> Option<Routed> {
        if routed.head.ttl == 0 {
            // Nodes do not agree on the way. They will once they have learnt of the changes.
            routed.head.ttl = TTL_MAX;
            routed.path.clear();
            return Some(routed);
        }
        let next = path_ids(&routed.path).last().unwrap_or(routed.head.dst);
        let is_open = |key: &PeerKey| self.peers.get(*key).is_some_and(|peer| peer.is_open());
        let key = match self.by_id.get(&next).copied().filter(is_open) {
            Some(key) => {
                routed.path.truncate(routed.path.len().saturating_sub(8));
                Ok(key)
            }
            None => {
                routed.path.clear();
                self.way_to(routed.head.dst, true, from, false)
            }
        };
        let head = Head { ttl: routed.head.ttl - 1, ..routed.head };
        let is_sent = key.is_ok_and(|key| {
            self.queue(key, &head, &routed.path, Came::Slice(&routed.body)).is_ok()
        });
        (!is_sent).then_some(routed)
    }

    fn send_again(&mut self, routed: Routed, now: Time) {
        let origin = self.origin_of(&routed, None);
        if let Some(routed) = self.try_again(routed, now) {
            self.park(origin, routed, now);
        }
    }

    /// Sends again a frame that may come twice. If there is no way, returns it.
    pub(super) fn try_again(&mut self, routed: Routed, now: Time) -> Option<Routed> {
        if routed.head.kind == Kind::Failure {
            return self.try_back(routed, None);
        }
        let body = Came::Whole(Arc::clone(&routed.body));
        let outcome = self.pass(&routed.head, &routed.path, body, None, now);
        outcome.is_err().then_some(routed)
    }

    fn on_failure(&mut self, head: &Head, body: &[u8]) {
        let mut from = Reader::new(body);
        let read = (|| Some((NodeId(from.u64()?), NodeId(from.u64()?), from.u16()?, from.u8()?)))();
        let Some((dst, by, code, kind)) = read else { return };
        let is_awaited =
            head.has(flags::ACK) || kind == Kind::Command as u8 || self.waiting.has(head.seq);
        let (reason, is_unproven) = (Reason::of(code), head.has(flags::UNPROVEN));
        let maybe = head.has(flags::MAYBE) || is_unproven;
        let is_ours = head.seq > self.settings.incarnation && head.seq <= self.next_seq;
        if !is_ours || (is_awaited && is_unproven) {
            // The wait for it has a time of its own.
            self.counts.unproven += 1;
            return;
        }
        if is_awaited && !self.end_waiting(head.seq, dst, reason) {
            return;
        }
        self.counts.failed += 1;
        self.tell(Event::Failed { seq: head.seq, dst, by, reason, maybe });
    }

    /// Handles what a lost connection leaves: unsent frames go another way, and frames that may
    /// have arrived are never sent again.
    pub(super) fn route_remains(&mut self, remains: Remains, now: Time) {
        for delivery in remains.in_doubt {
            match delivery {
                DeliveryState::Sender { kind, src, dst, seq, flags } => {
                    let head = Head { kind, flags, seq, src, dst, ttl: 0 };
                    self.fail(&head, &[], Reason::LinkLost, true, now);
                }
                DeliveryState::Again(routed) => self.send_again(*routed, now),
                DeliveryState::Nobody => {}
            }
        }
        for routed in remains.unsent {
            if matches!(routed.head.kind, Kind::Failure | Kind::Applied) {
                self.send_again(routed, now);
                continue;
            }
            let body: Body = routed.body;
            let outcome = self.pass(&routed.head, &routed.path, Came::Whole(body), None, now);
            if let Err(reason) = outcome {
                // The path has the last hop of its way: this node itself.
                let own = self.id;
                let came: Vec<u8> = path_ids(&routed.path)
                    .take_while(|id| *id != own)
                    .flat_map(|id| id.0.to_le_bytes())
                    .collect();
                self.refuse(&routed.head, &came, reason, now);
            }
        }
    }
}
