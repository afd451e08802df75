//! Laws that hold for every seed. Each message that wants word gets it once. A message that has
//! certainly failed has not arrived. Nothing arrives twice, nor after a later one of its sender.
//! Once links are whole again, every loss is reported (except what died with a process, to senders
//! that do not wait for word), and all nodes have the same version of all topics.

use crate::world::{World, id, settings};
use keyway_bus::{Event, NodeId, SendOptions, Stamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const NODES: usize = 7;
const UPSTREAMS: [&[usize]; NODES] = [&[], &[0], &[0], &[1, 2], &[2, 1], &[1, 2], &[3, 4]];

struct Sent {
    from: usize,
    to: usize,
    wants_word: bool,
}

#[derive(Default)]
struct Outcome {
    acked: usize,
    failed: usize,
    failed_for_certain: usize,
    delivered: usize,
}

fn step(world: &mut World, sent: &mut BTreeMap<(usize, u64), Sent>, published: &mut u64) {
    let (now, choice) = (world.now, world.random.below(100));
    let (a, b) =
        (world.random.below(NODES as u64) as usize, world.random.below(NODES as u64) as usize);
    match choice {
        0..=59 => {
            let wants_word = world.random.below(2) == 0;
            let len = match world.random.below(20) {
                0 => 200_000,
                1..=3 => 5_000,
                _ => 40,
            };
            let body: Vec<u8> = (0..len).map(|_| world.random.next() as u8).collect();
            let ack_within = wants_word.then_some(Duration::from_secs(4));
            let options = SendOptions { ack_within, no_upstream: false };
            if let Ok(seq) = world.node(a).send(id(b), &body, options, now) {
                sent.insert((a, seq), Sent { from: a, to: b, wants_word });
            }
        }
        60..=66 => world.reset(a, b),
        67..=70 => world.silence(a, b),
        71..=76 => world.heal(),
        77..=82 => {
            *published += 1;
            let body = vec![*published as u8; 1000 + 50 * (*published as usize % 7)];
            let stamp = Stamp { epoch: 1, version: *published };
            world.node(0).publish("config", stamp, body).unwrap();
        }
        83..=86 => {
            let _ = world.node(a).connect_direct(id(b), Duration::from_secs(2), now);
        }
        _ => {
            let span = Duration::from_micros(world.random.below(300_000));
            world.run(span);
        }
    }
    let span = Duration::from_micros(world.random.below(2_000));
    world.run(span);
}

/// Kills a process other than the root's and starts it again a while later.
fn crash(world: &mut World, sent: &mut BTreeMap<(usize, u64), Sent>, starts: &mut u64) {
    let index = 1 + world.random.below(NODES as u64 - 1) as usize;
    world.kill(index);
    // No sender there waits for word any more. What it held for others may be lost, which a sender
    // that does not wait for word is not told.
    sent.retain(|_, message| message.from != index && message.wants_word);
    let span = Duration::from_micros(world.random.below(2_000_000));
    world.run(span);
    *starts += 1;
    let mut again = settings(index, UPSTREAMS[index]);
    again.incarnation += *starts << 20;
    world.restart(index, again);
}

fn play(seed: u64, crashes: bool) {
    let mut world = World::new(seed);
    world.cuts = true;
    for upstreams in UPSTREAMS {
        let mut one = settings(world.nodes.len(), upstreams);
        one.direct_idle = Duration::from_secs(3);
        world.add(one);
    }
    world.run(Duration::from_secs(3));
    let (mut sent, mut published, mut starts) = (BTreeMap::new(), 0, 1);
    for number in 0..250 {
        if crashes && number % 40 == 39 {
            crash(&mut world, &mut sent, &mut starts);
        }
        step(&mut world, &mut sent, &mut published);
    }
    world.heal();
    world.run(Duration::from_secs(30));
    if crashes {
        sent.retain(|_, message| message.wants_word);
    }
    check(&mut world, &sent, published, seed, crashes);
}

fn check(
    world: &mut World,
    sent: &BTreeMap<(usize, u64), Sent>,
    published: u64,
    seed: u64,
    crashes: bool,
) {
    let mut outcomes: BTreeMap<(usize, u64), Outcome> = BTreeMap::new();
    let index_of: BTreeMap<NodeId, usize> = (0..NODES).map(|index| (id(index), index)).collect();
    let lives = world.log.events.iter().map(|(index, events)| (*index, events));
    for (index, events) in
        lives.chain(world.log.past.iter().map(|(index, events)| (*index, events)))
    {
        let mut last: BTreeMap<NodeId, u64> = BTreeMap::new();
        for event in events {
            match event {
                Event::Message { from, seq, .. } => {
                    let before = last.insert(*from, *seq);
                    assert!(
                        before < Some(*seq),
                        "seed {seed}: {from} {seq} came behind {before:?}"
                    );
                    outcomes.entry((index_of[from], *seq)).or_default().delivered += 1;
                }
                Event::Acked { seq } => outcomes.entry((index, *seq)).or_default().acked += 1,
                Event::Failed { seq, maybe, .. } => {
                    let one = outcomes.entry((index, *seq)).or_default();
                    one.failed += 1;
                    one.failed_for_certain += usize::from(!maybe);
                }
                _ => {}
            }
        }
    }
    for key in outcomes.keys() {
        assert!(crashes || sent.contains_key(key), "seed {seed}: nobody sent {key:?}");
    }
    let none = Outcome::default();
    for (key, message) in sent {
        let one = outcomes.get(key).unwrap_or(&none);
        let shown = format!(
            "seed {seed}: {key:?} from {} to {}: acked {} failed {} delivered {}",
            message.from, message.to, one.acked, one.failed, one.delivered
        );
        assert!(one.delivered <= 1, "twice: {shown}");
        assert!(one.failed_for_certain == 0 || one.delivered == 0, "failed and arrived: {shown}");
        assert!(one.acked == 0 || one.delivered == 1, "acked and not there: {shown}");
        match message.wants_word {
            true => assert_eq!(one.acked + one.failed, 1, "word: {shown}"),
            false => assert!(one.delivered + one.failed >= 1, "lost without a word: {shown}"),
        }
    }
    let stamp = (published > 0).then_some(Stamp { epoch: 1, version: published });
    for index in 0..NODES {
        let has = world.node(index).topic("config").map(|(stamp, _)| stamp);
        assert_eq!(has, stamp, "seed {seed}: node {index}");
    }
    let below: BTreeSet<NodeId> = world.node(0).nodes_below().map(|(id, _)| id).collect();
    assert_eq!(below.len(), NODES - 1, "seed {seed}: the root knows {below:?}");
    assert_eq!(world.node(0).laggards("config"), [], "seed {seed}");
    for index in 0..NODES {
        assert_eq!(world.node(index).counts().untold_failures, 0, "seed {seed}: node {index}");
    }
}

fn play_all(crashes: bool) {
    let number = |name: &str, default: u64| {
        let set = std::env::vars().find(|(known, _)| known == name);
        set.map_or(default, |(_, value)| value.parse().unwrap())
    };
    let from = number("KEYWAY_BUS_FROM", 0);
    for seed in from..from + number("KEYWAY_BUS_SEEDS", 60) {
        play(seed, crashes);
    }
}

#[test]
fn the_laws_hold_whatever_links_do() {
    play_all(false);
}

#[test]
fn the_laws_hold_when_processes_die() {
    play_all(true);
}
