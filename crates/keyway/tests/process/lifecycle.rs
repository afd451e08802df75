//! The start, the output and the end of the process.

use std::fs::Permissions;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use keyway_testkit::{
    Action, Client, Flood, Keyway, KeywayConfig, Pool, Process, RedisServer, ReplyFault,
    ScriptedBackend, Signal, TempDir, Value, encode, free_address, handshake_reply, http_get,
    keyway_binary, run_keyway, skipped, wait_for, wait_until, watchdog,
};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const SOON: Duration = Duration::from_secs(10);

#[test]
fn without_a_file_the_store_listens_on_6380_and_says_so() {
    let _watch = watchdog(Duration::from_secs(30), "start without a file");
    let directory = TempDir::new();
    let mut command = Command::new(keyway_binary(KEYWAY));
    command.arg("serve");
    // The default port of the product and its default admin port are fixed: a developer's own
    // instance may have them.
    let mut address: SocketAddr = "127.0.0.1:6380".parse().expect("an address");
    if [6380, 9380].iter().any(|port| TcpListener::bind(("127.0.0.1", *port)).is_err()) {
        skipped("port 6380 as the default: 127.0.0.1:6380 or :9380 is taken; tested with --bind");
        address = free_address();
        command.args(["--bind", &address.to_string()]);
    }
    let mut process = Process::spawn("keyway", &mut command, directory.path());
    process.wait_ready(SOON, || {
        Client::try_connect(address).is_ok_and(|mut client| {
            client.try_send(b"PING\r\n").is_ok() && client.try_reply() == Ok(Value::simple("PONG"))
        })
    });
    // Another instance that is about to end could answer at the fixed port.
    wait_until("the log tells what to type", SOON, || process.log().contains("try: redis-cli"));
    let mut client = Client::connect(address);
    assert_eq!(client.words("SET a 1"), Value::simple("OK"));
    assert_eq!(client.words("GET a"), Value::bulk("1"));
    let log = process.log();
    let next = format!("redis-cli -p {}", address.port());
    for wanted in [address.to_string().as_str(), "worker", "memory", next.as_str()] {
        assert!(log.contains(wanted), "{wanted:?} is missing in:\n{log}");
    }
}

#[test]
fn help_names_every_subcommand() {
    let text = run_keyway(KEYWAY, &["--help"]).expect_success("--help").stdout;
    for wanted in ["serve", "check", "import", "keyway.toml"] {
        assert!(text.contains(wanted), "{wanted:?} is missing in:\n{text}");
    }
    for subcommand in ["serve", "check", "import"] {
        let text = run_keyway(KEYWAY, &[subcommand, "--help"]).expect_success(subcommand).stdout;
        assert!(text.contains(subcommand) && text.contains("FILE"), "{text}");
    }
    let version = run_keyway(KEYWAY, &["--version"]).expect_success("--version").stdout;
    assert!(version.contains("keyway"), "{version}");
    let unknown = run_keyway(KEYWAY, &["servee"]);
    assert!(!unknown.status.success());
    assert!(unknown.text.contains("servee"), "{}", unknown.text);
}

#[test]
fn check_prints_the_resolved_file_and_the_memory_it_implies() {
    let directory = TempDir::new();
    let text = KeywayConfig::new(vec![Pool::store("local")]).toml();
    let file = directory.write("good.toml", text);
    let output = run_keyway(KEYWAY, &["check", &file.to_string_lossy()]);
    let text = output.expect_success("check of a good file").stdout;
    assert!(text.contains("local"), "{text}");
    assert!(text.to_lowercase().contains("memory"), "{text}");
}

