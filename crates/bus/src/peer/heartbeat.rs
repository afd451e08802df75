//! When a connection is pinged, when it rests, and when it is given up.

use super::{Cut, Origin, Outbox, Peer};
use crate::fault::Reason;
use crate::settings::{Rest, Settings};
use keyway_base::Time;
use std::time::Duration;

/// Pings at rest are sent at whole multiples of the time between two, divided by this: those of many
/// connections fall together, and one wake-up serves all. More is more wake-ups, fewer is more pings in one go.
const SLOTS: u64 = 8;

/// How many times fewer pings there are at rest where both ends are on one host. The system tells of a process
/// that has died; what they are for is one that hangs.
const FEWER_WITHIN_HOST: u32 = 10;

/// Heartbeats that a ping of the acceptor may be late before the dialler asks.
const LATE_BEATS: u32 = 2;

/// How long a ping may have no answer: with the heartbeat before it, that is `silent_after` of them.
fn patience(settings: &Settings) -> Duration {
    settings.heartbeat * (settings.silent_after - 1)
}

/// The last beginning of a slot within `between` after `at`.
fn in_slot(at: Time, between: Duration) -> Time {
    let between = between.as_nanos() as u64;
    let slot = (between / SLOTS).max(1);
    Time((at.0 + between) / slot * slot)
}

impl Peer {
    /// When [`Peer::on_timeout`] is due, and what else the node looks for at a time.
    pub(crate) fn deadline(&self, settings: &Settings) -> Time {
        if self.identity.is_none() {
            return match self.is_contested {
                true => Time(u64::MAX),
                false => self.since + self.registration(settings),
            };
        }
        let mut first = self.ping_due(settings);
        let silent = self.asked_at.map(|at| at + patience(settings));
        let is_direct = matches!(self.origin, Origin::Direct(_));
        let idle = is_direct && self.is_open() && self.retiring.is_none();
        let idle = idle.then_some(self.used_at + settings.direct_idle);
        for at in [silent, idle, self.retiring, self.left_by].into_iter().flatten() {
            first = first.min(at);
        }
        first
    }

    fn registration(&self, settings: &Settings) -> Duration {
        match self.origin {
            Origin::Accepted => settings.handshake,
            Origin::Uplink(_) | Origin::Direct(_) => settings.dial,
        }
    }

    fn ping_due(&self, settings: &Settings) -> Time {
        let next = self.ping_at + settings.heartbeat;
        if next < self.spoken_at + settings.rest.after {
            return next;
        }
        let between = settings.rest.heartbeat * self.rest_factor();
        match self.origin {
            // A node is dialled by many and dials few: who is dialled asks all of them at once.
            Origin::Accepted => in_slot(self.ping_at, between).max(next),
            Origin::Uplink(_) | Origin::Direct(_) => {
                self.ping_at.max(self.heard_at) + between + settings.heartbeat * LATE_BEATS
            }
        }
    }

    fn rest_factor(&self) -> u32 {
        if self.is_within_host { FEWER_WITHIN_HOST } else { 1 }
    }

    /// Pings in time, and tells when the other side is silent for too long.
    pub(crate) fn on_timeout(&mut self, settings: &Settings, now: Time) -> Result<(), Reason> {
        if self.identity.is_none() {
            let is_late = !self.is_contested && now >= self.since + self.registration(settings);
            return if is_late { Err(Reason::HandshakeTimeout) } else { Ok(()) };
        }
        if self.asked_at.is_some_and(|at| now >= at + patience(settings)) {
            return Err(Reason::Silent);
        }
        if now >= self.ping_due(settings) {
            self.ask(now);
            self.tell_credit();
            // Once a heartbeat: who has something to say soon needs not reserve it anew each time.
            self.outboxes.iter_mut().for_each(Outbox::give_back);
        }
        Ok(())
    }

    /// Wants an answer from the other side.
    fn ask(&mut self, now: Time) {
        self.ping_at = now;
        self.due.ping = true;
        self.asked_at.get_or_insert(now);
    }

    /// Tells a node below whether this one is cut off from the root: a ping does, and is sent at once.
    pub(crate) fn tell_cut(&mut self, is_off: bool, now: Time) {
        if std::mem::replace(&mut self.tells_cut, is_off) != is_off {
            self.ask(now);
        }
    }

    pub(super) fn note_cut(&mut self, is_off: bool, now: Time) {
        if self.cut.is_off != is_off {
            self.cut = Cut { is_off, since: now };
        }
    }

    /// Something is said: on a connection that rested, it is asked at the same time whether anybody is there.
    pub(super) fn wake_up(&mut self, rest: Rest, now: Time) {
        if !self.outboxes.iter().any(Outbox::is_ready) {
            return;
        }
        if now >= self.spoken_at + rest.after {
            self.ask(now);
        }
        self.spoken_at = now;
    }
}
