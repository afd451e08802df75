//! Values of many megabytes on the embedded store: kept once, streamed in both directions, and
//! answered as Redis does.

#![allow(clippy::disallowed_methods, reason = "what others notice is timed from outside")]

use std::io::{BufRead, BufReader, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use keyway_testkit::large::{
    MB, ask, connect, expect, get, growth_during, read_value, set, set_head, write_value,
};
use keyway_testkit::{
    Client, Keyway, KeywayConfig, MemcachedServer, Pool, Random, RedisServer, Value, encode,
    encode_words, has_memcached, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

fn start_with(pool: Pool) -> Keyway {
    Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]).with_server("workers", "1"))
}

fn start() -> Keyway {
    start_with(Pool::store("main"))
}

fn used_memory(keyway: &Keyway) -> usize {
    let info = keyway.client(0).words("INFO memory").text();
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    line.and_then(|number| number.trim().parse().ok()).expect("used_memory")
}

#[test]
fn a_large_value_is_held_once_and_no_more_is_taken_to_give_it() {
    let _watch = watchdog(Duration::from_secs(120), "a large value");
    let (keyway, len) = (start(), 64 * MB);
    let pid = keyway.process().pid();
    let mut clients: Vec<_> = (0..4).map(|_| connect(keyway.address(0))).collect();
    let written = growth_during(pid, || set(&mut clients[0], "large", len));
    assert!(written < len + 8 * MB, "{written} bytes more to write it");
    let read = growth_during(pid, || {
        for client in &mut clients {
            ask(client, "large");
        }
        // A client that reads later still gets the value that was there.
        expect(&mut clients[3], format!("${len}\r\n").as_bytes());
        let mut other = keyway.client(0);
        assert_eq!(other.words("DEL large"), Value::Integer(1));
        assert!(used_memory(&keyway) >= len, "it is told as long as it is there");
        for client in &mut clients[..3] {
            expect(client, format!("${len}\r\n").as_bytes());
            read_value(client, len);
            expect(client, b"\r\n");
        }
        read_value(&mut clients[3], len);
        expect(&mut clients[3], b"\r\n");
    });
    assert!(read < 8 * MB, "{read} bytes more to read it four times");
    wait_until("its memory is given back", Duration::from_secs(10), || {
        used_memory(&keyway) < 8 * MB
    });
}

/// Keyway and Redis get the same bytes in the same pieces, and must answer alike.
struct Pair {
    clients: [Client; 2],
    turn: usize,
}

impl Pair {
    fn send(&mut self, bytes: &[u8], piece_len: usize) {
        for client in &mut self.clients {
            for piece in bytes.chunks(piece_len) {
                client.send(piece);
            }
        }
    }

    /// Sends requests, and compares as many replies.
    fn ask(&mut self, requests: &[Vec<u8>]) {
        self.turn += 1;
        let all: Vec<u8> = requests.concat();
        let piece_len = [300_007, 65_536, 1 << 20, all.len()][self.turn % 4];
        // The end is sent byte by byte.
        let (most, end) = all.split_at(all.len() - 40.min(all.len()));
        self.send(most, piece_len);
        self.send(end, [1, 7, 40][self.turn % 3]);
        for request in requests {
            let [ours, theirs] = self.clients.each_mut().map(|client| client.raw_reply());
            let head = String::from_utf8_lossy(&request[..request.len().min(60)]).into_owned();
            assert!(ours == theirs, "{head}: {} and {}", shown(&ours), shown(&theirs));
        }
    }
}

fn shown(reply: &[u8]) -> String {
    format!("{} ({} bytes)", String::from_utf8_lossy(&reply[..reply.len().min(80)]), reply.len())
}

