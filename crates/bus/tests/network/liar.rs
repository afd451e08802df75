//! Peers that were accepted and then send what they should not.

use crate::world::{id, settings};
use keyway_base::Time;
use keyway_bus::frame::{self, FRAGMENT_LEN, FRAME_BODY_MAX, Head, Kind, Parsed, flags};
use keyway_bus::{Action, Event, Line, Node, NodeId, PeerKey, Reason, Settings, Stamp};
use std::time::Duration;

pub fn line(nonce: u8) -> Line {
    Line { binding: b"mem".to_vec(), vouch: None, nonce: [nonce; 32], ..Line::default() }
}

/// A frame that a peer received.
pub struct Told {
    pub head: Head,
    pub body: Vec<u8>,
}

/// A connection to the node under test, with a node at its end that has registered and then sends
/// nothing.
pub struct End {
    pub other: Node,
    pub there: PeerKey,
    pub here: PeerKey,
}

/// A node under test and its peers.
pub struct Lab {
    pub node: Node,
    pub ends: Vec<End>,
    pub now: Time,
}

impl Lab {
    pub fn new(settings: Settings) -> Self {
        let now = Time(1_000_000_000);
        Self { node: Node::new(settings, 3, now), ends: Vec::new(), now }
    }

    pub fn of(index: usize) -> Self {
        Self::new(settings(index, &[]))
    }

    /// Adds a node that dials the one under test. Returns its number here.
    pub fn join(&mut self, settings: Settings) -> usize {
        let mut other = Node::new(settings, 5, self.now);
        let Some(Action::Dial { dial, .. }) = other.poll_action() else { panic!("no dial") };
        let here = self.node.handle_accepted(&line(1), self.now).unwrap();
        let there = other.handle_connected(dial, &line(2), self.now).unwrap();
        self.register(End { other, there, here })
    }

    /// Adds a node that has dialled the one under test, which knows it as `here` and has received
    /// nothing of it.
    pub fn resume(&mut self, settings: Settings, here: PeerKey) -> usize {
        let mut other = Node::new(settings, 5, self.now);
        let Some(Action::Dial { dial, .. }) = other.poll_action() else { panic!("no dial") };
        let there = other.handle_connected(dial, &line(2), self.now).unwrap();
        self.register(End { other, there, here })
    }

    /// Adds a node that the one under test dials.
    pub fn serve(&mut self, settings: Settings) -> usize {
        let Some(Action::Dial { dial, .. }) = self.node.poll_action() else { panic!("no dial") };
        let mut other = Node::new(settings, 5, self.now);
        let there = other.handle_accepted(&line(1), self.now).unwrap();
        let here = self.node.handle_connected(dial, &line(2), self.now).unwrap();
        self.register(End { other, there, here })
    }

    fn register(&mut self, mut end: End) -> usize {
        for _ in 0..4 {
            let mut out = Vec::new();
            end.other.poll_output(end.there, &mut out, 1 << 20, self.now);
            self.node.handle_input(end.here, &out, self.now);
            out.clear();
            self.node.poll_output(end.here, &mut out, 1 << 20, self.now);
            end.other.handle_input(end.there, &out, self.now);
        }
        self.ends.push(end);
        self.ends.len() - 1
    }

    pub fn say(&mut self, at: usize, head: &Head, body: &[u8]) {
        let mut out = Vec::new();
        frame::append(&mut out, head, &[], [body, &[]]);
        self.node.handle_input(self.ends[at].here, &out, self.now);
    }

    /// Returns the frames that the peer received, without pings and credit.
    pub fn told(&mut self, at: usize) -> Vec<Told> {
        let mut out = Vec::new();
        while self.node.poll_output(self.ends[at].here, &mut out, 1 << 20, self.now) {}
        let (mut rest, mut told) = (&out[..], Vec::new());
        while let Ok(Parsed::Frame(frame)) = frame::parse(rest, FRAME_BODY_MAX) {
            if !frame.head.kind.is_urgent() {
                told.push(Told { head: frame.head, body: frame.body.to_vec() });
            }
            rest = &rest[frame.len..];
        }
        told
    }

    pub fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.node.poll_event()).collect()
    }

    pub fn is_there(&self, at: usize) -> bool {
        self.node.peers().any(|peer| peer.peer == self.ends[at].here)
    }
}

pub fn message(src: NodeId, dst: NodeId, seq: u64) -> Head {
    Head { kind: Kind::Message, flags: 0, seq, src, dst, ttl: 16 }
}

#[test]
fn a_frame_that_leaves_no_room_for_a_path_ends_its_connection_and_nothing_else() {
    for len in [FRAGMENT_LEN, FRAGMENT_LEN + 1, FRAME_BODY_MAX] {
        let mut lab = Lab::of(0);
        let (from, to) = (lab.join(settings(1, &[0])), lab.join(settings(2, &[0])));
        lab.told(to);
        lab.say(from, &message(id(1), id(2), 1), &vec![7; len]);
        let told = lab.told(to);
        if len == FRAGMENT_LEN {
            assert_eq!((told[0].head.kind, told[0].body.len()), (Kind::Message, len));
            continue;
        }
        assert!(told.is_empty() && !lab.is_there(from) && lab.is_there(to));
        let down = Event::PeerDown { id: id(1), reason: Reason::NoFrame };
        assert!(lab.events().contains(&down));
    }
}

