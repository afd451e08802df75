//! Keys that a real redis-server hands over to the embedded store with MIGRATE, and the reported
//! memory of them.

use std::time::Duration;

use keyway_testkit::{Client, Keyway, KeywayConfig, Pool, RedisServer, Value, watchdog};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const KEYS: [&str; 7] = ["text", "list", "set", "hash", "sorted", "stream", "sketch"];

fn store() -> Keyway {
    let config = KeywayConfig::new(vec![Pool::store("local")]);
    Keyway::start(KEYWAY, config.with_server("workers", "2"))
}

/// Makes a key of each type.
fn fill(client: &mut Client) {
    client.pipeline(&[
        "SET text value PX 3600000",
        "RPUSH list a b 1 -70000",
        "SADD set 1 2 3",
        "HSET hash f v g 12",
        "ZADD sorted 1.5 a -inf b",
        "PFADD sketch a b c",
        "XADD stream 1-1 f v g w",
        "XADD stream 2-1 f v g w",
        "XADD stream 3-1 f v",
        "XDEL stream 2-1",
        "XGROUP CREATE stream g 0",
        "XREADGROUP GROUP g c COUNT 1 STREAMS stream >",
        "XGROUP CREATECONSUMER stream g idle",
    ]);
}

/// Returns the value of each key.
fn contents(client: &mut Client) -> Vec<Value> {
    let lines = [
        "GET text",
        "LRANGE list 0 -1",
        "SMEMBERS set",
        "HGETALL hash",
        "ZRANGE sorted 0 -1 WITHSCORES",
        "PFCOUNT sketch",
        "XRANGE stream - +",
        "XPENDING stream g",
        "XPENDING stream g - + 10 c",
        "XINFO GROUPS stream",
    ];
    let mut all: Vec<Value> = lines.iter().map(|line| client.words(line)).collect();
    // The time since the delivery may differ.
    if let Value::Array(deliveries) = &mut all[8]
        && let Some(Value::Array(parts)) = deliveries.first_mut()
    {
        parts.remove(2);
    }
    all
}

#[test]
fn a_server_migrates_keys_of_every_type_to_the_store() {
    let _watch = watchdog(Duration::from_secs(60), "migrate");
    let (bare, keyway) = (RedisServer::start(), store());
    let (mut theirs, mut ours) = (bare.client(), keyway.client(0));
    fill(&mut theirs);
    let expected = contents(&mut theirs);
    let port = keyway.address(0).port();
    for key in KEYS {
        let line = format!("MIGRATE 127.0.0.1 {port} {key} 0 5000 COPY");
        assert_eq!(theirs.words(&line), Value::simple("OK"), "{key}");
        let again = theirs.words(&line).error_text();
        assert!(again.contains("BUSYKEY"), "{again}");
    }
    assert_eq!(contents(&mut ours), expected);
    let left = ours.words("PTTL text").integer();
    assert!((3_500_000..=3_600_000).contains(&left), "{left}");
    // All keys are handed over at once, replacing existing ones, into another database.
    let all = KEYS.join(" ");
    let empty = |line: &str| -> Vec<Vec<u8>> {
        line.split(' ').map(|word| if word == "''" { Vec::new() } else { word.into() }).collect()
    };
    for _ in 0..2 {
        let line = format!("MIGRATE 127.0.0.1 {port} '' 3 5000 COPY REPLACE KEYS {all}");
        assert_eq!(theirs.command(&empty(&line)), Value::simple("OK"));
    }
    ours.words("SELECT 3");
    assert_eq!(contents(&mut ours), expected);
    let line = format!("MIGRATE 127.0.0.1 {port} '' 4 5000 KEYS {all}");
    assert_eq!(theirs.command(&empty(&line)), Value::simple("OK"));
    assert_eq!(theirs.words("DBSIZE"), Value::Integer(0));
    ours.words("SELECT 4");
    assert_eq!(contents(&mut ours), expected);
}

#[test]
fn memory_usage_grows_with_the_value_and_has_the_errors_of_a_bare_server() {
    let _watch = watchdog(Duration::from_secs(60), "memory");
    let (bare, keyway) = (RedisServer::start(), store());
    let (mut theirs, mut ours) = (bare.client(), keyway.client(0));
    fill(&mut theirs);
    fill(&mut ours);
    for line in [
        "MEMORY USAGE none",
        "MEMORY USAGE none SAMPLES 5",
        "MEMORY USAGE text SAMPLES",
        "MEMORY USAGE text SAMPLES x",
        "MEMORY USAGE text SAMPLES -1",
        "MEMORY USAGE text SAMPLE 1",
        "MEMORY USAGE",
        "MEMORY PURGE",
        "MEMORY HELP",
    ] {
        assert_eq!(ours.words(line), theirs.words(line), "{line}");
    }
    for key in KEYS {
        let usage = |client: &mut Client, samples: &str| {
            client.words(&format!("MEMORY USAGE {key}{samples}")).integer()
        };
        let (mine, other) = (usage(&mut ours, ""), usage(&mut theirs, ""));
        assert!(mine > 16 && mine < 2 * other + 4096, "{key}: {mine}, {other}");
        assert_eq!(mine, usage(&mut ours, " SAMPLES 0"));
    }
    let value = "v".repeat(100_000);
    ours.words(&format!("SET text {value}"));
    let usage = ours.words("MEMORY USAGE text").integer();
    assert!((100_000..140_000).contains(&usage), "{usage}");
    // This is RESTORE under its other name.
    let dump = ours.words("DUMP hash");
    let mut line: Vec<Vec<u8>> = ["RESTORE-ASKING", "copy", "0"].map(Into::into).to_vec();
    line.push(dump.bytes().to_vec());
    assert_eq!(ours.command(&line), Value::simple("OK"));
    assert_eq!(ours.words("HGETALL copy"), theirs.words("HGETALL hash"));
}
