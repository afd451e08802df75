//! MULTI, EXEC, DISCARD, WATCH and UNWATCH on the embedded store: the replies of a bare
//! redis-server, to the byte, and atomic for all clients on any worker.

#![allow(clippy::disallowed_methods, reason = "waits are timed from outside")]

use std::time::{Duration, Instant};

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Value, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const BOUND: Duration = Duration::from_secs(20);

fn store(workers: &str) -> Keyway {
    let config = KeywayConfig::new(vec![Pool::store("local").with("databases", "16")]);
    Keyway::start(KEYWAY, config.with_server("workers", workers))
}

/// Sends the lines of a script, and returns every reply.
fn run(client: &mut Client, script: &[&str]) -> Vec<Value> {
    script.iter().map(|line| client.words(line)).collect()
}

/// Runs scripts on a bare server and on the store, line by line and in one pipeline, in both
/// protocols.
fn compare(scripts: &[&[&str]]) {
    let bare = RedisServer::start();
    let keyway = store("2");
    for script in scripts {
        for hello in ["HELLO 2", "HELLO 3"] {
            let clients = || {
                let mut both = [bare.client(), keyway.client(0)];
                both.iter_mut().for_each(|client| {
                    client.words("FLUSHALL");
                    client.words(hello);
                });
                both
            };
            let [mut theirs, mut ours] = clients();
            let expected = run(&mut theirs, script);
            assert_eq!(run(&mut ours, script), expected, "{hello}: {script:?}");
            let [_, mut ours] = clients();
            assert_eq!(ours.pipeline(script), expected, "{hello}, pipelined: {script:?}");
        }
    }
}

#[test]
fn transactions_answer_what_a_bare_server_does() {
    let _watch = watchdog(Duration::from_secs(60), "scripts");
    compare(&[
        &["MULTI", "SET a 1", "INCR b", "GET a", "LPUSH l x y", "EXEC", "GET a"],
        &["MULTI", "EXEC"],
        &["MULTI", "SET b 1", "EXEC x", "GET b", "EXEC"],
        &["EXEC"],
        &["EXEC x"],
        &["DISCARD"],
        &["MULTI x"],
        &["MULTI", "MULTI", "SET b 1", "EXEC"],
        &["MULTI", "SET b 2", "DISCARD", "GET b", "EXEC"],
        &["MULTI", "NOSUCH x", "SET b 4", "EXEC", "GET b"],
        &["MULTI", "GET", "SET b 5", "EXEC", "GET b", "MULTI", "SET b 6", "EXEC"],
        &["MULTI", "SET s x", "INCR s", "LPUSH s y", "SET s y", "EXEC", "GET s"],
        &["MULTI", "PING", "ECHO hello", "PING x", "EXEC"],
        &["MULTI", "SET a 1", "SELECT 3", "SET a 2", "GET a", "SELECT 99", "EXEC", "GET a"],
        &["MULTI", "SET a 1", "SELECT 3", "DISCARD", "GET a", "DBSIZE"],
        &["MULTI", "MSET m1 1 m2 2", "MGET m1 m2 m3", "DEL m1 m2", "EXISTS m1", "EXEC"],
        &["MULTI", "SET r 1", "RESET", "EXEC", "GET r"],
        &["MULTI", "SET a 1", "KEYS *", "DBSIZE", "RANDOMKEY", "FLUSHALL", "DBSIZE", "EXEC"],
        &["MULTI", "SET a 1", "SWAPDB 0 1", "GET a", "EXEC", "SELECT 1", "GET a"],
        &["MULTI", "CLIENT SETNAME x", "CLIENT GETNAME", "EXEC", "CLIENT GETNAME"],
        &["MULTI", "PUBLISH nobody x", "EXEC"],
        &["MULTI", "SUBSCRIBE", "EXEC"],
        &["MULTI", "OBJECT HELP", "EXEC"],
        &["MULTI", "HSET h f 1", "SADD s a", "ZADD z 1 m", "HGETALL h", "ZSCORE z m", "EXEC"],
        &["MULTI", "RENAME none x", "COPY a b", "MOVE a 1", "SMOVE s t a", "EXEC"],
        &["MULTI", "ZUNIONSTORE d 0 a", "LMPOP x a LEFT", "SINTERCARD 9 a", "EXEC"],
        &["MULTI", "XADD x 1-1 f v", "XREAD STREAMS x 0", "XREAD BLOCK 0 STREAMS x 1-1", "EXEC"],
        &["MULTI", "SORT l", "RPUSH l 2 1", "SORT l STORE d", "LRANGE d 0 -1", "EXEC"],
        &["MULTI", "RPUSH l 2 1", "SET w2 0", "SORT l BY w* GET w* GET #", "EXEC"],
        &["MULTI", "GEOADD g 1 1 a", "GEORADIUS g 1 1 9 km STORE o STORE p", "ZCARD p", "EXEC"],
        &["MULTI", "PFADD p a b", "PFCOUNT p q", "PFMERGE r p", "PFCOUNT r", "EXEC"],
        &["MULTI", "SET a 1", "DUMP a", "RESTORE b 0 bad", "EXEC"],
        &["MULTI", "QUIT"],
    ]);
}

