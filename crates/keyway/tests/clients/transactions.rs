//! MULTI, EXEC, DISCARD, WATCH and UNWATCH through pools of real servers: on one shard the replies
//! of a bare redis-server, across shards a clear refusal.

use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Shared, Value, encode_words, wait_until,
    watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

const BOUND: Duration = Duration::from_secs(20);

struct Setup {
    keyway: Keyway,
    servers: Vec<RedisServer>,
    bare: RedisServer,
}

static SETUP: Shared<Setup> = Shared::new();

fn setup() -> std::sync::Arc<Setup> {
    SETUP.get(start)
}

fn start() -> Setup {
    let servers = RedisServer::start_many(4);
    let four = Pool::over("four", &servers).with("hash_tag", "\"{}\"");
    let one = Pool::over("one", &servers[..1]);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![four, one]));
    Setup { keyway, servers, bare: RedisServer::start() }
}

impl Setup {
    /// Returns a client of the pool of four servers.
    fn client(&self) -> Client {
        self.keyway.client(0)
    }
}

/// Sends the lines of a script, and returns every reply.
fn run(client: &mut Client, script: &[&str]) -> Vec<Value> {
    script.iter().map(|line| client.words(line)).collect()
}

#[test]
fn transactions_answer_what_a_bare_server_does() {
    let _watch = watchdog(Duration::from_secs(60), "scripts");
    // This test has servers of its own: they are emptied.
    let setup = start();
    let scripts: &[&[&str]] = &[
        &["MULTI", "SET {t}a 1", "INCR {t}a", "GET {t}a", "LPUSH {t}l x y", "EXEC", "GET {t}a"],
        &["MULTI", "EXEC"],
        &["MULTI", "SET {t}b 1", "EXEC x", "GET {t}b", "EXEC"],
        &["EXEC"],
        &["DISCARD"],
        &["UNWATCH"],
        &["MULTI", "MULTI", "SET {t}b 1", "EXEC"],
        &["MULTI", "SET {t}b 2", "DISCARD", "GET {t}b", "EXEC"],
        &["MULTI", "WATCH {t}b", "SET {t}b 3", "EXEC"],
        &["MULTI", "NOSUCH x", "SET {t}b 4", "EXEC", "GET {t}b"],
        &["MULTI", "GET", "SET {t}b 5", "EXEC", "GET {t}b", "MULTI", "SET {t}b 6", "EXEC"],
        &["MULTI", "SET {t}s x", "INCR {t}s", "SET {t}s y", "EXEC", "GET {t}s"],
        &["MULTI", "PING", "ECHO hello", "EXEC"],
        &["MULTI", "PING", "SET {t}p 1", "PING x", "EXEC"],
        &["WATCH {t}w", "SET {t}w 1", "MULTI", "SET {t}w 2", "EXEC", "GET {t}w"],
        &["WATCH {t}w", "GET {t}w", "MULTI", "SET {t}w 3", "EXEC", "GET {t}w"],
        &["WATCH {t}w", "SET {t}w 1", "UNWATCH", "MULTI", "SET {t}w 4", "EXEC"],
        &["WATCH {t}w", "SET {t}w 1", "MULTI", "DISCARD", "MULTI", "SET {t}w 5", "EXEC"],
        &["WATCH {t}w {t}v", "WATCH {t}u", "MULTI", "EXEC"],
        &["WATCH {t}w", "SET {t}w 9", "MULTI", "UNWATCH", "EXEC"],
        &["MULTI", "SET {t}r 1", "RESET", "EXEC"],
        &["MULTI", "MSET {t}m1 1 {t}m2 2", "MGET {t}m1 {t}m2 {t}m3", "DEL {t}m1 {t}m2", "EXEC"],
        &["MULTI", "BLPOP {t}none 0", "EXEC"],
        &["DEL {t}l2", "RPUSH {t}l2 a", "MULTI", "BLPOP {t}l2 0", "EXEC"],
        &["MULTI", "EVAL return{1,2} 1 {t}k", "EXEC"],
        &["EXEC x"],
        &["MULTI", "SET {t}x 1", "EXEC x", "GET {t}x", "EXEC"],
        &["MULTI x"],
        &["WATCH"],
    ];
    for script in scripts {
        setup.bare.client().words("FLUSHALL");
        let expected = run(&mut setup.bare.client(), script);
        for pool in [0, 1] {
            setup.servers.iter().for_each(|server| drop(server.client().words("FLUSHALL")));
            let found = run(&mut setup.keyway.client(pool), script);
            assert_eq!(found, expected, "pool {pool}: {script:?}");
        }
        // The same is sent without waiting for any reply.
        setup.servers.iter().for_each(|server| drop(server.client().words("FLUSHALL")));
        let found = setup.client().pipeline(script);
        assert_eq!(found, expected, "pipelined: {script:?}");
    }
}

