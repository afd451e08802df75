//! The store comes to the data of its primary.

use crate::common::Reply;
use crate::common::redis::unix_millis;
use crate::cutter::Cutter;
use crate::place::{BOUND, Place};
use crate::writer::{Writer, play};
use keyway_replica::State;
use keyway_store::StoreConfig;
use keyway_testkit::{Random, RedisServer, wait_until, watchdog};
use std::time::Duration;

const DISKLESS: [&str; 4] = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"];
const BY_FILE: [&str; 2] = ["--repl-diskless-sync", "no"];

fn bulk(text: &str) -> Reply {
    Reply::Bulk(Some(text.as_bytes().to_vec()))
}

fn follows_under_writes(options: &[&str]) {
    let _watchdog = watchdog(Duration::from_secs(120), "a primary under writes");
    let from = RedisServer::start_with(options);
    (0..20).for_each(|seed| play(from.address(), seed));
    from.client().words("DEBUG POPULATE 1000 filler 200");
    let writer = Writer::start(from.address(), 1000, || {});
    let place = Place::of(&from);
    wait_until("commands of the stream", BOUND, || place.status().applied > 5000);
    writer.end();
    from.client().pipeline(&["MULTI", "SET in a", "SELECT 3", "APPEND in b", "EXEC"]);
    place.assert_same(&from);
    assert!(place.store.is_replica() && !place.store.is_loading());
}

#[test]
fn a_primary_without_a_disk_is_followed_under_writes() {
    follows_under_writes(&DISKLESS);
}

#[test]
fn a_primary_with_a_file_is_followed_under_writes() {
    follows_under_writes(&BY_FILE);
}

#[test]
fn a_link_that_is_cut_at_any_byte_loses_nothing_and_repeats_nothing() {
    const CUTS: usize = 60;
    let _watchdog = watchdog(Duration::from_secs(120), "a link that is cut");
    let from = RedisServer::start_with(&[&DISKLESS[..], &["--repl-backlog-size", "64mb"]].concat());
    play(from.address(), 1);
    let cutter = Cutter::new(from.address());
    let place = Place::new();
    place.follow(cutter.address());
    wait_until("the first snapshot", BOUND, || place.status().link.state == State::Online);
    let writer = Writer::start(from.address(), 2000, || {});
    let mut random = Random::new(17);
    while cutter.cuts() < CUTS {
        let before = cutter.cuts();
        cutter.set_budget(Some(1 + random.below(20_000)));
        cutter.cut();
        wait_until("a cut", BOUND, || cutter.cuts() > before);
    }
    cutter.set_budget(None);
    cutter.cut();
    writer.end();
    place.assert_same(&from);
    let link = place.status().link;
    assert_eq!(link.full_resyncs, 1, "{link:?}");
    assert!(link.partial_resyncs >= CUTS as u64 / 2, "{link:?}");
}

#[test]
fn a_snapshot_replaces_the_data_and_functions_and_is_not_shown_before_it_is_whole() {
    let _watchdog = watchdog(Duration::from_secs(60), "snapshots that are cut");
    let from = RedisServer::start_with(&DISKLESS);
    let mut client = from.client();
    client.words("DEBUG POPULATE 4000 key 2500");
    let library = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    client.command(&["FUNCTION", "LOAD", library]);
    let place = Place::new();
    assert_eq!(place.ask("set old v"), Reply::Simple("OK".to_owned()));
    let cutter = Cutter::new(from.address());
    cutter.set_budget(Some(200_000));
    place.follow(cutter.address());
    wait_until("snapshots that are cut", BOUND, || cutter.cuts() >= 2);
    assert!(place.store.is_loading(), "a part of the data is not shown");
    cutter.set_budget(None);
    wait_until("a whole snapshot", BOUND, || !place.store.is_loading());
    assert_eq!(place.ask("get old"), Reply::Bulk(None));
    assert_eq!(place.scripts.library_counts(), (1, 1, library.len()));
    place.assert_same(&from);
    // The stream brings functions and scripts as well.
    client.words("FUNCTION DELETE lib");
    client.command(&["FUNCTION", "LOAD", &library.replace("'f'", "'g'")]);
    client.words("PUBLISH news hello");
    place.await_same_offset(&mut client);
    assert_eq!(&*place.scripts.libraries()[0].functions[0].name, b"g");
    assert_eq!(*place.told.messages.lock(), ["false news hello"]);
}

