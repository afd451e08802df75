//! Versions of topics on their way down, and word of them on its way up.

use super::Node;
use super::came::Came;
use crate::compress::decompressed;
use crate::event::Event;
use crate::fault::{Reason, SendFault};
use crate::frame::{Head, Kind, MESSAGE_LEN_MAX, TTL_MAX, flags};
use crate::id::NodeId;
use crate::peer::outbox::Version;
use crate::peer::{Origin, Peer, PeerKey, Sum};
use crate::push::{AppliedAt, Bounds, Held, Push, Stamp, TOPIC_BODY_MAX, Taken, Topic, is_topic};
use crate::wire::{Reader, Writer};
use keyway_base::Time;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Time for which a withdrawn topic is remembered. A node that was away for longer keeps its
/// version.
const GONE_FOR: Duration = Duration::from_secs(600);

impl Node {
    fn bounds(&self) -> Bounds {
        let (count, len) = (self.settings.topics_max, self.settings.topics_len_max);
        Bounds { count, len, body_len: TOPIC_BODY_MAX }
    }

    /// Publishes a version to all nodes below, now and when they join. It must be later than the
    /// current one.
    pub fn publish(&mut self, topic: &str, stamp: Stamp, body: Vec<u8>) -> Result<(), SendFault> {
        if !is_topic(topic) {
            return Err(SendFault::Topic);
        }
        if self.topics.map.get(topic).is_some_and(|known| known.stamp >= stamp) {
            return Err(SendFault::Stale);
        }
        let (id, bounds) = (self.id, self.bounds());
        self.topics.publish(topic, stamp, id, body, bounds).map_err(SendFault::Refused)?;
        self.on_own_version(topic, stamp);
        Ok(())
    }

    fn on_own_version(&mut self, topic: &str, stamp: Stamp) {
        if let Some(kept) = self.topics.map.get_mut(topic) {
            kept.own = Some((stamp, true));
        }
        self.offer_all();
        if self.topics.has_chores() {
            self.wake_at(Time(0));
        }
    }

    /// Does the next piece of long work on topics.
    pub(super) fn go_on_with_topics(&mut self) {
        if self.topics.has_chores() && self.topics.go_on() {
            self.offer_all();
        }
    }

    /// Withdraws a topic, here and at all nodes below, now and when they join within ten minutes:
    /// they get [`Event::Withdrawn`]. The stamp must be later than the current version's.
    pub fn withdraw(&mut self, topic: &str, stamp: Stamp, now: Time) -> Result<(), SendFault> {
        let known = self.topics.map.get(topic).filter(|known| known.gone.is_none());
        let Some(known) = known else { return Err(SendFault::Topic) };
        if known.stamp >= stamp {
            return Err(SendFault::Stale);
        }
        let (id, bounds) = (self.id, self.bounds());
        self.topics.withdraw(topic, stamp, id, bounds, now).map_err(SendFault::Refused)?;
        self.on_own_version(topic, stamp);
        self.ask_for_refused(now);
        Ok(())
    }

    /// Forgets topics that were withdrawn long ago, and the versions of them that nodes have.
    pub(super) fn forget_topics(&mut self, now: Time) {
        let names = self.topics.forget_gone(GONE_FOR, now);
        for name in &names {
            for key in self.peers.keys() {
                if let Some(versions) =
                    self.peers.get_mut(key).and_then(|peer| peer.versions.as_mut())
                {
                    versions.remove(name);
                }
            }
        }
        if !names.is_empty() {
            self.ask_for_refused(now);
        }
    }

    /// Asks for topics that had no place, because there is one again.
    fn ask_for_refused(&mut self, now: Time) {
        if let Some(upstream) = self.uplinks.active_peer()
            && self.topics.take_was_full()
        {
            self.tell_all_versions(upstream, now);
        }
    }

    /// Returns the latest version of a topic that this node has.
    pub fn topic(&self, name: &str) -> Option<(Stamp, &[u8])> {
        let topic = self.topics.map.get(name).filter(|topic| topic.gone.is_none());
        topic.map(|topic| (topic.stamp, &topic.body[..]))
    }

