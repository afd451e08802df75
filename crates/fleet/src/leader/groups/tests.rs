//! A leader with groups.

use super::GroupState;
use crate::groups::{Decided, GroupSettings, Phase, ServerSeen};
use crate::leader::world::{World, id, seen, server, settled, two};
use crate::{Decisions, PublishedGroups, Version};
use std::time::Duration;

#[test]
fn naming_a_primary_after_a_backup_leaves_other_pools_as_members_have_them() {
    let decided = |pool: &str, epoch, primary: &str| Decided {
        pool: pool.to_owned(),
        epoch,
        primary: primary.to_owned(),
        next: None,
    };
    let mut member = Decisions::new("prod");
    let groups = vec![decided("a", 8, "a:2"), decided("b", 9, "b:2")];
    let version = Version { epoch: 4, revision: 9 };
    let before = PublishedGroups {
        cluster: "prod".to_owned(),
        leader: 1,
        version,
        groups,
        lost: vec![],
        slots: vec![],
    };
    assert_eq!(member.take(&before), Ok(true));
    let mut world = World::new(&[("a", settled(2, "a:1")), ("b", settled(3, "b:1"))], 3);
    let look = |world: &mut World, member: &Decisions| {
        let servers = |pool: &str| {
            let (first, second) = (format!("{pool}:1"), format!("{pool}:2"));
            [server(&first, None, Some(&second)), server(&second, None, None)]
        };
        let epoch = |pool: &str| member.of(pool).map_or(0, |decided| decided.epoch);
        let view = |pool: &str| seen(pool, epoch(pool), &servers(pool));
        world.report(id(2), vec![view("a"), view("b")]);
        ["a", "b"].iter().for_each(|pool| world.probe(pool, &servers(pool)));
    };
    look(&mut world, &member);
    assert_eq!(world.state("a"), Some(GroupState::Ahead));
    world.fail_over("a", Some("a:2"));
    assert_eq!((world.group("a").epoch, world.group("a").primary.as_str()), (10, "a:2"));
    assert_eq!(world.group("b"), settled(3, "b:1"));
    let published = world.published.clone().unwrap();
    assert_eq!(member.take(&published), Ok(true));
    assert_eq!(member.of("a").map(|it| it.epoch), Some(10));
    assert_eq!(member.of("b").map(|it| it.primary.as_str()), Some("b:2"));
    let mut fresh = Decisions::new("prod");
    assert_eq!(fresh.take(&published), Ok(true));
    assert_eq!(fresh.of("b"), None, "the older decision is of no use");
    look(&mut world, &member);
    assert_eq!(world.state("b"), Some(GroupState::Ahead));
    assert_eq!(world.group("b").epoch, 3, "nothing is decided about it");
    world.fail_over("b", Some("b:2"));
    assert_eq!(world.group("b").primary, "b:2");
    assert_eq!(member.take(&world.published.clone().unwrap()), Ok(true));
    assert_eq!(member.of("b").map(|it| it.epoch), Some(world.group("b").epoch));
    assert_ne!(world.state("b"), Some(GroupState::Ahead));
}

#[test]
fn members_forget_no_pool_of_the_document_that_the_coordinator_does_not_know() {
    // The coordinator is that of before pool b had a decision, and no member tells of that.
    let mut world = World::new(&[("a", settled(2, "a:1"))], 2);
    world.published = None;
    world.leader.handle_session(None, world.now);
    world.leader.handle_session(Some(7), world.now);
    world.leader.handle_listed(world.revision, world.facts.clone(), world.now);
    world.settle();
    assert_eq!(world.published, None, "the document is not read yet");
    world.leader.set_groups(vec![two("a"), two("b")], world.now);
    world.settle();
    let published = world.published.clone().unwrap();
    assert_eq!(published.lost, ["b"]);
    let mut member = Decisions::new("prod");
    let decided = Decided { pool: "b".to_owned(), ..settled(1, "b:2").decided("b") };
    let before = PublishedGroups {
        version: Version { epoch: 4, revision: 1 },
        groups: vec![decided],
        lost: Vec::new(),
        ..published.clone()
    };
    assert_eq!(member.take(&before), Ok(true));
    assert_eq!(member.take(&published), Ok(true));
    assert_eq!(member.of("b").map(|it| it.primary.as_str()), Some("b:2"));
    assert_eq!(member.of("a").map(|it| it.primary.as_str()), Some("a:1"));
}

