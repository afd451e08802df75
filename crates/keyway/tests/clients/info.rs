//! INFO on a sharded pool: Keyway itself, the sums over its servers, and each server alone.

#![allow(clippy::disallowed_methods, reason = "execution is timed from outside")]

use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Value, encode, encode_words, wait_until,
    watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let mut values =
        text.split("\r\n").filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    values.next().unwrap_or_else(|| panic!("no {name} in {text}"))
}

fn number(text: &str, name: &str) -> u64 {
    field(text, name).parse().expect("a number")
}

#[test]
fn what_concerns_data_is_the_sum_over_the_servers() {
    let _watch = watchdog(Duration::from_secs(60), "sums in INFO");
    let servers = RedisServer::start_many(3);
    let pool = Pool::over("main", &servers).with("databases", "2").with("database", "3");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    for nth in 0..60 {
        client.words(&format!("SET k{nth} v{}", if nth < 20 { " EX 1000" } else { "" }));
        client.words(&format!("GET k{nth}"));
        client.words(&format!("GET none{nth}"));
    }
    client.pipeline(&["SELECT 1", "SET other 1", "SELECT 0"]);
    // This key is not the pool's: its servers may serve others as well.
    servers[0].client().pipeline(&["SELECT 9", "SET foreign 1"]);
    let text = client.words("INFO").text();
    let database = field(&text, "db0");
    assert!(database.starts_with("keys=60,expires=20,avg_ttl="), "{database}");
    let ttl: u64 = database.rsplit('=').next().and_then(|ttl| ttl.parse().ok()).expect("a number");
    // A server computes this in passing, and reports 0 until then.
    assert!(ttl <= 1_000_000, "{ttl}");
    assert!(field(&text, "db1").starts_with("keys=1,expires=0,"));
    assert_eq!(text.matches("\r\ndb").count(), 2, "{text}");
    assert_eq!((number(&text, "keyspace_hits"), number(&text, "keyspace_misses")), (60, 60));
    let direct = |name| -> u64 {
        servers.iter().map(|server| number(&server.client().words("INFO").text(), name)).sum()
    };
    let used = number(&text, "used_memory");
    assert!(used > direct("used_memory") / 2 && used < direct("used_memory") * 2, "{used}");
    assert!(number(&text, "total_commands_processed") > 180);
    assert_eq!(number(&text, "maxmemory"), 0);
    assert_eq!(field(&text, "maxmemory_policy"), "noeviction");
    assert_eq!(number(&text, "connected_slaves"), 0);
    // Fields about Keyway itself stay.
    assert_eq!(number(&text, "tcp_port"), u64::from(keyway.address(0).port()));
    assert_eq!(number(&text, "connected_clients"), 1);
    assert!(field(&text, "keyway_version").starts_with(|first: char| first.is_ascii_digit()));
    let mut names: Vec<_> = text.lines().filter_map(|line| line.split_once(':')).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup_by_key(|(name, _)| *name);
    assert_eq!(names.len(), count, "no field is there twice");
    // In RESP3 the reply is a text, and in a pipeline it has its place.
    client.words("HELLO 3");
    let replies = client.pipeline(&["GET k1", "INFO keyspace", "GET k1"]);
    assert_eq!((&replies[0], &replies[2]), (&Value::bulk("v"), &Value::bulk("v")));
    assert!(replies[1].text().contains("# Keyspace\r\ndb0:keys=60,"), "{:?}", replies[1]);
}

#[test]
fn what_is_keyways_alone_asks_no_server() {
    let _watch = watchdog(Duration::from_secs(60), "local sections");
    let servers = RedisServer::start_many(2);
    let pool = Pool::over("main", &servers);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    for section in ["server", "clients", "cpu persistence", "commandstats", "keyway", "cluster"] {
        assert!(client.words(&format!("INFO {section}")).text().starts_with("# "), "{section}");
    }
    for server in &servers {
        let stats = server.client().words("INFO commandstats").text();
        assert!(!stats.contains("cmdstat_info"), "{stats}");
    }
}

