//! The state of a connection and its rights: names, ids, login, and being closed.

use std::time::Duration;

use keyway_testkit::{
    Client, Keyway, KeywayConfig, Pool, RedisServer, Shared, Value, encode, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

struct Setup {
    keyway: Keyway,
    _servers: Vec<RedisServer>,
}

static SETUP: Shared<Setup> = Shared::new();

/// Starts a store, a pool, and a store that wants a password.
fn setup() -> std::sync::Arc<Setup> {
    SETUP.get(|| {
        let servers = RedisServer::start_many(2);
        let pools = vec![
            Pool::store("local"),
            Pool::over("main", &servers),
            Pool::store("secret").with_listener("password", "\"sesame\""),
        ];
        Setup { keyway: Keyway::start(KEYWAY, KeywayConfig::new(pools)), _servers: servers }
    })
}

#[test]
fn ids_differ_and_grow_and_names_stay_with_their_connection() {
    let _watch = watchdog(Duration::from_secs(30), "ids and names");
    let setup = setup();
    for pool in [0, 1] {
        let mut one = setup.keyway.client(pool);
        let mut two = setup.keyway.client(pool);
        let first = one.words("CLIENT ID").integer();
        assert_eq!(one.words("CLIENT ID").integer(), first);
        assert_ne!(two.words("CLIENT ID").integer(), first);
        assert_eq!(one.words("CLIENT SETNAME first"), Value::simple("OK"));
        assert_eq!(two.words("CLIENT GETNAME"), Value::Nil);
        assert_eq!(one.words("CLIENT GETNAME"), Value::bulk("first"));
        let info = one.words("CLIENT INFO").text();
        assert!(info.contains("name=first"), "{info}");
        assert!(info.contains(&format!("id={first} ")), "{info}");
        assert!(info.contains(&format!("addr={}", one.local_address())), "{info}");
        let list = two.words("CLIENT LIST").text();
        assert!(list.lines().any(|line| line.contains("name=first")), "{list}");
        assert!(list.lines().count() >= 2, "{list}");
    }
}

#[test]
fn a_killed_client_is_gone_and_the_others_stay() {
    let _watch = watchdog(Duration::from_secs(30), "client kill");
    let setup = setup();
    for pool in [0, 1] {
        let mut victim = setup.keyway.client(pool);
        let mut other = setup.keyway.client(pool);
        let mut operator = setup.keyway.client(pool);
        let id = victim.words("CLIENT ID").integer();
        assert_eq!(other.words("PING"), Value::simple("PONG"));
        assert_eq!(operator.words(&format!("CLIENT KILL ID {id}")), Value::Integer(1));
        victim.expect_closed();
        assert_eq!(other.words("PING"), Value::simple("PONG"));
        assert_eq!(operator.words(&format!("CLIENT KILL ID {id}")), Value::Integer(0));
        let mut victim = setup.keyway.client(pool);
        assert_eq!(victim.words("PING"), Value::simple("PONG"));
        let by_address = format!("CLIENT KILL ADDR {}", victim.local_address());
        assert_eq!(operator.words(&by_address), Value::Integer(1));
        victim.expect_closed();
        assert!(operator.words("CLIENT KILL 127.0.0.1:1").is_error());
    }
}

#[test]
fn nothing_is_served_before_the_password() {
    let _watch = watchdog(Duration::from_secs(30), "auth");
    let setup = setup();
    let mut client = setup.keyway.client(2);
    for line in ["GET a", "SET a 1", "PING", "FLUSHALL", "COMMAND COUNT", "SELECT 0", "CLIENT ID"] {
        let text = client.words(line).error_text();
        assert!(text.starts_with("NOAUTH "), "{line}: {text}");
    }
    assert!(client.words("AUTH wrong").error_text().starts_with("WRONGPASS "));
    assert!(client.words("AUTH nobody sesame").error_text().starts_with("WRONGPASS "));
    assert!(client.words("GET a").error_text().starts_with("NOAUTH "), "still not signed in");
    assert_eq!(client.words("AUTH sesame"), Value::simple("OK"));
    assert_eq!(client.words("SET a 1"), Value::simple("OK"));
    assert!(client.words("AUTH wrong").error_text().starts_with("WRONGPASS "));
    assert_eq!(client.words("GET a"), Value::bulk("1"), "a failed AUTH does not sign out");
    let mut named = setup.keyway.client(2);
    assert_eq!(named.words("AUTH default sesame"), Value::simple("OK"));
    assert_eq!(named.words("GET a"), Value::bulk("1"));
    let mut greeted = setup.keyway.client(2);
    assert!(!greeted.words("HELLO 2 AUTH default sesame").is_error());
    assert_eq!(greeted.words("GET a"), Value::bulk("1"));
    // All requests of one write are judged in order.
    let mut quick = setup.keyway.client(2);
    let replies = quick.pipeline(&["GET a", "AUTH sesame", "GET a"]);
    assert!(replies[0].error_text().starts_with("NOAUTH "));
    assert_eq!(replies[1..], [Value::simple("OK"), Value::bulk("1")]);
}

/// Before the password a client may not take memory: these are Redis's own bounds for a client that
/// has not logged in.
#[test]
fn a_client_not_signed_in_may_not_send_large_requests() {
    let _watch = watchdog(Duration::from_secs(30), "auth bounds");
    let setup = setup();
    for bytes in [&b"*1000000\r\n"[..], b"*2\r\n$3\r\nGET\r\n$100000000\r\n"] {
        let mut client = setup.keyway.client(2);
        client.send(bytes);
        let text = client.reply().error_text();
        assert!(text.starts_with("ERR Protocol error: unauthenticated"), "{text}");
        client.expect_closed();
    }
}

#[test]
fn replies_switched_off_stay_off_for_this_connection_alone() {
    let _watch = watchdog(Duration::from_secs(30), "client reply");
    let setup = setup();
    for pool in [0, 1] {
        let mut silent = setup.keyway.client(pool);
        let mut other = setup.keyway.client(pool);
        let mut bytes = encode(&["CLIENT", "REPLY", "OFF"]);
        for nth in 0..100 {
            bytes.extend(encode(&["SET", &format!("silent:{pool}:{nth}"), "1"]));
            bytes.extend(encode(&["NOSUCH"]));
            bytes.extend(encode(&[
                "MGET",
                &format!("silent:{pool}:{nth}"),
                "silent:x",
                "silent:y",
            ]));
        }
        bytes.extend(encode(&["CLIENT", "REPLY", "ON"]));
        bytes.extend(encode(&["ECHO", "on again"]));
        silent.send(&bytes);
        assert_eq!(silent.reply(), Value::simple("OK"));
        assert_eq!(silent.reply(), Value::bulk("on again"));
        for nth in 0..100 {
            let reply = other.command(&["GET", &format!("silent:{pool}:{nth}")]);
            assert_eq!(reply, Value::bulk("1"), "executed all the same");
        }
    }
}

/// With room for ten clients the eleventh is refused with a reason and the ten stay.
#[test]
fn a_client_beyond_the_limit_is_refused_with_a_reason() {
    let _watch = watchdog(Duration::from_secs(30), "client limit");
    let config = KeywayConfig::new(vec![Pool::store("local")])
        .with_server("workers", "1")
        .with_tables("[limits]\nclients_max = 10");
    let keyway = Keyway::start(KEYWAY, config);
    let mut inside: Vec<Client> = Vec::new();
    // The connection that waited for readiness may still be counted.
    wait_until("ten are inside", Duration::from_secs(10), || {
        let mut client = keyway.client(0);
        if client.try_send(b"PING\r\n").is_ok() && client.try_reply() == Ok(Value::simple("PONG")) {
            inside.push(client);
        }
        inside.len() == 10
    });
    let mut refused = keyway.client(0);
    let text = refused.reply().error_text();
    assert!(text.contains("max number of clients"), "{text}");
    refused.expect_closed();
    for client in &mut inside {
        assert_eq!(client.words("PING"), Value::simple("PONG"));
    }
    inside.pop();
    wait_until("there is room again", Duration::from_secs(10), || {
        let mut client = keyway.client(0);
        client.try_send(b"PING\r\n").is_ok() && client.try_reply() == Ok(Value::simple("PONG"))
    });
}
