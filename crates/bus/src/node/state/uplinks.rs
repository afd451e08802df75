//! Both ways up: which is connected, and which is used.

use crate::fault::Reason;
use crate::peer::{PeerKey, is_final};
use crate::settings::Settings;
use keyway_base::Time;
use std::time::Duration;

/// How far the connection to an upstream has come.
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

/// Both ways up.
pub(in crate::node) struct Uplinks {
    pub(in crate::node) all: Vec<Uplink>,
    /// The place of the one that is used.
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

    /// The next of its addresses is tried.
    pub fn on_dialling(&mut self, at: usize) {
        self.all[at].state = State::Dialling;
    }

    pub(in crate::node) fn on_up(&mut self, at: usize, peer: PeerKey, now: Time) {
        self.all[at].state = State::Up(peer, now);
    }

    /// When it is dialled again: twice as long after each failure, half of that by chance.
    pub fn on_lost(
        &mut self,
        at: usize,
        now: Time,
        reason: Reason,
        settings: &Settings,
        random: u64,
    ) -> Time {
        let uplink = &mut self.all[at];
        // One that is lost as soon as it is there, as in a cycle, is not dialled ever so often.
        let lasted = matches!(uplink.state, State::Up(_, since) if now.since(since) >= settings.prefer_after);
        uplink.failures = if lasted { 0 } else { uplink.failures };
        let (shortest, longest) = settings.retry;
        let wait = longest.min(shortest * (1 << uplink.failures.min(10)));
        // What will not be otherwise in a moment is not asked every moment.
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

    /// The connection of the one that is used.
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
