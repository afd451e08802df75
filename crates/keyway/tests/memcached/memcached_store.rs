//! One store that serves clients of memcached and of Redis at once.

use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, MemcachedClient, Pool, Value, memcached_packet, wait_until,
    watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(20);

/// Returns a store at two listeners: the first for Redis, the second for memcached.
fn start() -> Keyway {
    let store = Pool::store("local").with("notify_keyspace_events", "\"KEA\"");
    let pools = vec![store, Pool::store("local").spoken_to_in("memcached")];
    Keyway::start(KEYWAY, KeywayConfig::new(pools))
}

#[test]
fn values_are_the_same_to_both() {
    let _watch = watchdog(Duration::from_secs(60), "values to both");
    let keyway = start();
    let (mut redis, mut memcached) = (keyway.client(0), keyway.memcached_client(1));
    assert_eq!(memcached.say("set a 7 0 3\r\nabc\r\n"), "STORED\r\n");
    assert_eq!(redis.words("GET a"), Value::bulk("abc"));
    assert_eq!(redis.words("TTL a"), Value::Integer(-1));
    assert_eq!(redis.words("APPEND a def"), Value::Integer(6));
    assert_eq!(memcached.say("mg a v\r\n"), "VA 6\r\nabcdef\r\n");
    assert_eq!(redis.words("SET n 41 EX 1000"), Value::simple("OK"));
    assert_eq!(memcached.say("incr n 1\r\n"), "42\r\n");
    assert_eq!(redis.words("INCR n"), Value::Integer(43));
    assert!(redis.words("TTL n").integer() > 900, "an increment keeps the expiry");
    assert_eq!(memcached.say("touch n 0\r\n"), "TOUCHED\r\n");
    assert_eq!(redis.words("TTL n"), Value::Integer(-1));
    assert_eq!(memcached.say("delete a\r\n"), "DELETED\r\n");
    assert_eq!(redis.words("EXISTS a"), Value::Integer(0));
    // A value that is not a string can be neither read nor appended to, but it can be overwritten.
    assert_eq!(redis.words("RPUSH list 1 2"), Value::Integer(2));
    for asked in ["get list\r\n", "append list 0 0 1\r\nx\r\n", "incr list 1\r\n", "mg list v\r\n"]
    {
        let told = memcached.say(asked);
        assert!(!told.contains("VALUE") && !told.contains("STORED\r"), "{asked} -> {told}");
    }
    assert_eq!(redis.words("LLEN list"), Value::Integer(2));
    assert_eq!(memcached.say("flush_all\r\n"), "OK\r\n");
    assert_eq!(redis.words("DBSIZE"), Value::Integer(0));
}

#[test]
fn a_number_of_a_value_is_void_once_a_redis_client_has_changed_it() {
    let _watch = watchdog(Duration::from_secs(60), "cas and Redis");
    let keyway = start();
    let (mut redis, mut memcached) = (keyway.client(0), keyway.memcached_client(1));
    memcached.say("set k 0 0 1\r\na\r\n");
    let told = memcached.say("gets k\r\n");
    let cas = told.lines().next().and_then(|line| line.rsplit(' ').next()).unwrap().to_owned();
    assert_eq!(redis.words("SET k b"), Value::simple("OK"));
    assert_eq!(memcached.say(&format!("cas k 0 0 1 {cas}\r\nc\r\n")), "EXISTS\r\n");
    assert_eq!(redis.words("GET k"), Value::bulk("b"));
}

#[test]
fn redis_clients_are_told_of_what_memcached_clients_change() {
    let _watch = watchdog(Duration::from_secs(60), "events of changes");
    let keyway = start();
    let mut memcached = keyway.memcached_client(1);
    let mut events = keyway.client(0);
    events.send(&keyway_testkit::encode_words("PSUBSCRIBE __keyevent@0__:*"));
    events.reply();
    let mut told = |memcached: &mut MemcachedClient, asked: &str| {
        memcached.say(asked);
        let words = events.reply();
        let words = words.array();
        (words[2].text(), words[3].text())
    };
    let event = |name: &str| (format!("__keyevent@0__:{name}"), "e".to_owned());
    assert_eq!(told(&mut memcached, "set e 0 0 1\r\n1\r\n"), event("set"));
    assert_eq!(told(&mut memcached, "incr e 1\r\n"), event("incrby"));
    assert_eq!(told(&mut memcached, "delete e\r\n"), event("del"));
}

