//! A pool whose store is the primary of redis-servers and of other Keyways: how they come to it,
//! what its clients are told of them, and how it is handed over.

use std::net::SocketAddr;
use std::time::Duration;

use keyway_testkit::{
    CheckedLoad, Client, Keyway, KeywayConfig, LoadShape, Pool, Random, RedisServer, TempDir,
    Value, encode_words, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const BOUND: Duration = Duration::from_secs(30);

fn config(pool: Pool) -> KeywayConfig {
    let memcached = Pool::store("main").spoken_to_in("memcached");
    KeywayConfig::new(vec![pool.with("memory_max", "\"256MiB\""), memcached])
        .with_server("workers", "2")
}

fn start(pool: Pool) -> Keyway {
    Keyway::start(KEYWAY, config(pool))
}

fn primary() -> Keyway {
    start(Pool::store("main"))
}

fn follower_of(address: SocketAddr) -> Keyway {
    start(Pool::store("main").with("replica_of", &format!("\"redis://{address}\"")))
}

fn redis_of(address: SocketAddr) -> RedisServer {
    RedisServer::start_with(&["--replicaof", "127.0.0.1", &address.port().to_string()])
}

fn info(client: &mut Client, name: &str) -> String {
    let info = client.words("INFO replication").text();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

fn await_up(client: &mut Client) {
    wait_until("the link is up", BOUND, || info(client, "master_link_status") == "up");
}

/// Waits until a replica has what its primary has, at the same offset of the same history.
fn await_same(from: &mut Client, to: &mut Client) {
    wait_until("the replica has caught up", BOUND, || {
        info(to, "master_link_status") == "up"
            && info(to, "master_replid") == info(from, "master_replid")
            && info(to, "master_repl_offset") == info(from, "master_repl_offset")
    });
}

fn ok(client: &mut Client, line: &str) {
    assert_eq!(client.words(line), Value::simple("OK"), "{line}");
}

/// Writes of several types.
fn write(client: &mut Client, seed: u64, count: usize) {
    let mut random = Random::new(seed);
    let lines: Vec<String> = (0..count)
        .map(|_| {
            let (key, number) = (random.below(50), random.below(1000));
            match random.below(8) {
                0 => format!("SET s{key} {number} PX 100000"),
                1 => format!("APPEND s{key} {number}"),
                2 => format!("RPUSH l{key} {number}"),
                3 => format!("SADD m{key} {number} a"),
                4 => format!("SPOP m{key}"),
                5 => format!("ZADD z{key} {number} m"),
                6 => format!("HSET h{key} f{number} v"),
                _ => format!("DEL s{key} l{number}"),
            }
        })
        .collect();
    for chunk in lines.chunks(100) {
        client.pipeline(&chunk.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

/// All keys with their values, in an order of their own.
fn contents(client: &mut Client) -> Vec<String> {
    let mut keys: Vec<String> = client.words("KEYS *").array().iter().map(Value::text).collect();
    keys.sort();
    let value = |key: &String| {
        let kind = client.words(&format!("TYPE {key}")).text();
        let line = match &*kind {
            "string" => format!("GET {key}"),
            "list" => format!("LRANGE {key} 0 -1"),
            "set" => format!("SMEMBERS {key}"),
            "zset" => format!("ZRANGE {key} 0 -1 WITHSCORES"),
            _ => format!("HGETALL {key}"),
        };
        let mut values = match client.words(&line) {
            Value::Array(values) => values.iter().map(Value::text).collect(),
            value => vec![value.text()],
        };
        if kind == "set" || kind == "hash" {
            values.sort();
        }
        format!("{key} {kind} {values:?}")
    };
    keys.iter().map(value).collect()
}

#[test]
fn servers_follow_a_pool_and_its_clients_are_told_of_them() {
    let _watchdog = watchdog(Duration::from_secs(150), "replicas of a pool");
    let keyway = primary();
    let mut client = keyway.client(0);
    assert_eq!(info(&mut client, "connected_slaves"), "0");
    write(&mut client, 1, 2000);
    let server = redis_of(keyway.address(0));
    let other = follower_of(keyway.address(0));
    let (mut at_server, mut at_other) = (server.client(), other.client(0));
    await_up(&mut at_server);
    await_up(&mut at_other);
    write(&mut client, 2, 2000);
    assert_eq!(client.words("WAIT 2 20000"), Value::Integer(2));
    await_same(&mut client, &mut at_server);
    await_same(&mut client, &mut at_other);
    let expected = contents(&mut client);
    assert!(expected.len() > 50);
    assert_eq!(contents(&mut at_server), expected);
    assert_eq!(contents(&mut at_other), expected);
    // The clients see both replicas, by the ports at which these serve their own clients.
    assert_eq!(info(&mut client, "role"), "master");
    assert_eq!(info(&mut client, "connected_slaves"), "2");
    let told = [info(&mut client, "slave0"), info(&mut client, "slave1")].concat();
    for port in [server.port(), other.address(0).port()] {
        assert!(told.contains(&format!("ip=127.0.0.1,port={port},state=online")), "{told}");
    }
    let role = client.words("ROLE");
    assert_eq!(role.array()[0], Value::bulk("master"));
    assert_eq!(role.array()[2].array().len(), 2);
    assert_eq!(info(&mut client, "repl_backlog_active"), "1");
    for (name, value) in [("repl-backlog-size", "1048576"), ("min-replicas-to-write", "0")] {
        let got = client.words(&format!("CONFIG GET {name}"));
        assert_eq!(got.array()[1], Value::bulk(value), "{name}");
    }
    let memory = client.words("INFO memory").text();
    for name in ["mem_replication_backlog:", "mem_clients_slaves:"] {
        let line = memory.lines().find_map(|line| line.strip_prefix(name));
        let bytes: u64 = line.and_then(|line| line.trim().parse().ok()).unwrap_or_default();
        assert!(bytes > 0 && bytes < 16 << 20, "{name} {memory}");
    }
    // A replica that lags is waited for until the time is over.
    server.process().signal(keyway_testkit::Signal::STOP);
    client.words("SET late v");
    assert_eq!(client.words("WAIT 2 300"), Value::Integer(1));
    server.process().signal(keyway_testkit::Signal::CONT);
    assert_eq!(client.words("WAIT 2 20000"), Value::Integer(2));
    // In a transaction nobody waits.
    ok(&mut client, "MULTI");
    client.words("SET k v");
    client.words("WAIT 2 0");
    assert_eq!(client.words("EXEC").array().len(), 2);
    // The flags of memcached clients go to another Keyway, and to no other server.
    let mut memcached = keyway.memcached_client(1);
    memcached.say("set flagged 7 0 1\r\nx\r\n");
    await_same(&mut client, &mut at_other);
    assert_eq!(
        other.memcached_client(1).say("get flagged\r\n"),
        "VALUE flagged 7 1\r\nx\r\nEND\r\n"
    );
    await_same(&mut client, &mut at_server);
    assert_eq!(at_server.words("GET flagged"), Value::bulk("x"));
}

#[test]
fn a_client_becomes_a_replica_behind_its_replies_and_is_no_client_then() {
    let _watchdog = watchdog(Duration::from_secs(90), "PSYNC by hand");
    let keyway = primary();
    let mut client = keyway.client(0);
    client.words("SET k v");
    let mut replica = keyway.client(0);
    for (line, error) in [
        ("REPLCONF listening-port", "ERR syntax error"),
        ("REPLCONF listening-port x", "ERR REPLCONF value is out of range"),
        ("REPLCONF other 1", "ERR Unrecognized REPLCONF option"),
        ("PSYNC ? x", "ERR value is not an integer or out of range"),
        ("PSYNC ? -1 OTHER", "ERR syntax error"),
    ] {
        assert_eq!(replica.words(line).error_text(), error, "{line}");
    }
    ok(&mut replica, "MULTI");
    let text = "ERR Command not allowed inside a transaction";
    assert_eq!(replica.words("PSYNC ? -1").error_text(), text);
    ok(&mut replica, "DISCARD");
    // Requests before the PSYNC are answered first. Requests behind it go along.
    ok(&mut replica, "REPLCONF listening-port 7 capa eof capa psync2");
    let bytes = [encode_words("GET k"), encode_words("PSYNC ? -1"), encode_words("REPLCONF ACK 0")];
    replica.send(&bytes.concat());
    assert_eq!(replica.reply(), Value::bulk("v"));
    let answer = replica.reply().text();
    assert!(answer.starts_with("FULLRESYNC "), "{answer}");
    wait_until("the replica is shown", BOUND, || info(&mut client, "slave0").contains("port=7,"));
    // It is no client any more: CLIENT KILL does not concern it.
    client.words("CLIENT KILL TYPE normal SKIPME yes");
    assert_eq!(info(&mut client, "connected_slaves"), "1");
    drop(replica);
    wait_until("the replica has left", BOUND, || info(&mut client, "connected_slaves") == "0");
    assert_eq!(client.words("WAIT 0 0"), Value::Integer(0));
    assert_eq!(client.words("WAIT 1 50"), Value::Integer(0));
}

#[test]
fn writes_need_replicas_where_the_pool_says_so() {
    let _watchdog = watchdog(Duration::from_secs(90), "min_replicas");
    let bounds = "{ min_replicas = 1, min_replicas_max_lag = \"2s\" }";
    let keyway = start(Pool::store("main").with("replication", bounds));
    let mut client = keyway.client(0);
    let refusal = "NOREPLICAS Not enough good replicas to write.";
    assert_eq!(client.words("SET k v").error_text(), refusal);
    assert_eq!(client.words("GET k"), Value::Nil);
    let mut memcached = keyway.memcached_client(1);
    let refused = "SERVER_ERROR not enough replicas to write\r\n";
    assert_eq!(memcached.say("set k 0 0 1\r\nx\r\n"), refused);
    let server = redis_of(keyway.address(0));
    wait_until("a write is served", BOUND, || client.words("SET k v") == Value::simple("OK"));
    server.process().signal(keyway_testkit::Signal::STOP);
    wait_until("writes are refused", BOUND, || client.words("SET k v").is_error());
    server.process().signal(keyway_testkit::Signal::CONT);
    wait_until("a write is served", BOUND, || client.words("SET k v") == Value::simple("OK"));
}

/// Hands over under load, and back.
fn hands_over(successor: &dyn Fn(SocketAddr) -> (Client, SocketAddr)) {
    hands_over_from(&primary(), successor);
}

fn hands_over_from(keyway: &Keyway, successor: &dyn Fn(SocketAddr) -> (Client, SocketAddr)) {
    let mut client = keyway.client(0);
    wait_until("writes are served", BOUND, || !client.words("SET first v").is_error());
    let (mut other, address) = successor(keyway.address(0));
    await_up(&mut other);
    let busy = FAR.map(|seed| {
        let mut client = keyway.client(0);
        std::thread::spawn(move || {
            let mut written = 0;
            // The first write that is refused ends it: all before were acknowledged.
            while client.words(&format!("SET w{seed}:{written} v")) == Value::simple("OK") {
                written += 1;
            }
            (seed, written)
        })
    });
    wait_until("writes", BOUND, || client.words("GET w1:200") == Value::bulk("v"));
    ok(&mut client, &format!("FAILOVER TO {} {} TIMEOUT 20000", address.ip(), address.port()));
    wait_until("the replica has taken over", BOUND, || info(&mut other, "role") == "master");
    await_up(&mut client);
    for thread in busy {
        let (seed, written) = thread.join().expect("a writer");
        for nth in 0..written {
            let key = format!("GET w{seed}:{nth}");
            assert_eq!(other.words(&key), Value::bulk("v"), "{key} was acknowledged");
        }
    }
    assert_eq!(info(&mut client, "role"), "slave");
    assert_eq!(info(&mut client, "master_failover_state"), "no-failover");
    assert!(client.words("SET k v").error_text().starts_with("READONLY"));
    ok(&mut other, "SET after v");
    await_same(&mut other, &mut client);
    assert_eq!(client.words("GET after"), Value::bulk("v"));
    let log = keyway.process().log();
    assert!(log.contains("the replica has taken over"), "{log}");
    // And back, where the one that has taken over can do it.
    let own = keyway.address(0);
    ok(&mut other, &format!("FAILOVER TO {} {} TIMEOUT 20000", own.ip(), own.port()));
    wait_until("it is the primary again", BOUND, || info(&mut client, "role") == "master");
    await_up(&mut other);
    ok(&mut client, "SET again v");
    await_same(&mut client, &mut other);
}

const FAR: [u64; 2] = [1, 2];

#[test]
fn a_pool_is_handed_over_to_a_redis_server_under_load_and_back() {
    let _watchdog = watchdog(Duration::from_secs(180), "FAILOVER to a redis-server");
    let kept = std::cell::RefCell::new(Vec::new());
    hands_over(&|at| {
        let server = redis_of(at);
        let found = (server.client(), server.address());
        kept.borrow_mut().push(server);
        found
    });
}

#[test]
fn a_pool_is_handed_over_to_another_keyway_under_load_and_back() {
    let _watchdog = watchdog(Duration::from_secs(180), "FAILOVER to a Keyway");
    let kept = std::cell::RefCell::new(Vec::new());
    hands_over(&|at| {
        let keyway = follower_of(at);
        let found = (keyway.client(0), keyway.address(0));
        kept.borrow_mut().push(keyway);
        found
    });
}

#[test]
fn a_pool_with_a_log_is_handed_over_and_back_and_its_log_has_all() {
    let _watchdog = watchdog(Duration::from_secs(180), "FAILOVER of a pool with a log");
    let folder = TempDir::new();
    let log = format!("{{ dir = {:?}, fsync = \"always\" }}", folder.path().display().to_string());
    let mut keyway = start(Pool::store("main").with("log", &log));
    let kept = std::cell::RefCell::new(Vec::new());
    hands_over_from(&keyway, &|at| {
        let server = redis_of(at);
        let found = (server.client(), server.address());
        kept.borrow_mut().push(server);
        found
    });
    let expected = contents(&mut keyway.client(0));
    keyway.process().signal(keyway_testkit::Signal::KILL);
    let _ = keyway.process_mut().wait_exit(BOUND);
    let again = start(Pool::store("main").with("log", &log));
    let mut client = again.client(0);
    wait_until("the log is loaded", BOUND, || !client.words("DBSIZE").is_error());
    assert!(expected.len() > 200 && contents(&mut client) == expected);
}

/// A replica by hand that has everything, in front of a server that does not take over.
#[test]
fn what_memcached_clients_want_flushed_later_outlasts_a_failover_that_is_given_up() {
    let _watchdog = watchdog(Duration::from_secs(90), "flush_all and FAILOVER");
    let keyway = primary();
    let (mut client, mut memcached) = (keyway.client(0), keyway.memcached_client(1));
    let other = RedisServer::start();
    let mut replica = keyway.client(0);
    ok(&mut replica, &format!("REPLCONF listening-port {} capa eof capa psync2", other.port()));
    let answer = replica.words("PSYNC ? -1").text();
    assert!(answer.starts_with("FULLRESYNC "), "{answer}");
    replica.send(&encode_words("REPLCONF ACK 99999999"));
    wait_until("the replica is online", BOUND, || {
        let _ = replica.try_send(&encode_words("REPLCONF ACK 99999999"));
        info(&mut client, "slave0").contains("online")
    });
    assert_eq!(memcached.say("set item 0 0 1\r\nx\r\n"), "STORED\r\n");
    assert_eq!(memcached.say("flush_all 4\r\n"), "OK\r\n");
    ok(&mut client, &format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 20000", other.port()));
    wait_until("the other server has refused", BOUND, || {
        let _ = replica.try_send(&encode_words("REPLCONF ACK 99999999"));
        keyway.process().log().contains("the replica has refused to take over")
    });
    wait_until("it is the primary again", BOUND, || info(&mut client, "role") == "master");
    wait_until("the item is flushed", BOUND, || memcached.say("get item\r\n") == "END\r\n");
}

#[test]
fn failover_is_refused_given_up_and_ended_as_in_redis() {
    let _watchdog = watchdog(Duration::from_secs(120), "FAILOVER that is not");
    let keyway = primary();
    let mut client = keyway.client(0);
    let refused = |client: &mut Client, line: &str, text: &str| {
        assert_eq!(client.words(line).error_text(), text, "{line}");
    };
    refused(&mut client, "FAILOVER", "ERR FAILOVER requires connected replicas.");
    refused(&mut client, "FAILOVER ABORT", "ERR No failover in progress.");
    ok(&mut client, "MULTI");
    refused(&mut client, "FAILOVER", "ERR Command not allowed inside a transaction");
    ok(&mut client, "DISCARD");
    let server = redis_of(keyway.address(0));
    await_up(&mut server.client());
    let text = "ERR FAILOVER target HOST and PORT is not a replica.";
    refused(&mut client, "FAILOVER TO 127.0.0.1 1", text);
    wait_until("the replica is online", BOUND, || info(&mut client, "slave0").contains("online"));
    // A replica that hangs does not take over.
    server.process().signal(keyway_testkit::Signal::STOP);
    client.words("SET lagging v");
    ok(&mut client, "FAILOVER TIMEOUT 500");
    assert_eq!(info(&mut client, "master_failover_state"), "waiting-for-sync");
    refused(&mut client, "FAILOVER", "ERR FAILOVER already in progress.");
    // The write waits until the failover is given up.
    ok(&mut client, "SET held v");
    assert_eq!(info(&mut client, "master_failover_state"), "no-failover");
    ok(&mut client, "FAILOVER");
    ok(&mut client, "FAILOVER ABORT");
    ok(&mut client, "SET held w");
    server.process().signal(keyway_testkit::Signal::CONT);
    assert_eq!(info(&mut client, "role"), "master");
}

#[test]
fn a_load_of_clients_is_served_while_replicas_come_and_go() {
    let _watchdog = watchdog(Duration::from_secs(150), "replicas that come and go");
    let keyway = primary();
    let load = CheckedLoad::start(keyway.address(0), LoadShape::default());
    load.wait_replies(1_000);
    for _ in 0..3 {
        let server = redis_of(keyway.address(0));
        await_up(&mut server.client());
        let log = server.process().log();
        assert_eq!(log.matches("Full resync from master").count(), 1, "one snapshot is enough");
    }
    let report = load.stop();
    assert!(report.wrong.is_empty() && report.doubled.is_empty(), "{report}");
    let mut client = keyway.client(0);
    wait_until("all have left", BOUND, || info(&mut client, "connected_slaves") == "0");
}
