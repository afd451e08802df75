//! `/metrics` and `/healthz` agree with the requests that were sent.

use std::time::Duration;

use keyway_testkit::{
    Action, Keyway, KeywayConfig, MemcachedServer, Pool, RedisServer, ScriptedBackend, Value,
    encode, handshake_reply, http_get, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const MAIN: &str = "pool=\"main\"";
const LOCAL: &str = "pool=\"local\"";

/// Samples of one metric with these labels, summed.
type Expected<'a> = (&'a str, &'a [&'a str], f64);

/// Expects these sums. Counters are summed from workers' cells at each scrape, at most one turn
/// late.
fn expect(keyway: &Keyway, wanted: &[Expected<'_>]) {
    for (name, labels, value) in wanted {
        let mut seen = f64::NAN;
        wait_until(&format!("{name}{labels:?} is {value}"), Duration::from_secs(5), || {
            let now = keyway.metrics().sum(name, labels);
            if now != seen {
                println!("{name}{labels:?}: {now}, waiting for {value}");
            }
            seen = now;
            seen == *value
        });
    }
}

#[test]
fn health_and_metrics_are_served_as_prometheus_wants_them() {
    let _watch = watchdog(Duration::from_secs(30), "admin listener");
    let servers = RedisServer::start_many(2);
    let pools = vec![Pool::store("local"), Pool::over("far", &servers)];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    let health = http_get(keyway.admin(), "/healthz");
    assert_eq!(health.status, 200, "{}", health.body);
    let page = http_get(keyway.admin(), "/metrics");
    assert_eq!(page.status, 200);
    assert!(page.headers.to_lowercase().contains("content-type: text/plain"), "{}", page.headers);
    assert_eq!(http_get(keyway.admin(), "/nosuchpage").status, 404);
    let metrics = keyway.metrics();
    for line in page.body.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let sample = line.split(['{', ' ']).next().expect("a name");
        let name = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|part| sample.strip_suffix(part))
            .filter(|name| page.body.contains(&format!("# TYPE {name} histogram")))
            .unwrap_or(sample);
        assert!(page.body.contains(&format!("# HELP {name} ")), "{name} has no help");
        assert!(page.body.contains(&format!("# TYPE {name} ")), "{name} has no type");
    }
    assert_eq!(metrics.count("keyway_process_build_info", &[]), 1);
    assert!(metrics.sum("keyway_process_resident_memory_bytes", &[]) > 1e6);
}

