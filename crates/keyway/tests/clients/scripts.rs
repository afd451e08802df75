//! Scripts and functions on servers that are restarted, emptied or changed by others. Each call
//! finds its script, or gets an error, in the order of its client's requests.

use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Value, encode, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

/// Longest time of a test.
const BOUND: Duration = Duration::from_secs(60);

struct Setup {
    keyway: Keyway,
    servers: Vec<RedisServer>,
}

fn setup(count: usize) -> Setup {
    let servers = RedisServer::start_many(count);
    let pool = Pool::over("main", &servers).with("timeout", "\"2s\"");
    let config = KeywayConfig::new(vec![pool]).with_server("workers", "1");
    let keyway = Keyway::start(KEYWAY, config);
    Setup { keyway, servers }
}

/// Waits until every server is connected again.
fn wait_for_all(client: &mut Client) {
    wait_until("the servers are back", BOUND, || !client.words("DBSIZE").is_error());
}

const SET: &str = "redis.call('set', KEYS[1], ARGV[1]) return ARGV[1]";

fn load(client: &mut Client) -> String {
    client.command(&["SCRIPT", "LOAD", SET]).text()
}

/// Sets a key by a script and reads it in one pipeline, `count` times. Each read must return what
/// the last script that ran has set. Returns the number of scripts that did not run.
fn set_and_get(client: &mut Client, digest: &str, round: &str, count: usize) -> usize {
    let mut requests = encode(&["GET", "k"]);
    for nth in 0..count {
        let value = format!("{round}:{nth}");
        requests.extend(encode(&["EVALSHA", digest, "1", "k", &value]));
        requests.extend(encode(&["GET", "k"]));
    }
    client.send(&requests);
    let replies = client.replies(1 + 2 * count);
    let (mut before, mut missing) = (replies[0].clone(), 0);
    for pair in replies[1..].chunks(2) {
        missing += usize::from(pair[0].is_error());
        let expected = match &pair[0] {
            ran if !ran.is_error() => Some(ran.clone()),
            ran if ran.error_text().starts_with("NOSCRIPT") => Some(before),
            // The reply was lost with its connection: the script may have run.
            _ => None,
        };
        let is_known = |value: &Value| !value.is_error();
        if let Some(expected) = expected.filter(is_known).filter(|_| is_known(&pair[1])) {
            assert_eq!(pair[1], expected, "round {round}: {pair:?}");
        }
        before = pair[1].clone();
    }
    missing
}

#[test]
fn nothing_overtakes_a_script_that_its_server_has_lost() {
    let _watch = watchdog(BOUND, "scripts behind Keyway's back");
    let setup = setup(1);
    let mut client = setup.keyway.client(0);
    let mut server = setup.servers[0].client();
    let digest = load(&mut client);
    assert_eq!(set_and_get(&mut client, &digest, "first", 10), 0);
    for round in 0..20 {
        server.words("SCRIPT FLUSH");
        // If other requests of its client follow, the client is told to run it again. Requests that
        // come once this is known find the script.
        set_and_get(&mut client, &digest, &format!("flushed {round}"), 3);
        assert_eq!(set_and_get(&mut client, &digest, &format!("again {round}"), 3), 0);
        // A lone request always runs.
        server.words("SCRIPT FLUSH");
        let value = format!("alone {round}");
        let reply = client.command(&["EVALSHA", &digest, "1", "k", &value]);
        assert_eq!(reply, Value::bulk(&value));
        assert_eq!(client.words("GET k"), Value::bulk(&value));
    }
}

#[test]
fn a_transaction_that_missed_its_script_finds_it_the_next_time() {
    let _watch = watchdog(BOUND, "transactions behind Keyway's back");
    let setup = setup(1);
    let mut client = setup.keyway.client(0);
    let mut server = setup.servers[0].client();
    let digest = load(&mut client);
    let call = format!("EVALSHA {digest} 1 k v");
    for begin in ["GET k", "WATCH k"] {
        let mut run = || client.pipeline(&[begin, "MULTI", &call, "EXEC"])[3].clone();
        assert_eq!(run(), Value::Array(vec![Value::bulk("v")]), "{begin}");
        server.words("SCRIPT FLUSH");
        assert!(run().array()[0].error_text().starts_with("NOSCRIPT"), "{begin}");
        assert_eq!(run(), Value::Array(vec![Value::bulk("v")]), "{begin}");
    }
}

