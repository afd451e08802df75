//! Groups that share slots.

use super::*;
use crate::cluster::DecidedPrimary;
use keyway_topology::{ServerGroup, SlotMap, SlotSpace, SlotsPool};

/// A core with two groups: the server `h:1` has the first half of the slots, `h:2` the other one. The
/// control plane has decided both, and that `h:1` hands over to `h:3`.
fn core_that_hands_over() -> Core {
    let group = |name: &str, ports: &[u16]| ServerGroup {
        name: name.to_owned(),
        servers: ports.iter().map(|&port| endpoint(port)).collect(),
    };
    let mut map = SlotMap::new(SlotSpace::Codis);
    map.give(0, 511, 0).unwrap();
    map.give(512, 1023, 1).unwrap();
    let groups = vec![group("a", &[1, 3]), group("b", &[2])];
    let pool = SlotsPool::new(map, groups, Discovery::new(Vec::new(), 0));
    let mut core = core_of_kind(PoolKind::Slots(pool));
    let shared = Arc::clone(&core.plane.cluster_state(0).unwrap().shared);
    let decided = |port, next: Option<u16>| {
        Some(DecidedPrimary { primary: endpoint(port), next: next.map(endpoint) })
    };
    assert!(shared.decide(0, decided(1, Some(3)), Time(1)));
    assert!(shared.decide(1, decided(2, None), Time(1)));
    core.follow_clusters();
    for port in [1, 2] {
        connect(&mut core, port);
    }
    core.plane.plan.pools[0].pause.set_handed_over(true);
    core
}

/// The slots of `foo` and `a` are 289 and 579.
#[test]
fn writes_wait_for_the_group_that_hands_over_and_for_no_other() {
    for (lines, goes) in [
        ("SET a v\r\n", true),
        ("SET foo v\r\n", false),
        ("GET foo\r\n", true),
        ("MSET a v {a}2 w\r\n", true),
        ("MSET a v foo w\r\n", false),
        ("EVAL return{} 1 a\r\n", true),
        ("EVAL return{} 0\r\n", false),
        ("MULTI\r\nSET a v\r\nEXEC\r\n", true),
        ("MULTI\r\nSET foo v\r\nEXEC\r\n", false),
        ("MULTI\r\nEXEC\r\n", false),
        ("FLUSHALL\r\n", false),
    ] {
        let mut core = core_that_hands_over();
        let client = client(&mut core);
        // A request that waits holds back those behind it, so that their order is kept.
        ask(&mut core, client, &format!("{lines}GET {{a}}last\r\n"));
        let sent = send(&mut core, 2);
        assert_eq!(sent.contains("last"), goes, "{lines}: {sent}");
        core.plane.plan.pools[0].pause.set_handed_over(false);
        pass_to(&mut core, 30);
        core.end_pauses();
        core.resume_sessions(&mut Vec::new());
        let sent = sent + &send(&mut core, 2);
        assert!(sent.contains("last"), "{lines}: {sent}");
    }
}

/// A pause that a client has asked for holds all groups.
#[test]
fn a_pause_of_clients_spares_no_group() {
    let mut core = core_that_hands_over();
    core.plane.plan.pools[0].pause.extend(Time(1_000_000_000), true, Time(1));
    let client = client(&mut core);
    ask(&mut core, client, "SET a v\r\n");
    assert!(!send(&mut core, 2).contains("SET"));
}