#[test]
fn counters_of_a_pool_match_what_was_sent() {
    let _watch = watchdog(Duration::from_secs(60), "counters of a pool");
    let servers = RedisServer::start_many(2);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::over("main", &servers)]));
    // The client that asked whether Keyway is up has left, and all of that is counted.
    expect(&keyway, &[("keyway_client_connections", &[MAIN], 0.0)]);
    let before = keyway.metrics();
    let base = |name: &str, labels: &[&str]| before.sum(name, labels);
    let mut client = keyway.client(0);
    let mut sent = 0;
    let mut received = 0;
    for nth in 0..100 {
        let request = encode(&["SET", &format!("key:{nth}"), "value"]);
        sent += request.len();
        client.send(&request);
        received += client.raw_reply().len();
    }
    for nth in 0..50 {
        let request = encode(&["GET", &format!("key:{nth}")]);
        sent += request.len();
        client.send(&request);
        received += client.raw_reply().len();
    }
    for request in [
        encode(&["MGET", "key:1", "key:2", "key:3", "key:4", "key:5", "key:6", "key:7", "key:8"]),
        encode(&["NOSUCH"]),
        encode(&["GET"]),
        encode(&["INCR", "key:0"]),
    ] {
        sent += request.len();
        client.send(&request);
        received += client.raw_reply().len();
    }
    let requests = "keyway_pool_requests_total";
    let latency = "keyway_pool_reply_latency_seconds_count";
    let read: &[&str] = &[MAIN, "command=\"read\""];
    let write: &[&str] = &[MAIN, "command=\"write\""];
    let read_many: &[&str] = &[MAIN, "command=\"read_many\""];
    expect(
        &keyway,
        &[
            (requests, write, base(requests, write) + 101.0),
            (requests, read, base(requests, read) + 50.0),
            (requests, read_many, base(requests, read_many) + 1.0),
            (latency, write, base(latency, write) + 101.0),
            (latency, read, base(latency, read) + 50.0),
            (
                "keyway_pool_refused_requests_total",
                &[MAIN],
                base("keyway_pool_refused_requests_total", &[MAIN]) + 2.0,
            ),
            ("keyway_backend_requests_total", &[MAIN], 100.0 + 50.0 + 1.0 + 2.0),
            ("keyway_backend_error_replies_total", &[MAIN], 1.0),
            ("keyway_backend_errors_total", &[MAIN], 0.0),
            ("keyway_pool_errors_total", &[MAIN], 0.0),
            ("keyway_backend_in_flight_requests", &[MAIN], 0.0),
            (
                "keyway_client_received_bytes_total",
                &[MAIN],
                base("keyway_client_received_bytes_total", &[MAIN]) + sent as f64,
            ),
            (
                "keyway_client_sent_bytes_total",
                &[MAIN],
                base("keyway_client_sent_bytes_total", &[MAIN]) + received as f64,
            ),
            ("keyway_client_connections", &[MAIN], 1.0),
        ],
    );
    drop(client);
    expect(&keyway, &[("keyway_client_connections", &[MAIN], 0.0)]);
}

#[test]
fn requests_are_counted_by_command_wherever_they_are_counted_by_class() {
    let _watch = watchdog(Duration::from_secs(60), "metrics by command");
    let servers = RedisServer::start_many(2);
    let caches = MemcachedServer::start_many(2);
    let pools = vec![
        Pool::store("local"),
        Pool::over("far", &servers),
        Pool::memcached("cache", &caches),
        Pool::of_kind("front", "failover").with("children", "[\"behind\", \"local\"]"),
        Pool::over("behind", &servers),
    ];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools).with_server("workers", "2"));
    for pool in [0, 1, 3] {
        let mut client = keyway.client(pool);
        for request in ["SET k v", "GET k", "GET k", "MGET k a b c", "DEL k a", "CONFIG GET save"] {
            client.words(request);
        }
        client.words("SET k word");
        assert!(client.words("INCR k").is_error());
        assert!(client.words("NOSUCH k").is_error());
        for request in ["EVAL return{1} 1 k", "MULTI", "GET k", "EXEC", "PING"] {
            client.words(request);
        }
    }
    let mut client = keyway.memcached_client(2);
    client.send(
        b"set k 0 0 1\r\nv\r\nget k\r\ngets k n\r\nmg k v\r\n\
          delete k noreply\r\nincr k 1\r\nmn\r\n",
    );
    assert_eq!(client.line(), "STORED");
    let last: &[&str] = &["pool=\"cache\"", "command=\"noop\""];
    expect(&keyway, &[("keyway_pool_command_calls_total", last, 1.0)]);
    let metrics = keyway.metrics();
    let calls = |pool: &str, command: &str| {
        let labels = [format!("pool=\"{pool}\""), format!("command=\"{command}\"")];
        metrics.sum("keyway_pool_command_calls_total", &[&labels[0], &labels[1]])
    };
    for pool in ["local", "far", "front"] {
        for (command, count) in [
            ("set", 2.0),
            ("mget", 1.0),
            ("del", 1.0),
            ("config|get", 1.0),
            ("incr", 1.0),
            // A pool that leads to others refuses scripts.
            ("eval", if pool == "front" { 0.0 } else { 1.0 }),
        ] {
            assert_eq!(calls(pool, command), count, "{pool} {command}");
        }
        let labels = [format!("pool=\"{pool}\""), "command=\"incr\"".to_owned()];
        let failed = metrics.sum("keyway_pool_command_errors_total", &[&labels[0], &labels[1]]);
        assert_eq!(failed, 1.0, "{pool}");
    }
    for (command, count) in
        [("set", 1.0), ("get", 3.0), ("delete", 1.0), ("incr", 1.0), ("noop", 1.0)]
    {
        assert_eq!(calls("cache", command), count, "{command}");
    }
    // Both pools count every request.
    for pool in ["local", "far", "cache", "front"] {
        let labels = [format!("pool=\"{pool}\"")];
        let sum = |name: &str| metrics.sum(name, &[&labels[0]]);
        let by_class = sum("keyway_pool_requests_total");
        assert_eq!(sum("keyway_pool_command_calls_total"), by_class, "{pool}");
        let seconds = sum("keyway_pool_reply_latency_seconds_sum");
        let apart = (sum("keyway_pool_command_reply_seconds_total") - seconds).abs();
        assert!(apart < 1e-6 && seconds > 0.0, "{pool}: {apart} of {seconds}");
    }
}

