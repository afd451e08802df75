//! Logs, metrics and replies about pools that discover their servers.

#![allow(clippy::disallowed_methods, reason = "waits are timed from outside")]

use crate::cluster_setup::{KEYWAY, cluster_pool, key_of, serve};
use keyway_testkit::{
    Keyway, KeywayConfig, Pool, RedisCluster, RedisServer, Replicated, Sentinels, Value, http_get,
    wait_until, watchdog,
};
use std::net::SocketAddr;
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(120);
const SOON: Duration = Duration::from_secs(20);

fn list(addresses: &[SocketAddr]) -> String {
    let quoted: Vec<String> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
    format!("[{}]", quoted.join(", "))
}

fn start(pool: Pool) -> Keyway {
    Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]))
}

/// Waits until the pool is reported as not serving, in these words.
fn expect_not_ready(keyway: &Keyway, words: &[&str]) {
    let mut seen = String::new();
    wait_until(&format!("503 with {words:?}"), SOON, || {
        let reply = http_get(keyway.admin(), "/readyz");
        seen = format!("{} {}", reply.status, reply.body);
        reply.status == 503 && words.iter().all(|word| reply.body.contains(word))
    });
}

fn expect_ready(keyway: &Keyway) {
    wait_until("200", SOON, || http_get(keyway.admin(), "/readyz").status == 200);
}

fn backends(keyway: &Keyway) -> String {
    http_get(keyway.admin(), "/backends").body
}

#[test]
fn a_cluster_pool_that_serves_nothing_is_not_ready_and_tells_why() {
    let _watch = watchdog(WITHIN, "readyz of clusters");
    let which = "nobody has told who has which slot";
    let lone = RedisServer::start();
    let keyway = start(cluster_pool(&[lone.address()]));
    expect_not_ready(&keyway, &["pool \"main\"", which, "cluster support", "kind = \"sharded\""]);
    let told = keyway.client(0).words("GET a").error_text();
    assert!(told.contains("is no cluster: use kind = \"sharded\""), "{told}");
    assert!(backends(&keyway).contains("\"role\":\"none\""));

    let empty = RedisServer::start_with(&["--cluster-enabled", "yes"]);
    let keyway = start(cluster_pool(&[empty.address()]));
    expect_not_ready(&keyway, &["pool \"main\"", which, "names no server for any slot"]);

    let closed = RedisCluster::start_with(1, 0, &[], Some("geheim"));
    let keyway = start(cluster_pool(&closed.addresses()));
    expect_not_ready(&keyway, &["pool \"main\"", which, "NOAUTH", "set password in [pool.main]"]);
    let wrong = cluster_pool(&closed.addresses()).with("password", "\"falsch\"");
    expect_not_ready(&start(wrong), &["pool \"main\"", which, "check password in [pool.main]"]);
    let right = cluster_pool(&closed.addresses()).with("password", "\"geheim\"");
    expect_ready(&start(right));
}

#[test]
fn a_shard_that_never_had_a_replica_is_told_beside_shards_that_have_one() {
    let _watch = watchdog(WITHIN, "a shard without a replica");
    let mut cluster = RedisCluster::start(3, 1);
    cluster.kill(4);
    cluster.forget(4);
    let keyway = serve(&cluster, &[], 1);
    let unreplicated = || keyway.metrics().sum("keyway_cluster_unreplicated_shards", &[]);
    wait_until("one shard has none", SOON, || unreplicated() == 1.0);
    let alone = format!("\"address\":\"{}\",\"state\":\"no-replica\"", cluster.address(1));
    assert!(backends(&keyway).contains(&alone), "{}", backends(&keyway));
    let log = keyway.process().log();
    assert_eq!(log.matches("shard has no replica, though another shard").count(), 1, "{log}");
    assert_eq!(http_get(keyway.admin(), "/readyz").status, 200);
    // A failing primary is a note on `/readyz` until its replica has taken over.
    cluster.kill(0);
    let primary = format!("{} (primary, ", cluster.address(0));
    wait_until("the primary is named", SOON, || {
        let ready = http_get(keyway.admin(), "/readyz");
        let _ = keyway.client(0).words(&format!("GET {}", key_of(0, "k")));
        ready.status == 200 && ready.body.contains(&primary)
    });
    // Nothing is reported if no shard has a replica.
    let bare = RedisCluster::start(3, 0);
    let keyway = serve(&bare, &[], 1);
    wait_until("it serves", SOON, || {
        keyway.metrics().sum("keyway_cluster_served_slots", &[]) == 16384.0
    });
    wait_until("some time passes", SOON, {
        let began = std::time::Instant::now();
        move || began.elapsed() > Duration::from_secs(8)
    });
    assert!(!keyway.process().log().contains("no replica"), "{}", keyway.process().log());
}