#[test]
fn a_transaction_over_shards_is_refused_as_a_whole() {
    let _watch = watchdog(Duration::from_secs(60), "crossslot");
    let setup = setup();
    let mut client = setup.client();
    let keys: Vec<String> = (0..40).map(|nth| format!("cross:{nth}")).collect();
    client.words("MULTI");
    let replies: Vec<Value> =
        keys.iter().map(|key| client.words(&format!("SET {key} 1"))).collect();
    assert_eq!(replies[0], Value::simple("QUEUED"));
    let refused =
        replies.iter().filter(|reply| reply.error_text().starts_with("CROSSSLOT")).count();
    assert!((10..40).contains(&refused), "{refused} of 40");
    assert!(client.words("EXEC").error_text().starts_with("EXECABORT"));
    for key in &keys {
        assert_eq!(client.words(&format!("EXISTS {key}")), Value::Integer(0));
    }
    client.words("MULTI");
    let mget = format!("MGET {}", keys.join(" "));
    assert!(client.words(&mget).error_text().starts_with("CROSSSLOT"));
    assert!(client.words("EXEC").error_text().starts_with("EXECABORT"));
    let watch = format!("WATCH {}", keys.join(" "));
    assert!(client.words(&watch).error_text().starts_with("CROSSSLOT"));
    assert_eq!(client.words("PING"), Value::simple("PONG"));
}

#[test]
fn what_cannot_be_in_a_transaction_is_refused_and_aborts_it() {
    let _watch = watchdog(Duration::from_secs(60), "refused inside");
    let setup = setup();
    let mut client = setup.client();
    for line in ["SELECT 0", "CLIENT ID", "HELLO 2", "CONFIG SET a b", "CLUSTER INFO"] {
        client.words("MULTI");
        assert!(client.words(line).error_text().starts_with("ERR"), "{line}");
        assert_eq!(client.words("SET {r}k 1"), Value::simple("QUEUED"));
        assert!(client.words("EXEC").error_text().starts_with("EXECABORT"), "{line}");
    }
}

#[test]
fn a_watched_key_changed_by_another_client_fails_exec() {
    let _watch = watchdog(Duration::from_secs(60), "watch");
    let setup = setup();
    let (mut one, mut other) = (setup.client(), setup.client());
    one.words("SET {o}n 1");
    for round in 0..20 {
        let is_changed = round % 2 == 0;
        assert_eq!(one.words("WATCH {o}n"), Value::simple("OK"));
        one.words("GET {o}n");
        if is_changed {
            other.words("INCR {o}n");
        }
        one.words("MULTI");
        one.words("INCRBY {o}n 100");
        let reply = one.words("EXEC");
        assert_eq!(reply == Value::NilArray, is_changed, "{reply:?}");
    }
    // There are no more connections than sessions that watch at once.
    let links = clients_of(&setup.servers);
    assert!(links <= 4 + 8 + 4, "{links} connections");
}

/// Returns the number of connections of all servers, including the test's own.
fn clients_of(servers: &[RedisServer]) -> usize {
    let count = |server: &RedisServer| server.client().words("CLIENT LIST").text().lines().count();
    servers.iter().map(count).sum()
}

