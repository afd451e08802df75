//! All connections of a node: the tree, the ways, what is sent, what is waited for.
//!
//! In: `handle_*` (a connection is there, bytes came, it is gone, time has passed) and what the user asks
//! (`send`, `command`, `publish`, `leave`). Out: [`Node::poll_action`], [`Node::poll_dirty`] with
//! [`Node::poll_output`], [`Node::poll_event`]; all three until there is nothing, after every call in.
//! Nothing but the node holds a connection's state, and a key of one that is closed is a normal outcome.

mod answers;
mod bounds;
mod builtin;
mod came;
mod contest;
mod dials;
mod events;
mod input;
mod items;
mod leave;
mod parked;
mod pushes;
mod routing;
mod state;
mod timers;
mod tree;
mod trust;
mod uplinks;

use crate::event::{Action, DialKey, Event};
use crate::fault::Reason;
use crate::id::NodeId;
use crate::peer::{Line, Origin, Peer, PeerKey, Relation, Traffic};
use crate::push::Topics;
use crate::settings::Settings;
use keyway_base::{Slab, Time};
use state::{
    Askers, Below, Contest, Dial, Early, Events, Parked, Seen, Strangers, Uplinks, Waiting,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Round trips kept at most for who does not take them.
const ROUND_TRIPS_MAX: usize = 1024;

/// A node of the bus.
pub struct Node {
    settings: Settings,
    /// Who this is: of a guest, what its upstream says.
    id: NodeId,
    peers: Slab<Peer>,
    by_id: BTreeMap<NodeId, PeerKey>,
    dials: BTreeMap<DialKey, Dial>,
    next_dial: u64,
    uplinks: Uplinks,
    below: Below,
    /// Whether those below were told that no root is above.
    told_cut: bool,
    /// Who has asked by an upstream that is not used: answers go back there.
    asked_by: Askers,
    /// Nodes whose way has changed, to be told to the upstream.
    untold: BTreeSet<NodeId>,
    first_stamp: u64,
    attach_stamp: u64,
    next_seq: u64,
    seen: Seen,
    waiting: Waiting,
    topics: Topics,
    /// Failures whose sender cannot be reached, and whether that may have changed.
    parked: Parked,
    may_unpark: bool,
    early: Early,
    strangers: Strangers,
    contests: Vec<Contest>,
    /// Bytes in the queues of all peers, and what of that is word that senders wait for.
    queued_len: usize,
    words_len: usize,
    /// What is left for messages in parts.
    assembly_left: usize,
    events: Events,
    /// Whether peers get no credit until the user has taken events.
    is_held: bool,
    actions: VecDeque<Action>,
    dirty: VecDeque<PeerKey>,
    leaving: Option<Time>,
    /// Connections that are closed once nothing is under way on them.
    retiring: Vec<PeerKey>,
    is_gone: bool,
    /// Connections by when they are to be looked at.
    timers: BTreeSet<(Time, u64)>,
    next_timeout: Time,
    /// When what is old is looked for next, at the earliest.
    upkeep_at: Time,
    random: u64,
    counts: Counts,
    /// What was counted on connections that are gone.
    gone: Traffic,
    round_trips: VecDeque<Duration>,
}

/// How a message is to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// Wait so long for word that it has arrived; then [`Event::Acked`] or [`Event::Failed`] comes, once.
    pub ack_within: Option<Duration>,
    /// Only to nodes below this one, or connected to it.
    pub no_upstream: bool,
}

/// What a node has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages and commands of its own.
    pub sent: u64,
    /// Messages for it.
    pub delivered: u64,
    /// Frames that it passed on.
    pub relayed: u64,
    /// Who connected and was turned away by the transport, as by TLS.
    pub turned_away: u64,
    /// Failures that it has sent to others.
    pub refused: u64,
    /// Failures of its own messages.
    pub failed: u64,
    /// Failures that nobody could be told, for there was no room to keep them.
    pub untold_failures: u64,
    /// Failures, and word of what was applied, from where they cannot be from.
    pub unproven: u64,
    /// Messages in parts that stood still and were given up.
    pub stalled: u64,
    /// Connections of strangers that did not come to be.
    pub strangers_refused: u64,
    /// Ids below that two processes used at once.
    pub ids_twice: u64,
    /// Answers that nobody waited for any more.
    pub late_answers: u64,
    /// Nodes below that there was no room for.
    pub nodes_over: u64,
    /// Times that the upstream changed.
    pub upstream_changes: u64,
    /// Pushes sent, whole.
    pub pushes_full: u64,
    /// Pushes sent as what changed.
    pub pushes_delta: u64,
}

/// What a connection is to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkKind {
    /// The upstream that is used.
    Upstream,
    /// The other one.
    Standby,
    /// Of a node or a guest that is below, or may be.
    Below,
    /// Direct, beside the tree.
    Sibling,
    /// Not registered.
    Stranger,
}

