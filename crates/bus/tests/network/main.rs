//! Whole buses on virtual time: trees, fail-over, relay, pushes, and laws that hold whatever a seed
//! breaks.

mod hostile;
mod invariants;
mod leaders;
mod liar;
mod rivals;
mod topics;
mod world;

use keyway_bus::{Event, NodeId, Place, Reason, SendOptions, Stamp};
use std::time::Duration;
use world::{World, id, settings, url};

const SECOND: Duration = Duration::from_secs(1);

/// Creates 0 as root, 1 and 2 below it, 3 and 4 below 1 with 2 as standby, and 5 below 2 with 1 as
/// standby.
fn tree(seed: u64) -> World {
    let mut world = World::new(seed);
    for upstreams in [&[][..], &[0], &[0], &[1, 2], &[1, 2], &[2, 1]] {
        let index = world.nodes.len();
        world.add(settings(index, upstreams));
    }
    world.run_until(5 * SECOND, "all nodes joined", |world| {
        world.node(0).nodes_below().count() == 5
    });
    // The primary is used again once it has been there for five seconds.
    world.run(8 * SECOND);
    world
}

fn with_ack() -> SendOptions {
    SendOptions { ack_within: Some(5 * SECOND), no_upstream: false }
}

fn is_message(event: &Event) -> bool {
    matches!(event, Event::Message { .. })
}

#[test]
fn every_node_reaches_every_other_with_word_of_it() {
    let mut world = tree(1);
    for from in 0..6 {
        for to in 0..6 {
            let now = world.now;
            world.node(from).send(id(to), b"hello", with_ack(), now).unwrap();
        }
    }
    world.run(SECOND);
    for index in 0..6 {
        assert_eq!(world.count(index, is_message), 6, "node {index}");
        assert_eq!(world.count(index, |event| matches!(event, Event::Acked { .. })), 6);
    }
    // It goes from 3 to 4 by their common upstream, not by the root.
    assert_eq!(world.node(1).counts().refused, 0);
}

#[test]
fn an_unknown_destination_comes_back_from_the_root_with_its_name() {
    let mut world = tree(2);
    let now = world.now;
    let nobody = NodeId(12345);
    let seq = world.node(3).send(nobody, b"hello", SendOptions::default(), now).unwrap();
    world.run(SECOND);
    let expected =
        Event::Failed { seq, dst: nobody, by: id(0), reason: Reason::Unreachable, maybe: false };
    assert!(world.events(3).contains(&expected), "{:?}", world.events(3).last());
    let down = SendOptions { no_upstream: true, ..SendOptions::default() };
    let now = world.now;
    let refused = world.node(3).send(id(5), b"", down, now);
    assert_eq!(refused, Err(keyway_bus::SendFault::Refused(Reason::NoUpstream)));
}

#[test]
fn a_message_goes_no_further_than_its_ttl() {
    let mut world = World::new(3);
    world.add(settings(0, &[]));
    for index in 1..6 {
        let mut one = settings(index, &[index - 1]);
        one.ttl = 3;
        world.add(one);
    }
    world.run_until(5 * SECOND, "a chain", |world| world.node(0).nodes_below().count() == 5);
    let now = world.now;
    let near = world.node(5).send(id(1), b"near", with_ack(), now).unwrap();
    let far = world.node(5).send(id(0), b"far", with_ack(), now).unwrap();
    world.run(SECOND);
    assert!(world.events(5).contains(&Event::Acked { seq: near }));
    let expected =
        Event::Failed { seq: far, dst: id(0), by: id(1), reason: Reason::Ttl, maybe: false };
    assert!(world.events(5).contains(&expected));
}

#[test]
fn a_dead_process_is_noticed_at_once_and_a_dead_host_within_three_and_a_half_seconds() {
    let mut world = tree(4);
    let start = world.now;
    world.kill(3);
    world.run_until(SECOND, "the root knows", |world| world.node(0).nodes_below().count() == 4);
    assert!(world.now.since(start) < Duration::from_millis(50));
    let start = world.now;
    world.silence(1, 4);
    world.silence(2, 4);
    world.run_until(5 * SECOND, "node 1 gave it up", |world| {
        world.count(1, |event| *event == Event::PeerDown { id: id(4), reason: Reason::Silent }) == 1
    });
    assert!(world.now.since(start) < Duration::from_millis(3500), "{:?}", world.now.since(start));
}

