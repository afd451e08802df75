//! Topics with peers that are slow, lie, or have less room.

use crate::hostile::queued;
use crate::liar::Lab;
use crate::world::{Random, World, id, settings};
use keyway_bus::frame::{Head, Kind};
use keyway_bus::{Event, Reason, SendFault, SendOptions, Settings, Stamp};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn stamp(version: u64) -> Stamp {
    Stamp { epoch: 1, version }
}

/// Returns bytes that do not compress, and differ for each seed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    std::iter::repeat_with(|| random.next() as u8).take(len).collect()
}

fn have(lab: &mut Lab, at: usize, is_all: bool, entries: &[(&str, u64, bool)]) {
    let mut body = vec![u8::from(is_all)];
    body.extend((entries.len() as u16).to_le_bytes());
    for (name, version, is_good) in entries {
        body.push(name.len() as u8);
        body.extend(name.as_bytes());
        body.extend([1, *version].iter().flat_map(|number| number.to_le_bytes()));
        body.push(u8::from(*is_good));
    }
    let (src, dst) = (lab.ends[at].other.id(), lab.node.id());
    lab.say(at, &Head::plain(Kind::Have, src, dst), &body);
}

fn pushes(lab: &Lab) -> u64 {
    lab.node.counts().pushes_full + lab.node.counts().pushes_delta
}

/// Lets a peer have some of its output; it sends nothing.
fn poll_some(lab: &mut Lab, at: usize) {
    let (end, mut out) = (&mut lab.ends[at], Vec::new());
    lab.node.poll_output(end.here, &mut out, 100_000, lab.now);
    end.other.handle_input(end.there, &out, lab.now);
}

#[test]
fn who_says_again_and_again_what_it_lacks_has_one_version_of_a_topic_in_its_queue() {
    let mut lab = Lab::of(0);
    let child = lab.join(settings(1, &[0]));
    lab.node.publish("large", stamp(1), noise(1, 1 << 20)).unwrap();
    lab.node.publish("small", stamp(1), noise(2, 1000)).unwrap();
    for _ in 0..100 {
        have(&mut lab, child, true, &[]);
        have(&mut lab, child, false, &[("large", 0, false), ("small", 0, true)]);
    }
    assert!(lab.is_there(child));
    assert_eq!(pushes(&lab), 2);
    assert!(queued(&lab.node) < (1 << 20) + 5000, "{}", queued(&lab.node));
    // The same holds while that one is on its way.
    poll_some(&mut lab, child);
    for _ in 0..100 {
        have(&mut lab, child, true, &[]);
    }
    assert!(pushes(&lab) <= 3);
    assert!(queued(&lab.node) < (1 << 20) + 5000, "{}", queued(&lab.node));
    lab.converse(child);
    assert_eq!(lab.ends[child].other.topic("large").map(|(stamp, _)| stamp), Some(stamp(1)));
    assert_eq!(lab.ends[child].other.topic("small").map(|(stamp, _)| stamp), Some(stamp(1)));
}

#[test]
fn a_version_that_waits_makes_room_for_the_next() {
    let mut lab = Lab::of(0);
    let child = lab.join(settings(1, &[0]));
    for version in 1..=5 {
        lab.node.publish("large", stamp(version), noise(version, 1 << 20)).unwrap();
    }
    lab.node.publish("short", stamp(1), noise(6, 1000)).unwrap();
    lab.node.withdraw("short", stamp(2), lab.now).unwrap();
    assert!(queued(&lab.node) < (1 << 20) + 5000);
    lab.converse(child);
    let other = &mut lab.ends[child].other;
    let pushed: Vec<Event> = std::iter::from_fn(|| other.poll_event())
        .filter(|event| matches!(event, Event::Push { .. } | Event::Withdrawn { .. }))
        .collect();
    assert!(matches!(&pushed[..], [Event::Push { version: 5, .. }]), "{}", pushed.len());
}

#[test]
fn who_goes_by_another_way_keeps_no_versions_here() {
    let mut lab = Lab::of(0);
    let child = lab.join(settings(1, &[0]));
    lab.node.publish("large", stamp(1), noise(1, 1 << 20)).unwrap();
    let mut goes = vec![0];
    goes.extend(9u64.to_le_bytes());
    lab.say(child, &Head::plain(Kind::Attach, id(1), id(0)), &goes);
    lab.node.publish("large", stamp(2), noise(2, 1 << 20)).unwrap();
    assert_eq!(queued(&lab.node), 0);
}

