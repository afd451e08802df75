//! Leaving in order: what was sent is taken first.

use super::Node;
use crate::event::Event;
use crate::fault::Reason;
use crate::peer::PeerKey;
use keyway_base::Time;

impl Node {
    /// Leaves the bus. Peers are told, and send elsewhere what they had for this node. It waits
    /// until everything that was sent is taken. [`Event::Gone`] comes when the last connection is
    /// closed.
    pub fn leave(&mut self, now: Time) {
        if self.leaving.is_some() {
            return;
        }
        self.leaving = Some(now + self.settings.leave);
        self.dials.clear();
        for key in self.peers.keys() {
            match self.peers.get(key).is_some_and(|peer| peer.identity.is_some()) {
                true => self.retire(key, Reason::Leaving, now),
                false => self.close(key, Reason::Leaving, now),
            }
        }
        self.check_leave(now);
        self.wake_at(now + self.settings.leave);
    }

    /// Says farewell to a peer, and closes the connection once nothing is in flight on it.
    pub(super) fn retire(&mut self, key: PeerKey, reason: Reason, now: Time) {
        let until = now + self.settings.leave;
        let Some(peer) = self.peers.get_mut(key) else { return };
        peer.say_goaway(reason);
        peer.retiring = Some(until);
        peer.tell_credit();
        self.retiring.push(key);
        self.schedule(key);
        self.mark(key);
    }

    /// Handles a peer's farewell, or its answer.
    pub(super) fn on_leaves(&mut self, key: PeerKey, reason: Reason, now: Time) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        if reason == Reason::Bye {
            peer.said_bye = true;
            return;
        }
        peer.farewell = Some(reason);
        if std::mem::replace(&mut peer.is_leaving, true) && peer.retiring.is_none() {
            return;
        }
        // The peer closes when it has the answer and what it sent was taken. It is waited for only
        // for a bounded time.
        let left_by = now + self.settings.leave;
        peer.left_by.get_or_insert(left_by);
        let remains = peer.take_unsent();
        peer.say_bye();
        peer.tell_credit();
        self.schedule(key);
        self.forget_ways(key);
        self.choose_upstream(now);
        self.route_remains(remains, now);
    }

    /// Closes a connection whose peer has said farewell and stayed. An upstream is dialled again.
    pub(super) fn part_from_leaving(&mut self, key: PeerKey, now: Time) {
        let left_by = self.peers.get(key).and_then(|peer| peer.left_by);
        if left_by.is_some_and(|at| now >= at) {
            self.close(key, Reason::Leaving, now);
        }
    }

    /// Closes connections on which nothing is in flight any more.
    pub(super) fn check_leave(&mut self, now: Time) {
        for key in std::mem::take(&mut self.retiring) {
            let Some(peer) = self.peers.get(key) else { continue };
            let is_over = peer.retiring.is_some_and(|until| now >= until);
            match is_over || (peer.said_bye && peer.is_done() && !peer.has_output()) {
                true => self.close(key, Reason::Leaving, now),
                false => self.retiring.push(key),
            }
        }
        if self.leaving.is_some() && self.peers.is_empty() && !self.is_gone {
            self.is_gone = true;
            self.end_all_waiting();
            self.forget_parked();
            self.tell(Event::Gone);
        }
    }
}