#[test]
fn a_script_that_may_run_again_keeps_back_what_its_client_sends_next() {
    let _watch = watchdog(BOUND, "scripts and what follows");
    let setup = setup(1);
    let mut client = setup.keyway.client(0);
    let mut server = setup.servers[0].client();
    let digest = load(&mut client);
    for round in 0..200 {
        server.words("SCRIPT FLUSH");
        let value = round.to_string();
        // The request is sent in two pieces that may arrive together or apart.
        client.send(&encode(&["EVALSHA", &digest, "1", "k", &value]));
        client.send(&encode(&["APPEND", "k", "+"]));
        let replies = client.replies(2);
        let expected = match replies[0].is_error() {
            true => "+".to_owned(),
            false => format!("{value}+"),
        };
        assert_eq!(client.words("GET k"), Value::bulk(&expected), "{replies:?}");
        client.words("DEL k");
    }
}

#[test]
fn scripts_run_in_their_order_through_restarts() {
    let _watch = watchdog(BOUND, "scripts through restarts");
    let mut setup = setup(1);
    let mut client = setup.keyway.client(0);
    let digest = load(&mut client);
    for round in 0..5 {
        setup.servers[0].restart();
        let mut nth = 0;
        wait_until("a pipeline runs whole", BOUND, || {
            nth += 1;
            set_and_get(&mut client, &digest, &format!("{round} {nth}"), 5) == 0
        });
    }
}

#[test]
fn what_was_forgotten_through_keyway_and_seen_again_is_loaded_ahead() {
    let _watch = watchdog(BOUND, "flushed and seen again");
    let setup = setup(4);
    let mut client = setup.keyway.client(0);
    let digest = load(&mut client);
    for round in 0..20 {
        assert_eq!(client.words("SCRIPT FLUSH"), Value::simple("OK"));
        // Only the server of this key has it now.
        let seen = client.command(&["EVAL", SET, "1", &format!("other{round}"), "x"]);
        assert_eq!(seen, Value::bulk("x"));
        assert_eq!(set_and_get(&mut client, &digest, &round.to_string(), 3), 0);
    }
}

const LIBRARY: &str = "#!lua name=mylib\nredis.register_function('answer', function(keys, args) \
                       return redis.call('incrby', keys[1], 2) end)";

fn loads_of(server: &RedisServer) -> u64 {
    let info = server.client().words("INFO commandstats").text();
    let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_function|load:calls="));
    line.map_or(0, |rest| rest.split(',').next().unwrap_or_default().parse().expect("a number"))
}

#[test]
fn a_function_that_nobody_knows_costs_one_round_of_libraries() {
    let _watch = watchdog(BOUND, "unknown functions");
    let setup = setup(1);
    let mut client = setup.keyway.client(0);
    let mut bare = RedisServer::start();
    let unknown = bare.client().words("FCALL nosuch 1 k");
    assert_eq!(client.words("FCALL nosuch 1 k"), unknown);
    assert_eq!(client.command(&["FUNCTION", "LOAD", LIBRARY]), Value::bulk("mylib"));
    for _ in 0..100 {
        assert_eq!(client.words("FCALL nosuch 1 k"), unknown);
        assert_eq!(client.words("FCALL_RO nosuch 1 k"), unknown);
    }
    assert_eq!(client.words("FCALL answer 1 k"), Value::Integer(2));
    assert_eq!(loads_of(&setup.servers[0]), 2, "the client's own, and one ahead of FCALL");
    bare.kill();
}

