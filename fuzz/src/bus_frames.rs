//! A peer that was let in and says whatever it likes: frames of every kind with any body, any ids and
//! any flags, and bytes that are none. The node never panics, tells of each message once, comes to rest,
//! and a peer beside stays connected.

use crate::Choices;
use keyway_base::Time;
use keyway_bus::frame::{self, FRAME_BODY_MAX, Head, Kind, flags};
use keyway_bus::{Action, Event, Line, Node, NodeId, PeerKey, Settings, Stamp, Upstream};
use std::collections::BTreeMap;
use std::time::Duration;

const KINDS: [Kind; 14] = [
    Kind::Message,
    Kind::Ping,
    Kind::Pong,
    Kind::Credit,
    Kind::Goaway,
    Kind::Attach,
    Kind::Topology,
    Kind::Push,
    Kind::Have,
    Kind::Applied,
    Kind::Failure,
    Kind::Ack,
    Kind::Command,
    Kind::Result,
];

fn line(nonce: u8) -> Line {
    Line { binding: b"mem".to_vec(), nonce: [nonce; 32], ..Line::default() }
}

/// Two nodes, connected: the upstream and its child, each with the key of the other.
struct Pair {
    nodes: [Node; 2],
    keys: [PeerKey; 2],
}

impl Pair {
    fn new(now: Time) -> Self {
        let mut child = Settings::of(NodeId(2));
        let urls = vec!["mem://a".parse().expect("it is one")];
        child.upstreams = vec![Upstream { id: NodeId(1), urls }];
        let mut root = Settings::of(NodeId(1));
        root.assembly_len_max = 1 << 20;
        root.message_len_max = 1 << 20;
        let mut nodes = [Node::new(root, 3, now), Node::new(child, 5, now)];
        let Some(Action::Dial { dial, .. }) = nodes[1].poll_action() else {
            panic!("it does not dial")
        };
        let there = nodes[0].handle_accepted(&line(1), now).expect("there is room");
        let here = nodes[1].handle_connected(dial, &line(2), now).expect("it has dialled");
        let mut pair = Self { nodes, keys: [there, here] };
        for _ in 0..4 {
            pair.carry(1, now);
            pair.carry(0, now);
        }
        // To whom either passes on what is for node 3.
        pair.nodes.iter_mut().for_each(|node| join_third(node, now));
        pair
    }

    fn carry(&mut self, from: usize, now: Time) {
        let mut out = Vec::new();
        self.nodes[from].poll_output(self.keys[from], &mut out, 1 << 20, now);
        self.nodes[1 - from].handle_input(self.keys[1 - from], &out, now);
    }
}

/// Lets node 3 in below `node`, and forgets its end: what goes there stays in its queue or is given out.
fn join_third(node: &mut Node, now: Time) {
    let mut settings = Settings::of(NodeId(3));
    let urls = vec!["mem://b".parse().expect("it is one")];
    settings.upstreams = vec![Upstream { id: node.id(), urls }];
    let mut third = Node::new(settings, 7, now);
    let Some(Action::Dial { dial, .. }) = third.poll_action() else { panic!("it does not dial") };
    let key = node.handle_accepted(&line(3), now).expect("there is room");
    let there = third.handle_connected(dial, &line(4), now).expect("it has dialled");
    for _ in 0..4 {
        let mut out = Vec::new();
        third.poll_output(there, &mut out, 1 << 20, now);
        node.handle_input(key, &out, now);
        out.clear();
        node.poll_output(key, &mut out, 1 << 20, now);
        third.handle_input(there, &out, now);
    }
}

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut now = Time(1);
    // Which of the two is lied to.
    let at = choices.below(2);
    let mut pair = Pair::new(now);
    let _ = pair.nodes[0].publish("config", Stamp { epoch: 1, version: 1 }, vec![7; 100]);
    let mut seen = BTreeMap::new();
    let mut steps = 0;
    while !choices.is_over() && steps < 200 {
        let bytes = frame_of(&mut choices);
        let (key, node) = (pair.keys[at], &mut pair.nodes[at]);
        node.handle_input(key, &bytes, now);
        if choices.below(8) == 0 {
            now = now + Duration::from_millis(choices.below(2000) as u64);
        }
        drain(node, &mut seen, now);
        steps += 1;
    }
    for _ in 0..50 {
        let node = &mut pair.nodes[at];
        node.handle_timeout(now);
        drain(node, &mut seen, now);
    }
    assert!(pair.nodes[at].poll_deadline() > now, "it does not come to rest");
}

fn frame_of(choices: &mut Choices<'_>) -> Vec<u8> {
    if choices.below(64) == 63 {
        return choices.bytes(100).to_vec();
    }
    let ids = [1, 2, 3, 4, 0, u64::MAX];
    let kind = choices.pick(&KINDS);
    let mut flags = u16::from(choices.byte()) & flags::ALL;
    if !kind.may_fragment() || choices.below(3) > 0 {
        flags &= !flags::FRAGMENT;
    }
    let (src, dst) = (NodeId(choices.pick(&ids)), NodeId(choices.pick(&ids)));
    let (seq, ttl) = (u64::from(choices.byte()), choices.below(17) as u8);
    let head = Head { kind, flags, seq, src, dst, ttl };
    let path: Vec<u8> =
        (0..choices.below(4)).flat_map(|_| choices.pick(&ids).to_le_bytes()).collect();
    let mut body = choices.bytes(120).to_vec();
    if choices.below(16) == 0 {
        // Around the most that a frame may have, and anything below it.
        let most = FRAME_BODY_MAX - path.len();
        let len =
            if choices.below(2) == 0 { most - choices.below(160) } else { choices.below(most) };
        body.resize(len, 1);
    }
    let mut out = Vec::new();
    frame::append(&mut out, &head, &path, [&body, &[]]);
    out
}

fn drain(node: &mut Node, seen: &mut BTreeMap<NodeId, u64>, now: Time) {
    while let Some(event) = node.poll_event() {
        match event {
            Event::Message { from, seq, .. } => {
                let before = seen.insert(from, seq);
                assert!(before < Some(seq), "{from} {seq} behind {before:?}");
            }
            Event::Command { from, seq, args } => {
                let _ = node.reply(from, seq, 0, &args, now);
            }
            Event::Push { topic, epoch, version, .. } => {
                node.applied(&topic, Stamp { epoch, version }, true, now);
            }
            _ => {}
        }
    }
    while let Some(key) = node.poll_dirty() {
        let mut out = Vec::new();
        node.poll_output(key, &mut out, 1 << 20, now);
        assert!(out.len() < 4 << 20);
    }
    while node.poll_action().is_some() {}
}
