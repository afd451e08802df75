//! The effect of a sharded pool's settings, as servers see it.

use std::time::Duration;

use keyway_testkit::{
    Action, Client, Keyway, KeywayConfig, Pool, RedisServer, ScriptedBackend, TempDir, Value,
    encode, handshake_reply, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(10);

fn start(pool: Pool) -> Keyway {
    let config = KeywayConfig::new(vec![pool]).with_server("workers", "1");
    Keyway::start(KEYWAY, config)
}

/// Returns the number of clients connected to the server, without this one.
fn connections(server: &RedisServer) -> usize {
    server.client().words("CLIENT LIST").text().lines().count() - 1
}

#[test]
fn the_servers_password_is_sent_and_a_wrong_one_is_told() {
    let _watch = watchdog(Duration::from_secs(30), "password of the servers");
    let servers = [RedisServer::start_with(&["--requirepass", "sesame"])];
    let keyway = start(Pool::over("main", &servers).with("password", "\"sesame\""));
    let mut client = keyway.client(0);
    assert_eq!(client.words("SET a 1"), Value::simple("OK"));
    assert_eq!(client.words("GET a"), Value::bulk("1"));
    let keyway = start(Pool::over("main", &servers).with("password", "\"aladdin\""));
    let mut client = keyway.client(0);
    // Clients that are refused between two attempts to connect get the same error.
    for _ in 0..20 {
        for line in ["GET a", "MGET a b", "BLPOP a 0", "SET a 1"] {
            let text = client.words(line).error_text();
            assert!(text.contains("refused the password"), "{text}");
            assert!(!text.contains("aladdin"), "a password in an error: {text}");
        }
    }
    assert!(client.words("GET a").error_text().contains("WRONGPASS"), "in the server's words");
    let log = keyway.process().log();
    let changed = log.lines().find(|line| line.contains("health changed"));
    assert!(changed.is_some_and(|line| line.contains("reason=\"handshake\"")), "{log}");
    assert_eq!(log.matches("connection lost").count(), 1, "the first of a row only:\n{log}");
    wait_until("the log says why, in the server's words", SOON, || {
        let log = keyway.process().log();
        assert!(!log.contains("aladdin"), "a password in the log");
        log.contains("WRONGPASS invalid username-password pair")
    });
}

/// Some servers repeat what they do not understand.
#[test]
fn a_password_that_the_server_repeats_is_not_logged() {
    let _watch = watchdog(Duration::from_secs(30), "a repeated password");
    let backend = ScriptedBackend::start(|arguments| match arguments {
        [name, password] if name == b"AUTH" => {
            let password = String::from_utf8_lossy(password);
            Action::Reply(format!("-ERR unknown command 'AUTH' '{password}'\r\n").into_bytes())
        }
        _ => Action::echo_key(arguments),
    });
    let pool = Pool::sharded("main", &[format!("{}:1", backend.address())]);
    let keyway = start(pool.with("password", "\"aladdin\""));
    assert!(keyway.client(0).words("GET a").is_error());
    wait_until("the log says what it may", SOON, || {
        let log = keyway.process().log();
        assert!(!log.contains("aladdin"), "a password in the log");
        log.contains("it repeats the password")
    });
}

#[test]
fn a_server_busy_when_connected_to_is_waited_for() {
    let _watch = watchdog(Duration::from_secs(30), "-BUSY to the handshake");
    let server = RedisServer::start_with(&["--busy-reply-threshold", "30"]);
    let mut script = server.client();
    script.send(&encode(&["EVAL", "while true do end", "0"]));
    wait_until("the script runs", SOON, || {
        server.client().words("PING").error_text().starts_with("BUSY")
    });
    let pool = Pool::over("main", std::slice::from_ref(&server)).with("database", "1");
    let keyway = start(pool);
    let mut client = keyway.client(0);
    let text = client.words("SET a 1").error_text();
    assert!(text.contains("not ready yet") && text.contains("was not sent"), "{text}");
    wait_until("the log says why", SOON, || {
        let log = keyway.process().log();
        assert!(!log.contains("refused"), "{log}");
        log.contains("BUSY Redis is busy running a script")
    });
    wait_until("the script is killed", SOON, || {
        server.client().words("SCRIPT KILL") == Value::simple("OK")
    });
    wait_until("it is connected to again", SOON, || client.words("SET a 1") == Value::simple("OK"));
}

#[test]
fn passwords_come_from_files_too() {
    let _watch = watchdog(Duration::from_secs(30), "password file");
    let directory = TempDir::new();
    let ours = directory.write("ours", "open\n");
    let theirs = directory.write("theirs", "sesame");
    let servers = [RedisServer::start_with(&["--requirepass", "sesame"])];
    let keyway = start(
        Pool::over("main", &servers)
            .with("password_file", &format!("{theirs:?}"))
            .with_listener("password_file", &format!("{ours:?}")),
    );
    let mut client = keyway.client(0);
    assert!(client.words("GET a").error_text().starts_with("NOAUTH"));
    assert_eq!(client.words("AUTH open"), Value::simple("OK"));
    assert_eq!(client.words("SET a 1"), Value::simple("OK"));
}

#[test]
fn the_servers_database_is_selected_before_anything_else() {
    let _watch = watchdog(Duration::from_secs(30), "database of the servers");
    let mut servers = [RedisServer::start()];
    let keyway = start(Pool::over("main", &servers).with("database", "3"));
    let mut client = keyway.client(0);
    assert_eq!(client.words("SET a 1"), Value::simple("OK"));
    let replies = servers[0].client().pipeline(&["GET a", "SELECT 3", "GET a"]);
    assert_eq!(replies, [Value::Nil, Value::simple("OK"), Value::bulk("1")]);
    assert!(client.words("SELECT 1").is_error(), "one database by default");
    // The same holds after a reconnect.
    servers[0].restart();
    wait_until("served again", SOON, || client.words("SET b 2") == Value::simple("OK"));
    assert_eq!(servers[0].client().pipeline(&["SELECT 3", "GET b"])[1], Value::bulk("2"));
}

#[test]
fn clients_may_select_as_many_databases_as_the_pool_allows() {
    let _watch = watchdog(Duration::from_secs(60), "databases of a pool");
    let servers = RedisServer::start_many(2);
    let keyway = start(Pool::over("main", &servers).with("databases", "4").with("database", "2"));
    let mut one = keyway.client(0);
    let mut two = keyway.client(0);
    assert_eq!(one.words("SELECT 3"), Value::simple("OK"));
    assert!(one.words("SELECT 4").is_error());
    for nth in 0..50 {
        let key = format!("key:{nth}");
        assert_eq!(one.command(&["SET", &key, "three"]), Value::simple("OK"));
        assert_eq!(two.command(&["SET", &key, "zero"]), Value::simple("OK"));
        assert_eq!(one.command(&["GET", &key]), Value::bulk("three"));
        assert_eq!(two.command(&["GET", &key]), Value::bulk("zero"));
    }
    let keys_of = |database: usize| -> i64 {
        let select = format!("SELECT {database}");
        servers.iter().map(|one| one.client().pipeline(&[&select, "DBSIZE"])[1].integer()).sum()
    };
    assert_eq!((keys_of(2), keys_of(5)), (50, 50));
    assert_eq!(two.command(&["DEL", "key:1"]), Value::Integer(1));
    assert_eq!(one.words("DBSIZE"), Value::Integer(50), "of the database selected");
    assert_eq!(two.words("DBSIZE"), Value::Integer(49));
}

/// The number in the command is the server's: it would reach databases that clients of the pool may
/// not use, or the wrong one of those they may.
#[test]
fn copying_to_another_database_is_refused_with_a_reason() {
    let _watch = watchdog(Duration::from_secs(30), "COPY with DB");
    let server = RedisServer::start();
    let pool = Pool::over("main", std::slice::from_ref(&server));
    let keyway = start(pool.with("databases", "4").with("database", "2"));
    let mut client = keyway.client(0);
    assert_eq!(client.words("SET db 1"), Value::simple("OK"));
    for line in ["COPY db db DB 1", "COPY db other DB 0", "COPY db other replace db 3"] {
        let text = client.words(line).error_text();
        assert!(text.starts_with("ERR 'copy' is refused: the DB option"), "{text}");
    }
    assert_eq!(client.words("COPY db other REPLACE"), Value::Integer(1));
    let info = server.client().words("INFO keyspace").text();
    assert!(info.contains("db2:keys=2") && info.matches("keys=").count() == 1, "{info}");
}

#[test]
fn dbsize_is_the_sum_over_all_servers_or_names_the_one_that_is_missing() {
    let _watch = watchdog(Duration::from_secs(60), "DBSIZE of a pool");
    let mut servers = RedisServer::start_many(3);
    let keyway = start(Pool::over("main", &servers));
    let mut client = keyway.client(0);
    for nth in 0..60 {
        assert_eq!(client.words(&format!("SET key:{nth} 1")), Value::simple("OK"));
    }
    let replies = client.pipeline(&["SET last 1", "DBSIZE", "GET last"]);
    assert_eq!(replies, [Value::simple("OK"), Value::Integer(61), Value::bulk("1")]);
    assert!(client.words("DBSIZE now").is_error(), "it takes no argument");
    let gone = servers.remove(1);
    let address = gone.address().to_string();
    drop(gone);
    let Value::Error(text) = client.words("DBSIZE") else { panic!("a sum that lacks a server") };
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains(&address), "{text}");
    assert!(text.contains("the other servers") && !text.contains("keys"), "{text}");
}

