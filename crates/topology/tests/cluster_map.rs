//! Tests that the map of a cluster holds what its views have told, and no more.

use std::time::Duration;

use keyway_base::Time;
use keyway_topology::{
    Applied, ClusterMap, ClusterNode, ClusterView, Endpoint, GroupView, KnownRole, LeftOut,
    NodeHealth, NodeRole, SLOT_COUNT, SlotOwners,
};

fn endpoint(port: u16) -> Endpoint {
    Endpoint::tcp("h", port).unwrap()
}

fn at(seconds: u64) -> Time {
    Time(0) + Duration::from_secs(seconds)
}

fn node(port: u16, role: NodeRole, health: NodeHealth) -> ClusterNode {
    ClusterNode {
        id: Some(format!("{port:040x}").into()),
        endpoint: Some(endpoint(port)),
        host_name: None,
        zone: Some(format!("zone-{port}").into()),
        role,
        health,
        replication_offset: None,
        epoch: None,
        is_asked: false,
    }
}

/// Returns a view with primaries at these ports and these slots. Each has a replica whose port is
/// greater by 100.
fn view(shares: &[(u16, u16, u16)], epoch: Option<u64>) -> ClusterView {
    let mut nodes = Vec::new();
    let mut owners = SlotOwners::new();
    for &(port, first, last) in shares {
        let primary = nodes.len() as u16;
        nodes.push(node(port, NodeRole::Primary, NodeHealth::Online));
        let role = NodeRole::Replica { of: Some(primary) };
        nodes.push(node(port + 100, role, NodeHealth::Loading));
        for slot in first..=last {
            owners.set(slot, Some(primary));
        }
    }
    ClusterView { nodes, owners, epoch, moving: Vec::new() }
}

fn seeds_only(indices: u16) -> ClusterMap {
    ClusterMap::of_seeds(&[endpoint(1)], indices, 0)
}

fn next(applied: Applied) -> (ClusterMap, Vec<LeftOut>) {
    match applied {
        Applied::Next(map, left_out) => (map, left_out),
        other => panic!("it is new: {other:?}"),
    }
}

/// Checks what holds for every map.
fn check(map: &ClusterMap) {
    let mut owned = vec![0u16; map.index_count()];
    for slot in 0..SLOT_COUNT as u16 {
        if let Some(index) = map.owners().of(slot) {
            owned[usize::from(index)] += 1;
            assert!(!map.owner_lacks_index(slot), "slot {slot} has an index");
        }
    }
    for &index in map.primaries().iter().filter(|&&index| index != SlotOwners::NONE) {
        owned[usize::from(index)] = 1;
    }
    for (index, &owned) in owned.iter().enumerate() {
        assert_eq!(map.owned_by(index), owned, "index {index}");
        assert_eq!(map.is_serving(index), owned > 0, "index {index}");
        assert!(owned == 0 || map.node(index).is_some(), "a server has index {index}");
    }
    let beyond = map.index_count();
    assert!(map.node(beyond).is_none() && !map.is_serving(beyond) && map.owned_by(beyond) == 0);
    for (index, node) in map.nodes() {
        assert_eq!(map.node(usize::from(index)), Some(node));
        assert_eq!(map.index_of(&node.endpoint), Some(index));
        let of = |(other, _): &(u16, _)| *other == index;
        for (primary, _) in map.nodes() {
            let is_replica = node.role == KnownRole::Replica { of: Some(primary) };
            assert_eq!(map.replicas_of(primary).any(|it| of(&it)), is_replica);
        }
    }
}

