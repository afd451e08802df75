//! Snapshots of the embedded store: what is in the file after whatever happens, and what
//! redis-server and Keyway make of each other's files.

use std::path::Path;
use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, TempDir, Value, run_keyway, run_tool,
    wait_for, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const BOUND: Duration = Duration::from_secs(60);

fn config_with(file: &Path, more: &str) -> KeywayConfig {
    let snapshot = format!("{{ file = {:?}{more} }}", file.display().to_string());
    let store = Pool::store("main").with("snapshot", &snapshot).with("memory_max", "\"1GiB\"");
    let memcached = Pool::store("main").spoken_to_in("memcached");
    KeywayConfig::new(vec![store, memcached]).with_server("workers", "2")
}

/// Saved only when asked for.
fn config(file: &Path) -> KeywayConfig {
    config_with(file, ", every = \"off\", on_shutdown = false")
}

fn start(config: &KeywayConfig) -> Keyway {
    Keyway::start(KEYWAY, config.clone())
}

/// A field of INFO.
fn info(client: &mut Client, field: &str) -> String {
    let text = client.command(&["INFO", "persistence"]).text();
    let found = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("no {field} in {text}")).trim().to_owned()
}

fn save(client: &mut Client) {
    assert_eq!(client.command(&["SAVE"]), Value::simple("OK"));
}

/// Puts values of every type and size where both servers take them.
fn fill(client: &mut Client) {
    let mut ask = |line: &str| {
        let reply = client.words(line);
        assert!(!reply.is_error(), "{line}: {}", reply.error_text());
    };
    for (key, value) in [("int", "12345"), ("negative", "-7"), ("text", "hello"), ("empty", "")] {
        ask(&format!("SET {key} x{value}"));
    }
    ask("SET number 123456789");
    ask(&format!("SET long {}", "abcdefgh".repeat(30_000)));
    ask("APPEND long more");
    for size in [3, 120, 2_000] {
        for nth in 0..size {
            ask(&format!("RPUSH list:{size} element:{nth} {nth}"));
            ask(&format!("SADD set:{size} member:{nth}"));
            ask(&format!("SADD ints:{size} {}", u64::from(nth as u32) * 1_000_003));
            ask(&format!("HSET hash:{size} field:{nth} value:{nth}"));
            ask(&format!("ZADD zset:{size} {}.25 member:{nth}", (nth * 7) % 50));
            ask(&format!("XADD stream:{size} {}-{nth} name value:{nth} n{nth} 1", nth + 1));
        }
        ask(&format!("XGROUP CREATE stream:{size} group 0"));
        ask(&format!("XREADGROUP GROUP group one COUNT 2 STREAMS stream:{size} >"));
        ask(&format!("XREADGROUP GROUP group two COUNT 1 STREAMS stream:{size} >"));
        ask(&format!("XDEL stream:{size} 2-1"));
        ask(&format!("XGROUP CREATE stream:{size} other $"));
    }
    ask("ZADD infinite inf a -inf b 0 c 1.5 d");
    ask("SET later 1 PXAT 4000000000000");
    ask("PEXPIREAT list:120 4000000000001");
    ask("COPY text text DB 3");
    ask("PFADD sketch a b c d");
    ask("GEOADD geo 13.361389 38.115556 Palermo");
    ask("SETBIT bits 1000 1");
    let library = "#!lua name=mylib\nredis.register_function('twice', function(keys, args) \
                   return 2 * args[1] end)";
    let loaded = client.command(&["FUNCTION", "LOAD", library]);
    assert_eq!(loaded, Value::bulk("mylib"));
}

/// All that is in the databases 0 and 3, in a form that does not depend on how it is stored.
fn contents(client: &mut Client) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for database in ["0", "3"] {
        client.command(&["SELECT", database]);
        let mut keys: Vec<String> =
            client.command(&["KEYS", "*"]).array().iter().map(Value::text).collect();
        keys.sort();
        for key in keys {
            let kind = client.command(&["TYPE", &key]).text();
            let expiry = client.command(&["PEXPIRETIME", &key]);
            let mut value = match &kind[..] {
                "string" => vec![format!("{:?}", client.command(&["GET", &key]))],
                "list" => vec![format!("{:?}", client.command(&["LRANGE", &key, "0", "-1"]))],
                "set" => texts(&client.command(&["SMEMBERS", &key]), 1),
                "hash" => texts(&client.command(&["HGETALL", &key]), 2),
                "zset" => {
                    let zset = client.command(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]);
                    vec![format!("{zset:?}")]
                }
                "stream" => stream(client, &key),
                other => panic!("{key} is of type {other}"),
            };
            value.sort();
            all.push((format!("{database} {key}"), format!("{kind} {expiry:?} {value:?}")));
        }
    }
    client.command(&["SELECT", "0"]);
    all
}

