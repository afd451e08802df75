//! WAIT through pools of servers with replicas, some of which do not answer.

#![allow(clippy::disallowed_methods, reason = "waits are timed from outside")]

use std::time::{Duration, Instant};

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Value, encode_words, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const BOUND: Duration = Duration::from_secs(20);

/// Servers, each with a replica that is in sync.
struct Setup {
    keyway: Keyway,
    servers: Vec<RedisServer>,
    replicas: Vec<RedisServer>,
}

impl Setup {
    fn start(count: usize) -> Setup {
        let start = || RedisServer::start_with(&["--repl-diskless-sync-delay", "0"]);
        let servers: Vec<RedisServer> = (0..count).map(|_| start()).collect();
        let replica = |server: &RedisServer| {
            RedisServer::start_with(&["--replicaof", &format!("127.0.0.1 {}", server.port())])
        };
        let replicas: Vec<RedisServer> = servers.iter().map(replica).collect();
        for server in &servers {
            let is_online = || info(server, "replication").contains(",state=online,");
            wait_until("a replica is in step", BOUND, is_online);
        }
        let pool =
            Pool::over("main", &servers).with("hash_tag", "\"{}\"").with("timeout", "\"2s\"");
        Setup { keyway: Keyway::start(KEYWAY, KeywayConfig::new(vec![pool])), servers, replicas }
    }

    fn client(&self) -> Client {
        self.keyway.client(0)
    }

    /// Waits until this many clients are blocked on all servers together.
    fn wait_for_blocked(&self, count: usize) {
        let blocked = |server: &RedisServer| -> usize {
            let text = info(server, "clients");
            let field = text.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
            field.expect("the field").trim().parse().expect("a number")
        };
        wait_until("clients are blocked", BOUND, || {
            self.servers.iter().map(blocked).sum::<usize>() == count
        });
    }
}

fn info(server: &RedisServer, section: &str) -> String {
    server.client().words(&format!("INFO {section}")).text()
}

