//! A registration on the bus with somebody who knows no token, as dialler and as acceptor: whatever is
//! said, and however often, nobody is let in and little is kept.

use crate::Choices;
use keyway_base::Time;
use keyway_bus::frame::{self, Head, Kind};
use keyway_bus::{Action, Event, Line, Node, NodeId, PeerKey, Settings, Upstream};

const KINDS: [Kind; 8] = [
    Kind::Hello,
    Kind::Challenge,
    Kind::Register,
    Kind::Welcome,
    Kind::Reject,
    Kind::Ping,
    Kind::Message,
    Kind::Attach,
];

fn settings(id: u64) -> Settings {
    let mut settings = Settings::of(NodeId(id));
    settings.tokens.add(b"a token that nobody else knows").expect("it is long enough");
    settings
}

fn line(binding: &[u8]) -> Line {
    Line { binding: binding.to_vec(), nonce: [7; 32], ..Line::default() }
}

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let now = Time(1);
    let is_dialler = choices.flip();
    let (mut node, key) = if is_dialler { dialler(now) } else { acceptor(now) };
    let mut said = 0;
    while !choices.is_over() && said < 64 {
        let bytes = frame_of(&mut choices);
        let cut = choices.below(bytes.len() + 1);
        node.handle_input(key, &bytes[..cut], now);
        node.handle_input(key, &bytes[cut..], now);
        said += 1;
        check(&mut node, now);
    }
    node.handle_timeout(Time(u64::MAX / 2));
    check(&mut node, now);
}

fn acceptor(now: Time) -> (Node, PeerKey) {
    let mut node = Node::new(settings(1), 5, now);
    let key = node.handle_accepted(&line(b"tcp"), now).expect("there is room");
    (node, key)
}

fn dialler(now: Time) -> (Node, PeerKey) {
    let mut settings = settings(2);
    let urls = vec!["mem://a".parse().expect("it is one")];
    settings.upstreams = vec![Upstream { id: NodeId::NONE, urls }];
    let mut node = Node::new(settings, 5, now);
    let Some(Action::Dial { dial, .. }) = node.poll_action() else { panic!("it does not dial") };
    let key = node.handle_connected(dial, &line(b"tcp"), now).expect("it has dialled");
    (node, key)
}

fn frame_of(choices: &mut Choices<'_>) -> Vec<u8> {
    if choices.below(8) == 0 {
        return choices.bytes(200).to_vec();
    }
    let ids = [0, 1, 2, 3, u64::MAX];
    let kind = choices.pick(&KINDS);
    let mut head = Head::plain(kind, NodeId(choices.pick(&ids)), NodeId(choices.pick(&ids)));
    head.seq = u64::from(choices.byte());
    let mut body = Vec::new();
    if kind == Kind::Hello && choices.below(4) > 0 {
        body.extend_from_slice(b"KWBUS\r\n\x01\x01\x01");
        body.push(choices.byte() & 1);
        body.extend_from_slice(&[choices.byte(); 44]);
    }
    if kind == Kind::Challenge && choices.below(4) > 0 {
        body.push(1);
        body.extend_from_slice(&[choices.byte(); 44]);
    }
    if matches!(kind, Kind::Register | Kind::Welcome) && choices.below(4) > 0 {
        // Incarnation, place, no labels, no addresses, one proof.
        body.extend_from_slice(&[choices.byte(); 32]);
        body.extend_from_slice(&[0, 0, 1]);
        body.extend_from_slice(&[choices.byte(); 32]);
    }
    body.extend_from_slice(choices.bytes(300));
    let mut out = Vec::new();
    frame::append(&mut out, &head, &[], [&body, &[]]);
    out
}

fn check(node: &mut Node, now: Time) {
    while let Some(event) = node.poll_event() {
        assert!(!matches!(event, Event::PeerUp { .. }), "let in: {event:?}");
    }
    while let Some(key) = node.poll_dirty() {
        let mut out = Vec::new();
        node.poll_output(key, &mut out, 1 << 20, now);
        assert!(out.len() < 4096, "{} bytes for a stranger", out.len());
    }
    while node.poll_action().is_some() {}
}
