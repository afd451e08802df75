//! The memory that the process takes: at rest, per connection, and after work.

use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Value, anonymous_bytes, encode,
    raise_descriptor_limit, resident_bytes, run_tool, wait_for, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const MB: u64 = 1 << 20;

fn start(servers: &[RedisServer]) -> Keyway {
    let pools = vec![Pool::store("local"), Pool::over("main", servers)];
    Keyway::start(KEYWAY, KeywayConfig::new(pools))
}

/// Returns whether the suite is run with epoll, and not with io_uring.
fn by_epoll() -> bool {
    #[allow(clippy::disallowed_methods, reason = "which driver the suite is run by")]
    std::env::var("KEYWAY_IO").map_or(true, |driver| driver == "epoll")
}

#[test]
fn a_process_just_started_is_small_and_small_again_after_work() {
    let _watch = watchdog(Duration::from_secs(90), "memory after work");
    let servers = RedisServer::start_many(4);
    let keyway = start(&servers);
    let pid = keyway.process().pid();
    // Besides, a release build has some 8 MB of its program and of libraries in memory, this build
    // 14.
    let held = anonymous_bytes(pid);
    assert!(held < 4 * MB, "{} KB held after start", held >> 10);
    let at_start = resident_bytes(pid);
    assert!(at_start < 20 * MB, "{} KB after start", at_start >> 10);
    let port = keyway.address(1).port().to_string();
    let arguments =
        ["-p", &port, "-q", "-c", "50", "-P", "75", "-n", "300000", "-d", "100", "-t", "set,get"];
    let load = run_tool("redis-benchmark", &arguments, b"", Duration::from_secs(60));
    assert!(load.status.success(), "{}", load.text);
    // With io_uring, the buffers that the kernel receives into were not touched before.
    let room = if by_epoll() { 2 * MB } else { 3 * MB };
    let mut after = 0;
    wait_until("memory is back within 2 MB", Duration::from_secs(20), || {
        let now = resident_bytes(pid);
        if now != after {
            after = now;
            println!("{} KB after start, {} KB after work", at_start >> 10, after >> 10);
        }
        after < at_start + room
    });
}

/// 10,000 connections are used once and then idle. Each takes 0.9 KB on the store and 1.0 KB on a
/// pool of servers, plus a margin for different machines.
#[test]
fn an_idle_connection_costs_about_a_kilobyte() {
    let _watch = watchdog(Duration::from_secs(120), "idle connections");
    // This process holds both ends, so the limit must allow each process that many.
    let count = (raise_descriptor_limit().saturating_sub(500)).min(10_000);
    println!("{count} connections");
    assert!(count >= 1000, "too few file descriptors to measure anything: see ulimit -Hn");
    let servers = RedisServer::start_many(2);
    for pool in [0, 1] {
        let keyway = start(&servers);
        let pid = keyway.process().pid();
        assert_eq!(keyway.client(pool).words("SET a 1"), Value::simple("OK"));
        let before = resident_bytes(pid);
        let mut clients: Vec<Client> = Vec::with_capacity(count);
        for _ in 0..count {
            clients.push(wait_for("a connection", Duration::from_secs(20), || {
                Client::try_connect(keyway.address(pool)).ok()
            }));
        }
        let request = encode(&["GET", "a"]);
        for client in &mut clients {
            client.send(&request);
        }
        for client in &mut clients {
            assert_eq!(client.reply(), Value::bulk("1"));
        }
        let each = resident_bytes(pid).saturating_sub(before) / count as u64;
        println!("{each} bytes each");
        // With few connections, memory that a process takes only once counts for more.
        let bound = if count >= 5000 { 1200 } else { 2048 };
        // With io_uring, up to 1 MB of buffers that the kernel receives into is touched, the more
        // the busier the machine is.
        let bound = if by_epoll() { bound } else { bound + MB / count as u64 };
        assert!(each < bound, "{each} bytes for an idle connection");
        drop(clients);
        assert_eq!(keyway.client(pool).words("GET a"), Value::bulk("1"));
    }
}