    /// Returns the stamp of the latest version of a topic, also of a withdrawn one. A published
    /// version must be later.
    pub fn latest(&self, name: &str) -> Option<Stamp> {
        self.topics.map.get(name).map(|topic| topic.stamp)
    }

    /// Returns the latest version of a topic that directly connected nodes below have, as they say.
    pub fn latest_below(&self, name: &str) -> Option<Stamp> {
        let versions = self.peers.iter().filter_map(|(_, peer)| peer.versions.as_ref());
        versions.filter_map(|versions| versions.get(name)?.have).max()
    }

    /// Returns the nodes below that have not reported that they have applied the latest version of
    /// a topic of this node, and their last report.
    pub fn laggards(&self, topic: &str) -> Vec<(NodeId, Option<AppliedAt>)> {
        let is_ours = |topic: &&Topic| topic.publisher == self.id && topic.gone.is_none();
        let Some(topic) = self.topics.map.get(topic).filter(is_ours) else {
            return Vec::new();
        };
        let told = |id: NodeId| (id, topic.applied.get(&id).copied());
        let lags = |(_, applied): &(NodeId, Option<AppliedAt>)| {
            !applied.is_some_and(|applied| applied.is_good && applied.stamp >= topic.stamp)
        };
        let members = self.below.iter().filter(|(id, _)| !id.is_guest());
        members.map(|(id, _)| told(id)).filter(lags).collect()
    }

    /// Notes that the user has applied a version of [`Event::Push`], or could not. The publisher is
    /// told.
    pub fn applied(&mut self, topic: &str, stamp: Stamp, is_good: bool, now: Time) {
        let Some(kept) = self.topics.map.get_mut(topic) else { return };
        kept.own = Some((stamp, is_good));
        self.tell_applied(topic, now);
    }

    /// Tells a new upstream which versions were applied: it may know another publisher, or the last
    /// word was lost.
    pub(super) fn tell_own_applied(&mut self, now: Time) {
        let names: Vec<String> = self.topics.map.keys().cloned().collect();
        names.iter().for_each(|name| self.tell_applied(name, now));
    }

    fn tell_applied(&mut self, name: &str, now: Time) {
        let Some(topic) = self.topics.map.get(name) else { return };
        let (Some((stamp, is_good)), publisher) = (topic.own, topic.publisher) else { return };
        self.tell_publisher(publisher, name, stamp, is_good, now);
    }

    fn tell_publisher(
        &mut self,
        publisher: NodeId,
        name: &str,
        stamp: Stamp,
        is_good: bool,
        now: Time,
    ) {
        if publisher == self.id || self.leaving.is_some() {
            return;
        }
        let mut body = Vec::new();
        let mut out = Writer::new(&mut body);
        out.text(name);
        stamp.write(&mut out);
        out.u8(u8::from(is_good));
        let head = Head {
            kind: Kind::Applied,
            flags: 0,
            seq: 0,
            src: self.id,
            dst: publisher,
            ttl: TTL_MAX,
        };
        // If it cannot be sent now, it is told when there is an upstream again.
        let _ = self.pass(&head, &[], Came::Slice(&body), None, now);
    }

    pub(super) fn on_applied(&mut self, head: &Head, body: &[u8], now: Time) {
        let mut from = Reader::new(body);
        let read = (|| Some((from.text()?.to_owned(), Stamp::read(&mut from)?, from.u8()? == 1)))();
        let Some((name, stamp, is_good)) = read else { return };
        let (own, nodes_max) = (self.id, self.settings.nodes_max);
        let Some(topic) = self.topics.map.get_mut(&name).filter(|topic| topic.publisher == own)
        else {
            return;
        };
        if topic.applied.len() >= nodes_max && !topic.applied.contains_key(&head.src) {
            return;
        }
        // A version that was not published cannot have been applied.
        if stamp > topic.stamp {
            return;
        }
        // Word that was sent again may come after later word.
        if topic.applied.get(&head.src).is_some_and(|known| known.stamp > stamp) {
            return;
        }
        topic.applied.insert(head.src, AppliedAt { stamp, is_good, at: now });
        let (epoch, version) = (stamp.epoch, stamp.version);
        self.tell(Event::Applied { topic: name, node: head.src, epoch, version, is_good });
    }

