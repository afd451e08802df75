//! Keyspace events of the store: a client hears what a bare server publishes.

use keyway_testkit::{Client, Keyway, KeywayConfig, Pool, RedisServer, Value, watchdog};
use std::time::Duration;

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

#[test]
fn the_store_publishes_what_becomes_of_keys_as_redis_does() {
    let _watch = watchdog(Duration::from_secs(60), "keyspace events");
    let config = KeywayConfig::new(vec![
        Pool::store("local").with("notify_keyspace_events", "\"KEg$x\""),
        Pool::store("silent"),
    ]);
    let keyway = Keyway::start(KEYWAY, config);
    let server = RedisServer::start_with(&["--notify-keyspace-events", "KEg$x"]);
    let lines = [
        "SET a 1",
        "SET a 1 EX 100",
        "SET a 1 KEEPTTL",
        "SET a 2 NX",
        "SETEX b 100 x",
        "PSETEX b 100000 x",
        "SETNX a 1",
        "SETNX c 1",
        "GETSET c 2",
        "APPEND c xy",
        "APPEND new xy",
        "SETRANGE c 1 z",
        "SETRANGE c 1 ",
        "INCR n",
        "DECRBY n 5",
        "INCRBYFLOAT n 1.5",
        "SETBIT bits 7 1",
        "BITOP NOT copy bits",
        "BITOP AND copy none",
        "BITFIELD bits SET u8 0 3",
        "BITFIELD bits GET u8 0",
        "MSET m1 1 m2 2",
        "MSETNX m3 3 m4 4",
        "MSETNX m3 3 m5 5",
        "GETEX m1 EX 100",
        "GETEX m1 PERSIST",
        "GETEX m1 PERSIST",
        "GETDEL m1",
        "GETDEL m1",
        "DEL m2 m3 none",
        "UNLINK m4",
        "EXPIRE c 100",
        "PERSIST c",
        "PERSIST c",
        "EXPIRE none 100",
        "EXPIRE c -1",
        "RENAME a z",
        "RENAMENX z z2",
        "COPY z2 z3",
        "COPY z2 z3 REPLACE DB 1",
        "MOVE z2 2",
        "SELECT 2",
        "SET z2 5",
        "SELECT 0",
        "GET z3",
        "FLUSHALL",
        "SET short 1 PX 20",
    ];
    let heard = |mut client: Client, mut listener: Client| -> Vec<String> {
        listener.words("PSUBSCRIBE __key*");
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            client.command(&words);
        }
        let mut heard = Vec::new();
        while heard.last().is_none_or(|last: &String| !last.contains("expired short")) {
            let parts = listener.reply();
            let parts = parts.array();
            heard.push(format!("{} {}", parts[2].text(), parts[3].text()));
        }
        heard
    };
    let expected = heard(server.client(), server.client());
    assert!(expected.len() > 60, "{expected:?}");
    let actual = heard(keyway.client(0), keyway.client(0));
    assert_eq!(actual, expected);
    for (pool, letters) in [(0, "g$xKE"), (1, "")] {
        let mut client = keyway.client(pool);
        let told = client.words("CONFIG GET notify-keyspace-events").array().to_vec();
        assert_eq!(told[1], Value::bulk(letters));
    }
}

#[test]
fn new_keys_and_misses_are_published_as_by_redis_where_they_are_asked_for() {
    let _watch = watchdog(Duration::from_secs(60), "new keys and misses");
    let config = KeywayConfig::new(vec![
        Pool::store("local").with("notify_keyspace_events", "\"Enmg$lhsz\""),
    ]);
    let keyway = Keyway::start(KEYWAY, config);
    let server = RedisServer::start_with(&["--notify-keyspace-events", "Enmg$lhsz"]);
    let lines = [
        "SET a 1",
        "SET a 2",
        "GET a",
        "GET none",
        "EXISTS none",
        "TYPE none",
        "TTL none",
        "MGET a none b",
        "HGET none f",
        "LLEN none",
        "STRLEN none",
        "INCR c",
        "HSET h f v",
        "HSET h f w",
        "LPUSH l 1",
        "RPUSH l 2",
        "SADD s 1",
        "ZADD z 1 m",
        "COPY a d",
        "RENAME a b",
        "SETNX n 1",
        "SETNX n 2",
        "DEL none",
        "EXPIRE none 5",
        "LPOP none",
        "ZSCORE none m",
        "SMEMBERS none",
        "GETDEL none",
        "APPEND e x",
        "SET the-end 1",
    ];
    let heard = |mut client: Client, mut listener: Client| -> Vec<String> {
        listener.words("PSUBSCRIBE __key*");
        for line in lines {
            client.words(line);
        }
        let mut heard = Vec::new();
        while heard.last().is_none_or(|last: &String| !last.contains("set the-end")) {
            let parts = listener.reply();
            let parts = parts.array();
            heard.push(format!("{} {}", parts[2].text(), parts[3].text()));
        }
        heard.into_iter().map(|line| line.replace("__keyevent@0__:", "")).collect()
    };
    let expected = heard(server.client(), server.client());
    assert!(expected.iter().any(|line| line == "new a"), "{expected:?}");
    assert!(expected.iter().any(|line| line == "keymiss none"), "{expected:?}");
    assert_eq!(heard(keyway.client(0), keyway.client(0)), expected);
    let mut client = keyway.client(0);
    let told = client.words("CONFIG GET notify-keyspace-events").array().to_vec();
    assert_eq!(told[1], Value::bulk("g$lshznEm"));
    client.words("WATCH none");
    client.words("GET none");
    client.words("MULTI");
    client.words("GET b");
    assert_eq!(client.words("EXEC"), Value::Array(vec![Value::bulk("2")]), "a miss is no change");
}
