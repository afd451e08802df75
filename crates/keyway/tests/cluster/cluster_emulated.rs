//! Keyways that pose as a Redis Cluster: compared with a real one, and with redis-py's cluster
//! client, which is never redirected.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, RedisCluster, RedisServer, Value, encode, free_address, python, run_tool,
    wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

fn list<T: ToString>(items: &[T]) -> String {
    let quoted: Vec<String> = items.iter().map(|item| format!("{:?}", item.to_string())).collect();
    format!("[{}]", quoted.join(", "))
}

/// Starts a Keyway with these listeners on `pool`, which pose as a cluster of `announced`.
fn start(listeners: &[SocketAddr], announced: &[SocketAddr], pool: &str) -> Keyway {
    let mut text = String::new();
    for listener in listeners {
        text.push_str(&format!(
            "[[listener]]\nbind = \"tcp://{listener}\"\npool = \"main\"\n\
             cluster_mode = \"emulate\"\n"
        ));
        if !announced.is_empty() {
            text.push_str(&format!("cluster_announce = {}\n", list(announced)));
        }
        text.push('\n');
    }
    text.push_str(&format!("[pool.main]\n{pool}\n"));
    Keyway::start_text(KEYWAY, &text, listeners.to_vec())
}

fn over_cluster(cluster: &RedisCluster) -> String {
    format!("kind = \"cluster\"\nservers = {}", list(&cluster.addresses()))
}

/// Runs the suite of redis-py's cluster client, which no node may redirect.
fn redis_py(protocol: u8, nodes: &[SocketAddr], victim: Option<u32>) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script = root.join("tests/python/cluster_client.py").to_string_lossy().into_owned();
    let ports: Vec<String> = nodes.iter().map(|node| node.port().to_string()).collect();
    let (protocol, ports) = (protocol.to_string(), ports.join(","));
    let victim = victim.map(|pid| pid.to_string());
    let mut arguments = vec![script.as_str(), &protocol, &ports];
    arguments.extend(victim.as_deref());
    let output = run_tool(&python(), &arguments, b"", Duration::from_secs(120));
    let text = output.expect_success("redis-py's cluster client").text;
    assert!(text.contains("\nOK") && text.contains("REDIRECTS 0\n"), "{text}");
    text
}

fn requests(address: SocketAddr) -> u64 {
    let stats = Client::connect(address).words("INFO stats").text();
    let field = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    field.and_then(|value| value.trim().parse().ok()).expect("a number of commands")
}

#[test]
fn redis_py_takes_two_keyways_over_a_cluster_for_one_and_goes_on_with_either() {
    let _watch = watchdog(Duration::from_secs(240), "redis-py on two Keyways");
    let cluster = RedisCluster::start(3, 0);
    let nodes = [free_address(), free_address()];
    let first = start(&nodes[..1], &nodes, &over_cluster(&cluster));
    let second = start(&nodes[1..], &nodes, &over_cluster(&cluster));
    for keyway in [&first, &second] {
        let mut client = keyway.client(0);
        wait_until("each finds the other", Duration::from_secs(20), || {
            !client.words("CLUSTER NODES").text().contains("fail")
        });
    }
    redis_py(2, &nodes, None);
    let asked = nodes.map(requests);
    assert!(asked.iter().all(|&count| count > 1_000), "both are asked: {asked:?}");
    let text = redis_py(3, &nodes, Some(first.process().pid()));
    assert!(text.contains("WENT ON"), "{text}");
}

#[test]
fn redis_py_takes_two_listeners_of_a_store_for_a_cluster() {
    let _watch = watchdog(Duration::from_secs(120), "redis-py on a store");
    let nodes = [free_address(), free_address()];
    let _keyway = start(&nodes, &nodes, "kind = \"store\"\nmemory_max = \"64MiB\"");
    [2, 3].into_iter().for_each(|protocol| drop(redis_py(protocol, &nodes, None)));
}