#[test]
fn a_node_fails_over_to_its_standby_and_back() {
    let mut world = tree(5);
    assert_eq!(world.node(3).upstream(), Some(id(1)));
    world.kill(1);
    let start = world.now;
    world.run_until(SECOND, "the standby is used", |world| world.node(3).upstream() == Some(id(2)));
    assert!(world.now.since(start) < Duration::from_millis(50));
    world.run(SECOND);
    let now = world.now;
    let seq = world.node(0).send(id(3), b"found", with_ack(), now).unwrap();
    world.run(SECOND);
    assert!(world.events(0).contains(&Event::Acked { seq }));
    let mut again = settings(1, &[0]);
    again.incarnation = 2 << 20;
    world.restart(1, again);
    world.run(10 * SECOND);
    assert_eq!(world.node(3).upstream(), Some(id(1)));
    let now = world.now;
    let seq = world.node(5).send(id(3), b"found", with_ack(), now).unwrap();
    world.run(SECOND);
    assert!(world.events(5).contains(&Event::Acked { seq }));
}

#[test]
fn siblings_talk_directly_once_they_are_connected_and_part_when_idle() {
    let mut world = tree(6);
    let now = world.now;
    world.node(3).connect_direct(id(5), SECOND, now).unwrap();
    world.node(5).connect_direct(id(3), SECOND, now).unwrap();
    world.run(SECOND);
    let relayed = world.node(0).counts().relayed;
    let now = world.now;
    let seq = world.node(3).send(id(5), b"direct", with_ack(), now).unwrap();
    world.run(SECOND);
    assert!(world.events(3).contains(&Event::Acked { seq }));
    assert_eq!(world.node(0).counts().relayed, relayed);
    let both = |world: &mut World| world.node(3).peers().filter(|peer| peer.id == id(5)).count();
    assert_eq!(both(&mut world), 1, "one connection, though both dialled");
    world.run(70 * SECOND);
    assert_eq!(both(&mut world), 0);
    let now = world.now;
    let seq = world.node(3).send(id(5), b"through the tree", with_ack(), now).unwrap();
    world.run(SECOND);
    assert!(world.events(3).contains(&Event::Acked { seq }));
}

#[test]
fn commands_have_results_whoever_answers_them() {
    let mut world = tree(7);
    let now = world.now;
    let echo = world.node(3).command(id(5), &["echo", "a", ""], SECOND, now).unwrap();
    let ping = world.node(3).command(id(5), &["bus.ping"], SECOND, now).unwrap();
    let tree = world.node(3).command(id(0), &["bus.tree"], SECOND, now).unwrap();
    let none = world.node(3).command(id(5), &["bus.nonsense"], SECOND, now).unwrap();
    world.run(SECOND);
    let result = |seq: u64| {
        world.events(3).iter().find_map(|event| match event {
            Event::Result { seq: at, items, .. } if *at == seq => Some(items.clone()),
            _ => None,
        })
    };
    assert_eq!(result(echo).unwrap(), [b"echo".to_vec(), b"a".to_vec(), vec![]]);
    assert_eq!(result(ping).unwrap(), [b"pong".to_vec()]);
    assert_eq!(result(tree).unwrap().len(), 6);
    let expected =
        Event::Failed { seq: none, dst: id(5), by: id(5), reason: Reason::NoCommand, maybe: false };
    assert!(world.events(3).contains(&expected));
}

