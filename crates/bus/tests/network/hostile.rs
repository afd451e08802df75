//! What peers can make a node keep, lose or believe: bounds, shares, and who may send what.

use crate::liar::{Lab, announce, entry, line, message};
use crate::world::{World, id, settings};
use keyway_bus::frame::{Channel, FRAGMENT_LEN, Head, Kind, flags};
use keyway_bus::{Event, IdRange, Node, NodeId, Reason, SendFault, SendOptions, Settings, Stamp};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

impl Lab {
    /// Lets seconds pass. In each of them the peers `alive` send something.
    pub fn pass(&mut self, seconds: u64, alive: &[usize]) {
        for _ in 0..seconds {
            self.now = self.now + SECOND;
            for at in alive {
                if self.is_there(*at) {
                    let ping = Head::plain(Kind::Ping, NodeId::NONE, NodeId::NONE);
                    self.say(*at, &ping, &[0; 8]);
                }
            }
            self.node.handle_timeout(self.now);
        }
    }

    /// Carries the output of both sides of a connection, until there is none.
    pub fn converse(&mut self, at: usize) {
        for _ in 0..10_000 {
            let (end, mut out) = (&mut self.ends[at], Vec::new());
            end.other.poll_output(end.there, &mut out, 64 << 10, self.now);
            self.node.handle_input(end.here, &out, self.now);
            let mut back = Vec::new();
            self.node.poll_output(end.here, &mut back, 64 << 10, self.now);
            end.other.handle_input(end.there, &back, self.now);
            if out.is_empty() && back.is_empty() {
                return;
            }
        }
        panic!("they do not come to rest");
    }

    /// Returns a count of `bus.stats`.
    pub fn stat(&mut self, name: &str) -> u64 {
        let own = self.node.id();
        self.node.command(own, &["bus.stats"], SECOND, self.now).unwrap();
        let events = self.events();
        let Some(Event::Result { items, .. }) = events.last() else { panic!("{events:?}") };
        let lines = items.iter().map(|item| std::str::from_utf8(item).unwrap());
        let value = lines.filter_map(|line| line.strip_prefix(name)?.trim().parse().ok()).next();
        value.unwrap_or_else(|| panic!("no {name}"))
    }
}

pub fn failure(src: NodeId, to: NodeId, seq: u64, of: NodeId) -> (Head, Vec<u8>) {
    let mut body = of.0.to_le_bytes().to_vec();
    body.extend(src.0.to_le_bytes());
    body.extend((Reason::Unreachable as u16).to_le_bytes());
    body.push(Kind::Message as u8);
    (Head { kind: Kind::Failure, seq, ..message(src, to, 0) }, body)
}

pub fn first_of(len: u32) -> Vec<u8> {
    [&len.to_le_bytes()[..], &[7; 100]].concat()
}

pub const FIRST: u16 = flags::FRAGMENT | flags::FIRST;

#[test]
fn parts_that_stand_still_give_their_memory_back_and_their_sender_hears_of_it() {
    let mut one = settings(0, &[]);
    one.message_len_max = 1 << 20;
    one.assembly_len_max = 1 << 20;
    let mut lab = Lab::new(one);
    let (liar, other) = (lab.join(settings(1, &[0])), lab.join(settings(2, &[0])));
    lab.told(liar);
    let begin = Head { flags: FIRST, ..message(id(1), id(0), 5) };
    lab.say(liar, &begin, &first_of(1 << 20));
    lab.pass(29, &[liar, other]);
    assert!(lab.told(liar).iter().all(|told| told.head.kind != Kind::Failure));
    lab.pass(3, &[liar, other]);
    let told = lab.told(liar);
    assert_eq!((told.len(), told[0].head.kind, told[0].head.seq), (1, Kind::Failure, 5));
    assert_eq!(told[0].body[16..18], (Reason::Stalled as u16).to_le_bytes());
    lab.say(other, &Head { src: id(2), ..begin }, &first_of(1 << 20));
    assert!(lab.told(other).iter().all(|told| told.head.kind != Kind::Failure), "no memory");
    assert_eq!(lab.node.counts().stalled, 1);
}

