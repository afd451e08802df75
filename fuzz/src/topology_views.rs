//! Any reply as what a cluster or a sentinel says of itself: it is refused, or
//! it is a view that can be routed by.

use crate::Choices;
use keyway_topology::{
    ClusterView, Endpoint, InfoReplication, NODES_MAX, NodeRole, OtherSentinel, Redirect,
    SLOT_COUNT, SentinelView, SwitchPrimary, ViewSource, WatchedPrimary, WatchedReplica,
    primary_address,
};

/// Runs the target on one input: what is read, whether TLS is wanted, and the
/// reply.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let reader = choices.below(10);
    let wants_tls = choices.flip();
    let reply = choices.rest();
    let endpoint: Endpoint = "192.0.2.9:7777".parse().expect("an endpoint");
    let asked = ViewSource { endpoint: &endpoint, wants_tls };
    match reader {
        0 => check(ClusterView::from_nodes(reply, asked).ok()),
        1 => check(ClusterView::from_slots(reply, asked).ok()),
        2 => check(ClusterView::from_shards(reply, asked).ok()),
        3 => bounded(WatchedPrimary::from_primaries(reply).unwrap_or_default().len()),
        4 => bounded(WatchedReplica::from_replicas(reply).unwrap_or_default().len()),
        5 => bounded(OtherSentinel::from_sentinels(reply).unwrap_or_default().len()),
        6 => drop(SentinelView::from_replies(reply, b"*0\r\n", b"*0\r\n")),
        7 => drop((primary_address(reply), SwitchPrimary::parse(reply))),
        8 => bounded(InfoReplication::from_reply(reply).map_or(0, |info| info.replicas.len())),
        _ => check_redirect(reply),
    }
}

fn bounded(count: usize) {
    assert!(count <= NODES_MAX, "{count} instances");
}

fn check(view: Option<ClusterView>) {
    let Some(view) = view else { return };
    bounded(view.nodes.len());
    for (first, last, owner) in view.owners.ranges() {
        assert!(first <= last && usize::from(last) < SLOT_COUNT);
        assert_eq!(view.nodes[usize::from(owner)].role, NodeRole::Primary);
    }
    for node in &view.nodes {
        if let NodeRole::Replica { of: Some(of) } = node.role {
            assert_eq!(view.nodes[usize::from(of)].role, NodeRole::Primary);
        }
        if let Some(endpoint) = &node.endpoint {
            assert_eq!(endpoint.to_string().parse().as_ref(), Ok(endpoint));
        }
    }
    for moving in &view.moving {
        assert!(usize::from(moving.slot) < SLOT_COUNT);
        for index in [Some(moving.asked), moving.peer].into_iter().flatten() {
            assert!(usize::from(index) < view.nodes.len());
        }
    }
}

fn check_redirect(error: &[u8]) {
    if let Some(redirect) = Redirect::parse(error) {
        assert!(usize::from(redirect.slot) < SLOT_COUNT && redirect.port != 0);
    }
}
