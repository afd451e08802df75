//! A pool whose store is the replica of a redis-server: what its clients may do and are told, and
//! how it becomes a primary.

use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Signal, TempDir, Value, encode_words,
    wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const BOUND: Duration = Duration::from_secs(30);
const DISKLESS: [&str; 4] = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"];
const READONLY: &str = "READONLY You can't write against a read only replica.";

fn url(server: &RedisServer) -> String {
    format!("\"redis://127.0.0.1:{}\"", server.port())
}

fn config(pool: Pool) -> KeywayConfig {
    let memcached = Pool::store("main").spoken_to_in("memcached");
    KeywayConfig::new(vec![pool.with("memory_max", "\"256MiB\""), memcached])
        .with_server("workers", "2")
}

fn start(pool: Pool) -> Keyway {
    Keyway::start(KEYWAY, config(pool))
}

fn info(client: &mut Client, name: &str) -> String {
    let info = client.words("INFO replication").text();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}

fn await_up(client: &mut Client) {
    wait_until("the link is up", BOUND, || info(client, "master_link_status") == "up");
}

/// Waits until the replica has what the server has.
fn await_same(server: &mut Client, replica: &mut Client) {
    wait_until("the replica has caught up", BOUND, || {
        info(replica, "master_link_status") == "up"
            && info(replica, "slave_repl_offset") == info(server, "master_repl_offset")
    });
}

fn ok(client: &mut Client, line: &str) {
    assert_eq!(client.words(line), Value::simple("OK"), "{line}");
}

fn refused(client: &mut Client, line: &str, text: &str) {
    assert_eq!(client.words(line).error_text(), text, "{line}");
}

#[test]
fn a_pool_follows_a_server_takes_no_writes_and_becomes_a_primary() {
    let _watchdog = watchdog(Duration::from_secs(90), "a pool that follows a server");
    let from = RedisServer::start_with(&DISKLESS);
    let mut server = from.client();
    server.words("RPUSH list a b c");
    server.words("HSET hash f v");
    server.pipeline(&["SELECT 3", "SET other v", "SELECT 0"]);
    let keyway = start(Pool::store("main").with("replica_of", &url(&from)));
    let mut client = keyway.client(0);
    await_up(&mut client);
    server.words("SET k v");
    await_same(&mut server, &mut client);
    assert_eq!(client.words("GET k"), Value::bulk("v"));
    assert_eq!(client.words("LRANGE list 0 -1").array().len(), 3);
    client.pipeline(&["SELECT 3"]);
    assert_eq!(client.words("GET other"), Value::bulk("v"));
    client.words("SELECT 0");
    // A client that asks is told the role.
    let offset: i64 = info(&mut client, "slave_repl_offset").parse().expect("an offset");
    let role = client.words("ROLE");
    let expected = vec![
        Value::bulk("slave"),
        Value::bulk("127.0.0.1"),
        Value::Integer(from.port().into()),
        Value::bulk("connected"),
        Value::Integer(offset),
    ];
    assert_eq!(role, Value::Array(expected));
    for (field, expected) in [
        ("role", "slave"),
        ("master_host", "127.0.0.1"),
        ("master_sync_in_progress", "0"),
        ("slave_read_only", "1"),
        ("master_replid", &info(&mut server, "master_replid")),
    ] {
        assert_eq!(info(&mut client, field), expected, "{field}");
    }
    assert!(info(&mut server, "slave0").contains(&format!("port={}", keyway.address(0).port())));
    writes_are_refused(&mut client);
    let mut memcached = keyway.memcached_client(1);
    let refusal = "SERVER_ERROR a replica takes no writes from clients\r\n";
    for write in ["set k 0 0 1\r\nx\r\n", "gat 10 k\r\n", "mg k v N10\r\n", "flush_all\r\n"] {
        assert_eq!(memcached.say(write), refusal, "{write}");
    }
    assert_eq!(memcached.say("get k\r\n"), "VALUE k 0 1\r\nv\r\nEND\r\n");
    assert_eq!(client.words("REPLICAOF NO ONE"), Value::simple("OK"));
    assert_eq!(client.words("SET k w"), Value::simple("OK"));
    assert_eq!(info(&mut client, "role"), "master");
    assert_eq!(client.words("ROLE").array()[0], Value::bulk("master"));
    wait_until("the server has no replica", BOUND, || info(&mut server, "connected_slaves") == "0");
}