#[test]
fn what_others_changed_at_a_server_stays() {
    let _watch = watchdog(BOUND, "libraries changed by others");
    let setup = setup(1);
    let mut client = setup.keyway.client(0);
    assert_eq!(client.command(&["FUNCTION", "LOAD", LIBRARY]), Value::bulk("mylib"));
    assert_eq!(client.words("FCALL answer 1 k"), Value::Integer(2));
    let other = LIBRARY.replace("keys[1], 2", "keys[1], 100");
    let mut server = setup.servers[0].client();
    assert!(!server.command(&["FUNCTION", "LOAD", "REPLACE", &other]).is_error());
    assert!(client.words("FCALL nosuch 1 k").is_error());
    assert_eq!(client.words("FCALL answer 1 k"), Value::Integer(102));
    // Another connection has not been given any script yet.
    let mut speaks_three = setup.keyway.client(0);
    speaks_three.words("HELLO 3");
    assert_eq!(speaks_three.words("FCALL answer 1 k"), Value::Integer(202));
    assert_eq!(speaks_three.words("FUNCTION LIST").array().len(), 1);
    assert_eq!(client.words("FCALL answer 1 k"), Value::Integer(302));
}

#[test]
fn a_server_that_was_restarted_has_the_libraries_before_it_tells_of_them() {
    let _watch = watchdog(BOUND, "libraries after a restart");
    let mut setup = setup(2);
    let mut client = setup.keyway.client(0);
    assert_eq!(client.command(&["FUNCTION", "LOAD", LIBRARY]), Value::bulk("mylib"));
    let dump = client.words("FUNCTION DUMP");
    for line in ["FUNCTION LIST", "FUNCTION DUMP", "FUNCTION STATS", "FCALL answer 1 k"] {
        let before = client.words(line);
        setup.servers.iter_mut().for_each(RedisServer::restart);
        wait_for_all(&mut client);
        // The command is in the middle of a pipeline.
        let replies = client.pipeline(&["GET k", line, "FUNCTION DUMP"]);
        assert_eq!(replies[2], dump, "{line}");
        if !line.starts_with("FCALL") {
            assert_eq!(replies[1], before, "{line}");
        }
    }
    setup.servers[0].restart();
    wait_for_all(&mut client);
    let again = client.command(&["FUNCTION", "LOAD", LIBRARY]).error_text();
    assert_eq!(again, "ERR Library 'mylib' already exists", "said by every server");
    setup.servers[0].restart();
    wait_for_all(&mut client);
    let replaced = client.command(&["FUNCTION", "LOAD", "REPLACE", LIBRARY]);
    assert_eq!(replaced, Value::bulk("mylib"));
    setup.servers[0].restart();
    wait_for_all(&mut client);
    assert_eq!(client.words("FUNCTION DELETE mylib"), Value::simple("OK"));
    for line in ["FUNCTION DELETE mylib", "FCALL answer 1 k"] {
        assert!(client.words(line).is_error(), "{line}");
    }
    setup.servers.iter_mut().for_each(RedisServer::restart);
    wait_for_all(&mut client);
    assert_eq!(client.words("FUNCTION LIST"), Value::Array(vec![]));
}

