//! Servers of a cluster die, stall, change roles and come back, under a load that checks every
//! reply.

#![allow(clippy::disallowed_methods, reason = "waits are timed from outside")]

use crate::cluster_setup::{Load, Seen, key_of, serve, warnings};
use keyway_testkit::{
    Keyway, RedisCluster, Value, cluster_slot, encode_words, http_get, wait_until, watchdog,
};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(120);

/// Checks a load that ran while a shard had no primary: errors ended soon after there was one, and
/// no write was lost that a replica had acknowledged.
fn expect_errors_until(seen: &Seen, from: Duration, until: Duration) {
    assert!(seen.wrong.is_empty(), "{:?}", &seen.wrong[..seen.wrong.len().min(5)]);
    assert_eq!(seen.lost_acknowledged, 0, "acknowledged by a replica");
    let odd = |(at, _): &&(Duration, String)| *at < from || *at > until;
    let early: Vec<_> = seen.errors.iter().filter(odd).take(5).collect();
    assert!(early.is_empty(), "from {from:?} to {until:?}: {early:?}");
    println!(
        "{} replies, {} errors until {:?}, {} increments lost; {:?}",
        seen.replies,
        seen.errors.len(),
        seen.last_error(),
        seen.lost,
        seen.errors.first(),
    );
}

#[test]
fn a_primary_that_is_killed_costs_errors_only_until_its_replica_took_over() {
    let _watch = watchdog(WITHIN, "a primary is killed");
    let mut cluster = RedisCluster::start(3, 1);
    let keyway = serve(&cluster, &[("timeout", "\"1s\"")], 2);
    let began = Instant::now();
    let load = Load::start(keyway.address(0), 6, Some(1));
    load.go_on(100);
    let from = began.elapsed();
    cluster.kill(0);
    cluster.wait_primary(3);
    // The other servers learn of it, and servers that failed a moment ago are asked again.
    let until = began.elapsed() + Duration::from_secs(2);
    cluster.wait_settled();
    load.go_on(300);
    wait_until("errors would be told", WITHIN, || began.elapsed() > until);
    load.go_on(300);
    let seen = load.end();
    expect_errors_until(&seen, from, until);
    assert!(!seen.errors.is_empty(), "there was no primary for a while");
    let log = keyway.process().log();
    assert!(!log.contains("cluster.invalid") && !log.contains("index-"), "{log}");
    println!("{}", warnings(&keyway).join("\n"));
    // The replica that took over has no replica of its own. The metric says so until there is one.
    let unreplicated = || keyway.metrics().sum("keyway_cluster_unreplicated_shards", &[]);
    wait_until("its shard has no replica left", WITHIN, || unreplicated() == 1.0);
    let alone = format!("\"address\":\"{}\",\"state\":\"no-replica\"", cluster.address(3));
    let backends = http_get(keyway.admin(), "/backends").body;
    assert!(backends.contains(&alone), "{backends}");
    assert_eq!(backends.matches("no-replica").count(), 1, "{backends}");
    assert_eq!(http_get(keyway.admin(), "/readyz").status, 200);
    let told = warnings(&keyway).join("\n");
    assert_eq!(told.matches("shard has no replica left").count(), 1, "{told}");
    // It comes back as a replica, and no client notices.
    let load = Load::start(keyway.address(0), 4, Some(1));
    cluster.restart(0);
    cluster.wait_settled();
    load.go_on(200);
    load.end().expect_clean(1000);
    wait_until("its shard has a replica", WITHIN, || unreplicated() == 0.0);
    assert!(keyway.process().log().contains("shard has a replica again"));
}

#[test]
fn a_primary_that_stalls_is_left_when_its_replica_took_over() {
    let _watch = watchdog(WITHIN, "a primary stalls");
    let mut cluster = RedisCluster::start(3, 1);
    let keyway = serve(&cluster, &[("timeout", "\"500ms\"")], 1);
    let began = Instant::now();
    let load = Load::start(keyway.address(0), 4, Some(1));
    load.go_on(100);
    let from = began.elapsed();
    cluster.pause(1);
    cluster.wait_primary(4);
    let until = began.elapsed() + Duration::from_secs(2);
    cluster.wait_settled();
    wait_until("errors would be told", WITHIN, || began.elapsed() > until);
    load.go_on(200);
    // It still takes itself for a primary for a moment, but is not asked.
    cluster.resume(1);
    cluster.wait_settled();
    load.go_on(200);
    let seen = load.end();
    expect_errors_until(&seen, from, until);
}

#[test]
fn a_fail_over_by_hand_costs_nothing() {
    let _watch = watchdog(WITHIN, "fail-overs by hand");
    let cluster = RedisCluster::start(3, 1);
    // Clients wait during the fail-over.
    let keyway = serve(&cluster, &[("timeout", "\"10s\"")], 2);
    let load = Load::start(keyway.address(0), 6, Some(1));
    load.go_on(50);
    for (node, other) in [(3, 0), (4, 1), (0, 3), (5, 2)] {
        cluster.failover(node);
        cluster.wait_settled();
        load.go_on(300);
        assert_eq!(cluster.replicas_of(node), [other]);
    }
    let mut seen = load.end();
    // Sometimes a node itself takes the cluster for down, for some 20 ms.
    let is_down = |node| cluster.process(node).log().contains("Cluster state changed: fail");
    if (0..6).any(is_down) {
        seen.errors.retain(|(_, text)| !text.contains("CLUSTERDOWN"));
    }
    seen.expect_clean(5_000);
    assert_eq!(warnings(&keyway), Vec::<String>::new());
}