#[test]
fn old_versions_that_are_being_sent_have_a_bound() {
    let mut one = settings(0, &[]);
    one.topics_len_max = 3 << 20;
    let mut lab = Lab::new(one);
    let ends: Vec<usize> = (1..=8).map(|index| lab.join(settings(index, &[0]))).collect();
    for at in &ends {
        let version = *at as u64 + 1;
        lab.node.publish("large", stamp(version), noise(version, 1 << 20)).unwrap();
        poll_some(&mut lab, *at);
        lab.node.handle_timeout(lab.now);
    }
    // The last has the latest version, and three before it hold the one that was begun.
    let there: Vec<bool> = ends.iter().map(|at| lab.is_there(*at)).collect();
    assert_eq!(there, [false, false, false, false, true, true, true, true]);
    let given_up =
        |event: &&Event| matches!(event, Event::PeerDown { reason: Reason::InboxFull, .. });
    assert_eq!(lab.events().iter().filter(given_up).count(), 4);
    for at in &ends[4..] {
        lab.converse(*at);
        assert_eq!(lab.ends[*at].other.topic("large").unwrap().0, stamp(8));
    }
}

fn few_topics(index: usize, upstreams: &[usize]) -> Settings {
    let mut one = settings(index, upstreams);
    one.topics_max = 2;
    one
}

#[test]
fn topics_come_and_go_for_ever() {
    let mut lab = Lab::new(few_topics(0, &[]));
    let child = lab.join(few_topics(1, &[0]));
    for number in 0..20 {
        let name = format!("t{number}");
        lab.node.publish(&name, stamp(1), vec![1]).unwrap();
        lab.converse(child);
        assert!(lab.ends[child].other.topic(&name).is_some(), "{name}");
        lab.node.withdraw(&name, stamp(2), lab.now).unwrap();
        lab.converse(child);
    }
    // Names that are of no use here are not an error: the child may have come from elsewhere.
    let names: Vec<String> = (0..50).map(|number| format!("other{number}")).collect();
    let entries: Vec<_> = names.iter().map(|name| (name.as_str(), 1, true)).collect();
    have(&mut lab, child, true, &entries);
    lab.node.publish("last", stamp(1), vec![1]).unwrap();
    lab.converse(child);
    assert!(lab.is_there(child) && lab.ends[child].other.topic("last").is_some());
}

#[test]
fn a_topic_that_there_is_no_room_for_is_told_and_asked_for_again() {
    let mut world = World::new(41);
    for upstreams in [&[][..], &[0], &[1]] {
        let index = world.nodes.len();
        let mut one = settings(index, upstreams);
        one.topics_max = if index == 1 { 2 } else { 64 };
        world.add(one);
    }
    world.run(2 * SECOND);
    for name in ["a", "b", "c", "d"] {
        world.node(0).publish(name, stamp(1), noise(1, 100_000)).unwrap();
    }
    world.run(2 * SECOND);
    let unkept = |topic: &str, version| {
        let (topic, reason) = (topic.to_owned(), Reason::TopicsFull);
        Event::Unkept { topic, epoch: 1, version, reason }
    };
    for name in ["c", "d"] {
        assert_eq!(world.count(1, |event| *event == unkept(name, 1)), 1, "{name}");
        let lags = world.node(0).laggards(name);
        assert!(lags.iter().any(|(node, told)| *node == id(1)
            && told.is_some_and(|told| told.stamp == stamp(1) && !told.is_good)));
    }
    let down = |event: &Event| matches!(event, Event::PeerDown { .. });
    assert_eq!((world.count(0, down), world.count(1, down)), (0, 0));
    // It has its turn with the next version, and when there is room.
    world.node(0).publish("c", stamp(2), noise(2, 100_000)).unwrap();
    world.run(SECOND);
    assert_eq!(world.count(1, |event| *event == unkept("c", 2)), 1);
    let now = world.now;
    world.node(0).withdraw("a", stamp(2), now).unwrap();
    world.run(SECOND);
    for index in [1, 2] {
        let has = |world: &mut World, name: &str| world.node(index).topic(name).is_some();
        let all = ["a", "b", "c", "d"].map(|name| has(&mut world, name));
        assert_eq!(all, [false, true, true, false], "node {index}");
    }
    assert!(world.node(0).laggards("c").is_empty());
    assert_eq!((world.count(0, down), world.count(1, down)), (0, 0));
}