fn words(line: &str, large: &[u8]) -> Vec<u8> {
    let word = |word: &str| if word == "LARGE" { large.to_vec() } else { word.as_bytes().to_vec() };
    let words: Vec<Vec<u8>> = line.split(' ').map(word).collect();
    encode(&words.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

#[test]
fn large_values_are_answered_as_redis_does() {
    let _watch = watchdog(Duration::from_secs(170), "a comparison");
    const LINES: &[&str] = &[
        "SET k LARGE",
        "SET k LARGE EX 100",
        "SET k LARGE EX 100 NX",
        "SET k LARGE KEEPTTL",
        "SET k LARGE XX GET PX 100000",
        "SET k LARGE NX GET",
        "SET none LARGE XX",
        "SET k LARGE EX 0",
        "SET k LARGE EX",
        "SET k LARGE EX soon",
        "SET k LARGE NX XX",
        "SET k LARGE EX 1 PX 1 KEEPTTL NX XX GET EXAT 1",
        "SET k LARGE PXAT 1",
        "EXISTS k",
        "SET k LARGE wrong",
        "SETEX k 100 LARGE",
        "SETEX k 0 LARGE",
        "SETEX k none LARGE",
        "PSETEX k 100000 LARGE",
        "PSETEX k -1 LARGE",
        "SETNX k LARGE",
        "SETNX new LARGE",
        "SETNX k LARGE more",
        "SET LARGE k",
        "SETX k LARGE",
        "GETSET k LARGE",
        "APPEND k LARGE",
        "STRLEN k",
        "SETRANGE k 5 LARGE",
        "GETRANGE k 3 -3",
        "GETRANGE k 100 250000",
        "MSET a LARGE b LARGE",
        "MGET a none b k",
        "RPUSH list LARGE",
        "SET list LARGE",
        "GETDEL a",
        "GETEX b EX 100",
        "GETDEL b",
        "HSET hash field LARGE",
        "HGET hash field",
        "GET hash",
        "MGET hash k",
        "SETRANGE k 0 x",
        "GET k",
        "SETBIT k 77 1",
        "BITCOUNT k",
        "DEL k list hash new",
    ];
    let (keyway, server) = (start(), RedisServer::start());
    let clients = [keyway.client(0), server.client()];
    let mut pair = Pair { clients, turn: 0 };
    for len in [1_200_000, 300_000, 140_000] {
        let large: Vec<u8> = (0..len).map(|at| (at % 251) as u8 ^ (at >> 10) as u8).collect();
        for line in LINES {
            // The large requests come before and after small ones.
            let requests = [
                words("INCR n", &[]),
                words(line, &large),
                words("TTL k", &[]),
                words("INCR n", &[]),
            ];
            pair.ask(&requests[1..2]);
            pair.ask(&requests);
        }
        let in_transaction =
            ["MULTI", "SET k LARGE", "GET k", "SET k LARGE EX 100", "STRLEN k", "EXEC"];
        pair.ask(&in_transaction.map(|line| words(line, &large)));
        let waits = ["WATCH k", "MULTI", "SET k LARGE", "DISCARD", "UNWATCH"];
        pair.ask(&waits.map(|line| words(line, &large)));
        pair.ask(&["SUBSCRIBE c", "UNSUBSCRIBE c"].map(|line| words(line, &large)));
        // The first two have no reply.
        let request = ["CLIENT REPLY SKIP", "SET k LARGE", "GET k"].map(|line| words(line, &large));
        pair.send(&request.concat(), 100_000);
        let [ours, theirs] = pair.clients.each_mut().map(|client| client.raw_reply());
        assert!(ours == theirs && ours.len() > len);
    }
}

#[test]
fn what_is_no_value_to_its_end_sets_nothing() {
    let _watch = watchdog(Duration::from_secs(60), "broken requests");
    let keyway = start();
    let mut other = keyway.client(0);
    other.words("SET k before");
    for end in [&b"xx"[..], b"\rx", b"x\n", b"\r\n?3\r\nXXX\r\n", b"\r\n$99999999999\r\n"] {
        let mut client = connect(keyway.address(0));
        client.write_all(&set_head("k", 2 * MB, 5)).expect("taken");
        write_value(&mut client, 0, 2 * MB);
        client.write_all(end).expect("taken");
        expect(&mut client, b"-ERR Protocol error: ");
    }
    assert_eq!(other.words("GET k"), Value::bulk("before"));
    // A client that leaves in the middle leaves nothing behind, and neither does one that is ended
    // there.
    let settled = || used_memory(&keyway) < 2 * MB;
    wait_until("nothing of them is there", Duration::from_secs(10), settled);
    for is_ended in [false, true] {
        let mut client = connect(keyway.address(0));
        client.write_all(&encode_words("CLIENT SETNAME half")).expect("taken");
        expect(&mut client, b"+OK\r\n");
        client.write_all(&set_head("k", 64 * MB, 3)).expect("taken");
        write_value(&mut client, 0, 32 * MB);
        wait_until("half of it is there", Duration::from_secs(10), || {
            used_memory(&keyway) > 24 * MB
        });
        if is_ended {
            let list = other.words("CLIENT LIST").text();
            let line = list.lines().find(|line| line.contains("name=half")).expect("it is there");
            let id = line.split(' ').next().and_then(|id| id.strip_prefix("id=")).expect("its id");
            assert_eq!(other.words(&format!("CLIENT KILL ID {id}")), Value::Integer(1));
        }
        drop(client);
        wait_until("nothing of it is there", Duration::from_secs(10), settled);
    }
    assert_eq!(other.words("GET k"), Value::bulk("before"));
}

#[test]
fn a_value_that_does_not_fit_is_refused_and_others_make_room() {
    let _watch = watchdog(Duration::from_secs(60), "a full store");
    for (policy, fits) in [("noeviction", false), ("allkeys-lru", true)] {
        let bound = format!("\"{}\"", "48MiB");
        let pool = Pool::store("main").with("memory_max", &bound);
        let keyway = start_with(pool.with("eviction", &format!("\"{policy}\"")));
        let mut client = connect(keyway.address(0));
        for number in 0..4 {
            set(&mut client, &format!("k{number}"), 10 * MB);
        }
        client.write_all(&set_head("next", 16 * MB, 3)).expect("taken");
        write_value(&mut client, 0, 16 * MB);
        client.write_all(b"\r\n").expect("taken");
        let reply = if fits { &b"+OK\r\n"[..] } else { b"-OOM command not allowed" };
        expect(&mut client, reply);
        let mut other = keyway.client(0);
        assert_eq!(other.words("EXISTS next"), Value::Integer(i64::from(fits)));
        let most = if fits { 48 * MB } else { 42 * MB };
        wait_until(
            "no memory is left of what was refused or went",
            Duration::from_secs(10),
            || used_memory(&keyway) < most,
        );
        if !fits {
            assert_eq!(other.words("DEL k0 k1"), Value::Integer(2));
            set(&mut connect(keyway.address(0)), "next", 16 * MB);
        }
    }
}

/// Clients send many large values before they read a reply.
#[test]
fn large_values_in_flight_do_not_pass_the_bound_on_memory() {
    let _watch = watchdog(Duration::from_secs(100), "a store that fills");
    const BOUND: usize = 32 * MB;
    const LEN_MAX: usize = 2 * MB;
    for policy in ["noeviction", "volatile-lru"] {
        let pool = Pool::store("main").with("memory_max", "\"32MiB\"");
        let pool = pool.with("eviction", &format!("\"{policy}\""));
        let config = KeywayConfig::new(vec![pool]).with_server("workers", "2");
        let keyway = Keyway::start(KEYWAY, config);
        let (is_done, most) = (AtomicBool::new(false), AtomicUsize::new(0));
        let refused = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    most.fetch_max(used_memory(&keyway), Ordering::Relaxed);
                }
            });
            let address = keyway.address(0);
            let fill = move |number: u64| {
                let mut random = Random::new(number);
                let mut client = connect(address);
                let mut refused = 0;
                for round in 0..3 {
                    for key in 0..15 {
                        let len = 300_000 + random.below(LEN_MAX - 300_000);
                        let key = format!("{number}:{round}:{key}");
                        client.write_all(&set_head(&key, len, 3)).expect("taken");
                        write_value(&mut client, 0, len);
                        client.write_all(b"\r\n").expect("taken");
                    }
                    let mut replies = BufReader::new(&client).lines();
                    for _ in 0..15 {
                        let reply = replies.next().and_then(Result::ok).expect("a reply");
                        assert!(reply == "+OK" || reply.starts_with("-OOM "), "{reply}");
                        refused += usize::from(reply != "+OK");
                    }
                }
                refused
            };
            let fillers: Vec<_> = (1..4).map(|number| scope.spawn(move || fill(number))).collect();
            let refused = fillers.into_iter().map(|it| it.join().expect("a client"));
            let refused: usize = refused.sum();
            is_done.store(true, Ordering::Relaxed);
            refused
        });
        let most = most.into_inner();
        assert!(refused > 50 && refused < 135, "{policy}: {refused} refused");
        assert!(most <= BOUND + BOUND / 50 + LEN_MAX, "{policy}: {most} at most");
        let rest = used_memory(&keyway);
        assert!(rest > BOUND / 2, "{policy}: {rest} at rest");
        wait_until("it is within its bound at rest", Duration::from_secs(10), || {
            used_memory(&keyway) <= BOUND
        });
    }
}

