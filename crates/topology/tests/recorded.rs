//! Reads recorded replies of real servers of many versions. They are in `recorded/`, with a page on
//! how they were made.

use keyway_resp::{Framer, Framing, Protocol};
use keyway_topology::{
    ClusterNode, ClusterView, Endpoint, InfoReplication, Move, NodeHealth, NodeRole, OtherSentinel,
    SentinelView, SwitchPrimary, ViewError, ViewSource, WatchedPrimary, WatchedReplica, key_slot,
    primary_address,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

/// Each recorded version: its folder, whether it has CLUSTER SHARDS and host names, and whether it
/// has RESP3.
const VERSIONS: [(&str, bool, bool); 9] = [
    ("redis-3.2.13", false, false),
    ("redis-5.0.14", false, false),
    ("redis-6.2.16", false, true),
    ("redis-7.0.15", true, true),
    ("redis-7.2.6", true, true),
    ("redis-8.0-m01", true, true),
    ("valkey-7.2.7", true, true),
    ("valkey-8.0.1", true, true),
    ("valkey-unstable", true, true),
];

/// Versions whose CLUSTER SHARDS leaves out the slots of a shard as long as its dead primary is in
/// it.
const LOSES_SLOTS: [&str; 1] = ["redis-7.2.6"];

/// Returns the endpoint that the tests use as the asked one. No server was there.
fn asked_endpoint() -> Endpoint {
    "192.0.2.9:7777".parse().unwrap()
}

fn path(version: &str, situation: &str) -> PathBuf {
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests");
    tests.join("recorded").join(version).join(situation)
}

/// Reads lines with the question, each followed by the reply.
fn replies(version: &str, situation: &str) -> BTreeMap<String, Vec<u8>> {
    let bytes = fs::read(path(version, situation))
        .unwrap_or_else(|error| panic!("{version} {situation}: {error}"));
    let mut rest = &bytes[..];
    let mut replies = BTreeMap::new();
    while !rest.is_empty() {
        let line = rest.iter().position(|&byte| byte == b'\n').unwrap();
        let what = String::from_utf8(rest[..line].to_vec()).unwrap();
        rest = &rest[line + 1..];
        let framed = Framer::new(Protocol::Resp3).frame(rest, u32::MAX, 9).unwrap();
        let Framing::Ready { len, .. } = framed else { panic!("{version} {situation} is cut") };
        assert!(replies.insert(what, rest[..len].to_vec()).is_none(), "{version} {situation}");
        rest = &rest[len..];
    }
    assert!(!replies.is_empty(), "{version} {situation}");
    replies
}

fn view(what: &str, reply: &[u8], wants_tls: bool) -> ClusterView {
    let endpoint = asked_endpoint();
    let asked = ViewSource { endpoint: &endpoint, wants_tls };
    let view = match what.split(' ').next().unwrap() {
        "nodes" => ClusterView::from_nodes(reply, asked),
        "slots" => ClusterView::from_slots(reply, asked),
        "shards" => ClusterView::from_shards(reply, asked),
        other => panic!("{other}"),
    };
    view.unwrap_or_else(|error| panic!("{what} {error}"))
}

/// Returns the views of a situation, by question.
fn views(version: &str, situation: &str) -> BTreeMap<String, ClusterView> {
    let read = |(what, reply): (String, Vec<u8>)| (what.clone(), view(&what, &reply, false));
    replies(version, situation).into_iter().map(read).collect()
}

fn id(node: &ClusterNode) -> &str {
    node.id.as_deref().unwrap()
}

fn host(node: &ClusterNode) -> &str {
    match node.endpoint.as_ref() {
        Some(Endpoint::Tcp { host, .. }) => host,
        other => panic!("{other:?}"),
    }
}

/// Returns each range of slots with the identity of its owner.
fn ranges(view: &ClusterView) -> Vec<(u16, u16, &str)> {
    let name = |(first, last, owner)| (first, last, id(&view.nodes[usize::from(owner)]));
    view.owners.ranges().map(name).collect()
}

/// Returns the identity, the endpoint and the primary of every node.
fn members(view: &ClusterView) -> BTreeSet<(&str, Option<&Endpoint>, Option<&str>)> {
    let primary_of = |node: &ClusterNode| match node.role {
        NodeRole::Primary => None,
        NodeRole::Replica { of } => Some(id(&view.nodes[usize::from(of.unwrap())])),
    };
    view.nodes.iter().map(|node| (id(node), node.endpoint.as_ref(), primary_of(node))).collect()
}

/// Checks that there are three primaries with a replica each, and that slot 100 belongs to the
/// first.
fn check_whole(version: &str, situation: &str, view: &ClusterView) {
    let label = format!("{version} {situation}");
    assert!(view.is_whole(), "{label}");
    assert_eq!(view.nodes.len(), 6, "{label}");
    let owner = |slot| view.owner_of(slot).unwrap();
    let (a, b, c) = (id(owner(0)), id(owner(100)), id(owner(16383)));
    let expected = [(0, 99, a), (100, 100, b), (101, 5460, a), (5461, 10922, b), (10923, 16383, c)];
    assert_eq!(ranges(view), expected, "{label}");
    for slot in [0, 100, 16383] {
        let index = view.owners.of(slot).unwrap();
        assert_eq!(owner(slot).role, NodeRole::Primary, "{label}");
        assert_eq!(view.replicas_of(index).count(), 1, "{label}");
    }
    let endpoints: BTreeSet<_> = view.nodes.iter().map(|node| node.endpoint.as_ref()).collect();
    assert_eq!(endpoints.len(), 6, "{label}");
    for node in &view.nodes {
        assert_eq!(id(node).len(), 40, "{label}");
        assert_eq!(node.health, NodeHealth::Online, "{label}");
    }
    assert!(view.moving.is_empty(), "{label}");
}

/// Checks the fields that only one of the commands tells.
fn check_extras(version: &str, what: &str, view: &ClusterView) {
    let asked = view.nodes.iter().filter(|node| node.is_asked).count();
    let has_offsets = view.nodes.iter().all(|node| node.replication_offset.is_some());
    let is_nodes = what.starts_with("nodes");
    assert_eq!(asked, usize::from(is_nodes), "{version} {what}");
    assert_eq!(view.epoch.is_some_and(|epoch| epoch >= 3), is_nodes, "{version} {what}");
    assert_eq!(has_offsets, what.starts_with("shards"), "{version} {what}");
}

#[test]
fn every_version_is_there_and_every_file_is_read() {
    let folder = path("", "");
    let found: BTreeSet<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, VERSIONS.iter().map(|(version, ..)| version.to_string()).collect());
    let mut counts = BTreeMap::new();
    for (version, ..) in VERSIONS {
        for entry in fs::read_dir(path(version, "")).unwrap() {
            let situation = entry.unwrap().file_name().into_string().unwrap();
            if situation == "keyslots" {
                continue;
            }
            for (what, reply) in replies(version, &situation) {
                let kind = what.split(' ').next().unwrap().to_owned();
                if matches!(&kind[..], "nodes" | "slots" | "shards") {
                    view(&what, &reply, false);
                }
                *counts.entry(kind).or_insert(0) += 1;
            }
        }
    }
    assert!(counts["nodes"] > 100 && counts["slots"] > 100 && counts["shards"] > 100, "{counts:?}");
}

