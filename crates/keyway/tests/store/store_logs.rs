//! Logs of embedded stores: what clients find after restarts, kills and full disks.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, Random, TempDir, Value, encode, encode_words, http_get,
    run_keyway, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const BOUND: Duration = Duration::from_secs(60);

fn config(directory: &Path, fsync: &str) -> KeywayConfig {
    let log = format!("{{ dir = {:?}, fsync = {fsync:?} }}", directory.display().to_string());
    let store = Pool::store("main").with("log", &log).with("memory_max", "\"1GiB\"");
    let memcached = Pool::store("main").spoken_to_in("memcached");
    KeywayConfig::new(vec![store, memcached]).with_server("workers", "2")
}

fn start(config: &KeywayConfig) -> Keyway {
    let keyway = Keyway::start(KEYWAY, config.clone());
    wait_until("the log is loaded", BOUND, || !keyway.client(0).command(&["DBSIZE"]).is_error());
    keyway
}

/// A field of INFO.
fn info(client: &mut Client, field: &str) -> String {
    let text = client.command(&["INFO", "persistence"]).text();
    let found = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("no {field} in {text}")).trim().to_owned()
}

fn last_segment(directory: &Path) -> std::path::PathBuf {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let numbered = entries.filter_map(|entry| {
        let path = entry.expect("an entry").path();
        let number = path.file_name()?.to_str()?.strip_prefix("log.")?.parse::<u64>().ok()?;
        Some((number, path))
    });
    numbered.max().expect("a segment").1
}

#[test]
fn a_restart_finds_all_that_was_written_with_flags_and_functions() {
    let _watch = watchdog(Duration::from_secs(240), "the restarts");
    for fsync in ["always", "1s", "no"] {
        let folder = TempDir::new();
        let config = config(folder.path(), fsync);
        let keyway = start(&config);
        let mut client = keyway.client(0);
        assert_eq!(info(&mut client, "aof_enabled"), "1");
        let lines = [
            "SET a 1",
            "INCRBYFLOAT a 0.5",
            "RPUSH list a b c",
            "LPOP list",
            "HSET hash f v",
            "XADD stream 5-1 f v",
            "SETEX later 10000 v",
            "SADD set a b c d",
        ];
        lines.iter().for_each(|line| assert!(!client.words(line).is_error(), "{line}"));
        let left = client.words("SPOP set").text();
        let replies = ["MULTI", "SET t 1", "SELECT 3", "SET t 2", "EXEC", "SELECT 0"];
        replies.iter().for_each(|line| assert!(!client.words(line).is_error(), "{line}"));
        assert!(!client.command(&["EVAL", "redis.call('SET', 'scripted', '7')", "0"]).is_error());
        let library = "#!lua name=mylib\nredis.register_function('twice', function(keys, args) \
                       return 2 * args[1] end)";
        assert_eq!(client.command(&["FUNCTION", "LOAD", library]), Value::bulk("mylib"));
        let expiry = client.words("PEXPIRETIME later");
        let mut memcached = keyway.memcached_client(1);
        memcached.say("set item 42 0 5\r\nhello\r\n");
        drop((client, memcached));
        keyway.stop(BOUND);
        for _ in 0..2 {
            let keyway = start(&config);
            let mut client = keyway.client(0);
            assert_eq!(client.words("GET a"), Value::bulk("1.5"));
            assert_eq!(client.words("LRANGE list 0 -1").array().len(), 2);
            assert_eq!(client.words("XLEN stream"), Value::Integer(1));
            assert_eq!(client.words("PEXPIRETIME later"), expiry);
            assert_eq!(client.command(&["SISMEMBER", "set", &left]), Value::Integer(0));
            assert_eq!(client.words("GET scripted"), Value::bulk("7"));
            assert_eq!(client.words("FCALL twice 0 21"), Value::Integer(42));
            client.words("SELECT 3");
            assert_eq!(client.words("GET t"), Value::bulk("2"));
            let mut memcached = keyway.memcached_client(1);
            assert_eq!(memcached.say("get item\r\n"), "VALUE item 42 5\r\nhello\r\nEND\r\n");
            drop((client, memcached));
            let (status, log) = keyway.stop(BOUND);
            assert!(status.success() && log.contains("loaded the log"), "{log}");
        }
    }
}