    /// Tells a new upstream the versions that this node has. It sends later ones.
    pub(super) fn tell_all_versions(&mut self, key: PeerKey, now: Time) {
        let mut body = vec![1];
        let mut out = Writer::new(&mut body);
        out.u16(self.topics.map.len() as u16);
        for (name, topic) in &self.topics.map {
            out.text(name);
            topic.stamp.write(&mut out);
            out.u8(1);
        }
        self.push_plain(key, Kind::Have, &body, now);
    }

    fn tell_version(&mut self, key: PeerKey, name: &str, is_good: bool, now: Time) {
        let stamp = self.latest(name).unwrap_or_default();
        self.tell_stamp(key, name, stamp, is_good, now);
    }

    fn tell_stamp(&mut self, key: PeerKey, name: &str, stamp: Stamp, is_good: bool, now: Time) {
        let mut body = vec![0];
        let mut out = Writer::new(&mut body);
        out.u16(1);
        out.text(name);
        stamp.write(&mut out);
        out.u8(u8::from(is_good));
        self.push_plain(key, Kind::Have, &body, now);
    }

    /// Handles a child's list of its versions.
    pub(super) fn on_have(&mut self, key: PeerKey, body: &[u8]) -> Result<(), Reason> {
        let bounds = self.bounds();
        let Some(peer) = self.peers.get_mut(key) else { return Ok(()) };
        if !peer.is_attached {
            // The child has changed its upstream, and this came after that.
            return Ok(());
        }
        let mut from = Reader::new(body);
        let (is_all, count) = from.u8().zip(from.u16()).ok_or(Reason::Malformed)?;
        let mut versions = match (is_all, peer.versions.take()) {
            (1, _) => BTreeMap::new(),
            (_, known) => known.ok_or(Reason::Unexpected)?,
        };
        for _ in 0..count {
            let read = (|| Some((from.text()?, Stamp::read(&mut from)?, from.u8()? == 1)))();
            let (name, stamp, is_good) = read.ok_or(Reason::Malformed)?;
            if !is_topic(name) {
                return Err(Reason::Malformed);
            }
            let have = is_good.then_some(stamp);
            // A version that was not sent whole is not answered yet: a child that repeats its list
            // is not sent it once more meanwhile.
            let is_on_its_way = peer.has_topic(name);
            self.topics.note_held(&mut versions, name, Held { have, is_on_its_way }, bounds);
        }
        from.end().ok_or(Reason::Malformed)?;
        peer.versions = Some(versions);
        self.offer(key);
        Ok(())
    }

    fn offer_all(&mut self) {
        for key in self.peers.keys() {
            self.offer(key);
        }
        if self.peers.iter().any(|(_, peer)| self.is_begun_old(peer)) {
            self.topics.may_have_old = true;
            self.wake_at(Time(0));
        }
    }

    /// Returns whether a version that is not the latest any more is being sent to a peer.
    fn is_begun_old(&self, peer: &Peer) -> bool {
        peer.begun_version().is_some_and(|(version, _)| {
            let latest = self.topics.map.get(&*version.topic);
            latest.is_none_or(|latest| latest.number != version.number)
        })
    }

    /// A version that a peer is being sent stays here until it is sent whole, even if there are
    /// later ones. All such versions may take as much room as the latest ones. Beyond that, the
    /// slowest peers are given up. They get the latest version when they join again.
    pub(super) fn give_up_slow_takers(&mut self, now: Time) {
        if !std::mem::take(&mut self.topics.may_have_old) {
            return;
        }
        let mut old: BTreeMap<(u64, usize), (usize, Vec<PeerKey>)> = BTreeMap::new();
        for (key, peer) in self.peers.iter().filter(|(_, peer)| self.is_begun_old(peer)) {
            if let Some((version, body)) = peer.begun_version() {
                let one = old.entry((version.number, Arc::as_ptr(body) as usize)).or_default();
                one.0 = body.len();
                one.1.push(key);
            }
        }
        let mut len: usize = old.values().map(|(len, _)| len).sum();
        for (body_len, keys) in old.into_values() {
            if len <= self.settings.topics_len_max {
                return;
            }
            len -= body_len;
            keys.into_iter().for_each(|key| self.close(key, Reason::InboxFull, now));
        }
    }

