//! Files of predixy and overlord are imported and started, and every key is found where the other
//! proxy has it.

use std::net::SocketAddr;
use std::time::Duration;

use keyway_testkit::{
    Keyway, MemcachedServer, RedisCluster, RedisServer, Replicated, Sentinels, TempDir, Value,
    free_address, has_memcached, run_keyway, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

/// Returns lines of a place and a key, recorded from another proxy.
fn recorded(text: &'static str) -> Vec<(&'static str, &'static str)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let placed: Vec<_> = lines.map(|line| line.split_once('\t').expect("two columns")).collect();
    assert!(placed.len() > 100);
    placed
}

/// Imports a file and starts Keyway with the result. Returns the notes as well.
fn start(of: &str, file: &std::path::Path, addresses: Vec<SocketAddr>) -> (Keyway, String) {
    let output = run_keyway(KEYWAY, &["import", of, &file.to_string_lossy()]);
    let output = output.expect_success(&format!("keyway import {of}"));
    (Keyway::start_text(KEYWAY, &output.stdout, addresses), output.text)
}

/// Asserts that of these servers only this one has the key.
fn assert_only_at(servers: &[RedisServer], expected: usize, key: &str) {
    for (nth, server) in servers.iter().enumerate() {
        let count = server.client().command(&["EXISTS", key]);
        assert_eq!(count, Value::Integer(i64::from(nth == expected)), "{key} on {nth}");
    }
}

#[test]
fn keys_are_where_predixy_has_them() {
    let _watch = watchdog(Duration::from_secs(120), "an import of predixy");
    let servers = RedisServer::start_many(3);
    let directory = TempDir::new();
    let listener = free_address();
    let groups: String = servers
        .iter()
        .enumerate()
        .map(|(nth, one)| format!("    Group shard{nth} {{\n        + {}\n    }}\n", one.address()))
        .collect();
    directory.write(
        "servers.conf",
        format!(
            "StandaloneServerPool {{\n    Databases 4\n    Hash crc16\n    HashTag \"{{}}\"\n    \
             Distribution modula\n    MasterReadPriority 60\n    RefreshMethod fixed\n    \
             ServerTimeout 5\n{groups}}}\n"
        ),
    );
    directory.write(
        "auth.conf",
        "Authority {\n  Auth \"open # sesame\" {\n    Mode admin\n  }\n}\nLatencyMonitor all {\n  \
         Commands {\n    + all\n  }\n  TimeSpan {\n    + 100\n  }\n}\n",
    );
    let file = directory.write(
        "predixy.conf",
        format!(
            "Name example # a name\nBind {listener}\nWorkerThreads 2\nInclude auth.conf\n\
             Include servers.conf\n"
        ),
    );
    let (keyway, notes) = start("predixy", &file, vec![listener]);
    assert!(notes.contains("WorkerThreads is left out"), "{notes}");
    assert!(notes.contains("LatencyMonitor all is left out"), "{notes}");
    assert!(!notes.contains("sesame\n"), "{notes}");
    let mut client = keyway.client(0);
    assert!(client.words("GET a").text().starts_with("NOAUTH"));
    assert_eq!(client.command(&["AUTH", "open # sesame"]), Value::simple("OK"));
    assert_eq!(client.words("SELECT 3"), Value::simple("OK"), "four databases");
    assert_eq!(client.words("SELECT 0"), Value::simple("OK"));
    for (group, key) in recorded(include_str!("../../../../tests/placement/predixy.tsv")) {
        assert_eq!(client.command(&["SET", key, "v"]), Value::simple("OK"));
        assert_only_at(&servers, group.parse().expect("a group"), key);
    }
}

#[test]
fn keys_are_where_predixy_has_them_on_primaries_that_sentinels_tell() {
    let _watch = watchdog(Duration::from_secs(240), "an import of a pool with sentinels");
    let groups: Vec<Replicated> = (0..3).map(|_| Replicated::start(1)).collect();
    let names = ["shard0", "shard1", "shard2"];
    let named: Vec<(&str, &Replicated)> = names.into_iter().zip(&groups).collect();
    let sentinels = Sentinels::start(3, 2, &named);
    let directory = TempDir::new();
    let listener = free_address();
    let lines: String =
        sentinels.addresses().iter().map(|one| format!("        + {one}\n")).collect();
    let file = directory.write(
        "predixy.conf",
        format!(
            "Bind {listener}\nStandaloneServerPool {{\n    Hash crc16\n    HashTag \"{{}}\"\n    \
             Distribution modula\n    RefreshMethod sentinel\n    ServerTimeout 5\n    Sentinels \
             {{\n{lines}    }}\n    Group shard0 {{\n    }}\n    Group shard1 {{\n    }}\n    Group \
             shard2 {{\n    }}\n}}\n"
        ),
    );
    let (keyway, _) = start("predixy", &file, vec![listener]);
    let mut client = keyway.client(0);
    for (group, key) in recorded(include_str!("../../../../tests/placement/predixy.tsv")) {
        assert_eq!(client.command(&["SET", key, "v"]), Value::simple("OK"));
        let expected: usize = group.parse().expect("a group");
        for (nth, servers) in groups.iter().enumerate() {
            let count = servers.client(0).command(&["EXISTS", key]);
            assert_eq!(count, Value::Integer(i64::from(nth == expected)), "{key} on {nth}");
        }
    }
}

#[test]
fn a_cluster_of_predixy_is_served_as_one() {
    let _watch = watchdog(Duration::from_secs(180), "an import of a cluster pool");
    let cluster = RedisCluster::start(3, 1);
    let directory = TempDir::new();
    let listener = free_address();
    let seeds: String =
        cluster.addresses().iter().take(2).map(|one| format!("        + {one}\n")).collect();
    let file = directory.write(
        "predixy.conf",
        format!(
            "Bind {listener}\nClusterServerPool {{\n    MasterReadPriority 50\n    \
             DynamicSlaveReadPriority 100\n    RefreshInterval 200ms\n    ServerTimeout 5s\n    \
             Servers {{\n{seeds}    }}\n}}\n"
        ),
    );
    let (keyway, _) = start("predixy", &file, vec![listener]);
    let mut client = keyway.client(0);
    for nth in 0..200 {
        let (key, value) = (format!("key:{nth}"), format!("value {nth}"));
        assert_eq!(client.command(&["SET", &key, &value]), Value::simple("OK"));
        // A replica may be a moment behind.
        wait_until("the replica has it", Duration::from_secs(10), || {
            client.command(&["GET", &key]) == Value::bulk(&value)
        });
    }
    let reads = |node: usize| -> u64 {
        let text = cluster.ask(node, "INFO commandstats").text();
        let line = text.lines().find_map(|line| line.strip_prefix("cmdstat_get:calls="));
        line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
    };
    let of_primaries: u64 = (0..3).map(reads).sum();
    let of_replicas: u64 = (3..6).map(reads).sum();
    assert!(of_replicas >= 200 && of_primaries == 0, "{of_primaries} and {of_replicas}");
}

#[test]
fn keys_are_where_overlord_has_them() {
    let _watch = watchdog(Duration::from_secs(180), "an import of overlord");
    const NAMES: [&str; 4] = ["one", "two", "127.0.0.1:11211", "127.0.0.1:7"];
    let servers = RedisServer::start_many(4);
    let cluster = RedisCluster::start(3, 0);
    let memcached: Vec<MemcachedServer> = match has_memcached("overlord's pools of memcached") {
        true => (0..2).map(|_| MemcachedServer::start()).collect(),
        false => Vec::new(),
    };
    let lines: Vec<String> = servers
        .iter()
        .zip(NAMES)
        .map(|(one, name)| format!("\"{}:1 {name}\"", one.address()))
        .collect();
    let seeds: Vec<String> = cluster.addresses().iter().map(|it| format!("\"{it}\"")).collect();
    let mut listeners = vec![free_address(), free_address()];
    // No key has this tag: overlord uses braces if a file has no tag.
    let mut text = format!(
        "[[clusters]]\nname = \"redis\"\nhash_method = \"fnv1a_64\"\nhash_distribution = \
         \"ketama\"\nhash_tag = \"~~\"\ncache_type = \"redis\"\nlisten_proto = \"tcp\"\n\
         listen_addr = \"{}\"\ndial_timeout = 1000\nread_timeout = 5000\nwrite_timeout = 5000\n\
         node_connections = 2\nping_fail_limit = 3\nping_auto_eject = true\nservers = [{}]\n\n\
         [[clusters]]\nname = \"cluster\"\ncache_type = \"redis_cluster\"\nlisten_addr = \"{}\"\n\
         servers = [{}]\n",
        listeners[0],
        lines.join(", "),
        listeners[1],
        seeds.join(", "),
    );
    for (cache, servers) in [("memcache", &memcached), ("memcache_binary", &memcached)] {
        if servers.is_empty() {
            continue;
        }
        listeners.push(free_address());
        let lines: Vec<String> =
            servers.iter().map(|one| format!("\"{}:1\"", one.address())).collect();
        text.push_str(&format!(
            "\n[[clusters]]\nname = \"{cache}\"\ncache_type = \"{cache}\"\nlisten_addr = \
             \"{}\"\nservers = [{}]\n",
            listeners[listeners.len() - 1],
            lines.join(", ")
        ));
    }
    let directory = TempDir::new();
    let file = directory.write("clusters.toml", text);
    let (keyway, _) = start("overlord", &file, listeners.clone());
    let mut client = keyway.client(0);
    for (name, key) in recorded(include_str!("../../../../tests/placement/overlord.tsv")) {
        assert_eq!(client.command(&["SET", key, "v"]), Value::simple("OK"));
        let expected = NAMES.iter().position(|known| *known == name).expect("a server");
        assert_only_at(&servers, expected, key);
    }
    let mut client = keyway.client(1);
    for nth in 0..100 {
        let key = format!("key:{nth}");
        assert_eq!(client.command(&["SET", &key, "v"]), Value::simple("OK"));
        assert_eq!(client.command(&["GET", &key]), Value::bulk("v"));
    }
    let Value::Array(ranges) = client.words("CLUSTER SLOTS") else { panic!("ranges of slots") };
    assert_eq!(ranges.len(), 1, "clients take it for a cluster, as they did overlord");
    for nth in 2..listeners.len() {
        let mut client = keyway.memcached_client(nth);
        for number in 0..50 {
            client.send(
                format!("set key:{number} 0 0 1\r\n{nth}\r\nget key:{number}\r\n").as_bytes(),
            );
            assert_eq!(client.line(), "STORED");
            assert_eq!(client.line(), format!("VALUE key:{number} 0 1"));
            assert_eq!((client.line(), client.line()), (nth.to_string(), "END".to_owned()));
        }
    }
}