#[test]
fn a_push_reaches_everybody_and_laggards_are_seen() {
    let mut world = tree(8);
    let mut body = vec![b'x'; 200_000];
    let publish = |world: &mut World, version: u64, body: &[u8]| {
        let stamp = Stamp { epoch: 1, version };
        world.node(0).publish("pools", stamp, body.to_vec()).unwrap();
    };
    publish(&mut world, 1, &body);
    world.run(SECOND);
    assert_eq!(world.node(0).laggards("pools"), []);
    body[777] = b'y';
    publish(&mut world, 2, &body);
    world.silence(1, 4);
    world.silence(2, 4);
    world.run(SECOND);
    let lags: Vec<NodeId> = world.node(0).laggards("pools").iter().map(|(id, _)| *id).collect();
    assert_eq!(lags, [id(4)]);
    assert_eq!(world.node(0).counts().pushes_delta, 2);
    world.heal();
    world.run(10 * SECOND);
    for index in 1..6 {
        let stamp = Stamp { epoch: 1, version: 2 };
        let (has, is) = world.node(index).topic("pools").unwrap();
        assert!(has == stamp && is == body, "node {index} has {has:?}");
    }
    assert_eq!(world.node(0).laggards("pools"), []);
    let stale = world.node(0).publish("pools", Stamp { epoch: 1, version: 2 }, vec![]);
    assert_eq!(stale, Err(keyway_bus::SendFault::Stale));
}

#[test]
fn a_ping_does_not_wait_for_a_large_body() {
    let mut world = tree(9);
    // At 100 MiB/s a body of 64 MiB takes more than half a second on each hop. It does not
    // compress.
    world.bytes_per_ms = 100 << 10;
    let body: Vec<u8> = {
        let random = &mut world.random;
        std::iter::repeat_with(|| random.next() as u8).take((64 << 20) - 2048).collect()
    };
    world.node(0).publish("large", Stamp { epoch: 1, version: 1 }, body).unwrap();
    let mut worst = 0;
    for _ in 0..20 {
        let start = world.now;
        let seq = world.node(0).command(id(3), &["bus.ping"], 5 * SECOND, start).unwrap();
        world.run_until(5 * SECOND, "pong", |world| {
            world
                .events(0)
                .iter()
                .rev()
                .any(|event| matches!(event, Event::Result { seq: at, .. } if *at == seq))
        });
        worst = worst.max(world.now.since(start).as_micros());
        world.run(Duration::from_millis(50));
    }
    // There are two hops in each direction. On each hop down it waits behind the 128 KiB that a
    // driver is ahead, 1.3 ms.
    assert!(worst < 5000, "{worst} us");
    world.run(10 * SECOND);
    assert_eq!(world.node(0).laggards("large"), []);
}

#[test]
fn large_messages_arrive_whole_and_too_large_ones_do_not_leave() {
    let mut world = tree(10);
    let len = 64 << 20;
    let body: Vec<u8> = {
        let random = &mut world.random;
        std::iter::repeat_with(|| random.next() as u8).take(len).collect()
    };
    let options = SendOptions { ack_within: Some(60 * SECOND), no_upstream: false };
    let now = world.now;
    let seq = world.node(3).send(id(5), &body, options, now).unwrap();
    let over = [&body[..], b"x"].concat();
    let refused = world.node(3).send(id(5), &over, options, now);
    assert_eq!(refused, Err(keyway_bus::SendFault::Refused(Reason::TooLarge)));
    world.run(20 * SECOND);
    assert!(world.events(3).contains(&Event::Acked { seq }));
    let is_it = |event: &Event| matches!(event, Event::Message { body: got, .. } if *got == body);
    assert_eq!(world.count(5, is_it), 1);
}