#[test]
fn each_server_has_a_line_and_can_be_asked_alone() {
    let _watch = watchdog(Duration::from_secs(60), "servers in INFO");
    let servers = RedisServer::start_many(2);
    let replica = format!("127.0.0.1 {}", servers[0].port());
    let _replica = RedisServer::start_with(&["--replicaof", &replica]);
    let mut main = servers[0].client();
    while number(&main.words("INFO replication").text(), "connected_slaves") == 0 {}
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::over("main", &servers)]));
    let mut client = keyway.client(0);
    (0..20).for_each(|nth| assert!(!client.words(&format!("SET k{nth} v")).is_error()));
    let text = client.words("INFO backends").text();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((lines[0], lines.len()), ("# Backends", 3), "{text}");
    let mut keys = 0;
    for (nth, server) in servers.iter().enumerate() {
        let line = lines[1 + nth];
        let address = format!("address=127.0.0.1:{},health=up,", server.port());
        assert!(
            line.starts_with(&format!("server{nth}:name=")) && line.contains(&address),
            "{line}"
        );
        assert!(line.contains(",answered=yes,role=master,version=7.0."), "{line}");
        assert!(line.contains(",latency_usec="), "{line}");
        let value = line.split(",keys=").nth(1).and_then(|rest| rest.split(',').next());
        keys += value.and_then(|value| value.parse::<u64>().ok()).expect("a number");
    }
    assert_eq!(keys, 20);
    assert!(lines[1].ends_with(",connected_slaves=1"), "{text}");
    assert_eq!(number(&client.words("INFO replication").text(), "connected_slaves"), 1);
    for server in &servers {
        let at = format!("127.0.0.1:{}", server.port());
        let whole = client.words(&format!("INFO backend {at}")).text();
        assert_eq!(number(&whole, "tcp_port"), u64::from(server.port()));
        assert!(whole.contains("# Keyspace"), "{whole}");
        let section = client.words(&format!("info BACKEND {at} cpu")).text();
        assert!(section.starts_with("# CPU") && !section.contains("# Server"), "{section}");
    }
    let unknown = client.words("INFO backend nobody").error_text();
    assert!(unknown.starts_with("ERR no server of pool main has this name"), "{unknown}");
}

#[test]
fn a_server_that_does_not_answer_is_shown_as_such() {
    let _watch = watchdog(Duration::from_secs(60), "missing servers");
    let mut servers = RedisServer::start_many(3);
    let pool = Pool::over("main", &servers).with("timeout", "\"300ms\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    assert!(!client.words("INFO").text().contains("# Missing"));
    servers[1].process().pause();
    servers[2].kill();
    let missing = |text: &str, nth: usize| {
        let line = text.lines().find(|line| line.starts_with(&format!("missing{nth}:name=")));
        line.unwrap_or_else(|| panic!("server {nth} is missing in {text}")).to_owned()
    };
    let text = client.words("INFO memory").text();
    assert!(missing(&text, 1).contains(",reason=did not answer in time"), "{text}");
    assert!(missing(&text, 2).contains(",reason="), "{text}");
    assert!(number(&text, "used_memory") > 0);
    let list = client.words("INFO backends").text();
    assert_eq!(list.matches("answered=yes").count(), 1, "{list}");
    assert_eq!(list.matches("answered=no,reason=").count(), 2, "{list}");
    servers[1].process().resume();
    servers[0].kill();
    servers[1].kill();
    let text = client.words("INFO").text();
    assert_eq!(text.matches("\r\nmissing").count(), 3, "{text}");
    assert!(!text.contains("\r\nused_memory:"), "nothing is shown as zero: {text}");
    assert!(number(&text, "connected_clients") == 1);
}

#[test]
fn clients_that_wait_and_clients_that_track_are_counted() {
    let _watch = watchdog(Duration::from_secs(60), "counts of clients in INFO");
    let servers = RedisServer::start_many(2);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::over("main", &servers)]));
    let mut client = keyway.client(0);
    let mut counts = || {
        let text = client.words("INFO clients").text();
        (number(&text, "blocked_clients"), number(&text, "tracking_clients"))
    };
    const SECONDS: Duration = Duration::from_secs(10);
    assert_eq!(counts(), (0, 0));
    let (mut waiting, mut tracking) = (keyway.client(0), keyway.client(0));
    waiting.send(&encode_words("BLPOP none 0"));
    tracking.words("HELLO 3");
    tracking.words("CLIENT TRACKING ON");
    wait_until("both to be counted", SECONDS, || counts() == (1, 1));
    drop((waiting, tracking));
    wait_until("both to have left", SECONDS, || counts() == (0, 0));
}