fn writes_are_refused(client: &mut Client) {
    refused(client, "SET k w", READONLY);
    refused(client, "BLPOP list 0", READONLY);
    refused(client, "GETEX k PERSIST", READONLY);
    ok(client, "MULTI");
    refused(client, "DEL k", READONLY);
    assert!(client.words("EXEC").error_text().starts_with("EXECABORT"));
    let script = client.command(&["EVAL", "return redis.call('set', KEYS[1], 'w')", "1", "k"]);
    assert!(script.error_text().starts_with("READONLY"), "{script:?}");
    let script = client.command(&["EVAL", "return redis.call('get', KEYS[1])", "1", "k"]);
    assert_eq!(script, Value::bulk("v"));
    assert_eq!(client.words("GET k"), Value::bulk("v"));
}

#[test]
fn clients_hear_of_changes_that_come_from_the_primary() {
    let _watchdog = watchdog(Duration::from_secs(90), "clients of a replica");
    let from = RedisServer::start_with(&DISKLESS);
    let mut server = from.client();
    server.words("SET cached 1");
    server.words("XADD stream 1-1 f v");
    let pool = Pool::store("main")
        .with("replica_of", &url(&from))
        .with("notify_keyspace_events", "\"KEA\"");
    let keyway = start(pool);
    let mut client = keyway.client(0);
    await_same(&mut server, &mut client);
    let mut caching = keyway.client(0);
    caching.words("HELLO 3");
    ok(&mut caching, "CLIENT TRACKING ON");
    assert_eq!(caching.words("GET cached"), Value::bulk("1"));
    let mut subscriber = keyway.client(0);
    subscriber.words("SUBSCRIBE __keyevent@0__:set news");
    subscriber.reply();
    let mut reader = keyway.client(0);
    reader.send(&encode_words("XREAD BLOCK 0 STREAMS stream $"));
    let mut watcher = keyway.client(0);
    ok(&mut watcher, "WATCH cached");
    wait_until("the reader waits", BOUND, || {
        client.words("INFO clients").text().contains("blocked_clients:1")
    });
    server.words("SET cached 2");
    server.words("PUBLISH news hello");
    server.words("XADD stream 2-1 f w");
    let push = caching.reply();
    assert!(
        matches!(&push, Value::Push(parts) if parts[0] == Value::bulk("invalidate")),
        "{push:?}"
    );
    let heard: Vec<Value> = (0..2).map(|_| subscriber.reply().array()[2].clone()).collect();
    assert!(heard.contains(&Value::bulk("cached")) && heard.contains(&Value::bulk("hello")));
    let entries = format!("{:?}", reader.reply());
    assert!(entries.contains("2-1"), "{entries}");
    watcher.pipeline(&["MULTI", "GET cached"]);
    assert_eq!(watcher.words("EXEC"), Value::NilArray, "a watched key has changed");
    // All that a client has cached may have changed with another snapshot.
    assert_eq!(caching.words("GET cached"), Value::bulk("2"));
    ok(&mut client, "REPLICAOF NO ONE");
    let again = client.words(&format!("REPLICAOF 127.0.0.1 {}", from.port()));
    assert_eq!(again, Value::simple("OK"));
    let push = caching.reply();
    assert_eq!(push, Value::Push(vec![Value::bulk("invalidate"), Value::Null]));
}

#[test]
fn a_primary_becomes_a_replica_and_ends_what_may_write() {
    let _watchdog = watchdog(Duration::from_secs(90), "a primary that becomes a replica");
    let from = RedisServer::start_with(&DISKLESS);
    from.client().words("RPUSH list from-the-primary");
    let keyway = start(Pool::store("main"));
    let (mut client, mut blocked, mut queued) =
        (keyway.client(0), keyway.client(0), keyway.client(0));
    ok(&mut client, "SET own v");
    blocked.send(&encode_words("BLPOP list 0"));
    queued.pipeline(&["MULTI", "SET own w"]);
    wait_until("a client waits", BOUND, || {
        client.words("INFO clients").text().contains("blocked_clients:1")
    });
    refused(&mut client, "REPLICAOF 127.0.0.1 none", "ERR Invalid master port");
    ok(&mut client, &format!("SLAVEOF 127.0.0.1 {}", from.port()));
    let unblocked = blocked.reply().error_text();
    assert!(unblocked.starts_with("UNBLOCKED force unblocked"), "{unblocked}");
    let aborted = queued.words("EXEC").error_text();
    assert!(aborted.contains("READONLY") || aborted.contains("LOADING"), "{aborted}");
    await_up(&mut client);
    let again = client.words(&format!("REPLICAOF 127.0.0.1 {}", from.port()));
    assert_eq!(again, Value::simple("OK Already connected to specified master"));
    assert_eq!(client.words("GET own"), Value::Nil);
    assert_eq!(client.words("LLEN list"), Value::Integer(1), "nobody has taken it");
}

