//! Clients that disconnect inside each state they can be in. Afterwards connections, subscriptions,
//! waits and memory are back at their earlier counts.

use std::net::SocketAddr;
use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, MemcachedClient, MemcachedServer, Pool, RedisCluster,
    RedisServer, Replicated, encode_words, has_memcached, memcached_packet, resident_bytes,
    wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const BOUND: Duration = Duration::from_secs(20);

/// Number of clients in each state at once.
const CLIENTS: usize = 40;

/// Gauges that must return to zero.
const COUNTED: &[&str] = &[
    "keyway_client_connections",
    "keyway_pubsub_subscribed_clients",
    "keyway_pubsub_upstream_subscriptions",
    "keyway_backend_in_flight_requests",
    "keyway_backend_connecting_links",
];

/// The lines that a client sends before it leaves. A last line that ends in `...` is sent without
/// its end.
const STATES: &[(&str, &[&str])] = &[
    ("at rest", &["PING"]),
    ("in MULTI", &["MULTI", "SET {t}a 1", "LPUSH {t}l x"]),
    ("watching", &["WATCH {t}a {t}b"]),
    ("watching, in MULTI", &["WATCH {t}a", "MULTI", "INCR {t}n"]),
    ("behind EXEC", &["WATCH {t}a", "MULTI", "INCR {t}n", "EXEC"]),
    ("waiting", &["BLPOP {t}none 0"]),
    ("waiting, with more behind it", &["BLPOP {t}none 0", "INCR {t}n", "BZPOPMIN {t}no 0"]),
    ("waiting in RESP3", &["HELLO 3", "XREAD BLOCK 0 STREAMS {t}x $"]),
    ("subscribed", &["SUBSCRIBE a b c", "PSUBSCRIBE p*", "SSUBSCRIBE s"]),
    ("subscribed in RESP3", &["HELLO 3", "SUBSCRIBE a b c", "PSUBSCRIBE p*", "GET {t}a"]),
    ("about to be subscribed", &["SUBSCRIBE d e f", "UNSUBSCRIBE d", "SUBSCRIBE g"]),
    ("in half a request", &["GET {t}a", "SET {t}a aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa..."]),
    ("in half a request, in MULTI", &["MULTI", "SET {t}a 1", "SET {t}a aaaaaaaaaaaaaaaaa..."]),
    ("monitoring", &["MONITOR"]),
    ("caching", &["HELLO 3", "CLIENT TRACKING ON", "GET {t}a"]),
    ("in a SCAN", &["SCAN 0 COUNT 1"]),
    ("behind a SCAN", &["SCAN 0 COUNT 1000", "KEYS *", "RANDOMKEY", "DBSIZE"]),
    ("unheard", &["CLIENT REPLY OFF", "SET {t}a 1", "SUBSCRIBE h"]),
    ("unheard, in MULTI", &["CLIENT REPLY OFF", "MULTI", "SET {t}a 1"]),
    (
        "behind a script",
        &["EVAL return(1) 1 {t}a", "EVALSHA aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 1 {t}a"],
    ),
    ("paused", &["CLIENT PAUSE 300", "INCR {t}n", "MULTI", "INCR {t}n", "EXEC", "BLPOP {t}none 0"]),
];

/// The ways to leave.
const WAYS: [fn(Client); 3] = [drop, Client::reset, |client| {
    client.close_write();
    drop(client);
}];

fn counts(keyway: &Keyway) -> Vec<f64> {
    let metrics = keyway.metrics();
    COUNTED.iter().map(|name| metrics.sum(name, &[])).collect()
}

fn send(client: &mut Client, lines: &[&str]) {
    for line in lines {
        let bytes = encode_words(line.trim_end_matches("..."));
        let end = if line.ends_with("...") { bytes.len() - 9 } else { bytes.len() };
        client.send(&bytes[..end]);
    }
}

/// Returns whether no client waits, watches or subscribes at a server, and few connections stay.
fn is_at_rest(server: &RedisServer) -> bool {
    let mut client = server.client();
    let list = client.words("CLIENT LIST").text();
    client.words("INFO clients").text().contains("blocked_clients:0\r")
        && client.words("PUBSUB CHANNELS").array().is_empty()
        && client.words("PUBSUB SHARDCHANNELS").array().is_empty()
        && client.words("PUBSUB NUMPAT").integer() == 0
        && !list.contains("multi=0")
        && list.lines().count() <= 1 + 2 * (2 + 32)
}