/// Four mistakes give four messages with file and line, each with advice.
#[test]
fn check_lists_every_error_with_file_line_and_a_hint() {
    let directory = TempDir::new();
    let text = "\
[[listener]]
bind = \"tcp://127.0.0.1:7000\"
protocol = \"redis\"
pool = \"mian\"

[pool.main]
kind = \"sharded\"
hsah = \"crc32a\"
distribution = \"ketamaa\"
servers = [\"127.0.0.1:6379:1\"]
timeout = \"400parsecs\"
";
    let file = directory.write("bad.toml", text);
    let path = file.to_string_lossy().into_owned();
    for arguments in [["check", path.as_str()], ["serve", path.as_str()]] {
        let output = run_keyway(KEYWAY, &arguments);
        assert!(!output.status.success(), "{}", output.text);
        for (line, wrong, right) in [
            (4, "mian", "main"),
            (8, "hsah", "hash"),
            (9, "ketamaa", "ketama"),
            (11, "400parsecs", "ms"),
        ] {
            let place = format!("bad.toml:{line}");
            assert!(output.text.contains(&place), "{place} is missing in:\n{}", output.text);
            assert!(output.text.contains(wrong), "{wrong} is missing in:\n{}", output.text);
            assert!(output.text.contains(right), "{right} is missing in:\n{}", output.text);
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let directory = TempDir::new();
    let binary = directory.write("binary.toml", [0xFF_u8, 0xFE, 0, 1, 2]);
    let missing = directory.path().join("missing.toml");
    let dangling = directory.path().join("dangling.toml");
    std::os::unix::fs::symlink(&missing, &dangling).expect("a link");
    let forbidden = directory.write("forbidden.toml", KeywayConfig::new(Vec::new()).toml());
    std::fs::set_permissions(&forbidden, Permissions::from_mode(0o0)).expect("our file");
    // The root user can read any file.
    let is_forbidden = std::fs::read(&forbidden).is_err();
    if !is_forbidden {
        skipped("a configuration file without permission: the tests run as root");
    }
    let paths = [binary.as_path(), missing.as_path(), dangling.as_path(), directory.path()];
    for path in paths.into_iter().chain(is_forbidden.then_some(forbidden.as_path())) {
        let path = path.to_string_lossy().into_owned();
        for subcommand in ["serve", "check"] {
            let output = run_keyway(KEYWAY, &[subcommand, &path]);
            assert!(!output.status.success());
            assert!(output.text.contains(&path), "{path} is missing in:\n{}", output.text);
            assert!(!output.text.contains("panicked"), "{}", output.text);
        }
    }
}

/// Another program or a second Keyway has the port. Both must end the start, although workers share
/// the port among themselves.
#[test]
fn a_port_in_use_ends_the_start_and_is_named() {
    let _watch = watchdog(Duration::from_secs(60), "port in use");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let directory = TempDir::new();
    let text = format!(
        "[server]\nadmin = \"off\"\n\n[[listener]]\nbind = \"tcp://{address}\"\nprotocol = \"redis\"\npool = \"local\"\n\n\
         [pool.local]\nkind = \"store\"\n"
    );
    let file = directory.write("taken.toml", text);
    let output = run_keyway(KEYWAY, &["serve", &file.to_string_lossy()]);
    assert!(!output.status.success());
    assert!(output.text.contains(&address), "{address} is missing in:\n{}", output.text);
    assert!(output.text.contains("in use"), "{}", output.text);

    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("local")]));
    let file = keyway.directory().join("keyway.toml");
    let output = run_keyway(KEYWAY, &["serve", &file.to_string_lossy()]);
    assert!(!output.status.success(), "a second instance took the port:\n{}", output.text);
    assert_eq!(keyway.client(0).words("PING"), Value::simple("PONG"));
}