#[test]
fn what_waits_at_a_primary_waits_on_at_the_next() {
    let _watch = watchdog(WITHIN, "commands that wait");
    let cluster = RedisCluster::start(3, 1);
    let keyway = serve(&cluster, &[("timeout", "\"5s\"")], 1);
    let slot = cluster_slot(b"list");
    let primary = cluster.primary_of_slot(slot).expect("a primary");
    let next = primary + 3;
    let blocked = |node| cluster.ask(node, "INFO clients").text().contains("blocked_clients:1");
    let mut waiting = keyway.client(0);
    waiting.send(&encode_words("BLPOP list 30"));
    wait_until("it waits", WITHIN, || blocked(primary));
    cluster.failover(next);
    wait_until("it waits at the next", Duration::from_secs(20), || blocked(next));
    assert_eq!(keyway.client(0).words("RPUSH list v"), Value::Integer(1));
    assert_eq!(waiting.reply(), Value::Array(vec![Value::bulk("list"), Value::bulk("v")]));
    assert_eq!(warnings(&keyway), Vec::<String>::new());
}

#[test]
fn a_transaction_may_begin_at_one_primary_and_end_at_the_next() {
    let _watch = watchdog(WITHIN, "a transaction and a fail-over");
    let cluster = RedisCluster::start(3, 1);
    let keyway = serve(&cluster, &[("timeout", "\"5s\"")], 1);
    let slot = cluster_slot(b"{t}");
    let primary = cluster.primary_of_slot(slot).expect("a primary");
    let mut client = keyway.client(0);
    let mut guarded = keyway.client(0);
    let ok = Value::simple("OK");
    assert_eq!(guarded.words("WATCH {t}a"), ok);
    assert_eq!(client.words("MULTI"), ok);
    assert_eq!(client.words("INCR {t}a"), Value::simple("QUEUED"));
    cluster.failover(primary + 3);
    cluster.wait_settled();
    // One client learns of it.
    let mut other = keyway.client(0);
    assert_eq!(other.words("SET {t}b 41"), ok);
    assert_eq!(client.words("INCR {t}b"), Value::simple("QUEUED"));
    assert_eq!(client.words("EXEC"), Value::Array(vec![Value::Integer(1), Value::Integer(42)]));
    assert_eq!(cluster.ask(primary + 3, "GET {t}b"), Value::bulk("42"));
    // The key is not watched on the server where it is now.
    assert_eq!(guarded.words("MULTI"), ok);
    assert_eq!(guarded.words("GET {t}a"), Value::simple("QUEUED"));
    assert!(matches!(guarded.words("EXEC"), Value::Nil | Value::NilArray));
    assert_eq!(warnings(&keyway), Vec::<String>::new());
}

#[test]
fn a_primary_that_comes_and_goes_is_followed() {
    let _watch = watchdog(WITHIN, "a flapping primary");
    let mut cluster = RedisCluster::start(3, 1);
    let keyway = serve(&cluster, &[("timeout", "\"500ms\"")], 1);
    let load = Load::start(keyway.address(0), 4, Some(1));
    for _ in 0..3 {
        let slot = cluster_slot(b"a");
        let primary = cluster.primary_of_slot(slot).expect("a primary");
        let replica = cluster.replicas_of(primary)[0];
        cluster.kill(primary);
        cluster.wait_primary(replica);
        cluster.restart(primary);
        cluster.wait_settled();
    }
    load.go_on(50);
    let seen = load.end();
    assert!(seen.wrong.is_empty(), "{:?}", &seen.wrong[..seen.wrong.len().min(5)]);
    assert_eq!(seen.lost_acknowledged, 0);
    let mut client = keyway.client(0);
    // The next attempt to connect to the server that was restarted last may be a moment away.
    let served = || client.words("SET a 1") == Value::simple("OK");
    wait_until("it is served", Duration::from_secs(5), served);
    let lines = warnings(&keyway);
    assert!(lines.len() < 60, "{} lines: {}", lines.len(), lines.join("\n"));
    println!("{} errors, {} warnings", seen.errors.len(), lines.len());
}

/// Returns every key of a full walk. `step` is called before each of its steps. A step that fails
/// is repeated.
fn walk(keyway: &Keyway, mut step: impl FnMut(usize)) -> (BTreeSet<String>, usize) {
    let mut client = keyway.client(0);
    let (mut cursor, mut found, mut steps) = ("0".to_owned(), BTreeSet::new(), 0);
    loop {
        step(steps);
        let mut reply = Value::Nil;
        wait_until("a step of the walk", WITHIN, || {
            reply = client.command(&["SCAN", &cursor, "COUNT", "40"]);
            assert!(!reply.is_error() || !reply.error_text().contains("cursor"), "{reply:?}");
            !reply.is_error()
        });
        let parts = reply.array();
        found.extend(parts[1].array().iter().map(Value::text));
        cursor = parts[0].text();
        steps += 1;
        if cursor == "0" {
            return (found, steps);
        }
    }
}

