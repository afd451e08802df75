//! Transactions and the like with a server that leaves its pool or falls silent. They end, and are
//! never left with a server that no longer has their keys.

#![allow(clippy::disallowed_methods, reason = "waits are timed from outside")]

use std::time::{Duration, Instant};

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Value, encode_words, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(20);

struct Setup {
    keyway: Keyway,
    servers: Vec<RedisServer>,
}

impl Setup {
    /// Starts a pool over two servers that are ejected after two failures, for long.
    fn start() -> Setup {
        let servers = RedisServer::start_many(2);
        let pool = Pool::over("main", &servers)
            .with("timeout", "\"300ms\"")
            .with("ejection", "{ after_failures = 2, for = \"60s\" }");
        Setup { keyway: Keyway::start(KEYWAY, KeywayConfig::new(vec![pool])), servers }
    }

    fn client(&self) -> Client {
        self.keyway.client(0)
    }

    /// Returns a key that lives on the first server.
    fn key(&self) -> String {
        let (mut client, mut direct) = (self.client(), self.servers[0].client());
        let found = (0..200).map(|nth| format!("key:{nth}")).find(|key| {
            client.command(&["SET", key, "old"]);
            direct.command(&["DEL", key]) == Value::Integer(1)
        });
        found.expect("one key in 200 lives there")
    }

    /// Stops the first server until it is ejected.
    fn eject(&self, key: &str) {
        self.servers[0].process().pause();
        let mut client = self.client();
        wait_until("it is ejected", SOON, || client.command(&["GET", key]) == Value::Nil);
    }
}

#[test]
fn a_transaction_is_not_run_on_a_server_that_has_left_since() {
    let _watch = watchdog(Duration::from_secs(60), "left in MULTI");
    let setup = Setup::start();
    let key = setup.key();
    let (mut plain, mut watching) = (setup.client(), setup.client());
    assert_eq!(watching.command(&["WATCH", &key]), Value::simple("OK"));
    for client in [&mut plain, &mut watching] {
        assert_eq!(client.words("MULTI"), Value::simple("OK"));
        assert_eq!(client.command(&["SET", &key, "1"]), Value::simple("QUEUED"));
    }
    setup.eject(&key);
    let text = plain.words("EXEC").error_text();
    assert!(text.starts_with("EXECABORT ") && text.contains("left the pool"), "{text}");
    assert!(matches!(watching.words("EXEC"), Value::Nil | Value::NilArray), "as if changed");
    assert_eq!(plain.command(&["GET", &key]), Value::Nil);
    // When it runs again, it goes to the key's new server.
    plain.words("MULTI");
    plain.command(&["SET", &key, "2"]);
    assert_eq!(plain.words("EXEC"), Value::Array(vec![Value::simple("OK")]));
    assert_eq!(watching.command(&["GET", &key]), Value::bulk("2"));
    setup.servers[0].process().resume();
}

#[test]
fn a_client_that_waits_on_a_server_that_leaves_is_told() {
    let _watch = watchdog(Duration::from_secs(60), "left while blocked");
    let setup = Setup::start();
    let key = setup.key();
    let mut waiting = setup.client();
    waiting.send(&encode_words(&format!("BLPOP {key} 0")));
    let blocked = || setup.servers[0].client().words("INFO clients").text();
    wait_until("it waits", SOON, || blocked().contains("blocked_clients:1"));
    setup.eject(&key);
    let text = waiting.reply().error_text();
    assert!(text.contains("may have been executed"), "{text}");
    waiting.send(&encode_words(&format!("BLPOP {key} 0")));
    setup.client().command(&["RPUSH", &key, "v"]);
    let popped = Value::Array(vec![Value::bulk(&key), Value::bulk("v")]);
    assert_eq!(waiting.reply(), popped, "on the server that has its key now");
    setup.servers[0].process().resume();
}

#[test]
fn a_command_that_waits_ends_in_time_on_a_server_that_is_silent() {
    let _watch = watchdog(Duration::from_secs(60), "silent while blocked");
    let server = RedisServer::start();
    let pool = Pool::over("main", std::slice::from_ref(&server)).with("timeout", "\"300ms\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    for line in ["BLPOP q 1", "BLMPOP 1 1 q LEFT", "XREAD BLOCK 1000 STREAMS x $"] {
        assert_eq!(client.words("PING"), Value::simple("PONG"));
        client.send(&encode_words(line));
        let blocked = || server.client().words("INFO clients").text();
        wait_until("it waits", SOON, || blocked().contains("blocked_clients:1"));
        server.process().pause();
        let start = Instant::now();
        let text = client.reply().error_text();
        assert!(text.contains("did not answer in time"), "{line}: {text}");
        assert!(start.elapsed() < Duration::from_secs(5), "{line}: {:?}", start.elapsed());
        server.process().resume();
    }
}

#[test]
fn a_client_that_leaves_while_its_pool_is_paused_is_gone() {
    let _watch = watchdog(Duration::from_secs(60), "left while paused");
    let server = RedisServer::start();
    let pool = Pool::over("main", std::slice::from_ref(&server));
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut operator = keyway.client(0);
    operator.words("CLIENT PAUSE 60000");
    let waiting: Vec<Client> = (0..20)
        .map(|_| {
            let mut client = keyway.client(0);
            client.send(&encode_words("SET k v"));
            client
        })
        .collect();
    let connected = || keyway.metrics().sum("keyway_client_connections", &[]);
    wait_until("they came", SOON, || connected() >= 21.0);
    drop(waiting);
    wait_until("they are gone", SOON, || connected() <= 1.0);
    assert_eq!(operator.words("CLIENT UNPAUSE"), Value::simple("OK"));
    assert_eq!(operator.words("GET k"), Value::Nil, "what they asked for was not done");
}