#[test]
fn sigterm_answers_what_is_in_flight_and_ends_well() {
    let _watch = watchdog(Duration::from_secs(60), "drain");
    let gate = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let opened = std::sync::Arc::clone(&gate);
    // The backend holds the first request back until the gate opens, so requests are in flight for
    // as long as the test wants.
    let backend = ScriptedBackend::start(move |arguments| {
        if handshake_reply(arguments).is_none() {
            wait_until("the gate opens", Duration::from_secs(20), || {
                opened.load(std::sync::atomic::Ordering::SeqCst)
            });
        }
        Action::echo_key(arguments)
    });
    let pool =
        Pool::sharded("main", &[format!("{}:1", backend.address())]).with("timeout", "\"20s\"");
    let mut keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let address = keyway.address(0);
    let mut clients: Vec<Client> = (0..10).map(|_| keyway.client(0)).collect();
    let mut idle = keyway.client(0);
    assert_eq!(idle.words("PING"), Value::simple("PONG"));
    for (nth, client) in clients.iter_mut().enumerate() {
        let bytes: Vec<u8> =
            (0..20).flat_map(|one| encode(&["GET", &format!("{nth}:{one}")])).collect();
        client.send(&bytes);
    }
    wait_until("the first request is at the backend", SOON, || backend.requests() > 0);
    keyway.process().terminate();
    wait_until("nobody is accepted any more", SOON, || Client::try_connect(address).is_err());
    gate.store(true, std::sync::atomic::Ordering::SeqCst);
    for (nth, client) in clients.iter_mut().enumerate() {
        for one in 0..20 {
            assert_eq!(client.reply(), Value::bulk(format!("{nth}:{one}")));
        }
    }
    let status = keyway.process_mut().wait_exit(Duration::from_secs(15));
    assert_eq!(status.code(), Some(0), "{}", keyway.process().log());
    idle.expect_closed();
}

/// Starts two pools under clients that never stop sending: a pool of servers, and a store.
fn flooded(server: &RedisServer) -> (Keyway, Vec<Flood>) {
    let main = Pool::over("main", std::slice::from_ref(server)).with("timeout", "\"30s\"");
    let config = KeywayConfig::new(vec![main, Pool::store("local")])
        .with_server("workers", "2")
        .with_server("drain_timeout", "\"30s\"");
    let keyway = Keyway::start(KEYWAY, config);
    let floods: Vec<Flood> =
        (0..2).map(|pool| Flood::start(keyway.address(pool), "flood", 5)).collect();
    floods.iter().for_each(|flood| flood.await_replies(5000));
    (keyway, floods)
}

/// Expects that every reply that was sent has been received, and that a request without a reply was
/// not executed.
fn expect_counted(server: &RedisServer, floods: Vec<Flood>) {
    let mut floods = floods.into_iter();
    let counted = floods.next().expect("that of the proxy").ended();
    let mut behind = server.client();
    for (key, replies) in counted {
        assert_eq!(behind.command(&["GET", &key]), Value::bulk(replies.to_string()), "{key}");
    }
    floods.for_each(|flood| drop(flood.ended()));
}

#[test]
fn no_reply_is_lost_by_sigterm_to_clients_that_go_on_sending() {
    let _watch = watchdog(Duration::from_secs(120), "SIGTERM under floods");
    for _ in 0..3 {
        let server = RedisServer::start();
        let (keyway, floods) = flooded(&server);
        keyway.process().terminate();
        expect_counted(&server, floods);
        let (status, log) = keyway.stop(Duration::from_secs(30));
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(!log.contains("drain_timeout was over"), "{log}");
    }
}

#[test]
fn no_reply_is_lost_by_a_drain_to_clients_that_go_on_sending() {
    let _watch = watchdog(Duration::from_secs(90), "a drain under floods");
    let server = RedisServer::start();
    let (keyway, floods) = flooded(&server);
    let admin = keyway.admin().to_string();
    let ctl = ["ctl", "--admin", &admin, "drain", "--wait"];
    let _ = run_keyway(KEYWAY, &ctl).expect_success("drain");
    expect_counted(&server, floods);
    wait_until("it is drained", SOON, || keyway.process().log().contains("drained: waiting"));
    let (status, log) = keyway.stop(Duration::from_secs(30));
    assert_eq!(status.code(), Some(0), "{log}");
}

/// A client that has connected is served, even if no worker has seen it yet.
#[test]
fn those_in_the_queue_when_sigterm_comes_are_answered() {
    let _watch = watchdog(Duration::from_secs(90), "a queue at SIGTERM");
    let config = KeywayConfig::new(vec![Pool::store("local")]).with_server("workers", "2");
    let mut keyway = Keyway::start(KEYWAY, config);
    for _ in 0..10 {
        // Both workers serve.
        assert_eq!(keyway.client(0).words("PING"), Value::simple("PONG"));
    }
    keyway.process().pause();
    let mut clients: Vec<Client> = (0..400).map(|_| keyway.client(0)).collect();
    for client in &mut clients {
        client.send(&[encode(&["PING"]), encode(&["INCR", "a"])].concat());
    }
    keyway.process().terminate();
    keyway.process().resume();
    let mut seen = Vec::new();
    for client in &mut clients {
        assert_eq!(client.reply(), Value::simple("PONG"));
        seen.push(client.reply().integer());
        client.expect_end();
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(1..=400), "each was counted once");
    assert_eq!(keyway.process_mut().wait_exit(SOON).code(), Some(0));
}

