//! A request that times out fails alone. The link stays open, and the late reply is given to no
//! client.

#![allow(clippy::disallowed_methods, reason = "waits are timed from outside")]

use std::time::{Duration, Instant};

use keyway_testkit::{
    Action, Client, Keyway, KeywayConfig, Nutcracker, NutcrackerPool, Pool, RedisServer,
    ScriptedBackend, Value, encode, handshake_reply, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

/// Keeps a server busy for ARGV[1] milliseconds.
const SLOW_SCRIPT: &str = "local t = redis.call('TIME'); local e = t[1]*1000 + t[2]/1000 + ARGV[1]; \
    repeat t = redis.call('TIME') until t[1]*1000 + t[2]/1000 >= e; return 'slow'";

fn connections_received(server: &RedisServer) -> String {
    let text = server.client().words("INFO stats").text();
    let line = text.lines().find(|line| line.starts_with("total_connections_received:"));
    line.expect("redis counts connections").to_owned()
}

fn own_value(nth: usize) -> String {
    format!("value of client {nth}")
}

fn clients_with_values(keyway: &Keyway, count: usize) -> Vec<Client> {
    (0..count)
        .map(|nth| {
            let mut client = keyway.client(0);
            let set = client.command(&["SET", &format!("key:{nth}"), &own_value(nth)]);
            assert_eq!(set, Value::simple("OK"));
            client
        })
        .collect()
}

fn is_timeout(reply: &Value) -> bool {
    reply.error_text().to_lowercase().contains("time")
}

/// There is one slow script, a short timeout, and 200 other clients on the same server. Each gets
/// its own value or an error of its own. When the script has ended, all are served over the same
/// link.
#[test]
fn a_slow_script_fails_requests_one_by_one_and_the_link_survives() {
    const OTHERS: usize = 200;
    let _watch = watchdog(Duration::from_secs(90), "slow script");
    let server = RedisServer::start();
    let pool = Pool::over("main", std::slice::from_ref(&server)).with("timeout", "\"300ms\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut others = clients_with_values(&keyway, OTHERS);
    let mut slow = keyway.client(0);
    let connections_before = connection_number(&server);
    for round in 0..3 {
        slow.send(&encode(&["EVAL", SLOW_SCRIPT, "1", "key:0", "1000"]));
        for (nth, client) in others.iter_mut().enumerate() {
            client.send(&encode(&["GET", &format!("key:{nth}")]));
        }
        assert!(is_timeout(&slow.reply()), "the script itself is late");
        for (nth, client) in others.iter_mut().enumerate() {
            let reply = client.reply();
            let fits = reply == Value::bulk(own_value(nth)) || is_timeout(&reply);
            assert!(fits, "round {round}, client {nth}: {reply:?}");
        }
        // From here on the replies to requests that timed out arrive, one by one.
        for (nth, client) in others.iter_mut().enumerate() {
            wait_until("the script is done", Duration::from_secs(10), || {
                let reply = client.command(&["GET", &format!("key:{nth}")]);
                assert!(reply == Value::bulk(own_value(nth)) || is_timeout(&reply), "{reply:?}");
                !reply.is_error()
            });
        }
        assert_eq!(slow.words("GET key:1"), Value::bulk(own_value(1)));
    }
    // Each check of the counter by this test is one connection.
    assert_eq!(connection_number(&server), connections_before + 1, "no link was made again");
}

fn connection_number(server: &RedisServer) -> u64 {
    let line = connections_received(server);
    line.rsplit(':').next().and_then(|digits| digits.trim().parse().ok()).expect("a number")
}

/// Without ejection, timeouts eject no server. A request that takes less than the timeout is not
/// affected by a slow one before it.
#[test]
fn a_request_behind_a_slow_one_is_answered_when_it_is_in_time() {
    let _watch = watchdog(Duration::from_secs(60), "in time behind a slow one");
    let server = RedisServer::start();
    let pool = Pool::over("main", std::slice::from_ref(&server)).with("timeout", "\"5s\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut others = clients_with_values(&keyway, 50);
    let mut slow = keyway.client(0);
    slow.send(&encode(&["EVAL", SLOW_SCRIPT, "1", "key:0", "400"]));
    for (nth, client) in others.iter_mut().enumerate() {
        assert_eq!(client.command(&["GET", &format!("key:{nth}")]), Value::bulk(own_value(nth)));
    }
    assert_eq!(slow.reply(), Value::bulk("slow"));
}

/// Returns how many of 200 requests fail behind a script of 1.3 s with a timeout of 1 s. The
/// requests are sent 0.7 s after the script, so each could have its reply in 0.6 s.
fn failures_behind_a_script(mut slow: Client, mut others: Vec<Client>) -> usize {
    assert_eq!(others.len(), 200);
    slow.send(&encode(&["EVAL", SLOW_SCRIPT, "1", "key", "1300"]));
    let sent = Instant::now();
    wait_until("the time to ask", Duration::from_secs(5), || {
        sent.elapsed() >= Duration::from_millis(700)
    });
    others.iter_mut().for_each(|client| client.send(&encode(&["GET", "key"])));
    assert!(slow.reply().is_error(), "the script itself is late");
    others.iter_mut().map(Client::reply).filter(Value::is_error).count()
}

/// The README and docs/comparison.md give these two numbers.
#[test]
fn a_timeout_fails_one_request_in_keyway_and_all_on_the_connection_in_nutcracker() {
    let _watch = watchdog(Duration::from_secs(60), "a timeout in two proxies");
    let server = RedisServer::start();
    let pool = Pool::over("main", std::slice::from_ref(&server)).with("timeout", "\"1s\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let clients = (0..200).map(|_| keyway.client(0)).collect();
    assert_eq!(failures_behind_a_script(keyway.client(0), clients), 0);

    let pool = NutcrackerPool::from(&server).with("timeout", "1000");
    let nutcracker = Nutcracker::start(vec![pool]);
    let clients = (0..200).map(|_| nutcracker.client(0)).collect();
    assert_eq!(failures_behind_a_script(nutcracker.client(0), clients), 200);
}

/// A backend answers everything in order, but too late. No late reply is ever taken for the answer
/// to a later request.
#[test]
fn a_late_reply_is_never_given_to_a_later_request() {
    let _watch = watchdog(Duration::from_secs(90), "late replies");
    let mut seen = 0;
    let backend = ScriptedBackend::start(move |arguments| {
        let Action::Reply(bytes) = Action::echo_key(arguments) else { unreachable!() };
        if handshake_reply(arguments).is_some() {
            return Action::Reply(bytes);
        }
        seen += 1;
        // Every eighth request takes longer than the timeout, the rest no time.
        if seen % 8 == 0 {
            Action::ReplyAfter(Duration::from_millis(180), bytes)
        } else {
            Action::Reply(bytes)
        }
    });
    let pool =
        Pool::sharded("main", &[format!("{}:1", backend.address())]).with("timeout", "\"100ms\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut clients: Vec<Client> = (0..5).map(|_| keyway.client(0)).collect();
    let (mut own, mut late) = (0, 0);
    for round in 0..40 {
        let key = |nth: usize| format!("{round}:{nth}");
        for (nth, client) in clients.iter_mut().enumerate() {
            client.send(&encode(&["GET", &key(nth)]));
        }
        for (nth, client) in clients.iter_mut().enumerate() {
            match client.reply() {
                reply if is_timeout(&reply) => late += 1,
                reply => {
                    assert_eq!(reply, Value::bulk(key(nth)));
                    own += 1;
                }
            }
        }
    }
    assert!(own > 0 && late > 0, "{own} in time, {late} late: the test saw both");
    assert_eq!(backend.connections(), 1, "the link was kept");
}

/// A server is stopped for good. Its link is given up, though not before many requests have timed
/// out on it, and a new one is made.
#[test]
fn a_link_that_is_truly_stuck_is_closed_and_made_again() {
    let _watch = watchdog(Duration::from_secs(90), "stuck link");
    let server = RedisServer::start();
    let pool = Pool::over("main", std::slice::from_ref(&server)).with("timeout", "\"200ms\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = clients_with_values(&keyway, 1).remove(0);
    let connections_before = connection_number(&server);
    server.process().pause();
    let mut late = 0;
    wait_until("the link is given up", Duration::from_secs(40), || {
        late += 1;
        let reply = client.words("GET key:0");
        assert!(reply.is_error(), "{reply:?}");
        keyway.process().log().contains("connection lost")
    });
    assert!(late > 10, "given up after {late} late replies");
    // The first request on the new link makes the connection; a paused server's kernel accepts it.
    assert!(client.words("GET key:0").is_error());
    server.process().resume();
    wait_until("served again", Duration::from_secs(20), || {
        let reply = client.words("GET key:0");
        assert!(reply == Value::bulk(own_value(0)) || reply.is_error(), "{reply:?}");
        !reply.is_error()
    });
    // Each check of the counter by this test is one connection.
    assert_eq!(connection_number(&server), connections_before + 2, "one new link");
}

/// A server that accepts the connection and never answers its handshake is logged like one that
/// cannot be reached.
#[test]
fn a_handshake_that_takes_too_long_is_logged() {
    let _watch = watchdog(Duration::from_secs(60), "a slow handshake");
    let backend = ScriptedBackend::start(|_| Action::Silence);
    let pool = Pool::sharded("main", &[format!("{}:1", backend.address())])
        .with("password", "\"sesame\"")
        .with("connect_timeout", "\"100ms\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    assert!(keyway.client(0).words("GET a").is_error());
    wait_until("the log says so", Duration::from_secs(10), || {
        let log = keyway.process().log();
        log.contains("cannot connect") && log.contains("the handshake took longer")
    });
    let log = keyway.process().log();
    let label = format!("pool=\"main\" backend=\"{}\"", backend.address());
    for line in log.lines().filter(|line| line.contains("WARN")) {
        assert!(line.contains(&label), "which backend, in the same words everywhere: {line}");
    }
}