fn texts(reply: &Value, width: usize) -> Vec<String> {
    reply.array().chunks(width).map(|group| format!("{group:?}")).collect()
}

fn stream(client: &mut Client, key: &str) -> Vec<String> {
    let mut all = vec![format!("{:?}", client.command(&["XRANGE", key, "-", "+"]))];
    for group in client.command(&["XINFO", "GROUPS", key]).array() {
        all.push(format!("{group:?}"));
        let name = group.array()[1].text();
        let pending = client.command(&["XPENDING", key, &name, "-", "+", "100"]);
        // How long they have waited differs.
        let pending = pending.array().iter().map(|it| {
            let it = it.array();
            format!("{:?} {:?} {:?}", it[0], it[1], it[3])
        });
        all.extend(pending);
    }
    let info = client.command(&["XINFO", "STREAM", key]);
    let info = info.array();
    for field in ["length", "last-generated-id", "max-deleted-entry-id", "entries-added"] {
        let at = info.iter().position(|it| it.text_or_empty() == field).expect("a field");
        all.push(format!("{field} {:?}", info[at + 1]));
    }
    all
}

trait Text {
    fn text_or_empty(&self) -> String;
}

impl Text for Value {
    fn text_or_empty(&self) -> String {
        match self {
            Value::Bulk(_) | Value::Simple(_) => self.text(),
            _ => String::new(),
        }
    }
}

fn assert_same(ours: &[(String, String)], theirs: &[(String, String)]) {
    for (one, other) in ours.iter().zip(theirs) {
        assert_eq!(one, other);
    }
    assert_eq!(ours.len(), theirs.len());
}

/// A redis-server that loads a file.
fn redis_with(file: &Path) -> RedisServer {
    let directory = file.parent().expect("a directory").display().to_string();
    let name = file.file_name().expect("a name").to_string_lossy().into_owned();
    let server =
        RedisServer::start_with(&["--dir", &directory, "--dbfilename", &name, "--save", ""]);
    wait_until("redis-server has loaded the file", BOUND, || {
        !server.client().command(&["EXISTS", "a"]).is_error()
    });
    server
}

#[test]
fn redis_loads_our_file_and_we_load_its_and_nothing_differs() {
    let _watch = watchdog(Duration::from_secs(300), "the exchange of files");
    let folder = TempDir::new();
    let file = folder.path().join("ours.rdb");
    let keyway = start(&config(&file));
    let mut client = keyway.client(0);
    fill(&mut client);
    let expected = contents(&mut client);
    save(&mut client);
    drop(client);
    keyway.stop(BOUND);
    let checked = run_tool("redis-check-rdb", &[&file.display().to_string()], b"", BOUND);
    assert!(checked.expect_success("redis-check-rdb").text.contains("RDB looks OK"));
    // Theirs of ours.
    let redis = redis_with(&file);
    let mut theirs = redis.client();
    assert_same(&contents(&mut theirs), &expected);
    assert_eq!(theirs.words("FCALL twice 0 21"), Value::Integer(42));
    let ours = std::fs::read(&file).expect("a file");
    assert_eq!(theirs.command(&["SAVE"]), Value::simple("OK"));
    assert!(std::fs::read(&file).expect("a file") != ours, "the file is theirs from here on");
    // Ours of theirs.
    let keyway = start(&config(&file));
    let mut client = keyway.client(0);
    wait_until("the file is loaded", BOUND, || !client.command(&["DBSIZE"]).is_error());
    assert_same(&contents(&mut client), &expected);
    assert_eq!(client.words("FCALL twice 0 21"), Value::Integer(42));
    let keys: usize = info(&mut client, "rdb_last_load_keys_loaded").parse().expect("a number");
    assert_eq!(keys, expected.len());
}

