//! Peers that leave others nothing, claim to be others, or disagree about ids: they cost no other
//! node a place, a word or an upstream.

use crate::hostile::{FIRST, failure, first_of};
use crate::liar::{Lab, announce, entry, line, message};
use crate::world::{World, id, settings};
use keyway_bus::frame::{Head, Kind, flags};
use keyway_bus::{Event, LinkKind, NodeId, Reason, SendOptions, Settings, Stamp};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Returns node `index` with a bound of 1 MiB for all queues.
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
    // The first ones have no receiver, and the others are accepted. The liar takes word of neither.
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

/// Makes `child`, node 2, send frames that must go up, until none goes up any more.
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
        // A new node is announced before it sends, and a push is answered.
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

/// Returns the entry of a process with that id that was started at `incarnation`.
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
    // The claims are: the upstream; another process with the id of this node; and this node, from a
    // peer that does not know its stamp.
    for (node, incarnation) in [(id(0), 1 << 20), (id(1), 7 << 20), (id(1), 1 << 20)] {
        claim(&mut lab, node, incarnation, stamp + 1);
        assert!(lab.is_there(relay) && lab.node.nodes_below().all(|(below, _)| below != node));
        assert_eq!(
            lab.events(),
            [Event::Refused { id: node, from: None, reason: Reason::IdTwice }]
        );
    }
    // Repeated again and again it floods no node, neither here nor above.
    for _ in 0..1000 {
        claim(&mut lab, id(0), 1 << 20, 1 << 20);
        lab.told(relay);
    }
    assert!(lab.events().len() < 20 && lab.stat("ids_twice") == 1003);
    assert!(lab.is_there(upstream) && lab.told(upstream).len() < 500);
    // A stamp that was announced above and comes back from below shows a cycle.
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
    assert_eq!(lab.events(), [Event::Refused { id: id(0), from: None, reason: Reason::IdTwice }]);
}

#[test]
fn a_message_in_parts_that_is_not_taken_may_still_come_another_way() {
    let mut lab = Lab::new(narrow(0, &[]));
    let (sender, other) = (lab.join(settings(1, &[0])), lab.join(settings(2, &[0])));
    lab.told(sender);
    let (long, half) = (first_of(2 << 20), first_of(1 << 20));
    let begin = |dst: NodeId, seq: u64| Head { flags: FIRST, ..message(id(1), dst, seq) };
    lab.say(sender, &begin(id(2), 1), &long);
    let relayed = lab.told(sender);
    assert!(relayed[0].head.has(flags::MAYBE), "who it is for may take it");
    // Each has a connection of its own: the parts of the one before did not all come.
    let sender = {
        lab.node.handle_closed(lab.ends[sender].here, None, lab.now);
        lab.join(settings(1, &[0]))
    };
    lab.say(sender, &begin(id(0), 2), &long);
    let own = lab.told(sender);
    assert!(own.iter().any(|told| told.head.kind == Kind::Failure && !told.head.has(flags::MAYBE)));
    lab.say(other, &Head { src: id(2), ..begin(id(1), 3) }, &half);
    lab.pass(32, &[sender, other]);
    let stalled = lab.told(other);
    assert!(stalled.iter().any(|told| told.head.seq == 3 && told.head.has(flags::MAYBE)));
}

#[test]
fn what_has_failed_for_certain_does_not_arrive_by_another_relay() {
    let mut world = World::new(41);
    for upstreams in [&[][..], &[0], &[0], &[1, 2]] {
        let mut one = settings(world.nodes.len(), upstreams);
        one.message_len_max = if world.nodes.len() == 1 { 1 << 20 } else { 64 << 20 };
        world.add(one);
    }
    world.run(8 * SECOND);
    world.bytes_per_ms = 10 << 10;
    let body: Vec<u8> = (0..2 << 20).map(|_| world.random.next() as u8).collect();
    let now = world.now;
    let seq = world.node(3).send(id(0), &body, SendOptions::default(), now).unwrap();
    world.run(Duration::from_millis(50));
    world.reset(1, 3);
    world.run(5 * SECOND);
    assert_eq!(world.count(0, |event| matches!(event, Event::Message { .. })), 1);
    // Word of a failure may come twice if it is unknown whether it came.
    let is_certain = |event: &Event| matches!(event, Event::Failed { maybe: false, .. });
    let is_told = |event: &Event| matches!(event, Event::Failed { seq: at, .. } if *at == seq);
    assert!(world.count(3, is_told) > 0 && world.count(3, is_certain) == 0);
}

#[test]
fn a_direct_connection_gives_way_to_that_of_an_upstream() {
    for dialler in [1, 2] {
        // 0 is the root, 1 is below it, and 2 is below 0 with 1 as standby.
        let mut world = World::new(42);
        for upstreams in [&[][..], &[0], &[0, 1]] {
            let mut one = settings(world.nodes.len(), upstreams);
            // No node may take the id of an upstream that is named.
            one.upstreams.iter_mut().for_each(|upstream| upstream.id = NodeId::NONE);
            world.add(one);
        }
        world.run(8 * SECOND);
        world.reset(1, 2);
        world.run(Duration::from_millis(1));
        let now = world.now;
        world.node(dialler).connect_direct(id(3 - dialler), SECOND, now).unwrap();
        let kinds = |world: &mut World| -> Vec<LinkKind> {
            world.node(2).peers().filter(|peer| peer.id == id(1)).map(|peer| peer.kind).collect()
        };
        world.run_until(SECOND, "direct", |world| kinds(world) == [LinkKind::Sibling]);
        world.run_until(5 * SECOND, "standby", |world| kinds(world) == [LinkKind::Standby]);
        world.run(10 * SECOND);
        assert_eq!(kinds(&mut world), [LinkKind::Standby], "and it stays");
        world.kill(0);
        world.run(SECOND);
        assert_eq!(world.node(2).upstream(), Some(id(1)));
    }
}