#[test]
fn a_replica_that_is_not_to_show_old_data_refuses_while_its_primary_is_gone() {
    let _watchdog = watchdog(Duration::from_secs(90), "a primary that is gone");
    let mut from = RedisServer::start_with(&["--requirepass", "secret"]);
    let with_password = format!("\"redis://:secret@127.0.0.1:{}\"", from.port());
    let pool = Pool::store("main")
        .with("replica_of", &with_password)
        .with("replica_serve_stale_data", "false");
    let keyway = start(pool);
    let mut client = keyway.client(0);
    await_up(&mut client);
    assert_eq!(client.words("GET k"), Value::Nil);
    from.kill();
    let text = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
    wait_until("reads are refused", BOUND, || client.words("GET k").error_text() == text);
    // As in Redis 7, PING is among what is refused.
    assert_eq!(client.words("PING").error_text(), text);
    assert_eq!(info(&mut client, "master_link_status"), "down");
    let metrics = keyway.metrics();
    let of = |name: &str| metrics.sum(name, &["pool=\"main\""]);
    assert_eq!(of("keyway_replica_link_up"), 0.0);
    assert_eq!(of("keyway_replica_full_resyncs_total"), 1.0);
    assert!(of("keyway_replica_link_failures_total") > 0.0);
    ok(&mut client, "REPLICAOF NO ONE");
    ok(&mut client, "SET k v");
}

#[test]
fn a_store_that_is_told_to_follow_itself_says_so_once() {
    let _watchdog = watchdog(Duration::from_secs(60), "a replica of itself");
    let other = start(Pool::store("main"));
    let url = format!("\"redis://{}\"", other.address(0));
    // A store that relays the stream of a primary has offsets at which it could feed itself.
    let relay = start(Pool::store("main").with("replica_of", &url));
    await_up(&mut relay.client(0));
    for keyway in [relay, other] {
        let address = keyway.address(0);
        let mut client = keyway.client(0);
        ok(&mut client, &format!("REPLICAOF {} {}", address.ip(), address.port()));
        let why = "a server cannot be the replica of itself";
        wait_until("it says why", BOUND, || {
            info(&mut client, "master_link_down_reason").contains(why)
        });
        wait_until("several attempts", BOUND, || {
            keyway.metrics().sum("keyway_replica_link_failures_total", &[]) >= 4.0
        });
        assert_eq!(info(&mut client, "master_link_status"), "down");
        let log = keyway.process().log();
        assert_eq!(log.matches("the link of the replica is down").count(), 1, "{log}");
        assert_eq!(log.matches("a replica is refused").count(), 1, "{log}");
        ok(&mut client, "REPLICAOF NO ONE");
        ok(&mut client, "SET a 1");
    }
}

#[test]
fn a_reload_changes_the_role_only_with_its_setting() {
    let _watchdog = watchdog(Duration::from_secs(90), "a reload");
    let from = RedisServer::start_with(&DISKLESS);
    from.client().words("SET k v");
    let first = config(Pool::store("main").with("replica_of", &url(&from)));
    let text = first.toml();
    let keyway = Keyway::start(KEYWAY, first);
    let mut client = keyway.client(0);
    await_up(&mut client);
    ok(&mut client, "REPLICAOF NO ONE");
    // Another setting: the role that a client has given stays.
    let stale = "replica_serve_stale_data = false\nreplica_of";
    reload(&keyway, &text.replace("replica_of", stale));
    assert_eq!(info(&mut client, "role"), "master");
    let other = RedisServer::start_with(&DISKLESS);
    other.client().words("SET k of-the-other");
    reload(&keyway, &text.replace(&url(&from), &url(&other)));
    wait_until("it follows the other", BOUND, || info(&mut client, "master_link_status") == "up");
    assert_eq!(client.words("GET k"), Value::bulk("of-the-other"));
    reload(&keyway, &text.replace("replica_of", "# replica_of"));
    wait_until("it is a primary", BOUND, || info(&mut client, "role") == "master");
    ok(&mut client, "SET k own");
}

