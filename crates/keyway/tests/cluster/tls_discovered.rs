//! TLS with discovered servers: a Redis Cluster, and Sentinel.

use keyway_testkit::certificates::CertificateFiles;
use keyway_testkit::{
    CheckedLoad, Client, Keyway, KeywayConfig, LoadShape, Pool, Process, RedisServer, TempDir,
    Value, encode_words, free_port, wait_until,
};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(30);

fn tls(files: &CertificateFiles) -> String {
    format!("{{ ca_file = {:?} }}", files.path("ca.pem"))
}

fn start(options: &[String]) -> RedisServer {
    RedisServer::start_with(&options.iter().map(String::as_str).collect::<Vec<_>>())
}

fn with(mut options: Vec<String>, more: &[(&str, String)]) -> Vec<String> {
    for (option, value) in more {
        options.extend([(*option).to_owned(), value.clone()]);
    }
    options
}

fn is_ok(client: &mut Client, words: &str) {
    assert_eq!(client.words(words), Value::simple("OK"), "{words}");
}

/// Returns the reply of a server that may close its connections, as Sentinel does.
fn try_ask(server: &RedisServer, words: &str) -> Option<Value> {
    let mut client = Client::try_connect(server.address()).ok()?;
    client.try_send(&encode_words(words)).ok()?;
    client.try_reply().ok()
}

/// Starts three primaries whose bus and clients use TLS. Each has a port without TLS, too.
fn cluster(files: &CertificateFiles) -> Vec<(RedisServer, u16)> {
    let nodes: Vec<(RedisServer, u16, u16)> = (0..3)
        .map(|_| {
            let (port, bus_port) = (free_port(), free_port());
            let options = with(
                files.redis_options(port, "server"),
                &[
                    ("--cluster-enabled", "yes".to_owned()),
                    ("--cluster-port", bus_port.to_string()),
                    ("--cluster-node-timeout", "5000".to_owned()),
                    ("--tls-cluster", "yes".to_owned()),
                ],
            );
            (start(&options), port, bus_port)
        })
        .collect();
    for (index, (node, _, _)) in nodes.iter().enumerate() {
        let mut client = node.client();
        let (first, last) = (index * 16384 / 3, (index + 1) * 16384 / 3 - 1);
        is_ok(&mut client, &format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1));
        is_ok(&mut client, &format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
        let (_, port, bus_port) = &nodes[0];
        if index > 0 {
            is_ok(&mut client, &format!("CLUSTER MEET 127.0.0.1 {port} {bus_port}"));
        }
    }
    wait_until("the cluster is whole", SOON, || {
        nodes.iter().all(|(node, _, _)| {
            let info = node.client().words("CLUSTER INFO").text();
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        })
    });
    nodes.into_iter().map(|(node, port, _)| (node, port)).collect()
}

#[test]
fn a_cluster_is_found_and_followed_by_its_tls_ports() {
    let files = CertificateFiles::default();
    let nodes = cluster(&files);
    for discovery in ["slots", "shards", "nodes"] {
        let pool = Pool::of_kind("main", "cluster")
            .with("servers", &format!("[\"127.0.0.1:{}\"]", nodes[0].1))
            .with("discovery", &format!("{discovery:?}"))
            .with("tls", &tls(&files));
        let keyway =
            Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]).with_server("workers", "1"));
        let mut client = keyway.client(0);
        for number in 0..60 {
            is_ok(&mut client, &format!("SET k{number} v{number}"));
        }
        let keys: String = (0..60).map(|number| format!(" k{number}")).collect();
        let values = (0..60).map(|number| Value::bulk(format!("v{number}"))).collect();
        assert_eq!(client.words(&format!("MGET{keys}")), Value::Array(values), "{discovery}");
        let found = keyway_testkit::http_get(keyway.admin(), "/backends").body;
        for (_, port) in &nodes {
            assert!(found.contains(&format!("127.0.0.1:{port}")), "{discovery}: {found}");
        }
        for (node, _) in &nodes {
            assert!(!found.contains(&format!("127.0.0.1:{}\"", node.port())), "{found}");
        }
    }
    let pool = Pool::of_kind("main", "cluster")
        .with("servers", &format!("[\"127.0.0.1:{}\"]", nodes[0].1))
        .with("tls", &tls(&files));
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let load = CheckedLoad::start(keyway.address(0), LoadShape::default());
    for (node, _) in &nodes {
        load.wait_replies(300);
        let _ = node.client().words("CLIENT KILL TYPE normal SKIPME yes");
    }
    load.wait_replies(300);
    load.stop().assert_right();
}