#[test]
fn the_store_counts_pauses_changes_and_tracked_keys_as_redis_does() {
    let _watch = watchdog(Duration::from_secs(60), "counts of the store in INFO");
    let bare = RedisServer::start_with(&["--save", ""]);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("cache")]));
    const NAMES: [&str; 5] = [
        "blocked_clients",
        "rdb_changes_since_last_save",
        "tracking_total_keys",
        "tracking_total_items",
        "tracking_total_prefixes",
    ];
    let counts = |mut connect: Box<dyn FnMut() -> Client>| -> Vec<Vec<u64>> {
        let mut clients: Vec<Client> = (0..5).map(|_| connect()).collect();
        let [asking, writing, first, second, broad] = &mut clients[..] else { panic!("five") };
        let mut counts = || {
            let text = asking.words("INFO").text().to_owned();
            NAMES.map(|name| number(&text, name)).to_vec()
        };
        let mut told = vec![counts()];
        for line in [
            "SET a 1",
            "SET a 2",
            "GET a",
            "GET none",
            "INCR n",
            "DEL none",
            "DEL a",
            "HSET h f 1",
            "HSET h f 2",
            "LPUSH l 1",
            "SADD s 1",
            "SADD s 1",
            "EXPIRE n 100",
            "EXPIRE none 100",
            "PERSIST n",
            "APPEND a x",
        ] {
            writing.words(line);
        }
        told.push(counts());
        for client in [&mut *first, &mut *second, &mut *broad] {
            client.words("HELLO 3");
        }
        first.words("CLIENT TRACKING ON");
        second.words("CLIENT TRACKING ON");
        broad.words("CLIENT TRACKING ON BCAST PREFIX p: PREFIX q:");
        for line in ["GET n", "GET h", "GET none"] {
            first.words(line);
        }
        second.words("GET n");
        second.words("GET n");
        told.push(counts());
        writing.words("INCR n");
        told.push(counts());
        writing.words("CLIENT PAUSE 60000 WRITE");
        second.send(&encode_words("SET waiting 1"));
        broad.send(&encode_words("SET waiting 1"));
        wait_until("both wait", Duration::from_secs(10), || counts()[0] == 2);
        told.push(counts());
        writing.words("CLIENT UNPAUSE");
        wait_until("both go on", Duration::from_secs(10), || counts()[0] == 0);
        told
    };
    let expected = counts(Box::new(move || bare.client()));
    assert_eq!(counts(Box::new(move || keyway.client(0))), expected);
}

#[test]
fn the_time_of_commands_is_that_of_their_execution() {
    let _watch = watchdog(Duration::from_secs(60), "times in INFO");
    let config = KeywayConfig::new(vec![Pool::store("cache")]).with_server("workers", "1");
    let keyway = Keyway::start(KEYWAY, config);
    let mut client = keyway.client(0);
    let began = std::time::Instant::now();
    client.send(&encode_words("SET k v").repeat(20_000));
    client.replies(20_000);
    let text = client.words("INFO commandstats").text().to_owned();
    let elapsed = began.elapsed().as_micros() as u64;
    let line = field(&text, "cmdstat_set");
    let (calls, rest) = line.split_once(",usec=").expect("a time");
    let micros: u64 = rest.split(',').next().and_then(|text| text.parse().ok()).expect("a number");
    assert_eq!(calls, "calls=20000");
    assert!((1..=elapsed).contains(&micros), "{line} of {elapsed}");
}

