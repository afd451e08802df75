//! The way up: a primary upstream and a standby, both connected, one of them used.

use super::Node;
use super::input::Came;
use crate::event::{Action, DialKey, Event};
use crate::fault::Reason;
use crate::frame::{Head, Kind};
use crate::peer::{Origin, PeerKey};
use crate::settings::Settings;
use crate::wire::Writer;
use keyway_base::Time;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting { until: Time },
    Dialling,
    Connected(PeerKey),
    Up(PeerKey, Time),
}

struct Uplink {
    state: State,
    failures: u32,
}

/// Both ways up.
pub(super) struct Uplinks {
    all: Vec<Uplink>,
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

    fn on_up(&mut self, at: usize, peer: PeerKey, now: Time) {
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
        let is_final = (32..64).contains(&(reason as u16));
        let wait = if is_final { longest } else { wait };
        uplink.failures = uplink.failures.saturating_add(1);
        let jitter = wait.as_nanos() as u64 / 2;
        let until = now + wait / 2 + Duration::from_nanos(random % jitter.max(1));
        uplink.state = State::Waiting { until };
        until
    }

    fn up(&self, at: usize) -> Option<(PeerKey, Time)> {
        match self.all.get(at)?.state {
            State::Up(peer, since) => Some((peer, since)),
            _ => None,
        }
    }

    /// The connection of the one that is used.
    pub fn active_peer(&self) -> Option<PeerKey> {
        self.up(self.active?).map(|(peer, _)| peer)
    }

    /// When an upstream is to be dialled, or the primary one, where `is_open`, to be gone back to.
    pub fn deadline(
        &self,
        prefer_after: Duration,
        is_open: impl Fn(PeerKey) -> bool,
    ) -> Option<Time> {
        let retries = self.all.iter().filter_map(|uplink| match uplink.state {
            State::Waiting { until } => Some(until),
            _ => None,
        });
        let change = match (self.active, self.up(0)) {
            (Some(1), Some((peer, since))) if is_open(peer) => Some(since + prefer_after),
            _ => None,
        };
        retries.chain(change).min()
    }
}

impl Node {
    pub(super) fn dial_uplinks(&mut self, now: Time) {
        if self.leaving.is_some() {
            return;
        }
        for at in 0..self.uplinks.all.len() {
            match self.uplinks.all[at].state {
                State::Waiting { until } if until <= now => {}
                _ => continue,
            }
            self.uplinks.all[at].state = State::Dialling;
            let urls = self.settings.upstreams[at].urls.clone();
            self.dial(Origin::Uplink(at), urls);
        }
    }

    pub(super) fn dial(&mut self, origin: Origin, urls: Vec<crate::Url>) {
        self.next_dial += 1;
        let dial = DialKey(self.next_dial);
        self.dials.insert(dial, origin);
        self.actions.push_back(Action::Dial { dial, urls });
    }

    pub(super) fn on_uplink_up(&mut self, at: usize, peer: PeerKey, now: Time) {
        self.uplinks.on_up(at, peer, now);
        self.wake_at(now + self.settings.prefer_after);
    }

    /// The upstream that messages go through.
    pub fn upstream(&self) -> Option<crate::NodeId> {
        let peer = self.peers.get(self.uplinks.active_peer()?)?;
        Some(peer.id())
    }

    /// Uses the primary upstream if that has been there for long enough, or is the only one.
    pub(super) fn choose_upstream(&mut self, now: Time) {
        let usable = |at: usize| {
            let (peer, since) = self.uplinks.up(at)?;
            let is_open = self.peers.get(peer).is_some_and(|peer| peer.is_open());
            is_open.then_some((peer, since))
        };
        let current = self.uplinks.active.filter(|at| usable(*at).is_some());
        let wanted = match (current, usable(0), usable(1)) {
            (Some(1), Some((_, since)), _) if now >= since + self.settings.prefer_after => Some(0),
            (Some(at), ..) => Some(at),
            (None, Some(_), _) => Some(0),
            (None, None, Some(_)) => Some(1),
            (None, None, None) => None,
        };
        if wanted == self.uplinks.active {
            return;
        }
        self.counts.upstream_changes += 1;
        let old = self.uplinks.active.and_then(|at| self.uplinks.up(at));
        self.uplinks.active = wanted;
        if let Some((peer, _)) = old {
            self.attach(peer, false, now);
        }
        if let Some(peer) = self.uplinks.active_peer() {
            self.attach(peer, true, now);
        }
        self.tell(Event::Upstream(self.upstream()));
    }

    /// Tells an upstream whether messages for this node and those below go through it.
    fn attach(&mut self, key: PeerKey, is_active: bool, now: Time) {
        if is_active {
            self.attach_stamp += 1;
        }
        let mut body = Vec::new();
        let mut out = Writer::new(&mut body);
        out.u8(u8::from(is_active));
        out.u64(self.attach_stamp);
        self.push_plain(key, Kind::Attach, &body, now);
        if is_active {
            self.tell_all_ways(now);
            self.tell_all_versions(key, now);
            self.tell_own_applied(now);
            self.may_unpark = true;
        }
    }

    /// Sends a frame to a peer itself. One whose queue is full is not to be told half of what it must know.
    pub(super) fn push_plain(&mut self, key: PeerKey, kind: Kind, body: &[u8], now: Time) {
        let Some(peer) = self.peers.get_mut(key).filter(|peer| peer.is_open()) else { return };
        let head = Head::plain(kind, peer.our_id(), peer.id());
        if let Err(reason) = self.queue(key, &head, &[], Came::Slice(body)) {
            self.close(key, reason, now);
        }
    }
}
