//! A leader with a pool whose slots move. Members and movers are what the tests say they are.

use super::{SlotsChange, SlotsOrder};
use crate::facts;
use crate::groups::Group;
use crate::leader::world::{World, id, seen, server, settled};
use crate::slots::{
    MoverProgress, MoverReport, MoverWork, Plan, PlanPace, PlanPhase, SlotRanges, SlotsFact,
    SlotsSeen, SlotsSettings,
};
use crate::{Author, OrderId};
use std::time::Duration;

fn ranges(text: &str) -> SlotRanges {
    text.parse().unwrap()
}

fn settings() -> SlotsSettings {
    let groups = [("a", "0-511"), ("b", "512-1023"), ("c", "")];
    let groups = groups.map(|(name, slots)| (name.to_owned(), ranges(slots)));
    SlotsSettings { pool: "p".to_owned(), count: 1024, groups: groups.to_vec() }
}

/// Returns a pool of three groups, and a member that uses it.
fn world() -> World {
    let groups =
        [("p:a", settled(1, "p:a:1")), ("p:b", settled(2, "p:b:1")), ("p:c", settled(3, "p:c:1"))];
    let mut world = World::new(&groups, 3);
    world.leader.set_slots(vec![settings()], world.now);
    heard(&mut world, 0, true);
    world
}

/// Has the member report the map that it obeys.
fn heard(world: &mut World, epoch: u64, is_drained: bool) {
    world.slots = vec![SlotsSeen { pool: "p".to_owned(), epoch, is_drained }];
    world.report(id(9), vec![seen("p", 0, &[])]);
}

fn order(world: &mut World, what: SlotsChange) {
    let by = Author { name: "eva".to_owned(), address: String::new() };
    let order = SlotsOrder { id: OrderId(1), pool: "p".to_owned(), what, at: 9, by };
    world.leader.order_slots(order, world.now);
    world.settle();
}

fn move_to(world: &mut World, slots: &str, to: &str) {
    let (slots, to) = (ranges(slots), to.to_owned());
    order(world, SlotsChange::Move { slots, to, pace: PlanPace::default() });
}

fn fact(world: &World) -> SlotsFact {
    SlotsFact::decode(&world.facts[&facts::slots_key("p")].value).unwrap()
}

fn plan(world: &World) -> Plan {
    fact(world).plans.last().unwrap().clone()
}

/// Returns the fence of the latest publication.
fn fence(world: &World) -> SlotRanges {
    world.published.as_ref().unwrap().slots[0].fenced.clone()
}

/// Takes the only order to a mover, which has to be this work.
fn taken(world: &mut World, work: MoverWork) -> u64 {
    let orders: Vec<_> = world.moves.drain(..).collect();
    assert_eq!(orders.iter().map(|order| &order.work).collect::<Vec<_>>(), [&work]);
    orders[0].number
}

fn tell(world: &mut World, number: u64, report: MoverReport) {
    world.leader.moved(("p", number), report, world.now);
    world.settle();
}

fn done() -> MoverReport {
    MoverReport::Done(MoverProgress::default())
}

fn tailing() -> MoverReport {
    let behind = Some(0);
    MoverReport::Going(MoverProgress { is_tailing: true, behind, ..MoverProgress::default() })
}

/// Goes on to the fence. Returns the number of the copy.
fn fenced(world: &mut World) -> u64 {
    move_to(world, "0-9", "b");
    let check = taken(world, MoverWork::Check);
    tell(world, check, done());
    assert_eq!(plan(world).phase, PlanPhase::Copying);
    let copy = taken(world, MoverWork::Copy);
    tell(world, copy, tailing());
    assert_eq!(plan(world).phase, PlanPhase::Fenced);
    world.ended.clear();
    copy
}

#[test]
fn slots_change_hands_when_every_member_has_drained_and_the_last_writes_are_applied() {
    let mut world = world();
    fenced(&mut world);
    assert_eq!(fence(&world), ranges("0-9"));
    assert!(world.moves.is_empty(), "a member has requests on the wire");
    let epoch = fact(&world).epoch;
    assert_eq!(epoch, 4, "a fence is a decision like others");
    heard(&mut world, epoch, false);
    assert!(world.moves.is_empty(), "it has not drained");
    heard(&mut world, epoch, true);
    let finish = taken(&mut world, MoverWork::Finish);
    assert_eq!(plan(&world).phase, PlanPhase::Fenced);
    tell(&mut world, finish, done());
    assert_eq!(plan(&world).phase, PlanPhase::Cleaning);
    assert_eq!(fact(&world).owners["a"], ranges("10-511"));
    assert_eq!(fact(&world).owners["b"], ranges("0-9,512-1023"));
    assert_eq!(fact(&world).epoch, 5);
    assert!(fence(&world).is_empty());
    assert_eq!(world.ended, ["p"], "the copy ends before the source is cleaned");
    let clean = taken(&mut world, MoverWork::Clean);
    tell(&mut world, clean, done());
    assert_eq!(plan(&world).phase, PlanPhase::Done);
    assert!(world.moves.is_empty());
}