/// Resyncs that a server has made: full ones, and partial ones.
fn resyncs(server: &mut Client) -> [u64; 2] {
    let text = server.words("INFO stats").text();
    ["sync_full:", "sync_partial_ok:"].map(|field| {
        let found = text.lines().find_map(|line| line.strip_prefix(field));
        found.and_then(|text| text.trim().parse().ok()).expect("a number")
    })
}

fn goes_on_after_restarts(pool: Pool) {
    let _watchdog = watchdog(Duration::from_secs(120), "restarts of a replica");
    let from = RedisServer::start_with(&DISKLESS);
    let mut server = from.client();
    let library = "#!lua name=mylib\nredis.register_function{function_name='twice', \
                   flags={'no-writes'}, callback=function(keys, args) return 2 * args[1] end}";
    server.words("RPUSH list a");
    let config = config(pool.with("replica_of", &url(&from)));
    let keyway = Keyway::start(KEYWAY, config.clone());
    let mut client = keyway.client(0);
    await_up(&mut client);
    assert!(!server.command(&["FUNCTION", "LOAD", library]).is_error());
    server.pipeline(&["SELECT 3", "INCR n"]);
    await_same(&mut server, &mut client);
    assert_eq!(resyncs(&mut server), [1, 0]);
    drop(client);
    keyway.stop(BOUND);
    for round in 2..4 {
        // The stream selects no database again.
        server.pipeline(&["INCR n", "RPUSH other b"]);
        let keyway = Keyway::start(KEYWAY, config.clone());
        let mut client = keyway.client(0);
        wait_until("it is loaded", BOUND, || !client.words("DBSIZE").is_error());
        await_up(&mut client);
        await_same(&mut server, &mut client);
        assert_eq!(resyncs(&mut server), [1, round - 1]);
        assert_eq!(client.words("FCALL_RO twice 0 21"), Value::Integer(42));
        assert_eq!(client.words("LRANGE list 0 -1").array().len(), 1);
        client.words("SELECT 3");
        assert_eq!(client.words("GET n"), Value::bulk(round.to_string()));
        drop(client);
        keyway.stop(BOUND);
    }
}

#[test]
fn a_replica_with_a_log_goes_on_after_a_restart_without_a_snapshot() {
    let folder = TempDir::new();
    let log = format!("{{ dir = {:?}, fsync = \"1s\" }}", folder.path().display().to_string());
    goes_on_after_restarts(Pool::store("main").with("log", &log));
}

#[test]
fn a_replica_with_a_snapshot_goes_on_after_a_restart_without_another() {
    let folder = TempDir::new();
    let file = folder.path().join("a.rdb").display().to_string();
    goes_on_after_restarts(Pool::store("main").with("snapshot", &format!("{{ file = {file:?} }}")));
}

#[test]
fn a_store_with_a_log_follows_when_it_is_told_and_writes_once_it_is_a_primary() {
    let _watchdog = watchdog(Duration::from_secs(120), "a store with a log");
    let folder = TempDir::new();
    let log = format!("{{ dir = {:?}, fsync = \"always\" }}", folder.path().display().to_string());
    let config = config(Pool::store("main").with("log", &log));
    let from = RedisServer::start_with(&DISKLESS);
    from.client().words("SET k of-the-primary");
    let mut keyway = Keyway::start(KEYWAY, config.clone());
    let mut client = keyway.client(0);
    ok(&mut client, "SET own v");
    ok(&mut client, &format!("REPLICAOF 127.0.0.1 {}", from.port()));
    await_up(&mut client);
    assert_eq!(client.words("DBSIZE"), Value::Integer(1));
    wait_until("the log has the data", BOUND, || {
        keyway.process().log().contains("the log has the data")
    });
    ok(&mut client, "REPLICAOF NO ONE");
    assert_eq!(client.words("APPEND k -and-own"), Value::Integer(22));
    keyway.process_mut().kill();
    let keyway = Keyway::start(KEYWAY, config);
    let mut client = keyway.client(0);
    wait_until("it is loaded", BOUND, || !client.words("DBSIZE").is_error());
    assert_eq!(client.words("GET k"), Value::bulk("of-the-primary-and-own"));
    assert_eq!(client.words("DBSIZE"), Value::Integer(1));
    ok(&mut client, "SET k v");
}

fn reload(keyway: &Keyway, text: &str) {
    let count = || keyway.process().log().matches(" reloaded ").count();
    let before = count();
    std::fs::write(keyway.directory().join("keyway.toml"), text).expect("a file");
    keyway.process().signal(Signal::HUP);
    wait_until("a reload", BOUND, || count() > before);
}