#[test]
fn a_map_says_what_its_view_says() {
    let empty = seeds_only(9);
    check(&empty);
    assert_eq!((empty.version(), empty.is_known(), empty.index_count()), (0, false, 9));
    assert_eq!((empty.epoch(None), empty.primary(0)), (None, None));
    let told = view(&[(1, 0, 99), (2, 100, 8191), (3, 9000, 16383)], Some(7));
    let (map, left_out) = next(empty.apply(&told, at(1)));
    check(&map);
    assert_eq!(left_out, []);
    assert_eq!((map.version(), map.is_known(), map.index_count()), (1, true, 9));
    assert_eq!((map.epoch(None), map.count_without_index(), map.nodes().count()), (Some(7), 0, 6));
    for (nth, told_node) in told.nodes.iter().enumerate() {
        let index = map.index_of(told_node.endpoint.as_ref().unwrap()).unwrap();
        let node = map.node(usize::from(index)).unwrap();
        assert_eq!((&node.id, &node.zone), (&told_node.id, &told_node.zone));
        assert_eq!((node.health, node.tenure <= 1), (told_node.health, true));
        for slot in 0..SLOT_COUNT as u16 {
            let is_owner = told.owners.of(slot) == Some(nth as u16);
            assert_eq!(map.owners().of(slot) == Some(index), is_owner, "slot {slot}");
        }
        match told_node.role {
            NodeRole::Primary => {
                let replicas: Vec<_> = map.replicas_of(index).collect();
                assert_eq!(replicas.len(), 1);
                let expected = told.nodes[nth + 1].endpoint.as_ref();
                assert_eq!(Some(&replicas[0].1.endpoint), expected);
            }
            NodeRole::Replica { .. } => assert_eq!(map.replicas_of(index).count(), 0),
        }
    }
    assert!(!map.owner_lacks_index(8500), "nobody has that slot");
    assert!(!map.places_keys_as(&empty));
    assert!(matches!(map.apply(&told, at(2)), Applied::Same));
}

#[test]
fn a_view_of_an_earlier_epoch_is_stale() {
    let shares = [(1, 0, 16383)];
    let (map, _) = next(seeds_only(9).apply(&view(&shares, Some(5)), at(1)));
    assert!(matches!(map.apply(&view(&shares, Some(4)), at(2)), Applied::Stale));
    assert!(matches!(map.apply(&view(&shares, Some(5)), at(2)), Applied::Same));
    let (later, _) = next(map.apply(&view(&shares, Some(6)), at(2)));
    assert_eq!((later.epoch(None), later.version()), (Some(6), 2));
    assert!(later.places_keys_as(&map), "the epoch alone is another");
    assert!(matches!(map.apply(&view(&shares, None), at(2)), Applied::Same), "it tells none");
    let (earlier, _) = next(map.without_epoch(None).apply(&view(&shares, Some(4)), at(2)));
    assert_eq!(earlier.epoch(None), Some(4));
}

#[test]
fn maps_place_keys_alike_where_owners_and_primaries_are_the_same() {
    let whole = view(&[(1, 0, 16383)], None);
    let (map, _) = next(seeds_only(9).apply(&whole, at(1)));
    let (other, _) = next(seeds_only(9).apply(&view(&[(1, 0, 16382)], None), at(1)));
    assert!(map.places_keys_as(&map) && !map.places_keys_as(&other));
    // A cluster without slots is known, and its keys have no server.
    let nobody = ClusterView { owners: SlotOwners::new(), ..whole };
    let (none, _) = next(seeds_only(9).apply(&nobody, at(1)));
    assert!(none.is_known() && !none.places_keys_as(&seeds_only(9)));
    let pool = ClusterMap::of_seeds(&[], 4, 1);
    let (one, _) = next(pool.apply_group(&group(0, 1, &[2], None), at(1)));
    let (two, _) = next(one.apply_group(&group(0, 2, &[1], None), at(2)));
    assert!(one.owners() == two.owners() && !one.places_keys_as(&two));
}

