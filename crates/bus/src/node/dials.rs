//! Dials: tries the addresses of a node one after the other, each for a bounded time.

use super::Node;
use crate::event::{Action, DialKey, Event};
use crate::fault::Reason;
use crate::id::NodeId;
use crate::node::Dial;
use crate::peer::{Attempt, Origin, Peer, PeerKey, is_final};
use crate::url::Url;
use keyway_base::Time;
use std::collections::VecDeque;

/// Returns what the end of a connection that was not registered means to its dialler.
fn told(peer: &Peer, reason: Reason) -> Reason {
    let has_spoken = !peer.partial.is_empty();
    match reason {
        _ if peer.traffic.frames_in > 0 => reason,
        Reason::Closed if !has_spoken => Reason::HungUp,
        Reason::HandshakeTimeout if !has_spoken => Reason::NoAnswer,
        Reason::Closed | Reason::HandshakeTimeout | Reason::NoFrame | Reason::Checksum => {
            Reason::NotBus
        }
        _ => reason,
    }
}

impl Node {
    /// Tries these addresses in order.
    pub(super) fn dial(&mut self, origin: Origin, urls: Vec<Url>, now: Time) {
        let mut rest = VecDeque::from(urls);
        match rest.pop_front() {
            Some(at) => self.dial_address(origin, Attempt { at, rest, worst: None }, now),
            None => self.on_all_lost(origin, Reason::DialFailed, now),
        }
    }

    fn dial_address(&mut self, origin: Origin, attempt: Attempt, now: Time) {
        self.next_dial += 1;
        let dial = DialKey(self.next_dial);
        self.actions.push_back(Action::Dial { dial, url: attempt.at.clone() });
        let deadline = now + self.settings.dial;
        self.dials.insert(dial, Dial { origin, attempt, deadline });
        self.wake_at(deadline);
    }

    /// Handles a dial that has become a connection. Returns `None` if it is not wanted any more;
    /// the connection is then to be closed.
    pub fn handle_connected(
        &mut self,
        dial: DialKey,
        line: &crate::Line,
        now: Time,
    ) -> Option<PeerKey> {
        let Dial { origin, attempt, .. } = self.dials.remove(&dial)?;
        if self.leaving.is_some() {
            return None;
        }
        let expected = self.expected(origin);
        // A guest gets another id with each connection to its upstream.
        let our_id = match origin {
            Origin::Uplink(_) => self.settings.id,
            _ => self.id,
        };
        let mut peer = Peer::dialled(&self.settings, our_id, origin, line, expected, now);
        peer.attempt = Some(Box::new(attempt));
        let key = self.insert(peer);
        if let Origin::Uplink(at) = origin {
            self.uplinks.on_connected(at, key);
        }
        Some(key)
    }

    fn expected(&self, origin: Origin) -> NodeId {
        match origin {
            Origin::Uplink(at) => self.settings.upstreams[at].id,
            Origin::Direct(id) => id,
            Origin::Accepted => NodeId::NONE,
        }
    }

    /// Handles a failed dial. `reason` is the reason.
    pub fn handle_dial_failed(&mut self, dial: DialKey, reason: Reason, now: Time) {
        let Some(Dial { origin, attempt, .. }) = self.dials.remove(&dial) else { return };
        self.on_address_lost(origin, attempt, reason, now);
        self.settle(now);
    }

    /// Notes that a connection was refused before this node got it, such as by TLS.
    pub fn handle_turned_away(&mut self, from: Option<Box<str>>, reason: Reason, now: Time) {
        self.counts.turned_away += 1;
        self.tell_refused(NodeId::NONE, from, reason, now);
    }

    /// Gives up addresses that take too long.
    pub(super) fn expire_dials(&mut self, now: Time) {
        let late = |(key, dial): (&DialKey, &Dial)| (dial.deadline <= now).then_some(*key);
        let all: Vec<DialKey> = self.dials.iter().filter_map(late).collect();
        for key in all {
            let Some(Dial { origin, attempt, .. }) = self.dials.remove(&key) else { continue };
            self.on_address_lost(origin, attempt, Reason::NoAnswer, now);
        }
    }

    pub(super) fn next_dial_deadline(&self) -> Option<Time> {
        self.dials.values().map(|dial| dial.deadline).min()
    }

    /// Handles the loss of a connection that was not registered. If it was dialled, the next
    /// address is tried.
    pub(super) fn on_stranger_lost(&mut self, mut peer: Peer, reason: Reason, now: Time) {
        match peer.attempt.take() {
            Some(attempt) => {
                let reason = told(&peer, reason);
                self.on_address_lost(peer.origin, *attempt, reason, now);
            }
            None => self.tell_refused(peer.proved_id, peer.from.take(), reason, now),
        }
    }

    fn on_address_lost(&mut self, origin: Origin, mut attempt: Attempt, reason: Reason, now: Time) {
        let at = Box::new(attempt.at.clone());
        self.tell(Event::Unreached { id: self.expected(origin), at, reason });
        let worst = attempt.worst.filter(|worst| is_final(*worst)).unwrap_or(reason);
        match attempt.rest.pop_front().filter(|_| self.leaving.is_none()) {
            Some(at) => {
                let (rest, worst) = (attempt.rest, Some(worst));
                if let Origin::Uplink(at) = origin {
                    self.uplinks.on_dialling(at);
                }
                self.dial_address(origin, Attempt { at, rest, worst }, now);
            }
            None => self.on_all_lost(origin, worst, now),
        }
    }

    fn on_all_lost(&mut self, origin: Origin, reason: Reason, now: Time) {
        if let Origin::Uplink(at) = origin {
            let until = self.uplinks.on_lost(at, now, reason, &self.settings, self.random);
            self.draw();
            self.wake_at(until);
        }
        self.tell(Event::Refused { id: self.expected(origin), from: None, reason });
    }
}