#[test]
fn a_push_that_stands_still_ends_its_connection() {
    let mut lab = Lab::new(settings(1, &[0]));
    let upstream = lab.serve(settings(0, &[]));
    let begin = Head { flags: FIRST, ..Head::plain(Kind::Push, id(0), id(1)) };
    lab.say(upstream, &begin, &first_of(1 << 20));
    lab.pass(32, &[upstream]);
    assert!(lab.events().contains(&Event::PeerDown { id: id(0), reason: Reason::Stalled }));
}

#[test]
fn a_failure_from_where_the_message_did_not_go_ends_nobody_s_waiting() {
    let mut lab = Lab::of(0);
    let (liar, victim) = (lab.join(settings(1, &[0])), lab.join(settings(2, &[0])));
    let options = SendOptions { ack_within: Some(60 * SECOND), no_upstream: false };
    let awaited = lab.node.send(id(2), b"hello", options, lab.now).unwrap();
    let plain = lab.node.send(id(2), b"hello", SendOptions::default(), lab.now).unwrap();
    lab.events();
    let says = |lab: &mut Lab, at: usize, src: NodeId, seq: u64| {
        let (head, body) = failure(src, id(0), seq, id(2));
        lab.say(at, &Head { flags: flags::ACK, ..head }, &body);
        lab.say(at, &head, &body);
        lab.events()
    };
    assert_eq!(says(&mut lab, liar, id(2), awaited), [], "as the other node, with and without ACK");
    assert_eq!(says(&mut lab, liar, id(2), plain + 1), [], "of what was never sent");
    // This one is not waited for: it is reported as uncertain.
    let told = says(&mut lab, liar, id(1), plain);
    assert!(matches!(told[..], [Event::Failed { maybe: true, .. }]), "{told:?}");
    lab.say(victim, &Head { kind: Kind::Ack, ..message(id(2), id(0), awaited) }, &[]);
    assert_eq!(lab.events(), [Event::Acked { seq: awaited }]);
    let told = says(&mut lab, victim, id(2), plain);
    assert!(matches!(told[..], [Event::Failed { maybe: false, .. }]), "{told:?}");
}

#[test]
fn a_relay_marks_failures_that_are_not_from_the_way_of_their_message() {
    let mut lab = Lab::of(0);
    let ends = [1, 2, 3].map(|index| lab.join(settings(index, &[0])));
    lab.told(ends[2]);
    let relayed = |lab: &mut Lab, at: usize, src: NodeId| {
        let (head, body) = failure(src, id(3), 9, id(2));
        lab.say(at, &head, &body);
        let told = lab.told(ends[2]);
        assert_eq!((told.len(), told[0].head.kind), (1, Kind::Failure));
        told[0].head.has(flags::UNPROVEN)
    };
    assert!(relayed(&mut lab, ends[0], id(2)) && relayed(&mut lab, ends[0], id(0)));
    assert!(!relayed(&mut lab, ends[1], id(2)));
    // A node that was there a moment ago may have sent it before.
    announce(&mut lab, ends[0], id(1), &entry(id(7), id(1), 1 << 20));
    announce(&mut lab, ends[0], id(1), &[&[1, 0, 0][..], &id(7).0.to_le_bytes()].concat());
    let (head, body) = failure(id(1), id(3), 9, id(7));
    lab.say(ends[0], &head, &body);
    assert!(!lab.told(ends[2])[0].head.has(flags::UNPROVEN));
}