#[test]
fn replicas_have_what_was_written_when_wait_answers() {
    let _watch = watchdog(Duration::from_secs(60), "wait");
    let setup = Setup::start(3);
    let mut client = setup.client();
    for round in 0..20 {
        let lines: Vec<String> = (0..30).map(|nth| format!("SET k{nth} {round}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).chain(["WAIT 1 10000"]).collect();
        assert_eq!(client.pipeline(&lines)[30], Value::Integer(1), "round {round}");
        let mut found = 0;
        for replica in &setup.replicas {
            let mut replica = replica.client();
            found += (0..30)
                .filter(|nth| {
                    replica.words(&format!("GET k{nth}")) == Value::bulk(round.to_string())
                })
                .count();
        }
        assert_eq!(found, 30, "every write is on a replica");
    }
    // Nothing was left behind in the servers' keys.
    assert_eq!(client.words("DBSIZE"), Value::Integer(30));
    let replies = client.pipeline(&["GET k1", "WAIT 0 0", "GET k1"]);
    assert_eq!((&replies[0], &replies[2]), (&Value::bulk("19"), &Value::bulk("19")));
    assert!(matches!(replies[1], Value::Integer(0..=1)), "whatever they have said by now");
}

#[test]
fn a_replica_that_stands_still_is_waited_for_and_not_counted() {
    let _watch = watchdog(Duration::from_secs(60), "paused replica");
    let setup = Setup::start(2);
    let mut client = setup.client();
    (0..20).for_each(|nth| assert!(!client.words(&format!("SET k{nth} v")).is_error()));
    assert_eq!(client.words("WAIT 1 5000"), Value::Integer(1));
    setup.replicas[1].process().pause();
    (0..20).for_each(|nth| assert!(!client.words(&format!("SET k{nth} w")).is_error()));
    let start = Instant::now();
    assert_eq!(client.words("WAIT 1 400"), Value::Integer(0), "the least of all servers");
    assert!(start.elapsed() >= Duration::from_millis(390), "{:?}", start.elapsed());
    // A connection that was used before waits for later writes, too.
    assert_eq!(client.words("WAIT 1 50"), Value::Integer(0));
    // The wait is longer than the pool's timeout, and no other client is held up.
    client.send(&encode_words("WAIT 1 0"));
    setup.wait_for_blocked(1);
    let mut other = setup.client();
    while start.elapsed() < Duration::from_millis(3_000) {
        assert_eq!(other.words("GET k3"), Value::bulk("w"));
    }
    setup.replicas[1].process().resume();
    assert_eq!(client.reply(), Value::Integer(1));
    setup.wait_for_blocked(0);
}

#[test]
fn who_waits_can_be_unblocked_and_can_leave() {
    let _watch = watchdog(Duration::from_secs(60), "unblock");
    let setup = Setup::start(2);
    let mut client = setup.client();
    let mut other = setup.client();
    let id = client.words("CLIENT ID").integer();
    for (how, expected) in [("", ":0"), (" ERROR", "-UNBLOCKED")] {
        setup.replicas.iter().for_each(|replica| replica.process().pause());
        (0..20).for_each(|nth| assert!(!client.words(&format!("SET k{nth} v")).is_error()));
        client.send(&encode_words("WAIT 1 0"));
        setup.wait_for_blocked(2);
        assert_eq!(other.words(&format!("CLIENT UNBLOCK {id}{how}")), Value::Integer(1));
        let reply = client.raw_reply();
        assert!(reply.starts_with(expected.as_bytes()), "{}", reply.escape_ascii());
        setup.wait_for_blocked(0);
        assert_eq!(other.words(&format!("CLIENT UNBLOCK {id}")), Value::Integer(0));
        setup.replicas.iter().for_each(|replica| replica.process().resume());
        assert_eq!(client.words("WAIT 1 10000"), Value::Integer(1));
    }
    setup.replicas.iter().for_each(|replica| replica.process().pause());
    (0..20).for_each(|nth| assert!(!client.words(&format!("SET k{nth} v")).is_error()));
    for how in 0..2 {
        let mut leaving = setup.client();
        leaving.send(&encode_words("WAIT 1 0"));
        setup.wait_for_blocked(2);
        if how == 0 {
            drop(leaving)
        } else {
            leaving.reset()
        }
        setup.wait_for_blocked(0);
    }
    assert!(other.words("CLIENT LIST").text().lines().count() == 2);
}

#[test]
fn a_server_that_cannot_be_asked_makes_it_an_error() {
    let _watch = watchdog(Duration::from_secs(60), "lost server");
    let mut setup = Setup::start(2);
    let mut client = setup.client();
    setup.replicas.iter().for_each(|replica| replica.process().pause());
    (0..20).for_each(|nth| assert!(!client.words(&format!("SET k{nth} v")).is_error()));
    // The other server would make it wait for ever.
    client.send(&encode_words("WAIT 1 0"));
    setup.wait_for_blocked(2);
    setup.servers[0].kill();
    let text = client.reply().error_text();
    assert!(text.starts_with("ERR WAIT failed on 1 of 2 servers: "), "{text}");
    let server = &setup.servers[1];
    let blocked = || info(server, "clients").contains("blocked_clients:1");
    wait_until("nobody waits on the other server", BOUND, || !blocked());
    let text = client.words("WAIT 1 0").error_text();
    assert!(text.starts_with("ERR WAIT failed on 1 of 2 servers: "), "{text}");
    assert_eq!(client.words("PING"), Value::simple("PONG"));
}

#[test]
fn inside_a_transaction_and_without_replicas_nobody_waits_for_long() {
    let _watch = watchdog(Duration::from_secs(60), "wait at once");
    let setup = Setup::start(2);
    let mut client = setup.client();
    setup.replicas.iter().for_each(|replica| replica.process().pause());
    let replies = client.pipeline(&["MULTI", "SET k v", "WAIT 1 0", "EXEC"]);
    assert!(matches!(replies[3].array(), [_, Value::Integer(0..=1)]), "{replies:?}");
    for (line, text) in [
        ("WAIT x 0", "ERR value is not an integer or out of range"),
        ("WAIT 1 x", "ERR timeout is not an integer or out of range"),
        ("WAIT 1 -1", "ERR timeout is negative"),
    ] {
        assert_eq!(client.words(line).error_text(), text);
        assert_eq!(setup.servers[0].client().words(line).error_text(), text);
    }
    let store = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("cache")]));
    assert_eq!(store.client(0).words("WAIT 0 0"), Value::Integer(0));
    assert_eq!(store.client(0).words("WAIT 1 50"), Value::Integer(0));
}

#[test]
fn a_server_that_forbids_the_channel_makes_it_an_error() {
    let _watch = watchdog(Duration::from_secs(60), "WAIT without its channel");
    let setup = Setup::start(2);
    let mut client = setup.client();
    let acl = |line: &str| {
        assert_eq!(setup.servers[0].client().words(line), Value::simple("OK"), "{line}");
    };
    assert_eq!(client.words("WAIT 1 5000"), Value::Integer(1));
    acl("ACL SETUSER default resetchannels");
    for _ in 0..2 {
        let text = client.words("WAIT 1 5000").error_text();
        assert!(text.starts_with("NOPERM WAIT failed on 1 of 2 servers: "), "{text}");
    }
    // Other requests that wait on the same connection are not affected.
    for nth in 0..10 {
        client.words(&format!("RPUSH list{nth} v"));
        assert!(!client.words(&format!("BLPOP list{nth} 5")).is_error());
    }
    acl("ACL SETUSER default allchannels");
    assert_eq!(client.words("WAIT 1 5000"), Value::Integer(1));
}

#[test]
fn how_long_a_client_waits_is_no_latency_of_the_servers() {
    let _watch = watchdog(Duration::from_secs(60), "latency");
    let setup = Setup::start(1);
    let mut client = setup.client();
    // A replica in sync has not reported so yet.
    assert_eq!(client.words("WAIT 1 10000"), Value::Integer(1));
    for _ in 0..4 {
        // There is one replica.
        assert_eq!(client.pipeline(&["SET k v", "WAIT 2 500"])[1], Value::Integer(1));
    }
    let text = client.words("INFO backends").text();
    let field = text.split(',').find_map(|field| field.strip_prefix("latency_usec="));
    let micros: u64 = field.expect("a latency").parse().expect("a number");
    assert!(micros < 200_000, "{text}");
}