#[test]
fn channels_and_patterns_that_clients_have_subscribed_to_are_counted() {
    let _watch = watchdog(Duration::from_secs(60), "channels in INFO");
    let servers = RedisServer::start_many(2);
    let pools = vec![Pool::over("main", &servers), Pool::store("cache")];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools).with_server("workers", "2"));
    for pool in 0..2 {
        let mut client = keyway.client(pool);
        let mut counts = || {
            let text = client.words("INFO stats").text();
            (number(&text, "pubsub_channels"), number(&text, "pubsub_patterns"))
        };
        assert_eq!(counts(), (0, 0));
        let mut subscribers = [keyway.client(pool), keyway.client(pool)];
        for subscriber in &mut subscribers {
            subscriber.send(&encode_words("SUBSCRIBE a b c d"));
            subscriber.send(&encode_words("PSUBSCRIBE p* q*"));
            subscriber.replies(6);
        }
        assert_eq!(counts(), (4, 2));
        drop(subscribers);
        wait_until("both to have left", Duration::from_secs(10), || counts() == (0, 0));
    }
}

#[test]
fn the_store_tells_how_much_it_takes_and_took_at_most() {
    let _watch = watchdog(Duration::from_secs(60), "memory of the store");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("cache")]));
    let mut client = keyway.client(0);
    let text = client.words("INFO memory").text();
    assert!(number(&text, "used_memory") < number(&text, "used_memory_rss"), "{text}");
    let empty = number(&text, "used_memory");
    assert!(number(&text, "used_memory_peak") >= empty, "{text}");
    let value = "v".repeat(8 << 20);
    assert_eq!(client.words(&format!("SET large {value}")).text(), "OK");
    let text = client.words("INFO memory").text();
    let used = number(&text, "used_memory");
    assert!(used >= empty + (8 << 20) && used < number(&text, "used_memory_rss"), "{text}");
    assert!(number(&text, "used_memory_peak") >= used, "{text}");
    assert_eq!(client.words("DEL large").integer(), 1);
    // Large values are freed in steps.
    wait_until("it is freed", Duration::from_secs(20), || {
        number(&client.words("INFO memory").text(), "used_memory") < used
    });
    let text = client.words("INFO memory").text();
    let ratio = number(&text, "used_memory_rss") as f64 / number(&text, "used_memory") as f64;
    assert!(text.contains("mem_fragmentation_ratio:") && ratio > 1.0, "{text}");
    let stats = format!("{:?}", client.words("MEMORY STATS"));
    assert!(stats.contains("total.allocated") && stats.contains("peak.allocated"), "{stats}");
}

/// Returns the section of errors of INFO, without its head.
fn errors_of(client: &mut Client) -> Vec<String> {
    let text = client.words("INFO errorstats").text();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    assert_eq!(lines.next(), Some("# Errorstats"));
    lines.map(str::to_owned).collect()
}

#[test]
fn errors_are_counted_by_their_first_word_as_on_a_bare_server() {
    let _watch = watchdog(Duration::from_secs(60), "errorstats");
    let (bare, server) = (RedisServer::start(), RedisServer::start());
    let pools = vec![Pool::store("local"), Pool::over("main", std::slice::from_ref(&server))];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools).with_server("workers", "2"));
    let lines = [
        "SET s a",
        "LPUSH s b",
        "LPUSH s b",
        "INCR s",
        "NOSUCH a",
        "GET",
        "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0",
        "MULTI",
        "GET",
        "EXEC",
        "XGROUP CREATE none g $",
        "XREADGROUP GROUP g c STREAMS none >",
        "GET s",
    ];
    let mut told = Vec::new();
    for mut client in [bare.client(), keyway.client(0), keyway.client(1)] {
        lines.iter().for_each(|line| drop(client.words(line)));
        let before = errors_of(&mut client);
        assert_eq!(client.words("CONFIG RESETSTAT"), Value::simple("OK"));
        assert_eq!(errors_of(&mut client), [""; 0]);
        assert!(client.words("HSET s a b").is_error());
        told.push((before, errors_of(&mut client)));
    }
    assert!(told[0].0.len() >= 4, "{told:?}");
    assert_eq!(told[1], told[0], "the store");
    assert_eq!(told[2], told[0], "a pool");
    // Errors of commands within a transaction count as well.
    let mut client = keyway.client(0);
    ["MULTI", "HSET s a b", "EXEC"].iter().for_each(|line| drop(client.words(line)));
    assert_eq!(errors_of(&mut client), ["errorstat_WRONGTYPE:count=2"]);
}