#[test]
fn a_tracking_client_is_told_and_a_watched_key_is_touched() {
    let _watch = watchdog(Duration::from_secs(60), "tracking and WATCH");
    let keyway = start();
    let mut memcached = keyway.memcached_client(1);
    let writes: [&dyn Fn(&mut MemcachedClient) -> String; 4] = [
        &|client| client.say("set t 0 0 1\r\n7\r\n"),
        &|client| client.say("ma t\r\n"),
        &|client| {
            client.say("mn\r\n");
            String::new()
        },
        &|client| client.say("delete t\r\n"),
    ];
    for (nth, write) in writes.iter().enumerate() {
        let changes = nth != 2;
        let mut reader = keyway.client(0);
        reader.words("HELLO 3");
        assert_eq!(reader.words("CLIENT TRACKING on"), Value::simple("OK"));
        reader.words("GET t");
        let mut watcher = keyway.client(0);
        assert_eq!(watcher.words("WATCH t"), Value::simple("OK"));
        write(&mut memcached);
        if changes {
            let push = format!("{:?}", reader.reply());
            assert!(push.contains("invalidate") && push.contains('t'), "{push}");
        }
        watcher.words("MULTI");
        watcher.words("PING");
        let executed = watcher.words("EXEC");
        assert_eq!(executed == Value::NilArray, changes, "write {nth}: {executed:?}");
    }
    let mut binary = keyway.memcached_client(1);
    let mut watcher = keyway.client(0);
    watcher.words("WATCH t");
    binary.ask(&memcached_packet(0x11, 0, &[0; 8], b"t", b"quiet"));
    watcher.words("MULTI");
    assert_eq!(watcher.words("EXEC"), Value::NilArray, "a quiet set is a change");
}

#[test]
fn a_pause_of_the_pool_holds_memcached_clients() {
    let _watch = watchdog(Duration::from_secs(60), "CLIENT PAUSE");
    let keyway = start();
    let (mut redis, mut memcached) = (keyway.client(0), keyway.memcached_client(1));
    memcached.say("set k 0 0 1\r\na\r\n");
    assert_eq!(redis.words("CLIENT PAUSE 60000 WRITE"), Value::simple("OK"));
    assert_eq!(memcached.say("get k\r\n"), "VALUE k 0 1\r\na\r\nEND\r\n", "reads go on");
    memcached.send(b"set k 0 0 1\r\nb\r\nget k\r\n");
    memcached.set_reply_within(Duration::from_millis(100));
    assert_eq!(memcached.try_line(), None, "a write waits, and what follows it");
    assert_eq!(keyway.memcached_client(1).say("get k\r\n"), "VALUE k 0 1\r\na\r\nEND\r\n");
    assert_eq!(redis.words("CLIENT UNPAUSE"), Value::simple("OK"));
    memcached.set_reply_within(SOON);
    let told: Vec<String> = (0..4).map(|_| memcached.line()).collect();
    assert_eq!(told, ["STORED", "VALUE k 0 1", "b", "END"]);
    assert_eq!(redis.words("CLIENT PAUSE 60000 ALL"), Value::simple("OK"));
    memcached.send(b"get k\r\n");
    memcached.set_reply_within(Duration::from_millis(100));
    assert_eq!(memcached.try_line(), None, "a read waits");
    assert_eq!(redis.words("CLIENT UNPAUSE"), Value::simple("OK"));
    memcached.set_reply_within(SOON);
    assert_eq!(memcached.line(), "VALUE k 0 1");
}