#[test]
fn who_may_not_write_it_does_not_and_who_watches_sees_it_whole() {
    let _watch = watchdog(Duration::from_secs(60), "rules");
    let keyway = Keyway::start(
        KEYWAY,
        KeywayConfig::new(vec![Pool::store("main")])
            .with_server("workers", "1")
            .with_tables("[[user]]\nname = \"default\"\nrules = \"nopass ~mine:* &* +@all\"\n"),
    );
    let mut client = connect(keyway.address(0));
    for (key, reply) in [("mine:k", &b"+OK\r\n"[..]), ("k", b"-NOPERM ")] {
        let mut client = connect(keyway.address(0));
        client.write_all(&set_head(key, 2 * MB, 3)).expect("taken");
        write_value(&mut client, 0, 2 * MB);
        client.write_all(b"\r\n").expect("taken");
        expect(&mut client, reply);
    }
    get(&mut client, "mine:k", 2 * MB);
    let mut monitor = keyway.client(0);
    assert_eq!(monitor.words("MONITOR"), Value::simple("OK"));
    set(&mut client, "mine:seen", MB);
    let more = format!("({} more bytes)", MB - 128);
    let line = monitor.raw_reply();
    let line = String::from_utf8_lossy(&line).into_owned();
    assert!(line.contains(&more), "{line}");
    drop(monitor);
    // The same holds for a client that begins while the value is being received.
    client.write_all(&set_head("mine:late", MB, 3)).expect("taken");
    write_value(&mut client, 0, MB / 2);
    let mut monitor = keyway.client(0);
    assert_eq!(monitor.words("MONITOR"), Value::simple("OK"));
    write_value(&mut client, MB / 2, MB);
    client.write_all(b"\r\n").expect("taken");
    expect(&mut client, b"+OK\r\n");
    let line = String::from_utf8_lossy(&monitor.raw_reply()).into_owned();
    assert!(line.contains(&more), "{line}");
}

