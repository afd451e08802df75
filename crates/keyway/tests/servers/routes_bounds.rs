//! Pools that lead to others: the order of one client's requests, the number of requests that one
//! of them becomes, and MONITOR and CLIENT PAUSE.
#![allow(clippy::disallowed_methods, reason = "waits are timed from outside")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use keyway_testkit::{
    Keyway, KeywayConfig, MemcachedServer, Pool, Value, has_memcached, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const WITHIN: Duration = Duration::from_secs(20);

fn routed(name: &str, kind: &str, settings: &[(&str, &str)]) -> Pool {
    settings.iter().fold(Pool::of_kind(name, kind), |pool, (name, value)| pool.with(name, value))
}

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

/// Memcached servers that answer when they are told to, and what each was sent.
struct Puppets {
    said: Receiver<(usize, String)>,
    streams: Vec<TcpStream>,
}

impl Puppets {
    /// Accepts one connection at each listener.
    fn meet(listeners: Vec<TcpListener>) -> Puppets {
        let (tell, said) = channel();
        let mut streams = Vec::new();
        for (index, listener) in listeners.into_iter().enumerate() {
            let (mut stream, _) = listener.accept().unwrap();
            let (tell, lines) = (tell.clone(), BufReader::new(stream.try_clone().unwrap()));
            streams.push(stream.try_clone().unwrap());
            std::thread::spawn(move || {
                for line in lines.lines().map_while(Result::ok) {
                    match line.as_str() {
                        "version" => stream.write_all(b"VERSION 1.6.38\r\n").unwrap(),
                        _ => tell.send((index, line)).unwrap(),
                    }
                }
            });
        }
        Puppets { said, streams }
    }

    fn hear(&self) -> (usize, String) {
        self.said.recv_timeout(WITHIN).expect("a request")
    }

    fn answer(&mut self, server: usize, reply: &[u8]) {
        self.streams[server].write_all(reply).unwrap();
    }
}

/// Starts a pool of two servers. A client leaves no room on the first. Returns a key of each.
fn half_full(top: Pool) -> (Keyway, Puppets, [String; 2]) {
    let listeners: Vec<_> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let servers = listeners.iter().map(|it| format!("\"{}:1\"", it.local_addr().unwrap()));
    let servers = format!("[{}]", servers.collect::<Vec<_>>().join(", "));
    let slow = Pool::of_kind("slow", "memcached").spoken_to_in("memcached");
    let slow = slow.with("servers", &servers).with("timeout", "\"30s\"");
    let slow = slow.with("distribution", "\"modula\"").with("preconnect", "true");
    let pools =
        vec![top.spoken_to_in("memcached"), slow, Pool::store("local").spoken_to_in("memcached")];
    let config = KeywayConfig::new(pools).with_server("workers", "1");
    let keyway = Keyway::start(KEYWAY, config.with_tables("[limits]\nlink_in_flight_max = 16\n"));
    let mut puppets = Puppets::meet(listeners);
    let mut client = keyway.memcached_client(1);
    let mut keys = [String::new(), String::new()];
    for nth in 0.. {
        let key = format!("k{nth}");
        client.send(format!("get {key}\r\n").as_bytes());
        let (server, line) = puppets.hear();
        assert_eq!(line, format!("get {key}"));
        puppets.answer(server, b"END\r\n");
        assert_eq!(client.line(), "END");
        keys[server] = key;
        if keys.iter().all(|key| !key.is_empty()) {
            break;
        }
    }
    client.send(format!("get {}\r\n", keys[0]).repeat(16).as_bytes());
    (0..16).for_each(|_| assert_eq!(puppets.hear().0, 0));
    std::mem::forget(client);
    (keyway, puppets, keys)
}

/// Returns what the second server is sent after the first server has answered the earlier requests.
fn second_server_hears(puppets: &mut Puppets, count: usize) -> Vec<String> {
    puppets.answer(0, &b"END\r\n".repeat(16));
    let mut heard = Vec::new();
    while heard.len() < count {
        let (server, line) = puppets.hear();
        if server == 1 && line.len() > 1 {
            heard.push(line);
        }
    }
    heard
}