/// A client that is told that this is its last reply receives it, even if it has sent more that is
/// not read.
#[test]
fn the_last_reply_comes_though_the_client_sends_on() {
    let _watch = watchdog(Duration::from_secs(90), "the last reply");
    let limits = "[limits]\nclients_max = 2";
    let config = KeywayConfig::new(vec![Pool::store("local")]).with_tables(limits);
    let keyway = Keyway::start(KEYWAY, config);
    let more = encode(&["SET", "a", &"x".repeat(1000)]).repeat(4000);
    for (last, word) in [("*1\r\n$4\r\nQUIT\r\n", "OK"), ("*1\r\n$-7\r\n", "invalid bulk length")] {
        for _ in 0..20 {
            let mut client = wait_for("a place", SOON, || {
                let mut client = keyway.client(0);
                let is_in = client.try_send(&encode(&["ECHO", "in"])).is_ok()
                    && client.try_reply() == Ok(Value::bulk("in"));
                is_in.then_some(client)
            });
            client.send(&[encode(&["PING"]), last.as_bytes().to_vec()].concat());
            client.send(&more);
            assert_eq!(client.reply(), Value::simple("PONG"));
            let told = client.reply();
            assert!(told.text().contains(word), "{told:?}");
            client.expect_end();
        }
    }
    let _places = wait_for("both places", SOON, || {
        let mut clients = [keyway.client(0), keyway.client(0)];
        let is_in = |client: &mut Client| {
            client.send(&encode(&["PING"]));
            client.try_reply() == Ok(Value::simple("PONG"))
        };
        clients.iter_mut().all(is_in).then_some(clients)
    });
    for _ in 0..20 {
        let mut refused = keyway.client(0);
        refused.send(&more);
        assert!(refused.reply().error_text().contains("max number of clients"));
        refused.expect_end();
    }
}

/// A service manager that reloads without need must not end the process.
#[test]
fn sighup_without_a_change_is_answered_in_the_log_and_changes_nothing() {
    let _watch = watchdog(Duration::from_secs(30), "SIGHUP");
    let mut keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![Pool::store("local")]));
    let mut client = keyway.client(0);
    assert_eq!(client.words("SET a 1"), Value::simple("OK"));
    for times in 1..=3 {
        keyway.process().signal(Signal::HUP);
        wait_until("the log says what became of it", SOON, || {
            keyway.process().log().matches("says what it said").count() == times
        });
        assert_eq!(client.words("GET a"), Value::bulk("1"));
    }
    assert!(keyway.process_mut().is_running());
}

#[test]
fn sigterm_ends_in_bounded_time_even_with_a_backend_that_never_answers() {
    let _watch = watchdog(Duration::from_secs(90), "bounded drain");
    let backend = ScriptedBackend::start(|arguments| match handshake_reply(arguments) {
        Some(bytes) => Action::Reply(bytes),
        None => Action::Silence,
    });
    let pool =
        Pool::sharded("main", &[format!("{}:1", backend.address())]).with("timeout", "\"10m\"");
    let config = KeywayConfig::new(vec![pool]).with_server("drain_timeout", "\"1s\"");
    let keyway = Keyway::start(KEYWAY, config);
    let mut clients = [keyway.client(0), keyway.client(0)];
    for client in &mut clients {
        client.send(&[encode(&["GET", "a"]), encode(&["GET", "b"])].concat());
    }
    let mut waits = keyway.client(0);
    waits.send(&[encode(&["BLPOP", "q", "0"]), encode(&["GET", "c"])].concat());
    let _at_rest = keyway.client(0);
    wait_until("the requests are at the backend", SOON, || backend.requests() >= 5);
    let (status, log) = keyway.stop(Duration::from_secs(60));
    assert_eq!(status.code(), Some(0), "{log}");
    let told = log.lines().find(|line| line.contains("WARN") && line.contains("drain_timeout"));
    let line = told.unwrap_or_else(|| panic!("what was cut off is told:\n{log}"));
    assert!(line.contains("clients=3 requests=5"), "{line}");
    // Nobody is left without a reply, nor those behind a request that waits.
    for client in &mut clients {
        for _ in 0..2 {
            assert!(client.reply().error_text().contains("over; the request may have been"));
        }
        assert!(matches!(client.try_reply(), Err(ReplyFault::Closed)));
    }
    assert!(waits.reply().error_text().contains("over; the request may have been executed"));
    assert!(waits.reply().error_text().contains("over; the request was not executed"));
    assert!(matches!(waits.try_reply(), Err(ReplyFault::Closed)));
}