/// A connection, for who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// Its key.
    pub peer: PeerKey,
    /// Who is there; nobody before the registration.
    pub id: NodeId,
    /// What was counted.
    pub traffic: Traffic,
    /// Bytes that wait to be sent.
    pub queued_len: usize,
    /// Whether messages may be sent to it.
    pub is_open: bool,
    /// What it is to this node.
    pub kind: LinkKind,
}

impl Node {
    /// A node that begins at `now`. `random` is any number, other ones for other nodes: retries are
    /// spread by it. Settings with [`Settings::faults`] are for who wrote them, not for here.
    pub fn new(settings: Settings, random: u64, now: Time) -> Self {
        // Another number than those that retries are spread by, which who is dialled may see.
        let first_stamp = tree::first_stamp(settings.incarnation, random.rotate_left(23));
        let mut node = Self {
            id: settings.id,
            peers: Slab::new(),
            by_id: BTreeMap::new(),
            dials: BTreeMap::new(),
            next_dial: 0,
            uplinks: Uplinks::new(settings.upstreams.len(), now),
            below: Below::default(),
            told_cut: false,
            asked_by: Askers::default(),
            untold: BTreeSet::new(),
            first_stamp,
            attach_stamp: first_stamp,
            next_seq: settings.incarnation,
            seen: Seen::default(),
            waiting: Waiting::default(),
            topics: Topics::default(),
            parked: Parked::default(),
            may_unpark: false,
            early: Early::default(),
            strangers: Strangers::default(),
            contests: Vec::new(),
            queued_len: 0,
            words_len: 0,
            assembly_left: settings.assembly_len_max,
            events: Events::default(),
            is_held: false,
            actions: VecDeque::new(),
            dirty: VecDeque::new(),
            leaving: None,
            retiring: Vec::new(),
            is_gone: false,
            timers: BTreeSet::new(),
            next_timeout: now,
            upkeep_at: now,
            random: random | 1,
            counts: Counts::default(),
            gone: Traffic::default(),
            round_trips: VecDeque::new(),
            settings,
        };
        node.handle_timeout(now);
        node
    }

    /// Who this is.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// What it was told at its start.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What it has counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// All connections.
    pub fn peers(&self) -> impl Iterator<Item = PeerView> {
        self.peers.iter().map(|(peer, at)| PeerView {
            peer,
            id: at.id(),
            traffic: at.traffic,
            queued_len: at.queued_len(),
            is_open: at.is_open(),
            kind: self.kind_of(peer, at),
        })
    }

    fn kind_of(&self, key: PeerKey, peer: &Peer) -> LinkKind {
        match (peer.origin, peer.relation) {
            _ if peer.identity.is_none() => LinkKind::Stranger,
            (Origin::Uplink(_), _) if self.is_unused_uplink(key) => LinkKind::Standby,
            (Origin::Uplink(_), _) => LinkKind::Upstream,
            (_, Relation::Sibling) => LinkKind::Sibling,
            _ => LinkKind::Below,
        }
    }

    /// What was counted on all connections, those that are gone among them. Round trips are of none.
    pub fn traffic(&self) -> Traffic {
        self.peers.iter().fold(self.gone, |all, (_, peer)| all.with(&peer.traffic))
    }

    /// Bytes of events that its user has not taken.
    pub fn inbox_len(&self) -> usize {
        self.events.len()
    }

    /// The time from a ping to its answer, on any connection: the last 1024 that were not taken.
    pub fn poll_round_trip(&mut self) -> Option<Duration> {
        self.round_trips.pop_front()
    }

    fn note_round_trip(&mut self, key: PeerKey) {
        let Some(rtt) = self.peers.get_mut(key).and_then(|peer| peer.round_trip.take()) else {
            return;
        };
        if self.round_trips.len() >= ROUND_TRIPS_MAX {
            self.round_trips.pop_front();
        }
        self.round_trips.push_back(rtt);
    }

    /// The nodes below, each with its upstream.
    pub fn nodes_below(&self) -> impl Iterator<Item = (NodeId, NodeId)> {
        self.below.iter().map(|(id, known)| (id, known.parent))
    }

    /// The nodes below that have a label of this value.
    pub fn nodes_with(&self, name: &str, value: &str) -> Vec<NodeId> {
        let has = |known: &state::Known<'_>| known.labels().get(name) == Some(value);
        self.below.iter().filter(|(_, known)| has(known)).map(|(id, _)| id).collect()
    }

    /// Somebody has connected; `None` if there are too many, or too much that the user has not taken, and the
    /// connection is to be closed.
    pub fn handle_accepted(&mut self, line: &Line, now: Time) -> Option<PeerKey> {
        // Each connection may send a window, so who comes again and again waits until the user takes what came.
        // Strangers leave room for those who are let in.
        if self.leaving.is_some() || self.is_overfull() || !self.make_place(now) {
            return None;
        }
        let guest_id = NodeId::guest(self.id, self.draw());
        let peer = Peer::accepted(&self.settings, self.id, line, guest_id, now);
        let key = self.insert(peer);
        self.note_stranger(key);
        Some(key)
    }