#[test]
fn what_has_expired_is_hidden_and_stays_until_the_primary_deletes_it() {
    let _watchdog = watchdog(Duration::from_secs(60), "keys that expire");
    let from = RedisServer::start();
    let mut client = from.client();
    // The primary deletes nothing by itself: only a client that asks makes it.
    client.words("DEBUG SET-ACTIVE-EXPIRE 0");
    let soon = unix_millis() + 300;
    client.words(&format!("SET before v PXAT {soon}"));
    client.words("RPUSH list a");
    client.words(&format!("PEXPIREAT list {soon}"));
    let place = Place::of(&from);
    place.await_same_offset(&mut client);
    client.words(&format!("SET after v PXAT {soon}"));
    client.words("SET k v");
    place.await_same_offset(&mut client);
    let keys = ["before", "list", "after"];
    wait_until("the time", BOUND, || unix_millis() > soon + 50);
    for _ in 0..40 {
        let _ = place.store.tick(crate::common::clock_at(unix_millis() + 60_000));
    }
    let items = || place.store.stats().databases[0].items;
    assert_eq!(items(), 4, "nothing is deleted");
    for key in keys {
        assert_eq!(place.ask(&format!("exists {key}")), Reply::Integer(0), "{key} is hidden");
        assert_eq!(place.ask(&format!("ttl {key}")), Reply::Integer(-2));
        assert_eq!(place.ask(&format!("type {key}")), Reply::Simple("none".to_owned()));
    }
    assert_eq!(place.ask("get before"), Reply::Bulk(None));
    assert_eq!(place.ask("lrange list 0 -1"), Reply::Array(Some(Vec::new())));
    assert_eq!(place.ask("keys *").strings(), [b"k"]);
    assert_eq!(items(), 4, "a client that reads deletes nothing");
    assert_eq!(place.store.stats().expired, 0);
    // The primary executes on what a replica has hidden: APPEND of a new key here as there.
    client.words("APPEND before w");
    client.words("EXISTS list after");
    place.await_same_offset(&mut client);
    assert_eq!((place.ask("get before"), items()), (bulk("w"), 2));
    // A key that has expired when a replica becomes a primary goes as anywhere.
    client.words(&format!("SET last v PXAT {}", unix_millis() + 100));
    place.await_same_offset(&mut client);
    let late = unix_millis() + 150;
    wait_until("the time", BOUND, || unix_millis() > late);
    assert_eq!((place.ask("get last"), items()), (Reply::Bulk(None), 3));
    assert!(place.standby.promote());
    assert_eq!((place.ask("get last"), items()), (Reply::Bulk(None), 2));
}

#[test]
fn times_that_count_from_now_on_are_counted_from_when_they_come() {
    let _watchdog = watchdog(Duration::from_secs(60), "relative times");
    let from = RedisServer::start();
    let place = Place::of(&from);
    let mut client = from.client();
    for line in ["SETEX a 100 v", "SET b v PX 100000", "SET c v", "EXPIRE c 100", "GETEX c EX 100"]
    {
        assert!(!client.words(line).is_error());
    }
    place.assert_same(&from);
    for key in ["a", "b", "c"] {
        let left = place.ask(&format!("ttl {key}")).integer();
        assert!((90..=100).contains(&left), "{key}: {left}");
    }
}

#[test]
fn a_command_that_fails_is_counted_and_the_stream_goes_on() {
    let _watchdog = watchdog(Duration::from_secs(60), "a command that fails");
    let from = RedisServer::start();
    let place = Place::of(&from);
    let mut client = from.client();
    place.await_same_offset(&mut client);
    // Redis 7.0 makes the key and does not tell its replicas.
    client.words("BITFIELD odd OVERFLOW FAIL INCRBY i8 0 200");
    client.words("RENAME odd even");
    client.words("DEL even");
    client.words("SET k v");
    place.assert_same(&from);
    assert_eq!(place.status().failed, 1);
    assert_eq!(*place.told.failures.lock(), ["RENAME: ERR no such key"]);
    assert_eq!(place.status().link.failures, 0);
}

#[test]
fn what_the_store_cannot_have_stops_the_link_with_a_reason_and_is_not_skipped() {
    let _watchdog = watchdog(Duration::from_secs(60), "strange data");
    let from = RedisServer::start();
    let few = Place::with(StoreConfig { databases: 4, ..StoreConfig::default() });
    few.follow(from.address());
    let mut client = from.client();
    few.await_same_offset(&mut client);
    client.pipeline(&["SELECT 7", "SET k v"]);
    few.await_reason("uses database 7, and the pool has 4 databases", Some(State::Stopped));
    few.follow(from.address());
    few.await_reason("raise `databases`", Some(State::Stopped));
    // A data set that does not fit is refused, and nothing of it is shown or evicted.
    client.words("FLUSHALL");
    client.words("SELECT 0");
    client.words("DEBUG POPULATE 30000 key 1000");
    let small = Place::with(StoreConfig { memory_max: 16 << 20, ..StoreConfig::default() });
    small.follow(from.address());
    let reason = small.await_reason("memory_max", Some(State::Stopped));
    assert!(reason.contains("raise it above the primary's maxmemory"), "{reason}");
    assert!(small.store.is_loading());
    assert!(small.store.stats().memory_used < 18 << 20);
    assert_eq!(small.store.stats().evicted, 0);
    assert!(small.standby.promote());
    assert_eq!(small.ask("dbsize"), Reply::Integer(0), "a part is not shown");
}