#[test]
fn an_upstream_that_says_farewell_and_stays_is_dialled_again_and_costs_no_time() {
    let mut one = settings(2, &[0, 1]);
    one.silent_after = 100;
    one.heartbeat = Duration::from_secs(10);
    let mut lab = Lab::new(one);
    let primary = lab.serve(settings(0, &[]));
    let standby = lab.serve(settings(1, &[]));
    lab.now = lab.now + Duration::from_secs(6);
    lab.node.handle_timeout(lab.now);
    assert_eq!(lab.node.upstream(), Some(id(0)));
    let mut farewell = (Reason::Leaving as u16).to_le_bytes().to_vec();
    farewell.push(0);
    lab.say(primary, &Head::plain(Kind::Goaway, id(0), id(2)), &farewell);
    assert_eq!(lab.node.upstream(), Some(id(1)));
    lab.node.handle_timeout(lab.now);
    assert!(lab.node.poll_deadline() > lab.now, "it does not come to rest");
    lab.now = lab.now + Duration::from_secs(3);
    lab.node.handle_timeout(lab.now);
    assert!(!lab.is_there(primary) && lab.is_there(standby));
    lab.now = lab.now + Duration::from_secs(3);
    lab.node.handle_timeout(lab.now);
    let actions: Vec<Action> = std::iter::from_fn(|| lab.node.poll_action()).collect();
    assert!(matches!(actions.last(), Some(Action::Dial { .. })), "{actions:?}");
}

/// Returns a stranger's settings: node `index` below the node under test, started after every
/// other.
pub fn later(index: usize, upstream: usize) -> Settings {
    let mut one = settings(index, &[upstream]);
    one.incarnation = 9 << 20;
    one
}

#[test]
fn who_comes_with_the_id_of_an_upstream_does_not_take_its_place() {
    let mut lab = Lab::new(settings(1, &[0]));
    let first = lab.join(later(0, 1));
    assert!(lab.events().contains(&Event::Refused {
        id: id(0),
        from: None,
        reason: Reason::IdRefused
    }));
    let upstream = lab.serve(settings(0, &[]));
    let second = lab.join(later(0, 1));
    assert!(!lab.is_there(first) && !lab.is_there(second) && lab.is_there(upstream));
    assert_eq!(lab.node.upstream(), Some(id(0)));
}

#[test]
fn an_upstream_without_a_name_keeps_its_place_and_takes_it_from_who_came_before() {
    let mut one = settings(1, &[0]);
    one.upstreams[0].id = NodeId::NONE;
    let mut lab = Lab::new(one);
    let first = lab.join(later(0, 1));
    assert!(lab.is_there(first));
    let upstream = lab.serve(settings(0, &[]));
    let second = lab.join(later(0, 1));
    assert!(!lab.is_there(first) && !lab.is_there(second) && lab.is_there(upstream));
}

#[test]
fn nobody_was_started_after_all_time() {
    let mut lab = Lab::of(0);
    let mut last = settings(1, &[0]);
    last.incarnation = u64::MAX - 100;
    let at = lab.join(last);
    assert!(!lab.is_there(at));
    let at = lab.join(settings(1, &[0]));
    assert!(lab.is_there(at));
}

/// Returns the entry of an announcement: a node that was started at `stamp`, and attached then.
pub fn entry(node: NodeId, parent: NodeId, stamp: u64) -> Vec<u8> {
    let mut body = vec![1, 0, 1];
    for number in [node.0, stamp, parent.0, 1 << 20] {
        body.extend(number.to_le_bytes());
    }
    // The entry has host and process, no labels, and no addresses.
    body.extend([0; 24 + 2]);
    body
}

pub fn announce(lab: &mut Lab, at: usize, from: NodeId, body: &[u8]) {
    let to = lab.node.id();
    lab.say(at, &Head::plain(Kind::Topology, from, to), body);
}

#[test]
fn a_child_speaks_for_itself_and_those_below_it_alone() {
    let mut lab = Lab::of(0);
    let (liar, victim) = (lab.join(settings(1, &[0])), lab.join(settings(2, &[0])));
    lab.told(victim);
    lab.events();
    for src in [id(0), id(2), id(7)] {
        lab.say(liar, &message(src, id(0), u64::MAX), b"forged");
        lab.say(liar, &message(src, id(2), u64::MAX), b"forged");
    }
    assert_eq!(lab.events(), []);
    assert_eq!(lab.told(victim).len(), 0);
    let told: Vec<Kind> = lab.told(liar).iter().map(|told| told.head.kind).collect();
    assert_eq!(told, [Kind::Failure; 6], "it is told, and nobody else");
    announce(&mut lab, liar, id(1), &entry(id(7), id(1), 1 << 20));
    lab.say(liar, &message(id(7), id(0), 1), b"from below");
    lab.say(victim, &message(id(2), id(0), 1), b"real");
    let from = |event: &Event| match event {
        Event::Message { from, .. } => Some(*from),
        _ => None,
    };
    let heard: Vec<NodeId> = lab.events().iter().filter_map(from).collect();
    assert_eq!(heard, [id(7), id(2)]);
}