#[test]
fn a_script_that_runs_when_it_is_whole_is_waited_for_or_told_of() {
    let _watch = watchdog(Duration::from_secs(60), "a script");
    let keyway = Keyway::start(
        KEYWAY,
        KeywayConfig::new(vec![Pool::store("main")]).with_server("workers", "2"),
    );
    let mut client = connect(keyway.address(0));
    for round in 0..20 {
        let script = format!("for i = 1, {} do redis.call('incr', 'n') end return 1", 2000 * round);
        let mut running = keyway.client(0);
        client.write_all(&set_head("n", 2 * MB, 3)).expect("taken");
        write_value(&mut client, 0, MB);
        running.send(&encode(&["EVAL", &script, "1", "n"]));
        write_value(&mut client, MB, 2 * MB);
        client.write_all(b"\r\n").expect("taken");
        expect(&mut client, b"+OK\r\n");
        running.raw_reply();
        // Either came first: the script finds no number in the value, or has ended before.
        let len = keyway.client(0).words("STRLEN n");
        assert_eq!(len, Value::Integer(2 * MB as i64), "round {round}");
        assert_eq!(keyway.client(0).words("DEL n"), Value::Integer(1), "round {round}");
    }
}

/// Returns the bytes received from clients, the bytes sent to them, and the number of turns.
fn moved(keyway: &Keyway) -> [f64; 3] {
    let metrics = keyway.metrics();
    [
        "keyway_client_received_bytes_total",
        "keyway_client_sent_bytes_total",
        "keyway_worker_turns_total",
    ]
    .map(|name| metrics.sum(name, &[]))
}