#[test]
fn a_restart_finds_what_was_there_and_clients_of_memcached_find_flags_and_numbers() {
    let _watch = watchdog(Duration::from_secs(120), "the restart");
    let folder = TempDir::new();
    let file = folder.path().join("a.rdb");
    let config = config_with(&file, ", every = \"off\"");
    let keyway = start(&config);
    let mut client = keyway.client(0);
    fill(&mut client);
    client.command(&["HSET", "timed", "a", "1", "b", "2"]);
    client.command(&["HPEXPIREAT", "timed", "4000000000000", "FIELDS", "1", "a"]);
    let expected = contents(&mut client);
    let times = client.words("HPEXPIRETIME timed FIELDS 2 a b");
    let mut memcached = keyway.memcached_client(1);
    memcached.say("set item 42 0 5\r\nhello\r\n");
    let item = memcached.say("gets item\r\n");
    drop((client, memcached));
    let (status, log) = keyway.stop(BOUND);
    assert!(status.success() && log.contains("saved a snapshot"), "{log}");
    let keyway = start(&config);
    let mut client = keyway.client(0);
    wait_until("the file is loaded", BOUND, || !client.command(&["DBSIZE"]).is_error());
    let mut memcached = keyway.memcached_client(1);
    assert_eq!(memcached.say("gets item\r\n"), item);
    memcached.say("delete item\r\n");
    assert_eq!(client.words("HPEXPIRETIME timed FIELDS 2 a b"), times);
    assert_same(&contents(&mut client), &expected);
    assert_eq!(client.words("FCALL twice 0 21"), Value::Integer(42));
    // Nothing but the item has changed, so that one more is saved.
    drop((client, memcached));
    let (_, log) = keyway.stop(BOUND);
    assert!(log.contains("saved a snapshot"), "{log}");
    let keyway = start(&config);
    wait_until("the file is loaded", BOUND, || !keyway.client(0).command(&["DBSIZE"]).is_error());
    let (_, log) = keyway.stop(BOUND);
    assert!(!log.contains("saved a snapshot"), "{log}");
}

#[test]
fn the_commands_answer_as_those_of_redis() {
    let _watch = watchdog(Duration::from_secs(120), "the commands");
    let folder = TempDir::new();
    let file = folder.path().join("a.rdb");
    let keyway = start(&config_with(&file, ", every = \"off\", rate_max = \"1MiB\""));
    let mut client = keyway.client(0);
    let started = client.command(&["LASTSAVE"]).integer();
    assert!(started > 1_700_000_000);
    client.command(&["SET", "key", &"v".repeat(3 << 20)]);
    assert_eq!(info(&mut client, "rdb_changes_since_last_save"), "1");
    assert_eq!(client.command(&["BGSAVE"]), Value::simple("Background saving started"));
    let running = client.command(&["BGSAVE"]);
    assert_eq!(running.error_text(), "ERR Background save already in progress");
    assert!(client.command(&["SAVE"]).error_text().contains("already in progress"));
    assert!(client.command(&["BGSAVE", "NOW"]).is_error());
    assert_eq!(info(&mut client, "rdb_bgsave_in_progress"), "1");
    let scheduled = client.command(&["BGSAVE", "SCHEDULE"]);
    assert_eq!(scheduled, Value::simple("Background saving scheduled"));
    client.command(&["SET", "key", "short"]);
    wait_until("two are saved", BOUND, || info(&mut client, "rdb_saves") == "2");
    assert!(client.command(&["LASTSAVE"]).integer() >= started);
    assert_eq!(info(&mut client, "rdb_last_bgsave_status"), "ok");
    assert_eq!(info(&mut client, "rdb_changes_since_last_save"), "0");
    // Others are served while one waits.
    client.command(&["SET", "key", &"w".repeat(2 << 20)]);
    let mut other = keyway.client(0);
    client.send(&keyway_testkit::encode(&["SAVE"]));
    wait_until("it is begun", BOUND, || info(&mut other, "rdb_bgsave_in_progress") == "1");
    assert_eq!(other.command(&["PING"]), Value::simple("PONG"));
    assert_eq!(client.reply(), Value::simple("OK"));
    // In a transaction it comes behind.
    for words in [&["MULTI"][..], &["SET", "a", "1"], &["BGSAVE"], &["SET", "a", "2"]] {
        client.command(words);
    }
    let replies = client.command(&["EXEC"]);
    assert_eq!(replies.array()[1], Value::simple("Background saving scheduled"));
    wait_until("it is saved", BOUND, || info(&mut client, "rdb_saves") == "4");
    assert_eq!(redis_with(&file).client().command(&["GET", "a"]), Value::bulk("2"));
    let metrics = keyway.metrics();
    assert_eq!(metrics.sum("keyway_store_snapshots_total", &[]), 4.0);
    assert_eq!(metrics.sum("keyway_store_snapshot_failed", &[]), 0.0);
}

