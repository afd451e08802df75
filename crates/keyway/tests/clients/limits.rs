//! The memory that the process takes: at rest, per connection, and after work.

use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, MemcachedClient, MemcachedServer, Pool, RedisServer, Value,
    anonymous_bytes, has_memcached, raise_descriptor_limit, resident_bytes, run_tool, wait_for,
    wait_until, watchdog,
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

/// Memory that an idle client may take, in bytes. Its session, its entry for `CLIENT LIST` and what
/// the driver knows of its socket take 540. The rest is for code and buffers that the first requests
/// touch.
const IDLE_LEN_MAX: u64 = 600;

/// The same with io_uring. Besides, up to 1 MB of buffers that the kernel receives into is touched,
/// the more the busier the machine is. That is 105 bytes for each of 10,000 clients.
const IDLE_LEN_MAX_BY_URING: u64 = 700;

/// Connects up to 10,000 clients, each of which sends one request, and fails if an idle client
/// takes too much.
fn check_idle_clients<C>(
    (keyway, what): (&Keyway, &str),
    connect: impl Fn() -> Option<C>,
    ask: impl Fn(&mut C),
) {
    let pid = keyway.process().pid();
    let connect = || wait_for("a connection", Duration::from_secs(20), &connect);
    // This process holds both ends, so the limit must allow each process that many.
    let count = (raise_descriptor_limit().saturating_sub(500)).min(10_000);
    assert!(count >= 1000, "too few file descriptors to measure anything: see ulimit -Hn");
    ask(&mut connect());
    let before = resident_bytes(pid);
    let mut clients: Vec<C> = (0..count).map(|_| connect()).collect();
    // The clients ask one after the other: memory for requests that wait at the same time does not
    // belong to idle clients.
    clients.iter_mut().for_each(&ask);
    let each = resident_bytes(pid).saturating_sub(before) / count as u64;
    println!("{what}: {each} bytes for each of {count} idle clients");
    let bound = if by_epoll() { IDLE_LEN_MAX } else { IDLE_LEN_MAX_BY_URING };
    // With few connections, memory that a process takes only once counts for more.
    let bound = if count >= 10_000 { bound } else { bound + MB / count as u64 };
    assert!(each <= bound, "{what}: {each} bytes for an idle client, and not {bound}");
    drop(clients);
    ask(&mut connect());
}

#[test]
fn an_idle_client_of_redis_takes_less_than_700_bytes() {
    let _watch = watchdog(Duration::from_secs(240), "idle clients of Redis");
    let servers = RedisServer::start_many(2);
    for (pool, what) in [(0, "store"), (1, "pool of servers")] {
        let keyway = start(&servers);
        assert_eq!(keyway.client(pool).words("SET a 1"), Value::simple("OK"));
        let ask = |client: &mut Client| assert_eq!(client.words("GET a"), Value::bulk("1"));
        let connect = || Client::try_connect(keyway.address(pool)).ok();
        check_idle_clients((&keyway, what), connect, ask);
    }
}

#[test]
fn an_idle_client_of_memcached_takes_less_than_700_bytes() {
    let _watch = watchdog(Duration::from_secs(240), "idle clients of memcached");
    let servers = match has_memcached("a pool of servers of memcached") {
        true => MemcachedServer::start_many(2),
        false => Vec::new(),
    };
    let places = [(0, "store"), (1, "pool of servers of memcached")];
    for (pool, what) in places.into_iter().take(1 + usize::from(!servers.is_empty())) {
        let mut pools = vec![Pool::store("local").spoken_to_in("memcached")];
        pools.extend((!servers.is_empty()).then(|| Pool::memcached("cache", &servers)));
        let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
        assert_eq!(keyway.memcached_client(pool).say("set a 0 0 1\r\nx\r\n"), "STORED\r\n");
        let ask = |client: &mut MemcachedClient| {
            assert_eq!(client.say("get a\r\n"), "VALUE a 0 1\r\nx\r\nEND\r\n");
        };
        let connect = || MemcachedClient::try_connect(keyway.address(pool)).ok();
        check_idle_clients((&keyway, what), connect, ask);
    }
}