/// A load balancer checks only now and then: until it has, its clients are served.
#[test]
fn clients_are_accepted_for_as_long_as_the_end_is_given_notice_of() {
    let _watch = watchdog(Duration::from_secs(60), "a notice");
    let config =
        KeywayConfig::new(vec![Pool::store("main")]).with_server("drain_notice", "\"10m\"");
    let keyway = Keyway::start(KEYWAY, config);
    let at_first = keyway.client(0).words("PING");
    assert_eq!(at_first, Value::simple("PONG"));
    keyway.process().terminate();
    wait_until("it is not ready", SOON, || http_get(keyway.admin(), "/readyz").status == 503);
    assert_eq!(keyway.client(0).words("PING"), Value::simple("PONG"));
    let (status, log) = keyway.stop(Duration::from_secs(30));
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("clients are accepted for 600s more"), "{log}");
}

/// Returns the command that the log suggests at the start; `None` if it suggests none.
fn suggested(config: KeywayConfig) -> Option<String> {
    let (_, log) = Keyway::start(KEYWAY, config).stop(SOON);
    let line = log.lines().find_map(|line| line.split_once("try: "));
    line.map(|(_, command)| command.trim().to_owned())
}

#[test]
fn the_log_suggests_a_write_for_stores_alone_and_nothing_that_a_login_refuses() {
    let _watch = watchdog(Duration::from_secs(120), "what to type");
    let store = || Pool::store("local");
    let server = free_address().to_string();
    let servers = || Pool::sharded("main", &[format!("{server}:1")]);
    let leading = Pool::of_kind("front", "rate-limited")
        .with("child", "\"main\"")
        .with("requests_per_second", "100000");
    let items = Pool::of_kind("items", "memcached")
        .with("servers", &format!("[\"{server}:1\"]"))
        .spoken_to_in("memcached");
    let user = "[[user]]\nname = \"app\"\npassword = \"secret\"\nrules = \"~* &* +@all\"\n";
    let locked = |pool: Pool| pool.with_listener("password", "\"secret\"");
    for (pools, tables, wanted) in [
        (vec![store()], "", Some(" set greeting hello")),
        (vec![servers()], "", Some(" ping")),
        (vec![leading, servers()], "", Some(" ping")),
        (vec![locked(store())], "", Some(" --askpass ping")),
        (vec![store().with_listener("users", "[\"app\"]")], user, None),
        (vec![store().spoken_to_in("memcached")], "", Some("'set greeting 0 0 5")),
        (vec![items.clone()], "", Some("printf 'version\\r\\nquit\\r\\n' | nc ")),
        (vec![locked(items)], "", None),
    ] {
        let what = format!("{pools:?}");
        let told = suggested(KeywayConfig::new(pools).with_tables(tables));
        let fits = match (&told, wanted) {
            (Some(told), Some(wanted)) => told.contains(wanted),
            (told, wanted) => told.is_none() && wanted.is_none(),
        };
        assert!(fits, "{told:?}, not {wanted:?}, of {what}");
    }
}