#[test]
fn who_comes_again_and_again_waits_until_what_came_is_taken() {
    let mut one = settings(0, &[]);
    one.inbox_len_max = 100_000;
    let mut lab = Lab::new(one);
    let is_full = (0..100).any(|_| {
        if lab.node.handle_accepted(&line(9), lab.now).is_none() {
            return true;
        }
        let at = lab.join(settings(1, &[0]));
        for seq in 0..10 {
            lab.say(at, &message(id(1), id(0), (lab.ends.len() * 10 + seq) as u64), &[7; 60_000]);
        }
        lab.node.handle_closed(lab.ends[at].here, None, lab.now);
        false
    });
    assert!(is_full && lab.node.inbox_len() < 1 << 20, "{}", lab.node.inbox_len());
    lab.events();
    assert!(lab.node.handle_accepted(&line(9), lab.now).is_some());
}

#[test]
fn who_comes_counts_with_all_it_says_of_itself() {
    let mut lab = Lab::of(0);
    let mut long = settings(1, &[0]);
    for number in 0..16 {
        long.labels.set(&format!("name{number}"), &"x".repeat(63)).unwrap();
    }
    lab.events();
    lab.join(long);
    assert!(lab.node.inbox_len() > 1000, "{}", lab.node.inbox_len());
    lab.events();
    assert_eq!(lab.node.inbox_len(), 0);
}

#[test]
fn who_leaves_is_told_of_all_that_nobody_answers_any_more() {
    let mut lab = Lab::of(0);
    let child = lab.join(settings(1, &[0]));
    let seq = lab.node.command(id(1), &["do"], 60 * SECOND, lab.now).unwrap();
    lab.converse(child);
    lab.events();
    lab.node.leave(lab.now);
    lab.converse(child);
    lab.pass(3, &[]);
    let events = lab.events();
    let failed = Event::Failed { seq, dst: id(1), by: id(0), reason: Reason::Leaving, maybe: true };
    assert_eq!(events[events.len() - 2..], [failed, Event::Gone], "{events:?}");
}

#[test]
fn a_slow_newcomer_is_not_late_while_who_is_there_is_asked() {
    let mut lab = Lab::of(0);
    let dead = lab.join(settings(1, &[0]));
    // The newcomer identifies itself when its time is almost over.
    let here = lab.node.handle_accepted(&line(1), lab.now).unwrap();
    lab.pass(4, &[dead]);
    lab.now = lab.now + Duration::from_millis(900);
    // The existing peer is dead, and not noticed yet.
    let again = lab.resume(settings(1, &[0]), here);
    lab.events();
    let end = lab.now + 2 * SECOND;
    while lab.now < end {
        lab.now = lab.node.poll_deadline().min(end);
        lab.node.handle_timeout(lab.now);
    }
    lab.converse(again);
    let late = Event::Refused { id: id(1), from: None, reason: Reason::HandshakeTimeout };
    let events = lab.events();
    assert!(lab.is_there(again) && !events.contains(&late), "{events:?}");
}

#[test]
fn two_that_leave_at_once_wait_for_nothing() {
    for apart in [0, 100, 200, 300] {
        let mut world = World::new(43);
        world.add(settings(0, &[]));
        world.add(settings(1, &[0]));
        world.run(3 * SECOND);
        let start = world.now;
        world.node(0).leave(start);
        world.run(Duration::from_micros(apart));
        let now = world.now;
        world.node(1).leave(now);
        world.run_until(5 * SECOND, "both are gone", |world| {
            (0..2).all(|index| world.count(index, |event| *event == Event::Gone) == 1)
        });
        let took = world.now.since(start);
        assert!(took < Duration::from_millis(100), "{took:?}, {apart} us apart");
    }
}

#[test]
fn all_that_leave_at_once_wait_for_no_more_than_what_is_under_way() {
    for case in 0..60 {
        let mut world = World::new(1000 + case);
        let count = 2 + (case % 2) as usize;
        for upstreams in &[&[][..], &[0], &[1, 0]][..count] {
            let index = world.nodes.len();
            world.add(settings(index, upstreams));
        }
        world.run(8 * SECOND);
        for number in 0..40 * count {
            let (from, to) = (number % count, world.random.below(count as u64) as usize);
            let len = if number == 7 { 300_000 } else { 3000 };
            let body: Vec<u8> = (0..len).map(|_| world.random.next() as u8).collect();
            let ack_within = (case % 4 < 2).then_some(5 * SECOND);
            let (options, now) = (SendOptions { ack_within, no_upstream: false }, world.now);
            world.node(from).send(id(to), &body, options, now).unwrap();
        }
        let pause = world.random.below(3000);
        world.run(Duration::from_micros(pause));
        let start = world.now;
        for index in 0..count {
            let now = world.now;
            world.node(index).leave(now);
            let pause = world.random.below(800);
            world.run(Duration::from_micros(pause));
        }
        let is_gone = |event: &Event| *event == Event::Gone;
        world.run_until(5 * SECOND, "all are gone", |world| {
            (0..count).all(|index| world.count(index, is_gone) == 1)
        });
        let took = world.now.since(start);
        assert!(took < SECOND, "case {case}: {took:?}");
    }
}
