//! SLOWLOG of an embedded store: requests that take long are logged, with their client and where
//! the time went, and no others.

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, Value, encode, run_keyway, wait_until, watchdog,
};
use std::time::Duration;

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(30);
const WITHIN: Duration = Duration::from_secs(120);

/// A script that takes well over 10 ms on any processor, and well under `script_time_max`.
const LONG: &str = "local n = 0 for i = 1, 10000000 do n = n + i end return 1";

fn store(slower_than: &str) -> Pool {
    Pool::store("main")
        .with("slowlog_log_slower_than", &format!("{slower_than:?}"))
        .with("script_time_max", "\"60s\"")
}

fn start(pools: Vec<Pool>) -> Keyway {
    let config = KeywayConfig::new(pools).with_server("log", "{ level = \"debug\" }");
    Keyway::start(KEYWAY, config.with_server("workers", "1"))
}

/// Returns every entry of the log as clients see it, the latest first.
fn entries(client: &mut Client) -> Vec<Vec<Value>> {
    let log = client.words("SLOWLOG GET -1");
    log.array().iter().map(|entry| entry.array().to_vec()).collect()
}

fn args(entry: &[Value]) -> Vec<String> {
    entry[3].array().iter().map(Value::text).collect()
}

/// Returns the first word of each command.
fn commands(client: &mut Client) -> Vec<String> {
    entries(client).iter().map(|entry| args(entry)[0].clone()).collect()
}

/// Returns the output of `keyway ctl slow-log`: the words of each line.
fn rows(keyway: &Keyway) -> Vec<Vec<String>> {
    let admin = keyway.admin().to_string();
    let output = run_keyway(KEYWAY, &["ctl", "--admin", &admin, "slow-log"]);
    assert!(output.status.success(), "{}", output.text);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    output.text.lines().skip(1).map(words).collect()
}

#[test]
fn a_store_as_it_comes_notes_a_long_script_and_not_what_is_around_it() {
    let _watch = watchdog(WITHIN, "a store as it comes");
    let keyway = start(vec![Pool::store("main")]);
    let mut client = keyway.client(0);
    client.set_reply_within(SOON);
    let shown = client.words("CONFIG GET slowlog-*");
    let shown: Vec<_> = shown.array().iter().map(Value::text).collect();
    assert_eq!(shown, ["slowlog-log-slower-than", "10000", "slowlog-max-len", "128"]);
    assert_eq!(client.words("CLIENT SETNAME slow-one"), Value::simple("OK"));
    let requests = [
        encode(&["GET", "k"]).repeat(20),
        encode(&["EVAL", LONG, "1", "a-key", &"x".repeat(200)]),
        encode(&["SET", "k", "v"]).repeat(50),
    ];
    client.send(&requests.concat());
    assert_eq!(client.replies(71).len(), 71);
    assert_eq!(client.words("SLOWLOG LEN"), Value::Integer(1));
    let log = entries(&mut client);
    let entry = &log[0];
    assert!(entry[1].integer() > 1_600_000_000 && entry[2].integer() >= 10_000, "{entry:?}");
    let words = args(entry);
    assert_eq!([&words[0][..], &words[1], &words[2], &words[3]], ["EVAL", LONG, "1", "a-key"]);
    assert!(words[4].ends_with("... (72 more bytes)"), "{words:?}");
    assert!(entry[4].text().starts_with("127.0.0.1:"));
    assert_eq!(entry[5].text(), "slow-one");
    assert_eq!(client.words("SLOWLOG RESET"), Value::simple("OK"));
    assert_eq!(client.words("SLOWLOG LEN"), Value::Integer(0));
}

#[test]
fn a_slow_request_is_told_hop_by_hop_under_the_name_it_has_in_the_log() {
    let _watch = watchdog(WITHIN, "hop by hop");
    let keyway = start(vec![store("10ms")]);
    let mut client = keyway.client(0);
    client.set_reply_within(SOON);
    // The second script waits for its turn behind the first.
    client.send(&encode(&["EVAL", LONG, "1", "a-key"]).repeat(2));
    assert_eq!(client.replies(2), [Value::Integer(1), Value::Integer(1)]);
    let mut log = String::new();
    wait_until("both are with their client", SOON, || {
        log = keyway.process().log();
        log.matches("slow request").count() == 2
    });
    let body = keyway_testkit::http_get(keyway.admin(), "/v1/slow-log?pool=main").body;
    let numbers = |name: &str| -> Vec<u64> {
        let field = format!("\"{name}\":");
        let parts = body.split(&field).skip(1);
        parts
            .map(|rest| rest.split([',', '}']).next().expect("a value").parse().expect(name))
            .collect()
    };
    let [queue, worked, received, write, total] =
        ["queue_us", "server_us", "receive_us", "write_us", "total_us"].map(numbers);
    assert_eq!((queue.len(), &received[..]), (2, &[0, 0][..]), "{body}");
    assert!(worked.iter().all(|micros| *micros >= 10_000), "{body}");
    // The latest comes first.
    assert!(queue[0] >= worked[1], "behind the first: {body}");
    assert!(write[1] >= worked[0], "replies leave together: {body}");
    for nth in 0..2 {
        assert_eq!(total[nth], queue[nth] + worked[nth] + write[nth], "{body}");
    }
    let shown = rows(&keyway);
    assert!(shown.len() == 2 && shown.iter().all(|row| row[2..4] == ["main", "-"]), "{shown:?}");
    for row in &shown {
        assert!(log.contains(&format!("trace=\"{}\"", row[1])), "{row:?} {log}");
    }
    let line = log.lines().find(|line| line.contains("slow request")).expect("it was seen");
    assert!(line.contains("command=\"eval\"") && !line.contains("backend"), "{line}");
    assert!(!log.contains("a-key"), "no key is in the log: {log}");
}

