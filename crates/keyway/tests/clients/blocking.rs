//! Commands that block, through pools of real servers. Each waits on a connection of its own, holds
//! up no other client, and ends with its client.

#![allow(clippy::disallowed_methods, reason = "waits are timed from outside")]

use std::time::{Duration, Instant};

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Value, encode, encode_words,
    raise_descriptor_limit, skipped, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const BOUND: Duration = Duration::from_secs(20);

struct Setup {
    keyway: Keyway,
    servers: Vec<RedisServer>,
}

impl Setup {
    fn start(servers: usize, workers: usize) -> Setup {
        Setup::start_with(servers, workers, &[])
    }

    fn start_with(servers: usize, workers: usize, arguments: &[&str]) -> Setup {
        let servers: Vec<_> = (0..servers).map(|_| RedisServer::start_with(arguments)).collect();
        let pool =
            Pool::over("main", &servers).with("hash_tag", "\"{}\"").with("timeout", "\"1s\"");
        let config = KeywayConfig::new(vec![pool]).with_server("workers", &workers.to_string());
        Setup { keyway: Keyway::start(KEYWAY, config), servers }
    }

    fn client(&self) -> Client {
        self.keyway.client(0)
    }

    /// Returns the number of clients blocked on all servers.
    fn blocked(&self) -> i64 {
        let count = |server: &RedisServer| -> i64 {
            let text = server.client().words("INFO clients").text();
            let field = text.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
            field.expect("the field").trim().parse().expect("a number")
        };
        self.servers.iter().map(count).sum()
    }

    fn wait_for_blocked(&self, count: i64) {
        wait_until(&format!("{count} blocked"), BOUND, || self.blocked() == count);
    }
}

#[test]
fn every_blocking_command_is_woken_and_times_out_as_on_a_bare_server() {
    let _watch = watchdog(Duration::from_secs(120), "every command");
    let setup = Setup::start(4, 1);
    let bare = RedisServer::start();
    let cases = [
        ("BLPOP {t}a {t}b 10", "RPUSH {t}b v"),
        ("BRPOP {t}a {t}b 10", "RPUSH {t}a v w"),
        ("BLMOVE {t}a {t}d LEFT RIGHT 10", "RPUSH {t}a v"),
        ("BRPOPLPUSH {t}a {t}d 10", "RPUSH {t}a v"),
        ("BLMPOP 10 2 {t}a {t}b LEFT COUNT 2", "RPUSH {t}b v w x"),
        ("BZPOPMIN {t}z {t}y 10", "ZADD {t}y 1 m 2 n"),
        ("BZPOPMAX {t}z {t}y 10", "ZADD {t}y 1 m 2 n"),
        ("BZMPOP 10 2 {t}z {t}y MAX COUNT 2", "ZADD {t}z 1 m 2 n"),
        ("XREAD BLOCK 10000 STREAMS {t}s $", "XADD {t}s 1-1 f v"),
    ];
    for (blocking, waking) in cases {
        let is_blocked = || {
            let text = bare.client().words("INFO clients").text();
            text.contains("blocked_clients:1\r")
        };
        bare.client().words("FLUSHALL");
        setup.servers.iter().for_each(|server| drop(server.client().words("FLUSHALL")));
        let (mut waiting, mut reference) = (setup.client(), bare.client());
        waiting.send(&encode_words(blocking));
        reference.send(&encode_words(blocking));
        setup.wait_for_blocked(1);
        wait_until("the bare server's client waits", BOUND, is_blocked);
        setup.client().words(waking);
        bare.client().words(waking);
        assert_eq!(waiting.reply(), reference.reply(), "{blocking}");
        // The command ends by its timeout, without being woken.
        let brief = blocking.replace("10000", "20").replace(" 10", " 0.02");
        setup.servers.iter().for_each(|server| drop(server.client().words("FLUSHALL")));
        bare.client().words("FLUSHALL");
        assert_eq!(waiting.words(&brief), reference.words(&brief), "{brief}");
        assert_eq!(waiting.words("PING"), Value::simple("PONG"));
    }
    for wrong in ["BLPOP {t}a -1", "BLPOP {t}a x", "BLMOVE {t}a {t}b UP DOWN 0", "BLPOP"] {
        assert_eq!(setup.client().words(wrong), bare.client().words(wrong), "{wrong}");
    }
    assert!(setup.client().words("BLPOP a b c d e f 0").error_text().starts_with("CROSSSLOT"));
}