#[test]
fn what_is_watched_answers_what_a_bare_server_does() {
    let _watch = watchdog(Duration::from_secs(60), "scripts");
    compare(&[
        &["UNWATCH"],
        &["WATCH"],
        &["MULTI", "WATCH b", "SET b 3", "EXEC"],
        &["WATCH w", "SET w 1", "MULTI", "SET w 2", "EXEC", "GET w"],
        &["WATCH w", "GET w", "MULTI", "SET w 3", "EXEC", "GET w"],
        &["WATCH w", "SET w 1", "UNWATCH", "MULTI", "SET w 4", "EXEC"],
        &["WATCH w", "SET w 1", "MULTI", "DISCARD", "MULTI", "SET w 5", "EXEC"],
        &["WATCH w v", "WATCH u w", "MULTI", "EXEC"],
        &["WATCH w", "SET w 9", "MULTI", "UNWATCH", "EXEC"],
        &["WATCH w", "SET w 9", "MULTI", "NOSUCH", "EXEC"],
        &["WATCH w", "SET w 9", "RESET", "MULTI", "SET w 10", "EXEC"],
        &["WATCH w", "DEL w", "MULTI", "PING", "EXEC"],
        &["SET w 1", "WATCH w", "DEL w", "MULTI", "PING", "EXEC"],
        &["SET w 1", "WATCH w", "SET w 1", "MULTI", "PING", "EXEC"],
        &["SADD s a", "WATCH s", "SADD s a", "MULTI", "PING", "EXEC"],
        &["SADD s a", "WATCH s", "SREM s a", "SADD s a", "MULTI", "PING", "EXEC"],
        &["ZADD z 1 a", "WATCH z", "ZADD z 1 a", "MULTI", "PING", "EXEC"],
        &["HSET h f v", "WATCH h", "HSET h f v", "MULTI", "PING", "EXEC"],
        &["SETBIT b 1 1", "WATCH b", "SETBIT b 1 1", "MULTI", "PING", "EXEC"],
        &["SET w 1", "WATCH w", "EXPIRE w 100", "MULTI", "PING", "EXEC"],
        &["SET w 1", "WATCH w", "PERSIST w", "GETEX w", "TOUCH w", "MULTI", "PING", "EXEC"],
        &["SET w 1", "WATCH w", "RENAME w v", "MULTI", "PING", "EXEC"],
        &["SET v 1", "WATCH w", "RENAME v w", "MULTI", "PING", "EXEC"],
        &["SET w 1", "WATCH w", "RENAME w w", "MULTI", "PING", "EXEC"],
        &["SET w 1", "WATCH w", "MOVE w 1", "MULTI", "PING", "EXEC"],
        &["SET w 1", "WATCH w", "COPY w w DB 1", "MULTI", "PING", "EXEC"],
        &["WATCH w", "SELECT 1", "SET w 1", "MULTI", "PING", "EXEC"],
        &["WATCH w", "SELECT 1", "SET w 1", "SELECT 0", "SWAPDB 0 1", "MULTI", "PING", "EXEC"],
        &["WATCH w", "SWAPDB 0 1", "MULTI", "PING", "EXEC"],
        &["SET w 1", "WATCH w", "SWAPDB 1 0", "MULTI", "PING", "EXEC"],
        &["SET w 1", "WATCH w", "SWAPDB 0 0", "MULTI", "PING", "EXEC"],
        &["SET w 1", "WATCH w", "SWAPDB 2 3", "MULTI", "PING", "EXEC"],
        &["SET w 1", "WATCH w", "FLUSHDB", "MULTI", "PING", "EXEC"],
        &["SET v 1", "WATCH w", "FLUSHDB", "MULTI", "PING", "EXEC"],
        &["SET w 1", "WATCH w", "SELECT 1", "FLUSHDB", "MULTI", "PING", "EXEC"],
        &["SET w 1", "WATCH w", "SELECT 1", "FLUSHALL", "MULTI", "PING", "EXEC"],
        &["SET w 1", "WATCH w", "MULTI", "SET w 2", "EXEC", "MULTI", "SET w 3", "EXEC"],
    ]);
}