#[test]
fn errors_within_scripts_and_those_that_nobody_hears_are_counted_as_on_a_bare_server() {
    let _watch = watchdog(Duration::from_secs(60), "errorstats of scripts");
    let bare = RedisServer::start();
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("local")]));
    let scripts = [
        "redis.pcall('hset', 's', 'a', 'b') return 1",
        "return redis.pcall('hset', 's', 'a', 'b')",
        "return redis.call('hset', 's', 'a', 'b')",
        "for n = 1, 3 do redis.pcall('incr', 's') end return redis.call('lpush', 's', 1)",
        "return {redis.pcall('incr', 's'), 2}",
        "redis.pcall('nosuch') return 1",
        "redis.pcall('get') return 1",
        "redis.pcall('subscribe', 'a') return 1",
        "return redis.call('nosuch')",
        "return redis.error_reply('MINE is my own')",
        "local e = redis.pcall('incr', 's') error(e)",
        "local e = redis.pcall('incr', 's') return redis.error_reply(e.err)",
        "error({err = 'MINE again'})",
        "error('text')",
        "syntax error",
    ];
    let mut told = Vec::new();
    for mut client in [bare.client(), keyway.client(0)] {
        client.words("SET s a");
        let mut counts = Vec::new();
        for script in scripts {
            client.words("CONFIG RESETSTAT");
            client.command(&["EVAL", script, "0"]);
            counts.push((script, errors_of(&mut client)));
        }
        client.words("CONFIG RESETSTAT");
        client.pipeline(&["MULTI"]);
        client.command(&["EVAL", scripts[2], "0"]);
        client.command(&["EVAL", scripts[8], "0"]);
        client.pipeline(&["EXEC"]);
        counts.push(("EXEC", errors_of(&mut client)));
        client.words("CONFIG RESETSTAT");
        let lines =
            ["CLIENT REPLY OFF", "HSET s a b", "NOSUCH a", "GET", "CLIENT NOSUCH", "PING a b c"];
        lines.iter().for_each(|line| client.send(&encode_words(line)));
        client.send(&encode(&["EVAL", scripts[0], "0"]));
        client.send(&encode(&["EVAL", scripts[2], "0"]));
        client.send(&encode_words("CLIENT REPLY ON"));
        assert_eq!(client.reply(), Value::simple("OK"));
        counts.push(("CLIENT REPLY OFF", errors_of(&mut client)));
        told.push(counts);
    }
    for (bare, ours) in told[0].iter().zip(&told[1]) {
        assert_eq!(ours, bare);
    }
    assert_eq!(told[0][0].1, ["errorstat_WRONGTYPE:count=1"]);
}

#[test]
fn counts_begin_anew_when_that_is_asked_for_and_metrics_do_not() {
    let _watch = watchdog(Duration::from_secs(60), "resetstat");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("local")]));
    let mut client = keyway.client(0);
    client.words("SET k v");
    (0..10).for_each(|_| drop(client.pipeline(&["GET k", "GET none"])));
    let hits = |client: &mut Client| {
        let text = client.words("INFO stats commandstats").text();
        let find = |name: &str| {
            let value = text.lines().find_map(|line| line.trim().strip_prefix(name));
            value.unwrap_or_default().to_owned()
        };
        ["keyspace_hits:", "keyspace_misses:", "cmdstat_get:"].map(find)
    };
    let before = hits(&mut client);
    assert_eq!(before[..2], ["10", "10"]);
    assert!(before[2].starts_with("calls=20,"), "{before:?}");
    assert_eq!(client.words("CONFIG RESETSTAT"), Value::simple("OK"));
    assert_eq!(hits(&mut client), ["0", "0", ""]);
    client.words("GET k");
    assert_eq!(hits(&mut client)[..2], ["1", "0"]);
    let hits = keyway.metrics().sum("keyway_store_hits_total", &[]);
    assert_eq!(hits, 11.0);
}