#[test]
fn a_slot_that_moved_is_at_the_other_index_and_nothing_else_is() {
    let (map, _) = next(seeds_only(9).apply(&view(&[(1, 0, 99), (2, 100, 16383)], Some(3)), at(1)));
    let index = |port| map.index_of(&endpoint(port)).unwrap();
    let moved = map.moved(7, index(2)).unwrap();
    check(&moved);
    assert_eq!((moved.version(), moved.epoch(None)), (map.version() + 1, Some(3)));
    for slot in 0..SLOT_COUNT as u16 {
        let expected = if slot == 7 { Some(index(2)) } else { map.owners().of(slot) };
        assert_eq!(moved.owners().of(slot), expected, "slot {slot}");
    }
    assert!(map.moved(7, index(1)).is_none(), "it is there");
    assert!(map.moved(7, 8).is_none(), "nobody is there");
    // A replica that gets a slot becomes a primary.
    let taken = map.moved(7, index(102)).unwrap();
    assert_eq!(taken.node(usize::from(index(102))).unwrap().role, KnownRole::Primary);
    let (pool, _) =
        next(ClusterMap::of_seeds(&[], 4, 1).apply_group(&group(0, 1, &[2], None), at(1)));
    assert!(pool.moved(7, pool.index_of(&endpoint(2)).unwrap()).is_none(), "it has no slots");
}

#[test]
fn seeds_have_indices_until_the_cluster_is_known() {
    let map = seeds_only(9);
    assert!(
        map.with_seeds(&[endpoint(1)], at(1)).is_none() && map.with_seeds(&[], at(1)).is_none()
    );
    let map = map.with_seeds(&[endpoint(1), endpoint(50)], at(1)).unwrap();
    assert_eq!((map.version(), map.nodes().count()), (1, 2));
    let seed = map.node(usize::from(map.index_of(&endpoint(50)).unwrap())).unwrap();
    assert_eq!((seed.role, seed.tenure), (KnownRole::Seed, 1));
    let (map, _) = next(map.apply(&view(&[(1, 0, 16383)], None), at(2)));
    assert_eq!(map.index_of(&endpoint(50)), None);
    assert!(map.index_of(&endpoint(1)).is_some());
}

#[test]
fn a_server_comes_back_to_its_own_index_and_others_take_the_one_left_first() {
    let shares = [(1, 0, 99), (2, 100, 199), (3, 200, 16383)];
    let primaries = |shares: &[(u16, u16, u16)]| {
        let mut view = view(shares, None);
        view.nodes.retain(|node| node.role == NodeRole::Primary);
        let mut owners = SlotOwners::new();
        for (index, &(_, first, last)) in shares.iter().enumerate() {
            (first..=last).for_each(|slot| owners.set(slot, Some(index as u16)));
        }
        ClusterView { owners, ..view }
    };
    let (map, _) = next(ClusterMap::of_seeds(&[], 3, 0).apply(&primaries(&shares), at(1)));
    let index = |port| map.index_of(&endpoint(port)).unwrap();
    // The first primary leaves, and the second a while after.
    let (map2, _) = next(map.apply(&primaries(&shares[1..]), at(10)));
    let (map2, _) = next(map2.apply(&primaries(&shares[1..]), at(41)));
    let (map2, _) = next(map2.apply(&primaries(&shares[2..]), at(50)));
    let (map2, _) = next(map2.apply(&primaries(&shares[2..]), at(81)));
    assert_eq!(map2.nodes().count(), 1);
    let later = at(1_000);
    let back = map2.with_member(&endpoint(2), later).unwrap();
    assert_eq!(back.index_of(&endpoint(2)), Some(index(2)), "its own, though left later");
    let other = map2.with_member(&endpoint(9), later).unwrap();
    assert_eq!(other.index_of(&endpoint(9)), Some(index(1)), "the one left first");
}