#[test]
fn a_watched_key_that_expires_fails_exec_and_one_that_had_expired_does_not() {
    let _watch = watchdog(Duration::from_secs(60), "expiry");
    let bare = RedisServer::start();
    let keyway = store("2");
    for mut client in [bare.client(), keyway.client(0)] {
        // The key may expire before it is watched; then the test is repeated.
        wait_until("a change by expiry, seen by a read", BOUND, || {
            run(&mut client, &["PSETEX w 50 x", "WATCH w"]);
            wait_until("expired", BOUND, || client.words("EXISTS w") == Value::Integer(0));
            run(&mut client, &["MULTI", "EXEC"])[1] == Value::NilArray
        });
        wait_until("a change by expiry, seen by nobody", BOUND, || {
            run(&mut client, &["PSETEX w 50 x", "WATCH w"]);
            let start = Instant::now();
            wait_until("its time is over", BOUND, || start.elapsed() > Duration::from_millis(60));
            run(&mut client, &["MULTI", "EXEC"])[1] == Value::NilArray
        });
        client.words("PSETEX w 1 x");
        let start = Instant::now();
        wait_until("its time is over", BOUND, || start.elapsed() > Duration::from_millis(5));
        let replies = run(&mut client, &["WATCH w", "EXISTS w", "MULTI", "EXEC"]);
        assert_eq!(replies[3], Value::Array(vec![]));
    }
}

#[test]
fn counters_under_watch_lose_no_increment_on_any_worker() {
    let _watch = watchdog(Duration::from_secs(120), "optimistic counters");
    const CLIENTS: usize = 8;
    const EACH: usize = 200;
    let keyway = store("3");
    keyway.client(0).words("SET counter 0");
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = keyway.client(0);
                let mut done = 0;
                while done < EACH {
                    client.words("WATCH counter other");
                    let value: i64 = client.words("GET counter").text().parse().expect("a number");
                    let next = format!("SET counter {}", value + 1);
                    let replies = client.pipeline(&["MULTI", &next, "EXEC"]);
                    done += usize::from(replies[2] != Value::NilArray);
                }
            });
        }
    });
    let total = Value::bulk((CLIENTS * EACH).to_string());
    assert_eq!(keyway.client(0).words("GET counter"), total);
}

#[test]
fn a_watch_is_shown_and_ends_with_its_client() {
    let _watch = watchdog(Duration::from_secs(60), "shown");
    let keyway = store("2");
    let (mut client, mut other) = (keyway.client(0), keyway.client(0));
    client.words("WATCH a b");
    client.words("SET a 1");
    client.words("PING");
    assert!(client.words("CLIENT INFO").text().contains(" flags=d "), "it is dirty");
    drop(client);
    wait_until("it has left", BOUND, || {
        other.words("INFO clients").text().contains("connected_clients:1\r")
    });
    let replies = run(&mut other, &["WATCH a", "SET b 1", "MULTI", "SET a 2", "EXEC"]);
    assert_eq!(replies[4], Value::Array(vec![Value::simple("OK")]));
}

#[test]
fn what_cannot_be_in_a_transaction_is_refused_and_aborts_it() {
    let _watch = watchdog(Duration::from_secs(60), "refused inside");
    let keyway = store("1");
    let mut client = keyway.client(0);
    let lines = ["SUBSCRIBE a", "CLIENT REPLY OFF", "CLIENT TRACKING ON", "CONFIG SET a b"];
    for line in lines {
        client.words("MULTI");
        assert!(client.words(line).error_text().starts_with("ERR"), "{line}");
        assert_eq!(client.words("SET r 1"), Value::simple("QUEUED"));
        assert!(client.words("EXEC").error_text().starts_with("EXECABORT"), "{line}");
    }
    assert_eq!(client.words("EXISTS r"), Value::Integer(0));
}

