//! Pools that lead to others, for clients of Redis, over servers that are killed, stopped and
//! started again.
#![allow(clippy::disallowed_methods, reason = "waits are timed from outside")]

use std::time::{Duration, Instant};

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Value, http_get, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const WITHIN: Duration = Duration::from_secs(20);

fn routed(name: &str, kind: &str, settings: &[(&str, &str)]) -> Pool {
    settings.iter().fold(Pool::of_kind(name, kind), |pool, (name, value)| pool.with(name, value))
}

/// Returns a pool with short timeouts.
fn pool(name: &str, servers: &[RedisServer]) -> Pool {
    Pool::over(name, servers)
        .with("hash", "\"md5\"")
        .with("timeout", "\"300ms\"")
        .with("connect_timeout", "\"300ms\"")
        .with("reconnect", "{ min = \"10ms\", max = \"100ms\" }")
}

fn start(pools: Vec<Pool>) -> Keyway {
    Keyway::start(KEYWAY, KeywayConfig::new(pools).with_server("workers", "2"))
}

fn metric(keyway: &Keyway, name: &str, pool: &str) -> f64 {
    keyway.metrics().sum(&format!("keyway_route_{name}_total"), &[&format!("pool=\"{pool}\"")])
}

/// Returns a reply as text: `nil`, numbers and lists as redis-cli prints them.
fn said(client: &mut Client, line: &str) -> String {
    shown(&client.words(line))
}