#[test]
fn a_fence_that_is_not_drained_in_time_is_taken_back_and_never_passed() {
    let mut world = world();
    let copy = fenced(&mut world);
    let epoch = fact(&world).epoch;
    heard(&mut world, epoch, false);
    for _ in 0..4 {
        tell(&mut world, copy, tailing());
    }
    assert_eq!(plan(&world).phase, PlanPhase::Copying);
    assert!(plan(&world).why.contains("waits for replies"), "{}", plan(&world).why);
    assert!(fence(&world).is_empty());
    assert_eq!(fact(&world).owners["a"], ranges("0-511"));
    let view = &world.leader.slots_views(world.now)[0].plans[0];
    assert!(view.waits_for.starts_with("the next try in"), "{}", view.waits_for);
    // A late end of that fence flips nothing.
    heard(&mut world, epoch, true);
    assert!(world.moves.iter().all(|order| order.work != MoverWork::Finish));
}

#[test]
fn no_fence_begins_while_a_member_is_silent() {
    let mut world = world();
    heard(&mut world, 0, true);
    world.leader.handle_left(id(9), world.now);
    move_to(&mut world, "0-9", "b");
    let check = taken(&mut world, MoverWork::Check);
    tell(&mut world, check, done());
    let copy = taken(&mut world, MoverWork::Copy);
    tell(&mut world, copy, tailing());
    assert_eq!(plan(&world).phase, PlanPhase::Copying);
    let view = &world.leader.slots_views(world.now)[0].plans[0];
    assert!(view.waits_for.contains("is silent"), "{}", view.waits_for);
    heard(&mut world, 0, true);
    tell(&mut world, copy, tailing());
    assert_eq!(plan(&world).phase, PlanPhase::Fenced);
}

#[test]
fn a_cancelled_plan_leaves_the_source_as_it_is_and_cleans_the_target() {
    let mut world = world();
    fenced(&mut world);
    order(&mut world, SlotsChange::Cancel(1));
    assert_eq!(plan(&world).phase, PlanPhase::Aborting);
    assert!(fence(&world).is_empty());
    assert_eq!(fact(&world).owners["a"], ranges("0-511"));
    assert_eq!(world.ended, ["p"]);
    let purge = taken(&mut world, MoverWork::Purge);
    tell(&mut world, purge, done());
    assert_eq!(plan(&world).phase, PlanPhase::Aborted);
    assert!(plan(&world).why.contains("eva"));
    order(&mut world, SlotsChange::Cancel(1));
    assert!(world.refusal().contains("plan 1 is aborted"));
}

#[test]
fn a_plan_that_is_past_its_flip_is_not_cancelled() {
    let mut world = world();
    fenced(&mut world);
    let epoch = fact(&world).epoch;
    heard(&mut world, epoch, true);
    let finish = taken(&mut world, MoverWork::Finish);
    tell(&mut world, finish, done());
    order(&mut world, SlotsChange::Cancel(1));
    assert!(world.refusal().contains("move them back instead"));
}

#[test]
fn another_leader_takes_a_fence_back_and_copies_anew() {
    let mut before = world();
    fenced(&mut before);
    let mut world = World::of_facts(before.facts);
    world.leader.set_slots(vec![settings()], world.now);
    world.settle();
    assert_eq!(plan(&world).phase, PlanPhase::Copying);
    assert!(fence(&world).is_empty());
    assert_eq!(plan(&world).why, "another control node leads");
    for _ in 0..3 {
        world.settle();
    }
    taken(&mut world, MoverWork::Copy);
}