#[test]
fn a_full_store_refuses_to_queue_and_exec_says_so() {
    let _watch = watchdog(Duration::from_secs(60), "full");
    let bare = RedisServer::start_with(&["--maxmemory", "1mb"]);
    let pool =
        Pool::store("local").with("memory_max", "\"4MiB\"").with("eviction", "\"noeviction\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let value = "x".repeat(6 << 20);
    let set = format!("SET huge {value}");
    // A bare server is full from the start.
    let expected = run(&mut bare.client(), &["MULTI", &set, "EXEC"]);
    assert_eq!(run(&mut keyway.client(0), &["MULTI", &set, "EXEC"]), expected);
    // There is room for each value, but not for both.
    let half = format!("SET a {}", "x".repeat(2_200_000));
    let other = format!("SET b {}", "x".repeat(2_200_000));
    let replies = run(&mut keyway.client(0), &["MULTI", &half, &other, "EXEC", "EXISTS a b"]);
    assert_eq!(replies[2], Value::simple("QUEUED"));
    let text = "EXECABORT Transaction discarded because of: OOM command not allowed when used \
                memory > 'maxmemory'.";
    assert_eq!(replies[3].error_text(), text);
    assert_eq!(replies[4], Value::Integer(0));
}

#[test]
fn no_client_of_any_worker_sees_half_of_a_transaction() {
    let _watch = watchdog(Duration::from_secs(120), "halves");
    const CLIENTS: usize = 6;
    const ROUNDS: usize = 300;
    let keyway = store("3");
    keyway.client(0).words("MSET left 0 right 0");
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = keyway.client(0);
                for _ in 0..ROUNDS {
                    let replies = client.pipeline(&["MULTI", "INCR left", "INCR right", "EXEC"]);
                    let Value::Array(both) = &replies[3] else { panic!("{replies:?}") };
                    assert_eq!(both[0], both[1]);
                    let Value::Array(both) = client.words("MGET left right") else { panic!() };
                    assert_eq!(both[0], both[1]);
                }
            });
        }
    });
    let total = Value::bulk((CLIENTS * ROUNDS).to_string());
    assert_eq!(keyway.client(0).words("MGET left right"), Value::Array(vec![total.clone(), total]));
}

#[test]
fn a_transaction_tells_of_its_changes_in_their_order_behind_its_reply() {
    let _watch = watchdog(Duration::from_secs(60), "told");
    let bare = RedisServer::start_with(&["--notify-keyspace-events", "KEA"]);
    let pool = Pool::store("local").with("notify_keyspace_events", "\"KEA\"");
    let config = KeywayConfig::new(vec![pool]).with_server("workers", "1");
    let keyway = Keyway::start(KEYWAY, config);
    let told = [bare.client(), keyway.client(0)].into_iter().zip([bare.client(), keyway.client(0)]);
    let told = told.map(|(mut client, mut hearer)| {
        hearer.words("PSUBSCRIBE *");
        client.words("HELLO 3");
        client.words("CLIENT TRACKING ON");
        let mut all = run(&mut client, &["GET a", "GET b", "MULTI", "SET a 1", "PUBLISH here x"]);
        all.extend(run(&mut client, &["GET c", "RPUSH l 1 2", "DEL a", "SET c 1"]));
        all.push(client.words("EXEC"));
        // The client is told of its own changes before the reply to its next request.
        all.extend((0..2).map(|_| client.reply()));
        client.words("SET end 1");
        let mut heard = Vec::new();
        while heard.last().is_none_or(|value| !format!("{value:?}").contains("end")) {
            heard.push(hearer.reply());
            assert!(heard.len() < 100);
        }
        (all, heard)
    });
    let told: Vec<_> = told.collect();
    assert_eq!(told[1], told[0]);
}

#[test]
fn what_a_client_leaves_open_is_gone_with_it() {
    let _watch = watchdog(Duration::from_secs(60), "left open");
    let keyway = store("2");
    for nth in 0..200 {
        let mut client = keyway.client(0);
        client.words("MULTI");
        assert_eq!(client.words(&format!("SET k{nth} 1")), Value::simple("QUEUED"));
    }
    let mut client = keyway.client(0);
    wait_until("all have left", BOUND, || {
        client.words("INFO clients").text().contains("connected_clients:1\r")
    });
    assert_eq!(client.words("DBSIZE"), Value::Integer(0));
}
