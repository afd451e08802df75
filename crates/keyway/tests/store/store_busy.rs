//! A script or function that runs for long on the embedded store. A client that needs its keys gets
//! the error of redis-server 7.0, and the script can be ended from elsewhere.

use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Value, encode, encode_words, http_get,
    http_post, wait_for, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const BOUND: Duration = Duration::from_secs(60);

/// Reads a key and never ends.
const READS: &str = "redis.call('get', KEYS[1]) while true do end";

const WRITES: &str = "redis.call('set', KEYS[1], 1) while true do end";

const LIBRARY: &str = "#!lua name=endless\n
    redis.register_function('reads', function(keys) redis.call('get', keys[1]) while true do end end)";

fn store(time_max: &str) -> Keyway {
    store_with(time_max, "100ms")
}

fn store_with(time_max: &str, busy_after: &str) -> Keyway {
    let pool = Pool::store("main")
        .with("script_time_max", &format!("\"{time_max}\""))
        .with("script_busy_after", &format!("\"{busy_after}\""));
    Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]).with_server("workers", "2"))
}

/// Returns a client whose long request is in flight.
fn begin(mut client: Client, words: &[&str]) -> Client {
    client.set_reply_within(BOUND);
    client.send(&encode(words));
    client
}

/// Returns a client of a worker that does not run the script. Such a client gets a busy error for
/// the key that the script holds. The kernel chooses the worker.
fn elsewhere(keyway: &Keyway, key: &str) -> Client {
    wait_for("a client of the other worker", BOUND, || {
        let mut client = keyway.client(0);
        client.set_reply_within(Duration::from_millis(500));
        client.send(&encode(&["GET", key]));
        let reply = client.try_reply().ok();
        client.set_reply_within(BOUND);
        matches!(reply, Some(Value::Error(_))).then_some(client)
    })
}

fn raw(client: &mut Client, words: &[&str]) -> String {
    client.send(&encode(words));
    String::from_utf8_lossy(&client.raw_reply()).into_owned()
}

/// Starts a server on which the same script runs, and another client of it.
fn busy_redis(words: &[&str]) -> (RedisServer, Client, Client) {
    let server = RedisServer::start_with(&["--busy-reply-threshold", "100"]);
    server.client().command(&["FUNCTION", "LOAD", LIBRARY]);
    let busy = begin(server.client(), words);
    let other = wait_for("it is busy", BOUND, || {
        let mut client = server.client();
        matches!(client.words("GET held"), Value::Error(_)).then_some(client)
    });
    (server, busy, other)
}

/// Returns the number of keys that a client can write while the script runs.
fn free_keys(client: &mut Client) -> usize {
    let is_free = |nth: &usize| client.words(&format!("SET free{nth} 1")) == Value::simple("OK");
    (0..32).filter(is_free).count()
}

#[test]
fn who_needs_what_a_busy_script_holds_is_answered_as_by_redis_and_others_are_served() {
    let _watch = watchdog(Duration::from_secs(180), "a busy script");
    let words = ["EVAL", READS, "1", "held"];
    let keyway = store("100s");
    let mut busy = begin(keyway.client(0), &words);
    let mut ours = elsewhere(&keyway, "held");
    let (_server, mut their_busy, mut theirs) = busy_redis(&words);
    for words in [
        &["GET", "held"][..],
        &["MGET", "held", "other"],
        &["DBSIZE"],
        &["FLUSHALL"],
        &["INFO"],
        &["EVAL", "return 1", "0"],
        &["BLPOP", "held", "1"],
        &["FUNCTION", "STATS"],
        &["FUNCTION", "KILL"],
        &["SCRIPT", "KILL"],
    ] {
        if words == ["SCRIPT", "KILL"] {
            assert!(free_keys(&mut ours) > 24, "keys of other shards are free");
        }
        assert_eq!(raw(&mut ours, words), raw(&mut theirs, words), "{words:?}");
    }
    assert_eq!(busy.reply().error_text(), their_busy.reply().error_text());
    wait_until("it is over", BOUND, || ours.words("GET held") == Value::Nil);
    assert!(ours.words("SCRIPT KILL").error_text().starts_with("NOTBUSY"));
}

#[test]
fn a_transaction_and_a_watch_that_would_wait_for_a_busy_script_are_refused() {
    let _watch = watchdog(Duration::from_secs(180), "a transaction beside a busy script");
    let keyway = store("100s");
    let mut busy = begin(keyway.client(0), &["EVAL", READS, "1", "held"]);
    let mut client = elsewhere(&keyway, "held");
    assert!(client.words("WATCH held").error_text().starts_with("BUSY "));
    assert_eq!(client.words("MULTI"), Value::simple("OK"));
    client.words("SET held 2");
    let text = client.words("EXEC").error_text();
    assert!(text.starts_with("EXECABORT Transaction discarded because of: BUSY Redis"), "{text}");
    assert_eq!(client.words("SCRIPT KILL"), Value::simple("OK"));
    busy.reply();
}