#[test]
fn a_client_that_leaves_in_any_state_leaves_nothing() {
    let _watch = watchdog(Duration::from_secs(180), "leaving");
    let servers = RedisServer::start_many(2);
    let pools = vec![Pool::store("local"), Pool::over("main", &servers)];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools).with_server("workers", "2"));
    let mut memory = 0;
    for round in 0..3 {
        for (state, lines) in STATES {
            for pool in 0..2 {
                let leave = WAYS[round % WAYS.len()];
                for (nth, mut client) in
                    (0..CLIENTS).map(|_| keyway.client(pool)).enumerate().collect::<Vec<_>>()
                {
                    send(&mut client, lines);
                    if nth % 2 == 0 {
                        // Half of them stay until a reply has come.
                        client.set_reply_within(Duration::from_millis(2));
                        let _ = client.try_reply();
                    }
                    leave(client);
                }
                wait_until(&format!("{state}, pool {pool}: all counts are zero"), BOUND, || {
                    counts(&keyway).iter().all(|count| *count == 0.0)
                });
                wait_until(&format!("{state}: the servers are left"), BOUND, || {
                    servers.iter().all(is_at_rest)
                });
            }
        }
        let now = resident_bytes(keyway.process().pid());
        // Buffers are kept for later clients; after the first round nothing grows.
        assert!(round == 0 || now < memory + (4 << 20), "{memory} bytes, then {now}");
        memory = if round == 0 { now } else { memory };
    }
    assert!(keyway.client(1).words("SET k v") == keyway_testkit::Value::simple("OK"));
}

/// Returns the last request of a memcached client. Most of these requests have no reply.
fn last_requests() -> Vec<Vec<u8>> {
    let lines = [
        "set n 0 0 1 noreply\r\n1\r\n",
        "add n 0 0 1 noreply\r\n1\r\n",
        "incr n 1 noreply\r\n",
        "delete n noreply\r\n",
        "touch none 10 noreply\r\n",
        "mg none v q\r\n",
        "mg n v q\r\n",
        "ms n 1 q\r\n1\r\n",
        "ma n q\r\n",
        "md n q\r\n",
        "get n none\r\n",
        "set n 0 0 99999999 noreply\r\nhalf of a value that is refused",
        "set n 0 0 1 noreply\r\n1\r\nset n 0 0 100\r\nhalf of a val",
    ];
    let packet = |opcode, extras: &[u8], key: &[u8]| memcached_packet(opcode, 0, extras, key, b"");
    let packets = [
        packet(0x11, &[0; 8], b"n"),
        packet(0x09, &[], b"none"),
        packet(0x0d, &[], b"none"),
        packet(0x14, &[], b"n"),
        packet(0x00, &[], b"n"),
    ];
    lines.iter().map(|line| line.as_bytes().to_vec()).chain(packets).collect()
}

/// Servers for [`memcached_pools`].
struct Behind {
    memcached: Vec<MemcachedServer>,
    redis: Vec<RedisServer>,
    cluster: RedisCluster,
    replicated: Replicated,
}

impl Behind {
    fn start() -> Behind {
        Behind {
            memcached: MemcachedServer::start_many(2),
            redis: RedisServer::start_many(1),
            cluster: RedisCluster::start(3, 0),
            replicated: Replicated::start(1),
        }
    }
}