#[test]
fn word_of_what_was_applied_is_from_who_says_it_or_those_below() {
    let mut lab = Lab::of(0);
    let (liar, _) = (lab.join(settings(1, &[0])), lab.join(settings(2, &[0])));
    lab.node.publish("pools", Stamp { epoch: 1, version: 1 }, vec![1]).unwrap();
    lab.events();
    let mut body = b"\x05pools".to_vec();
    body.extend([1u64, 1].iter().flat_map(|number| number.to_le_bytes()));
    body.push(1);
    let word = |src: NodeId| Head { kind: Kind::Applied, ..message(src, id(0), 0) };
    lab.say(liar, &word(id(2)), &body);
    assert_eq!((lab.events(), lab.node.laggards("pools").len()), (vec![], 2));
    // Word that comes before its sender was announced counts once it is announced.
    lab.say(liar, &word(id(7)), &body);
    assert_eq!(lab.events(), []);
    announce(&mut lab, liar, id(1), &entry(id(7), id(1), 1 << 20));
    let events = lab.events();
    let is_word = |event: &Event| matches!(event, Event::Applied { node, .. } if *node == id(7));
    assert!(events.iter().any(is_word), "{events:?}");
}

#[test]
fn silent_strangers_keep_nobody_out_and_are_gone_after_five_seconds() {
    let mut one = settings(0, &[]);
    one.peers_max = 64;
    let mut lab = Lab::new(one);
    let first = lab.node.handle_accepted(&line(9), lab.now).unwrap();
    for _ in 1..16 {
        lab.node.handle_accepted(&line(9), lab.now).unwrap();
    }
    assert_eq!(lab.node.peers().count(), 16);
    let child = lab.join(settings(1, &[0]));
    assert!(lab.is_there(child) && lab.node.peers().all(|peer| peer.peer != first));
    let strangers = |lab: &Lab| lab.node.peers().filter(|peer| !peer.is_open).count();
    assert_eq!(strangers(&lab), 15);
    // Accepted peers keep their places, however many strangers come.
    for _ in 0..1000 {
        lab.node.handle_accepted(&line(9), lab.now).unwrap();
    }
    assert!(lab.is_there(child) && strangers(&lab) <= 16);
    let refused = |event: &Event| matches!(event, Event::Refused { .. });
    let events = lab.events();
    assert_eq!(events.iter().filter(|event| refused(event)).count(), 10, "the log is not flooded");
    lab.pass(5, &[child]);
    assert_eq!(strangers(&lab), 0);
    let unsaid = |event: &Event| match event {
        Event::Unsaid { count } => *count,
        _ => 0,
    };
    lab.pass(2, &[child]);
    let events = lab.events();
    let told = events.iter().filter(|event| refused(event)).count() as u64 + 10;
    let left_out: u64 = events.iter().map(unsaid).sum();
    assert_eq!(told + left_out, lab.node.counts().strangers_refused);
}

/// Announces `count` nodes from `first` on, below `by`.
pub fn announce_many(lab: &mut Lab, at: usize, by: NodeId, first: u64, count: u64) {
    let nodes: Vec<u64> = (first..first + count).collect();
    for some in nodes.chunks(100) {
        let mut body = (some.len() as u16).to_le_bytes().to_vec();
        for node in some {
            body.extend(&entry(NodeId::of(1, 4, 1, *node).unwrap(), by, 1 << 20)[2..]);
        }
        announce(lab, at, by, &body);
        // This gives it credit for more.
        lab.told(at);
    }
}

#[test]
fn a_child_that_announces_everybody_leaves_room_for_the_others() {
    let mut one = settings(0, &[]);
    one.nodes_max = 100;
    let mut lab = Lab::new(one);
    let (liar, honest) = (lab.join(settings(1, &[0])), lab.join(settings(2, &[0])));
    announce_many(&mut lab, liar, id(1), 1, 1000);
    assert!(lab.node.nodes_below().count() <= 52);
    announce_many(&mut lab, honest, id(2), 5000, 20);
    let below = lab.node.nodes_below().filter(|(_, parent)| *parent == id(2)).count();
    assert_eq!(below, 20);
    // A connected node has its place in any case.
    let late = lab.join(settings(3, &[0]));
    assert!(lab.is_there(late) && lab.node.nodes_below().any(|(node, _)| node == id(3)));
}

