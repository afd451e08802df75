//! Servers that pose as a cluster and send replies that no cluster sends.

#![allow(clippy::disallowed_methods, reason = "waits are timed from outside")]

use crate::cluster_setup::{KEYWAY, cluster_pool, warnings};
use keyway_testkit::{
    Action, Keyway, KeywayConfig, ScriptedBackend, Value, cluster_slot, encode_words, free_address,
    handshake_reply, resident_bytes, wait_until, watchdog,
};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(60);

/// Returns the reply to CLUSTER SLOTS for ranges and their owners.
fn slots(ranges: &[(u16, u16, SocketAddr)]) -> Vec<u8> {
    let mut reply = format!("*{}\r\n", ranges.len());
    for (nth, (first, last, owner)) in ranges.iter().enumerate() {
        let (host, port) = (owner.ip().to_string(), owner.port());
        reply +=
            &format!("*3\r\n:{first}\r\n:{last}\r\n*3\r\n${}\r\n{host}\r\n:{port}\r\n", host.len());
        reply += &format!("$40\r\n{nth:040}\r\n");
    }
    reply.into_bytes()
}

fn is_question(request: &[Vec<u8>]) -> bool {
    request[0] == b"CLUSTER"
}

/// Returns the reply to CLUSTER NODES for a server that has all slots, and others without slots,
/// with their names.
fn nodes(owner: SocketAddr, others: &[(SocketAddr, &str)]) -> Vec<u8> {
    let mut text = format!("{:040} {owner}@1 myself,master - 0 0 1 connected 0-16383\n", 0);
    for (nth, (address, name)) in (1..).zip(others) {
        text += &format!("{nth:040} {address}@1,{name} master - 0 0 {nth} connected\n");
    }
    format!("${}\r\n{text}\r\n", text.len()).into_bytes()
}

/// Starts a server that claims all slots and answers by `script`.
fn owner(script: impl FnMut(&[Vec<u8>]) -> Action + Send + 'static) -> ScriptedBackend {
    owner_beside(None, script)
}

/// Starts such a server that also lists another server of its cluster.
fn owner_beside(
    other: Option<SocketAddr>,
    mut script: impl FnMut(&[Vec<u8>]) -> Action + Send + 'static,
) -> ScriptedBackend {
    let address = free_address();
    ScriptedBackend::start_at(address, move |request| {
        if is_question(request) && request[1] == b"NODES" {
            let others: Vec<_> = other.iter().map(|it| (*it, "localhost")).collect();
            return Action::Reply(nodes(address, &others));
        }
        if is_question(request) {
            return Action::Reply(slots(&[(0, 16383, address)]));
        }
        match handshake_reply(request) {
            Some(reply) => Action::Reply(reply),
            None => script(request),
        }
    })
}

fn serve(seeds: &[SocketAddr], settings: &[(&str, &str)]) -> Keyway {
    let mut pool =
        cluster_pool(seeds).with("timeout", "\"500ms\"").with("connect_timeout", "\"300ms\"");
    for (name, value) in settings {
        pool = pool.with(name, value);
    }
    Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]))
}

/// Expects that every request gets a reply in its place, whatever it is.
fn expect_replies(keyway: &Keyway, lines: &[&str]) -> Vec<Value> {
    let mut client = keyway.client(0);
    client.set_reply_within(Duration::from_secs(8));
    let bytes: Vec<u8> = lines.iter().flat_map(|line| encode_words(line)).collect();
    client.send(&bytes);
    client.send(&encode_words("PING"));
    let replies = client.replies(lines.len());
    assert_eq!(client.reply(), Value::simple("PONG"));
    replies
}

#[test]
fn two_servers_that_each_name_the_other_are_given_up() {
    let _watch = watchdog(WITHIN, "a loop of redirections");
    let addresses = [free_address(), free_address()];
    let servers: Vec<ScriptedBackend> = (0..2)
        .map(|nth| {
            ScriptedBackend::start_at(addresses[nth], move |request| {
                if is_question(request) {
                    return Action::Reply(slots(&[(0, 16383, addresses[nth])]));
                }
                let slot = cluster_slot(request.get(1).map_or(b"", |key| key));
                let other = addresses[1 - nth];
                let moved = format!("-MOVED {slot} {other}\r\n").into_bytes();
                Action::Reply(handshake_reply(request).unwrap_or(moved))
            })
        })
        .collect();
    let keyway = serve(&addresses, &[]);
    for lines in [&["GET a"][..], &["GET a", "SET b 1", "MGET a b c d", "INCR a"]] {
        let replies = expect_replies(&keyway, lines);
        assert!(replies.iter().all(Value::is_error), "{replies:?}");
        assert!(replies[0].error_text().starts_with("MOVED "), "{replies:?}");
    }
    // Each request costs a few requests to servers, but not more.
    let asked: usize = servers.iter().map(ScriptedBackend::requests).sum();
    assert!(asked < 150, "{asked} requests");
    assert!(warnings(&keyway).len() < 5, "{:?}", warnings(&keyway));
}

