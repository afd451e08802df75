use super::*;
use crate::ViewSource;

fn endpoint(port: u16) -> Endpoint {
    Endpoint::tcp("h", port).unwrap()
}

fn at(seconds: u64) -> Time {
    Time(0) + Duration::from_secs(seconds)
}

fn view(last: u16) -> ClusterView {
    let reply = format!("*1\r\n*3\r\n:0\r\n:{last}\r\n*2\r\n$1\r\nh\r\n:1\r\n");
    ClusterView::from_slots(reply.as_bytes(), ViewSource::plainly(&endpoint(1))).unwrap()
}

fn known() -> ClusterMap {
    let map = ClusterMap::of_seeds(&[endpoint(1)], 2, 0);
    let Applied::Next(map, left_out) = map.apply(&view(16383), at(1)) else { panic!("it is new") };
    assert_eq!(left_out, []);
    map
}

#[test]
fn a_server_that_takes_its_first_slot_keeps_its_index_though_no_view_has_it() {
    let map = known();
    let mut map = map.with_member(&endpoint(2), at(2)).unwrap();
    let index = map.index_of(&endpoint(2)).unwrap();
    for second in 3..30 {
        if let Applied::Next(next, _) = map.apply(&view(16383), at(second)) {
            map = next;
        }
        assert_eq!(map.index_of(&endpoint(2)), Some(index), "second {second}");
        assert!(map.with_member(&endpoint(2), at(second)).is_none());
    }
    let Applied::Next(map, _) = map.apply(&view(16383), at(40)) else { panic!("it has left") };
    assert_eq!(map.index_of(&endpoint(2)), None);
    // No other server may take the index so soon, but its former server may.
    assert!(map.with_member(&endpoint(3), at(41)).is_none());
    assert_eq!(map.with_member(&endpoint(2), at(41)).unwrap().index_of(&endpoint(2)), Some(index));
    assert_eq!(map.with_member(&endpoint(3), at(101)).unwrap().index_of(&endpoint(3)), Some(index));
}

/// Returns a view as CLUSTER NODES tells it: `count` primaries at ports from 1 on with equal shares
/// of the slots, and as many replicas at ports from 101 on. `order` decides the order of the nodes.
fn told(count: u16, order: impl Fn(u16) -> u16) -> ClusterView {
    let id = |number: u16| format!("{number:040x}");
    let share = SLOT_COUNT as u16 / count;
    let mut lines: Vec<(u16, String)> = Vec::new();
    for number in 1..=count {
        let first = (number - 1) * share;
        let last = if number == count { SLOT_COUNT as u16 - 1 } else { first + share - 1 };
        let own = id(number);
        let primary =
            format!("{own} h:{number}@1 master - 0 0 {number} connected {first}-{last}\n");
        let (port, copy) = (100 + number, id(100 + number));
        let replica = format!("{copy} h:{port}@1 slave {own} 0 0 {number} connected\n");
        lines.extend([(order(number), primary), (order(port), replica)]);
    }
    lines.sort();
    let text: String = lines.into_iter().map(|(_, line)| line).collect();
    let reply = format!("${}\r\n{text}\r\n", text.len());
    ClusterView::from_nodes(reply.as_bytes(), ViewSource::plainly(&endpoint(1))).unwrap()
}

fn ports(servers: impl Iterator<Item = Endpoint>) -> Vec<u16> {
    let port = |server: Endpoint| match server {
        Endpoint::Tcp { port, .. } => port,
        _ => 0,
    };
    let mut ports: Vec<u16> = servers.map(port).collect();
    ports.sort_unstable();
    ports
}