#[test]
fn a_fail_over_of_a_group_ends_the_copy() {
    for group in ["p:a", "p:b"] {
        let mut world = world();
        let copy = fenced(&mut world);
        let other = format!("{group}:2");
        let of = format!("{group}:1");
        world.probe(group, &[server(&of, None, None), server(&other, None, Some(&of))]);
        world.fail_over(group, Some(&other));
        tell(&mut world, copy, tailing());
        assert_eq!(plan(&world).phase, PlanPhase::Copying, "{group}");
        assert!(fence(&world).is_empty());
        assert_eq!(world.ended, ["p"], "{group}");
        let key = facts::group_key(group);
        let decided = Group::decode(&world.facts[&key].value).unwrap();
        assert_ne!(decided.phase, crate::groups::Phase::Settled, "it is on its way");
        world.now = world.now + Duration::from_secs(5);
        assert!(world.moves.is_empty(), "there is nobody to copy from, or to");
    }
}

#[test]
fn a_failure_that_would_come_again_aborts_and_another_one_is_tried_again() {
    let mut world = world();
    move_to(&mut world, "0-9", "b");
    let failed = |is_final| MoverReport::Failed { why: "the disk is on fire".to_owned(), is_final };
    let check = taken(&mut world, MoverWork::Check);
    tell(&mut world, check, failed(false));
    assert_eq!(plan(&world).phase, PlanPhase::Planned);
    for _ in 0..3 {
        world.settle();
    }
    let check = taken(&mut world, MoverWork::Check);
    tell(&mut world, check, done());
    let copy = taken(&mut world, MoverWork::Copy);
    tell(&mut world, copy, failed(true));
    assert_eq!(plan(&world).phase, PlanPhase::Aborting);
    assert_eq!(plan(&world).why, "the disk is on fire");
    taken(&mut world, MoverWork::Purge);
}

#[test]
fn orders_that_do_not_fit_are_refused() {
    let mut world = world();
    move_to(&mut world, "0-9", "b");
    let refused = [
        ("5-20", "b", "slots 5-9 are those of a plan that goes on"),
        ("20-30", "x", "pool p has no group x; it has a, b, c"),
        ("600-610", "b", "group b has these slots already"),
        ("1000-2000", "b", "pool p has the slots 0-1023"),
    ];
    for (slots, to, why) in refused {
        move_to(&mut world, slots, to);
        let told = world.refusal();
        assert!(told.contains(why), "{told}");
    }
    order(&mut world, SlotsChange::Resume(1));
    assert!(world.refusal().contains("not paused"));
    order(&mut world, SlotsChange::Pause(7));
    assert!(world.refusal().contains("pool p has no plan 7"));
}

#[test]
fn a_move_from_several_groups_is_a_plan_for_each_and_they_go_one_after_the_other() {
    let mut world = world();
    move_to(&mut world, "500-520", "c");
    let plans = fact(&world).plans;
    let told: Vec<String> = plans.iter().map(|it| format!("{}:{}", it.from, it.slots)).collect();
    assert_eq!(told, ["a:500-511", "b:512-520"]);
    let views = world.leader.slots_views(world.now);
    assert_eq!(views[0].plans[1].waits_for, "plan 1");
    taken(&mut world, MoverWork::Check);
    order(&mut world, SlotsChange::Pause(1));
    taken(&mut world, MoverWork::Check);
    assert_eq!(world.ended, ["p"], "a paused plan has no mover");
    order(&mut world, SlotsChange::Resume(1));
    let first = world.moves.last().map(|order| order.plan);
    assert_eq!(first, Some(1), "the first plan goes on");
}

#[test]
fn one_dead_proxy_blocks_a_plan_until_it_is_forgotten_and_no_longer() {
    let mut world = world();
    let by = || (9, Author { name: "eva".to_owned(), address: String::new() });
    let now = world.now;
    let refused = world.leader.forget_member(id(9), by(), now).unwrap_err().to_string();
    assert!(refused.contains("is on the bus"), "{refused}");
    world.leader.handle_left(id(9), now);
    move_to(&mut world, "0-9", "b");
    let check = taken(&mut world, MoverWork::Check);
    tell(&mut world, check, done());
    let copy = taken(&mut world, MoverWork::Copy);
    tell(&mut world, copy, tailing());
    assert_eq!(plan(&world).phase, PlanPhase::Copying);
    let now = world.now;
    let unknown = world.leader.forget_member(id(8), by(), now).unwrap_err().to_string();
    assert!(unknown.contains("is no member that is known"), "{unknown}");
    world.leader.forget_member(id(9), by(), now).unwrap();
    world.settle();
    assert_eq!(plan(&world).phase, PlanPhase::Fenced);
    assert!(world.audited().contains("forget member"), "{}", world.audited());
}