#[test]
fn a_replicated_pool_that_serves_nothing_is_not_ready_and_tells_why() {
    let _watch = watchdog(WITHIN, "readyz beside sentinel");
    let who = "nobody has told who is the primary";
    let servers = Replicated::start(1);
    let sentinels = Sentinels::start(1, 1, &[("mymaster", &servers)]);
    let pool = |name: &str| {
        Pool::of_kind("main", "replicated")
            .with("sentinels", &list(&sentinels.addresses()))
            .with("primaries", &format!("[\"{name}\"]"))
    };
    expect_not_ready(
        &start(pool("other")),
        &["pool \"main\"", who, "(other)", "no sentinel knows"],
    );
    let keyway = start(pool("mymaster"));
    expect_ready(&keyway);
    let (primary, replica) = (servers.address(0), servers.address(1));
    let of = |address: SocketAddr, role: &str| {
        format!("\"address\":\"{address}\"")
            + ".*"
            + &format!("\"role\":\"{role}\",\"of\":\"mymaster\"")
    };
    let has = |text: &str, pattern: &str| {
        let (first, second) = pattern.split_once(".*").expect("two parts");
        text.lines().any(|line| line.contains(first) && line.contains(second))
    };
    wait_until("both are known", SOON, || {
        let body = backends(&keyway);
        has(&body, &of(primary, "primary")) && has(&body, &of(replica, "replica"))
    });
    let metrics = keyway.metrics();
    let text = metrics.text();
    assert!(!text.contains("keyway_cluster_served_slots{"), "it has no slots");
    assert_eq!(metrics.sum("keyway_cluster_reachable_primaries", &["pool=\"main\""]), 1.0);
    let label = format!("backend=\"{replica}\"");
    let labels = [&*label, "role=\"replica\"", "of=\"mymaster\""];
    assert_eq!(metrics.sum("keyway_backend_role_info", &labels), 1.0);
}

#[test]
fn sentinels_that_want_another_password_are_told_of_by_its_key() {
    let _watch = watchdog(WITHIN, "passwords of sentinels");
    let servers = Replicated::start_with(1, &[], Some("geheim"));
    let closed = Sentinels::start_with(1, 1, &[("mymaster", &servers)], Some("wache"));
    let pool = Pool::of_kind("main", "replicated")
        .with("sentinels", &list(&closed.addresses()))
        .with("primaries", "[\"mymaster\"]")
        .with("password", "\"geheim\"");
    let without = start(pool.clone());
    expect_not_ready(&without, &["pool \"main\"", "set sentinel_password in [pool.main]"]);
    let wrong = start(pool.clone().with("sentinel_password", "\"falsch\""));
    expect_not_ready(&wrong, &["pool \"main\"", "check sentinel_password in [pool.main]"]);
    expect_ready(&start(pool.with("sentinel_password", "\"wache\"")));
}

#[test]
fn an_error_of_a_split_command_names_each_server_once() {
    let _watch = watchdog(WITHIN, "errors of split commands");
    let mut cluster = RedisCluster::start(3, 0);
    let keyway = serve(&cluster, &[("timeout", "\"300ms\"")], 1);
    let mut client = keyway.client(0);
    assert_eq!(client.words("SET a 1"), Value::simple("OK"));
    cluster.kill(1);
    let keys: Vec<String> = (0..4000).map(|nth| format!("k{nth}")).collect();
    let mut words = vec!["MGET"];
    words.extend(keys.iter().map(String::as_str));
    let told = client.command(&words).error_text();
    assert!(told.contains("MGET failed on 1 of 3 servers: "), "{told}");
    assert!(told.len() < 500 && told.matches("of the keys").count() == 1, "{told}");
    let count = told.split_once('(').and_then(|(_, rest)| rest.split_once(" of the keys"));
    let count: u32 = count.expect("a count").0.rsplit('(').next().unwrap().parse().expect("keys");
    assert!((1200..1500).contains(&count), "{told}");
    wait_until("its slots are out of reach", SOON, || {
        let metrics = keyway.metrics();
        let slots = metrics.sum("keyway_cluster_reachable_slots", &["pool=\"main\""]);
        (10_000.0..11_500.0).contains(&slots)
            && metrics.sum("keyway_cluster_reachable_primaries", &["pool=\"main\""]) == 2.0
    });
}