#[test]
fn a_large_tree_attaches_with_a_short_queue() {
    let mut one = settings(1, &[0]);
    one.queue_len_max = 64 << 10;
    one.queues_len_max = one.message_len_max;
    let mut lab = Lab::new(one);
    let child = lab.join(settings(2, &[1]));
    announce_many(&mut lab, child, id(2), 1, 20_000);
    assert_eq!(lab.node.nodes_below().count(), 20_001);
    let upstream = lab.serve(settings(0, &[]));
    lab.converse(upstream);
    assert!(lab.is_there(upstream));
    assert_eq!(lab.ends[upstream].other.nodes_below().count(), 20_002);
}

#[test]
fn a_node_speaks_up_although_its_announcement_waits() {
    let mut lab = Lab::new(settings(1, &[0]));
    let child = lab.join(settings(2, &[1]));
    announce_many(&mut lab, child, id(2), 1, 20_000);
    let upstream = lab.serve(settings(0, &[]));
    // This is the last of them all, before its turn.
    let last = NodeId::of(1, 4, 1, 20_000).unwrap();
    lab.say(child, &message(last, id(0), 1), b"hello");
    lab.converse(upstream);
    let other = &mut lab.ends[upstream].other;
    let events: Vec<Event> = std::iter::from_fn(|| other.poll_event()).collect();
    assert!(
        events.iter().any(|event| matches!(event, Event::Message { from, .. } if *from == last))
    );
}

#[test]
fn who_is_alive_keeps_its_id() {
    let mut lab = Lab::of(0);
    let mut later = settings(1, &[0]);
    later.incarnation = 9 << 20;
    let incumbent = lab.join(settings(1, &[0]));
    let newcomer = lab.join(later.clone());
    let third = lab.join(later);
    assert!(!lab.is_there(third), "one at a time");
    assert!(lab.is_there(incumbent) && lab.is_there(newcomer));
    lab.events();
    lab.converse(incumbent);
    assert!(lab.is_there(incumbent) && !lab.is_there(newcomer));
    assert_eq!(lab.events(), [Event::Refused { id: id(1), from: None, reason: Reason::IdInUse }]);
}

#[test]
fn the_same_node_come_back_is_let_in_when_its_old_connection_is_dead() {
    let mut lab = Lab::of(0);
    let dead = lab.join(settings(1, &[0]));
    let again = lab.join(settings(1, &[0]));
    lab.events();
    lab.pass(1, &[]);
    assert!(lab.is_there(dead));
    lab.now = lab.now + SECOND;
    lab.node.handle_timeout(lab.now);
    assert!(!lab.is_there(dead));
    lab.converse(again);
    assert!(lab.events().contains(&Event::PeerDown { id: id(1), reason: Reason::Replaced }));
    assert!(lab.node.peers().any(|peer| peer.id == id(1) && peer.is_open));
    // A node whose old connection ends while that is asked need not wait.
    let third = lab.join(settings(1, &[0]));
    let old = lab.ends[again].here;
    lab.node.handle_closed(old, None, lab.now);
    lab.converse(third);
    assert!(lab.node.peers().any(|peer| peer.id == id(1) && peer.is_open));
}

#[test]
fn two_processes_with_one_id_below_are_told_of() {
    let mut lab = Lab::of(0);
    let (one, two) = (lab.join(settings(1, &[0])), lab.join(settings(2, &[0])));
    announce(&mut lab, one, id(1), &entry(id(7), id(1), 1 << 20));
    let mut other = entry(id(7), id(2), 2 << 20);
    other[27..35].copy_from_slice(&(2u64 << 20).to_le_bytes());
    announce(&mut lab, two, id(2), &other);
    let twice = Event::Refused { id: id(7), from: None, reason: Reason::IdTwice };
    lab.pass(8, &[one, two]);
    assert!(!lab.events().contains(&twice), "the first may not have missed it yet");
    lab.pass(8, &[one, two]);
    let events = lab.events();
    assert_eq!(events.iter().filter(|event| **event == twice).count(), 1, "{events:?}");
}