#[test]
fn an_order_to_end_is_kept_that_comes_while_notice_is_given() {
    let _watch = watchdog(Duration::from_secs(60), "orders during a notice");
    for by_signal in [false, true] {
        let config =
            KeywayConfig::new(vec![Pool::store("main")]).with_server("drain_notice", "\"2s\"");
        let mut keyway = Keyway::start(KEYWAY, config);
        let admin = format!("http://{}", keyway.admin());
        let ctl =
            |words: &[&str]| run_keyway(KEYWAY, &[&["ctl", "--admin", &admin], words].concat());
        let asked = ctl(&["drain", "--wait"]);
        assert!(asked.status.success(), "{}", asked.text);
        match by_signal {
            true => keyway.process().terminate(),
            false => assert!(ctl(&["drain"]).status.success(), "drain and end"),
        }
        let status = keyway.process_mut().wait_exit(Duration::from_secs(30));
        assert_eq!(status.code(), Some(0));
    }
}

/// A dead backend is one line when it fails and one when it comes back, however many requests meet
/// it.
#[test]
fn each_state_change_is_one_line() {
    let _watch = watchdog(Duration::from_secs(60), "log lines");
    let mut servers = [RedisServer::start()];
    let pool = Pool::over("main", &servers).with("timeout", "\"500ms\"");
    let keyway = Keyway::start(KEYWAY, KeywayConfig::new(vec![pool]));
    let mut client = keyway.client(0);
    assert_eq!(client.words("SET a 1"), Value::simple("OK"));
    wait_until("all of the start is told", SOON, || {
        keyway.process().log().contains("try: redis-cli")
    });
    let quiet = keyway.process().log().lines().count();
    for nth in 0..500 {
        assert_eq!(client.command(&["GET", &format!("k{nth}")]), Value::Nil);
    }
    assert_eq!(keyway.process().log().lines().count(), quiet, "requests are not logged");
    servers[0].kill();
    for _ in 0..300 {
        assert!(client.words("GET a").is_error());
    }
    servers[0].restart();
    wait_until("served again", SOON, || client.words("GET a") == Value::Nil);
    let log = keyway.process().log();
    let about: Vec<&str> =
        log.lines().filter(|line| line.contains(&servers[0].address().to_string())).collect();
    let news = log.lines().count() - quiet;
    assert!((1..=6).contains(&news), "{news} lines for down and up:\n{log}");
    assert!(!about.is_empty(), "the lines name the backend:\n{log}");
}

#[test]
fn log_lines_are_json_when_asked() {
    let _watch = watchdog(Duration::from_secs(60), "json log");
    let config = KeywayConfig::new(vec![Pool::store("local")]).with_argument("--log-format=json");
    let keyway = Keyway::start(KEYWAY, config);
    let (status, log) = keyway.stop(SOON);
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(!log.trim().is_empty());
    for line in log.lines() {
        let value: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("not JSON ({error}): {line}"));
        assert!(value.is_object(), "{line}");
    }
}

#[test]
fn import_reports_what_it_cannot_read() {
    let directory = TempDir::new();
    let bad = directory.write("nutcracker.yml", "alpha:\n  listen: 127.0.0.1\n  hash: sha9\n");
    let output = run_keyway(KEYWAY, &["import", "twemproxy", &bad.to_string_lossy()]);
    assert!(!output.status.success());
    assert!(output.text.contains("sha9"), "{}", output.text);
    let missing = run_keyway(KEYWAY, &["import", "twemproxy", "/nonexistent.yml"]);
    assert_eq!(missing.status.code(), Some(2), "as check has it: {}", missing.text);
    assert!(missing.text.contains("/nonexistent.yml: cannot be read"), "{}", missing.text);
    let check = run_keyway(KEYWAY, &["check", "/nonexistent.yml"]);
    assert_eq!(check.status.code(), Some(2), "{}", check.text);
}