#[test]
fn connections_are_as_many_as_asked_and_made_when_asked() {
    let _watch = watchdog(Duration::from_secs(60), "connections");
    let servers = RedisServer::start_many(2);
    let keyway = start(Pool::over("main", &servers));
    assert_eq!(connections(&servers[0]) + connections(&servers[1]), 0, "on the first request");
    let mut clients: Vec<_> = (0..30).map(|_| keyway.client(0)).collect();
    for (nth, client) in clients.iter_mut().enumerate() {
        for one in 0..20 {
            let set = client.command(&["SET", &format!("key:{nth}:{one}"), "1"]);
            assert_eq!(set, Value::simple("OK"));
        }
    }
    assert_eq!((connections(&servers[0]), connections(&servers[1])), (1, 1));
    drop(keyway);
    let pool = Pool::over("main", &servers).with("preconnect", "true");
    let _keyway = start(pool.with("server_connections", "3"));
    wait_until("three to each, at start", SOON, || {
        servers.iter().all(|server| connections(server) == 3)
    });
}

/// A client beyond the limit is told so and closed. Connected clients, and other pools, do not
/// notice.
#[test]
fn a_pool_takes_as_many_clients_as_it_may() {
    let _watch = watchdog(Duration::from_secs(60), "clients of a pool");
    let servers = [RedisServer::start()];
    let pools = vec![Pool::over("main", &servers).with("clients_max", "3"), Pool::store("local")];
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(pools).with_server("workers", "1"));
    let connected = "keyway_client_connections";
    // The harness checked whether Keyway answers; its client must be gone first.
    wait_until("nobody is connected", SOON, || {
        keyway.metrics().sum(connected, &["pool=\"main\""]) == 0.0
    });
    let mut inside: Vec<Client> = (0..3).map(|_| keyway.client(0)).collect();
    for client in &mut inside {
        assert_eq!(client.words("SET a 1"), Value::simple("OK"));
    }
    for _ in 0..5 {
        let mut outside = keyway.client(0);
        let text = outside.reply().error_text();
        assert!(text.contains("max number of clients"), "{text}");
        outside.expect_closed();
    }
    let mut others: Vec<Client> = (0..10).map(|_| keyway.client(1)).collect();
    for client in others.iter_mut().chain(&mut inside) {
        assert_eq!(client.words("PING"), Value::simple("PONG"));
    }
    drop(inside.pop());
    wait_until("there is room for another", SOON, || {
        let mut next = keyway.client(0);
        next.try_send(b"GET a\r\n").is_ok() && next.try_reply() == Ok(Value::bulk("1"))
    });
}

