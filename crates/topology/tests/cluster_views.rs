//! Tests with generated views of clusters: a view that is rendered as a server renders it is read
//! back unchanged, and no bytes do harm.

use keyway_resp::{Protocol, reply};
use keyway_topology::{
    ClusterNode, ClusterView, Endpoint, InfoReplication, Move, MovingSlot, NODES_MAX, NodeHealth,
    NodeRole, OtherSentinel, Redirect, SLOT_COUNT, SlotOwners, SwitchPrimary, VIEW_LEN_MAX,
    ViewError, ViewSource, WatchedPrimary, WatchedReplica, primary_address,
};
use proptest::prelude::*;
use proptest::sample::Index;

fn asked_endpoint() -> Endpoint {
    "192.0.2.9:7777".parse().unwrap()
}

type Reader = fn(&[u8], ViewSource<'_>) -> Result<ClusterView, ViewError>;

fn read(reader: Reader, reply: &[u8]) -> Result<ClusterView, ViewError> {
    reader(reply, ViewSource::plainly(&asked_endpoint()))
}

const READERS: [Reader; 3] =
    [ClusterView::from_shards, ClusterView::from_slots, ClusterView::from_nodes];

/// Gives `bytes` to every reader of replies.
fn read_by_all(bytes: &[u8]) {
    for reader in READERS {
        if let Ok(view) = read(reader, bytes) {
            check_laws(&view);
        }
    }
    let _ = WatchedPrimary::from_primaries(bytes);
    let _ = WatchedPrimary::from_primary(bytes);
    let _ = WatchedReplica::from_replicas(bytes);
    let _ = OtherSentinel::from_sentinels(bytes);
    let _ = primary_address(bytes);
    let _ = SwitchPrimary::parse(bytes);
    let _ = InfoReplication::from_reply(bytes);
    let _ = Redirect::parse(bytes);
}

/// Checks what the code that routes by a view relies on.
fn check_laws(view: &ClusterView) {
    assert!(view.nodes.len() <= NODES_MAX);
    for (.., owner) in view.owners.ranges() {
        assert_eq!(view.nodes[usize::from(owner)].role, NodeRole::Primary);
    }
    for node in &view.nodes {
        if let NodeRole::Replica { of: Some(of) } = node.role {
            assert_eq!(view.nodes[usize::from(of)].role, NodeRole::Primary);
        }
    }
    for moving in &view.moving {
        assert!(usize::from(moving.slot) < SLOT_COUNT);
        assert!(usize::from(moving.asked) < view.nodes.len());
        assert!(moving.peer.is_none_or(|peer| usize::from(peer) < view.nodes.len()));
    }
}

/// Generates nodes with identities, all primaries first. Every replica has a primary.
fn nodes() -> impl Strategy<Value = Vec<ClusterNode>> {
    let host =
        prop_oneof!["10\\.0\\.[0-9]\\.[1-9]", "node-[a-z]{1,8}\\.example", Just("::1".into())];
    let health = prop_oneof![
        6 => Just(NodeHealth::Online),
        1 => Just(NodeHealth::Failed),
        1 => Just(NodeHealth::Loading),
    ];
    let node = (host, 1..=u16::MAX, any::<Option<Index>>(), health, 0..1u64 << 60);
    (1..9usize, prop::collection::vec(node, 9..14)).prop_map(|(primaries, parts)| {
        let nodes =
            parts.into_iter().enumerate().map(|(index, (host, port, of, health, number))| {
                let of = of.map_or(index % primaries, |of| of.index(primaries)) as u16;
                let is_primary = index < primaries;
                ClusterNode {
                    id: Some(format!("{index:040x}").into()),
                    endpoint: Some(Endpoint::tcp(&host, port).unwrap()),
                    host_name: None,
                    zone: (number % 3 == 0).then(|| format!("zone-{}", number % 7).into()),
                    role: if is_primary {
                        NodeRole::Primary
                    } else {
                        NodeRole::Replica { of: Some(of) }
                    },
                    health,
                    replication_offset: Some(number),
                    epoch: Some(number),
                    is_asked: index == 0,
                }
            });
        nodes.collect()
    })
}

/// Generates owners of runs of slots; some runs have none.
fn owners() -> impl Strategy<Value = Vec<(u16, Option<Index>)>> {
    prop::collection::vec((1..3000u16, any::<Option<Index>>()), 0..40)
}

fn view() -> impl Strategy<Value = ClusterView> {
    let moving = prop::collection::vec((0..SLOT_COUNT as u16, any::<bool>(), any::<Index>()), 0..4);
    (nodes(), owners(), moving).prop_map(|(nodes, runs, moving)| {
        let primaries = nodes.iter().filter(|node| node.role == NodeRole::Primary).count();
        let mut owners = SlotOwners::new();
        let mut slots = 0..SLOT_COUNT as u16;
        for (len, owner) in runs {
            for slot in slots.by_ref().take(usize::from(len)) {
                owners.set(slot, owner.map(|owner| owner.index(primaries) as u16));
            }
        }
        let moving = moving.into_iter().map(|(slot, is_out, peer)| MovingSlot {
            slot,
            phase: if is_out { Move::Migrating } else { Move::Importing },
            asked: 0,
            peer: Some(peer.index(nodes.len()) as u16),
        });
        let moving = moving.collect();
        let epoch = nodes.iter().filter_map(|node| node.epoch).max();
        ClusterView { nodes, owners, epoch, moving }
    })
}

fn host_and_port(node: &ClusterNode) -> (&str, u16) {
    match node.endpoint.as_ref().unwrap() {
        Endpoint::Tcp { host, port } => (host, *port),
        Endpoint::Unix { .. } | Endpoint::Shm { .. } => unreachable!("no node is on a socket"),
    }
}

fn primary_of(index: usize, node: &ClusterNode) -> usize {
    match node.role {
        NodeRole::Primary => index,
        NodeRole::Replica { of } => usize::from(of.unwrap()),
    }
}

fn ranges_of(view: &ClusterView, primary: usize) -> Vec<(u16, u16)> {
    let runs = view.owners.ranges().filter(|&(.., owner)| usize::from(owner) == primary);
    runs.map(|(first, last, _)| (first, last)).collect()
}

fn render_nodes(view: &ClusterView, protocol: Protocol) -> Vec<u8> {
    let id = |index: usize| view.nodes[index].id.as_deref().unwrap();
    let mut text = String::new();
    for (index, node) in view.nodes.iter().enumerate() {
        let (host, port) = host_and_port(node);
        let zone = node.zone.as_ref().map(|zone| format!(",,availability-zone={zone}"));
        let primary = primary_of(index, node);
        let (role, primary) =
            if primary == index { ("master", "-") } else { ("slave", id(primary)) };
        let myself = if node.is_asked { "myself," } else { "" };
        let fail = if node.health == NodeHealth::Failed { ",fail" } else { "" };
        text += &format!(
            "{} {host}:{port}@{port}{} {myself}{role}{fail} {primary} 0 0 {} connected",
            id(index),
            zone.unwrap_or_default(),
            node.epoch.unwrap(),
        );
        for (first, last) in ranges_of(view, index) {
            text += &if first == last { format!(" {first}") } else { format!(" {first}-{last}") };
        }
        for moving in view.moving.iter().filter(|_| node.is_asked) {
            let arrow = if moving.phase == Move::Migrating { "->-" } else { "-<-" };
            text += &format!(" [{}{arrow}{}]", moving.slot, id(usize::from(moving.peer.unwrap())));
        }
        text.push('\n');
    }
    let mut out = Vec::new();
    protocol.text(&mut out, text.as_bytes());
    out
}

fn render_slots(view: &ClusterView, protocol: Protocol) -> Vec<u8> {
    let mut out = Vec::new();
    reply::array(&mut out, view.owners.ranges().count());
    for (first, last, owner) in view.owners.ranges() {
        let replicas: Vec<_> = view.replicas_of(owner).collect();
        reply::array(&mut out, 3 + replicas.len());
        reply::integer(&mut out, first.into());
        reply::integer(&mut out, last.into());
        for node in
            std::iter::once(&view.nodes[usize::from(owner)]).chain(replicas.iter().map(|one| one.1))
        {
            let (host, port) = host_and_port(node);
            reply::array(&mut out, 4);
            reply::bulk(&mut out, host.as_bytes());
            reply::integer(&mut out, port.into());
            reply::bulk(&mut out, node.id.as_deref().unwrap().as_bytes());
            protocol.map(&mut out, usize::from(node.zone.is_some()));
            if let Some(zone) = &node.zone {
                reply::bulk(&mut out, b"availability-zone");
                reply::bulk(&mut out, zone.as_bytes());
            }
        }
    }
    out
}

fn render_shards(view: &ClusterView, protocol: Protocol) -> Vec<u8> {
    let mut out = Vec::new();
    let primaries = view.nodes.iter().filter(|node| node.role == NodeRole::Primary).count();
    reply::array(&mut out, primaries);
    for primary in 0..primaries {
        protocol.map(&mut out, 2);
        reply::bulk(&mut out, b"slots");
        let ranges = ranges_of(view, primary);
        reply::array(&mut out, 2 * ranges.len());
        for (first, last) in ranges {
            reply::integer(&mut out, first.into());
            reply::integer(&mut out, last.into());
        }
        reply::bulk(&mut out, b"nodes");
        let members: Vec<_> = view
            .nodes
            .iter()
            .enumerate()
            .filter(|(index, node)| primary_of(*index, node) == primary)
            .collect();
        reply::array(&mut out, members.len());
        for (index, node) in members {
            render_member(&mut out, protocol, node, index == primary);
        }
    }
    out
}

fn render_member(out: &mut Vec<u8>, protocol: Protocol, node: &ClusterNode, is_primary: bool) {
    let (host, port) = host_and_port(node);
    let health = match node.health {
        NodeHealth::Failed => "fail",
        NodeHealth::Loading => "loading",
        _ => "online",
    };
    let zone = node.zone.as_deref().map(|zone| ("availability-zone", zone));
    let texts = [
        ("id", node.id.as_deref().unwrap()),
        ("endpoint", host),
        ("ip", "10.9.9.9"),
        ("role", if is_primary { "master" } else { "replica" }),
        ("health", health),
    ];
    protocol.map(out, texts.len() + 3 + usize::from(zone.is_some()));
    for (name, text) in texts.into_iter().chain(zone) {
        reply::bulk(out, name.as_bytes());
        reply::bulk(out, text.as_bytes());
    }
    reply::bulk(out, b"port");
    reply::integer(out, port.into());
    reply::bulk(out, b"replication-offset");
    reply::integer(out, node.replication_offset.unwrap() as i64);
    // A field that a later version may add.
    reply::bulk(out, b"something-new");
    protocol.map(out, 1);
    reply::array(out, 0);
    protocol.null(out);
}

/// Returns the nodes by identity, without what the command does not tell.
fn told(view: &ClusterView, tells: impl Fn(&mut ClusterNode)) -> Vec<ClusterNode> {
    let mut nodes = view.nodes.clone();
    for node in &mut nodes {
        // Indices depend on the reply; the identity of the primary is compared instead.
        if let NodeRole::Replica { of: Some(of) } = node.role {
            node.zone = view.nodes[usize::from(of)].id.clone();
            node.role = NodeRole::Replica { of: None };
        }
        tells(node);
    }
    nodes.sort_by(|left, right| left.id.cmp(&right.id));
    nodes
}

fn owner_names(view: &ClusterView) -> Vec<(u16, u16, &str)> {
    let id = |index: u16| view.nodes[usize::from(index)].id.as_deref().unwrap();
    view.owners.ranges().map(|(first, last, owner)| (first, last, id(owner))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nodes_are_read_as_they_were(mut view in view()) {
        for node in &mut view.nodes {
            node.replication_offset = None;
            if node.health == NodeHealth::Loading {
                node.health = NodeHealth::Online;
            }
        }
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let read = read(ClusterView::from_nodes, &render_nodes(&view, protocol));
            prop_assert_eq!(read.as_ref(), Ok(&view));
        }
    }

    #[test]
    fn shards_are_read_as_they_were(view in view()) {
        let tells = |node: &mut ClusterNode| {
            node.epoch = None;
            node.is_asked = false;
        };
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let read = read(ClusterView::from_shards, &render_shards(&view, protocol)).unwrap();
            check_laws(&read);
            prop_assert_eq!(told(&read, tells), told(&view, tells));
            prop_assert_eq!(owner_names(&read), owner_names(&view));
        }
    }

    #[test]
    fn slots_are_read_as_they_were(view in view()) {
        let tells = |node: &mut ClusterNode| {
            node.epoch = None;
            node.is_asked = false;
            node.replication_offset = None;
            node.health = NodeHealth::Online;
        };
        // A host that is not an address is the announced name.
        let mut view = view;
        for node in &mut view.nodes {
            let (host, _) = host_and_port(node);
            node.host_name = host.starts_with("node-").then(|| host.into());
        }
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let read = read(ClusterView::from_slots, &render_slots(&view, protocol)).unwrap();
            check_laws(&read);
            prop_assert_eq!(owner_names(&read), owner_names(&view));
            // A primary without slots is not told, nor are its replicas.
            let all = told(&view, tells);
            let shown = told(&read, tells);
            prop_assert!(shown.iter().all(|node| all.contains(node)));
            let owning = |node: &usize| !ranges_of(&view, *node).is_empty();
            let expected = view.nodes.iter().enumerate();
            let expected = expected.filter(|(index, node)| owning(&primary_of(*index, node)));
            prop_assert_eq!(shown.len(), expected.count());
        }
    }

    #[test]
    fn any_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_by_all(&bytes);
        let mut bulk = Vec::new();
        reply::bulk(&mut bulk, &bytes);
        read_by_all(&bulk);
    }

    #[test]
    fn a_changed_reply_does_no_harm(
        view in view(),
        which in 0..3usize,
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        let render = [render_nodes, render_slots, render_shards][which];
        let mut bytes = render(&view, Protocol::Resp3);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            // Most bytes become digits and separators, so that most replies stay whole.
            bytes[at] = if byte < 128 { b"0123456789-:*$ ,"[usize::from(byte) % 16] } else { byte };
        }
        read_by_all(&bytes);
    }
}