#[test]
fn what_restore_brings_is_remembered() {
    let _watch = watchdog(BOUND, "restored libraries");
    let mut setup = setup(2);
    let mut client = setup.keyway.client(0);
    let reference = RedisServer::start();
    let mut bare = reference.client();
    // One library is long and repetitive, so that it is compressed. The other is short, so that it
    // is not.
    let long = LIBRARY.replace("return", &format!("{} return", "keys[1] = keys[1] ".repeat(300)));
    let short = LIBRARY.replace("mylib", "b").replace("answer", "other");
    for (code, name) in [(&long, "mylib"), (&short, "b")] {
        assert_eq!(bare.command(&["FUNCTION", "LOAD", code]), Value::bulk(name));
    }
    let dump = bare.words("FUNCTION DUMP").bytes().to_vec();
    let restore = |client: &mut Client, policy: &[u8]| {
        client.command(&[b"FUNCTION".as_slice(), b"RESTORE", &dump, policy])
    };
    assert_eq!(restore(&mut client, b"APPEND"), Value::simple("OK"));
    assert!(restore(&mut client, b"APPEND").is_error(), "they are there");
    let mut sum = 0;
    let mut run = |client: &mut Client, line: &str| {
        sum += 2;
        assert_eq!(client.words(line), Value::Integer(sum), "{line}");
        client.words(&format!("SET k {sum}"));
    };
    let restart = |setup: &mut Setup, client: &mut Client| {
        setup.servers.iter_mut().for_each(RedisServer::restart);
        wait_for_all(client);
        assert_eq!(client.words("GET k"), Value::Nil);
    };
    run(&mut client, "FCALL answer 1 k");
    for policy in [b"FLUSH".as_slice(), b"REPLACE"] {
        restart(&mut setup, &mut client);
        client.words("FUNCTION DELETE b");
        restart(&mut setup, &mut client);
        assert!(client.words("FCALL other 1 k").is_error());
        assert_eq!(restore(&mut client, policy), Value::simple("OK"));
        restart(&mut setup, &mut client);
        assert_eq!(client.words("FCALL other 1 k"), Value::Integer(2));
        assert_eq!(client.words("FCALL answer 1 k"), Value::Integer(4));
        assert_eq!(client.words("FUNCTION LIST").array().len(), 2);
    }
    assert_eq!(client.words("FUNCTION FLUSH"), Value::simple("OK"));
    restart(&mut setup, &mut client);
    assert!(client.words("FCALL other 1 k").is_error());
    for wrong in [&b"rubbish"[..], &dump[..dump.len() - 1]] {
        let words = [b"FUNCTION".as_slice(), b"RESTORE", wrong];
        assert_eq!(client.command(&words), bare.command(&words));
    }
}

#[test]
fn a_function_in_a_transaction_is_found_on_a_server_that_was_restarted() {
    let _watch = watchdog(BOUND, "functions in transactions");
    let mut setup = setup(1);
    let mut client = setup.keyway.client(0);
    client.command(&["FUNCTION", "LOAD", LIBRARY]);
    for begin in ["GET k", "WATCH k"] {
        setup.servers[0].restart();
        wait_for_all(&mut client);
        let replies = client.pipeline(&[begin, "MULTI", "FCALL answer 1 k", "EXEC"]);
        assert_eq!(replies[3], Value::Array(vec![Value::Integer(2)]), "{begin}");
    }
}

/// The user of the server may not run MULTI. The first EXEC reports that the outcome is unknown,
/// the others that nothing was sent. No reply is in another's place.
#[test]
fn a_server_that_refuses_multi_is_told_of_in_the_reply_to_exec() {
    let _watch = watchdog(BOUND, "MULTI refused");
    let setup = setup(1);
    let mut server = setup.servers[0].client();
    let allow = |server: &mut Client, what: &str| {
        assert_eq!(server.words(&format!("ACL SETUSER default {what}")), Value::simple("OK"));
    };
    for denied in ["-multi", "-multi -exec"] {
        allow(&mut server, denied);
        let mut client = setup.keyway.client(0);
        let run = |client: &mut Client| {
            let lines = ["MULTI", "INCR k", "INCR k", "EXEC", "ECHO behind", "GET k"];
            client.pipeline(&lines)
        };
        let replies = run(&mut client);
        let said = replies[3].error_text();
        assert!(said.starts_with("NOPERM") && said.contains("'multi'"), "{said}");
        assert!(said.contains("may have been executed without a transaction"), "{said}");
        assert_eq!(replies[4], Value::bulk("behind"));
        for _ in 0..3 {
            let before = client.words("GET k");
            let replies = run(&mut client);
            let said = replies[3].error_text();
            assert!(said.contains("nothing of this one was sent"), "{said}");
            assert_eq!((&replies[4], &replies[5]), (&Value::bulk("behind"), &before));
        }
        allow(&mut server, "+multi +exec");
        wait_until("transactions run again", BOUND, || !run(&mut client)[3].is_error());
        client.words("DEL k");
        let replies = run(&mut client);
        assert_eq!(replies[3], Value::Array(vec![Value::Integer(1), Value::Integer(2)]));
    }
}