#[test]
fn a_group_reader_waits_and_is_served() {
    let _watch = watchdog(Duration::from_secs(60), "xreadgroup");
    let setup = Setup::start(2, 1);
    let mut waiting = setup.client();
    waiting.words("XGROUP CREATE s g $ MKSTREAM");
    waiting.send(&encode_words("XREADGROUP GROUP g c BLOCK 0 STREAMS s >"));
    setup.wait_for_blocked(1);
    setup.client().words("XADD s 1-1 f v");
    assert!(format!("{:?}", waiting.reply()).contains("1-1"));
}

#[test]
fn a_client_that_waits_holds_up_nobody_and_outlives_the_pool_timeout() {
    let _watch = watchdog(Duration::from_secs(60), "holds up nobody");
    let setup = Setup::start(1, 1);
    let mut waiting = setup.client();
    waiting.send(&encode_words("BLPOP q 0"));
    setup.wait_for_blocked(1);
    let start = Instant::now();
    let mut other = setup.client();
    while start.elapsed() < Duration::from_millis(2_500) {
        assert_eq!(other.words("PING"), Value::simple("PONG"));
        assert_eq!(other.words("GET k"), Value::Nil);
    }
    other.words("RPUSH q late");
    let expected = Value::Array(vec![Value::bulk("q"), Value::bulk("late")]);
    assert_eq!(waiting.reply(), expected, "after more than two timeouts of the pool");
}

#[test]
fn requests_around_a_blocking_one_run_in_their_order() {
    let _watch = watchdog(Duration::from_secs(60), "order");
    let setup = Setup::start(2, 1);
    let mut client = setup.client();
    for round in 0..50 {
        let replies = client.pipeline(&[
            "DEL {o}q",
            "RPUSH {o}q a b",
            "BLPOP {o}q 0",
            "LLEN {o}q",
            "BRPOP {o}q 0",
            "EXISTS {o}q",
        ]);
        let popped = |value: &str| Value::Array(vec![Value::bulk("{o}q"), Value::bulk(value)]);
        assert_eq!(
            replies[2..],
            [popped("a"), Value::Integer(1), popped("b"), Value::Integer(0)],
            "round {round}"
        );
    }
    // Requests pipelined behind it wait for it.
    client.send(&encode_words("BLPOP {o}w 0"));
    client.send(&encode_words("GET {o}x"));
    client.send(&encode_words("PING"));
    setup.wait_for_blocked(1);
    setup.client().words("SET {o}x 1");
    setup.client().words("RPUSH {o}w v");
    let replies = client.replies(3);
    assert_eq!(replies[1..], [Value::bulk("1"), Value::simple("PONG")]);
}

#[test]
fn a_client_that_leaves_frees_its_connection() {
    let _watch = watchdog(Duration::from_secs(60), "leaving");
    let setup = Setup::start(2, 2);
    for how in 0..3 {
        let mut clients: Vec<Client> = (0..100).map(|_| setup.client()).collect();
        for (nth, client) in clients.iter_mut().enumerate() {
            client.send(&encode_words(&format!("BLPOP leave:{nth} 0")));
        }
        setup.wait_for_blocked(100);
        match how {
            0 => drop(clients),
            1 => clients.into_iter().for_each(Client::reset),
            _ => clients.iter().for_each(Client::close_write),
        }
        setup.wait_for_blocked(0);
    }
    // The request is sent together with the end of the connection.
    let mut client = setup.client();
    client.send(&encode_words("BLPOP leave:last 0"));
    client.close_write();
    client.expect_closed();
    setup.wait_for_blocked(0);
    // An element that is pushed is not given to a client that has left.
    let mut client = setup.client();
    client.words("RPUSH leave:1 v");
    assert_eq!(client.words("LLEN leave:1"), Value::Integer(1));
}

