//! The memory that a large value takes on its way, compared with the number of copies that Keyway
//! announces at its start and `keyway check` prints.

use std::net::SocketAddr;
use std::time::Duration;

use keyway_testkit::large::{MB, connect, get, growth_during, set};
use keyway_testkit::{
    Keyway, KeywayConfig, Pool, RedisCluster, RedisServer, Replicated, run_keyway, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const SOON: Duration = Duration::from_secs(20);

const LEN: usize = 64 * MB;

/// Memory besides copies: buffers of links and clients, and pages that the allocator keeps.
const REST: usize = 16 * MB;

fn list(addresses: &[SocketAddr]) -> String {
    let quoted: Vec<String> = addresses.iter().map(|one| format!("\"{one}\"")).collect();
    format!("[{}]", quoted.join(", "))
}

/// Returns the number of copies that `keyway check` announces for a file.
fn announced(keyway: &Keyway) -> usize {
    let file = keyway.directory().join("keyway.toml");
    let told = run_keyway(KEYWAY, &["check", &file.to_string_lossy()]).text;
    let (_, rest) = told.split_once("is in memory up to ").unwrap_or_else(|| panic!("{told}"));
    rest.split(' ').next().and_then(|count| count.parse().ok()).expect("a number of copies")
}

#[test]
fn a_large_value_takes_no_more_memory_than_the_copies_that_are_announced() {
    let _watch = watchdog(Duration::from_secs(120), "copies of large values");
    let (one, other) = (RedisServer::start(), RedisServer::start());
    let (cluster, replicated) = (RedisCluster::start(3, 0), Replicated::start(1));
    let routed = |kind: &str, settings: &[(&str, &str)]| {
        let pool = Pool::of_kind("main", kind);
        let pool = settings.iter().fold(pool, |pool, (name, value)| pool.with(name, value));
        let over = |name, server: &RedisServer| {
            Pool::sharded(name, &[format!("{}:1", server.address())]).with("timeout", "\"10s\"")
        };
        vec![pool, over("a", &one), over("b", &other)]
    };
    let found = |kind: &str, addresses: Vec<SocketAddr>| {
        let pool = Pool::of_kind("main", kind).with("servers", &list(&addresses));
        vec![pool.with("timeout", "\"10s\"")]
    };
    let both = "[\"a\", \"b\"]";
    for (kind, pools) in [
        ("cluster", found("cluster", cluster.addresses())),
        ("replicated", found("replicated", replicated.addresses())),
        ("prefix", routed("prefix", &[("routes", "[{ prefix = \"l\", pool = \"a\" }]")])),
        ("failover", routed("failover", &[("children", both)])),
        ("mirror", routed("mirror", &[("children", both), ("read_from", "\"a\"")])),
        ("miss-then", routed("miss-then", &[("children", both), ("fill", "true")])),
    ] {
        let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools).with_server("workers", "1"));
        let (pid, copies) = (keyway.process().pid(), announced(&keyway));
        let mut client = connect(keyway.address(0));
        let written = growth_during(pid, || set(&mut client, "large", LEN));
        let read = growth_during(pid, || get(&mut client, "large", LEN));
        println!(
            "{kind}: {copies} announced; {:.2} to write, {:.2} to read",
            written as f64 / LEN as f64,
            read as f64 / LEN as f64
        );
        let most = written.max(read);
        assert!(most < copies * LEN + REST, "{kind}: {copies} copies, {written} and {read} bytes");
        // The announced number is not far above what can happen.
        assert!(2 * most > copies * LEN - REST, "{kind}: {copies} copies, {written} and {read}");
        drop(client);
        let (_, log) = keyway.stop(SOON);
        assert!(log.contains(&format!("copies_max={copies}\n")), "{kind}, {copies}: {log}");
    }
}