/// The bytes that one client sends or reads at once are bounded, so that the others have their turn
/// in between. (The length of a turn depends on the machine: the figures are printed.)
#[test]
fn others_have_their_turns_beside_large_values() {
    let _watch = watchdog(Duration::from_secs(120), "others");
    let servers = RedisServer::start_many(1);
    let len = 48 * MB;
    let over = Pool::over("main", &servers).with("timeout", "\"20s\"");
    for pool in [Pool::store("main"), over] {
        let keyway = start_with(pool);
        let mut client = connect(keyway.address(0));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let others = scope.spawn(|| {
                let mut other = keyway.client(0);
                let mut took = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    assert_eq!(other.words("PING"), Value::simple("PONG"));
                    took.push(asked.elapsed());
                }
                took.sort();
                took
            });
            let [received, _, turns] = moved(&keyway);
            (0..3).for_each(|_| set(&mut client, "large", len));
            let [received_then, sent, turns_then] = moved(&keyway);
            (0..3).for_each(|_| get(&mut client, "large", len));
            let [_, sent_last, turns_last] = moved(&keyway);
            is_over.store(true, Ordering::Relaxed);
            let in_turn = (received_then - received) / (turns_then - turns);
            let out_turn = (sent_last - sent) / (turns_last - turns_then);
            let took = others.join().expect("all was right");
            let at = |share: usize| took[(took.len() - 1) * share / 1000];
            println!(
                "{in_turn:.0} bytes a turn in, {out_turn:.0} out; others waited {:?}, {:?}, {:?}",
                at(500),
                at(990),
                at(1000)
            );
            // 256 KiB are read, with the rest of the last read, and a megabyte is sent to one
            // client, with the bytes of others.
            assert!(in_turn < 330e3, "{in_turn} bytes are read a turn");
            assert!(out_turn < 1.1e6, "{out_turn} bytes are sent a turn");
        });
    }
}

