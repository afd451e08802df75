//! `keyway locate` prints the servers on which a running Keyway puts keys, for every distribution.

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

/// Returns two pools for each distribution: one of equal servers, and one of weighted servers with
/// names and a hash tag.
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

/// Returns the text between `open` and the next line of three backticks.
fn block<'p>(page: &'p str, open: &str) -> &'p str {
    let (_, rest) = page.split_once(open).expect("the page has such a block");
    rest.split_once("\n```").expect("the block ends").0
}

#[test]
fn the_page_on_placement_names_the_servers_that_the_program_does() {
    let _watch = watchdog(Duration::from_secs(60), "the page on placement");
    let page = std::fs::read_to_string("../../docs/placement.md").unwrap();
    let directory = TempDir::new();
    let file = directory.path().join("keyway.toml");
    std::fs::write(&file, block(&page, "```toml\n")).unwrap();
    let shown = block(&page, "```\n$ keyway locate keyway.toml ");
    let (words, lines) = shown.split_once('\n').unwrap();
    let keys: Vec<&str> = words.split(' ').map(|word| word.trim_matches('\'')).collect();
    assert!(keys.contains(&"user:42"), "{words}");
    let arguments = [&["locate", file.to_str().unwrap()][..], &keys].concat();
    let output = std::process::Command::new(KEYWAY).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim_end(), lines);
}

/// Returns a chain of rate-limited pools, each leading to the next. It is valid with up to eight
/// pools.
fn chain(count: usize) -> String {
    let mut text = "[[listener]]\nbind = \"tcp://127.0.0.1:6380\"\npool = \"p0\"\n".to_owned();
    for pool in 0..count {
        let next = pool + 1;
        text += &format!(
            "[pool.p{pool}]\nkind = \"rate-limited\"\nrequests_per_second = 1\nchild = \"p{next}\"\n"
        );
    }
    text + &format!("[pool.p{count}]\nkind = \"store\"\n")
}

#[test]
fn a_file_of_many_pools_is_read_at_once_however_they_lead_to_each_other() {
    // The number is large enough to show quadratic time, and to overflow a stack by recursion.
    const POOLS: usize = 20_000;
    let _watch = watchdog(Duration::from_secs(60), "a file of many pools");
    let directory = TempDir::new();
    let run = |words: &[&str], text: &str| {
        let file = directory.path().join("keyway.toml");
        std::fs::write(&file, text).unwrap();
        let mut command = std::process::Command::new(KEYWAY);
        command.arg(words[0]).arg(&file).args(&words[1..]);
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let long = chain(POOLS);
    for words in [&["check"][..], &["locate", "k"]] {
        let (status, text) = run(words, &long);
        assert!(status == Some(2) && text.contains("leads over more than 8 pools in a row"));
    }
    let circle = long.replace(&format!("child = \"p{POOLS}\""), "child = \"p0\"");
    let (status, text) = run(&["check"], &circle);
    assert!(status == Some(2) && text.contains("leads back here (p0 -> p1 -> "), "{status:?}");
    let mut flat = String::new();
    for pool in 0..POOLS {
        let (port, host) = (10_000 + pool, pool % 250);
        flat += &format!(
            "[[listener]]\nbind = \"tcp://127.0.0.1:{port}\"\npool = \"p{pool}\"\n\
             [pool.p{pool}]\nkind = \"sharded\"\nservers = [\"127.0.1.{host}:{port}\"]\n"
        );
    }
    for words in [&["check"][..], &["locate", "k", "--pool", "p7"]] {
        let (status, text) = run(words, &flat);
        assert_eq!(status, Some(0), "{}", &text[..text.len().min(1000)]);
    }
}
