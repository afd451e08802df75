//! A proxy whose servers are reached through shared memory.

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use keyway_testkit::{
    Keyway, KeywayConfig, Pool, RedisServer, TempDir, Value, encode, encode_words, fd_count,
    wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(20);

/// Starts a store that is reached at `path`.
fn store(path: &Path, settings: &str) -> Keyway {
    let listener = format!(
        "[[listener]]\nbind = \"shm://{}\"\npool = \"local\"\n{settings}\n",
        path.display()
    );
    let config = KeywayConfig::new(vec![Pool::store("local")]).with_tables(&listener);
    Keyway::start(KEYWAY, config)
}

fn pool_over(paths: &[&Path]) -> Pool {
    let line = |(nth, path): (usize, &&Path)| format!("shm://{}:1 s{nth}", path.display());
    let lines: Vec<String> = paths.iter().enumerate().map(line).collect();
    Pool::sharded("main", &lines)
        .with("timeout", "\"5s\"")
        .with("connect_timeout", "\"1s\"")
        .with("reconnect", "{ min = \"10ms\", max = \"100ms\" }")
}

#[test]
fn a_pool_over_shared_memory_serves_and_heals() {
    let _watch = watchdog(Duration::from_secs(120), "servers in shared memory");
    let directory = TempDir::new();
    let paths = [directory.path().join("one.shm"), directory.path().join("two.shm")];
    let first = store(&paths[0], "");
    // The server gives smaller rings than are asked for at first.
    let second = store(&paths[1], "ring_max = \"64KiB\"");
    let pool = pool_over(&[&paths[0], &paths[1]]);
    let config = KeywayConfig::new(vec![pool]).with_server("workers", "1");
    let proxy = Keyway::start(KEYWAY, config);
    let mut client = proxy.client(0);
    for nth in 0..500 {
        let (name, value) = (format!("k{nth}"), format!("v{nth}"));
        assert_eq!(client.command(&["SET", &name, &value]), Value::simple("OK"));
    }
    let asked: Vec<u8> = (0..500).flat_map(|nth| encode_words(&format!("GET k{nth}"))).collect();
    client.send(&asked);
    for nth in 0..500 {
        assert_eq!(client.reply(), Value::bulk(format!("v{nth}")));
    }
    for store in [&first, &second] {
        let mut inside = store.client(0);
        let clients = inside.words("CLIENT LIST").text();
        assert!(clients.contains("addr=shm:0"), "{clients}");
        assert!(inside.words("DBSIZE").integer() > 100, "both have keys");
    }
    // The value is longer than any ring, in both directions.
    let value = "v".repeat(5 << 20);
    for name in ["a", "b", "c", "d"] {
        assert_eq!(client.command(&["SET", name, &value]), Value::simple("OK"));
        assert_eq!(client.command(&["GET", name]), Value::bulk(&value));
    }
    let descriptors = fd_count(proxy.process().pid());

    let on_first: Vec<String> = (0..500)
        .map(|nth| format!("k{nth}"))
        .filter(|name| first.client(0).command(&["EXISTS", name.as_str()]) == Value::Integer(1))
        .take(5)
        .collect();
    let mut first = first;
    first.process_mut().kill();
    let error = client.command(&["GET", &on_first[0]]).error_text();
    assert!(error.contains("s0"), "{error}");
    wait_until("connecting fails", SOON, || {
        client.command(&["GET", &on_first[0]]).error_text().contains("cannot be reached")
    });
    let others = (0..500)
        .map(|nth| format!("k{nth}"))
        .filter(|name| second.client(0).command(&["EXISTS", name.as_str()]) == Value::Integer(1));
    for name in others.take(20) {
        assert!(matches!(client.command(&["GET", &name]), Value::Bulk(_)), "the other serves on");
    }
    let first = store(&paths[0], "");
    wait_until("it is connected again", SOON, || {
        client.command(&["GET", &on_first[0]]) == Value::Nil
    });
    assert_eq!(client.command(&["SET", &on_first[0], "again"]), Value::simple("OK"));
    assert_eq!(first.client(0).command(&["GET", &on_first[0]]), Value::bulk("again"));
    wait_until("no descriptor is left over", SOON, || {
        fd_count(proxy.process().pid()) <= descriptors
    });
}

#[test]
fn what_shares_no_memory_is_told_apart() {
    let _watch = watchdog(Duration::from_secs(60), "servers that share no memory");
    let directory = TempDir::new();
    let path = directory.path().join("other.sock");
    // One is a Redis server, and one sends nothing.
    let cases = [
        ("no answer to a hello", b"-ERR unknown command, as another server says it\r\n".as_slice()),
        ("connecting took longer than connect_timeout", b""),
    ];
    for (told, answer) in cases {
        let server = UnixListener::bind(&path).unwrap();
        let config = KeywayConfig::new(vec![pool_over(&[&path])]).with_server("workers", "1");
        let proxy = Keyway::start(KEYWAY, config);
        let mut client = proxy.client(0);
        client.send(&encode_words("GET a"));
        let (mut socket, _) = server.accept().unwrap();
        socket.write_all(answer).unwrap();
        let error = client.reply().error_text();
        assert!(error.contains("s0"), "{error}");
        wait_until("it is told", SOON, || proxy.process().log().contains(told));
        drop(socket);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_server_of_redis_and_one_in_shared_memory_are_one_pool() {
    let _watch = watchdog(Duration::from_secs(60), "servers of both kinds");
    let directory = TempDir::new();
    let path = directory.path().join("one.shm");
    let _store = store(&path, "");
    let redis = RedisServer::start();
    let lines = [format!("shm://{}:1 shm", path.display()), format!("{}:1 tcp", redis.address())];
    let config = KeywayConfig::new(vec![Pool::sharded("main", &lines)]);
    let proxy = Keyway::start(KEYWAY, config);
    let mut client = proxy.client(0);
    let names: Vec<String> = (0..200).map(|nth| format!("k{nth}")).collect();
    let sets: Vec<u8> = names.iter().flat_map(|name| encode(&["SET", name, name])).collect();
    client.send(&sets);
    assert!(client.replies(200).iter().all(|reply| *reply == Value::simple("OK")));
    let mget: Vec<&str> = std::iter::once("MGET").chain(names.iter().map(String::as_str)).collect();
    let found = client.command(&mget);
    assert!(found.array().iter().zip(&names).all(|(found, name)| *found == Value::bulk(name)));
    // Blocking commands have connections of their own, and so do subscribers.
    assert_eq!(client.words("LPUSH list a"), Value::Integer(1));
    assert!(matches!(client.words("BLPOP list 1"), Value::Array(_)));
    let mut subscriber = proxy.client(0);
    subscriber.words("SUBSCRIBE news");
    wait_until("it is published", SOON, || client.words("PUBLISH news x").integer() >= 1);
    assert_eq!(subscriber.reply().array()[2], Value::bulk("x"));
}