#[test]
fn a_blocked_redis_client_is_served_by_nothing_a_memcached_client_can_store() {
    let _watch = watchdog(Duration::from_secs(60), "blocked clients");
    let keyway = start();
    let (mut blocked, mut memcached) = (keyway.client(0), keyway.memcached_client(1));
    blocked.send(&keyway_testkit::encode_words("BLPOP q 0"));
    wait_until("it waits", SOON, || {
        keyway.client(0).words("INFO clients").text().contains("blocked_clients:1")
    });
    assert_eq!(memcached.say("set q 0 0 1\r\nx\r\ndelete q\r\n"), "STORED\r\nDELETED\r\n");
    assert_eq!(keyway.client(0).words("RPUSH q 1"), Value::Integer(1));
    assert_eq!(blocked.reply().array().len(), 2);
}

#[test]
fn statistics_of_the_store_are_under_memcacheds_names() {
    let _watch = watchdog(Duration::from_secs(60), "stats of the store");
    let keyway = start();
    let mut client = keyway.memcached_client(1);
    client.say("set a 0 0 1\r\nx\r\nget a\r\nget none\r\n");
    let told = client.say("stats\r\n");
    for line in ["curr_items 1", "get_hits 1", "get_misses 1", "cmd_get 2"] {
        assert!(told.contains(&format!("STAT {line}\r\n")), "{line} in {told}");
    }
    client.say("add a 0 0 1\r\nx\r\nms a 1 MA\r\ny\r\ntouch a 0\r\nflush_all 1000\r\n");
    let told = client.say("stats\r\n");
    for line in ["cmd_set 3", "cmd_touch 1", "cmd_flush 1", "total_items 2", "threads 1"] {
        assert!(told.contains(&format!("STAT {line}\r\n")), "{line} in {told}");
    }
    for (name, least) in [("bytes_read", 20), ("bytes_written", 20), ("total_connections", 1)] {
        let line = told.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        let count = line.and_then(|count| count.parse::<u64>().ok());
        assert!(count.is_some_and(|count| count >= least), "{name} in {told}");
    }
    assert!(told.ends_with("END\r\n"), "{told}");
}

#[test]
fn readers_of_what_is_inside_memcached_get_a_list_and_its_end() {
    let _watch = watchdog(Duration::from_secs(60), "stats of the inside");
    let keyway = start();
    let (mut client, mut binary) = (keyway.memcached_client(1), keyway.memcached_client(1));
    for (word, first) in [
        ("slabs", "STAT active_slabs 0\r\n"),
        ("items", "END\r\n"),
        ("settings", "STAT maxbytes "),
        ("sizes", "STAT sizes_status disabled\r\n"),
        ("conns", "END\r\n"),
        ("detail dump", "END\r\n"),
        ("cachedump 1 10", "END\r\n"),
    ] {
        let told = client.say(&format!("stats {word}\r\n"));
        assert!(told.starts_with(first) && told.ends_with("END\r\n"), "{word}: {told}");
        binary.send(&keyway_testkit::memcached_packet(0x10, 0, &[], word.as_bytes(), &[]));
        // The packet that ends the list has no name.
        while binary.packet()[2..4] != [0, 0] {}
    }
    // memcached refuses these as well.
    for word in ["nonsense", "cachedump", "cachedump 1", "detail"] {
        let told = client.say(&format!("stats {word}\r\n"));
        assert!(told.starts_with("CLIENT_ERROR "), "{word}: {told}");
    }
    let settings = client.say("stats settings\r\n");
    let port = format!("STAT tcpport {}\r\n", keyway.address(1).port());
    assert!(settings.contains(&port), "{settings}");
    assert_eq!(client.say("stats reset\r\n"), "RESET\r\n");
    for word in ["on", "off"] {
        assert_eq!(client.say(&format!("stats detail {word}\r\n")), "OK\r\n");
    }
}

#[test]
fn who_speaks_redis_to_the_memcached_listener_is_told_errors_and_changes_nothing() {
    let _watch = watchdog(Duration::from_secs(60), "Redis at the wrong port");
    let keyway = start();
    let mut lost = keyway.memcached_client(1);
    lost.send(&keyway_testkit::encode_words("SET wrong 1"));
    assert_eq!(lost.line(), "ERROR");
    let mut redis: Client = keyway.client(0);
    assert_eq!(redis.words("EXISTS wrong"), Value::Integer(0));
}