#[test]
fn redis_py_takes_one_keyway_over_shards_for_a_cluster() {
    let _watch = watchdog(Duration::from_secs(120), "redis-py on shards");
    let servers = RedisServer::start_many(3);
    let nodes = [free_address()];
    let lines: Vec<String> = servers.iter().map(|one| format!("{}:1", one.address())).collect();
    let pool = format!("kind = \"sharded\"\nhash_tag = \"{{}}\"\nservers = {}", list(&lines));
    let _keyway = start(&nodes, &[], &pool);
    [2, 3].into_iter().for_each(|protocol| drop(redis_py(protocol, &nodes, None)));
}

/// Returns a reply without the parts that differ between two nodes of any cluster: ids and times.
/// Lines of a text are sorted, because Redis lists nodes in no fixed order.
fn masked(reply: &[u8]) -> String {
    let text = String::from_utf8_lossy(reply).into_owned();
    let is_id = |word: &str| word.len() == 40 && word.bytes().all(|it| it.is_ascii_hexdigit());
    let is_time = |word: &str| word.len() == 13 && word.bytes().all(|it| it.is_ascii_digit());
    let word = |word: &str| match word.split_once('@') {
        // This is the port of the cluster bus, which the harness chooses.
        Some((address, _)) if word.contains(':') => format!("{address}@BUS"),
        _ => word.to_owned(),
    };
    let word = |text: &str| match () {
        () if is_id(text) => "ID".to_owned(),
        () if is_time(text) => "TIME".to_owned(),
        () => word(text),
    };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    let mut lines: Vec<String> = text.split("\r\n").map(line).collect();
    for text in lines.iter_mut().filter(|line| line.contains('\n')) {
        let lines = text.replacen("txt:", "txt:\n", 1);
        let mut sorted: Vec<String> = lines.split('\n').map(line).collect();
        sorted.sort_unstable();
        *text = sorted.join("\n");
    }
    lines.join("\r\n")
}

/// Removes the lengths of texts whose times and counts differ.
fn without_length(reply: &str) -> String {
    let rest = reply.split_once("\r\n").map_or(reply, |(_, rest)| rest);
    format!("{}{rest}", &reply[..1])
}

fn ask(client: &mut Client, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    client.send(&encode(&words));
    masked(&client.raw_reply())
}

#[test]
fn what_is_told_of_a_cluster_is_what_redis_tells() {
    let _watch = watchdog(Duration::from_secs(120), "beside a cluster");
    let cluster = RedisCluster::start(3, 0);
    // This Keyway poses as the first node of the real cluster.
    let addresses = cluster.addresses();
    let keyway = start(&[free_address()], &addresses, &over_cluster(&cluster));
    for protocol in [2, 3] {
        let (mut theirs, mut ours) = (cluster.client(0), keyway.client(0));
        for client in [&mut theirs, &mut ours] {
            client.words(&format!("HELLO {protocol}"));
        }
        let mut same = |line: &str| {
            assert_eq!(ask(&mut ours, line), ask(&mut theirs, line), "{line} in RESP{protocol}");
        };
        for line in [
            "CLUSTER SLOTS",
            "CLUSTER MYID",
            "CLUSTER KEYSLOT foo{bar}",
            "CLUSTER COUNTKEYSINSLOT 16384",
            "CLUSTER COUNTKEYSINSLOT x",
            "CLUSTER GETKEYSINSLOT 1 x",
            "CLUSTER GETKEYSINSLOT 16384 1",
            "CLUSTER GETKEYSINSLOT 1 -1",
            "CLUSTER REPLICAS nobody",
            "CLUSTER SLAVES nobody",
            "CLUSTER NOSUCH",
            "CLUSTER",
            "READONLY",
            "READWRITE",
            "ASKING",
            "READONLY x",
        ] {
            same(line);
        }
        let nodes =
            [&mut ours, &mut theirs].map(|client| without_length(&ask(client, "CLUSTER NODES")));
        assert_eq!(nodes[0], nodes[1], "RESP{protocol}");
        let info = [&mut ours, &mut theirs].map(|client| {
            let text = ask(client, "CLUSTER INFO");
            let names = text.split("\r\n").filter_map(|line| line.split_once(':'));
            let of_all = names.filter(|(name, _)| !name.starts_with("cluster_stats_messages_"));
            of_all.map(|(name, value)| format!("{name}:{value}")).collect::<Vec<_>>()
        });
        assert_eq!(info[0], info[1], "RESP{protocol}");
        let shards = [&mut ours, &mut theirs].map(|client| {
            let reply = ask(client, "CLUSTER SHARDS");
            // Redis lists them in no fixed order.
            let mut parts: Vec<String> = reply.split("slots\r\n").map(str::to_owned).collect();
            let last = parts.len() - 1;
            let head = parts[0].rsplit_once("\r\n").map(|(_, head)| head.to_owned());
            let head = parts[0].rsplit("\r\n").nth(2).map(str::to_owned).or(head);
            assert!(head.is_some(), "{reply}");
            parts[last].push_str(&format!("{}\r\n$5\r\n", head.unwrap_or_default()));
            parts[1..].sort_unstable();
            parts
        });
        assert_eq!(shards[0], shards[1], "RESP{protocol}");
        let hello = ask(&mut ours, &format!("HELLO {protocol}"));
        assert!(hello.contains("mode\r\n$7\r\ncluster\r\n"), "{hello}");
        let info = ask(&mut ours, "INFO");
        assert!(info.contains("redis_mode:cluster\r\n") && info.contains("cluster_enabled:1\r\n"));
    }
}

