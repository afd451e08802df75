//! All connections of a node: the tree, the ways, and what is sent and waited for.
//!
//! In: `handle_*` (a connection was made, bytes came, it is gone, time has passed) and the user's
//! requests (`send`, `command`, `publish`, `leave`). Out: [`Node::poll_action`],
//! [`Node::poll_dirty`] with [`Node::poll_output`], and [`Node::poll_event`]. Call all three after
//! every call in, until they return nothing. Only the node holds a connection's state, and the key
//! of a closed connection is a normal outcome.

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

/// Most round trips kept for a user that does not take them.
const ROUND_TRIPS_MAX: usize = 1024;

/// A node of the bus.
pub struct Node {
    settings: Settings,
    /// Its id. A guest has the id that its upstream gave it.
    id: NodeId,
    peers: Slab<Peer>,
    by_id: BTreeMap<NodeId, PeerKey>,
    dials: BTreeMap<DialKey, Dial>,
    next_dial: u64,
    uplinks: Uplinks,
    /// True if the node is no root although it has no upstream.
    is_adrift: bool,
    below: Below,
    /// True if the nodes below were told that no root is above.
    told_cut: bool,
    /// Nodes that have asked by an unused upstream: answers go back there.
    asked_by: Askers,
    /// Nodes whose way has changed, to be announced to the upstream.
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
    /// Bytes in the queues of all peers, and how many of them are word that senders wait for.
    queued_len: usize,
    words_len: usize,
    /// Memory left for messages in parts, in bytes.
    assembly_left: usize,
    events: Events,
    /// True if peers get no credit until the user has taken events.
    is_held: bool,
    actions: VecDeque<Action>,
    dirty: VecDeque<PeerKey>,
    leaving: Option<Time>,
    /// Connections that are closed once nothing is in flight on them.
    retiring: Vec<PeerKey>,
    is_gone: bool,
    /// Connections by the time of their next check.
    timers: BTreeSet<(Time, u64)>,
    next_timeout: Time,
    /// Earliest time of the next search for old state.
    upkeep_at: Time,
    random: u64,
    counts: Counts,
    /// Counts of connections that are gone.
    gone: Traffic,
    round_trips: VecDeque<Duration>,
}

/// Options of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// Longest wait for its acknowledgement. Then one [`Event::Acked`] or [`Event::Failed`] comes.
    /// `None`: neither comes.
    pub ack_within: Option<Duration>,
    /// True if it goes only to nodes below this one, or connected to it.
    pub no_upstream: bool,
}

/// Counts of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages and commands of its own.
    pub sent: u64,
    /// Messages for it.
    pub delivered: u64,
    /// Frames that it passed on.
    pub relayed: u64,
    /// Connections that the transport refused, as by TLS.
    pub turned_away: u64,
    /// Failures that it has sent to others.
    pub refused: u64,
    /// Failures of its own messages.
    pub failed: u64,
    /// Failures that were dropped, because there was no room to keep them.
    pub untold_failures: u64,
    /// Failures, and word of what was applied, from where they cannot come from.
    pub unproven: u64,
    /// Messages in parts that did not go on and were given up.
    pub stalled: u64,
    /// Connections of strangers that were not made.
    pub strangers_refused: u64,
    /// Ids below that two processes used at once.
    pub ids_twice: u64,
    /// Answers that were not waited for any more.
    pub late_answers: u64,
    /// Nodes below for which there was no room.
    pub nodes_over: u64,
    /// Times that the upstream changed.
    pub upstream_changes: u64,
    /// Pushes sent, whole.
    pub pushes_full: u64,
    /// Pushes sent as deltas.
    pub pushes_delta: u64,
}

/// The kind of a connection, for its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkKind {
    /// The upstream that is used.
    Upstream,
    /// The other upstream.
    Standby,
    /// A node or a guest that is below, or may be.
    Below,
    /// A direct connection, besides the tree.
    Sibling,
    /// Not registered.
    Stranger,
}