#[test]
fn a_node_that_leaves_loses_nothing_and_is_not_missed() {
    let mut world = tree(11);
    let mut sent = Vec::new();
    for number in 0..200u32 {
        let now = world.now;
        let body = vec![number as u8; 3000];
        sent.push(world.node(3).send(id(5), &body, with_ack(), now).unwrap());
        sent.push(world.node(3).send(id(1), &body, with_ack(), now).unwrap());
    }
    let now = world.now;
    world.run(Duration::from_millis(1));
    world.node(1).leave(now);
    world.run_until(4 * SECOND, "node 1 is gone", |world| {
        world.count(1, |event| *event == Event::Gone) == 1
    });
    assert_eq!(world.node(1).peers().count(), 0);
    world.run(6 * SECOND);
    for seq in sent {
        let outcomes: Vec<&Event> = world
            .events(3)
            .iter()
            .filter(|event| match event {
                Event::Acked { seq: at } | Event::Failed { seq: at, .. } => *at == seq,
                _ => false,
            })
            .collect();
        assert_eq!(outcomes.len(), 1, "{seq}: {outcomes:?}");
        if let Event::Failed { maybe, .. } = outcomes[0] {
            assert!(!maybe, "{outcomes:?}");
        }
    }
    let reason = Reason::Leaving;
    assert!(
        world.events(0).contains(&Event::PeerDown { id: id(1), reason }),
        "{:?}",
        world.events(0)
    );
}

#[test]
fn a_user_who_takes_nothing_stops_senders_and_not_heartbeats() {
    let mut world = World::new(12);
    let mut root = settings(0, &[]);
    root.inbox_len_max = 100_000;
    world.add(root);
    let mut child = settings(1, &[0]);
    child.queue_len_max = 1 << 20;
    child.compress = false;
    world.add(child);
    world.run(2 * SECOND);
    world.takes_events = false;
    let mut sent = 0;
    loop {
        let now = world.now;
        match world.node(1).send(id(0), &[7; 60_000], SendOptions::default(), now) {
            Ok(_) => sent += 1,
            Err(fault) => {
                assert_eq!(fault, keyway_bus::SendFault::Refused(Reason::Full));
                break;
            }
        }
        world.run(Duration::from_millis(10));
        assert!(sent < 200, "nothing holds it back");
    }
    world.run(20 * SECOND);
    assert_eq!(world.node(1).upstream(), Some(id(0)), "silence is not death");
    world.takes_events = true;
    world.run(5 * SECOND);
    assert_eq!(world.count(0, is_message), sent);
}

#[test]
fn commands_that_nobody_takes_stop_their_sender_too() {
    let mut world = World::new(16);
    let mut root = settings(0, &[]);
    root.inbox_len_max = 100_000;
    world.add(root);
    let mut child = settings(1, &[0]);
    child.queue_len_max = 1 << 20;
    world.add(child);
    world.run(2 * SECOND);
    world.takes_events = false;
    let argument = vec![7; 30_000];
    let refused = (0..500).find_map(|_| {
        let now = world.now;
        let sent = world.node(1).command(id(0), &[&b"do"[..], &argument], 60 * SECOND, now);
        world.run(Duration::from_millis(10));
        sent.err()
    });
    assert_eq!(refused, Some(keyway_bus::SendFault::Refused(Reason::Full)));
    world.takes_events = true;
    world.run(5 * SECOND);
    assert_eq!(world.node(1).upstream(), Some(id(0)));
    let is_done = |event: &Event| matches!(event, Event::Result { .. });
    assert!(
        world.count(1, is_done) > 0
            && world.count(1, is_done)
                == world.count(0, |event| matches!(event, Event::Command { .. }))
    );
}

#[test]
fn a_cycle_of_upstreams_is_seen_and_ended() {
    let mut world = World::new(13);
    world.add(settings(0, &[1]));
    world.add(settings(1, &[2]));
    world.add(settings(2, &[0]));
    world.run(10 * SECOND);
    let cycles: usize = (0..3)
        .map(|index| {
            world.count(index, |event| {
                matches!(event, Event::PeerDown { reason: Reason::Cycle, .. })
            })
        })
        .sum();
    assert!(cycles > 0);
}

#[test]
fn a_node_without_the_token_and_one_that_is_there_already_are_not_let_in() {
    let mut world = World::new(14);
    world.add(settings(0, &[]));
    let mut stranger = settings(1, &[0]);
    stranger.tokens = keyway_bus::Tokens::default();
    stranger.tokens.add(b"quite another token, as long").unwrap();
    world.add(stranger);
    world.run(2 * SECOND);
    let denied = Event::Refused { id: id(0), from: None, reason: Reason::Denied };
    assert!(world.events(1).contains(&denied), "{:?}", world.events(1));
    world.add(settings(2, &[0]));
    world.run(2 * SECOND);
    let mut double = settings(3, &[0]);
    double.id = id(2);
    world.add(double);
    world.run(2 * SECOND);
    let in_use = Event::Refused { id: id(0), from: None, reason: Reason::IdInUse };
    assert!(world.events(3).contains(&in_use));
    assert_eq!(world.node(2).upstream(), Some(id(0)));
}