#[test]
fn counters_of_the_store_match_what_was_sent() {
    let _watch = watchdog(Duration::from_secs(60), "counters of the store");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("local")]));
    let mut client = keyway.client(0);
    for nth in 0..100 {
        let key = format!("key:{nth}");
        assert_eq!(client.command(&["SET", &key, "value"]), Value::simple("OK"));
    }
    for nth in 50..150 {
        client.command(&["GET", &format!("key:{nth}")]);
    }
    client.words("EXPIRE key:0 1000");
    expect(
        &keyway,
        &[
            ("keyway_store_items", &[LOCAL], 100.0),
            ("keyway_store_expiring_items", &[LOCAL], 1.0),
            ("keyway_store_hits_total", &[LOCAL], 50.0),
            ("keyway_store_misses_total", &[LOCAL], 50.0),
            ("keyway_store_evictions_total", &[LOCAL], 0.0),
        ],
    );
    assert!(keyway.metrics().sum("keyway_store_memory_bytes", &[LOCAL]) > 100.0 * 10.0);
    client.words("FLUSHALL");
    expect(&keyway, &[("keyway_store_items", &[LOCAL], 0.0)]);
}

#[test]
fn faults_are_counted_under_what_went_wrong() {
    let _watch = watchdog(Duration::from_secs(60), "counters of faults");
    let backend = ScriptedBackend::start(|arguments| match handshake_reply(arguments) {
        Some(bytes) => Action::Reply(bytes),
        None => Action::Silence,
    });
    let pool =
        Pool::sharded("main", &[format!("{}:1", backend.address())]).with("timeout", "\"200ms\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    client.send(&encode(&["GET", "a"]).repeat(10));
    expect(&keyway, &[("keyway_backend_requests_total", &[MAIN], 10.0)]);
    for _ in 0..10 {
        assert!(client.reply().is_error());
    }
    let timeout = "fault=\"backend_timeout\"";
    expect(
        &keyway,
        &[
            ("keyway_pool_errors_total", &[MAIN, timeout], 10.0),
            ("keyway_backend_errors_total", &[MAIN, timeout], 10.0),
            ("keyway_pool_errors_total", &[MAIN], 10.0),
            ("keyway_backend_in_flight_requests", &[MAIN], 0.0),
        ],
    );
    let broken = "fault=\"client\"";
    let mut breaker = keyway.client(0);
    breaker.send(b"*x\r\n");
    assert!(breaker.reply().is_error());
    expect(&keyway, &[("keyway_client_closed_connections_total", &[MAIN, broken], 1.0)]);
}

/// No bytes of clients are on the page, whatever a client sends.
#[test]
fn no_key_value_or_address_of_a_client_becomes_a_label() {
    let _watch = watchdog(Duration::from_secs(30), "labels");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("local")]));
    let mut client = keyway.client(0);
    client.words("SET findme-key findme-value");
    client.words("FINDMECOMMAND");
    client.words("CLIENT SETNAME findme-name");
    let page = http_get(keyway.admin(), "/metrics").body.to_lowercase();
    assert!(!page.contains("findme"), "client bytes on the page");
    assert!(!page.contains(&client.local_address().to_string()), "a client's address on the page");
}