/// A connection, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// Its key.
    pub peer: PeerKey,
    /// The peer's id; [`NodeId::NONE`] before the registration.
    pub id: NodeId,
    /// Its counts.
    pub traffic: Traffic,
    /// Bytes that wait to be sent.
    pub queued_len: usize,
    /// True if messages may be sent to it.
    pub is_open: bool,
    /// Its kind.
    pub kind: LinkKind,
}

impl Node {
    /// Creates a node that begins at `now`. `random` is any number that differs between nodes: it
    /// spreads retries. The caller checks [`Settings::faults`].
    pub fn new(settings: Settings, random: u64, now: Time) -> Self {
        // It differs from the numbers by which retries are spread, which a dialled node may see.
        let first_stamp = tree::first_stamp(settings.incarnation, random.rotate_left(23));
        let mut node = Self {
            id: settings.id,
            peers: Slab::new(),
            by_id: BTreeMap::new(),
            dials: BTreeMap::new(),
            next_dial: 0,
            uplinks: Uplinks::new(settings.upstreams.len(), now),
            is_adrift: false,
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

    /// Returns its id.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Returns its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns its counts.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns all connections.
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

    /// Returns the counts of all connections, including those that are gone. Round trips are left
    /// out.
    pub fn traffic(&self) -> Traffic {
        self.peers.iter().fold(self.gone, |all, (_, peer)| all.with(&peer.traffic))
    }

    /// Returns the bytes of events that its user has not taken.
    pub fn inbox_len(&self) -> usize {
        self.events.len()
    }

    /// Returns the time from a ping to its answer, on any connection. The last 1024 that were not
    /// taken are kept.
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

    /// Returns the nodes below, each with its upstream.
    pub fn nodes_below(&self) -> impl Iterator<Item = (NodeId, NodeId)> {
        self.below.iter().map(|(id, known)| (id, known.parent))
    }

    /// Returns the nodes below whose label `name` has this value.
    pub fn nodes_with(&self, name: &str, value: &str) -> Vec<NodeId> {
        let has = |known: &state::Known<'_>| known.labels().get(name) == Some(value);
        self.below.iter().filter(|(_, known)| has(known)).map(|(id, _)| id).collect()
    }

    /// Handles an accepted connection. Returns `None` if there are too many, or too many events
    /// that the user has not taken; the connection is then to be closed.
    pub fn handle_accepted(&mut self, line: &Line, now: Time) -> Option<PeerKey> {
        // Each connection may send a window, so new connections wait until the user takes the
        // events. Strangers leave room for accepted peers.
        if self.leaving.is_some() || self.is_overfull() || !self.make_place(now) {
            return None;
        }
        let guest_id = NodeId::guest(self.id, self.draw());
        let peer = Peer::accepted(&self.settings, self.id, line, guest_id, now);
        let key = self.insert(peer);
        self.note_stranger(key);
        Some(key)
    }

    /// Handles the end of a connection. Its transport may give the reason.
    pub fn handle_closed(&mut self, peer: PeerKey, why: Option<Reason>, now: Time) {
        self.drop_peer(peer, why.unwrap_or(Reason::Closed), now);
        self.settle(now);
    }

    /// Returns the next order about connections.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns a connection with output. Each is returned once until it is polled.
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

    /// Appends output of a connection, until `out` is `len_max` long or one frame longer. Returns
    /// whether there is more. The caller should not be more than 128 KiB ahead of the system: a
    /// ping waits behind no more than that.
    pub fn poll_output(
        &mut self,
        key: PeerKey,
        out: &mut Vec<u8>,
        len_max: usize,
        now: Time,
    ) -> bool {
        // Data stops first. Frames that keep the tree together stop only if the user takes nothing
        // at all.
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

    /// Removes a connection: its ways are gone, and its output goes elsewhere or back.
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
            // A guest has no id until it is accepted again.
            self.id = self.settings.id;
        }
    }

    /// Does the work at the end of every call: announces changes to the upstream, and sends kept
    /// failures.
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

    /// Returns the next random number, for jitter and ids of guests, never for secrets.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}