#[test]
fn bounds_hold() {
    let line = |number: usize, slots: &str| {
        format!("{number:040x} 10.0.0.1:7000@17000 master - 0 0 1 connected{slots}\n")
    };
    let read_nodes = |text: String| {
        let mut out = Vec::new();
        reply::bulk(&mut out, text.as_bytes());
        read(ClusterView::from_nodes, &out)
    };
    let many = |count| (0..count).map(|number| line(number, "")).collect::<String>();
    assert_eq!(read_nodes(many(NODES_MAX)).unwrap().nodes.len(), NODES_MAX);
    assert_eq!(read_nodes(many(NODES_MAX + 1)), Err(ViewError::TooManyNodes));
    for slots in [" 16384", " 0-16384", " 5-4", " [16384->-x]"] {
        assert_eq!(read_nodes(line(1, slots)), Err(ViewError::SlotRange), "{slots}");
    }
    for slots in
        [" -1", " a", " 1-", " 1-b", " 99999999999999999999", " [7->-]x", " [7]", " [x-<-y]"]
    {
        assert!(read_nodes(line(1, slots)).is_err(), "{slots}");
    }
    assert_eq!(read_nodes(line(1, &" 0-16383".repeat(5))), Err(ViewError::TooManySlots));
    assert!(read_nodes(line(1, &" 0-16383".repeat(4))).unwrap().is_whole());
    let one_more = " 0-16383".repeat(4) + " 7";
    assert_eq!(read_nodes(line(1, &one_more)), Err(ViewError::TooManySlots));
    let id = |id: &str| read_nodes(format!("{id} 10.0.0.1:7000@17000 master - 0 0 1 connected\n"));
    assert!(id(&"x".repeat(64)).is_ok() && id("x").is_ok());
    for refused in ["x".repeat(65), "x\u{7f}".into(), "é".into()] {
        assert_eq!(id(&refused), Err(ViewError::Expected("the identity of a node")), "{refused}");
    }
    let moving = " [7->-0000000000000000000000000000000000000000]".repeat(65537);
    assert_eq!(read_nodes(line(1, &moving)), Err(ViewError::TooManySlots));
    let long = [b"$16777216\r\n", &vec![b'x'; VIEW_LEN_MAX][..], b"\r\n"].concat();
    for reader in READERS {
        assert_eq!(read(reader, &long), Err(ViewError::TooLong));
    }
}