#[test]
fn a_pool_without_a_file_says_so() {
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("main")]));
    let mut client = keyway.client(0);
    for words in [["BGSAVE"], ["SAVE"]] {
        assert!(client.command(&words).error_text().contains("`snapshot`"), "{words:?}");
    }
}

#[test]
fn a_snapshot_comes_by_itself_when_something_has_changed() {
    let _watch = watchdog(Duration::from_secs(120), "the snapshots");
    let folder = TempDir::new();
    let file = folder.path().join("a.rdb");
    let keyway = start(&config_with(&file, ", every = \"1s\", on_shutdown = false"));
    let mut client = keyway.client(0);
    client.command(&["SET", "a", "1"]);
    wait_until("the file is there", BOUND, || file.exists());
    wait_until("it is noted", BOUND, || info(&mut client, "rdb_changes_since_last_save") == "0");
    let before = info(&mut client, "rdb_saves");
    client.command(&["SET", "a", "2"]);
    wait_until("another one came", BOUND, || info(&mut client, "rdb_saves") != before);
}

#[test]
fn what_is_killed_while_it_saves_leaves_the_old_file() {
    let _watch = watchdog(Duration::from_secs(120), "the kill");
    let folder = TempDir::new();
    let file = folder.path().join("a.rdb");
    let config = config_with(&file, ", every = \"off\", on_shutdown = false, rate_max = \"1MiB\"");
    let mut keyway = start(&config);
    let mut client = keyway.client(0);
    client.command(&["SET", "a", "old"]);
    save(&mut client);
    let old = std::fs::read(&file).expect("a file");
    client.command(&["SET", "a", "new"]);
    for nth in 0..8_000 {
        client.command(&["SET", &format!("key:{nth}"), &"v".repeat(1_000)]);
    }
    client.command(&["BGSAVE"]);
    let files = || std::fs::read_dir(folder.path()).expect("a directory").count();
    wait_until("it is writing", BOUND, || files() == 2);
    keyway.process_mut().kill();
    drop(client);
    assert_eq!(std::fs::read(&file).expect("a file"), old);
    let keyway = start(&config);
    let mut client = keyway.client(0);
    wait_until("the file is loaded", BOUND, || !client.command(&["DBSIZE"]).is_error());
    assert_eq!(client.command(&["GET", "a"]), Value::bulk("old"));
    assert_eq!(files(), 1, "the rest of the killed one is removed");
}

#[test]
fn a_full_disk_is_told_and_requests_are_served_on() {
    let _watch = watchdog(Duration::from_secs(120), "the full disk");
    let folder = TempDir::new();
    let file = folder.path().join("a.rdb");
    let keyway = start(&config(&file).with_file_len(1 << 20));
    let mut client = keyway.client(0);
    client.command(&["SET", "a", "1"]);
    save(&mut client);
    let old = std::fs::read(&file).expect("a file");
    for nth in 0..2_000 {
        client.command(&["SET", &format!("key:{nth}"), &"v".repeat(1_000)]);
    }
    let failed = client.command(&["SAVE"]).error_text();
    assert!(failed.starts_with("ERR cannot write the snapshot"), "{failed}");
    assert!(failed.contains("the file that is there stays as it was"), "{failed}");
    assert_eq!(info(&mut client, "rdb_last_bgsave_status"), "err");
    assert_eq!(keyway.metrics().sum("keyway_store_snapshot_failed", &[]), 1.0);
    assert_eq!(keyway.metrics().sum("keyway_store_snapshot_failures_total", &[]), 1.0);
    assert!(keyway.process().log().contains("no snapshot: cannot write"));
    assert_eq!(std::fs::read(&file).expect("a file"), old);
    assert_eq!(std::fs::read_dir(folder.path()).expect("a directory").count(), 1);
    assert_eq!(client.command(&["SET", "a", "2"]), Value::simple("OK"));
    client.command(&["FLUSHALL"]);
    save(&mut client);
    assert_eq!(keyway.metrics().sum("keyway_store_snapshot_failed", &[]), 0.0);
    // A directory that is gone is told as well.
    std::fs::remove_dir_all(folder.path()).expect("a directory");
    let failed = client.command(&["SAVE"]).error_text();
    assert!(failed.contains("create the directory"), "{failed}");
    std::fs::create_dir(folder.path()).expect("a place");
    save(&mut client);
}

