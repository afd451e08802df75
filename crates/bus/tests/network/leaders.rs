//! Nodes at the top that change places: one is the root, the others are below it, and members are
//! below two of them.

use crate::world::{World, id, settings, url};
use keyway_bus::{Event, SendOptions, Stamp, Upstream};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Three nodes at the top, of which nobody leads, and four members: each is below two of them.
fn fleet(seed: u64) -> World {
    let mut world = World::new(seed);
    for top in 0..3 {
        world.add(settings(top, &[]));
        let now = world.now;
        world.node(top).set_upstreams(Vec::new(), true, now);
    }
    for (member, upstreams) in [(3, [0, 1]), (4, [1, 2]), (5, [2, 0]), (6, [1, 0])] {
        world.add(settings(member, &upstreams));
    }
    world.run(SECOND);
    world
}

/// Makes one node the root, and the others that are alive go below it.
fn lead(world: &mut World, leader: usize) {
    let now = world.now;
    for top in (0..3).filter(|top| world.nodes[*top].is_some()).collect::<Vec<_>>() {
        let upstream = Upstream { id: id(leader), urls: vec![url(leader)] };
        let upstreams = if top == leader { Vec::new() } else { vec![upstream] };
        world.node(top).set_upstreams(upstreams, top != leader, now);
    }
}

fn publish(world: &mut World, leader: usize, epoch: u64) {
    let stamp = Stamp { epoch, version: 1 };
    world.node(leader).publish("fleet", stamp, format!("epoch {epoch}").into_bytes()).unwrap();
}

fn assert_all_have(world: &mut World, epoch: u64, leader: usize) {
    for member in 3..7 {
        let found = world.node(member).latest("fleet");
        assert_eq!(found, Some(Stamp { epoch, version: 1 }), "member {member} in epoch {epoch}");
        // Word of it goes up to the leader, whichever way it is.
        let now = world.now;
        let options = SendOptions { ack_within: Some(SECOND), no_upstream: false };
        let seq = world.node(member).send(id(leader), b"report", options, now).unwrap();
        world.run(SECOND);
        assert_eq!(
            world.count(member, |event| *event == Event::Acked { seq }),
            1,
            "member {member} in epoch {epoch}"
        );
    }
}

#[test]
fn whoever_leads_reaches_all_members_and_hears_of_them() {
    for seed in 0..10 {
        let mut world = fleet(seed);
        assert!((0..7).all(|at| world.node(at).is_cut_off()), "nobody leads");
        for (epoch, leader) in [(1, 0), (2, 1), (3, 2), (4, 0), (5, 2)] {
            lead(&mut world, leader);
            publish(&mut world, leader, epoch);
            world.run(8 * SECOND);
            assert!((0..7).all(|at| !world.node(at).is_cut_off()), "epoch {epoch}");
            assert_all_have(&mut world, epoch, leader);
        }
    }
}

/// The leader dies: members have what the next one publishes within the time that it takes them to
/// find another way.
#[test]
fn a_leader_that_dies_is_followed_by_another_within_three_seconds() {
    for seed in 0..10 {
        let mut world = fleet(seed);
        lead(&mut world, 0);
        publish(&mut world, 0, 1);
        world.run(8 * SECOND);
        world.kill(0);
        world.run(SECOND / 10);
        lead(&mut world, 1);
        publish(&mut world, 1, 2);
        world.run(3 * SECOND);
        assert_all_have(&mut world, 2, 1);
    }
}

#[test]
fn upstreams_that_stay_the_same_keep_their_connections() {
    let mut world = fleet(1);
    lead(&mut world, 0);
    world.run(8 * SECOND);
    let before = world.node(1).counts().upstream_changes;
    lead(&mut world, 0);
    world.run(SECOND);
    assert_eq!(world.node(1).counts().upstream_changes, before);
    assert_eq!(world.node(1).upstream(), Some(id(0)));
}