/// With several connections the requests of a client for a key stay in order: it reads what it
/// wrote.
#[test]
fn a_client_reads_its_own_writes_over_several_connections() {
    let _watch = watchdog(Duration::from_secs(60), "own writes");
    let servers = [RedisServer::start()];
    let keyway = start(Pool::over("main", &servers).with("server_connections", "4"));
    let mut client = keyway.client(0);
    for round in 0..200 {
        let lines: Vec<String> = (0..20)
            .flat_map(|nth| [format!("SET key:{nth} {round}"), format!("GET key:{nth}")])
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        for pair in client.pipeline(&lines).chunks(2) {
            assert_eq!(pair[1], Value::bulk(round.to_string()));
        }
    }
}

/// The listener and the servers use unix sockets.
#[test]
fn unix_sockets_work_on_both_sides() {
    use std::io::{Read, Write};
    use std::os::unix::fs::MetadataExt;
    let _watch = watchdog(Duration::from_secs(30), "unix sockets");
    let directory = TempDir::new();
    let socket = directory.path().join("redis.sock").to_string_lossy().into_owned();
    let server = RedisServer::start_with(&["--unixsocket", &socket]);
    let ours = directory.path().join("keyway.sock");
    let own = std::fs::metadata(directory.path()).expect("it is there");
    // A user who is not root may give the socket only to itself.
    let (owner, group) = if own.uid() == 0 { (65_533, 65_534) } else { (own.uid(), own.gid()) };
    let listener = format!(
        "[[listener]]\nbind = \"unix://{}\"\nmode = \"0620\"\nowner = {owner}\ngroup = {group}\n\
         pool = \"main\"",
        ours.display()
    );
    let pool = Pool::sharded("main", &[format!("unix://{socket}:1 only")]);
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]).with_tables(&listener));
    assert_eq!(keyway.client(0).words("SET a 1"), Value::simple("OK"));
    assert_eq!(server.client().words("GET a"), Value::bulk("1"));
    let shown = std::fs::metadata(&ours).expect("it is there");
    assert_eq!((shown.uid(), shown.gid(), shown.mode() & 0o777), (owner, group, 0o620));
    let mut stream = std::os::unix::net::UnixStream::connect(&ours).expect("the socket is there");
    stream.write_all(b"GET a\r\n").expect("it takes a request");
    let mut reply = [0_u8; 7];
    stream.read_exact(&mut reply).expect("it answers");
    assert_eq!(&reply, b"$1\r\n1\r\n");
    drop(stream);
    let (status, log) = keyway.stop(SOON);
    assert!(status.success(), "{log}");
    assert!(!ours.exists(), "the socket is removed at the end");
}