#[test]
fn owners_of_slots_have_indices_before_all_others_and_failed_servers_last() {
    let mut told = view(&[(1, 0, 16383)], None);
    told.nodes[0].health = NodeHealth::Failed;
    told.nodes.push(node(2, NodeRole::Primary, NodeHealth::Online));
    told.nodes.push(node(3, NodeRole::Primary, NodeHealth::Failed));
    // The order in which servers get indices: 1 has slots, 2 is up, 101 is a replica, 3 has failed.
    let order = [1, 2, 101, 3];
    for nodes_max in 1..=4u16 {
        let map = ClusterMap::of_seeds(&[], 6, 0).of_nodes(nodes_max);
        let (map, left_out) = next(map.apply(&told, at(1)));
        check(&map);
        for (index, &port) in order.iter().enumerate() {
            let is_seated = index < usize::from(nodes_max);
            assert_eq!(map.index_of(&endpoint(port)).is_some(), is_seated, "{port}");
            let is_left = left_out.iter().any(|out| out.endpoint == endpoint(port));
            assert_eq!(is_left, !is_seated, "{port}");
        }
    }
    // The owner of only the last slot comes first too.
    let last = SLOT_COUNT as u16 - 1;
    let mut told = view(&[(5, last, last)], None);
    told.nodes.insert(0, node(2, NodeRole::Primary, NodeHealth::Online));
    told.owners.set(last, Some(1));
    let (map, _) = next(ClusterMap::of_seeds(&[], 6, 0).of_nodes(1).apply(&told, at(1)));
    assert_eq!(map.owners().of(last), map.index_of(&endpoint(5)));
    assert!(map.owners().of(last).is_some());
}

#[test]
fn a_slot_whose_owner_has_no_index_is_told_as_such() {
    let told = view(&[(1, 0, 99), (2, 100, 199)], None);
    let (map, _) = next(ClusterMap::of_seeds(&[], 6, 0).of_nodes(1).apply(&told, at(1)));
    check(&map);
    assert_eq!(map.count_without_index(), 100);
    for slot in 0..SLOT_COUNT as u16 {
        assert_eq!(map.owner_lacks_index(slot), (100..200).contains(&slot), "slot {slot}");
    }
    let took = map.moved(150, map.index_of(&endpoint(1)).unwrap()).unwrap();
    assert!(!took.owner_lacks_index(150) && took.owner_lacks_index(151), "it has an owner now");
}

#[test]
fn a_server_that_nobody_can_reach_has_no_index() {
    for health in [NodeHealth::Handshake, NodeHealth::NoAddress] {
        let mut told = view(&[(1, 0, 16383)], None);
        told.nodes[1].health = health;
        let (map, left_out) = next(seeds_only(9).apply(&told, at(1)));
        assert_eq!((map.index_of(&endpoint(101)), left_out.len()), (None, 0), "{health:?}");
    }
}

fn group(number: u16, primary: u16, replicas: &[u16], epoch: Option<u64>) -> GroupView {
    let replicas = replicas.iter().map(|&port| (endpoint(port), NodeHealth::Online)).collect();
    GroupView { group: number, primary: endpoint(primary), epoch, replicas }
}

#[test]
fn each_primary_with_a_name_has_an_epoch_and_replicas_of_its_own() {
    let map = ClusterMap::of_seeds(&[], 9, 2);
    let (map, _) = next(map.apply_group(&group(0, 1, &[11, 12], Some(5)), at(1)));
    check(&map);
    assert_eq!((map.version(), map.is_known(), map.count_without_index()), (1, true, 0));
    assert_eq!((map.epoch(Some(0)), map.epoch(Some(1)), map.epoch(None)), (Some(5), None, None));
    assert_eq!((map.primary(0), map.primary(1)), (map.index_of(&endpoint(1)), None));
    assert_eq!(map.replicas_of(map.primary(0).unwrap()).count(), 2);
    // The epochs of one primary do not matter to the other.
    let (map, _) = next(map.apply_group(&group(1, 2, &[21], Some(1)), at(1)));
    check(&map);
    assert_eq!(map.primary(1), map.index_of(&endpoint(2)));
    assert_eq!(map.index_of(&endpoint(11)).and(map.primary(0)), map.index_of(&endpoint(1)));
    let told = |map: &ClusterMap, epoch| map.apply_group(&group(0, 1, &[11, 12], epoch), at(2));
    assert!(matches!(told(&map, Some(4)), Applied::Stale));
    assert!(matches!(told(&map, Some(5)), Applied::Same));
    assert!(matches!(told(&map, None), Applied::Same));
    assert_eq!(next(told(&map, Some(6))).0.epoch(Some(0)), Some(6));
    let forgot = map.without_epoch(Some(0));
    assert_eq!((forgot.epoch(Some(0)), forgot.epoch(Some(1))), (None, Some(1)));
    assert_eq!(next(told(&forgot, Some(4))).0.epoch(Some(0)), Some(4));
    assert!(matches!(map.apply_group(&group(2, 1, &[], Some(9)), at(2)), Applied::Same));
}