#[test]
fn slots_of_keys_are_the_server_s() {
    let mut checked = 0;
    for (version, ..) in VERSIONS {
        for line in fs::read_to_string(path(version, "keyslots")).unwrap().lines() {
            let (hex, slot) = line.split_once(' ').unwrap();
            let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            let key: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
            assert_eq!(key_slot(&key).to_string(), slot, "{version} {hex}");
            checked += 1;
        }
    }
    assert!(checked > 2000, "{checked}");
}

#[test]
fn a_cluster_of_addresses_is_read_from_every_command() {
    for (version, has_shards, has_resp3) in VERSIONS {
        for (situation, loopback) in
            [("ipv4", "127.0.0.1"), ("ipv4_asked_replica", "127.0.0.1"), ("ipv6", "::1")]
        {
            let views = views(version, situation);
            let commands = 2 + usize::from(has_shards);
            assert_eq!(views.len(), commands * (1 + usize::from(has_resp3)), "{version}");
            let first = &views["nodes"];
            for (what, view) in &views {
                check_whole(version, what, view);
                check_extras(version, what, view);
                assert!(view.nodes.iter().all(|node| host(node) == loopback), "{version} {what}");
                assert_eq!(ranges(view), ranges(first), "{version} {what}");
                assert_eq!(members(view), members(first), "{version} {what}");
            }
        }
        let asked = &views(version, "ipv4_asked_replica")["nodes"];
        let asked = asked.nodes.iter().find(|node| node.is_asked).unwrap();
        assert!(matches!(asked.role, NodeRole::Replica { of: Some(_) }), "{version}");
    }
}

