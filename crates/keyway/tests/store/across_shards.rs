//! Commands that concern all servers of a pool: walks over all keys, emptying, scripts and
//! functions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Value, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

struct Setup {
    keyway: Keyway,
    servers: Vec<RedisServer>,
}

/// Starts four servers behind one pool.
fn setup(change: impl FnOnce(Pool) -> Pool) -> Setup {
    let servers = RedisServer::start_many(4);
    let pool = change(Pool::over("main", &servers));
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    Setup { keyway, servers }
}

fn set_many(client: &mut Client, topic: &str, count: usize) {
    let words: Vec<String> = std::iter::once("MSET".to_owned())
        .chain((0..count).flat_map(|nth| [format!("{topic}:{nth}"), "v".to_owned()]))
        .collect();
    assert_eq!(client.command(&words), Value::simple("OK"));
}

/// Returns every key that a scan returns, and the number of calls it took.
fn scan(client: &mut Client, options: &str) -> (Vec<String>, usize) {
    let (mut cursor, mut keys, mut calls) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let reply = client.words(format!("SCAN {cursor} {options}").trim_end());
        let [next, found] = reply.array() else { panic!("no scan reply: {reply:?}") };
        keys.extend(found.array().iter().map(Value::text));
        calls += 1;
        cursor = next.text();
        if cursor == "0" {
            return (keys, calls);
        }
    }
}

#[test]
fn a_scan_returns_every_key_that_is_there_throughout() {
    let _watch = watchdog(Duration::from_secs(60), "scan under writes");
    let setup = setup(|pool| pool);
    let mut client = setup.keyway.client(0);
    set_many(&mut client, "stay", 5_000);
    let is_over = Arc::new(AtomicBool::new(false));
    let mut writer = setup.keyway.client(0);
    let stop = Arc::clone(&is_over);
    let writing = std::thread::spawn(move || {
        // Tables grow and shrink during the scan.
        while !stop.load(Ordering::Relaxed) {
            set_many(&mut writer, "come", 4_000);
            let words: Vec<String> = std::iter::once("DEL".to_owned())
                .chain((0..4_000).map(|nth| format!("come:{nth}")))
                .collect();
            writer.command(&words);
        }
    });
    for options in ["", "COUNT 100", "COUNT 1000 MATCH stay:*", "TYPE string COUNT 500"] {
        let (keys, calls) = scan(&mut client, options);
        let stayed: BTreeSet<_> = keys.iter().filter(|key| key.starts_with("stay:")).collect();
        assert_eq!(stayed.len(), 5_000, "{options}");
        assert!(calls >= 4, "a call for each server at least");
    }
    is_over.store(true, Ordering::Relaxed);
    writing.join().expect("the writer ends");
    let (keys, _) = scan(&mut client, "MATCH stay:1*");
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 1 + 10 + 100 + 1000);
    assert_eq!(scan(&mut client, "TYPE list COUNT 100000").0, Vec::<String>::new());
}

#[test]
fn a_bad_cursor_or_option_is_answered_as_redis_does() {
    let _watch = watchdog(Duration::from_secs(60), "bad cursors");
    let setup = setup(|pool| pool);
    let mut client = setup.keyway.client(0);
    let mut bare = setup.servers[0].client();
    for line in [
        "SCAN x",
        "SCAN 1x",
        "SCAN 99999999999999999999",
        "SCAN 0 COUNT x",
        "SCAN 0 COUNT 0",
        "SCAN 0 MATCH",
        "SCAN 0 WHAT x",
        "SCAN -0 COUNT 5",
    ] {
        let (ours, theirs) = (client.words(line), bare.words(line));
        match theirs.is_error() {
            true => assert_eq!(ours, theirs, "{line}"),
            false => assert!(!ours.is_error(), "{line}"),
        }
    }
    let stale = client.words("SCAN 12345").error_text();
    assert!(stale.starts_with("ERR invalid cursor: no SCAN over"), "{stale}");
}

#[test]
fn a_scan_that_loses_a_server_says_so() {
    let _watch = watchdog(Duration::from_secs(60), "scan and ejection");
    let mut setup = setup(|pool| {
        pool.with("ejection", "{ after_failures = 1, for = \"1h\" }").with("timeout", "\"2s\"")
    });
    let mut client = setup.keyway.client(0);
    set_many(&mut client, "k", 2_000);
    let cursor = client.words("SCAN 0 COUNT 10").array()[0].text();
    setup.servers[3].kill();
    let said = "ERR invalid cursor: no SCAN over the servers now in use";
    let call = format!("SCAN {cursor} COUNT 10");
    while !client.words(&call).error_text().starts_with(said) {
        // A request to the server makes Keyway eject it.
        client.words("DBSIZE");
    }
    let (keys, _) = scan(&mut client, "COUNT 1000");
    assert!(keys.len() > 500 && keys.len() < 2_000, "of the servers left: {}", keys.len());
}

