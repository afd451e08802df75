//! Hash fields with an expiry, expiries that reads put off, and quotas of prefixes, as clients see
//! them.

#![allow(clippy::disallowed_methods, reason = "waits are timed from outside")]

use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Value, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const BOUND: Duration = Duration::from_secs(20);

fn start(pool: Pool) -> Keyway {
    Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]).with_server("workers", "2"))
}

fn integers(value: &Value) -> Vec<i64> {
    let integer = |value: &Value| match value {
        Value::Integer(value) => *value,
        other => panic!("no integer: {other:?}"),
    };
    value.array().iter().map(integer).collect()
}

#[test]
fn fields_expire_for_every_client_and_are_told_of() {
    let _watch = watchdog(Duration::from_secs(60), "fields");
    let keyway = start(Pool::store("local").with("notify_keyspace_events", "\"Eh$g\""));
    let (mut client, mut hearer) = (keyway.client(0), keyway.client(0));
    hearer.words("PSUBSCRIBE __keyevent@0__:*");
    assert_eq!(client.words("HSET hash a 1 b 2 c 3"), Value::Integer(3));
    assert_eq!(integers(&client.words("HPEXPIRE hash 1000 FIELDS 2 a none")), [1, -2]);
    assert_eq!(integers(&client.words("HEXPIRE hash 100 FIELDS 1 b")), [1]);
    assert_eq!(integers(&client.words("HTTL hash FIELDS 2 b c")), [100, -1]);
    let reply = client.words("HSETEX gone PX 500 FIELDS 1 a 1");
    assert_eq!(reply, Value::Integer(1));
    // The keys are not touched until the notifications have come.
    let mut heard = Vec::new();
    while heard.len() < 8 {
        let message = hearer.reply();
        let [.., channel, key] = message.array() else { panic!("{message:?}") };
        let event = channel.text().replace("__keyevent@0__:", "");
        heard.push(format!("{event} {}", key.text()));
    }
    let of = |key: &str| -> Vec<&str> {
        let of_key = |event| str::strip_suffix(event, key)?.strip_suffix(' ');
        heard.iter().filter_map(|event| of_key(event)).collect()
    };
    assert_eq!(of("hash"), ["hset", "hexpire", "hexpire", "hexpired"]);
    assert_eq!(of("gone"), ["hset", "hexpire", "hexpired", "del"]);
    assert_eq!(client.words("EXISTS gone hash"), Value::Integer(1));
    assert_eq!(client.words("HLEN hash"), Value::Integer(2));
    assert!(client.words("INFO stats").text().contains("expired_subkeys:2\r\n"));
    assert_eq!(keyway.metrics().sum("keyway_store_expired_fields_total", &[]), 2.0);
}

#[test]
fn who_keeps_a_hash_is_told_that_a_field_expired_and_who_watches_it_fails() {
    let _watch = watchdog(Duration::from_secs(60), "watched fields");
    let keyway = start(Pool::store("local"));
    let (mut keeper, mut watcher, mut other) =
        (keyway.client(0), keyway.client(0), keyway.client(0));
    other.words("HSET hash a 1 b 2");
    other.words("HPEXPIRE hash 1500 FIELDS 1 a");
    keeper.words("HELLO 3");
    keeper.words("CLIENT TRACKING ON");
    keeper.words("HGET hash b");
    watcher.words("WATCH hash");
    let told = keeper.reply();
    assert!(format!("{told:?}").contains("invalidate"), "{told:?}");
    watcher.words("MULTI");
    watcher.words("HSET hash c 3");
    assert_eq!(watcher.words("EXEC"), Value::NilArray);
    assert_eq!(other.words("HLEN hash"), Value::Integer(1));
}

/// Sends a request to a pool whose servers are older, and to one of them.
fn forwarded(pool: &mut Client, bare: &mut Client, line: &str) -> Value {
    let reply = pool.words(line);
    assert_eq!(reply, bare.words(line), "{line}");
    reply
}

#[test]
fn a_pool_forwards_what_its_servers_do_not_know_and_they_say_so() {
    let _watch = watchdog(Duration::from_secs(60), "forwarded");
    let servers = [RedisServer::start(), RedisServer::start()];
    let keyway = start(Pool::over("pool", &servers));
    let (mut pool, mut bare) = (keyway.client(0), servers[0].client());
    for line in [
        "HEXPIRE hash 10 FIELDS 1 f",
        "HTTL hash FIELDS 1 f",
        "HGETEX hash EX 10 FIELDS 1 f",
        "HSETEX hash FIELDS 1 f v",
        "HGETDEL hash FIELDS 1 f",
    ] {
        let reply = forwarded(&mut pool, &mut bare, line);
        assert!(reply.text().contains("unknown command"), "{reply:?}");
    }
    // A mistake that does not depend on the server is reported at once.
    let reply = pool.words("HEXPIRE hash");
    assert_eq!(reply.text(), "ERR wrong number of arguments for 'hexpire' command");
    let info = pool.words("COMMAND INFO hexpire");
    let Value::Array(entries) = &info else { panic!("{info:?}") };
    assert_eq!(entries[0].array()[1], Value::Integer(-6));
    let keys = pool.words("COMMAND GETKEYS HSETEX hash FIELDS 1 f v");
    assert_eq!(keys, Value::Array(vec![Value::bulk("hash")]));
    forwarded(&mut pool, &mut bare, "PING");
}