fn is_taken(keyway: &Keyway, pool: &str, bytes: usize) {
    wait_until("the requests to be taken", WITHIN, || {
        let labels = [&*format!("pool=\"{pool}\"")];
        keyway.metrics().sum("keyway_client_received_bytes_total", &labels) >= bytes as f64
    });
}

#[test]
fn what_is_split_over_a_full_link_is_not_overtaken_on_another() {
    let _watch = watchdog(Duration::from_secs(60), "a split over a full link");
    for (kind, children) in [
        ("failover", "[\"slow\", \"local\"]"),
        ("mirror", "[\"slow\", \"local\"]"),
        ("miss-then", "[\"slow\", \"local\"]"),
    ] {
        let (keyway, mut puppets, [full, free]) =
            half_full(routed("top", kind, &[("children", children)]));
        let mut client = keyway.memcached_client(0);
        let stream = format!("get {full} {free}\r\ngets {free}\r\nget {free}\r\n");
        client.send(stream.as_bytes());
        is_taken(&keyway, "top", stream.len());
        let heard = second_server_hears(&mut puppets, 2);
        assert_eq!(heard, [format!("get {free}"), format!("gets {free}")], "{kind}");
    }
}

#[test]
fn a_copy_that_is_split_over_a_full_link_is_not_overtaken_either() {
    let _watch = watchdog(Duration::from_secs(60), "a copy over a full link");
    let settings = [("main", "\"local\""), ("shadow", "\"slow\""), ("percent", "100")];
    let (keyway, mut puppets, [full, free]) = half_full(routed("top", "shadow", &settings));
    let mut client = keyway.memcached_client(0);
    // A client whose requests are copied waits for nothing.
    let said = client.say(&format!("get {full} {free}\r\nset {free} 0 0 1\r\n2\r\n"));
    assert_eq!(said, "END\r\nSTORED\r\n");
    assert_eq!(client.say("get nothing\r\n"), "END\r\n");
    let heard = second_server_hears(&mut puppets, 2);
    assert_eq!(heard, [format!("get {free}"), format!("set {free} 0 0 1")]);
}

#[test]
fn one_request_becomes_many_and_all_are_asked() {
    let _watch = watchdog(Duration::from_secs(120), "many relays");
    let names = |from: usize, to: usize| {
        let names: Vec<String> = (from..to).map(|nth| format!("\"s{nth}\"")).collect();
        format!("[{}]", names.join(", "))
    };
    let mut pools = vec![
        routed("top", "failover", &[("children", "[\"all\", \"s0\"]")]),
        routed("all", "mirror", &[("children", "[\"left\", \"right\"]")]),
        routed("left", "mirror", &[("children", &names(0, 5))]),
        routed("right", "mirror", &[("children", &names(5, 10))]),
    ];
    pools
        .extend((0..10).map(|nth| Pool::store(&format!("s{nth}")).with("memory_max", "\"64MiB\"")));
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools).with_server("workers", "1"));
    let mut client = keyway.client(0);
    let keys: Vec<String> = (0..4096).map(|nth| format!("k{nth}")).collect();
    let mut words = vec!["MSET"];
    for key in &keys {
        words.extend([key.as_str(), "v"]);
    }
    // These are 4096 × (1 + 2 + 10) requests: more than may be in flight at once.
    assert_eq!(client.command(&words), ok());
    for listener in [4, 13] {
        assert_eq!(keyway.client(listener).words("DBSIZE"), Value::Integer(4096));
    }
    let mut words = vec!["DEL"];
    words.extend(keys.iter().map(String::as_str));
    assert_eq!(client.command(&words), Value::Integer(4096));
    assert_eq!(keyway.client(13).words("DBSIZE"), Value::Integer(0));
}