fn shown(value: &Value) -> String {
    match value {
        Value::Simple(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Error(text) => format!("-{}", String::from_utf8_lossy(text)),
        Value::Integer(number) => number.to_string(),
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Array(values) => {
            format!("[{}]", values.iter().map(shown).collect::<Vec<_>>().join(" "))
        }
        Value::Nil | Value::NilArray | Value::Null => "null".to_owned(),
        other => panic!("unexpected: {other:?}"),
    }
}

#[test]
fn the_longest_prefix_chooses_the_pool() {
    let _watch = watchdog(Duration::from_secs(60), "prefixes");
    let servers = RedisServer::start_many(2);
    let routes = "[{ prefix = \"u:\", pool = \"a\" }, { prefix = \"u:x:\", pool = \"local\" }]";
    let keyway = start(vec![
        routed("all", "prefix", &[("routes", routes), ("default", "\"b\"")]),
        routed("strict", "prefix", &[("routes", routes)]),
        pool("a", &servers[..1]),
        pool("b", &servers[1..]),
        Pool::store("local"),
    ]);
    let mut all = keyway.client(0);
    assert_eq!(said(&mut all, "MSET u:1 a u:x:1 l other b"), "OK");
    assert_eq!(said(&mut servers[0].client(), "KEYS *"), "[u:1]");
    assert_eq!(said(&mut servers[1].client(), "KEYS *"), "[other]");
    assert_eq!(said(&mut keyway.client(4), "KEYS *"), "[u:x:1]");
    assert_eq!(said(&mut all, "MGET other none u:1 u:x:1 u:1"), "[b null a l a]");
    assert_eq!(said(&mut all, "EXISTS other none u:1 u:x:1"), "3");
    assert_eq!(said(&mut all, "HSET u:h f v"), "1");
    assert_eq!(said(&mut all, "SINTER u:s u:t"), "[]");
    assert!(said(&mut all, "SINTER u:s other").starts_with("-CROSSSLOT keys of this SINTER begin"));
    // A pipeline over pools keeps its order.
    let lines =
        ["SET u:1 1", "MGET u:1 other", "INCR u:1", "MGET u:1 other", "DEL u:1 other", "GET u:1"];
    let replies: Vec<String> = all.pipeline(&lines).iter().map(shown).collect();
    assert_eq!(replies, ["OK", "[1 b]", "2", "[2 b]", "2", "null"]);
    let mut strict = keyway.client(1);
    let refused = said(&mut strict, "GET other");
    assert_eq!(
        refused,
        "-ERR no route: the key of this get begins with none of the prefixes of [pool.strict], which \
         has no default"
    );
    assert_eq!(said(&mut strict, "PING"), "PONG");
    for line in
        ["BLPOP u:1 0", "SUBSCRIBE c", "KEYS *", "EVAL x 0", "FLUSHALL", "WAIT 0 0", "MULTI"]
    {
        let refused = said(&mut strict, line);
        assert!(refused.contains("is of kind \"prefix\", which leads"), "{line}: {refused}");
    }
    // Nothing after a refused MULTI is executed until the transaction that it would have begun has
    // ended.
    let refused = said(&mut strict, "SET u:behind 1");
    assert!(refused.starts_with("-ERR not executed"), "{refused}");
    assert!(said(&mut strict, "EXEC").starts_with("-EXECABORT"));
    assert_eq!(said(&mut strict, "GET u:behind"), "null");
    assert!(said(&mut strict, "MULTI").contains("is refused"));
    assert_eq!(said(&mut strict, "DISCARD"), "OK");
    assert!(said(&mut strict, "DISCARD").contains("is refused"), "there is nothing to discard");
    assert!(said(&mut strict, "INFO server").contains("redis_version"));
    // Other versions of RESP are tested, and clients that want no replies.
    assert_eq!(all.words("HELLO 3").map()[2].0, Value::bulk("proto"));
    assert_eq!(said(&mut all, "MGET u:x:1 none"), "[l null]");
    all.send(&keyway_testkit::encode_words("CLIENT REPLY OFF"));
    all.send(&keyway_testkit::encode_words("MSET u:1 q other q"));
    all.send(&keyway_testkit::encode_words("CLIENT REPLY ON"));
    assert_eq!(shown(&all.reply()), "OK");
    assert_eq!(said(&mut all, "MGET u:1 other"), "[q q]");
}

#[test]
fn no_more_requests_are_let_through_than_the_rate_allows() {
    let _watch = watchdog(Duration::from_secs(60), "a rate limit");
    let settings = [("child", "\"local\""), ("requests_per_second", "1000"), ("burst", "10")];
    let keyway = start(vec![routed("limited", "rate-limited", &settings), Pool::store("local")]);
    let mut client = keyway.client(0);
    let (began, mut served, mut refused) = (Instant::now(), 0u32, 0u32);
    while began.elapsed() < Duration::from_secs(2) {
        for reply in client.pipeline(&["SET k v"; 10]) {
            match shown(&reply).as_str() {
                "OK" => served += 1,
                text if text.starts_with("-ERR rate limited: ") => refused += 1,
                other => panic!("{other}"),
            }
        }
    }
    let expected = began.elapsed().as_secs_f64() * 1000.0 + 10.0;
    let share = f64::from(served) / expected;
    assert!((0.9..=1.1).contains(&share), "{served} of {expected}");
    assert_eq!(metric(&keyway, "rate_limited_requests", "limited"), f64::from(refused));
}

#[test]
fn what_a_dead_server_had_goes_to_the_gutter_for_a_short_time() {
    let _watch = watchdog(Duration::from_secs(120), "fail-over");
    let mut main = RedisServer::start_many(2);
    let gutter = RedisServer::start();
    let children =
        [("children", "[\"main\"]"), ("gutter", "\"gutter\""), ("gutter_ttl_max", "\"7s\"")];
    let keyway = start(vec![
        routed("cache", "failover", &children),
        pool("main", &main),
        pool("gutter", std::slice::from_ref(&gutter)),
    ]);
    let mut client = keyway.client(0);
    let keys: Vec<String> = (0..40).map(|nth| format!("key{nth}")).collect();
    for key in &keys {
        assert_eq!(said(&mut client, &format!("SET {key} m")), "OK");
    }
    let (dead, alive): (Vec<&String>, Vec<&String>) =
        keys.iter().partition(|key| said(&mut main[0].client(), &format!("EXISTS {key}")) == "1");
    assert!(!dead.is_empty() && !alive.is_empty());
    main[0].kill();
    let mut there = gutter.client();
    for (key, write) in dead.iter().zip(["SET K g", "SET K g EX 3", "SETEX K 900 g"].iter().cycle())
    {
        assert_eq!(said(&mut client, &format!("GET {key}")), "null");
        assert_eq!(said(&mut client, &write.replace('K', key)), "OK");
        assert_eq!(said(&mut client, &format!("GET {key}")), "g");
        let left: i64 = said(&mut there, &format!("PTTL {key}")).parse().unwrap();
        let most = if write.contains("EX 3") { 3000 } else { 7000 };
        assert!((most - 2000..=most).contains(&left), "{key}: {left} of {most}");
    }
    // Any type is tested, and many keys.
    let hash = dead[0];
    assert_eq!(said(&mut client, &format!("DEL {hash}")), "1");
    assert_eq!(said(&mut client, &format!("HSET {hash} f v")), "1");
    let left: i64 = said(&mut there, &format!("PTTL {hash}")).parse().unwrap();
    assert!((5000..=7000).contains(&left), "{left}");
    let mget = format!("MGET {} {} {}", dead[1], alive[0], dead[2]);
    assert_eq!(said(&mut client, &mget), "[g m g]");
    let mset = format!("MSET {} n {} n", dead[1], alive[0]);
    assert_eq!(said(&mut client, &mset), "OK");
    assert_eq!(said(&mut there, &format!("MGET {} {}", dead[1], alive[0])), "[n null]");
    assert_eq!(said(&mut client, &format!("EXISTS {} {}", dead[1], alive[0])), "2");
    assert_eq!(said(&mut client, &format!("DEL {} {} nothing", dead[1], alive[0])), "2");
    assert!(metric(&keyway, "failovers", "cache") > dead.len() as f64);
    main[0].restart();
    wait_until("the server to be used again", WITHIN, || {
        said(&mut client, &format!("GET {}", dead[2])) == "null"
    });
}

#[test]
fn what_may_have_been_executed_is_repeated_only_where_that_does_no_harm() {
    let _watch = watchdog(Duration::from_secs(60), "a server that hangs");
    let (main, spare) = (RedisServer::start(), RedisServer::start());
    let keyway = start(vec![
        routed("cache", "failover", &[("children", "[\"main\", \"spare\"]")]),
        pool("main", std::slice::from_ref(&main)),
        pool("spare", std::slice::from_ref(&spare)),
    ]);
    let mut client = keyway.client(0);
    said(&mut spare.client(), "MSET n 1 a 1");
    assert_eq!(said(&mut client, "SET n 5"), "OK");
    main.process().pause();
    let lines = ["SET k x", "INCR n", "GET a", "SET n 9 NX", "DEL k", "LPUSH l 1"];
    let replies: Vec<String> = client.pipeline(&lines).iter().map(shown).collect();
    main.process().resume();
    let unknown = "did not answer in time; the request may have been executed";
    assert_eq!((replies[0].as_str(), replies[2].as_str(), replies[4].as_str()), ("OK", "1", "1"));
    for failed in [1, 3, 5] {
        assert!(replies[failed].ends_with(unknown), "{}", replies[failed]);
    }
    assert_eq!(said(&mut spare.client(), "MGET n a k"), "[1 1 null]");
    // A server that refuses a command has not executed anything.
    said(&mut main.client(), "REPLICAOF 127.0.0.1 1");
    wait_until("it to be read-only", WITHIN, || {
        said(&mut main.client(), "SET x 1").starts_with("-READONLY")
    });
    wait_until("the link to be well", WITHIN, || said(&mut client, "INCR n") == "2");
}

#[test]
fn a_mirror_serves_with_a_dead_server_and_counts_what_it_lacks() {
    let _watch = watchdog(Duration::from_secs(60), "a mirror");
    let (mut first, second) = (RedisServer::start(), RedisServer::start());
    let keyway = start(vec![
        routed("all", "mirror", &[("children", "[\"one\", \"two\", \"local\"]")]),
        routed("quick", "mirror", &[("children", "[\"one\", \"two\"]"), ("wait", "\"first\"")]),
        pool("one", std::slice::from_ref(&first)),
        pool("two", std::slice::from_ref(&second)),
        Pool::store("local"),
    ]);
    let mut client = keyway.client(0);
    assert_eq!(said(&mut client, "MSET a 1 b 2"), "OK");
    assert_eq!(said(&mut client, "SADD s x y"), "2");
    for mut there in [first.client(), second.client(), keyway.client(4)] {
        assert_eq!(said(&mut there, "MGET a b"), "[1 2]");
        assert_eq!(said(&mut there, "SCARD s"), "2");
    }
    first.kill();
    assert_eq!(said(&mut client, "MGET a b"), "[1 2]");
    assert_eq!(said(&mut client, "INCR a"), "2");
    assert_eq!(said(&mut client, "SISMEMBER s x"), "1");
    assert_eq!(said(&mut keyway.client(4), "GET a"), "2");
    assert!(metric(&keyway, "child_failures", "all") >= 3.0);
    first.restart();
    let mut quick = keyway.client(1);
    wait_until("the server to be used again", WITHIN, || said(&mut quick, "GET a") == "null");
    second.process().pause();
    let began = Instant::now();
    assert_eq!(said(&mut quick, "SET w x"), "OK");
    assert!(began.elapsed() < Duration::from_millis(250), "{:?}", began.elapsed());
    second.process().resume();
}

/// Only pools that clients come to are judged, by a listener or a user. `near` and `far` have none.
#[test]
fn a_pool_of_pools_is_ready_while_its_requests_are_served() {
    let _watch = watchdog(Duration::from_secs(120), "readiness of pools of pools");
    let mut servers = RedisServer::start_many(2);
    let behind = |name: &str, server: &RedisServer| {
        format!(
            "[pool.{name}]\nkind = \"sharded\"\nservers = [\"{}:1\"]\n\
             reconnect = {{ min = \"10ms\", max = \"100ms\" }}\n",
            server.address()
        )
    };
    let behind = behind("near", &servers[0]) + &behind("far", &servers[1]);
    let started = |pool: Pool, tables: &str| {
        Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]).with_tables(tables))
    };
    let both = ("children", "[\"near\", \"far\"]");
    let mirror = routed("front", "mirror", &[both, ("read_from", "\"near\"")]);
    let routes = ("routes", "[{ prefix = \"n:\", pool = \"near\" }]");
    let user = "[[user]]\nname = \"app\"\npassword = \"secret\"\nrules = \"~* &* +@all\"\n\
                pool = \"near\"\n";
    let of_user = Pool::store("front").with_listener("users", "[\"app\"]");
    let serving =
        [started(routed("front", "failover", &[both]), &behind), started(mirror, &behind)];
    let needing = [
        started(routed("front", "prefix", &[routes, ("default", "\"far\"")]), &behind),
        started(of_user, &(user.to_owned() + &behind)),
    ];
    let ready = |keyway: &Keyway| http_get(keyway.admin(), "/readyz");
    let near = "pool \"near\": every server is out of use or down: ";
    for keyway in serving.iter().chain(&needing) {
        wait_until("all is up", WITHIN, || ready(keyway).body == "ready\n");
    }
    servers[0].kill();
    for keyway in &serving {
        wait_until("the dead child is told", WITHIN, || ready(keyway).body.contains(near));
        let page = ready(keyway);
        assert!(page.status == 200 && page.body.starts_with("ready\npool \"near\""), "{page:?}");
        assert_eq!(said(&mut keyway.client(0), "SET k v"), "OK");
        assert_eq!(said(&mut keyway.client(0), "GET k"), "v");
    }
    for keyway in &needing {
        wait_until("near is needed", WITHIN, || ready(keyway).status == 503);
        wait_until("it says why", WITHIN, || ready(keyway).body.contains(near));
    }
    servers[1].kill();
    for keyway in &serving {
        wait_until("no child is left", WITHIN, || ready(keyway).status == 503);
        let page = ready(keyway).body;
        let front = "pool \"front\": requests fail, as these pools do not serve: \"near\", \"far\"";
        assert!(page.contains(front) && page.contains("pool \"far\": every server"), "{page}");
    }
    servers[0].restart();
    for keyway in &serving {
        wait_until("one child serves again", WITHIN, || ready(keyway).status == 200);
    }
}