#[test]
fn a_guest_gets_an_id_and_an_answer() {
    let mut world = tree(15);
    let mut guest = settings(6, &[3]);
    guest.id = NodeId::NONE;
    guest.urls = Vec::new();
    let index = world.add(guest);
    world.run(SECOND);
    assert!(world.node(index).id().is_guest());
    let now = world.now;
    let seq = world.node(index).command(id(5), &["bus.ping"], SECOND, now).unwrap();
    world.run(SECOND);
    assert!(
        world.count(index, |event| matches!(event, Event::Result { seq: at, .. } if *at == seq))
            == 1
    );
    let _ = url(0);
}

#[test]
fn a_guest_comes_in_again_when_its_upstream_was_started_anew() {
    let mut world = World::new(17);
    world.add(settings(0, &[]));
    let mut guest = settings(1, &[0]);
    guest.id = NodeId::NONE;
    guest.urls = Vec::new();
    world.add(guest);
    world.run(SECOND);
    let first = world.node(1).id();
    world.kill(0);
    world.run(SECOND);
    assert!(first.is_guest() && world.node(1).id().is_none());
    let mut again = settings(0, &[]);
    again.incarnation = 2 << 20;
    world.restart(0, again);
    world.run(5 * SECOND);
    assert_eq!(world.node(1).upstream(), Some(id(0)), "{:?}", world.events(1));
    let now = world.now;
    let seq = world.node(1).send(id(0), b"hello", with_ack(), now).unwrap();
    world.run(SECOND);
    assert!(world.events(1).contains(&Event::Acked { seq }));
}

/// Adds a node that dials `urls` in this order, and the root that it wants as the last of them.
fn dials(world: &mut World, urls: &[keyway_bus::Url]) -> usize {
    let root = world.add(settings(0, &[]));
    let mut child = settings(1, &[0]);
    child.upstreams[0].urls = urls.to_vec();
    let child = world.add(child);
    assert_eq!((root, child), (0, 1));
    child
}

#[test]
fn an_address_that_leads_nowhere_or_to_somebody_mute_is_not_the_last_one_tried() {
    let mut world = World::new(30);
    // The addresses have no listener, a silent one, another node, and the root.
    let child = dials(&mut world, &[url(9), url(2), url(3), url(0)]);
    world.add(settings(2, &[]));
    world.add(settings(3, &[]));
    world.silence_later(1, 2);
    let start = world.now;
    world.run_until(10 * SECOND, "joined", |world| world.node(child).upstream() == Some(id(0)));
    // The silent one costs its time, the others none.
    assert!(world.now.since(start) < Duration::from_millis(3500), "{:?}", world.now.since(start));
    let told: Vec<(String, Reason)> = world
        .events(child)
        .iter()
        .filter_map(|event| match event {
            Event::Unreached { at, reason, .. } => Some((at.to_string(), *reason)),
            _ => None,
        })
        .collect();
    let expected = [
        (url(9).to_string(), Reason::NobodyListens),
        (url(2).to_string(), Reason::NoAnswer),
        (url(3).to_string(), Reason::IdMismatch),
    ];
    assert_eq!(told, expected);
    assert_eq!(world.count(child, |event| matches!(event, Event::Refused { .. })), 0);
}

#[test]
fn a_dial_without_an_outcome_is_given_up_and_begun_again() {
    let mut world = World::new(31);
    let child = dials(&mut world, &[url(0)]);
    world.hang_dials = true;
    world.run(10 * SECOND);
    let given_up =
        |event: &Event| matches!(event, Event::Unreached { reason: Reason::NoAnswer, .. });
    assert!((2..=3).contains(&world.count(child, given_up)));
    world.hang_dials = false;
    world.run_until(5 * SECOND, "joined", |world| world.node(child).upstream() == Some(id(0)));
}