#[test]
fn long_results_go_among_messages_and_short_ones_ahead() {
    let mut lab = Lab::of(0);
    let child = lab.join(settings(1, &[0]));
    lab.told(child);
    let items = |len: usize| [vec![0u8; len]];
    lab.node.send(id(1), &[0; 60_000], SendOptions::default(), lab.now).unwrap();
    let mut noise = 1u32;
    let mut long = items(3 * FRAGMENT_LEN);
    long[0].iter_mut().for_each(|byte| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = (noise >> 24) as u8;
    });
    lab.node.reply(id(1), 5, 0, &long, lab.now).unwrap();
    lab.node.reply(id(1), 6, 0, &items(10), lab.now).unwrap();
    let told: Vec<(Kind, u64, Channel)> = lab
        .told(child)
        .iter()
        .map(|told| (told.head.kind, told.head.seq, told.head.channel()))
        .collect();
    assert_eq!(told[0], (Kind::Result, 6, Channel::Control));
    assert_eq!(told[1].0, Kind::Message);
    assert_eq!(told[2..].len(), 4);
    assert!(told[2..].iter().all(|one| *one == (Kind::Result, 5, Channel::Data)));
}

#[test]
fn who_asked_hears_of_a_result_that_is_too_long_on_its_way() {
    let mut one = settings(0, &[]);
    one.message_len_max = 1 << 20;
    let mut lab = Lab::new(one);
    let (asker, answerer) = (lab.join(settings(1, &[0])), lab.join(settings(2, &[0])));
    lab.told(asker);
    let head = Head { kind: Kind::Result, flags: FIRST, ..message(id(2), id(1), 9) };
    lab.say(answerer, &head, &first_of(2 << 20));
    let told = lab.told(asker);
    assert_eq!((told.len(), told[0].head.kind, told[0].head.seq), (1, Kind::Failure, 9));
    assert_eq!(told[0].body[..8], id(2).0.to_le_bytes());
    assert_eq!(told[0].body[16..18], (Reason::TooLarge as u16).to_le_bytes());
    assert_eq!(told[0].body[18], Kind::Command as u8);
    assert!(told[0].head.has(flags::MAYBE), "the command was done");
}

#[test]
fn kept_failures_are_given_up_after_a_minute_and_counted() {
    let mut lab = Lab::of(0);
    let child = lab.join(settings(1, &[0]));
    let (head, body) = failure(id(1), id(77), 9, id(1));
    lab.say(child, &head, &body);
    assert_eq!(lab.stat("parked_failures"), 1);
    lab.pass(58, &[child]);
    assert_eq!(lab.stat("parked_failures"), 1);
    lab.pass(3, &[child]);
    assert_eq!((lab.stat("parked_failures"), lab.stat("untold_failures")), (0, 1));
}

#[test]
fn a_guest_is_let_in_where_its_id_would_be() {
    let guest = || {
        let mut guest = settings(1, &[0]);
        guest.id = NodeId::NONE;
        guest
    };
    let mut one = settings(0, &[]);
    one.accept = vec!["z1.proxy".parse::<IdRange>().unwrap()];
    let mut lab = Lab::new(one.clone());
    let at = lab.join(guest());
    assert!(!lab.is_there(at));
    let child = lab.join(settings(2, &[0]));
    let below = NodeId::guest(id(0), 5);
    announce(&mut lab, child, id(2), &entry(below, id(2), 1 << 20));
    assert!(lab.node.nodes_below().all(|(node, _)| node != below));
    one.accept.push("z1.guest".parse().unwrap());
    let mut lab = Lab::new(one);
    let at = lab.join(guest());
    assert!(lab.is_there(at));
    let child = lab.join(settings(2, &[0]));
    announce(&mut lab, child, id(2), &entry(below, id(2), 1 << 20));
    assert!(lab.node.nodes_below().any(|(node, _)| node == below));
}

pub fn queued(node: &Node) -> usize {
    node.peers().map(|peer| peer.queued_len).sum()
}