#[test]
fn a_server_alone_is_where_it_was_asked() {
    for (version, ..) in VERSIONS {
        for (what, view) in views(version, "alone") {
            assert_eq!(view.owners.owned_count(), 0, "{version} {what}");
            if what.starts_with("slots") {
                assert!(view.nodes.is_empty(), "{version} {what}");
            }
        }
        for (what, view) in views(version, "alone_with_slots") {
            let slots: Vec<_> =
                view.owners.ranges().map(|(first, last, _)| (first, last)).collect();
            assert_eq!(slots, [(0, 2), (16383, 16383)], "{version} {what}");
            let [node] = &view.nodes[..] else { panic!("{version} {what} {view:?}") };
            // It does not know its address. Only CLUSTER NODES says that it is the asked one.
            let expected = asked_endpoint();
            match what.starts_with("nodes") {
                true => assert_eq!(node.endpoint, Some(expected), "{version} {what}"),
                false => assert_eq!(host(node), "192.0.2.9", "{version} {what}"),
            }
        }
    }
}

#[test]
fn slots_on_the_way_are_seen_from_both_sides() {
    for (version, ..) in VERSIONS {
        let source = &views(version, "moving_source")["nodes"];
        let target = &views(version, "moving_target")["nodes"];
        assert!(source.is_whole() && target.is_whole(), "{version}");
        let moves = |view: &ClusterView| -> Vec<(u16, Move, String, String)> {
            let name = |index: u16| id(&view.nodes[usize::from(index)]).to_owned();
            let moving = view.moving.iter();
            moving.map(|m| (m.slot, m.phase, name(m.asked), name(m.peer.unwrap()))).collect()
        };
        let owner = |slot| id(source.owner_of(slot).unwrap()).to_owned();
        let (a, b, c) = (owner(7), owner(100), owner(16383));
        let expected =
            [(7, Move::Migrating, a.clone(), c.clone()), (100, Move::Importing, a.clone(), b)];
        assert_eq!(moves(source), expected, "{version}");
        assert_eq!(moves(target), [(7, Move::Importing, c, a)], "{version}");
    }
}

#[test]
fn who_is_being_met_and_who_is_lost_is_told() {
    for (version, ..) in VERSIONS {
        let met = &views(version, "handshake")["nodes"];
        let of = |health| met.nodes.iter().filter(move |node| node.health == health);
        assert_eq!((met.nodes.len(), of(NodeHealth::Online).count()), (7, 6), "{version}");
        assert_eq!(host(of(NodeHealth::Handshake).next().unwrap()), "127.0.0.1", "{version}");
        let views = views(version, "no_address");
        let lost = &views["nodes"].nodes;
        let lost = lost.iter().find(|node| node.health == NodeHealth::NoAddress).unwrap();
        assert_eq!(lost.endpoint, None, "{version}");
        for (what, view) in &views {
            assert!(view.is_whole(), "{version} {what}");
            let seen = view.nodes.iter().find(|node| node.id == lost.id);
            // The other commands do not list it, or list it as failed.
            let is_out = seen.is_none_or(|node| node.endpoint.is_none());
            assert!(is_out, "{version} {what} {seen:?}");
        }
    }
}

#[test]
fn who_has_failed_is_told_and_owns_its_slots_until_another_does() {
    for (version, ..) in VERSIONS {
        for (what, view) in views(version, "failed") {
            let owner = view.owner_of(16383).unwrap();
            assert!(view.is_whole(), "{version} {what}");
            // CLUSTER SLOTS says nothing of health.
            let expected =
                if what.starts_with("slots") { NodeHealth::Online } else { NodeHealth::Failed };
            assert_eq!(owner.health, expected, "{version} {what}");
            assert!(owner.endpoint.is_some(), "{version} {what}");
        }
        let views = views(version, "failed_over");
        let dead = &views["nodes"].nodes;
        let dead = dead.iter().find(|node| node.health == NodeHealth::Failed).unwrap();
        for (what, view) in &views {
            if LOSES_SLOTS.contains(&version) && what.starts_with("shards") {
                assert_eq!(view.owner_of(5461), None, "{version} {what}");
                continue;
            }
            assert!(view.is_whole(), "{version} {what}");
            let owner = view.owner_of(5461).unwrap();
            assert_eq!(owner.health, NodeHealth::Online, "{version} {what}");
            assert_eq!(owner.role, NodeRole::Primary, "{version} {what}");
            assert_ne!(owner.id, dead.id, "{version} {what}");
            assert_eq!(view.owner_of(100), Some(owner), "{version} {what}");
        }
    }
}

