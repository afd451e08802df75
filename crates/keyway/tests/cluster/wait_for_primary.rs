//! Requests that wait for a primary that is gone: `wait_for_primary`.

#![allow(clippy::disallowed_methods, reason = "waits are timed from outside")]

use crate::cluster_setup::{key_of, serve};
use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisCluster, Replicated, Sentinels, Value, cluster_slot,
    encode_words, wait_until, watchdog,
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const WITHIN: Duration = Duration::from_secs(120);
const SOON: Duration = Duration::from_secs(15);

/// A refusal may come at most this much later than the end of the wait.
const LATE: Duration = Duration::from_millis(200);

/// The replies to a client that sends increments of keys of its own, some of them in pipelines.
#[derive(Default)]
struct Told {
    replies: u64,
    errors: Vec<(Duration, String)>,
    wrong: Vec<String>,
    slowest: Duration,
}

struct Clients {
    is_over: Arc<AtomicBool>,
    replies: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Told>>,
}

impl Clients {
    /// Starts clients. Every other one sends `depth` increments of one key in one pipeline, the
    /// others one.
    fn start(address: SocketAddr, count: usize, depth: usize) -> Clients {
        let (is_over, replies) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let threads = (0..count)
            .map(|number| {
                let (is_over, replies) = (Arc::clone(&is_over), Arc::clone(&replies));
                let depth = if number % 2 == 0 { 1 } else { depth };
                std::thread::spawn(move || {
                    let began = Instant::now();
                    let (mut told, mut client) = (Told::default(), Client::connect(address));
                    client.set_reply_within(Duration::from_secs(60));
                    let mut round = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        round += 1;
                        let key = format!("wait:{number}:{}", round % 40);
                        one_round(&mut client, &key, depth, (began, &mut told));
                        replies.fetch_add(depth as u64, Ordering::Relaxed);
                    }
                    told
                })
            })
            .collect();
        Clients { is_over, replies, threads }
    }

    fn go_on(&self, more: u64) {
        let until = self.replies.load(Ordering::Relaxed) + more;
        wait_until("clients have replies", Duration::from_secs(60), || {
            self.replies.load(Ordering::Relaxed) >= until
        });
    }

    fn end(self) -> Told {
        self.is_over.store(true, Ordering::Relaxed);
        let mut all = Told::default();
        for thread in self.threads {
            let told = thread.join().expect("a client");
            all.replies += told.replies;
            all.errors.extend(told.errors);
            all.wrong.extend(told.wrong);
            all.slowest = all.slowest.max(told.slowest);
        }
        all
    }
}

fn one_round(client: &mut Client, key: &str, depth: usize, (began, told): (Instant, &mut Told)) {
    let sent = Instant::now();
    client.send(&encode_words(&format!("INCR {key}")).repeat(depth));
    let mut before = None;
    for reply in client.replies(depth) {
        told.replies += 1;
        match reply {
            Value::Integer(value) => {
                // Increments lost with the primary are counted again, in the order of the requests.
                if before.is_some_and(|before| value <= before) {
                    told.wrong.push(format!("{key}: {value} behind {before:?}"));
                }
                before = Some(value);
            }
            Value::Error(_) => {
                told.errors.push((began.elapsed(), reply.error_text()));
                before = None;
            }
            other => told.wrong.push(format!("{key}: {other:?}")),
        }
    }
    told.slowest = told.slowest.max(sent.elapsed());
}

/// Expects that only requests that were in flight when the primary was killed have failed.
fn expect_in_flight_only(told: &Told) {
    println!(
        "{} replies, {} errors, slowest round {:?}: {:?}",
        told.replies,
        told.errors.len(),
        told.slowest,
        told.errors.first()
    );
    assert!(told.wrong.is_empty(), "{:?}", &told.wrong[..told.wrong.len().min(5)]);
    let is_other = |(_, text): &&(Duration, String)| !text.contains("may have been executed");
    let others: Vec<_> = told.errors.iter().filter(is_other).collect();
    assert!(others.is_empty(), "{}: {:?}", others.len(), &others[..others.len().min(5)]);
}

fn waiting(keyway: &Keyway) -> f64 {
    keyway.metrics().sum("keyway_cluster_primary_waiting_clients", &[])
}

fn counted(keyway: &Keyway, what: &str) -> f64 {
    keyway.metrics().sum(&format!("keyway_cluster_primary_{what}waits_total"), &[])
}

#[test]
fn a_cluster_whose_primary_is_killed_fails_only_what_was_on_its_way() {
    let _watch = watchdog(WITHIN, "a primary of a cluster is killed");
    let mut cluster = RedisCluster::start(3, 1);
    let settings = [("timeout", "\"1s\""), ("wait_for_primary", "\"15s\"")];
    let keyway = serve(&cluster, &settings, 2);
    let clients = Clients::start(keyway.address(0), 16, 8);
    clients.go_on(5_000);
    cluster.kill(0);
    wait_until("clients wait", SOON, || waiting(&keyway) > 0.0);
    cluster.wait_primary(3);
    clients.go_on(5_000);
    cluster.wait_settled();
    clients.go_on(5_000);
    let told = clients.end();
    expect_in_flight_only(&told);
    assert!(told.slowest < Duration::from_secs(15), "{:?}", told.slowest);
    wait_until("nobody waits", SOON, || waiting(&keyway) == 0.0);
    assert!(counted(&keyway, "") > 0.0);
    assert_eq!(counted(&keyway, "failed_"), 0.0);
}