/// A link that is lost with ten requests on it counts ten errors. While the server cannot be
/// reached, each request is one more. A link that is lost at rest counts none.
#[test]
fn errors_of_a_backend_are_requests_not_links() {
    let _watch = watchdog(Duration::from_secs(60), "a lost link");
    let mut server = RedisServer::start();
    let pool = Pool::over("main", std::slice::from_ref(&server)).with("timeout", "\"20s\"");
    let config = KeywayConfig::new(vec![pool]).with_server("workers", "1");
    let keyway = Keyway::start(KEYWAY, config);
    let mut client = keyway.client(0);
    client.words("SET a 1");
    let connects = ("keyway_backend_connects_total", &[MAIN][..], 1.0);
    expect(&keyway, &[connects, ("keyway_backend_ready_links", &[MAIN], 1.0)]);
    server.process().pause();
    client.send(&encode(&["GET", "a"]).repeat(10));
    expect(&keyway, &[("keyway_backend_in_flight_requests", &[MAIN], 10.0)]);
    server.kill();
    assert!(client.replies(10).iter().all(Value::is_error));
    let errors = "keyway_backend_errors_total";
    expect(
        &keyway,
        &[
            (errors, &[MAIN, "fault=\"backend_closed\""], 10.0),
            (errors, &[MAIN], 10.0),
            ("keyway_backend_ready_links", &[MAIN], 0.0),
        ],
    );
    for _ in 0..5 {
        assert!(client.words("GET a").is_error());
    }
    let unreachable: &[&str] = &[MAIN, "fault=\"backend_connect\""];
    expect(
        &keyway,
        &[
            (errors, unreachable, 5.0),
            ("keyway_pool_errors_total", unreachable, 5.0),
            ("keyway_pool_reply_latency_seconds_count", &[MAIN, "command=\"read\""], 15.0),
        ],
    );
    server.restart();
    wait_until("the server is back", Duration::from_secs(20), || !client.words("GET a").is_error());
    expect(
        &keyway,
        &[
            ("keyway_backend_connects_total", &[MAIN], 2.0),
            ("keyway_backend_reconnects_total", &[MAIN], 1.0),
        ],
    );
    let before = keyway.metrics().sum(errors, &[MAIN]);
    server.kill();
    expect(&keyway, &[("keyway_backend_ready_links", &[MAIN], 0.0), (errors, &[MAIN], before)]);
}

