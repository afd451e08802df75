//! The upstreams: a primary and a standby, both connected, one of them used.

use super::Node;
use super::came::Came;
use super::state::{State, Uplinks};
use crate::event::Event;
use crate::fault::Reason;
use crate::frame::{Head, Kind};
use crate::id::NodeId;
use crate::peer::{Origin, Peer, PeerKey};
use crate::settings::Upstream;
use crate::wire::Writer;
use keyway_base::Time;

impl Node {
    /// Returns the next time at which an upstream is to be dialled, or the other one to be used.
    pub(super) fn uplinks_deadline(&self) -> Option<Time> {
        if self.leaving.is_some() {
            return None;
        }
        self.uplinks.next_retry().into_iter().chain(self.next_move()).min()
    }

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
            self.dial(Origin::Uplink(at), urls, now);
        }
    }

    pub(super) fn on_uplink_up(&mut self, at: usize, peer: PeerKey, now: Time) {
        self.uplinks.on_up(at, peer, now);
        self.wake_at(now + self.settings.prefer_after);
    }

    /// Returns the upstream through which messages go.
    pub fn upstream(&self) -> Option<crate::NodeId> {
        let peer = self.peers.get(self.uplinks.active_peer()?)?;
        Some(peer.id())
    }

    /// Returns an upstream that can be used, and since when it has been connected without a break.
    fn usable(&self, at: usize) -> Option<(&Peer, Time)> {
        let (key, since) = self.uplinks.up(at)?;
        let peer = self.peers.get(key).filter(|peer| peer.is_open())?;
        Some((peer, since))
    }

    /// Returns when to change to the other upstream, if nothing changes until then: the used one is
    /// cut off from the root and the other is not, or the other is the primary.
    fn next_move(&self) -> Option<Time> {
        let at = self.uplinks.active?;
        let (current, _) = self.usable(at)?;
        let (other, up_since) = self.usable(1 - at)?;
        if other.cut.is_off {
            return None;
        }
        let whole_since = up_since.max(other.cut.since);
        match at {
            _ if current.cut.is_off => {
                Some(whole_since.max(current.cut.since) + self.settings.cut_after)
            }
            0 => None,
            _ => Some(whole_since + self.settings.prefer_after),
        }
    }

    /// Returns whether no root is above: upstreams are configured, and none is connected, or the
    /// used one says that it is cut off itself.
    pub fn is_cut_off(&self) -> bool {
        let of_peer = |key| self.peers.get(key).is_none_or(|peer: &Peer| peer.cut.is_off);
        let wants_one = self.is_adrift || !self.settings.upstreams.is_empty();
        wants_one && self.uplinks.active_peer().is_none_or(of_peer)
    }

    /// Goes below other upstreams from now on, at most [`crate::UPSTREAMS_MAX`]. Without any, the
    /// node is a root, or, with `is_adrift`, cut off until it is told otherwise. Connections to the
    /// upstreams so far are closed, and a new upstream that is below this node is closed as well.
    pub fn set_upstreams(&mut self, upstreams: Vec<Upstream>, is_adrift: bool, now: Time) {
        self.is_adrift = is_adrift;
        if upstreams == self.settings.upstreams || self.leaving.is_some() {
            return self.settle(now);
        }
        self.dials.retain(|_, dial| !matches!(dial.origin, Origin::Uplink(_)));
        let is_new = |id: NodeId| !id.is_none() && upstreams.iter().any(|one| one.id == id);
        let over = |peer: &Peer| match peer.origin {
            Origin::Uplink(_) => true,
            Origin::Accepted | Origin::Direct(_) => is_new(peer.id()),
        };
        let over = self.peers.iter().filter(|(_, peer)| over(peer)).map(|(key, _)| key);
        let over: Vec<PeerKey> = over.collect();
        over.into_iter().for_each(|key| self.close(key, Reason::Leaving, now));
        self.uplinks = Uplinks::new(upstreams.len(), now);
        self.settings.upstreams = upstreams;
        self.settle(now);
    }

    /// Tells the nodes below when that has changed.
    pub(super) fn tell_cut(&mut self, now: Time) {
        let is_off = self.is_cut_off();
        if is_off == std::mem::replace(&mut self.told_cut, is_off) {
            return;
        }
        for key in self.peers.keys() {
            self.tell_cut_to(key, now);
        }
    }

    pub(super) fn tell_cut_to(&mut self, key: PeerKey, now: Time) {
        let is_off = self.told_cut;
        if let Some(peer) = self.peers.get_mut(key)
            && peer.origin == Origin::Accepted
            && peer.is_open()
        {
            peer.tell_cut(is_off, now);
            self.schedule(key);
            self.mark(key);
        }
    }

    /// Returns whether a connection leads to an unused upstream. Nothing is sent up there for other
    /// nodes, which it would not know.
    pub(super) fn is_unused_uplink(&self, key: PeerKey) -> bool {
        let origin = self.peers.get(key).map(|peer| peer.origin);
        matches!(origin, Some(Origin::Uplink(at)) if self.uplinks.active != Some(at))
    }

    /// Goes on with the used upstream, unless it is time for the other one. If there is none, the
    /// first that is not cut off is used, else the first.
    pub(super) fn choose_upstream(&mut self, now: Time) {
        let current = self.uplinks.active.filter(|at| self.usable(*at).is_some());
        let wanted = match current {
            Some(at) if self.next_move().is_some_and(|due| due <= now) => Some(1 - at),
            Some(at) => Some(at),
            None => {
                let is_whole = |at: &usize| self.usable(*at).is_some_and(|it| !it.0.cut.is_off);
                let first = |at: &usize| self.usable(*at).is_some();
                (0..2).find(is_whole).or_else(|| (0..2).find(first))
            }
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

    /// Tells an upstream what it must know. If there is no room even for that, the connection is
    /// closed rather than told a part.
    pub(super) fn push_plain(&mut self, key: PeerKey, kind: Kind, body: &[u8], now: Time) {
        let Some(peer) = self.peers.get_mut(key).filter(|peer| peer.is_open()) else { return };
        let head = Head::plain(kind, peer.our_id(), peer.id());
        if let Err(reason) = self.queue(key, &head, &[], Came::Slice(body)) {
            self.close(key, reason, now);
        }
    }
}