#[test]
fn a_client_that_leaves_with_much_behind_its_command_takes_nothing() {
    let _watch = watchdog(Duration::from_secs(60), "leaving");
    let setup = Setup::start(1, 1);
    for len in [1, 200_000, 4_000_000] {
        let mut client = setup.client();
        client.send(&encode_words("BLPOP leave 0"));
        setup.wait_for_blocked(1);
        client.send(&encode(&[b"SET".as_slice(), b"other", &vec![b'x'; len]]));
        drop(client);
        setup.wait_for_blocked(0);
        let mut other = setup.client();
        other.words("RPUSH leave v");
        assert_eq!(other.words("LPOP leave"), Value::bulk("v"), "{len} bytes behind");
    }
    // More bytes are pending than are kept, so Keyway cannot tell whether the client is still
    // there.
    let mut client = setup.client();
    client.send(&encode_words("BLPOP leave 0"));
    setup.wait_for_blocked(1);
    let large = encode(&[b"SET".as_slice(), b"other", &vec![b'x'; 24 << 20]]);
    let _ = client.try_send(&large);
    setup.wait_for_blocked(0);
    assert!(client.try_closed());
}

#[test]
fn client_unblock_ends_a_wait_on_any_worker() {
    let _watch = watchdog(Duration::from_secs(60), "client unblock");
    let setup = Setup::start(2, 2);
    for round in 0..8 {
        let mut waiting = setup.client();
        let id = waiting.words("CLIENT ID").integer();
        waiting.send(&encode_words("BLPOP unblock 0"));
        setup.wait_for_blocked(1);
        let mut other = setup.client();
        let how = if round % 2 == 0 { "" } else { " ERROR" };
        assert_eq!(other.words(&format!("CLIENT UNBLOCK {id}{how}")), Value::Integer(1));
        let reply = waiting.reply();
        if how.is_empty() {
            assert_eq!(reply, Value::NilArray);
        } else {
            assert!(reply.error_text().starts_with("UNBLOCKED"), "{reply:?}");
        }
        assert_eq!(other.words(&format!("CLIENT UNBLOCK {id}")), Value::Integer(0));
        assert_eq!(waiting.words("PING"), Value::simple("PONG"));
    }
}

#[test]
fn a_server_that_dies_ends_the_wait_with_an_error() {
    let _watch = watchdog(Duration::from_secs(60), "server dies");
    let mut setup = Setup::start(1, 1);
    let mut waiting = setup.client();
    waiting.send(&encode_words("BLPOP q 0"));
    setup.wait_for_blocked(1);
    setup.servers[0].restart();
    let text = waiting.reply().error_text();
    assert!(text.contains("closed the connection"), "{text}");
    let mut other = setup.client();
    wait_until("the server is back", BOUND, || !other.words("RPUSH q v").is_error());
    assert!(matches!(waiting.words("BLPOP q 0"), Value::Array(_)));
}