#[test]
fn a_node_is_where_its_line_says_by_the_port_that_is_wanted() {
    let asked = asked_endpoint();
    let endpoint = |address: &str, flags: &str, wants_tls| {
        let line = format!("{:040x} {address} {flags} - 0 0 1 connected\n", 7);
        let mut out = Vec::new();
        reply::bulk(&mut out, line.as_bytes());
        let view =
            ClusterView::from_nodes(&out, ViewSource { endpoint: &asked, wants_tls }).unwrap();
        view.nodes[0].endpoint.clone()
    };
    let at = |text: &str| Some(text.parse::<Endpoint>().unwrap());
    for (address, plain, tls) in [
        ("10.0.0.1:7000@17000", "10.0.0.1:7000", "10.0.0.1:7000"),
        ("10.0.0.1:7000@17000,,tls-port=7001", "10.0.0.1:7000", "10.0.0.1:7001"),
        ("10.0.0.1:7001@17000,,tcp-port=7000", "10.0.0.1:7000", "10.0.0.1:7001"),
    ] {
        assert_eq!(endpoint(address, "master", false), at(plain), "{address}");
        assert_eq!(endpoint(address, "master", true), at(tls), "{address}");
    }
    // Only the asked node, if it does not know its own address, is at the endpoint that was asked.
    assert_eq!(endpoint(":7000@17000", "myself,master", false), Some(asked.clone()));
    assert_eq!(endpoint(":7000@17000", "master", false), None);
    assert_eq!(endpoint("10.0.0.1:7000@17000", "master,noaddr", false), None);
}