#[test]
fn what_works_on_much_is_noted_however_little_it_is_sent_and_answers() {
    let _watch = watchdog(WITHIN, "what works on much");
    let keyway = start(vec![store("1ms")]);
    let mut client = keyway.client(0);
    client.set_reply_within(SOON);
    for part in 0..30 {
        let words = (0..10_000).map(|nth| format!("m{}", part * 10_000 + nth));
        let words: Vec<String> =
            ["SADD", "many"].map(str::to_owned).into_iter().chain(words).collect();
        assert_eq!(client.command(&words), Value::Integer(10_000));
    }
    assert_eq!(client.command(&["SET", "long", &"x".repeat(64 << 20)]), Value::simple("OK"));
    assert_eq!(client.words("SLOWLOG RESET"), Value::simple("OK"));
    for line in [
        "SORT many ALPHA LIMIT 0 1",
        "SUNIONSTORE other many none",
        "BITCOUNT long",
        "SMEMBERS many",
        // Half of it or more would not be copied.
        "GETRANGE long 0 30000000",
    ] {
        let reply = client.words(line);
        assert!(!reply.is_error(), "{line}");
        assert_eq!(client.words("GET none"), Value::Nil);
        let name = line.split(' ').next().expect("a command");
        assert_eq!(commands(&mut client).first().map(String::as_str), Some(name), "{line}");
    }
    // The value is sent from where it is: that is no work.
    assert_eq!(client.words("GET long").text().len(), 64 << 20);
    assert_eq!(commands(&mut client).len(), 5, "none but these");
}

#[test]
fn waiting_is_no_work() {
    let _watch = watchdog(WITHIN, "waiting");
    let keyway = start(vec![store("0ms")]);
    let (mut waiting, mut other) = (keyway.client(0), keyway.client(0));
    waiting.set_reply_within(SOON);
    waiting.send(&encode(&["BLPOP", "list", "0"]));
    wait_until("it waits", SOON, || other.words("CLIENT LIST").text().contains("cmd=blpop"));
    // The time that passes while the client waits is more than makes a request slow.
    wait_until("it has waited for long", SOON, || {
        let list = other.words("CLIENT LIST").text();
        list.lines().any(|line| line.contains("cmd=blpop") && !line.contains(" idle=0 "))
    });
    assert_eq!(other.words("RPUSH list a"), Value::Integer(1));
    assert_eq!(waiting.reply().array().len(), 2);
    let log = entries(&mut other);
    assert!(log.iter().any(|entry| args(entry)[0] == "RPUSH"), "what is work is timed: {log:?}");
    assert!(log.iter().all(|entry| entry[2].integer() < 1_000_000), "no wait is: {log:?}");
}

#[test]
fn of_a_transaction_the_slow_command_is_told() {
    let _watch = watchdog(WITHIN, "a transaction");
    let keyway = start(vec![store("10ms")]);
    let mut client = keyway.client(0);
    client.set_reply_within(SOON);
    for line in ["MULTI", "GET k", "SET k v"] {
        client.words(line);
    }
    client.command(&["EVAL", LONG, "0"]);
    client.words("INCR n");
    assert_eq!(client.words("EXEC").array().len(), 4);
    assert_eq!(commands(&mut client), ["EVAL"]);
}

#[test]
fn with_no_time_at_all_every_request_is_noted_and_without_any_none() {
    let _watch = watchdog(WITHIN, "every request");
    let keyway = start(vec![
        store("0ms").with("slowlog_max_len", "5"),
        store("0ms").with("slowlog_max_len", "5").spoken_to_in("memcached"),
        Pool::store("never").with("slowlog_log_slower_than", "\"off\""),
    ]);
    let mut client = keyway.client(0);
    for line in ["SET k v", "GET k", "HSET h f v", "DEL h"] {
        assert!(!client.words(line).is_error(), "{line}");
    }
    client.send(b"GET k\r\n");
    assert_eq!(client.reply(), Value::bulk("v"));
    let log = entries(&mut client);
    let shown: Vec<String> = log.iter().map(|entry| args(entry).join(" ")).collect();
    assert_eq!(shown, ["GET k", "DEL h", "HSET h f v", "GET k", "SET k v"]);
    let ids: Vec<i64> = log.iter().map(|entry| entry[0].integer()).collect();
    assert_eq!(ids, [4, 3, 2, 1, 0]);
    // Requests of memcached's clients are in the same log.
    let mut memcached = keyway.memcached_client(1);
    let value = "y".repeat(200);
    assert_eq!(memcached.say(&format!("set k 0 0 200\r\n{value}\r\n")), "STORED\r\n");
    assert!(memcached.say("gets k none\r\n").starts_with("VALUE k 0 200"));
    assert_eq!(memcached.say("flush_all\r\n"), "OK\r\n");
    let log = entries(&mut client);
    let shown: Vec<String> = log.iter().map(|entry| args(entry).join(" ")).collect();
    assert_eq!(shown.len(), 5, "no more than are kept");
    let set = format!("set k {}... (72 more bytes)", "y".repeat(128));
    assert_eq!(shown[..3], ["flush_all".to_owned(), "get k none".to_owned(), set]);
    assert!(log[0][4].text().starts_with("127.0.0.1:"), "{:?}", log[0]);
    let mut client = keyway.client(2);
    assert!(!client.words("KEYS *").is_error());
    assert_eq!(client.words("SLOWLOG LEN"), Value::Integer(0));
    let shown = client.words("CONFIG GET slowlog-log-slower-than");
    assert_eq!(shown.array()[1].text(), "-1");
}