#[test]
fn a_busy_function_is_shown_and_killed_as_by_redis() {
    let _watch = watchdog(Duration::from_secs(180), "a busy function");
    let words = ["FCALL", "reads", "1", "held", "argument"];
    let keyway = store("100s");
    keyway.client(0).command(&["FUNCTION", "LOAD", LIBRARY]);
    let mut busy = begin(keyway.client(0), &words);
    let mut ours = elsewhere(&keyway, "held");
    let (_server, mut their_busy, mut theirs) = busy_redis(&words);
    let stats = |client: &mut Client| {
        let reply = client.words("FUNCTION STATS");
        let running = reply.array()[1].array().to_vec();
        let Value::Integer(millis) = running[5] else { panic!("{running:?}") };
        assert!((100..100_000).contains(&millis), "{millis}");
        (running[..5].to_vec(), reply.array()[2..].to_vec())
    };
    assert_eq!(stats(&mut ours), stats(&mut theirs));
    for words in [&["GET", "held"][..], &["SCRIPT", "KILL"], &["FUNCTION", "KILL"]] {
        assert_eq!(raw(&mut ours, words), raw(&mut theirs, words), "{words:?}");
    }
    assert_eq!(busy.reply().error_text(), their_busy.reply().error_text());
}

#[test]
fn the_admin_listener_tells_its_figures_and_ends_a_script_that_runs_for_long() {
    let _watch = watchdog(Duration::from_secs(180), "the admin listener beside a script");
    let keyway = store("100s");
    let kill = |query: &str| http_post(keyway.admin(), &format!("/scripts/kill{query}"));
    let none = kill("?pool=main");
    assert_eq!((none.status, &*none.body), (200, "pool main runs no script\n"));
    assert_eq!(kill("").status, 400);
    let unknown = kill("?pool=other");
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.body, "no embedded store \"other\"; there are: main\n");
    let mut client = keyway.client(0);
    assert_eq!(client.words("SET held 1"), Value::simple("OK"));
    let before = metric(&keyway, "keyway_store_memory_bytes{");
    for (script, status) in [(READS, 200), (WRITES, 409)] {
        let mut busy = begin(keyway.client(0), &["EVAL", script, "1", "held"]);
        wait_until("it holds the key", BOUND, || {
            let mut client = keyway.client(0);
            client.set_reply_within(Duration::from_millis(300));
            client.send(&encode(&["GET", "held"]));
            matches!(client.try_reply(), Ok(Value::Error(_)))
        });
        // If this waited for the script, it would never return.
        let during = metric(&keyway, "keyway_store_memory_bytes{");
        assert!(during >= before, "{during} after {before}");
        assert_eq!(metric(&keyway, "keyway_store_items{"), 1);
        let reply = kill("?pool=main");
        assert_eq!(reply.status, status, "{}", reply.body);
        if status == 200 {
            let text = busy.reply().error_text();
            assert!(text.contains("Script killed by user"), "{text}");
        }
    }
}