#[test]
fn a_moved_slot_is_followed_by_tls() {
    let files = CertificateFiles::default();
    let nodes = cluster(&files);
    let pool = Pool::of_kind("main", "cluster")
        .with("servers", &format!("[\"127.0.0.1:{}\"]", nodes[0].1))
        .with("tls", &tls(&files));
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]).with_server("workers", "1"));
    let mut client = keyway.client(0);
    is_ok(&mut client, "SET {a}1 before");
    // Slot 15495 of the last node goes to the first, without its key.
    let ids: Vec<String> =
        nodes.iter().map(|(node, _)| node.client().words("CLUSTER MYID").text()).collect();
    is_ok(&mut nodes[2].0.client(), "FLUSHALL");
    for node in [0, 2, 1] {
        is_ok(&mut nodes[node].0.client(), &format!("CLUSTER SETSLOT 15495 NODE {}", ids[0]));
    }
    is_ok(&mut client, "SET {a}1 after");
    assert_eq!(nodes[0].0.client().words("GET {a}1"), Value::bulk("after"));
    assert!(keyway.metrics().sum("keyway_cluster_moved_requests_total", &[]) >= 1.0);
}

/// A sentinel with a TLS port.
struct Sentinel {
    _process: Process,
    _directory: TempDir,
    tls_port: u16,
    address: SocketAddr,
}

fn sentinel(files: &CertificateFiles, primary: u16) -> Sentinel {
    let (directory, port, tls_port) = (TempDir::new(), free_port(), free_port());
    let options = with(files.redis_options(tls_port, "server"), &[]);
    let mut text = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\ntls-replication yes\n\
         sentinel monitor users 127.0.0.1 {primary} 1\n\
         sentinel down-after-milliseconds users 1000\nsentinel failover-timeout users 3000\n",
        directory.path().display()
    );
    for pair in options.chunks(2) {
        text.push_str(&format!("{} {}\n", pair[0].trim_start_matches("--"), pair[1]));
    }
    let file = directory.write("sentinel.conf", text);
    let mut command = Command::new("redis-server");
    command.arg(file).arg("--sentinel");
    let mut process = Process::spawn("redis-sentinel", &mut command, directory.path());
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    process.wait_ready(SOON, || Client::try_connect(address).is_ok());
    Sentinel { _process: process, _directory: directory, tls_port, address }
}

#[test]
fn sentinels_and_their_servers_are_asked_by_tls_and_a_fail_over_is_followed() {
    let files = CertificateFiles::default();
    let replicated = |port: u16, of: Option<u16>| {
        let mut more = vec![("--tls-replication", "yes".to_owned())];
        if let Some(of) = of {
            more.push(("--replicaof", format!("127.0.0.1 {of}")));
        }
        start(&with(files.redis_options(port, "server"), &more))
    };
    let ports = [free_port(), free_port()];
    let servers = [replicated(ports[0], None), replicated(ports[1], Some(ports[0]))];
    let sentinel = sentinel(&files, ports[0]);
    wait_until("the sentinel knows the replica", SOON, || {
        let known = Client::connect(sentinel.address).words("SENTINEL REPLICAS users");
        let info = servers[1].client().words("INFO replication").text();
        format!("{known:?}").contains(&ports[1].to_string())
            && info.contains("master_link_status:up")
    });
    let pool = Pool::of_kind("users", "replicated")
        .with("sentinels", &format!("[\"127.0.0.1:{}\"]", sentinel.tls_port))
        .with("primaries", "[\"users\"]")
        .with("tls", &tls(&files));
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]).with_server("workers", "1"));
    let mut client = keyway.client(0);
    is_ok(&mut client, "SET a 1");
    assert_eq!(servers[0].client().words("GET a"), Value::bulk("1"));
    let found = keyway_testkit::http_get(keyway.admin(), "/backends").body;
    assert!(found.contains(&format!("127.0.0.1:{}", ports[0])), "{found}");
    wait_until("a fail-over begins", SOON, || {
        Client::connect(sentinel.address).words("SENTINEL FAILOVER users") == Value::simple("OK")
    });
    wait_until("the replica is the primary", SOON, || {
        try_ask(&servers[1], "SET probe 1") == Some(Value::simple("OK"))
    });
    wait_until("writes go to the new primary", SOON, || {
        let _ = client.words("SET b 2");
        try_ask(&servers[1], "GET b") == Some(Value::bulk("2"))
    });
    // A sentinel of another authority is not trusted.
    let other = CertificateFiles::default();
    let pool = Pool::of_kind("users", "replicated")
        .with("sentinels", &format!("[\"127.0.0.1:{}\"]", sentinel.tls_port))
        .with("primaries", "[\"users\"]")
        .with("connect_timeout", "\"500ms\"")
        .with("timeout", "\"500ms\"")
        .with("tls", &tls(&files))
        .with("sentinel_tls", &tls(&other));
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]).with_server("workers", "1"));
    wait_until("the log tells why", SOON, || {
        let log = keyway.process().log();
        log.contains("TLS handshake with 127.0.0.1") && log.contains("not issued by an authority")
    });
}