#[test]
fn all_queues_have_one_bound_and_none_has_it_alone() {
    let mut one = settings(0, &[]);
    one.message_len_max = 1 << 20;
    one.queues_len_max = 8 << 20;
    let mut lab = Lab::new(one);
    let ends: Vec<usize> = (1..=8).map(|index| lab.join(settings(index, &[0]))).collect();
    let mut sent = [0; 8];
    for (at, sent) in sent.iter_mut().enumerate() {
        let refused = loop {
            match lab.node.send(id(at + 1), &[at as u8; 900], SendOptions::default(), lab.now) {
                Ok(_) => *sent += 1,
                Err(fault) => break fault,
            }
        };
        assert_eq!(refused, SendFault::Refused(Reason::Full));
    }
    assert!(sent.iter().all(|sent| *sent > 10), "{sent:?}");
    assert!(queued(&lab.node) <= 8 << 20);
    // A peer's frames meanwhile are still refused with a reason.
    lab.say(ends[0], &message(id(1), id(8), 1), &[7; 60_000]);
    let told = lab.told(ends[0]);
    let is_word = |kind: Kind| told.iter().any(|told| told.head.kind == kind);
    assert!(is_word(Kind::Failure) && is_word(Kind::Message));
    // Sent and untaken frames are remembered, and count.
    for end in &ends {
        lab.told(*end);
    }
    assert!(queued(&lab.node) < 8 << 20);
    for end in ends {
        lab.converse(end);
    }
    for index in 1..=8 {
        lab.node.send(id(index), &[1; 60_000], SendOptions::default(), lab.now).unwrap();
    }
}

#[test]
fn what_is_sent_and_never_taken_fills_the_bound_as_well() {
    let mut one = settings(0, &[]);
    one.message_len_max = 1 << 20;
    one.queues_len_max = 1 << 20;
    let mut lab = Lab::new(one);
    let child = lab.join(settings(1, &[0]));
    let mut credit = vec![2u8];
    credit.extend([0u64, 64 << 20].iter().flat_map(|number| number.to_le_bytes()));
    lab.say(child, &Head::plain(Kind::Credit, id(1), id(0)), &credit);
    let refused = (0..200_000).find_map(|_| {
        let sent = lab.node.send(id(1), b"x", SendOptions::default(), lab.now);
        lab.told(child);
        sent.err()
    });
    assert_eq!(refused, Some(SendFault::Refused(Reason::Full)));
    assert_eq!(queued(&lab.node), 0);
}

#[test]
fn a_topic_that_was_withdrawn_is_nowhere() {
    let mut world = World::new(31);
    for upstreams in [&[][..], &[0], &[1]] {
        let index = world.nodes.len();
        world.add(settings(index, upstreams));
    }
    world.run(2 * SECOND);
    let stamp = |version| Stamp { epoch: 1, version };
    world.node(0).publish("pools", stamp(1), vec![1; 100_000]).unwrap();
    world.run(SECOND);
    assert!(world.node(2).topic("pools").is_some());
    let now = world.now;
    assert_eq!(world.node(0).withdraw("pools", stamp(1), now), Err(SendFault::Stale));
    world.node(0).withdraw("pools", stamp(2), now).unwrap();
    world.run(SECOND);
    for index in 0..3 {
        assert!(world.node(index).topic("pools").is_none(), "node {index}");
    }
    let gone = Event::Withdrawn { topic: "pools".to_owned(), epoch: 1, version: 2 };
    assert_eq!(world.count(2, |event| *event == gone), 1);
    // A topic that is published again is a topic as before.
    world.node(0).publish("pools", stamp(3), vec![3]).unwrap();
    world.run(SECOND);
    assert_eq!(world.node(2).topic("pools").map(|(stamp, _)| stamp), Some(stamp(3)));
    let now = world.now;
    world.node(0).withdraw("pools", stamp(4), now).unwrap();
    world.run(700 * SECOND);
    world.node(0).publish("pools", stamp(1), vec![3]).unwrap();
    world.run(SECOND);
    assert!(world.node(2).topic("pools").is_some(), "it was forgotten, stamp and all");
}

#[test]
fn the_settings_have_a_fault_for_each_bound_that_cannot_be() {
    let mut bad: Settings = settings(0, &[]);
    bad.handshake = 61 * SECOND;
    bad.parts_idle = Duration::ZERO;
    bad.queues_len_max = 1000;
    assert_eq!(bad.faults().len(), 3);
}