    /// A connection has ended by itself, or by its transport, which says why.
    pub fn handle_closed(&mut self, peer: PeerKey, why: Option<Reason>, now: Time) {
        self.drop_peer(peer, why.unwrap_or(Reason::Closed), now);
        self.settle(now);
    }

    /// What is to be done with connections.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// A connection that has something to say. Each is told once until it is polled.
    pub fn poll_dirty(&mut self) -> Option<PeerKey> {
        while let Some(key) = self.dirty.pop_front() {
            if let Some(peer) = self.peers.get_mut(key) {
                peer.is_listed = false;
                if peer.has_output() {
                    return Some(key);
                }
            }
        }
        None
    }

    /// Appends what is to be sent on a connection, until `out` is `len_max` long or one frame longer;
    /// whether there is more. Who sends should not be more than 128 KiB ahead of the system: a ping waits
    /// behind no more than that.
    pub fn poll_output(
        &mut self,
        key: PeerKey,
        out: &mut Vec<u8>,
        len_max: usize,
        now: Time,
    ) -> bool {
        // Data first: what keeps the tree together is held only where the user takes nothing at all.
        let is_all = self.is_overfull();
        let Some(peer) = self.peers.get_mut(key) else { return false };
        let held = [self.is_held && is_all, self.is_held && is_all, self.is_held];
        peer.poll_output(out, len_max, held, self.settings.rest, now);
        let is_retiring = peer.retiring.is_some();
        self.account(key);
        if is_retiring {
            self.wake_at(now);
        }
        if !self.untold.is_empty() && self.uplinks.active_peer() == Some(key) {
            self.tell_ways(now);
        }
        self.schedule(key);
        self.peers.get(key).is_some_and(Peer::has_output)
    }

    fn tell_all_credit(&mut self) {
        for key in self.peers.keys() {
            if let Some(peer) = self.peers.get_mut(key) {
                peer.tell_credit();
            }
            self.mark(key);
        }
    }

    fn insert(&mut self, peer: Peer) -> PeerKey {
        let key = self.peers.insert(peer);
        self.schedule(key);
        self.mark(key);
        key
    }

    /// Lists a connection that has output.
    fn mark(&mut self, key: PeerKey) {
        if let Some(peer) = self.peers.get_mut(key)
            && !peer.is_listed
            && peer.has_output()
        {
            peer.is_listed = true;
            self.dirty.push_back(key);
        }
    }

    /// Ends a connection from this side.
    fn close(&mut self, key: PeerKey, reason: Reason, now: Time) {
        let Some(peer) = self.peers.get(key) else { return };
        let last_words = peer.last_words(reason);
        self.actions.push_back(Action::Close { peer: key, last_words });
        self.drop_peer(key, reason, now);
    }

    /// Forgets a connection: its ways are gone, what it had to send goes elsewhere or back.
    fn drop_peer(&mut self, key: PeerKey, reason: Reason, now: Time) {
        let Some(mut peer) = self.peers.remove(key) else { return };
        self.timers.remove(&(peer.timer, key.to_bits()));
        self.assembly_left += peer.assembly_len();
        self.queued_len -= peer.counted;
        self.words_len -= peer.counted_words;
        self.gone = self.gone.with(&peer.traffic);
        self.asked_by.forget_all(key);
        let id = peer.id();
        let reason = peer.farewell.filter(|_| reason == Reason::Closed).unwrap_or(reason);
        if self.by_id.get(&id) == Some(&key) {
            self.by_id.remove(&id);
        }
        if id.is_none() {
            return self.on_stranger_lost(peer, reason, now);
        }
        self.tell(Event::PeerDown { id, reason });
        self.forget_ways(key);
        if let Origin::Uplink(at) = peer.origin {
            let at = self.uplinks.on_lost(at, now, reason, &self.settings, self.random);
            self.draw();
            self.wake_at(at);
        }
        self.choose_upstream(now);
        let remains = peer.take_remains();
        self.route_remains(remains, now);
        if matches!(peer.origin, Origin::Uplink(_)) {
            // Who was a guest there is nobody until it is let in again.
            self.id = self.settings.id;
        }
    }

    /// What is done once at the end of every call: the upstream hears what changed, failures that were
    /// kept go on their way.
    fn settle(&mut self, now: Time) {
        self.dial_uplinks(now);
        self.choose_upstream(now);
        if let Some(at) = self.uplinks_deadline() {
            self.wake_at(at);
        }
        self.tell_cut(now);
        self.tell_ways(now);
        self.unpark(now);
        if !self.contests.is_empty() {
            self.decide_contests(now);
        }
        if self.needs_upkeep() {
            self.wake_at(self.upkeep_at);
        }
        if self.topics.has_chores() {
            self.wake_at(now);
        }
        if self.leaving.is_some() || !self.retiring.is_empty() {
            self.check_leave(now);
        }
    }

    /// The next number by chance: for jitter and ids of guests, never for secrets.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}
