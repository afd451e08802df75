//! Stock clients, as people use them: redis-cli and redis-py.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use keyway_testkit::{
    Keyway, KeywayConfig, Pool, RedisServer, Shared, Value, encode, python, run_tool, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const PASSWORD: &str = "open sesame";

struct Setup {
    keyway: Keyway,
    _servers: Vec<RedisServer>,
}

static SETUP: Shared<Setup> = Shared::new();

/// Starts a store, a pool, and a pool that asks for a password.
fn setup() -> std::sync::Arc<Setup> {
    SETUP.get(|| {
        let servers = RedisServer::start_many(3);
        let pools = vec![
            Pool::store("local"),
            Pool::over("main", &servers),
            Pool::over("secret", &servers).with("client_password", &format!("{PASSWORD:?}")),
        ];
        Setup { keyway: Keyway::start(KEYWAY, KeywayConfig::new(pools)), _servers: servers }
    })
}

fn redis_cli(address: SocketAddr, arguments: &[&str], input: &[u8]) -> String {
    let port = address.port().to_string();
    let all: Vec<&str> =
        ["-h", "127.0.0.1", "-p", &port].iter().chain(arguments).copied().collect();
    run_tool("redis-cli", &all, input, Duration::from_secs(30))
        .expect_success(&format!("redis-cli {arguments:?}"))
        .text
}

#[test]
fn redis_cli_asks_and_is_answered() {
    let _watch = watchdog(Duration::from_secs(60), "redis-cli");
    let setup = setup();
    for pool in [0, 1] {
        let at = setup.keyway.address(pool);
        assert_eq!(redis_cli(at, &["PING"], b""), "PONG\n");
        assert_eq!(redis_cli(at, &["SET", "cli:a", "some text"], b""), "OK\n");
        assert_eq!(redis_cli(at, &["GET", "cli:a"], b""), "some text\n");
        assert_eq!(redis_cli(at, &["-x", "SET", "cli:b"], b"from a file"), "OK\n");
        assert_eq!(redis_cli(at, &["STRLEN", "cli:b"], b""), "11\n");
        assert_eq!(redis_cli(at, &["-r", "5", "INCR", "cli:n"], b""), "1\n2\n3\n4\n5\n");
        assert_eq!(redis_cli(at, &["MGET", "cli:a", "cli:none", "cli:n"], b""), "some text\n\n5\n");
        assert!(redis_cli(at, &["NOSUCH"], b"").starts_with("ERR unknown command"));
        assert!(redis_cli(at, &["INFO"], b"").contains("redis_version:"));
        // This is like an interactive session: commands come on standard input.
        let session = redis_cli(
            at,
            &[],
            b"SET cli:c 1\nINCR cli:c\nNOSUCH\nGET cli:c\nDEL cli:a cli:b cli:c cli:n\n",
        );
        let lines: Vec<&str> = session.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!((lines[0], lines[1], lines[3], lines[4]), ("OK", "2", "2", "4"), "{session}");
    }
}

#[test]
fn redis_cli_pipe_loads_in_bulk_without_an_error() {
    const COUNT: usize = 20_000;
    let _watch = watchdog(Duration::from_secs(60), "redis-cli --pipe");
    let setup = setup();
    for pool in [0, 1] {
        let input: Vec<u8> = (0..COUNT)
            .flat_map(|nth| encode(&["SET", &format!("pipe:{nth}"), &format!("value {nth}")]))
            .collect();
        let output = redis_cli(setup.keyway.address(pool), &["--pipe"], &input);
        assert!(output.contains(&format!("errors: 0, replies: {COUNT}")), "{output}");
        let mut client = setup.keyway.client(pool);
        for nth in (0..COUNT).step_by(997) {
            let reply = client.command(&["GET", &format!("pipe:{nth}")]);
            assert_eq!(reply, Value::bulk(format!("value {nth}")));
        }
    }
}

#[test]
fn redis_cli_scans_the_store_and_signs_in_to_a_pool() {
    let _watch = watchdog(Duration::from_secs(60), "redis-cli --scan and -a");
    let setup = setup();
    let store = setup.keyway.address(0);
    for nth in 0..100 {
        redis_cli_set(&setup.keyway, &format!("scan:{nth}"));
    }
    let found = redis_cli(store, &["--scan", "--pattern", "scan:*"], b"");
    assert_eq!(found.lines().count(), 100, "{found}");
    let secret = setup.keyway.address(2);
    assert!(redis_cli(secret, &["GET", "a"], b"").starts_with("NOAUTH"));
    let signed_in = redis_cli(secret, &["--no-auth-warning", "-a", PASSWORD, "SET", "a", "1"], b"");
    assert_eq!(signed_in, "OK\n");
    let refused = redis_cli(secret, &["--no-auth-warning", "-a", "wrong", "GET", "a"], b"");
    assert!(refused.contains("WRONGPASS") && refused.contains("NOAUTH"), "{refused}");
}

fn redis_cli_set(keyway: &Keyway, key: &str) {
    assert_eq!(keyway.client(0).command(&["SET", key, "1"]), Value::simple("OK"));
}

fn redis_py(pool: usize, kind: &str) {
    ["2", "3"].into_iter().for_each(|protocol| redis_py_in(pool, kind, protocol));
}

fn redis_py_in(pool: usize, kind: &str, protocol: &str) {
    let setup = setup();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script = root.join("tests/python/stock_client.py").to_string_lossy().into_owned();
    let port = setup.keyway.address(pool).port().to_string();
    let arguments = [script.as_str(), &port, kind, PASSWORD, protocol];
    let python = python();
    let output = run_tool(&python, &arguments, b"", Duration::from_secs(60));
    let text = output.expect_success("the redis-py suite").text;
    assert!(text.contains("\nOK"), "{text}");
}

#[test]
fn redis_py_works_on_the_store() {
    let _watch = watchdog(Duration::from_secs(120), "redis-py on the store");
    redis_py(0, "store");
}

#[test]
fn redis_py_works_on_a_sharded_pool() {
    let _watch = watchdog(Duration::from_secs(120), "redis-py on a pool");
    redis_py(1, "sharded");
}

#[test]
fn redis_py_signs_in() {
    let _watch = watchdog(Duration::from_secs(120), "redis-py with a password");
    redis_py(2, "password");
}