#[test]
fn a_guest_is_answered_wherever_its_upstream_has_gone() {
    // 0 is the root, 1 is below it, and 2 is below 1 with the root itself as standby.
    let mut world = World::new(32);
    for upstreams in [&[][..], &[0], &[1, 0]] {
        let index = world.nodes.len();
        world.add(settings(index, upstreams));
    }
    world.run(8 * SECOND);
    let guest = |world: &mut World, at: usize| {
        let mut guest = settings(9, &[at]);
        guest.id = NodeId::NONE;
        guest.urls.clear();
        world.add(guest)
    };
    let (below, above) = (guest(&mut world, 2), guest(&mut world, 0));
    world.run(SECOND);
    world.kill(1);
    world.run(3 * SECOND);
    assert_eq!(world.node(2).upstream(), Some(id(0)));
    let mut again = settings(1, &[0]);
    again.incarnation = 2 << 20;
    world.restart(1, again);
    world.run(10 * SECOND);
    assert_eq!(world.node(2).upstream(), Some(id(1)), "back at its primary upstream");
    assert!(world.node(0).peers().all(|peer| peer.traffic.bytes_in > 100), "bytes count");
    let asks = [(below, id(0)), (below, id(1)), (above, id(2)), (above, id(1))];
    for (from, to) in asks {
        let now = world.now;
        let seq = world.node(from).command(to, &["bus.ping"], SECOND, now).unwrap();
        let sent = world.node(from).send(to, b"hello", with_ack(), now).unwrap();
        world.run(2 * SECOND);
        let is_answer =
            |event: &Event| matches!(event, Event::Result { seq: at, .. } if *at == seq);
        assert_eq!(world.count(from, is_answer), 1, "{from} asks {to}: {:?}", world.events(from));
        assert!(world.events(from).contains(&Event::Acked { seq: sent }), "{from} sends to {to}");
    }
}

#[test]
fn a_guest_of_a_standby_that_is_a_root_of_its_own_is_answered_too() {
    // 0 and 1 do not know each other; 2 is below 0 with 1 as standby.
    let mut world = World::new(33);
    for upstreams in [&[][..], &[], &[0, 1]] {
        let index = world.nodes.len();
        world.add(settings(index, upstreams));
    }
    world.run(8 * SECOND);
    let mut guest = settings(9, &[1]);
    guest.id = NodeId::NONE;
    guest.urls.clear();
    let guest = world.add(guest);
    world.run(SECOND);
    let now = world.now;
    let seq = world.node(guest).command(id(2), &["bus.ping"], SECOND, now).unwrap();
    world.run(2 * SECOND);
    let is_answer = |event: &Event| matches!(event, Event::Result { seq: at, .. } if *at == seq);
    assert_eq!(world.count(guest, is_answer), 1, "{:?}", world.events(guest));
}

/// Creates 0 as root, 1 and 2 below it, and 3 below 1 with 2 as standby; 1 is cut off from the
/// root.
fn cut_off() -> World {
    let mut world = World::new(34);
    for upstreams in [&[][..], &[0], &[0], &[1, 2]] {
        let index = world.nodes.len();
        world.add(settings(index, upstreams));
    }
    world.run(8 * SECOND);
    assert_eq!(world.node(3).upstream(), Some(id(1)));
    world.silence(0, 1);
    world
}

#[test]
fn an_upstream_that_is_cut_off_is_left_for_one_that_is_not_and_gone_back_to() {
    let mut world = cut_off();
    let start = world.now;
    world.run_until(45 * SECOND, "moved", |world| world.node(3).upstream() == Some(id(2)));
    // It learnt of that two seconds before.
    assert!(world.node(1).is_cut_off() && !world.node(3).is_cut_off());
    println!("moved after {:?}", world.now.since(start));
    world.run(SECOND);
    let now = world.now;
    let seq = world.node(0).send(id(3), b"found", with_ack(), now).unwrap();
    world.run(SECOND);
    assert!(world.events(0).contains(&Event::Acked { seq }));
    world.heal();
    let start = world.now;
    world.run_until(20 * SECOND, "back", |world| world.node(3).upstream() == Some(id(1)));
    assert!(world.now.since(start) >= 5 * SECOND, "only once that lasted");
}