#[test]
fn a_node_says_which_of_its_bounds_a_topic_is_over() {
    let mut one = few_topics(0, &[]);
    one.topics_len_max = 1000;
    let mut lab = Lab::new(one);
    let publish =
        |lab: &mut Lab, name: &str, len: usize| lab.node.publish(name, stamp(1), vec![0; len]);
    let full = Err(SendFault::Refused(Reason::TopicsFull));
    assert_eq!(publish(&mut lab, "a", 600), Ok(()));
    assert_eq!(publish(&mut lab, "b", 401), full);
    assert_eq!(publish(&mut lab, "b", 400), Ok(()));
    assert_eq!(publish(&mut lab, "c", 0), full);
    let long = keyway_bus::TOPIC_BODY_MAX + 1;
    let refused = lab.node.publish("a", stamp(2), vec![0; long]);
    assert_eq!(refused, Err(SendFault::Refused(Reason::TooLarge)));
}

#[test]
fn what_was_withdrawn_has_a_stamp_that_the_next_version_is_later_than() {
    let mut lab = Lab::of(0);
    lab.node.publish("a", stamp(1), vec![1]).unwrap();
    assert_eq!(lab.node.latest("a"), Some(stamp(1)));
    lab.node.withdraw("a", stamp(2), lab.now).unwrap();
    assert!(lab.node.topic("a").is_none());
    assert_eq!(lab.node.publish("a", stamp(1), vec![1]), Err(SendFault::Stale));
    let latest = lab.node.latest("a").unwrap();
    assert_eq!(latest, stamp(2));
    lab.node.publish("a", stamp(latest.version + 1), vec![1]).unwrap();
    assert!(lab.node.topic("a").is_some() && lab.node.latest("b").is_none());
}

#[test]
fn small_messages_fill_the_bound_with_all_the_memory_they_take() {
    let mut one = settings(0, &[]);
    one.message_len_max = 1 << 20;
    one.queues_len_max = 1 << 20;
    let mut lab = Lab::new(one);
    lab.join(settings(1, &[0]));
    let sent = (0..100_000)
        .take_while(|_| lab.node.send(id(1), b"x", SendOptions::default(), lab.now).is_ok())
        .count();
    // A frame of 41 bytes has an entry of 40 in a queue that may be half empty; the peer has half
    // of all.
    assert!(sent > 1000 && (sent - 1) * (41 + 80) <= 1 << 19, "{sent}");
}

#[test]
fn a_command_goes_in_parts_and_what_is_too_long_comes_back() {
    let mut world = World::new(42);
    for upstreams in [&[][..], &[0], &[1], &[0]] {
        let index = world.nodes.len();
        let mut one = settings(index, upstreams);
        one.message_len_max = if index == 3 { 1 << 20 } else { 64 << 20 };
        world.add(one);
    }
    world.run(2 * SECOND);
    let now = world.now;
    let long = noise(1, 20 << 20);
    let args = [&b"echo"[..], &long];
    let echo = world.node(2).command(id(0), &args, 20 * SECOND, now).unwrap();
    let over = world.node(2).command(id(3), &args, 20 * SECOND, now).unwrap();
    let refused = world.node(3).command(id(0), &args, 20 * SECOND, now);
    assert_eq!(refused, Err(SendFault::Refused(Reason::TooLarge)));
    // A short one does not wait behind it.
    let ping = world.node(2).command(id(0), &["bus.ping"], SECOND, now).unwrap();
    world.run(10 * SECOND);
    let results: Vec<u64> = world
        .events(2)
        .iter()
        .filter_map(|event| match event {
            Event::Result { seq, .. } => Some(*seq),
            _ => None,
        })
        .collect();
    assert_eq!(results, [ping, echo]);
    let is_echo =
        |event: &Event| matches!(event, Event::Result { items, .. } if items.get(1) == Some(&long));
    assert_eq!(world.count(2, is_echo), 1);
    let (reason, maybe) = (Reason::TooLarge, false);
    let failed = Event::Failed { seq: over, dst: id(3), by: id(3), reason, maybe };
    assert!(world.events(2).contains(&failed));
}