#[test]
fn a_decision_is_above_all_that_members_have_taken() {
    let mut world = World::new(&[("a", settled(2, "a:1"))], 2);
    let servers = [server("a:1", None, None), server("a:2", None, Some("a:1"))];
    let look = |world: &mut World| {
        world.report(id(2), vec![seen("a", 2, &servers)]);
        world.probe("a", &servers);
    };
    look(&mut world);
    world.fail_over("a", Some("a:1"));
    assert!(world.refusal().contains("is the primary of pool a already"));
    // The coordinator is that of before a removal of pool b, which the member has taken.
    let mut member = Decisions::new("prod");
    let current = world.published.clone().unwrap();
    let version = Version { revision: 9, ..current.version };
    let before = PublishedGroups { version, groups: Vec::new(), ..current.clone() };
    assert_eq!(member.take(&before), Ok(true));
    assert!(member.take(&current).is_err());
    world.members_have = member.version().revision;
    look(&mut world);
    world.fail_over("a", Some("a:1"));
    look(&mut world);
    assert_eq!((world.group("a").epoch, world.group("a").primary.as_str()), (10, "a:1"));
    assert_eq!(world.answers.pop().map(|it| it.is_ok()), Some(true));
    assert_eq!(member.take(&world.published.clone().unwrap()), Ok(true));
    assert_eq!(member.of("a").map(|it| it.epoch), Some(10));
}

#[test]
fn an_operator_names_a_server_that_says_that_it_is_a_primary_when_the_decided_one_is_down() {
    let mut world = World::new(&[("a", settled(2, "a:1"))], 2);
    let servers = [server("a:1", Some(60_000), None), server("a:2", None, None)];
    let look = |world: &mut World| {
        world.report(id(2), vec![seen("a", 2, &servers)]);
        world.probe("a", &servers);
    };
    world.report(id(3), vec![seen("a", 2, &servers)]);
    world.now = world.now + Duration::from_secs(5);
    world.leader.handle_left(id(3), world.now);
    world.probe("a", &servers);
    assert_eq!(world.state("a"), Some(GroupState::PrimarySilent), "the leader is one of two");
    look(&mut world);
    assert_eq!(world.state("a"), Some(GroupState::PrimaryDown));
    assert_eq!(world.group("a"), settled(2, "a:1"), "no replica can become the primary");
    world.fail_over("a", None);
    assert!(world.refusal().contains("a:1 was down for 2 of 3 observers"));
    world.fail_over("a", Some("a:1"));
    assert!(world.refusal().contains("name another server"));
    world.fail_over("a", Some("a:2"));
    assert_eq!(world.group("a").primary, "a:2");
    let audited = world.audited();
    assert!(audited.contains("is named") && audited.contains("a:1 -> a:2"), "{audited}");
    assert!(audited.contains("eva"), "{audited}");
    look(&mut world);
    assert_eq!(
        (world.group("a").phase, world.answers.pop().map(|it| it.is_ok())),
        (Phase::Settled, Some(true))
    );
}

#[test]
fn a_stored_primary_that_has_left_the_document_does_not_count() {
    let mut world = World::new(&[("a", settled(2, "gone:1"))], 2);
    // Neither of them is taken by itself: both say that they are primaries.
    world.probe("a", &[server("a:1", None, None), server("a:2", None, None)]);
    assert_eq!(world.state("a"), Some(GroupState::Undecided));
    world.fail_over("a", None);
    assert!(world.refusal().contains("name one with --to"));
    world.fail_over("a", Some("a:2"));
    assert_eq!(world.group("a").primary, "a:2");
}

