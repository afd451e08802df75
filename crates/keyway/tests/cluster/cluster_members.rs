//! Servers of a cluster that join and leave, are not there yet, or are not servers at all.

#![allow(clippy::disallowed_methods, reason = "waits are timed from outside")]

use crate::cluster_setup::{KEYWAY, Load, cluster_pool, key_of, serve, warnings};
use keyway_testkit::{
    Keyway, KeywayConfig, MemcachedServer, RedisCluster, RedisServer, Value, encode_words,
    free_address, has_memcached, http_get, wait_until, watchdog,
};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(120);

fn listed(keyway: &Keyway) -> String {
    http_get(keyway.admin(), "/backends").body
}

/// Returns the number of connections of a node, without the one that asks.
fn connections(cluster: &RedisCluster, node: usize) -> usize {
    let list = cluster.ask(node, "CLIENT LIST").text();
    list.lines().filter(|line| line.contains("flags=N") || line.contains("flags=b")).count() - 1
}

#[test]
fn a_node_is_replaced_under_load_and_leaves_nothing_behind() {
    let _watch = watchdog(WITHIN, "a node is replaced");
    let mut cluster = RedisCluster::start(3, 0);
    let settings = [("timeout", "\"5s\""), ("refresh", "\"500ms\"")];
    let keyway = serve(&cluster, &settings, 2);
    let load = Load::start(keyway.address(0), 4, None);
    load.go_on(50);
    let (old, new) = (0, cluster.add_node());
    // A primary accepts no requests in its first two seconds.
    cluster.wait_settled();
    let slots = cluster.slots_of(old);
    for (first, last) in slots {
        cluster.move_slots(old, new, first..=last);
    }
    load.go_on(50);
    cluster.forget(old);
    load.go_on(50);
    let (gone, come) = (cluster.address(old).to_string(), cluster.address(new).to_string());
    wait_until("the old one is out of the list", Duration::from_secs(50), || {
        !listed(&keyway).contains(&gone)
    });
    assert!(listed(&keyway).contains(&come), "{}", listed(&keyway));
    let metrics = keyway.metrics();
    assert!(metrics.text().contains(&come));
    assert!(!metrics.text().contains(&gone), "{gone}");
    wait_until("links to it are closed", WITHIN, || connections(&cluster, old) == 0);
    cluster.kill(old);
    load.go_on(50);
    load.end().expect_clean(1000);
    // It may be asked once more after it was told to forget everything.
    let mut odd = warnings(&keyway);
    odd.retain(|line| !line.contains("it was reset"));
    assert_eq!(odd, Vec::<String>::new());
}

#[test]
fn a_server_that_is_held_and_has_left_is_listed_and_can_be_restored() {
    let _watch = watchdog(WITHIN, "a held server leaves");
    let mut cluster = RedisCluster::start(2, 1);
    let keyway = serve(&cluster, &[("refresh", "\"500ms\"")], 1);
    let replica = cluster.replicas_of(0)[0];
    let address = cluster.address(replica).to_string();
    let line = || {
        let shown = ctl(&keyway, &["servers"]);
        shown.lines().find(|line| line.contains(&address)).map(str::to_owned)
    };
    wait_until("it is known", WITHIN, || line().is_some());
    assert!(ctl(&keyway, &["eject", "main", &address]).contains("is ejected"));
    cluster.forget(replica);
    wait_until("it is away", WITHIN, || line().is_some_and(|line| line.contains(" away ")));
    assert!(line().is_some_and(|line| line.contains("operator")));
    assert!(ctl(&keyway, &["restore", "main", &address]).contains("when it comes back"));
    assert_eq!(line(), None, "nobody holds it");
    let again = ctl(&keyway, &["restore", "main", &address]);
    assert!(again.contains("there are"), "{again}");
}

/// Returns the output of `keyway ctl`, whether it succeeds or not.
fn ctl(keyway: &Keyway, words: &[&str]) -> String {
    let port = keyway.admin().to_string();
    let output = std::process::Command::new(KEYWAY)
        .args(["ctl", "--admin", &port])
        .args(words)
        .output()
        .expect("keyway runs");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8(text).expect("it speaks UTF-8")
}

#[test]
fn the_pool_goes_on_when_all_it_was_told_of_are_gone() {
    let _watch = watchdog(WITHIN, "seeds are gone");
    let mut cluster = RedisCluster::start(2, 1);
    // Only replicas are known at the start.
    let seeds = &cluster.addresses()[2..];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![cluster_pool(seeds)]));
    let mut client = keyway.client(0);
    assert_eq!(client.words("MSET a 1 b 2 c 3 d 4"), Value::simple("OK"));
    cluster.kill(2);
    cluster.kill(3);
    for _ in 0..50 {
        assert_eq!(client.words("MGET a b c d").array().len(), 4);
    }
    // The map that Keyway has learnt since is enough to follow.
    cluster.move_slots(0, 1, 0..20);
    for slot in 0..20 {
        let key = key_of(slot, "x");
        assert_eq!(client.words(&format!("SET {key} 1")), Value::simple("OK"));
    }
}

