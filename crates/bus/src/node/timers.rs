//! Deadlines. Each connection is in one queue with the time of its next check: connections that are
//! not due cost nothing, however many there are.
//!
//! That time may be too early, because received frames only postpone it: then the connection is
//! queued again. It is never too late: every change that brings a deadline forward calls
//! [`Node::schedule`].

use super::Node;
use crate::peer::{Origin, PeerKey, Relation};
use keyway_base::Time;
use std::time::Duration;

impl Node {
    /// Handles the passing of time. To be called at [`Node::poll_deadline`].
    pub fn handle_timeout(&mut self, now: Time) {
        if now < self.next_timeout {
            return;
        }
        // Connections that are due again at once are handled by the next call: others may have to
        // act before.
        let later = self.timers.split_off(&(Time(now.0 + 1), 0));
        for (_, bits) in std::mem::replace(&mut self.timers, later) {
            self.on_due(PeerKey::from_bits(bits), now);
        }
        self.expire_dials(now);
        self.expire_waiting(now);
        self.go_on_with_topics();
        self.give_up_slow_takers(now);
        if now >= self.upkeep_at {
            self.upkeep_at = now + self.settings.heartbeat;
            self.forget_what_is_old(now);
        }
        self.settle(now);
        self.next_timeout = self.compute_deadline(now);
        self.decide_contests(now);
        self.tell_unsaid(now);
    }

    /// Removes old state that others have left here, at most once a heartbeat.
    fn forget_what_is_old(&mut self, now: Time) {
        self.seen.forget(now);
        self.expire_parked(now);
        // Frames that were kept because a queue was full are tried again, too.
        self.may_unpark |= !self.parked.is_empty();
        self.forget_topics(now);
        self.give_up_idle_parts(now);
        self.look_for_twins(now);
        self.early.forget(now);
    }

    /// Returns whether anything must not wait longer than until the next upkeep.
    pub(super) fn needs_upkeep(&self) -> bool {
        self.assembly_left != self.settings.assembly_len_max
            || !self.parked.is_empty()
            || !self.early.is_empty()
            || self.below.has_twins()
    }

    fn on_due(&mut self, key: PeerKey, now: Time) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        peer.timer = Time(u64::MAX);
        if let Err(reason) = peer.on_timeout(&self.settings, now) {
            return self.close(key, reason, now);
        }
        let is_direct =
            matches!(peer.origin, Origin::Direct(_)) && peer.relation == Relation::Sibling;
        let is_idle = now.since(peer.used_at) >= self.settings.direct_idle;
        if is_direct && is_idle && peer.is_open() && peer.retiring.is_none() {
            peer.is_leaving = true;
            self.retire(key, crate::Reason::Idle, now);
        }
        self.part_from_leaving(key, now);
        self.schedule(key);
        self.mark(key);
    }

    /// Makes sure that a connection is checked when it is due.
    pub(super) fn schedule(&mut self, key: PeerKey) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        let at = peer.deadline(&self.settings);
        if at >= peer.timer {
            return;
        }
        self.timers.remove(&(peer.timer, key.to_bits()));
        peer.timer = at;
        self.timers.insert((at, key.to_bits()));
        self.wake_at(at);
    }

    /// Returns the time at which to call [`Node::handle_timeout`].
    pub fn poll_deadline(&self) -> Time {
        self.next_timeout
    }

    fn compute_deadline(&self, now: Time) -> Time {
        let first = self.timers.first().map(|(at, _)| *at);
        let upkeep = self.needs_upkeep().then_some(self.upkeep_at);
        let chores = self.topics.has_chores().then_some(now);
        let all = [
            first,
            chores,
            self.uplinks_deadline(),
            self.waiting.deadline(),
            self.next_dial_deadline(),
            upkeep,
        ];
        all.into_iter().flatten().fold(now + Duration::from_secs(60), Time::min)
    }

    /// Makes sure that [`Node::handle_timeout`] is called at `at`.
    pub(super) fn wake_at(&mut self, at: Time) {
        self.next_timeout = self.next_timeout.min(at);
    }
}
