//! `keyway locate` says where keys are: where a running Keyway puts them, for
//! every distribution.

use std::collections::BTreeSet;
use std::time::Duration;

use keyway_testkit::{
    Keyway, KeywayConfig, Pool, RedisServer, TempDir, Value, encode, keyway_binary, run_keyway,
    run_tool, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const KEYS: usize = 400;

const DISTRIBUTIONS: &[&str] = &[
    "ketama",
    "modula",
    "ketama-libmemcached",
    "ketama-weighted-libmemcached",
    "modula-libmemcached",
    "php-memcache-standard",
    "php-memcache-consistent",
    "rendezvous",
    "maglev",
];

/// Two pools for each distribution: equal servers, and weighted ones with names
/// and a hash tag.
fn pools(servers: &[RedisServer]) -> Vec<(String, Pool)> {
    let lines = |tails: [&str; 4]| -> Vec<String> {
        let line = |(server, tail): (&RedisServer, &str)| format!("{}{tail}", server.address());
        servers.iter().zip(tails).map(line).collect()
    };
    let mut pools = Vec::new();
    for distribution in DISTRIBUTIONS {
        for is_weighted in [false, true] {
            let name = format!("{distribution}-{is_weighted}");
            let tails =
                if is_weighted { [":5 alpha", ":2", ":1 gamma", ":1"] } else { ["", "", "", ""] };
            let pool = Pool::sharded(&name, &lines(tails))
                .with("distribution", &format!("{distribution:?}"))
                .with("hash_tag", if is_weighted { "\"{}\"" } else { "\"\"" });
            pools.push((name, pool));
        }
    }
    pools
}

fn keys(pool: &str) -> Vec<String> {
    (0..KEYS).map(|nth| format!("{pool}:{{{}}}:{nth}", nth % 97)).collect()
}

#[test]
fn running_pools_put_every_key_where_locate_says() {
    let _watch = watchdog(Duration::from_secs(120), "locate");
    let servers = RedisServer::start_many(4);
    let pools = pools(&servers);
    let keyway =
        Keyway::start(KEYWAY, KeywayConfig::new(pools.iter().map(|pool| pool.1.clone()).collect()));
    let file = keyway.directory().join("keyway.toml").to_string_lossy().into_owned();
    for (nth, (name, _)) in pools.iter().enumerate() {
        let keys = keys(name);
        let bytes: Vec<u8> =
            keys.iter().flat_map(|key| encode(&[b"SET", key.as_bytes(), b"v"])).collect();
        let mut client = keyway.client(nth);
        client.send(&bytes);
        for reply in client.replies(keys.len()) {
            assert_eq!(reply, Value::simple("OK"), "{name}");
        }
        let binary = keyway_binary(KEYWAY).to_string_lossy().into_owned();
        let arguments = ["locate", "--pool", name, &file, "-"];
        let input = keys.join("\n");
        let output = run_tool(&binary, &arguments, input.as_bytes(), Duration::from_secs(30));
        let located = output.expect_success("keyway locate").stdout;
        assert_eq!(located.lines().count(), keys.len());
        let mut used = BTreeSet::new();
        for (line, key) in located.lines().zip(&keys) {
            let columns: Vec<&str> = line.split('\t').collect();
            assert_eq!(columns[..2], [name, key.as_str()]);
            let server = servers
                .iter()
                .find(|server| server.address().to_string() == columns[2])
                .unwrap_or_else(|| panic!("no server of ours: {line}"));
            used.insert(columns[2]);
            let found = server.client().command(&["EXISTS", key]);
            assert_eq!(found, Value::Integer(1), "{line}");
        }
        assert!(used.len() > 1, "{name}: all keys are on one server");
    }
}

const FILE: &str = r#"
[server]
admin = "off"

[[listener]]
bind = "tcp://127.0.0.1:1"
pool = "sessions"

[[listener]]
bind = "tcp://127.0.0.1:2"
pool = "local"

[[listener]]
bind = "tcp://127.0.0.1:3"
pool = "anywhere"

[pool.sessions]
kind = "sharded"
servers = ["10.0.0.1:6379 alpha"]
password_file = "/nowhere/to/be/found"

[pool.local]
kind = "store"

[pool.anywhere]
kind = "sharded"
distribution = "random"
servers = ["10.0.0.1:6379", "10.0.0.2:6379"]
"#;

#[test]
fn pools_of_every_kind_answer_without_being_served() {
    let _watch = watchdog(Duration::from_secs(30), "locate");
    let directory = TempDir::new();
    let file = directory.write("keyway.toml", FILE).to_string_lossy().into_owned();
    let output = run_keyway(KEYWAY, &["locate", &file, "a b", "c"]).expect_success("locate");
    assert_eq!(
        output.text,
        "sessions\ta b\t10.0.0.1:6379\talpha\nlocal\ta b\tthe embedded store\nanywhere\ta b\tany server\n\
         sessions\tc\t10.0.0.1:6379\talpha\nlocal\tc\tthe embedded store\nanywhere\tc\tany server\n"
    );
    let output = run_keyway(KEYWAY, &["locate", "--json", "--pool", "sessions", &file, "a"]);
    let object: serde_json::Value =
        serde_json::from_str(&output.expect_success("locate").text).expect("JSON");
    let expected = serde_json::json!({
        "pool": "sessions", "key": "a", "place": "server",
        "address": "10.0.0.1:6379", "name": "alpha"
    });
    assert_eq!(object, expected);
}

#[test]
fn what_cannot_be_located_is_told_and_fails() {
    let _watch = watchdog(Duration::from_secs(30), "locate");
    let directory = TempDir::new();
    let file = directory.write("keyway.toml", FILE).to_string_lossy().into_owned();
    let output = run_keyway(KEYWAY, &["locate", "--pool", "session", &file, "a"]);
    assert!(!output.status.success());
    let expected = format!(
        "keyway: {file} has no pool \"session\"; its pools are sessions, local, anywhere\n"
    );
    assert_eq!(output.text, expected);

    let wrong = FILE.replace("\"random\"", "\"randomly\"");
    let wrong = directory.write("wrong.toml", wrong).to_string_lossy().into_owned();
    let output = run_keyway(KEYWAY, &["locate", &wrong, "a"]);
    assert_eq!(output.status.code(), Some(2), "{}", output.text);
    assert!(output.stdout.is_empty() && output.text.contains("randomly"), "{}", output.text);
    assert!(output.text.ends_with("keyway: 1 error; nothing located\n"), "{}", output.text);

    let output = run_keyway(KEYWAY, &["locate", "/nowhere.toml", "a"]);
    assert!(!output.status.success() && output.text.contains("/nowhere.toml"), "{}", output.text);
    let output = run_keyway(KEYWAY, &["locate", &file]);
    assert!(!output.status.success() && output.text.contains("KEY"), "{}", output.text);
}