#[test]
fn a_walk_over_all_keys_misses_none_though_primaries_are_replaced_meanwhile() {
    let _watch = watchdog(WITHIN, "a walk and fail-overs");
    let mut cluster = RedisCluster::start(3, 1);
    let keyway = serve(&cluster, &[("timeout", "\"1s\"")], 1);
    let mut client = keyway.client(0);
    let all: BTreeSet<String> = (0..3_000).map(|nth| format!("key:{nth}")).collect();
    for key in &all {
        assert_eq!(client.command(&["SET", key, "v"]), Value::simple("OK"));
    }
    assert_eq!(client.words("WAIT 1 5000"), Value::Integer(1));
    let (found, steps) = walk(&keyway, |_| {});
    assert!(found == all && steps > 60, "{steps} steps");
    let known = |keyway: &Keyway, slots: [usize; 3]| {
        // The servers of the shards in the order of their slots serve writes.
        let mut client = keyway.client(0);
        let slots_of = [0, 6_000, 12_000];
        for (slot, node) in slots_of.into_iter().zip(slots) {
            let key = key_of(slot, "known");
            let text = format!("{node}");
            wait_until("it is followed", WITHIN, || {
                client.command(&["SET", &key, &text]) == Value::simple("OK")
            });
            // A node may report for a moment that its cluster is down.
            wait_until("the server has it", WITHIN, || {
                cluster.ask(node, &format!("GET {key}")).text() == text
            });
        }
    };
    // Slots move before, during and after the walk, and back again.
    let (mut found, steps) = walk(&keyway, |step| match step {
        10 => {
            cluster.failover(3);
            known(&keyway, [3, 1, 2]);
        }
        40 => {
            cluster.failover(5);
            known(&keyway, [3, 1, 5]);
        }
        50 => {
            cluster.failover(0);
            known(&keyway, [0, 1, 5]);
        }
        60 => {
            cluster.failover(4);
            known(&keyway, [0, 4, 5]);
        }
        _ => {}
    });
    found.retain(|key| key.starts_with("key:"));
    assert!(found == all, "{} of {} in {steps} steps", found.len(), all.len());
    // A server dies in the middle of the walk. After two fail-overs in a row Redis may leave a
    // server without slots and without a role. That server is made the replica that the next
    // fail-over needs. All nodes must know it: if a primary dies before its replica knows its role,
    // no server takes over.
    let dying = cluster.ask(0, "CLUSTER MYID").text();
    let replica = cluster.ask(3, "CLUSTER MYID").text();
    wait_until("there is a replica", WITHIN, || {
        let is_replica = cluster.ask(3, "INFO replication").text().contains("role:slave");
        if !is_replica {
            cluster.ask(3, "FLUSHALL");
            cluster.ask(3, &format!("CLUSTER REPLICATE {dying}"));
        }
        let is_seen_by = |node| {
            let nodes = cluster.ask(node, "CLUSTER NODES").text();
            let mut lines = nodes.lines().filter(|line| line.starts_with(&replica));
            lines.any(|line| line.contains("slave") && line.contains(&dying))
        };
        is_replica && (0..6).all(is_seen_by)
    });
    cluster.wait_settled();
    let mut has_died = false;
    let (mut found, _) = walk(&keyway, |step| {
        if step == 12 {
            cluster.kill(0);
            has_died = true;
        }
    });
    found.retain(|key| key.starts_with("key:"));
    assert!(has_died && found == all, "{} of {}", found.len(), all.len());
}

#[test]
fn who_waits_at_a_primary_that_stalls_waits_on_at_its_replica() {
    let _watch = watchdog(WITHIN, "a client waits at a primary that stalls");
    let mut cluster = RedisCluster::start(3, 1);
    let keyway = serve(&cluster, &[("timeout", "\"1s\"")], 1);
    let key = key_of(cluster.slots_of(1)[0].0, "list");
    let mut waiting = keyway.client(0);
    waiting.send(&encode_words(&format!("BLPOP {key} 0")));
    wait_until("it waits there", WITHIN, || {
        cluster.ask(1, "INFO clients").text().contains("blocked_clients:1\r")
    });
    cluster.pause(1);
    cluster.wait_primary(4);
    let mut other = keyway.client(0);
    let words = ["RPUSH", &key, "v"];
    wait_until("a write is taken", WITHIN, || other.command(&words) == Value::Integer(1));
    waiting.set_reply_within(Duration::from_secs(10));
    let popped = Value::Array(vec![Value::bulk(&key), Value::bulk("v")]);
    assert_eq!(waiting.reply(), popped);
    // It goes on like any other client.
    assert_eq!(waiting.command(&["LLEN", &key]), Value::Integer(0));
    cluster.resume(1);
}