/// Redis has this command since 7.2.
#[test]
fn each_node_is_alone_in_a_shard_that_has_an_id() {
    let _watch = watchdog(Duration::from_secs(60), "ids of shards");
    let addresses = [free_address(), free_address()];
    let keyways = addresses.map(|own| start(&[own], &addresses, "kind = \"store\""));
    let id =
        |keyway: &Keyway, what: &str| keyway.client(0).words(&format!("CLUSTER {what}")).text();
    let shards = [0, 1].map(|nth| id(&keyways[nth], "MYSHARDID"));
    for (keyway, shard) in keyways.iter().zip(&shards) {
        assert!(shard.len() == 40 && shard.bytes().all(|it| it.is_ascii_hexdigit()), "{shard}");
        assert_eq!(id(keyway, "myshardid"), *shard, "it stays");
        assert_ne!(id(keyway, "MYID"), *shard);
        let told = keyway.client(0).words("CLUSTER MYSHARDID x");
        assert!(told.error_text().contains("wrong number of arguments"), "{told:?}");
    }
    assert_ne!(shards[0], shards[1]);
}

#[test]
fn what_would_change_a_cluster_is_refused_and_a_plain_listener_has_none() {
    let _watch = watchdog(Duration::from_secs(60), "refusals");
    let plain = free_address();
    let text = format!(
        "[[listener]]\nbind = \"tcp://{plain}\"\npool = \"main\"\n\n[pool.main]\nkind = \"store\"\n"
    );
    let off = Keyway::start_text(KEYWAY, &text, vec![plain]);
    let on = start(&[free_address()], &[], "kind = \"store\"");
    for line in ["CLUSTER SETSLOT 1 STABLE", "CLUSTER FAILOVER", "CLUSTER MEET 127.0.0.1 1"] {
        for keyway in [&off, &on] {
            let text = keyway.client(0).words(line).text();
            assert!(text.contains("refused") && text.contains("run it on a server"), "{text}");
        }
    }
    for line in ["CLUSTER SLOTS", "CLUSTER NODES", "READONLY", "ASKING"] {
        let text = off.client(0).words(line).text();
        assert!(text.contains("This instance has cluster support disabled"), "{text}");
    }
    assert!(off.client(0).words("CLUSTER MYSHARDID").is_error());
    assert!(off.client(0).words("INFO").text().contains("cluster_enabled:0\r\n"));
    let mut client = on.client(0);
    assert_eq!(client.words("MULTI"), Value::simple("OK"));
    assert_eq!(client.words("CLUSTER KEYSLOT a"), Value::simple("QUEUED"));
    assert_eq!(client.words("EXEC"), Value::Array(vec![Value::Integer(15_495)]));
}