#[test]
fn primaries_have_indices_first_whoever_is_asked() {
    let orders: [fn(u16) -> u16; 3] = [|port| port, |port| 1000 - port, |port| port % 7];
    for (nodes_max, seated) in [(3, vec![1, 2, 3]), (5, vec![1, 2, 3, 4, 101])] {
        for seeds in [vec![1], vec![101, 102, 103], vec![4, 104], vec![900, 901]] {
            for order in orders {
                let seeds: Vec<Endpoint> = seeds.iter().copied().map(endpoint).collect();
                let indices = nodes_max + seeds.len() as u16;
                let map = ClusterMap::of_seeds(&seeds, indices, 0).of_nodes(nodes_max);
                let view = told(4, order);
                let Applied::Next(map, left_out) = map.apply(&view, at(1)) else {
                    panic!("it is new")
                };
                assert_eq!(ports(map.nodes().map(|(_, it)| it.endpoint.clone())), seated);
                assert_eq!(left_out.len(), 8 - usize::from(nodes_max));
                let lacking = left_out.iter().filter(|it| it.is_primary);
                let lacking = ports(lacking.map(|it| it.endpoint.clone()));
                let expected = if nodes_max == 3 { vec![4] } else { vec![] };
                assert_eq!(lacking, expected);
                assert_eq!(map.count_without_index(), if nodes_max == 3 { 4096 } else { 0 });
                let again = map.apply(&told(4, |port| port ^ 1), at(2));
                assert!(matches!(again, Applied::Same), "{again:?}");
            }
        }
    }
}

#[test]
fn a_primary_that_comes_has_the_index_of_a_replica() {
    let map = ClusterMap::of_seeds(&[endpoint(1)], 9, 0).of_nodes(8);
    let Applied::Next(map, left_out) = map.apply(&told(4, |port| port), at(1)) else {
        panic!("it is new")
    };
    assert_eq!(left_out, []);
    let Applied::Next(map, left_out) = map.apply(&told(5, |port| port), at(2)) else {
        panic!("there is one more")
    };
    assert_eq!(ports(left_out.iter().map(|it| it.endpoint.clone())), [104, 105]);
    assert_eq!(map.count_without_index(), 0);
    for primary in 1..=5 {
        assert!(map.index_of(&endpoint(primary)).is_some(), "{primary}");
    }
}

fn group(number: u16, primary: u16, replicas: &[u16]) -> GroupView {
    let online = |&port: &u16| (endpoint(port), NodeHealth::Online);
    GroupView {
        group: number,
        primary: endpoint(primary),
        epoch: None,
        replicas: replicas.iter().map(online).collect(),
    }
}

#[test]
fn replicas_of_one_primary_leave_an_index_to_another() {
    let map = ClusterMap::of_seeds(&[], 3, 2).of_nodes(3);
    let Applied::Next(map, left_out) = map.apply_group(&group(0, 1, &[13, 12, 11]), at(1)) else {
        panic!("it is new")
    };
    assert_eq!(ports(left_out.iter().map(|it| it.endpoint.clone())), [12, 13]);
    let Applied::Next(map, left_out) = map.apply_group(&group(1, 2, &[21]), at(1)) else {
        panic!("it is new")
    };
    assert_eq!((map.count_without_index(), left_out.len()), (0, 1));
    // A server that had no index becomes the primary.
    let Applied::Next(map, left_out) = map.apply_group(&group(0, 13, &[1, 11, 12]), at(2)) else {
        panic!("it is new")
    };
    assert!(left_out[0].is_primary && map.count_without_index() == 1, "{left_out:?}");
    assert_eq!(map.index_of(&endpoint(11)), None, "it makes room");
    let later = map.apply_group(&group(0, 13, &[1, 11, 12]), at(30));
    assert!(matches!(later, Applied::Same), "one leaves for it, and no more: {later:?}");
    let Applied::Next(map, _) = map.apply_group(&group(0, 13, &[1, 11, 12]), at(70)) else {
        panic!("it has an index now")
    };
    assert_eq!((map.count_without_index(), map.index_of(&endpoint(13)).is_some()), (0, true));
}

#[test]
fn a_view_without_slots_that_have_owners_loses_some() {
    let map = known();
    assert!(map.loses_slots_by(&view(5460)));
    assert!(!map.loses_slots_by(&view(16383)));
    let Applied::Next(map, _) = map.apply(&view(5460), at(2)) else { panic!("it is new") };
    assert!(!map.loses_slots_by(&view(5460)), "they had no owner");
}
