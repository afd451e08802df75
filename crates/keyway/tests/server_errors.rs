//! A server's own error reaches the client it belongs to and nobody else, and
//! a join never hides one.

use std::time::Duration;

use keyway_testkit::{
    Action, Client, Keyway, KeywayConfig, Pool, RedisServer, ScriptedBackend, Value, encode,
    wait_for, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

/// A full server that evicts nothing: reads work, writes get -OOM.
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

/// Replies exactly what the server said, for every error a server sends on its
/// own account.
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
    // A slow load: 1 ms a key, and events served every few keys.
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
    // Past the pool: the server answers each connection in order, so a request
    // behind the script on its own connection would wait, not be refused.
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

/// A key of each of two servers, written with the value 1.
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