#[test]
fn an_upstream_does_not_speak_for_who_is_below() {
    let mut lab = Lab::new(settings(1, &[0]));
    let upstream = lab.serve(settings(0, &[]));
    lab.join(settings(2, &[1]));
    lab.events();
    for src in [id(1), id(2)] {
        lab.say(upstream, &message(src, id(1), u64::MAX), b"forged");
    }
    assert_eq!(lab.events(), []);
    lab.say(upstream, &message(id(7), id(1), 1), b"from elsewhere");
    assert_eq!(lab.events().len(), 1);
}

#[test]
fn announcements_are_believed_as_far_as_they_can_be_true() {
    let mut one = settings(1, &[0]);
    one.accept = vec!["z1.proxy".parse().unwrap()];
    let mut lab = Lab::new(one);
    lab.serve(settings(0, &[]));
    let (liar, owner) = (lab.join(settings(2, &[1])), lab.join(settings(3, &[1])));
    // A node that is announced as attached after all time gives way to a later start.
    announce(&mut lab, liar, id(2), &entry(id(7), id(2), u64::MAX));
    let mut late = entry(id(7), id(3), 2 << 20);
    late[27..35].copy_from_slice(&(2u64 << 20).to_le_bytes());
    announce(&mut lab, owner, id(3), &late);
    assert!(lab.node.nodes_below().any(|one| one == (id(7), id(3))));
    // A node that would not be accepted here is not below either.
    let other: NodeId = "z1.cache.1.1".parse().unwrap();
    announce(&mut lab, liar, id(2), &entry(other, id(2), 1 << 20));
    assert!(lab.is_there(liar) && lab.node.nodes_below().all(|(id, _)| id != other));
    // An upstream is not below.
    announce(&mut lab, liar, id(2), &entry(id(0), id(2), 1 << 20));
    assert!(lab.node.nodes_below().all(|(node, _)| node != id(0)));
    assert!(lab.events().contains(&Event::Refused {
        id: id(0),
        from: None,
        reason: Reason::IdTwice
    }));
}

#[test]
fn a_guest_announces_nobody() {
    let mut lab = Lab::of(0);
    let mut guest = settings(1, &[0]);
    guest.id = NodeId::NONE;
    let at = lab.join(guest);
    let own = lab.ends[at].other.id();
    assert!(own.is_guest() && lab.is_there(at));
    announce(&mut lab, at, own, &entry(id(7), own, 1 << 20));
    assert!(!lab.is_there(at) && lab.node.nodes_below().count() == 0);
}

#[test]
fn word_of_a_version_that_there_is_not_is_ignored() {
    let mut lab = Lab::of(0);
    let at = lab.join(settings(1, &[0]));
    lab.node.publish("pools", Stamp { epoch: 1, version: 1 }, vec![1]).unwrap();
    lab.events();
    let word = |lab: &mut Lab, version: u64| {
        let mut body = b"\x05pools".to_vec();
        body.extend([1u64, version].iter().flat_map(|number| number.to_le_bytes()));
        body.push(1);
        let head = Head { kind: Kind::Applied, ..message(id(1), id(0), 0) };
        lab.say(at, &head, &body);
        lab.events().len()
    };
    assert_eq!((word(&mut lab, 9), lab.node.laggards("pools").len()), (0, 1));
    assert_eq!((word(&mut lab, 1), lab.node.laggards("pools").len()), (1, 0));
}

#[test]
fn one_that_begins_messages_without_end_takes_no_more_than_its_share() {
    let mut lab = Lab::of(0);
    let (liar, other) = (lab.join(settings(1, &[0])), lab.join(settings(2, &[0])));
    let first = flags::FRAGMENT | flags::FIRST;
    let begin = [&(64u32 << 20).to_le_bytes()[..], &[7; 100]].concat();
    for kind in [Kind::Message, Kind::Push, Kind::Result] {
        lab.say(liar, &Head { kind, flags: first, ..message(id(1), id(0), 5) }, &begin);
    }
    let begin = [&(64u32 << 20).to_le_bytes()[..], &[7; 100]].concat();
    lab.say(other, &Head { flags: first, ..message(id(2), id(0), 5) }, &begin);
    assert!(
        lab.is_there(other) && lab.told(other).iter().all(|told| told.head.kind != Kind::Failure)
    );
    assert!(!lab.is_there(liar), "a push that there is no memory for ends the connection");
}