#[test]
fn what_is_dumped_keeps_its_times_wherever_it_goes() {
    let _watch = watchdog(Duration::from_secs(60), "dumped");
    let keyway = start(Pool::store("local"));
    let mut client = keyway.client(0);
    client.words("HSET hash a 1 b 2");
    client.words("HPEXPIREAT hash 70368744177663 FIELDS 1 a");
    let payload = client.words("DUMP hash");
    let Value::Bulk(bytes) = &payload else { panic!("{payload:?}") };
    let restored = client.command(&[&b"RESTORE"[..], b"copy", b"0", bytes]);
    assert_eq!(restored, Value::simple("OK"));
    assert_eq!(integers(&client.words("HPEXPIRETIME copy FIELDS 2 a b")), [70_368_744_177_663, -1]);
    // A server that does not know such hashes refuses the value as a whole.
    let old = RedisServer::start();
    let refused = old.client().command(&[&b"RESTORE"[..], b"copy", b"0", bytes]);
    assert_eq!(refused.text(), "ERR DUMP payload version or checksum are wrong");
    client.words("HPERSIST hash FIELDS 1 a");
    let Value::Bulk(bytes) = client.words("DUMP hash") else { panic!("a payload") };
    let taken = old.client().command(&[&b"RESTORE"[..], b"copy", b"0", &bytes]);
    assert_eq!(taken, Value::simple("OK"));
}

#[test]
fn a_key_that_is_read_lives_on() {
    let _watch = watchdog(Duration::from_secs(60), "reads");
    let pool = Pool::store("local")
        .with("expire_after_read", "\"1000s\"")
        .with("expire_after_read_percent", "10");
    let keyway = start(pool);
    let mut client = keyway.client(0);
    client.words("SET soon v EX 99");
    client.words("SET later v EX 101");
    client.words("SET never v");
    client.words("HSET hash f v");
    client.words("EXPIRE hash 50");
    client.words("TTL soon");
    client.words("EXISTS soon");
    let ttl = |client: &mut Client, key: &str| match client.words(&format!("TTL {key}")) {
        Value::Integer(seconds) => seconds,
        other => panic!("{other:?}"),
    };
    assert!(ttl(&mut client, "soon") <= 99);
    client.words("MGET soon later never");
    client.words("HGETALL hash");
    assert!(ttl(&mut client, "soon") > 900);
    assert!(ttl(&mut client, "later") <= 101);
    assert_eq!(ttl(&mut client, "never"), -1);
    assert!(ttl(&mut client, "hash") > 900);
    // Reading is not a change: a client that watches the key is not affected.
    client.words("SET soon v EX 99");
    client.words("WATCH soon");
    keyway.client(0).words("GET soon");
    client.words("MULTI");
    client.words("GET soon");
    assert_eq!(client.words("EXEC"), Value::Array(vec![Value::bulk("v")]));
}

#[test]
fn a_quota_is_kept_and_reported() {
    let _watch = watchdog(Duration::from_secs(60), "quotas");
    let quotas = "[{ prefix = \"session:\", memory_max = \"100KiB\" }, \
                  { prefix = \"page:\", items_max = 20 }]";
    let keyway = start(Pool::store("local").with("quotas", quotas).with("memory_max", "\"64MiB\""));
    let mut client = keyway.client(0);
    let value = "x".repeat(1000);
    for number in 0..300 {
        client.words(&format!("SET session:{number} {value}"));
        client.words(&format!("HSET page:{number} f {number}"));
        client.words(&format!("SET free:{number} {value}"));
    }
    assert_eq!(client.words("EXISTS free:0 free:299"), Value::Integer(2));
    let metrics = keyway.metrics();
    let figure = |name: &str, prefix: &str| {
        metrics.sum(&format!("keyway_store_quota_{name}"), &[&format!("prefix=\"{prefix}\"")])
    };
    assert_eq!(figure("items", "page:"), 20.0);
    assert_eq!(figure("evictions_total", "page:"), 280.0);
    assert!(figure("memory_bytes", "session:") <= 102_400.0);
    assert!(figure("memory_bytes", "session:") > 80_000.0);
    let total = figure("items", "session:") + 20.0 + 300.0;
    assert_eq!(client.words("DBSIZE"), Value::Integer(total as i64));
    let info = client.words("INFO quotas").text();
    assert!(info.contains("keys=20,keys_max=20,evicted=280,refused=0,prefix=page:\r\n"), "{info}");
    let large = client.words(&format!("SET session:large {}", "x".repeat(200_000)));
    let refused = "OOM command not allowed when the quota of keys 'session:*' is used up.";
    assert_eq!(large.text(), refused);
    assert_eq!(client.words("MULTI"), Value::simple("OK"));
    client.words("SET page:new 1");
    client.words(&format!("SET session:large {}", "x".repeat(200_000)));
    let done = client.words("EXEC");
    assert_eq!(done.array()[1].text(), refused);
    client.words("FLUSHALL");
    wait_until("all is given back", BOUND, || {
        keyway.metrics().sum("keyway_store_quota_memory_bytes", &[]) == 0.0
    });
}