#[test]
fn the_admin_listener_ends_a_script_of_the_only_worker() {
    let _watch = watchdog(Duration::from_secs(60), "a script of the only worker");
    let pool = Pool::store("main").with("script_time_max", "\"100s\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]).with_server("workers", "1"));
    let mut busy = begin(keyway.client(0), &["EVAL", READS, "1", "held"]);
    wait_until("it runs and is ended", BOUND, || {
        let reply = http_post(keyway.admin(), "/scripts/kill?pool=main");
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.body.ends_with("ends\n")
    });
    assert!(busy.reply().error_text().contains("Script killed by user"));
    assert_eq!(keyway.client(0).words("GET held"), Value::Nil);
}

/// Returns the first value of a metric.
fn metric(keyway: &Keyway, name: &str) -> u64 {
    let text = http_get(keyway.admin(), "/metrics").body;
    let line = text.lines().find(|line| line.starts_with(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}

#[test]
fn what_has_written_is_not_killed_and_ends_by_its_time() {
    let _watch = watchdog(Duration::from_secs(180), "a busy script that wrote");
    let words = ["EVAL", WRITES, "1", "held"];
    let keyway = store("5s");
    let mut busy = begin(keyway.client(0), &words);
    let mut ours = elsewhere(&keyway, "held");
    let (mut server, _their_busy, mut theirs) = busy_redis(&words);
    let kill = ["SCRIPT", "KILL"];
    assert_eq!(raw(&mut ours, &kill), raw(&mut theirs, &kill));
    server.kill();
    let text = busy.reply().error_text();
    assert!(text.contains("script_time_max") && text.contains("what it wrote stays"), "{text}");
    wait_until("it is over", BOUND, || ours.words("GET held") == Value::bulk("1"));
}

#[test]
fn a_script_ends_with_its_client_when_that_is_killed() {
    let _watch = watchdog(Duration::from_secs(180), "a killed client");
    let keyway = store("100s");
    let mut client = keyway.client(0);
    let Value::Integer(id) = client.words("CLIENT ID") else { panic!("an id") };
    let mut busy = begin(client, &["EVAL", READS, "1", "held"]);
    let mut other = elsewhere(&keyway, "held");
    assert_eq!(other.words(&format!("CLIENT KILL ID {id}")), Value::Integer(1));
    wait_until("it is over", BOUND, || other.words("GET held") == Value::Nil);
    // Keyway does not promise to send its reply before the connection is closed.
    let _ = busy.try_reply();
    assert!(busy.try_closed());
}

#[test]
fn new_clients_are_served_while_a_script_is_busy() {
    let _watch = watchdog(Duration::from_secs(120), "new clients");
    let keyway = store("100s");
    for round in 0..6 {
        let script = format!("redis.log(redis.LOG_NOTICE, 'run {round}') {READS}");
        let mut busy = begin(keyway.client(0), &["EVAL", &script, "1", "held"]);
        wait_until("it runs", BOUND, || keyway.process().log().contains(&format!("run {round}")));
        let mut clients: Vec<_> = (0..40).map(|_| keyway.client(0)).collect();
        for (nth, client) in clients.iter_mut().enumerate() {
            client.set_reply_within(Duration::from_secs(10));
            let line = ["PING", "GET held", "SET free 1", "GET none"][nth % 4];
            client.send(&encode_words(line));
        }
        for (nth, client) in clients.iter_mut().enumerate() {
            let reply = client.try_reply().expect("the worker that is free answers");
            match (nth % 4, reply) {
                (0, reply) => assert_eq!(reply, Value::simple("PONG")),
                (_, Value::Error(text)) => assert!(text.starts_with(b"BUSY "), "{text:?}"),
                (1, reply) => panic!("{reply:?} while the script holds the key"),
                _ => {}
            }
        }
        let killer = &mut clients[round * 7];
        assert_eq!(killer.words("SCRIPT KILL"), Value::simple("OK"));
        let text = busy.reply().error_text();
        assert!(text.contains("Script killed by user"), "{text}");
        assert_eq!(killer.words("GET held"), Value::Nil);
    }
}

#[test]
fn new_clients_are_served_while_a_library_is_loaded() {
    let _watch = watchdog(Duration::from_secs(120), "new clients");
    let keyway = store("100s");
    let library = "#!lua name=endless\n while true do end";
    let mut busy = begin(keyway.client(0), &["FUNCTION", "LOAD", library]);
    let is_told = |line: &str, reply: &str| {
        let mut client = keyway.client(0);
        client.set_reply_within(Duration::from_secs(2));
        client.send(&encode_words(line));
        client.try_reply().is_ok_and(|it| it == Value::simple(reply))
    };
    // One of them may have been accepted just before the script began.
    let served = (0..20).filter(|_| is_told("PING", "PONG")).count();
    assert!(served >= 19, "{served} of 20");
    wait_until("it is ended", BOUND, || is_told("FUNCTION KILL", "OK"));
    assert!(busy.reply().error_text().contains("killed"));
}

#[test]
fn who_serves_a_client_that_waits_for_what_a_script_holds_goes_on_meanwhile() {
    let _watch = watchdog(Duration::from_secs(180), "serving beside a script");
    // No client is refused: a client that needs the script's keys waits for its end.
    let keyway = store_with("100s", "100s");
    let mut waiting = keyway.client(0);
    waiting.set_reply_within(BOUND);
    waiting.send(&encode(&["BLMOVE", "from", "held", "LEFT", "LEFT", "0"]));
    let mut first = keyway.client(0);
    let blocked = || first.words("INFO clients").text().contains("blocked_clients:1");
    wait_until("it waits", BOUND, blocked);
    let tells =
        "redis.call('get', KEYS[1]) redis.log(redis.LOG_NOTICE, 'it runs') while true do end";
    let mut busy = begin(keyway.client(0), &["EVAL", tells, "1", "held"]);
    wait_until("it holds the key", BOUND, || keyway.process().log().contains("it runs"));
    // Clients of its worker are not answered.
    let is_answered = |client: &mut Client, line: &str| {
        client.set_reply_within(Duration::from_secs(2));
        client.send(&encode_words(line));
        client.try_reply().is_ok()
    };
    let mut client = wait_for("a client of the other worker", BOUND, || {
        let mut client = keyway.client(0);
        is_answered(&mut client, "PING").then_some(client)
    });
    assert!(is_answered(&mut client, "RPUSH from a"));
    for nth in 0..20 {
        assert!(is_answered(&mut client, "PING"), "{nth}");
        assert!(is_answered(&mut client, "GET free"), "{nth}");
        assert!(is_answered(&mut client, "RPUSH from b"), "{nth}");
    }
    waiting.set_reply_within(Duration::from_millis(50));
    assert!(waiting.try_reply().is_err(), "it is served after the script");
    assert_eq!(client.words("SCRIPT KILL"), Value::simple("OK"));
    busy.reply();
    waiting.set_reply_within(BOUND);
    assert_eq!(waiting.reply(), Value::bulk("a"));
    assert_eq!(client.words("LRANGE held 0 -1"), Value::Array(vec![Value::bulk("a")]));
}