#[test]
fn draining_ends_waits_and_loses_no_element() {
    let _watch = watchdog(Duration::from_secs(60), "draining");
    let Setup { keyway, servers } = Setup::start(1, 1);
    let mut waiting = keyway.client(0);
    waiting.send(&encode_words("BLPOP q 0"));
    let blocked = |server: &RedisServer| {
        server.client().words("INFO clients").text().contains("blocked_clients:1\r")
    };
    wait_until("it waits", BOUND, || blocked(&servers[0]));
    let start = Instant::now();
    let (status, _) = keyway.stop(Duration::from_secs(10));
    assert!(status.success() && start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert!(waiting.reply().error_text().starts_with("UNBLOCKED Keyway is stopping"));
    waiting.expect_closed();
}

/// Ten thousand clients wait, or as many as descriptors allow: each costs Keyway two and this
/// process one.
#[test]
fn ten_thousand_wait_and_all_are_served() {
    let _watch = watchdog(Duration::from_secs(240), "ten thousand");
    let count = 10_000.min((raise_descriptor_limit() - 500) / 2);
    if count < 10_000 {
        skipped(&format!("10,000 blocked clients: descriptors allow {count}, which were tried"));
    }
    let setup = Setup::start_with(2, 1, &["--maxclients", "12000"]);
    let mut clients: Vec<Client> = (0..count).map(|_| setup.client()).collect();
    for (nth, client) in clients.iter_mut().enumerate() {
        client.send(&encode_words(&format!("BLPOP many:{nth} 0")));
        // A server's backlog holds 511 connections that it has not accepted.
        if nth % 400 == 399 {
            setup.wait_for_blocked(nth as i64 + 1);
        }
    }
    setup.wait_for_blocked(count as i64);
    let mut pusher = setup.client();
    let pushes: Vec<String> = (0..count).map(|nth| format!("RPUSH many:{nth} {nth}")).collect();
    pusher.pipeline(&pushes.iter().map(String::as_str).collect::<Vec<_>>());
    for (nth, client) in clients.iter_mut().enumerate() {
        let expected = [Value::bulk(format!("many:{nth}")), Value::bulk(nth.to_string())];
        assert_eq!(client.reply(), Value::Array(expected.to_vec()));
    }
    setup.wait_for_blocked(0);
    // Few connections stay open.
    let count = |server: &RedisServer| server.client().words("CLIENT LIST").text().lines().count();
    wait_until("connections end", BOUND, || setup.servers.iter().map(count).sum::<usize>() < 80);
}

#[test]
fn how_long_a_command_waits_is_nobodys_latency() {
    let _watch = watchdog(Duration::from_secs(60), "latency");
    let setup = Setup::start(1, 1);
    let mut client = setup.client();
    client.words("BLPOP q 0.3");
    client.words("LLEN q");
    let sum = |name: &str| setup.keyway.metrics().sum(name, &[]);
    assert!(sum("keyway_backend_latency_seconds_sum") < 0.2);
    assert!(sum("keyway_pool_reply_latency_seconds_sum") < 0.2);
    assert!(sum("keyway_pool_reply_latency_seconds_count") >= 1.0);
}

#[test]
fn how_long_a_command_waited_that_failed_is_nobodys_latency_either() {
    let _watch = watchdog(Duration::from_secs(60), "latency of what fails");
    let mut setup = Setup::start(2, 1);
    let mut client = setup.client();
    client.words("WAIT 1 500");
    client.send(&encode_words("BLPOP q 0"));
    setup.wait_for_blocked(1);
    // The wait is long enough that it would be noticed.
    let start = Instant::now();
    let mut other = setup.client();
    wait_until("it has waited", BOUND, || {
        other.words("PING");
        start.elapsed() > Duration::from_millis(1500)
    });
    setup.servers.iter_mut().for_each(RedisServer::kill);
    let text = client.reply().error_text();
    assert!(text.contains("closed the connection"), "{text}");
    let sum = |name: &str| setup.keyway.metrics().sum(name, &[]);
    wait_until("its failure is counted", BOUND, || sum("keyway_pool_errors_total") >= 1.0);
    assert!(sum("keyway_pool_reply_latency_seconds_sum") < 1.5);
}

#[test]
fn a_paused_pool_answers_late_and_loses_nothing() {
    let _watch = watchdog(Duration::from_secs(60), "client pause");
    let setup = Setup::start(2, 2);
    let (mut operator, mut client) = (setup.client(), setup.client());
    client.words("SET p 1");
    let start = Instant::now();
    assert_eq!(operator.words("CLIENT PAUSE 2000 WRITE"), Value::simple("OK"));
    assert_eq!(client.words("GET p"), Value::bulk("1"));
    assert!(start.elapsed() < Duration::from_millis(2000), "reads go on");
    let replies = client.pipeline(&["INCR p", "GET p", "MULTI", "INCR p", "EXEC"]);
    assert!(start.elapsed() >= Duration::from_millis(2000), "writes wait");
    assert_eq!(replies[1], Value::bulk("2"));
    assert_eq!(replies[4], Value::Array(vec![Value::Integer(3)]));
    // The pause is ended early, for clients of every worker.
    operator.words("CLIENT PAUSE 60000");
    let mut clients: Vec<Client> = (0..8).map(|_| setup.client()).collect();
    clients.iter_mut().for_each(|client| client.send(&encode_words("INCR p")));
    assert_eq!(operator.words("CLIENT UNPAUSE"), Value::simple("OK"));
    let mut last: Vec<i64> = clients.iter_mut().map(|client| client.reply().integer()).collect();
    last.sort_unstable();
    assert_eq!(last, (4..12).collect::<Vec<_>>());
    assert!(start.elapsed() < Duration::from_secs(40));
}

/// The error of a server that accepts no further connection is passed on, and the server goes on
/// serving its existing connections.
#[test]
fn a_server_without_room_is_quoted_and_stays_in_use() {
    let _watch = watchdog(Duration::from_secs(60), "maxclients");
    let servers = RedisServer::start_many(2);
    let pool = Pool::over("main", &servers)
        .with("hash_tag", "\"{}\"")
        .with("ejection", "{ after_failures = 1, for = \"30s\", rejoin = \"serve\" }");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    for key in ["a", "b", "c", "d", "e"] {
        assert_eq!(client.words(&format!("SET {key} 1")), Value::simple("OK"));
    }
    let mut inside: Vec<Client> = servers.iter().map(RedisServer::client).collect();
    for server in &mut inside {
        // This connection and Keyway's own are the only ones.
        assert_eq!(server.words("CONFIG SET maxclients 1"), Value::simple("OK"));
    }
    for round in 0..10 {
        let text = client.words("BLPOP queue 0").error_text();
        assert!(text.contains("ERR max number of clients reached"), "{round}: {text}");
        assert!(text.ends_with("not executed"), "{round}: {text}");
        for key in ["a", "b", "c", "d", "e"] {
            assert_eq!(client.words(&format!("GET {key}")), Value::bulk("1"));
        }
    }
    for server in &mut inside {
        server.words("CONFIG SET maxclients 1000");
        server.words("RPUSH queue v");
    }
    assert_eq!(client.words("BLPOP queue 0"), Value::Array(["queue", "v"].map(Value::bulk).into()));
}

/// A client that closes its side after a blocking command gets the replies to the commands before
/// it, whenever its end is noticed. No command of it blocks then.
#[test]
fn who_sends_its_end_gets_the_replies_to_what_came_before() {
    let _watch = watchdog(Duration::from_secs(60), "half closed");
    let setup = Setup::start(2, 2);
    assert_eq!(setup.client().words("SET half 1"), Value::simple("OK"));
    for round in 0..200 {
        let mut client = setup.client();
        client.send(b"GET half\r\nBLPOP half:none 0\r\nGET half\r\n");
        client.close_write();
        assert_eq!(client.reply(), Value::bulk("1"), "{round}");
        // Its end was noticed before or after the blocking command.
        if let Ok(reply) = client.try_reply() {
            assert!(reply.error_text().starts_with("UNBLOCKED"), "{reply:?}");
            assert_eq!(client.reply(), Value::bulk("1"));
        }
    }
    setup.wait_for_blocked(0);
}

/// A pause concerns one pool, even if other pools use its servers.
#[test]
fn a_pause_holds_up_no_other_pool() {
    let _watch = watchdog(Duration::from_secs(60), "a pause");
    let servers = RedisServer::start_many(1);
    let pools =
        vec![Pool::over("one", &servers), Pool::over("other", &servers), Pool::store("local")];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools).with_server("workers", "2"));
    let mut clients: Vec<Client> = (0..3).map(|pool| keyway.client(pool)).collect();
    assert_eq!(clients[0].words("CLIENT PAUSE 60000"), Value::simple("OK"));
    clients[0].send(&encode_words("INCR n"));
    assert_eq!(clients[1].words("SET n 10"), Value::simple("OK"));
    assert_eq!(clients[2].words("INCR n"), Value::Integer(1));
    assert_eq!(clients[1].words("INCR n"), Value::Integer(11), "it is held up still");
    let mut same = keyway.client(0);
    assert_eq!(same.words("CLIENT UNPAUSE"), Value::simple("OK"));
    assert_eq!(clients[0].reply(), Value::Integer(12));
}