#[test]
fn a_stopped_shadow_slows_nobody() {
    let _watch = watchdog(Duration::from_secs(60), "a shadow");
    let shadow = RedisServer::start();
    let settings = [("main", "\"local\""), ("shadow", "\"copy\""), ("in_flight_max", "10")];
    let keyway = start(vec![
        routed("all", "shadow", &settings),
        Pool::store("local"),
        pool("copy", std::slice::from_ref(&shadow)).with("timeout", "\"5s\""),
    ]);
    let mut client = keyway.client(0);
    assert_eq!(said(&mut client, "MSET a 1 b 2"), "OK");
    assert_eq!(said(&mut client, "INCR a"), "2");
    wait_until("the shadow to have it", WITHIN, || {
        said(&mut shadow.client(), "MGET a b") == "[2 2]"
    });
    shadow.process().pause();
    let began = Instant::now();
    for nth in 0..300 {
        assert_eq!(said(&mut client, &format!("SET key{nth} x")), "OK");
    }
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    // The replies to the first two may still be in flight.
    let dropped = metric(&keyway, "shadow_dropped_requests", "all");
    assert!((290.0..=292.0).contains(&dropped), "{dropped}");
    shadow.process().resume();
}

#[test]
fn what_misses_is_looked_up_further_and_filled_in() {
    let _watch = watchdog(Duration::from_secs(60), "fills");
    let far = RedisServer::start();
    let filling =
        [("children", "[\"near\", \"far\"]"), ("fill", "true"), ("fill_ttl_max", "\"50s\"")];
    let keyway = start(vec![
        routed("all", "miss-then", &filling),
        Pool::store("near"),
        pool("far", std::slice::from_ref(&far)),
    ]);
    let (mut client, mut near, mut there) = (keyway.client(0), keyway.client(1), far.client());
    said(&mut there, "MSET a 1 b 2 c 3 p 4");
    said(&mut there, "EXPIRE b 20");
    said(&mut there, "HSET h f v");
    assert_eq!(said(&mut client, "GET a"), "1");
    assert_eq!(said(&mut client, "MGET a no b c"), "[1 null 2 3]");
    wait_until("them to be filled in", WITHIN, || said(&mut near, "MGET a b c") == "[1 2 3]");
    for (key, most) in [("a", 50), ("b", 20), ("c", 50)] {
        let left: i64 = said(&mut near, &format!("TTL {key}")).parse().unwrap();
        assert!((most - 5..=most).contains(&left), "{key}: {left}");
    }
    assert_eq!(metric(&keyway, "stored_fills", "all"), 3.0);
    assert_eq!(said(&mut client, "HGETALL h"), "[f v]");
    assert_eq!(said(&mut client, "EXISTS h a no"), "2");
    assert_eq!(said(&mut client, "HGET h none"), "null");
    assert_eq!(said(&mut client, "TYPE h"), "hash");
    // Writes go to both pools. Reads sent earlier are executed first, in a pipeline too.
    let replies: Vec<String> = client
        .pipeline(&["GET p", "DEL p", "GET p", "SET p 5", "GET p"])
        .iter()
        .map(shown)
        .collect();
    assert_eq!(replies, ["4", "1", "null", "OK", "5"]);
    assert_eq!(said(&mut there, "GET p"), "5");
    assert_eq!(said(&mut client, "DEL a h"), "2");
    assert_eq!(said(&mut client, "MGET a h"), "[null null]");
    // A dead server is like one without keys.
    drop(far);
    assert_eq!(said(&mut client, "MGET b nothing"), "[2 null]");
}