#[test]
fn a_link_is_ready_once_its_handshake_is_over() {
    let _watch = watchdog(Duration::from_secs(60), "a slow handshake");
    let backend = ScriptedBackend::start(|arguments| match arguments[0].as_slice() {
        b"AUTH" => Action::Silence,
        _ => Action::echo_key(arguments),
    });
    let pool = Pool::sharded("main", &[format!("{}:1", backend.address())])
        .with("password", "\"sesame\"")
        .with("preconnect", "true")
        .with("connect_timeout", "\"50s\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    wait_until("it connects", Duration::from_secs(10), || backend.connections() == 1);
    expect(
        &keyway,
        &[
            ("keyway_backend_connecting_links", &[MAIN], 1.0),
            ("keyway_backend_ready_links", &[MAIN], 0.0),
            ("keyway_backend_connects_total", &[MAIN], 0.0),
        ],
    );
}

#[test]
fn a_client_refused_at_a_bound_was_accepted_and_refused() {
    let _watch = watchdog(Duration::from_secs(30), "a refused client");
    let config = KeywayConfig::new(vec![Pool::store("local")])
        .with_server("workers", "2")
        .with_tables("[limits]\nclients_max = 2");
    let keyway = Keyway::start(KEYWAY, config);
    // The harness's own check whether Keyway is ready comes and goes.
    expect(&keyway, &[("keyway_client_connections", &[LOCAL], 0.0)]);
    let before = keyway.metrics().sum("keyway_client_accepted_connections_total", &[LOCAL]);
    let mut inside: Vec<_> = (0..2).map(|_| keyway.client(0)).collect();
    for client in &mut inside {
        assert_eq!(client.words("PING"), Value::simple("PONG"));
    }
    let mut refused = keyway.client(0);
    assert!(refused.reply().is_error());
    expect(
        &keyway,
        &[
            ("keyway_client_accepted_connections_total", &[LOCAL], before + 3.0),
            ("keyway_pool_refused_requests_total", &[LOCAL, "fault=\"limit\""], 1.0),
            ("keyway_client_connections", &[LOCAL], 2.0),
        ],
    );
}

#[test]
fn replies_that_nobody_wants_are_not_late_and_store_requests_have_a_latency() {
    let _watch = watchdog(Duration::from_secs(30), "silent requests, store latency");
    let server = RedisServer::start();
    let pools = vec![Pool::over("main", std::slice::from_ref(&server)), Pool::store("local")];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    let mut client = keyway.client(0);
    client.send(&encode(&["CLIENT", "REPLY", "SKIP"]));
    client.send(&encode(&["SET", "a", "1"]));
    assert_eq!(client.words("GET a"), Value::bulk("1"));
    let mut local = keyway.client(1);
    for _ in 0..10 {
        local.words("SET a 1");
    }
    let latency = "keyway_pool_reply_latency_seconds";
    expect(
        &keyway,
        &[
            ("keyway_backend_late_replies_total", &[MAIN], 0.0),
            ("keyway_pool_reply_latency_seconds_count", &[LOCAL, "command=\"write\""], 10.0),
        ],
    );
    let seconds = keyway.metrics().sum(&format!("{latency}_sum"), &[LOCAL, "command=\"write\""]);
    assert!(seconds > 0.0 && seconds < 10.0, "{seconds} s for ten requests");
    let idle = keyway.metrics().sum("keyway_client_closed_connections_total", &["fault=\"idle\""]);
    assert!(idle == 0.0, "clients are not closed for being idle unless a listener says so");
}

#[test]
fn what_is_dropped_is_counted() {
    let _watch = watchdog(Duration::from_secs(30), "dropped pushes and replies");
    let backend = ScriptedBackend::start(|arguments| match arguments[0].as_slice() {
        b"HELLO" => Action::Reply(b"%1\r\n+proto\r\n:3\r\n".to_vec()),
        b"GET" => Action::Reply(b">2\r\n+unasked\r\n:1\r\n+mine\r\n".to_vec()),
        _ => Action::Silence,
    });
    let server = RedisServer::start();
    let pools = vec![
        Pool::sharded("pushing", &[backend.address().to_string()]),
        Pool::over("main", std::slice::from_ref(&server)),
    ];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    let mut client = keyway.client(0);
    assert!(!client.words("HELLO 3").is_error());
    for _ in 0..3 {
        assert_eq!(client.words("GET k"), Value::simple("mine"));
    }
    let mut leaving = keyway.client(1);
    let slow = "local t = redis.call('TIME') local e = t[1] * 1000 + t[2] / 1000 + 200 repeat t = \
                redis.call('TIME') until t[1] * 1000 + t[2] / 1000 > e";
    leaving.send(&encode(&["EVAL", slow, "1", "k"]));
    wait_until("the script is on its way", Duration::from_secs(10), || {
        keyway.metrics().sum("keyway_backend_requests_total", &[MAIN]) > 0.0
    });
    leaving.reset();
    wait_until("the reply is dropped", Duration::from_secs(10), || {
        keyway.metrics().sum("keyway_backend_unclaimed_replies_total", &[MAIN]) > 0.0
    });
    expect(
        &keyway,
        &[
            ("keyway_backend_unasked_pushes_total", &["pool=\"pushing\""], 3.0),
            ("keyway_backend_unasked_pushes_total", &[MAIN], 0.0),
            ("keyway_backend_unclaimed_replies_total", &[MAIN], 1.0),
        ],
    );
}

#[test]
fn a_command_that_is_not_supported_is_refused_and_not_taken_for_serving() {
    let _watch = watchdog(Duration::from_secs(30), "refused commands");
    let server = RedisServer::start();
    let pools = vec![Pool::over("main", std::slice::from_ref(&server)), Pool::store("local")];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    for (index, pool) in [MAIN, LOCAL].into_iter().enumerate() {
        let mut client = keyway.client(index);
        expect(&keyway, &[("keyway_client_connections", &[pool], 1.0)]);
        let before = keyway.metrics().sum("keyway_pool_requests_total", &[pool]);
        for words in ["CONFIG SET a b", "CLUSTER INFO", "NONESUCH"] {
            assert!(client.words(words).is_error(), "{words}");
        }
        let refused = 3.0;
        expect(
            &keyway,
            &[
                ("keyway_pool_refused_requests_total", &[pool, "fault=\"denied\""], refused),
                ("keyway_pool_requests_total", &[pool], before),
            ],
        );
    }
}

#[test]
fn a_value_larger_than_the_store_is_told_as_such_and_others_are_stored() {
    let _watch = watchdog(Duration::from_secs(60), "a value that does not fit");
    let pool = Pool::store("local").with("memory_max", "\"4MiB\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    let value = "x".repeat(5 << 20);
    let reply = client.command(&["SET", "large", &value]);
    assert!(reply.error_text().starts_with("OOM "), "{reply:?}");
    assert_eq!(client.words("SET small 1"), Value::simple("OK"));
    let told = format!("a value of {} bytes does not fit into the store", value.len());
    wait_until("the log tells", Duration::from_secs(5), || keyway.process().log().contains(&told));
    let log = keyway.process().log();
    assert!(!log.contains("store is full"), "{log}");
    let write: &[&str] = &[LOCAL, "command=\"write\"", "fault=\"store_full\""];
    expect(&keyway, &[("keyway_pool_errors_total", write, 1.0)]);
}

#[test]
fn writes_that_a_full_store_refuses_are_counted_and_told_of_once() {
    let _watch = watchdog(Duration::from_secs(60), "a full store");
    let pool = Pool::store("local").with("memory_max", "\"4MiB\"");
    let config = KeywayConfig::new(vec![pool.with("eviction", "\"noeviction\"")]);
    let keyway = Keyway::start(KEYWAY, config);
    let mut client = keyway.client(0);
    let value = "x".repeat(100_000);
    let replies = (0..100).map(|nth| client.command(&["SET", &format!("key:{nth}"), &value]));
    let refused = replies.filter(Value::is_error).count();
    assert!(refused > 1, "it is full");
    assert!(client.words("INCRBY key:0 1").is_error(), "an error that is none of memory");
    let write: &[&str] = &[LOCAL, "command=\"write\"", "fault=\"store_full\""];
    expect(&keyway, &[("keyway_pool_errors_total", write, refused as f64)]);
    let info = client.words("INFO commandstats").text();
    for (command, calls, failed) in [("set", 100, refused), ("incrby", 1, 1)] {
        let line = info
            .lines()
            .find(|line| line.starts_with(&format!("cmdstat_{command}:calls={calls},")));
        let failed = format!("failed_calls={failed}");
        assert!(line.is_some_and(|line| line.ends_with(&failed)), "{info}");
    }
    wait_until("the log tells", Duration::from_secs(5), || {
        keyway.process().log().contains("store is full")
    });
    let log = keyway.process().log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("store is full")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("WARN") && lines[0].contains("pool=\"local\""), "{}", lines[0]);
}