#[test]
fn whoever_is_sent_where_nobody_is_gets_an_error() {
    let _watch = watchdog(WITHIN, "odd addresses");
    let nobody = free_address().port();
    for place in [
        format!("127.0.0.1:{nobody}"),
        format!("no-such-host.invalid:{nobody}"),
        format!(":{nobody}"),
        format!("?:{nobody}"),
        "127.0.0.1:0".to_owned(),
        "127.0.0.1".to_owned(),
        "127.0.0.1:99999".to_owned(),
        String::new(),
    ] {
        for kind in ["MOVED", "ASK"] {
            let place = place.clone();
            let server = owner(move |request| {
                let slot = cluster_slot(request.get(1).map_or(b"", |key| key));
                Action::Reply(format!("-{kind} {slot} {place}\r\n").into_bytes())
            });
            let keyway = serve(&[server.address()], &[]);
            let replies = expect_replies(&keyway, &["GET a", "MGET a b", "SET a 1"]);
            assert!(replies.iter().all(Value::is_error), "{replies:?}");
            let told = replies[0].error_text();
            assert!(told.starts_with(kind), "{told}");
            assert!(warnings(&keyway).len() < 12, "{:?}", warnings(&keyway));
        }
    }
}

#[test]
fn an_empty_host_is_that_of_the_one_that_was_asked() {
    let _watch = watchdog(WITHIN, "an empty host");
    let target = ScriptedBackend::start(Action::echo_key);
    let port = target.address().port();
    for host in ["", "?", "localhost"] {
        let server = owner_beside(Some(target.address()), move |request| {
            let slot = cluster_slot(request.get(1).map_or(b"", |key| key));
            Action::Reply(format!("-ASK {slot} {host}:{port}\r\n").into_bytes())
        });
        let keyway = serve(&[server.address()], &[]);
        // The echo also answers ASKING, with an error or not. No client gets that reply.
        assert_eq!(
            expect_replies(&keyway, &["GET a", "GET b"]),
            [Value::bulk("a"), Value::bulk("b")]
        );
    }
}

#[test]
fn a_link_that_is_lost_behind_redirections_leaves_nobody_waiting() {
    let _watch = watchdog(WITHIN, "a link is lost");
    let target = ScriptedBackend::start(|request| match handshake_reply(request) {
        Some(reply) => Action::Reply(reply),
        None if request[0] == b"ASKING" => Action::Reply(b"+OK\r\n".to_vec()),
        None => Action::Close(b"$3\r\nha".to_vec()),
    });
    let to = target.address();
    let mut count = 0;
    let server = owner_beside(Some(to), move |request| {
        let slot = cluster_slot(request.get(1).map_or(b"", |key| key));
        count += 1;
        match count % 4 {
            3 => Action::Close(format!("-ASK {slot} {to}\r\n-ASK {slot}").into_bytes()),
            0 => Action::Reply(b"-TRYAGAIN wait\r\n".to_vec()),
            _ => Action::Reply(format!("-ASK {slot} {to}\r\n").into_bytes()),
        }
    });
    let keyway = serve(&[server.address()], &[]);
    for _ in 0..10 {
        expect_replies(
            &keyway,
            &["GET a", "MGET a b c", "INCR a", "MULTI", "INCR a", "EXEC", "DEL a b"],
        );
        expect_replies(&keyway, &["BLPOP a 0.1"]);
        expect_replies(&keyway, &["WATCH a", "MULTI", "INCR a", "EXEC"]);
        // A client leaves while its request is in flight.
        let mut client = keyway.client(0);
        client.send(&encode_words("MGET a b c d e f"));
        client.reset();
    }
    let mut client = keyway.client(0);
    wait_until("all others have left", WITHIN, || {
        client.words("INFO clients").text().contains("connected_clients:1\r")
    });
}

#[test]
fn replies_to_what_was_not_asked_end_the_connection_only() {
    let _watch = watchdog(WITHIN, "unasked replies");
    let server = owner(|request| match request[0].as_slice() {
        b"GET" => {
            Action::Reply(b"$1\r\nv\r\n$6\r\nforged\r\n+OK\r\n-MOVED 1 127.0.0.1:1\r\n".to_vec())
        }
        _ => Action::Reply(b"+OK\r\n".to_vec()),
    });
    let keyway = serve(&[server.address()], &[]);
    for _ in 0..20 {
        let mut client = keyway.client(0);
        let reply = client.words("GET a");
        assert!(reply == Value::bulk("v") || reply.is_error(), "{reply:?}");
        let reply = client.words("SET a 1");
        assert!(reply == Value::simple("OK") || reply.is_error(), "{reply:?}");
    }
}