/// Begins with a pool of three servers, and its decided primary.
fn three(primary: &str) -> World {
    let mut world = World::new(&[("a", settled(2, primary))], 2);
    let settings = GroupSettings {
        pool: "a".to_owned(),
        servers: ["a:1", "a:2", "a:3"].map(str::to_owned).to_vec(),
        down_after: Duration::from_secs(5),
        quorum: None,
    };
    world.leader.set_groups(vec![settings], world.now);
    world.settle();
    world
}

#[test]
fn a_server_that_is_down_for_the_observers_is_not_chosen() {
    let mut world = three("a:1");
    let replica = |silent_ms| server("a:2", silent_ms, Some("a:1"));
    let own = [server("a:1", None, None), replica(None), server("a:3", None, Some("a:1"))];
    let away = |address| server(address, Some(60_000), None);
    let all_away = ["a:1", "a:2", "a:3"].map(away);
    let look = |world: &mut World, servers: &[ServerSeen]| {
        [2, 3].into_iter().for_each(|nth| world.report(id(nth), vec![seen("a", 2, servers)]));
        world.probe("a", &own);
    };
    for _ in 0..50 {
        look(&mut world, &all_away);
    }
    assert_eq!(world.group("a"), settled(2, "a:1"), "no other server is better off");
    assert_eq!(world.state("a"), Some(GroupState::PrimaryDown));
    look(&mut world, &[away("a:1"), replica(None), away("a:3")]);
    assert_eq!(world.group("a").primary, "a:2");
}

#[test]
fn another_server_is_chosen_if_one_does_not_become_the_primary() {
    let mut world = three("a:1");
    let look = |world: &mut World, first: &ServerSeen| {
        let others = ["a:2", "a:3"].map(|address| server(address, None, Some("a:1")));
        let servers = [&[first.clone()][..], &others].concat();
        [2, 3].into_iter().for_each(|nth| world.report(id(nth), vec![seen("a", 2, &servers)]));
        world.probe("a", &servers);
    };
    let refuse = |world: &mut World| {
        for order in std::mem::take(&mut world.commands) {
            let refused = Err("ERR unknown command".to_owned());
            world.leader.commanded(("a", order.number), refused, world.now);
        }
    };
    let down = server("a:1", Some(60_000), None);
    let chosen = |world: &mut World, first: &ServerSeen, rounds: u32| {
        for _ in 0..rounds {
            look(world, first);
            refuse(world);
        }
        look(world, first);
        world.group("a").primary
    };
    assert_eq!(chosen(&mut world, &down, 1), "a:2");
    let says = world.leader.group_views(world.now)[0].says();
    assert_eq!(says, "a fail-over is going on: ERR unknown command");
    assert_eq!(chosen(&mut world, &down, 10), "a:3", "{:?}", world.group("a"));
    assert_eq!(world.group("a").old.as_deref(), Some("a:1"));
    assert!(world.group("a").why.contains("a:2 did not become the primary: ERR unknown command"));
    assert_eq!(chosen(&mut world, &down, 10), "a:3", "none is left");
    // An operator need not wait.
    world.fail_over("a", Some("a:2"));
    assert_eq!(
        (world.group("a").primary.as_str(), world.group("a").phase),
        ("a:2", Phase::Promoting)
    );
    // The primary before comes back while nobody else takes its place.
    let back = server("a:1", None, None);
    assert_eq!(chosen(&mut world, &back, 20), "a:1");
    assert_eq!(world.group("a").phase, Phase::Settled);
    let begun = world.group("a").epoch;
    assert_eq!(chosen(&mut world, &back, 50), "a:1");
    assert_eq!(world.group("a").epoch, begun, "nothing is decided any more");
}
