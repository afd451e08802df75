//! Every family of commands through a pool of kind cluster, compared with a single server if that
//! answers the same.

#![allow(clippy::disallowed_types, reason = "tests of a file take turns")]

use crate::cluster_setup::{KEYWAY, cluster_pool, key_of, serve, warnings};
use keyway_testkit::{
    Client, Keyway, KeywayConfig, MemcachedClient, Pool, RedisCluster, RedisServer, Shared, Value,
    cluster_slot, encode_words, wait_until, watchdog,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(60);

struct Setup {
    cluster: RedisCluster,
    keyway: Keyway,
    bare: RedisServer,
}

impl Setup {
    fn start() -> Setup {
        let notify = ["--notify-keyspace-events", "KEA"];
        let cluster = RedisCluster::start_with(3, 1, &notify, None);
        let keyway = serve(&cluster, &[("allow_flush", "true"), ("timeout", "\"2s\"")], 1);
        Setup { cluster, keyway, bare: RedisServer::start() }
    }
}

static SETUP: Shared<Setup> = Shared::new();

/// A test that holds this lock has the servers for itself: tests empty them.
static TURN: Mutex<()> = Mutex::new(());

fn setup() -> (Arc<Setup>, MutexGuard<'static, ()>) {
    let setup = SETUP.get(Setup::start);
    (setup, TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

fn empty(setup: &Setup) -> Client {
    let mut client = setup.keyway.client(0);
    assert_eq!(client.words("FLUSHALL"), Value::simple("OK"));
    setup.bare.client().words("FLUSHALL");
    client
}

/// Sends the lines of a script to both, and expects the same replies.
fn expect_same(setup: &Setup, lines: &[&str]) {
    let mut client = empty(setup);
    let mut bare = setup.bare.client();
    for line in lines {
        assert_eq!(client.words(line), bare.words(line), "{line}");
    }
    // The same lines are sent in one pipeline.
    let mut client = empty(setup);
    assert_eq!(client.pipeline(lines), bare.pipeline(lines));
}

#[test]
fn single_keys_and_keys_of_one_slot_are_served_as_by_a_single_server() {
    let _watch = watchdog(WITHIN, "single keys");
    let (setup, _turn) = setup();
    expect_same(
        &setup,
        &[
            "SET a 1",
            "GET a",
            "INCRBY a 41",
            "APPEND a x",
            "STRLEN a",
            "INCR a",
            "GETRANGE a 0 1",
            "SETEX e 100 v",
            "TTL e",
            "PERSIST e",
            "TTL e",
            "TYPE e",
            "TYPE none",
            "EXPIRE none 1",
            "HSET h f 1 g 2",
            "HGETALL h",
            "HMGET h f none g",
            "HINCRBY h f 5",
            "HDEL h g none",
            "RPUSH l a b c",
            "LRANGE l 0 -1",
            "LPOP l",
            "LINSERT l BEFORE c x",
            "LLEN l",
            "SADD s a b c",
            "SCARD s",
            "SISMEMBER s b",
            "SREM s a zz",
            "SMEMBERS none",
            "ZADD z 1 a 2 b 3 c",
            "ZRANGE z 0 -1 WITHSCORES",
            "ZRANK z b",
            "ZINCRBY z 5 a",
            "SETBIT b 7 1",
            "BITCOUNT b",
            "PFADD p a b c",
            "PFCOUNT p",
            "GEOADD g 13.3 38.1 x",
            "XADD x 1-1 f v",
            "XLEN x",
            "XRANGE x - +",
            "OBJECT ENCODING a",
            "DUMP none",
            "SINTERSTORE {t}d {t}a {t}b",
            "SADD {t}a 1 2 3",
            "SADD {t}b 2 3 4",
            "SINTER {t}a {t}b",
            "SUNIONSTORE {t}u {t}a {t}b",
            "RENAME {t}u {t}v",
            "RENAMENX {t}v {t}a",
            "COPY {t}a {t}c",
            "LMOVE {t}l {t}m LEFT RIGHT",
            "SORT {t}a DESC",
            "BITOP AND {t}x {t}y {t}z",
            "MSETNX {t}1 a {t}2 b",
            "MSETNX {t}2 a {t}3 b",
            "MGET {t}1 {t}2 {t}3",
            "PFMERGE {t}p {t}q",
            "GET",
            "SET a",
            "SET a b c d",
            "INCR h",
            "NOSUCH a",
            "LPUSH a x",
            "PING",
            "PING x",
            "ECHO y",
        ],
    );
}

#[test]
fn keys_of_several_slots_are_split_and_joined() {
    let _watch = watchdog(WITHIN, "several slots");
    let (setup, _turn) = setup();
    expect_same(
        &setup,
        &[
            "MSET a 1 b 2 c 3 d 4 {a}2 5 {b}2 6",
            "MGET a b c d {a}2 {b}2 none",
            "MGET a a b a",
            "MSET x 1 x 2 y 3 x 4",
            "MGET x y x",
            "EXISTS a b c none a a",
            "TOUCH a b none a",
            "DEL a a b none",
            "EXISTS a b {a}2",
            "UNLINK c d c {a}2 none",
            "EXISTS c d {a}2 {b}2",
            "HSET h f v",
            "MGET x h y",
            "DEL h x y",
            "MGET",
            "MSET a",
            "MSET a 1 b",
            "DEL",
            "EXISTS",
        ],
    );
    let mut client = empty(&setup);
    let keys: Vec<String> = (0..3000).map(|nth| format!("many:{nth}")).collect();
    let pairs: Vec<String> = keys.iter().flat_map(|key| [key.clone(), format!("v{key}")]).collect();
    assert_eq!(client.words(&format!("MSET {}", pairs.join(" "))), Value::simple("OK"));
    let expected = keys.iter().map(|key| Value::bulk(format!("v{key}"))).collect();
    assert_eq!(client.words(&format!("MGET {}", keys.join(" "))), Value::Array(expected));
    assert_eq!(client.words("DBSIZE"), Value::Integer(3000));
    assert_eq!(client.words(&format!("DEL {}", keys.join(" "))), Value::Integer(3000));
    for line in [
        "SINTER a b",
        "RENAME a b",
        "MSETNX a 1 b 2",
        "SUNIONSTORE a b c",
        "BITOP AND a b c",
        "LMOVE a b LEFT RIGHT",
        "SMOVE a b x",
        "PFCOUNT a b c",
        "BLPOP a b 1",
        "EVAL return 2 a b",
        "XREAD STREAMS a b 0 0",
        "COPY a b",
        "ZUNION 2 a b",
        "LCS a b",
    ] {
        let reply = client.words(line).error_text();
        assert!(reply.starts_with("CROSSSLOT "), "{line}: {reply}");
    }
}

#[test]
fn keys_of_all_primaries_are_found_once_each() {
    let _watch = watchdog(WITHIN, "all keys");
    let (setup, _turn) = setup();
    let mut client = empty(&setup);
    assert_eq!(client.words("RANDOMKEY"), Value::Nil);
    let keys: BTreeSet<String> = (0..2000).map(|nth| format!("k:{nth}")).collect();
    let pairs: Vec<String> = keys.iter().map(|key| format!("{key} v")).collect();
    client.words(&format!("MSET {}", pairs.join(" ")));
    let (mut cursor, mut found, mut steps) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let reply = client.words(&format!("SCAN {cursor} MATCH k:* COUNT 100"));
        cursor = reply.array()[0].text();
        found.extend(reply.array()[1].array().iter().map(Value::text));
        steps += 1;
        if cursor == "0" {
            break;
        }
    }
    assert!(steps > 10, "{steps}");
    assert_eq!(found.len(), keys.len(), "each once");
    assert_eq!(found.iter().cloned().collect::<BTreeSet<_>>(), keys);
    assert_eq!(client.words("DBSIZE"), Value::Integer(2000));
    let all = client.words("KEYS k:*");
    assert_eq!(all.array().iter().map(Value::text).collect::<BTreeSet<_>>(), keys);
    assert!(keys.contains(&client.words("RANDOMKEY").text()));
    assert_eq!(client.words("FLUSHALL"), Value::simple("OK"));
    assert_eq!(client.words("DBSIZE"), Value::Integer(0));
    assert_eq!(client.words("KEYS *"), Value::Array(vec![]));
}

#[test]
fn transactions_are_of_one_slot() {
    let _watch = watchdog(WITHIN, "transactions");
    let (setup, _turn) = setup();
    expect_same(
        &setup,
        &[
            "MULTI",
            "SET {t}a 1",
            "INCR {t}a",
            "LPUSH {t}a x",
            "GET {t}b",
            "EXEC",
            "GET {t}a",
            "MULTI",
            "EXEC",
            "MULTI",
            "SET {t}a 9",
            "DISCARD",
            "GET {t}a",
            "EXEC",
            "DISCARD",
            "MULTI",
            "NOSUCH",
            "EXEC",
            "WATCH {t}a",
            "GET {t}a",
            "MULTI",
            "INCR {t}a",
            "EXEC",
            "WATCH {t}a {t}b",
            "SET {t}b 1",
            "MULTI",
            "INCR {t}a",
            "EXEC",
            "WATCH {t}a",
            "UNWATCH",
            "SET {t}a 1",
            "MULTI",
            "MULTI",
            "WATCH x",
            "EXEC",
            "MULTI",
            "PING",
            "EXEC",
        ],
    );
    let mut client = empty(&setup);
    let replies = client.pipeline(&["MULTI", "SET a 1", "SET b 2", "EXEC", "GET a", "GET b"]);
    assert!(replies[3].is_error(), "{replies:?}");
    let told = format!("{} {}", replies[2].error_text(), replies[3].error_text());
    assert!(told.contains("CROSSSLOT") || told.contains("slot"), "{told}");
    assert_eq!(replies[4..], [Value::Nil, Value::Nil]);
    // Slots of one server are as different as slots of two.
    let lines =
        ["MULTI", &format!("SET {} 1", key_of(1, "")), &format!("SET {} 1", key_of(2, "")), "EXEC"];
    let replies = client.pipeline(&lines);
    assert!(replies[3].is_error(), "{replies:?}");
    let mut other = setup.keyway.client(0);
    client.words("WATCH w");
    other.words("SET w 1");
    let replies = client.pipeline(&["MULTI", "SET w 2", "EXEC", "GET w"]);
    assert!(matches!(replies[2], Value::NilArray), "{replies:?}");
    assert_eq!(replies[3], Value::bulk("1"));
    let reply = client.words("WATCH a b").error_text();
    assert!(reply.contains("slot") || reply.contains("server"), "{reply}");
}

#[test]
fn commands_that_wait_are_woken() {
    let _watch = watchdog(WITHIN, "commands that wait");
    let (setup, _turn) = setup();
    let mut client = empty(&setup);
    for (waits, wakes, expected) in [
        ("BLPOP {w}a {w}b 10", "RPUSH {w}b v", "v"),
        ("BRPOPLPUSH {w}c {w}d 10", "RPUSH {w}c v", "v"),
        ("BLMOVE {w}e {w}f LEFT RIGHT 10", "RPUSH {w}e v", "v"),
        ("BZPOPMIN {w}z 10", "ZADD {w}z 1 v", "v"),
        ("XREAD BLOCK 10000 STREAMS {w}s $", "XADD {w}s * f v", "v"),
    ] {
        let mut waiting = setup.keyway.client(0);
        waiting.send(&encode_words(waits));
        let blocked = || {
            let count = |node| setup.cluster.ask(node, "INFO clients").text();
            (0..6).any(|node| count(node).contains("blocked_clients:1"))
        };
        wait_until(waits, WITHIN, blocked);
        assert!(!client.words(wakes).is_error());
        assert!(format!("{:?}", waiting.reply()).contains(expected), "{waits}");
    }
    assert_eq!(client.words("BLPOP {w}none 0.05"), Value::NilArray);
}

#[test]
fn scripts_are_everywhere() {
    let _watch = watchdog(WITHIN, "scripts");
    let (setup, _turn) = setup();
    let mut client = empty(&setup);
    let script = "return redis.call('INCR', KEYS[1])";
    let sha = client.command(&["SCRIPT", "LOAD", script]).text();
    for key in ["a", "b", "c", "d"] {
        assert_eq!(client.words(&format!("EVALSHA {sha} 1 {key}")), Value::Integer(1));
        assert_eq!(client.command(&["EVAL", script, "1", key]), Value::Integer(2));
    }
    let exists = client.words(&format!("SCRIPT EXISTS {sha} {}", "0".repeat(40)));
    assert_eq!(exists, Value::Array(vec![Value::Integer(1), Value::Integer(0)]));
    // One server has lost the script: no client notices.
    setup.cluster.ask(1, "SCRIPT FLUSH");
    for key in ["a", "b", "c", "d"] {
        assert_eq!(client.words(&format!("EVALSHA {sha} 1 {key}")), Value::Integer(3), "{key}");
    }
    let replies = client.pipeline(&["MULTI", &format!("EVALSHA {sha} 1 a"), "EXEC"]);
    assert_eq!(replies[2], Value::Array(vec![Value::Integer(4)]));
    assert_eq!(client.words("SCRIPT FLUSH"), Value::simple("OK"));
    let reply = client.words(&format!("EVALSHA {sha} 1 a")).error_text();
    assert!(reply.starts_with("NOSCRIPT"), "{reply}");
    let library = "#!lua name=mylib\nredis.register_function('up', function(keys) return redis.call('INCR', keys[1]) end)";
    assert_eq!(client.command(&["FUNCTION", "LOAD", "REPLACE", library]), Value::bulk("mylib"));
    for key in ["e", "f", "g", "h"] {
        assert_eq!(client.words(&format!("FCALL up 1 {key}")), Value::Integer(1));
    }
}

#[test]
fn each_message_is_heard_once() {
    let _watch = watchdog(WITHIN, "messages");
    let (setup, _turn) = setup();
    let mut client = empty(&setup);
    let mut by_name = setup.keyway.client(0);
    let mut by_pattern = setup.keyway.client(0);
    let mut by_shard = setup.keyway.client(0);
    let mut keys = setup.keyway.client(0);
    let channels: Vec<String> = (0..40).map(|nth| format!("news:{nth}")).collect();
    by_name.send(&encode_words(&format!("SUBSCRIBE {}", channels.join(" "))));
    by_name.replies(40);
    by_pattern.words("PSUBSCRIBE news:*");
    keys.words("PSUBSCRIBE __keyspace@0__:*");
    for channel in &channels {
        by_shard.words(&format!("SSUBSCRIBE {channel}"));
    }
    for channel in &channels {
        assert!(!client.words(&format!("PUBLISH {channel} m")).is_error());
        assert_eq!(client.words(&format!("SPUBLISH {channel} s")), Value::Integer(1), "{channel}");
        assert_eq!(client.words(&format!("SET {channel} 1")), Value::simple("OK"));
    }
    let texts = |replies: Vec<Value>| -> Vec<Vec<String>> {
        replies.iter().map(|it| it.array().iter().map(Value::text).collect()).collect()
    };
    let heard = texts(by_name.replies(40));
    let expected: BTreeSet<_> =
        channels.iter().map(|it| ["message", it, "m"].map(str::to_owned).to_vec()).collect();
    assert_eq!(heard.into_iter().collect::<BTreeSet<_>>(), expected);
    let heard = texts(by_pattern.replies(40));
    let expected: BTreeSet<_> = channels
        .iter()
        .map(|it| ["pmessage", "news:*", it, "m"].map(str::to_owned).to_vec())
        .collect();
    assert_eq!(heard.into_iter().collect::<BTreeSet<_>>(), expected);
    let heard = texts(by_shard.replies(40));
    let expected: BTreeSet<_> =
        channels.iter().map(|it| ["smessage", it, "s"].map(str::to_owned).to_vec()).collect();
    assert_eq!(heard.into_iter().collect::<BTreeSet<_>>(), expected);
    let heard = texts(keys.replies(40));
    let names: BTreeSet<_> = heard.iter().map(|it| it[2].clone()).collect();
    assert_eq!(names, channels.iter().map(|it| format!("__keyspace@0__:{it}")).collect());
    // No message comes twice.
    for client in [&mut by_name, &mut by_pattern, &mut by_shard, &mut keys] {
        client.set_reply_within(Duration::from_millis(150));
        assert!(client.try_reply().is_err());
    }
}

#[test]
fn what_is_about_servers_and_clients_is_told() {
    let _watch = watchdog(WITHIN, "about servers");
    let (setup, _turn) = setup();
    let mut client = empty(&setup);
    client.words("SET a 1");
    assert!(client.words("INFO").text().contains("redis_version"));
    let list = client.words("INFO backends").text();
    for node in 0..3 {
        let address = setup.cluster.address(node).to_string();
        assert!(list.contains(&address), "{address} in {list}");
        let own = client.words(&format!("INFO backend {address}")).text();
        assert!(own.contains(&format!("tcp_port:{}", setup.cluster.address(node).port())), "{own}");
    }
    assert_eq!(client.words("SELECT 0"), Value::simple("OK"));
    let reply = client.words("SELECT 1").error_text();
    assert!(reply.contains("database") || reply.contains("DB index"), "{reply}");
    assert_eq!(client.words("GET a"), Value::bulk("1"));
    assert_eq!(client.words("CLIENT SETNAME me"), Value::simple("OK"));
    assert_eq!(client.words("CLIENT GETNAME"), Value::bulk("me"));
    assert!(client.words("CLIENT LIST").text().contains("name=me"));
    assert!(client.words("CLIENT ID").integer() > 0);
    let waited = client.words("WAIT 1 2000");
    assert_eq!(waited, Value::Integer(1));
    let mut resp3 = setup.keyway.client(0);
    assert!(!resp3.words("HELLO 3").is_error());
    resp3.words("HSET h f v");
    assert_eq!(resp3.words("HGETALL h").map().len(), 1);
    assert_eq!(resp3.words("GET none"), Value::Null);
    assert_eq!(resp3.words("MGET a none").array()[1], Value::Null);
    assert!(!client.words("SLOWLOG GET").is_error());
    let mut monitor = setup.keyway.client(0);
    assert_eq!(monitor.words("MONITOR"), Value::simple("OK"));
    client.words("GET seen-by-monitor");
    let line = monitor.reply();
    assert!(format!("{line:?}").contains("seen-by-monitor"), "{line:?}");
    let mut slots = BTreeMap::new();
    for key in ["a", "b", "c"] {
        slots.insert(cluster_slot(key.as_bytes()), key);
    }
    assert_eq!(slots.len(), 3);
    assert_eq!(warnings(&setup.keyway), Vec::<String>::new());
}

#[test]
fn clients_of_memcached_are_served() {
    let _watch = watchdog(WITHIN, "memcached clients");
    let (setup, _turn) = setup();
    empty(&setup);
    let pool = cluster_pool(&setup.cluster.addresses()[..1]);
    let pools: Vec<Pool> = vec![pool.clone().spoken_to_in("memcached"), pool];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools));
    let mut client: MemcachedClient = keyway.memcached_client(0);
    let mut redis = keyway.client(1);
    let keys: Vec<String> = (0..50).map(|nth| format!("m:{nth}")).collect();
    for key in &keys {
        assert_eq!(client.say(&format!("set {key} 0 0 1\r\nv\r\n")), "STORED\r\n");
    }
    assert_eq!(redis.words("EXISTS m:0 m:1 m:49"), Value::Integer(3));
    let found = client.say(&format!("get {} none\r\n", keys.join(" ")));
    let values = keys.iter().map(|key| format!("VALUE {key} 0 1\r\nv\r\n"));
    assert_eq!(found, values.collect::<String>() + "END\r\n");
    assert_eq!(client.say("delete m:1\r\n"), "DELETED\r\n");
    assert_eq!(client.say("set n 0 0 1\r\n5\r\nincr n 2\r\n"), "STORED\r\n7\r\n");
}