#[test]
fn nothing_is_answered_in_part_when_nodes_max_is_too_small() {
    let _watch = watchdog(WITHIN, "nodes_max is too small");
    let cluster = RedisCluster::start(5, 0);
    let seeds = &cluster.addresses()[..1];
    let pool = cluster_pool(seeds).with("nodes_max", "3").with("allow_flush", "true");
    let keyway = start(pool);
    let mut client = keyway.client(0);
    let mut served = 0;
    for slot in [0, 5000, 8000, 11_000, 16_000] {
        let reply = client.words(&format!("SET {} 1", key_of(slot, "x")));
        match reply {
            Value::Error(_) => {
                let told = reply.error_text();
                assert!(told.contains("nodes_max in [pool.main] is too small: 655"), "{told}");
                // A request with one key there and another key that is served gets the same error.
                let both =
                    format!("MGET {} {}", key_of(slot, "x"), key_of((slot + 8000) % 16_384, "x"));
                assert!(client.words(&both).error_text().contains("nodes_max"), "{both}");
            }
            _ => served += 1,
        }
    }
    assert_eq!(served, 3);
    for words in ["DBSIZE", "KEYS *", "SCAN 0", "FLUSHALL", "FLUSHDB", "SCRIPT FLUSH"] {
        let told = client.words(words).error_text();
        assert!(told.contains("set nodes_max higher"), "{words}: {told}");
    }
    assert!(!client.words("INFO backends").is_error());
    let keys: usize = (0..5).map(|node| cluster.ask(node, "KEYS *").array().len()).sum();
    assert_eq!(keys, 3, "nothing was emptied");
}

#[test]
fn the_list_of_backends_says_what_each_does_and_since_when() {
    let _watch = watchdog(WITHIN, "roles of a cluster");
    let mut cluster = RedisCluster::start(2, 1);
    let keyway = serve(&cluster, &[("refresh", "\"300ms\""), ("replica_lag_max", "\"5s\"")], 1);
    let line = |address: SocketAddr| {
        let body = backends(&keyway);
        let of = format!("\"backend\":\"{address}\"");
        body.lines().find(|line| line.contains(&of)).unwrap_or_default().to_owned()
    };
    let (primary, replica) = (cluster.address(0), cluster.address(2));
    wait_until("the primary is told of", SOON, || {
        line(primary).contains("\"role\":\"primary\",\"of\":null,\"slots\":8192,\"zone\":null")
    });
    wait_until("the replica is told of", SOON, || {
        let text = line(replica);
        text.contains(&format!("\"role\":\"replica\",\"of\":\"{primary}\",\"slots\":0"))
            && !text.contains("\"lag_ms\":null")
    });
    let since = |text: &str| text.split_once("\"since\":\"").expect("a time").1[..20].to_owned();
    let first = since(&line(primary));
    std::thread::sleep(Duration::from_secs(2));
    let added = cluster.add_node();
    let address = cluster.address(added);
    cluster.wait_settled();
    cluster.move_slots(0, added, 0..=3);
    wait_until("it is found", SOON, || !line(address).is_empty());
    assert!(since(&line(address)) > first, "{} {first}", line(address));
    wait_until("it has its slots", SOON, || line(address).contains("\"slots\":4"));
    let info = keyway.client(0).words("INFO backends").text();
    assert!(info.contains(&format!("standing=replica,of={primary},slots=0")), "{info}");
    let info = keyway.client(0).words("INFO keyway").text();
    assert!(info.contains("keyway_pool_kind:cluster\r\n"), "{info}");
    let table = http_get(keyway.admin(), "/backends?format=text").body;
    let head: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(head[..5], ["pool", "kind", "backend", "address", "state"]);
    assert_eq!(head[7..], ["role", "of", "slots", "zone", "lag_ms"]);
    assert!(table.lines().nth(1).is_some_and(|row| row.starts_with("main  cluster  ")), "{table}");
}