    /// Sends a child the versions that are later than its own: one version of a topic at a time, so
    /// a slow child gets the latest next, and not all in between.
    fn offer(&mut self, key: PeerKey) {
        let Some(peer) = self.peers.get_mut(key).filter(|peer| peer.is_open()) else { return };
        let (our_id, id) = (peer.our_id(), peer.id());
        let Some(mut versions) = peer.versions.take() else {
            // It goes through another node now, which sends it what it lacks.
            peer.take_back_all();
            self.account(key);
            return;
        };
        let compress = self.settings.compress;
        for (name, topic) in &mut self.topics.map {
            if !versions.contains_key(name) {
                versions.insert(name.clone(), Held::default());
            }
            let Some(held) = versions.get_mut(name) else { continue };
            // An older version that waits to be sent makes room for this one.
            if peer.take_back(name, topic.number) {
                held.is_on_its_way = false;
            }
            held.is_on_its_way |= peer.has_topic(name);
            if !topic.is_summed() {
                continue;
            }
            let is_unknown = topic.gone.is_some() && held.have.is_none();
            if held.is_on_its_way || held.have >= Some(topic.stamp) || is_unknown {
                continue;
            }
            let (body, tail, is_packed) = topic.push_for(name, held.have, compress);
            let mut head = Head::plain(Kind::Push, our_id, id);
            head.flags |= if is_packed { flags::COMPRESSED } else { 0 };
            let is_delta = topic.is_delta_from(held.have);
            let version = Version { topic: name.as_str().into(), number: topic.number };
            peer.push_version(&head, version, body, tail);
            held.is_on_its_way = true;
            self.counts.pushes_delta += u64::from(is_delta);
            self.counts.pushes_full += u64::from(!is_delta);
        }
        peer.versions = Some(versions);
        self.account(key);
        self.mark(key);
    }

    /// Handles a version that an upstream pushes.
    pub(super) fn on_push(
        &mut self,
        key: PeerKey,
        head: &Head,
        body: Vec<u8>,
        sum: Sum,
        now: Time,
    ) -> Result<(), Reason> {
        let origin = self.peers.get(key).map(|peer| peer.origin);
        if !matches!(origin, Some(Origin::Uplink(_))) {
            return Err(Reason::Unexpected);
        }
        let (body, sum) = match head.has(flags::COMPRESSED) {
            true => {
                (decompressed(&body, MESSAGE_LEN_MAX).ok_or(Reason::Malformed)?, Sum::default())
            }
            false => (body, sum),
        };
        let push = Push::read(body).ok_or(Reason::Malformed)?;
        let (name, stamp) = (push.topic.clone(), push.stamp);
        let (epoch, version, publisher) = (stamp.epoch, stamp.version, push.publisher);
        let taken = match self.topics.take(push, sum, self.bounds(), now) {
            Err(reason @ (Reason::TopicsFull | Reason::TooLarge)) => {
                // It is not to be sent again, and its publisher sees which nodes lack it.
                self.tell_stamp(key, &name, stamp, true, now);
                self.tell_publisher(publisher, &name, stamp, false, now);
                self.tell(Event::Unkept { topic: name, epoch, version, reason });
                return Ok(());
            }
            taken => taken?,
        };
        match taken {
            Taken::Gone => {
                self.tell_version(key, &name, true, now);
                self.tell(Event::Withdrawn { topic: name, epoch, version });
                self.offer_all();
                self.ask_for_refused(now);
            }
            Taken::New => {
                self.tell_version(key, &name, true, now);
                let body =
                    self.topics.map.get(&name).map(|topic| topic.body.clone()).unwrap_or_default();
                self.tell(Event::Push { topic: name, epoch, version, body });
                self.offer_all();
            }
            Taken::Known => self.tell_version(key, &name, true, now),
            Taken::WantsFull => self.tell_version(key, &name, false, now),
            Taken::Conflict => {
                self.tell_version(key, &name, true, now);
                self.tell(Event::PushConflict { topic: name, epoch, version });
            }
        }
        Ok(())
    }
}