/// Pools over the stores `a` and `b`. Keyway asks them on behalf of a client, and puts what they
/// answer into other replies.
#[test]
fn pools_over_stores_give_large_values_whole_and_in_order() {
    let _watch = watchdog(Duration::from_secs(120), "pools over stores");
    const KINDS: [(&str, &[(&str, &str)]); 7] = [
        ("prefix", &[("routes", "[{ prefix = \"k\", pool = \"a\" }]"), ("default", "\"b\"")]),
        ("failover", &[("children", "[\"a\"]"), ("gutter", "\"b\"")]),
        ("mirror", &[("children", "[\"b\", \"a\"]"), ("read_from", "\"a\"")]),
        ("shadow", &[("main", "\"a\""), ("shadow", "\"b\"")]),
        ("miss-then", &[("children", "[\"a\", \"b\"]"), ("fill", "true")]),
        ("rate-limited", &[("child", "\"a\""), ("requests_per_second", "10000000")]),
        (
            "read-write-split",
            &[("write", "\"a\""), ("read", "\"rate-limited\""), ("read_fallback", "true")],
        ),
    ];
    let routed = KINDS.iter().map(|(kind, settings)| {
        let pool = Pool::of_kind(kind, kind);
        settings.iter().fold(pool, |pool, (name, value)| pool.with(name, value))
    });
    let pools = routed.chain([Pool::store("a"), Pool::store("b")]).collect();
    let config = KeywayConfig::new(pools).with_server("workers", "1");
    let keyway = Keyway::start(KEYWAY, config);
    let server = RedisServer::start();
    for (index, (kind, _)) in KINDS.iter().enumerate() {
        println!("{kind}");
        server.client().words("FLUSHALL");
        keyway.client(KINDS.len()).words("FLUSHALL");
        keyway.client(KINDS.len() + 1).words("FLUSHALL");
        let mut pair = Pair { clients: [keyway.client(index), server.client()], turn: 0 };
        for len in [8_000, 20_000, 300_000, 1_500_000] {
            let large: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            if *kind == "miss-then" {
                // The value is found further on.
                let far = keyway.client(KINDS.len() + 1);
                for mut client in [server.client(), far] {
                    client.send(&words("SET kfar LARGE", &large));
                    client.raw_reply();
                }
            }
            let lines = [
                "SET k LARGE",
                "GET k",
                "PING",
                "MGET k none k",
                "GET none",
                "INCR n",
                "GET k",
                "SET ke LARGE EX 100",
                "GETRANGE k 10 -10",
                "APPEND k more",
                "GET k",
                "GETEX k EX 100",
                "GETSET k LARGE",
                "GETDEL k",
                "PING",
                "DEL ke",
            ];
            let requests: Vec<Vec<u8>> = lines.iter().map(|line| words(line, &large)).collect();
            for request in &requests {
                pair.ask(std::slice::from_ref(request));
            }
            // Reads and writes of one pipeline go to different pools there.
            if *kind != "read-write-split" {
                pair.ask(&requests);
            }
            if *kind == "miss-then" {
                let lines = ["GET kfar", "PING", "MGET kfar none kfar", "GET kfar", "DEL kfar"];
                pair.ask(&lines.map(|line| words(line, &large)));
            }
        }
    }
}

#[test]
fn clients_of_memcached_have_large_values_as_from_memcached() {
    let _watch = watchdog(Duration::from_secs(120), "a comparison with memcached");
    if !has_memcached("large values of a store") {
        return;
    }
    let server = MemcachedServer::start();
    let pool = Pool::store("main").spoken_to_in("memcached");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]).with_server("workers", "1"));
    let mut clients = [keyway.memcached_client(0), server.client()];
    for len in [100, 8_000, 20_000, 300_000, 1_000_000] {
        let value: Vec<u8> = (0..len).map(|at| b'a' + (at % 23) as u8).collect();
        let mut request = format!("set k 7 0 {len}\r\n").into_bytes();
        request.extend_from_slice(&value);
        request.extend_from_slice(b"\r\nget k none k\r\nmg k v f s\r\nmn\r\ngat 100 k\r\n");
        request.extend_from_slice(b"append k 0 0 4\r\nmore\r\nget k k k\r\ndelete k\r\nget k\r\n");
        let item = |len: usize| format!("VALUE k 7 {len}\r\n").len() + len + 2;
        let meta = format!("VA {len} f7 s{len}\r\n").len() + len + 2;
        let fixed = "STORED\r\nEND\r\nMN\r\nEND\r\n".len();
        // memcached refuses a value that is longer than an item may be.
        let ends = "STORED\r\nEND\r\nDELETED\r\nEND\r\n".len();
        let all = 2 * item(len) + meta + fixed + item(len) + 3 * item(len + 4) + ends;
        for _ in 0..4 {
            let replies = clients.each_mut().map(|client| {
                client.send(&request);
                client.exactly(all)
            });
            assert!(replies[0] == replies[1], "{len} bytes");
        }
    }
}