#[test]
fn who_is_paused_further_down_is_shown_once_and_goes_on_in_time() {
    let _watch = watchdog(Duration::from_secs(60), "a pause further down");
    let routes = "[{ prefix = \"a\", pool = \"data\" }]";
    let keyway = Keyway::start(
        KEYWAY,
        KeywayConfig::new(vec![
            routed("all", "prefix", &[("routes", routes)]),
            Pool::store("data"),
        ])
        .with_server("workers", "1"),
    );
    let mut monitors = [keyway.client(0), keyway.client(1)];
    for monitor in &mut monitors {
        assert_eq!(monitor.words("MONITOR"), ok());
    }
    let (mut client, mut operator) = (keyway.client(0), keyway.client(1));
    assert_eq!(operator.words("CLIENT PAUSE 700"), ok());
    let began = Instant::now();
    assert_eq!(client.words("SET a:1 x"), ok());
    let waited = began.elapsed();
    assert!(waited > Duration::from_millis(500), "{waited:?}");
    assert_eq!(client.words("GET a:end"), Value::Nil);
    for (index, monitor) in monitors.iter_mut().enumerate() {
        let mut lines = Vec::new();
        while !lines.last().is_some_and(|line: &String| line.contains("a:end")) {
            lines.push(format!("{:?}", String::from_utf8(monitor.raw_reply()).unwrap()));
        }
        let shown = lines.iter().filter(|line| line.contains("a:1")).count();
        assert_eq!(shown, 1, "monitor {index}: {lines:?}");
    }
}

#[test]
fn what_is_refused_further_down_takes_no_tokens() {
    let _watch = watchdog(Duration::from_secs(60), "tokens that are given back");
    let limited = |name, child, burst| {
        let settings = [("child", child), ("requests_per_second", "1"), ("burst", burst)];
        routed(name, "rate-limited", &settings).spoken_to_in("memcached")
    };
    let routes = "[{ prefix = \"a\", pool = \"inner\" }, { prefix = \"d\", pool = \"data\" }]";
    let keyway = Keyway::start(
        KEYWAY,
        KeywayConfig::new(vec![
            limited("outer", "\"some\"", "4"),
            routed("some", "prefix", &[("routes", routes)]).spoken_to_in("memcached"),
            limited("inner", "\"data\"", "1"),
            Pool::store("data").spoken_to_in("memcached"),
        ])
        .with_server("workers", "1"),
    );
    let mut client = keyway.memcached_client(0);
    let said = client.say(&format!("{}{}", "get a\r\n".repeat(10), "get b\r\n".repeat(10)));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 20);
    assert_eq!(lines[0], "END");
    assert!(lines[1..10].iter().all(|line| line.contains("[pool.inner]")), "{said}");
    assert!(lines[10..].iter().all(|line| line.contains("no route: ")), "{said}");
    assert_eq!(client.say("get d\r\n"), "END\r\n");
}

#[test]
fn who_does_not_read_what_many_keys_have_is_cut_off_and_told_of_once() {
    let _watch = watchdog(Duration::from_secs(60), "replies that nobody reads");
    if !has_memcached("replies that nobody reads") {
        return;
    }
    let servers = MemcachedServer::start_many(2);
    let pool = Pool::memcached("cache", &servers);
    let limits = "[limits]\nsession_output_len_soft = \"64KiB\"\nsession_output_len_hard = \
                  \"8MiB\"\nreply_len_max = \"64MiB\"\n";
    let config = KeywayConfig::new(vec![pool]).with_server("workers", "1").with_tables(limits);
    let keyway = Keyway::start(KEYWAY, config);
    let mut client = keyway.memcached_client(0);
    let value = "v".repeat(1_000_000);
    // Requests of one server alone would be streamed, and reading would stop.
    for nth in 0..10 {
        let set = format!("set {nth}-of-many-keys 0 0 {}\r\n{value}\r\n", value.len());
        assert_eq!(client.say(&set), "STORED\r\n");
    }
    let all: String = (0..40).map(|nth| format!(" {}-of-many-keys", nth % 10)).collect();
    for _ in 0..3 {
        let mut idle = keyway.memcached_client(0);
        idle.send(format!("get{all}\r\n").as_bytes());
        wait_until("it to be cut off", WITHIN, || idle.try_send(b"mn\r\n").is_err());
    }
    let labels = ["pool=\"cache\"", "fault=\"limit\""];
    wait_until("all to be counted", WITHIN, || {
        keyway.metrics().sum("keyway_client_closed_connections_total", &labels) == 3.0
    });
    let log = keyway.process().log();
    assert_eq!(log.matches("client disconnected: it does not read").count(), 1, "{log}");
    assert!(client.say("get 1-of-many-keys\r\n").starts_with("VALUE 1-of-many-keys 0 1000000\r\n"));
}
