//! A server's own error reaches only the client it belongs to, and a join never hides one.

use std::io::{Read, Write};
use std::time::Duration;

use keyway_testkit::{
    Action, Client, Keyway, KeywayConfig, Pool, RedisServer, ScriptedBackend, Value, encode,
    wait_for, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

/// Fills a server that evicts nothing: reads work, writes get -OOM.
fn fill(server: &RedisServer) {
    let mut client = server.client();
    assert_eq!(client.words("SET small kept"), Value::simple("OK"));
    assert_eq!(client.words("CONFIG SET maxmemory-policy noeviction"), Value::simple("OK"));
    assert_eq!(client.words("CONFIG SET maxmemory 1"), Value::simple("OK"));
}

#[test]
fn out_of_memory_reaches_the_writer_and_disturbs_no_reader() {
    let _watch = watchdog(Duration::from_secs(60), "-OOM");
    let server = RedisServer::start();
    fill(&server);
    let pool = Pool::over("main", std::slice::from_ref(&server))
        .with("ejection", "{ after_failures = 2, for = \"10m\", rejoin = \"serve\" }");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut writer = keyway.client(0);
    let mut readers: Vec<Client> = (0..50).map(|_| keyway.client(0)).collect();
    for _ in 0..50 {
        writer.send(&encode(&["SET", "big", "value"]).repeat(4));
        for reader in &mut readers {
            reader.send(&encode(&["GET", "small"]));
        }
        for reader in &mut readers {
            assert_eq!(reader.reply(), Value::bulk("kept"));
        }
        for reply in writer.replies(4) {
            assert!(reply.error_text().starts_with("OOM "), "{reply:?}");
        }
    }
    assert_eq!(writer.words("GET small"), Value::bulk("kept"), "its connection is kept");
}

/// The reply is exactly the server's, for every error that a server sends by itself.
#[test]
fn every_error_of_a_server_passes_word_for_word_to_its_client_alone() {
    const ERRORS: &[&str] = &[
        "LOADING Redis is loading the dataset in memory",
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "READONLY You can't write against a read only replica.",
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist.",
        "NOREPLICAS Not enough good replicas to write.",
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "ERR anything else",
    ];
    let _watch = watchdog(Duration::from_secs(60), "a server's errors");
    let backend = ScriptedBackend::start(|arguments| {
        let key = arguments.get(1).map(|key| String::from_utf8_lossy(key).into_owned());
        match key.as_deref().and_then(|key| key.strip_prefix("error:")) {
            Some(nth) => {
                let nth: usize = nth.parse().expect("a number");
                Action::Reply(format!("-{}\r\n", ERRORS[nth]).into_bytes())
            }
            None => Action::echo_key(arguments),
        }
    });
    let pool = Pool::sharded("main", &[format!("{}:1", backend.address())]);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut unlucky = keyway.client(0);
    let mut lucky = keyway.client(0);
    for (nth, error) in ERRORS.iter().enumerate() {
        for round in 0..10 {
            let key = format!("fine:{nth}:{round}");
            unlucky.send(&encode(&["GET", &format!("error:{nth}")]));
            lucky.send(&encode(&["GET", &key]));
            assert_eq!(unlucky.reply().error_text(), *error);
            assert_eq!(lucky.reply(), Value::bulk(&key));
        }
    }
    assert_eq!(backend.connections(), 1, "no error costs the link");
}

#[test]
fn a_loading_server_answers_loading_and_then_works() {
    let _watch = watchdog(Duration::from_secs(60), "-LOADING");
    let directory = keyway_testkit::TempDir::new();
    let path = directory.path().to_string_lossy().into_owned();
    let first = RedisServer::start_with(&["--dir", &path]);
    assert_eq!(first.client().words("DEBUG POPULATE 3000"), Value::simple("OK"));
    assert_eq!(first.client().words("SAVE"), Value::simple("OK"));
    drop(first);
    // The load is slow: 1 ms a key, and requests are served every few keys.
    let server = RedisServer::start_with(&[
        "--dir",
        &path,
        "--key-load-delay",
        "1000",
        "--loading-process-events-interval-bytes",
        "1024",
    ]);
    let pool = Pool::over("main", std::slice::from_ref(&server)).with("timeout", "\"5s\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    let reply = client.words("GET key:1");
    assert!(reply.error_text().starts_with("LOADING "), "{reply:?}");
    assert_eq!(client.words("PING"), Value::simple("PONG"));
    wait_until("loading ends", Duration::from_secs(20), || {
        client.words("GET key:1") == Value::bulk("value:1")
    });
}

#[test]
fn a_busy_server_answers_busy_to_those_who_ask_it() {
    let _watch = watchdog(Duration::from_secs(60), "-BUSY");
    let servers =
        [RedisServer::start_with(&["--busy-reply-threshold", "30"]), RedisServer::start()];
    let pool = Pool::over("main", &servers).with("timeout", "\"10s\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    let (busy, free) = keys_by_server(&mut client, &servers);
    // The script is sent without the pool. The server answers each connection in order, so a
    // request behind the script on its own connection would wait, not be refused.
    let mut slow = servers[0].client();
    slow.send(&encode(&["EVAL", "while true do end", "1", &busy]));
    wait_until("the script runs", Duration::from_secs(10), || {
        servers[0].client().words("PING").error_text().starts_with("BUSY")
    });
    let mut other = keyway.client(0);
    for _ in 0..20 {
        other.send(&encode(&["GET", &busy]));
        assert_eq!(client.command(&["GET", &free]), Value::bulk("1"));
        let text = other.reply().error_text();
        assert!(text.starts_with("BUSY "), "{text}");
    }
    wait_until("the script is killed", Duration::from_secs(10), || {
        servers[0].client().words("SCRIPT KILL") == Value::simple("OK")
    });
    assert!(slow.reply().error_text().contains("killed"), "the script's own client is told");
    for client in [&mut client, &mut other] {
        assert_eq!(client.command(&["GET", &busy]), Value::bulk("1"), "the link was kept");
    }
}

/// Databases share a link. A request for one never runs on the other, even if the server refuses to
/// change the database.
#[test]
fn a_refused_select_costs_neither_the_link_nor_the_right_database() {
    // The server answers BUSY before or after the request has timed out.
    for (threshold, timeout) in [("30", "\"20s\""), ("1000", "\"150ms\"")] {
        let _watch = watchdog(Duration::from_secs(60), "-BUSY to SELECT");
        let server = RedisServer::start_with(&["--busy-reply-threshold", threshold]);
        let pool = Pool::over("main", std::slice::from_ref(&server))
            .with("databases", "2")
            .with("timeout", timeout);
        let config = KeywayConfig::new(vec![pool]).with_server("workers", "1");
        let keyway = Keyway::start(KEYWAY, config);
        let (mut zero, mut one) = (keyway.client(0), keyway.client(0));
        assert_eq!(one.words("SELECT 1"), Value::simple("OK"));
        assert_eq!(one.words("SET k one"), Value::simple("OK"));
        assert_eq!(zero.words("SET k zero"), Value::simple("OK"));
        let mut direct = server.client();
        direct.send(&encode(&["EVAL", "while true do end", "0"]));
        let is_busy = || server.client().words("PING").error_text().starts_with("BUSY");
        if threshold == "30" {
            wait_until("the script runs", Duration::from_secs(10), is_busy);
        } else {
            let mut probe = server.client();
            probe.set_reply_within(Duration::from_millis(100));
            wait_until("the script runs", Duration::from_secs(10), || {
                probe.try_send(b"*1\r\n$4\r\nPING\r\n").unwrap();
                probe.try_reply().is_err()
            });
        }
        let text = one.words("GET k").error_text();
        let wanted =
            if threshold == "30" { "BUSY Redis is busy" } else { "did not answer in time" };
        assert!(text.contains(wanted), "{text}");
        if threshold == "30" {
            assert!(text.contains("another database"), "{text}");
        } else {
            wait_until("late replies come", Duration::from_secs(10), || {
                keyway.metrics().sum("keyway_backend_late_replies_total", &[]) > 0.0
            });
        }
        wait_until("the script is killed", Duration::from_secs(10), || {
            server.client().words("SCRIPT KILL") == Value::simple("OK")
        });
        assert!(direct.reply().error_text().contains("killed"), "the script has ended");
        assert_eq!(one.words("GET k"), Value::bulk("one"));
        assert_eq!(zero.words("GET k"), Value::bulk("zero"));
        assert_eq!(one.words("GET k"), Value::bulk("one"));
        let connects = keyway.metrics().sum("keyway_backend_connects_total", &[]);
        let reconnects = keyway.metrics().sum("keyway_backend_reconnects_total", &[]);
        assert_eq!((connects, reconnects), (1.0, 0.0), "the link stays");
    }
}

/// Returns a key of each of two servers, written with the value 1.
fn keys_by_server(client: &mut Client, servers: &[RedisServer; 2]) -> (String, String) {
    let find = |client: &mut Client, server: &RedisServer| {
        wait_for("a key of the server", Duration::from_secs(10), || {
            (0..200).map(|nth| format!("key:{nth}")).find(|key| {
                client.command(&["SET", key, "1"]) == Value::simple("OK")
                    && server.client().command(&["EXISTS", key]) == Value::Integer(1)
            })
        })
    };
    (find(client, &servers[0]), find(client, &servers[1]))
}

#[test]
fn a_partly_failed_mset_says_which_part_failed() {
    let _watch = watchdog(Duration::from_secs(60), "partly failed mset");
    let servers = [RedisServer::start(), RedisServer::start()];
    let pool = Pool::over("main", &servers);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    let (full, free) = keys_by_server(&mut client, &servers);
    fill(&servers[0]);
    let text = client.command(&["MSET", &full, "2", &free, "2"]).error_text();
    assert!(text.contains("OOM"), "the server's own reason: {text}");
    assert!(text.contains(&servers[0].address().to_string()), "the server that failed: {text}");
    assert!(!text.contains(&servers[1].address().to_string()), "not the one that did not: {text}");
    assert_eq!(client.command(&["GET", &full]), Value::bulk("1"), "not written");
    assert_eq!(client.command(&["GET", &free]), Value::bulk("2"), "written");
    let fine = client.command(&["MSET", &free, "3"]);
    assert_eq!(fine, Value::simple("OK"), "keys of the healthy server alone");
}

#[test]
fn a_join_never_hides_an_error() {
    let _watch = watchdog(Duration::from_secs(60), "joins with errors");
    let mut servers = [RedisServer::start(), RedisServer::start()];
    let pool = Pool::over("main", &servers).with("timeout", "\"500ms\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    let (dead, alive) = keys_by_server(&mut client, &servers);
    servers[0].kill();
    for verb in ["MGET", "EXISTS", "TOUCH", "UNLINK", "DEL"] {
        let reply = client.command(&[verb, &dead, &alive]);
        assert!(reply.is_error(), "{verb}: {reply:?}");
        assert_eq!(client.words("PING"), Value::simple("PONG"));
    }
}

/// A proxy must pass on any reply of a script, which shares the link with all clients.
#[test]
fn a_reply_however_deep_or_long_disturbs_nobody_on_its_link() {
    let _watch = watchdog(Duration::from_secs(60), "deep and long replies");
    let server = RedisServer::start();
    let pool = Pool::over("main", std::slice::from_ref(&server)).with("timeout", "\"20s\"");
    let config = KeywayConfig::new(vec![pool]).with_server("workers", "1");
    let keyway = Keyway::start(KEYWAY, config);
    let (odd, mut other) = (keyway.client(0), keyway.client(0));
    assert_eq!(other.words("SET k 1"), Value::simple("OK"));
    let nested = |depth: usize| {
        let script = format!("local t={{1}} for i=2,{depth} do t={{t}} end return t");
        (script, [b"*1\r\n".repeat(depth), b":1\r\n".to_vec()].concat())
    };
    let long = |script: &str, lines: &[&str]| {
        let fill = |line: &&str| line.replace('~', &"x".repeat(2_000_000)) + "\r\n";
        let reply: String = lines.iter().map(fill).collect();
        (script.replace('~', "string.rep('x',2e6)"), reply.into_bytes())
    };
    // Redis itself goes as deep as 7,995.
    let cases = [
        nested(17),
        nested(33),
        nested(7990),
        long("return {err=~}", &["-~"]),
        long("return {ok=~}", &["+~"]),
        long("return {1,{err=~},{{ok=~}}}", &["*3", ":1", "-~", "*1", "+~"]),
    ];
    let mut stream = odd.writer();
    for (script, wanted) in cases {
        let bytes = encode(&["EVAL", &script, "1", "k"]);
        stream.write_all(&bytes.repeat(2)).unwrap();
        other.send(&encode(&["GET", "k"]).repeat(100));
        // The bytes are compared here, because the testkit's reader has bounds of its own.
        let mut got = vec![0; wanted.len()];
        for _ in 0..2 {
            stream.read_exact(&mut got).unwrap();
            assert!(got == wanted, "{script}: {}", got[..60.min(got.len())].escape_ascii());
        }
        assert_eq!(other.replies(100), vec![Value::bulk("1"); 100], "{script}");
    }
    assert_eq!(
        keyway.metrics().sum("keyway_backend_connects_total", &[]),
        1.0,
        "one link did it all"
    );
}

#[test]
fn a_reply_beyond_a_bound_names_it_and_gets_no_server_ejected() {
    let _watch = watchdog(Duration::from_secs(60), "replies beyond a bound");
    let server = RedisServer::start();
    let pool = Pool::over("main", std::slice::from_ref(&server))
        .with("ejection", "{ after_failures = 1, for = \"10m\", rejoin = \"serve\" }");
    let limits = "[limits]\nreply_len_max = \"64KiB\"\nreply_depth_max = 5\n";
    let config = KeywayConfig::new(vec![pool]).with_server("workers", "1").with_tables(limits);
    let keyway = Keyway::start(KEYWAY, config);
    let (mut client, mut other) = (keyway.client(0), keyway.client(0));
    let deep = ["EVAL", "return {{{{{{1}}}}}}", "1", "k"];
    let long = ["EVAL", "return string.rep('x',1e5)", "1", "k"];
    for (request, bound) in [(deep, "reply_depth_max"), (long, "reply_len_max")] {
        for _ in 0..5 {
            let text = client.command(&request).error_text();
            assert!(text.contains(bound) && text.contains("may have been executed"), "{text}");
            assert_eq!(other.words("SET k 1"), Value::simple("OK"));
        }
    }
    let metrics = keyway.metrics();
    assert_eq!(metrics.sum("keyway_backend_ejections_total", &[]), 0.0);
}
