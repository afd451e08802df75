//! Commands with several keys are split once per shard and joined, or refused with a reason. They
//! never give a wrong answer.

use std::time::Duration;

use keyway_testkit::{Client, Keyway, KeywayConfig, Pool, RedisServer, Shared, Value, watchdog};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

struct Setup {
    keyway: Keyway,
    servers: Vec<RedisServer>,
}

static SETUP: Shared<Setup> = Shared::new();

fn setup() -> std::sync::Arc<Setup> {
    SETUP.get(|| {
        let servers = RedisServer::start_many(4);
        let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::over("main", &servers)]));
        Setup { keyway, servers }
    })
}

fn keys(topic: &str, count: usize) -> Vec<String> {
    (0..count).map(|nth| format!("{topic}:{nth}")).collect()
}

/// Sends `VERB key key ...`.
fn command(client: &mut Client, verb: &str, keys: &[String]) -> Value {
    let words: Vec<&str> = std::iter::once(verb).chain(keys.iter().map(String::as_str)).collect();
    client.command(&words)
}

fn mset(client: &mut Client, keys: &[String]) -> Value {
    let mut words = vec!["MSET".to_owned()];
    for key in keys {
        words.extend([key.clone(), format!("value of {key}")]);
    }
    client.command(&words)
}

/// Returns how many times each server has executed `verb`.
fn calls(servers: &[RedisServer], verb: &str) -> Vec<i64> {
    let label = format!("cmdstat_{verb}:calls=");
    let count = |server: &RedisServer| {
        let text = server.client().words("INFO commandstats").text();
        let digits = text.split_once(&label).and_then(|(_, rest)| rest.split(',').next());
        digits.map_or(0, |digits| digits.parse().expect("a number"))
    };
    servers.iter().map(count).collect()
}

#[test]
fn mset_and_mget_over_all_shards_keep_every_value_in_its_place() {
    let _watch = watchdog(Duration::from_secs(60), "mset and mget");
    let setup = setup();
    let mut client = setup.keyway.client(0);
    for count in [1, 2, 3, 20, 500, 10_000] {
        let keys = keys(&format!("place{count}"), count);
        assert_eq!(mset(&mut client, &keys), Value::simple("OK"));
        let reply = command(&mut client, "MGET", &keys);
        assert_eq!(reply.array().len(), count);
        for (key, value) in keys.iter().zip(reply.array()) {
            assert_eq!(value, &Value::bulk(format!("value of {key}")));
        }
        assert_eq!(command(&mut client, "DEL", &keys), Value::Integer(count as i64));
    }
}

#[test]
fn each_shard_is_asked_once() {
    let _watch = watchdog(Duration::from_secs(60), "once per shard");
    // This test has servers of its own: the counters must count nothing else.
    let servers = RedisServer::start_many(4);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::over("main", &servers)]));
    let mut client = keyway.client(0);
    let keys = keys("once", 400);
    assert_eq!(mset(&mut client, &keys), Value::simple("OK"));
    for verb in ["MGET", "EXISTS", "TOUCH", "UNLINK", "DEL"] {
        assert!(!command(&mut client, verb, &keys).is_error());
        assert_eq!(calls(&servers, &verb.to_lowercase()), [1, 1, 1, 1], "{verb}");
    }
    assert_eq!(calls(&servers, "mset"), [1, 1, 1, 1]);
}

#[test]
fn counts_are_summed_and_missing_keys_stay_nil() {
    let _watch = watchdog(Duration::from_secs(60), "sums");
    let setup = setup();
    let mut client = setup.keyway.client(0);
    let all = keys("sum", 100);
    let there: Vec<String> = all.iter().step_by(2).cloned().collect();
    assert_eq!(mset(&mut client, &there), Value::simple("OK"));
    assert_eq!(command(&mut client, "EXISTS", &all), Value::Integer(50));
    assert_eq!(command(&mut client, "TOUCH", &all), Value::Integer(50));
    let reply = command(&mut client, "MGET", &all);
    for (nth, value) in reply.array().iter().enumerate() {
        assert_eq!(*value == Value::Nil, nth % 2 == 1, "{nth}");
    }
    let twice: Vec<String> = there.iter().chain(&there).cloned().collect();
    assert_eq!(
        command(&mut client, "EXISTS", &twice),
        Value::Integer(100),
        "counted as often as named"
    );
    assert_eq!(command(&mut client, "UNLINK", &all[..50]), Value::Integer(25));
    assert_eq!(command(&mut client, "DEL", &twice), Value::Integer(25));
}

