//! Both upstreams: their connections, and which one is used.

use crate::fault::Reason;
use crate::peer::{PeerKey, is_final};
use crate::settings::Settings;
use keyway_base::Time;
use std::time::Duration;

/// The state of the connection to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum State {
    Waiting { until: Time },
    Dialling,
    Connected(PeerKey),
    Up(PeerKey, Time),
}

pub(in crate::node) struct Uplink {
    pub(in crate::node) state: State,
    pub(in crate::node) failures: u32,
}

/// Both upstreams.
pub(in crate::node) struct Uplinks {
    pub(in crate::node) all: Vec<Uplink>,
    /// The index of the used one.
    pub active: Option<usize>,
}

impl Uplinks {
    pub fn new(count: usize, now: Time) -> Self {
        let uplink = || Uplink { state: State::Waiting { until: now }, failures: 0 };
        Self { all: std::iter::repeat_with(uplink).take(count).collect(), active: None }
    }

    pub fn on_connected(&mut self, at: usize, peer: PeerKey) {
        self.all[at].state = State::Connected(peer);
    }

    /// Notes that its next address is tried.
    pub fn on_dialling(&mut self, at: usize) {
        self.all[at].state = State::Dialling;
    }

    pub(in crate::node) fn on_up(&mut self, at: usize, peer: PeerKey, now: Time) {
        self.all[at].state = State::Up(peer, now);
    }

    /// Notes that it was lost. Returns when it is dialled again: the time doubles after each
    /// failure, and half of it is random.
    pub fn on_lost(
        &mut self,
        at: usize,
        now: Time,
        reason: Reason,
        settings: &Settings,
        random: u64,
    ) -> Time {
        let uplink = &mut self.all[at];
        // A connection that is lost as soon as it is made, as in a cycle, is not dialled too often.
        let lasted = matches!(uplink.state, State::Up(_, since) if now.since(since) >= settings.prefer_after);
        uplink.failures = if lasted { 0 } else { uplink.failures };
        let (shortest, longest) = settings.retry;
        let wait = longest.min(shortest * (1 << uplink.failures.min(10)));
        // A failure that will not go away soon is not retried every moment.
        let wait = if is_final(reason) { longest } else { wait };
        uplink.failures = uplink.failures.saturating_add(1);
        let jitter = wait.as_nanos() as u64 / 2;
        let until = now + wait / 2 + Duration::from_nanos(random % jitter.max(1));
        uplink.state = State::Waiting { until };
        until
    }

    pub(in crate::node) fn up(&self, at: usize) -> Option<(PeerKey, Time)> {
        match self.all.get(at)?.state {
            State::Up(peer, since) => Some((peer, since)),
            _ => None,
        }
    }

    /// Returns the connection of the used one.
    pub fn active_peer(&self) -> Option<PeerKey> {
        self.up(self.active?).map(|(peer, _)| peer)
    }

    pub(in crate::node) fn next_retry(&self) -> Option<Time> {
        let retries = self.all.iter().filter_map(|uplink| match uplink.state {
            State::Waiting { until } => Some(until),
            _ => None,
        });
        retries.min()
    }
}