#[test]
fn optimistic_counters_lose_no_increment() {
    let _watch = watchdog(Duration::from_secs(120), "optimistic counters");
    const THREADS: usize = 6;
    const EACH: usize = 50;
    let setup = setup();
    setup.client().words("SET {c}counter 0");
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut client = setup.client();
                let mut done = 0;
                while done < EACH {
                    client.words("WATCH {c}counter");
                    let value: i64 = client.words("GET {c}counter").text().parse().unwrap();
                    let next = format!("SET {{c}}counter {}", value + 1);
                    let replies = client.pipeline(&["MULTI", &next, "EXEC"]);
                    done += usize::from(replies[2] != Value::NilArray);
                }
            });
        }
    });
    let total = (THREADS * EACH).to_string();
    assert_eq!(setup.client().words("GET {c}counter"), Value::bulk(total));
}

#[test]
fn an_open_transaction_holds_no_connection_and_survives_the_server() {
    let _watch = watchdog(Duration::from_secs(60), "open transactions");
    let mut servers = RedisServer::start_many(1);
    let config = KeywayConfig::new(vec![Pool::over("main", &servers)]);
    let keyway = Keyway::start(KEYWAY, config);
    let mut clients: Vec<Client> = (0..50).map(|_| keyway.client(0)).collect();
    for client in &mut clients {
        assert_eq!(client.words("MULTI"), Value::simple("OK"));
        assert_eq!(client.words("INCR n"), Value::simple("QUEUED"));
    }
    assert!(clients_of(&servers) <= 2, "the shared link and the test's own at most");
    servers[0].restart();
    for client in &mut clients {
        wait_until("EXEC finds the server again", BOUND, || {
            let reply = client.words("EXEC");
            let is_answered = matches!(reply, Value::Array(_));
            if !is_answered {
                client.words("MULTI");
                client.words("INCR n");
            }
            is_answered
        });
    }
    assert_eq!(keyway.client(0).words("GET n"), Value::bulk("50"));
}

#[test]
fn a_watch_whose_server_dies_fails_exec_without_executing() {
    let _watch = watchdog(Duration::from_secs(60), "watch lost");
    let mut servers = RedisServer::start_many(1);
    let config = KeywayConfig::new(vec![Pool::over("main", &servers)]);
    let keyway = Keyway::start(KEYWAY, config);
    let mut client = keyway.client(0);
    assert_eq!(client.words("WATCH k"), Value::simple("OK"));
    servers[0].restart();
    let mut other = keyway.client(0);
    wait_until("the server is back", BOUND, || other.words("SET k other") == Value::simple("OK"));
    assert_eq!(client.words("MULTI"), Value::simple("OK"));
    assert_eq!(client.words("SET k mine"), Value::simple("QUEUED"));
    assert_eq!(client.words("EXEC"), Value::NilArray);
    assert_eq!(client.words("GET k"), Value::bulk("other"));
    // The next transaction is a new beginning.
    let replies = client.pipeline(&["WATCH k", "MULTI", "SET k mine", "EXEC"]);
    assert_eq!(replies[3], Value::Array(vec![Value::simple("OK")]));
}

#[test]
fn clients_that_leave_in_any_state_leave_nothing() {
    let _watch = watchdog(Duration::from_secs(60), "leaving");
    let servers = RedisServer::start_many(2);
    let config = KeywayConfig::new(vec![Pool::over("main", &servers)]);
    let keyway = Keyway::start(KEYWAY, config);
    for script in [&["MULTI"][..], &["WATCH k"], &["WATCH k", "MULTI", "SET k 1"]] {
        let clients: Vec<Client> = (0..30)
            .map(|_| {
                let mut client = keyway.client(0);
                run(&mut client, script);
                client
            })
            .collect();
        drop(clients);
    }
    wait_until("all watches end", BOUND, || {
        let text =
            servers.iter().map(|it| it.client().words("CLIENT LIST").text()).collect::<String>();
        text.lines().count() <= 2 * (1 + 1 + 32) && !text.contains("multi=0")
    });
    // Keys watched by clients that have left long ago make no transaction fail.
    let mut client = keyway.client(0);
    for _ in 0..40 {
        let replies = client.pipeline(&["SET k 0", "WATCH k", "MULTI", "SET k 1", "EXEC"]);
        assert_eq!(replies[4], Value::Array(vec![Value::simple("OK")]));
    }
}

