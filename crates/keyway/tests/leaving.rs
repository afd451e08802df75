//! Clients that disconnect inside each state they can be in: afterwards
//! connections, subscriptions, waits and memory are counted back to what they
//! were.

use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, encode_words, resident_bytes, wait_until,
    watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const BOUND: Duration = Duration::from_secs(20);

/// Clients in each state at once.
const CLIENTS: usize = 40;

/// What is counted back to zero.
const COUNTED: &[&str] = &[
    "keyway_client_connections",
    "keyway_pubsub_subscribed_clients",
    "keyway_pubsub_upstream_subscriptions",
    "keyway_backend_in_flight_requests",
    "keyway_backend_connecting_links",
];

/// What a client sends before it leaves; a last line that ends in `...` is
/// sent without its end.
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

/// How it leaves.
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

/// Nobody waits, watches or subscribes at a server, and few connections stay.
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
                        // Half of them stay until something came.
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
        // Buffers are kept for the next; after the first round nothing grows.
        assert!(round == 0 || now < memory + (4 << 20), "{memory} bytes, then {now}");
        memory = if round == 0 { now } else { memory };
    }
    assert!(keyway.client(1).words("SET k v") == keyway_testkit::Value::simple("OK"));
}