#[test]
fn a_replica_of_one_primary_stays_when_another_is_told_of_and_leaves_when_its_own_lacks_it() {
    let map = ClusterMap::of_seeds(&[], 9, 2);
    let (map, _) = next(map.apply_group(&group(0, 1, &[11, 12], None), at(1)));
    let (mut map, _) = next(map.apply_group(&group(1, 2, &[21], None), at(1)));
    for second in [2, 40, 80] {
        if let Applied::Next(next, _) = map.apply_group(&group(1, 2, &[21], None), at(second)) {
            map = next;
        }
        assert!(map.index_of(&endpoint(12)).is_some(), "second {second}");
    }
    for (second, stays) in [(100, true), (129, true), (131, false)] {
        if let Applied::Next(next, _) = map.apply_group(&group(0, 1, &[11], None), at(second)) {
            map = next;
        }
        check(&map);
        assert_eq!(map.index_of(&endpoint(12)).is_some(), stays, "second {second}");
    }
    assert!([1, 2, 11, 21].iter().all(|&port| map.index_of(&endpoint(port)).is_some()));
}

#[test]
fn replicas_leave_an_index_for_each_primary_that_lacks_one_and_no_more() {
    // (indices, replicas of the first of two primaries that get one)
    for (indices, seated) in [(2, 0), (3, 1), (4, 2), (5, 3)] {
        let map = ClusterMap::of_seeds(&[], indices, 2);
        let (map, _) = next(map.apply_group(&group(0, 1, &[11, 12, 13], None), at(1)));
        let replicas = map.replicas_of(map.primary(0).unwrap()).count();
        assert_eq!(replicas, seated, "{indices} indices");
    }
    // If both primaries are there, replicas take all remaining indices.
    let map = ClusterMap::of_seeds(&[], 4, 2);
    let (map, _) = next(map.apply_group(&group(0, 1, &[], None), at(1)));
    let (map, _) = next(map.apply_group(&group(1, 2, &[], None), at(1)));
    let (map, _) = next(map.apply_group(&group(0, 1, &[11, 12, 13], None), at(1)));
    assert_eq!(map.nodes().count(), 4);
}

#[test]
fn a_primary_that_gets_its_index_lacks_none_any_more() {
    let map = ClusterMap::of_seeds(&[], 3, 2);
    let (map, _) = next(map.apply_group(&group(1, 2, &[], None), at(1)));
    let (map, left_out) = next(map.apply_group(&group(0, 1, &[11], None), at(1)));
    assert_eq!((map.nodes().count(), left_out), (3, vec![]), "the last index is the replica's");
}

#[test]
fn a_replica_that_comes_back_has_its_own_index_again() {
    let map = ClusterMap::of_seeds(&[], 3, 1);
    let told = |map: &ClusterMap, replicas: &[u16], now| match map
        .apply_group(&group(0, 1, replicas, None), at(now))
    {
        Applied::Next(next, _) => next,
        _ => map.clone(),
    };
    let there = told(&map, &[11, 12], 1);
    let gone = told(&told(&there, &[11], 2), &[11], 40);
    assert_eq!(gone.index_of(&endpoint(12)), None);
    let back = told(&gone, &[11, 12], 41);
    assert_eq!(back.index_of(&endpoint(12)), there.index_of(&endpoint(12)));
    assert!(told(&gone, &[11, 13], 41).index_of(&endpoint(13)).is_none(), "another waits");
}