#[test]
fn a_random_key_is_had_while_any_server_answers() {
    let _watch = watchdog(Duration::from_secs(60), "random key");
    let mut servers = RedisServer::start_many(3);
    let pool = Pool::over("main", &servers).with("timeout", "\"300ms\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    set_many(&mut client, "k", 300);
    let random = |client: &mut Client| {
        (0..20).for_each(|_| assert!(client.words("RANDOMKEY").text().starts_with("k:")))
    };
    servers[0].kill();
    random(&mut client);
    // The server that is stopped may not have been asked since.
    servers[1].process().pause();
    random(&mut client);
    servers[2].client().words("FLUSHALL");
    assert_eq!(client.words("RANDOMKEY"), Value::Nil, "so say all that answer");
    servers[2].kill();
    assert!(client.words("RANDOMKEY").is_error(), "nobody does");
    servers[1].process().resume();
    wait_until("one answers", Duration::from_secs(20), || !client.words("RANDOMKEY").is_error());
}

#[test]
fn keys_and_a_random_key_are_found_wherever_they_are() {
    let _watch = watchdog(Duration::from_secs(60), "keys");
    let setup = setup(|pool| pool);
    let mut client = setup.keyway.client(0);
    assert_eq!(client.words("KEYS *"), Value::Array(vec![]));
    assert_eq!(client.words("RANDOMKEY"), Value::Nil);
    client.words("SET only 1");
    for _ in 0..20 {
        assert_eq!(client.words("RANDOMKEY"), Value::bulk("only"), "whichever server is asked");
    }
    set_many(&mut client, "k", 300);
    let keys = client.words("KEYS k:*");
    let keys: BTreeSet<_> = keys.array().iter().map(Value::text).collect();
    assert_eq!(keys.len(), 300);
    let random: BTreeSet<_> = (0..200).map(|_| client.words("RANDOMKEY").text()).collect();
    assert!(random.len() > 20, "{}", random.len());
    // In the middle of a pipeline each reply is in its place.
    let replies = client.pipeline(&["GET only", "RANDOMKEY", "KEYS only", "SCAN 0", "GET only"]);
    assert_eq!((&replies[0], &replies[4]), (&Value::bulk("1"), &Value::bulk("1")));
    assert_eq!(replies[2], Value::Array(vec![Value::bulk("only")]));
    assert_eq!(replies[3].array().len(), 2);
}

#[test]
fn servers_are_emptied_only_where_the_file_allows_it() {
    let _watch = watchdog(Duration::from_secs(60), "flush");
    let refusing = setup(|pool| pool);
    let mut client = refusing.keyway.client(0);
    client.words("SET a 1");
    for line in ["FLUSHALL", "FLUSHDB ASYNC"] {
        let text = client.words(line).error_text();
        assert!(text.contains("set allow_flush = true in [pool.main]"), "{text}");
    }
    assert_eq!(client.words("GET a"), Value::bulk("1"));

    let setup = setup(|pool| pool.with("allow_flush", "true"));
    let mut client = setup.keyway.client(0);
    for server in &setup.servers {
        server.client().pipeline(&["SELECT 5", "SET other 1"]);
    }
    for line in ["FLUSHDB", "FLUSHALL", "FLUSHALL SYNC", "FLUSHDB ASYNC"] {
        set_many(&mut client, "k", 100);
        assert_eq!(client.words(line), Value::simple("OK"), "{line}");
        assert_eq!(client.words("DBSIZE"), Value::Integer(0), "{line}");
    }
    assert!(client.words("FLUSHALL NOW").is_error());
    for server in &setup.servers {
        let replies = server.client().pipeline(&["SELECT 5", "GET other"]);
        assert_eq!(replies[1], Value::bulk("1"), "a database that is not the pool's");
    }
}

const ADD: &str = "return redis.call('incrby', KEYS[1], ARGV[1])";

fn load(client: &mut Client, script: &str) -> String {
    client.command(&["SCRIPT", "LOAD", script]).text()
}

/// Returns a key on each of the four servers.
fn spread() -> Vec<String> {
    (0..64).map(|nth| format!("key{nth}")).collect()
}

fn run_everywhere(client: &mut Client, digest: &str) {
    for key in spread() {
        let reply = client.command(&["EVALSHA", digest, "1", &key, "2"]);
        assert!(matches!(reply, Value::Integer(_)), "{key}: {reply:?}");
    }
}

#[test]
fn a_script_loaded_once_runs_on_every_server() {
    let _watch = watchdog(Duration::from_secs(60), "script load");
    let mut setup = setup(|pool| pool.with("timeout", "\"2s\""));
    let mut client = setup.keyway.client(0);
    let reference = RedisServer::start();
    let mut bare = reference.client();
    let digest = load(&mut client, ADD);
    assert_eq!(digest, load(&mut bare, ADD));
    run_everywhere(&mut client, &digest);
    for server in &setup.servers {
        assert_eq!(
            server.client().command(&["SCRIPT", "EXISTS", &digest]),
            Value::Array(vec![Value::Integer(1)])
        );
    }
    let exists = ["SCRIPT", "EXISTS", &digest, "0000000000000000000000000000000000000000", "x"];
    let expected = Value::Array([1, 0, 0].map(Value::Integer).to_vec());
    assert_eq!(client.command(&exists), expected);
    assert_eq!(bare.command(&exists), expected);

    // The servers are emptied without Keyway's knowledge.
    for server in &setup.servers {
        server.client().words("SCRIPT FLUSH");
    }
    assert_eq!(client.command(&exists), expected);
    run_everywhere(&mut client, &digest);

    // Servers are killed and restarted empty, and pipelines use the new connection.
    for round in 0..3 {
        setup.servers[round].restart();
        let keys = spread();
        let is_back = |client: &mut Client| {
            keys.iter().all(|key| !client.command(&["EXISTS", key.as_str()]).is_error())
        };
        while !is_back(&mut client) {}
        let requests: Vec<Vec<u8>> = keys
            .iter()
            .flat_map(|key| {
                let digest = digest.to_ascii_uppercase();
                let run = keyway_testkit::encode(&["EVALSHA", &digest, "1", key, "0"]);
                let get = keyway_testkit::encode(&["GET", key]);
                [run, get]
            })
            .collect();
        client.send(&requests.concat());
        for pair in client.replies(keys.len() * 2).chunks(2) {
            let Value::Integer(sum) = &pair[0] else { panic!("{pair:?}") };
            assert_eq!(pair[1], Value::bulk(sum.to_string()), "run before what comes behind it");
        }
    }

    assert_eq!(client.words("SCRIPT FLUSH"), Value::simple("OK"));
    let reply = client.command(&["EVALSHA", &digest, "1", "k", "0"]);
    assert_eq!(reply, bare.words("EVALSHA 0000000000000000000000000000000000000000 1 k 0"));
    assert_eq!(client.command(&exists), Value::Array([0, 0, 0].map(Value::Integer).to_vec()));
}

#[test]
fn a_script_seen_in_eval_is_known_to_every_server() {
    let _watch = watchdog(Duration::from_secs(60), "eval teaches");
    let setup = setup(|pool| pool);
    let mut client = setup.keyway.client(0);
    let reference = RedisServer::start();
    let digest = load(&mut reference.client(), ADD);
    assert!(client.command(&["EVALSHA", &digest, "1", "k", "1"]).is_error());
    assert_eq!(client.command(&["EVAL", ADD, "1", "k", "1"]), Value::Integer(1));
    run_everywhere(&mut client, &digest);
    assert_eq!(client.words("SCRIPT FLUSH ASYNC"), Value::simple("OK"));
    assert!(client.command(&["EVALSHA", &digest, "1", "k", "1"]).is_error());
    assert_eq!(client.command(&["EVAL", ADD, "1", "k", "1"]), Value::Integer(2));
    run_everywhere(&mut client, &digest);
}

#[test]
fn a_script_that_does_not_compile_is_an_error_and_not_kept() {
    let _watch = watchdog(Duration::from_secs(60), "bad script");
    let setup = setup(|pool| pool);
    let mut client = setup.keyway.client(0);
    let text = client.command(&["SCRIPT", "LOAD", "this is not lua"]).error_text();
    assert!(text.starts_with("ERR Error compiling script"), "as one server says it: {text}");
    assert!(client.words("SCRIPT FLUSH MAYBE").is_error());
    assert!(client.words("SCRIPT KILL").error_text().contains("refused"));
    assert!(client.words("SCRIPT HELP").array().len() > 5);
}

#[test]
fn a_script_without_keys_runs_on_the_first_server_in_use() {
    let _watch = watchdog(Duration::from_secs(60), "no keys");
    let mut setup = setup(|pool| {
        pool.with("ejection", "{ after_failures = 1, for = \"1h\" }").with("timeout", "\"2s\"")
    });
    let mut client = setup.keyway.client(0);
    for (nth, server) in setup.servers.iter().enumerate() {
        server.client().words(&format!("SET name {nth}"));
    }
    let name = "return redis.call('get', 'name')";
    let asked = |client: &mut Client| client.command(&["EVAL", name, "0"]);
    assert_eq!(asked(&mut client), Value::bulk("0"));
    let digest = load(&mut client, name);
    assert_eq!(client.command(&["EVALSHA_RO", &digest, "0"]), Value::bulk("0"));
    setup.servers[0].kill();
    while asked(&mut client) != Value::bulk("1") {}
}

const LIBRARY: &str = "#!lua name=mylib\nredis.register_function('twice', function(keys, args) \
                       return redis.call('incrby', keys[1], 2 * args[1]) end)";

#[test]
fn functions_loaded_once_run_on_every_server() {
    let _watch = watchdog(Duration::from_secs(60), "functions");
    let mut setup = setup(|pool| pool.with("timeout", "\"2s\""));
    let mut client = setup.keyway.client(0);
    assert_eq!(client.command(&["FUNCTION", "LOAD", LIBRARY]), Value::bulk("mylib"));
    assert!(client.command(&["FUNCTION", "LOAD", LIBRARY]).is_error(), "it is there");
    let replaced = client.command(&["FUNCTION", "LOAD", "REPLACE", LIBRARY]);
    assert_eq!(replaced, Value::bulk("mylib"));
    let run = |client: &mut Client| {
        for key in spread() {
            let reply = client.command(&["FCALL", "twice", "1", &key, "3"]);
            assert!(matches!(reply, Value::Integer(_)), "{key}: {reply:?}");
        }
    };
    run(&mut client);
    assert_eq!(client.words("FUNCTION LIST").array().len(), 1);
    let dump = client.words("FUNCTION DUMP").bytes().to_vec();
    setup.servers[2].restart();
    let is_back = |client: &mut Client| {
        spread().iter().all(|key| !client.command(&["EXISTS", key.as_str()]).is_error())
    };
    while !is_back(&mut client) {}
    run(&mut client);
    assert_eq!(client.words("FUNCTION DELETE mylib"), Value::simple("OK"));
    let reply = client.words("FCALL twice 1 a 3");
    assert_eq!(reply.error_text(), "ERR Function not found");
    let restore: [&[u8]; 3] = [b"FUNCTION", b"RESTORE", &dump];
    assert_eq!(client.command(&restore), Value::simple("OK"));
    run(&mut client);
    assert_eq!(client.words("FUNCTION FLUSH"), Value::simple("OK"));
    assert!(client.words("FCALL twice 1 a 3").is_error());
    assert!(!client.words("FUNCTION STATS").is_error());
}

/// A script that takes 40 ms of its server's time.
const BUSY: &str = "local function now() local t = redis.call('time') return t[1] * 1000000 + t[2] \
                    end local start = now() while now() < start + 40000 do end return KEYS[1]";

#[test]
fn the_slow_log_names_the_slow_request_and_not_those_behind_it() {
    let _watch = watchdog(Duration::from_secs(60), "slowlog");
    let setup = setup(|pool| pool.with("slowlog_log_slower_than", "\"30ms\""));
    let mut client = setup.keyway.client(0);
    let shown = client.words("CONFIG GET slowlog-*");
    let shown: Vec<_> = shown.array().iter().map(Value::text).collect();
    assert_eq!(shown, ["slowlog-log-slower-than", "30000", "slowlog-max-len", "128"]);
    assert_eq!(client.words("SLOWLOG RESET"), Value::simple("OK"));
    assert_eq!(client.words("CLIENT SETNAME slow-one"), Value::simple("OK"));
    let requests = [
        keyway_testkit::encode(&["GET", "k"]),
        keyway_testkit::encode(&["EVAL", BUSY, "1", "k", &"x".repeat(200)]),
        keyway_testkit::encode(&["GET", "k"]).repeat(50),
    ];
    client.send(&requests.concat());
    assert_eq!(client.replies(52).len(), 52);
    assert_eq!(client.words("SLOWLOG LEN"), Value::Integer(1));
    let log = client.words("SLOWLOG GET");
    let entry = log.array()[0].array();
    assert!(entry[1].integer() > 1_600_000_000 && entry[2].integer() >= 30_000, "{entry:?}");
    let args: Vec<_> = entry[3].array().iter().map(Value::text).collect();
    assert_eq!((&args[0][..], &args[2][..], &args[3][..]), ("EVAL", "1", "k"));
    assert!(args[1].ends_with(" more bytes)") && args[4].ends_with("... (72 more bytes)"));
    assert!(entry[4].text().starts_with("127.0.0.1:"));
    assert_eq!(entry[5].text(), "slow-one");
    assert_eq!(client.words("SLOWLOG GET 0"), Value::Array(vec![]));
    assert!(client.words("SLOWLOG GET -2").is_error());
    assert_eq!(client.words("SLOWLOG RESET"), Value::simple("OK"));
    assert_eq!(client.words("SLOWLOG LEN"), Value::Integer(0));
    assert!(client.words("CONFIG SET slowlog-max-len 1").error_text().contains("refused"));
}
