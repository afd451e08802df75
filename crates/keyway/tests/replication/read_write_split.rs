//! Pools that read from one pool and write to another, with real servers: the servers' own counts
//! show where requests went.
#![allow(clippy::disallowed_methods, reason = "waits are timed from outside")]

use std::time::{Duration, Instant};

use keyway_testkit::conformance::{Family, Target, differential, run};
use keyway_testkit::{
    Client, Keyway, KeywayConfig, MemcachedClient, MemcachedServer, Pool, RedisServer, Replicated,
    Value, has_memcached, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(15);

fn split(name: &str, settings: &[(&str, &str)]) -> Pool {
    let pool = Pool::of_kind(name, "read-write-split");
    let ends = [("write", "\"w\""), ("read", "\"r\"")];
    let all = ends.iter().chain(settings);
    all.fold(pool, |pool, (name, value)| pool.with(name, value))
}

/// Returns a pool with short timeouts.
fn quick(pool: Pool) -> Pool {
    pool.with("timeout", "\"300ms\"")
        .with("connect_timeout", "\"300ms\"")
        .with("reconnect", "{ min = \"10ms\", max = \"100ms\" }")
}

fn over(name: &str, servers: &[RedisServer]) -> Pool {
    quick(Pool::over(name, servers))
}

fn start(pools: Vec<Pool>) -> Keyway {
    Keyway::start(KEYWAY, KeywayConfig::new(pools).with_server("workers", "2"))
}

/// Returns how many times a server has executed a command.
fn calls(client: &mut Client, command: &str) -> u64 {
    let text = client.words("INFO commandstats").text();
    let line =
        text.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

fn counts(servers: &[RedisServer], command: &str) -> Vec<u64> {
    servers.iter().map(|server| calls(&mut server.client(), command)).collect()
}

fn text(client: &mut Client, line: &str) -> String {
    format!("{:?}", client.words(line))
}

#[test]
fn writes_go_to_one_pool_and_reads_to_the_other() {
    let _watch = watchdog(Duration::from_secs(60), "a split of reads and writes");
    let servers = RedisServer::start_many(2);
    let keyway = start(vec![
        split("main", &[("write_commands", "[\"ttl\"]")]),
        over("w", &servers[..1]),
        over("r", &servers[1..]),
    ]);
    for (server, value) in servers.iter().zip(["written", "read"]) {
        server.client().command(&["MSET", "k", value, "l", value]);
        server.client().command(&["HSET", "h", "f", value]);
    }
    let mut client = keyway.client(0);
    for _ in 0..20 {
        assert_eq!(client.words("GET k"), Value::bulk("read"));
        assert_eq!(client.words("SET x 1"), Value::simple("OK"));
    }
    let both = Value::Array(vec![Value::bulk("read"), Value::bulk("read")]);
    assert_eq!(client.words("MGET k l"), both);
    assert_eq!(client.words("TTL k"), Value::Integer(-1));
    assert_eq!(client.words("HGET h f"), Value::bulk("read"));
    // A cursor belongs to the table of one server.
    assert!(text(&mut client, "HSCAN h 0").contains("written"));
    assert_eq!(counts(&servers, "get"), [0, 20]);
    assert_eq!(counts(&servers, "set"), [20, 0]);
    assert_eq!(counts(&servers, "mget"), [0, 1]);
    assert_eq!(counts(&servers, "ttl"), [1, 0]);
    // Replies come in the order of the requests, whichever pool they are from.
    let lines: Vec<String> = (0..500)
        .map(|nth| if nth % 3 == 0 { format!("SET p {nth}") } else { "GET k".to_owned() })
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    for (nth, reply) in client.pipeline(&lines).into_iter().enumerate() {
        let expected = if nth % 3 == 0 { Value::simple("OK") } else { Value::bulk("read") };
        assert_eq!(reply, expected, "{nth}");
    }
    assert_eq!(servers[0].client().words("GET p"), Value::bulk("498"));
    // Requests that the writing pool executes keep their order.
    let counted: Vec<Value> = client.pipeline(&["INCR n"; 300]);
    assert_eq!(counted, (1..=300).map(Value::Integer).collect::<Vec<_>>());
}

#[test]
fn a_client_that_has_written_reads_its_writes_for_a_while() {
    let _watch = watchdog(Duration::from_secs(60), "pinned reads");
    let servers = RedisServer::start_many(2);
    let keyway = start(vec![
        split("main", &[("pin_after_write", "\"700ms\"")]),
        over("w", &servers[..1]),
        over("r", &servers[1..]),
    ]);
    servers[1].client().command(&["SET", "k", "old"]);
    let (mut writer, mut other) = (keyway.client(0), keyway.client(0));
    assert_eq!(writer.words("GET k"), Value::bulk("old"));
    let written = Instant::now();
    let replies = writer.pipeline(&["SET k new", "GET k", "MGET k k"]);
    assert_eq!(replies[1], Value::bulk("new"));
    assert_eq!(replies[2], Value::Array(vec![Value::bulk("new"); 2]));
    assert_eq!(other.words("GET k"), Value::bulk("old"), "others are not pinned");
    wait_until("the pin to end", SOON, || writer.words("GET k") == Value::bulk("old"));
    assert!(written.elapsed() >= Duration::from_millis(600));
    // Writes of a transaction or a script count as well.
    let replies = writer.pipeline(&["MULTI", "SET k t", "EXEC", "GET k"]);
    assert_eq!(replies[3], Value::bulk("t"));
    wait_until("the pin to end", SOON, || writer.words("GET k") == Value::bulk("old"));
    let set = ["EVAL", "return redis.call('set', KEYS[1], 'e')", "1", "k"];
    assert_eq!(writer.command(&set), Value::simple("OK"));
    assert_eq!(writer.words("GET k"), Value::bulk("e"));
}

#[test]
fn what_belongs_to_a_connection_goes_to_the_pool_that_writes() {
    let _watch = watchdog(Duration::from_secs(90), "transactions over a split");
    let servers = RedisServer::start_many(2);
    let keyway =
        start(vec![split("main", &[]), over("w", &servers[..1]), over("r", &servers[1..])]);
    servers[1].client().words("MSET k read n 7");
    servers[0].client().words("SET k written");
    let mut client = keyway.client(0);
    // A transaction with reads around it is sent in one pipeline.
    let replies =
        client.pipeline(&["GET k", "MULTI", "GET k", "INCR n", "EXEC", "GET k", "INCR n", "GET n"]);
    let exec = Value::Array(vec![Value::bulk("written"), Value::Integer(1)]);
    assert_eq!(replies[0], Value::bulk("read"));
    assert_eq!(replies[4], exec);
    assert_eq!(replies[5..], [Value::bulk("read"), Value::Integer(2), Value::bulk("7")]);
    assert!(text(&mut client, "EXEC").contains("EXEC without MULTI"));
    assert_eq!(client.words("GET k"), Value::bulk("read"));
    // Under a watch a client reads where it watches.
    assert_eq!(client.words("WATCH k"), Value::simple("OK"));
    assert_eq!(client.words("GET k"), Value::bulk("written"));
    assert!(text(&mut client, "SELECT 3").contains("out of range"));
    keyway.client(0).words("SET k other");
    let replies = client.pipeline(&["MULTI", "SET k mine", "EXEC", "GET k"]);
    assert_eq!(replies[2..], [Value::NilArray, Value::bulk("read")]);
    // RESET and UNWATCH end it.
    for end in ["RESET", "UNWATCH"] {
        assert_eq!(client.words("WATCH k"), Value::simple("OK"));
        client.words(end);
        assert_eq!(client.words("GET k"), Value::bulk("read"), "{end}");
    }
    // These are blocking commands.
    client.send(&keyway_testkit::encode_words("BLPOP list 20"));
    let mut writers = servers[0].client();
    wait_until("it waits", SOON, || {
        writers.words("INFO clients").text().contains("blocked_clients:1\r\n")
    });
    assert_eq!(keyway.client(0).words("RPUSH list e"), Value::Integer(1));
    assert_eq!(client.reply(), Value::Array(vec![Value::bulk("list"), Value::bulk("e")]));
    assert_eq!(client.words("GET k"), Value::bulk("read"));
    assert_eq!(client.words("WAIT 0 10"), Value::Integer(0));
    // These are channels, with RESP3 reads in between.
    let mut listener = keyway.client(0);
    listener.words("HELLO 3");
    listener.send(&keyway_testkit::encode_words("SUBSCRIBE news"));
    assert!(format!("{:?}", listener.reply()).contains("subscribe"));
    assert_eq!(listener.words("GET k"), Value::bulk("other"), "it is the writers' for that long");
    assert_eq!(client.words("PUBLISH news hi"), Value::Integer(1));
    assert!(format!("{:?}", listener.reply()).contains("hi"));
    listener.send(&keyway_testkit::encode_words("UNSUBSCRIBE news"));
    assert!(format!("{:?}", listener.reply()).contains("unsubscribe"));
    assert_eq!(listener.words("GET k"), Value::bulk("read"));
    // These commands concern all keys.
    for (line, expected) in [("DBSIZE", "2"), ("SCAN 0 COUNT 100", "\"n\"")] {
        assert!(text(&mut client, line).contains(expected), "{line}: {}", text(&mut client, line));
    }
    assert_eq!(counts(&servers, "scan")[1], 0);
    assert!(text(&mut client, "CLIENT TRACKING ON").contains("is refused"));
    // A client that leaves in the middle of all this leaves nothing behind.
    let mut gone = keyway.client(0);
    gone.words("WATCH k");
    gone.words("MULTI");
    let open = |pool: &str| {
        keyway.metrics().sum("keyway_client_connections", &[&format!("pool=\"{pool}\"")])
    };
    wait_until("three clients", SOON, || open("main") == 3.0);
    drop(gone);
    wait_until("it is gone", SOON, || open("main") == 2.0);
    assert_eq!(open("w"), 0.0);
}

#[test]
fn scripts_that_only_read_run_where_is_read() {
    let _watch = watchdog(Duration::from_secs(60), "scripts over a split");
    let servers = RedisServer::start_many(2);
    let keyway =
        start(vec![split("main", &[]), over("w", &servers[..1]), over("r", &servers[1..])]);
    servers[1].client().words("SET k read");
    servers[0].client().words("SET k written");
    let mut client = keyway.client(0);
    let get = "return redis.call('get', KEYS[1])";
    assert_eq!(client.command(&["EVAL", get, "1", "k"]), Value::bulk("written"));
    assert_eq!(client.command(&["EVAL_RO", get, "1", "k"]), Value::bulk("read"));
    // A script is loaded once and known on either side.
    let loaded = "return redis.call('get', KEYS[1]) .. '!'";
    let digest = client.command(&["SCRIPT", "LOAD", loaded]).text();
    assert_eq!(client.command(&["EVALSHA", &digest, "1", "k"]), Value::bulk("written!"));
    assert_eq!(client.command(&["EVALSHA_RO", &digest, "1", "k"]), Value::bulk("read!"));
    assert_eq!(counts(&servers, "eval"), [1, 0]);
    assert_eq!(counts(&servers, "eval_ro"), [0, 1]);
    assert_eq!(counts(&servers, "evalsha_ro"), [0, 1]);
}

#[test]
fn reads_that_fail_go_to_the_writers_if_they_may() {
    let _watch = watchdog(Duration::from_secs(90), "reads that fail");
    let mut servers = RedisServer::start_many(3);
    let keyway = start(vec![
        split("strict", &[]),
        split("safe", &[("read_fallback", "true")]),
        over("w", &servers[..1]),
        over("r", &servers[1..]),
    ]);
    let keys: Vec<String> = (0..40).map(|nth| format!("k{nth}")).collect();
    let pairs = |value: &'static str| keys.iter().flat_map(move |key| [key.clone(), value.into()]);
    let set = |value| ["MSET".to_owned()].into_iter().chain(pairs(value)).collect::<Vec<_>>();
    keyway.client(2).command(&set("written"));
    keyway.client(3).command(&set("read"));
    let (mut strict, mut safe) = (keyway.client(0), keyway.client(1));
    assert_eq!(safe.words("GET k1"), Value::bulk("read"));
    assert_eq!(strict.words("GET k1"), Value::bulk("read"));
    let dead: Vec<bool> = {
        let mut there = servers[1].client();
        keys.iter().map(|key| there.command(&["EXISTS", key]) == Value::Integer(1)).collect()
    };
    assert!(dead.contains(&true) && dead.contains(&false));
    servers[1].kill();
    // Only keys of the dead server are read from the writing pool.
    let expected = |dead: &bool| Value::bulk(if *dead { "written" } else { "read" });
    for (key, dead) in keys.iter().zip(&dead) {
        assert_eq!(safe.command(&["GET", key]), expected(dead), "{key}");
        let told = strict.command(&["GET", key]);
        assert_eq!(matches!(told, Value::Error(_)), *dead, "{key}: {told:?}");
    }
    let all: Vec<&str> = ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    assert_eq!(safe.command(&all), Value::Array(dead.iter().map(expected).collect()));
    assert!(matches!(strict.command(&all), Value::Error(_)));
    let failovers = |pool: &str| {
        keyway.metrics().sum("keyway_route_failovers_total", &[&format!("pool=\"{pool}\"")])
    };
    assert!(failovers("safe") > 0.0);
    assert_eq!(failovers("strict"), 0.0);
    // A write does not go to the other pool: it fails if its own pool fails.
    servers[0].kill();
    wait_until("the writer is gone", SOON, || matches!(safe.words("SET k1 x"), Value::Error(_)));
}

#[test]
fn splits_nest_and_are_pinned_over_other_kinds() {
    let _watch = watchdog(Duration::from_secs(60), "nested splits");
    let servers = RedisServer::start_many(3);
    let keyway = start(vec![
        Pool::of_kind("top", "failover").with("children", "[\"outer\", \"w\"]"),
        Pool::of_kind("outer", "read-write-split")
            .with("write", "\"twins\"")
            .with("read", "\"inner\"")
            .with("pin_after_write", "\"700ms\""),
        Pool::of_kind("inner", "read-write-split")
            .with("write", "\"w\"")
            .with("read", "\"r\"")
            .with("read_fallback", "true"),
        Pool::of_kind("twins", "mirror").with("children", "[\"w\", \"v\"]"),
        over("w", &servers[..1]),
        over("v", &servers[1..2]),
        over("r", &servers[2..]),
    ]);
    servers[2].client().words("MSET k read other read");
    for listener in [0, 1] {
        let mut client = keyway.client(listener);
        wait_until("not pinned", SOON, || client.words("GET k") == Value::bulk("read"));
        let replies = client.pipeline(&["SET k written", "GET k", "MGET k k"]);
        assert_eq!(replies[1], Value::bulk("written"), "listener {listener}");
        assert_eq!(servers[1].client().words("GET k"), Value::bulk("written"));
        wait_until("the pin to end", SOON, || client.words("GET k") == Value::bulk("read"));
        // State of a connection is impossible here: the writers are not servers.
        assert!(text(&mut client, "MULTI").contains("is refused"));
        assert!(text(&mut client, "EXEC").contains("EXECABORT"));
    }
    let mut inner = keyway.client(2);
    let replies = inner.pipeline(&["MULTI", "GET k", "EXEC", "GET k"]);
    assert_eq!(replies[2..], [Value::Array(vec![Value::bulk("written")]), Value::bulk("read")]);
}

#[test]
fn replicas_are_read_in_a_pool_of_their_own() {
    let _watch = watchdog(Duration::from_secs(60), "a split over one primary and its replicas");
    let servers = Replicated::start(2);
    let lines: Vec<String> = servers.addresses().iter().map(ToString::to_string).collect();
    let keyway = start(vec![
        split("main", &[("pin_after_write", "\"5s\"")]),
        quick(Pool::sharded("w", &lines[..1])),
        quick(Pool::sharded("r", &lines[1..])),
    ]);
    let (mut writer, mut reader) = (keyway.client(0), keyway.client(0));
    let before: Vec<u64> = (0..3).map(|nth| calls(&mut servers.client(nth), "get")).collect();
    for nth in 0..100 {
        let key = format!("k{nth}");
        assert_eq!(writer.command(&["SET", &key, "v"]), Value::simple("OK"));
        assert_eq!(writer.command(&["GET", &key]), Value::bulk("v"), "pinned to its own write");
        wait_until("it is copied", SOON, || reader.command(&["GET", &key]) == Value::bulk("v"));
    }
    let after: Vec<u64> = (0..3).map(|nth| calls(&mut servers.client(nth), "get")).collect();
    assert_eq!(after[0] - before[0], 100, "the writer's reads and no others");
    assert!(after[1] + after[2] - before[1] - before[2] >= 100);
    let mut sets = (0..3).map(|nth| calls(&mut servers.client(nth), "set"));
    assert!(sets.next() >= Some(100));
    // An embedded store is part of it like any pool.
    let keyway =
        start(vec![split("main", &[]), Pool::store("w"), quick(Pool::sharded("r", &lines[1..]))]);
    let mut client = keyway.client(0);
    let replies =
        client.pipeline(&["SET k0 here", "MULTI", "GET k0", "EXEC", "GET k0", "BLPOP l 0.01"]);
    assert_eq!(replies[3], Value::Array(vec![Value::bulk("here")]));
    assert_eq!(replies[4..], [Value::bulk("v"), Value::NilArray]);
    assert_eq!(client.words("GET k0"), Value::bulk("v"));
}

#[test]
fn a_split_over_one_server_answers_as_that_does() {
    let _watch = watchdog(Duration::from_secs(120), "conformance of a split");
    let servers = RedisServer::start_many(2);
    // Reads take another way to the same connection, so that even a pipeline keeps its order.
    let keyway = start(vec![
        split("main", &[]),
        Pool::of_kind("r", "rate-limited")
            .with("child", "\"w\"")
            .with("requests_per_second", "10000000"),
        Pool::over("w", &servers[..1]).with("timeout", "\"60s\""),
    ]);
    let bare = Target::new("redis", servers[1].address(), &[]);
    let target = Target::new("split", keyway.address(0), &["types", "streams", "scripts"]);
    run(&target).assert_clean(&target);
    for seed in 0..5 {
        differential(&target, &bare, Family::Strings, seed, 5_000);
    }
}

/// Returns how many requests for items a memcached server has had.
fn gets(server: &MemcachedServer) -> u64 {
    let text = server.client().say("stats\r\n");
    let line = text.lines().find_map(|line| line.strip_prefix("STAT cmd_get "));
    line.expect("it counts them").trim().parse().expect("a number")
}

#[test]
fn clients_of_memcached_are_split_as_well() {
    let _watch = watchdog(Duration::from_secs(60), "a split for memcached");
    if !has_memcached("a split of reads and writes") {
        return;
    }
    let mut servers = MemcachedServer::start_many(2);
    let pool =
        |name: &str, settings: &[(&str, &str)]| split(name, settings).spoken_to_in("memcached");
    let keyway = start(vec![
        pool("main", &[]),
        pool("safe", &[("read_fallback", "true")]),
        pool("pinned", &[("pin_after_write", "\"700ms\"")]),
        quick(Pool::memcached("w", &servers[..1])),
        quick(Pool::memcached("r", &servers[1..])),
    ]);
    for (server, value) in servers.iter().zip(["write", "reads"]) {
        for key in ["k", "l"] {
            server.client().say(&format!("set {key} 0 0 5\r\n{value}\r\n"));
        }
    }
    let hit = |key: &str, value: &str| format!("VALUE {key} 0 5\r\n{value}\r\n");
    let mut client: MemcachedClient = keyway.memcached_client(0);
    let before = (gets(&servers[0]), gets(&servers[1]));
    for _ in 0..20 {
        assert_eq!(client.say("get k\r\n"), format!("{}END\r\n", hit("k", "reads")));
        assert_eq!(client.say("set x 0 0 1\r\n1\r\n"), "STORED\r\n");
    }
    let both = format!("{}{}END\r\n", hit("k", "reads"), hit("l", "reads"));
    assert_eq!(client.say("get k l\r\n"), both);
    assert_eq!(client.say("mg k v\r\n"), "VA 5\r\nreads\r\n");
    assert_eq!((gets(&servers[0]) - before.0, gets(&servers[1]) - before.1), (0, 23));
    // A version number for cas is that of the server to which writes go.
    let told = client.say("gets k\r\n");
    assert!(told.contains("\r\nwrite\r\n"), "{told}");
    let number = told.lines().next().unwrap().rsplit(' ').next().unwrap().to_owned();
    assert_eq!(client.say(&format!("cas k 0 0 5 {number}\r\nswaps\r\n")), "STORED\r\n");
    // One pipeline keeps its order.
    let stream = "set p 0 0 1\r\n1\r\nget k\r\nincr p 1\r\nget p\r\nincr p 1\r\n";
    assert_eq!(
        client.say(stream),
        format!("STORED\r\n{}END\r\n2\r\nEND\r\n3\r\n", hit("k", "reads"))
    );
    let mut pinned = keyway.memcached_client(2);
    assert_eq!(
        pinned.say("set k 0 0 5\r\nfresh\r\nget k\r\n"),
        format!("STORED\r\n{}END\r\n", hit("k", "fresh"))
    );
    let old = format!("{}END\r\n", hit("k", "reads"));
    wait_until("the pin to end", SOON, || pinned.say("get k\r\n") == old);
    assert!(client.say("stats\r\n").contains("STAT route_kind read-write-split\r\n"));
    assert!(client.say("flush_all\r\n").contains("is refused"));
    servers[1].kill();
    let mut safe = keyway.memcached_client(1);
    assert_eq!(safe.say("get k\r\n"), format!("{}END\r\n", hit("k", "fresh")));
    wait_until("it fails", SOON, || client.say("get k\r\n").starts_with("SERVER_ERROR"));
}
