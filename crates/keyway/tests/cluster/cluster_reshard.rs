//! Slots move from one server of a cluster to another while clients use them, and no client
//! notices.

#![allow(clippy::disallowed_methods, reason = "waits are timed from outside")]

use crate::cluster_setup::{Load, key_of, serve, warnings};
use keyway_testkit::{RedisCluster, Value, encode_words, wait_until, watchdog};
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(120);

#[test]
fn thousands_of_slots_move_under_load_and_nobody_notices() {
    let _watch = watchdog(WITHIN, "slots move under load");
    let cluster = RedisCluster::start(3, 0);
    let keyway = serve(&cluster, &[("timeout", "\"5s\"")], 2);
    let load = Load::start(keyway.address(0), 6, Some(0));
    load.go_on(100);
    // The slots include those of at least every third key of the load, and half of them move back.
    cluster.move_slots(0, 1, 0..1500);
    cluster.move_slots(1, 2, 6000..7000);
    cluster.move_slots(1, 0, 0..700);
    load.go_on(100);
    let seen = load.end();
    let metrics = keyway.metrics();
    let moved = metrics.sum("keyway_cluster_moved_requests_total", &[]);
    let asked = metrics.sum("keyway_cluster_asked_requests_total", &[]);
    println!("{} replies, {moved} moved, {asked} asked", seen.replies);
    seen.expect_clean(10_000);
    assert!(moved > 0.0 && asked > 0.0, "{moved} moved, {asked} asked");
    assert_eq!(metrics.sum("keyway_cluster_served_slots", &[]), 16384.0);
    assert_eq!(warnings(&keyway), Vec::<String>::new());
}

#[test]
fn what_waits_or_watches_follows_its_slot() {
    let _watch = watchdog(WITHIN, "commands that wait");
    let cluster = RedisCluster::start(3, 0);
    let keyway = serve(&cluster, &[("timeout", "\"2s\"")], 1);
    let (list, stream, watched) = (key_of(100, "l"), key_of(100, "s"), key_of(100, "w"));
    let other = key_of(100, "other");
    let mut client = keyway.client(0);
    let mut blocked = [keyway.client(0), keyway.client(0), keyway.client(0)];
    blocked[0].send(&encode_words(&format!("BLPOP {list} 20")));
    blocked[1].send(&encode_words(&format!("BRPOPLPUSH {list}2 {other} 20")));
    blocked[2].send(&encode_words(&format!("XREAD BLOCK 20000 STREAMS {stream} $")));
    let waiting = || cluster.ask(0, "INFO clients").text().contains("blocked_clients:3");
    wait_until("all wait", WITHIN, waiting);
    let mut watching = keyway.client(0);
    assert_eq!(watching.words(&format!("WATCH {watched}")), Value::simple("OK"));
    // Only the first server has this script.
    let sha = client.words("SCRIPT LOAD return#KEYS").text();
    cluster.move_slots(0, 1, [100]);
    cluster.ask(1, "SCRIPT FLUSH");
    let replies = watching.pipeline(&["MULTI", &format!("SET {watched} 1"), "EXEC"]);
    assert!(matches!(replies[2], Value::NilArray | Value::Nil), "{replies:?}");
    let replies = watching.pipeline(&[
        &format!("WATCH {watched}"),
        &format!("GET {watched}"),
        "MULTI",
        &format!("SET {watched} 1"),
        "EXEC",
    ]);
    assert_eq!(replies[1], Value::Nil);
    assert_eq!(replies[4], Value::Array(vec![Value::simple("OK")]), "{replies:?}");
    let waiting = || cluster.ask(1, "INFO clients").text().contains("blocked_clients:3");
    wait_until("all wait at the other", WITHIN, waiting);
    assert_eq!(client.words(&format!("EVALSHA {sha} 1 {list}")), Value::Integer(1));
    assert_eq!(client.words(&format!("RPUSH {list} a")), Value::Integer(1));
    assert_eq!(client.words(&format!("RPUSH {list}2 b")), Value::Integer(1));
    assert!(!client.words(&format!("XADD {stream} * f v")).is_error());
    assert_eq!(blocked[0].reply(), Value::Array(vec![Value::bulk(&list), Value::bulk("a")]));
    assert_eq!(blocked[1].reply(), Value::bulk("b"));
    assert_eq!(blocked[2].reply().array().len(), 1);
}

#[test]
fn a_slot_half_way_is_tried_again_for_who_is_alone_and_told_to_who_is_not() {
    let _watch = watchdog(WITHIN, "a slot half-way");
    let cluster = RedisCluster::start(3, 0);
    let keyway = serve(&cluster, &[("timeout", "\"2s\"")], 1);
    let (one, two) = (key_of(7, "one"), key_of(7, "two"));
    let mut client = keyway.client(0);
    client.words(&format!("MSET {one} 1 {two} 2"));
    let mut moving = cluster.begin_move(0, 1, 7);
    assert_eq!(moving.move_keys(1), 1);
    let both = format!("MGET {one} {two}");
    // With another request behind it, the server's error is passed on in its place.
    let replies = client.pipeline(&[&both, &format!("GET {one}"), &format!("GET {two}"), "PING"]);
    assert!(replies[0].error_text().starts_with("TRYAGAIN"), "{replies:?}");
    assert_eq!(replies[1..], [Value::bulk("1"), Value::bulk("2"), Value::simple("PONG")]);
    // A lone request is retried until its time is over.
    let began = Instant::now();
    let reply = client.words(&both).error_text();
    assert!(reply.starts_with("TRYAGAIN"), "{reply}");
    let took = began.elapsed();
    assert!(took > Duration::from_millis(500) && took < Duration::from_secs(4), "{took:?}");
    // Other clients that wait or watch are not affected while it is retried.
    let mut poor = keyway.client(0);
    let lists = (key_of(7, "l1"), key_of(7, "l2"));
    client.words(&format!("RPUSH {} a", lists.0));
    let mut watching = keyway.client(0);
    watching.send(&encode_words(&format!("WATCH {one} {two}")));
    poor.send(&encode_words(&format!("BLPOP {} {} 5", lists.1, lists.0)));
    for _ in 0..200 {
        assert_eq!(client.words(&format!("GET {one}")), Value::bulk("1"));
    }
    client.send(&encode_words(&both));
    let mut far = keyway.client(0);
    assert_eq!(far.words("MSET a 1 b 2 c 3"), Value::simple("OK"));
    while moving.move_keys(10) > 0 {}
    moving.finish();
    assert_eq!(client.reply(), Value::Array(vec![Value::bulk("1"), Value::bulk("2")]));
    let popped = poor.reply();
    let expected = Value::Array(vec![Value::bulk(&lists.0), Value::bulk("a")]);
    assert!(popped == expected || popped.error_text().starts_with("TRYAGAIN"), "{popped:?}");
    let watch = watching.reply();
    assert!(
        watch == Value::simple("OK") || watch.error_text().starts_with("TRYAGAIN"),
        "{watch:?}"
    );
    // No client's transaction fails because of it.
    for _ in 0..20 {
        let lines = ["MULTI", &format!("INCR {one}"), &format!("INCR {two}"), "EXEC"];
        let replies = far.pipeline(&lines);
        assert_eq!(replies[3].array().len(), 2, "{replies:?}");
    }
    assert_eq!(warnings(&keyway), Vec::<String>::new());
}