/// A server that is silent has a queue of 20. Further requests wait with their client, and are sent
/// once half of the queue was answered.
#[test]
fn a_pools_own_queue_bounds_what_waits_for_a_server() {
    let _watch = watchdog(Duration::from_secs(60), "queue of a pool");
    const REQUESTS: usize = 100;
    let (closed, gate) = std::sync::mpsc::channel::<()>();
    let backend = ScriptedBackend::start(move |arguments| match handshake_reply(arguments) {
        Some(bytes) => Action::Reply(bytes),
        None => {
            // This waits until the other end is dropped.
            let _ = gate.recv();
            Action::echo_key(arguments)
        }
    });
    let pool = Pool::sharded("main", &[format!("{}:1", backend.address())])
        .with("queue_len_max", "20")
        .with("timeout", "\"50s\"");
    let keyway = start(pool);
    let mut client = keyway.client(0);
    for nth in 0..REQUESTS {
        client.send(&encode(&["GET", &nth.to_string()]));
    }
    let of = |name: &str| keyway.metrics().sum(name, &["pool=\"main\""]);
    wait_until("the client is paused", SOON, || of("keyway_client_pauses_total") == 1.0);
    wait_until("the queue is full", SOON, || of("keyway_backend_in_flight_requests") == 20.0);
    assert_eq!(of("keyway_backend_requests_total"), 20.0);
    drop(closed);
    for nth in 0..REQUESTS {
        assert_eq!(client.reply(), Value::bulk(nth.to_string()));
    }
}