#[test]
fn behind_sentinels_only_what_was_on_its_way_fails() {
    let _watch = watchdog(WITHIN, "a primary behind sentinels is killed");
    let mut servers = Replicated::start(2);
    let sentinels = Sentinels::start(3, 2, &[("mymaster", &servers)]);
    let listed: Vec<String> =
        sentinels.addresses().iter().map(|address| format!("\"{address}\"")).collect();
    let pool = Pool::of_kind("main", "replicated")
        .with("sentinels", &format!("[{}]", listed.join(", ")))
        .with("primaries", "[\"mymaster\"]")
        .with("timeout", "\"1s\"")
        .with("wait_for_primary", "\"30s\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let clients = Clients::start(keyway.address(0), 16, 8);
    clients.go_on(5_000);
    let primary = servers.address(0);
    servers.kill(0);
    wait_until("clients wait", SOON, || waiting(&keyway) > 0.0);
    sentinels.wait_primary("mymaster", |address| address != primary);
    clients.go_on(5_000);
    expect_in_flight_only(&clients.end());
    wait_until("nobody waits", SOON, || waiting(&keyway) == 0.0);
}

/// Returns a pool of one primary that is listed. No server takes over from it.
fn alone(server: &Replicated, wait: &str) -> Pool {
    Pool::of_kind("main", "replicated")
        .with("servers", &format!("[\"{}\"]", server.address(0)))
        .with("timeout", "\"1s\"")
        .with("reconnect", "{ min = \"20ms\", max = \"100ms\" }")
        .with("wait_for_primary", &format!("\"{wait}\""))
}

fn start(pool: Pool) -> Keyway {
    Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]).with_server("workers", "1"))
}