#[test]
fn a_key_named_twice_gets_the_last_value() {
    let _watch = watchdog(Duration::from_secs(60), "named twice");
    let setup = setup();
    let mut client = setup.keyway.client(0);
    let reply = client.words("MSET twice:a 1 twice:b 2 twice:a 3 twice:c 4 twice:a 5");
    assert_eq!(reply, Value::simple("OK"));
    assert_eq!(client.words("GET twice:a"), Value::bulk("5"));
    let reply = client.words("MGET twice:a twice:b twice:a");
    assert_eq!(reply, Value::Array(["5", "2", "5"].map(Value::bulk).to_vec()));
}

/// Returns two keys on different servers, found by asking the servers.
fn apart(setup: &Setup) -> (String, String) {
    let mut client = setup.keyway.client(0);
    let keys = keys("apart", 64);
    assert_eq!(mset(&mut client, &keys), Value::simple("OK"));
    let home = |key: &String| {
        setup.servers.iter().position(|server| {
            server.client().command(&["EXISTS", key.as_str()]) == Value::Integer(1)
        })
    };
    let first = home(&keys[0]).expect("the key is somewhere");
    let other = keys.iter().find(|key| home(key) != Some(first)).expect("four servers are used");
    (keys[0].clone(), other.clone())
}

#[test]
fn what_cannot_be_split_is_refused_with_the_number_of_servers_and_a_hint() {
    let _watch = watchdog(Duration::from_secs(60), "cross slot");
    let setup = setup();
    let (a, b) = apart(&setup);
    let mut client = setup.keyway.client(0);
    for line in [
        "RENAME A B",
        "RENAMENX A B",
        "COPY A B",
        "MSETNX A 1 B 2",
        "SINTER A B",
        "SUNION A B",
        "SDIFFSTORE A B",
        "PFCOUNT A B",
        "PFMERGE A B",
        "ZUNIONSTORE A 1 B",
        "ZINTER 2 A B",
        "BITOP AND A B",
        "SMOVE A B x",
        "RPOPLPUSH A B",
        "LMOVE A B LEFT RIGHT",
        "LCS A B",
        "EVAL return 2 A B",
        "ZRANGESTORE A B 0 1",
        "SORT A STORE B",
        "GEOSEARCHSTORE A B FROMMEMBER x BYRADIUS 1 m",
    ] {
        let words: Vec<&str> = line
            .split(' ')
            .map(|word| match word {
                "A" => a.as_str(),
                "B" => b.as_str(),
                other => other,
            })
            .collect();
        let text = client.command(&words).error_text();
        assert!(text.starts_with("CROSSSLOT "), "{line}: {text}");
        assert!(text.contains("2 servers"), "{line}: {text}");
        assert!(text.contains("hash tag"), "{line}: {text}");
    }
    assert_eq!(client.words("PING"), Value::simple("PONG"));
}

#[test]
fn a_hash_tag_makes_it_work() {
    let _watch = watchdog(Duration::from_secs(60), "hash tag");
    let setup = setup();
    let mut client = setup.keyway.client(0);
    assert_eq!(client.words("MSETNX {tag}a 1 {tag}b 2"), Value::Integer(1));
    assert_eq!(client.words("RENAME {tag}a {tag}c"), Value::simple("OK"));
    assert_eq!(
        client.words("MGET {tag}b {tag}c"),
        Value::Array(["2", "1"].map(Value::bulk).to_vec())
    );
    assert_eq!(client.words("DEL {tag}b {tag}c"), Value::Integer(2));
}

#[test]
fn split_and_whole_commands_pipelined_together_answer_in_order() {
    let _watch = watchdog(Duration::from_secs(60), "mixed pipeline");
    let setup = setup();
    let mut client = setup.keyway.client(0);
    for round in 0..50 {
        let topic = format!("mixed{round}");
        let lines: Vec<String> = vec![
            format!("MSET {topic}:a 1 {topic}:b 2 {topic}:c 3 {topic}:d 4"),
            format!("GET {topic}:c"),
            "PING".to_owned(),
            format!("MGET {topic}:d {topic}:none {topic}:a"),
            format!("INCR {topic}:b"),
            format!("EXISTS {topic}:a {topic}:b {topic}:c {topic}:e"),
            format!("DEL {topic}:a {topic}:b {topic}:c {topic}:d"),
            format!("MGET {topic}:a {topic}:b"),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let replies = client.pipeline(&lines);
        let wanted = [
            Value::simple("OK"),
            Value::bulk("3"),
            Value::simple("PONG"),
            Value::Array(vec![Value::bulk("4"), Value::Nil, Value::bulk("1")]),
            Value::Integer(3),
            Value::Integer(3),
            Value::Integer(4),
            Value::Array(vec![Value::Nil, Value::Nil]),
        ];
        assert_eq!(replies, wanted, "round {round}");
    }
}