#[test]
fn the_later_epoch_owns_what_two_claim() {
    let line = |id: char, flags: &str, epoch: u64| {
        let id = String::from(id).repeat(40);
        format!("{id} 10.0.0.1:7000@17000 {flags} - 0 0 {epoch} connected 5-6\n")
    };
    let owner = |text: String| {
        let mut out = Vec::new();
        reply::bulk(&mut out, text.as_bytes());
        let view = read(ClusterView::from_nodes, &out).unwrap();
        let owner = view.owner_of(5).unwrap();
        owner.id.as_deref().unwrap().chars().next().unwrap()
    };
    assert_eq!(owner(line('a', "master", 3) + &line('b', "master", 4)), 'b');
    assert_eq!(owner(line('a', "master", 4) + &line('b', "master", 3)), 'a');
    assert_eq!(owner(line('a', "master,fail", 3) + &line('b', "master", 3)), 'b');
    assert_eq!(owner(line('a', "master", 3) + &line('b', "master", 3)), 'a');
    // A replica owns nothing, even if it claims slots.
    assert_eq!(owner(line('a', "slave", 9) + &line('b', "master", 3)), 'b');
}

#[test]
fn old_slots_without_identities_are_told_apart_by_address() {
    let reply = b"*2\r\n*4\r\n:0\r\n:9\r\n*2\r\n$1\r\na\r\n:1\r\n*2\r\n$1\r\nb\r\n:1\r\n\
        *4\r\n:20\r\n:29\r\n*2\r\n$1\r\na\r\n:1\r\n*2\r\n$1\r\nb\r\n:1\r\n";
    let view = read(ClusterView::from_slots, reply).unwrap();
    assert_eq!(view.nodes.len(), 2);
    assert_eq!(view.owners.ranges().collect::<Vec<_>>(), [(0, 9, 0), (20, 29, 0)]);
    assert_eq!(view.nodes[1].role, NodeRole::Replica { of: Some(0) });
}