#[test]
fn a_client_that_hears_nothing_still_runs_its_transaction() {
    let _watch = watchdog(Duration::from_secs(60), "silent");
    let setup = setup();
    let mut client = setup.client();
    for line in ["CLIENT REPLY OFF", "MULTI", "SET {q}k 7", "EXEC", "CLIENT REPLY ON"] {
        client.send(&encode_words(line));
    }
    assert_eq!(client.reply(), Value::simple("OK"));
    assert_eq!(client.words("GET {q}k"), Value::bulk("7"));
}

#[test]
fn a_script_loaded_before_runs_in_a_transaction_on_a_server_that_was_restarted() {
    let _watch = watchdog(Duration::from_secs(60), "scripts in transactions");
    let mut servers = RedisServer::start_many(2);
    let config = KeywayConfig::new(vec![Pool::over("main", &servers)]);
    let keyway = Keyway::start(KEYWAY, config);
    let mut client = keyway.client(0);
    let digest = client.command(&["SCRIPT", "LOAD", "return redis.call('INCR', KEYS[1])"]).text();
    servers.iter_mut().for_each(RedisServer::restart);
    let call = format!("EVALSHA {digest} 1 k");
    wait_until("the servers are back", BOUND, || {
        !client.words("GET k").is_error() && !client.words("DBSIZE").is_error()
    });
    for begin in ["GET k", "WATCH k"] {
        let before = client.words("GET k").text().parse().unwrap_or(0);
        let replies = client.pipeline(&[begin, "MULTI", &call, &call, "EXEC"]);
        let expected = [before + 1, before + 2].map(Value::Integer);
        assert_eq!(replies[4], Value::Array(expected.to_vec()), "{begin}");
    }
}

/// Commands that clients queue and never run have one bound for all clients. A client that exceeds
/// it is told, and room comes back when a transaction ends.
#[test]
fn commands_that_wait_for_exec_share_a_budget() {
    let _watch = watchdog(Duration::from_secs(60), "a budget");
    let servers = RedisServer::start_many(2);
    let pool = Pool::over("main", &servers).with("hash_tag", "\"{}\"");
    let limits = "[limits]\ntransactions_len_max = \"1MiB\"";
    let config = KeywayConfig::new(vec![pool]).with_server("workers", "2").with_tables(limits);
    let keyway = Keyway::start(KEYWAY, config);
    let value = "x".repeat(300 << 10);
    let set = format!("SET {{b}}k {value}");
    let mut clients: Vec<Client> = (0..8).map(|_| keyway.client(0)).collect();
    let mut queued = 0;
    for client in &mut clients {
        assert_eq!(client.words("MULTI"), Value::simple("OK"));
        let reply = client.words(&set);
        if reply == Value::simple("QUEUED") {
            queued += 1;
            continue;
        }
        let text = reply.error_text();
        assert!(text.starts_with("OOM") && text.contains("transactions_len_max"), "{text}");
        // The client may go on, and its queue is dropped.
        assert_eq!(client.words(&set), Value::simple("QUEUED"));
        let text = client.words("EXEC").error_text();
        assert!(text.starts_with("EXECABORT"), "{text}");
        assert_eq!(client.words("EXISTS {b}k"), Value::Integer(0));
    }
    assert_eq!(queued, 3);
    let metric = |what: &str| keyway.metrics().sum(&format!("keyway_transaction_{what}"), &[]);
    assert_eq!(metric("limit_bytes"), f64::from(1 << 20));
    assert!((3.0 * f64::from(300 << 10)..=f64::from(1 << 20)).contains(&metric("held_bytes")));
    assert_eq!(metric("refused_commands_total"), 5.0);
    // One transaction is run, one is discarded, and one client leaves: all of their memory is free
    // again.
    assert_eq!(clients[0].words("EXEC"), Value::Array(vec![Value::simple("OK")]));
    assert_eq!(clients[1].words("DISCARD"), Value::simple("OK"));
    drop(clients.remove(2));
    wait_until("the client that left is gone", BOUND, || {
        let mut one = keyway.client(0);
        one.words("MULTI");
        let replies = one.pipeline(&[&set[..], &set, &set]);
        replies.iter().all(|reply| *reply == Value::simple("QUEUED"))
            && matches!(one.words("EXEC"), Value::Array(done) if done.len() == 3)
    });
    assert_eq!(keyway.client(0).words("STRLEN {b}k"), Value::Integer(300 << 10));
}