#[test]
fn views_that_are_too_large_or_say_nothing_are_refused() {
    let _watch = watchdog(WITHIN, "odd views");
    let huge = {
        let text = "x".repeat(16 << 20);
        format!("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n${}\r\n{text}\r\n:1\r\n$1\r\na\r\n", text.len())
    };
    let two_thousand: Vec<(u16, u16, SocketAddr)> = (0..2000_u16)
        .map(|nth| (nth, nth, SocketAddr::from(([127, 0, 0, 1], 33_000 + nth))))
        .collect();
    let views: Vec<(&str, Vec<u8>)> = vec![
        ("16 MiB", huge.into_bytes()),
        ("no slots", b"*0\r\n".to_vec()),
        ("no list", b"+OK\r\n".to_vec()),
        ("null", b"*-1\r\n".to_vec()),
        ("error", b"-ERR unknown command 'CLUSTER'\r\n".to_vec()),
        ("beyond the last", b"*1\r\n*3\r\n:0\r\n:99999\r\n*2\r\n$1\r\na\r\n:1\r\n".to_vec()),
        ("backwards", b"*1\r\n*3\r\n:9\r\n:1\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n".to_vec()),
        ("2000 servers", slots(&two_thousand)),
        ("deep", [b"*1\r\n".repeat(200), b":1\r\n".to_vec()].concat()),
    ];
    // The cases run at the same time, because clients wait for seconds.
    std::thread::scope(|scope| {
        for (what, view) in views {
            scope.spawn(move || expect_refused_view(what, view));
        }
    });
}

fn expect_refused_view(what: &str, view: Vec<u8>) {
    let address = free_address();
    let _server = ScriptedBackend::start_at(address, move |request| match is_question(request) {
        true => Action::Reply(view.clone()),
        false => Action::echo_key(request),
    });
    let keyway = serve(&[address], &[]);
    let began = Instant::now();
    let told = keyway.client(0).words("GET a");
    let lines = warnings(&keyway);
    println!("{what}: {told:?}\n{}", lines.join("\n"));
    assert!(told.is_error(), "{what}: {told:?}");
    // This is the timeout, a tenth of a second, and the extra time of a busy machine.
    assert!(began.elapsed() < Duration::from_millis(600 + 900), "{what}: {:?}", began.elapsed());
    assert!((1..12).contains(&lines.len()), "{what}: {lines:?}");
    let resident = resident_bytes(keyway.process().pid());
    assert!(resident < 300 << 20, "{what}: {resident} bytes");
}

#[test]
fn beside_servers_that_send_garbage_requests_are_told_in_time() {
    let _watch = watchdog(WITHIN, "garbage");
    let garbage = [b"\0\xff".repeat(40_000), b"*1000000\r\n$3\r\n".repeat(9000)].concat();
    let garbler = ScriptedBackend::start(move |_| Action::Reply(garbage.clone()));
    let to = garbler.address();
    let server = owner_beside(Some(to), move |request| {
        let slot = cluster_slot(request.get(1).map_or(b"", |key| key));
        Action::Reply(format!("-MOVED {slot} {to}\r\n").into_bytes())
    });
    let seeds = [to, server.address()];
    let keyway = serve(&seeds, &[("timeout", "\"200ms\"")]);
    for line in ["GET a", "SET a 1", "MGET a b c", "EVAL return 0", "GET b"] {
        let began = Instant::now();
        let told = keyway.client(0).words(line);
        println!("{line}: {told:?} in {:?}", began.elapsed());
        assert!(told.is_error(), "{line}: {told:?}");
        assert!(began.elapsed() < Duration::from_millis(300 + 700), "{line}");
    }
}

#[test]
fn a_view_of_two_thousand_servers_is_refused_and_of_five_hundred_some_have_a_place() {
    let _watch = watchdog(WITHIN, "many servers");
    let address = free_address();
    let ranges: Vec<(u16, u16, SocketAddr)> = (0..500_u16)
        .map(|nth| {
            let last = if nth == 499 { 16383 } else { nth * 32 + 31 };
            let owner =
                if nth == 0 { address } else { SocketAddr::from(([127, 0, 0, 1], 33_000 + nth)) };
            (nth * 32, last, owner)
        })
        .collect();
    let server = ScriptedBackend::start_at(address, move |request| match is_question(request) {
        true => Action::Reply(slots(&ranges)),
        false => Action::echo_key(request),
    });
    let keyway = serve(&[server.address()], &[("refresh", "\"100ms\"")]);
    let mut client = keyway.client(0);
    let own =
        (0..).map(|nth| format!("k{nth}")).find(|key| cluster_slot(key.as_bytes()) < 32).unwrap();
    assert_eq!(client.words(&format!("GET {own}")), Value::bulk(&own));
    let beyond =
        (0..).map(|nth| format!("k{nth}")).find(|key| cluster_slot(key.as_bytes()) > 16000);
    let told = client.words(&format!("GET {}", beyond.unwrap()));
    println!("{told:?}");
    assert!(told.is_error());
    let views = || keyway.metrics().sum("keyway_cluster_told_views_total", &[]) > 20.0;
    wait_until("it was told many times", WITHIN, views);
    let lines = warnings(&keyway);
    println!("{}", lines.join("\n"));
    assert!(lines.iter().any(|line| line.contains("nodes_max")), "{lines:?}");
    // Each named server is asked once: one line reports that it cannot be reached, and one reports
    // its health.
    let (of_servers, others): (Vec<_>, Vec<_>) =
        lines.iter().partition(|line| line.contains("backend="));
    assert!(others.len() < 10, "{} lines", others.len());
    assert!(of_servers.len() <= 2 * 64, "{} lines of 64 places", of_servers.len());
}