#[test]
fn clients_wait_a_while_for_servers_that_are_not_there_yet() {
    let _watch = watchdog(WITHIN, "servers are not there yet");
    let mut cluster = RedisCluster::start(3, 0);
    let nodes: Vec<usize> = (0..3).collect();
    nodes.iter().for_each(|&node| cluster.pause(node));
    let settings = [("timeout", "\"500ms\""), ("connect_timeout", "\"300ms\"")];
    let keyway = serve(&cluster, &settings, 1);
    let began = Instant::now();
    let mut client = keyway.client(0);
    let told = client.words("GET a").error_text();
    let took = began.elapsed();
    let timeout = Duration::from_millis(500);
    assert!(took >= timeout && took < 4 * timeout, "{took:?}: {told}");
    assert!(told.contains("cluster"), "{told}");
    // The next client does not wait longer either.
    let began = Instant::now();
    assert!(keyway.client(0).words("GET a").is_error());
    assert!(began.elapsed() < 4 * timeout, "{:?}", began.elapsed());
    assert_eq!(client.words("PING"), Value::simple("PONG"));
    nodes.iter().for_each(|&node| cluster.resume(node));
    cluster.wait_settled();
    wait_until("it works", Duration::from_secs(10), || {
        client.words("SET a 1") == Value::simple("OK")
    });
}

#[test]
fn clients_of_a_cluster_that_starts_a_moment_later_are_served() {
    let _watch = watchdog(WITHIN, "a cluster that starts later");
    let mut cluster = RedisCluster::start(3, 0);
    (0..3).for_each(|node| cluster.pause(node));
    let keyway = serve(&cluster, &[("timeout", "\"4s\"")], 1);
    let mut client = keyway.client(0);
    client.send(&encode_words("SET a 1"));
    let began = Instant::now();
    wait_until("a moment", WITHIN, || began.elapsed() > Duration::from_millis(800));
    (0..3).for_each(|node| cluster.resume(node));
    assert_eq!(client.reply(), Value::simple("OK"));
}

/// Returns what a client of a pool over one server is told within a bounded time, and what the log
/// says.
fn told_over(server: SocketAddr, settings: &[(&str, &str)]) -> (String, Vec<String>) {
    let mut pool =
        cluster_pool(&[server]).with("timeout", "\"500ms\"").with("connect_timeout", "\"300ms\"");
    for (name, value) in settings {
        pool = pool.with(name, value);
    }
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let began = Instant::now();
    let told = keyway.client(0).words("GET a").error_text();
    assert!(began.elapsed() < Duration::from_secs(7), "{:?}: {told}", began.elapsed());
    let lines = warnings(&keyway);
    println!("told: {told}\n{}", lines.join("\n"));
    assert!(!lines.is_empty() && lines.len() < 12, "{} lines: {}", lines.len(), lines.join("\n"));
    let log = lines.join("\n");
    assert!(log.contains(&server.to_string()), "{log}");
    assert!(!told.contains("cluster.invalid") && !told.contains("index-"), "{told}");
    (told, lines)
}

#[test]
fn servers_that_are_no_cluster_are_told_apart() {
    let _watch = watchdog(WITHIN, "no cluster");
    let plain = RedisServer::start();
    let (told, lines) = told_over(plain.address(), &[]);
    assert!(told.contains("cluster support disabled"), "{told}");
    assert!(lines.iter().any(|line| line.contains("cluster support disabled")), "{lines:?}");
    let locked = RedisCluster::start_with(1, 0, &[], Some("right"));
    for settings in [&[][..], &[("password", "\"wrong\"")]] {
        let (told, lines) = told_over(locked.address(0), settings);
        let why = if settings.is_empty() { "NOAUTH" } else { "WRONGPASS" };
        assert!(lines.iter().any(|line| line.contains(why)), "{lines:?}");
        assert!(told.contains(why), "{told}");
    }
    let (told, lines) = told_over(free_address(), &[]);
    assert!(told.contains("refused") || told.contains("cannot be reached"), "{told}");
    assert!(lines.iter().any(|line| line.contains("refused")), "{lines:?}");
    if has_memcached("a memcached in place of a cluster") {
        let memcached = MemcachedServer::start();
        let (told, lines) = told_over(memcached.address(), &[]);
        assert!(!told.is_empty() && !lines.is_empty());
    }
}