#[test]
fn a_suspect_is_told_from_a_failed_node() {
    for (version, ..) in VERSIONS {
        let view = &views(version, "failing")["nodes"];
        let suspects = view.nodes.iter().filter(|node| node.health == NodeHealth::Failing);
        // The stopped primary may be suspected too.
        assert!((1..=2).contains(&suspects.count()), "{version}");
        assert!(view.is_whole(), "{version}");
    }
}

#[test]
fn names_are_used_where_the_server_prefers_them() {
    for (version, ..) in VERSIONS.iter().filter(|(_, has_shards, _)| *has_shards) {
        let names = |view: &ClusterView| {
            let is_name = |node: &&ClusterNode| host(node).ends_with(".example.net");
            let with_name = view.nodes.iter().filter(|node| node.host_name.is_some());
            (view.nodes.iter().filter(is_name).count(), with_name.count())
        };
        for (situation, preferred) in [("names", 5), ("names_not_preferred", 0)] {
            for (what, view) in views(version, situation) {
                check_whole(version, &what, &view);
                // CLUSTER NODES does not say what is preferred.
                let expected = if what.starts_with("nodes") { 0 } else { preferred };
                assert_eq!(names(&view), (expected, 5), "{version} {situation} {what}");
                let rest = view.nodes.iter().filter(|node| node.host_name.is_none());
                assert!(rest.into_iter().all(|node| host(node) == "127.0.0.1"), "{version} {what}");
            }
        }
        for (what, view) in views(version, "unknown_endpoint") {
            check_whole(version, &what, &view);
            let expected = if what.starts_with("nodes") { "127.0.0.1" } else { "192.0.2.9" };
            assert!(view.nodes.iter().all(|node| host(node) == expected), "{version} {what}");
        }
    }
}

#[test]
fn the_port_for_tls_is_taken_where_it_is_wanted() {
    let version = "redis-7.0.15";
    let ports = |view: &ClusterView| -> BTreeSet<u16> {
        let port = |node: &ClusterNode| match node.endpoint {
            Some(Endpoint::Tcp { port, .. }) => port,
            _ => panic!("{node:?}"),
        };
        view.nodes.iter().map(port).collect()
    };
    let (plain, tls) = (replies(version, "tls_asked_plainly"), replies(version, "tls"));
    let by_tls = ports(&view("shards", &tls["shards"], true));
    let by_plain = ports(&view("shards", &tls["shards"], false));
    assert!(by_tls.len() == 3 && by_plain.len() == 3 && by_tls.is_disjoint(&by_plain));
    for what in ["nodes", "slots", "shards"] {
        // The other two commands tell the port of the kind of connection by which they were asked.
        assert_eq!(ports(&view(what, &tls[what], true)), by_tls, "{what}");
        assert_eq!(ports(&view(what, &plain[what], false)), by_plain, "{what}");
    }
}

fn sentinel_view(replies: &BTreeMap<String, Vec<u8>>, suffix: &str) -> SentinelView {
    let reply = |what: &str| &replies[&format!("{what}{suffix}")][..];
    let view = SentinelView::from_replies(reply("primary"), reply("replicas"), reply("sentinels"))
        .unwrap();
    let all = WatchedPrimary::from_primaries(reply("primaries")).unwrap();
    assert_eq!(all, std::slice::from_ref(&view.primary));
    assert_eq!(primary_address(reply("address")).unwrap(), Some(view.primary.endpoint.clone()));
    let slaves = WatchedReplica::from_replicas(reply("slaves")).unwrap();
    assert_eq!(slaves.len(), view.replicas.len());
    view
}

