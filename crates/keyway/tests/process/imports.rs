//! Files of predixy and overlord, and products of Codis, are imported and started, and every key is found
//! where the other proxy has it.

use std::net::SocketAddr;
use std::time::Duration;

use keyway_testkit::{
    EtcdCluster, Keyway, MemcachedServer, RedisCluster, RedisServer, Replicated, Sentinels,
    TempDir, Value, ZooKeeperEnsemble, etcd_put_v2, free_address, has_etcd, has_memcached,
    has_zookeeper, run_keyway, wait_until, watchdog,
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

/// Returns the entries of a product of Codis: two groups, and a proxy.
fn product(servers: &[Replicated], proxy: SocketAddr) -> Vec<(String, String)> {
    let slot = |id: usize| {
        let group = 1 + id % 2;
        let value = format!("{{\"id\":{id},\"group_id\":{group},\"action\":{{}}}}");
        (format!("slots/slot-{id:04}"), value)
    };
    let group = |(nth, group): (usize, &Replicated)| {
        let of = |at: &SocketAddr| {
            format!(
                "{{\"server\":\"{at}\",\"datacenter\":\"\",\"action\":{{}},\"replica_group\":false}}"
            )
        };
        let servers: Vec<String> = group.addresses().iter().map(of).collect();
        let (id, servers) = (nth + 1, servers.join(","));
        let value = format!(
            "{{\"id\":{id},\"servers\":[{servers}],\"promoting\":{{}},\"out_of_sync\":false}}"
        );
        (format!("group/group-{id:04}"), value)
    };
    let own = format!("{{\"token\":\"ab\",\"proxy_addr\":\"{proxy}\"}}");
    let slots = (0..1024).map(slot);
    let groups = servers.iter().enumerate().map(group);
    slots.chain(groups).chain([("proxy/proxy-ab".to_owned(), own)]).collect()
}

/// Codis's slot is the CRC-32 of the key, or of its tag, modulo 1024.
const CODIS_SLOTS: [(&str, usize); 5] =
    [("a", 579), ("foo", 289), ("x{foo}y", 289), ("bar", 170), ("x{}y", 0)];

#[test]
fn keys_are_where_codis_has_them() {
    let _watch = watchdog(Duration::from_secs(120), "an import of Codis");
    let servers = [Replicated::start(1), Replicated::start(0)];
    let (directory, listener) = (TempDir::new(), free_address());
    let entries = product(&servers, listener);
    for folder in ["slots", "group", "proxy"] {
        let folder = directory.path().join("codis3/demo").join(folder);
        std::fs::create_dir_all(folder).expect("a folder");
    }
    for (name, value) in &entries {
        directory.write(&format!("codis3/demo/{name}"), value);
    }
    let folder = directory.path().display().to_string();
    let words = ["import", "codis", "demo", "--files", &folder];
    let output = run_keyway(KEYWAY, &words).expect_success("keyway import codis");
    assert!(output.text.contains("note: the listener is on 127.0.0.1"), "{}", output.text);
    let keyway = Keyway::start_text(KEYWAY, &output.stdout, vec![listener]);
    let mut client = keyway.client(0);
    for (key, slot) in CODIS_SLOTS {
        assert_eq!(client.command(&["SET", key, "v"]), Value::simple("OK"));
        let has = |group: usize| servers[group].client(0).command(&["EXISTS", key]);
        assert_eq!(has(slot % 2), Value::Integer(1), "{key}");
        assert_eq!(has(1 - slot % 2), Value::Integer(0), "{key}");
    }
    // A slot that moves is refused, and so are a name that is a path and a product that is not there.
    let moving = "{\"id\":7,\"group_id\":1,\"action\":{\"state\":\"migrating\",\"target_id\":2}}";
    directory.write("codis3/demo/slots/slot-0007", moving);
    let cases =
        [("demo", "slot 7 moves to group 2"), ("none", "no product"), ("../demo", "no name")];
    for (product, words) in cases {
        let refused = run_keyway(KEYWAY, &["import", "codis", product, "--files", &folder]);
        assert!(!refused.status.success() && refused.text.contains(words), "{}", refused.text);
    }
    let unnamed = run_keyway(KEYWAY, &["import", "codis", "demo"]);
    assert_eq!(unnamed.status.code(), Some(2));
    assert!(unnamed.text.contains("--zookeeper, --etcd or --files"), "{}", unnamed.text);
}

#[test]
fn a_product_of_codis_is_read_from_etcd() {
    if !has_etcd("a product of Codis in etcd") {
        return;
    }
    let _watch = watchdog(Duration::from_secs(120), "a product of Codis in etcd");
    let etcd = EtcdCluster::start(1);
    let servers = [Replicated::start(0), Replicated::start(0)];
    let address = etcd.addresses()[0];
    for (name, value) in product(&servers, free_address()) {
        etcd_put_v2(address, &format!("/codis3/demo/{name}"), &value);
    }
    let at = address.to_string();
    let output = run_keyway(KEYWAY, &["import", "codis", "demo", "--etcd", &at]);
    let output = output.expect_success("keyway import codis");
    let server = servers[1].address(0).to_string();
    assert!(output.stdout.contains("kind = \"slots\"") && output.stdout.contains(&server));
    let none = run_keyway(KEYWAY, &["import", "codis", "other", "--etcd", &at]);
    assert!(!none.status.success() && none.text.contains("no product"), "{}", none.text);
    let nobody = free_address().to_string();
    let mute = run_keyway(KEYWAY, &["import", "codis", "demo", "--etcd", &nobody]);
    assert!(!mute.status.success() && mute.text.contains(&nobody), "{}", mute.text);
}

#[test]
fn a_product_of_codis_is_read_from_zookeeper() {
    if !has_zookeeper("a product of Codis in ZooKeeper") {
        return;
    }
    let _watch = watchdog(Duration::from_secs(120), "a product of Codis in ZooKeeper");
    let zookeeper = ZooKeeperEnsemble::start(1);
    let servers = [Replicated::start(0)];
    let make = |path: &str, value: &str| {
        assert!(zookeeper.ask(&["create", path, value]).is_some(), "{path}");
    };
    for path in ["/codis3", "/codis3/demo", "/codis3/demo/slots", "/codis3/demo/group"] {
        make(path, "");
    }
    // Each node takes ZooKeeper's own client a second, so the product is not whole.
    let entries = product(&servers, free_address());
    let some = ["slots/slot-0000", "slots/slot-0002", "group/group-0001"];
    for (name, value) in entries.iter().filter(|(name, _)| some.contains(&name.as_str())) {
        make(&format!("/codis3/demo/{name}"), value);
    }
    let at = zookeeper.addresses()[0].to_string();
    let refused = run_keyway(KEYWAY, &["import", "codis", "demo", "--zookeeper", &at]);
    assert!(!refused.status.success(), "{}", refused.text);
    assert!(refused.text.contains("slots 1, 3-1023 have no group"), "{}", refused.text);
    let none = run_keyway(KEYWAY, &["import", "codis", "other", "--zookeeper", &at]);
    assert!(!none.status.success() && none.text.contains("no product"), "{}", none.text);
}