#[test]
fn an_imported_file_passes_check_as_printed() {
    let directory = TempDir::new();
    let yaml = format!(
        "alpha:\n  listen: {}\n  hash: fnv1a_64\n  distribution: ketama\n  auto_eject_hosts: true\n  \
         redis: true\n  redis_auth: secret\n  timeout: 400\n  server_retry_timeout: 2000\n  \
         server_failure_limit: 1\n  preconnect: true\n  server_connections: 1\n  backlog: 1024\n  \
         servers:\n   - 127.0.0.1:6379:1\n   - 127.0.0.1:6380:2 named\n",
        free_address()
    );
    let file = directory.write("nutcracker.yml", yaml);
    let output = run_keyway(KEYWAY, &["import", "twemproxy", &file.to_string_lossy()]);
    let toml = directory.write("keyway.toml", output.expect_success("import").stdout);
    let checked = run_keyway(KEYWAY, &["check", &toml.to_string_lossy()]);
    assert!(checked.status.success(), "{}", checked.text);
}

#[test]
fn an_admin_address_in_use_is_refused_with_what_to_set() {
    let _watch = watchdog(Duration::from_secs(30), "admin address in use");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let admin = taken.local_addr().expect("it has an address");
    let directory = TempDir::new();
    let text = format!(
        "[server]\nadmin = \"tcp://{admin}\"\n[[listener]]\nbind = \"tcp://{}\"\n\
         pool = \"local\"\n[pool.local]\nkind = \"store\"\n",
        free_address()
    );
    let file = directory.write("keyway.toml", text);
    let run = run_keyway(KEYWAY, &["serve", &file.display().to_string()]);
    assert_eq!(run.status.code(), Some(1), "{}", run.text);
    for wanted in [&admin.to_string(), "`admin` in `[server]`", "\"off\"", "--bind"] {
        assert!(run.text.contains(wanted), "{wanted:?} is missing in:\n{}", run.text);
    }
    let help = run_keyway(KEYWAY, &["serve", "--help"]).expect_success("serve --help").stdout;
    let words: Vec<&str> = help.split_whitespace().collect();
    assert!(words.join(" ").contains("it serves without one"), "{help}");
}

#[test]
fn a_start_that_fails_leaves_no_socket_file() {
    let _watch = watchdog(Duration::from_secs(30), "a failed start");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken_at = taken.local_addr().expect("it has an address");
    let directory = TempDir::new();
    let socket = directory.path().join("keyway.sock");
    let listener = |bind: &str| format!("[[listener]]\nbind = \"{bind}\"\npool = \"local\"\n");
    let unix = listener(&format!("unix://{}", socket.display()));
    let pool = "[pool.local]\nkind = \"store\"\n";
    for text in [
        format!("[server]\nadmin = \"tcp://{taken_at}\"\n{unix}{pool}"),
        format!(
            "[server]\nadmin = \"off\"\n{unix}{}{pool}",
            listener(&format!("tcp://{taken_at}"))
        ),
    ] {
        let file = directory.write("keyway.toml", &text);
        let run = run_keyway(KEYWAY, &["serve", &file.display().to_string()]);
        assert_eq!(run.status.code(), Some(1), "{}", run.text);
        assert!(run.text.contains(&taken_at.to_string()), "{}", run.text);
        assert!(!socket.exists(), "{text}");
    }
}

#[test]
fn a_store_at_another_address_serves_where_its_admin_address_is_taken() {
    let _watch = watchdog(Duration::from_secs(30), "start with --bind");
    // The address is taken, by this test or by another process.
    let _taken = TcpListener::bind("127.0.0.1:9380");
    let (directory, address) = (TempDir::new(), free_address());
    let mut command = Command::new(keyway_binary(KEYWAY));
    command.args(["serve", "--bind", &address.to_string()]);
    let mut process = Process::spawn("keyway", &mut command, directory.path());
    process.wait_ready(SOON, || Client::try_connect(address).is_ok());
    let told = "no admin address: another process listens on 127.0.0.1:9380";
    wait_until("it says so", SOON, || process.log().contains(told));
}

#[test]
fn the_memory_that_the_limits_allow_is_printed_at_start() {
    let _watch = watchdog(Duration::from_secs(30), "memory at start");
    let servers: Vec<String> = (0..3).map(|_| format!("{}:1", free_address())).collect();
    let config = KeywayConfig::new(vec![Pool::sharded("main", &servers)])
        .with_server("workers", "2")
        .with_tables("[limits]\nlink_output_len_max = \"1MiB\"");
    let keyway = Keyway::start(KEYWAY, config);
    wait_until("the bound is in the log", SOON, || {
        let log = keyway.process().log();
        let has = |what: &str, field: &str| {
            log.lines().any(|line| line.contains(what) && line.contains(field))
        };
        has("memory bound of requests not yet sent", "all together: 12.0 MiB memory_max=12582912")
            && has("memory bound of each client", "request_max=603979776")
    });
}