#[test]
fn sentinels_tell_of_a_primary_that_is_well() {
    for (version, _, has_resp3) in VERSIONS {
        let replies = replies(version, "sentinel");
        for suffix in if has_resp3 { &["", " resp3"][..] } else { &[""] } {
            let SentinelView { primary, replicas, sentinels } = sentinel_view(&replies, suffix);
            assert_eq!((&*primary.name, primary.quorum), ("main", Some(2)), "{version}");
            assert!(primary.state.is_reached() && !primary.reports_replica, "{version}");
            assert_eq!(primary.config_epoch, Some(0), "{version}");
            assert_eq!(primary.replica_count, Some(2), "{version}");
            assert_eq!(primary.other_sentinel_count, Some(2), "{version}");
            assert_eq!(primary.run_id.map(|id| id.len()), Some(40), "{version}");
            assert_eq!((replicas.len(), sentinels.len()), (2, 2), "{version}");
            for replica in replicas {
                assert!(replica.state.is_reached() && replica.is_linked, "{version}");
                assert!(replica.is_announced && !replica.reports_primary, "{version}");
                assert_eq!(replica.primary.as_ref(), Some(&primary.endpoint), "{version}");
                assert_eq!((replica.priority, replica.link_down_ms), (Some(100), Some(0)));
                assert!(replica.replication_offset.is_some(), "{version}");
            }
            assert!(sentinels.iter().all(|sentinel| sentinel.state.is_reached()), "{version}");
        }
    }
}

#[test]
fn sentinels_tell_of_a_fail_over() {
    for (version, ..) in VERSIONS {
        let down = sentinel_view(&replies(version, "sentinel_down"), "");
        assert!(down.primary.state.is_down && down.primary.state.is_down_here, "{version}");
        assert!(!down.primary.state.is_reached(), "{version}");
        let message = &replies(version, "switch")["message"];
        let words: Vec<_> = message.split(|&byte| byte == b'\n').collect();
        let switch = SwitchPrimary::parse(words[6].trim_ascii_end()).unwrap();
        assert_eq!((&*switch.name, &switch.from), ("main", &down.primary.endpoint), "{version}");
        let switched = sentinel_view(&replies(version, "sentinel_switched"), "");
        assert_eq!(switched.primary.endpoint, switch.to, "{version}");
        assert!(switched.primary.config_epoch > down.primary.config_epoch, "{version}");
        let old = switched.replicas.iter().find(|replica| replica.endpoint == switch.from);
        assert!(old.unwrap().state.is_down_here, "{version}");
        assert_eq!(switched.replicas.len(), 2, "{version}");
    }
}

#[test]
fn a_name_that_is_not_watched_is_refused() {
    for (version, ..) in VERSIONS {
        let replies = replies(version, "unwatched");
        assert_eq!(primary_address(&replies["address"]), Ok(None), "{version}");
        let primary = WatchedPrimary::from_primary(&replies["primary"]);
        assert!(matches!(primary, Err(ViewError::Refused(_))), "{version} {primary:?}");
        for reply in [&replies["primary"], &replies["replicas"]] {
            let refused = WatchedReplica::from_replicas(reply);
            assert!(matches!(refused, Err(ViewError::Refused(_))), "{version} {refused:?}");
            assert!(OtherSentinel::from_sentinels(reply).is_err(), "{version}");
        }
    }
}

#[test]
fn servers_tell_of_their_replication() {
    for (version, ..) in VERSIONS {
        let info = |situation: &str| {
            let infos = replies(version, situation).into_values();
            let mut infos: Vec<_> =
                infos.map(|reply| InfoReplication::from_reply(&reply).unwrap()).collect();
            infos.swap_remove(0)
        };
        let primary = info("primary");
        assert!(!primary.is_replica() && primary.replicas.len() == 2, "{version}");
        for replica in &primary.replicas {
            assert!(replica.is_online && replica.lag_seconds < 10, "{version}");
            assert!(replica.endpoint.is_some(), "{version}");
            assert!(replica.replication_offset <= primary.replication_offset, "{version}");
        }
        assert!(!info("primary_alone").is_replica(), "{version}");
        let replica = info("replica");
        let link = replica.link.as_ref().unwrap();
        assert!(link.is_up && link.is_read_only && !link.is_syncing, "{version}");
        assert!(link.last_io_seconds_ago.is_some_and(|seconds| seconds < 20), "{version}");
        assert_eq!((link.priority, link.down_seconds), (Some(100), None), "{version}");
        assert_eq!(primary.replication_id, replica.replication_id, "{version}");
        let unlinked = info("replica_unlinked").link.unwrap();
        assert!(!unlinked.is_up && unlinked.last_io_seconds_ago.is_none(), "{version}");
        assert!(unlinked.down_seconds.is_some(), "{version}");
        assert_eq!(unlinked.primary, link.primary, "{version}");
    }
}