#[test]
fn kinds_nest_and_hold_under_deep_pipelines() {
    let _watch = watchdog(Duration::from_secs(120), "nested pools");
    let mut servers = RedisServer::start_many(3);
    let keyway = start(vec![
        routed(
            "top",
            "rate-limited",
            &[("child", "\"shadowed\""), ("requests_per_second", "1000000")],
        ),
        routed("shadowed", "shadow", &[("main", "\"by-prefix\""), ("shadow", "\"local\"")]),
        routed(
            "by-prefix",
            "prefix",
            &[("routes", "[{ prefix = \"m:\", pool = \"twins\" }]"), ("default", "\"spared\"")],
        ),
        routed("spared", "failover", &[("children", "[\"twins\"]"), ("gutter", "\"c\"")]),
        routed("twins", "mirror", &[("children", "[\"a\", \"b\"]")]),
        pool("a", &servers[..1]),
        pool("b", &servers[1..2]),
        pool("c", &servers[2..]),
        Pool::store("local"),
    ]);
    let mut client = keyway.client(0);
    let lines: Vec<String> = (0..2000).map(|_| "INCR n".to_owned()).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    for round in 0..3 {
        let replies = client.pipeline(&lines);
        for (nth, reply) in replies.iter().enumerate() {
            assert_eq!(shown(reply), (round * lines.len() + nth + 1).to_string());
        }
    }
    assert_eq!(said(&mut servers[1].client(), "GET n"), "6000");
    assert_eq!(said(&mut client, "MSET m:1 1 x 2"), "OK");
    servers[0].kill();
    assert_eq!(said(&mut client, "MGET m:1 x n"), "[1 2 6000]");
    servers[1].kill();
    assert_eq!(said(&mut client, "SET x 3"), "OK");
    assert_eq!(said(&mut client, "GET x"), "3");
    let left: i64 = said(&mut servers[2].client(), "PTTL x").parse().unwrap();
    assert!((1..=10_000).contains(&left));
    assert!(said(&mut client, "GET m:1").starts_with("-ERR backend 127.0.0.1"));
    servers[2].process().pause();
    for _ in 0..50 {
        let mut gone = keyway.client(0);
        gone.send(&keyway_testkit::encode_words("GET x"));
        gone.send(&keyway_testkit::encode_words("MGET x m:1 y"));
    }
    servers[2].process().resume();
    assert_eq!(said(&mut client, "PING"), "PONG");
    let (status, log) = keyway.stop(WITHIN);
    assert!(status.success(), "{log}");
}