#[test]
fn a_process_that_cannot_save_at_its_end_has_exit_status_1() {
    let _watch = watchdog(Duration::from_secs(120), "the end");
    let folder = TempDir::new();
    let file = folder.path().join("a.rdb");
    let config = config_with(&file, ", every = \"off\"").with_file_len(1 << 20);
    let keyway = start(&config);
    let mut client = keyway.client(0);
    client.command(&["SET", "a", "old"]);
    drop(client);
    let (status, log) = keyway.stop(BOUND);
    assert_eq!(status.code(), Some(0), "{log}");
    let old = std::fs::read(&file).expect("a file");
    let keyway = start(&config);
    let mut client = keyway.client(0);
    wait_until("the file is loaded", BOUND, || !client.command(&["DBSIZE"]).is_error());
    for nth in 0..2_000 {
        client.command(&["SET", &format!("key:{nth}"), &"v".repeat(1_000)]);
    }
    drop(client);
    let (status, log) = keyway.stop(BOUND);
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("no snapshot: cannot write"), "{log}");
    assert!(log.contains("the process ends without a snapshot of what has changed"), "{log}");
    assert_eq!(std::fs::read(&file).expect("a file"), old);
    assert_eq!(std::fs::read_dir(folder.path()).expect("a directory").count(), 1);
}

#[test]
fn a_file_that_cannot_be_read_whole_ends_the_process_with_what_to_do() {
    let _watch = watchdog(Duration::from_secs(120), "the refusals");
    let folder = TempDir::new();
    let file = folder.path().join("a.rdb");
    let keyway = start(&config(&file));
    let mut client = keyway.client(0);
    for nth in 0..1_000 {
        client.command(&["SET", &format!("key:{nth}"), "value"]);
    }
    save(&mut client);
    drop(client);
    keyway.stop(BOUND);
    let whole = std::fs::read(&file).expect("a file");
    let refused = |bytes: &[u8]| {
        std::fs::write(&file, bytes).expect("a file");
        let path = folder.write("keyway.toml", config(&file).toml());
        let ended = run_keyway(KEYWAY, &["serve", &path.display().to_string()]);
        assert!(!ended.status.success());
        assert_eq!(std::fs::read(&file).expect("a file"), bytes, "the file is left alone");
        ended.text
    };
    let said = refused(&whole[..whole.len() / 2]);
    assert!(said.contains("the data ends early") && said.contains("move it away"), "{said}");
    let said = refused(b"no snapshot at all");
    assert!(said.contains("this is no RDB file"), "{said}");
    std::fs::remove_file(&file).expect("a file");
    std::fs::create_dir(&file).expect("a directory");
    let path = folder.write("keyway.toml", config(&file).toml());
    let ended = run_keyway(KEYWAY, &["serve", &path.display().to_string()]);
    let said = ended.text;
    assert!(!ended.status.success() && said.contains("is no file"), "{said}");
}

#[test]
fn clients_are_told_that_the_store_is_being_loaded() {
    const KEYS: i64 = 500_000;
    let _watch = watchdog(Duration::from_secs(300), "the load");
    let folder = TempDir::new();
    let directory = folder.path().display().to_string();
    let debug = ["--enable-debug-command", "yes"];
    let options = ["--dir", &directory, "--save", "", debug[0], debug[1]];
    let redis = RedisServer::start_with(&options);
    let mut theirs = redis.client();
    theirs.set_reply_within(BOUND);
    theirs.command(&["DEBUG", "POPULATE", &KEYS.to_string(), "key", "64"]);
    assert_eq!(theirs.command(&["SAVE"]), Value::simple("OK"));
    let config = config(&folder.path().join("dump.rdb"));
    let keyway = start(&config);
    let mut client = keyway.client(0);
    let told = client.command(&["GET", "key:1"]);
    assert!(told.error_text().starts_with("LOADING "), "{told:?}");
    assert_eq!(info(&mut client, "loading"), "1");
    assert!(info(&mut client, "loading_total_bytes").parse::<u64>().expect("bytes") > 1 << 20);
    let mut memcached = keyway.memcached_client(1);
    assert_eq!(memcached.say("get key:1\r\n"), "SERVER_ERROR loading the dataset\r\n");
    assert_eq!(keyway.metrics().sum("keyway_store_loading", &[]), 1.0);
    let loaded = wait_for("the file is loaded", Duration::from_secs(200), || {
        let size = client.command(&["DBSIZE"]);
        (!size.is_error()).then(|| size.integer())
    });
    assert_eq!(loaded, KEYS);
    assert_eq!(keyway.metrics().sum("keyway_store_loading", &[]), 0.0);
}