#[test]
fn an_upstream_that_is_cut_off_again_and_again_moves_nobody_every_time() {
    let mut world = cut_off();
    world.run_until(45 * SECOND, "moved", |world| world.node(3).upstream() == Some(id(2)));
    let before = world.node(3).counts().upstream_changes;
    for _ in 0..20 {
        world.heal();
        world.run_until(20 * SECOND, "whole", |world| !world.node(1).is_cut_off());
        world.run(SECOND);
        world.reset(0, 1);
        world.silence(0, 1);
        world.run_until(20 * SECOND, "cut off", |world| world.node(1).is_cut_off());
        world.run(SECOND);
    }
    assert_eq!(world.node(3).counts().upstream_changes, before);
}

#[test]
fn where_everybody_is_cut_off_nobody_moves() {
    let mut world = cut_off();
    world.kill(0);
    let before = world.node(3).counts().upstream_changes;
    world.run(20 * SECOND);
    assert_eq!(world.node(3).counts().upstream_changes, before);
    assert!(world.node(3).is_cut_off());
}

#[test]
fn connections_at_rest_are_pinged_together() {
    let (frames, timeouts) = at_rest(Place::default(), 240);
    // There are eight answers of each, to pings in eight slots of each half minute. A late one
    // costs another check.
    assert_eq!(frames, 800);
    assert!(timeouts <= 140, "{timeouts}");
}

#[test]
fn connections_at_rest_within_a_host_are_pinged_every_five_minutes() {
    let (frames, timeouts) = at_rest(Place { host: [7; 16], process: 0 }, 600);
    assert_eq!(frames, 200);
    assert!(timeouts <= 50, "{timeouts}");
}