/// Pools of every kind, with memcached listeners.
fn memcached_pools(behind: &Behind) -> Vec<Pool> {
    let (servers, redis) = (&behind.memcached[..], &behind.redis[..]);
    let list = |addresses: Vec<SocketAddr>| {
        let quoted: Vec<String> = addresses.iter().map(|one| format!("\"{one}\"")).collect();
        format!("[{}]", quoted.join(", "))
    };
    let of_kind = |name: &str, settings: &[(&str, &str)]| {
        let pool = Pool::of_kind(name, name).spoken_to_in("memcached");
        settings.iter().fold(pool, |pool, (name, value)| pool.with(name, value))
    };
    let speaking =
        |name: &str| Pool::memcached(name, servers).with("server_protocol", &format!("{name:?}"));
    let routes = "[{ prefix = \"n\", pool = \"meta\" }]";
    vec![
        speaking("text"),
        speaking("meta"),
        speaking("binary"),
        Pool::over("redis", redis).spoken_to_in("memcached"),
        of_kind("cluster", &[("servers", &list(behind.cluster.addresses()))]),
        of_kind("replicated", &[("servers", &list(behind.replicated.addresses()))]),
        Pool::store("store").spoken_to_in("memcached"),
        of_kind("prefix", &[("routes", routes), ("default", "\"text\"")]),
        of_kind("failover", &[("children", "[\"text\", \"meta\"]")]),
        of_kind("mirror", &[("children", "[\"text\", \"store\"]"), ("read_from", "\"text\"")]),
        of_kind("miss-then", &[("children", "[\"store\", \"text\"]"), ("fill", "true")]),
        of_kind("shadow", &[("main", "\"binary\""), ("shadow", "\"text\"")]),
        of_kind("rate-limited", &[("child", "\"meta\""), ("requests_per_second", "1000000")]),
        of_kind("read-write-split", &[("write", "\"text\""), ("read", "\"meta\"")]),
        Pool::memcached("new", &servers[..1])
            .with("warm_from", "\"text\"")
            .with("warm_ttl_max", "\"1h\""),
    ]
}

#[test]
fn a_client_of_memcached_that_ends_with_a_silent_request_leaves_nothing() {
    let _watch = watchdog(Duration::from_secs(120), "leaving in silence");
    if !has_memcached("clients of memcached that leave") {
        return;
    }
    let behind = Behind::start();
    let pools = memcached_pools(&behind);
    let count = pools.len();
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools).with_server("workers", "2"));
    for pool in 0..count {
        let said = keyway.memcached_client(pool).say("get none\r\n");
        assert_eq!(said, "END\r\n", "pool {pool} serves");
    }
    let leave: [fn(MemcachedClient); 3] =
        [drop, MemcachedClient::reset, |client| client.close_write()];
    for (pool, request) in
        (0..count).flat_map(|pool| last_requests().into_iter().map(move |one| (pool, one)))
    {
        for nth in 0..6 {
            let mut client = keyway.memcached_client(pool);
            client.send(&request);
            leave[nth % leave.len()](client);
        }
    }
    for pool in 0..count {
        let mut client = keyway.memcached_client(pool);
        client.send(b"set n 0 0 1 noreply\r\n1\r\nquit\r\n");
        assert_eq!(client.until_closed(), b"", "pool {pool}");
    }
    wait_until("every client is gone", BOUND, || counts(&keyway).iter().all(|one| *one == 0.0));
}

#[test]
fn a_client_of_pools_that_lead_on_leaves_nothing() {
    let _watch = watchdog(Duration::from_secs(120), "leaving pools that lead on");
    let servers = RedisServer::start_many(2);
    let of_kind = |name: &str, settings: &[(&str, &str)]| {
        let pool = Pool::of_kind(name, name);
        settings.iter().fold(pool, |pool, (name, value)| pool.with(name, value))
    };
    let both = "[\"a\", \"b\"]";
    let routes = "[{ prefix = \"{t}\", pool = \"a\" }]";
    let pools = vec![
        of_kind("prefix", &[("routes", routes), ("default", "\"b\"")]),
        of_kind("failover", &[("children", both)]),
        of_kind("mirror", &[("children", both), ("read_from", "\"a\"")]),
        of_kind("miss-then", &[("children", both), ("fill", "true")]),
        of_kind("shadow", &[("main", "\"a\""), ("shadow", "\"b\"")]),
        of_kind("rate-limited", &[("child", "\"a\""), ("requests_per_second", "1000000")]),
        of_kind("read-write-split", &[("write", "\"a\""), ("read", "\"b\"")]),
        Pool::over("a", &servers[..1]),
        Pool::over("b", &servers[1..]),
    ];
    let count = pools.len();
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools).with_server("workers", "2"));
    // No test here waits for the end of a pause.
    let states = || STATES.iter().filter(|(state, _)| *state != "paused");
    for (pool, (_, lines)) in (0..count).flat_map(|pool| states().map(move |one| (pool, one))) {
        for way in WAYS {
            let mut client = keyway.client(pool);
            send(&mut client, lines);
            send(&mut client, &["MGET {t}a b c", "DEL {t}a b", "SET b 2"]);
            way(client);
        }
    }
    wait_until("every client is gone", BOUND, || counts(&keyway).iter().all(|one| *one == 0.0));
    wait_until("the servers are left", BOUND, || servers.iter().all(is_at_rest));
}
