//! When a connection is pinged, when it rests, and when it is given up.

use super::{Cut, Origin, Outbox, Peer};
use crate::fault::Reason;
use crate::settings::{Rest, Settings};
use keyway_base::Time;
use std::time::Duration;

/// Pings at rest are sent at whole multiples of their interval divided by this number. So those of
/// many connections fall together, and one wake-up serves all. A larger number means more wake-ups;
/// a smaller one more pings at once.
const SLOTS: u64 = 8;

/// Factor by which pings at rest are rarer if both ends are on one host. The system reports a
/// process that has died; pings only find one that hangs.
const FEWER_WITHIN_HOST: u32 = 10;

/// Heartbeats that a ping of the acceptor may be late before the dialler asks.
const LATE_BEATS: u32 = 2;

/// Returns how long a ping may stay unanswered: with the heartbeat before it, that is
/// `silent_after` heartbeats.
fn patience(settings: &Settings) -> Duration {
    settings.heartbeat * (settings.silent_after - 1)
}

/// Returns the last beginning of a slot within `between` after `at`.
fn in_slot(at: Time, between: Duration) -> Time {
    let between = between.as_nanos() as u64;
    let slot = (between / SLOTS).max(1);
    Time((at.0 + between) / slot * slot)
}

impl Peer {
    /// Returns when [`Peer::on_timeout`] is due, including other deadlines that the node checks.
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
            // A node is dialled by many and dials few: the acceptor pings all of them at once.
            Origin::Accepted => in_slot(self.ping_at, between).max(next),
            Origin::Uplink(_) | Origin::Direct(_) => {
                self.ping_at.max(self.heard_at) + between + settings.heartbeat * LATE_BEATS
            }
        }
    }

    fn rest_factor(&self) -> u32 {
        if self.is_within_host { FEWER_WITHIN_HOST } else { 1 }
    }

    /// Sends pings in time. Returns an error if the other side is silent for too long.
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
            // This is done once a heartbeat, so that a busy peer need not allocate it anew each
            // time.
            self.outboxes.iter_mut().for_each(Outbox::give_back);
        }
        Ok(())
    }

    /// Demands an answer from the other side.
    fn ask(&mut self, now: Time) {
        self.ping_at = now;
        self.due.ping = true;
        self.asked_at.get_or_insert(now);
    }

    /// Tells a node below whether this one is cut off from the root. A ping carries that, and is
    /// sent at once.
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

    /// Ends the rest of a connection because something is sent: at the same time the peer is
    /// pinged.
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