#[test]
fn bgrewriteaof_compacts_the_log_as_redis_words_it_and_a_restart_finds_the_same() {
    let _watch = watchdog(Duration::from_secs(120), "the compactions");
    let folder = TempDir::new();
    let file = folder.path().join("a.rdb").display().to_string();
    let directory = folder.path().join("log");
    std::fs::create_dir(&directory).expect("a directory");
    let log = format!("{{ dir = {:?}, fsync = \"1s\" }}", directory.display().to_string());
    let snapshot = format!("{{ file = {file:?}, every = \"off\", rate_max = \"1MiB\" }}");
    let store = Pool::store("main").with("log", &log).with("snapshot", &snapshot);
    let config = KeywayConfig::new(vec![store]);
    let keyway = start(&config);
    let mut client = keyway.client(0);
    let rests = |client: &mut Client| {
        info(client, "aof_rewrite_in_progress") == "0"
            && info(client, "aof_rewrite_scheduled") == "0"
    };
    let number = |client: &mut Client, field: &str| -> u64 {
        info(client, field).parse().expect("a number")
    };
    (0..2000).for_each(|nth| assert!(!client.words(&format!("SET key {nth}")).is_error()));
    wait_until("the writes are in the log", BOUND, || {
        number(&mut client, "aof_current_size") > 50_000
    });
    let rewrites = number(&mut client, "aof_rewrites");
    let replies = client.pipeline(&["BGREWRITEAOF", "BGREWRITEAOF"]);
    assert_eq!(replies[0], Value::simple("Background append only file rewriting started"));
    let running = "ERR Background append only file rewriting already in progress";
    assert_eq!(replies[1].error_text(), running);
    wait_until("it is compacted", BOUND, || rests(&mut client));
    assert_eq!(number(&mut client, "aof_rewrites"), rewrites + 1);
    assert!(number(&mut client, "aof_current_size") < 10_000);
    assert_eq!(info(&mut client, "aof_last_bgrewrite_status"), "ok");
    assert_eq!(info(&mut client, "aof_current_rewrite_time_sec"), "-1");
    // Inside a transaction, and beside a snapshot, it comes later.
    let scheduled = Value::simple("Background append only file rewriting scheduled");
    let replies = client.pipeline(&["MULTI", "SET a 1", "BGREWRITEAOF", "SET a 2", "EXEC"]);
    assert_eq!(replies[4].array()[1], scheduled);
    wait_until("it is compacted", BOUND, || number(&mut client, "aof_rewrites") == rewrites + 2);
    wait_until("the log rests", BOUND, || rests(&mut client));
    client.command(&["SET", "long", &"v".repeat(2 << 20)]);
    assert_eq!(client.words("BGSAVE"), Value::simple("Background saving started"));
    assert_eq!(client.words("BGREWRITEAOF"), scheduled);
    assert_eq!(info(&mut client, "aof_rewrite_scheduled"), "1");
    assert_eq!(client.words("BGREWRITEAOF"), scheduled);
    wait_until("it is compacted", BOUND, || number(&mut client, "aof_rewrites") == rewrites + 3);
    assert_eq!(info(&mut client, "rdb_saves"), "1");
    client.words("SET a 3");
    assert!(client.words("BGREWRITEAOF now").is_error());
    drop(client);
    keyway.stop(BOUND);
    let keyway = start(&config);
    let mut client = keyway.client(0);
    assert_eq!(client.words("GET a"), Value::bulk("3"));
    assert_eq!(client.words("GET key"), Value::bulk("1999"));
    assert_eq!(client.words("STRLEN long"), Value::Integer(2 << 20));
}

#[test]
fn bgrewriteaof_of_a_store_without_a_log_is_refused_with_what_to_do() {
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("main")]));
    let refused = keyway.client(0).words("BGREWRITEAOF");
    assert_eq!(
        refused.error_text(),
        "ERR this pool has no log; `log` in its configuration sets one"
    );
}