#[test]
fn a_shard_without_its_primary_owns_nothing() {
    let reply = b"*1\r\n%2\r\n+slots\r\n*2\r\n:0\r\n:9\r\n+nodes\r\n*1\r\n%3\r\n+endpoint\r\n\
        $1\r\na\r\n+port\r\n:1\r\n+role\r\n+replica\r\n";
    let view = read(ClusterView::from_shards, reply).unwrap();
    assert_eq!(view.owners.owned_count(), 0);
    assert_eq!(view.nodes[0].role, NodeRole::Replica { of: None });
}

#[test]
fn of_two_primaries_in_a_shard_the_one_that_is_well_owns_it() {
    let member = |host: &str, health: &str| {
        format!(
            "%4\r\n+endpoint\r\n+{host}\r\n+port\r\n:1\r\n+role\r\n+master\r\n+health\r\n+{health}\r\n"
        )
    };
    for (first, second, owner) in
        [("fail", "online", "b"), ("online", "fail", "a"), ("fail", "fail", "a")]
    {
        let members = member("a", first) + &member("b", second);
        let reply = format!("*1\r\n%2\r\n+nodes\r\n*2\r\n{members}+slots\r\n*2\r\n:0\r\n:9\r\n");
        let view = read(ClusterView::from_shards, reply.as_bytes()).unwrap();
        let endpoint = view.owner_of(3).unwrap().endpoint.as_ref().unwrap().to_string();
        assert_eq!(endpoint, format!("{owner}:1"));
    }
}

#[test]
fn what_is_not_a_view_is_refused_in_words() {
    for (reply, text) in [
        (&b"-ERR This instance has cluster support disabled\r\n"[..], "is an error: ERR This"),
        (b"+OK\r\n", "in place of"),
        (b"*1\r\n*2\r\n:0\r\n:9\r\n", "in place of"),
        (b":1\r\n", "in place of"),
        (b"*1\r\n", "is not exactly one reply"),
    ] {
        for reader in READERS {
            let error = read(reader, reply).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
    let slots = |host: &str, port: &str| {
        let reply =
            format!("*1\r\n*3\r\n:0\r\n:9\r\n*2\r\n${}\r\n{host}\r\n:{port}\r\n", host.len());
        read(ClusterView::from_slots, reply.as_bytes())
    };
    assert_eq!(slots("a/b", "1"), Err(ViewError::Host("a/b".into())));
    assert_eq!(slots("a", "65536"), Err(ViewError::Number("the port of a node")));
    assert_eq!(slots("a", "0").unwrap().nodes[0].endpoint, None);
    assert_eq!(slots("[::1]", "1").unwrap().nodes[0].endpoint, "[::1]:1".parse().ok());
}