/// Returns the frames that a root receives, and the times that its clock wakes it, in so many
/// seconds with a hundred connections at rest.
fn at_rest(place: Place, seconds: u32) -> (u64, u64) {
    let mut world = World::new(35);
    world.is_one_host = true;
    for index in 0..=100 {
        let mut one = settings(index, if index == 0 { &[] } else { &[0] });
        one.place = place;
        world.add(one);
        world.run(Duration::from_millis(17));
    }
    // This lasts until each has come to its slot.
    world.run(400 * SECOND);
    assert_eq!(world.node(0).nodes_below().count(), 100);
    let count = |world: &mut World| -> (u64, u64) {
        let frames = world.node(0).peers().map(|peer| peer.traffic.frames_in).sum();
        (frames, world.timeouts.get(&0).copied().unwrap_or(0))
    };
    let before = count(&mut world);
    world.run(seconds * SECOND);
    let after = count(&mut world);
    assert_eq!(world.node(0).nodes_below().count(), 100);
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn who_hangs_at_rest_is_noticed_by_both_sides() {
    for (place, most) in [(Place::default(), 40), (Place { host: [7; 16], process: 0 }, 310)] {
        let mut world = World::new(40);
        world.is_one_host = true;
        for index in 0..2 {
            let mut one = settings(index, if index == 0 { &[] } else { &[0] });
            one.place = place;
            world.add(one);
        }
        world.run(60 * SECOND);
        world.silence(0, 1);
        world.run_until(most * SECOND, "given up by both", |world| {
            let is_silent =
                |event: &Event| matches!(event, Event::PeerDown { reason: Reason::Silent, .. });
            (0..2).all(|index| world.count(index, is_silent) == 1)
        });
    }
}

#[test]
fn who_is_spoken_to_after_a_rest_and_is_dead_is_given_up_within_three_seconds() {
    let mut world = World::new(36);
    world.add(settings(0, &[]));
    world.add(settings(1, &[0]));
    world.run(60 * SECOND);
    world.silence(0, 1);
    let start = world.now;
    world.node(0).send(id(1), b"hello", with_ack(), start).unwrap();
    world.run_until(5 * SECOND, "given up", |world| {
        world.count(0, |event| *event == Event::PeerDown { id: id(1), reason: Reason::Silent }) == 1
    });
    assert!(world.now.since(start) < Duration::from_millis(3100));
}

#[test]
fn who_leaves_does_not_wait_for_the_mute() {
    let mut world = World::new(37);
    world.add(settings(0, &[]));
    world.add(settings(1, &[0]));
    world.add(settings(2, &[0]));
    world.run(3 * SECOND);
    let now = world.now;
    world.node(1).connect_direct(id(2), SECOND, now).unwrap();
    world.run(SECOND);
    world.silence(0, 1);
    world.silence(1, 2);
    let start = world.now;
    world.node(1).leave(start);
    world.run_until(5 * SECOND, "it is gone", |world| {
        world.count(1, |event| *event == Event::Gone) == 1
    });
    assert!(world.now.since(start) < Duration::from_millis(3500));
}

#[test]
fn a_direct_connection_whose_other_side_says_farewell_and_stays_is_closed() {
    let mut world = World::new(38);
    world.add(settings(0, &[]));
    for index in 1..=2 {
        let mut one = settings(index, &[0]);
        one.direct_idle = SECOND;
        one.leave = 10 * SECOND;
        world.add(one);
    }
    world.run(3 * SECOND);
    let now = world.now;
    world.node(1).connect_direct(id(2), SECOND, now).unwrap();
    world.run(Duration::from_millis(100));
    let both = |world: &mut World| world.node(1).peers().filter(|peer| peer.id == id(2)).count();
    assert_eq!(both(&mut world), 1);
    let now = world.now;
    world.node(2).leave(now);
    world.run(Duration::from_millis(1));
    world.silence(1, 2);
    world.run(20 * SECOND);
    assert_eq!(both(&mut world), 0);
}

#[test]
fn a_node_without_siblings_refuses_them_and_takes_children() {
    let mut world = World::new(40);
    world.add(settings(0, &[]));
    let mut alone = settings(1, &[0]);
    alone.has_siblings = false;
    world.add(alone);
    world.add(settings(2, &[0]));
    world.add(settings(3, &[1]));
    world.run(3 * SECOND);
    let now = world.now;
    world.node(2).connect_direct(id(1), SECOND, now).unwrap();
    world.run(SECOND);
    let peers: Vec<_> = world.node(1).peers().map(|peer| peer.id).collect();
    assert!(peers.contains(&id(0)) && peers.contains(&id(3)), "{peers:?}");
    assert!(!peers.contains(&id(2)), "{peers:?}");
    let refused = |event: &Event| matches!(event, Event::Refused { reason: Reason::IdRefused, id: of, .. } if *of == id(2));
    assert_eq!(world.count(1, refused), 1, "{:?}", world.events(1));
    // It dials others nevertheless.
    let now = world.now;
    world.node(1).connect_direct(id(2), SECOND, now).unwrap();
    world.run(SECOND);
    assert!(world.node(1).peers().any(|peer| peer.id == id(2)));
}

#[test]
fn who_has_just_come_is_answered_from_above() {
    let mut world = World::new(39);
    for upstreams in [&[][..], &[0], &[1]] {
        let index = world.nodes.len();
        world.add(settings(index, upstreams));
    }
    world.run(3 * SECOND);
    let mut guest = settings(9, &[2]);
    guest.id = NodeId::NONE;
    guest.urls.clear();
    let guest = world.add(guest);
    // It asks with its first frame: its announcement and the question go up together.
    world.run_until(SECOND, "let in", |world| world.node(guest).upstream().is_some());
    let now = world.now;
    let seq = world.node(guest).command(id(0), &["bus.ping"], SECOND, now).unwrap();
    world.run(SECOND);
    let is_answer = |event: &Event| matches!(event, Event::Result { seq: at, .. } if *at == seq);
    assert_eq!(world.count(guest, is_answer), 1, "{:?}", world.events(guest).last());
}