/// Returns how often a process is killed by each test: so often, or more in a soak
/// (`KEYWAY_LOG_KILLS`).
#[allow(clippy::disallowed_methods, reason = "a soak says by the environment how long it is")]
fn kills(usual: u64) -> u64 {
    std::env::var("KEYWAY_LOG_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn what_was_acknowledged_is_there_after_forty_kills() {
    killed("always", kills(40));
}

#[test]
fn with_other_rules_what_a_restart_has_found_stays_and_the_order_of_writes_holds() {
    killed("1s", kills(10));
    killed("no", kills(10));
}

/// Clients of two connections write until the process is killed. What was acknowledged is there with
/// `always`. A pipeline's writes are there in their order, and nothing is there that was never sent.
fn killed(fsync: &str, kills: u64) {
    let _watch = watchdog(Duration::from_secs(60 + 5 * kills), "the kills");
    let folder = TempDir::new();
    let config = config(folder.path(), fsync);
    let mut random = Random::new(20_270_401);
    let acknowledged = [const { AtomicU64::new(0) }; 2];
    let sent = [const { AtomicU64::new(0) }; 2];
    for round in 0..kills {
        let mut keyway = start(&config);
        let mut client = keyway.client(0);
        for (index, (acknowledged, sent)) in acknowledged.iter().zip(&sent).enumerate() {
            // No text is a key that is not there.
            let held = client.command(&["GET", &format!("key:{index}")]).text();
            let held = if held.is_empty() { 0 } else { held.parse().expect("a number") };
            let (least, most) =
                (acknowledged.load(Ordering::Relaxed), sent.load(Ordering::Relaxed));
            assert!((least..=most).contains(&held), "round {round}: {least} {held} {most}");
            let last = client.command(&["LRANGE", &format!("list:{index}"), "-1", "-1"]);
            let last = last.array().first().map_or(0, |it| it.text().parse().expect("a number"));
            assert!(last == held || last + 1 == held, "round {round}: {last} {held}");
            acknowledged.store(held, Ordering::Relaxed);
        }
        let writes = 1 + random.next_u64() % 400;
        let written = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for (index, (acknowledged, sent)) in acknowledged.iter().zip(&sent).enumerate() {
                let (mut client, written) = (keyway.client(0), &written);
                scope.spawn(move || {
                    // Writes that a restart has found are on the disk.
                    let mut next = acknowledged.load(Ordering::Relaxed);
                    // Some in a pipeline, each a SET and an RPUSH.
                    for depth in (1..5).cycle() {
                        let mut bytes = Vec::new();
                        for _ in 0..depth {
                            next += 1;
                            bytes.extend(encode_words(&format!("SET key:{index} {next}")));
                            bytes.extend(encode_words(&format!("RPUSH list:{index} {next}")));
                        }
                        sent.store(next, Ordering::Relaxed);
                        if client.try_send(&bytes).is_err() {
                            return;
                        }
                        for nth in 0..2 * depth {
                            match client.try_reply() {
                                Ok(reply) => assert!(!reply.is_error(), "{reply:?}"),
                                Err(_) => return,
                            }
                            if nth % 2 == 1 && fsync == "always" {
                                let done = next - depth + nth / 2 + 1;
                                acknowledged.store(done, Ordering::Relaxed);
                            }
                        }
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            wait_until("some are written", BOUND, || written.load(Ordering::Relaxed) >= writes);
            keyway.process_mut().kill();
        });
    }
}

#[test]
fn a_damaged_log_ends_the_process_with_file_and_place_and_a_torn_one_is_cut() {
    let _watch = watchdog(Duration::from_secs(120), "the damage");
    let folder = TempDir::new();
    let config = config(folder.path(), "always");
    let keyway = start(&config);
    let mut client = keyway.client(0);
    (0..50).for_each(|nth| _ = client.words(&format!("SET key:{nth} value")));
    drop(client);
    keyway.stop(BOUND);
    let last = last_segment(folder.path());
    let whole = std::fs::read(&last).expect("a segment");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    std::fs::write(&last, &damaged).expect("a segment");
    let path = folder.write("keyway.toml", config.toml());
    let ended = run_keyway(KEYWAY, &["serve", &path.display().to_string()]);
    assert!(!ended.status.success());
    let name = last.display().to_string();
    assert!(
        ended.text.contains(&name) && ended.text.contains("is damaged at byte"),
        "{}",
        ended.text
    );
    assert!(ended.text.contains("restore the directory from a copy"), "{}", ended.text);
    assert_eq!(std::fs::read(&last).expect("a segment"), damaged, "the file is left alone");
    std::fs::write(&last, [&whole[..], &[1; 40]].concat()).expect("a segment");
    let keyway = start(&config);
    assert_eq!(keyway.client(0).command(&["DBSIZE"]), Value::Integer(50));
    // Another process is refused while this one has the log.
    let path = folder.write("keyway.toml", self::config(folder.path(), "always").toml());
    let ended = run_keyway(KEYWAY, &["serve", &path.display().to_string()]);
    assert!(!ended.status.success());
    assert!(ended.text.contains("another process has the log"), "{}", ended.text);
    let (_, log) = keyway.stop(BOUND);
    assert!(log.contains("the log ends in a part of a record"), "{log}");
}

#[test]
fn a_full_disk_refuses_writes_and_the_log_begins_anew_when_there_is_room() {
    let _watch = watchdog(Duration::from_secs(120), "the full disk");
    let folder = TempDir::new();
    let config = config(folder.path(), "always");
    let mut keyway = start(&config.clone().with_file_len(1 << 20));
    let mut client = keyway.client(0);
    client.words("SET kept 1");
    let mut acknowledged = 0;
    // The last write gets no reply: nobody can say whether it is on the disk.
    loop {
        let key = format!("key:{acknowledged}");
        client.send(&encode(&["SET", &key, &"v".repeat(2_000), "PX", "10000"]));
        match client.try_reply() {
            Ok(reply) => assert_eq!(reply, Value::simple("OK")),
            Err(_) => break,
        }
        acknowledged += 1;
        assert!(acknowledged < 2_000, "the disk is never full");
    }
    assert!(acknowledged > 300);
    let mut client = keyway.client(0);
    for line in ["SET a 1", "EVAL return(redis.call('INCR',KEYS[1])) 1 n", "DEL key:0"] {
        let refused = client.words(line).error_text();
        assert!(refused.starts_with("MISCONF"), "{line}: {refused}");
    }
    assert_eq!(client.words("GET kept"), Value::bulk("1"));
    let mut memcached = keyway.memcached_client(1);
    assert!(memcached.say("set a 0 0 1\r\n1\r\n").contains("the log of this pool"));
    assert_eq!(info(&mut client, "aof_last_write_status"), "err");
    assert_eq!(keyway.metrics().sum("keyway_store_log_failed", &[]), 1.0);
    assert_eq!(keyway.metrics().sum("keyway_store_log_losses_total", &[]), 1.0);
    assert!(keyway.process().log().contains("writes are refused until it has begun anew"));
    let ready = http_get(keyway.admin(), "/readyz");
    assert_eq!(ready.status, 503, "{}", ready.body);
    // The data fits again when most of it has expired.
    wait_until("writes are taken", BOUND, || client.words("SET a 1") == Value::simple("OK"));
    assert_eq!(info(&mut client, "aof_last_write_status"), "ok");
    wait_until("it is ready", BOUND, || http_get(keyway.admin(), "/readyz").status == 200);
    keyway.process_mut().kill();
    let keyway = start(&config);
    let mut client = keyway.client(0);
    assert_eq!(client.words("GET a"), Value::bulk("1"));
    assert_eq!(client.words("GET kept"), Value::bulk("1"));
    drop(client);
    keyway.stop(BOUND);
}

#[test]
fn a_log_is_begun_with_what_a_snapshot_has_and_is_loaded_in_its_place_from_then_on() {
    let _watch = watchdog(Duration::from_secs(120), "the snapshot");
    let folder = TempDir::new();
    let directory = folder.path().join("log");
    std::fs::create_dir(&directory).expect("a directory");
    let snapshot = format!("{{ file = {:?} }}", folder.path().join("a.rdb").display().to_string());
    let only = KeywayConfig::new(vec![Pool::store("main").with("snapshot", &snapshot)]);
    let keyway = start(&only);
    assert_eq!(keyway.client(0).words("SET a old"), Value::simple("OK"));
    keyway.stop(BOUND);
    let log = format!("{{ dir = {:?}, fsync = \"always\" }}", directory.display().to_string());
    let pool = Pool::store("main").with("snapshot", &snapshot).with("log", &log);
    let both = KeywayConfig::new(vec![pool]);
    let mut keyway = start(&both);
    let mut client = keyway.client(0);
    wait_until("the log is begun", BOUND, || client.words("SET b 1") == Value::simple("OK"));
    assert_eq!(client.words("GET a"), Value::bulk("old"));
    client.words("SET a new");
    keyway.process_mut().kill();
    let keyway = start(&both);
    let mut client = keyway.client(0);
    assert_eq!(client.words("GET a"), Value::bulk("new"));
    assert_eq!(client.words("GET b"), Value::bulk("1"));
    drop(client);
    keyway.stop(BOUND);
}