#[test]
fn the_wait_ends_with_an_error_in_time_that_tells_how_long_it_was() {
    let _watch = watchdog(WITHIN, "nobody takes over");
    let mut server = Replicated::start(0);
    let keyway = start(alone(&server, "1500ms"));
    let mut client = keyway.client(0);
    client.set_reply_within(SOON);
    assert_eq!(client.words("SET k 1"), Value::simple("OK"));
    server.kill(0);
    for words in ["GET k", "MGET k l", "EVAL return(1) 1 k", "BLPOP k 1", "WATCH k"] {
        // The requests behind the one that fails have waited as long, and fail with it.
        let sent = Instant::now();
        client.send(&encode_words(words).repeat(3));
        for reply in client.replies(3) {
            assert!(reply.is_error(), "{words}: {reply:?}");
            let (text, took) = (reply.error_text(), sent.elapsed());
            let wait = Duration::from_millis(1500);
            assert!(took >= wait && took < wait + LATE, "{words}: {took:?}: {text}");
            assert!(text.contains("waited 1.5 s") && text.contains("was not sent"), "{text}");
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    // A transaction is queued without a server, and fails as a whole.
    client.send(&["MULTI", "INCR k", "EXEC"].map(encode_words).concat());
    let sent = Instant::now();
    let replies = client.replies(3);
    assert!(sent.elapsed() >= Duration::from_millis(1500) && sent.elapsed() < SOON);
    assert!(replies[2].error_text().contains("waited 1.5 s"), "{replies:?}");
    assert!(counted(&keyway, "failed_") >= 5.0);
    server.restart(0);
    wait_until("it is served", SOON, || client.words("GET k") == Value::Nil);
    assert_eq!(client.words("INCR k"), Value::Integer(1), "nothing of the above was executed");
}

#[test]
fn whatever_waits_is_executed_in_order_once_the_primary_is_back() {
    let _watch = watchdog(WITHIN, "a primary comes back");
    let mut server = Replicated::start(0);
    let keyway = start(alone(&server, "20s"));
    let mut client = keyway.client(0);
    client.set_reply_within(SOON);
    assert_eq!(client.words("SET k 1"), Value::simple("OK"));
    server.kill(0);
    let lines = [
        "RPUSH l a b",
        "INCR n",
        "INCR n",
        "MGET n m",
        "MSET x 1 y 2",
        "MULTI",
        "INCR n",
        "GET x",
        "EXEC",
        "BLPOP l 5",
        "LPOP l",
        "DBSIZE",
        "EVAL return{KEYS[1]} 1 k",
        "INCR n",
        "WATCH n",
        "UNWATCH",
        "INCR n",
    ];
    client.send(&lines.map(encode_words).concat());
    let mut others: Vec<Client> = (0..50).map(|_| keyway.client(0)).collect();
    others.iter_mut().for_each(|other| other.send(&encode_words("INCR others").repeat(20)));
    // The requests of clients that leave are executed as usual. Then nothing is left of them.
    let mut leaving: Vec<Client> = (0..50).map(|_| keyway.client(0)).collect();
    leaving.iter_mut().for_each(|other| other.send(&encode_words("INCR left").repeat(20)));
    wait_until("all wait", SOON, || waiting(&keyway) == 101.0);
    drop(leaving);
    std::thread::sleep(Duration::from_secs(2));
    server.restart(0);
    let told = client.replies(lines.len());
    let bulks = |texts: &[&str]| Value::Array(texts.iter().map(Value::bulk).collect());
    let ok = Value::simple("OK");
    let expected = [
        Value::Integer(2),
        Value::Integer(1),
        Value::Integer(2),
        Value::Array(vec![Value::bulk("2"), Value::Nil]),
        ok.clone(),
        ok.clone(),
        Value::simple("QUEUED"),
        Value::simple("QUEUED"),
        Value::Array(vec![Value::Integer(3), Value::bulk("1")]),
        bulks(&["l", "a"]),
        Value::bulk("b"),
        told[11].clone(),
        bulks(&["k"]),
        Value::Integer(4),
        ok.clone(),
        ok,
        Value::Integer(5),
    ];
    assert_eq!(told, expected);
    for other in &mut others {
        let values: Vec<Value> = other.replies(20);
        let number = |it: &Value| if let Value::Integer(number) = it { *number } else { -1 };
        let numbers: Vec<i64> = values.iter().map(number).collect();
        assert!(numbers.is_sorted() && numbers[0] > 0, "{values:?}");
    }
    assert_eq!(client.words("GET others"), Value::bulk("1000"));
    wait_until("nobody waits", SOON, || waiting(&keyway) == 0.0);
    let connected = || keyway.metrics().sum("keyway_client_connections", &[]);
    wait_until("those that left are gone", SOON, || connected() == 51.0);
    assert_eq!(counted(&keyway, "failed_"), 0.0);
}

#[test]
fn clients_of_memcached_wait_as_well() {
    let _watch = watchdog(WITHIN, "clients of memcached");
    let mut server = Replicated::start(0);
    let keyway = start(alone(&server, "20s").spoken_to_in("memcached"));
    let mut client = keyway.memcached_client(0);
    client.send(b"set k 0 0 1\r\n1\r\n");
    assert_eq!(client.line(), "STORED");
    server.kill(0);
    client.send(b"set k 0 0 1\r\n2\r\nset l 0 0 1\r\n3\r\nget k l\r\n");
    wait_until("it waits", SOON, || waiting(&keyway) == 1.0);
    server.restart(0);
    let lines: Vec<String> = (0..7).map(|_| client.line()).collect();
    let expected = ["STORED", "STORED", "VALUE k 0 1", "2", "VALUE l 0 1", "3", "END"];
    assert_eq!(lines, expected);
    wait_until("nobody waits", SOON, || waiting(&keyway) == 0.0);
}

#[test]
fn other_shards_are_served_while_one_has_no_primary() {
    let _watch = watchdog(WITHIN, "a shard without a primary");
    let arguments = ["--cluster-require-full-coverage", "no"];
    let mut cluster = RedisCluster::start_with(3, 0, &arguments, None);
    let settings = [("timeout", "\"1s\""), ("wait_for_primary", "\"60s\"")];
    let keyway = serve(&cluster, &settings, 1);
    let slots: Vec<u16> = (0..3).map(|node| cluster.slots_of(node)[0].0).collect();
    let keys: Vec<String> = slots.iter().map(|&slot| key_of(slot, "k")).collect();
    let mut client = keyway.client(0);
    for key in &keys {
        assert_eq!(client.words(&format!("SET {key} 1")), Value::simple("OK"));
    }
    assert_eq!(cluster_slot(keys[0].as_bytes()), slots[0]);
    cluster.kill(0);
    let mut waits = keyway.client(0);
    waits.set_reply_within(Duration::from_secs(60));
    waits.send(&encode_words(&format!("GET {}", keys[0])));
    wait_until("it waits", SOON, || waiting(&keyway) == 1.0);
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        for key in &keys[1..] {
            let sent = Instant::now();
            assert_eq!(client.words(&format!("GET {key}")), Value::bulk("1"));
            assert!(sent.elapsed() < Duration::from_millis(500), "{:?}", sent.elapsed());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    cluster.restart(0);
    assert_eq!(waits.reply(), Value::Nil);
}

#[test]
fn a_stop_ends_the_wait() {
    let _watch = watchdog(WITHIN, "a stop");
    let mut server = Replicated::start(0);
    let keyway = start(alone(&server, "60s"));
    let mut client = keyway.client(0);
    client.set_reply_within(SOON);
    assert_eq!(client.words("SET k 1"), Value::simple("OK"));
    server.kill(0);
    client.send(&encode_words("GET k").repeat(2));
    wait_until("it waits", SOON, || waiting(&keyway) == 1.0);
    let began = Instant::now();
    let stopped = std::thread::spawn(move || keyway.stop(SOON));
    for reply in client.replies(2) {
        assert!(reply.error_text().contains("was not sent"), "{reply:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let (status, log) = stopped.join().expect("it stops");
    assert!(status.success(), "{log}");
}
