//! The network to one server of a cluster is cut: packets to it are lost.

#![allow(clippy::disallowed_methods, reason = "how long an answer takes is timed from outside")]

use crate::cluster_setup::{KEYWAY, Load, cluster_pool, key_of};
use keyway_testkit::{
    Apart, Client, Cut, Keyway, KeywayConfig, RedisCluster, Value, wait_until, watchdog,
};
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(120);

/// Time that a request may take, and the extra time of a busy machine.
const TIMEOUT: Duration = Duration::from_millis(400);
const SLACK: Duration = Duration::from_millis(1200);

/// Options by which no server takes another for dead.
const PATIENT: [&str; 2] = ["--cluster-node-timeout", "60000"];

/// Starts Keyway. The servers that are asked first are not cut off.
fn serve(cluster: &RedisCluster) -> Keyway {
    let timeout = format!("\"{}ms\"", TIMEOUT.as_millis());
    let pool = cluster_pool(&cluster.addresses()[1..3])
        .with("timeout", &timeout)
        .with("connect_timeout", &timeout);
    let config = KeywayConfig::new(vec![pool]).with_server("workers", "2");
    Keyway::start(KEYWAY, config)
}

/// Returns a key of each of three primaries that share the slots evenly.
fn keys() -> [String; 3] {
    [0, 8_000, 16_000].map(|slot| key_of(slot, "cut"))
}

fn set(client: &mut Client, key: &str) -> Value {
    client.command(&["SET", key, "v"])
}

/// Expects that requests to the first server fail in time while it is cut off, and that the others
/// are served as usual.
fn expect_alone(keyway: &Keyway, rounds: usize) {
    let [lost, others @ ..] = keys();
    let mut client = keyway.client(0);
    for _ in 0..rounds {
        let began = Instant::now();
        let said = set(&mut client, &lost).error_text();
        let took = began.elapsed();
        assert!(took < TIMEOUT + SLACK, "{took:?}: {said}");
        assert!(said.starts_with("ERR backend "), "{said}");
        for key in others.iter().cycle().take(20) {
            let began = Instant::now();
            assert_eq!(set(&mut client, key), Value::simple("OK"));
            assert!(began.elapsed() < TIMEOUT, "{:?}: others do not wait", began.elapsed());
        }
    }
}

fn cut_and_heal(cut: Cut, what: &str) {
    let _watch = watchdog(WITHIN, what);
    let Some(apart) = Apart::new(what) else { return };
    let cluster = RedisCluster::start_apart(3, 0, &PATIENT, &apart);
    let keyway = serve(&cluster);
    let mut client = keyway.client(0);
    for key in keys() {
        assert_eq!(set(&mut client, &key), Value::simple("OK"));
    }
    let load = Load::start(keyway.address(0), 3, None);
    load.go_on(60);
    apart.cut(cut);
    let began = Instant::now();
    expect_alone(&keyway, 6);
    println!("cut off for {:?}", began.elapsed());
    apart.heal();
    wait_until("all is well", Duration::from_secs(30), || {
        set(&mut client, &keys()[0]) == Value::simple("OK")
    });
    let healed = load.rounds();
    load.go_on(200);
    println!("{} rounds after it", load.rounds() - healed);
    let seen = load.end();
    assert!(seen.wrong.is_empty(), "{:?}", &seen.wrong[..seen.wrong.len().min(5)]);
    assert_eq!((seen.lost, seen.lost_acknowledged), (0, 0), "of {} replies", seen.replies);
    let address = cluster.address(0).to_string();
    let odd = |(_, text): &&(Duration, String)| !text.contains(&address);
    let odd: Vec<_> = seen.errors.iter().filter(odd).take(5).collect();
    assert!(odd.is_empty() && !seen.errors.is_empty(), "{odd:?}");
    // Nothing is left behind.
    let load = Load::start(keyway.address(0), 3, None);
    load.go_on(60);
    load.end().expect_clean(300);
    // Its processes must end before their network does.
    drop(cluster);
}

#[test]
fn a_server_that_is_cut_off_fails_alone_and_in_time() {
    cut_and_heal(Cut::Whole, "a server is cut off");
}

#[test]
fn what_does_not_arrive_is_not_executed_twice() {
    cut_and_heal(Cut::Requests, "requests to a server are lost");
}

#[test]
fn what_is_executed_and_not_answered_is_not_executed_twice() {
    cut_and_heal(Cut::Replies, "replies of a server are lost");
}

#[test]
fn a_primary_that_is_cut_off_from_everybody_is_replaced_and_comes_back_as_a_replica() {
    let what = "a primary is cut off";
    let _watch = watchdog(WITHIN, what);
    let Some(apart) = Apart::new(what) else { return };
    let cluster = RedisCluster::start_apart(3, 1, &[], &apart);
    let keyway = serve(&cluster);
    let load = Load::start(keyway.address(0), 6, Some(1));
    load.go_on(100);
    apart.cut(Cut::Whole);
    // The harness asks the servers that it reaches.
    let heir = || cluster.ask(3, "ROLE").array()[0] == Value::bulk("master");
    wait_until("the replica takes over", WITHIN, heir);
    let mut client = keyway.client(0);
    wait_until("it is followed", Duration::from_secs(10), || {
        set(&mut client, &keys()[0]) == Value::simple("OK")
    });
    load.go_on(200);
    apart.heal();
    cluster.wait_settled();
    assert_eq!(cluster.replicas_of(3), [0]);
    load.go_on(200);
    let seen = load.end();
    assert!(seen.wrong.is_empty(), "{:?}", &seen.wrong[..seen.wrong.len().min(5)]);
    assert_eq!(seen.lost_acknowledged, 0, "acknowledged by a replica");
    let load = Load::start(keyway.address(0), 4, Some(1));
    load.go_on(100);
    load.end().expect_clean(500);
    drop(cluster);
}
