//! A store that changes its role.

use crate::common::Reply;
use crate::cutter::Cutter;
use crate::place::{BOUND, Place, info};
use keyway_replica::State;
use keyway_store::StoreConfig;
use keyway_testkit::{RedisServer, wait_until, watchdog};
use std::time::Duration;

#[test]
fn a_replica_that_becomes_a_primary_keeps_its_data_and_hears_no_more() {
    let _watchdog = watchdog(Duration::from_secs(60), "a replica that becomes a primary");
    let from = RedisServer::start();
    let mut client = from.client();
    client.words("SET k v");
    let place = Place::of(&from);
    place.await_same_offset(&mut client);
    assert!(place.standby.promote());
    assert!(place.standby.status().is_none() && !place.store.is_replica());
    client.words("SET k other");
    assert_eq!(place.ask("append k w"), Reply::Integer(2));
    wait_until("the server has no replica", BOUND, || info(&mut client, "connected_slaves") == "0");
    assert!(!place.standby.promote(), "it is one already");
    // The full resync that follows takes back what was written meanwhile.
    place.follow(from.address());
    place.assert_same(&from);
}

#[test]
fn a_replica_moves_to_another_server_of_the_same_history_without_a_snapshot() {
    let _watchdog = watchdog(Duration::from_secs(60), "a primary that fails over");
    let (first, second) = (RedisServer::start(), RedisServer::start());
    let mut client = first.client();
    client.words("SET k v");
    let mut other = second.client();
    other.words(&format!("REPLICAOF 127.0.0.1 {}", first.port()));
    wait_until("two servers", BOUND, || info(&mut other, "master_link_status") == "up");
    let place = Place::of(&first);
    place.await_same_offset(&mut client);
    wait_until("the same offset", BOUND, || {
        info(&mut other, "master_repl_offset") == info(&mut client, "master_repl_offset")
    });
    other.words("REPLICAOF NO ONE");
    other.words("SET after failover");
    place.follow(second.address());
    place.assert_same(&second);
    let link = place.status().link;
    assert_eq!((link.full_resyncs, link.partial_resyncs), (1, 1), "{link:?}");
}

#[test]
fn a_replica_that_is_not_to_show_old_data_is_stale_while_its_link_is_down() {
    let _watchdog = watchdog(Duration::from_secs(60), "a stale replica");
    let from = RedisServer::start();
    let cutter = Cutter::new(from.address());
    let place = Place::new();
    place.standby.set_serves_stale(false);
    place.follow(cutter.address());
    let is_stale = || {
        place.standby.look();
        place.store.restrictions().is_stale()
    };
    wait_until("the link is up", BOUND, || !is_stale());
    cutter.close();
    wait_until("the link is down", BOUND, is_stale);
    assert_ne!(place.status().link.state, State::Online);
    cutter.open();
    wait_until("the link is up again", BOUND, || !is_stale());
    cutter.close();
    wait_until("the link is down", BOUND, is_stale);
    place.standby.promote();
    assert!(!place.store.is_restricted());
}

#[test]
fn another_snapshot_needs_no_room_beside_the_data_that_it_replaces() {
    let _watchdog = watchdog(Duration::from_secs(60), "snapshots of much data");
    let from = RedisServer::start_with(&["--repl-diskless-sync-delay", "0"]);
    let mut client = from.client();
    client.words("DEBUG POPULATE 30000 key 1000");
    let memory_max = 56 << 20;
    let place = Place::with(StoreConfig { memory_max, ..StoreConfig::default() });
    for round in 1..=3 {
        place.follow(from.address());
        place.await_same_offset(&mut client);
        let stats = place.store.stats();
        assert_eq!(stats.databases[0].items, 30_000, "round {round}");
        assert!(stats.memory_used > memory_max / 2 && stats.memory_used < memory_max, "{stats:?}");
        assert_eq!(stats.evicted, 0);
        assert!(place.standby.promote());
    }
}
