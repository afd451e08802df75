//! The laws that every run keeps.

use super::clients::check_keys;
use super::digest::{difference, digest};
use super::director::Director;
use super::node::{Node, index_of};
use keyway_replica::State;
use keyway_replica::feed::Stage as Fed;

/// Bounds on memory, honest acknowledgements, and data that fits its place in the history.
pub(super) fn at_any_time(director: &mut Director) -> Result<(), String> {
    let room = director.options.feed.limits.room;
    for node in &director.nodes {
        let life = node.life();
        let held = life.store.effects_len();
        if held > room {
            return Err(format!("store {} keeps {held} bytes of effects in {room}", node.index));
        }
        node.histories.check(node.index, &life)?;
        check_acknowledged(director, node)?;
    }
    Ok(())
}

/// A replica acknowledges no more than it has.
fn check_acknowledged(director: &Director, node: &Node) -> Result<(), String> {
    let life = node.life();
    let fed = life.standby.feed_status();
    for replica in fed.replicas.iter().filter(|it| it.stage == Fed::Online) {
        let Some(other) = replica.port.map(index_of) else { continue };
        let follower = director.nodes[other].life();
        let Some(status) = follower.standby.status() else { continue };
        let is_linked = status.link.state == State::Online
            && index_of(status.primary.port) == node.index
            && follower.standby.replication_id() == fed.id
            // An older link of the same replica may not have been noticed to be gone.
            && fed.replicas.iter().filter(|it| it.port == replica.port).count() == 1;
        let has = follower.store.effects_offset();
        if is_linked && follower.store.is_relaying() && replica.acknowledged > has {
            return Err(format!(
                "store {other} acknowledges {} to {}, and has {has}",
                replica.acknowledged, node.index
            ));
        }
    }
    Ok(())
}

/// Why a replica does not have all of the store that it follows, if one does not.
pub(super) fn unrest(director: &Director) -> Option<String> {
    director.nodes.iter().find_map(|node| {
        let life = node.life();
        let Some(status) = life.standby.status() else {
            let waits = life.store.is_replica() || life.store.is_loading();
            return waits.then(|| format!("store {} follows nobody", node.index));
        };
        let upstream = director.nodes[index_of(status.primary.port)].life();
        let (own, other) = (&life.standby, &upstream.standby);
        let is_same = status.link.state == State::Online
            && !life.store.is_loading()
            && own.replication_id() == other.replication_id()
            && life.store.effects_offset() == upstream.store.effects_offset()
            && status.link.offset == life.store.effects_offset();
        (!is_same).then(|| {
            format!(
                "store {} does not come to the data of {}: it is at {} of {:?}, its primary at {} \
                 of {:?}; {:?}",
                node.index,
                index_of(status.primary.port),
                life.store.effects_offset(),
                own.replication_id(),
                upstream.store.effects_offset(),
                other.replication_id(),
                status.link
            )
        })
    })
}

/// Replicas have the data of their primaries.
pub(super) fn at_rest(director: &mut Director) -> Result<(), String> {
    let mut compared = 0;
    for node in &director.nodes {
        let life = node.life();
        for key in 0..12 {
            check_keys(node.index, &life, key)?;
        }
        let Some(upstream) = life.follows() else { continue };
        let other = director.nodes[upstream].life();
        let (Some(own), Some(theirs)) = (digest(&life), digest(&other)) else {
            return Err(format!("store {} is loading at rest", node.index));
        };
        if own != theirs {
            let text = difference(&own, &theirs);
            return Err(format!("store {} differs from {upstream}: {text}", node.index));
        }
        compared += 1;
    }
    director.report.compared += compared;
    Ok(())
}

/// Adds what the links of all stores have counted, while they are there.
pub(super) fn count(director: &mut Director) {
    for node in &director.nodes {
        if let Some(status) = node.life().standby.status() {
            director.report.full_resyncs += status.link.full_resyncs;
            director.report.partial_resyncs += status.link.partial_resyncs;
            director.report.failures += status.link.failures;
        }
    }
}

/// Returns a fault if something is left of replicas that have gone.
pub(super) fn followed(director: &Director) -> Option<String> {
    director.nodes.iter().find_map(|node| {
        let life = node.life();
        let (held, fed) = (life.store.effects_len(), life.standby.feed_status());
        let is_left = life.store.is_replica()
            || life.store.has_followers()
            || held > 0
            || !fed.replicas.is_empty();
        is_left.then(|| {
            format!(
                "store {} has no replica, and keeps {held} bytes of effects for {} replicas",
                node.index,
                fed.replicas.len()
            )
        })
    })
}

/// The role and the link of a store, and its offsets.
pub(super) fn role_of(node: &Node) -> (String, String) {
    let life = node.life();
    let fed = life.standby.feed_status();
    let short = |id: keyway_rdb::replication::ReplicationId| {
        String::from_utf8_lossy(&id.as_bytes()[..6]).into_owned()
    };
    let second = fed.second.map(|(id, offset)| (short(id), offset));
    let place = format!(", at {}, second {second:?}", fed.offset);
    let Some(status) = life.standby.status() else {
        let role = if life.store.is_replica() { "a replica of nobody" } else { "a primary" };
        return (format!("{role} of {}", short(fed.id)), place);
    };
    let link = status.link;
    let state = match link.state {
        State::Transfer { .. } => "Transfer".to_owned(),
        state => format!("{state:?}"),
    };
    let line = format!(
        "follows {}, {}, {state}, resyncs {}+{}, {}",
        index_of(status.primary.port),
        short(fed.id),
        link.full_resyncs,
        link.partial_resyncs,
        link.reason.map(|reason| reason.to_string()).unwrap_or_default()
    );
    (line, place)
}