/// A program that stores JSON lines needs one type for each name.
#[test]
fn a_field_has_one_type_in_every_line_of_the_log() {
    let _watch = watchdog(Duration::from_secs(60), "types in the log");
    let store = Pool::store("local").with("memory_max", "\"4MiB\"");
    let dead = format!("{}:1", free_address());
    let pools = vec![store.with("eviction", "\"noeviction\""), Pool::sharded("main", &[dead])];
    let config = KeywayConfig::new(pools).with_server("log", "{ format = \"json\" }");
    let keyway = Keyway::start(KEYWAY, config);
    let value = "x".repeat(100_000);
    let mut client = keyway.client(0);
    (0..100).for_each(|nth| drop(client.command(&["SET", &format!("key:{nth}"), &value])));
    assert!(keyway.client(1).words("GET k").is_error());
    wait_until("the log tells", SOON, || {
        let log = keyway.process().log();
        log.contains("store is full") && log.contains("cannot connect")
    });
    let mut types = std::collections::BTreeMap::new();
    for line in keyway.process().log().lines().filter(|line| line.starts_with('{')) {
        let fields: serde_json::Map<_, _> = serde_json::from_str(line).expect("an object");
        for (name, value) in fields {
            let kind = std::mem::discriminant(&value);
            let known = *types.entry(name.clone()).or_insert(kind);
            assert_eq!(known, kind, "{name} in {line}");
        }
    }
    assert!(types.len() > 10 && types.contains_key("memory_max"), "{types:?}");
}

#[test]
fn check_warns_of_what_is_seldom_meant() {
    let directory = TempDir::new();
    let token = directory.write("token", "open-sesame-open-sesame");
    let text = "\
[server]
admin = \"tcp://0.0.0.0:9380\"
admin_token_file = \"TOKEN\"
[limits]
reply_len_max = \"1KiB\"
[[listener]]
bind = \"tcp://0.0.0.0:7000\"
pool = \"main\"
[[listener]]
bind = \"tcp://127.0.0.1:7001\"
pool = \"cache\"
[pool.main]
kind = \"sharded\"
servers = [\"127.0.0.1:6379:1 a\", \"127.0.0.1:6379:1 b\"]
databases = 2
ejection = { rejoin = \"flush\" }
[pool.cache]
kind = \"store\"
memory_max = \"64TiB\"
";
    let text = text.replace("TOKEN", &token.to_string_lossy());
    let file = directory.write("odd.toml", &text);
    let output = run_keyway(KEYWAY, &["check", &file.to_string_lossy()]);
    let said = output.expect_success("check of an odd file").text;
    for wanted in [
        "odd.toml:2: admin tcp://0.0.0.0:9380 can be reached from other machines",
        "odd.toml:5: reply_len_max in [limits] is below 64KiB",
        "odd.toml:7: tcp://0.0.0.0:7000 can be reached from other machines and asks for no password",
        "odd.toml:14: servers in [pool.main]: 127.0.0.1:6379 is there as a and as b",
        "odd.toml:16: [pool.main] has rejoin = \"flush\" and several databases",
        "odd.toml: memory_max of [pool.cache] is 64.0 TiB",
        "no errors, 6 warnings",
    ] {
        assert!(said.contains(wanted), "{wanted:?} is missing in:\n{said}");
    }
    let text = text.replace("reply_len_max = \"1KiB\"", "pubsub_output_len_soft = \"33MiB\"");
    let file = directory.write("contradiction.toml", &text);
    let output = run_keyway(KEYWAY, &["check", &file.to_string_lossy()]);
    assert!(!output.status.success(), "{}", output.text);
    let wanted = "contradiction.toml:5: pubsub_output_len_hard in [limits] is below";
    assert!(output.text.contains(wanted), "{}", output.text);
}
