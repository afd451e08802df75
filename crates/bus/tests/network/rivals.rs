//! Peers that leave others nothing, claim to be others, or are at odds about who is who: what one of them does
//! costs nobody else a place, a word or an upstream.

use crate::hostile::failure;
use crate::liar::{Lab, announce, entry, message};
use crate::world::{id, settings};
use keyway_bus::frame::{Head, Kind, flags};
use keyway_bus::{Event, NodeId, Reason, Settings, Stamp};

/// Node `index` with a bound of 1 MiB for all queues.
fn narrow(index: usize, upstreams: &[usize]) -> Settings {
    let mut one = settings(index, upstreams);
    one.message_len_max = 1 << 20;
    one.queues_len_max = 1 << 20;
    one
}

#[test]
fn who_takes_no_word_leaves_others_room_for_theirs() {
    let mut lab = Lab::new(narrow(0, &[]));
    let (liar, honest) = (lab.join(settings(1, &[0])), lab.join(settings(2, &[0])));
    lab.told(honest);
    // Nobody is there to get these, and these are taken; of neither the liar takes word.
    for (first, dst, flags) in [(1, id(99), 0), (20_001, id(0), flags::ACK)] {
        for seq in first..first + 20_000 {
            lab.say(liar, &Head { flags, ..message(id(1), dst, seq) }, b"x");
            lab.told(liar);
        }
    }
    lab.say(honest, &message(id(2), id(99), 1), b"x");
    lab.say(honest, &Head { flags: flags::ACK, ..message(id(2), id(0), 2) }, b"x");
    let told: Vec<Kind> = lab.told(honest).iter().map(|told| told.head.kind).collect();
    assert_eq!(told, [Kind::Failure, Kind::Ack]);
}

/// Has `child`, node 2, say what must go up, until nothing of it does any more.
fn flood(lab: &mut Lab, child: usize) {
    for seq in 0..20_000 {
        let (head, body) = failure(id(2), id(50), seq, id(2));
        lab.say(child, &head, &body);
        let mut word = b"\x05pools".to_vec();
        word.extend([1u64, 1].iter().flat_map(|number| number.to_le_bytes()));
        word.push(1);
        lab.say(child, &Head { kind: Kind::Applied, ..message(id(2), id(50), 0) }, &word);
        lab.told(child);
    }
}

#[test]
fn an_upstream_that_is_slow_is_not_lost_for_what_others_say() {
    for queue_len_max in [64 << 10, 80 << 20] {
        let mut one = narrow(1, &[0]);
        one.queue_len_max = queue_len_max;
        let mut lab = Lab::new(one);
        let upstream = lab.serve(settings(0, &[]));
        let child = lab.join(settings(2, &[1]));
        flood(&mut lab, child);
        // Who comes is announced before it speaks, and what is pushed is answered.
        let late = lab.join(settings(3, &[1]));
        lab.say(late, &message(id(3), id(50), 1), b"hello");
        let root = &mut lab.ends[upstream].other;
        root.publish("pools", Stamp { epoch: 1, version: 1 }, vec![1; 100]).unwrap();
        lab.converse(upstream);
        assert!(lab.is_there(upstream), "with queues of {queue_len_max}");
        let root = &lab.ends[upstream].other;
        assert!(root.nodes_below().any(|(node, _)| node == id(3)));
        assert_eq!(lab.node.topic("pools").map(|(stamp, _)| stamp.version), Some(1));
    }
}

/// The entry of a process of that id that was started at `incarnation`.
fn entry_of(node: NodeId, parent: NodeId, incarnation: u64) -> Vec<u8> {
    let mut body = entry(node, parent, incarnation);
    body[27..35].copy_from_slice(&incarnation.to_le_bytes());
    body
}

#[test]
fn a_lie_from_far_below_costs_who_passes_it_on_nothing() {
    let mut lab = Lab::new(settings(1, &[3, 0]));
    let first = lab.serve(settings(3, &[]));
    let upstream = lab.serve(settings(0, &[]));
    let relay = lab.join(settings(2, &[1]));
    lab.node.handle_closed(lab.ends[first].here, None, lab.now);
    let told = lab.told(upstream);
    let attach = told.iter().find(|told| told.head.kind == Kind::Attach).unwrap();
    let stamp = u64::from_le_bytes(attach.body[1..9].try_into().unwrap());
    lab.events();
    let claim = |lab: &mut Lab, node: NodeId, incarnation: u64, stamp: u64| {
        let mut body = entry_of(node, id(7), incarnation);
        body[11..19].copy_from_slice(&stamp.to_le_bytes());
        announce(lab, relay, id(2), &body);
    };
    // The upstream; another process with the id of this node; this one, by who does not know its stamp.
    for (node, incarnation) in [(id(0), 1 << 20), (id(1), 7 << 20), (id(1), 1 << 20)] {
        claim(&mut lab, node, incarnation, stamp + 1);
        assert!(lab.is_there(relay) && lab.node.nodes_below().all(|(below, _)| below != node));
        assert_eq!(lab.events(), [Event::Refused { id: node, reason: Reason::IdTwice }]);
    }
    // Said again and again it floods nobody, neither here nor above.
    for _ in 0..1000 {
        claim(&mut lab, id(0), 1 << 20, 1 << 20);
        lab.told(relay);
    }
    assert!(lab.events().len() < 20 && lab.stat("ids_twice") == 1003);
    assert!(lab.is_there(upstream) && lab.told(upstream).len() < 500);
    // What was said above and comes back from below is a cycle.
    claim(&mut lab, id(1), 1 << 20, stamp);
    assert!(!lab.is_there(relay));
    assert!(lab.events().contains(&Event::PeerDown { id: id(2), reason: Reason::Cycle }));
}

#[test]
fn a_root_is_in_no_cycle_whatever_it_is_told() {
    let mut lab = Lab::of(0);
    let relay = lab.join(settings(2, &[0]));
    lab.events();
    announce(&mut lab, relay, id(2), &entry_of(id(0), id(7), 1 << 20));
    assert!(lab.is_there(relay));
    assert_eq!(lab.events(), [Event::Refused { id: id(0), reason: Reason::IdTwice }]);
}
